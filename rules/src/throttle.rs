//! Throttle reasons: why a GPU's clocks are lowered, for which share of the time, and since when.

use crate::severity::Severity;
use nodeglass_protocol::Cell;
use nodeglass_protocol::trace::Trace;

/// One of NVML's clock-event reasons (`nvmlClocksEventReason…`).
#[derive(Debug, PartialEq, Eq)]
pub struct Reason {
    /// Its bit in [`nodeglass_protocol::GpuField::Throttle`].
    pub bit: u32,
    /// Its name.
    pub name: &'static str,
    /// Meaning, one sentence.
    pub why: &'static str,
    /// Whether it is part of healthy work, and never a warning.
    pub is_normal: bool,
}

impl Reason {
    /// Returns its severity: a warning unless it is part of healthy work.
    pub fn severity(&self) -> Severity {
        if self.is_normal { Severity::Ok } else { Severity::Warning }
    }
}

/// NVML's clock-event reasons that are more than remarks (`nvmlClocksEventReason…`).
pub mod reason {
    /// The software power cap: normal for every GPU that runs at its limit.
    pub const SW_POWER_CAP: u32 = 0x4;
    /// Hardware slowdown, for either of the two hardware reasons below or an unnamed one.
    pub const HW_SLOWDOWN: u32 = 0x8;
    /// The driver lowers the clocks because of heat.
    pub const SW_THERMAL: u32 = 0x20;
    /// The GPU lowers its clocks because of heat.
    pub const HW_THERMAL: u32 = 0x40;
    /// The power supply or the rack requests lower clocks.
    pub const HW_POWER_BRAKE: u32 = 0x80;
}

/// Every reason, the worst first. Stored records of jobs have the time of each in this order.
pub const REASONS: [Reason; 9] = [
    Reason {
        bit: reason::HW_THERMAL,
        name: "too hot (hardware)",
        why: "The GPU itself lowers its clocks because it is too hot.",
        is_normal: false,
    },
    Reason {
        bit: reason::SW_THERMAL,
        name: "too hot (driver)",
        why: "The driver lowers the clocks because the GPU is too hot.",
        is_normal: false,
    },
    Reason {
        bit: reason::HW_POWER_BRAKE,
        name: "power brake",
        why: "The power supply or the rack asked the GPU to slow down (power brake).",
        is_normal: false,
    },
    Reason {
        bit: reason::HW_SLOWDOWN,
        name: "hardware slowdown",
        why: "The hardware lowers the clocks, for heat, for power, or without a reason of its own.",
        is_normal: false,
    },
    Reason {
        bit: reason::SW_POWER_CAP,
        name: "power limit",
        why: "The GPU works at its power limit, as busy GPUs do.",
        is_normal: true,
    },
    Reason {
        bit: 0x10,
        name: "sync boost",
        why: "It keeps in step with the GPUs that it is grouped with.",
        is_normal: true,
    },
    Reason { bit: 0x2, name: "fixed clocks", why: "Its clocks were set to a fixed value.", is_normal: true },
    Reason { bit: 0x100, name: "display clocks", why: "A display asks for these clocks.", is_normal: true },
    Reason { bit: 0x1, name: "idle", why: "Nothing runs, so the clocks rest.", is_normal: true },
];

/// Returns the meaning of the reason with this bit; empty for an unknown one.
pub fn meaning(bit: u32) -> &'static str {
    REASONS.iter().find(|reason| reason.bit == bit).map_or("", |reason| reason.why)
}

/// The occurrences of one reason within a time range.
#[derive(Clone, Debug, PartialEq)]
pub struct ThrottleSummary {
    /// The reason.
    pub reason: &'static Reason,
    /// Fraction of the known time in which it applied, 0 to 1.
    pub share: f32,
    /// Since when it applies, in ms of the relay's clock; `None` if it does not apply now.
    pub since_ms: Option<u64>,
    /// Whether the time before is unknown, so that it may have applied for longer.
    pub or_longer: bool,
    /// When it applied: start and end of each run, in ms.
    pub runs: Vec<(u64, u64)>,
}

/// Returns the reasons that applied between two moments, the worst first; unknown time is not counted.
pub fn summarize(trace: &Trace, from_ms: u64, to_ms: u64) -> Vec<ThrottleSummary> {
    let slots: Vec<(u64, u32)> = trace
        .since(from_ms)
        .take_while(|(at_ms, _)| *at_ms < to_ms)
        .filter_map(|(at_ms, cell)| Some((at_ms, cell.and_then(Cell::value)?)))
        .collect();
    let summary = |reason: &'static Reason| {
        let summary = summarize_reason(reason, &slots, Trace::STEP_MS)?;
        let last_ms = slots.last()?.0 + Trace::STEP_MS;
        let last_run = summary.runs.last().copied()?;
        let since_ms = (last_run.1 == last_ms).then(|| run_start(reason.bit, trace, last_run.0));
        Some(ThrottleSummary {
            since_ms: since_ms.map(|(since_ms, _)| since_ms),
            or_longer: since_ms.is_some_and(|(_, or_longer)| or_longer),
            ..summary
        })
    };
    REASONS.iter().filter_map(summary).collect()
}

/// Returns the reasons that applied in slots of the long-term history, the worst first: start of each slot in
/// ms, and all bits that were set in it.
pub fn summarize_long(slots: &[(u64, u32)], slot_ms: u64) -> Vec<ThrottleSummary> {
    REASONS.iter().filter_map(|reason| summarize_reason(reason, slots, slot_ms)).collect()
}

fn summarize_reason(reason: &'static Reason, slots: &[(u64, u32)], slot_ms: u64) -> Option<ThrottleSummary> {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    let mut count = 0usize;
    for (at_ms, _) in slots.iter().filter(|(_, bits)| bits & reason.bit != 0) {
        count += 1;
        match runs.last_mut() {
            Some(run) if run.1 == *at_ms => run.1 += slot_ms,
            _ => runs.push((*at_ms, at_ms + slot_ms)),
        }
    }
    let share = count as f32 / slots.len() as f32;
    (count > 0).then_some(ThrottleSummary { reason, share, since_ms: None, or_longer: false, runs })
}

/// Returns since when any of these reasons applies, in ms, and whether the time before is unknown; `None` if none
/// applies in the newest slot.
pub fn start(trace: &Trace, bits: u32) -> Option<(u64, bool)> {
    let (at_ms, cell) = trace.points().last()?;
    cell.and_then(Cell::value).filter(|reasons| reasons & bits != 0)?;
    Some(run_start(bits, trace, at_ms))
}

/// Returns when the run of any of these reasons at `at_ms` began, and whether the time before is unknown.
fn run_start(bits: u32, trace: &Trace, at_ms: u64) -> (u64, bool) {
    let (mut since_ms, mut or_longer) = (None, true);
    for (slot_ms, cell) in trace.points().take_while(|(slot_ms, _)| *slot_ms <= at_ms) {
        match cell.and_then(Cell::value) {
            Some(reasons) if reasons & bits != 0 => since_ms = since_ms.or(Some(slot_ms)),
            known => (since_ms, or_longer) = (None, known.is_none()),
        }
    }
    (since_ms.unwrap_or(at_ms), or_longer)
}

/// Maps a reading of reasons to a level: 0 (none, or idle), 0.5 (normal), 1 (a warning).
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

/// Returns the names of a reading's reasons, the worst first; `none` if the clocks are not lowered.
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
    fn a_share_is_of_the_known_time() {
        let trace = trace(&[(10, 0x4), (11, 0x4), (14, 0x0), (15, 0x0)]);
        let summarize = summarize(&trace, 10_000, 16_000);
        assert_eq!((summarize.len(), summarize[0].reason.name, summarize[0].share), (1, "power limit", 0.5));
        assert_eq!((summarize[0].since_ms, summarize[0].runs.as_slice()), (None, &[(10_000, 12_000)][..]));
    }

    #[test]
    fn a_current_reason_has_a_start_even_before_the_window() {
        let trace = trace(&[(10, 0x0), (11, 0x40), (12, 0x40), (13, 0x44), (14, 0x40)]);
        let summarize = summarize(&trace, 13_000, 15_000);
        assert_eq!(
            (summarize[0].reason.bit, summarize[0].since_ms, summarize[0].or_longer),
            (0x40, Some(11_000), false)
        );
        assert_eq!((summarize[1].reason.bit, summarize[1].since_ms), (0x4, None));
    }

    #[test]
    fn the_start_spans_a_change_of_reason_and_needs_one_that_applies_now() {
        let hot = trace(&[(10, 0x0), (11, 0x20), (12, 0x60), (13, 0x40)]);
        assert_eq!(start(&hot, 0x60), Some((11_000, false)));
        assert_eq!(start(&hot, 0x20), None);
        assert_eq!(start(&trace(&[(10, 0x40)]), 0x60), Some((10_000, true)));
        assert_eq!(start(&Trace::default(), 0x60), None);
    }

    #[test]
    fn a_reason_that_always_applied_may_be_older() {
        let summarize = summarize(&trace(&[(10, 0x1), (11, 0x1)]), 0, 60_000);
        assert_eq!(
            (summarize[0].since_ms, summarize[0].or_longer, summarize[0].share),
            (Some(10_000), true, 1.0)
        );
    }

    #[test]
    fn a_gap_ends_a_run_and_is_not_counted() {
        let summarize = summarize(&trace(&[(10, 0x20), (13, 0x20)]), 0, 60_000);
        assert_eq!(
            (summarize[0].runs.len(), summarize[0].share, summarize[0].since_ms),
            (2, 1.0, Some(13_000))
        );
        assert!(summarize[0].or_longer, "the time before is unknown");
    }

    #[test]
    fn without_data_no_reason_applies() {
        assert_eq!(summarize(&Trace::default(), 0, 60_000), []);
        let mut trace = Trace::default();
        trace.push(10_000, Cell::UNSUPPORTED, 0);
        assert_eq!(summarize(&trace, 0, 60_000), []);
    }

    #[test]
    fn idle_and_the_power_cap_are_never_warnings() {
        assert_eq!([0x0, 0x1, 0x4, 0x5, 0x24, 0x80].map(level), [0.0, 0.0, 0.5, 0.5, 1.0, 1.0]);
        assert_eq!([names(0x44), names(0)], ["too hot (hardware), power limit", "none"]);
    }
}
