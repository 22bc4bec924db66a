//! The host of a scripted node works for its GPUs: data loaders, launch threads, checkpoints, the network.

use super::activity::{Activity, activity};
use super::scenario::Scenario;
use nodeglass_protocol::probe::{HostSample, JobReadings, JobUsage};
use nodeglass_protocol::{JobId, Reading};
use std::collections::BTreeMap;

const GIB: f64 = (1u64 << 30) as f64;
const MIB: f64 = (1u64 << 20) as f64;

/// What the jobs of a node do together.
#[derive(Debug, Default)]
struct Bustle {
    /// Share of the GPUs whose processes work.
    busy: f64,
    /// Share of the GPUs that take part in a job of several nodes, times how much it computes.
    across: f64,
    /// How many processes write a checkpoint.
    writers: f64,
    /// How many processes load a model.
    loaders: f64,
}

fn bustle(scenario: &Scenario, node: usize, t_ms: i64) -> Bustle {
    let script = &scenario.nodes[node];
    let share = 1.0 / script.seats.len().max(1) as f64;
    let mut all = Bustle::default();
    for seat in 0..script.seats.len() {
        let Activity { job, load, .. } = activity(scenario, node, seat, t_ms);
        if !load.process {
            continue;
        }
        let card = script.card_at(seat);
        let work = ((load.power_w - card.waiting_w) / (card.cap_w - card.waiting_w)).clamp(0.0, 1.0);
        all.busy += share * if load.util > 10 { 1.0 } else { 0.35 };
        if job.is_some_and(|(job, ..)| job.nodes.len() > 1 && job.array.is_none()) {
            all.across += share * work;
        }
        all.loaders += f64::from(u8::from(load.memory < 1.0));
        all.writers += f64::from(u8::from(load.memory >= 1.0 && (1..5).contains(&load.util)));
    }
    all
}

/// The readings of the host.
pub(super) fn sample(scenario: &Scenario, node: usize, t_ms: i64) -> HostSample {
    let script = &scenario.nodes[node];
    let noise = scenario.noise.at(node as u64);
    let Bustle { busy, across, writers, loaders } = bustle(scenario, node, t_ms);
    let load1 = f64::from(script.cpus) * (0.012 + busy * (0.30 + 0.04 * noise.wander(23, t_ms, 60_000)));
    let memory = 0.035 + busy * (0.31 + 0.02 * noise.wander(24, t_ms, 120_000));
    let near = |what, value: f64| {
        Reading::Value((value * (0.9 + 0.2 * noise.unit(what, t_ms.div_euclid(500)))).max(0.0) as u64)
    };
    let slow = |what, value: f64| {
        Reading::Value((value * (1.0 + 0.02 * noise.wander(what, t_ms, 300_000))).max(0.0) as u64)
    };
    let bytes = |gib: f64| Reading::Value((gib * GIB) as u64);
    let (_, booted_ms) = scenario.boot(node, t_ms);
    let up_ms = if noise.is_still() { 0 } else { t_ms } - booted_ms;
    HostSample {
        cpu_pct: Reading::Value(cpu_pct(scenario, node, busy, t_ms)),
        load1_centi: Reading::Value((load1 * 100.0) as u64),
        mem_used_bytes: Reading::Value((script.mem_bytes as f64 * memory) as u64),
        mem_total_bytes: Reading::Value(script.mem_bytes),
        swap_used_bytes: Reading::Value(0),
        swap_total_bytes: bytes(8.0),
        disk_read_bytes_s: near(81, (0.3 + 22.0 * busy + 240.0 * loaders) * MIB),
        disk_write_bytes_s: near(82, (0.8 + 4.0 * busy + 110.0 * writers) * MIB),
        net_rx_bytes_s: near(83, (0.4 + 46.0 * busy + 900.0 * loaders) * MIB),
        net_tx_bytes_s: near(84, (0.3 + 3.0 * busy + 640.0 * writers) * MIB),
        ib_rx_bytes_s: near(85, across * 86_000.0 * MIB),
        ib_tx_bytes_s: near(86, across * 85_000.0 * MIB),
        ib_errors: Reading::Value(0),
        shm_used_bytes: slow(87, (0.2 + busy * 38.0) * GIB),
        shm_total_bytes: Reading::Value(script.mem_bytes / 2),
        tmp_used_bytes: slow(88, 3.4 * GIB),
        tmp_total_bytes: bytes(96.0),
        scratch_used_bytes: slow(89, (410.0 + 900.0 * noise.unit(90, 0)) * GIB),
        scratch_total_bytes: bytes(3_492.0),
        psi_cpu_pct: near(91, busy * 1.6),
        psi_mem_pct: Reading::Value(0),
        psi_io_pct: near(92, 0.4 + 7.0 * writers.min(4.0) + 4.0 * loaders.min(8.0)),
        uptime_s: Reading::Value(u64::try_from(up_ms / 1_000).unwrap_or(0)),
    }
}

fn cpu_pct(scenario: &Scenario, node: usize, busy: f64, t_ms: i64) -> u64 {
    let noise = scenario.noise.at(node as u64);
    let share =
        1.5 + busy * (27.0 + 6.0 * noise.wander(21, t_ms, 6_000)) + noise.unit(22, t_ms.div_euclid(500));
    share.clamp(0.0, 100.0) as u64
}

/// How busy each CPU is, in %: a few work hard, most wait.
pub(super) fn cores(scenario: &Scenario, node: usize, t_ms: i64) -> Vec<u8> {
    let noise = scenario.noise.at(node as u64);
    let busy = bustle(scenario, node, t_ms).busy;
    let mean = cpu_pct(scenario, node, busy, t_ms) as f64;
    // Threads move between CPUs every few seconds.
    let turn = t_ms.div_euclid(4_000);
    let core = |core: u32| {
        let noise = noise.at(9_000 + u64::from(core));
        let works = noise.unit(93, turn) < mean / 72.0;
        let near = noise.unit(94, t_ms.div_euclid(500));
        if works { 50.0 + 46.0 * near } else { 5.0 * near }
    };
    (0..scenario.nodes[node].cpus).map(|number| core(number) as u8).collect()
}

/// What each job uses of a node, by its cgroup.
pub(super) fn jobs(scenario: &Scenario, node: usize, t_ms: i64) -> Vec<JobUsage> {
    let script = &scenario.nodes[node];
    let mut uses = BTreeMap::<JobId, Share>::new();
    for seat in 0..script.seats.len() {
        let Activity { job: Some((_, _, run)), load, .. } = activity(scenario, node, seat, t_ms) else {
            continue;
        };
        let share = uses.entry(run.id).or_default();
        share.seats += 1.0;
        if load.process {
            share.processes += 1.0;
            share.busy += load.util as f64 / 100.0;
        }
    }
    let of = scenario.noise.at(node as u64);
    let per_seat = 1.0 / script.seats.len().max(1) as f64;
    let job = |(job, share): (JobId, Share)| {
        let noise = of.at(u64::from(job.0));
        let near = 0.92 + 0.16 * noise.unit(95, t_ms.div_euclid(500));
        let cpus = (f64::from(script.cpus) * share.seats * per_seat).floor().max(1.0);
        let limit = script.mem_bytes as f64 * 0.95 * share.seats * per_seat;
        let steady = 1.0 + 0.03 * noise.wander(96, t_ms, 180_000);
        let used =
            limit * (0.002 + (0.12 + 0.18 * noise.unit(97, 0)) * steady * share.processes / share.seats);
        let whole = |value: f64| Reading::Value(value as u64);
        let now = JobReadings {
            cpu_pct: whole(((0.6 + 240.0 * share.busy + 95.0 * share.processes) * near).min(cpus * 100.0)),
            cpu_limit_pct: whole(cpus * 100.0),
            mem_used_bytes: whole(used),
            mem_limit_bytes: whole(limit),
            shmem_bytes: whole(used * 0.11),
            oom_kills: Reading::Value(0),
        };
        JobUsage { job, now }
    };
    uses.into_iter().map(job).collect()
}

/// What a job has and does on a node.
#[derive(Debug, Default)]
struct Share {
    seats: f64,
    processes: f64,
    busy: f64,
}
