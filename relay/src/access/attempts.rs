//! Who has proved nothing yet gets little of the relay's time, counted per user so that none can shut out another.
//!
//! Wrong keys are throttled; a right one is never refused for them. A key of 256 bits cannot be guessed, so that
//! refusing it would protect nothing, and would let a script with an old key, or whoever shares the near end of
//! a tunnel, shut the owner out.

use super::peer::Peer;
use std::collections::{HashMap, VecDeque};

/// How many connections of one user may be on their way in at once.
pub const MAX_WAITING: u32 = 16;
/// How many of the owner's: a browser that is started again opens all its tabs at once.
pub const MAX_WAITING_OF_OWNER: u32 = 64;
/// How many proofs of one user may be wrong within [`WINDOW_MS`].
pub const MAX_FAILURES: usize = 5;
/// Over how long failures are counted.
pub const WINDOW_MS: u64 = 60_000;
/// For how long a user's wrong proofs are throttled after that.
pub const REFUSAL_MS: u64 = 60_000;
/// How long the answer to a throttled wrong proof is held back, in ms. The connection stays counted meanwhile,
/// so that this bounds how often one user can try.
pub const PAUSE_MS: u64 = 2_000;

/// From where somebody comes, as far as limits go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    /// Who it is.
    pub peer: Peer,
    /// Whether they came by the socket in the runtime directory, which nobody but the owner can open.
    pub is_private: bool,
}

impl From<Peer> for Origin {
    fn from(peer: Peer) -> Self {
        Self { peer, is_private: false }
    }
}

/// Why somebody is turned away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RateLimited {
    /// Too many of this user's connections are on their way in.
    #[error("too many connections are waiting to be let in")]
    TooMany,
    /// A guest asked for more than a guest may cost.
    #[error("too many questions; ask again in {} s", after_ms.div_ceil(1000))]
    TooOften {
        /// When to come again.
        after_ms: u64,
    },
    /// Too many wrong proofs.
    #[error("too many wrong keys; try again in {} s", after_ms.div_ceil(1000))]
    Refused {
        /// When to come again.
        after_ms: u64,
    },
}

/// The attempts of all users.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    records: HashMap<Origin, Record>,
}

#[derive(Debug, Default)]
struct Record {
    waiting: u32,
    failures: VecDeque<u64>,
    refused_until_ms: u64,
}

impl Attempts {
    /// One more connection is on its way in.
    pub(super) fn arrive(&mut self, origin: Origin) -> Result<(), RateLimited> {
        let most = if origin.peer == Peer::owner() { MAX_WAITING_OF_OWNER } else { MAX_WAITING };
        let record = self.records.entry(origin).or_default();
        if record.waiting >= most {
            return Err(RateLimited::TooMany);
        }
        record.waiting += 1;
        Ok(())
    }

    /// One of them is in, or gone.
    pub(super) fn leave(&mut self, origin: Origin) {
        if let Some(record) = self.records.get_mut(&origin) {
            record.waiting = record.waiting.saturating_sub(1);
            // Users who never failed leave no trace, so the map cannot grow with time.
            if record.waiting == 0 && record.failures.is_empty() {
                self.records.remove(&origin);
            }
        }
    }

    /// Whether wrong proofs from there are throttled now; a right one still opens.
    pub(super) fn check(&self, origin: Origin, now_ms: u64) -> Result<(), RateLimited> {
        let until_ms = self.records.get(&origin).map_or(0, |record| record.refused_until_ms);
        match until_ms.saturating_sub(now_ms) {
            0 => Ok(()),
            after_ms => Err(RateLimited::Refused { after_ms }),
        }
    }

    /// A proof from there was wrong. On the owner's private socket that is never held against anybody.
    pub(super) fn fail(&mut self, origin: Origin, now_ms: u64) {
        if origin.is_private {
            return;
        }
        self.forget_old(now_ms);
        let record = self.records.entry(origin).or_default();
        record.failures.push_back(now_ms);
        if record.failures.len() >= MAX_FAILURES {
            record.refused_until_ms = now_ms + REFUSAL_MS;
            record.failures.drain(..1);
        }
    }

    fn forget_old(&mut self, now_ms: u64) {
        self.records.retain(|_, record| {
            record.failures.retain(|at_ms| now_ms.saturating_sub(*at_ms) < WINDOW_MS);
            record.waiting > 0 || !record.failures.is_empty() || record.refused_until_ms > now_ms
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
            attempts.fail(MALLORY, at_ms);
            assert_eq!(attempts.check(MALLORY, at_ms), Ok(()));
        }
        attempts.fail(MALLORY, 40_000);
        assert_eq!(attempts.check(MALLORY, 40_000), Err(RateLimited::Refused { after_ms: 60_000 }));
        assert_eq!(attempts.check(MALLORY, 99_999), Err(RateLimited::Refused { after_ms: 1 }));
        assert_eq!(attempts.check(MALLORY, 100_000), Ok(()));
        attempts.fail(MALLORY, 100_000);
        assert_eq!(attempts.arrive(MALLORY), Ok(()), "a right key can still be shown");
    }

    #[test]
    fn wrong_proofs_spread_over_a_long_time_are_forgiven() {
        let mut attempts = Attempts::default();
        for i in 0..50 {
            attempts.fail(MALLORY, i * 15_001);
            assert_eq!(attempts.check(MALLORY, i * 15_001), Ok(()), "after {i}");
        }
    }

    #[test]
    fn one_user_cannot_shut_out_another() {
        let mut attempts = Attempts::default();
        for _ in 0..100 {
            attempts.fail(MALLORY, 0);
            let _ = attempts.arrive(MALLORY);
        }
        assert_eq!(attempts.arrive(ALICE), Ok(()));
    }

    #[test]
    fn the_owners_private_socket_is_never_throttled() {
        let mut attempts = Attempts::default();
        let private = Origin { peer: Peer::owner(), is_private: true };
        for _ in 0..100 {
            attempts.fail(private, 0);
        }
        assert_eq!(attempts.check(private, 0), Ok(()));
    }

    #[test]
    fn only_so_many_wait_at_once_and_leaving_makes_room() {
        let mut attempts = Attempts::default();
        for _ in 0..MAX_WAITING {
            attempts.arrive(ALICE).unwrap();
        }
        assert_eq!(attempts.arrive(ALICE), Err(RateLimited::TooMany));
        attempts.leave(ALICE);
        assert_eq!(attempts.arrive(ALICE), Ok(()));
    }

    #[test]
    fn who_is_gone_leaves_no_trace() {
        let mut attempts = Attempts::default();
        for uid in 0..10_000 {
            attempts.arrive(Peer::User(uid).into()).unwrap();
            attempts.leave(Peer::User(uid).into());
            attempts.fail(Peer::User(uid).into(), u64::from(uid) * 60_000);
        }
        assert!(attempts.records.len() <= 2, "{}", attempts.records.len());
    }
}
