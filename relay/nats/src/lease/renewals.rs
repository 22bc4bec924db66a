//! Validity of leases: for how long after a renewal, and from when on after an outage.

use std::time::Duration;
use tokio::time::Instant;

/// Time from the start of its last successful renewal until a relay stops its probes.
pub(super) const FENCE: Duration = Duration::from_millis(3_500);
/// Time from the return of the servers until a relay that had stopped its probes takes nodes again. Until then, relays that went on alone
/// have connected as well, and have taken those that they watch: else two probes would run on a node for a moment.
const RETURN: Duration = Duration::from_secs(4);

/// The renewals of a relay that had a lease.
#[derive(Debug, Default)]
pub(super) struct Renewals {
    /// When the last successful one was sent.
    last: Option<Instant>,
    /// The first one after the relay had stopped its probes.
    back: Option<Instant>,
}

/// The state of the leases by the last renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Renewed {
    /// The leases are valid.
    Valid,
    /// They will be, if renewals go on.
    Returning,
    /// They are not valid any more.
    Over,
}

impl Renewals {
    /// Takes a renewal that was sent at a time; returns whether the relay returns with it, after it `is_fenced`.
    pub(super) fn succeeded(&mut self, at: Instant, is_fenced: bool) -> bool {
        self.last = Some(at);
        let is_first = is_fenced && self.back.is_none();
        self.back = is_fenced.then_some(self.back.unwrap_or(at));
        is_first
    }

    /// `None` if there was none.
    pub(super) fn state(&mut self) -> Option<Renewed> {
        Some(match (self.last?, self.back) {
            (last, _) if last.elapsed() >= FENCE => {
                self.back = None;
                Renewed::Over
            }
            (_, Some(back)) if back.elapsed() < RETURN => Renewed::Returning,
            _ => Renewed::Valid,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::RENEW;
    use super::*;
    use tokio::time::advance;

    #[tokio::test(start_paused = true)]
    async fn a_relay_that_stopped_its_probes_takes_no_node_before_others_are_back() {
        let mut renewals = Renewals::default();
        assert_eq!(renewals.state(), None);
        assert!(!renewals.succeeded(Instant::now(), false));
        assert_eq!(renewals.state(), Some(Renewed::Valid));
        advance(FENCE).await;
        assert_eq!(renewals.state(), Some(Renewed::Over));

        let back = Instant::now();
        assert!(renewals.succeeded(back, true), "it gives up what it had");
        while back.elapsed() < RETURN {
            assert_eq!(renewals.state(), Some(Renewed::Returning));
            advance(RENEW).await;
            assert!(!renewals.succeeded(Instant::now(), true));
        }
        assert_eq!(renewals.state(), Some(Renewed::Valid));
        renewals.succeeded(Instant::now(), false);
        assert_eq!(renewals.state(), Some(Renewed::Valid));
    }

    #[tokio::test(start_paused = true)]
    async fn a_relay_that_loses_the_servers_again_begins_to_wait_anew() {
        let mut renewals = Renewals::default();
        renewals.succeeded(Instant::now(), true);
        advance(FENCE).await;
        assert_eq!(renewals.state(), Some(Renewed::Over));
        assert!(renewals.succeeded(Instant::now(), true));
        advance(RENEW).await;
        assert_eq!(renewals.state(), Some(Renewed::Returning));
    }
}
