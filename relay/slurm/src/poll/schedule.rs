//! When SLURM is polled: at the configured interval, less often while nothing changes, with back-off on
//! failures.

use super::trigger::PollReason;
use nodeglass_rules::backoff::exponential;
use std::time::Duration;

/// When the next poll is due. Pure.
#[derive(Clone, Debug)]
pub struct PollSchedule {
    interval: Duration,
    failures: u32,
    /// Time for which the list has not changed.
    unchanged: Duration,
    /// Whether the list is one of many users, which hardly ever settles.
    is_of_many: bool,
    /// Whether a doubt already brought a poll forward since the last due one.
    was_hurried: bool,
    /// Number of polls that questions brought forward since the last due one.
    questions: u32,
    /// Whether a question has brought the next poll forward.
    is_asked: bool,
    /// Whether lists cost nothing.
    is_free: bool,
    /// Duration of the last poll.
    took: Duration,
}

impl PollSchedule {
    /// Default interval between polls of a changing list.
    pub const DEFAULT_INTERVAL: Duration = Duration::from_secs(15);
    /// Minimum interval between polls, regardless of their trigger.
    pub const MIN_GAP: Duration = Duration::from_secs(5);
    /// Time budget per request to the controller once the list has not changed for [`PollSchedule::SETTLED_AFTER`]:
    /// four a minute.
    const PER_REQUEST: Duration = Duration::from_secs(15);
    /// Upper bound of that budget, so that a change is seen within a minute. A settled poll makes at most
    /// four requests ([`super::detail_cache`]).
    const MAX_SPREAD: Duration = Duration::from_secs(60);
    /// Minimum pause after a poll, in multiples of its duration: SLURM's commands wait where the controller limits the rate
    /// of requests or is busy.
    const PAUSE_PER_POLL: u32 = 5;
    /// A list that has not changed for this long is considered settled.
    const SETTLED_AFTER: Duration = Duration::from_secs(120);
    /// Delay after the first failure; doubles with each further one.
    const FIRST_BACKOFF: Duration = Duration::from_secs(10);
    /// Maximum delay after a failure.
    const MAX_BACKOFF: Duration = Duration::from_secs(120);
    /// SLURM applies an order a moment after accepting it.
    const ORDER_DELAY: Duration = Duration::from_secs(1);
    /// Maximum number of polls that questions bring forward between two due ones: a script may ask for a job that does not
    /// exist again and again.
    const MAX_QUESTIONS: u32 = 3;
    /// Many nodes close their links together when a job ends; one poll serves all.
    const GATHER: Duration = Duration::from_millis(300);

    /// One poll per `interval`, at least [`PollSchedule::MIN_GAP`].
    pub fn new(interval: Duration) -> Self {
        let interval = interval.max(Self::MIN_GAP);
        Self {
            interval,
            failures: 0,
            unchanged: Duration::ZERO,
            is_of_many: false,
            was_hurried: false,
            questions: 0,
            is_asked: false,
            is_free: false,
            took: Duration::ZERO,
        }
    }

    /// For the jobs of many users: some job of a busy cluster always changes, so the budget of
    /// a settled list applies from the start.
    #[must_use]
    pub fn of_many(self, is_of_many: bool) -> Self {
        Self { is_of_many, ..self }
    }

    /// For a source whose lists cost nothing: every question is answered at once.
    #[must_use]
    pub fn free(self, is_free: bool) -> Self {
        Self { is_free, ..self }
    }

    /// Records the duration of a poll, before [`PollSchedule::after_success`].
    pub fn took(&mut self, elapsed: Duration) {
        self.took = elapsed;
    }

    /// Delay after a successful poll, given its number of requests and whether the list `changed`.
    pub fn after_success(&mut self, requests: u32, changed: bool) -> Duration {
        (self.failures, self.is_asked) = (0, false);
        if changed {
            self.unchanged = Duration::ZERO;
        }
        let is_settled = self.is_of_many || self.unchanged >= Self::SETTLED_AFTER;
        let spread = if is_settled { Self::PER_REQUEST.saturating_mul(requests) } else { Duration::ZERO };
        let pause = self.took.saturating_mul(Self::PAUSE_PER_POLL);
        let wait = self.interval.max(spread.max(pause).min(Self::MAX_SPREAD));
        self.unchanged = self.unchanged.saturating_add(wait);
        wait
    }

    /// Delay after a failed poll: 10, 20, 40, 80, 120, 120 … s.
    pub fn after_failure(&mut self) -> Duration {
        self.failures = self.failures.saturating_add(1);
        exponential(Self::FIRST_BACKOFF, self.failures, Self::MAX_BACKOFF)
    }

    /// Delay of a poll that is requested early, when the last one ended `since_last` ago; `None` if the
    /// due time stays. While SLURM does not respond, only the owner can bring a poll forward. A doubt
    /// brings one poll forward until another was due, so that a flapping link cannot load the controller; questions
    /// bring forward three.
    pub fn requested(&mut self, reason: PollReason, since_last: Duration) -> Option<Duration> {
        let gap = Self::MIN_GAP.saturating_sub(since_last);
        match reason {
            PollReason::Retry => Some(gap),
            _ if self.failures > 0 => None,
            PollReason::Order => Some(gap.max(Self::ORDER_DELAY)),
            PollReason::Doubt if self.was_hurried => None,
            PollReason::Doubt => {
                self.was_hurried = true;
                Some(gap.max(Self::GATHER))
            }
            PollReason::Question if self.is_free => Some(Duration::ZERO),
            PollReason::Question if self.is_asked => Some(gap),
            PollReason::Question if self.questions >= Self::MAX_QUESTIONS => None,
            PollReason::Question => {
                (self.is_asked, self.questions) = (true, self.questions + 1);
                Some(gap)
            }
        }
    }

    /// A poll starts because it was due, not because it was requested.
    pub fn was_due(&mut self) {
        (self.was_hurried, self.questions) = (false, 0);
    }
}

impl Default for PollSchedule {
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
    fn f09_failures_back_off_from_ten_seconds_to_two_minutes_until_a_success() {
        let mut poll_schedule = PollSchedule::default();
        let waits: Vec<u64> = (0..7).map(|_| secs(poll_schedule.after_failure())).collect();
        assert_eq!(waits, [10, 20, 40, 80, 120, 120, 120]);
        assert_eq!(secs(poll_schedule.after_success(2, false)), 15);
        assert_eq!(secs(poll_schedule.after_failure()), 10);
    }

    #[test]
    fn a_very_short_interval_is_not_accepted() {
        assert_eq!(secs(PollSchedule::new(Duration::ZERO).after_success(2, true)), 5);
    }

    #[test]
    fn an_unchanged_list_costs_at_most_four_requests_a_minute() {
        for interval in [5, 15] {
            let mut poll_schedule = PollSchedule::new(Duration::from_secs(interval));
            let mut elapsed = Duration::ZERO;
            while elapsed < PollSchedule::SETTLED_AFTER {
                assert_eq!(secs(poll_schedule.after_success(2, false)), interval);
                elapsed += Duration::from_secs(interval);
            }
            // A poll that also queried details, with two more requests, is accounted for as well.
            for requests in [2, 2, 4, 2] {
                assert_eq!(secs(poll_schedule.after_success(requests, false)), u64::from(requests) * 15);
            }
            assert_eq!(secs(poll_schedule.after_success(18, false)), 60, "a change is seen within a minute");
            assert_eq!(
                secs(poll_schedule.after_success(2, true)),
                interval,
                "a change restores the usual interval"
            );
        }
        let mut rare = PollSchedule::new(Duration::from_secs(300));
        assert!((0..9).all(|_| secs(rare.after_success(2, false)) == 300));
    }

    #[test]
    fn f11_a_controller_that_answers_slowly_is_polled_less_often() {
        let mut poll_schedule = PollSchedule::default();
        for (took, wait) in [(1, 15), (6, 30), (20, 60), (1, 15)] {
            poll_schedule.took(Duration::from_secs(took));
            assert_eq!(secs(poll_schedule.after_success(2, true)), wait, "a poll took {took} s");
        }
    }

    #[test]
    fn a_requested_poll_keeps_the_minimum_gap_and_only_the_owner_hurries_a_failing_controller() {
        let mut poll_schedule = PollSchedule::default();
        assert_eq!(
            poll_schedule.requested(PollReason::Order, Duration::from_secs(2)),
            Some(Duration::from_secs(3))
        );
        assert_eq!(
            poll_schedule.requested(PollReason::Order, Duration::from_secs(60)),
            Some(PollSchedule::ORDER_DELAY)
        );
        poll_schedule.after_failure();
        for reason in [PollReason::Order, PollReason::Doubt, PollReason::Question] {
            assert_eq!(poll_schedule.requested(reason, Duration::from_secs(60)), None);
        }
        assert_eq!(poll_schedule.requested(PollReason::Retry, Duration::from_secs(60)), Some(Duration::ZERO));
        assert_eq!(
            poll_schedule.requested(PollReason::Retry, Duration::from_secs(1)),
            Some(Duration::from_secs(4))
        );
    }

    #[test]
    fn a_flapping_link_hurries_one_poll_until_the_next_due_one() {
        let mut poll_schedule = PollSchedule::default();
        assert_eq!(
            poll_schedule.requested(PollReason::Doubt, Duration::from_secs(60)),
            Some(PollSchedule::GATHER)
        );
        for _ in 0..20 {
            assert_eq!(poll_schedule.requested(PollReason::Doubt, Duration::from_secs(3)), None);
        }
        poll_schedule.was_due();
        assert_eq!(
            poll_schedule.requested(PollReason::Doubt, Duration::from_secs(60)),
            Some(PollSchedule::GATHER)
        );
    }

    #[test]
    fn questions_bring_three_polls_forward_until_the_next_due_one() {
        let mut poll_schedule = PollSchedule::default();
        let mut ask = || {
            let waits = [2, 3].map(|s| poll_schedule.requested(PollReason::Question, Duration::from_secs(s)));
            poll_schedule.after_success(2, false);
            waits.map(|wait| wait.map(secs))
        };
        let brought_forward = [Some(3), Some(2)];
        assert_eq!(
            [ask(), ask(), ask(), ask()],
            [brought_forward, brought_forward, brought_forward, [None; 2]]
        );
        poll_schedule.was_due();
        assert_eq!(
            poll_schedule.requested(PollReason::Question, Duration::from_secs(9)),
            Some(Duration::ZERO)
        );
        let mut free = PollSchedule::default().free(true);
        assert!((0..9).all(|_| free.requested(PollReason::Question, Duration::ZERO) == Some(Duration::ZERO)));
    }

    #[test]
    fn a_thousand_failures_do_not_overflow() {
        let mut poll_schedule = PollSchedule::default();
        assert!((0..1000).all(|_| poll_schedule.after_failure() <= Duration::from_secs(120)));
    }
}
