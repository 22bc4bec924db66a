//! Conversion of counters to rates: the increment since the last reading, divided by the elapsed time.

use nodeglass_protocol::Reading;

/// Shortest time between two readings, in ns; below it a rate would be noise.
pub const MIN_ELAPSED_NS: u64 = 1_000_000;
/// Lowest count that no counter reaches: drivers write ones for unknown, or a negative number.
const IMPOSSIBLE: u64 = 1 << 63;
/// Modulus of a 32-bit counter.
const WRAP: u64 = 1 << 32;

/// Width of a counter, which decides whether a decrease is an overflow or a reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Width {
    /// Never seen above 32 bits: a decrease is an overflow.
    #[default]
    Unknown,
    /// 64 bits: a decrease is a reset.
    Wide,
}

/// Rate of one counter that is read repeatedly.
#[derive(Clone, Debug, Default)]
pub struct CounterRate {
    /// The last count and its time in ns.
    last: Option<(u64, u64)>,
    width: Width,
}

impl CounterRate {
    /// A counter that is known to have 64 bits, as the kernel's are.
    pub const fn wide() -> Self {
        Self { last: None, width: Width::Wide }
    }

    /// Returns the rate per second since the last reading; not yet known at the first one.
    ///
    /// A counter that decreased overflowed if it has 32 bits. If it has more, it was reset, and this
    /// reading yields no rate. Use [`CounterRate::rate_below`] for a 32-bit counter that may overflow
    /// more than once between two readings.
    pub fn rate(&mut self, count: Reading<u64>, mono_ns: u64) -> Reading<u64> {
        let count = possible(count);
        let Reading::Value(count) = count else {
            self.last = None;
            return count;
        };
        if count >= WRAP {
            self.width = Width::Wide;
        }
        let Some((previous, previous_ns)) = self.last else {
            self.last = Some((count, mono_ns));
            return Reading::NotYet;
        };
        let elapsed_ns = mono_ns.saturating_sub(previous_ns);
        if elapsed_ns < MIN_ELAPSED_NS {
            return Reading::NotYet;
        }
        self.last = Some((count, mono_ns));
        match self.increment(previous, count) {
            Some(increment) => {
                let rate = u128::from(increment) * 1_000_000_000 / u128::from(elapsed_ns);
                Reading::Value(u64::try_from(rate).unwrap_or(u64::MAX))
            }
            None => Reading::NotYet,
        }
    }

    /// As [`CounterRate::rate`], of a counter that grows by at most `max_rate` per second; `None` if it
    /// may have overflowed and passed its last count again.
    pub fn rate_below(&mut self, count: Reading<u64>, mono_ns: u64, max_rate: u64) -> Option<Reading<u64>> {
        let previous_ns = self.last.map(|(_, previous_ns)| previous_ns);
        let rate = self.rate(count, mono_ns);
        let elapsed_ns = previous_ns.map_or(0, |previous_ns| mono_ns.saturating_sub(previous_ns));
        let max_increment = u128::from(max_rate) * u128::from(elapsed_ns) / 1_000_000_000;
        let is_ambiguous = self.width == Width::Unknown && max_increment >= u128::from(WRAP);
        if is_ambiguous && matches!(rate, Reading::Value(_)) { None } else { Some(rate) }
    }

    fn increment(&self, previous: u64, count: u64) -> Option<u64> {
        let wrapped = || (self.width == Width::Unknown).then(|| count + WRAP - previous);
        count.checked_sub(previous).or_else(wrapped)
    }
}

/// Returns the count, which fails if no counter reaches it.
pub fn possible(count: Reading<u64>) -> Reading<u64> {
    match count {
        Reading::Value(count @ IMPOSSIBLE..) => Reading::Failed(format!("the counter reads {count}").into()),
        count => count,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn the_first_reading_yields_no_rate() {
        let mut counter = CounterRate::default();
        assert_eq!(counter.rate(Reading::Value(5), 0), Reading::NotYet);
        assert_eq!(counter.rate(Reading::Value(505), 2 * SECOND), Reading::Value(250));
        assert_eq!(counter.rate(Reading::Value(505), 3 * SECOND), Reading::Value(0));
    }

    #[test]
    fn a_counter_that_is_wide_at_its_first_reading_was_reset() {
        let mut counter = CounterRate::default();
        assert_eq!(counter.rate(Reading::Value(WRAP + 7), 0), Reading::NotYet);
        assert_eq!(counter.rate(Reading::Value(3), SECOND), Reading::NotYet);
        assert_eq!(counter.rate(Reading::Value(13), 2 * SECOND), Reading::Value(10));
    }

    #[test]
    fn a_32_bit_counter_may_overflow_and_a_wider_one_was_reset() {
        let mut counter = CounterRate::default();
        counter.rate(Reading::Value(WRAP - 100), 0);
        assert_eq!(counter.rate(Reading::Value(900), SECOND), Reading::Value(1_000));
        counter.rate(Reading::Value(WRAP + 7), 2 * SECOND);
        assert_eq!(counter.rate(Reading::Value(900), 3 * SECOND), Reading::NotYet);
        assert_eq!(counter.rate(Reading::Value(901), 4 * SECOND), Reading::Value(1));
    }

    #[test]
    fn a_decrease_of_a_64_bit_counter_is_a_reset_from_the_start() {
        let mut counter = CounterRate::wide();
        counter.rate(Reading::Value(900), 0);
        assert_eq!(counter.rate(Reading::Value(7), SECOND), Reading::NotYet);
        assert_eq!(counter.rate(Reading::Value(17), 2 * SECOND), Reading::Value(10));
    }

    #[test]
    fn a_counter_that_may_have_overflowed_twice_yields_no_rate() {
        // 25 GB/s for a second is 5.8 rounds of a 32-bit counter, of which it shows the last 0.8.
        let (max_rate, wrapped) = (31_520_000_000, 25_000_000_000 % WRAP);
        let mut counter = CounterRate::default();
        assert_eq!(counter.rate_below(Reading::Value(0), 0, max_rate), Some(Reading::NotYet));
        assert_eq!(counter.rate_below(Reading::Value(wrapped), SECOND, max_rate), None);
        // Within a tenth of a second it cannot overflow more than once, nor on a slow link.
        let soon = counter.rate_below(Reading::Value(wrapped + 100), SECOND + SECOND / 10, max_rate);
        assert_eq!(soon, Some(Reading::Value(1_000)));
        let mut slow = CounterRate::default();
        slow.rate_below(Reading::Value(WRAP - 1), 0, 250_000_000);
        assert_eq!(slow.rate_below(Reading::Value(9), SECOND, 250_000_000), Some(Reading::Value(10)));
    }

    #[test]
    fn a_counter_wider_than_32_bits_is_never_ambiguous() {
        let mut counter = CounterRate::default();
        counter.rate_below(Reading::Value(WRAP), 0, u64::MAX);
        let rate = counter.rate_below(Reading::Value(26 * WRAP), SECOND, u64::MAX);
        assert_eq!(rate, Some(Reading::Value(25 * WRAP)));
        assert_eq!(counter.rate_below(Reading::Unsupported, 2 * SECOND, 1), Some(Reading::Unsupported));
    }

    #[test]
    fn a_failed_reading_is_passed_on_and_restarts_the_measurement() {
        let mut counter = CounterRate::default();
        counter.rate(Reading::Value(1), 0);
        assert_eq!(counter.rate(Reading::Unsupported, SECOND), Reading::Unsupported);
        assert_eq!(counter.rate(Reading::Value(100), 2 * SECOND), Reading::NotYet);
    }

    #[test]
    fn a_count_that_means_unknown_is_no_constant_counter() {
        let mut counter = CounterRate::default();
        for second in 0..3 {
            let rate = counter.rate(Reading::Value(u64::MAX), second * SECOND);
            assert_eq!(rate, Reading::Failed("the counter reads 18446744073709551615".into()));
        }
        assert_eq!(counter.rate(Reading::Value(1), 4 * SECOND), Reading::NotYet);
    }

    #[test]
    fn two_readings_at_the_same_time_count_as_one() {
        let mut counter = CounterRate::default();
        counter.rate(Reading::Value(0), 0);
        assert_eq!(counter.rate(Reading::Value(10), 10), Reading::NotYet);
        assert_eq!(counter.rate(Reading::Value(10), SECOND), Reading::Value(10));
    }

    proptest! {
        #[test]
        fn arbitrary_counts_never_panic(counts in prop::collection::vec((any::<u64>(), any::<u64>()), 0..20), wide: bool) {
            let mut counter = if wide { CounterRate::wide() } else { CounterRate::default() };
            for (count, mono_ns) in counts {
                counter.rate(Reading::Value(count), mono_ns);
            }
        }
    }
}
