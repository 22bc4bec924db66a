//! Messages in the logs of running jobs. What the log of a failed job states is evidence of its failure.

use crate::input::{DetectorInput, JobGpu, JobGpus};
use crate::job_log::{JobLog, LogMessage, NAN_LOSS};
use crate::series::does_work;
use crate::tracker::{Detection, Detections};
use nodeglass_protocol::GpuField;
use nodeglass_protocol::finding::FindingKind;
use nodeglass_protocol::job::Job;
use nodeglass_rules::{job_names, text};

/// A message is the end of a log if no line follows for this long, in ms.
const SILENT_MS: u64 = 30_000;
/// While the GPUs of the job work, this time is this many of the longest pauses of the log, limited to
/// [`MAX_SILENT_MS`].
const SILENT_GAPS: u64 = 3;
const MAX_SILENT_MS: u64 = 600_000;
/// While the GPUs of the job work and the log has not paused yet, the time in ms.
const FIRST_SILENT_MS: u64 = 120_000;
/// The steps of which the readings show whether a job works.
const WORKING_STEPS: usize = 6;
/// A program that advances this long after a message has handled it, in ms.
const HANDLED_MS: u64 = 60_000;
/// Time in ms within which the relay reads what was written to a log.
const READ_MS: u64 = 15_000;
/// Number of lines of a log that explain a failure.
const MAX_LINES: usize = 3;

pub(super) fn detect(input: &DetectorInput<'_>, jobs: &[JobGpus<'_>], found: &mut Detections) {
    for JobGpus { job, units, .. } in jobs {
        let Some(log) = input.logs.get(&job.id) else { continue };
        let now_ms = input.now.relay_ms;
        let works = units.iter().any(|unit| works(unit, now_ms));
        let matters = |message: &&LogMessage| matters(message, log, works, now_ms);
        found.seen.extend(log.messages.iter().filter(matters).map(|message| of(job, message)));
    }
}

/// Returns whether a GPU worked in the last minute. A GPU that only waits for a failed rank does not work.
fn works(unit: &JobGpu<'_>, now_ms: u64) -> bool {
    let mean = |field| unit.series.mean(field, WORKING_STEPS, now_ms);
    does_work(unit.gpu, mean(GpuField::Power), mean(GpuField::SmActive))
}

/// Returns whether the program did not go on after a message. `works` if its GPUs do.
fn matters(message: &LogMessage, log: &JobLog, works: bool, now_ms: u64) -> bool {
    let progress = log.progress.as_ref().filter(|progress| progress.rate.is_some());
    let handled_ms = message.last_ms + HANDLED_MS;
    let advances = progress.is_some_and(|progress| progress.advanced_ms > handled_ms)
        || log.advanced_ms.is_some_and(|at_ms| at_ms > handled_ms);
    let counts_steps = progress.is_some() || log.advanced_ms.is_some();
    if !message.pattern.outlasts_progress && (advances || counts_steps && now_ms < handled_ms + READ_MS) {
        return false;
    }
    // A loss scaler skips a step now and then.
    if message.pattern.name.as_str() == NAN_LOSS && message.count < 2 && now_ms < message.first_ms + SILENT_MS
    {
        return false;
    }
    if !message.pattern.is_final {
        return true;
    }
    // What a program writes later shows that it went on, and so do GPUs that work. A program may write seldom.
    let goes_on = message.written_ms > handled_ms;
    let gaps_ms = message.longest_gap_ms.map(|gap_ms| gap_ms.saturating_mul(SILENT_GAPS));
    let silent_ms = match works {
        true => gaps_ms.unwrap_or(FIRST_SILENT_MS).clamp(SILENT_MS, MAX_SILENT_MS),
        false => SILENT_MS,
    };
    message.is_last && !goes_on && message.written_ms + silent_ms <= now_ms
}

fn of(job: &Job, message: &LogMessage) -> Detection {
    let pattern = &message.pattern;
    let title = format!("{}: {}", job_names::first(job), pattern.summary);
    let subject = format!("{}/{}", job.id, pattern.name);
    let mut detection = Detection::new(FindingKind::LogMessage, subject, title);
    detection.severity = pattern.severity;
    detection.jobs = vec![job.id];
    detection.nodes.clone_from(&job.nodes);
    detection.reason = pattern.summary.to_string();
    detection.confidence_pct = if pattern.is_final { 75 } else { 90 };
    detection.evidence = vec![message.line.clone()];
    if message.count > 1 {
        detection.evidence.push(format!("in {} lines", text::grouped(u64::from(message.count))));
    }
    detection.advice = Some(pattern.advice.to_owned());
    detection.since = Some((message.first_ms, message.or_earlier));
    detection
}

/// The lines of a log that explain how its job ended: the last messages, or else the last lines.
pub(super) fn explanation(log: &JobLog) -> Vec<String> {
    let known: Vec<String> =
        log.messages.iter().rev().take(MAX_LINES).rev().map(|message| message.line.clone()).collect();
    if known.is_empty() { log.last_lines.clone() } else { known }
}
