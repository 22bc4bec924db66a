//! When a job ran, how long, and which times are of its run: a note must be near it.

use nodeglass_protocol::job::{Job, JobState, Parent, TimeLimit};

/// A time may be this far outside of the run: clocks differ, and a job is prepared before it starts.
pub const TOLERANCE_MS: u64 = 3_600_000;

/// SLURM's state of a run that was requeued.
pub const REQUEUED: &str = "REQUEUED";

/// The last second of the year 9999: the last that can be written.
const MAX_S: u64 = 253_402_300_799;

/// Converts s since 1970, as SLURM or a file states them, to ms; the closest possible value if they cannot be meant.
pub fn ms_of(unix_s: i64) -> u64 {
    u64::try_from(unix_s).unwrap_or(0).min(MAX_S) * 1_000
}

/// Returns whether an ended job had started: SLURM states the end of one that had not as its start, or no start.
pub fn has_run(job: &Job) -> bool {
    !job.nodes.is_empty() || job.start.zip(job.ended).is_some_and(|(start, ended)| start < ended)
}

/// Returns how long a job has run at `now_s`, in s since 1970, as SLURM counts it: without the time for which it was suspended.
pub fn run_time(job: &Job, now_s: i64) -> Option<u64> {
    run_time_until(job, job.ended.unwrap_or(now_s))
}

/// Returns how long a job has run at `until_s`, whether or not it had ended by then.
pub fn run_time_until(job: &Job, until_s: i64) -> Option<u64> {
    let stopped = job.suspension.filter(|_| job.state == JobState::Suspended).map(|suspension| suspension.at);
    Some(stopped.unwrap_or(until_s).saturating_sub(counted_from(job)?).max(0).cast_unsigned())
}

/// Returns when a job ended that was found to have ended at `wall_s`, in s since 1970: not before its start, which SLURM states
/// by another clock.
pub fn end_found_at(job: &Job, wall_s: i64) -> i64 {
    job.start.map_or(wall_s, |start| start.max(wall_s))
}

/// Returns when a job was last resumed, in s since 1970, if it had been suspended: until then, others had its CPUs.
pub fn resumed_at(job: &Job) -> Option<i64> {
    let at = job.suspension.filter(|_| job.state != JobState::Suspended)?.at;
    // One that ends while it is suspended ends with the suspension.
    job.ended.is_none_or(|ended| ended > at).then_some(at)
}

/// Returns the time left in s, if the job has a limit.
pub fn time_left(job: &Job, now_s: i64) -> Option<u64> {
    match job.limit {
        TimeLimit::Seconds(limit) => Some(limit.saturating_sub(run_time(job, now_s)?)),
        TimeLimit::Unknown | TimeLimit::Unlimited => None,
    }
}

/// Returns when a job reaches its time limit, in s since 1970, if it has one and is not suspended again.
pub fn limit_reached_at(job: &Job) -> Option<i64> {
    match job.limit {
        TimeLimit::Seconds(limit) => Some(counted_from(job)?.saturating_add_unsigned(limit)),
        TimeLimit::Unknown | TimeLimit::Unlimited => None,
    }
}

/// The start of a job that has started, later by the time for which it was suspended.
fn counted_from(job: &Job) -> Option<i64> {
    let start = job.start.filter(|_| job.state != JobState::Pending)?;
    Some(job.suspension.map_or(start, |suspension| suspension.at.saturating_sub_unsigned(suspension.ran_s)))
}

/// Returns whether a time, in ms since 1970, is before the submission of a job: what is from then is of an earlier job with its
/// number.
pub fn is_before_submission(at_ms: u64, job: &Job) -> bool {
    job.submitted.is_some_and(|submitted| at_ms < ms_of(submitted))
}

/// Properties of a job by which it differs from another with its number, which SLURM uses again once numbers wrap or its state is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Submission<'a> {
    /// Its user.
    pub user: &'a str,
    /// Its name.
    pub name: &'a str,
    /// When it was submitted, in s since 1970; a requeue changes it.
    pub submitted_s: Option<i64>,
    /// Id of the array or heterogeneous job that it is a part of.
    pub parent: Option<u32>,
}

impl<'a> Submission<'a> {
    /// Returns the submission of a job.
    pub fn of(job: &'a Job) -> Self {
        let parent = job.part_of.map(|(Parent::Array { job, .. } | Parent::Het { job, .. })| job.0);
        Self { user: job.user.as_str(), name: job.name.as_str(), submitted_s: job.submitted, parent }
    }

    /// Returns whether it is another job than an `earlier` one with the same number, rather than that one, requeued or renamed. A job of
    /// the same user and name cannot be distinguished from a requeued one.
    pub fn reuses_number_of(&self, earlier: &Self) -> bool {
        let is_later = || self.submitted_s.zip(earlier.submitted_s).is_some_and(|(own, other)| own > other);
        let has_other_parent = || self.parent.zip(earlier.parent).is_some_and(|(own, other)| own != other);
        self.user != earlier.user || has_other_parent() || self.name != earlier.name && is_later()
    }
}

/// The run of a job, in ms since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// When it started; `None` before.
    pub start_ms: Option<u64>,
    /// When it ended; `None` before.
    pub ended_ms: Option<u64>,
}

impl Run {
    /// Returns the run of a job.
    pub fn of(job: &Job) -> Self {
        let ms = |s: Option<i64>| s.filter(|s| *s >= 0).map(ms_of);
        // The start of a job that waits is only expected.
        let start = job.start.filter(|_| job.is_active() || job.ended.is_some());
        Self { start_ms: ms(start), ended_ms: ms(job.ended) }
    }

    /// Returns whether a time is of the run, with [`TOLERANCE_MS`] on both sides. What is not known excludes nothing.
    pub fn includes(self, at_ms: u64) -> bool {
        let is_early = self.start_ms.is_some_and(|start_ms| at_ms.saturating_add(TOLERANCE_MS) < start_ms);
        let is_late = self.ended_ms.is_some_and(|ended_ms| at_ms > ended_ms.saturating_add(TOLERANCE_MS));
        !is_early && !is_late
    }

    /// Returns when it was, with times as `at` writes them: `started at 09:14 and ended at 10:02`.
    pub fn text(self, at: impl Fn(u64) -> String) -> String {
        let parts = [("started", self.start_ms), ("ended", self.ended_ms)];
        let known = parts.into_iter().filter_map(|(verb, ms)| Some(format!("{verb} at {}", at(ms?))));
        known.collect::<Vec<_>>().join(" and ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::JobId;
    use nodeglass_protocol::job::Suspension;

    fn job(state: JobState, start: Option<i64>, ended: Option<i64>) -> Run {
        Run::of(&Job { start, ended, ..Job::new(JobId(17), "alice".into(), state) })
    }

    /// Job 17, which may run for 600 s, started at 1,000 and was last suspended or resumed at `at`, after `ran_s`.
    fn suspended(state: JobState, at: i64, ran_s: u64) -> Job {
        let (suspension, limit) = (Some(Suspension { at, ran_s }), TimeLimit::Seconds(600));
        Job { start: Some(1_000), limit, suspension, ..Job::new(JobId(17), "alice".into(), state) }
    }

    #[test]
    fn time_left_counts_down_and_stops_at_zero() {
        let job = Job { suspension: None, ..suspended(JobState::Running, 0, 0) };
        assert_eq!([1_100, 9_000, 900].map(|now_s| time_left(&job, now_s)), [Some(500), Some(0), Some(600)]);
        assert_eq!(limit_reached_at(&job), Some(1_600));
        let unlimited = Job { limit: TimeLimit::Unlimited, ..job.clone() };
        assert_eq!((time_left(&unlimited, 1_100), limit_reached_at(&unlimited)), (None, None));
        let waiting = Job { state: JobState::Pending, ..job };
        assert_eq!((run_time(&waiting, 1_100), time_left(&waiting, 1_100)), (None, None));
    }

    #[test]
    fn the_time_of_a_suspended_job_stands_still_and_counts_on_when_it_is_resumed() {
        let job = suspended(JobState::Suspended, 1_039, 39);
        assert_eq!((run_time(&job, 1_039), run_time(&job, 9_000)), (Some(39), Some(39)));
        assert_eq!(time_left(&job, 9_000), Some(561));
        let job = suspended(JobState::Running, 1_145, 39);
        assert_eq!((run_time(&job, 1_171), time_left(&job, 1_171)), (Some(65), Some(535)));
        assert_eq!(limit_reached_at(&job), Some(1_706));
        let ended = Job { ended: Some(1_173), state: JobState::Ended("CANCELLED".into()), ..job };
        assert_eq!(run_time(&ended, 9_000), Some(67));
        let hostile = suspended(JobState::Running, i64::MIN, u64::MAX);
        assert_eq!((time_left(&hostile, i64::MAX), run_time(&hostile, i64::MIN)), (Some(0), Some(0)));
    }

    #[test]
    fn a_requeued_or_renamed_job_is_the_same_but_not_a_later_one_with_its_number() {
        let job = Job { name: "train".into(), submitted: Some(100), ..suspended(JobState::Running, 0, 0) };
        let reuses = |later: Job| Submission::of(&later).reuses_number_of(&Submission::of(&job));
        let requeued = Job { submitted: Some(200), ..job.clone() };
        assert!(!reuses(requeued.clone()));
        assert!(!reuses(Job { name: "renamed".into(), ..job.clone() }));
        assert!(!reuses(Job { name: "renamed".into(), submitted: None, ..job.clone() }), "not known");
        assert!(reuses(Job { name: "eval".into(), ..requeued.clone() }));
        assert!(reuses(Job { user: "bob".into(), ..requeued.clone() }));
        let task =
            |array| Job { part_of: Some(Parent::Array { job: JobId(array), task: Some(1) }), ..job.clone() };
        let (first, second) = (task(3), task(4));
        assert!(Submission::of(&second).reuses_number_of(&Submission::of(&first)));
        assert!(!reuses(first));
    }

    #[test]
    fn a_run_includes_an_hour_before_and_after_it() {
        let run = Run { start_ms: Some(10_000_000), ended_ms: Some(20_000_000) };
        let within = [6_400_000, 15_000_000, 23_600_000].map(|at_ms| run.includes(at_ms));
        assert_eq!((within, run.includes(6_399_999), run.includes(23_600_001)), ([true; 3], false, false));
        assert_eq!(run.text(|ms| (ms / 1_000).to_string()), "started at 10000 and ended at 20000");
    }

    #[test]
    fn what_is_not_known_excludes_nothing() {
        assert!(job(JobState::Pending, Some(9_000_000), None).includes(0), "its start is only expected");
        let run = job(JobState::Running, Some(9_000), None);
        assert!(run.includes(u64::MAX) && !run.includes(0));
        assert_eq!(job(JobState::Running, Some(i64::MAX), Some(-1)).ended_ms, None);
        assert_eq!(Run::default().text(|_| String::new()), "");
    }
}
