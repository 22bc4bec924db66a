//! What a probe would read on a node at a moment: facts, samples and processes.

use super::activity::{Activity, activity, memory_bytes, warmth_c};
use super::file::{Behaviour, FaultKind};
use super::scenario::{JobScript, Moment, NodeScript, Scenario};
use super::schedule::Run;
use nodeglass_protocol::probe::{
    GpuFacts, GpuSample, Hello, HostSample, NvmlState, ProcessFacts, ProcessKind, ProcessList,
    ProcessReadings, ProcessSample, Sample,
};
use nodeglass_protocol::version::{PROBE_WIRE, VersionRange};
use nodeglass_protocol::{GpuUuid, Reading, Text};

/// What a process of a job holds besides what it shows, in bytes: driver contexts are the card's own.
const CONTEXT_BYTES: u64 = 6 << 20;

/// The first line of a node's probe.
pub(super) fn hello(scenario: &Scenario, node: usize, at: Moment) -> Hello {
    let script = &scenario.nodes[node];
    let noise = scenario.noise.at(node as u64);
    let (boots, _) = scenario.boot(node, at.t_ms);
    let boot = noise.at(boots);
    let unloaded = scenario.fault_age_ms(node, FaultKind::NoDriver, at.t_ms).is_some();
    Hello {
        proto: VersionRange::only(PROBE_WIRE),
        build: env!("CARGO_PKG_VERSION").into(),
        stream: boot.number(2) >> 11,
        host: Text::new(script.name.as_str()),
        boot_id: Text::new(uuid(boot.number(3), boot.number(4))),
        kernel: script.kernel.clone(),
        cpus: script.cpus,
        mem_total_bytes: script.mem_bytes,
        user: scenario.user.clone(),
        pid: 40_000 + (boot.number(5) % 9_000) as u32,
        nvml: if unloaded { no_driver() } else { driver(script) },
        gpus: if unloaded { Vec::new() } else { facts(scenario, node) },
        topology: Vec::new(),
        cpu_model: Text::default(),
        scratch: None,
    }
}

fn no_driver() -> NvmlState {
    NvmlState::Absent {
        why: "no NVIDIA driver: the kernel module is not loaded (NVML: Driver Not Loaded)".into(),
    }
}

fn driver(script: &NodeScript) -> NvmlState {
    NvmlState::Ready {
        driver: Reading::Value(script.driver.clone()),
        nvml: Reading::Value(Text::new(format!("12.{}", script.driver))),
        cuda: Reading::Value(script.cuda.clone()),
    }
}

fn facts(scenario: &Scenario, node: usize) -> Vec<GpuFacts> {
    let script = &scenario.nodes[node];
    let of_gpu = |gpu: usize| GpuFacts {
        minor: Reading::Value(gpu as u32),
        pci: Reading::Value(Text::new(format!("00000000:{:02X}:00.0", 0x0a + 0x12 * gpu))),
        name: Reading::Value(script.card.name.into()),
        sm_clock_max_mhz: Reading::Value(script.card.sm_max_mhz as u32),
        mem_clock_max_mhz: Reading::Value(script.card.mem_mhz as u32),
        temp_slowdown_c: Reading::Value(script.card.slowdown_c),
        ..GpuFacts::new(gpu_uuid(scenario, node, gpu), gpu as u32)
    };
    (0..script.seats.len()).map(of_gpu).collect()
}

/// The identity of a GPU: that of the card, whatever boots.
pub(super) fn gpu_uuid(scenario: &Scenario, node: usize, gpu: usize) -> GpuUuid {
    let noise = scenario.noise.at(node as u64).at(gpu as u64);
    GpuUuid::new(format!("GPU-{}", uuid(noise.number(6), noise.number(7))))
}

fn uuid(high: u64, low: u64) -> String {
    let (time, mid, version) = (high >> 32, (high >> 16) & 0xffff, high & 0xfff);
    let (variant, rest) = ((low >> 48) & 0x3fff | 0x8000, low & 0xffff_ffff_ffff);
    format!("{time:08x}-{mid:04x}-4{version:03x}-{variant:04x}-{rest:012x}")
}

/// The readings of a node.
pub(super) fn sample(scenario: &Scenario, node: usize, at: Moment) -> Sample {
    let script = &scenario.nodes[node];
    let (_, booted_ms) = scenario.boot(node, at.t_ms);
    let unloaded = scenario.fault_age_ms(node, FaultKind::NoDriver, at.t_ms).is_some();
    let count = if unloaded { 0 } else { script.seats.len() };
    Sample {
        mono_ns: u64::try_from(at.t_ms - booted_ms).unwrap_or(0) * 1_000_000,
        wall_ms: at.wall_ms(),
        gpus: (0..count).map(|gpu| gpu_sample(scenario, node, gpu, at.t_ms)).collect(),
        host: host_sample(scenario, node, at.t_ms),
        ..Sample::default()
    }
}

fn gpu_sample(scenario: &Scenario, node: usize, gpu: usize, t_ms: i64) -> GpuSample {
    let script = &scenario.nodes[node];
    if is_lost(script, gpu, t_ms) {
        return GpuSample { fault: Some("GPU is lost".into()), ..GpuSample::default() };
    }
    let card = &script.card;
    let Activity { job, load, .. } = activity(scenario, node, gpu, t_ms);
    let ecc = |count: u64| if card.ecc { Reading::Value(count) } else { Reading::Unsupported };
    let temp_c = load.hot_c.unwrap_or_else(|| warmth_c(scenario, node, gpu, t_ms));
    Sampled {
        util_pct: load.util,
        mem_util_pct: load.mem_util,
        mem_used_bytes: memory_bytes(scenario, node, gpu, job, &load),
        mem_total_bytes: card.mem_mib << 20,
        mem_reserved_bytes: card.reserved_mib << 20,
        temp_c,
        power_mw: (load.power_w * 1_000.0) as u64,
        power_limit_mw: (card.cap_w * 1_000.0) as u64,
        sm_clock_mhz: load.sm_mhz,
        mem_clock_mhz: card.mem_mhz,
        throttle_reasons: load.throttle,
        // Data-centre cards stay in P0; a desktop card without work sleeps.
        p_state: if card.fan && !load.process { 8 } else { 0 },
    }
    .reading(
        ecc(0),
        ecc(corrected(job, t_ms)),
        if card.fan { Reading::Value(temp_c.saturating_sub(10).min(100)) } else { Reading::Unsupported },
    )
}

/// The readings that every card has.
struct Sampled {
    util_pct: u64,
    mem_util_pct: u64,
    mem_used_bytes: u64,
    mem_total_bytes: u64,
    mem_reserved_bytes: u64,
    temp_c: u64,
    power_mw: u64,
    power_limit_mw: u64,
    sm_clock_mhz: u64,
    mem_clock_mhz: u64,
    throttle_reasons: u64,
    p_state: u64,
}

impl Sampled {
    fn reading(
        self,
        ecc_uncorrected: Reading<u64>,
        ecc_corrected: Reading<u64>,
        fan_pct: Reading<u64>,
    ) -> GpuSample {
        GpuSample {
            util_pct: Reading::Value(self.util_pct),
            mem_util_pct: Reading::Value(self.mem_util_pct),
            mem_used_bytes: Reading::Value(self.mem_used_bytes),
            mem_total_bytes: Reading::Value(self.mem_total_bytes),
            mem_reserved_bytes: Reading::Value(self.mem_reserved_bytes),
            temp_c: Reading::Value(self.temp_c),
            power_mw: Reading::Value(self.power_mw),
            power_limit_mw: Reading::Value(self.power_limit_mw),
            sm_clock_mhz: Reading::Value(self.sm_clock_mhz),
            mem_clock_mhz: Reading::Value(self.mem_clock_mhz),
            throttle_reasons: Reading::Value(self.throttle_reasons),
            ecc_uncorrected,
            ecc_corrected,
            p_state: Reading::Value(self.p_state),
            fan_pct,
            ..GpuSample::default()
        }
    }
}

/// Corrected ECC errors: a few a minute where the job's script says so, since half an hour before the start.
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

/// Whether a GPU fell off the bus.
pub(super) fn is_lost(script: &NodeScript, gpu: usize, t_ms: i64) -> bool {
    let mut lost = script.faults.iter().filter(|fault| fault.kind == FaultKind::LostGpu);
    lost.any(|fault| fault.gpu as usize == gpu && fault.window.holds(t_ms))
}

/// The host works for its GPUs: data loaders, launch threads.
fn host_sample(scenario: &Scenario, node: usize, t_ms: i64) -> HostSample {
    let script = &scenario.nodes[node];
    let noise = scenario.noise.at(node as u64);
    let total = script.seats.len().max(1) as f64;
    let busy = (0..script.seats.len())
        .map(|gpu| activity(scenario, node, gpu, t_ms).load)
        .filter(|load| load.process)
        .map(|load| if load.util > 10 { 1.0 } else { 0.35 })
        .sum::<f64>()
        / total;
    let cpu_pct =
        1.5 + busy * (27.0 + 6.0 * noise.wander(21, t_ms, 6_000)) + noise.unit(22, t_ms.div_euclid(500));
    let load1 = f64::from(script.cpus) * (0.012 + busy * (0.30 + 0.04 * noise.wander(23, t_ms, 60_000)));
    let memory = 0.035 + busy * (0.31 + 0.02 * noise.wander(24, t_ms, 120_000));
    HostSample {
        cpu_pct: Reading::Value(cpu_pct.clamp(0.0, 100.0) as u64),
        load1_centi: Reading::Value((load1 * 100.0) as u64),
        mem_used_bytes: Reading::Value((script.mem_bytes as f64 * memory) as u64),
        mem_total_bytes: Reading::Value(script.mem_bytes),
        ..HostSample::default()
    }
}

/// The processes on a node's GPUs, one a GPU.
pub(super) fn processes(scenario: &Scenario, node: usize, at: Moment) -> ProcessList {
    let unloaded = scenario.fault_age_ms(node, FaultKind::NoDriver, at.t_ms).is_some();
    let count = if unloaded { 0 } else { scenario.nodes[node].seats.len() };
    ProcessList { processes: (0..count).filter_map(|gpu| process(scenario, node, gpu, at)).collect() }
}

fn process(scenario: &Scenario, node: usize, gpu: usize, at: Moment) -> Option<ProcessSample> {
    let found = activity(scenario, node, gpu, at.t_ms);
    let (job, _, run) = found.job.filter(|_| found.load.process)?;
    if is_lost(&scenario.nodes[node], gpu, at.t_ms) {
        return None;
    }
    let noise = scenario.noise.at(node as u64).at(u64::from(run.id.0)).at(found.began_ms as u64);
    let first_pid = 90_000 + (noise.number(8) % 3_000_000) as u32;
    let started_ms = at.start_wall_ms + found.began_ms + (noise.number(9) % 900) as i64;
    let own = job.user == scenario.user;
    let kind = ProcessKind { compute: true, ..ProcessKind::default() };
    let facts = ProcessFacts {
        started_ms: Reading::Value(u64::try_from(started_ms).unwrap_or(0)),
        user: Reading::Value(job.user.clone()),
        command: Reading::Value(job.command.clone()),
        args: job.args.clone().filter(|_| own).map_or(Reading::NotYet, Reading::Value),
        job: Some(run.id),
        ..ProcessFacts::new(gpu_uuid(scenario, node, gpu), first_pid + gpu as u32, kind)
    };
    let memory = memory_bytes(scenario, node, gpu, found.job, &found.load).saturating_sub(CONTEXT_BYTES);
    let now = ProcessReadings { gpu_mem_bytes: Reading::Value(memory), ..ProcessReadings::default() };
    Some(ProcessSample { facts, now })
}
