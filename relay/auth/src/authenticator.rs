//! Authenticates clients by their proof of a key; independent of sockets.

use super::attempts::Attempts;
pub use super::attempts::{
    FAILURE_DELAY_MS, MAX_FAILURES, MAX_PENDING, MAX_PENDING_OWNER, Origin, RateLimited,
};
use super::tab_links::TabLinks;
pub use super::tab_links::UNUSED_MS;
use super::tokens::{OpenedToken, Tokens};
use nodeglass_access::peer::{Peer, ProxiedUser};
use nodeglass_access::trust::Trust;
use nodeglass_access::{RandomError, user};
use nodeglass_platform::clock::Clock;
use nodeglass_protocol::Text;
use nodeglass_protocol::handshake::{Code, Exchange, Key, Nonce, Verifier};
use nodeglass_protocol::live::ticket::Ticket;
use nodeglass_protocol::live::{CloseReason, KeyId, ServerMessage};
use nodeglass_protocol::share::ShareId;
use nodeglass_protocol::version::{LIVE_WIRE, VersionRange};
use nodeglass_share::{AccessGrant, EndReason, ShareState, Shares};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Time limit for a client's first two messages together, in ms.
pub const HANDSHAKE_TIMEOUT_MS: u64 = 5_000;
/// Maximum size of these messages, in bytes.
pub const MAX_FIRST_MESSAGE: usize = 1024;

/// Holds the owner's key, the shares, and failed attempts.
#[derive(Debug)]
pub struct Authenticator {
    key: Key,
    verifier: Verifier,
    trust: Trust,
    shares: Arc<Shares>,
    tokens: Arc<Tokens>,
    tabs: Mutex<TabLinks>,
    attempts: Mutex<Attempts>,
}

/// Reason for rejecting a bearer token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthError {
    /// No key, or a wrong one.
    WrongKey,
    /// A valid key, but not for this user, or no longer valid.
    Forbidden(CloseReason),
    /// A valid token for programs of another user, named here.
    TokenOfAnother(Text),
    /// Rejected without a check.
    RateLimited(RateLimited),
}

impl Authenticator {
    /// Authenticates the owner, on connections that `trust` allows, and the holders of shares.
    pub fn new(key: Key, trust: Trust, shares: Arc<Shares>, tokens: Tokens) -> Self {
        Self {
            verifier: key.verifier(),
            key,
            trust,
            shares,
            tokens: Arc::new(tokens),
            tabs: Mutex::default(),
            attempts: Mutex::default(),
        }
    }

    /// Begins an authentication attempt.
    ///
    /// # Errors
    /// [`RateLimited::TooMany`] if this user has too many pending attempts.
    pub fn begin(self: &Arc<Self>, origin: impl Into<Origin>) -> Result<AuthAttempt, RateLimited> {
        let origin = origin.into();
        self.attempts().begin(origin)?;
        Ok(AuthAttempt { authenticator: self.clone(), origin })
    }

    /// The owner's tokens.
    pub fn tokens(&self) -> &Arc<Tokens> {
        &self.tokens
    }

    /// Creates a link for one tab.
    ///
    /// # Errors
    /// [`RandomError`] if no unpredictable key can be generated.
    pub fn open_tab_link(&self, now_ms: u64) -> Result<Ticket, RandomError> {
        let ticket = Ticket::new(nodeglass_access::new_share_id()?, nodeglass_access::new_key()?);
        self.tabs().open(ticket.id.clone(), ticket.proof(), now_ms);
        Ok(ticket)
    }

    /// Marks the tab of a link as connected until the result is dropped.
    pub fn connect_tab(self: &Arc<Self>, id: ShareId, clock: Clock) -> TabConnection {
        self.tabs().connect(&id);
        TabConnection { authenticator: self.clone(), id, clock }
    }

    /// Checks an `Authorization` header: `Bearer` with the owner's key, with `ID.KEY` of a share, or with a token.
    /// Constant time.
    ///
    /// # Errors
    /// [`AuthError`]; a wrong key counts as a failed attempt, a missing one does not.
    pub fn bearer(
        &self,
        authorization: Option<&str>,
        origin: impl Into<Origin>,
        now_ms: u64,
    ) -> Result<AccessGrant, AuthError> {
        let origin = origin.into();
        // Checked before this attempt is counted; a valid key is accepted even while throttled.
        let throttled = self.attempts().check(origin, now_ms).map_err(AuthError::RateLimited);
        let admitted = self.admit_bearer(authorization, origin, now_ms);
        if admitted.is_err() { throttled.and(admitted) } else { admitted }
    }

    fn admit_bearer(
        &self,
        authorization: Option<&str>,
        origin: Origin,
        now_ms: u64,
    ) -> Result<AccessGrant, AuthError> {
        let (scheme, shown) =
            authorization.and_then(|value| value.split_once(' ')).ok_or(AuthError::WrongKey)?;
        let shown = if scheme.eq_ignore_ascii_case("bearer") { shown.trim() } else { "" };
        if let Some(token) = self.token(shown) {
            if !token.is_for(origin.peer, &self.trust) {
                self.attempts().record_failure(origin, now_ms);
                return Err(AuthError::TokenOfAnother(token.user()));
            }
            self.tokens.mark_used(&token.id, Clock::wall_ms());
            return Ok(AccessGrant::Token(token.id));
        }
        let credential = self.bearer_credential(shown);
        let Some((credential, client_key)) = credential else {
            self.attempts().record_failure(origin, now_ms);
            return Err(AuthError::WrongKey);
        };
        self.admit(credential, &client_key, origin, now_ms).map_err(AuthError::Forbidden)
    }

    /// The token that a presented secret opens, if any.
    fn token(&self, shown: &str) -> Option<OpenedToken> {
        let ticket = shown.parse::<Ticket>().ok()?;
        if self.shares.state(&ticket.id).is_some() {
            return None;
        }
        self.tokens.open(&ticket, Clock::wall_ms())
    }

    /// The credential that a presented key matches, if any, and the client key derived from it.
    fn bearer_credential(&self, shown: &str) -> Option<(Credential, Key)> {
        if let Ok(ticket) = shown.parse::<Ticket>() {
            let (state, key) = (self.shares.state(&ticket.id)?, ticket.proof());
            let opens = state.verifier == key.verifier();
            return opens.then(|| (Credential::Share(Box::new(state)), key.client_key()));
        }
        let key = shown.parse::<Key>().ok().filter(|key| *key == self.key)?;
        Some((Credential::Owner, key.client_key()))
    }

    /// Decides whether a proven key authenticates this peer, given its uid and the state of the share.
    fn admit(
        &self,
        credential: Credential,
        client_key: &Key,
        origin: Origin,
        now_ms: u64,
    ) -> Result<AccessGrant, CloseReason> {
        let peer = origin.peer;
        match credential {
            Credential::Owner if self.trust.allows_owner_from(peer) => Ok(AccessGrant::Owner),
            Credential::Tab(..) if self.trust.allows_tab_from(peer) => Ok(AccessGrant::Owner),
            Credential::Unknown(_) => Err(CloseReason::Refused),
            Credential::Owner | Credential::Tab(..) => {
                self.attempts().record_failure(origin, now_ms);
                if let Peer::Behind { visitor, .. } = peer {
                    return Err(CloseReason::NotByProxy { other_user: visitor != ProxiedUser::Unnamed });
                }
                let user = peer.uid().and_then(user::name_of);
                tracing::warn!(?peer, "{}", misuse(peer));
                Err(CloseReason::NotTheOwner { user })
            }
            Credential::Share(state) => {
                let open = state.status.map_err(close_reason)?;
                if !open.is_unaltered(client_key) {
                    self.shares.revoke_altered(&open.share.id);
                    return Err(CloseReason::Revoked);
                }
                let theirs = |uid| peer == Peer::User(uid) || peer == Peer::owner();
                match (open.uid, &open.share.terms.to) {
                    (Some(uid), _) if theirs(uid) => Ok(AccessGrant::Guest(Box::new(open.share))),
                    (None, None) => Ok(AccessGrant::Guest(Box::new(open.share))),
                    (_, to) => {
                        self.attempts().record_failure(origin, now_ms);
                        Err(CloseReason::NotForYou { to: to.clone().unwrap_or_default() })
                    }
                }
            }
        }
    }

    // A panic elsewhere cannot leave the counters unsafe, so a poisoned mutex is used anyway.
    fn attempts(&self) -> MutexGuard<'_, Attempts> {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tabs(&self) -> MutexGuard<'_, TabLinks> {
        self.tabs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the credential of the owner, a share or a tab. For an unknown id, the credential cannot be proved, so
    /// clients cannot find out which ids exist.
    fn credential_for(&self, key: &KeyId, server: Nonce, now_ms: u64) -> Credential {
        let credential = match key {
            KeyId::Owner => Some(Credential::Owner),
            KeyId::Share(id) => self.shares.state(id).map(|state| Credential::Share(Box::new(state))),
            KeyId::Tab(id) => self.tabs().key(id, now_ms).map(|key| Credential::Tab(id.clone(), key)),
            // A person proves nothing: the web server identifies them, or refuses.
            KeyId::Person => None,
        };
        credential.unwrap_or_else(|| {
            Credential::Unknown(self.key.derive(&[b"decoy".as_slice(), &server.0].concat()))
        })
    }
}

/// A pending authentication attempt; dropping it ends the attempt.
#[derive(Debug)]
pub struct AuthAttempt {
    authenticator: Arc<Authenticator>,
    origin: Origin,
}

/// The result of a valid proof.
#[derive(Debug)]
pub struct Authenticated {
    /// The identity that was authenticated.
    pub grant: AccessGrant,
    /// The negotiated protocol version.
    pub proto: u16,
    /// The link for one tab that was used.
    pub tab: Option<ShareId>,
}

/// Keeps the session of a tab alive while connected; dropping it disconnects.
#[derive(Debug)]
pub struct TabConnection {
    authenticator: Arc<Authenticator>,
    id: ShareId,
    clock: Clock,
}

impl Drop for TabConnection {
    fn drop(&mut self) {
        self.authenticator.tabs().disconnect(&self.id, self.clock.now_ms());
    }
}

/// The credential that a client has to prove.
#[derive(Clone, Debug)]
enum Credential {
    Owner,
    Share(Box<ShareState>),
    Tab(ShareId, Key),
    /// An unknown id: a random key.
    Unknown(Key),
}

/// A challenge that awaits its single response.
#[derive(Debug)]
pub struct Challenge {
    credential: Credential,
    client: Nonce,
    server: Nonce,
    authority: String,
    proto: u16,
}

impl AuthAttempt {
    /// Processes the client's hello: supported versions, key id and nonce. `server` must be fresh from
    /// [`nodeglass_access::new_nonce`]; `authority` is the `Host` that the client connected to.
    ///
    /// # Errors
    /// The reason to send to the client before closing.
    pub fn hello(
        &self,
        proto: VersionRange,
        key: &KeyId,
        client: Nonce,
        server: Nonce,
        authority: &str,
        now_ms: u64,
    ) -> Result<Challenge, CloseReason> {
        let ours = VersionRange::only(LIVE_WIRE);
        let proto = ours.common(proto).ok_or(CloseReason::Version { relay: ours })?;
        let credential = self.authenticator.credential_for(key, server, now_ms);
        Ok(Challenge { credential, client, server, authority: authority.to_owned(), proto })
    }

    /// The peer, as identified by the kernel.
    pub fn peer(&self) -> Peer {
        self.origin.peer
    }

    /// Returns the delay of the response to a wrong proof, in ms.
    pub fn failure_delay_ms(&self, now_ms: u64) -> u64 {
        if self.authenticator.attempts().check(self.origin, now_ms).is_err() { FAILURE_DELAY_MS } else { 0 }
    }

    /// The relay's own proof, to be sent before the client's.
    pub fn challenge(&self, challenge: &Challenge) -> ServerMessage {
        let code = challenge.exchange().server_code(&challenge.credential.verifier(&self.authenticator));
        ServerMessage::Challenge { nonce: challenge.server, code }
    }

    /// Checks the client's proof, consuming the challenge.
    ///
    /// # Errors
    /// [`CloseReason::Refused`] for a wrong proof, which is counted; or why a valid one is rejected.
    pub fn prove(
        &self,
        challenge: Challenge,
        code: &Code,
        now_ms: u64,
    ) -> Result<Authenticated, CloseReason> {
        let refused = || {
            self.authenticator.attempts().record_failure(self.origin, now_ms);
            CloseReason::Refused
        };
        let exchange = challenge.exchange();
        let proved = exchange.accepts_client(&challenge.credential.verifier(&self.authenticator), code);
        let client_key = match (proved, &challenge.credential) {
            (None, _) | (_, Credential::Unknown(_)) => return Err(refused()),
            (Some(client_key), _) => client_key,
        };
        let grant =
            self.authenticator.admit(challenge.credential.clone(), &client_key, self.origin, now_ms)?;
        let tab = match &challenge.credential {
            Credential::Tab(id, key) => {
                if !self.authenticator.tabs().redeem(id, key, exchange.session_key(key), now_ms) {
                    return Err(refused());
                }
                Some(id.clone())
            }
            _ => None,
        };
        Ok(Authenticated { grant, proto: challenge.proto, tab })
    }
}

impl Credential {
    fn verifier(&self, authenticator: &Authenticator) -> Verifier {
        match self {
            Self::Owner => authenticator.verifier.clone(),
            Self::Share(state) => state.verifier.clone(),
            Self::Tab(_, key) | Self::Unknown(key) => key.verifier(),
        }
    }
}

/// Returns what to log about a peer that presented the owner's key and is not the owner.
fn misuse(peer: Peer) -> &'static str {
    match peer {
        // A client that gave up while the relay was suspended, for one.
        Peer::Unknown => {
            "a connection presented the owner's key and was rejected: the kernel does not report its user, since it is closed \
             already or comes from a container (--trust-uid unknown accepts those)"
        }
        _ => "another user presented the owner's key and was rejected; restart the relay for a new key",
    }
}

/// The message for the holder of an ended share.
pub fn close_reason(ending: EndReason) -> CloseReason {
    match ending {
        EndReason::Revoked => CloseReason::Revoked,
        EndReason::Expired => CloseReason::Expired,
    }
}

impl Drop for AuthAttempt {
    fn drop(&mut self) {
        self.authenticator.attempts().end(self.origin);
    }
}

impl Challenge {
    fn exchange(&self) -> Exchange<'_> {
        Exchange { client: self.client, server: self.server, authority: &self.authority }
    }
}

#[cfg(test)]
mod tests;
