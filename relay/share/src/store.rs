//! Stores shares over a restart, if configured: verifiers only, never a key that opens a share. The file is opened with its
//! first use, and again after a user deleted it.

use super::table::OpenShare;
use nodeglass_platform::clock::Clock;
use nodeglass_platform::regular_file::identity;
use nodeglass_platform::state_dir::{StateDir, StateDirError};
use nodeglass_protocol::Text;
use nodeglass_protocol::handshake::{Key, LEN, Verifier};
use nodeglass_protocol::share::{Scope, Share, ShareId};
use rusqlite::{Connection, ErrorCode, OpenFlags, Params, Row, params};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Shares of one host's relay, in SQLite. Rows of other hosts are left alone, as login nodes may share
/// the home directory.
#[derive(Debug)]
pub struct Store {
    dir: StateDir,
    host: Text,
    /// The jobs and machines that this relay watches.
    watches: String,
    /// The run of this relay, if jobs have their numbers in it only.
    run: Option<String>,
    /// The file, while it is open.
    database: Mutex<Option<Database>>,
}

/// An open file.
#[derive(Debug)]
struct Database {
    connection: Connection,
    /// Device and inode.
    identity: (u64, u64),
}

/// Error of storing shares. Messages are complete sentences for the user.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The state directory cannot be used.
    #[error("shares cannot be stored: {0}")]
    StateDir(#[from] StateDirError),
    /// SQLite failed.
    #[error("shares cannot be stored: {}: {source}{}", path.display(), remedy(source, path))]
    Database {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: rusqlite::Error,
    },
    /// A later build has written the file.
    #[error(
        "{} was written by a newer nodeglass (schema {found}, this build knows {SCHEMA_VERSION}); update, or start \
         without --persist-shares",
        path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: i64,
    },
}

impl StoreError {
    /// Returns whether the file is not a readable database.
    fn is_damage(&self) -> bool {
        let Self::Database { source, .. } = self else { return false };
        matches!(source.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
    }

    /// Returns whether no later attempt can succeed.
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Newer { .. })
    }
}

/// Returns what helps, if that is known, as the end of a sentence.
fn remedy(error: &rusqlite::Error, path: &Path) -> String {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => format!(
            "; another program uses it (`fuser {}` names it on this host): end it, or start without --persist-shares",
            path.display()
        ),
        Some(ErrorCode::ReadOnly) => "; make it writable, or start without --persist-shares".to_owned(),
        _ => String::new(),
    }
}

/// File name in the state directory.
const FILE: &str = "shares.db";
/// Schema version (`user_version`); version 0 stored keys, and version 2 not what was watched.
const SCHEMA_VERSION: i64 = 3;
/// Time for which an expired share stays in the file, in ms: the clock may be ahead, and set back.
const EXPIRED_MS: u64 = 30 * 86_400_000;
const SCHEMA: &str = "CREATE TABLE IF NOT EXISTS shares (
    host TEXT NOT NULL,
    id TEXT NOT NULL,
    stored BLOB NOT NULL,
    server BLOB NOT NULL,
    seal BLOB NOT NULL,
    uid INTEGER,
    watches TEXT NOT NULL,
    share TEXT NOT NULL,
    expires_ms INTEGER NOT NULL,
    PRIMARY KEY (host, id)
) STRICT";

impl Store {
    /// The store in a state directory, which need not be usable yet, of a relay that `watches` these jobs and machines.
    pub fn new(dir: StateDir, host: Text, watches: String) -> Self {
        Self { dir, host, watches, run: None, database: Mutex::default() }
    }

    /// The store of a relay that numbers the jobs of several clusters itself: shares of jobs and arrays are closed after this `run`, as
    /// another one may give their numbers to other jobs.
    #[must_use]
    pub fn numbering_jobs(self, run: String) -> Self {
        Self { run: Some(run), ..self }
    }

    /// Describes what a relay must watch to open a share of this scope.
    pub(super) fn watches(&self, scope: &Scope) -> String {
        match (&self.run, scope) {
            (Some(run), Scope::Jobs(_) | Scope::JobsAndArrays { .. }) => format!("{}, {run}", self.watches),
            _ => self.watches.clone(),
        }
    }

    /// Returns whether a share opens at this relay.
    fn opens(&self, open: &OpenShare) -> bool {
        open.watches == self.watches(&open.share.terms.scope)
    }

    /// Loads the unexpired shares of this host that a relay made which watched the same: at one that watches more, they
    /// would grant more. Unreadable ones stay closed.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn load(&self) -> Result<Vec<OpenShare>, StoreError> {
        self.read(Clock::wall_ms())
    }

    fn read(&self, now_ms: u64) -> Result<Vec<OpenShare>, StoreError> {
        let [now_ms, oldest_ms] =
            [now_ms, now_ms.saturating_sub(EXPIRED_MS)].map(|ms| i64::try_from(ms).unwrap_or(i64::MAX));
        self.access(|database| {
            database.execute(
                "DELETE FROM shares WHERE host = ?1 AND expires_ms <= ?2",
                params![self.host.as_str(), oldest_ms],
            )?;
            let mut query = database.prepare(
                "SELECT id, stored, server, seal, uid, watches, share FROM shares \
                 WHERE host = ?1 AND expires_ms > ?2",
            )?;
            let mut rows = query.query(params![self.host.as_str(), now_ms])?;
            let mut found = Vec::new();
            while let Some(row) = rows.next()? {
                match parse_row(row) {
                    Some(open) => found.extend(Some(open).filter(|open| self.opens(open))),
                    None => tracing::warn!(
                        share = row.get::<_, String>(0).unwrap_or_default(),
                        "a stored share cannot be read and stays closed; create a new one"
                    ),
                }
            }
            Ok(found)
        })
    }

    /// Reads the unexpired shares of this host that relays made which watched something else.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn closed(&self) -> Result<Vec<OpenShare>, StoreError> {
        let now_ms = i64::try_from(Clock::wall_ms()).unwrap_or(i64::MAX);
        self.access(|database| {
            let mut query = database.prepare_cached(
                "SELECT id, stored, server, seal, uid, watches, share FROM shares \
                 WHERE host = ?1 AND expires_ms > ?2 ORDER BY id",
            )?;
            let rows = query.query_map(params![self.host.as_str(), now_ms], |row| Ok(parse_row(row)))?;
            let is_closed = |row: &Result<OpenShare, _>| row.as_ref().map_or(true, |open| !self.opens(open));
            rows.filter_map(Result::transpose).filter(is_closed).collect()
        })
    }

    /// Inserts or replaces a share.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn save(&self, open: &OpenShare) -> Result<(), StoreError> {
        let share = serde_json::to_string(&open.share).unwrap_or_default();
        let expires_ms = i64::try_from(open.share.terms.expires_ms).unwrap_or(i64::MAX);
        let (stored, server) = open.verifier.expose();
        self.change(
            "INSERT OR REPLACE INTO shares (host, id, stored, server, seal, uid, watches, share, expires_ms) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            params![
                self.host.as_str(),
                open.share.id.as_str(),
                stored,
                server,
                open.seal.expose(),
                open.uid,
                open.watches,
                share,
                expires_ms
            ],
        )
    }

    /// Deletes a share.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn delete(&self, id: &ShareId) -> Result<(), StoreError> {
        self.change(
            "DELETE FROM shares WHERE host = ?1 AND id = ?2",
            params![self.host.as_str(), id.as_str()],
        )
    }

    /// Reads the ids of this host's shares, expired ones included.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn ids(&self) -> Result<BTreeSet<String>, StoreError> {
        self.access(|database| {
            let mut query = database.prepare_cached("SELECT id FROM shares WHERE host = ?1")?;
            query.query_map([self.host.as_str()], |row| row.get(0))?.collect()
        })
    }

    /// Executes statements as another program could.
    #[cfg(test)]
    pub(super) fn execute(&self, statements: &str) {
        self.access(|database| database.execute_batch(statements)).unwrap();
    }

    /// Executes a statement that changes the file.
    fn change(&self, statement: &str, parameters: impl Params) -> Result<(), StoreError> {
        self.access(|database| database.execute(statement, parameters).map(drop))
    }

    /// Accesses the file, which is opened unless it is. A user may have deleted the opened one: what is written to it is lost.
    fn access<T>(&self, access: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, StoreError> {
        // SQLite transactions keep the database consistent even if a thread panicked.
        let mut open = self.database.lock().unwrap_or_else(PoisonError::into_inner);
        let path = self.dir.path().join(FILE);
        if open.take_if(|database| identity(&path) != Some(database.identity)).is_some() {
            tracing::warn!(
                "the file of shares was deleted or replaced; it is opened again, and shares that it lacks end"
            );
        }
        let database = match &mut *open {
            Some(database) => database,
            None => open.insert(Database::open(&self.dir)?),
        };
        let result = access(&database.connection).map_err(|source| StoreError::Database { path, source });
        if result.as_ref().is_err_and(StoreError::is_damage) {
            // It is set aside when it is opened.
            *open = None;
        }
        result
    }
}

impl Database {
    /// Opens the file in the state directory, creating both if missing, with access for the owner only. A file that is
    /// damaged is set aside, and its shares stay closed.
    fn open(dir: &StateDir) -> Result<Self, StoreError> {
        dir.prepare()?;
        match Self::try_open(dir) {
            Err(error) if error.is_damage() => {
                let kept = dir.set_aside(FILE)?;
                tracing::error!(kept = %kept.display(), "the stored shares were damaged and are closed; create new ones");
                Self::try_open(dir)
            }
            opened => opened,
        }
    }

    fn try_open(dir: &StateDir) -> Result<Self, StoreError> {
        let path = dir.private_file(FILE)?;
        let in_file = |source| StoreError::Database { path: path.clone(), source };
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NOFOLLOW;
        let connection = Connection::open_with_flags(&path, flags).map_err(in_file)?;
        let found: i64 =
            connection.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(in_file)?;
        if found > SCHEMA_VERSION {
            return Err(StoreError::Newer { path, found });
        }
        prepare(&connection, found).map_err(in_file)?;
        // One that was deleted meanwhile is opened again with the next access.
        Ok(Self { connection, identity: identity(&path).unwrap_or_default() })
    }
}

/// Checks a database of the schema version `found`, and updates it.
fn prepare(database: &Connection, found: i64) -> rusqlite::Result<()> {
    // The home may be on NFS, which does not support write-ahead logging.
    database.pragma_update(None, "journal_mode", "DELETE")?;
    database.pragma_update(None, "secure_delete", true)?;
    let health: String = database.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if health != "ok" {
        let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT);
        return Err(rusqlite::Error::SqliteFailure(code, Some(health)));
    }
    if found < SCHEMA_VERSION {
        drop_older_schema(database)?;
    }
    database.execute_batch(SCHEMA)?;
    // Also if it is the same: a file that cannot be written would not learn that a share was revoked.
    database.pragma_update(None, "user_version", SCHEMA_VERSION)
}

/// Drops the table of a build that stored keys, with which anyone who could read the file could open the shares, or not
/// what was watched, without which a share may grant more than was meant.
fn drop_older_schema(database: &Connection) -> rusqlite::Result<()> {
    let is_there = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'shares'";
    if database.query_row(is_there, [], |row| row.get::<_, i64>(0))? > 0 {
        let count: i64 = database.query_row("SELECT count(*) FROM shares", [], |row| row.get(0))?;
        database.execute_batch("DROP TABLE shares")?;
        if count > 0 {
            tracing::warn!(count, "stored shares of an older build were dropped; create new ones");
        }
    }
    Ok(())
}

/// Parses a row; `None` if it is inconsistent.
fn parse_row(row: &Row<'_>) -> Option<OpenShare> {
    let bytes = |column: &str| row.get::<_, Vec<u8>>(column).ok()?.try_into().ok();
    let [stored, server, seal]: [[u8; LEN]; 3] = [bytes("stored")?, bytes("server")?, bytes("seal")?];
    let uid: Option<u32> = row.get("uid").ok()?;
    let share: Share = serde_json::from_str(&row.get::<_, String>("share").ok()?).ok()?;
    // A lost column must not turn a share for one user into one for everybody, and an id must match its
    // share.
    let is_consistent = share.terms.to.is_some() == uid.is_some()
        && row.get::<_, String>("id").is_ok_and(|id| id == share.id.as_str());
    let watches = row.get("watches").ok()?;
    is_consistent.then(|| OpenShare {
        share,
        verifier: Verifier::new(stored, server),
        seal: Key::new(seal),
        uid,
        watches,
    })
}

#[cfg(test)]
mod tests {
    use super::super::link::ticket;
    use super::*;
    use nodeglass_protocol::live::ticket::Ticket;
    use nodeglass_protocol::share::{HiddenParts, ShareTerms};
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    /// What relays of these tests watch.
    const OWN: &str = "your jobs on hpc";

    fn own_store(dir: StateDir, host: &str) -> Store {
        Store::new(dir, host.into(), OWN.to_owned())
    }

    fn open(id: &str, expires_ms: u64, to: Option<(&str, u32)>) -> (OpenShare, Ticket) {
        let terms = ShareTerms {
            label: "".into(),
            scope: Scope::All,
            hidden: HiddenParts::default(),
            to: to.map(|(name, _)| name.into()),
            expires_ms,
            ends_with_job: false,
        };
        let share = Share { id: ShareId::new(id).unwrap(), created_ms: 0, terms };
        let ticket = ticket(&share, &Key::new([7; LEN]));
        (OpenShare::new(share, to.map(|(_, uid)| uid), OWN, &ticket), ticket)
    }

    fn ids(store: &Store) -> Vec<String> {
        store.load().unwrap().iter().map(|open| open.share.id.to_string()).collect()
    }

    #[test]
    fn shares_are_loaded_on_their_host_until_they_expire() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("state/nodeglass");
        let (stored, _) = open("kept", u64::MAX / 4, Some(("bob", 1002)));
        let store = own_store(StateDir::at(&folder).unwrap(), "login1");
        store.save(&stored).unwrap();
        store.save(&open("over", 1, None).0).unwrap();
        store.save(&open("revoked", u64::MAX / 4, None).0).unwrap();
        store.delete(&ShareId::new("revoked").unwrap()).unwrap();
        drop(store);
        let again = own_store(StateDir::at(&folder).unwrap(), "login1");
        let found = again.load().unwrap();
        assert_eq!(found.len(), 1);
        assert!(
            found[0].share == stored.share
                && found[0].verifier == stored.verifier
                && found[0].uid == stored.uid
        );
        assert!(ids(&own_store(StateDir::at(&folder).unwrap(), "login2")).is_empty());
    }

    #[test]
    fn a_clock_that_is_ahead_for_a_time_deletes_no_share() {
        let folder = tempfile::tempdir().unwrap();
        let store = own_store(StateDir::at(folder.path().join("x")).unwrap(), "login1");
        let now_ms = 1_700_000_000_000;
        store.save(&open("kept", now_ms + 86_400_000, None).0).unwrap();
        let count = |now_ms: u64| store.read(now_ms).unwrap().len();
        assert_eq!((count(now_ms + 7 * 86_400_000), count(now_ms)), (0, 1));
        assert_eq!((count(now_ms + 2 * EXPIRED_MS), count(now_ms)), (0, 0));
    }

    #[test]
    fn t08_the_file_is_private_and_contains_no_link() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("nodeglass");
        let store = own_store(StateDir::at(&folder).unwrap(), "login1");
        let (open, ticket) = open("kept", u64::MAX / 4, None);
        store.save(&open).unwrap();
        let path = folder.join("shares.db");
        assert_eq!(path.metadata().unwrap().mode() & 0o7777, 0o600);
        assert_eq!(folder.metadata().unwrap().mode() & 0o7777, 0o700);
        let bytes = fs::read(&path).unwrap();
        let holds = |wanted: &[u8]| bytes.windows(wanted.len()).any(|window| window == wanted);
        assert!(holds(b"kept") && holds(open.verifier.expose().0));
        // Neither the link's secret, nor the holder's proof, nor what is derived from it.
        let secret: Key = ticket.reveal().rsplit('.').next().unwrap().parse().unwrap();
        for key in [secret, ticket.proof(), ticket.proof().client_key()] {
            assert!(!holds(key.expose()) && !holds(key.reveal().as_bytes()));
        }
    }

    #[test]
    fn t09_terms_altered_in_the_file_do_not_match_the_holders_seal() {
        let folder = tempfile::tempdir().unwrap();
        let store = own_store(StateDir::at(folder.path().join("x")).unwrap(), "login1");
        let (open, ticket) = open("kept", u64::MAX / 4, Some(("bob", 1002)));
        let client_key = ticket.proof().client_key();
        store.save(&open).unwrap();
        assert!(store.load().unwrap()[0].is_unaltered(&client_key));
        for alteration in [
            "UPDATE shares SET uid = 1003",
            "UPDATE shares SET uid = 1002, watches = 'all jobs'",
            "UPDATE shares SET watches = 'your jobs on hpc', share = replace(share, '\"logs\":true', '\"logs\":false')",
        ] {
            store.execute(alteration);
            let altered = &[store.load().unwrap(), store.closed().unwrap()].concat()[0];
            assert!(altered.verifier == open.verifier && !altered.is_unaltered(&client_key), "{alteration}");
        }
    }

    #[test]
    fn shares_stored_with_keys_by_an_older_build_are_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("nodeglass");
        own_store(StateDir::at(&folder).unwrap(), "login1").load().unwrap();
        let old = Connection::open(folder.join("shares.db")).unwrap();
        old.execute_batch(
            "DROP TABLE shares; PRAGMA user_version = 0; \
             CREATE TABLE shares (host TEXT, id TEXT, key BLOB, uid INTEGER, share TEXT, expires_ms INTEGER); \
             INSERT INTO shares VALUES ('login1', 'abc', zeroblob(32), NULL, '{}', 9e18)",
        )
        .unwrap();
        drop(old);
        let store = own_store(StateDir::at(&folder).unwrap(), "login1");
        assert!(store.load().unwrap().is_empty());
        store.save(&open("kept", u64::MAX / 4, None).0).unwrap();
        drop(store);
        assert_eq!(ids(&own_store(StateDir::at(&folder).unwrap(), "login1")), ["kept"]);
    }

    #[test]
    fn a_file_that_another_program_locks_is_named_with_what_helps() {
        let folder = tempfile::tempdir().unwrap();
        let dir = StateDir::at(folder.path().join("nodeglass")).unwrap();
        let store = own_store(dir.clone(), "login1");
        store.save(&open("kept", u64::MAX / 4, None).0).unwrap();
        let path = dir.path().join(FILE);
        let other = Connection::open(&path).unwrap();
        other.execute_batch("BEGIN EXCLUSIVE").unwrap();
        store.access(|database| database.busy_timeout(std::time::Duration::ZERO)).unwrap();
        let refused = store.delete(&ShareId::new("kept").unwrap()).unwrap_err().to_string();
        let path = path.display();
        assert!(
            refused.contains(&format!("{path}: database is locked; another program uses it")),
            "{refused}"
        );
        assert!(refused.ends_with("end it, or start without --persist-shares"), "{refused}");
        other.execute_batch("COMMIT").unwrap();
        assert_eq!(ids(&store), ["kept"]);
    }

    #[test]
    fn shares_of_a_newer_build_are_left_alone_and_named() {
        let folder = tempfile::tempdir().unwrap();
        let dir = StateDir::at(folder.path().join("nodeglass")).unwrap();
        let store = own_store(dir.clone(), "login1");
        store.save(&open("kept", u64::MAX / 4, None).0).unwrap();
        store.access(|database| database.pragma_update(None, "user_version", SCHEMA_VERSION + 1)).unwrap();
        drop(store);
        let refused = own_store(dir.clone(), "login1").ids().unwrap_err();
        assert!(refused.is_final());
        let refused = refused.to_string();
        assert!(refused.contains("shares.db was written by a newer nodeglass (schema 4,"), "{refused}");
        let newer = Connection::open(dir.path().join(FILE)).unwrap();
        newer.pragma_update(None, "user_version", SCHEMA_VERSION).unwrap();
        drop(newer);
        assert_eq!(ids(&own_store(dir.clone(), "login1")), ["kept"]);
    }

    #[test]
    fn a_damaged_file_is_set_aside_whole_and_its_shares_are_closed() {
        let folder = tempfile::tempdir().unwrap();
        let dir = StateDir::at(folder.path().join("nodeglass")).unwrap();
        let path = dir.private_file(FILE).unwrap();
        let damaged = [&b"SQLite format 3\0"[..], &[7; 4_000]].concat();
        fs::write(&path, &damaged).unwrap();
        let store = own_store(dir.clone(), "login1");
        assert!(store.load().unwrap().is_empty());
        store.save(&open("new", u64::MAX / 4, None).0).unwrap();
        let mut files = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
        let kept = files.find(|path| path.to_string_lossy().contains("shares.db.damaged-")).unwrap();
        assert_eq!(fs::read(kept).unwrap(), damaged);
    }

    #[test]
    fn a_share_for_one_user_never_becomes_one_for_everybody() {
        let folder = tempfile::tempdir().unwrap();
        let store = own_store(StateDir::at(folder.path().join("x")).unwrap(), "login1");
        store.save(&open("kept", u64::MAX / 4, Some(("bob", 1002))).0).unwrap();
        store.execute("UPDATE shares SET uid = NULL");
        assert!(store.load().unwrap().is_empty());
    }
}
