//! What a GPU does at a moment follows from whose it is then, what that job does, and what befalls it.

use super::deeds::{Loss, Victim};
use super::file::Behaviour;
use super::load::{LOADING_MS, Load, Spot};
use super::scenario::{JobScript, Scenario, Seat, Unit};
use super::schedule::{self, Run};

/// What a GPU does at a moment, and for whom.
#[derive(Clone, Copy, Debug)]
pub(super) struct Activity<'a> {
    /// The job that has it, its rank there, and its run.
    pub job: Option<(&'a JobScript, usize, Run)>,
    /// What that looks like.
    pub load: Load,
    /// When its process began, in ms since the scenario's start; meaningless without one.
    pub began_ms: i64,
}

/// How long after a job's start its processes appear.
const PROLOGUE_MS: i64 = 3_000;

/// What a GPU does at `t_ms`.
pub(super) fn activity(scenario: &Scenario, node: usize, gpu: usize, t_ms: i64) -> Activity<'_> {
    let script = &scenario.nodes[node];
    let spot = Spot { card: script.card_at(gpu), noise: scenario.noise.at(node as u64).at(gpu as u64), t_ms };
    let Some((seat, run)) = schedule::occupant(scenario, &script.seats[gpu], t_ms) else {
        return Activity { job: None, load: spot.off(), began_ms: 0 };
    };
    let job = &scenario.jobs[seat.job];
    // All ranks of a node wait for the same data loader, and a job's batches come together.
    let shared = Spot { noise: scenario.noise.at(u64::from(job.id)).at(node as u64), ..spot };
    let (load, began_ms) = job_load(job, seat, node, run, &spot, &shared);
    let load = match scenario.deeds.loss(Victim { job: run.id, node, seat: gpu, began_ms }, t_ms) {
        Loss::None => load,
        Loss::Itself => spot.off(),
        Loss::Peer if load.process => spot.waiting(),
        Loss::Peer => load,
    };
    Activity { job: Some((job, seat.slot, run)), load, began_ms }
}

fn job_load(
    job: &JobScript,
    seat: Seat,
    node: usize,
    run: Run,
    spot: &Spot<'_>,
    shared: &Spot<'_>,
) -> (Load, i64) {
    let t_ms = spot.t_ms;
    let first_ms = run.start_ms + PROLOGUE_MS;
    if let Some((dead, _)) = job.deaths.iter().find(|(_, window)| window.holds(t_ms)) {
        return (if *dead == node { spot.off() } else { spot.waiting() }, first_ms);
    }
    let began_ms = began_ms(job, seat.slot, t_ms).unwrap_or(first_ms).max(first_ms);
    let behaviour = behaviour(job, seat.slot, t_ms);
    if t_ms < began_ms || behaviour == Behaviour::IdleGpu {
        return (spot.off(), began_ms);
    }
    if t_ms < began_ms + LOADING_MS && behaviour != Behaviour::Steady {
        return (spot.loading(t_ms - began_ms), began_ms);
    }
    let age_ms = t_ms - run.start_ms;
    let load = match behaviour {
        Behaviour::Training if is_paced(job, t_ms) => spot.paced(age_ms, job.checkpoint_ms, seat.slot),
        Behaviour::Training | Behaviour::Ecc => spot.training(age_ms, job.checkpoint_ms, seat.slot),
        Behaviour::Straggler => spot.straggler(),
        Behaviour::IdleGpu => spot.off(),
        Behaviour::Hang => spot.hang(),
        Behaviour::Inference => spot.inference(),
        Behaviour::Bursty => spot.bursty(),
        Behaviour::Notebook => spot.notebook(),
        Behaviour::InputBound => shared.input_bound(),
        Behaviour::Steady => spot.steady(),
    };
    (load, began_ms)
}

/// What the job does on one of its GPUs: the last episode that holds, else its ordinary behaviour.
fn behaviour(job: &JobScript, slot: usize, t_ms: i64) -> Behaviour {
    let holds = job.episodes.iter().rev().find(|episode| episode.slots[slot] && episode.window.holds(t_ms));
    holds.map_or(job.behaviour, |episode| episode.behaviour)
}

/// Whether a rank somewhere in the job holds up all others.
fn is_paced(job: &JobScript, t_ms: i64) -> bool {
    job.episodes.iter().any(|episode| episode.behaviour == Behaviour::Straggler && episode.window.holds(t_ms))
}

/// When the job's processes were last started anew: after a hang was noticed, after a node came back.
fn began_ms(job: &JobScript, slot: usize, t_ms: i64) -> Option<i64> {
    let hangs =
        job.episodes.iter().filter(|episode| episode.behaviour == Behaviour::Hang && episode.slots[slot]);
    let over = hangs.map(|episode| &episode.window).chain(job.deaths.iter().map(|(_, window)| window));
    over.filter_map(|window| Some(t_ms - window.over_for_ms(t_ms)?)).max()
}

/// Device memory in use on a GPU, in bytes.
pub(super) fn memory_bytes(
    scenario: &Scenario,
    node: usize,
    gpu: usize,
    job: Option<(&JobScript, usize, Run)>,
    load: &Load,
) -> u64 {
    let card = scenario.nodes[node].card_at(gpu);
    let bare = 4 << 20;
    let Some((job, ..)) = job.filter(|_| load.process) else { return bare };
    // Ranks hold a little more or less than each other, and keep it.
    let noise = scenario.noise.at(node as u64).at(gpu as u64).at(u64::from(job.id));
    let share = (f64::from(job.memory_pct) / 100.0 + noise.unit(31, 0) * 0.012 - 0.006).clamp(0.0, 1.0);
    let free = (card.mem_mib - card.reserved_mib) as f64;
    bare + ((free * share * load.memory) as u64).min(card.mem_mib - card.reserved_mib - 4) * (1 << 20)
}

/// What a job always does on one of its GPUs, times and places aside.
pub(super) fn runs_as(job: &JobScript, slot: usize) -> Behaviour {
    let always = job.episodes.iter().rev().find(|episode| episode.slots[slot] && episode.window.is_always());
    always.map_or(job.behaviour, |episode| episode.behaviour)
}

/// What a GPU draws, in W: a divided one as its parts together, and a little for what they share.
pub(super) fn drawn_w(scenario: &Scenario, node: usize, unit: &Unit, t_ms: i64) -> f64 {
    let script = &scenario.nodes[node];
    let drawn = |seat| activity(scenario, node, seat, t_ms).load.power_w;
    if let Some(seat) = unit.seat {
        return drawn(seat);
    }
    let parts = script.units.iter().filter(|part| part.gpu == unit.gpu).filter_map(|part| part.seat);
    unit.card.bare_w * 0.2 + parts.map(drawn).sum::<f64>()
}

/// Temperature in °C: it follows the draw of the last half minute.
pub(super) fn warmth_c(scenario: &Scenario, node: usize, unit: &Unit, t_ms: i64) -> u64 {
    const PAST: [(i64, f64); 5] = [(0, 0.22), (5_000, 0.24), (11_000, 0.22), (19_000, 0.18), (30_000, 0.14)];
    let card = &unit.card;
    let drawn = |back_ms| drawn_w(scenario, node, unit, t_ms - back_ms);
    let mean_w: f64 = PAST.iter().map(|(back_ms, weight)| drawn(*back_ms) * weight).sum();
    let noise = scenario.noise.at(node as u64);
    let inlet = 21.0 + 3.0 * noise.unit(32, 0) + 0.4 * noise.wander(33, t_ms, 90_000);
    // Every second socket gets the air that the one before it has warmed.
    let place = if unit.gpu % 2 == 1 { 5.0 } else { 0.0 } + 4.0 * noise.at(unit.gpu as u64).unit(34, 0);
    (inlet + place * mean_w / card.cap_w + card.rise_c * mean_w / card.cap_w).round() as u64
}
