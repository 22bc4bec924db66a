//! Jobs whose GPUs do no useful work: unused, idle, without a process, or waiting in a hang.

use super::{bottleneck, of_job};
use crate::findings::input::{DetectorInput, JobGpu, JobGpus, locations};
use crate::findings::job_log::JobLog;
use crate::findings::series::{NodeSeries, STEP_MS};
use crate::findings::tracker::{Detection, Detections};
use nodeglass_protocol::GpuField;
use nodeglass_protocol::finding::{FindingKind, FindingSeverity};
use nodeglass_protocol::picture::ProcessGap;
use std::collections::BTreeMap;

/// GPUs count as idle after this many steps: recorded jobs that load data or evaluate pause for much less.
const IDLE_STEPS: usize = 60;
/// Number of steps in a minute.
const STEPS_PER_MINUTE: usize = (60_000 / STEP_MS) as usize;
/// Utilisation in % from which a GPU seems busy.
const BUSY_PCT: f32 = 95.0;
/// What a waiting GPU draws at most, as a fraction of its limit. Real work draws more, also where memory bounds it.
const WAITING_POWER: f32 = 1.0 / 3.0;
/// Activity of memory and tensor cores in % that a GPU which only waits does not reach.
const WAITING_PCT: f32 = 10.0;
/// The same of SMs: a collective that waits occupies one SM of each channel.
const WAITING_SM_PCT: f32 = 25.0;
/// Traffic of a link in bytes a second that a waiting GPU does not reach.
const WAITING_RATE: f32 = 50e6;
/// Change of memory in use, in bytes, that a waiting GPU does not reach.
const WAITING_MEMORY: f32 = 256e6;
/// Use of its CPUs in % of one core per GPU above which a job computes on the host: compilation, data preparation.
const BUSY_CORES_PCT: u64 = 600;
/// Mean utilisation in % that half of the other GPUs of a job must have for one that idles to be unused.
const OTHERS_PCT: f32 = 20.0;

pub(super) fn detect(input: &DetectorInput<'_>, job: &JobGpus<'_>, found: &mut Detections) {
    const KINDS: [FindingKind; 4] =
        [FindingKind::UnusedGpus, FindingKind::IdleGpus, FindingKind::NoProcess, FindingKind::CollectiveHang];
    if job.units.is_empty() || !job.is_complete {
        found.unknown(&KINDS, &job.job.id.to_string());
        found.unknown(&bottleneck::KINDS, &job.job.id.to_string());
        return;
    }
    // A GPU that waits in a hang seems busy. Without a process, GPUs are idle as well, until that is certain.
    let seen = match hang(input, job) {
        Some(hang) => [Some(hang), None],
        None => [no_process(job), idle(input, job)],
    };
    if seen.iter().all(Option::is_none) {
        bottleneck::detect(input, job, found);
    }
    found.seen.extend(seen.into_iter().flatten());
}

/// Every GPU seems busy, none draws the power of work, and no counter moves.
///
/// With a single GPU it cannot be distinguished from small kernels in a loop; a hang needs a peer to wait for.
fn hang(input: &DetectorInput<'_>, job: &JobGpus<'_>) -> Option<Detection> {
    let now_ms = input.now.relay_ms;
    // Checkpoints of up to 58 s look the same.
    let steps = input.thresholds.hang_minutes as usize * STEPS_PER_MINUTE;
    if job.units.len() < 2 || !job.units.iter().all(|unit| waits(unit, steps, now_ms)) {
        return None;
    }
    let log = input.logs.get(&job.job.id);
    let window_ms = steps as u64 * STEP_MS;
    let advances = log
        .and_then(|log| log.progress.as_ref())
        .is_some_and(|progress| progress.rate.is_some() && progress.advanced_ms + window_ms > now_ms);
    if advances {
        return None;
    }
    if job.cores_busy().is_some_and(|pct| pct > BUSY_CORES_PCT) {
        // Compilation and loading of data occupy the host.
        return None;
    }
    let count = job.units.len();
    let mean = |field| {
        let known: Vec<f32> =
            job.units.iter().filter_map(|unit| unit.series.mean(field, steps, now_ms)).collect();
        (!known.is_empty()).then(|| known.iter().sum::<f32>() / known.len() as f32)
    };
    let since = job.units.iter().filter_map(|unit| waiting_since(unit, now_ms)).max_by_key(|since| since.0);
    let title = format!("Looks hung: {count} GPUs report full utilisation, but draw little power");
    let mut detection =
        of_job(FindingKind::CollectiveHang, FindingSeverity::Error, job, &job.units, GpuField::Power, title);
    detection.confidence_pct =
        if job.units.iter().all(|unit| unit.value(GpuField::SmActive).is_some()) { 95 } else { 80 };
    detection.reason = "looks hung".to_owned();
    let limit: u64 =
        job.units.iter().filter_map(|unit| unit.value(GpuField::PowerLimit)).fold(0, u64::saturating_add)
            / count as u64;
    let stated = [
        mean(GpuField::Util).map(|util| format!("utilisation {util:.0} % on every GPU")),
        mean(GpuField::Power).map(|power| format!("power {power:.0} W of {limit} W")),
        mean(GpuField::SmActive).map(|active| format!("SM activity {active:.0} %")),
        job.cores_busy().map(|pct| format!("CPU use {:.1} cores per GPU", pct as f64 / 100.0)),
        log.and_then(|log| quiet_for(log, window_ms, now_ms)),
    ];
    detection.evidence = stated.into_iter().flatten().collect();
    detection.since = since;
    detection.wasted_gpus = count;
    Some(detection)
}

/// States for how long the log of a job has not grown, if it is this long at least.
fn quiet_for(log: &JobLog, least_ms: u64, now_ms: u64) -> Option<String> {
    let silent_ms = now_ms.saturating_sub(log.grown_ms.unwrap_or(log.since_ms));
    (silent_ms >= least_ms)
        .then(|| format!("its log has not grown for {}", nodeglass_rules::text::span(silent_ms / 1_000)))
}

/// Returns whether a GPU reports full utilisation at the power of a busy-wait in each of the last steps, and no counter
/// contradicts it.
fn waits(unit: &JobGpu<'_>, steps: usize, now_ms: u64) -> bool {
    let range = |field| unit.series.range(field, steps, now_ms);
    let Some(limit) = unit.value(GpuField::PowerLimit).map(|watts| watts as f32) else { return false };
    let (Some(util), Some(power)) = (range(GpuField::Util), range(GpuField::Power)) else { return false };
    let stays_below = |field, most: f32| range(field).is_none_or(|(_, high)| high < most);
    let is_flat = range(GpuField::MemUsed).is_none_or(|(low, high)| high - low < WAITING_MEMORY);
    util.0 >= BUSY_PCT
        && power.1 <= limit * WAITING_POWER
        && is_flat
        && [GpuField::SmActive, GpuField::DramActive, GpuField::TensorActive].into_iter().all(|field| {
            stays_below(field, if field == GpuField::SmActive { WAITING_SM_PCT } else { WAITING_PCT })
        })
        && [GpuField::PcieRx, GpuField::PcieTx, GpuField::NvlinkRx, GpuField::NvlinkTx]
            .into_iter()
            .all(|field| stays_below(field, WAITING_RATE))
}

/// Returns since when a GPU reports full utilisation at the power of a busy-wait: one that loads is not busy.
fn waiting_since(unit: &JobGpu<'_>, now_ms: u64) -> Option<(u64, bool)> {
    let limit = unit.value(GpuField::PowerLimit)? as f32;
    let rows = |field| unit.series.of(field, IDLE_STEPS, now_ms).collect::<BTreeMap<u64, f32>>();
    let (util, active) = (rows(GpuField::Util), rows(GpuField::SmActive));
    let waits = |at_ms: u64, power: f32| {
        power <= limit * WAITING_POWER
            && util.get(&at_ms).is_none_or(|util| *util >= BUSY_PCT)
            && active.get(&at_ms).is_none_or(|active| *active < WAITING_SM_PCT)
    };
    run_start(unit.series.of(GpuField::Power, IDLE_STEPS, now_ms), waits)
}

/// Returns the start of the newest run of steps that hold, and whether it may have begun earlier.
fn run_start(
    steps: impl Iterator<Item = (u64, f32)>,
    holds: impl Fn(u64, f32) -> bool,
) -> Option<(u64, bool)> {
    let mut start = None;
    for (at_ms, value) in steps {
        if !holds(at_ms, value) {
            return start.map(|at_ms| (at_ms, false));
        }
        start = Some(at_ms);
    }
    start.map(|at_ms| (at_ms, true))
}

/// GPUs without work: all of them, or some while others work.
fn idle(input: &DetectorInput<'_>, job: &JobGpus<'_>) -> Option<Detection> {
    let now_ms = input.now.relay_ms;
    let window_ms = IDLE_STEPS as u64 * STEP_MS;
    if job.started_ms + window_ms > now_ms {
        return None;
    }
    let idle_pct = input.thresholds.idle_pct as f32;
    let is_idle = |unit: &JobGpu<'_>| is_idle(unit, idle_pct, now_ms);
    let idle: Vec<JobGpu<'_>> = job.units.iter().copied().filter(is_idle).collect();
    let first = idle.first()?;
    let (count, all) = (idle.len(), job.units.len());
    let since = idle.iter().filter_map(|unit| {
        let (at_ms, _) =
            run_start(unit.series.of(GpuField::Util, IDLE_STEPS, now_ms), |_, util| util <= idle_pct)?;
        // The steps before are not examined, but the end of the last work is known.
        let is_start = unit.series.used_ms().is_some_and(|used_ms| used_ms.abs_diff(at_ms) <= 2 * STEP_MS);
        Some((at_ms, !is_start))
    });
    // An interactive job uses its GPUs now and then; which of them it needs is not known.
    let is_used = |unit: &&JobGpu<'_>| {
        unit.series.mean(GpuField::Util, IDLE_STEPS, now_ms).is_some_and(|util| util >= OTHERS_PCT)
    };
    let used = job.units.iter().filter(is_used).count();
    if count < all && 2 * used < all - count {
        return None;
    }
    // Of several that idle, the last to become idle counts.
    let since = since.max_by_key(|(at_ms, _)| *at_ms).unwrap_or((now_ms.saturating_sub(window_ms), true));
    let has_used = |unit: &JobGpu<'_>| unit.series.used_ms().is_some_and(|used_ms| used_ms > job.started_ms);
    // A job that was not read from its start on has usually worked.
    let is_read_from_start = |unit: &JobGpu<'_>| {
        let first_ms = input.series.get(&unit.node.name).and_then(NodeSeries::first_ms);
        first_ms.is_some_and(|first_ms| first_ms <= job.started_ms + window_ms)
    };
    let has_worked = job.units.iter().any(has_used) || !job.units.iter().all(is_read_from_start);
    let kind = if has_worked && count == all { FindingKind::IdleGpus } else { FindingKind::UnusedGpus };
    let whose = match (count, all) {
        (1, 1) => "The GPU is".to_owned(),
        (2, 2) => "Both GPUs are".to_owned(),
        _ if count == all => format!("All {all} GPUs are"),
        (1, _) => format!("1 of {all} GPUs is"),
        _ => format!("{count} of {all} GPUs are"),
    };
    let title = if count == all {
        format!("{whose} idle")
    } else {
        format!("{whose} idle while the others work: {}", locations(&idle))
    };
    let mut detection = of_job(kind, FindingSeverity::Warning, job, &idle, GpuField::Util, title);
    detection.reason = if count == all { "idle".to_owned() } else { format!("{count} of {all} GPUs idle") };
    let held: u64 = idle.iter().filter_map(|unit| unit.value(GpuField::MemUsed)).fold(0, u64::saturating_add);
    let util = first.series.mean(GpuField::Util, IDLE_STEPS, now_ms).unwrap_or(0.0);
    detection.evidence.push(format!("utilisation {util:.1} % on average over ten minutes"));
    if held >= 1 << 30 {
        detection.evidence.push(format!("{} GiB of GPU memory held", nodeglass_rules::text::gib(held)));
    }
    if count == all {
        detection.advice = Some(format!(
            "See the log; if the work is done, release the GPUs with scancel {}",
            job.job.label
        ));
    } else if idle.iter().any(has_used) {
        detection.advice = Some("See in the log whether the ranks on these GPUs still run".to_owned());
    }
    detection.since = Some(since);
    detection.wasted_gpus = count;
    Some(detection)
}

fn is_idle(unit: &JobGpu<'_>, idle_pct: f32, now_ms: u64) -> bool {
    // A notebook runs a cell now and then: it is in use.
    unit.series.range(GpuField::Util, IDLE_STEPS, now_ms).is_some_and(|(_, most)| most <= idle_pct)
}

/// No process on any GPU of the job, although the lists of processes could be read.
fn no_process(job: &JobGpus<'_>) -> Option<Detection> {
    let lists_are_read = job.units.iter().all(|unit| {
        !unit.gpu.gaps.iter().any(|gap| matches!(gap, ProcessGap::Failed(_) | ProcessGap::Unsupported))
    });
    let has_process = |unit: &JobGpu<'_>| {
        let parts =
            unit.node.gpus.iter().filter(|part| part.facts.mig_parent.as_ref() == Some(&unit.gpu.facts.uuid));
        let uuids: Vec<_> = parts.map(|part| &part.facts.uuid).chain([&unit.gpu.facts.uuid]).collect();
        unit.node.processes.iter().any(|process| uuids.contains(&&process.facts.gpu))
    };
    if !lists_are_read || job.units.iter().any(has_process) {
        return None;
    }
    // Work without a visible process is another pid namespace's.
    if job.units.iter().any(|unit| unit.value(GpuField::Util).is_none_or(|util| util > 0)) {
        return None;
    }
    let count = job.units.len();
    let title = format!(
        "No process on {}",
        if count == 1 { "the GPU".to_owned() } else { format!("any of {count} GPUs") }
    );
    let mut detection =
        of_job(FindingKind::NoProcess, FindingSeverity::Warning, job, &job.units, GpuField::MemUsed, title);
    detection.reason = "no process on its GPUs".to_owned();
    detection.wasted_gpus = count;
    Some(detection)
}
