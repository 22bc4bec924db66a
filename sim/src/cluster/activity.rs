//! Determines the workload of a GPU at a given time from its job, the job's behaviour and faults.

use crate::cluster::schedule::{self, Run};
use crate::cluster::workload::{GpuContext, LOADING_MS, Workload};
use crate::scenario::file::{Behaviour, FaultKind};
use crate::scenario::interventions::{KillEffect, ProcessKey};
use crate::scenario::{Assignment, JobScript, Scenario, Unit};

/// Workload of a GPU and the job it belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Activity<'a> {
    /// The job, its rank on this GPU, and its run.
    pub job: Option<(&'a JobScript, usize, Run)>,
    /// The workload.
    pub workload: Workload,
    /// Start time of its process, in ms since the scenario's start; meaningless without one.
    pub began_ms: i64,
}

/// Time from a job's start to the start of its processes.
const PROLOGUE_MS: i64 = 3_000;

/// When the memory of [`Behaviour::LateLeak`] begins to grow, in ms since the scenario's start.
const LATE_LEAK_MS: i64 = 900_000;

/// Returns the workload of a GPU at `t_ms`.
pub(crate) fn activity(scenario: &Scenario, node: usize, gpu: usize, t_ms: i64) -> Activity<'_> {
    let script = &scenario.nodes[node];
    let context =
        GpuContext { model: script.model_at(gpu), rng: scenario.rng.at(node as u64).at(gpu as u64), t_ms };
    let Some((assignment, run)) = schedule::running_job(scenario, &script.assignments[gpu], t_ms) else {
        return Activity { job: None, workload: context.off(), began_ms: 0 };
    };
    let job = &scenario.jobs[assignment.job];
    // All ranks of a node wait for the same data loader, and batches of a job are synchronous.
    let shared = GpuContext { rng: scenario.rng.at(u64::from(job.id)).at(node as u64), ..context };
    let (workload, began_ms) = workload_of_job(job, assignment, node, run, &context, &shared);
    let is_stuck =
        script.unit(gpu).is_some_and(|unit| script.fault_of(unit.gpu, FaultKind::Stuck, t_ms).is_some());
    let workload = if is_stuck && workload.process { context.loaded() } else { workload };
    let workload = match scenario
        .interventions
        .kill_effect(ProcessKey { job: run.id, node, gres_index: gpu, began_ms }, t_ms)
    {
        KillEffect::None => workload,
        KillEffect::Itself => context.off(),
        KillEffect::Peer if workload.process => context.waiting(),
        KillEffect::Peer => workload,
    };
    Activity { job: Some((job, assignment.slot, run)), workload, began_ms }
}

fn workload_of_job(
    job: &JobScript,
    assignment: Assignment,
    node: usize,
    run: Run,
    context: &GpuContext<'_>,
    shared: &GpuContext<'_>,
) -> (Workload, i64) {
    let t_ms = context.t_ms;
    let first_ms = run.start_ms + PROLOGUE_MS;
    if let Some((dead, _)) = job.deaths.iter().find(|(_, window)| window.holds(t_ms)) {
        return (if *dead == node { context.off() } else { context.waiting() }, first_ms);
    }
    let began_ms = began_ms(job, assignment.slot, t_ms).unwrap_or(first_ms).max(first_ms);
    let behaviour = behaviour(job, assignment.slot, t_ms);
    if t_ms < began_ms || behaviour == Behaviour::IdleGpu {
        return (context.off(), began_ms);
    }
    if t_ms < began_ms + LOADING_MS && behaviour != Behaviour::Steady {
        return (context.loading(t_ms - began_ms), began_ms);
    }
    let age_ms = t_ms - run.start_ms;
    let workload = match behaviour {
        Behaviour::Training if is_paced(job, t_ms) => {
            context.paced(age_ms, job.checkpoint_ms, assignment.slot)
        }
        Behaviour::Training | Behaviour::Ecc | Behaviour::HostLeak => {
            context.training(age_ms, job.checkpoint_ms, assignment.slot)
        }
        Behaviour::Straggler => context.straggler(),
        Behaviour::IdleGpu => context.off(),
        Behaviour::Hang => context.hang(),
        Behaviour::Inference => context.inference(),
        Behaviour::Bursty => context.bursty(),
        Behaviour::Notebook => context.notebook(),
        Behaviour::InputBound => shared.input_bound(),
        Behaviour::Steady => context.steady(),
        Behaviour::Leak => context.leaking(age_ms),
        Behaviour::LateLeak => context.leaking(t_ms - LATE_LEAK_MS),
        Behaviour::Slow => context.slow(),
        Behaviour::SmallKernels => context.small_kernels(),
        Behaviour::Alternating => shared.alternating(),
        Behaviour::Dynamics => context.dynamics(),
        Behaviour::Communication => context.communication(),
        Behaviour::MemoryBound => context.memory_bound(),
        Behaviour::Idle => context.loaded(),
        Behaviour::Starved => shared.starved(),
        Behaviour::Pipeline => context.pipeline(assignment.slot, job.locations.len()),
        Behaviour::Evaluating => context.evaluating(age_ms, assignment.slot),
    };
    (workload, began_ms)
}

/// Returns the behaviour of a job on one of its GPUs: the last active episode, or the default.
pub(crate) fn behaviour(job: &JobScript, slot: usize, t_ms: i64) -> Behaviour {
    let holds = job.episodes.iter().rev().find(|episode| episode.slots[slot] && episode.window.holds(t_ms));
    holds.map_or(job.behaviour, |episode| episode.behaviour)
}

/// Returns whether a slow rank delays the whole job.
fn is_paced(job: &JobScript, t_ms: i64) -> bool {
    job.episodes.iter().any(|episode| {
        matches!(episode.behaviour, Behaviour::Straggler | Behaviour::Slow) && episode.window.holds(t_ms)
    })
}

/// Returns the last restart of the job's processes: after a detected hang or a node failure.
fn began_ms(job: &JobScript, slot: usize, t_ms: i64) -> Option<i64> {
    let hangs =
        job.episodes.iter().filter(|episode| episode.behaviour == Behaviour::Hang && episode.slots[slot]);
    let over = hangs.map(|episode| &episode.window).chain(job.deaths.iter().map(|(_, window)| window));
    over.filter_map(|window| Some(t_ms - window.over_for_ms(t_ms)?)).max()
}

/// Returns the device memory in use, in bytes.
pub(crate) fn memory_bytes(
    scenario: &Scenario,
    node: usize,
    gpu: usize,
    job: Option<(&JobScript, usize, Run)>,
    workload: &Workload,
) -> u64 {
    let model = scenario.nodes[node].model_at(gpu);
    let bare = 4 << 20;
    let Some((job, ..)) = job.filter(|_| workload.process) else { return bare };
    // Memory varies slightly between ranks, but not over time.
    let rng = scenario.rng.at(node as u64).at(gpu as u64).at(u64::from(job.id));
    let share = (f64::from(job.memory_pct) / 100.0 + rng.unit(31, 0) * 0.012 - 0.006).clamp(0.0, 1.0);
    let free = (model.mem_mib - model.reserved_mib) as f64;
    bare + ((free * share * workload.memory) as u64).min(model.mem_mib - model.reserved_mib - 4) * (1 << 20)
}

/// Returns the default behaviour of a job on one of its GPUs.
pub(crate) fn runs_as(job: &JobScript, slot: usize) -> Behaviour {
    let always = job.episodes.iter().rev().find(|episode| episode.slots[slot] && episode.window.is_always());
    always.map_or(job.behaviour, |episode| episode.behaviour)
}

/// Returns the power of a GPU in W; in MIG mode the sum of its instances plus a shared part.
pub(crate) fn drawn_w(scenario: &Scenario, node: usize, unit: &Unit, t_ms: i64) -> f64 {
    let script = &scenario.nodes[node];
    let drawn = |gres_index| activity(scenario, node, gres_index, t_ms).workload.power_w;
    if let Some(gres_index) = unit.gres_index {
        return drawn(gres_index);
    }
    let parts = script.units.iter().filter(|part| part.gpu == unit.gpu).filter_map(|part| part.gres_index);
    unit.model.bare_w * 0.2 + parts.map(drawn).sum::<f64>()
}

/// Returns the temperature in °C, which follows the power of the last half minute.
pub(crate) fn warmth_c(scenario: &Scenario, node: usize, unit: &Unit, t_ms: i64) -> u64 {
    const PAST: [(i64, f64); 5] = [(0, 0.22), (5_000, 0.24), (11_000, 0.22), (19_000, 0.18), (30_000, 0.14)];
    let model = &unit.model;
    let drawn = |back_ms| drawn_w(scenario, node, unit, t_ms - back_ms);
    let mean_w: f64 = PAST.iter().map(|(back_ms, weight)| drawn(*back_ms) * weight).sum();
    let rng = scenario.rng.at(node as u64);
    let inlet = 21.0 + 3.0 * rng.unit(32, 0) + 0.4 * rng.smooth_noise(33, t_ms, 90_000);
    // Every second socket gets preheated air.
    let offset_c = if unit.gpu % 2 == 1 { 5.0 } else { 0.0 } + 4.0 * rng.at(unit.gpu as u64).unit(34, 0);
    (inlet + offset_c * mean_w / model.cap_w + model.rise_c * mean_w / model.cap_w).round() as u64
}
