//! Total traffic of all devices of a class: the sum of the rates of their counters.

use crate::counter_rate::{CounterRate, MIN_ELAPSED_NS};
use nodeglass_protocol::Reading;
use std::collections::HashMap;

/// Rates of pairs of counters by device name: read and written, or received and sent.
#[derive(Clone, Debug, Default)]
pub struct DeviceRates {
    devices: HashMap<String, [CounterRate; 2]>,
    /// Time of the last reading.
    last_ns: Option<u64>,
}

impl DeviceRates {
    /// Returns the sums of all rates per second at a time in ns; not yet known at the first reading. A device that is
    /// new or whose counter was reset contributes from the next reading on.
    pub fn rates(&mut self, now_ns: u64, counters: HashMap<String, [u64; 2]>) -> [Reading<u64>; 2] {
        if self.last_ns.is_some_and(|last_ns| now_ns.saturating_sub(last_ns) < MIN_ELAPSED_NS) {
            return [Reading::NotYet, Reading::NotYet];
        }
        let is_first = self.last_ns.replace(now_ns).is_none();
        let mut previous = std::mem::take(&mut self.devices);
        let mut sums = [0_u64; 2];
        for (name, counts) in counters {
            let new = || [CounterRate::wide(), CounterRate::wide()];
            let mut rates = previous.remove(&name).unwrap_or_else(new);
            for ((rate, count), sum) in rates.iter_mut().zip(counts).zip(&mut sums) {
                let rate = rate.rate(Reading::Value(count), now_ns);
                *sum = sum.saturating_add(rate.value().copied().unwrap_or(0));
            }
            self.devices.insert(name, rates);
        }
        if is_first { [Reading::NotYet, Reading::NotYet] } else { sums.map(Reading::Value) }
    }

    /// Discards all previous counts, because none could be read.
    pub fn reset(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn counters(list: &[(&str, u64, u64)]) -> HashMap<String, [u64; 2]> {
        list.iter().map(|(name, a, b)| ((*name).to_owned(), [*a, *b])).collect()
    }

    #[test]
    fn a_device_that_appears_or_is_reset_adds_no_false_traffic() {
        let mut devices = DeviceRates::default();
        let second = 1_000_000_000;
        assert_eq!(devices.rates(second, counters(&[("a", 100, 100)])), [Reading::NotYet, Reading::NotYet]);
        let rates = devices.rates(3 * second, counters(&[("a", 300, 100), ("b", 5_000, 5_000)]));
        assert_eq!(rates, [Reading::Value(100), Reading::Value(0)]);
        let rates = devices.rates(4 * second, counters(&[("a", 7, 101), ("b", 5_010, 5_000)]));
        assert_eq!(rates, [Reading::Value(10), Reading::Value(1)]);
        devices.reset();
        assert_eq!(devices.rates(5 * second, HashMap::new()), [Reading::NotYet, Reading::NotYet]);
    }

    proptest! {
        #[test]
        fn arbitrary_counters_never_panic(values: [u64; 4], times: [u64; 2]) {
            let mut devices = DeviceRates::default();
            devices.rates(times[0], counters(&[("a", values[0], values[1])]));
            devices.rates(times[1], counters(&[("a", values[2], values[3])]));
        }
    }
}
