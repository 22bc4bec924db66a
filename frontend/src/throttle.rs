//! Why a card's clocks are lower than they could be, for how much of the time, and since when.

use nodeglass_protocol::Cell;
use nodeglass_protocol::trace::Trace;

/// One of NVML's clock-event reasons (`nvmlClocksEventReason…`).
#[derive(Debug, PartialEq, Eq)]
pub struct Reason {
    /// Its bit in [`nodeglass_protocol::GpuField::Throttle`].
    pub bit: u32,
    /// Its name as a lane is called.
    pub name: &'static str,
    /// What it means, one sentence.
    pub why: &'static str,
    /// Whether it is part of healthy work, and never worth a colour.
    pub is_normal: bool,
}

/// Every reason, the worst first.
pub const REASONS: [Reason; 9] = [
    Reason {
        bit: 0x40,
        name: "too hot (hardware)",
        why: "The card itself lowers its clocks because it is too hot.",
        is_normal: false,
    },
    Reason {
        bit: 0x20,
        name: "too hot (driver)",
        why: "The driver lowers the clocks because the card is too hot.",
        is_normal: false,
    },
    Reason {
        bit: 0x80,
        name: "power brake",
        why: "The power supply or the rack asked the card to slow down.",
        is_normal: false,
    },
    Reason {
        bit: 0x8,
        name: "hardware slowdown",
        why: "The hardware lowers the clocks, for heat, for power, or without a reason of its own.",
        is_normal: false,
    },
    Reason {
        bit: 0x4,
        name: "power limit",
        why: "The card works at its power limit, as busy cards do.",
        is_normal: true,
    },
    Reason {
        bit: 0x10,
        name: "sync boost",
        why: "It keeps in step with the cards it is grouped with.",
        is_normal: true,
    },
    Reason { bit: 0x2, name: "fixed clocks", why: "Somebody set the clocks it runs at.", is_normal: true },
    Reason { bit: 0x100, name: "display clocks", why: "A display asks for these clocks.", is_normal: true },
    Reason { bit: 0x1, name: "idle", why: "Nothing runs, so the clocks rest.", is_normal: true },
];

/// All that was said of one reason within a stretch of time.
#[derive(Clone, Debug, PartialEq)]
pub struct Held {
    /// The reason.
    pub reason: &'static Reason,
    /// Share of the time that is known in which it held, 0 to 1.
    pub share: f32,
    /// Since when it holds now, in ms of the relay's clock; `None` when it does not.
    pub since_ms: Option<u64>,
    /// Whether nothing is known of the moment before, so that it may hold for longer.
    pub or_longer: bool,
    /// When it held: from the first to after the last slot, in ms.
    pub runs: Vec<(u64, u64)>,
}

/// The reasons that held between two moments, the worst first; what is not known counts for nothing.
pub fn held(trace: &Trace, from_ms: u64, to_ms: u64) -> Vec<Held> {
    let slots: Vec<(u64, u32)> = trace
        .since(from_ms)
        .take_while(|(at_ms, _)| *at_ms < to_ms)
        .filter_map(|(at_ms, cell)| Some((at_ms, cell.and_then(Cell::value)?)))
        .collect();
    REASONS.iter().filter_map(|reason| held_by(reason, trace, &slots)).collect()
}

fn held_by(reason: &'static Reason, trace: &Trace, slots: &[(u64, u32)]) -> Option<Held> {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    let mut count = 0usize;
    for (at_ms, _) in slots.iter().filter(|(_, bits)| bits & reason.bit != 0) {
        count += 1;
        match runs.last_mut() {
            Some(run) if run.1 == *at_ms => run.1 += Trace::STEP_MS,
            _ => runs.push((*at_ms, at_ms + Trace::STEP_MS)),
        }
    }
    let last_ms = slots.last()?.0 + Trace::STEP_MS;
    let last_run = runs.last().copied()?;
    let since_ms = (last_run.1 == last_ms).then(|| began(reason, trace, last_run.0));
    Some(Held {
        reason,
        share: count as f32 / slots.len() as f32,
        since_ms: since_ms.map(|(since_ms, _)| since_ms),
        or_longer: since_ms.is_some_and(|(_, or_longer)| or_longer),
        runs,
    })
}

/// When a run that is under way at `at_ms` began, and whether nothing is known of the moment before.
fn began(reason: &Reason, trace: &Trace, at_ms: u64) -> (u64, bool) {
    let (mut since_ms, mut or_longer) = (None, true);
    for (slot_ms, cell) in trace.points().take_while(|(slot_ms, _)| *slot_ms <= at_ms) {
        match cell.and_then(Cell::value) {
            Some(bits) if bits & reason.bit != 0 => since_ms = since_ms.or(Some(slot_ms)),
            known => (since_ms, or_longer) = (None, known.is_none()),
        }
    }
    (since_ms.unwrap_or(at_ms), or_longer)
}

/// How much a reading of reasons says, from 0 (nothing, or idle) by a half (normal) to 1 (worth a look).
pub fn level(bits: u32) -> f32 {
    const IDLE: u32 = 0x1;
    let of = |normal: bool| {
        REASONS.iter().filter(|reason| reason.is_normal == normal).fold(0, |all, one| all | one.bit)
    };
    match bits {
        bits if bits & of(false) != 0 => 1.0,
        bits if bits & of(true) & !IDLE != 0 => 0.5,
        _ => 0.0,
    }
}

/// The names of a reading's reasons, the worst first; `none` when the clocks are as high as they can be.
pub fn names(bits: u32) -> String {
    let names: Vec<&str> =
        REASONS.iter().filter(|reason| bits & reason.bit != 0).map(|reason| reason.name).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(slots: &[(u64, u32)]) -> Trace {
        let mut trace = Trace::default();
        slots.iter().for_each(|(second, bits)| trace.push(second * 1_000, Cell::steps(*bits), 0));
        trace
    }

    #[test]
    fn a_share_is_of_the_time_that_is_known() {
        let trace = trace(&[(10, 0x4), (11, 0x4), (14, 0x0), (15, 0x0)]);
        let held = held(&trace, 10_000, 16_000);
        assert_eq!((held.len(), held[0].reason.name, held[0].share), (1, "power limit", 0.5));
        assert_eq!((held[0].since_ms, held[0].runs.as_slice()), (None, &[(10_000, 12_000)][..]));
    }

    #[test]
    fn what_holds_now_says_since_when_even_from_before_the_window() {
        let trace = trace(&[(10, 0x0), (11, 0x40), (12, 0x40), (13, 0x44), (14, 0x40)]);
        let held = held(&trace, 13_000, 15_000);
        assert_eq!((held[0].reason.bit, held[0].since_ms, held[0].or_longer), (0x40, Some(11_000), false));
        assert_eq!((held[1].reason.bit, held[1].since_ms), (0x4, None));
    }

    #[test]
    fn what_always_held_may_hold_for_longer() {
        let held = held(&trace(&[(10, 0x1), (11, 0x1)]), 0, 60_000);
        assert_eq!((held[0].since_ms, held[0].or_longer, held[0].share), (Some(10_000), true, 1.0));
    }

    #[test]
    fn a_gap_ends_a_run_and_is_not_counted() {
        let held = held(&trace(&[(10, 0x20), (13, 0x20)]), 0, 60_000);
        assert_eq!((held[0].runs.len(), held[0].share, held[0].since_ms), (2, 1.0, Some(13_000)));
        assert!(held[0].or_longer, "nobody knows what was before");
    }

    #[test]
    fn nothing_known_is_nothing_held() {
        assert_eq!(held(&Trace::default(), 0, 60_000), []);
        let mut trace = Trace::default();
        trace.push(10_000, Cell::UNSUPPORTED, 0);
        assert_eq!(held(&trace, 0, 60_000), []);
    }

    #[test]
    fn idle_and_the_power_limit_are_never_worth_a_look() {
        assert_eq!([0x0, 0x1, 0x4, 0x5, 0x24, 0x80].map(level), [0.0, 0.0, 0.5, 0.5, 1.0, 1.0]);
        assert_eq!([names(0x44), names(0)], ["too hot (hardware), power limit", "none"]);
    }
}
