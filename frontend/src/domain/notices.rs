//! Detects events of jobs, and what newly needs attention, that deserve a notification, each reported once.

use crate::domain::attention;
use crate::domain::outcome;
use nodeglass_protocol::job::{Job, JobState};
use nodeglass_protocol::{JobId, NodeName, Picture};
use std::collections::{BTreeMap, BTreeSet};

/// An event to report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// What it concerns: a later notice with the same tag replaces it.
    pub about: String,
    /// The first line.
    pub title: String,
    /// The second line.
    pub body: String,
    /// The job to show when the notice is clicked.
    pub job: Option<JobId>,
}

/// The state of jobs at the last update, and what needed attention.
#[derive(Clone, Debug, Default)]
pub struct NoticeTracker {
    begun: bool,
    jobs: BTreeMap<JobId, Phase>,
    /// The keys of the items listed at the last update.
    listed: BTreeSet<String>,
}

/// The phases of a job that are distinguished here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Waiting,
    Running,
    Ended,
}

impl NoticeTracker {
    /// Compares the picture with the last one and returns the events; the first call returns none.
    pub fn update(&mut self, picture: &Picture) -> Vec<Notice> {
        let jobs: BTreeMap<_, _> = picture.jobs.iter().map(|job| (job.id, phase(job))).collect();
        let items = attention::all(&picture.jobs, picture);
        let mut notices = Vec::new();
        if self.begun {
            for job in &picture.jobs {
                notices.extend(job_notice(job, self.jobs.get(&job.id).copied(), jobs[&job.id]));
            }
            // That a job ended is an event of the job already.
            let new = items.iter().filter(|item| !item.is_past && !self.listed.contains(&item.key));
            notices.extend(new.map(|item| Notice {
                about: item.key.clone(),
                title: format!("{}: {}", item.subject, item.reason),
                body: format!("{}. {}", item.title, item.detail),
                job: item.jobs.first().copied(),
            }));
        }
        (self.begun, self.jobs) = (true, jobs);
        self.listed = items.into_iter().map(|item| item.key).collect();
        notices
    }
}

fn phase(job: &Job) -> Phase {
    match job.state {
        JobState::Pending | JobState::Configuring => Phase::Waiting,
        JobState::Ended(_) => Phase::Ended,
        _ => Phase::Running,
    }
}

fn job_notice(job: &Job, before: Option<Phase>, now: Phase) -> Option<Notice> {
    let what = match (before, now) {
        (Some(Phase::Waiting) | None, Phase::Running) => "started",
        (Some(Phase::Waiting | Phase::Running), Phase::Ended) => "ended",
        _ => return None,
    };
    let body = match (&job.state, now) {
        (JobState::Ended(how), _) => outcome::failure(job).map_or_else(
            || how.as_str().to_ascii_lowercase().replace('_', " "),
            |failure| format!("{}. {}", failure.label, failure.why).trim_end().to_owned(),
        ),
        (_, Phase::Running) => {
            let nodes: Vec<_> = job.nodes.iter().map(NodeName::as_str).collect();
            format!("on {}", nodes.join(", "))
        }
        _ => String::new(),
    };
    Some(Notice {
        about: format!("job-{}", job.id),
        title: format!("{} ({}) {what}", job.name, job.label),
        body,
        job: Some(job.id),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::attention::tests::{finding, job};
    use nodeglass_protocol::finding::{Finding, FindingKind};

    fn update(tracker: &mut NoticeTracker, job: Job, findings: Vec<Finding>) -> Vec<Notice> {
        tracker.update(&Picture { jobs: vec![job], findings, ..Picture::default() })
    }

    fn titles(notices: Vec<Notice>) -> Vec<String> {
        notices.into_iter().map(|notice| notice.title).collect()
    }

    fn silent() -> Finding {
        Finding { reason: "n1 silent".into(), ..finding(FindingKind::NodeUnreachable, 1, "n1") }
    }

    #[test]
    fn a_page_that_was_just_opened_reports_nothing() {
        let mut tracker = NoticeTracker::default();
        assert!(update(&mut tracker, job(1, "n1"), vec![silent()]).is_empty());
        assert!(update(&mut tracker, job(1, "n1"), vec![silent()]).is_empty(), "that is known");
    }

    #[test]
    fn a_start_and_an_end_are_reported_once_each() {
        let mut tracker = NoticeTracker::default();
        let mut update = |state| {
            let job = Job { state, ..job(1, "n1") };
            update(&mut tracker, job, vec![])
        };
        assert!(update(JobState::Pending).is_empty());
        assert_eq!(titles(update(JobState::Running)), ["job-1 (1) started"]);
        assert!(update(JobState::Running).is_empty());
        let ended = update(JobState::Ended("TIMEOUT".into()));
        assert_eq!(ended[0].body, "time limit reached. SLURM ended it at its time limit (--time).");
        assert_eq!(titles(ended), ["job-1 (1) ended"]);
        assert!(update(JobState::Ended("TIMEOUT".into())).is_empty());
    }

    #[test]
    fn a_finding_is_reported_once_with_its_job() {
        let mut tracker = NoticeTracker::default();
        let mut update = |findings| update(&mut tracker, job(1, "n1"), findings);
        update(vec![]);
        let notices = update(vec![silent()]);
        assert_eq!((notices[0].title.as_str(), notices[0].job), ("job-1: n1 silent", Some(JobId(1))));
        assert!(notices[0].body.starts_with("node_unreachable title. "), "{}", notices[0].body);
        assert!(update(vec![Finding { title: "n1 is down".into(), ..silent() }]).is_empty(), "that is known");
        assert!(update(vec![]).is_empty(), "its end is no event");
        assert_eq!(update(vec![silent()]).len(), 1, "it returned");
    }
}
