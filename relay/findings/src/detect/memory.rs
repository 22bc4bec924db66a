//! Memory that will be exhausted: of a GPU by a leak, of a job at its limit on a node.

use super::growth::Growth;
use super::of_job;
use crate::input::{DetectorInput, JobGpu, JobGpus};
use crate::series::{JobSeries, STEPS};
use crate::tracker::{Detection, Detections};
use nodeglass_protocol::finding::FindingKind;
use nodeglass_protocol::picture::NodePicture;
use nodeglass_protocol::{GpuField, JobField};
use nodeglass_rules::{job_names, limits, text};

pub(super) fn detect(input: &DetectorInput<'_>, job: &JobGpus<'_>, found: &mut Detections) {
    let subject = job.job.id.to_string();
    if !job.is_complete {
        found.unknown(&[FindingKind::GpuMemoryForecast, FindingKind::JobMemoryForecast], &subject);
    }
    for unit in job.units.iter().filter(|unit| unit.is_whole()) {
        found.seen.extend(leak(input, job, unit));
    }
    let nodes = job.job.nodes.iter().filter_map(|name| input.nodes.get(name).copied());
    found.seen.extend(nodes.filter(|node| input.is_current(node)).filter_map(|node| limit(input, job, node)));
}

fn leak(input: &DetectorInput<'_>, job: &JobGpus<'_>, unit: &JobGpu<'_>) -> Option<Detection> {
    let total = unit.value(GpuField::MemTotal)? as f64;
    let reserved = unit.value(GpuField::MemReserved).unwrap_or(0) as f64;
    let growth = Growth::of(
        unit.series.peaks(),
        input.thresholds.forecast_minutes,
        job.started_ms,
        input.now.relay_ms,
    )?;
    // A model that is being loaded fills the memory as well.
    let is_loading = |mean: f32| mean < limits::USED_PCT;
    if unit.series.mean(GpuField::Util, STEPS, input.now.relay_ms).is_some_and(is_loading) {
        return None;
    }
    let forecast = growth.reaches(total - reserved, input.thresholds.forecast_hours)?;
    let title = format!("{} will run out of memory in about {}", unit.title(), forecast.likely);
    let units = [*unit];
    let mut detection = of_job(FindingKind::GpuMemoryForecast, job, &units, GpuField::MemUsed, title);
    detection.subject = format!("{}/{}", job.job.id, unit.gpu.facts.uuid);
    detection.reason = format!("{} memory grows", unit.gpu.facts.label());
    detection.confidence_pct = growth.confidence_pct();
    detection.evidence = vec![
        growth.text(),
        format!("{} of {} GiB in use", text::gib(growth.last_bytes()), text::gib(total as u64)),
        forecast.text(),
    ];
    detection.since = Some(growth.since(input.now.relay_ms));
    Some(detection)
}

/// A job that is close to its memory limit on a node, or will reach it.
fn limit(input: &DetectorInput<'_>, job: &JobGpus<'_>, node: &NodePicture) -> Option<Detection> {
    let usage = node.job_usage.iter().find(|usage| usage.job == job.job.id)?;
    let (used, limit) = (usage.row.value(JobField::MemUsed)?, usage.row.value(JobField::MemLimit)?);
    let peaks = input.series.get(&node.name).and_then(|series| series.job(job.job.id)).map(JobSeries::peaks);
    let growth = peaks.and_then(|peaks| {
        Growth::of(peaks, input.thresholds.forecast_minutes, job.started_ms, input.now.relay_ms)
    });
    let growth = growth.and_then(|growth| {
        let forecast = growth.reaches(limit as f64, input.thresholds.forecast_hours)?;
        Some((growth, forecast))
    });
    let is_close = used.saturating_mul(100) >= limit.saturating_mul(input.thresholds.job_memory_pct.into());
    if limit == 0 || !(is_close || growth.is_some()) {
        return None;
    }
    let name = job_names::first(job.job);
    let title = match &growth {
        Some((_, forecast)) => {
            format!("{name} reaches its memory limit on {} in about {}", node.name, forecast.likely)
        }
        None => {
            let (used, limit) = (text::gib(used), text::gib(limit));
            format!("{name} uses {used} of {limit} GiB of memory on {}", node.name)
        }
    };
    let mut detection = of_job(FindingKind::JobMemoryForecast, job, &[], GpuField::MemUsed, title);
    detection.subject = format!("{}/{}", job.job.id, node.name);
    detection.nodes = vec![node.name.clone()];
    detection.reason = if is_close { "close to its memory limit" } else { "memory grows" }.to_owned();
    let percent = used.saturating_mul(100) / limit;
    detection.evidence.push(format!("{} of {} GiB, {percent} %", text::gib(used), text::gib(limit)));
    if let Some((growth, forecast)) = &growth {
        detection.evidence.extend([growth.text(), forecast.text()]);
        detection.confidence_pct = growth.confidence_pct();
        detection.since = Some(growth.since(input.now.relay_ms));
    }
    if let Some(shared) = usage.row.value(JobField::Shmem).filter(|bytes| *bytes >= 1 << 30) {
        detection.evidence.push(format!("{} GiB of it shared memory", text::gib(shared)));
    }
    Some(detection)
}
