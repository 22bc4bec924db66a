//! Named tokens: read-only access for programs of one user, until they are revoked or expire.

use nodeglass_access::peer::{Peer, ProxiedUser};
use nodeglass_access::trust::Trust;
use nodeglass_access::{RandomError, user};
use nodeglass_platform::regular_file;
use nodeglass_platform::state_dir::{StateDir, StateDirError};
use nodeglass_protocol::Text;
use nodeglass_protocol::handshake::{LEN, Verifier};
use nodeglass_protocol::live::ticket::Ticket;
use nodeglass_protocol::share::ShareId;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Maximum number of tokens of a user.
pub const MAX_TOKENS: usize = 64;
/// Longest name, in bytes.
const MAX_NAME: usize = 64;
/// Name of the file in the state directory.
const FILE: &str = "tokens.json";
/// Name of the file whose lock a change holds.
const LOCK_FILE: &str = "tokens.lock";
/// Maximum length of the file, in bytes; [`MAX_TOKENS`] tokens take less than a tenth.
const MAX_BYTES: u64 = 1 << 20;
/// Longest lifetime, in days.
pub const MAX_DAYS: u32 = 3_650;
/// Default lifetime, in days.
pub const DEFAULT_DAYS: u32 = 90;
const DAY_MS: u64 = 86_400_000;
/// Maximum lag of the stored time of the last use, in ms.
const USE_LAG_MS: u64 = 600_000;

/// All tokens of the owner. Relays with one state directory share them: [`Tokens::problem`] reads the file again when it
/// changed.
#[derive(Debug)]
pub struct Tokens {
    dir: Option<StateDir>,
    /// The file that was read. Held while the disk is waited for, which may hang.
    file: Mutex<Option<Version>>,
    /// Never held while the disk is waited for: requests of anyone take it.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    tokens: BTreeMap<String, Stored>,
    /// When a token was last used with this relay, in ms since 1970.
    used_ms: BTreeMap<ShareId, u64>,
    /// Tokens that are refused although the file has them: it could not be changed yet.
    revoked: BTreeSet<ShareId>,
}

/// Identifies the version of a file that was read: device, inode, length and time of its last change.
type Version = (u64, u64, u64, i64, i64);

/// A token as it is stored: its verifier, never what opens it.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Stored {
    id: ShareId,
    created_ms: u64,
    /// `None` for a token of an earlier version, which did not limit them.
    expires_ms: Option<u64>,
    /// The only uid that may use it; any, if `None`.
    #[serde(default)]
    uid: Option<u32>,
    #[serde(default)]
    used_ms: Option<u64>,
    stored: String,
    server: String,
    /// Properties that only a newer relay knows; they stay in the file.
    #[serde(flatten)]
    unknown: serde_json::Map<String, serde_json::Value>,
}

/// The user of a token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TokenUser {
    /// The user who runs this relay.
    #[default]
    Owner,
    /// The user of this login name.
    Named(String),
    /// Everyone who has the secret.
    Anyone,
}

/// A valid token whose secret was presented.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenedToken {
    /// Its id.
    pub id: ShareId,
    uid: Option<u32>,
}

impl OpenedToken {
    /// Returns whether this peer may use it. A token for one user is refused where the kernel or a trusted proxy identifies
    /// another, or the kernel no one; a peer on another machine or an unnamed visitor of a proxy has no uid to compare.
    pub fn is_for(&self, peer: Peer, trust: &Trust) -> bool {
        let (Some(uid), owner) = (self.uid, Peer::owner()) else { return true };
        let is_owners = owner == Peer::User(uid);
        match peer {
            Peer::Remote(_) | Peer::Behind { visitor: ProxiedUser::Unnamed, .. } => true,
            _ if is_owners => trust.allows_owner_from(peer),
            Peer::User(_) => peer == Peer::User(uid) || peer == owner,
            Peer::Behind { visitor, .. } => visitor == ProxiedUser::Owner,
            Peer::Unknown => false,
        }
    }

    /// Login name of the only user, or the uid if it has none; empty if anyone may use it.
    pub fn user(&self) -> Text {
        self.uid.map(login_name).unwrap_or_default()
    }
}

/// A token, without what opens it. Times are in ms since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenInfo {
    /// Its name.
    pub name: String,
    /// When it was created.
    pub created_ms: u64,
    /// When it expires.
    pub expires_ms: Option<u64>,
    /// When it was last used, or up to ten minutes before that if with another relay.
    pub used_ms: Option<u64>,
    /// Login name of the only user who may use it, or the uid if it has none.
    pub user: Option<Text>,
}

/// Error of creating or revoking a token. Messages are complete sentences for the user.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The name cannot be used.
    #[error(
        "a token's name consists of 1 to 64 letters, digits, '.', '_' and '-', and begins with a letter or a digit"
    )]
    Name,
    /// There is one with this name.
    #[error("a token named {0} already exists; revoke it first, or choose another name")]
    Exists(String),
    /// There is none with this name.
    #[error("there is no token named {0}; `relay token list` lists them")]
    Unknown(String),
    /// There are too many.
    #[error("there are {MAX_TOKENS} tokens already; revoke some that are not used")]
    TooMany,
    /// The lifetime is out of range.
    #[error("a token lasts from 1 to {MAX_DAYS} days")]
    Lifetime,
    /// The user does not exist.
    #[error("there is no user {0} on this machine, so no program could use the token; check the login name")]
    NoSuchUser(Text),
    /// The system provides no random numbers.
    #[error(transparent)]
    Random(#[from] RandomError),
    /// The state directory cannot be used.
    #[error("the file of tokens cannot be used: {0}")]
    StateDir(#[from] StateDirError),
    /// The file cannot be read or written.
    #[error("the file of tokens cannot be used: {0}")]
    File(#[from] io::Error),
    /// Other relays change it all the time, or one of them hangs.
    #[error("another relay of yours is changing the tokens; try again")]
    Busy,
    /// The file is not one of this version.
    #[error("the file of tokens is damaged ({0}); delete {FILE} in the state directory and create them anew")]
    Damaged(#[from] serde_json::Error),
}

impl Tokens {
    /// Returns whether they outlive this relay.
    pub fn are_stored(&self) -> bool {
        self.dir.is_some()
    }

    /// Tokens that are stored in a directory, or only in memory.
    pub fn new(dir: Option<StateDir>) -> Self {
        Self { dir, file: Mutex::default(), state: Mutex::default() }
    }

    /// Creates a token that lasts for some days, by default [`DEFAULT_DAYS`]. Blocks on the disk.
    ///
    /// # Errors
    /// [`TokenError`].
    pub fn create(
        &self,
        name: &str,
        days: Option<u32>,
        user: &TokenUser,
        now_ms: u64,
    ) -> Result<(TokenInfo, Ticket), TokenError> {
        if !is_name(name) {
            return Err(TokenError::Name);
        }
        let days = days.unwrap_or(DEFAULT_DAYS);
        if !(1..=MAX_DAYS).contains(&days) {
            return Err(TokenError::Lifetime);
        }
        let uid = user.uid()?;
        let (_lock, mut file) = self.lock()?;
        let mut tokens = self.state().tokens.clone();
        tokens.retain(|_, token| !token.has_expired(now_ms));
        if tokens.contains_key(name) {
            return Err(TokenError::Exists(name.to_owned()));
        }
        if tokens.len() >= MAX_TOKENS {
            return Err(TokenError::TooMany);
        }
        let ticket = Ticket::new(nodeglass_access::new_share_id()?, nodeglass_access::new_key()?);
        let verifier = ticket.proof().verifier();
        let (stored, server) = verifier.expose();
        let token = Stored {
            id: ticket.id.clone(),
            created_ms: now_ms,
            expires_ms: Some(now_ms.saturating_add(u64::from(days) * DAY_MS)),
            uid,
            used_ms: None,
            stored: hex::encode(stored),
            server: hex::encode(server),
            unknown: serde_json::Map::new(),
        };
        let info = token.info(name, None);
        tokens.insert(name.to_owned(), token);
        self.write(&mut file, tokens).map(|()| (info, ticket))
    }

    /// All tokens that have not expired, by name. Blocks on the disk.
    ///
    /// # Errors
    /// [`TokenError`] if the file cannot be read.
    pub fn list(&self, now_ms: u64) -> Result<Vec<TokenInfo>, TokenError> {
        self.read(&mut self.file())?;
        let state = self.state();
        let valid = state.tokens.iter().filter(|(_, token)| state.accepts(token, now_ms));
        Ok(valid.map(|(name, token)| token.info(name, state.used_ms.get(&token.id).copied())).collect())
    }

    /// Reads the file again if it changed. Returns the reason for accepting no token, a complete sentence; `None` if the
    /// file can be read. Blocks on the disk.
    pub fn problem(&self, now_ms: u64) -> Option<Text> {
        self.list(now_ms).err().map(|error| Text::new(format!("no token is accepted: {error}")))
    }

    /// Revokes a token. This relay refuses it at once; then the call blocks on the disk.
    ///
    /// # Errors
    /// [`TokenError::Unknown`]; or it is revoked for this relay only, as the file cannot be written.
    pub fn revoke(&self, name: &str) -> Result<(), TokenError> {
        self.state().refuse(name);
        let (_lock, mut file) = self.lock()?;
        // The file may have another one of this name.
        self.state().refuse(name);
        let mut tokens = self.state().tokens.clone();
        if tokens.remove(name).is_none() {
            return Err(TokenError::Unknown(name.to_owned()));
        }
        self.write(&mut file, tokens)
    }

    /// Stores when tokens were last used, unless what is stored is recent. Blocks on the disk.
    ///
    /// # Errors
    /// [`TokenError`] if the file cannot be changed.
    pub fn save_uses(&self) -> Result<(), TokenError> {
        let is_due = |state: &State| {
            let lags = |token: &Stored| {
                let used_ms = state.used_ms.get(&token.id).copied();
                used_ms.is_some_and(|used_ms| {
                    used_ms > token.used_ms.map_or(0, |known| known.saturating_add(USE_LAG_MS))
                })
            };
            state.tokens.values().any(lags)
        };
        if !is_due(&self.state()) {
            return Ok(());
        }
        let (_lock, mut file) = self.lock()?;
        let tokens = Some(self.state()).filter(|state| is_due(state)).map(|state| state.tokens.clone());
        tokens.map_or(Ok(()), |tokens| self.write(&mut file, tokens))
    }

    /// The token that a ticket opens, if any, as the file was last read. Constant time in the key.
    pub fn open(&self, ticket: &Ticket, now_ms: u64) -> Option<OpenedToken> {
        let state = self.state();
        let token = state.valid(&ticket.id, now_ms)?;
        let is_opened = token.verifier().is_some_and(|verifier| verifier == ticket.proof().verifier());
        is_opened.then(|| OpenedToken { id: token.id.clone(), uid: token.uid })
    }

    /// Remembers that a token was used.
    pub fn mark_used(&self, id: &ShareId, now_ms: u64) {
        self.state().used_ms.insert(id.clone(), now_ms);
    }

    /// Returns whether the token of this id is still valid, as the file was last read. A name is not enough: once revoked,
    /// another token may have it.
    pub fn is_valid(&self, id: &ShareId, now_ms: u64) -> bool {
        self.state().valid(id, now_ms).is_some()
    }

    /// Excludes changes by other relays, also on other hosts, and reads the file as they left it.
    fn lock(&self) -> Result<(Option<File>, MutexGuard<'_, Option<Version>>), TokenError> {
        self.prepare()?;
        let lock = match &self.dir {
            Some(dir) => Some(dir.lock(LOCK_FILE)?.ok_or(TokenError::Busy)?),
            None => None,
        };
        let mut file = self.file();
        // What is cached of a network file system is current once its lock is held.
        *file = None;
        self.read(&mut file)?;
        Ok((lock, file))
    }

    /// Reads the file again if it is another than `known`.
    fn read(&self, known: &mut Option<Version>) -> Result<(), TokenError> {
        let Some(path) = self.path() else { return Ok(()) };
        self.prepare()?;
        let version = match fs::symlink_metadata(&path) {
            Ok(found) => version(&found),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                *known = None;
                self.state().set(BTreeMap::new());
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        if *known == Some(version) {
            return Ok(());
        }
        *known = None;
        let read = self.read_whole(&path);
        // If it cannot be read, no token is accepted.
        let (tokens, outcome) =
            read.map_or_else(|error| (BTreeMap::new(), Err(error)), |read| (read, Ok(())));
        self.state().set(tokens);
        outcome.inspect(|()| *known = Some(version))
    }

    fn read_whole(&self, path: &Path) -> Result<BTreeMap<String, Stored>, TokenError> {
        if let Some(dir) = &self.dir {
            // Refuses a file that others can read.
            dir.private_file(FILE)?;
        }
        Ok(serde_json::from_slice(&regular_file::read(path, MAX_BYTES)?)?)
    }

    /// Replaces the file, so that a reader finds the old one or the new one, and accepts these tokens from now on.
    fn write(
        &self,
        known: &mut Option<Version>,
        mut tokens: BTreeMap<String, Stored>,
    ) -> Result<(), TokenError> {
        let used_ms = self.state().used_ms.clone();
        for token in tokens.values_mut() {
            token.used_ms = token.used_ms.max(used_ms.get(&token.id).copied());
        }
        let Some(dir) = &self.dir else {
            self.state().set(tokens);
            return Ok(());
        };
        let file = dir.replace(FILE, &serde_json::to_vec_pretty(&tokens)?)?;
        self.state().set(tokens);
        *known = Some(version(&file.metadata()?));
        Ok(())
    }

    /// Checks the directory. While it cannot be used, no token is accepted, because others may have written the file.
    fn prepare(&self) -> Result<(), TokenError> {
        let prepared = self.dir.as_ref().map_or(Ok(()), StateDir::prepare);
        Ok(prepared.inspect_err(|_| self.state().set(BTreeMap::new()))?)
    }

    fn path(&self) -> Option<PathBuf> {
        self.dir.as_ref().map(|dir| dir.path().join(FILE))
    }

    // Every change is a single step, so a panic elsewhere cannot leave the table inconsistent.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn file(&self) -> MutexGuard<'_, Option<Version>> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Replaces the tokens.
    fn set(&mut self, tokens: BTreeMap<String, Stored>) {
        let is_there = |id: &ShareId| tokens.values().any(|token| token.id == *id);
        self.used_ms.retain(|id, _| is_there(id));
        self.revoked.retain(is_there);
        self.tokens = tokens;
    }

    /// Refuses the token of a name from now on.
    fn refuse(&mut self, name: &str) {
        self.revoked.extend(self.tokens.get(name).map(|token| token.id.clone()));
    }

    fn valid(&self, id: &ShareId, now_ms: u64) -> Option<&Stored> {
        self.tokens.values().find(|token| token.id == *id && self.accepts(token, now_ms))
    }

    fn accepts(&self, token: &Stored, now_ms: u64) -> bool {
        !token.has_expired(now_ms) && !self.revoked.contains(&token.id)
    }
}

impl Stored {
    fn has_expired(&self, now_ms: u64) -> bool {
        self.expires_ms.is_some_and(|expires_ms| expires_ms <= now_ms)
    }

    fn verifier(&self) -> Option<Verifier> {
        Some(Verifier::new(unhex(&self.stored)?, unhex(&self.server)?))
    }

    fn info(&self, name: &str, used_ms: Option<u64>) -> TokenInfo {
        TokenInfo {
            name: name.to_owned(),
            created_ms: self.created_ms,
            expires_ms: self.expires_ms,
            used_ms: self.used_ms.max(used_ms),
            user: self.uid.map(login_name),
        }
    }
}

impl TokenUser {
    /// The uid, if it is restricted to one.
    fn uid(&self) -> Result<Option<u32>, TokenError> {
        match self {
            Self::Owner => Ok(Peer::owner().uid()),
            Self::Anyone => Ok(None),
            Self::Named(name) => match user::look_up(name)? {
                Some(uid) => Ok(Some(uid)),
                None => Err(TokenError::NoSuchUser(name.as_str().into())),
            },
        }
    }
}

fn login_name(uid: u32) -> Text {
    user::name_of(uid).unwrap_or_else(|| uid.to_string().into())
}

fn version(found: &fs::Metadata) -> Version {
    (found.dev(), found.ino(), found.len(), found.ctime(), found.ctime_nsec())
}

fn is_name(name: &str) -> bool {
    (1..=MAX_NAME).contains(&name.len())
        && name.as_bytes()[0].is_ascii_alphanumeric()
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
}

fn unhex(text: &str) -> Option<[u8; LEN]> {
    let mut bytes = [0; LEN];
    hex::decode_to_slice(text, &mut bytes).is_ok().then_some(bytes)
}

#[cfg(test)]
mod tests;
