//! Plausibility bounds of readings: a value beyond them is a sentinel or a driver bug.
//!
//! The bounds are far above what any current GPU reaches, and below the values that drivers write
//! for unknown (`0xff`, `u32::MAX`, `u64::MAX`, a negative number read as unsigned).

use crate::source::GpuProcess;
use nodeglass_protocol::field::{Unit, ValueKind};
use nodeglass_protocol::gpu::{Described, FactKind, FactReading, GpuFacts, GpuHealth};
use nodeglass_protocol::probe::GpuSample;
use nodeglass_protocol::{Field as _, GpuField, Reading, Text};

/// Maximum number of GPUs per machine (`nvmlDeviceGetCount`).
pub const MAX_GPUS: u32 = 256;
/// Maximum number of MIG instances per GPU; currently 7.
pub const MAX_INSTANCES: u32 = 64;
/// Maximum number of fans per GPU.
pub const MAX_FANS: u32 = 64;
/// Maximum number of process utilization samples that a driver keeps per GPU.
pub const MAX_SAMPLES: u32 = 1 << 16;
/// Maximum number of entries of one process list.
pub const MAX_LIST_ENTRIES: usize = 1 << 16;
/// Maximum number of retired pages; the infoROM has room for 64.
pub const MAX_PAGES: u32 = 1 << 16;
/// Maximum number of vGPUs of a GPU.
pub const MAX_VGPUS: u32 = 64;

/// Physical quantity, which determines bound and unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// Utilization.
    Percent,
    /// Fan speed; nvml.h allows more than 100 %.
    FanPercent,
    /// Fan speed.
    RevolutionsPerMinute,
    /// Temperature; below 0 °C is implausible for a running GPU.
    Celsius,
    /// Power draw or limit.
    Milliwatts,
    /// Energy since the driver was loaded.
    Millijoules,
    /// Clock frequency.
    Megahertz,
    /// Memory size.
    Bytes,
    /// Data rate of a GPU.
    BytesPerSecond,
    /// Data rate of one NVLink.
    MibPerSecond,
    /// Number of errors, pages, rows or replays.
    Count,
    /// PCIe generation or link width.
    Pcie,
    /// Number of cores, or a device or NUMA node number.
    Number,
    /// `nvmlPstates_t`.
    PState,
}

impl Quantity {
    /// Largest plausible value, and the unit for messages.
    const fn bound(self) -> (u64, &'static str) {
        match self {
            Self::Percent => (100, " %"),
            Self::FanPercent => (200, " %"),
            Self::RevolutionsPerMinute => (50_000, " rpm"),
            Self::Celsius => (200, " °C"),
            // 100 kW.
            Self::Milliwatts => (100_000_000, " mW"),
            // 100 kW for 100 years.
            Self::Millijoules => (320_000_000_000_000_000, " mJ"),
            Self::Megahertz => (50_000, " MHz"),
            // 1 PiB.
            Self::Bytes => (1 << 50, " bytes"),
            // 20 TB/s.
            Self::BytesPerSecond => (20_000_000_000_000, " bytes/s"),
            Self::MibPerSecond => (1_000_000, " MiB/s"),
            Self::Count => (u32::MAX as u64 - 1, ""),
            Self::Pcie => (64, ""),
            Self::Number => (1 << 24, ""),
            Self::PState => (15, ""),
        }
    }
}

/// Returns the reading if it is plausible, otherwise a failure with the value that `reporter` reported.
pub fn checked<T: Copy + Into<u64>>(
    mut reading: Reading<T>,
    quantity: Quantity,
    reporter: &str,
) -> Reading<T> {
    check(&mut reading, quantity, reporter);
    reading
}

fn reported(value: u64, quantity: Quantity, reporter: &str) -> Text {
    let (_, unit) = quantity.bound();
    match u32::try_from(value).map(u32::cast_signed) {
        // A negative temperature stored in an unsigned number.
        Ok(signed) if signed < 0 && quantity == Quantity::Celsius => {
            format!("{reporter} reported {signed}{unit}").into()
        }
        _ if quantity == Quantity::PState => format!("{reporter} reported P-state {value}").into(),
        _ => format!("{reporter} reported {value}{unit}").into(),
    }
}

fn check<T: Copy + Into<u64>>(reading: &mut Reading<T>, quantity: Quantity, reporter: &str) {
    if let Reading::Value(value) = reading
        && (*value).into() > quantity.bound().0
    {
        *reading = Reading::Failed(reported((*value).into(), quantity, reporter).into());
    }
}

/// Checks that a part of memory does not exceed the total. A total of 0 is itself implausible then.
fn check_part(part: &mut Reading<u64>, whole: &mut Reading<u64>, reporter: &str) {
    if let (Reading::Value(used), Reading::Value(total)) = (&*part, &*whole)
        && used > total
    {
        let failed = Reading::Failed(format!("{reporter} reported {used} of {total} bytes").into());
        *(if *total == 0 { whole } else { part }) = failed;
    }
}

/// Checks the readings of a sample, each by its unit in the catalogue; `reporter` is what reported them.
pub fn sample(sample: &mut GpuSample, reporter: &str) {
    for (field, reading) in GpuField::ALL.iter().zip(sample.readings_mut()) {
        if let Some(quantity) = quantity(*field) {
            check(reading, quantity, reporter);
        }
    }
    let total = &mut sample.mem_total_bytes;
    if *total == Reading::Value(0) {
        *total = Reading::Failed(format!("{reporter} reported a memory of 0 bytes").into());
    }
    check_part(&mut sample.mem_used_bytes, total, reporter);
    check_part(&mut sample.mem_reserved_bytes, total, reporter);
}

/// Returns the quantity of a reading; `None` if every value is plausible.
fn quantity(field: GpuField) -> Option<Quantity> {
    let metric = field.metric();
    Some(match metric.unit {
        Unit::Percent if field == GpuField::Fan => Quantity::FanPercent,
        Unit::Percent => Quantity::Percent,
        Unit::Watt => Quantity::Milliwatts,
        Unit::WattHour => Quantity::Millijoules,
        Unit::Celsius => Quantity::Celsius,
        Unit::Byte => Quantity::Bytes,
        Unit::BytePerSecond => Quantity::BytesPerSecond,
        Unit::Megahertz => Quantity::Megahertz,
        Unit::One if field == GpuField::PState => Quantity::PState,
        Unit::One if field == GpuField::FanRpm => Quantity::RevolutionsPerMinute,
        Unit::One if metric.kind == ValueKind::Counter => Quantity::Count,
        Unit::One | Unit::Hundredth | Unit::Second => return None,
    })
}

/// Checks the facts of a GPU.
pub fn facts(facts: &mut GpuFacts, reporter: &str) {
    described(facts, GpuFacts::readings(), reporter);
}

/// Checks numbers by their kind. A limit of 0 is none, and below one that is too low every reading would be implausible.
fn described<T>(of: &mut T, readings: &[Described<T>], reporter: &str) {
    for described in readings {
        let number = match described.reading(of) {
            FactReading::Number(Reading::Value(number)) => u64::from(*number),
            FactReading::Counter(Reading::Value(number)) => *number,
            _ => continue,
        };
        let (quantity, lowest) = match described.kind {
            FactKind::Id | FactKind::Amount => (Quantity::Number, 0),
            FactKind::Count => (Quantity::Count, 0),
            FactKind::Pcie => (Quantity::Pcie, 0),
            FactKind::Bytes => (Quantity::Bytes, 0),
            FactKind::MilliwattMinimum => (Quantity::Milliwatts, 0),
            // 1 W, so that watts are not taken for mW.
            FactKind::MilliwattLimit => (Quantity::Milliwatts, 1_000),
            FactKind::CelsiusLimit => (Quantity::Celsius, 40),
            FactKind::MegahertzLimit => (Quantity::Megahertz, 50),
            FactKind::PcieLimit => (Quantity::Pcie, 1),
            FactKind::Text | FactKind::Mode | FactKind::State => continue,
        };
        if number == 0 && lowest > 0 {
            described.clear(of, Reading::Unsupported);
        } else if number < lowest || number > quantity.bound().0 {
            described.clear(of, Reading::Failed(reported(number, quantity, reporter).into()));
        }
    }
}

/// Checks the health of a GPU.
pub fn health(health: &mut GpuHealth, reporter: &str) {
    use Quantity::{Bytes, Count, MibPerSecond};
    described(health, GpuHealth::readings(), reporter);
    check_part(&mut health.bar1_used_bytes, &mut health.bar1_total_bytes, reporter);
    for vgpu in &mut health.vgpus {
        check(&mut vgpu.mem_used_bytes, Bytes, reporter);
        check(&mut vgpu.mem_total_bytes, Bytes, reporter);
        check_part(&mut vgpu.mem_used_bytes, &mut vgpu.mem_total_bytes, reporter);
    }
    for link in &mut health.nvlinks {
        check(&mut link.rx_mib_s, MibPerSecond, reporter);
        check(&mut link.tx_mib_s, MibPerSecond, reporter);
        check(&mut link.errors, Count, reporter);
    }
}

/// Checks the memory usage of a process against the GPU's `total` bytes, if known.
pub fn gpu_process(gpu_process: &mut GpuProcess, total: Option<u64>, reporter: &str) {
    let bytes = &mut gpu_process.now.gpu_mem_bytes;
    check(bytes, Quantity::Bytes, reporter);
    if let Some(total) = total {
        check_part(bytes, &mut Reading::Value(total), reporter);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::Reading::{Failed, Unsupported, Value};

    #[test]
    fn implausible_numbers_fail_with_a_message() {
        for (value, quantity, why) in [
            (255_u64, Quantity::Percent, "NVML reported 255 %"),
            (4_294_967_256, Quantity::Celsius, "NVML reported -40 °C"),
            (u32::MAX.into(), Quantity::Milliwatts, "NVML reported 4294967295 mW"),
            (u32::MAX.into(), Quantity::Count, "NVML reported 4294967295"),
            (u64::MAX, Quantity::Bytes, "NVML reported 18446744073709551615 bytes"),
            (99, Quantity::PState, "NVML reported P-state 99"),
        ] {
            assert_eq!(checked(Value(value), quantity, "NVML"), Failed(why.into()));
        }
    }

    #[test]
    fn values_of_real_cards_are_plausible() {
        for (value, quantity) in [
            (100_u64, Quantity::Percent),
            (110, Quantity::FanPercent),
            (0, Quantity::Celsius),
            (2_700_000, Quantity::Milliwatts),
            (14_001, Quantity::Megahertz),
            (15, Quantity::PState),
        ] {
            assert_eq!(checked(Value(value), quantity, "NVML"), Value(value));
        }
        assert_eq!(checked(Unsupported::<u64>, Quantity::Percent, "NVML"), Unsupported);
    }

    #[test]
    fn a_limit_of_zero_is_none_and_one_below_all_readings_fails() {
        let mut gpu = GpuFacts {
            sm_clock_max_mhz: Value(0),
            temp_shutdown_c: Value(1),
            temp_slowdown_c: Value(87),
            power_min_mw: Value(0),
            power_max_mw: Value(700),
            pcie_gen_max: Value(0),
            pcie_width_max: Value(1),
            ..GpuFacts::default()
        };
        facts(&mut gpu, "NVML");
        assert_eq!((gpu.sm_clock_max_mhz, gpu.pcie_gen_max), (Unsupported, Unsupported));
        assert_eq!(gpu.temp_shutdown_c, Failed("NVML reported 1 °C".into()));
        assert_eq!(gpu.power_max_mw, Failed("NVML reported 700 mW".into()));
        assert_eq!(
            (gpu.temp_slowdown_c, gpu.power_min_mw, gpu.pcie_width_max),
            (Value(87), Value(0), Value(1))
        );
    }

    #[test]
    fn a_memory_of_no_size_is_implausible_itself() {
        let mut gpu =
            GpuSample { mem_used_bytes: Value(7), mem_total_bytes: Value(0), ..GpuSample::default() };
        sample(&mut gpu, "NVML");
        assert_eq!(gpu.mem_used_bytes, Value(7));
        assert_eq!(gpu.mem_total_bytes, Failed("NVML reported a memory of 0 bytes".into()));
        let (mut used, mut total) = (Value(7), Value(0));
        check_part(&mut used, &mut total, "NVML");
        assert_eq!((used, total), (Value(7), Failed("NVML reported 7 of 0 bytes".into())));
    }

    #[test]
    fn a_part_larger_than_the_total_fails() {
        let (mut used, mut total) = (Value(999), Value(85));
        check_part(&mut used, &mut total, "NVML");
        assert_eq!(used, Failed("NVML reported 999 of 85 bytes".into()));
        let (mut used, mut unknown) = (Value(999), Unsupported);
        check_part(&mut used, &mut unknown, "NVML");
        assert_eq!(used, Value(999));
    }
}
