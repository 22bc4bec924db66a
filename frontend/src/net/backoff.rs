//! Back-off between connection attempts, with jitter.

/// The wait before the next attempt.
#[derive(Debug, Default)]
pub struct Backoff {
    failures: u32,
}

impl Backoff {
    const FIRST_MS: u32 = 250;
    const MAX_MS: u32 = 5_000;

    /// Resets after a successful connection.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    /// Returns the next wait in ms; `random` from 0 to 1 spreads it from half of the maximum to all of it.
    pub fn next_ms(&mut self, random: f64) -> u32 {
        let max_ms = Self::FIRST_MS.saturating_mul(1 << self.failures.min(8)).min(Self::MAX_MS);
        self.failures += 1;
        max_ms / 2 + (f64::from(max_ms / 2) * random.clamp(0.0, 1.0)) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_five_seconds_and_reset_after_success() {
        let mut backoff = Backoff::default();
        let waits: Vec<u32> = (0..7).map(|_| backoff.next_ms(1.0)).collect();
        assert_eq!(waits, [250, 500, 1_000, 2_000, 4_000, 5_000, 5_000]);
        backoff.reset();
        assert_eq!(backoff.next_ms(1.0), 250);
    }

    #[test]
    fn jitter_spreads_a_wait_but_never_removes_it() {
        assert_eq!(Backoff::default().next_ms(0.0), 125);
        assert_eq!(Backoff::default().next_ms(7.0), 250);
    }
}
