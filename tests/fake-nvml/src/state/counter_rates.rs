//! Counters of one GPU that grow at the rates of the state file.

use std::time::{Duration, Instant};

/// A counter that grows at a rate; it continues from its value when the rate changes.
#[derive(Clone, Copy, Debug, Default)]
pub struct CounterRate {
    counted: f64,
    per_second: f64,
    since: Option<Instant>,
}

impl CounterRate {
    /// Its value at a time that is not before the last change of its rate.
    pub fn at(&self, now: Instant) -> f64 {
        let elapsed = self.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        self.counted + self.per_second * elapsed.as_secs_f64()
    }

    /// Changes the rate. A new counter has grown at it for the `age` of the state file.
    pub fn set_rate(&mut self, per_second: f64, now: Instant, age: Duration) {
        self.counted = match self.since {
            Some(_) => self.at(now),
            None => per_second * age.as_secs_f64(),
        };
        (self.per_second, self.since) = (per_second, Some(now));
    }
}

/// The counters of one GPU.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// mJ.
    pub energy: CounterRate,
    /// Bytes over PCIe: sent, received.
    pub pcie: [CounterRate; 2],
    /// KiB over each active NVLink: sent, received.
    pub nvlink: [CounterRate; 2],
    /// Throttled time in ns, by reason: [`COUNTED_REASONS`].
    pub throttled_ns: [CounterRate; 5],
}

/// Bits of the throttle reasons that are counted: power cap, sync boost, thermal by software, thermal by
/// hardware, power brake.
pub const COUNTED_REASONS: [u64; 5] = [1 << 2, 1 << 4, 1 << 5, 1 << 6, 1 << 7];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_continues_when_its_rate_changes_and_never_goes_back() {
        let start = Instant::now();
        let later = |seconds| start + Duration::from_secs(seconds);
        let mut counter = CounterRate::default();
        counter.set_rate(100.0, start, Duration::from_secs(5));
        assert_eq!(counter.at(start), 500.0);
        assert_eq!(counter.at(later(10)), 1_500.0);
        counter.set_rate(1.0, later(10), Duration::from_secs(15));
        assert_eq!((counter.at(later(10)), counter.at(later(20))), (1_500.0, 1_510.0));
    }
}
