//! Progress of a job's program, and its expected end.

use crate::domain::severity::Severity;
use crate::domain::text;
use nodeglass_protocol::insight::{JobProgress, ProgressEnd};
use nodeglass_protocol::job::Job;
use nodeglass_rules::run;

/// Returns what is counted and how far it is: `step 1,200/5,000`, `42 %`, `epoch 3/10, 32 %`.
pub fn count(progress: &JobProgress) -> String {
    let number = |value: f64| match value.fract() == 0.0 {
        true => text::grouped(value.max(0.0) as u64),
        false => text::tenths(value),
    };
    let total = progress.total.map_or_else(String::new, |total| format!("/{}", number(total)));
    match (progress.label.as_str(), progress.epoch) {
        (label, Some(epoch)) => {
            let pct = (100.0 * epoch.ratio()).floor();
            format!("{label} {}{total}, {pct} %", number(epoch.number)).trim_start().to_owned()
        }
        ("%", None) => format!("{} %", number(progress.done)),
        (label, None) => format!("{label} {}{total}", number(progress.done)).trim_start().to_owned(),
    }
}

/// Returns when it will be done: `14:30–14:45`. `at` formats a time of the relay's clock, in ms.
pub fn end(end: ProgressEnd, at: impl Fn(u64) -> String) -> String {
    let (earliest, latest) = (at(end.earliest_at_ms), at(end.latest_at_ms));
    if earliest == latest { latest } else { format!("{earliest}–{latest}") }
}

/// Returns how an end compares with the time limit of its job: an error if it is certainly later, a warning if it may
/// be. `wall_ahead_ms` leads from the relay's clock to ms since 1970.
pub fn severity(end: ProgressEnd, job: &Job, wall_ahead_ms: i64) -> Severity {
    let Some(limit_s) = run::limit_reached_at(job) else { return Severity::Ok };
    let limit_ms = limit_s.saturating_mul(1_000);
    let is_late = |at_ms: u64| at_ms.saturating_add_signed(wall_ahead_ms).cast_signed() > limit_ms;
    match (is_late(end.earliest_at_ms), is_late(end.latest_at_ms)) {
        (true, _) => Severity::Error,
        (false, true) => Severity::Warning,
        (false, false) => Severity::Ok,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::JobId;
    use nodeglass_protocol::insight::EpochProgress;
    use nodeglass_protocol::job::{JobState, TimeLimit};

    const END: ProgressEnd = ProgressEnd { earliest_at_ms: 60_000, latest_at_ms: 120_000 };

    #[test]
    fn a_count_has_the_name_that_the_log_gives_it() {
        let of = |label: &str, done, total| {
            let label = label.into();
            let total = Some(total);
            count(&JobProgress {
                label,
                done,
                total,
                epoch: None,
                rate_per_s: None,
                advanced_at_ms: 0,
                end: None,
                part_end: None,
            })
        };
        assert_eq!(of("epoch", 3.0, 10.0), "epoch 3/10");
        assert_eq!(of("", 1_200.0, 5_000.0), "1,200/5,000");
        assert_eq!(of("%", 45.2, 100.0), "45.2 %");
        let epoch = Some(EpochProgress { number: 3.0, done: 236.0, total: 739.0 });
        let (label, done, total) = ("epoch".into(), 2.32, Some(100.0));
        let known = JobProgress {
            label,
            done,
            total,
            epoch,
            rate_per_s: None,
            advanced_at_ms: 0,
            end: None,
            part_end: None,
        };
        assert_eq!(count(&known), "epoch 3/100, 31 %");
        assert_eq!(count(&JobProgress { total: None, ..known.clone() }), "epoch 3, 31 %");
        let step = JobProgress { label: "iter".into(), done: 2_019.0, total: None, epoch: None, ..known };
        assert_eq!(count(&step), "iter 2,019");
    }

    #[test]
    fn an_end_is_a_time_or_a_range() {
        let minutes = |at_ms: u64| format!("{}", at_ms / 60_000);
        assert_eq!(end(END, minutes), "1–2");
        assert_eq!(end(ProgressEnd { latest_at_ms: 60_000, ..END }, minutes), "1");
    }

    #[test]
    fn an_end_after_the_time_limit_is_an_error_and_one_that_may_be_a_warning() {
        let of = |limit| {
            let job = Job::new(JobId(1), "alice".into(), JobState::Running);
            severity(END, &Job { start: Some(1_000), limit, ..job }, 1_000_000)
        };
        assert_eq!(of(TimeLimit::Seconds(59)), Severity::Error);
        assert_eq!(of(TimeLimit::Seconds(90)), Severity::Warning);
        assert_eq!(of(TimeLimit::Seconds(120)), Severity::Ok);
        assert_eq!(of(TimeLimit::Unlimited), Severity::Ok);
    }
}
