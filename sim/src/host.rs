//! The host of a scripted node: data loaders, launch threads, checkpoints and network traffic for its GPUs.

use crate::cluster::activity::{Activity, activity};
use crate::scenario::file::{Behaviour, FaultKind};
use crate::scenario::rng::Rng;
use crate::scenario::{NodeScript, Scenario};
use nodeglass_protocol::probe::{HostSample, JobCgroupUsage, JobReadings};
use nodeglass_protocol::{JobId, Reading};
use std::collections::BTreeMap;

const GIB: f64 = (1u64 << 30) as f64;
const MIB: f64 = (1u64 << 20) as f64;

/// The combined load of a node's jobs.
#[derive(Debug, Default)]
struct Bustle {
    /// Share of the GPUs whose processes are active.
    busy: f64,
    /// Share of the GPUs in a multi-node job, times its compute intensity.
    across: f64,
    /// Number of processes that write a checkpoint.
    writers: f64,
    /// Number of processes that load a model.
    loaders: f64,
}

fn bustle(scenario: &Scenario, node: usize, t_ms: i64) -> Bustle {
    let script = &scenario.nodes[node];
    let share = 1.0 / script.assignments.len().max(1) as f64;
    let mut all = Bustle::default();
    for gres_index in 0..script.assignments.len() {
        let Activity { job, workload, .. } = activity(scenario, node, gres_index, t_ms);
        if !workload.process {
            continue;
        }
        let model = script.model_at(gres_index);
        let work = ((workload.power_w - model.waiting_w) / (model.cap_w - model.waiting_w)).clamp(0.0, 1.0);
        all.busy += share * if workload.util > 10 { 1.0 } else { 0.35 };
        if job.is_some_and(|(job, ..)| job.nodes.len() > 1 && job.array.is_none()) {
            all.across += share * work;
        }
        all.loaders += f64::from(u8::from(workload.memory < 1.0));
        all.writers += f64::from(u8::from(workload.memory >= 1.0 && (1..5).contains(&workload.util)));
    }
    all
}

/// The readings of the host.
pub(crate) fn sample(scenario: &Scenario, node: usize, t_ms: i64) -> HostSample {
    let script = &scenario.nodes[node];
    let rng = scenario.rng.at(node as u64);
    let Bustle { busy, across, writers, loaders } = bustle(scenario, node, t_ms);
    let has = |kind| scenario.fault_age_ms(node, kind, t_ms).is_some();
    let load1 = f64::from(script.cpus) * (0.012 + busy * (0.30 + 0.04 * rng.smooth_noise(23, t_ms, 60_000)));
    let memory = match has(FaultKind::HostMemory) {
        true => 0.98,
        false => 0.035 + busy * (0.31 + 0.02 * rng.smooth_noise(24, t_ms, 120_000)),
    };
    let swaps = has(FaultKind::Swapping);
    let shm_bytes = script.mem_bytes as f64 / 2.0;
    let near = |what, value: f64| {
        Reading::Value((value * (0.9 + 0.2 * rng.unit(what, t_ms.div_euclid(500)))).max(0.0) as u64)
    };
    let slow = |what, value: f64| {
        Reading::Value((value * (1.0 + 0.02 * rng.smooth_noise(what, t_ms, 300_000))).max(0.0) as u64)
    };
    let bytes = |gib: f64| Reading::Value((gib * GIB) as u64);
    let (_, booted_ms) = scenario.boot(node, t_ms);
    let up_ms = if rng.is_constant() { 0 } else { t_ms } - booted_ms;
    HostSample {
        cpu_pct: Reading::Value(cpu_pct(scenario, node, busy, t_ms)),
        load1_centi: Reading::Value((load1 * 100.0) as u64),
        mem_used_bytes: Reading::Value(mem_used_bytes(scenario, node, memory, t_ms)),
        mem_total_bytes: Reading::Value(script.mem_bytes),
        swap_used_bytes: if swaps { near(118, 5.4 * GIB) } else { Reading::Value(0) },
        swap_total_bytes: bytes(8.0),
        disk_read_bytes_s: near(81, (0.3 + 22.0 * busy + 240.0 * loaders) * MIB),
        disk_write_bytes_s: near(82, (0.8 + 4.0 * busy + 110.0 * writers) * MIB),
        net_rx_bytes_s: near(83, (0.4 + 46.0 * busy + 900.0 * loaders) * MIB),
        net_tx_bytes_s: near(84, (0.3 + 3.0 * busy + 640.0 * writers) * MIB),
        ib_rx_bytes_s: near(85, across * 86_000.0 * MIB),
        ib_tx_bytes_s: near(86, across * 85_000.0 * MIB),
        ib_errors: Reading::Value(0),
        shm_used_bytes: match has(FaultKind::ShmFull) {
            true => Reading::Value((shm_bytes * 0.97) as u64),
            false => slow(87, ((0.2 + busy * 38.0) * GIB).min(0.6 * shm_bytes)),
        },
        shm_total_bytes: Reading::Value(shm_bytes as u64),
        tmp_used_bytes: slow(88, 3.4 * GIB),
        tmp_total_bytes: bytes(96.0),
        scratch_used_bytes: slow(89, (410.0 + 900.0 * rng.unit(90, 0)) * GIB),
        scratch_total_bytes: bytes(3_492.0),
        psi_cpu_pct: near(91, busy * 1.6),
        psi_mem_pct: if swaps { near(119, 24.0) } else { Reading::Value(0) },
        psi_io_pct: near(92, 0.4 + 7.0 * writers.min(4.0) + 4.0 * loaders.min(8.0)),
        uptime_s: Reading::Value(u64::try_from(up_ms / 1_000).unwrap_or(0)),
    }
}

/// Memory in use: a share of all, and at least what the jobs use besides the system.
fn mem_used_bytes(scenario: &Scenario, node: usize, share: f64, t_ms: i64) -> u64 {
    let all = scenario.nodes[node].mem_bytes;
    let of_jobs: u64 = jobs(scenario, node, t_ms)
        .iter()
        .filter_map(|usage| usage.now.mem_used_bytes.value())
        .fold(0, |sum, used| sum.saturating_add(*used));
    let used = (all as f64 * share) as u64;
    used.max(of_jobs.saturating_add(all / 32)).min(all)
}

fn cpu_pct(scenario: &Scenario, node: usize, busy: f64, t_ms: i64) -> u64 {
    let rng = scenario.rng.at(node as u64);
    let share =
        1.5 + busy * (27.0 + 6.0 * rng.smooth_noise(21, t_ms, 6_000)) + rng.unit(22, t_ms.div_euclid(500));
    share.clamp(0.0, 100.0) as u64
}

/// Utilisation of each CPU, in %: a few are busy, most wait.
pub(crate) fn cores(scenario: &Scenario, node: usize, t_ms: i64) -> Vec<u8> {
    let rng = scenario.rng.at(node as u64);
    let busy = bustle(scenario, node, t_ms).busy;
    let mean = cpu_pct(scenario, node, busy, t_ms) as f64;
    // Threads move between CPUs every few seconds.
    let turn = t_ms.div_euclid(4_000);
    let core = |core: u32| {
        let rng = rng.at(9_000 + u64::from(core));
        let works = rng.unit(93, turn) < mean / 72.0;
        let near = rng.unit(94, t_ms.div_euclid(500));
        if works { 50.0 + 46.0 * near } else { 5.0 * near }
    };
    (0..scenario.nodes[node].cpus).map(|number| core(number) as u8).collect()
}

/// The usage of each job on a node, by its cgroup.
pub(crate) fn jobs(scenario: &Scenario, node: usize, t_ms: i64) -> Vec<JobCgroupUsage> {
    let script = &scenario.nodes[node];
    let mut uses = BTreeMap::<JobId, Share>::new();
    for gres_index in 0..script.assignments.len() {
        let Activity { job: Some((job, _, run)), workload, .. } = activity(scenario, node, gres_index, t_ms)
        else {
            continue;
        };
        let share = uses.entry(run.id).or_default();
        if job.behaviour == Behaviour::HostLeak {
            share.leaked = (t_ms - run.start_ms).max(0) as f64 / 60_000.0 * 0.005;
        }
        if let Some(lived) = job.share_until_out_of_memory(t_ms) {
            share.leaked = 0.85 * lived * lived;
            share.is_killed = job.is_killed_at(t_ms);
        }
        share.gpus += 1.0;
        share.starves |= workload.process && job.behaviour == Behaviour::Starved;
        if workload.process {
            share.processes += 1.0;
            share.busy += workload.util as f64 / 100.0;
        }
    }
    let rng = scenario.rng.at(node as u64);
    let usage = |(job, share): (JobId, Share)| {
        let now = share.readings(script, rng.at(u64::from(job.0)), t_ms);
        JobCgroupUsage { job, now }
    };
    uses.into_iter().map(usage).collect()
}

/// Resources and load of a job on a node.
#[derive(Debug, Default)]
struct Share {
    gpus: f64,
    processes: f64,
    busy: f64,
    /// Share of its limit by which its memory has grown.
    leaked: f64,
    /// Whether its data loaders use all of its CPUs.
    starves: bool,
    /// Whether the kernel has killed one of its processes.
    is_killed: bool,
}

impl Share {
    fn readings(&self, script: &NodeScript, rng: Rng, t_ms: i64) -> JobReadings {
        let per_gpu = 1.0 / script.assignments.len().max(1) as f64;
        let near = 0.92 + 0.16 * rng.unit(95, t_ms.div_euclid(500));
        let cpus = (f64::from(script.cpus) * self.gpus * per_gpu).floor().max(1.0);
        let limit = script.mem_bytes as f64 * 0.95 * self.gpus * per_gpu;
        let steady = 1.0 + 0.03 * rng.smooth_noise(96, t_ms, 180_000);
        let used = limit
            * (self.leaked + 0.002 + (0.12 + 0.18 * rng.unit(97, 0)) * steady * self.processes / self.gpus);
        let cpu = match self.starves {
            true => cpus * 100.0 * (0.72 + 0.25 * near),
            false => (0.6 + 240.0 * self.busy + 95.0 * self.processes) * near,
        };
        let whole = |value: f64| Reading::Value(value as u64);
        JobReadings {
            cpu_pct: whole(cpu.min(cpus * 100.0)),
            cpu_limit_pct: whole(cpus * 100.0),
            mem_used_bytes: whole(used.min(limit)),
            mem_limit_bytes: whole(limit),
            // Less than what is in /dev/shm of the node, as `sample` has it.
            shmem_bytes: whole((used * 0.11).min(self.processes * per_gpu * 11.0 * GIB)),
            oom_kills: Reading::Value(u64::from(self.is_killed)),
        }
    }
}
