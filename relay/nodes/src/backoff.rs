//! Exponential back-off with jitter for reconnecting to nodes.

use nodeglass_rules::backoff::exponential;
use std::time::Duration;

/// Bound for a node that does not respond, so that it is back within 10 s of its return. How often all of them are tried
/// is limited by the budget of connections.
const MAX_LINK: Duration = Duration::from_secs(8);
/// Bound of the delay after the first failure.
const FIRST: Duration = Duration::from_secs(1);
/// Bound of the delay for a broken probe or a harmful retry.
const MAX: Duration = Duration::from_secs(60);
/// Minimum delay.
const MIN: Duration = Duration::from_millis(250);
/// Minimum delay after a denial: until SLURM has set up a new job on the node, it denies the login.
const MIN_DENIED: Duration = Duration::from_secs(2);
/// Minimum delay while attempts are turned away: sshd drops them at random beyond `MaxStartups`, and refuses an address
/// for 15 s or longer (`PerSourcePenalties`).
const MIN_THROTTLED: Duration = Duration::from_secs(10);
/// Bound of the delay after the first attempt that was turned away.
const FIRST_THROTTLED: Duration = Duration::from_secs(20);
/// Lifetime below which a probe counts as short-lived.
const SHORT_LIVED_MS: u64 = 30_000;
/// Number of short-lived probes in a row that are restarted at once; after that the probe counts as broken, and is
/// retried every minute.
const MAX_SHORT_LIVED: u32 = 3;
/// Bounds of the delay after a newer probe has replaced one repeatedly, which means that two relays want the node and do not
/// see each other.
const FIRST_REPLACED: Duration = Duration::from_secs(60);
const MAX_REPLACED: Duration = Duration::from_secs(600);
/// Duration after which a link counts as undisputed.
const UNDISPUTED_AFTER: Duration = Duration::from_secs(1_800);
/// Duration after which a link is stable, and its failure is retried soon. A hello alone proves nothing:
/// a node whose job is ending accepts the login and then closes it, and every login delays the end of the
/// job.
pub(super) const STABLE_AFTER: Duration = Duration::from_secs(10);

/// Failure classes with different retry delays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryClass {
    /// The node is unreachable, or the link broke.
    Link,
    /// The node accepted the key but denied the user: SLURM may be starting or ending the job there.
    Denied,
    /// The host, or SLURM, turns attempts away for now.
    Throttled,
    /// Every retry does harm: the node sent far more than a probe does, or a login left a process behind.
    Harmful,
    /// The probe exited.
    ProbeEnded {
        /// Its lifetime.
        after_ms: u64,
    },
    /// A newer probe replaced it. The relay that started that one may share it, so that the first retry is soon.
    Replaced,
}

/// The back-off state of a session: what its last failures were.
#[derive(Clone, Debug, Default)]
pub struct Backoff {
    failures: u32,
    short_lived: u32,
    /// Replaced probes since the last undisputed link.
    replaced: u32,
    /// Whether the last failure was an exited probe.
    last_was_exit: bool,
}

impl Backoff {
    /// Consecutive failures.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Records that a probe's connection has lasted for `up`. After [`STABLE_AFTER`] the connection counts as
    /// stable, but the probe may still be short-lived.
    pub fn connected(&mut self, up: Duration) {
        if up >= STABLE_AFTER {
            self.failures = 0;
        }
        if up >= Duration::from_millis(SHORT_LIVED_MS) {
            self.short_lived = 0;
        }
        if up >= UNDISPUTED_AFTER {
            self.replaced = 0;
        }
    }

    /// Returns whether the last failure was an exited probe, too many times in a row.
    pub fn is_broken(&self) -> bool {
        self.last_was_exit && self.short_lived > MAX_SHORT_LIVED
    }

    /// Records a failure and returns the delay; `random` is any number.
    pub fn wait(&mut self, class: RetryClass, random: u64) -> Duration {
        self.failures = self.failures.saturating_add(1);
        self.last_was_exit = matches!(class, RetryClass::ProbeEnded { .. });
        match class {
            RetryClass::ProbeEnded { after_ms } if after_ms < SHORT_LIVED_MS => {
                self.short_lived = self.short_lived.saturating_add(1);
            }
            RetryClass::ProbeEnded { .. } => self.short_lived = 0,
            RetryClass::Replaced => self.replaced = self.replaced.saturating_add(1),
            RetryClass::Link | RetryClass::Denied | RetryClass::Throttled | RetryClass::Harmful => {}
        }
        let is_slow = self.is_broken() || class == RetryClass::Harmful;
        let is_disputed = class == RetryClass::Replaced && self.replaced > 1;
        let bound = match class {
            _ if is_disputed => exponential(FIRST_REPLACED, self.replaced - 1, MAX_REPLACED),
            _ if is_slow => MAX,
            RetryClass::Denied => exponential(FIRST, self.failures, MAX_LINK) * 4,
            RetryClass::Throttled => exponential(FIRST_THROTTLED, self.failures, MAX),
            _ => exponential(FIRST, self.failures, MAX_LINK),
        };
        // Full jitter, but what is broken, harmful or disputed waits for half of the time at least.
        let min = match class {
            _ if is_disputed => bound / 2,
            _ if is_slow => MAX / 2,
            RetryClass::Denied => MIN_DENIED,
            RetryClass::Throttled => MIN_THROTTLED,
            _ => MIN,
        };
        let spread_ms = (bound - min).as_millis() as u64;
        min + Duration::from_millis(random % (spread_ms + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn longest(backoff: &mut Backoff, trouble: RetryClass) -> u64 {
        let bound = backoff.clone();
        let most = (0..200).map(|n| bound.clone().wait(trouble, n * 7919).as_millis() as u64).max().unwrap();
        backoff.wait(trouble, 0);
        most
    }

    #[test]
    fn f01_a_node_that_does_not_answer_is_tried_after_1_to_8_s_with_jitter() {
        let mut backoff = Backoff::default();
        let most: Vec<u64> = (0..20).map(|_| longest(&mut backoff, RetryClass::Link)).collect();
        assert!(most[0] <= 1_000 && most.is_sorted_by(|a, b| a / 1_000 <= b / 1_000 + 4), "{most:?}");
        assert!(most[19] > 6_000 && most.iter().all(|wait| *wait <= MAX_LINK.as_millis() as u64), "{most:?}");
    }

    #[test]
    fn f36_a_host_that_limits_logins_is_tried_after_10_to_60_s() {
        let mut backoff = Backoff::default();
        assert!(backoff.clone().wait(RetryClass::Throttled, 0) >= Duration::from_secs(10));
        let most: Vec<u64> = (0..5).map(|_| longest(&mut backoff, RetryClass::Throttled)).collect();
        assert!(most[0] <= 20_000 && most[4] > 50_000 && most[4] <= 60_000, "{most:?}");
        assert!(!backoff.is_broken(), "no probe exited");
    }

    #[test]
    fn f33_nodes_that_fail_together_retry_at_different_times() {
        let waits: std::collections::BTreeSet<_> =
            (0..100).map(|n| Backoff::default().wait(RetryClass::Link, n * 104_729)).collect();
        assert!(waits.len() > 50);
    }

    #[test]
    fn a_stable_link_resets_the_back_off() {
        let mut backoff = Backoff::default();
        for _ in 0..30 {
            backoff.wait(RetryClass::Link, u64::MAX);
        }
        backoff.connected(STABLE_AFTER);
        assert!(backoff.wait(RetryClass::Link, u64::MAX) <= Duration::from_secs(1));
    }

    #[test]
    fn a_short_lived_probe_is_broken_after_three_restarts_despite_its_hello() {
        let mut backoff = Backoff::default();
        for _ in 0..MAX_SHORT_LIVED {
            backoff.connected(STABLE_AFTER);
            assert!(
                backoff.wait(RetryClass::ProbeEnded { after_ms: 900 }, u64::MAX) <= Duration::from_secs(1)
            );
        }
        backoff.connected(STABLE_AFTER);
        assert!(backoff.wait(RetryClass::ProbeEnded { after_ms: 900 }, 0) >= Duration::from_secs(30));
        backoff.wait(RetryClass::ProbeEnded { after_ms: SHORT_LIVED_MS }, 0);
        assert!(!backoff.is_broken(), "a long-lived probe is not broken");
    }

    #[test]
    fn a_probe_that_is_replaced_again_is_restarted_ever_more_rarely() {
        let mut backoff = Backoff::default();
        assert!(backoff.wait(RetryClass::Replaced, u64::MAX) <= Duration::from_secs(1), "it may be shared");
        for least_s in [30, 60, 120, 240, 300, 300] {
            backoff.connected(UNDISPUTED_AFTER - Duration::from_secs(1));
            assert!(backoff.clone().wait(RetryClass::Link, u64::MAX) <= Duration::from_secs(8));
            let waits: Vec<_> =
                (0..100).map(|n| backoff.clone().wait(RetryClass::Replaced, n * 7_919)).collect();
            assert!(waits.iter().all(|wait| (least_s..=2 * least_s).contains(&wait.as_secs())), "{waits:?}");
            backoff.wait(RetryClass::Replaced, 0);
        }
        backoff.connected(UNDISPUTED_AFTER);
        assert!(backoff.wait(RetryClass::Replaced, u64::MAX) <= Duration::from_secs(1));
    }

    #[test]
    fn a_harmful_failure_waits_long_once() {
        let mut backoff = Backoff::default();
        assert!(backoff.wait(RetryClass::Harmful, 0) >= Duration::from_secs(30));
        assert!(!backoff.is_broken(), "its probe did not exit");
        assert!(backoff.wait(RetryClass::Link, u64::MAX) <= Duration::from_secs(2));
        assert!(!backoff.is_broken());
    }

    #[test]
    fn a_long_lived_link_resets_the_count_of_short_lived_probes() {
        let mut backoff = Backoff::default();
        let ended = RetryClass::ProbeEnded { after_ms: 900 };
        for _ in 0..=MAX_SHORT_LIVED {
            let _ = backoff.wait(ended, 0);
        }
        assert!(backoff.is_broken());
        backoff.wait(RetryClass::Link, 0);
        assert!(!backoff.is_broken(), "a broken link is not an exited probe");
        backoff.connected(Duration::from_millis(SHORT_LIVED_MS - 1));
        backoff.wait(ended, 0);
        assert!(backoff.is_broken());
        backoff.connected(Duration::from_millis(SHORT_LIVED_MS));
        assert!(backoff.wait(ended, u64::MAX) <= Duration::from_secs(1));
    }

    #[test]
    fn the_failure_count_does_not_overflow() {
        let mut backoff = Backoff { failures: u32::MAX - 1, ..Backoff::default() };
        for _ in 0..3 {
            assert!(backoff.wait(RetryClass::Link, u64::MAX) <= MAX);
        }
    }
}
