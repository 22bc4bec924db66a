//! Counters that grow by themselves: energy, traffic, and how long a clock was held down.

use crate::state::Gpu;
use std::time::{Duration, Instant};

/// A counter that grows at a rate; it goes on from where it is when the rate changes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Meter {
    counted: f64,
    per_second: f64,
    since: Option<Instant>,
}

impl Meter {
    /// What it shows at a moment that is not before the last change of its rate.
    pub fn at(&self, now: Instant) -> f64 {
        let elapsed = self.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        self.counted + self.per_second * elapsed.as_secs_f64()
    }

    /// Changes the rate. A meter that never ran has run at it for the `age` of the state file.
    fn run(&mut self, per_second: f64, now: Instant, age: Duration) {
        self.counted = match self.since {
            Some(_) => self.at(now),
            None => per_second * age.as_secs_f64(),
        };
        (self.per_second, self.since) = (per_second, Some(now));
    }
}

/// The counters of one GPU.
#[derive(Clone, Debug, Default)]
pub struct Meters {
    /// mJ.
    pub energy: Meter,
    /// Bytes over PCIe: sent, received.
    pub pcie: [Meter; 2],
    /// KiB over each active NVLink: sent, received.
    pub nvlink: [Meter; 2],
    /// ns for which clocks were held down: [`HELD`].
    pub held: [Meter; 5],
}

/// Bits of the throttle reasons that are counted: power cap, sync boost, thermal by software, thermal by
/// hardware, power brake.
pub const HELD: [u64; 5] = [1 << 2, 1 << 4, 1 << 5, 1 << 6, 1 << 7];

impl Meters {
    /// Runs every counter at the rate that follows from a GPU's readings.
    pub fn follow(&mut self, gpu: &Gpu, now: Instant, age: Duration) {
        let run = |meter: &mut Meter, per_second: f64| meter.run(per_second, now, age);
        run(&mut self.energy, gpu.power_mw.unwrap_or(0).into());
        let pcie = [gpu.pcie.tx_kib_s, gpu.pcie.rx_kib_s];
        for (meter, kib_s) in self.pcie.iter_mut().zip(pcie) {
            run(meter, kib_s.unwrap_or(0) as f64 * 1_024.0);
        }
        let links = gpu.nvlink.as_ref().map_or([0.0, 0.0], |nvlink| {
            let share = |kib_s: u64| kib_s as f64 / f64::from(nvlink.active().max(1));
            [share(nvlink.tx_kib_s), share(nvlink.rx_kib_s)]
        });
        for (meter, kib_s) in self.nvlink.iter_mut().zip(links) {
            run(meter, kib_s);
        }
        for (meter, bit) in self.held.iter_mut().zip(HELD) {
            run(meter, if gpu.throttle.unwrap_or(0) & bit == 0 { 0.0 } else { 1e9 });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_goes_on_when_its_rate_changes_and_never_back() {
        let start = Instant::now();
        let later = |seconds| start + Duration::from_secs(seconds);
        let mut meter = Meter::default();
        meter.run(100.0, start, Duration::from_secs(5));
        assert_eq!(meter.at(start), 500.0);
        assert_eq!(meter.at(later(10)), 1_500.0);
        meter.run(1.0, later(10), Duration::from_secs(15));
        assert_eq!((meter.at(later(10)), meter.at(later(20))), (1_500.0, 1_510.0));
    }

    #[test]
    fn energy_is_power_by_time_and_only_what_holds_a_clock_down_is_counted() {
        let now = Instant::now();
        let gpu = Gpu { power_mw: Some(300_000), throttle: Some(1 | 1 << 2), ..Gpu::default() };
        let mut meters = Meters::default();
        meters.follow(&gpu, now, Duration::ZERO);
        let later = now + Duration::from_secs(2);
        assert_eq!(meters.energy.at(later), 600_000.0);
        assert_eq!(meters.held.map(|meter| meter.at(later)), [2e9, 0.0, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn links_share_the_traffic_of_a_gpu() {
        let now = Instant::now();
        let mut gpu = Gpu::default();
        let nvlink = gpu.nvlink.as_mut().unwrap();
        (nvlink.tx_kib_s, nvlink.down) = (1_000, vec![0, 5]);
        let mut meters = Meters::default();
        meters.follow(&gpu, now, Duration::ZERO);
        assert_eq!(meters.nvlink[0].at(now + Duration::from_secs(1)), 100.0);
    }
}
