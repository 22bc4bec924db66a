//! What a card says of itself is told apart: an alarm, a remark, or the ordinary course of a healthy job.

use nodeglass_protocol::{GpuField, Row};

/// NVML's clock-event reasons that the page speaks of (`nvmlClocksEventReason…`).
mod reason {
    /// The software power cap: what holds the clocks of every card that works at its limit.
    pub const SW_POWER_CAP: u64 = 0x4;
    /// Hardware slowdown, for whichever of the two reasons below or an unnamed one.
    pub const HW_SLOWDOWN: u64 = 0x8;
    /// The driver lowers the clocks because of heat.
    pub const SW_THERMAL: u64 = 0x20;
    /// The card lowers its clocks because of heat.
    pub const HW_THERMAL: u64 = 0x40;
    /// The power supply or the rack asked the card to slow down.
    pub const HW_POWER_BRAKE: u64 = 0x80;
}

/// How loud a flag is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tone {
    /// Good to know; part of healthy work.
    Quiet,
    /// Worth a look.
    Warn,
    /// Someone should act.
    Alarm,
}

/// One mark at the end of a GPU's row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flag {
    /// The mark: `!THERM`, `ECC:2`.
    pub text: String,
    /// What it means, one sentence.
    pub why: &'static str,
    /// How loud it is.
    pub tone: Tone,
}

impl Flag {
    fn new(text: impl Into<String>, tone: Tone, why: &'static str) -> Self {
        Self { text: text.into(), why, tone }
    }
}

/// The flags of a GPU, loudest first.
pub fn of(row: &Row<GpuField>) -> Vec<Flag> {
    let reasons = row.value(GpuField::Throttle).unwrap_or(0);
    let errors = |field| row.value(field).filter(|count| *count > 0);
    let mut flags = slowdowns(reasons);
    flags.extend(errors(GpuField::EccUncorrected).map(|count| {
        let why = "Uncorrected memory errors since the driver was loaded; results may be wrong.";
        Flag::new(format!("ECC:{count}"), Tone::Alarm, why)
    }));
    if reasons & reason::SW_POWER_CAP != 0 {
        flags.push(Flag::new("PWR cap", Tone::Quiet, "Works at its power limit, as busy cards do."));
    }
    flags.extend(errors(GpuField::EccCorrected).map(|count| {
        let why = "Memory errors that were corrected since the driver was loaded.";
        Flag::new(format!("ECC {count} corr"), Tone::Quiet, why)
    }));
    flags
}

/// The alarms among the reasons for lower clocks.
fn slowdowns(reasons: u64) -> Vec<Flag> {
    let has = |bits: u64| reasons & bits != 0;
    let mut flags = Vec::new();
    if has(reason::SW_THERMAL | reason::HW_THERMAL) {
        flags.push(Flag::new("!THERM", Tone::Alarm, "Clocks are lowered because the card is too hot."));
    }
    if has(reason::HW_POWER_BRAKE) {
        let why = "The power supply asked the card to slow down (power brake).";
        flags.push(Flag::new("!PWR", Tone::Alarm, why));
    }
    let named = reason::SW_THERMAL | reason::HW_THERMAL | reason::HW_POWER_BRAKE;
    if has(reason::HW_SLOWDOWN) && !has(named) {
        flags.push(Flag::new("!SLOW", Tone::Alarm, "The hardware lowers the clocks and does not say why."));
    }
    flags
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::Cell;

    fn texts(throttle: u32) -> Vec<String> {
        let mut row = Row::default();
        row.set(GpuField::Throttle, Cell::steps(throttle));
        of(&row).into_iter().map(|flag| flag.text).collect()
    }

    #[test]
    fn idle_and_application_clocks_are_nothing_to_speak_of() {
        for reasons in [0x0, 0x1, 0x2, 0x10, 0x100] {
            assert!(texts(reasons).is_empty(), "{reasons:#x}");
        }
    }

    #[test]
    fn the_power_cap_of_a_healthy_training_is_never_an_alarm() {
        let mut row = Row::default();
        row.set(GpuField::Throttle, Cell::steps(0x4));
        let flags = of(&row);
        assert_eq!((flags.len(), flags[0].text.as_str(), flags[0].tone), (1, "PWR cap", Tone::Quiet));
    }

    #[test]
    fn heat_is_an_alarm_whoever_notices_it() {
        assert_eq!(texts(0x20), ["!THERM"]);
        assert_eq!(texts(0x40 | 0x8), ["!THERM"]);
    }

    #[test]
    fn a_power_brake_is_an_alarm_and_comes_before_the_cap() {
        assert_eq!(texts(0x80 | 0x8 | 0x4), ["!PWR", "PWR cap"]);
    }

    #[test]
    fn a_slowdown_without_a_reason_is_still_told() {
        assert_eq!(texts(0x8), ["!SLOW"]);
    }

    #[test]
    fn memory_errors_are_counted_and_none_is_not_shown() {
        let mut row = Row::default();
        row.set(GpuField::EccUncorrected, Cell::steps(0));
        row.set(GpuField::EccCorrected, Cell::steps(1));
        assert_eq!(of(&row)[0].text, "ECC 1 corr");
        row.set(GpuField::EccUncorrected, Cell::steps(3));
        assert_eq!((of(&row)[0].text.as_str(), of(&row)[0].tone), ("ECC:3", Tone::Alarm));
    }

    #[test]
    fn a_reading_that_is_not_there_raises_no_flag() {
        let mut row = Row::default();
        row.set(GpuField::Throttle, Cell::UNSUPPORTED);
        row.set(GpuField::EccUncorrected, Cell::FAILED);
        assert!(of(&row).is_empty());
    }
}
