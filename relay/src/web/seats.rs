//! There are only so many connections at once, and other users of the machine can never take all of them.

use crate::access::peer::Peer;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use std::collections::HashMap;
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// How many connections there may be in all.
pub(super) const SEATS: usize = 256;
/// How many of them users other than the owner may have together.
const SEATS_OF_OTHERS: usize = 128;
/// How many of them one such user may have.
const SEATS_OF_ONE: usize = 32;

/// The connections there are now.
#[derive(Debug, Default)]
pub(super) struct Seats {
    taken: Mutex<HashMap<Peer, usize>>,
    freed: Notify,
}

/// One connection's place; dropping it is leaving.
#[derive(Debug)]
pub(super) struct Seat {
    seats: Arc<Seats>,
    peer: Peer,
}

impl Seats {
    /// Takes a seat, if there is one for this user.
    pub(super) fn take(self: &Arc<Self>, peer: Peer) -> Option<Seat> {
        let mut taken = self.taken();
        let all: usize = taken.values().sum();
        let of_owner = taken.get(&Peer::owner()).copied().unwrap_or(0);
        let of_peer = taken.get(&peer).copied().unwrap_or(0);
        let room = peer == Peer::owner() || (all - of_owner < SEATS_OF_OTHERS && of_peer < SEATS_OF_ONE);
        if !room || all >= SEATS {
            return None;
        }
        *taken.entry(peer).or_default() += 1;
        Some(Seat { seats: self.clone(), peer })
    }

    /// Waits until everybody has left.
    pub(super) async fn empty(&self) {
        loop {
            let freed = self.freed.notified();
            if self.taken().is_empty() {
                return;
            }
            freed.await;
        }
    }

    fn taken(&self) -> MutexGuard<'_, HashMap<Peer, usize>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.seats.taken();
        if let Some(count) = taken.get_mut(&self.peer) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.peer);
            }
        }
        self.seats.freed.notify_one();
    }
}

/// What a request knows of its connection. A WebSocket keeps it, and with it the seat, until it ends.
#[derive(Clone, Debug, Default)]
pub struct Connection {
    /// Who is at the other end.
    pub peer: Peer,
    pub(super) door: Door,
    pub(super) _seat: Option<Arc<Seat>>,
}

/// By what kind of listener somebody came in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Door {
    /// Within this machine, so that nobody reads along.
    #[default]
    Plain,
    /// By TLS, at this address.
    Tls(IpAddr),
}

impl<S: Sync> FromRequestParts<S> for Connection {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(parts.extensions.get::<Self>().cloned().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_finds_a_seat_however_many_strangers_there_are() {
        let seats = Arc::new(Seats::default());
        let strangers: Vec<_> =
            (0..100_000).filter_map(|i| seats.take(Peer::User(1_000_000 + i % 1_000))).collect();
        assert_eq!(strangers.len(), SEATS_OF_OTHERS);
        let owner: Vec<_> = (0..1_000).filter_map(|_| seats.take(Peer::owner())).collect();
        assert_eq!(owner.len(), SEATS - SEATS_OF_OTHERS);
    }

    #[test]
    fn one_stranger_gets_few_seats_and_leaving_gives_them_back() {
        let seats = Arc::new(Seats::default());
        let mut taken: Vec<_> = (0..100).filter_map(|_| seats.take(Peer::Unknown)).collect();
        assert_eq!(taken.len(), SEATS_OF_ONE);
        taken.pop();
        assert!(seats.take(Peer::Unknown).is_some());
        taken.clear();
        assert!(seats.taken().is_empty());
    }
}
