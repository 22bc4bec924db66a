//! Counters become rates: what was counted since the last look, by the time that really passed.

use nodeglass_protocol::Reading;

/// Time between two looks below which a rate would be noise, in ns.
const SHORTEST_NS: u64 = 1_000_000;
/// What a counter of 32 bits wraps at.
const WRAP: u64 = 1 << 32;

/// One counter that is looked at again and again.
#[derive(Clone, Debug, Default)]
pub struct Meter {
    last: Option<(u64, u64)>,
}

impl Meter {
    /// Counted a second since the last look, not yet known at the first one.
    ///
    /// A counter that went back wrapped if it has 32 bits. If it has more, it was reset, and this
    /// look tells nothing. Of a counter of 32 bits nobody can tell whether it wrapped more than
    /// once between two looks, which a counter of bytes does above 4 GiB a look.
    pub fn rate(&mut self, count: Reading<u64>, mono_ns: u64) -> Reading<u64> {
        let Reading::Value(count) = count else {
            self.last = None;
            return count;
        };
        let Some((before, then_ns)) = self.last else {
            self.last = Some((count, mono_ns));
            return Reading::NotYet;
        };
        let elapsed_ns = mono_ns.saturating_sub(then_ns);
        if elapsed_ns < SHORTEST_NS {
            return Reading::NotYet;
        }
        self.last = Some((count, mono_ns));
        match since(before, count) {
            Some(counted) => {
                let rate = u128::from(counted) * 1_000_000_000 / u128::from(elapsed_ns);
                Reading::Value(u64::try_from(rate).unwrap_or(u64::MAX))
            }
            None => Reading::NotYet,
        }
    }
}

fn since(before: u64, now: u64) -> Option<u64> {
    match now.checked_sub(before) {
        Some(counted) => Some(counted),
        None if before < WRAP => Some(now + WRAP - before),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn the_first_look_knows_no_rate() {
        let mut meter = Meter::default();
        assert_eq!(meter.rate(Reading::Value(5), 0), Reading::NotYet);
        assert_eq!(meter.rate(Reading::Value(505), 2 * SECOND), Reading::Value(250));
        assert_eq!(meter.rate(Reading::Value(505), 3 * SECOND), Reading::Value(0));
    }

    #[test]
    fn a_counter_of_32_bits_may_wrap_and_a_longer_one_was_reset() {
        let mut meter = Meter::default();
        meter.rate(Reading::Value(WRAP - 100), 0);
        assert_eq!(meter.rate(Reading::Value(900), SECOND), Reading::Value(1_000));
        meter.rate(Reading::Value(WRAP + 7), 2 * SECOND);
        assert_eq!(meter.rate(Reading::Value(900), 3 * SECOND), Reading::NotYet);
        assert_eq!(meter.rate(Reading::Value(901), 4 * SECOND), Reading::Value(1));
    }

    #[test]
    fn a_failure_is_told_and_the_row_begins_anew() {
        let mut meter = Meter::default();
        meter.rate(Reading::Value(1), 0);
        assert_eq!(meter.rate(Reading::Unsupported, SECOND), Reading::Unsupported);
        assert_eq!(meter.rate(Reading::Value(100), 2 * SECOND), Reading::NotYet);
    }

    #[test]
    fn two_looks_at_once_are_one() {
        let mut meter = Meter::default();
        meter.rate(Reading::Value(0), 0);
        assert_eq!(meter.rate(Reading::Value(10), 10), Reading::NotYet);
        assert_eq!(meter.rate(Reading::Value(10), SECOND), Reading::Value(10));
    }

    proptest! {
        #[test]
        fn no_count_is_too_strange(counts in prop::collection::vec((any::<u64>(), any::<u64>()), 0..20)) {
            let mut meter = Meter::default();
            for (count, mono_ns) in counts {
                meter.rate(Reading::Value(count), mono_ns);
            }
        }
    }
}
