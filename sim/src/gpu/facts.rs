//! The hello of a scripted node: its identity, GPUs and instances, and their topology.

use crate::gpu::vendor;
use crate::scenario::file::FaultKind;
use crate::scenario::{NodeScript, Scenario, ScenarioTime, Unit};
use nodeglass_gpu_models::{Architecture, GpuModel, Memory, TempLimits};
use nodeglass_protocol::gpu::{MigFacts, Virtualization};
use nodeglass_protocol::probe::{GpuFacts, GpuPath, Hello, SourceState, SourceVersions};
use nodeglass_protocol::version::{PROBE_WIRE, VersionRange};
use nodeglass_protocol::{GpuUuid, Reading, Text, Vendor};

/// The first line of a node's probe.
pub(crate) fn hello(scenario: &Scenario, node: usize, at: ScenarioTime) -> Hello {
    let script = &scenario.nodes[node];
    let rng = scenario.rng.at(node as u64);
    let (boots, _) = scenario.boot(node, at.t_ms);
    let boot = rng.at(boots);
    let unloaded = scenario.fault_age_ms(node, FaultKind::NoDriver, at.t_ms).is_some();
    Hello {
        proto: VersionRange::only(PROBE_WIRE),
        build: env!("CARGO_PKG_VERSION").into(),
        stream: scenario.stream_id(node, boots),
        host: Text::new(script.name.as_str()),
        boot_id: Text::new(uuid(boot.number(3), boot.number(4))),
        kernel: script.kernel.clone(),
        cpus: script.cpus,
        mem_total_bytes: script.mem_bytes,
        user: scenario.user.clone(),
        pid: 40_000 + (boot.number(5) % 9_000) as u32,
        sources: vec![if unloaded { no_driver(script) } else { driver(script) }],
        gpus: if unloaded { Vec::new() } else { facts(scenario, node) },
        topology: if unloaded { Vec::new() } else { topology(script) },
        cpu_model: cpu_model(&script.model).into(),
        scratch: Some("/scratch".into()),
        confinement: None,
    }
}

fn no_driver(script: &NodeScript) -> SourceState {
    let vendor = vendor::of(&script.model);
    let name = vendor.name();
    let detail = if vendor == Vendor::Nvidia { " (NVML: Driver Not Loaded)" } else { "" };
    let reason = format!("the {name} driver is not loaded: its kernel module is missing{detail}");
    SourceState::absent(vendor, reason)
}

fn driver(script: &NodeScript) -> SourceState {
    let vendor = vendor::of(&script.model);
    let only = |whether: bool, text: Text| if whether { Reading::Value(text) } else { Reading::Unsupported };
    let is_nvidia = vendor == Vendor::Nvidia;
    let versions = SourceVersions {
        driver: only(vendor != Vendor::Tpu, script.driver.clone()),
        library: only(is_nvidia, Text::new(format!("12.{}", script.driver))),
        platform: only(is_nvidia || vendor == Vendor::Amd, script.cuda.clone()),
    };
    SourceState::ready(vendor, versions)
}

/// The processor that servers with this GPU usually have.
fn cpu_model(model: &GpuModel) -> &'static str {
    match (model.memory, model.architecture) {
        (Memory::Coherent, _) => "Neoverse-V2",
        (Memory::Host, _) => "Cortex-X925",
        (_, Architecture::Hopper) => "Intel(R) Xeon(R) Platinum 8480C",
        _ => "AMD EPYC 7763 64-Core Processor",
    }
}

/// UUIDs of a node's GPUs and instances.
pub(crate) fn uuids(scenario: &Scenario, node: usize) -> Vec<GpuUuid> {
    scenario.nodes[node].units.iter().map(|unit| unit_uuid(scenario, node, unit)).collect()
}

fn facts(scenario: &Scenario, node: usize) -> Vec<GpuFacts> {
    let script = &scenario.nodes[node];
    script.units.iter().map(|unit| unit_facts(scenario, node, script, unit)).collect()
}

fn unit_facts(scenario: &Scenario, node: usize, script: &NodeScript, unit: &Unit) -> GpuFacts {
    let index = unit.gpu as u32;
    let known = GpuFacts {
        vendor: vendor::of(&unit.model),
        minor: Reading::Value(index),
        pci: Reading::Value(pci(unit.gpu)),
        unified_memory: unit.model.memory != Memory::Own,
        cores: Reading::Value(unit.model.cores()),
        architecture: Reading::Value(unit.model.architecture.name().into()),
        compute_capability: Reading::Value(compute_capability(&unit.model)),
        ..GpuFacts::new(unit_uuid(scenario, node, unit), index)
    };
    match unit.mig {
        None => vendor::facts(whole(scenario, node, script, unit, known)),
        Some(part) => GpuFacts {
            name: Reading::Value(Text::new(format!(
                "{} MIG {}g.{}gb",
                script.model.name, part.slices, part.mem_gb
            ))),
            mig_parent: Some(gpu_uuid(scenario, node, unit.gpu)),
            mig: Some(MigFacts {
                gpu_instance: part.gpu_instance,
                compute_instance: 0,
                profile: Some(Text::new(format!("{}g.{}gb", part.slices, part.mem_gb))),
                multiprocessors: Some(unit.model.multiprocessors),
            }),
            ..known
        },
    }
}

/// Facts of whole GPUs only.
fn whole(scenario: &Scenario, node: usize, script: &NodeScript, unit: &Unit, known: GpuFacts) -> GpuFacts {
    let model = &unit.model;
    let number = scenario.rng.at(node as u64).at(unit.gpu as u64).number(51);
    let watts = |watts: f64| Reading::Value((watts * 1_000.0) as u32);
    let if_any = |there: bool, value: u32| if there { Reading::Value(value) } else { Reading::Unsupported };
    let limit = |of: fn(TempLimits) -> Option<u32>| {
        model.limits.and_then(of).map_or(Reading::Unsupported, Reading::Value)
    };
    let on_card = model.memory != Memory::Host;
    let (numa, near) = nearest(script, unit.gpu);
    GpuFacts {
        name: Reading::Value(model.name.into()),
        sm_clock_max_mhz: Reading::Value(model.sm_max_mhz as u32),
        mem_clock_max_mhz: if_any(model.mem_mhz > 0, model.mem_mhz as u32),
        graphics_clock_max_mhz: Reading::Value(model.sm_max_mhz as u32),
        video_clock_max_mhz: Reading::Value(model.video_mhz as u32),
        temp_slowdown_c: limit(|limits| Some(limits.slowdown_c)),
        temp_shutdown_c: limit(|limits| Some(limits.shutdown_c)),
        temp_gpu_max_c: limit(|limits| Some(limits.gpu_max_c)),
        temp_mem_max_c: limit(|limits| limits.mem_max_c),
        power_default_mw: if on_card { watts(model.cap_w) } else { Reading::Unsupported },
        power_min_mw: if on_card { watts(model.cap_min_w) } else { Reading::Unsupported },
        power_max_mw: if on_card { watts(model.cap_max_w) } else { Reading::Unsupported },
        pcie_gen_max: if_any(on_card, model.pcie_gen.1),
        pcie_width_max: if_any(on_card, model.pcie_width),
        serial: if model.fan {
            Reading::Unsupported
        } else {
            Reading::Value(Text::new(format!("165{:010}", number % 10_000_000_000)))
        },
        vbios: Reading::Value(model.vbios.into()),
        numa_node: Reading::Value(numa),
        cpu_affinity: Reading::Value(near),
        compute_mode: Reading::Value("default".into()),
        persistence: Reading::Value(true),
        ecc_mode: if model.ecc { Reading::Value(true) } else { Reading::Unsupported },
        mig_mode: if model.slice_multiprocessors > 0 {
            Reading::Value(script.is_divided())
        } else {
            Reading::Unsupported
        },
        confidential: Reading::Value(false),
        virtualization: Reading::Value(if script.is_vgpu(unit.gpu) {
            Virtualization::VgpuGuest
        } else {
            Virtualization::None
        }),
        ..known
    }
}

fn compute_capability(model: &GpuModel) -> Text {
    let (major, minor) = model.compute_capability;
    Text::new(format!("{major}.{minor}"))
}

/// The NUMA node and the CPUs near a GPU: half of the GPUs belong to each of two sockets.
fn nearest(script: &NodeScript, gpu: usize) -> (u32, Text) {
    let (gpus, cpus) = (script.gpus().max(1), script.cpus.max(2));
    if gpus == 1 || script.model.memory != Memory::Own {
        return (0, Text::new(format!("0-{}", cpus - 1)));
    }
    // Hyper-threads are numbered after all cores.
    let (socket, quarter) = ((gpu * 2 / gpus) as u32, cpus / 4);
    let first = socket * quarter;
    let second = cpus / 2 + first;
    let near = format!("{first}-{},{second}-{}", first + quarter.max(1) - 1, second + quarter.max(1) - 1);
    (socket, Text::new(near))
}

/// The paths between the GPUs.
fn topology(script: &NodeScript) -> Vec<Vec<GpuPath>> {
    if vendor::of(&script.model) != Vendor::Nvidia {
        return Vec::new();
    }
    let count = script.gpus();
    let path = |from: usize, to: usize| {
        if from == to {
            return GpuPath::Same;
        }
        match (script.model.nvlinks(), count) {
            (0, _) if from * 2 / count == to * 2 / count => GpuPath::HostBridge,
            (0, _) => GpuPath::System,
            // Four GPUs are connected directly; more through switches, with all their links.
            (links, 2..=4) => GpuPath::NvLink(links / 3),
            (links, _) => GpuPath::NvLink(links),
        }
    };
    let row = |from| (0..count).map(|to| path(from, to)).collect();
    if count > 1 { (0..count).map(row).collect() } else { Vec::new() }
}

/// The PCI address of a GPU.
pub(crate) fn pci(gpu: usize) -> Text {
    Text::new(format!("00000000:{:02X}:00.0", (0x0a + 0x12 * gpu) % 0x100))
}

/// The identity of a GPU, which survives reboots.
pub(crate) fn gpu_uuid(scenario: &Scenario, node: usize, gpu: usize) -> GpuUuid {
    let rng = scenario.rng.at(node as u64).at(gpu as u64);
    GpuUuid::new(match vendor::of(&scenario.nodes[node].model) {
        Vendor::Unknown | Vendor::Nvidia => format!("GPU-{}", uuid(rng.number(6), rng.number(7))),
        vendor @ (Vendor::Amd | Vendor::Intel | Vendor::Tpu) => {
            format!("{}-{:016x}", vendor.name(), rng.number(6))
        }
    })
}

/// The identity of a GPU or instance.
pub(crate) fn unit_uuid(scenario: &Scenario, node: usize, unit: &Unit) -> GpuUuid {
    let Some(part) = unit.mig else { return gpu_uuid(scenario, node, unit.gpu) };
    let rng = scenario.rng.at(node as u64).at(unit.gpu as u64).at(u64::from(part.gpu_instance));
    GpuUuid::new(format!("MIG-{}", uuid(rng.number(6), rng.number(7))))
}

fn uuid(high: u64, low: u64) -> String {
    let (time, mid, version) = (high >> 32, (high >> 16) & 0xffff, high & 0xfff);
    let (variant, rest) = ((low >> 48) & 0x3fff | 0x8000, low & 0xffff_ffff_ffff);
    format!("{time:08x}-{mid:04x}-4{version:03x}-{variant:04x}-{rest:012x}")
}
