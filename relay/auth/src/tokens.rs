//! Named tokens: read-only access for the owner's own programs, until they are revoked or expire.

use nodeglass_access::RandomError;
use nodeglass_platform::regular_file;
use nodeglass_platform::state_dir::{StateDir, StateDirError};
use nodeglass_protocol::Text;
use nodeglass_protocol::handshake::{LEN, Verifier};
use nodeglass_protocol::live::ticket::Ticket;
use nodeglass_protocol::share::ShareId;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Maximum number of tokens of a user.
pub const MAX_TOKENS: usize = 64;
/// Longest name, in bytes.
const MAX_NAME: usize = 64;
/// Name of the file in the state directory.
const FILE: &str = "tokens.json";
/// Name of the file whose lock a change holds.
const LOCK_FILE: &str = "tokens.lock";
/// How long a change waits for those of other relays.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval of attempts to lock.
const LOCK_RETRY: Duration = Duration::from_millis(20);
/// Maximum length of the file, in bytes; [`MAX_TOKENS`] tokens take less than a tenth.
const MAX_BYTES: u64 = 1 << 20;
/// Longest lifetime, in days.
pub const MAX_DAYS: u32 = 3_650;
const DAY_MS: u64 = 86_400_000;

/// All tokens of the owner. Relays with one state directory share them: the file is read again when it changes.
#[derive(Debug)]
pub struct Tokens {
    dir: Option<StateDir>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    tokens: BTreeMap<String, Stored>,
    /// When a token was last used with this relay, in ms since 1970, by name.
    used_ms: BTreeMap<String, u64>,
    /// The file that was read.
    version: Option<Version>,
}

/// Tells whether a file is the one that was read: device, inode, length and time of its last change.
type Version = (u64, u64, u64, i64, i64);

/// A token as it is stored: its verifier, never what opens it.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Stored {
    id: ShareId,
    created_ms: u64,
    expires_ms: Option<u64>,
    stored: String,
    server: String,
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
    /// When it was last used with this relay.
    pub used_ms: Option<u64>,
}

/// Why a token cannot be created or revoked. Messages are complete sentences for the user.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The name cannot be used.
    #[error(
        "the name of a token has 1 to 64 letters, digits, '.', '_' and '-', and begins with a letter or a digit"
    )]
    Name,
    /// There is one with this name.
    #[error("there is a token named {0} already; revoke it first, or choose another name")]
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
    /// There are no random numbers.
    #[error(transparent)]
    Random(#[from] RandomError),
    /// The state directory cannot be used.
    #[error("tokens cannot be stored: {0}")]
    StateDir(#[from] StateDirError),
    /// The file cannot be read or written.
    #[error("tokens cannot be stored: {0}")]
    File(#[from] io::Error),
    /// Other relays change it all the time, or one of them hangs.
    #[error("another relay of yours is changing the tokens; try again")]
    Busy,
    /// The file is not one of this version.
    #[error("the file of tokens is damaged ({0}); delete {FILE} in the state directory and create them anew")]
    Damaged(#[from] serde_json::Error),
}

impl Tokens {
    /// Whether they outlive this relay.
    pub fn are_stored(&self) -> bool {
        self.dir.is_some()
    }

    /// Tokens that are stored in a directory, or only in memory.
    pub fn new(dir: Option<StateDir>) -> Self {
        Self { dir, state: Mutex::default() }
    }

    /// Creates a token that lasts for some days, or until it is revoked. Blocks on the disk.
    ///
    /// # Errors
    /// [`TokenError`].
    pub fn create(
        &self,
        name: &str,
        days: Option<u32>,
        now_ms: u64,
    ) -> Result<(TokenInfo, Ticket), TokenError> {
        if !is_name(name) {
            return Err(TokenError::Name);
        }
        if days.is_some_and(|days| !(1..=MAX_DAYS).contains(&days)) {
            return Err(TokenError::Lifetime);
        }
        let (_lock, mut state) = self.lock()?;
        state.tokens.retain(|_, token| !token.has_expired(now_ms));
        if state.tokens.contains_key(name) {
            return Err(TokenError::Exists(name.to_owned()));
        }
        if state.tokens.len() >= MAX_TOKENS {
            return Err(TokenError::TooMany);
        }
        let ticket = Ticket::new(nodeglass_access::new_share_id()?, nodeglass_access::new_key()?);
        let verifier = ticket.proof().verifier();
        let (stored, server) = verifier.expose();
        let token = Stored {
            id: ticket.id.clone(),
            created_ms: now_ms,
            expires_ms: days.map(|days| now_ms.saturating_add(u64::from(days) * DAY_MS)),
            stored: hex(stored),
            server: hex(server),
        };
        let info = token.info(name, None);
        state.tokens.insert(name.to_owned(), token);
        state.used_ms.remove(name);
        let written = self.write(&mut state);
        if written.is_err() {
            state.tokens.remove(name);
        }
        written.map(|()| (info, ticket))
    }

    /// All tokens that have not expired, by name. Blocks on the disk.
    ///
    /// # Errors
    /// [`TokenError`] if the file cannot be read.
    pub fn list(&self, now_ms: u64) -> Result<Vec<TokenInfo>, TokenError> {
        let mut state = self.state();
        self.read(&mut state)?;
        let valid = state.tokens.iter().filter(|(_, token)| !token.has_expired(now_ms));
        Ok(valid.map(|(name, token)| token.info(name, state.used_ms.get(name).copied())).collect())
    }

    /// Why no token is accepted, a complete sentence; `None` if the file can be read. Blocks on the disk.
    pub fn problem(&self, now_ms: u64) -> Option<Text> {
        self.list(now_ms).err().map(|error| Text::new(format!("no token is accepted: {error}")))
    }

    /// Revokes a token. Blocks on the disk.
    ///
    /// # Errors
    /// [`TokenError::Unknown`]; or it is revoked for this relay only, as the file cannot be written.
    pub fn revoke(&self, name: &str) -> Result<(), TokenError> {
        let (_lock, mut state) = self.lock()?;
        if state.tokens.remove(name).is_none() {
            return Err(TokenError::Unknown(name.to_owned()));
        }
        state.used_ms.remove(name);
        self.write(&mut state)
    }

    /// The id of the token that a ticket opens, if any. Constant time in the key.
    pub fn open(&self, ticket: &Ticket, now_ms: u64) -> Option<ShareId> {
        let mut state = self.state();
        if let Err(error) = self.read(&mut state) {
            tracing::warn!(%error, "tokens are not accepted");
            return None;
        }
        let found =
            state.tokens.iter().find(|(_, token)| token.id == ticket.id && !token.has_expired(now_ms));
        let (name, token) = found?;
        let is_opened = token.verifier().is_some_and(|verifier| verifier == ticket.proof().verifier());
        let name = is_opened.then(|| name.clone())?;
        state.used_ms.insert(name, now_ms);
        Some(ticket.id.clone())
    }

    /// Whether the token of this id is still valid. A name is not enough: once revoked, another token may have it.
    pub fn is_valid(&self, id: &ShareId, now_ms: u64) -> bool {
        let mut state = self.state();
        self.read(&mut state).is_ok()
            && state.tokens.values().any(|token| token.id == *id && !token.has_expired(now_ms))
    }

    /// Excludes changes by other relays, also on other hosts, and reads the file as they left it. The file is locked
    /// before the table, so that requests do not wait for another relay.
    fn lock(&self) -> Result<(Option<File>, MutexGuard<'_, State>), TokenError> {
        let lock = self.dir.as_ref().map(lock_file).transpose()?;
        let mut state = self.state();
        // What is cached of a network file system is current once its lock is held.
        state.version = None;
        self.read(&mut state)?;
        Ok((lock, state))
    }

    /// Reads the file again if it changed.
    fn read(&self, state: &mut State) -> Result<(), TokenError> {
        let Some(path) = self.path() else { return Ok(()) };
        let version = match fs::symlink_metadata(&path) {
            Ok(found) => version(&found),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                state.tokens.clear();
                state.version = None;
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        if state.version == Some(version) {
            return Ok(());
        }
        // Until it has been read, nothing is accepted.
        state.tokens.clear();
        state.version = None;
        if let Some(dir) = &self.dir {
            // Refuses a file that others can read.
            dir.private_file(FILE)?;
        }
        state.tokens = serde_json::from_slice(&regular_file::read(&path, MAX_BYTES)?)?;
        state.version = Some(version);
        Ok(())
    }

    /// Replaces the file, so that a reader finds the old one or the new one.
    fn write(&self, state: &mut State) -> Result<(), TokenError> {
        let (Some(dir), Some(path)) = (&self.dir, self.path()) else { return Ok(()) };
        // Readable by its owner only, and of a name that no other relay or host uses.
        let mut file = tempfile::Builder::new().prefix(".tokens.json.").tempfile_in(dir.path())?;
        file.write_all(&serde_json::to_vec_pretty(&state.tokens)?)?;
        file.as_file().sync_all()?;
        let file = file.persist(&path).map_err(|error| error.error)?;
        state.version = Some(version(&file.metadata()?));
        Ok(())
    }

    fn path(&self) -> Option<PathBuf> {
        self.dir.as_ref().map(|dir| dir.path().join(FILE))
    }

    // Every change is a single step, so a panic elsewhere cannot leave the table inconsistent.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
        TokenInfo { name: name.to_owned(), created_ms: self.created_ms, expires_ms: self.expires_ms, used_ms }
    }
}

/// Locks the changes of a directory's tokens until the file is dropped.
fn lock_file(dir: &StateDir) -> Result<File, TokenError> {
    let file = File::open(dir.private_file(LOCK_FILE)?)?;
    let started = Instant::now();
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) if started.elapsed() < LOCK_TIMEOUT => sleep(LOCK_RETRY),
            Err(Errno::WOULDBLOCK) => return Err(TokenError::Busy),
            // Not every network file system has locks; a change is still a single rename there.
            Ok(()) | Err(Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOLCK) => return Ok(file),
            Err(error) => return Err(io::Error::from(error).into()),
        }
    }
}

fn version(found: &fs::Metadata) -> Version {
    (found.dev(), found.ino(), found.len(), found.ctime(), found.ctime_nsec())
}

fn is_name(name: &str) -> bool {
    (1..=MAX_NAME).contains(&name.len())
        && name.as_bytes()[0].is_ascii_alphanumeric()
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
}

fn hex(bytes: &[u8; LEN]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<[u8; LEN]> {
    let byte = |at: usize| u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok();
    let bytes: Option<Vec<u8>> = (0..LEN).map(byte).collect();
    bytes.filter(|_| text.len() == 2 * LEN)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    const NOW_MS: u64 = 1_795_586_845_000;

    fn folder() -> (tempfile::TempDir, StateDir) {
        let folder = tempfile::tempdir().unwrap();
        let dir = StateDir::at(folder.path().join("nodeglass")).unwrap();
        (folder, dir)
    }

    #[test]
    fn a_token_is_valid_for_every_relay_of_its_directory_until_it_is_revoked() {
        let (_folder, dir) = folder();
        let (one, other) = (Tokens::new(Some(dir.clone())), Tokens::new(Some(dir)));
        let (info, ticket) = one.create("grafana", None, NOW_MS).unwrap();
        assert_eq!((info.name.as_str(), info.expires_ms), ("grafana", None));
        assert_eq!(other.open(&ticket, NOW_MS), Some(ticket.id.clone()));
        assert_eq!(other.list(NOW_MS).unwrap()[0].used_ms, Some(NOW_MS));
        assert!(matches!(other.create("grafana", None, NOW_MS), Err(TokenError::Exists(_))));
        one.revoke("grafana").unwrap();
        assert_eq!((one.open(&ticket, NOW_MS), other.open(&ticket, NOW_MS)), (None, None));
        assert!(!other.is_valid(&ticket.id, NOW_MS));
        assert!(matches!(other.revoke("grafana"), Err(TokenError::Unknown(_))));
    }

    #[test]
    fn t23_a_new_token_of_the_same_name_does_not_keep_a_revoked_one_valid() {
        let tokens = Tokens::new(None);
        let (_, old) = tokens.create("grafana", None, NOW_MS).unwrap();
        tokens.revoke("grafana").unwrap();
        let (_, new) = tokens.create("grafana", None, NOW_MS).unwrap();
        assert!(!tokens.is_valid(&old.id, NOW_MS) && tokens.is_valid(&new.id, NOW_MS));
    }

    #[test]
    fn no_change_of_one_relay_is_lost_to_that_of_another() {
        const EACH: usize = 12;
        let (_folder, dir) = folder();
        std::thread::scope(|scope| {
            for relay in 0..4 {
                let tokens = Tokens::new(Some(dir.clone()));
                scope.spawn(move || {
                    for number in 0..EACH {
                        tokens.create(&format!("t{relay}-{number}"), None, NOW_MS).unwrap();
                    }
                    tokens.revoke(&format!("t{relay}-0")).unwrap();
                });
            }
        });
        assert_eq!(Tokens::new(Some(dir.clone())).list(NOW_MS).unwrap().len(), 4 * (EACH - 1));
        let left = fs::read_dir(dir.path()).unwrap().count();
        assert_eq!(left, 2, "tokens.json and its lock, no temporary file");
    }

    #[test]
    fn an_expired_token_opens_nothing_and_its_name_is_free_again() {
        let tokens = Tokens::new(None);
        let (_, ticket) = tokens.create("night", Some(1), NOW_MS).unwrap();
        let later_ms = NOW_MS + DAY_MS;
        assert!(tokens.is_valid(&ticket.id, later_ms - 1) && !tokens.is_valid(&ticket.id, later_ms));
        assert_eq!(tokens.open(&ticket, later_ms), None);
        assert_eq!(tokens.list(later_ms).unwrap(), []);
        let (_, renewed) = tokens.create("night", Some(1), later_ms).unwrap();
        assert_eq!(tokens.open(&ticket, later_ms), None);
        assert!(tokens.open(&renewed, later_ms).is_some());
    }

    #[test]
    fn names_lifetimes_and_the_number_of_tokens_are_limited() {
        let tokens = Tokens::new(None);
        for wrong in ["", "-x", "a b", "ä", "a/b", &"a".repeat(65)] {
            assert!(matches!(tokens.create(wrong, None, NOW_MS), Err(TokenError::Name)), "{wrong}");
        }
        for days in [0, MAX_DAYS + 1] {
            assert!(matches!(tokens.create("x", Some(days), NOW_MS), Err(TokenError::Lifetime)));
        }
        for number in 0..MAX_TOKENS {
            tokens.create(&format!("t{number}"), None, NOW_MS).unwrap();
        }
        assert!(matches!(tokens.create("one-more", None, NOW_MS), Err(TokenError::TooMany)));
    }

    #[test]
    fn t23_the_file_is_private_opens_nothing_and_is_refused_where_others_can_read_it() {
        let (_folder, dir) = folder();
        let tokens = Tokens::new(Some(dir.clone()));
        let (_, ticket) = tokens.create("grafana", None, NOW_MS).unwrap();
        let path = dir.path().join(FILE);
        let key = ticket.reveal();
        let key = key.split_once('.').unwrap().1;
        assert!(!fs::read_to_string(&path).unwrap().contains(key));
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(tokens.open(&ticket, NOW_MS), None);
        assert!(tokens.list(NOW_MS).is_err());
    }

    #[test]
    fn a_pipe_in_place_of_the_file_opens_nothing_at_once_and_is_named() {
        let (_folder, dir) = folder();
        regular_file::make_pipe(&dir.path().join(FILE));
        let tokens = Tokens::new(Some(dir));
        let ticket = Tokens::new(None).create("x", None, NOW_MS).unwrap().1;
        assert_eq!(tokens.open(&ticket, NOW_MS), None);
        let error = tokens.create("grafana", None, NOW_MS).unwrap_err().to_string();
        assert!(error.ends_with("tokens.json: it is a pipe, not a file"), "{error}");
    }

    #[test]
    fn a_damaged_file_opens_nothing_and_is_named() {
        let (_folder, dir) = folder();
        let tokens = Tokens::new(Some(dir.clone()));
        let (_, ticket) = tokens.create("grafana", None, NOW_MS).unwrap();
        fs::write(dir.path().join(FILE), "{\"grafana\":").unwrap();
        assert_eq!(tokens.open(&ticket, NOW_MS), None);
        let error = tokens.list(NOW_MS).unwrap_err().to_string();
        assert!(error.contains("tokens.json"), "{error}");
        let problem = tokens.problem(NOW_MS).unwrap();
        assert!(
            problem.as_str().starts_with("no token is accepted: the file of tokens is damaged"),
            "{problem}"
        );
        fs::remove_file(dir.path().join(FILE)).unwrap();
        assert_eq!(tokens.problem(NOW_MS), None);
        // A stored verifier of another length opens nothing either.
        assert_eq!((unhex("00"), unhex(&"0".repeat(66)), unhex(&"g".repeat(64))), (None, None, None));
    }
}
