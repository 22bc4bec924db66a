//! Health of a scripted node's GPUs: normal, except for the faults in the scenario.

use crate::cluster::activity::activity;
use crate::gpu::facts::pci;
use crate::gpu::if_any;
use crate::gpu::readings::is_lost;
use crate::gpu::vendor;
use crate::scenario::file::FaultKind;
use crate::scenario::{NodeScript, Scenario, ScenarioTime, Unit};
use nodeglass_gpu_models::Memory;
use nodeglass_protocol::Reading;
use nodeglass_protocol::gpu::{NvLink, VgpuLicense};
use nodeglass_protocol::probe::{GpuHealth, HealthReport};

/// Returns the health of all GPUs and instances.
pub(crate) fn report(scenario: &Scenario, node: usize, at: ScenarioTime) -> HealthReport {
    let unloaded = scenario.fault_age_ms(node, FaultKind::NoDriver, at.t_ms).is_some();
    let units = if unloaded { &[][..] } else { &scenario.nodes[node].units[..] };
    HealthReport { gpus: units.iter().map(|unit| health(scenario, node, unit, at.t_ms)).collect() }
}

fn health(scenario: &Scenario, node: usize, unit: &Unit, t_ms: i64) -> GpuHealth {
    let script = &scenario.nodes[node];
    if is_lost(script, unit.gpu, t_ms) || unit.mig.is_some() {
        return GpuHealth::default();
    }
    let model = &unit.model;
    let has = |kind| script.fault_of(unit.gpu, kind, t_ms).is_some();
    let rng = scenario.rng.at(node as u64).at(unit.gpu as u64);
    let remap = has(FaultKind::RowRemap);
    let on_card = model.memory != Memory::Host;
    // Row remapping exists since Ampere; page retirement before that is not simulated.
    let remaps = |there: bool| if model.ecc { Reading::Value(there) } else { Reading::Unsupported };
    let idle = unit
        .gres_index
        .is_some_and(|gres_index| !activity(scenario, node, gres_index, t_ms).workload.process);
    let bar1_mib = (model.mem_mib + 1).next_power_of_two();
    let health = GpuHealth {
        vgpus: Vec::new(),
        license: license(script, unit, t_ms),
        ecc_life_corrected: if_any(model.ecc, rng.number(101) % 7 * (rng.number(102) % 5)),
        ecc_life_uncorrected: if_any(model.ecc, u64::from(remap)),
        retired_corrected: Reading::Unsupported,
        retired_uncorrected: Reading::Unsupported,
        retired_pending: Reading::Unsupported,
        remapped_corrected: if_any(model.ecc, u64::from(rng.number(103).is_multiple_of(24))),
        remapped_uncorrected: if_any(model.ecc, u64::from(remap)),
        remap_pending: remaps(remap),
        remap_failed: remaps(false),
        // Many idle GPUs reduce their link speed.
        pcie_gen: if_any(on_card, u64::from(if idle { model.pcie_gen.0 } else { model.pcie_gen.1 })),
        pcie_width: if_any(on_card, if has(FaultKind::PcieNarrow) { 8 } else { 16 }),
        pcie_replays: if_any(on_card, if has(FaultKind::PcieNarrow) { 1_873 } else { rng.number(104) % 3 }),
        bar1_used_bytes: if_any(on_card, if idle { 2 << 20 } else { 66 << 20 }),
        bar1_total_bytes: if_any(on_card, bar1_mib << 20),
        nvlinks: nvlinks(scenario, node, unit, t_ms),
    };
    vendor::health(vendor::of(model), health)
}

/// The license of a GPU that is a vGPU.
fn license(script: &NodeScript, unit: &Unit, t_ms: i64) -> VgpuLicense {
    if !script.is_vgpu(unit.gpu) {
        return VgpuLicense::unsupported();
    }
    VgpuLicense {
        is_licensed: Reading::Value(script.fault_of(unit.gpu, FaultKind::Unlicensed, t_ms).is_none()),
        product: Reading::Value("NVIDIA Virtual Compute Server".into()),
        expires: Reading::Unsupported,
    }
}

fn nvlinks(scenario: &Scenario, node: usize, unit: &Unit, t_ms: i64) -> Vec<NvLink> {
    let script = &scenario.nodes[node];
    let model = &unit.model;
    let down = script.fault_of(unit.gpu, FaultKind::NvlinkDown, t_ms).is_some();
    let workload = unit.gres_index.map(|gres_index| activity(scenario, node, gres_index, t_ms).workload);
    let work = workload.map_or(0.0, |workload| {
        ((workload.power_w - model.waiting_w) / (model.cap_w - model.waiting_w)).clamp(0.0, 1.0)
    });
    // Health is sent when it changes, so rates are quantized to tenths of the maximum.
    let rate = (work * 3.1) as u64 * model.nvlink_mib_s() / 10;
    let link = |link: u32| {
        let up = !(down && link + 1 == model.nvlinks());
        let rate = if up { Reading::Value(rate) } else { Reading::Unsupported };
        NvLink {
            link,
            up: Reading::Value(up),
            version: Reading::Value(model.nvlink.map_or(0, |links| links.generation.into())),
            remote: match (up, script.gpus()) {
                (false, _) => Reading::Unsupported,
                (true, 5..) => Reading::Value("switch".into()),
                (true, gpus) => Reading::Value(peer(unit.gpu, link, model.nvlinks(), gpus)),
            },
            rx_mib_s: rate.clone(),
            tx_mib_s: rate,
            errors: Reading::Value(if up { 0 } else { 412 }),
        }
    };
    (0..model.nvlinks()).map(link).collect()
}

/// Returns the GPU at the remote end of a direct link.
fn peer(gpu: usize, link: u32, links: u32, gpus: usize) -> nodeglass_protocol::Text {
    let peers = gpus.saturating_sub(1).max(1);
    let nth = (link as usize * peers / links.max(1) as usize).min(peers - 1);
    let other = if nth >= gpu { nth + 1 } else { nth };
    format!("GPU {}", pci(other)).into()
}
