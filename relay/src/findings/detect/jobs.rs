//! What SLURM reports of jobs: pending for ever, close to the time limit, ended abnormally.

use super::name;
use crate::findings::scene::Scene;
use crate::findings::tracker::{Detection, Detections};
use nodeglass_protocol::finding::{FindingKind, FindingSeverity};
use nodeglass_protocol::job::{Job, JobState, TimeLimit};
use nodeglass_rules::outcome;
use nodeglass_rules::severity::Severity;
use nodeglass_rules::text;

/// Reasons that SLURM does not resolve by itself: the user must change the job. A hold of the owner is not among them,
/// because it is intended.
const NEVER: [&str; 13] = [
    "DependencyNeverSatisfied",
    "JobHeldAdmin",
    "JobHoldMaxRequeue",
    "JobHoldLaunchFailure",
    "ReservationDeleted",
    "PartitionNodeLimit",
    "PartitionTimeLimit",
    "PartitionConfig",
    "BadConstraints",
    "AccountNotAllowed",
    "InvalidAccount",
    "InvalidQOS",
    "QOSNotAllowed",
];
/// How long a failed job is listed after its end, in s.
const ENDED_S: u64 = 3_600;
/// Time before the limit, in s, from which on it is reported at most.
const LIMIT_S: u64 = 3_600;

pub(super) fn detect(scene: &Scene<'_>, found: &mut Detections) {
    let wall_s = scene.now.wall_ms() / 1_000;
    for job in scene.jobs {
        let seen = match &job.state {
            JobState::Pending => pending(job),
            JobState::Running => time_limit(job, wall_s),
            JobState::Ended(_) => failed(scene, job, wall_s),
            _ => None,
        };
        found.seen.extend(seen);
    }
}

fn of(job: &Job, kind: FindingKind, severity: FindingSeverity, title: String) -> Detection {
    let mut detection = Detection::new(kind, job.id.to_string(), severity, title);
    detection.jobs = vec![job.id];
    detection
}

fn pending(job: &Job) -> Option<Detection> {
    let reason = job.reason.as_ref()?;
    let code = NEVER.into_iter().find(|code| reason.as_str().starts_with(code))?;
    let title = format!("{} will not start by itself: {code}", name(job));
    let mut detection = of(job, FindingKind::PendingForever, FindingSeverity::Warning, title);
    detection.reason = "will not start".to_owned();
    detection.advice = job.reason_text.as_ref().map(ToString::to_string);
    Some(detection)
}

fn time_limit(job: &Job, wall_s: u64) -> Option<Detection> {
    let TimeLimit::Seconds(limit_s) = job.limit else { return None };
    let start_s = u64::try_from(job.start?).ok()?;
    let left_s = (start_s + limit_s).saturating_sub(wall_s);
    if left_s > LIMIT_S.min(limit_s / 10) {
        return None;
    }
    let title = format!("{} reaches its time limit of {} soon", name(job), text::span(limit_s));
    let mut detection = of(job, FindingKind::TimeLimit, FindingSeverity::Info, title);
    detection.reason = "time limit".to_owned();
    detection.nodes.clone_from(&job.nodes);
    Some(detection)
}

fn failed(scene: &Scene<'_>, job: &Job, wall_s: u64) -> Option<Detection> {
    let failure = outcome::failure(job)?;
    let ended_s = u64::try_from(job.ended?).ok()?;
    if ended_s + ENDED_S < wall_s {
        return None;
    }
    let severity = match failure.severity {
        Severity::Error => FindingSeverity::Error,
        _ => FindingSeverity::Warning,
    };
    let title = format!("{} ended: {}", name(job), failure.label);
    let mut detection = of(job, FindingKind::Failed, severity, title);
    // A requeued job may fail again.
    detection.subject = format!("{}/{ended_s}", job.id);
    detection.reason = failure.label;
    if !failure.why.is_empty() {
        detection.evidence.push(failure.why);
    }
    detection.evidence.extend(job.exit.as_ref().map(|exit| format!("exit code {exit}")));
    detection.since = Some((scene.now.to_relay_ms(ended_s.cast_signed()), false));
    Some(detection)
}
