//! Jobs whose GPUs work now and then, but do next to nothing on average over an hour.

use super::{activity_name, held, of_job, whose};
use crate::input::{DetectorInput, JobGpu, JobGpus, locations};
use crate::series::LONG_STEP_MS;
use crate::tracker::Detection;
use nodeglass_protocol::GpuField;
use nodeglass_protocol::finding::FindingKind;
use nodeglass_rules::text;

/// Findings that state the cost of the same GPU hours: these are not stated again.
const OTHERS: [FindingKind; 4] =
    [FindingKind::UnusedGpus, FindingKind::IdleGpus, FindingKind::NoProcess, FindingKind::CollectiveHang];
/// The mean of this time, in ms, must be as low: a job that works again is not reported.
const RECENT_MS: u64 = 10 * LONG_STEP_MS;

pub(super) fn detect(input: &DetectorInput<'_>, job: &JobGpus<'_>) -> Option<Detection> {
    let now_ms = input.now.relay_ms;
    let window_ms = u64::from(input.thresholds.mostly_idle_minutes) * LONG_STEP_MS;
    let from_ms = (now_ms / LONG_STEP_MS * LONG_STEP_MS).checked_sub(window_ms)?;
    if job.started_ms > from_ms {
        return None;
    }
    let is_low = |mean: &f32| *mean <= input.thresholds.mostly_idle_pct as f32;
    // Most jobs are busy: of these, the hour need not be summed up.
    mean(job, now_ms.saturating_sub(RECENT_MS), now_ms).filter(is_low)?;
    let mean_pct = mean(job, from_ms, now_ms).filter(is_low)?;
    let others_until_ms = match input.lasted_until_ms(&OTHERS, job.job.id) {
        Some(u64::MAX) => return None,
        until_ms => until_ms.map_or(0, |until_ms| input.now.wall_to_relay_ms(until_ms)),
    };
    // The mean may lack some minutes, of which nothing is stated: what was read begins later, if the relay does.
    let minutes =
        |unit: &JobGpu<'_>| unit.series.active_minutes(from_ms, now_ms).last().map(|(at_ms, _)| at_ms);
    let first_ms = job.units.iter().filter_map(minutes).min().unwrap_or(from_ms);
    let since_ms = first_ms.max(others_until_ms);
    // Before the window, the GPUs did more than in it, unless they were not read.
    let was_read = job.units.iter().all(|unit| unit.series.active_minutes(0, from_ms).next().is_some());
    let is_whole_run = job.started_ms + 2 * LONG_STEP_MS > from_ms;
    let count = job.units.len();
    let title = format!("{} mostly idle", whose(count, count));
    let mut detection = of_job(FindingKind::MostlyIdle, job, &job.units, GpuField::Util, title);
    detection.reason = "mostly idle".to_owned();
    let name = job.units.first().map_or("utilisation", activity_name);
    let window = text::span(window_ms.saturating_sub(first_ms - from_ms) / 1_000);
    detection.evidence.push(format!("{name} {mean_pct:.1} % on average over {window}"));
    detection.evidence.extend(unused(input, job, from_ms));
    detection.evidence.extend(held(&job.units));
    detection.since = Some((since_ms, since_ms == first_ms && !was_read && !is_whole_run));
    let since_pct = mean(job, since_ms, now_ms).unwrap_or(mean_pct);
    detection.set_lost_gpus(count as f64 * (1.0 - f64::from(since_pct) / 100.0));
    Some(detection)
}

/// Names the GPUs that were not used at all since `from_ms`, if others were.
fn unused(input: &DetectorInput<'_>, job: &JobGpus<'_>, from_ms: u64) -> Option<String> {
    let is_unused = |unit: &&JobGpu<'_>| {
        unit.series.used_ms().is_none_or(|used_ms| used_ms <= from_ms) && is_idle(input, unit, from_ms)
    };
    let unused: Vec<_> = job.units.iter().filter(is_unused).copied().collect();
    (!unused.is_empty() && unused.len() < job.units.len())
        .then(|| format!("not used at all: {}", locations(&unused)))
}

/// Returns whether a GPU did nothing in each known minute since `from_ms`.
pub(super) fn is_idle(input: &DetectorInput<'_>, unit: &JobGpu<'_>, from_ms: u64) -> bool {
    let idle_pct = input.thresholds.idle_pct as f32;
    unit.series.active_minutes(from_ms, input.now.relay_ms).all(|(_, active)| active <= idle_pct)
}

/// Returns the mean activity of all GPUs of a job in %, if it is known for four fifths of the minutes of each.
fn mean(job: &JobGpus<'_>, from_ms: u64, now_ms: u64) -> Option<f32> {
    let minutes = now_ms.saturating_sub(from_ms) / LONG_STEP_MS;
    let add = |(sum, count): (f32, u64), (_, active): (u64, f32)| (sum + active, count + 1);
    let mut means = 0.0;
    for unit in &job.units {
        let (sum, count) = unit.series.active_minutes(from_ms, now_ms).fold((0.0, 0), add);
        if count == 0 || count * 5 < minutes * 4 {
            return None;
        }
        means += sum / count as f32;
    }
    Some(means / job.units.len() as f32)
}
