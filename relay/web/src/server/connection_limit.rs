//! Limits concurrent connections so that other users of the machine can never exhaust them.

use super::MAX_LIFETIME;
use crate::pacing::CpuBudget;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use nodeglass_access::hosts::is_address;
use nodeglass_access::peer::{Peer, ProxiedUser};
use nodeglass_access::proxies::Proxies;
use nodeglass_access::subordinate_uids::SubordinateUids;
use nodeglass_access::user;
use nodeglass_auth::authenticator::Origin;
use nodeglass_protocol::Text;
use nodeglass_protocol::audit::ViewerIdentity;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until};

/// Maximum number of connections.
pub(crate) const MAX_CONNECTIONS: usize = 320;
/// Additional connections of the owner over a private socket, so that `relay share` always works.
const EXTRA_PRIVATE_CONNECTIONS: usize = 8;
/// Maximum number of unauthenticated connections of other users.
const MAX_PENDING_OTHERS: usize = 64;
/// Maximum number of authenticated connections of other users.
const MAX_AUTHENTICATED_OTHERS: usize = 96;
/// Maximum number of connections of all trusted proxies together that serve a client.
const MAX_PROXIED: usize = 96;
/// Maximum number of their connections, also of those that wait for a request, whose client is not known before it.
const MAX_PROXY_CONNECTIONS: usize = MAX_PROXIED + 16;
/// Maximum number of connections of one other user, or of one client behind a proxy.
const MAX_PER_PEER: usize = 32;

/// Classes of peers with different limits.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PeerClass {
    Owner,
    Proxy,
    Proxied,
    Other,
}

impl PeerClass {
    fn max_per_peer(self) -> usize {
        match self {
            Self::Owner => MAX_CONNECTIONS + EXTRA_PRIVATE_CONNECTIONS,
            Self::Proxy => MAX_PROXY_CONNECTIONS,
            Self::Proxied | Self::Other => MAX_PER_PEER,
        }
    }
}

/// Counts the current connections.
#[derive(Debug, Default)]
pub(crate) struct ConnectionLimiter {
    state: Mutex<LimiterState>,
    released: Notify,
    proxies: Arc<Proxies>,
    subordinates: SubordinateUids,
    /// CPU budgets of guests, by user.
    budgets: Mutex<HashMap<Peer, CpuBudget>>,
}

#[derive(Debug, Default)]
struct LimiterState {
    by_peer: HashMap<Peer, Vec<Slot>>,
    last: u64,
}

/// A current connection; ordered by age.
#[derive(Debug)]
struct Slot {
    number: u64,
    is_authenticated: bool,
    evict: watch::Sender<bool>,
    /// The connection of the proxy that serves this client, and its number.
    carrier: Option<(Peer, u64)>,
}

/// A connection's permit, released on drop.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    limiter: Arc<ConnectionLimiter>,
    peer: Peer,
    number: u64,
    evicted: watch::Receiver<bool>,
}

impl ConnectionLimiter {
    /// A limiter that knows the trusted proxies, and which uids are the same user's.
    pub(crate) fn new(proxies: Arc<Proxies>, subordinates: SubordinateUids) -> Self {
        Self { proxies, subordinates, ..Self::default() }
    }

    /// Acquires a permit, if this peer may have one. At the limit of unauthenticated connections it
    /// evicts one of the user who has most of those, so that other users can displace each other but not
    /// authenticated clients.
    pub(crate) fn acquire(self: &Arc<Self>, peer: Peer, is_private: bool) -> Option<ConnectionPermit> {
        let peer = self.limited(peer);
        let mut state = self.state();
        let class = self.class(peer);
        let all = self.count(&state, |class, _| class != PeerClass::Proxied);
        let is_allowed = state.of(peer) < class.max_per_peer()
            && match class {
                PeerClass::Owner => {
                    all < if is_private {
                        MAX_CONNECTIONS + EXTRA_PRIVATE_CONNECTIONS
                    } else {
                        MAX_CONNECTIONS
                    }
                }
                PeerClass::Proxy => {
                    all < MAX_CONNECTIONS
                        && self.count(&state, |class, _| class == PeerClass::Proxy) < MAX_PROXY_CONNECTIONS
                }
                PeerClass::Other => {
                    all < MAX_CONNECTIONS
                        && (self.count_others(&state, false) < MAX_PENDING_OTHERS
                            || self.evict(&mut state, peer, false))
                }
                // Their connections are the proxy's.
                PeerClass::Proxied => false,
            };
        is_allowed.then(|| self.permit(&mut state, peer, None))
    }

    /// Acquires a permit for the client that the connection of a proxy serves. When all are taken, the client who has
    /// most loses one.
    fn acquire_proxied(self: &Arc<Self>, peer: Peer, carrier: &ConnectionPermit) -> Option<ConnectionPermit> {
        let peer = self.limited(peer);
        let mut state = self.state();
        let count = self.count(&state, |class, _| class == PeerClass::Proxied);
        let is_allowed = state.of(peer) < PeerClass::Proxied.max_per_peer()
            && (count < MAX_PROXIED || self.evict_proxied(&mut state, peer));
        is_allowed.then(|| self.permit(&mut state, peer, Some((carrier.peer, carrier.number))))
    }

    fn permit(
        self: &Arc<Self>,
        state: &mut LimiterState,
        peer: Peer,
        carrier: Option<(Peer, u64)>,
    ) -> ConnectionPermit {
        state.last += 1;
        let (number, (evict, evicted)) = (state.last, watch::channel(false));
        let slot = Slot { number, is_authenticated: false, evict, carrier };
        state.by_peer.entry(peer).or_default().push(slot);
        ConnectionPermit { limiter: self.clone(), peer, number, evicted }
    }

    /// The peer by which a connection is limited: one for all subordinate uids of a user, and one for all addresses of a
    /// person.
    fn limited(&self, peer: Peer) -> Peer {
        match peer {
            Peer::User(uid) if self.class(peer) == PeerClass::Other => {
                let representative = Peer::User(self.subordinates.representative(uid));
                if self.class(representative) == PeerClass::Other { representative } else { peer }
            }
            Peer::Behind { visitor: visitor @ ProxiedUser::Person(_), .. } => {
                Peer::Behind { ip: Ipv4Addr::UNSPECIFIED.into(), visitor }
            }
            other => other,
        }
    }

    /// Evicts the oldest connection of the other user with the most, if those are more than `peer` would
    /// have with one more. Among unauthenticated connections an equal number suffices: they last for a moment, and a person
    /// with many uids may have one of each.
    fn evict(&self, state: &mut LimiterState, peer: Peer, is_authenticated: bool) -> bool {
        let count =
            |slots: &[Slot]| slots.iter().filter(|slot| slot.is_authenticated == is_authenticated).count();
        let own = state.by_peer.get(&peer).map_or(0, |slots| count(slots));
        let others = state.by_peer.iter_mut().filter(|(peer, _)| self.class(**peer) == PeerClass::Other);
        let most = others.max_by_key(|(_, slots)| {
            let mut numbers =
                slots.iter().filter(|slot| slot.is_authenticated == is_authenticated).map(|slot| slot.number);
            (count(slots), Reverse(numbers.next()))
        });
        let Some((most, slots)) = most else { return false };
        if count(slots) <= own + usize::from(is_authenticated) {
            return false;
        }
        let Some(oldest) = slots.iter().position(|slot| slot.is_authenticated == is_authenticated) else {
            return false;
        };
        slots.remove(oldest).evict.send_replace(true);
        if slots.is_empty() {
            let most = *most;
            state.by_peer.remove(&most);
        }
        true
    }

    /// Evicts the oldest connection of the client behind a proxy who has most, if that is more than `peer` would have with
    /// one more.
    fn evict_proxied(&self, state: &mut LimiterState, peer: Peer) -> bool {
        let own = state.of(peer);
        let clients = state.by_peer.iter_mut().filter(|(peer, _)| self.class(**peer) == PeerClass::Proxied);
        let Some((_, slots)) = clients.max_by_key(|(_, slots)| slots.len()) else { return false };
        if slots.len() <= own + 1 {
            return false;
        }
        let Some((proxy, number)) = slots.remove(0).carrier else { return false };
        let carriers = state.by_peer.get_mut(&proxy);
        if let Some(carriers) = carriers
            && let Some(at) = carriers.iter().position(|slot| slot.number == number)
        {
            carriers.remove(at).evict.send_replace(true);
        }
        true
    }

    /// Marks a connection as authenticated. Returns false if too many are.
    fn mark_authenticated(&self, permit: &ConnectionPermit) -> bool {
        let mut state = self.state();
        let is_full = self.class(permit.peer) == PeerClass::Other
            && self.count_others(&state, true) >= MAX_AUTHENTICATED_OTHERS
            && !self.evict(&mut state, permit.peer, true);
        let slot = state.by_peer.get_mut(&permit.peer);
        let slot = slot.and_then(|slots| slots.iter_mut().find(|slot| slot.number == permit.number));
        match slot {
            Some(slot) if !is_full || slot.is_authenticated => slot.is_authenticated = true,
            _ => return false,
        }
        true
    }

    fn class(&self, peer: Peer) -> PeerClass {
        match peer {
            Peer::Behind { .. } => PeerClass::Proxied,
            _ if peer == Peer::owner() => PeerClass::Owner,
            _ if self.proxies.include(peer) => PeerClass::Proxy,
            _ => PeerClass::Other,
        }
    }

    fn count_others(&self, state: &LimiterState, is_authenticated: bool) -> usize {
        self.count(state, |class, slot| {
            class == PeerClass::Other && slot.is_authenticated == is_authenticated
        })
    }

    fn count(&self, state: &LimiterState, counts: impl Fn(PeerClass, &Slot) -> bool) -> usize {
        let count_one = |(peer, slots): (&Peer, &Vec<Slot>)| {
            let class = self.class(*peer);
            slots.iter().filter(|slot| counts(class, slot)).count()
        };
        state.by_peer.iter().map(count_one).sum()
    }

    /// The budget of a user; kept while a connection holds it and until it is refilled.
    fn budget(&self, peer: Peer) -> CpuBudget {
        let peer = self.limited(peer);
        let mut budgets = self.budgets.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        // A user who reconnects at once keeps the spent budget.
        budgets.retain(|_, budget| budget.is_shared() || !budget.is_full(now));
        budgets.entry(peer).or_default().clone()
    }

    /// Waits until all permits are released.
    pub(crate) async fn wait_idle(&self) {
        loop {
            let released = self.released.notified();
            if self.state().by_peer.is_empty() {
                return;
            }
            released.await;
        }
    }

    fn state(&self) -> MutexGuard<'_, LimiterState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LimiterState {
    fn of(&self, peer: Peer) -> usize {
        self.by_peer.get(&peer).map_or(0, Vec::len)
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut state = self.limiter.state();
        if let Some(slots) = state.by_peer.get_mut(&self.peer) {
            slots.retain(|slot| slot.number != self.number);
            if slots.is_empty() {
                state.by_peer.remove(&self.peer);
            }
        }
        self.limiter.released.notify_one();
    }
}

/// Information about the connection of a request. A WebSocket keeps it, and thereby its permit, until it closes.
#[derive(Clone, Debug, Default)]
pub struct Connection {
    /// The user or machine at the other end.
    pub peer: Peer,
    pub(crate) listener: ListenerKind,
    pub(crate) permit: Option<Arc<ConnectionPermit>>,
    /// When it stops serving requests; never, if the server does not serve it.
    drains_at: Option<Instant>,
    _proxied: Option<Arc<ConnectionPermit>>,
    /// The user that a trusted proxy names.
    forwarded_user: Option<Text>,
}

impl Connection {
    /// A connection that acquired a permit.
    pub(crate) fn new(peer: Peer, listener: ListenerKind, permit: ConnectionPermit) -> Self {
        let (permit, drains_at) = (Some(Arc::new(permit)), Some(Instant::now() + MAX_LIFETIME));
        Self { peer, listener, permit, drains_at, _proxied: None, forwarded_user: None }
    }

    /// The connection of a client behind a proxy, which names its user or not; `None` if that client has too many.
    pub(crate) fn for_proxied(&self, ip: IpAddr, visitor: ProxiedUser, user: Option<&str>) -> Option<Self> {
        let peer = Peer::Behind { ip, visitor };
        let guest = match &self.permit {
            Some(permit) => Some(Arc::new(permit.limiter.acquire_proxied(peer, permit)?)),
            None => None,
        };
        Some(Self {
            peer,
            listener: self.listener,
            permit: self.permit.clone(),
            drains_at: self.drains_at,
            _proxied: guest,
            forwarded_user: user.map(Text::new),
        })
    }

    /// Returns whether it is of a proxy that runs as the owner and authenticates the owner, so that no key is needed.
    pub(crate) fn is_owners(&self) -> bool {
        self.listener == ListenerKind::Owner && self.peer == Peer::owner()
    }

    /// Returns the peer, for the audit log.
    pub(crate) fn identity(&self) -> ViewerIdentity {
        match self.peer {
            Peer::Unknown => ViewerIdentity::default(),
            Peer::User(uid) => {
                let user = user::name_of(uid).unwrap_or_else(|| Text::new(format!("uid {uid}")));
                ViewerIdentity { user: Some(user), ..ViewerIdentity::default() }
            }
            Peer::Remote(ip) => {
                ViewerIdentity { address: Some(Text::new(ip.to_string())), ..ViewerIdentity::default() }
            }
            Peer::Behind { ip, .. } => ViewerIdentity {
                user: self.forwarded_user.clone(),
                address: (!ip.is_unspecified()).then(|| Text::new(ip.to_string())),
                by_proxy: true,
            },
        }
    }

    /// The key by which failed attempts are counted.
    pub(crate) fn origin(&self) -> Origin {
        Origin { peer: self.peer, is_private: self.listener.is_private() && self.peer.uid().is_some() }
    }

    /// Marks the connection as authenticated. Returns false if too many are.
    pub(crate) fn mark_authenticated(&self) -> bool {
        self.permit.as_ref().is_none_or(|permit| permit.limiter.mark_authenticated(permit))
    }

    /// The CPU budget of its user as a guest.
    pub(crate) fn budget(&self) -> CpuBudget {
        self.permit.as_ref().map_or_else(CpuBudget::default, |permit| permit.limiter.budget(self.peer))
    }

    /// Waits until the connection ends after the response in flight. Cancel safe.
    pub(crate) async fn drains(&self) {
        match self.drains_at {
            Some(at) => sleep_until(at).await,
            None => std::future::pending().await,
        }
    }

    /// Waits until the connection is evicted.
    pub(crate) async fn evicted(&self) {
        let Some(permit) = &self.permit else { return std::future::pending().await };
        let mut evicted = permit.evicted.clone();
        if evicted.wait_for(|evicted| *evicted).await.is_err() {
            // No other connection could evict it.
            std::future::pending().await
        }
    }
}

/// The kind of listener that accepted a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ListenerKind {
    /// Plain text within this machine.
    #[default]
    Plain,
    /// A socket file that only the owner can open.
    Private,
    /// A socket file for a proxy of the owner, through which the owner needs no key.
    Owner,
    /// TLS on this address.
    Tls(IpAddr),
}

impl ListenerKind {
    pub(crate) fn scheme(self) -> &'static str {
        match self {
            Self::Plain | Self::Private | Self::Owner => "http",
            Self::Tls(_) => "https",
        }
    }

    /// Returns whether only the owner can open its socket file.
    pub(crate) fn is_private(self) -> bool {
        matches!(self, Self::Private | Self::Owner)
    }

    /// Returns whether an authority names the address of this listener. The proxy of the owner has checked it against its
    /// own names, which the relay does not know.
    pub(crate) fn is_at(self, authority: &str) -> bool {
        match self {
            Self::Owner => true,
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

    fn other_user(number: u32) -> Peer {
        Peer::User(1_000_000 + number)
    }

    fn is_evicted(permit: &ConnectionPermit) -> bool {
        *permit.evicted.borrow()
    }

    #[test]
    fn other_users_cannot_exhaust_the_owners_connections() {
        let limiter = Arc::new(ConnectionLimiter::default());
        let mut others: Vec<_> =
            (0..100_000).filter_map(|i| limiter.acquire(other_user(i % 1_000), false)).collect();
        others.retain(|permit| !is_evicted(permit));
        assert_eq!(others.len(), MAX_PENDING_OTHERS);
        let owner: Vec<_> = (0..1_000).filter_map(|_| limiter.acquire(Peer::owner(), false)).collect();
        assert_eq!(owner.len(), MAX_CONNECTIONS - MAX_PENDING_OTHERS);
        let private: Vec<_> = (0..1_000).filter_map(|_| limiter.acquire(Peer::owner(), true)).collect();
        assert_eq!(private.len(), EXTRA_PRIVATE_CONNECTIONS, "`relay share` comes through");
    }

    #[test]
    fn pending_connections_of_others_do_not_lock_out_guests() {
        let limiter = Arc::new(ConnectionLimiter::default());
        let mut permits: Vec<_> =
            (0..4 * 32).filter_map(|i| limiter.acquire(other_user(i % 4), false)).collect();
        for guest in 100..130 {
            let permit = limiter.acquire(other_user(guest), false).expect("a permit for a guest");
            // The other users reconnect at once.
            permits.extend((0..4 * 32).filter_map(|i| limiter.acquire(other_user(i % 4), false)));
            assert!(!is_evicted(&permit), "guest {guest} was evicted");
            assert!(limiter.mark_authenticated(&permit));
            permits.push(permit);
        }
        let guests = permits.iter().filter(|permit| permit.peer.uid() >= Some(1_000_100));
        assert!(guests.clone().count() == 30 && guests.clone().all(|permit| !is_evicted(permit)));
    }

    #[test]
    fn guests_with_many_connections_are_evicted_for_one_with_few() {
        let limiter = Arc::new(ConnectionLimiter::default());
        let mut tabs = Vec::new();
        for i in 0..MAX_AUTHENTICATED_OTHERS as u32 {
            let permit = limiter.acquire(other_user(i % 3), false).expect("a permit");
            assert!(limiter.mark_authenticated(&permit));
            tabs.push(permit);
        }
        let more = limiter.acquire(other_user(0), false);
        assert!(more.is_none(), "one of those who have most gets no more");
        let other = limiter.acquire(other_user(9), false).expect("a permit");
        assert!(limiter.mark_authenticated(&other) && !is_evicted(&other));
        assert_eq!(tabs.iter().filter(|permit| is_evicted(permit)).count(), 1);
        let evicted = tabs.iter().find(|permit| is_evicted(permit)).expect("one made room");
        assert!(!limiter.mark_authenticated(evicted));
    }

    #[test]
    fn t27_a_proxy_has_its_own_limit_and_each_proxied_client_a_smaller_one() {
        use nodeglass_access::proxies::Proxy;
        let proxies = Proxies::new(vec![Proxy::User(1_000_033)]);
        let limiter = Arc::new(ConnectionLimiter::new(Arc::new(proxies), SubordinateUids::default()));
        let _others: Vec<_> =
            (0..1_000).filter_map(|i| limiter.acquire(other_user(100 + i), false)).collect();
        let mut proxy_permits: Vec<_> =
            (0..1_000).filter_map(|_| limiter.acquire(other_user(33), false)).collect();
        assert_eq!(proxy_permits.len(), MAX_PROXY_CONNECTIONS);
        let owner = (0..1_000).map_while(|_| limiter.acquire(Peer::owner(), false)).collect::<Vec<_>>().len();
        assert_eq!(owner, MAX_CONNECTIONS - MAX_PROXY_CONNECTIONS - MAX_PENDING_OTHERS);
        let connection = Connection::new(other_user(33), ListenerKind::Plain, proxy_permits.remove(0));
        let (one, other) = ("203.0.113.9".parse().unwrap(), "203.0.113.10".parse().unwrap());
        let for_proxied = |ip| connection.for_proxied(ip, ProxiedUser::Unnamed, None);
        let guests: Vec<_> = (0..100).filter_map(|_| for_proxied(one)).collect();
        assert_eq!(guests.len(), MAX_PER_PEER);
        assert!(for_proxied(other).is_some());
        drop(guests);
        assert!(for_proxied(one).is_some());
    }

    /// By `newuidmap`, anyone may act with the thousands of uids that `/etc/subuid` grants to each user.
    #[tokio::test]
    async fn t19_all_subordinate_uids_of_a_user_have_one_limit_and_one_budget() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("subuid");
        std::fs::write(&path, "mallory:2000000:65536\n").unwrap();
        let limiter = Arc::new(ConnectionLimiter::new(Arc::default(), SubordinateUids::at(path)));
        let permits: Vec<_> =
            (0..1_000).filter_map(|i| limiter.acquire(Peer::User(2_000_000 + i), false)).collect();
        assert_eq!(permits.len(), MAX_PER_PEER);
        assert!(permits.iter().all(|permit| limiter.mark_authenticated(permit)));
        let (one, another) = (Peer::User(2_000_001), Peer::User(2_000_002));
        limiter.budget(one).charge(std::time::Duration::from_secs(60), 0);
        assert!(limiter.budget(another).next_at(Instant::now()) > Instant::now());
        assert!(limiter.budget(other_user(1)).next_at(Instant::now()) <= Instant::now());
        let guest = limiter.acquire(other_user(1), false).expect("a permit");
        assert!(limiter.mark_authenticated(&guest));
    }

    #[test]
    fn t19_as_many_users_as_there_are_places_with_one_each_keep_nobody_out() {
        let limiter = Arc::new(ConnectionLimiter::default());
        let silent: Vec<_> =
            (0..MAX_PENDING_OTHERS as u32).filter_map(|i| limiter.acquire(other_user(i), false)).collect();
        assert_eq!(silent.len(), MAX_PENDING_OTHERS);
        let guest = limiter.acquire(other_user(1_000), false).expect("a permit for a guest");
        assert!(silent.iter().map(is_evicted).eq((0..silent.len()).map(|i| i == 0)), "the oldest made room");
        // Of those who reconnect, each displaces an older one.
        let _again: Vec<_> = (0..50).filter_map(|i| limiter.acquire(other_user(2_000 + i), false)).collect();
        assert!(!is_evicted(&guest) && limiter.mark_authenticated(&guest));
    }

    #[test]
    fn t27_one_person_takes_the_places_of_no_other_behind_a_proxy_from_however_many_addresses() {
        use nodeglass_access::proxies::Proxy;
        let proxies = Arc::new(Proxies::new(vec![Proxy::User(1_000_033)]));
        let limiter = Arc::new(ConnectionLimiter::new(proxies, SubordinateUids::default()));
        let visit = |person: u32, address: u32| {
            let carrier =
                Connection::new(other_user(33), ListenerKind::Plain, limiter.acquire(other_user(33), false)?);
            let ip = Ipv4Addr::from(0xcb00_7100 + address).into();
            carrier.for_proxied(ip, ProxiedUser::Person(person), None)
        };
        let mallorys: Vec<_> = (0..200).filter_map(|i| visit(1, i)).collect();
        assert_eq!(mallorys.len(), MAX_PER_PEER);
        mallorys[0].budget().charge(std::time::Duration::from_secs(60), 0);
        assert!(mallorys[1].budget().next_at(Instant::now()) > Instant::now(), "a budget for each address");
        let accomplices: Vec<_> = (0..200).filter_map(|i| visit(2 + i % 2, i)).collect();
        assert_eq!(mallorys.len() + accomplices.len(), MAX_PROXIED);
        let others: Vec<_> = (0..40).filter_map(|i| visit(100 + i, 7)).collect();
        assert_eq!(others.len(), 40, "everybody else is served");
        let is_ended = |of: &Connection| of.permit.as_ref().is_some_and(|permit| is_evicted(permit));
        let ended = mallorys.iter().chain(&accomplices).filter(|of| is_ended(of)).count();
        assert_eq!((ended, others.iter().filter(|of| is_ended(of)).count()), (40, 0));
        assert!(is_ended(&mallorys[0]) && !is_ended(&mallorys[31]), "the oldest end first");
    }

    #[test]
    fn a_peer_is_limited_and_a_dropped_permit_is_reusable() {
        let limiter = Arc::new(ConnectionLimiter::default());
        let mut state: Vec<_> = (0..100).filter_map(|_| limiter.acquire(Peer::Unknown, false)).collect();
        assert_eq!(state.len(), MAX_PER_PEER);
        state.pop();
        assert!(limiter.acquire(Peer::Unknown, false).is_some());
        state.clear();
        assert!(limiter.state().by_peer.is_empty());
    }
}
