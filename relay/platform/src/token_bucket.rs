//! The token bucket: limits a rate of bytes, lines, requests or seconds of a core, with a burst.

use std::time::Duration;
use tokio::time::Instant;

/// A token bucket that may be overdrawn: a cost that is known only afterwards is charged in full, and
/// paid off before anything else is admitted.
#[derive(Clone, Debug)]
pub struct TokenBucket {
    left: f64,
    at: Instant,
    burst: f64,
    per_s: f64,
}

impl TokenBucket {
    /// A full bucket of `burst` tokens that refills at `per_s` tokens per second.
    pub fn full(burst: f64, per_s: f64, now: Instant) -> Self {
        Self { left: burst, at: now, burst, per_s }
    }

    /// Removes tokens and returns whether there were as many.
    pub fn take(&mut self, amount: f64, now: Instant) -> bool {
        self.left = self.left(now) - amount;
        self.left >= 0.0
    }

    /// The number of tokens; negative while overdrawn.
    pub fn left(&mut self, now: Instant) -> f64 {
        let more = now.saturating_duration_since(self.at).as_secs_f64() * self.per_s;
        (self.left, self.at) = (self.burst.min(self.left + more), now.max(self.at));
        self.left
    }

    /// The time at which at least `amount` is available.
    pub fn available_at(&mut self, amount: f64, now: Instant) -> Instant {
        let missing = (amount - self.left(now)).max(0.0);
        now + Duration::from_secs_f64(missing / self.per_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_burst_is_admitted_at_once_and_then_the_rate() {
        let now = Instant::now();
        let mut bucket = TokenBucket::full(5.0, 2.0, now);
        assert!((0..5).all(|_| bucket.take(1.0, now)) && !bucket.take(1.0, now));
        assert_eq!(bucket.available_at(1.0, now), now + SECOND, "the refused token is paid off first");
        assert_eq!(bucket.left(now + 3 * SECOND), 5.0, "no more than the burst");
    }

    #[test]
    fn an_overdraft_is_paid_off_before_anything_else() {
        let now = Instant::now();
        let mut bucket = TokenBucket::full(1.0, 0.5, now);
        assert!(!bucket.take(11.0, now));
        assert_eq!(bucket.available_at(0.0, now), now + 20 * SECOND);
        assert!(!bucket.take(0.0, now + 19 * SECOND) && bucket.take(0.0, now + 20 * SECOND));
    }

    #[test]
    fn a_time_in_the_past_refills_nothing() {
        let start = Instant::now();
        let mut bucket = TokenBucket::full(2.0, 1.0, start + SECOND);
        assert!(bucket.take(2.0, start + SECOND) && !bucket.take(1.0, start));
        assert_eq!(bucket.left(start + 2 * SECOND), 0.0);
    }
}
