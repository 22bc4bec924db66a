//! Flags of a GPU: errors, warnings, and remarks that are normal for a healthy job.

use crate::domain::severity::Severity;
use nodeglass_protocol::{GpuField, Row};

/// The NVML clock-event reasons that raise a flag (`nvmlClocksEventReason…`).
mod reason {
    /// The software power cap: normal for every GPU that runs at its limit.
    pub const SW_POWER_CAP: u64 = 0x4;
    /// Hardware slowdown, for either of the two hardware reasons below or an unnamed one.
    pub const HW_SLOWDOWN: u64 = 0x8;
    /// The driver lowers the clocks because of heat.
    pub const SW_THERMAL: u64 = 0x20;
    /// The GPU lowers its clocks because of heat.
    pub const HW_THERMAL: u64 = 0x40;
    /// The power supply or the rack requests lower clocks.
    pub const HW_POWER_BRAKE: u64 = 0x80;
}

/// One flag in a GPU's row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flag {
    /// The text: `!THERM`, `ECC:2`.
    pub text: String,
    /// What it means, one sentence.
    pub why: &'static str,
    /// How severe it is.
    pub severity: Severity,
}

impl Flag {
    fn new(text: impl Into<String>, severity: Severity, why: &'static str) -> Self {
        Self { text: text.into(), why, severity }
    }
}

/// Returns the flags of a GPU, the most severe first.
pub fn for_gpu(row: &Row<GpuField>) -> Vec<Flag> {
    let reasons = row.value(GpuField::Throttle).unwrap_or(0);
    let errors = |field| row.value(field).filter(|count| *count > 0);
    let mut flags = throttle_alarms(reasons);
    flags.extend(errors(GpuField::EccUncorrected).map(|count| {
        let why = "Uncorrected memory errors since the driver was loaded; results may be wrong.";
        Flag::new(format!("ECC:{count}"), Severity::Error, why)
    }));
    if reasons & reason::SW_POWER_CAP != 0 {
        flags.push(Flag::new("PWR cap", Severity::Ok, "Works at its power limit, as busy cards do."));
    }
    flags.extend(errors(GpuField::EccCorrected).map(|count| {
        let why = "Memory errors that were corrected since the driver was loaded.";
        Flag::new(format!("ECC {count} corr"), Severity::Ok, why)
    }));
    flags
}

/// Returns the throttle reasons that are errors.
fn throttle_alarms(reasons: u64) -> Vec<Flag> {
    let has = |bits: u64| reasons & bits != 0;
    let mut flags = Vec::new();
    if has(reason::SW_THERMAL | reason::HW_THERMAL) {
        flags.push(Flag::new("!THERM", Severity::Error, "Clocks are lowered because the card is too hot."));
    }
    if has(reason::HW_POWER_BRAKE) {
        let why = "The power supply asked the card to slow down (power brake).";
        flags.push(Flag::new("!PWR", Severity::Error, why));
    }
    let named = reason::SW_THERMAL | reason::HW_THERMAL | reason::HW_POWER_BRAKE;
    if has(reason::HW_SLOWDOWN) && !has(named) {
        flags.push(Flag::new(
            "!SLOW",
            Severity::Error,
            "The hardware lowers the clocks and does not say why.",
        ));
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
        for_gpu(&row).into_iter().map(|flag| flag.text).collect()
    }

    #[test]
    fn idle_and_application_clocks_raise_no_flag() {
        for reasons in [0x0, 0x1, 0x2, 0x10, 0x100] {
            assert!(texts(reasons).is_empty(), "{reasons:#x}");
        }
    }

    #[test]
    fn the_power_cap_is_never_a_warning() {
        let mut row = Row::default();
        row.set(GpuField::Throttle, Cell::steps(0x4));
        let flags = for_gpu(&row);
        assert_eq!((flags.len(), flags[0].text.as_str(), flags[0].severity), (1, "PWR cap", Severity::Ok));
    }

    #[test]
    fn heat_is_an_error_whichever_reason_reports_it() {
        assert_eq!(texts(0x20), ["!THERM"]);
        assert_eq!(texts(0x40 | 0x8), ["!THERM"]);
    }

    #[test]
    fn a_power_brake_is_an_error_and_precedes_the_cap() {
        assert_eq!(texts(0x80 | 0x8 | 0x4), ["!PWR", "PWR cap"]);
    }

    #[test]
    fn a_slowdown_without_a_named_reason_is_flagged() {
        assert_eq!(texts(0x8), ["!SLOW"]);
    }

    #[test]
    fn memory_errors_are_counted_and_zero_is_not_shown() {
        let mut row = Row::default();
        row.set(GpuField::EccUncorrected, Cell::steps(0));
        row.set(GpuField::EccCorrected, Cell::steps(1));
        assert_eq!(for_gpu(&row)[0].text, "ECC 1 corr");
        row.set(GpuField::EccUncorrected, Cell::steps(3));
        assert_eq!((for_gpu(&row)[0].text.as_str(), for_gpu(&row)[0].severity), ("ECC:3", Severity::Error));
    }

    #[test]
    fn a_missing_reading_raises_no_flag() {
        let mut row = Row::default();
        row.set(GpuField::Throttle, Cell::UNSUPPORTED);
        row.set(GpuField::EccUncorrected, Cell::FAILED);
        assert!(for_gpu(&row).is_empty());
    }
}
