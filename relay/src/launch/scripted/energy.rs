//! A GPU's energy counter grows with what its jobs draw on the average, since its node booted.

use super::activity::runs_as;
use super::card::Card;
use super::file::Behaviour;
use super::scenario::{JobScript, Scenario, Seat, Unit};

/// Energy since boot, in mJ. Without chance it stays where it is, as all else does.
pub(super) fn since_boot_mj(scenario: &Scenario, node: usize, unit: &Unit, t_ms: i64) -> u64 {
    let script = &scenario.nodes[node];
    let (_, booted_ms) = scenario.boot(node, t_ms);
    let t_ms = if scenario.noise.is_still() { 0 } else { t_ms };
    let up_ms = (t_ms - booted_ms).max(0);
    // W times ms is mJ.
    let idle = unit.card.bare_w * up_ms as f64;
    let parts = script.units.iter().filter(|part| part.gpu == unit.gpu);
    let seats = parts.filter_map(|part| Some((&script.seats[part.seat?], &part.card)));
    let worked: f64 = seats
        .flat_map(|(seats, card)| seats.iter().map(move |seat| (seat, card)))
        .map(|(seat, card)| worked_mj(&scenario.jobs[seat.job], *seat, card, booted_ms, t_ms))
        .sum();
    (idle + worked) as u64
}

fn worked_mj(job: &JobScript, seat: Seat, card: &Card, from_ms: i64, to_ms: i64) -> f64 {
    let above_w = (mean_w(runs_as(job, seat.slot), card) - card.bare_w).max(0.0);
    let busy_ms = busy_until(job, to_ms) - busy_until(job, from_ms);
    above_w * busy_ms.max(0) as f64
}

/// How long a job has run until `t_ms`, counted from its first start; negative before it where it comes again.
fn busy_until(job: &JobScript, t_ms: i64) -> i64 {
    let Some(start_ms) = job.start_ms else { return 0 };
    let since = t_ms - start_ms;
    let length = job.end_ms.map_or(i64::MAX, |end| end - start_ms);
    match job.every_ms {
        Some(every) => since.div_euclid(every) * length.min(every) + since.rem_euclid(every).min(length),
        None => since.clamp(0, length),
    }
}

/// What a behaviour draws on the average, in W.
fn mean_w(behaviour: Behaviour, card: &Card) -> f64 {
    let share = |share: f64| card.loaded_w + (card.cap_w - card.loaded_w) * share;
    match behaviour {
        Behaviour::Training | Behaviour::Ecc => share(0.93),
        Behaviour::Straggler => share(0.46),
        Behaviour::IdleGpu => card.bare_w,
        Behaviour::Hang => card.waiting_w,
        Behaviour::Inference => share(0.27),
        Behaviour::Bursty => share(0.5),
        Behaviour::Notebook => card.loaded_w,
        Behaviour::InputBound => share(0.08),
        Behaviour::Steady => card.cap_w / 2.0,
    }
}
