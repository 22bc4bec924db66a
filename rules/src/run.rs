//! When a job ran, and which times are of its run: a note must be near it.

use nodeglass_protocol::job::Job;

/// A time may be this far outside of the run: clocks differ, and a job is prepared before it starts.
pub const TOLERANCE_MS: u64 = 3_600_000;

/// The last second of the year 9999: the last that can be written.
const MAX_S: u64 = 253_402_300_799;

/// Converts s since 1970, as SLURM or a file states them, to ms; the closest possible value if they cannot be meant.
pub fn ms_of(unix_s: i64) -> u64 {
    u64::try_from(unix_s).unwrap_or(0).min(MAX_S) * 1_000
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
    use nodeglass_protocol::job::JobState;

    fn job(state: JobState, start: Option<i64>, ended: Option<i64>) -> Run {
        Run::of(&Job { start, ended, ..Job::new(JobId(17), "alice".into(), state) })
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
