//! There are only so many connections at once, and other users of the machine can never take all of them.

use super::pace::Budget;
use crate::access::doorkeeper::Origin;
use crate::access::hosts::is_address;
use crate::access::peer::{Peer, Visitor};
use crate::access::proxies::Proxies;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use std::collections::HashMap;
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// How many connections there may be in all.
pub(super) const SEATS: usize = 320;
/// How many more the owner may have by a private socket, so that `relay share` always comes through.
const PRIVATE_SEATS: usize = 8;
/// How many connections of users other than the owner may have proved no key yet.
const PENDING_OF_OTHERS: usize = 64;
/// How many may have proved one.
const PROVED_OF_OTHERS: usize = 96;
/// How many connections trusted proxies may have together, whoever else is there.
const SEATS_OF_PROXIES: usize = 96;
/// How many connections one user may have, or one who comes through a proxy.
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
    fn seats_of_one(self) -> usize {
        match self {
            Self::Owner => SEATS + PRIVATE_SEATS,
            Self::Proxy => SEATS_OF_PROXIES,
            Self::Guest | Self::Stranger => SEATS_OF_ONE,
        }
    }
}

/// The connections there are now.
#[derive(Debug, Default)]
pub(super) struct Seats {
    taken: Mutex<Taken>,
    freed: Notify,
    proxies: Arc<Proxies>,
    /// What guests may cost, by user.
    budgets: Mutex<HashMap<Peer, Budget>>,
}

#[derive(Debug, Default)]
struct Taken {
    by_peer: HashMap<Peer, Vec<Place>>,
    last: u64,
}

/// One connection, in the order in which they came.
#[derive(Debug)]
struct Place {
    number: u64,
    has_proved: bool,
    evict: watch::Sender<bool>,
}

/// One connection's place; dropping it is leaving.
#[derive(Debug)]
pub(super) struct Seat {
    seats: Arc<Seats>,
    peer: Peer,
    number: u64,
    evicted: watch::Receiver<bool>,
}

impl Seats {
    /// Seats in a house where these proxies speak for others.
    pub(super) fn new(proxies: Arc<Proxies>) -> Self {
        Self { proxies, ..Self::default() }
    }

    /// Takes a seat, if there is one for this user. Where too many have proved nothing, the user who has most
    /// of those gives one up: strangers can crowd each other, and nobody who comes with a key.
    pub(super) fn take(self: &Arc<Self>, peer: Peer, is_private: bool) -> Option<Seat> {
        let mut taken = self.taken();
        let (kind, of_peer) = (self.kind(peer), taken.of(peer));
        let all = self.count(&taken, |kind, _| kind != Kind::Guest);
        let has_room = of_peer < kind.seats_of_one()
            && match kind {
                // Who is behind a proxy sits where the proxy does already, and only must not be too many.
                Kind::Guest => true,
                Kind::Owner => all < if is_private { SEATS + PRIVATE_SEATS } else { SEATS },
                Kind::Proxy => {
                    all < SEATS && self.count(&taken, |kind, _| kind == Kind::Proxy) < SEATS_OF_PROXIES
                }
                Kind::Stranger => {
                    all < SEATS
                        && (self.strangers(&taken, false) < PENDING_OF_OTHERS
                            || self.evict(&mut taken, peer, false))
                }
            };
        if !has_room {
            return None;
        }
        taken.last += 1;
        let (number, (evict, evicted)) = (taken.last, watch::channel(false));
        taken.by_peer.entry(peer).or_default().push(Place { number, has_proved: false, evict });
        Some(Seat { seats: self.clone(), peer, number, evicted })
    }

    /// Ends the oldest connection of the stranger who has most, if that is more than `peer` would have with one more.
    fn evict(&self, taken: &mut Taken, peer: Peer, has_proved: bool) -> bool {
        let count = |places: &[Place]| places.iter().filter(|place| place.has_proved == has_proved).count();
        let own = taken.by_peer.get(&peer).map_or(0, |places| count(places));
        let strangers = taken.by_peer.iter_mut().filter(|(peer, _)| self.kind(**peer) == Kind::Stranger);
        let Some((_, places)) = strangers.max_by_key(|(_, places)| count(places)) else { return false };
        if count(places) <= own + 1 {
            return false;
        }
        let Some(oldest) = places.iter().position(|place| place.has_proved == has_proved) else {
            return false;
        };
        places.remove(oldest).evict.send_replace(true);
        true
    }

    /// A connection proved a key. Returns false if too many have.
    fn proved(&self, seat: &Seat) -> bool {
        let mut taken = self.taken();
        let is_full = self.kind(seat.peer) == Kind::Stranger
            && self.strangers(&taken, true) >= PROVED_OF_OTHERS
            && !self.evict(&mut taken, seat.peer, true);
        let place = taken.by_peer.get_mut(&seat.peer);
        let place = place.and_then(|places| places.iter_mut().find(|place| place.number == seat.number));
        match place {
            Some(place) if !is_full || place.has_proved => place.has_proved = true,
            _ => return false,
        }
        true
    }

    fn kind(&self, peer: Peer) -> Kind {
        match peer {
            Peer::Behind { .. } => Kind::Guest,
            _ if peer == Peer::owner() => Kind::Owner,
            _ if self.proxies.include(peer) => Kind::Proxy,
            _ => Kind::Stranger,
        }
    }

    fn strangers(&self, taken: &Taken, has_proved: bool) -> usize {
        self.count(taken, |kind, place| kind == Kind::Stranger && place.has_proved == has_proved)
    }

    fn count(&self, taken: &Taken, counts: impl Fn(Kind, &Place) -> bool) -> usize {
        let of_one = |(peer, places): (&Peer, &Vec<Place>)| {
            let kind = self.kind(*peer);
            places.iter().filter(|place| counts(kind, place)).count()
        };
        taken.by_peer.iter().map(of_one).sum()
    }

    /// The budget of a user, for as long as somebody holds it and until it is full again.
    fn budget(&self, peer: Peer) -> Budget {
        let mut budgets = self.budgets.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        // Who leaves and comes back at once still owes what was spent.
        budgets.retain(|_, budget| budget.is_shared() || !budget.is_full(now));
        budgets.entry(peer).or_default().clone()
    }

    /// Waits until everybody has left.
    pub(super) async fn empty(&self) {
        loop {
            let freed = self.freed.notified();
            if self.taken().by_peer.is_empty() {
                return;
            }
            freed.await;
        }
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    fn of(&self, peer: Peer) -> usize {
        self.by_peer.get(&peer).map_or(0, Vec::len)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.seats.taken();
        if let Some(places) = taken.by_peer.get_mut(&self.peer) {
            places.retain(|place| place.number != self.number);
            if places.is_empty() {
                taken.by_peer.remove(&self.peer);
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
    pub(super) fn for_guest(&self, ip: IpAddr, visitor: Visitor) -> Option<Self> {
        let peer = Peer::Behind { ip, visitor };
        let guest = match &self.seat {
            Some(seat) => Some(Arc::new(seat.seats.take(peer, false)?)),
            None => None,
        };
        Some(Self { peer, door: self.door, seat: self.seat.clone(), _guest: guest })
    }

    /// From where it comes, as far as limits on wrong keys go.
    pub(super) fn origin(&self) -> Origin {
        Origin { peer: self.peer, is_private: self.door == Door::Private && self.peer.uid().is_some() }
    }

    /// Takes note that a key was proved on it. Returns false if there are too many of those already.
    pub(super) fn has_proved(&self) -> bool {
        self.seat.as_ref().is_none_or(|seat| seat.seats.proved(seat))
    }

    /// What its user may cost as a guest, over all connections.
    pub(super) fn budget(&self) -> Budget {
        self.seat.as_ref().map_or_else(Budget::default, |seat| seat.seats.budget(self.peer))
    }

    /// Waits until the connection must make room for another user's.
    pub(super) async fn evicted(&self) {
        let Some(seat) = &self.seat else { return std::future::pending().await };
        let mut evicted = seat.evicted.clone();
        if evicted.wait_for(|evicted| *evicted).await.is_err() {
            // Nobody is left who could ask for it.
            std::future::pending().await
        }
    }
}

/// By what kind of listener somebody came in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Door {
    /// Within this machine, so that nobody reads along.
    #[default]
    Plain,
    /// By a socket file that nobody but the owner can open.
    Private,
    /// By TLS, at this address.
    Tls(IpAddr),
}

impl Door {
    pub(super) fn scheme(self) -> &'static str {
        match self {
            Self::Plain | Self::Private => "http",
            Self::Tls(_) => "https",
        }
    }

    /// Whether an authority names the very address of this door.
    pub(super) fn is_at(self, authority: &str) -> bool {
        match self {
            Self::Plain | Self::Private => false,
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

    fn stranger(number: u32) -> Peer {
        Peer::User(1_000_000 + number)
    }

    fn is_evicted(seat: &Seat) -> bool {
        *seat.evicted.borrow()
    }

    #[test]
    fn the_owner_finds_a_seat_however_many_strangers_there_are() {
        let seats = Arc::new(Seats::default());
        let mut strangers: Vec<_> =
            (0..100_000).filter_map(|i| seats.take(stranger(i % 1_000), false)).collect();
        strangers.retain(|seat| !is_evicted(seat));
        assert_eq!(strangers.len(), PENDING_OF_OTHERS);
        let owner: Vec<_> = (0..1_000).filter_map(|_| seats.take(Peer::owner(), false)).collect();
        assert_eq!(owner.len(), SEATS - PENDING_OF_OTHERS);
        let private: Vec<_> = (0..1_000).filter_map(|_| seats.take(Peer::owner(), true)).collect();
        assert_eq!(private.len(), PRIVATE_SEATS, "`relay share` comes through");
    }

    #[test]
    fn strangers_who_take_all_they_can_keep_no_guest_out() {
        let seats = Arc::new(Seats::default());
        let mut crowd: Vec<_> = (0..4 * 32).filter_map(|i| seats.take(stranger(i % 4), false)).collect();
        for guest in 100..130 {
            let seat = seats.take(stranger(guest), false).expect("room for a guest");
            // The strangers try again at once.
            crowd.extend((0..4 * 32).filter_map(|i| seats.take(stranger(i % 4), false)));
            assert!(!is_evicted(&seat), "guest {guest} is crowded out");
            assert!(seats.proved(&seat));
            crowd.push(seat);
        }
        let guests = crowd.iter().filter(|seat| seat.peer.uid() >= Some(1_000_100));
        assert!(guests.clone().count() == 30 && guests.clone().all(|seat| !is_evicted(seat)));
    }

    #[test]
    fn guests_with_many_tabs_make_room_for_one_with_few() {
        let seats = Arc::new(Seats::default());
        let mut tabs = Vec::new();
        for i in 0..PROVED_OF_OTHERS as u32 {
            let seat = seats.take(stranger(i % 3), false).expect("a seat");
            assert!(seats.proved(&seat));
            tabs.push(seat);
        }
        let more = seats.take(stranger(0), false);
        assert!(more.is_none(), "one of those who have most gets no more");
        let other = seats.take(stranger(9), false).expect("a seat");
        assert!(seats.proved(&other) && !is_evicted(&other));
        assert_eq!(tabs.iter().filter(|seat| is_evicted(seat)).count(), 1);
        let evicted = tabs.iter().find(|seat| is_evicted(seat)).expect("one made room");
        assert!(!seats.proved(evicted));
    }

    #[test]
    fn t27_a_proxy_has_seats_of_its_own_and_one_behind_it_few_of_them() {
        use crate::access::proxies::Proxy;
        let proxies = Proxies::new(vec![Proxy::User(1_000_033)]);
        let seats = Arc::new(Seats::new(Arc::new(proxies)));
        let _strangers: Vec<_> = (0..1_000).filter_map(|i| seats.take(stranger(100 + i), false)).collect();
        let mut of_proxy: Vec<_> = (0..1_000).filter_map(|_| seats.take(stranger(33), false)).collect();
        assert_eq!(of_proxy.len(), SEATS_OF_PROXIES);
        let owner = (0..1_000).map_while(|_| seats.take(Peer::owner(), false)).collect::<Vec<_>>().len();
        assert_eq!(owner, SEATS - SEATS_OF_PROXIES - PENDING_OF_OTHERS);
        let connection = Connection::new(stranger(33), Door::Plain, of_proxy.remove(0));
        let (one, other) = ("203.0.113.9".parse().unwrap(), "203.0.113.10".parse().unwrap());
        let for_guest = |ip| connection.for_guest(ip, Visitor::Unnamed);
        let guests: Vec<_> = (0..100).filter_map(|_| for_guest(one)).collect();
        assert_eq!(guests.len(), SEATS_OF_ONE);
        assert!(for_guest(other).is_some());
        drop(guests);
        assert!(for_guest(one).is_some());
    }

    #[test]
    fn one_stranger_gets_few_seats_and_leaving_gives_them_back() {
        let seats = Arc::new(Seats::default());
        let mut taken: Vec<_> = (0..100).filter_map(|_| seats.take(Peer::Unknown, false)).collect();
        assert_eq!(taken.len(), SEATS_OF_ONE);
        taken.pop();
        assert!(seats.take(Peer::Unknown, false).is_some());
        taken.clear();
        assert!(seats.taken().by_peer.is_empty());
    }
}
