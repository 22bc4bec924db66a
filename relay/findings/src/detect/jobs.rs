//! Problems of jobs that SLURM reports: pending for ever, close to the time limit, ended abnormally.

use super::logs;
use crate::input::DetectorInput;
use crate::job_log::Progress;
use crate::tracker::{Detection, Detections};
use nodeglass_protocol::finding::{FindingKind, FindingSeverity};
use nodeglass_protocol::job::{Job, JobState, TimeLimit};
use nodeglass_redact::mask;
use nodeglass_rules::{job_names, outcome, run, text};

/// Reasons that SLURM does not resolve by itself: the user must change the job. A hold of the owner is not among them,
/// because it is intended, nor is `PartitionNodeLimit`, which SLURM also states while required nodes are down.
const PERMANENT_REASONS: [&str; 13] = [
    // Of `launch_failed_requeued_held`: squeue prints it with spaces or underscores.
    "launch failed requeued held",
    "DependencyNeverSatisfied",
    "JobHeldAdmin",
    "JobHoldMaxRequeue",
    "JobHoldLaunchFailure",
    "ReservationDeleted",
    "PartitionTimeLimit",
    "PartitionConfig",
    "BadConstraints",
    "AccountNotAllowed",
    "InvalidAccount",
    "InvalidQOS",
    "QOSNotAllowed",
];
/// Time for which a failed job is listed after its end, in s.
const ENDED_S: u64 = 3_600;
/// Time by which a job must exceed its limit to be reported, in ms: this, or a twentieth of the time left if that is
/// more.
const MARGIN_MS: u64 = 120_000;
/// For how long the rate must have been measured to be compared with the limit, in ms, and over how many counts: the
/// first steps of a program say little.
const STEADY_MS: u64 = 600_000;
const STEADY_ADVANCES: usize = 5;

pub(super) fn detect(input: &DetectorInput<'_>, found: &mut Detections) {
    let wall_s = input.now.wall_ms() / 1_000;
    for job in input.jobs {
        let seen = match &job.state {
            JobState::Pending => pending(job),
            JobState::Running => time_limit(input, job, wall_s),
            JobState::Ended(_) => failed(input, job, wall_s),
            _ => None,
        };
        found.seen.extend(seen);
    }
}

fn of(job: &Job, kind: FindingKind, title: String) -> Detection {
    let mut detection = Detection::new(kind, job.id.to_string(), title);
    detection.jobs = vec![job.id];
    detection
}

fn pending(job: &Job) -> Option<Detection> {
    let reason = job.reason.as_ref()?;
    let reason = reason.as_str().replace('_', " ");
    let code = PERMANENT_REASONS.into_iter().find(|code| reason.starts_with(code))?;
    let title = format!("{} will not start without a change: {code}", job_names::first(job));
    let mut detection = of(job, FindingKind::PendingForever, title);
    detection.reason = "will not start".to_owned();
    detection.advice = job.reason_text.as_ref().map(ToString::to_string);
    Some(detection)
}

fn time_limit(input: &DetectorInput<'_>, job: &Job, wall_s: u64) -> Option<Detection> {
    let TimeLimit::Seconds(limit_s) = job.limit else { return None };
    let left_s = run::time_left(job, wall_s.cast_signed())?;
    let progress = input.logs.get(&job.id).and_then(|log| log.progress.as_ref());
    if let Some(progress) = progress
        && let Some((earliest_ms, latest_ms)) = progress.end_ms
    {
        let left_ms = left_s.saturating_mul(1_000);
        let limit_ms = input.now.relay_ms.saturating_add(left_ms);
        let margin_ms = MARGIN_MS.max(left_ms / 20);
        let is_steady = progress.steady_ms >= STEADY_MS && progress.advances >= STEADY_ADVANCES;
        if is_steady && earliest_ms > limit_ms.saturating_add(margin_ms) {
            return Some(too_slow(input, job, progress, left_s, earliest_ms));
        }
        // A program that says when it is done, and is so in time, needs no reminder.
        if latest_ms > input.now.relay_ms && latest_ms < limit_ms {
            return None;
        }
    }
    if left_s > (u64::from(input.thresholds.limit_minutes) * 60).min(limit_s / 10) {
        return None;
    }
    let (name, limit) = (job_names::first(job), text::span(limit_s));
    // SLURM ends jobs up to a minute late, and waits for OverTimeLimit.
    let title = match left_s {
        0 => format!("{name} is over its time limit of {limit}"),
        _ => format!("{name} reaches its time limit of {limit} soon"),
    };
    let mut detection = of(job, FindingKind::TimeLimit, title);
    detection.reason = "time limit".to_owned();
    detection.nodes.clone_from(&job.nodes);
    Some(detection)
}

/// Returns whether a pending job waits for the end of another one, as SLURM prints the dependency:
/// `afterany:48402(unfulfilled)`, `singleton(unfulfilled)`.
fn follows(next: &Job, job: &Job) -> bool {
    let Some(dependency) = next.dependency.as_ref().filter(|_| next.state == JobState::Pending) else {
        return false;
    };
    let id = job.id.to_string();
    let names = |text: &str| text.split(|char: char| !char.is_ascii_digit()).any(|number| number == id);
    let is_same_name = next.user == job.user && next.name == job.name;
    dependency.as_str().split([',', '?']).any(|term| match term.split_once(':') {
        Some((kind, jobs)) => kind.starts_with("after") && names(jobs),
        None => term.starts_with("singleton") && is_same_name,
    })
}

/// The reason of a finding that states the progress of a job.
pub(crate) const TOO_SLOW: &str = "too slow for its time limit";

/// A job that will not be done at its limit, by the progress in its log.
fn too_slow(
    input: &DetectorInput<'_>,
    job: &Job,
    progress: &Progress,
    left_s: u64,
    earliest_ms: u64,
) -> Detection {
    let needed_s = earliest_ms.saturating_sub(input.now.relay_ms) / 1_000;
    let (needed, left) = (text::span(needed_s), text::span(left_s));
    let done = progress.pct().map_or_else(String::new, |pct| format!("{pct:.0} % done, "));
    let title = format!(
        "{} will not finish before its time limit: {done}needs {needed}, {left} left",
        job_names::first(job)
    );
    // A chain of jobs resumes from checkpoints: each is meant to reach its limit.
    let goes_on = input.jobs.iter().any(|next| follows(next, job));
    let severity = if goes_on { FindingSeverity::Info } else { FindingSeverity::Warning };
    let mut detection = of(job, FindingKind::TimeLimit, title);
    detection.severity = severity;
    detection.reason = TOO_SLOW.to_owned();
    detection.confidence_pct = 80;
    detection.nodes.clone_from(&job.nodes);
    let label = mask::command(progress.label.as_str());
    let unit = if label.is_empty() { "count" } else { &label };
    let of = progress.total.map_or_else(String::new, |total| format!(" of {total:.0}"));
    detection.evidence.push(format!("{unit} {:.0}{of} in its log", progress.done));
    if let Some(rate) = progress.rate {
        detection.evidence.push(if rate >= 1.0 {
            format!("{rate:.1} per second")
        } else {
            format!("one every {}", text::span((1.0 / rate).round() as u64))
        });
    }
    detection
}

fn failed(input: &DetectorInput<'_>, job: &Job, wall_s: u64) -> Option<Detection> {
    let failure = outcome::finding(job)?;
    let ended_s = u64::try_from(job.ended?).ok()?;
    if ended_s + ENDED_S < wall_s {
        return None;
    }
    let mut detection = of(job, FindingKind::Failed, failure.title.to_string());
    detection.severity = failure.severity;
    (_, detection.subject) = failure.key.as_str().split_once('/').map(|(kind, of)| (kind, of.to_owned()))?;
    detection.confidence_pct = failure.confidence_pct;
    detection.reason = failure.reason.to_string();
    detection.advice = Some(failure.advice.to_string());
    detection.evidence.extend(failure.evidence.iter().map(ToString::to_string));
    detection.evidence.extend(input.logs.get(&job.id).map(logs::explanation).unwrap_or_default());
    detection.since = Some((input.now.to_relay_ms(ended_s.cast_signed()), false));
    Some(detection)
}
