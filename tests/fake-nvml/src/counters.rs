//! Runs the counters of a GPU at the rates that follow from its readings.

use crate::state::{COUNTED_REASONS, CounterRate, Counters, Gpu};
use std::time::{Duration, Instant};

/// Sets the rate of every counter from a GPU's readings; `age` is the age of the state file.
pub fn follow_readings(counters: &mut Counters, gpu: &Gpu, now: Instant, age: Duration) {
    let run = |counter: &mut CounterRate, per_second: f64| counter.set_rate(per_second, now, age);
    run(&mut counters.energy, gpu.power_mw.unwrap_or(0).into());
    let pcie = [gpu.pcie.tx_kib_s, gpu.pcie.rx_kib_s];
    for (counter, kib_s) in counters.pcie.iter_mut().zip(pcie) {
        run(counter, kib_s.unwrap_or(0) as f64 * 1_024.0);
    }
    let links = gpu.nvlink.as_ref().map_or([0.0, 0.0], |nvlink| {
        let share = |kib_s: u64| kib_s as f64 / f64::from(nvlink.active().max(1));
        [share(nvlink.tx_kib_s), share(nvlink.rx_kib_s)]
    });
    for (counter, kib_s) in counters.nvlink.iter_mut().zip(links) {
        run(counter, kib_s);
    }
    for (counter, bit) in counters.throttled_ns.iter_mut().zip(COUNTED_REASONS) {
        run(counter, if gpu.throttle.unwrap_or(0) & bit == 0 { 0.0 } else { 1e9 });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn energy_is_power_by_time_and_only_active_throttle_reasons_are_counted() {
        let now = Instant::now();
        let gpu = Gpu { power_mw: Some(300_000), throttle: Some(1 | 1 << 2), ..Gpu::default() };
        let mut counters = Counters::default();
        follow_readings(&mut counters, &gpu, now, Duration::ZERO);
        let later = now + Duration::from_secs(2);
        assert_eq!(counters.energy.at(later), 600_000.0);
        let throttled_ns = counters.throttled_ns.map(|counter| counter.at(later));
        assert_eq!(throttled_ns, [2e9, 0.0, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn links_share_the_traffic_of_a_gpu() {
        let now = Instant::now();
        let mut gpu = Gpu::default();
        let nvlink = gpu.nvlink.as_mut().unwrap();
        (nvlink.tx_kib_s, nvlink.down) = (1_000, vec![0, 5]);
        let mut counters = Counters::default();
        follow_readings(&mut counters, &gpu, now, Duration::ZERO);
        assert_eq!(counters.nvlink[0].at(now + Duration::from_secs(1)), 100.0);
    }
}
