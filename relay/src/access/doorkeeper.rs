//! The doorkeeper lets in whoever proves the key, and knows nothing of sockets.

pub use super::attempts::{MAX_FAILURES, MAX_WAITING, TurnedAway};

use super::attempts::Attempts;
use super::peer::Peer;
use nodeglass_protocol::handshake::{Code, Exchange, Key, Nonce};
use nodeglass_protocol::live::{Farewell, KeyId, Role, ServerMessage};
use nodeglass_protocol::version::{LIVE_WIRE, VersionRange};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How long the first two messages of a page may take together, in ms.
pub const PATIENCE_MS: u64 = 5_000;
/// Largest of the first messages, in bytes.
pub const MAX_FIRST_MESSAGE: usize = 1024;

/// Knows the owner's key and who has tried it.
#[derive(Debug)]
pub struct Doorkeeper {
    key: Key,
    attempts: Mutex<Attempts>,
}

/// Why a `Bearer` is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotLetIn {
    /// No key, or not the right one.
    WrongKey,
    /// Not even asked.
    TurnedAway(TurnedAway),
}

impl Doorkeeper {
    /// A doorkeeper for the owner's key.
    pub fn new(key: Key) -> Self {
        Self { key, attempts: Mutex::default() }
    }

    /// Somebody knocks and may now show a proof.
    ///
    /// # Errors
    /// [`TurnedAway`] if this user has too many tries open or failed.
    pub fn knock(self: &Arc<Self>, peer: Peer, now_ms: u64) -> Result<Caller, TurnedAway> {
        self.attempts().arrive(peer, now_ms)?;
        Ok(Caller { door: self.clone(), peer })
    }

    /// Checks the value of an `Authorization` header: `Bearer` and the owner's key. Constant time.
    ///
    /// # Errors
    /// [`NotLetIn`]; a wrong key counts as a failed proof, a missing one does not.
    pub fn bearer(&self, authorization: Option<&str>, peer: Peer, now_ms: u64) -> Result<Role, NotLetIn> {
        self.attempts().check(peer, now_ms).map_err(NotLetIn::TurnedAway)?;
        let (scheme, key) =
            authorization.and_then(|value| value.split_once(' ')).ok_or(NotLetIn::WrongKey)?;
        let right = scheme.eq_ignore_ascii_case("bearer")
            && key.trim().parse::<Key>().is_ok_and(|key| key == self.key);
        if right {
            return Ok(Role::Owner);
        }
        self.attempts().fail(peer, now_ms);
        Err(NotLetIn::WrongKey)
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

/// A challenge that is waiting for its one answer.
#[derive(Debug)]
pub struct Challenge {
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
    ) -> Result<Challenge, Farewell> {
        let ours = VersionRange::only(LIVE_WIRE);
        let proto = ours.common(proto).ok_or(Farewell::Version { relay: ours })?;
        match key {
            KeyId::Owner => Ok(Challenge { client, server, authority: authority.to_owned(), proto }),
            KeyId::Share(_) => Err(Farewell::Refused),
        }
    }

    /// The relay's own proof, to be sent before the page gives its.
    pub fn challenge(&self, challenge: &Challenge) -> ServerMessage {
        ServerMessage::Challenge {
            nonce: challenge.server,
            code: challenge.exchange().server_code(&self.door.key),
        }
    }

    /// Checks the page's proof; the challenge is used up either way. Returns what the page may do, and
    /// the version to speak.
    ///
    /// # Errors
    /// [`Farewell::Refused`], and the failure is counted.
    pub fn prove(self, challenge: Challenge, code: &Code, now_ms: u64) -> Result<(Role, u16), Farewell> {
        if challenge.exchange().accepts_client(&self.door.key, code) {
            return Ok((Role::Owner, challenge.proto));
        }
        self.door.attempts().fail(self.peer, now_ms);
        Err(Farewell::Refused)
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
    use nodeglass_protocol::handshake::LEN;
    use nodeglass_protocol::share::ShareId;

    const HOST: &str = "127.0.0.1:8080";
    const PAGE: Nonce = Nonce([1; LEN]);
    const V1: VersionRange = VersionRange::only(LIVE_WIRE);

    fn door() -> (Arc<Doorkeeper>, Key) {
        let key = Key::new([7; LEN]);
        (Arc::new(Doorkeeper::new(key.clone())), key)
    }

    fn knock(door: &Arc<Doorkeeper>, nonce: u8) -> (Caller, Challenge) {
        let caller = door.knock(Peer::User(1), 0).unwrap();
        let challenge = caller.hello(V1, &KeyId::Owner, PAGE, Nonce([nonce; LEN]), HOST).unwrap();
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
        assert_eq!(caller.prove(challenge, &proof(&key, 2, HOST), 0), Ok((Role::Owner, LIVE_WIRE)));
    }

    #[test]
    fn a_wrong_replayed_or_relayed_proof_does_not_open() {
        let (door, key) = door();
        let wrong = Key::new([8; LEN]);
        for code in [proof(&wrong, 2, HOST), proof(&key, 3, HOST), proof(&key, 2, "evil:8080")] {
            let (caller, challenge) = knock(&door, 2);
            assert_eq!(caller.prove(challenge, &code, 0), Err(Farewell::Refused));
        }
    }

    #[test]
    fn the_relays_own_code_is_no_proof() {
        let (door, _) = door();
        let (caller, challenge) = knock(&door, 2);
        let ServerMessage::Challenge { code, .. } = caller.challenge(&challenge) else { panic!() };
        assert_eq!(caller.prove(challenge, &code, 0), Err(Farewell::Refused));
    }

    #[test]
    fn an_unknown_version_or_share_is_turned_away_before_any_proof() {
        let (door, _) = door();
        let caller = door.knock(Peer::User(1), 0).unwrap();
        let newer = VersionRange { min: LIVE_WIRE + 1, max: LIVE_WIRE + 9 };
        let hello = |proto, key: &KeyId| caller.hello(proto, key, PAGE, PAGE, HOST).map(|_| ());
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
        assert_eq!(door.bearer(Some(&format!("Bearer {}", key.reveal())), peer, 0), Ok(Role::Owner));
        assert_eq!(door.bearer(Some(&format!("bearer  {}", key.reveal())), peer, 0), Ok(Role::Owner));
        for wrong in ["", "Bearer", "Bearer ", "Basic eDp5"] {
            assert_eq!(door.bearer(Some(wrong), peer, 0), Err(NotLetIn::WrongKey), "{wrong}");
        }
        assert_eq!(door.bearer(None, peer, 0), Err(NotLetIn::WrongKey));
        assert_eq!(door.bearer(Some(&key.reveal()), peer, 0), Err(NotLetIn::WrongKey));
    }

    #[test]
    fn guessing_keys_is_stopped_for_that_user_only() {
        let (door, key) = door();
        let guess = format!("Bearer {}", Key::new([9; LEN]).reveal());
        for _ in 0..MAX_FAILURES {
            assert_eq!(door.bearer(Some(&guess), Peer::User(1), 0), Err(NotLetIn::WrongKey));
        }
        let right = format!("Bearer {}", key.reveal());
        assert!(matches!(door.bearer(Some(&right), Peer::User(1), 1), Err(NotLetIn::TurnedAway(_))));
        assert_eq!(door.bearer(Some(&right), Peer::User(2), 1), Ok(Role::Owner));
        assert_eq!(door.bearer(Some(&right), Peer::User(1), 60_000), Ok(Role::Owner));
    }
}
