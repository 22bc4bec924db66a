//! Counters become rates: what was added since the last look, by the time that passed.

use nodeglass_protocol::Reading;
use std::collections::HashMap;

/// Pairs of counters by name: in and out of each device.
#[derive(Clone, Debug, Default)]
pub struct Flow {
    last: Option<(u64, HashMap<String, [u64; 2]>)>,
}

impl Flow {
    /// The sum of all rates, in units a second, at a time in ns. Not yet known at the first look; a device that is new
    /// or whose counter was reset counts from now on.
    pub fn rates(&mut self, now_ns: u64, now: HashMap<String, [u64; 2]>) -> [Reading<u64>; 2] {
        let rates = match &self.last {
            Some((last_ns, last)) if now_ns > *last_ns => {
                let added = |side: usize| {
                    let each =
                        now.iter().filter_map(|(name, now)| now[side].checked_sub(last.get(name)?[side]));
                    each.fold(0_u64, u64::saturating_add)
                };
                let past_ns = u128::from(now_ns - last_ns);
                let a_second = |added: u64| u128::from(added) * 1_000_000_000 / past_ns;
                [0, 1].map(|side| Reading::Value(u64::try_from(a_second(added(side))).unwrap_or(u64::MAX)))
            }
            _ => [Reading::NotYet, Reading::NotYet],
        };
        self.last = Some((now_ns, now));
        rates
    }

    /// Forgets what was counted: nothing could be read.
    pub fn forget(&mut self) {
        self.last = None;
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
    fn a_device_that_comes_or_begins_again_adds_nothing_wrong() {
        let mut flow = Flow::default();
        let second = 1_000_000_000;
        assert_eq!(flow.rates(second, counters(&[("a", 100, 100)])), [Reading::NotYet, Reading::NotYet]);
        let rates = flow.rates(3 * second, counters(&[("a", 300, 100), ("b", 5_000, 5_000)]));
        assert_eq!(rates, [Reading::Value(100), Reading::Value(0)]);
        let rates = flow.rates(4 * second, counters(&[("a", 7, 101), ("b", 5_010, 5_000)]));
        assert_eq!(rates, [Reading::Value(10), Reading::Value(1)]);
        flow.forget();
        assert_eq!(flow.rates(5 * second, HashMap::new()), [Reading::NotYet, Reading::NotYet]);
    }

    proptest! {
        #[test]
        fn no_counter_is_too_strange(values: [u64; 4], times: [u64; 2]) {
            let mut flow = Flow::default();
            flow.rates(times[0], counters(&[("a", values[0], values[1])]));
            flow.rates(times[1], counters(&[("a", values[2], values[3])]));
        }
    }
}
