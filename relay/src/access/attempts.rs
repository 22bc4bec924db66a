//! Who has proved nothing yet gets little of the relay's time, counted per user so that none can shut out another.

use super::peer::Peer;
use std::collections::{HashMap, VecDeque};

/// How many connections of one user may be on their way in at once.
pub const MAX_WAITING: u32 = 16;
/// How many proofs of one user may be wrong within [`WINDOW_MS`].
pub const MAX_FAILURES: usize = 5;
/// Over how long failures are counted.
pub const WINDOW_MS: u64 = 60_000;
/// For how long a user is refused after that.
pub const REFUSAL_MS: u64 = 60_000;

/// Why somebody is not even asked for a proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TurnedAway {
    /// Too many of this user's connections are on their way in.
    #[error("too many connections are waiting to be let in")]
    TooMany,
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
    records: HashMap<Peer, Record>,
}

#[derive(Debug, Default)]
struct Record {
    waiting: u32,
    failures: VecDeque<u64>,
    refused_until_ms: u64,
}

impl Attempts {
    /// One more connection of `peer` is on its way in.
    pub(super) fn arrive(&mut self, peer: Peer, now_ms: u64) -> Result<(), TurnedAway> {
        self.check(peer, now_ms)?;
        let record = self.records.entry(peer).or_default();
        if record.waiting >= MAX_WAITING {
            return Err(TurnedAway::TooMany);
        }
        record.waiting += 1;
        Ok(())
    }

    /// One of them is in, or gone.
    pub(super) fn leave(&mut self, peer: Peer) {
        if let Some(record) = self.records.get_mut(&peer) {
            record.waiting = record.waiting.saturating_sub(1);
            // Users who never failed leave no trace, so the map cannot grow with time.
            if record.waiting == 0 && record.failures.is_empty() {
                self.records.remove(&peer);
            }
        }
    }

    /// Whether `peer` is refused now.
    pub(super) fn check(&self, peer: Peer, now_ms: u64) -> Result<(), TurnedAway> {
        let until_ms = self.records.get(&peer).map_or(0, |record| record.refused_until_ms);
        match until_ms.saturating_sub(now_ms) {
            0 => Ok(()),
            after_ms => Err(TurnedAway::Refused { after_ms }),
        }
    }

    /// A proof of `peer` was wrong.
    pub(super) fn fail(&mut self, peer: Peer, now_ms: u64) {
        self.forget_old(now_ms);
        let record = self.records.entry(peer).or_default();
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

    const ALICE: Peer = Peer::User(1001);
    const MALLORY: Peer = Peer::User(1666);

    #[test]
    fn five_wrong_proofs_in_a_minute_close_the_door_for_a_minute() {
        let mut attempts = Attempts::default();
        for at_ms in [0, 10_000, 20_000, 30_000] {
            attempts.fail(MALLORY, at_ms);
            assert_eq!(attempts.check(MALLORY, at_ms), Ok(()));
        }
        attempts.fail(MALLORY, 40_000);
        assert_eq!(attempts.check(MALLORY, 40_000), Err(TurnedAway::Refused { after_ms: 60_000 }));
        assert_eq!(attempts.arrive(MALLORY, 99_999), Err(TurnedAway::Refused { after_ms: 1 }));
        assert_eq!(attempts.arrive(MALLORY, 100_000), Ok(()));
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
            let _ = attempts.arrive(MALLORY, 0);
        }
        assert_eq!(attempts.arrive(ALICE, 0), Ok(()));
    }

    #[test]
    fn only_so_many_wait_at_once_and_leaving_makes_room() {
        let mut attempts = Attempts::default();
        for _ in 0..MAX_WAITING {
            attempts.arrive(ALICE, 0).unwrap();
        }
        assert_eq!(attempts.arrive(ALICE, 0), Err(TurnedAway::TooMany));
        attempts.leave(ALICE);
        assert_eq!(attempts.arrive(ALICE, 0), Ok(()));
    }

    #[test]
    fn who_is_gone_leaves_no_trace() {
        let mut attempts = Attempts::default();
        for uid in 0..10_000 {
            attempts.arrive(Peer::User(uid), 0).unwrap();
            attempts.leave(Peer::User(uid));
            attempts.fail(Peer::User(uid), u64::from(uid) * 60_000);
        }
        assert!(attempts.records.len() <= 2, "{}", attempts.records.len());
    }
}
