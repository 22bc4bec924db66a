//! Back-off between connection attempts, with jitter.

/// The wait before the next attempt.
#[derive(Debug, Default)]
pub struct Backoff {
    failures: u32,
}

impl Backoff {
    /// The first wait after a connection that worked is spread over this time, in ms: many pages may have lost theirs at
    /// the same moment.
    const SPREAD_MS: u32 = 2_000;
    const FIRST_MS: u32 = 500;
    const MAX_MS: u32 = 5_000;

    /// Resets after a successful connection.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    /// Returns the next wait in ms. `random` from 0 to 1 spreads the first one over all of [`Self::SPREAD_MS`], and a
    /// later one from half of the maximum to all of it.
    pub fn next_ms(&mut self, random: f64) -> u32 {
        let (shortest_ms, longest_ms) = match self.failures {
            0 => (0, Self::SPREAD_MS),
            failures => {
                let longest_ms = Self::FIRST_MS.saturating_mul(1 << failures.min(8)).min(Self::MAX_MS);
                (longest_ms / 2, longest_ms)
            }
        };
        self.failures = self.failures.saturating_add(1);
        shortest_ms + (f64::from(longest_ms - shortest_ms) * random.clamp(0.0, 1.0)) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_five_seconds_and_reset_after_success() {
        let mut backoff = Backoff::default();
        let waits: Vec<u32> = (0..7).map(|_| backoff.next_ms(1.0)).collect();
        assert_eq!(waits, [2_000, 1_000, 2_000, 4_000, 5_000, 5_000, 5_000]);
        backoff.reset();
        assert_eq!(backoff.next_ms(0.5), 1_000);
    }

    #[test]
    fn jitter_spreads_a_wait_but_never_removes_a_second_one() {
        let mut backoff = Backoff::default();
        assert_eq!([backoff.next_ms(0.0), backoff.next_ms(0.0), backoff.next_ms(7.0)], [0, 500, 2_000]);
    }

    #[test]
    fn f34_pages_that_were_lost_together_return_spread_over_seconds() {
        // A linear congruential generator, so that the distribution is that of independent pages.
        let mut state = 1_u32;
        let mut random = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            f64::from(state) / f64::from(u32::MAX)
        };
        let mut pages: Vec<(Backoff, u32)> = (0..1_000).map(|_| (Backoff::default(), 0)).collect();
        for attempt in 0..6 {
            let mut at_ms: Vec<u32> = pages
                .iter_mut()
                .map(|(backoff, at_ms)| {
                    *at_ms += backoff.next_ms(random());
                    *at_ms
                })
                .collect();
            at_ms.sort_unstable();
            // Most attempts within a tenth of a second.
            let most = at_ms.iter().map(|from| {
                at_ms.partition_point(|at| *at < from + 100) - at_ms.partition_point(|at| at < from)
            });
            let most = most.max().unwrap();
            assert!(most <= 90, "{most} of 1,000 pages return together at attempt {attempt}");
        }
    }
}
