//! SLURM is asked as often as the user allows, and ever more rarely while it does not answer.

use std::time::Duration;

/// When the next poll is due. Pure: it is told what happened and says how long to wait.
#[derive(Clone, Debug)]
pub struct Cadence {
    interval: Duration,
    failures: u32,
}

impl Cadence {
    /// Time between two successful polls unless the user says otherwise: four requests a minute.
    pub const DEFAULT_INTERVAL: Duration = Duration::from_secs(15);
    /// Shortest time between two polls, whoever asks.
    pub const MIN_GAP: Duration = Duration::from_secs(5);
    /// First wait after a failure; each further one is twice as long.
    const FIRST_BACK_OFF: Duration = Duration::from_secs(10);
    /// Longest wait after a failure.
    const LAST_BACK_OFF: Duration = Duration::from_secs(120);

    /// A cadence of one poll per `interval`, never less than [`Cadence::MIN_GAP`].
    pub fn new(interval: Duration) -> Self {
        Self { interval: interval.max(Self::MIN_GAP), failures: 0 }
    }

    /// How long to wait after a poll that brought a list.
    pub fn after_success(&mut self) -> Duration {
        self.failures = 0;
        self.interval
    }

    /// How long to wait after a poll that failed: 10, 20, 40, 80, 120, 120 … s.
    pub fn after_failure(&mut self) -> Duration {
        let wait = Self::FIRST_BACK_OFF * 2u32.pow(self.failures.min(4));
        self.failures = self.failures.saturating_add(1);
        wait.min(Self::LAST_BACK_OFF)
    }

    /// How long to wait when someone has a reason to look sooner (a probe ended, a page opened) and
    /// the last poll ended `since_last` ago. While SLURM does not answer, nobody can hurry it: `None`.
    pub fn nudged(&self, since_last: Duration) -> Option<Duration> {
        (self.failures == 0).then(|| Self::MIN_GAP.saturating_sub(since_last))
    }
}

impl Default for Cadence {
    fn default() -> Self {
        Self::new(Self::DEFAULT_INTERVAL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(duration: Duration) -> u64 {
        duration.as_secs()
    }

    #[test]
    fn failures_back_off_from_ten_seconds_to_two_minutes_and_a_success_forgets_them() {
        let mut cadence = Cadence::default();
        let waits: Vec<u64> = (0..7).map(|_| secs(cadence.after_failure())).collect();
        assert_eq!(waits, [10, 20, 40, 80, 120, 120, 120]);
        assert_eq!(secs(cadence.after_success()), 15);
        assert_eq!(secs(cadence.after_failure()), 10);
    }

    #[test]
    fn a_very_short_interval_is_not_accepted() {
        assert_eq!(secs(Cadence::new(Duration::ZERO).after_success()), 5);
    }

    #[test]
    fn a_nudge_waits_for_the_shortest_gap_and_never_hurries_a_failing_controller() {
        let mut cadence = Cadence::default();
        assert_eq!(cadence.nudged(Duration::from_secs(2)), Some(Duration::from_secs(3)));
        assert_eq!(cadence.nudged(Duration::from_secs(60)), Some(Duration::ZERO));
        cadence.after_failure();
        assert_eq!(cadence.nudged(Duration::from_secs(60)), None);
    }

    #[test]
    fn a_thousand_failures_do_not_overflow() {
        let mut cadence = Cadence::default();
        assert!((0..1000).all(|_| cadence.after_failure() <= Duration::from_secs(120)));
    }
}
