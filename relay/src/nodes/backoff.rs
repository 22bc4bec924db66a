//! After a failure the next try comes soon, then later and later, and never for all nodes at the same moment.

use std::time::Duration;

/// The first failures of a row are tried again within this bound, so that a node is back within
/// seconds of a short outage.
const SOON_MS: u64 = 8_000;
const SOON_FAILURES: u32 = 12;
const MOST_MS: u64 = 60_000;
const LEAST_MS: u64 = 250;
/// A user who was denied is let in once SLURM has set the job up on the node, which takes it a moment.
const DENIED_MS: u64 = 2_000;
/// A probe that lived shorter than this ended quickly.
const QUICK_MS: u64 = 30_000;
/// So many quick ends in a row are tried again at once; then it is broken, and tried each minute.
const QUICK_TRIES: u32 = 3;
/// A link that was up for this long is good, and one that breaks later is tried again soon. A mere hello says nothing: a
/// node whose job is ending lets us in and throws us out again, and each login keeps the job from ending.
pub(super) const GOOD: Duration = Duration::from_secs(10);

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The node could not be reached, or the link broke.
    Link,
    /// The node accepted the key but not the user: SLURM may be starting or ending the job there.
    Denied,
    /// Each try does harm: the node sent far more than a probe does, or a login left a process behind there.
    Harmful,
    /// The probe ended by itself after so many ms.
    ProbeEnded {
        /// How long it lived.
        after_ms: u64,
    },
}

/// How patient one session is.
#[derive(Clone, Debug, Default)]
pub struct Backoff {
    failures: u32,
    quick_ends: u32,
    /// Whether the last failure was a probe that ended by itself.
    has_ended: bool,
}

impl Backoff {
    /// Failed tries in a row.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// A probe's link has been up for this long. (After [`GOOD`] the probe itself may still be broken.)
    pub fn linked(&mut self, up: Duration) {
        if up >= GOOD {
            self.failures = 0;
        }
        if up >= Duration::from_millis(QUICK_MS) {
            self.quick_ends = 0;
        }
    }

    /// Whether the probe has just ended by itself, and so often that it is broken.
    pub fn is_broken(&self) -> bool {
        self.has_ended && self.quick_ends > QUICK_TRIES
    }

    /// Enters a failure and says how long to wait; `random` is any number.
    pub fn wait(&mut self, trouble: Trouble, random: u64) -> Duration {
        self.failures = self.failures.saturating_add(1);
        self.has_ended = matches!(trouble, Trouble::ProbeEnded { .. });
        match trouble {
            Trouble::ProbeEnded { after_ms } if after_ms < QUICK_MS => {
                self.quick_ends = self.quick_ends.saturating_add(1);
            }
            Trouble::ProbeEnded { .. } => self.quick_ends = 0,
            Trouble::Link | Trouble::Denied | Trouble::Harmful => {}
        }
        let is_rare = self.is_broken() || trouble == Trouble::Harmful;
        let bound = match trouble {
            _ if is_rare => MOST_MS,
            Trouble::Denied => self.bound_ms().saturating_mul(4).min(MOST_MS),
            _ => self.bound_ms(),
        };
        // Full jitter, but what is broken or does harm is not started more often than each half minute.
        let least = match trouble {
            _ if is_rare => MOST_MS / 2,
            Trouble::Denied => DENIED_MS.min(bound),
            _ => LEAST_MS,
        };
        Duration::from_millis(least + random % (bound - least + 1))
    }

    fn bound_ms(&self) -> u64 {
        let doubled = |from: u64, times: u32| from.saturating_mul(1 << times.min(16));
        match self.failures {
            0..=SOON_FAILURES => doubled(1_000, self.failures.saturating_sub(1)).min(SOON_MS),
            many => doubled(SOON_MS, many - SOON_FAILURES).min(MOST_MS),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn longest(backoff: &mut Backoff, trouble: Trouble) -> u64 {
        let bound = backoff.clone();
        let most = (0..200).map(|n| bound.clone().wait(trouble, n * 7919).as_millis() as u64).max().unwrap();
        backoff.wait(trouble, 0);
        most
    }

    #[test]
    fn waits_grow_from_a_second_to_a_minute() {
        let mut backoff = Backoff::default();
        let most: Vec<u64> = (0..20).map(|_| longest(&mut backoff, Trouble::Link)).collect();
        assert!(most[0] <= 1_000 && most.is_sorted_by(|a, b| a / 1_000 <= b / 1_000 + 4), "{most:?}");
        assert!(most[..12].iter().all(|wait| *wait <= SOON_MS));
        assert!(most[19] > 40_000 && most[19] <= MOST_MS, "{most:?}");
    }

    #[test]
    fn two_nodes_that_fail_together_do_not_come_back_together() {
        let waits: std::collections::BTreeSet<_> =
            (0..100).map(|n| Backoff::default().wait(Trouble::Link, n * 104_729)).collect();
        assert!(waits.len() > 50);
    }

    #[test]
    fn a_link_that_came_up_is_tried_soon_again() {
        let mut backoff = Backoff::default();
        for _ in 0..30 {
            backoff.wait(Trouble::Link, u64::MAX);
        }
        backoff.linked(GOOD);
        assert!(backoff.wait(Trouble::Link, u64::MAX) <= Duration::from_secs(1));
    }

    #[test]
    fn a_probe_that_ends_at_once_is_broken_after_three_restarts_though_it_says_hello() {
        let mut backoff = Backoff::default();
        for _ in 0..QUICK_TRIES {
            backoff.linked(GOOD);
            assert!(backoff.wait(Trouble::ProbeEnded { after_ms: 900 }, u64::MAX) <= Duration::from_secs(1));
        }
        backoff.linked(GOOD);
        assert!(backoff.wait(Trouble::ProbeEnded { after_ms: 900 }, 0) >= Duration::from_secs(30));
        backoff.wait(Trouble::ProbeEnded { after_ms: QUICK_MS }, 0);
        assert!(!backoff.is_broken(), "one that lived is not broken");
    }

    #[test]
    fn a_node_that_did_harm_once_waits_long_once_and_its_later_breaks_are_ordinary() {
        let mut backoff = Backoff::default();
        assert!(backoff.wait(Trouble::Harmful, 0) >= Duration::from_secs(30));
        assert!(!backoff.is_broken(), "its probe did not end");
        assert!(backoff.wait(Trouble::Link, u64::MAX) <= Duration::from_secs(2));
        assert!(!backoff.is_broken());
    }

    #[test]
    fn a_link_that_was_up_for_long_forgets_that_the_probe_kept_ending() {
        let mut backoff = Backoff::default();
        let ended = Trouble::ProbeEnded { after_ms: 900 };
        for _ in 0..=QUICK_TRIES {
            let _ = backoff.wait(ended, 0);
        }
        assert!(backoff.is_broken());
        backoff.wait(Trouble::Link, 0);
        assert!(!backoff.is_broken(), "a link that breaks is no probe that ends");
        backoff.linked(Duration::from_millis(QUICK_MS - 1));
        backoff.wait(ended, 0);
        assert!(backoff.is_broken());
        backoff.linked(Duration::from_millis(QUICK_MS));
        assert!(backoff.wait(ended, u64::MAX) <= Duration::from_secs(1));
    }

    #[test]
    fn any_number_of_failures_is_survived() {
        let mut backoff = Backoff { failures: u32::MAX - 1, ..Backoff::default() };
        for _ in 0..3 {
            assert!(backoff.wait(Trouble::Link, u64::MAX) <= Duration::from_millis(MOST_MS));
        }
    }
}
