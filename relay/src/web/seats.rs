//! There are only so many connections at once, and other users of the machine can never take all of them.

use crate::access::hosts::is_address;
use crate::access::peer::Peer;
use crate::access::proxies::Proxies;
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
/// How many of them trusted proxies may have together, whoever else is there.
const SEATS_OF_PROXIES: usize = 96;
/// How many of them one user may have, or one who comes through a proxy.
const SEATS_OF_ONE: usize = 32;

/// Who may have how many seats.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Owner,
    Proxy,
    Guest,
    Stranger,
}

impl Kind {
    fn seats(self) -> usize {
        match self {
            Self::Owner | Self::Guest => SEATS,
            Self::Proxy => SEATS_OF_PROXIES,
            Self::Stranger => SEATS_OF_OTHERS,
        }
    }

    fn seats_of_one(self) -> usize {
        match self {
            Self::Owner => SEATS,
            Self::Proxy => SEATS_OF_PROXIES,
            Self::Guest | Self::Stranger => SEATS_OF_ONE,
        }
    }
}

/// The connections there are now.
#[derive(Debug, Default)]
pub(super) struct Seats {
    taken: Mutex<HashMap<Peer, usize>>,
    freed: Notify,
    proxies: Arc<Proxies>,
}

/// One connection's place; dropping it is leaving.
#[derive(Debug)]
pub(super) struct Seat {
    seats: Arc<Seats>,
    peer: Peer,
}

impl Seats {
    /// Seats in a house where these proxies speak for others.
    pub(super) fn new(proxies: Arc<Proxies>) -> Self {
        Self { proxies, ..Self::default() }
    }

    /// Takes a seat, if there is one for this user.
    pub(super) fn take(self: &Arc<Self>, peer: Peer) -> Option<Seat> {
        let mut taken = self.taken();
        let has_room = match self.kind(peer) {
            // Who is behind a proxy sits where the proxy does already, and only must not be too many.
            Kind::Guest => true,
            kind => {
                self.sum(&taken, |_| true) < SEATS && self.sum(&taken, |other| other == kind) < kind.seats()
            }
        };
        let of_peer = taken.entry(peer).or_default();
        if !has_room || *of_peer >= self.kind(peer).seats_of_one() {
            if *of_peer == 0 {
                taken.remove(&peer);
            }
            return None;
        }
        *of_peer += 1;
        Some(Seat { seats: self.clone(), peer })
    }

    fn kind(&self, peer: Peer) -> Kind {
        match peer {
            Peer::Behind(_) => Kind::Guest,
            _ if peer == Peer::owner() => Kind::Owner,
            _ if self.proxies.include(peer) => Kind::Proxy,
            _ => Kind::Stranger,
        }
    }

    /// Seats that are taken by who is of a kind; a proxy's guests have none of their own.
    fn sum(&self, taken: &HashMap<Peer, usize>, counts: impl Fn(Kind) -> bool) -> usize {
        let counted = taken.iter().filter(|(peer, _)| match self.kind(**peer) {
            Kind::Guest => false,
            kind => counts(kind),
        });
        counted.map(|(_, count)| count).sum()
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
    pub(super) seat: Option<Arc<Seat>>,
    _guest: Option<Arc<Seat>>,
}

impl Connection {
    /// Somebody who came in and has a seat.
    pub(super) fn new(peer: Peer, door: Door, seat: Seat) -> Self {
        Self { peer, door, seat: Some(Arc::new(seat)), _guest: None }
    }

    /// The same for one of those for whom a proxy speaks; `None` if that one has too many already.
    pub(super) fn for_guest(&self, ip: IpAddr) -> Option<Self> {
        let peer = Peer::Behind(ip);
        let guest = match &self.seat {
            Some(seat) => Some(Arc::new(seat.seats.take(peer)?)),
            None => None,
        };
        Some(Self { peer, door: self.door, seat: self.seat.clone(), _guest: guest })
    }
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

impl Door {
    pub(super) fn scheme(self) -> &'static str {
        match self {
            Self::Plain => "http",
            Self::Tls(_) => "https",
        }
    }

    /// Whether an authority names the very address of this door.
    pub(super) fn is_at(self, authority: &str) -> bool {
        match self {
            Self::Plain => false,
            Self::Tls(ip) => is_address(authority, ip),
        }
    }
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
    fn t27_a_proxy_has_seats_of_its_own_and_one_behind_it_few_of_them() {
        use crate::access::proxies::Proxy;
        let proxies = Proxies::new(vec![Proxy::User(1_000_033)]);
        let seats = Arc::new(Seats::new(Arc::new(proxies)));
        let _strangers: Vec<_> = (0..1_000).filter_map(|i| seats.take(Peer::User(2_000_000 + i))).collect();
        let mut of_proxy: Vec<_> = (0..1_000).filter_map(|_| seats.take(Peer::User(1_000_033))).collect();
        assert_eq!(of_proxy.len(), SEATS_OF_PROXIES);
        let owner = (0..1_000).map_while(|_| seats.take(Peer::owner())).collect::<Vec<_>>().len();
        assert_eq!(owner, SEATS - SEATS_OF_PROXIES - SEATS_OF_OTHERS);
        let connection = Connection::new(Peer::User(1_000_033), Door::Plain, of_proxy.remove(0));
        let (one, other) = ("203.0.113.9".parse().unwrap(), "203.0.113.10".parse().unwrap());
        let guests: Vec<_> = (0..100).filter_map(|_| connection.for_guest(one)).collect();
        assert_eq!(guests.len(), SEATS_OF_ONE);
        assert!(connection.for_guest(other).is_some());
        drop(guests);
        assert!(connection.for_guest(one).is_some());
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
