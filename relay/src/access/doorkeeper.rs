//! The doorkeeper lets in whoever proves the key, and knows nothing of sockets.

pub use super::attempts::{MAX_FAILURES, MAX_WAITING, TurnedAway};

use super::attempts::Attempts;
use super::peer::Peer;
use super::trust::Trust;
use super::user;
use crate::share::{Admission, Ending, Shares, Standing};
use nodeglass_protocol::handshake::{Code, Exchange, Key, Nonce, Verifier};
use nodeglass_protocol::live::{Farewell, KeyId, ServerMessage};
use nodeglass_protocol::share::Ticket;
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
    attempts: Mutex<Attempts>,
}

/// Why a `Bearer` is not let in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotLetIn {
    /// No key, or not the right one.
    WrongKey,
    /// The right one, but not for this user, or not any more.
    NoMore(Farewell),
    /// Not even asked.
    TurnedAway(TurnedAway),
}

impl Doorkeeper {
    /// A doorkeeper for the owner's key, which is taken from whom `trust` says, and for these shares.
    pub fn new(key: Key, trust: Trust, shares: Arc<Shares>) -> Self {
        Self { verifier: key.verifier(), key, trust, shares, attempts: Mutex::default() }
    }

    /// Somebody knocks and may now show a proof.
    ///
    /// # Errors
    /// [`TurnedAway`] if this user has too many tries open or failed.
    pub fn knock(self: &Arc<Self>, peer: Peer, now_ms: u64) -> Result<Caller, TurnedAway> {
        self.attempts().arrive(peer, now_ms)?;
        Ok(Caller { door: self.clone(), peer })
    }

    /// Checks the value of an `Authorization` header: `Bearer` and the owner's key, or `ID.KEY` of a share.
    /// Constant time.
    ///
    /// # Errors
    /// [`NotLetIn`]; a wrong key counts as a failed proof, a missing one does not.
    pub fn bearer(
        &self,
        authorization: Option<&str>,
        peer: Peer,
        now_ms: u64,
    ) -> Result<Admission, NotLetIn> {
        self.attempts().check(peer, now_ms).map_err(NotLetIn::TurnedAway)?;
        let (scheme, shown) =
            authorization.and_then(|value| value.split_once(' ')).ok_or(NotLetIn::WrongKey)?;
        let bearer = scheme.eq_ignore_ascii_case("bearer");
        let lock = bearer.then(|| self.lock_of_bearer(shown.trim())).flatten();
        let Some((lock, client_key)) = lock else {
            self.attempts().fail(peer, now_ms);
            return Err(NotLetIn::WrongKey);
        };
        self.admit(lock, &client_key, peer, now_ms).map_err(NotLetIn::NoMore)
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
    fn admit(&self, lock: Lock, client_key: &Key, peer: Peer, now_ms: u64) -> Result<Admission, Farewell> {
        match lock {
            Lock::Owner if self.trust.owner_may_come_from(peer) => Ok(Admission::Owner),
            Lock::Owner => {
                let user = peer.uid().and_then(user::name_of);
                tracing::warn!(
                    peer = ?peer,
                    "somebody else has the owner's link and was refused; restart the relay for a new one"
                );
                self.attempts().fail(peer, now_ms);
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
                        self.attempts().fail(peer, now_ms);
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
}

/// Somebody on the way in; dropping it is going away.
#[derive(Debug)]
pub struct Caller {
    door: Arc<Doorkeeper>,
    peer: Peer,
}

/// What a key opens.
#[derive(Clone, Debug)]
enum Lock {
    Owner,
    Share(Box<Standing>),
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
    /// What to tell the page before closing. The id of a share that never was counts as a wrong key:
    /// ids are not to be guessed either.
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
        let lock = match key {
            KeyId::Owner => Lock::Owner,
            KeyId::Share(id) => match self.door.shares.standing(id) {
                Some(standing) => Lock::Share(Box::new(standing)),
                None => {
                    self.door.attempts().fail(self.peer, now_ms);
                    return Err(Farewell::Refused);
                }
            },
        };
        Ok(Challenge { lock, client, server, authority: authority.to_owned(), proto })
    }

    /// Who it is, as far as the kernel says.
    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// The relay's own proof, to be sent before the page gives its.
    pub fn challenge(&self, challenge: &Challenge) -> ServerMessage {
        let code = challenge.exchange().server_code(challenge.lock.verifier(&self.door));
        ServerMessage::Challenge { nonce: challenge.server, code }
    }

    /// Checks the page's proof; the challenge is used up either way. Returns who is let in, and the version
    /// to speak.
    ///
    /// # Errors
    /// [`Farewell::Refused`], and the failure is counted; or why a right key does not open.
    pub fn prove(self, challenge: Challenge, code: &Code, now_ms: u64) -> Result<(Admission, u16), Farewell> {
        let verifier = challenge.lock.verifier(&self.door);
        let Some(client_key) = challenge.exchange().accepts_client(verifier, code) else {
            self.door.attempts().fail(self.peer, now_ms);
            return Err(Farewell::Refused);
        };
        Ok((self.door.admit(challenge.lock, &client_key, self.peer, now_ms)?, challenge.proto))
    }
}

impl Lock {
    fn verifier<'a>(&'a self, door: &'a Doorkeeper) -> &'a Verifier {
        match self {
            Self::Owner => &door.verifier,
            Self::Share(standing) => &standing.verifier,
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
        self.door.attempts().leave(self.peer);
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
        let caller = door.knock(peer, 0).map_err(|_| Farewell::TooSlow)?;
        let challenge = caller.hello(V1, &KeyId::Share(ticket.id.clone()), PAGE, Nonce([2; LEN]), HOST, 0)?;
        let code = proof(&ticket.proof(), 2, HOST);
        caller.prove(challenge, &code, 0).map(|(admission, _)| admission)
    }

    fn knock(door: &Arc<Doorkeeper>, nonce: u8) -> (Caller, Challenge) {
        let caller = door.knock(Peer::User(1), 0).unwrap();
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
        let (admission, proto) = caller.prove(challenge, &proof(&key, 2, HOST), 0).unwrap();
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
    fn an_unknown_version_or_share_is_turned_away_before_any_proof() {
        let (door, _) = door();
        let caller = door.knock(Peer::User(1), 0).unwrap();
        let newer = VersionRange { min: LIVE_WIRE + 1, max: LIVE_WIRE + 9 };
        let hello = |proto, key: &KeyId| caller.hello(proto, key, PAGE, PAGE, HOST, 0).map(|_| ());
        assert_eq!(hello(newer, &KeyId::Owner), Err(Farewell::Version { relay: V1 }));
        assert_eq!(hello(V1, &KeyId::Share(ShareId::new("x").unwrap())), Err(Farewell::Refused));
    }

    #[test]
    fn who_waits_is_counted_and_who_goes_away_is_not() {
        let (door, _) = door();
        let waiting: Vec<_> = (0..MAX_WAITING).map(|_| door.knock(Peer::User(1), 0).unwrap()).collect();
        assert_eq!(door.knock(Peer::User(1), 0).unwrap_err(), TurnedAway::TooMany);
        assert!(door.knock(Peer::User(2), 0).is_ok());
        drop(waiting);
        assert!(door.knock(Peer::User(1), 0).is_ok());
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
            assert!(matches!(door.bearer(Some(wrong), peer, 0), Err(NotLetIn::WrongKey)), "{wrong}");
        }
        assert!(matches!(door.bearer(None, peer, 0), Err(NotLetIn::WrongKey)));
        assert!(matches!(door.bearer(Some(&key.reveal()), peer, 0), Err(NotLetIn::WrongKey)));
    }

    #[test]
    fn guessing_keys_is_stopped_for_that_user_only() {
        let (door, key) = door();
        let guess = format!("Bearer {}", Key::new([9; LEN]).reveal());
        for _ in 0..MAX_FAILURES {
            assert!(matches!(door.bearer(Some(&guess), Peer::User(1), 0), Err(NotLetIn::WrongKey)));
        }
        let right = format!("Bearer {}", key.reveal());
        assert!(matches!(door.bearer(Some(&right), Peer::User(1), 1), Err(NotLetIn::TurnedAway(_))));
        assert!(matches!(door.bearer(Some(&right), Peer::User(2), 1), Ok(Admission::Owner)));
        assert!(matches!(door.bearer(Some(&right), Peer::User(1), 60_000), Ok(Admission::Owner)));
    }

    #[test]
    fn t02_the_owners_own_key_opens_for_nobody_else() {
        let (door, key) = door();
        for (peer, user) in [(Peer::User(0), Some("root".into())), (Peer::Unknown, None)] {
            // Whoever runs the tests is an owner, root too.
            if peer == Peer::owner() {
                continue;
            }
            let caller = door.knock(peer, 0).unwrap();
            let challenge = caller.hello(V1, &KeyId::Owner, PAGE, Nonce([2; LEN]), HOST, 0).unwrap();
            let refused = caller.prove(challenge, &proof(&key, 2, HOST), 0).unwrap_err();
            assert_eq!(refused, Farewell::NotTheOwner { user });
            let bearer = format!("Bearer {}", key.reveal());
            assert!(matches!(door.bearer(Some(&bearer), peer, 0), Err(NotLetIn::NoMore(_))));
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
        assert_eq!(bearer.unwrap_err(), NotLetIn::NoMore(Farewell::Revoked));
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
    fn t11_ids_of_shares_are_not_to_be_guessed() {
        let (door, _) = door();
        for guess in 0..MAX_FAILURES {
            let caller = door.knock(ALICE, 0).unwrap();
            let id = KeyId::Share(ShareId::new(format!("guess{guess}")).unwrap());
            assert_eq!(caller.hello(V1, &id, PAGE, PAGE, HOST, 0).unwrap_err(), Farewell::Refused);
        }
        assert!(matches!(door.knock(ALICE, 1), Err(TurnedAway::Refused { .. })));
        assert!(door.knock(Peer::User(2), 1).is_ok());
    }

    #[test]
    fn t09_the_key_of_one_share_opens_no_other_and_never_the_owners_door() {
        let (door, key) = door();
        let ((_, one), (other, _)) = (made(&door, None), made(&door, None));
        let mixed = format!("{}.{}", other.share.id, one.split_once('.').unwrap().1);
        assert_eq!(enter(&door, &mixed, ALICE).unwrap_err(), Farewell::Refused);
        let ticket: Ticket = one.parse().unwrap();
        let caller = door.knock(ALICE, 0).unwrap();
        let challenge = caller.hello(V1, &KeyId::Owner, PAGE, Nonce([2; LEN]), HOST, 0).unwrap();
        let code = proof(&ticket.proof(), 2, HOST);
        assert_eq!(caller.prove(challenge, &code, 0).unwrap_err(), Farewell::Refused);
        assert!(ticket.proof() != key);
    }
}
