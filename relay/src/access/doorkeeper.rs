//! The doorkeeper lets in whoever proves the key, and knows nothing of sockets.

pub use super::attempts::{MAX_FAILURES, MAX_WAITING, MAX_WAITING_OF_OWNER, Origin, PAUSE_MS, RateLimited};
pub use super::tab_links::UNUSED_MS;

use super::attempts::Attempts;
use super::peer::{Peer, Visitor};
use super::tab_links::TabLinks;
use super::trust::Trust;
use super::{RandomError, user};
use crate::clock::Clock;
use crate::share::{Admission, Ending, Shares, Standing};
use nodeglass_protocol::handshake::{Code, Exchange, Key, Nonce, Verifier};
use nodeglass_protocol::live::{Farewell, KeyId, ServerMessage};
use nodeglass_protocol::share::{ShareId, Ticket};
use nodeglass_protocol::version::{LIVE_WIRE, VersionRange};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How long the first two messages of a page may take together, in ms.
pub const PATIENCE_MS: u64 = 5_000;
/// Largest of the first messages, in bytes.
pub const MAX_FIRST_MESSAGE: usize = 1024;

/// Knows the owner's key, the shares, and who has tried which.
#[derive(Debug)]
pub struct Doorkeeper {
    key: Key,
    verifier: Verifier,
    trust: Trust,
    shares: Arc<Shares>,
    tabs: Mutex<TabLinks>,
    attempts: Mutex<Attempts>,
}

/// Why a `Bearer` is not let in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthError {
    /// No key, or not the right one.
    WrongKey,
    /// The right one, but not for this user, or not any more.
    Forbidden(Farewell),
    /// Not even asked.
    RateLimited(RateLimited),
}

impl Doorkeeper {
    /// A doorkeeper for the owner's key, which is taken from whom `trust` says, and for these shares.
    pub fn new(key: Key, trust: Trust, shares: Arc<Shares>) -> Self {
        Self {
            verifier: key.verifier(),
            key,
            trust,
            shares,
            tabs: Mutex::default(),
            attempts: Mutex::default(),
        }
    }

    /// Somebody knocks and may now show a proof.
    ///
    /// # Errors
    /// [`RateLimited::TooMany`] if this user has too many tries open.
    pub fn knock(self: &Arc<Self>, origin: impl Into<Origin>) -> Result<Caller, RateLimited> {
        let origin = origin.into();
        self.attempts().arrive(origin)?;
        Ok(Caller { door: self.clone(), origin })
    }

    /// Opens a link for one tab.
    ///
    /// # Errors
    /// [`RandomError`]; there is no safe link then.
    pub fn open_tab_link(&self, now_ms: u64) -> Result<Ticket, RandomError> {
        let ticket = Ticket::new(super::new_share_id()?, super::new_key()?);
        self.tabs().open(ticket.id.clone(), ticket.proof(), now_ms);
        Ok(ticket)
    }

    /// Takes note that the tab of a link is connected for as long as the result lives.
    pub fn connect_tab(self: &Arc<Self>, id: ShareId, clock: Clock) -> TabConnection {
        self.tabs().connect(&id);
        TabConnection { door: self.clone(), id, clock }
    }

    /// Checks the value of an `Authorization` header: `Bearer` and the owner's key, or `ID.KEY` of a share.
    /// Constant time.
    ///
    /// # Errors
    /// [`AuthError`]; a wrong key counts as a failed proof, a missing one does not.
    pub fn bearer(
        &self,
        authorization: Option<&str>,
        origin: impl Into<Origin>,
        now_ms: u64,
    ) -> Result<Admission, AuthError> {
        let origin = origin.into();
        // Before this try is counted; what holds when it fails is of no interest to who has the right key.
        let throttled = self.attempts().check(origin, now_ms).map_err(AuthError::RateLimited);
        let admitted = self.admit_bearer(authorization, origin, now_ms);
        if admitted.is_err() { throttled.and(admitted) } else { admitted }
    }

    fn admit_bearer(
        &self,
        authorization: Option<&str>,
        origin: Origin,
        now_ms: u64,
    ) -> Result<Admission, AuthError> {
        let (scheme, shown) =
            authorization.and_then(|value| value.split_once(' ')).ok_or(AuthError::WrongKey)?;
        let bearer = scheme.eq_ignore_ascii_case("bearer");
        let lock = bearer.then(|| self.lock_of_bearer(shown.trim())).flatten();
        let Some((lock, client_key)) = lock else {
            self.attempts().fail(origin, now_ms);
            return Err(AuthError::WrongKey);
        };
        self.admit(lock, &client_key, origin, now_ms).map_err(AuthError::Forbidden)
    }

    /// The lock that a shown key opens, if it opens any, and the client key that follows from it.
    fn lock_of_bearer(&self, shown: &str) -> Option<(Lock, Key)> {
        if let Ok(ticket) = shown.parse::<Ticket>() {
            let (standing, key) = (self.shares.standing(&ticket.id)?, ticket.proof());
            let opens = standing.verifier == key.verifier();
            return opens.then(|| (Lock::Share(Box::new(standing)), key.client_key()));
        }
        let key = shown.parse::<Key>().ok().filter(|key| *key == self.key)?;
        Some((Lock::Owner, key.client_key()))
    }

    /// Whether a key that was proved lets this user in: the kernel's word on who it is, and the share's standing.
    fn admit(
        &self,
        lock: Lock,
        client_key: &Key,
        origin: Origin,
        now_ms: u64,
    ) -> Result<Admission, Farewell> {
        let peer = origin.peer;
        match lock {
            Lock::Owner if self.trust.owner_may_come_from(peer) => Ok(Admission::Owner),
            Lock::Tab(..) if self.trust.tab_may_come_from(peer) => Ok(Admission::Owner),
            Lock::Decoy(_) => Err(Farewell::Refused),
            Lock::Owner | Lock::Tab(..) => {
                self.attempts().fail(origin, now_ms);
                if let Peer::Behind { visitor, .. } = peer {
                    return Err(Farewell::NotByProxy { other_user: visitor == Visitor::Other });
                }
                let user = peer.uid().and_then(user::name_of);
                tracing::warn!(
                    peer = ?peer,
                    "somebody else has the owner's link and was refused; restart the relay for a new one"
                );
                Err(Farewell::NotTheOwner { user })
            }
            Lock::Share(standing) => {
                let open = standing.now.map_err(farewell)?;
                if !open.is_as_made(client_key) {
                    self.shares.close_altered(&open.share.id);
                    return Err(Farewell::Revoked);
                }
                let theirs = |uid| peer == Peer::User(uid) || peer == Peer::owner();
                match (open.uid, &open.share.terms.to) {
                    (Some(uid), _) if theirs(uid) => Ok(Admission::Guest(Box::new(open.share))),
                    (None, None) => Ok(Admission::Guest(Box::new(open.share))),
                    (_, to) => {
                        self.attempts().fail(origin, now_ms);
                        Err(Farewell::NotForYou { to: to.clone().unwrap_or_default() })
                    }
                }
            }
        }
    }

    /// A panic elsewhere while counting cannot make the counts unsafe, so a poisoned lock is used on.
    fn attempts(&self) -> MutexGuard<'_, Attempts> {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tabs(&self) -> MutexGuard<'_, TabLinks> {
        self.tabs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lock of a share or a tab. One that does not exist has a lock without a key, so that nobody can find
    /// out which ids there are.
    fn lock_of(&self, key: &KeyId, server: Nonce, now_ms: u64) -> Lock {
        let lock = match key {
            KeyId::Owner => Some(Lock::Owner),
            KeyId::Share(id) => self.shares.standing(id).map(|standing| Lock::Share(Box::new(standing))),
            KeyId::Tab(id) => self.tabs().key(id, now_ms).map(|key| Lock::Tab(id.clone(), key)),
        };
        lock.unwrap_or_else(|| Lock::Decoy(self.key.derive(&[b"decoy".as_slice(), &server.0].concat())))
    }
}

/// Somebody on the way in; dropping it is going away.
#[derive(Debug)]
pub struct Caller {
    door: Arc<Doorkeeper>,
    origin: Origin,
}

/// What came of a right proof.
#[derive(Debug)]
pub struct Proved {
    /// Who is let in.
    pub admission: Admission,
    /// The version to speak.
    pub proto: u16,
    /// The link for one tab by which they came.
    pub tab: Option<ShareId>,
}

/// Keeps the session of a connected tab open; dropping it is disconnecting.
#[derive(Debug)]
pub struct TabConnection {
    door: Arc<Doorkeeper>,
    id: ShareId,
    clock: Clock,
}

impl Drop for TabConnection {
    fn drop(&mut self) {
        self.door.tabs().disconnect(&self.id, self.clock.now_ms());
    }
}

/// What a key opens.
#[derive(Clone, Debug)]
enum Lock {
    Owner,
    Share(Box<Standing>),
    Tab(ShareId, Key),
    /// Nothing: its key is nobody's.
    Decoy(Key),
}

/// A challenge that is waiting for its one answer.
#[derive(Debug)]
pub struct Challenge {
    lock: Lock,
    client: Nonce,
    server: Nonce,
    authority: String,
    proto: u16,
}

impl Caller {
    /// Takes the page's hello: which versions it speaks, whose key it has, and its nonce. `server` must
    /// be fresh from [`super::new_nonce`]; `authority` is the `Host` the page connected to.
    ///
    /// # Errors
    /// What to tell the page before closing.
    pub fn hello(
        &self,
        proto: VersionRange,
        key: &KeyId,
        client: Nonce,
        server: Nonce,
        authority: &str,
        now_ms: u64,
    ) -> Result<Challenge, Farewell> {
        let ours = VersionRange::only(LIVE_WIRE);
        let proto = ours.common(proto).ok_or(Farewell::Version { relay: ours })?;
        let lock = self.door.lock_of(key, server, now_ms);
        Ok(Challenge { lock, client, server, authority: authority.to_owned(), proto })
    }

    /// Who it is, as far as the kernel says.
    pub fn peer(&self) -> Peer {
        self.origin.peer
    }

    /// How long the answer to a wrong proof is to be held back now, in ms.
    pub fn pause_ms(&self, now_ms: u64) -> u64 {
        if self.door.attempts().check(self.origin, now_ms).is_err() { PAUSE_MS } else { 0 }
    }

    /// The relay's own proof, to be sent before the page gives its.
    pub fn challenge(&self, challenge: &Challenge) -> ServerMessage {
        let code = challenge.exchange().server_code(&challenge.lock.verifier(&self.door));
        ServerMessage::Challenge { nonce: challenge.server, code }
    }

    /// Checks the page's proof; the challenge is used up either way.
    ///
    /// # Errors
    /// [`Farewell::Refused`], and the failure is counted; or why a right key does not open.
    pub fn prove(&self, challenge: Challenge, code: &Code, now_ms: u64) -> Result<Proved, Farewell> {
        let refused = || {
            self.door.attempts().fail(self.origin, now_ms);
            Farewell::Refused
        };
        let exchange = challenge.exchange();
        let proved = exchange.accepts_client(&challenge.lock.verifier(&self.door), code);
        let client_key = match (proved, &challenge.lock) {
            (None, _) | (_, Lock::Decoy(_)) => return Err(refused()),
            (Some(client_key), _) => client_key,
        };
        let admission = self.door.admit(challenge.lock.clone(), &client_key, self.origin, now_ms)?;
        let tab = match &challenge.lock {
            Lock::Tab(id, key) => {
                if !self.door.tabs().redeem(id, key, exchange.session_key(key), now_ms) {
                    return Err(refused());
                }
                Some(id.clone())
            }
            _ => None,
        };
        Ok(Proved { admission, proto: challenge.proto, tab })
    }
}

impl Lock {
    fn verifier(&self, door: &Doorkeeper) -> Verifier {
        match self {
            Self::Owner => door.verifier.clone(),
            Self::Share(standing) => standing.verifier.clone(),
            Self::Tab(_, key) | Self::Decoy(key) => key.verifier(),
        }
    }
}

/// What the holder of a share that ended is told.
pub fn farewell(ending: Ending) -> Farewell {
    match ending {
        Ending::Revoked => Farewell::Revoked,
        Ending::Expired => Farewell::Expired,
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.door.attempts().leave(self.origin);
    }
}

impl Challenge {
    fn exchange(&self) -> Exchange<'_> {
        Exchange { client: self.client, server: self.server, authority: &self.authority }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::trust::Trusted;
    use crate::share::Door;
    use nodeglass_protocol::handshake::LEN;
    use nodeglass_protocol::share::{Hides, Scope, ShareId, ShareLink, ShareRequest};

    const HOST: &str = "127.0.0.1:8080";
    const PAGE: Nonce = Nonce([1; LEN]);
    const V1: VersionRange = VersionRange::only(LIVE_WIRE);

    const ALICE: Peer = Peer::User(1);

    fn door() -> (Arc<Doorkeeper>, Key) {
        let key = Key::new([7; LEN]);
        let place = Door { address: Some("http://127.0.0.1:8080/".into()), tunnel: "ssh".into() };
        let shares = Arc::new(Shares::new(key.clone(), "alice".into(), place, None));
        let trust = Trust::new(vec![Trusted::User(1), Trusted::User(2)]);
        (Arc::new(Doorkeeper::new(key.clone(), trust, shares)), key)
    }

    fn made(door: &Doorkeeper, to: Option<&str>) -> (ShareLink, String) {
        let to = to.map(Into::into);
        let (scope, hides) = (Scope::All, Hides::default());
        let made =
            door.shares.make(ShareRequest { label: "".into(), scope, hides, to, lasts_s: None }).unwrap();
        let credential = made.link.as_ref().unwrap().rsplit_once("#s=").unwrap().1.to_owned();
        (made, credential)
    }

    /// Comes in with the link of a share, as a page does.
    fn enter(door: &Arc<Doorkeeper>, shown: &str, peer: Peer) -> Result<Admission, Farewell> {
        let ticket: Ticket = shown.parse().unwrap();
        let caller = door.knock(peer).map_err(|_| Farewell::TooSlow)?;
        let challenge = caller.hello(V1, &KeyId::Share(ticket.id.clone()), PAGE, Nonce([2; LEN]), HOST, 0)?;
        let code = proof(&ticket.proof(), 2, HOST);
        caller.prove(challenge, &code, 0).map(|proved| proved.admission)
    }

    fn knock(door: &Arc<Doorkeeper>, nonce: u8) -> (Caller, Challenge) {
        let caller = door.knock(Peer::User(1)).unwrap();
        let challenge = caller.hello(V1, &KeyId::Owner, PAGE, Nonce([nonce; LEN]), HOST, 0).unwrap();
        (caller, challenge)
    }

    fn proof(key: &Key, nonce: u8, authority: &str) -> Code {
        Exchange { client: PAGE, server: Nonce([nonce; LEN]), authority }.client_code(key)
    }

    #[test]
    fn the_right_key_opens_and_the_relay_proves_itself_first() {
        let (door, key) = door();
        let (caller, challenge) = knock(&door, 2);
        let ServerMessage::Challenge { nonce, code } = caller.challenge(&challenge) else { panic!() };
        assert!(Exchange { client: PAGE, server: nonce, authority: HOST }.accepts_server(&key, &code));
        let Proved { admission, proto, .. } = caller.prove(challenge, &proof(&key, 2, HOST), 0).unwrap();
        assert!(matches!(admission, Admission::Owner) && proto == LIVE_WIRE);
    }

    #[test]
    fn a_wrong_replayed_or_relayed_proof_does_not_open() {
        let (door, key) = door();
        let wrong = Key::new([8; LEN]);
        for code in [proof(&wrong, 2, HOST), proof(&key, 3, HOST), proof(&key, 2, "evil:8080")] {
            let (caller, challenge) = knock(&door, 2);
            assert_eq!(caller.prove(challenge, &code, 0).unwrap_err(), Farewell::Refused);
        }
    }

    #[test]
    fn the_relays_own_code_is_no_proof() {
        let (door, _) = door();
        let (caller, challenge) = knock(&door, 2);
        let ServerMessage::Challenge { code, .. } = caller.challenge(&challenge) else { panic!() };
        assert_eq!(caller.prove(challenge, &code, 0).unwrap_err(), Farewell::Refused);
    }

    #[test]
    fn an_unknown_version_is_turned_away_before_any_proof() {
        let (door, _) = door();
        let caller = door.knock(Peer::User(1)).unwrap();
        let newer = VersionRange { min: LIVE_WIRE + 1, max: LIVE_WIRE + 9 };
        let hello = |proto, key: &KeyId| caller.hello(proto, key, PAGE, PAGE, HOST, 0).map(|_| ());
        assert_eq!(hello(newer, &KeyId::Owner), Err(Farewell::Version { relay: V1 }));
    }

    #[test]
    fn who_waits_is_counted_and_who_goes_away_is_not() {
        let (door, _) = door();
        let waiting: Vec<_> = (0..MAX_WAITING).map(|_| door.knock(Peer::User(1)).unwrap()).collect();
        assert_eq!(door.knock(Peer::User(1)).unwrap_err(), RateLimited::TooMany);
        assert!(door.knock(Peer::User(2)).is_ok());
        drop(waiting);
        assert!(door.knock(Peer::User(1)).is_ok());
    }

    #[test]
    fn a_bearer_needs_the_whole_key() {
        let (door, key) = door();
        let peer = Peer::User(1);
        assert!(matches!(
            door.bearer(Some(&format!("Bearer {}", key.reveal())), peer, 0),
            Ok(Admission::Owner)
        ));
        assert!(matches!(
            door.bearer(Some(&format!("bearer  {}", key.reveal())), peer, 0),
            Ok(Admission::Owner)
        ));
        for wrong in ["", "Bearer", "Bearer ", "Basic eDp5"] {
            assert!(matches!(door.bearer(Some(wrong), peer, 0), Err(AuthError::WrongKey)), "{wrong}");
        }
        assert!(matches!(door.bearer(None, peer, 0), Err(AuthError::WrongKey)));
        assert!(matches!(door.bearer(Some(&key.reveal()), peer, 0), Err(AuthError::WrongKey)));
    }

    #[test]
    fn wrong_keys_are_throttled_for_that_user_only_and_a_right_one_opens() {
        let (door, key) = door();
        let guess = format!("Bearer {}", Key::new([9; LEN]).reveal());
        for _ in 0..MAX_FAILURES {
            assert!(matches!(door.bearer(Some(&guess), Peer::User(1), 0), Err(AuthError::WrongKey)));
        }
        let right = format!("Bearer {}", key.reveal());
        for shown in [Some(guess.as_str()), None, Some("Bearer")] {
            assert!(
                matches!(door.bearer(shown, Peer::User(1), 1), Err(AuthError::RateLimited(_))),
                "{shown:?}"
            );
        }
        assert!(matches!(door.bearer(Some(&guess), Peer::User(2), 1), Err(AuthError::WrongKey)));
        assert!(matches!(door.bearer(Some(&right), Peer::User(1), 1), Ok(Admission::Owner)));
        assert!(door.knock(Peer::User(1)).unwrap().pause_ms(1) > 0);
        let (caller, challenge) = knock(&door, 2);
        assert!(caller.prove(challenge, &proof(&key, 2, HOST), 1).is_ok());
    }

    #[test]
    fn on_the_private_socket_wrong_keys_are_forgotten_at_once() {
        let (door, key) = door();
        let private = Origin { peer: Peer::owner(), is_private: true };
        let guess = format!("Bearer {}", Key::new([9; LEN]).reveal());
        for _ in 0..10 * MAX_FAILURES {
            assert_eq!(door.bearer(Some(&guess), private, 0).unwrap_err(), AuthError::WrongKey);
        }
        assert!(door.bearer(Some(&format!("Bearer {}", key.reveal())), private, 0).is_ok());
    }

    const BEHIND: Peer = Peer::Behind {
        ip: std::net::IpAddr::V4(std::net::Ipv4Addr::new(203, 0, 113, 9)),
        visitor: Visitor::Unnamed,
    };

    #[test]
    fn t27_behind_a_proxy_the_owners_key_by_itself_opens_nothing() {
        let (door, key) = door();
        let caller = door.knock(BEHIND).unwrap();
        let challenge = caller.hello(V1, &KeyId::Owner, PAGE, Nonce([2; LEN]), HOST, 0).unwrap();
        let refused = caller.prove(challenge, &proof(&key, 2, HOST), 0).unwrap_err();
        assert_eq!(refused, Farewell::NotByProxy { other_user: false });
        let bearer = door.bearer(Some(&format!("Bearer {}", key.reveal())), BEHIND, 0);
        assert!(matches!(bearer, Err(AuthError::Forbidden(Farewell::NotByProxy { .. }))));
    }

    #[test]
    fn t27_a_link_for_one_tab_opens_behind_a_proxy_for_the_tab_that_was_first() {
        let (door, _) = door();
        let ticket = door.open_tab_link(0).unwrap();
        let enter = |nonce: u8, key: &Key| {
            let (caller, server) = (door.knock(BEHIND).unwrap(), Nonce([nonce; LEN]));
            let challenge = caller.hello(V1, &KeyId::Tab(ticket.id.clone()), PAGE, server, HOST, 0).unwrap();
            caller.prove(challenge, &proof(key, nonce, HOST), 0)
        };
        let (link, session) = (ticket.proof(), |nonce: u8| {
            let exchange = Exchange { client: PAGE, server: Nonce([nonce; LEN]), authority: HOST };
            exchange.session_key(&ticket.proof())
        });
        assert!(matches!(enter(2, &link), Ok(Proved { admission: Admission::Owner, tab: Some(_), .. })));
        assert_eq!(enter(3, &link).unwrap_err(), Farewell::Refused, "the link opens a second tab");
        assert_eq!(enter(4, &session(3)).unwrap_err(), Farewell::Refused);
        // The same tab comes back, however often.
        assert!(enter(5, &session(2)).is_ok() && enter(6, &session(2)).is_ok());
        let shown = format!("Bearer {}", ticket.reveal());
        assert!(door.bearer(Some(&shown), BEHIND, 0).is_err(), "it is no key for scripts");
    }

    #[test]
    fn of_two_tabs_with_one_link_at_the_same_moment_one_is_let_in() {
        let (door, _) = door();
        let ticket = door.open_tab_link(0).unwrap();
        let key = ticket.proof();
        let begin = |nonce: u8| {
            let caller = door.knock(BEHIND).unwrap();
            let id = KeyId::Tab(ticket.id.clone());
            let challenge = caller.hello(V1, &id, PAGE, Nonce([nonce; LEN]), HOST, 0).unwrap();
            (caller, challenge)
        };
        let ((one, first), (other, second)) = (begin(2), begin(3));
        assert!(one.prove(first, &proof(&key, 2, HOST), 0).is_ok());
        assert_eq!(other.prove(second, &proof(&key, 3, HOST), 0).unwrap_err(), Farewell::Refused);
    }

    #[test]
    fn t02_the_owners_own_key_opens_for_nobody_else() {
        let (door, key) = door();
        for (peer, user) in [(Peer::User(0), Some("root".into())), (Peer::Unknown, None)] {
            // Whoever runs the tests is an owner, root too.
            if peer == Peer::owner() {
                continue;
            }
            let caller = door.knock(peer).unwrap();
            let challenge = caller.hello(V1, &KeyId::Owner, PAGE, Nonce([2; LEN]), HOST, 0).unwrap();
            let refused = caller.prove(challenge, &proof(&key, 2, HOST), 0).unwrap_err();
            assert_eq!(refused, Farewell::NotTheOwner { user });
            let bearer = format!("Bearer {}", key.reveal());
            assert!(matches!(door.bearer(Some(&bearer), peer, 0), Err(AuthError::Forbidden(_))));
        }
    }

    #[test]
    fn a_share_lets_its_holder_in_as_a_guest_until_it_ends() {
        let (door, _) = door();
        let (made, shown) = made(&door, None);
        for peer in [ALICE, Peer::User(4711), Peer::Unknown] {
            let Ok(Admission::Guest(share)) = enter(&door, &shown, peer) else { panic!("{peer:?}") };
            assert_eq!(share.id, made.share.id);
            let bearer = door.bearer(Some(&format!("Bearer {shown}")), peer, 0);
            assert!(matches!(bearer, Ok(Admission::Guest(_))), "{peer:?}");
        }
        door.shares.revoke(&made.share.id).unwrap();
        assert_eq!(enter(&door, &shown, ALICE).unwrap_err(), Farewell::Revoked);
        let bearer = door.bearer(Some(&format!("Bearer {shown}")), ALICE, 0);
        assert_eq!(bearer.unwrap_err(), AuthError::Forbidden(Farewell::Revoked));
    }

    #[test]
    fn a_share_for_one_user_opens_for_that_user_and_its_owner() {
        let (door, _) = door();
        let (_, shown) = made(&door, Some("nobody"));
        let nobody = Peer::User(user::uid_of("nobody").unwrap());
        assert!(enter(&door, &shown, nobody).is_ok());
        assert!(enter(&door, &shown, Peer::owner()).is_ok());
        for stranger in [ALICE, Peer::Unknown] {
            assert_eq!(
                enter(&door, &shown, stranger).unwrap_err(),
                Farewell::NotForYou { to: "nobody".into() }
            );
        }
    }

    #[test]
    fn t11_a_share_that_does_not_exist_is_answered_like_one_that_does() {
        let (door, _) = door();
        let (made, _) = made(&door, None);
        let unknown = ShareId::new("unknown").unwrap();
        for key in [KeyId::Share(made.share.id), KeyId::Share(unknown.clone()), KeyId::Tab(unknown)] {
            let caller = door.knock(ALICE).unwrap();
            let challenge = caller.hello(V1, &key, PAGE, Nonce([2; LEN]), HOST, 0).unwrap();
            assert!(matches!(caller.challenge(&challenge), ServerMessage::Challenge { .. }), "{key:?}");
            let code = proof(&Key::new([8; LEN]), 2, HOST);
            assert_eq!(caller.prove(challenge, &code, 0).unwrap_err(), Farewell::Refused, "{key:?}");
        }
    }

    #[test]
    fn t11_guesses_of_ids_are_throttled_like_wrong_keys() {
        let (door, key) = door();
        for guess in 0..MAX_FAILURES {
            let caller = door.knock(ALICE).unwrap();
            assert_eq!(caller.pause_ms(0), 0);
            let id = KeyId::Share(ShareId::new(format!("guess{guess}")).unwrap());
            let challenge = caller.hello(V1, &id, PAGE, Nonce([2; LEN]), HOST, 0).unwrap();
            assert_eq!(caller.prove(challenge, &proof(&key, 2, HOST), 0).unwrap_err(), Farewell::Refused);
        }
        assert_eq!(door.knock(ALICE).unwrap().pause_ms(1), PAUSE_MS);
        assert_eq!(door.knock(Peer::User(2)).unwrap().pause_ms(1), 0);
    }

    #[test]
    fn t09_the_key_of_one_share_opens_no_other_and_never_the_owners_door() {
        let (door, key) = door();
        let ((_, one), (other, _)) = (made(&door, None), made(&door, None));
        let mixed = format!("{}.{}", other.share.id, one.split_once('.').unwrap().1);
        assert_eq!(enter(&door, &mixed, ALICE).unwrap_err(), Farewell::Refused);
        let ticket: Ticket = one.parse().unwrap();
        let caller = door.knock(ALICE).unwrap();
        let challenge = caller.hello(V1, &KeyId::Owner, PAGE, Nonce([2; LEN]), HOST, 0).unwrap();
        let code = proof(&ticket.proof(), 2, HOST);
        assert_eq!(caller.prove(challenge, &code, 0).unwrap_err(), Farewell::Refused);
        assert!(ticket.proof() != key);
    }
}
