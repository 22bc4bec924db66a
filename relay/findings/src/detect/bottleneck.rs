//! The limit of a job that works: its input, communication, the bandwidth of its memory, or small kernels. A job that
//! is limited by computing needs no finding.

use super::of_job;
use crate::input::{DetectorInput, JobGpu, JobGpus};
use crate::series::STEP_MS;
use crate::tracker::{Detection, Detections};
use nodeglass_protocol::finding::FindingKind;
use nodeglass_protocol::{GpuField, HostField, JobField};

/// A job is inefficient, or limited by communication or bandwidth, after this many steps.
const STEPS: usize = 60;
/// The newest of these steps, half of which must show the same.
const NEWEST_STEPS: usize = 6;
/// Utilisation in % from which the efficiency of a GPU is judged.
const USED_PCT: f32 = 80.0;
/// Power as a fraction of the limit up to which a busy GPU without GPM is inefficient.
const LITTLE_POWER: f32 = 0.3;
/// Waiting for input is recognized over this many steps.
const INPUT_STEPS: usize = 30;
/// SM activity in % below which a busy GPU spends most of its time in kernels that occupy few SMs, as NCCL's do.
const EXPOSED_SM_PCT: f32 = 45.0;
/// Activity of the tensor cores in % below which a GPU does not mainly compute.
const EXPOSED_TENSOR_PCT: f32 = 25.0;
/// Power as a fraction of the limit that shows the same where GPM is missing.
const EXPOSED_POWER: f32 = 0.55;
/// Traffic in bytes a second and direction from which communication is the cause: of an NVLink, a fifth of its rate.
const NVLINK_RATE: f32 = 5e9;
/// Rate of the network, for each GPU of the node.
const NETWORK_RATE: f32 = 0.25e9;
/// Rate of PCIe, as a fraction of the rate that generation and width allow.
const PCIE_SHARE: f32 = 0.35;
/// Payload of a PCIe lane in bytes a second and direction, by generation from 1 on.
const LANE_RATES: [f32; 6] = [0.25e9, 0.5e9, 0.985e9, 1.969e9, 3.938e9, 7.563e9];

/// Length of the evaluation window, in ms.
pub const WINDOW_MS: u64 = STEPS as u64 * STEP_MS;

/// Kinds of findings about what limits a job.
pub const KINDS: [FindingKind; 4] = [
    FindingKind::InputBound,
    FindingKind::CommunicationBound,
    FindingKind::MemoryBound,
    FindingKind::LowEfficiency,
];

pub(super) fn detect(input: &DetectorInput<'_>, job: &JobGpus<'_>, found: &mut Detections) {
    let seen = input_bound(input, job)
        // Kernels that move data between GPUs do not use up the bandwidth of their memory.
        .or_else(|| memory_bound(input, job))
        .or_else(|| communication_bound(input, job))
        .or_else(|| low_efficiency(input, job));
    // It holds in most steps of the window, and may be older.
    let first_ms = job.units.first().and_then(|unit| {
        unit.series.of(GpuField::Util, STEPS, input.now.relay_ms).last().map(|(at_ms, _)| at_ms)
    });
    let seen = seen.map(|seen| Detection { since: first_ms.map(|at_ms| (at_ms, true)), ..seen });
    if seen.is_none() {
        found.computing.extend(computing(input, job).map(|evidence| (job.job.id, evidence)));
    }
    found.seen.extend(seen);
}

/// Every GPU is busy, and most of it; returns the readings that show it.
fn computing(input: &DetectorInput<'_>, job: &JobGpus<'_>) -> Option<String> {
    let now_ms = input.now.relay_ms;
    for unit in &job.units {
        let mean = |field| unit.series.mean(field, STEPS, now_ms);
        let is_full = match mean(GpuField::SmActive) {
            Some(active) => active >= EXPOSED_SM_PCT,
            None => mean(GpuField::Power)? >= unit.value(GpuField::PowerLimit)? as f32 * EXPOSED_POWER,
        };
        if mean(GpuField::Util)? < USED_PCT || !is_full {
            return None;
        }
    }
    let mean = |field| mean_of(&job.units, field, now_ms);
    let sms = mean(GpuField::SmActive).map(|active| format!("SM activity {active:.0} %"));
    let evidence = match (sms, mean(GpuField::TensorActive)) {
        (Some(sms), Some(tensor)) => format!("{sms} · tensor cores {tensor:.0} %"),
        (Some(sms), None) => sms,
        (None, _) => {
            format!("utilisation {:.0} % · power {:.0} W", mean(GpuField::Util)?, mean(GpuField::Power)?)
        }
    };
    Some(evidence)
}

/// The GPUs pause again and again while the host is busy.
fn input_bound(input: &DetectorInput<'_>, job: &JobGpus<'_>) -> Option<Detection> {
    let now_ms = input.now.relay_ms;
    let util: Vec<f32> = job
        .units
        .iter()
        .map(|unit| unit.series.mean(GpuField::Util, INPUT_STEPS, now_ms))
        .collect::<Option<_>>()?;
    let mean = util.iter().sum::<f32>() / util.len() as f32;
    if !(10.0..=60.0).contains(&mean) {
        return None;
    }
    // Alternating phases of minutes are another kind of work: in each step there must be both.
    let alternates = job.units.iter().all(|unit| {
        unit.series.of(GpuField::Util, INPUT_STEPS, now_ms).all(|(_, util)| (5.0..=85.0).contains(&util))
    });
    let host = input.series.get(&job.units[0].node.name)?.host();
    // Another job on the node may use the disk.
    let is_alone = input.jobs_on(job.units[0].node).len() == 1;
    let waits_for_disk =
        is_alone && host.mean(HostField::PsiIo, INPUT_STEPS, now_ms).is_some_and(|pct| pct >= 20.0);
    let cores = job.cores_busy();
    let limit = job.units[0].node.job_usage.iter().find(|usage| usage.job == job.job.id);
    let limit = limit.and_then(|usage| usage.row.value(JobField::CpuLimit));
    let on_node = job.units.iter().filter(|unit| unit.node.name == job.units[0].node.name).count() as u64;
    let cpus_are_busy = cores
        .zip(limit)
        .is_some_and(|(used, limit)| used.saturating_mul(on_node * 100) >= limit.saturating_mul(85));
    if !alternates || !(waits_for_disk || cpus_are_busy) {
        return None;
    }
    let why = if cpus_are_busy { "the CPUs of the job are saturated" } else { "its node waits for a disk" };
    let title = format!("Input-bound: GPU utilisation is only {mean:.0} % while {why}");
    let mut detection = of_job(FindingKind::InputBound, job, &job.units, GpuField::Util, title);
    detection.reason = "waits for input".to_owned();
    detection.confidence_pct = 75;
    detection.evidence.push(format!("utilisation {mean:.0} % on average over five minutes"));
    if let Some((used, limit)) = cores.zip(limit).filter(|_| cpus_are_busy) {
        detection.evidence.push(format!(
            "{:.1} of {:.0} cores used",
            (used * on_node) as f64 / 100.0,
            limit as f64 / 100.0
        ));
    }
    Some(detection)
}

/// The GPUs are busy, but mostly with kernels that move data between them.
///
/// Kernels of collectives occupy a few SMs and keep the utilisation at 100 %. A job that alternates between generation
/// and training is below the limits on average, but not in most steps.
fn communication_bound(input: &DetectorInput<'_>, job: &JobGpus<'_>) -> Option<Detection> {
    let now_ms = input.now.relay_ms;
    if job.units.len() < 2 {
        return None;
    }
    let mut by_sms = true;
    for unit in &job.units {
        let mostly = |field, holds: &dyn Fn(f32) -> bool| mostly(unit, field, now_ms, holds);
        if !mostly(GpuField::Util, &|util| util >= USED_PCT)? {
            return None;
        }
        let is_low = match mostly(GpuField::SmActive, &|active| active < EXPOSED_SM_PCT) {
            Some(is_low) => {
                is_low
                    && mostly(GpuField::TensorActive, &|tensor| tensor < EXPOSED_TENSOR_PCT).unwrap_or(true)
            }
            None => {
                by_sms = false;
                let limit = unit.value(GpuField::PowerLimit)? as f32;
                mostly(GpuField::Power, &|power| power < limit * EXPOSED_POWER)?
            }
        };
        if !is_low {
            return None;
        }
    }
    let traffic = traffic(input, job)?;
    let mean = |field| mean_of(&job.units, field, now_ms);
    let util = mean(GpuField::Util)?;
    let activity = match (by_sms, mean(GpuField::SmActive)) {
        (true, Some(active)) => format!("SM activity {active:.0} %"),
        _ => format!("power {:.0} W", mean(GpuField::Power)?),
    };
    let title = format!("Communication-bound: {traffic} at {activity}");
    let mut detection = of_job(FindingKind::CommunicationBound, job, &job.units, GpuField::SmActive, title);
    detection.reason = "limited by communication".to_owned();
    detection.confidence_pct = if by_sms { 75 } else { 60 };
    detection.evidence = vec![format!("utilisation {util:.0} % over ten minutes"), activity, traffic];
    Some(detection)
}

/// Returns the link of a job's GPUs that carries most, if one carries much: `210 GB/s of NVLink for each GPU`.
fn traffic(input: &DetectorInput<'_>, job: &JobGpus<'_>) -> Option<String> {
    let now_ms = input.now.relay_ms;
    let count = job.units.len() as f32;
    // The busier direction of each GPU.
    let rate = |unit: &JobGpu<'_>, fields: [GpuField; 2]| {
        let rates = fields.into_iter().filter_map(|field| {
            let mean = unit.series.mean(field, STEPS, now_ms)?;
            Some(steady(mean, unit.series.of(field, STEPS, now_ms)))
        });
        rates.reduce(f32::max)
    };
    let sum = |of: &dyn Fn(&JobGpu<'_>) -> Option<f32>| job.units.iter().map(of).sum::<Option<f32>>();
    let nvlink = |unit: &JobGpu<'_>| rate(unit, [GpuField::NvlinkRx, GpuField::NvlinkTx]);
    let links = |unit: &JobGpu<'_>| {
        let is_up = |link: &&nodeglass_protocol::gpu::NvLink| link.up.value() == Some(&true);
        unit.gpu.health.nvlinks.iter().filter(is_up).count() as f32
    };
    if let Some(bytes) = sum(&nvlink).map(|bytes| bytes / count)
        && bytes >= NVLINK_RATE * (job.units.iter().map(links).sum::<f32>() / count).max(1.0)
    {
        return Some(format!("{} of NVLink for each GPU", gb_s(bytes)));
    }
    let pcie = |unit: &JobGpu<'_>| rate(unit, [GpuField::PcieRx, GpuField::PcieTx]);
    let capacity = sum(&|unit| pcie_rate(unit)).map(|bytes| bytes / count);
    if let Some((bytes, capacity)) = sum(&pcie).map(|bytes| bytes / count).zip(capacity)
        && bytes >= capacity * PCIE_SHARE
    {
        return Some(format!("{} of PCIe for each GPU", gb_s(bytes)));
    }
    let mut nodes: Vec<_> = job.units.iter().map(|unit| &unit.node.name).collect();
    nodes.dedup();
    // The traffic of a node is not known by job.
    let is_shared = |unit: &JobGpu<'_>| input.jobs_on(unit.node).len() > 1;
    if nodes.len() < 2 || job.units.iter().any(is_shared) {
        return None;
    }
    let network = |name: &&nodeglass_protocol::NodeName| {
        let host = input.series.get(*name)?.host();
        let rates = [HostField::NetRx, HostField::IbRx].into_iter().filter_map(|field| {
            let mean = host.mean(field, STEPS, now_ms)?;
            Some(steady(mean, host.of(field, STEPS, now_ms)))
        });
        rates.reduce(f32::max)
    };
    let bytes = nodes.iter().map(network).sum::<Option<f32>>()? / count;
    (bytes >= NETWORK_RATE).then(|| format!("{} of network for each GPU", gb_s(bytes)))
}

/// Returns the rate that PCIe generation and width of a GPU allow, in bytes a second and direction.
fn pcie_rate(unit: &JobGpu<'_>) -> Option<f32> {
    let health = &unit.gpu.health;
    let generation = usize::try_from(*health.pcie_gen.value()?).ok()?;
    let lanes = *health.pcie_width.value()? as f32;
    Some(LANE_RATES.get(generation.checked_sub(1)?)? * lanes)
}

fn gb_s(bytes: f32) -> String {
    if bytes < 10e9 { format!("{:.1} GB/s", bytes / 1e9) } else { format!("{:.0} GB/s", bytes / 1e9) }
}

/// The bandwidth of the GPUs' memory limits the job, as GPM shows.
fn memory_bound(input: &DetectorInput<'_>, job: &JobGpus<'_>) -> Option<Detection> {
    let now_ms = input.now.relay_ms;
    let least = input.thresholds.bandwidth_pct as f32;
    for unit in &job.units {
        let is_full = mostly(unit, GpuField::DramActive, now_ms, &|active| active >= least)?;
        // A program that fills the tensor cores as well is limited by both, and well written.
        let has_idle_tensor_cores =
            mostly(unit, GpuField::TensorActive, now_ms, &|tensor| tensor < EXPOSED_TENSOR_PCT);
        if !is_full || has_idle_tensor_cores == Some(false) {
            return None;
        }
    }
    let mean = |field| mean_of(&job.units, field, now_ms);
    let dram = mean(GpuField::DramActive)?;
    let title = format!("Memory-bound: DRAM bandwidth {dram:.0} %");
    let mut detection = of_job(FindingKind::MemoryBound, job, &job.units, GpuField::DramActive, title);
    detection.reason = "limited by memory bandwidth".to_owned();
    detection.confidence_pct = 85;
    detection.evidence = vec![format!("DRAM bandwidth {dram:.0} % of its peak over ten minutes")];
    detection
        .evidence
        .extend(mean(GpuField::TensorActive).map(|tensor| format!("tensor cores {tensor:.0} %")));
    detection.evidence.extend(mean(GpuField::SmActive).map(|active| format!("SM activity {active:.0} %")));
    Some(detection)
}

/// Returns whether a field of a GPU holds in four fifths of the steps; `None` if too few are known.
fn mostly(unit: &JobGpu<'_>, field: GpuField, now_ms: u64, holds: &dyn Fn(f32) -> bool) -> Option<bool> {
    unit.series.mean(field, STEPS, now_ms)?;
    Some(mostly_of(unit.series.of(field, STEPS, now_ms), holds))
}

/// Returns whether something holds in four fifths of the steps, newest first, and in half of the newest: otherwise it
/// is over, as waiting is after a hang.
fn mostly_of(steps: impl Iterator<Item = (u64, f32)>, holds: &dyn Fn(f32) -> bool) -> bool {
    let held: Vec<bool> = steps.map(|(_, value)| holds(value)).collect();
    let newest = &held[..held.len().min(NEWEST_STEPS)];
    let count = |steps: &[bool]| steps.iter().filter(|holds| **holds).count();
    count(&held) * 5 >= held.len() * 4 && count(newest) * 2 >= newest.len()
}

/// Returns a mean rate, or 0 if it is the mean of minutes with traffic and of minutes without.
fn steady(mean: f32, steps: impl Iterator<Item = (u64, f32)>) -> f32 {
    if mostly_of(steps, &|rate| rate >= mean / 2.0) { mean } else { 0.0 }
}

/// The mean of a field over some GPUs; `None` if it is not known of each.
fn mean_of(units: &[JobGpu<'_>], field: GpuField, now_ms: u64) -> Option<f32> {
    let sum = units.iter().map(|unit| unit.series.mean(field, STEPS, now_ms)).sum::<Option<f32>>()?;
    Some(sum / units.len() as f32)
}

/// A kernel runs most of the time on every GPU, but occupies little of it.
fn low_efficiency(input: &DetectorInput<'_>, job: &JobGpus<'_>) -> Option<Detection> {
    let now_ms = input.now.relay_ms;
    let mean = |unit: &JobGpu<'_>, field| unit.series.mean(field, STEPS, now_ms);
    // Over the newest steps, too: what was before may be over.
    let is_below = |unit: &JobGpu<'_>, field, limit: f32| {
        let newest = unit.series.mean(field, NEWEST_STEPS, now_ms)?;
        Some(mean(unit, field)? < limit && newest < limit)
    };
    let mut by_sms = true;
    for unit in &job.units {
        if mean(unit, GpuField::Util)? < USED_PCT {
            return None;
        }
        let is_low = match mean(unit, GpuField::SmActive) {
            Some(_) => is_below(unit, GpuField::SmActive, input.thresholds.efficiency_pct as f32)?,
            None => {
                by_sms = false;
                let limit = unit.value(GpuField::PowerLimit)? as f32;
                is_below(unit, GpuField::Power, limit * LITTLE_POWER)?
            }
        };
        if !is_low {
            return None;
        }
    }
    let first = &job.units[0];
    let evidence = if by_sms {
        format!("SM activity {:.0} %", mean(first, GpuField::SmActive)?)
    } else {
        format!("power {:.0} W of {} W", mean(first, GpuField::Power)?, first.value(GpuField::PowerLimit)?)
    };
    let util = mean(first, GpuField::Util)?;
    let title = format!("{util:.0} % utilisation, but low activity: {evidence}");
    let mut detection = of_job(FindingKind::LowEfficiency, job, &job.units, GpuField::SmActive, title);
    detection.reason = "little work".to_owned();
    detection.confidence_pct = if by_sms { 90 } else { 60 };
    detection.evidence = vec![format!("utilisation {util:.0} % over ten minutes"), evidence];
    Some(detection)
}
