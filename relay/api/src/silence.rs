//! Silences of findings as resources.

use super::{Listed, Timestamp};
use nodeglass_protocol::JobId;
use nodeglass_protocol::finding::{self, FindingKind};
use nodeglass_protocol::job::Parent;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A time in which some findings are not reported: listed as silenced, and never a notice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Silence {
    /// The kind that is silenced; `null` for all kinds.
    pub kind: Option<FindingKind>,
    /// Numeric id of the job, array or heterogeneous job; `null` if of all jobs.
    pub job: Option<u32>,
    /// Its id as SLURM prints it, `48440_15`; `null` without a job.
    pub job_label: Option<String>,
    /// When it ends.
    pub until: Timestamp,
}

/// Result of a request to silence findings, or to end a silence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SilenceChange {
    /// The change, and the other silence that remains: `silenced for 1 h: all findings of job 17`.
    pub message: String,
    /// Whether the request changed anything: `false` if there was no silence to end.
    pub is_changed: bool,
    /// The silence that lasts now; `null` if it was to end.
    pub silence: Option<Silence>,
}

impl Silence {
    /// Converts a silence; `jobs` are the listed jobs.
    pub fn new(silence: &finding::Silence, jobs: &[impl Listed]) -> Self {
        Self {
            kind: silence.kind,
            job: silence.job.map(|job| job.0),
            job_label: silence.job.map(|job| match part_of(job, jobs) {
                Whole::Job => label(job, jobs),
                Whole::Array | Whole::Het => job.to_string(),
            }),
            until: Timestamp::from_millis(silence.until_ms),
        }
    }
}

/// The kind of a number that jobs may be parts of.
enum Whole {
    Job,
    Array,
    Het,
}

fn part_of(id: JobId, jobs: &[impl Listed]) -> Whole {
    let whole = jobs.iter().find_map(|job| match job.parent()? {
        Parent::Array { job, .. } => (job == id).then_some(Whole::Array),
        Parent::Het { job, .. } => (job == id).then_some(Whole::Het),
    });
    whole.unwrap_or(Whole::Job)
}

fn label(id: JobId, jobs: &[impl Listed]) -> String {
    let job = jobs.iter().find(|job| job.id() == id.0);
    job.map_or_else(|| id.to_string(), |job| job.label().to_owned())
}

/// Returns the jobs that a silence of a job covers: `job 17`, `all tasks of array 48440`, `all components of 48511`.
pub fn silenced_jobs(id: JobId, jobs: &[impl Listed]) -> String {
    match part_of(id, jobs) {
        Whole::Job => format!("job {}", label(id, jobs)),
        Whole::Array => format!("all tasks of array {id}"),
        Whole::Het => format!("all components of {id}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::job::{Job, JobState};

    fn job(id: u32, label: &str, part_of: Option<Parent>) -> Job {
        let job = Job::new(JobId(id), "alice".into(), JobState::Running);
        Job { label: label.into(), part_of, ..job }
    }

    #[test]
    fn a_job_is_named_as_slurm_prints_it_and_a_whole_as_such() {
        let task = |id, label, task| job(id, label, Some(Parent::Array { job: JobId(40), task }));
        let het = Parent::Het { job: JobId(50), offset: 1 };
        let jobs = [
            job(17, "17", None),
            task(41, "40_3", Some(3)),
            // The pending rest of an array has its number.
            task(40, "40_[4-9]", None),
            job(51, "50+1", Some(het)),
        ];
        let said = |id| silenced_jobs(JobId(id), &jobs);
        assert_eq!(
            [said(17), said(41), said(40), said(50), said(51), said(99)],
            ["job 17", "job 40_3", "all tasks of array 40", "all components of 50", "job 50+1", "job 99"]
        );
        let silence = |id| finding::Silence { kind: None, job: Some(JobId(id)), until_ms: 0 };
        let label = |id| Silence::new(&silence(id), &jobs).job_label.unwrap();
        assert_eq!([label(41), label(40), label(99)], ["40_3", "40", "99"]);
    }
}
