//! Derives GPM metrics, PCIe and NVLink rates from the workload and power of a GPU.

use crate::cluster::schedule::Run;
use crate::cluster::workload::Workload;
use crate::gpu::if_any;
use crate::scenario::file::Behaviour;
use crate::scenario::{JobScript, Scenario};
use nodeglass_protocol::Reading;
use nodeglass_protocol::probe::GpuSample;

/// Sets the GPM metrics and the PCIe and NVLink rates of a sample.
pub(crate) fn count(
    scenario: &Scenario,
    node: usize,
    gres_index: usize,
    workload: &Workload,
    job: Option<(&JobScript, usize, Run)>,
    t_ms: i64,
    sample: &mut GpuSample,
) {
    let model = scenario.nodes[node].model_at(gres_index);
    let rng = scenario.rng.at(node as u64).at(gres_index as u64);
    let slot = t_ms.div_euclid(500);
    let near = |what, value: f64| (value * (0.94 + 0.12 * rng.unit(what, slot))).max(0.0);
    let percent = |value: f64| if_any(model.gpm, (value.min(100.0)) as u64);
    // Power above a waiting collective's is attributed to computation.
    let work = ((workload.power_w - model.waiting_w) / (model.cap_w - model.waiting_w)).clamp(0.0, 1.0);
    let busy = workload.util as f64 / 100.0;
    let active = busy * (16.0 + 70.0 * work);
    sample.graphics_active_pct = percent(workload.util as f64);
    sample.sm_active_pct = percent(near(71, active));
    sample.sm_occupancy_pct = percent(near(72, active * 0.38));
    sample.tensor_active_pct = percent(near(73, busy * work * 54.0));
    sample.dram_active_pct = percent(near(74, workload.mem_util as f64 * 1.1));
    sample.fp64_active_pct = percent(0.0);
    sample.fp32_active_pct = percent(near(75, busy * work * 13.0));
    sample.fp16_active_pct = percent(near(76, busy * work * 7.0));

    let (from_host, to_host) = host_mib_s(workload, job, work, model.nvlinks() > 0);
    // Unified memory has no bus to the host, and reports none.
    let has_bus = model.memory != nodeglass_gpu_models::Memory::Host;
    let bytes = |what, mib_s: f64| (near(what, mib_s) * 1_048_576.0) as u64;
    sample.pcie_rx_bytes_s = if_any(has_bus, bytes(77, from_host));
    sample.pcie_tx_bytes_s = if_any(has_bus, bytes(78, to_host));
    let links = f64::from(model.nvlinks()) * model.nvlink_mib_s() as f64 * peers_share(workload, job, work);
    sample.nvlink_rx_bytes_s = if_any(model.nvlinks() > 0, bytes(79, links));
    sample.nvlink_tx_bytes_s = if_any(model.nvlinks() > 0, bytes(80, links * 0.97));
}

/// NVML denies GPM metrics to unprivileged users.
pub(crate) fn refuse(sample: &mut GpuSample) {
    for counter in [
        &mut sample.graphics_active_pct,
        &mut sample.sm_active_pct,
        &mut sample.sm_occupancy_pct,
        &mut sample.tensor_active_pct,
        &mut sample.dram_active_pct,
        &mut sample.fp64_active_pct,
        &mut sample.fp32_active_pct,
        &mut sample.fp16_active_pct,
    ] {
        if counter.value().is_some() {
            *counter = Reading::Failed("no permission: an administrator may allow it to users".into());
        }
    }
}

/// Returns the host traffic in MiB/s: weights while loading, batches, checkpoints.
fn host_mib_s(
    workload: &Workload,
    job: Option<(&JobScript, usize, Run)>,
    work: f64,
    has_nvlink: bool,
) -> (f64, f64) {
    let Some((job, ..)) = job.filter(|_| workload.process) else { return (0.2, 0.2) };
    let loads = workload.memory < 1.0 && workload.util == 0;
    let writes = matches!(job.behaviour, Behaviour::Training | Behaviour::Evaluating)
        && !loads
        && (1..10).contains(&workload.util);
    match () {
        () if loads => (11_400.0, 60.0),
        () if writes => (30.0, 6_200.0),
        // Without NVLink the collectives use PCIe.
        () if job.behaviour == Behaviour::Communication && !has_nvlink => (17_000.0, 16_500.0),
        () => (25.0 + 640.0 * work, 20.0 + 210.0 * work),
    }
}

/// Returns the fraction of NVLink bandwidth in use: gradients and shards between the GPUs of a job.
fn peers_share(workload: &Workload, job: Option<(&JobScript, usize, Run)>, work: f64) -> f64 {
    let together = job.filter(|(job, ..)| workload.process && job.locations.len() > 1 && job.array.is_none());
    let Some((job, ..)) = together else { return 0.0 };
    match job.behaviour {
        Behaviour::Training
        | Behaviour::HostLeak
        | Behaviour::Straggler
        | Behaviour::Ecc
        | Behaviour::Starved
        | Behaviour::Evaluating => 0.31 * work,
        Behaviour::Inference => 0.11 * work,
        // A collective that waits moves nothing.
        Behaviour::Communication => 0.42 * work.min(0.2) / 0.2,
        _ => 0.05 * work,
    }
}
