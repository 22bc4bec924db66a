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
    /// Whether it was ever seen above 32 bits, so that it does not wrap.
    is_long: bool,
}

impl Meter {
    /// Counted a second since the last look, not yet known at the first one.
    ///
    /// A counter that went back wrapped if it has 32 bits. If it has more, it was reset, and this
    /// look tells nothing. A counter of 32 bits that may wrap more than once between two looks is one
    /// for [`Meter::rate_below`].
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
        self.is_long |= count >= WRAP;
        match since(before, count) {
            Some(counted) => {
                let rate = u128::from(counted) * 1_000_000_000 / u128::from(elapsed_ns);
                Reading::Value(u64::try_from(rate).unwrap_or(u64::MAX))
            }
            None => Reading::NotYet,
        }
    }
}

impl Meter {
    /// The same of a counter that counts at most `most` a second; `None` if it has 32 bits, as far as is
    /// known, and had the time to wrap and come back to where it was.
    pub fn rate_below(&mut self, count: Reading<u64>, mono_ns: u64, most: u64) -> Option<Reading<u64>> {
        let then_ns = self.last.map(|(_, then_ns)| then_ns);
        let rate = self.rate(count, mono_ns);
        let elapsed_ns = then_ns.map_or(0, |then_ns| mono_ns.saturating_sub(then_ns));
        let counted_most = u128::from(most) * u128::from(elapsed_ns) / 1_000_000_000;
        let is_ambiguous = !self.is_long && counted_most >= u128::from(WRAP);
        if is_ambiguous && matches!(rate, Reading::Value(_)) { None } else { Some(rate) }
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
    fn no_rate_is_told_of_a_counter_that_may_have_wrapped_twice() {
        // 25 GB/s for a second is 5.8 rounds of a counter of 32 bits, of which it shows the last 0.8.
        let (most, wrapped) = (31_520_000_000, 25_000_000_000 % WRAP);
        let mut meter = Meter::default();
        assert_eq!(meter.rate_below(Reading::Value(0), 0, most), Some(Reading::NotYet));
        assert_eq!(meter.rate_below(Reading::Value(wrapped), SECOND, most), None);
        // Within a tenth of a second it cannot wrap more than once, and neither on a slow link.
        let soon = meter.rate_below(Reading::Value(wrapped + 100), SECOND + SECOND / 10, most);
        assert_eq!(soon, Some(Reading::Value(1_000)));
        let mut slow = Meter::default();
        slow.rate_below(Reading::Value(WRAP - 1), 0, 250_000_000);
        assert_eq!(slow.rate_below(Reading::Value(9), SECOND, 250_000_000), Some(Reading::Value(10)));
    }

    #[test]
    fn a_counter_of_more_than_32_bits_is_never_ambiguous() {
        let mut meter = Meter::default();
        meter.rate_below(Reading::Value(WRAP), 0, u64::MAX);
        let rate = meter.rate_below(Reading::Value(26 * WRAP), SECOND, u64::MAX);
        assert_eq!(rate, Some(Reading::Value(25 * WRAP)));
        assert_eq!(meter.rate_below(Reading::Unsupported, 2 * SECOND, 1), Some(Reading::Unsupported));
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
