//! Outcome of a job: whether it failed, the cause, and a remedy.

use crate::job_names;
use crate::run::ms_of;
use crate::severity::Severity;
use nodeglass_protocol::finding::{Finding, FindingKind};
use nodeglass_protocol::job::{Job, JobState};
use nodeglass_protocol::{LongText, Text};

/// The signal that SLURM reports in the exit code of a job that ran out of memory. No such signal exists.
const OUT_OF_MEMORY: u32 = 125;

/// The signal that SLURM reports in the exit code of a job that it could not launch, mostly because the folder of its log does not
/// exist.
const NOT_LAUNCHED: u32 = 53;

/// A job's exit code as SLURM writes it, `code:signal`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// `0:0`.
    Success,
    /// `0:125`: the job reached its memory limit.
    OutOfMemory,
    /// `0:53`: SLURM could not run its script, or open its log.
    NotLaunched,
    /// It was ended by this signal.
    Signal(u32),
    /// Its script exited with this code.
    Code(u32),
}

impl Exit {
    /// Parses `code:signal`. A shell reports a signal as 128 and its number.
    pub fn parse(exit: &str) -> Option<Self> {
        let (code, signal) = exit.split_once(':')?;
        Some(match (code.parse().ok()?, signal.parse().ok()?) {
            (0, 0) => Self::Success,
            (_, OUT_OF_MEMORY) => Self::OutOfMemory,
            (0, NOT_LAUNCHED) => Self::NotLaunched,
            (_, signal @ 1..) => Self::Signal(signal),
            (code @ 129..160, 0) => Self::Signal(code - 128),
            (code, 0) => Self::Code(code),
        })
    }

    /// Describes it: `exit code 1`, `ended by SIGKILL`.
    pub fn text(self) -> String {
        match self {
            Self::Success => "success".to_owned(),
            Self::OutOfMemory => "out of host memory".to_owned(),
            Self::NotLaunched => "SLURM could not run its script or open its log".to_owned(),
            Self::Signal(signal) => format!("ended by {}", signal_name(signal)),
            Self::Code(code) => format!("exit code {code}"),
        }
    }
}

fn signal_name(signal: u32) -> String {
    let name = match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        6 => "SIGABRT",
        7 => "SIGBUS",
        9 => "SIGKILL, usually at its memory or time limit",
        11 => "SIGSEGV",
        15 => "SIGTERM",
        _ => return format!("signal {signal}"),
    };
    name.to_owned()
}

/// The abnormal end of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Severity: an error, or a warning if the job met a limit as configured.
    pub severity: Severity,
    /// The event in a few words: `out of host memory`.
    pub label: String,
    /// Meaning, one sentence; empty if unknown.
    pub why: String,
}

/// Returns how a job failed; `None` unless it ended abnormally. A cancelled job did not fail.
pub fn failure(job: &Job) -> Option<Failure> {
    let JobState::Ended(how) = &job.state else { return None };
    let exit = job.exit.as_ref().and_then(|exit| Exit::parse(exit.as_str()));
    let known = |severity, label: &str, why: &str| (severity, label.to_owned(), why.to_owned());
    let (severity, label, why) = match how.as_str() {
        "CANCELLED" | "COMPLETED" | "REQUEUED" | "REVOKED" => return None,
        _ if exit == Some(Exit::OutOfMemory) || how.as_str() == "OUT_OF_MEMORY" => {
            known(Severity::Error, "out of host memory", "It exceeded its requested memory (--mem).")
        }
        "TIMEOUT" => {
            known(Severity::Warning, "time limit reached", "SLURM ended it at its time limit (--time).")
        }
        "DEADLINE" => known(Severity::Warning, "deadline missed", "It could not finish before its deadline."),
        "PREEMPTED" => known(Severity::Warning, "preempted", "A job of higher priority took its place."),
        "NODE_FAIL" => known(Severity::Error, "node failed", "One of its nodes failed."),
        "BOOT_FAIL" => known(Severity::Error, "node did not boot", "One of its nodes could not be started."),
        "LAUNCH_FAILED" | "RECONFIG_FAIL" => {
            known(Severity::Error, "failed to start", "It could not be started on its nodes.")
        }
        "FAILED" => {
            let label = exit
                .filter(|exit| *exit != Exit::Success)
                .map_or("failed".to_owned(), |exit| format!("failed: {}", exit.text()));
            (Severity::Error, label, "Its last log lines usually show the reason.".to_owned())
        }
        // It only left the list; then the exit code decides.
        "" => match exit? {
            Exit::Success | Exit::Signal(15) => return None,
            exit => (Severity::Error, exit.text(), String::new()),
        },
        _ => return None,
    };
    let why = job.reason_text.as_ref().map_or(why, ToString::to_string);
    Some(Failure { severity, label, why })
}

/// Returns how a job failed as a finding, with SLURM's facts as its evidence; `None` unless it ended abnormally at a known
/// time. A requeued job may fail again: the key has the time of the end.
pub fn finding(job: &Job) -> Option<Finding> {
    let Failure { severity, label, why } = failure(job)?;
    let ended_s = u64::try_from(job.ended?).ok()?;
    let ended_ms = ms_of(job.ended?);
    let exit = job.exit.as_ref().map(|exit| format!("exit code {exit}"));
    Some(Finding {
        key: Text::new(format!("{}/{}/{ended_s}", FindingKind::Failed.name(), job.id)),
        kind: FindingKind::Failed,
        severity: severity.into(),
        confidence_pct: 95,
        jobs: vec![job.id],
        nodes: Vec::new(),
        gpus: Vec::new(),
        title: LongText::new(format!("{} ended: {label}", job_names::first(job))),
        reason: Text::new(label),
        evidence: Some(why).filter(|why| !why.is_empty()).into_iter().chain(exit).map(Text::new).collect(),
        advice: LongText::new(advice(&job.state)),
        since_ms: ended_ms,
        or_earlier: false,
        found_ms: ended_ms,
        ended_ms: None,
        silenced_until_ms: None,
        wasted_gpus: 0,
        capture: None,
        wasted_before: None,
    })
}

fn advice(state: &JobState) -> &'static str {
    match state {
        JobState::Ended(state) if state.as_str() == "PREEMPTED" => {
            "Unless SLURM requeues it, submit it again, from its last checkpoint"
        }
        _ => FindingKind::Failed.advice(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::JobId;

    fn ended(how: &str, exit: &str) -> Job {
        let exit = (!exit.is_empty()).then(|| exit.into());
        Job { exit, ..Job::new(JobId(1), "alice".into(), JobState::Ended(how.into())) }
    }

    fn label(how: &str, exit: &str) -> Option<String> {
        failure(&ended(how, exit)).map(|failure| failure.label)
    }

    #[test]
    fn running_out_of_memory_is_no_signal() {
        assert_eq!(Exit::parse("0:125"), Some(Exit::OutOfMemory));
        assert_eq!(label("OUT_OF_MEMORY", "0:125").as_deref(), Some("out of host memory"));
        assert_eq!(label("FAILED", "0:125").as_deref(), Some("out of host memory"));
        assert!(failure(&ended("OUT_OF_MEMORY", "")).unwrap().why.contains("--mem"));
    }

    #[test]
    fn the_log_of_a_preempted_job_explains_nothing() {
        let advice = |how| finding(&Job { ended: Some(9), ..ended(how, "0:15") }).unwrap().advice;
        assert!(advice("PREEMPTED").as_str().contains("submit it again"));
        assert_eq!(advice("TIMEOUT").as_str(), FindingKind::Failed.advice());
    }

    #[test]
    fn a_job_that_ended_as_it_should_did_not_fail() {
        for (how, exit) in [("COMPLETED", "0:0"), ("CANCELLED", "0:15"), ("", "0:0"), ("", "")] {
            assert_eq!(label(how, exit), None, "{how} {exit}");
        }
        assert_eq!(failure(&Job { state: JobState::Running, ..ended("FAILED", "1:0") }), None);
    }

    #[test]
    fn limits_are_warnings_and_failures_errors() {
        let severity = |how| failure(&ended(how, "")).unwrap().severity;
        assert_eq!(["TIMEOUT", "PREEMPTED"].map(severity), [Severity::Warning; 2]);
        assert_eq!(["NODE_FAIL", "FAILED"].map(severity), [Severity::Error; 2]);
        assert_eq!(label("FAILED", "1:0").as_deref(), Some("failed: exit code 1"));
        assert_eq!(label("", "2:0").as_deref(), Some("exit code 2"));
    }

    #[test]
    fn slurms_own_explanation_is_preferred() {
        let job =
            Job { reason_text: Some("It asked for too little.".into()), ..ended("OUT_OF_MEMORY", "0:125") };
        assert_eq!(failure(&job).unwrap().why, "It asked for too little.");
    }

    #[test]
    fn exit_codes_name_their_signal() {
        let text = |exit| Exit::parse(exit).map(Exit::text);
        assert_eq!(text("0:0").as_deref(), Some("success"));
        assert_eq!(text("0:15").as_deref(), Some("ended by SIGTERM"));
        assert_eq!(text("137:0").as_deref(), Some("ended by SIGKILL, usually at its memory or time limit"));
        assert_eq!(text("1:0").as_deref(), Some("exit code 1"));
        assert_eq!(text("0:53").as_deref(), Some("SLURM could not run its script or open its log"));
        assert_eq!(text("odd"), None);
    }
}
