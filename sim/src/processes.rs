//! Processes on a scripted node's GPUs, including zombies.

use crate::cluster::activity::{Activity, activity, memory_bytes};
use crate::cluster::schedule::Run;
use crate::cluster::workload::Workload;
use crate::gpu::facts::unit_uuid;
use crate::gpu::readings::{LEFT_OVER_BYTES, ZOMBIE_BYTES, is_lost};
use crate::gpu::vendor;
use crate::scenario::file::{Behaviour, FaultKind};
use crate::scenario::{JobScript, Scenario, ScenarioTime, Unit};
use nodeglass_protocol::probe::{ProcessFacts, ProcessKind, ProcessList, ProcessReadings, ProcessSample};
use nodeglass_protocol::process::{ProcessState, Rank};
use nodeglass_protocol::request::ProcessRef;
use nodeglass_protocol::{JobId, Reading, Text};

/// Memory of a process besides its allocations, in bytes; driver contexts belong to the GPU.
const CONTEXT_BYTES: u64 = 6 << 20;
/// A compute process.
const COMPUTE: ProcessKind = ProcessKind { compute: true, graphics: false, mps: false };

/// A process of a job on one GPU of a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Worker<'a> {
    /// Its job.
    pub job: &'a JobScript,
    /// Its rank.
    pub slot: usize,
    /// The run of that job.
    pub run: Run,
    /// Its workload.
    pub workload: Workload,
    /// Its pid.
    pub pid: u32,
    /// Pid of the launcher of all the job's processes on this node.
    pub launcher: u32,
    /// Start time in ms since 1970.
    pub started_ms: u64,
    /// Start time of the job's processes, in ms since the scenario's start.
    pub began_ms: i64,
    /// Its local rank.
    pub local: u32,
}

/// Returns the process on a GPU, if there is one.
pub(crate) fn worker(
    scenario: &Scenario,
    node: usize,
    gres_index: usize,
    at: ScenarioTime,
) -> Option<Worker<'_>> {
    let Activity { job, workload, began_ms } = activity(scenario, node, gres_index, at.t_ms);
    let (job, slot, run) = job.filter(|_| workload.process)?;
    let unit = scenario.nodes[node].unit(gres_index)?;
    if is_lost(&scenario.nodes[node], unit.gpu, at.t_ms) {
        return None;
    }
    let rng = scenario.rng.at(node as u64).at(u64::from(run.id.0)).at(began_ms as u64);
    let first_pid = 90_000 + (rng.number(8) % 3_000_000) as u32;
    let started_ms = at.start_wall_ms + began_ms + (rng.number(9) % 900) as i64;
    let before = job.locations[..slot].iter().filter(|location| location.node == node);
    Some(Worker {
        job,
        slot,
        run,
        workload,
        pid: first_pid + gres_index as u32,
        launcher: first_pid - 9,
        began_ms,
        started_ms: u64::try_from(started_ms).unwrap_or(0),
        local: if job.array.is_some() { 0 } else { before.count() as u32 },
    })
}

/// Finds a process and the index of its GPU.
pub(crate) fn find(
    scenario: &Scenario,
    node: usize,
    process: ProcessRef,
    at: ScenarioTime,
) -> Option<(usize, Worker<'_>)> {
    let mut workers = (0..scenario.nodes[node].assignments.len())
        .filter_map(|gres_index| Some((gres_index, worker(scenario, node, gres_index, at)?)));
    workers.find(|(_, worker)| worker.pid == process.pid && worker.started_ms == process.started_ms)
}

/// Returns the processes on a node's GPUs, at most one per GPU or instance, and zombies of the
/// scenario.
pub(crate) fn processes(scenario: &Scenario, node: usize, at: ScenarioTime) -> ProcessList {
    let unloaded = scenario.fault_age_ms(node, FaultKind::NoDriver, at.t_ms).is_some();
    let units = if unloaded { &[][..] } else { &scenario.nodes[node].units[..] };
    let listed = |unit| {
        let faults = [zombie(scenario, node, unit, at), left_over(scenario, node, unit, at)];
        process(scenario, node, unit, at).into_iter().chain(faults.into_iter().flatten())
    };
    ProcessList { processes: units.iter().flat_map(listed).collect(), ..ProcessList::default() }
}

fn process(scenario: &Scenario, node: usize, unit: &Unit, at: ScenarioTime) -> Option<ProcessSample> {
    let gres_index = unit.gres_index?;
    let worker = worker(scenario, node, gres_index, at)?;
    let found = Some((worker.job, worker.slot, worker.run));
    let memory =
        memory_bytes(scenario, node, gres_index, found, &worker.workload).saturating_sub(CONTEXT_BYTES);
    let now = ProcessReadings {
        gpu_mem_bytes: Reading::Value(memory),
        ..readings(scenario, node, unit, &worker, at)
    };
    let now = vendor::process(vendor::of(&unit.model), now);
    Some(ProcessSample { facts: facts(scenario, node, unit, &worker), now })
}

fn facts(scenario: &Scenario, node: usize, unit: &Unit, worker: &Worker<'_>) -> ProcessFacts {
    let job = worker.job;
    let own = job.user == scenario.user;
    let is_task = job.array.is_some();
    let world = if is_task { 1 } else { job.locations.len() as u32 };
    let global = if is_task { 0 } else { worker.slot as u32 };
    ProcessFacts {
        parent: Reading::Value(worker.launcher),
        started_ms: Reading::Value(worker.started_ms),
        user: Reading::Value(job.user.clone()),
        command: Reading::Value(job.command.clone()),
        args: job.args.clone().filter(|_| own).map_or(Reading::NotYet, Reading::Value),
        cwd: if own { Reading::Value(Text::new(job.workdir())) } else { Reading::NotYet },
        job: Some(worker.run.id),
        step: Some(if job.behaviour == Behaviour::Notebook { "batch".into() } else { "0".into() }),
        rank: (own && world > 1).then_some(Rank { global, local: Some(worker.local), world: Some(world) }),
        container: job.container.clone(),
        ..ProcessFacts::new(unit_uuid(scenario, node, unit), worker.pid, COMPUTE)
    }
}

fn readings(
    scenario: &Scenario,
    node: usize,
    unit: &Unit,
    worker: &Worker<'_>,
    at: ScenarioTime,
) -> ProcessReadings {
    let script = &scenario.nodes[node];
    let rng = scenario.rng.at(u64::from(worker.pid));
    let workload = &worker.workload;
    let near = |what, value: f64| (value * (0.9 + 0.2 * rng.unit(what, at.t_ms.div_euclid(2_000)))) as u64;
    // NVML does not report per-process utilization of instances.
    let shared = |value: u64| if unit.mig.is_some() { Reading::Unsupported } else { Reading::Value(value) };
    let writes = matches!(worker.job.behaviour, Behaviour::Training | Behaviour::Evaluating)
        && workload.memory >= 1.0
        && (1..10).contains(&workload.util);
    let is_stuck = script.fault_of(unit.gpu, FaultKind::Stuck, at.t_ms).is_some();
    let state = if is_stuck || writes && rng.unit(115, at.t_ms.div_euclid(4_000)) > 0.6 {
        ProcessState::Uninterruptible
    } else {
        ProcessState::Alive
    };
    let cpu = 4.0 + 104.0 * f64::from(u8::from(workload.util > 4 || workload.memory < 1.0));
    let rss_gib = workload.memory * (3.2 + 7.0 * rng.unit(112, 0));
    ProcessReadings {
        gpu_mem_bytes: Reading::NotYet,
        sm_pct: shared(workload.util),
        mem_bw_pct: shared(workload.mem_util),
        enc_pct: shared(0),
        dec_pct: shared(0),
        cpu_pct: Reading::Value(near(111, cpu)),
        rss_bytes: Reading::Value((rss_gib * f64::from(1u32 << 30)) as u64),
        threads: Reading::Value(64 + rng.number(113) % 180),
        state: Reading::Value(state as u64),
    }
}

/// Returns a process of an earlier job that its end has not stopped.
fn left_over(scenario: &Scenario, node: usize, unit: &Unit, at: ScenarioTime) -> Option<ProcessSample> {
    scenario.nodes[node].fault_of(unit.gpu, FaultKind::LeftOver, at.t_ms)?;
    let pid = 40_000 + (scenario.rng.at(node as u64).at(unit.gpu as u64).number(116) % 20_000) as u32;
    let facts = ProcessFacts {
        parent: Reading::Value(1),
        started_ms: Reading::Value(at.plus(-at.t_ms - 9_000_000).wall_ms()),
        user: Reading::Value(scenario.user.clone()),
        command: Reading::Value("python3".into()),
        job: Some(JobId(3)),
        ..ProcessFacts::new(unit_uuid(scenario, node, unit), pid, COMPUTE)
    };
    let idle = || Reading::Value(0);
    let now = ProcessReadings {
        gpu_mem_bytes: Reading::Value(LEFT_OVER_BYTES - CONTEXT_BYTES),
        sm_pct: idle(),
        mem_bw_pct: idle(),
        enc_pct: idle(),
        dec_pct: idle(),
        cpu_pct: idle(),
        rss_bytes: Reading::Value(1 << 30),
        threads: Reading::Value(31),
        state: Reading::Value(ProcessState::Alive as u64),
    };
    Some(ProcessSample { facts, now })
}

/// Returns a zombie whose memory the driver still counts.
fn zombie(scenario: &Scenario, node: usize, unit: &Unit, at: ScenarioTime) -> Option<ProcessSample> {
    let age_ms = scenario.nodes[node].fault_of(unit.gpu, FaultKind::Zombie, at.t_ms)?;
    let pid = 60_000 + (scenario.rng.at(node as u64).at(unit.gpu as u64).number(114) % 20_000) as u32;
    let started_ms = at.plus(-age_ms - 2_700_000).wall_ms();
    let facts = ProcessFacts {
        parent: Reading::Value(1),
        started_ms: Reading::Value(started_ms),
        user: Reading::Value(scenario.user.clone()),
        command: Reading::Value("python3".into()),
        ..ProcessFacts::new(unit_uuid(scenario, node, unit), pid, COMPUTE)
    };
    let idle = || Reading::Value(0);
    let now = ProcessReadings {
        gpu_mem_bytes: Reading::Value(ZOMBIE_BYTES - CONTEXT_BYTES),
        sm_pct: idle(),
        mem_bw_pct: idle(),
        enc_pct: idle(),
        dec_pct: idle(),
        cpu_pct: idle(),
        rss_bytes: idle(),
        threads: Reading::Value(1),
        state: Reading::Value(ProcessState::Zombie as u64),
    };
    Some(ProcessSample { facts, now })
}
