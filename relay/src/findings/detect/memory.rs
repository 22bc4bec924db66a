//! Memory that will be exhausted: of a GPU by a leak, of a job at its limit on a node.

use super::of_job;
use crate::findings::scene::{JobGpus, Scene, Unit};
use crate::findings::series::LONG_STEP_MS;
use crate::findings::tracker::{Detection, Detections};
use nodeglass_protocol::finding::{FindingKind, FindingSeverity};
use nodeglass_protocol::picture::NodePicture;
use nodeglass_protocol::{GpuField, JobField};
use nodeglass_rules::{job_names, text};

/// Minutes of growth that a forecast needs.
const LEAST_MINUTES: usize = 15;
/// Minutes that it is made from at most.
const MOST_MINUTES: usize = 60;
/// Growth in bytes from which on it is one: below it is a cache that fills, or fragmentation.
const LEAST_GROWTH: f64 = (1u64 << 30) as f64;
/// Share of the minutes in which the peak must grow: an allocator grows in leaps, and then rests.
const LEAST_RISING: f64 = 0.6;
/// How well a line must describe the peaks (R²).
const LEAST_FIT: f64 = 0.9;

pub(super) fn detect(scene: &Scene<'_>, job: &JobGpus<'_>, found: &mut Detections) {
    let subject = job.job.id.to_string();
    if !job.is_complete {
        found.unknown(&[FindingKind::GpuMemoryForecast, FindingKind::JobMemoryForecast], &subject);
    }
    for unit in job.units.iter().filter(|unit| unit.is_whole()) {
        found.seen.extend(leak(scene, job, unit));
    }
    let mut last = None;
    for unit in &job.units {
        if last != Some(&unit.node.name) {
            last = Some(&unit.node.name);
            found.seen.extend(limit(scene, job, unit.node));
        }
    }
}

/// A line through the peaks.
struct Growth {
    /// Bytes a minute, and half the width of its 95 % confidence interval.
    slope: f64,
    margin: f64,
    fit: f64,
    /// Share of the minutes whose peak is above that of the minute before.
    rising: f64,
    last: f64,
    minutes: usize,
}

fn leak(scene: &Scene<'_>, job: &JobGpus<'_>, unit: &Unit<'_>) -> Option<Detection> {
    let total = unit.value(GpuField::MemTotal)? as f64;
    let reserved = unit.value(GpuField::MemReserved).unwrap_or(0) as f64;
    let growth = growth(unit, job.started_ms, scene.now.relay_ms)?;
    let gained = growth.slope * growth.minutes as f64;
    if gained < LEAST_GROWTH || growth.fit < LEAST_FIT || growth.rising < LEAST_RISING {
        return None;
    }
    let free = (total - reserved - growth.last).max(0.0);
    let minutes = |slope: f64| free / slope;
    let horizon_minutes = f64::from(scene.thresholds.forecast_hours) * 60.0;
    let (soonest, latest) = (growth.slope + growth.margin, growth.slope - growth.margin);
    if latest <= 0.0 || minutes(growth.slope) > horizon_minutes {
        return None;
    }
    let in_words = |slope: f64| text::span((minutes(slope) * 60.0) as u64);
    let title = format!("{} will run out of memory in about {}", unit.title(), in_words(growth.slope));
    let units = [*unit];
    let mut detection = of_job(
        FindingKind::GpuMemoryForecast,
        FindingSeverity::Warning,
        job,
        &units,
        GpuField::MemUsed,
        title,
    );
    detection.subject = format!("{}/{}", job.job.id, unit.gpu.facts.uuid);
    detection.reason = format!("{} memory grows", unit.gpu.facts.label());
    detection.confidence_pct = if growth.minutes >= 30 { 95 } else { 85 };
    detection.evidence = vec![
        format!(
            "grows by {} MiB a minute for {} min",
            (growth.slope / f64::from(1 << 20)) as u64,
            growth.minutes
        ),
        format!("{} of {} GiB in use", text::gib(growth.last as u64), text::gib(total as u64)),
        format!("between {} and {} from now (95 %)", in_words(soonest), in_words(latest)),
    ];
    detection.since = Some((scene.now.relay_ms.saturating_sub(growth.minutes as u64 * LONG_STEP_MS), true));
    Some(detection)
}

/// Fits a line through the peaks of the last minutes, without the first minutes of the job, in which everything grows.
fn growth(unit: &Unit<'_>, started_ms: u64, now_ms: u64) -> Option<Growth> {
    let from_ms =
        (started_ms + 5 * LONG_STEP_MS).max(now_ms.saturating_sub(MOST_MINUTES as u64 * LONG_STEP_MS));
    let points: Vec<(f64, f64)> = unit
        .series
        .peaks()
        .filter(|(at_ms, _)| *at_ms >= from_ms)
        .map(|(at_ms, bytes)| ((at_ms - from_ms) as f64 / LONG_STEP_MS as f64, bytes))
        .collect();
    let (first, last) = (points.first()?, points.last()?);
    let minutes = (last.0 - first.0) as usize;
    if minutes < LEAST_MINUTES || points.len() * 5 < minutes * 4 {
        return None;
    }
    let count = points.len() as f64;
    let (mean_x, mean_y) = (
        points.iter().map(|(x, _)| x).sum::<f64>() / count,
        points.iter().map(|(_, y)| y).sum::<f64>() / count,
    );
    let sum =
        |of: &dyn Fn(f64, f64) -> f64| points.iter().map(|(x, y)| of(x - mean_x, y - mean_y)).sum::<f64>();
    let (xx, xy, yy) = (sum(&|x, _| x * x), sum(&|x, y| x * y), sum(&|_, y| y * y));
    if xx <= 0.0 || yy <= 0.0 {
        return None;
    }
    let slope = xy / xx;
    let residual = (yy - slope * xy).max(0.0);
    let margin = 1.96 * (residual / (count - 2.0) / xx).sqrt();
    let rises = points.windows(2).filter(|pair| pair[1].1 > pair[0].1).count();
    let rising = rises as f64 / (points.len() - 1) as f64;
    Some(Growth { slope, margin, fit: 1.0 - residual / yy, rising, last: last.1, minutes })
}

/// A job close to its memory limit on a node.
fn limit(scene: &Scene<'_>, job: &JobGpus<'_>, node: &NodePicture) -> Option<Detection> {
    let usage = node.job_usage.iter().find(|usage| usage.job == job.job.id)?;
    let (used, limit) = (usage.row.value(JobField::MemUsed)?, usage.row.value(JobField::MemLimit)?);
    if limit == 0 || used * 100 < limit * u64::from(scene.thresholds.job_memory_pct) {
        return None;
    }
    let title = format!(
        "{} uses {} of {} GiB of memory on {}",
        job_names::first(job.job),
        text::gib(used),
        text::gib(limit),
        node.name
    );
    let mut detection =
        of_job(FindingKind::JobMemoryForecast, FindingSeverity::Warning, job, &[], GpuField::MemUsed, title);
    detection.subject = format!("{}/{}", job.job.id, node.name);
    detection.nodes = vec![node.name.clone()];
    detection.reason = "close to its memory limit".to_owned();
    detection.evidence.push(format!("{} % of its limit", used * 100 / limit));
    if let Some(shared) = usage.row.value(JobField::Shmem).filter(|bytes| *bytes >= 1 << 30) {
        detection.evidence.push(format!("{} GiB of it shared memory", text::gib(shared)));
    }
    Some(detection)
}
