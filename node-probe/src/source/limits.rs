//! The limits that a device states for itself, beyond which its readings are implausible.
//!
//! Absolute bounds alone would let a card with a limit of 450 W draw 3,700 W.

use nodeglass_protocol::Reading;
use nodeglass_protocol::gpu::GpuFacts;
use nodeglass_protocol::probe::GpuSample;

/// Largest plausible share of a limit in %: power exceeds its limit for moments, and clocks theirs when
/// they are raised by hand.
const MAX_SHARE: u64 = 150;
/// Limit of data rates in %: the window of a measurement is not exact.
const MAX_RATE_SHARE: u64 = 125;

/// Limits of one GPU; `None` for a limit that it does not state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    power_mw: Option<u32>,
    sm_clock_mhz: Option<u32>,
    mem_clock_mhz: Option<u32>,
    graphics_clock_mhz: Option<u32>,
    video_clock_mhz: Option<u32>,
    shutdown_c: Option<u32>,
    mem_max_c: Option<u32>,
    /// Data rate of the PCIe link in one direction.
    pub pcie_bytes_s: Option<u64>,
    /// Data rate of all NVLinks in one direction.
    pub nvlink_bytes_s: Option<u64>,
}

impl Limits {
    /// Takes the limits that the facts of a GPU state. A limit of 0 is unknown.
    pub fn of(facts: &GpuFacts) -> Self {
        let stated = |fact: &Reading<u32>| fact.value().copied().filter(|limit| *limit > 0);
        Self {
            power_mw: stated(&facts.power_max_mw).or(stated(&facts.power_default_mw)),
            sm_clock_mhz: stated(&facts.sm_clock_max_mhz),
            mem_clock_mhz: stated(&facts.mem_clock_max_mhz),
            graphics_clock_mhz: stated(&facts.graphics_clock_max_mhz),
            video_clock_mhz: stated(&facts.video_clock_max_mhz),
            shutdown_c: stated(&facts.temp_shutdown_c),
            mem_max_c: stated(&facts.temp_mem_max_c),
            ..Self::default()
        }
    }

    /// Fails the readings of a sample that exceed a limit; `reporter` is what reported them.
    pub fn check(&self, sample: &mut GpuSample, reporter: &str) {
        let wide = |limit: Option<u32>| limit.map(u64::from);
        // Without stated limits, the limit in force is one.
        let power = wide(self.power_mw).or(sample.power_limit_mw.value().copied().filter(|mw| *mw > 0));
        for (reading, limit, unit) in [
            (&mut sample.power_mw, power, "mW"),
            (&mut sample.power_instant_mw, power, "mW"),
            (&mut sample.power_limit_mw, power, "mW"),
            (&mut sample.sm_clock_mhz, wide(self.sm_clock_mhz), "MHz"),
            (&mut sample.mem_clock_mhz, wide(self.mem_clock_mhz), "MHz"),
            (&mut sample.graphics_clock_mhz, wide(self.graphics_clock_mhz), "MHz"),
            (&mut sample.video_clock_mhz, wide(self.video_clock_mhz), "MHz"),
            (&mut sample.temp_c, wide(self.shutdown_c), "°C"),
            (&mut sample.hotspot_temp_c, wide(self.shutdown_c), "°C"),
            (&mut sample.mem_temp_c, wide(self.mem_max_c), "°C"),
        ] {
            check(reading, limit, MAX_SHARE, reporter, unit);
        }
        for (reading, limit) in [
            (&mut sample.pcie_tx_bytes_s, self.pcie_bytes_s),
            (&mut sample.pcie_rx_bytes_s, self.pcie_bytes_s),
            (&mut sample.nvlink_tx_bytes_s, self.nvlink_bytes_s),
            (&mut sample.nvlink_rx_bytes_s, self.nvlink_bytes_s),
        ] {
            check(reading, limit, MAX_RATE_SHARE, reporter, "bytes/s");
        }
    }
}

/// Fails a data rate that exceeds what its link can carry.
pub fn check_rate(rate: &mut Reading<u64>, limit: Option<u64>, reporter: &str, unit: &str) {
    check(rate, limit, MAX_RATE_SHARE, reporter, unit);
}

fn check(reading: &mut Reading<u64>, limit: Option<u64>, max_share: u64, reporter: &str, unit: &str) {
    if let (Reading::Value(value), Some(limit)) = (&*reading, limit)
        && u128::from(*value) * 100 > u128::from(limit) * u128::from(max_share)
    {
        let why = format!("{reporter} reported {value} {unit}, of at most {limit}");
        *reading = Reading::Failed(why.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::GpuUuid;
    use nodeglass_protocol::Reading::{Failed, NotYet, Unsupported, Value};

    fn limits() -> Limits {
        let facts = GpuFacts {
            power_max_mw: Value(450_000),
            power_default_mw: Value(400_000),
            sm_clock_max_mhz: Value(2_520),
            temp_shutdown_c: Value(100),
            temp_mem_max_c: Value(95),
            ..GpuFacts::new(GpuUuid::new("GPU-1"), 0)
        };
        Limits { pcie_bytes_s: Some(32_000), ..Limits::of(&facts) }
    }

    #[test]
    fn readings_far_beyond_a_limit_of_the_card_fail() {
        let mut sample = GpuSample {
            power_mw: Value(3_700_000),
            power_limit_mw: Value(450_000),
            sm_clock_mhz: Value(9_999),
            temp_c: Value(190),
            mem_temp_c: Value(188),
            pcie_tx_bytes_s: Value(90_000),
            ..GpuSample::default()
        };
        limits().check(&mut sample, "NVML");
        assert_eq!(sample.power_mw, Failed("NVML reported 3700000 mW, of at most 450000".into()));
        assert_eq!(sample.power_limit_mw, Value(450_000));
        assert_eq!(sample.sm_clock_mhz, Failed("NVML reported 9999 MHz, of at most 2520".into()));
        assert!(matches!((sample.temp_c, sample.pcie_tx_bytes_s), (Failed(_), Failed(_))));
        assert_eq!(sample.mem_temp_c, Failed("NVML reported 188 °C, of at most 95".into()));
    }

    #[test]
    fn readings_above_a_limit_for_moments_and_without_a_limit_are_values() {
        let mut sample = GpuSample {
            power_mw: Value(520_000),
            power_instant_mw: Value(600_000),
            sm_clock_mhz: Value(2_745),
            mem_clock_mhz: Value(10_501),
            pcie_tx_bytes_s: Value(33_000),
            nvlink_tx_bytes_s: Value(u64::MAX),
            fan_pct: Unsupported,
            util_pct: NotYet,
            ..GpuSample::default()
        };
        let before = sample.clone();
        limits().check(&mut sample, "NVML");
        assert_eq!(sample, before);
    }

    #[test]
    fn the_limit_in_force_replaces_one_that_the_card_does_not_state() {
        let mut sample =
            GpuSample { power_mw: Value(900_000), power_limit_mw: Value(300_000), ..GpuSample::default() };
        Limits::default().check(&mut sample, "NVML");
        assert!(matches!((sample.power_mw, sample.power_limit_mw), (Failed(_), Value(300_000))));
    }
}
