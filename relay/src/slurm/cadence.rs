//! SLURM is asked as often as the user allows, more rarely while nothing changes, and ever more rarely while it does not answer.

use super::Reason;
use std::time::Duration;

/// When the next poll is due. Pure: it is told what happened and says how long to wait.
#[derive(Clone, Debug)]
pub struct Cadence {
    interval: Duration,
    failures: u32,
    /// For how long the list has not changed.
    unchanged: Duration,
    /// Whether a doubt already brought a poll forward since the last one that was due.
    hurried: bool,
}

impl Cadence {
    /// Time between two polls that each bring news, unless the user says otherwise.
    pub const DEFAULT_INTERVAL: Duration = Duration::from_secs(15);
    /// Shortest time between two polls, whoever asks.
    pub const MIN_GAP: Duration = Duration::from_secs(5);
    /// Time that each request to the controller costs once nothing has changed for [`Cadence::SETTLED`]: four a minute.
    const PER_REQUEST: Duration = Duration::from_secs(15);
    /// Longest wait for what a poll cost, so that a change is seen within a minute. Once settled, a poll makes four
    /// requests at most ([`super::details`]).
    const MOST_SPREAD: Duration = Duration::from_secs(60);
    /// A list that has not changed for this long is expected to stay as it is.
    const SETTLED: Duration = Duration::from_secs(120);
    /// First wait after a failure; each further one is twice as long.
    const FIRST_BACK_OFF: Duration = Duration::from_secs(10);
    /// Longest wait after a failure.
    const LAST_BACK_OFF: Duration = Duration::from_secs(120);
    /// SLURM carries an order out a moment after it took it.
    const ORDER_TAKES: Duration = Duration::from_secs(1);
    /// Links of many nodes close together when a job ends; one list serves all.
    const GATHER: Duration = Duration::from_millis(300);

    /// A cadence of one poll per `interval`, never less than [`Cadence::MIN_GAP`].
    pub fn new(interval: Duration) -> Self {
        let interval = interval.max(Self::MIN_GAP);
        Self { interval, failures: 0, unchanged: Duration::ZERO, hurried: false }
    }

    /// How long to wait after a poll that brought a list, with the requests it took and whether it `changed`.
    pub fn after_success(&mut self, requests: u32, changed: bool) -> Duration {
        self.failures = 0;
        if changed {
            self.unchanged = Duration::ZERO;
        }
        let is_settled = self.unchanged >= Self::SETTLED;
        let spread = if is_settled { Self::PER_REQUEST.saturating_mul(requests) } else { Duration::ZERO };
        let wait = self.interval.max(spread.min(Self::MOST_SPREAD));
        self.unchanged = self.unchanged.saturating_add(wait);
        wait
    }

    /// How long to wait after a poll that failed: 10, 20, 40, 80, 120, 120 … s.
    pub fn after_failure(&mut self) -> Duration {
        let wait = Self::FIRST_BACK_OFF * 2u32.pow(self.failures.min(4));
        self.failures = self.failures.saturating_add(1);
        wait.min(Self::LAST_BACK_OFF)
    }

    /// How long to wait when someone has a `reason` to ask sooner and the last poll ended `since_last` ago; `None`: the
    /// poll stays when it is due. While SLURM does not answer, only the owner can hurry it. A doubt hurries
    /// one poll, then no more until another was due: a link that flaps must not become a load on the controller.
    pub fn nudged(&mut self, reason: Reason, since_last: Duration) -> Option<Duration> {
        let gap = Self::MIN_GAP.saturating_sub(since_last);
        match reason {
            Reason::Retry => Some(gap),
            _ if self.failures > 0 => None,
            Reason::Order => Some(gap.max(Self::ORDER_TAKES)),
            Reason::Doubt if self.hurried => None,
            Reason::Doubt => {
                self.hurried = true;
                Some(gap.max(Self::GATHER))
            }
        }
    }

    /// A poll begins because it was due, not because of a nudge.
    pub fn was_due(&mut self) {
        self.hurried = false;
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
        assert_eq!(secs(cadence.after_success(2, false)), 15);
        assert_eq!(secs(cadence.after_failure()), 10);
    }

    #[test]
    fn a_very_short_interval_is_not_accepted() {
        assert_eq!(secs(Cadence::new(Duration::ZERO).after_success(2, true)), 5);
    }

    #[test]
    fn an_unchanged_list_costs_at_most_four_requests_a_minute() {
        for interval in [5, 15] {
            let mut cadence = Cadence::new(Duration::from_secs(interval));
            let mut asked = Duration::ZERO;
            while asked < Cadence::SETTLED {
                assert_eq!(secs(cadence.after_success(2, false)), interval);
                asked += Duration::from_secs(interval);
            }
            // A poll that also asked for details, which takes two requests more, is paid for as well.
            for requests in [2, 2, 4, 2] {
                assert_eq!(secs(cadence.after_success(requests, false)), u64::from(requests) * 15);
            }
            assert_eq!(secs(cadence.after_success(18, false)), 60, "a change is seen within a minute");
            assert_eq!(secs(cadence.after_success(2, true)), interval, "news bring the usual pace back");
        }
        let mut rare = Cadence::new(Duration::from_secs(300));
        assert!((0..9).all(|_| secs(rare.after_success(2, false)) == 300));
    }

    #[test]
    fn a_nudge_waits_for_the_shortest_gap_and_only_the_owner_hurries_a_failing_controller() {
        let mut cadence = Cadence::default();
        assert_eq!(cadence.nudged(Reason::Order, Duration::from_secs(2)), Some(Duration::from_secs(3)));
        assert_eq!(cadence.nudged(Reason::Order, Duration::from_secs(60)), Some(Cadence::ORDER_TAKES));
        cadence.after_failure();
        for reason in [Reason::Order, Reason::Doubt] {
            assert_eq!(cadence.nudged(reason, Duration::from_secs(60)), None);
        }
        assert_eq!(cadence.nudged(Reason::Retry, Duration::from_secs(60)), Some(Duration::ZERO));
        assert_eq!(cadence.nudged(Reason::Retry, Duration::from_secs(1)), Some(Duration::from_secs(4)));
    }

    #[test]
    fn a_link_that_flaps_hurries_one_poll_and_then_none_until_another_was_due() {
        let mut cadence = Cadence::default();
        assert_eq!(cadence.nudged(Reason::Doubt, Duration::from_secs(60)), Some(Cadence::GATHER));
        for _ in 0..20 {
            assert_eq!(cadence.nudged(Reason::Doubt, Duration::from_secs(3)), None);
        }
        cadence.was_due();
        assert_eq!(cadence.nudged(Reason::Doubt, Duration::from_secs(60)), Some(Cadence::GATHER));
    }

    #[test]
    fn a_thousand_failures_do_not_overflow() {
        let mut cadence = Cadence::default();
        assert!((0..1000).all(|_| cadence.after_failure() <= Duration::from_secs(120)));
    }
}
