//! Readings of a scripted node's GPUs at a given time.

use crate::cluster::activity::{Activity, activity, drawn_w, memory_bytes, warmth_c};
use crate::cluster::schedule::Run;
use crate::cluster::workload::{HW_POWER_BRAKE, HW_SLOWDOWN, HW_THERMAL, POWER_CAP, SW_THERMAL, Workload};
use crate::gpu::energy;
use crate::gpu::if_any;
use crate::gpu::{traffic, vendor};
use crate::host;
use crate::scenario::file::{Behaviour, FaultKind};
use crate::scenario::{JobScript, NodeScript, Scenario, ScenarioTime, Unit};
use node_probe::host::HostReadings;
use nodeglass_gpu_models::{GpuModel, Memory};
use nodeglass_protocol::Reading;
use nodeglass_protocol::probe::{GpuSample, Sample};

/// Returns the readings of a node.
pub(crate) fn sample(scenario: &Scenario, node: usize, at: ScenarioTime) -> Sample {
    let HostReadings { host, cores, jobs } = host(scenario, node, at);
    Sample {
        mono_ns: scenario.mono_ns(node, at),
        wall_ms: scenario.node_wall_ms(node, at),
        gpus: gpus(scenario, node, at),
        host,
        cores,
        jobs,
        ..Sample::default()
    }
}

/// Returns the readings of a node's GPUs; none without a driver.
pub(crate) fn gpus(scenario: &Scenario, node: usize, at: ScenarioTime) -> Vec<GpuSample> {
    let unloaded = scenario.fault_age_ms(node, FaultKind::NoDriver, at.t_ms).is_some();
    let units = if unloaded { &[][..] } else { &scenario.nodes[node].units[..] };
    units.iter().map(|unit| gpu_sample(scenario, node, unit, at.t_ms)).collect()
}

/// Returns the readings of a node's host.
pub(crate) fn host(scenario: &Scenario, node: usize, at: ScenarioTime) -> HostReadings {
    HostReadings {
        host: host::sample(scenario, node, at.t_ms),
        cores: host::cores(scenario, node, at.t_ms),
        jobs: host::jobs(scenario, node, at.t_ms),
    }
}

fn gpu_sample(scenario: &Scenario, node: usize, unit: &Unit, t_ms: i64) -> GpuSample {
    let script = &scenario.nodes[node];
    if is_lost(script, unit.gpu, t_ms) {
        return GpuSample { fault: Some("GPU is lost".into()), ..GpuSample::default() };
    }
    match (unit.gres_index, unit.mig) {
        (Some(gres_index), None) => {
            vendor::readings(vendor::of(&unit.model), of_gpu(scenario, node, unit, gres_index, t_ms))
        }
        (Some(gres_index), Some(_)) => of_instance(scenario, node, unit, gres_index, t_ms),
        (None, _) => of_divided(scenario, node, unit, t_ms),
    }
}

/// Returns the readings of a GPU that is not in MIG mode.
fn of_gpu(scenario: &Scenario, node: usize, unit: &Unit, gres_index: usize, t_ms: i64) -> GpuSample {
    let script = &scenario.nodes[node];
    let model = &unit.model;
    let Activity { job, workload, .. } = activity(scenario, node, gres_index, t_ms);
    let held = held_bytes(script, unit.gpu, t_ms);
    let mut sample = GpuSample {
        util_pct: Reading::Value(workload.util),
        mem_util_pct: Reading::Value(workload.mem_util),
        mem_used_bytes: Reading::Value(memory_bytes(scenario, node, gres_index, job, &workload) + held),
        p_state: Reading::Value(if model.fan && !workload.process { 8 } else { 0 }),
        ecc_corrected: if_any(model.ecc, corrected(job, t_ms)),
        ..board(scenario, node, unit, &workload, t_ms)
    };
    traffic::count(scenario, node, gres_index, &workload, job, t_ms, &mut sample);
    if scenario.fault_age_ms(node, FaultKind::NoPermission, t_ms).is_some() {
        traffic::refuse(&mut sample);
    }
    sample
}

/// Returns the readings of an instance: its memory and GPM metrics; the rest belongs to the GPU.
fn of_instance(scenario: &Scenario, node: usize, unit: &Unit, gres_index: usize, t_ms: i64) -> GpuSample {
    let Activity { job, workload, .. } = activity(scenario, node, gres_index, t_ms);
    let mut sample = GpuSample {
        mem_used_bytes: Reading::Value(memory_bytes(scenario, node, gres_index, job, &workload)),
        mem_total_bytes: Reading::Value(unit.model.mem_mib << 20),
        mem_reserved_bytes: Reading::Value(unit.model.reserved_mib << 20),
        ..GpuSample::default()
    };
    traffic::count(scenario, node, gres_index, &workload, job, t_ms, &mut sample);
    (sample.nvlink_rx_bytes_s, sample.nvlink_tx_bytes_s) = (Reading::Unsupported, Reading::Unsupported);
    unsupported_where_not_read(sample)
}

/// Returns the readings of a GPU in MIG mode, which has no utilization.
fn of_divided(scenario: &Scenario, node: usize, unit: &Unit, t_ms: i64) -> GpuSample {
    let script = &scenario.nodes[node];
    let parts = script.units.iter().filter(|part| part.gpu == unit.gpu).filter_map(|part| part.gres_index);
    let (mut used, mut busiest) = (4 << 20, None::<Workload>);
    for gres_index in parts {
        let Activity { job, workload, .. } = activity(scenario, node, gres_index, t_ms);
        used += memory_bytes(scenario, node, gres_index, job, &workload);
        busiest =
            Some(busiest.map_or(workload, |most| if workload.util > most.util { workload } else { most }));
    }
    let Some(busiest) = busiest else { return GpuSample::default() };
    // A single instance never reaches the power limit.
    let workload =
        Workload { power_w: drawn_w(scenario, node, unit, t_ms), throttle: busiest.throttle & 1, ..busiest };
    let sample = GpuSample {
        mem_used_bytes: Reading::Value(used),
        p_state: Reading::Value(0),
        ecc_corrected: if_any(unit.model.ecc, 0),
        ..board(scenario, node, unit, &workload, t_ms)
    };
    unsupported_where_not_read(sample)
}

/// Sets the readings that do not depend on the workload.
fn board(scenario: &Scenario, node: usize, unit: &Unit, workload: &Workload, t_ms: i64) -> GpuSample {
    let (script, model) = (&scenario.nodes[node], &unit.model);
    let on_card = model.memory != Memory::Host;
    let has = |kind| script.fault_of(unit.gpu, kind, t_ms).is_some();
    let slowed_by = [(FaultKind::PowerBrake, HW_POWER_BRAKE), (FaultKind::Slowdown, HW_SLOWDOWN)];
    let slowed_by = slowed_by.into_iter().find(|(kind, _)| workload.util > 10 && has(*kind));
    let limited = scenario.fault_age_ms(node, FaultKind::PowerLimited, t_ms).is_some();
    let cap_w = if limited { model.cap_w * 0.6 } else { model.cap_w };
    let (power_w, sm_mhz) = if slowed_by.is_some() {
        (workload.power_w * 0.52, workload.sm_mhz / 30 * 15)
    } else {
        (workload.power_w.min(cap_w * 1.01), workload.sm_mhz)
    };
    let temp_c = workload.hot_c.unwrap_or_else(|| warmth_c(scenario, node, unit, t_ms));
    let rng = scenario.rng.at(node as u64).at(unit.gpu as u64);
    let share_held_by =
        |reasons| if slowed_by.is_none() && workload.throttle & reasons != 0 { 100 } else { 0 };
    // Instantaneous power varies more than the one-second average.
    let instant_w = power_w * (1.0 + 0.07 * (rng.unit(61, t_ms.div_euclid(100)) - 0.5));
    let video = model.video_mhz as f64 * sm_mhz as f64 / model.sm_max_mhz as f64;
    GpuSample {
        mem_total_bytes: Reading::Value(total_bytes(script, model)),
        mem_reserved_bytes: if_any(on_card, model.reserved_mib << 20),
        temp_c: Reading::Value(temp_c),
        mem_temp_c: if_any(model.mem_temp, temp_c + 6 + (workload.mem_util / 8)),
        power_mw: Reading::Value((power_w * 1_000.0) as u64),
        power_instant_mw: Reading::Value((instant_w * 1_000.0) as u64),
        power_limit_mw: if_any(on_card, (cap_w * 1_000.0) as u64),
        energy_mj: if_any(on_card, energy::since_boot_mj(scenario, node, unit, t_ms)),
        sm_clock_mhz: Reading::Value(sm_mhz),
        graphics_clock_mhz: Reading::Value(sm_mhz),
        video_clock_mhz: Reading::Value((video / 15.0) as u64 * 15),
        mem_clock_mhz: if_any(model.mem_mhz > 0, model.mem_mhz),
        throttle_reasons: Reading::Value(slowed_by.map_or(workload.throttle, |(_, bits)| bits)),
        power_capped_pct: if_any(on_card, share_held_by(POWER_CAP)),
        thermal_capped_pct: if_any(on_card, share_held_by(SW_THERMAL | HW_THERMAL)),
        ecc_uncorrected: if_any(model.ecc, uncorrected(script, unit.gpu, t_ms)),
        fan_pct: if_any(model.fan, temp_c.saturating_sub(10).min(100)),
        enc_pct: if_any(on_card, 0),
        dec_pct: if_any(on_card, 0),
        // Desktop GPUs of Ada have no JPEG engine.
        jpg_pct: if_any(on_card && !model.fan, 0),
        ofa_pct: if_any(on_card, 0),
        // As with NVML.
        hotspot_temp_c: Reading::Unsupported,
        host_mem_used_bytes: Reading::Unsupported,
        fan_rpm: Reading::Unsupported,
        ..GpuSample::default()
    }
}

/// Marks readings that MIG does not support.
fn unsupported_where_not_read(mut sample: GpuSample) -> GpuSample {
    for reading in sample.readings_mut().filter(|reading| reading.is_not_yet()) {
        *reading = Reading::Unsupported;
    }
    sample
}

fn total_bytes(script: &NodeScript, model: &GpuModel) -> u64 {
    if model.memory == Memory::Host { script.mem_bytes } else { model.mem_mib << 20 }
}

/// Returns memory held by no living process, in bytes.
pub(crate) fn held_bytes(script: &NodeScript, gpu: usize, t_ms: i64) -> u64 {
    let held = script.fault_of(gpu, FaultKind::HeldMemory, t_ms).map_or(0, |_| 9_300 << 20);
    let zombie = script.fault_of(gpu, FaultKind::Zombie, t_ms).map_or(0, |_| ZOMBIE_BYTES);
    held + zombie + script.fault_of(gpu, FaultKind::LeftOver, t_ms).map_or(0, |_| LEFT_OVER_BYTES)
}

/// Memory of a process of an earlier job, in bytes.
pub(crate) const LEFT_OVER_BYTES: u64 = 2_311 << 20;

/// Memory held by a zombie, in bytes.
pub(crate) const ZOMBIE_BYTES: u64 = 23_418 << 20;

/// Returns corrected ECC errors: a few per minute if the job's script requests them, starting half
/// an hour before the scenario.
fn corrected(job: Option<(&JobScript, usize, Run)>, t_ms: i64) -> u64 {
    let Some((job, slot, _)) = job else { return 0 };
    let counts =
        job.episodes.iter().any(|episode| episode.behaviour == Behaviour::Ecc && episode.slots[slot]);
    if counts || job.behaviour == Behaviour::Ecc {
        u64::try_from((t_ms + 1_800_000) / 17_000).unwrap_or(0)
    } else {
        0
    }
}

/// A pending row remapping implies an uncorrected error.
fn uncorrected(script: &NodeScript, gpu: usize, t_ms: i64) -> u64 {
    u64::from(script.fault_of(gpu, FaultKind::RowRemap, t_ms).is_some())
}

/// Returns whether a GPU fell off the bus.
pub(crate) fn is_lost(script: &NodeScript, gpu: usize, t_ms: i64) -> bool {
    script.fault_of(gpu, FaultKind::LostGpu, t_ms).is_some()
}
