//! Limits pending and failed authentication attempts per user, so that no user can lock out another.
//!
//! Only wrong keys are throttled; a valid one is always accepted. A key of 256 bits cannot be guessed, so
//! rejecting it would protect nothing, but would let a script with an old key, or anyone who shares the
//! local end of a tunnel, lock out the owner.

use nodeglass_access::peer::Peer;
use std::collections::{HashMap, VecDeque};

/// Maximum number of pending attempts of one user.
pub const MAX_PENDING: u32 = 16;
/// The limit for the owner: a restarted browser reopens all its tabs at once.
pub const MAX_PENDING_OWNER: u32 = 64;
/// Number of failures within [`WINDOW_MS`] after which a user is throttled.
pub const MAX_FAILURES: usize = 5;
/// Window over which failures are counted.
pub const WINDOW_MS: u64 = 60_000;
/// Time for which a user is throttled.
pub const THROTTLE_MS: u64 = 60_000;
/// Delay of the response to a throttled wrong proof, in ms. The connection stays counted meanwhile, which
/// bounds the rate of attempts.
pub const FAILURE_DELAY_MS: u64 = 2_000;

/// The origin of a connection, by which attempts are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    /// The peer.
    pub peer: Peer,
    /// Whether it connected to the socket in the runtime directory, which only the owner can open.
    pub is_private: bool,
}

impl From<Peer> for Origin {
    fn from(peer: Peer) -> Self {
        Self { peer, is_private: false }
    }
}

/// A rate or connection limit that was exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RateLimited {
    /// Too many pending attempts of this user.
    #[error("too many pending connections")]
    TooMany,
    /// A guest exceeded its CPU budget.
    #[error("too many requests; retry in {} s", after_ms.div_ceil(1000))]
    TooOften {
        /// When to retry, in ms.
        after_ms: u64,
    },
    /// Too many wrong proofs.
    #[error("too many wrong keys; retry in {} s", after_ms.div_ceil(1000))]
    Refused {
        /// When to retry, in ms.
        after_ms: u64,
    },
}

/// Pending and failed attempts of all users.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    records: HashMap<Origin, Record>,
}

#[derive(Debug, Default)]
struct Record {
    pending: u32,
    failures: VecDeque<u64>,
    throttled_until_ms: u64,
}

impl Attempts {
    /// Begins an attempt.
    pub(super) fn begin(&mut self, origin: Origin) -> Result<(), RateLimited> {
        let most = if origin.peer == Peer::owner() { MAX_PENDING_OWNER } else { MAX_PENDING };
        let record = self.records.entry(origin).or_default();
        if record.pending >= most {
            return Err(RateLimited::TooMany);
        }
        record.pending += 1;
        Ok(())
    }

    /// Ends an attempt.
    pub(super) fn end(&mut self, origin: Origin) {
        if let Some(record) = self.records.get_mut(&origin) {
            record.pending = record.pending.saturating_sub(1);
            // Entries without failures are removed, so that the map does not grow over time.
            if record.pending == 0 && record.failures.is_empty() {
                self.records.remove(&origin);
            }
        }
    }

    /// Returns an error while wrong proofs from this origin are throttled; valid ones are still accepted.
    pub(super) fn check(&self, origin: Origin, now_ms: u64) -> Result<(), RateLimited> {
        let until_ms = self.records.get(&origin).map_or(0, |record| record.throttled_until_ms);
        match until_ms.saturating_sub(now_ms) {
            0 => Ok(()),
            after_ms => Err(RateLimited::Refused { after_ms }),
        }
    }

    /// Counts a wrong proof. Failures on the owner's private socket are not counted.
    pub(super) fn record_failure(&mut self, origin: Origin, now_ms: u64) {
        if origin.is_private {
            return;
        }
        self.prune(now_ms);
        let record = self.records.entry(origin).or_default();
        record.failures.push_back(now_ms);
        if record.failures.len() >= MAX_FAILURES {
            record.throttled_until_ms = now_ms + THROTTLE_MS;
            record.failures.drain(..1);
        }
    }

    fn prune(&mut self, now_ms: u64) {
        self.records.retain(|_, record| {
            record.failures.retain(|at_ms| now_ms.saturating_sub(*at_ms) < WINDOW_MS);
            record.pending > 0 || !record.failures.is_empty() || record.throttled_until_ms > now_ms
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALICE: Origin = Origin { peer: Peer::User(1_001_001), is_private: false };
    const MALLORY: Origin = Origin { peer: Peer::User(1_666_666), is_private: false };

    #[test]
    fn five_wrong_proofs_in_a_minute_are_throttled_for_a_minute() {
        let mut attempts = Attempts::default();
        for at_ms in [0, 10_000, 20_000, 30_000] {
            attempts.record_failure(MALLORY, at_ms);
            assert_eq!(attempts.check(MALLORY, at_ms), Ok(()));
        }
        attempts.record_failure(MALLORY, 40_000);
        assert_eq!(attempts.check(MALLORY, 40_000), Err(RateLimited::Refused { after_ms: 60_000 }));
        assert_eq!(attempts.check(MALLORY, 99_999), Err(RateLimited::Refused { after_ms: 1 }));
        assert_eq!(attempts.check(MALLORY, 100_000), Ok(()));
        attempts.record_failure(MALLORY, 100_000);
        assert_eq!(attempts.begin(MALLORY), Ok(()), "a valid key is still accepted");
    }

    #[test]
    fn wrong_proofs_spread_over_a_long_time_are_not_throttled() {
        let mut attempts = Attempts::default();
        for i in 0..50 {
            attempts.record_failure(MALLORY, i * 15_001);
            assert_eq!(attempts.check(MALLORY, i * 15_001), Ok(()), "after {i}");
        }
    }

    #[test]
    fn one_user_cannot_shut_out_another() {
        let mut attempts = Attempts::default();
        for _ in 0..100 {
            attempts.record_failure(MALLORY, 0);
            let _ = attempts.begin(MALLORY);
        }
        assert_eq!(attempts.begin(ALICE), Ok(()));
    }

    #[test]
    fn the_owners_private_socket_is_never_throttled() {
        let mut attempts = Attempts::default();
        let private = Origin { peer: Peer::owner(), is_private: true };
        for _ in 0..100 {
            attempts.record_failure(private, 0);
        }
        assert_eq!(attempts.check(private, 0), Ok(()));
    }

    #[test]
    fn pending_attempts_are_limited_and_ended_ones_free_a_slot() {
        let mut attempts = Attempts::default();
        for _ in 0..MAX_PENDING {
            attempts.begin(ALICE).unwrap();
        }
        assert_eq!(attempts.begin(ALICE), Err(RateLimited::TooMany));
        attempts.end(ALICE);
        assert_eq!(attempts.begin(ALICE), Ok(()));
    }

    #[test]
    fn ended_attempts_are_not_kept() {
        let mut attempts = Attempts::default();
        for uid in 0..10_000 {
            attempts.begin(Peer::User(uid).into()).unwrap();
            attempts.end(Peer::User(uid).into());
            attempts.record_failure(Peer::User(uid).into(), u64::from(uid) * 60_000);
        }
        assert!(attempts.records.len() <= 2, "{}", attempts.records.len());
    }
}
