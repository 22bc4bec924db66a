//! Shares are kept over a restart where that was asked for: what the relay checks against, never what opens it.

use super::table::Open;
use crate::clock::Clock;
use nodeglass_protocol::Text;
use nodeglass_protocol::handshake::{Key, LEN, Verifier};
use nodeglass_protocol::share::{Share, ShareId};
use rusqlite::{Connection, OpenFlags, Row, params};
use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Shares of relays on one host, in SQLite. Held by one relay; rows of other hosts are left alone, as the
/// home directory may be shared by many login nodes.
#[derive(Debug)]
pub struct Store {
    database: Mutex<Connection>,
    host: Text,
}

/// Why shares cannot be kept. Each is a sentence for the user.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is no home to keep them in.
    #[error("there is no folder to keep shares in; set XDG_STATE_HOME or HOME")]
    Nowhere,
    /// The file or its folder is not the owner's alone.
    #[error("{} is not yours alone (owner {uid}, mode {mode:04o}); shares are not kept there", path.display())]
    Open {
        /// The file or folder.
        path: PathBuf,
        /// Its owner.
        uid: u32,
        /// Its permissions.
        mode: u32,
    },
    /// The system said no.
    #[error("shares cannot be kept in {}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// SQLite said no.
    #[error("shares cannot be kept: {0}")]
    Database(#[from] rusqlite::Error),
}

/// Which form of the table this is; the first, without a number, held keys.
const FORM: i64 = 2;
const SCHEMA: &str = "CREATE TABLE IF NOT EXISTS shares (
    host TEXT NOT NULL,
    id TEXT NOT NULL,
    stored BLOB NOT NULL,
    server BLOB NOT NULL,
    seal BLOB NOT NULL,
    uid INTEGER,
    share TEXT NOT NULL,
    expires_ms INTEGER NOT NULL,
    PRIMARY KEY (host, id)
) STRICT";

impl Store {
    /// The folder of what the relay keeps: `$XDG_STATE_HOME/nodeglass`, or `~/.local/state/nodeglass`.
    ///
    /// # Errors
    /// [`StoreError::Nowhere`].
    pub fn folder() -> Result<PathBuf, StoreError> {
        let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")));
        Ok(state.ok_or(StoreError::Nowhere)?.join("nodeglass"))
    }

    /// Opens `shares.db` in a folder, both made where they are missing, readable by their owner alone.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn open(folder: &Path, host: Text) -> Result<Self, StoreError> {
        let io = |path: &Path| {
            let path = path.to_owned();
            move |source| StoreError::Io { path, source }
        };
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(io(folder))?;
        private(folder)?;
        let path = folder.join("shares.db");
        let file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(&path);
        file.map_err(io(&path))?;
        private(&path)?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NOFOLLOW;
        let database = Connection::open_with_flags(&path, flags)?;
        // The home may be on NFS, where a write-ahead log cannot be; the rollback journal can.
        database.pragma_update(None, "journal_mode", "DELETE")?;
        database.pragma_update(None, "secure_delete", true)?;
        drop_older_form(&database)?;
        database.execute_batch(SCHEMA)?;
        database.pragma_update(None, "user_version", FORM)?;
        Ok(Self { database: Mutex::new(database), host })
    }

    /// The shares of this host whose time is not over. What cannot be read is not open.
    pub fn load(&self) -> Vec<Open> {
        self.read().unwrap_or_else(|error| {
            tracing::warn!(%error, "the shares that were kept cannot be read");
            Vec::new()
        })
    }

    fn read(&self) -> rusqlite::Result<Vec<Open>> {
        let database = self.database();
        let now_ms = i64::try_from(Clock::wall_ms()).unwrap_or(i64::MAX);
        database.execute(
            "DELETE FROM shares WHERE host = ?1 AND expires_ms <= ?2",
            params![self.host.as_str(), now_ms],
        )?;
        let mut query =
            database.prepare("SELECT id, stored, server, seal, uid, share FROM shares WHERE host = ?1")?;
        let mut rows = query.query([self.host.as_str()])?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            match opened(row) {
                Some(open) => found.push(open),
                None => tracing::warn!(
                    share = row.get::<_, String>(0).unwrap_or_default(),
                    "a share that was kept cannot be read, so that it stays closed; make a new one"
                ),
            }
        }
        Ok(found)
    }

    /// Keeps a share.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub fn keep(&self, open: &Open) -> Result<(), StoreError> {
        let share = serde_json::to_string(&open.share).unwrap_or_default();
        let expires_ms = i64::try_from(open.share.terms.expires_ms).unwrap_or(i64::MAX);
        let (stored, server) = open.verifier.expose();
        self.database().execute(
            "INSERT OR REPLACE INTO shares (host, id, stored, server, seal, uid, share, expires_ms) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            params![
                self.host.as_str(),
                open.share.id.as_str(),
                stored,
                server,
                open.seal.expose(),
                open.uid,
                share,
                expires_ms
            ],
        )?;
        Ok(())
    }

    /// Forgets a share.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub fn forget(&self, id: &ShareId) -> Result<(), StoreError> {
        self.database().execute(
            "DELETE FROM shares WHERE host = ?1 AND id = ?2",
            params![self.host.as_str(), id.as_str()],
        )?;
        Ok(())
    }

    /// SQLite's own transactions keep it whole, whatever became of a thread.
    fn database(&self) -> MutexGuard<'_, Connection> {
        self.database.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Drops the table of a build that kept keys: these opened the shares to whoever read the file.
fn drop_older_form(database: &Connection) -> rusqlite::Result<()> {
    let form: i64 = database.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if form == FORM {
        return Ok(());
    }
    let is_there = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'shares'";
    if database.query_row(is_there, [], |row| row.get::<_, i64>(0))? > 0 {
        let count: i64 = database.query_row("SELECT count(*) FROM shares", [], |row| row.get(0))?;
        database.execute_batch("DROP TABLE shares")?;
        if count > 0 {
            tracing::warn!(
                count,
                "shares that another build kept cannot be used any more and were dropped; make new ones"
            );
        }
    }
    Ok(())
}

/// The share of a row; none if it is not whole.
fn opened(row: &Row<'_>) -> Option<Open> {
    let bytes = |column: &str| row.get::<_, Vec<u8>>(column).ok()?.try_into().ok();
    let [stored, server, seal]: [[u8; LEN]; 3] = [bytes("stored")?, bytes("server")?, bytes("seal")?];
    let uid: Option<u32> = row.get("uid").ok()?;
    let share: Share = serde_json::from_str(&row.get::<_, String>("share").ok()?).ok()?;
    // A share for one user must not become one for everybody because a column was lost, and an id leads to its own share.
    let is_whole = share.terms.to.is_some() == uid.is_some()
        && row.get::<_, String>("id").is_ok_and(|id| id == share.id.as_str());
    is_whole.then(|| Open { share, verifier: Verifier::new(stored, server), seal: Key::new(seal), uid })
}

/// Checks that a file or folder is no link, is ours, and is closed to others.
fn private(path: &Path) -> Result<(), StoreError> {
    let found =
        fs::symlink_metadata(path).map_err(|source| StoreError::Io { path: path.to_owned(), source })?;
    let (uid, mode) = (found.uid(), found.mode() & 0o7777);
    let ours = uid == rustix::process::geteuid().as_raw() && !found.file_type().is_symlink();
    if ours && mode & 0o077 == 0 {
        return Ok(());
    }
    Err(StoreError::Open { path: path.to_owned(), uid, mode })
}

#[cfg(test)]
mod tests {
    use super::super::link::ticket;
    use super::*;
    use nodeglass_protocol::share::{Hides, Scope, ShareTerms, Ticket};
    use std::os::unix::fs::PermissionsExt;

    fn open(id: &str, expires_ms: u64, to: Option<(&str, u32)>) -> (Open, Ticket) {
        let terms = ShareTerms {
            label: "".into(),
            scope: Scope::All,
            hides: Hides::default(),
            to: to.map(|(name, _)| name.into()),
            expires_ms,
            ends_with_job: false,
        };
        let share = Share { id: ShareId::new(id).unwrap(), made_ms: 0, terms };
        let ticket = ticket(&share, &Key::new([7; LEN]));
        (Open::new(share, to.map(|(_, uid)| uid), &ticket), ticket)
    }

    fn ids(store: &Store) -> Vec<String> {
        store.load().iter().map(|open| open.share.id.to_string()).collect()
    }

    #[test]
    fn shares_are_found_again_on_their_host_until_their_time_is_over() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("state/nodeglass");
        let (kept, _) = open("kept", u64::MAX / 4, Some(("bob", 1002)));
        let store = Store::open(&folder, "login1".into()).unwrap();
        store.keep(&kept).unwrap();
        store.keep(&open("over", 1, None).0).unwrap();
        store.keep(&open("revoked", u64::MAX / 4, None).0).unwrap();
        store.forget(&ShareId::new("revoked").unwrap()).unwrap();
        drop(store);
        let again = Store::open(&folder, "login1".into()).unwrap();
        let found = again.load();
        assert_eq!(found.len(), 1);
        assert!(
            found[0].share == kept.share && found[0].verifier == kept.verifier && found[0].uid == kept.uid
        );
        assert!(ids(&Store::open(&folder, "login2".into()).unwrap()).is_empty());
    }

    #[test]
    fn t08_the_file_is_its_owners_alone_and_holds_no_link() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("nodeglass");
        let store = Store::open(&folder, "login1".into()).unwrap();
        let (open, ticket) = open("kept", u64::MAX / 4, None);
        store.keep(&open).unwrap();
        let path = folder.join("shares.db");
        assert_eq!(path.metadata().unwrap().mode() & 0o7777, 0o600);
        assert_eq!(folder.metadata().unwrap().mode() & 0o7777, 0o700);
        let bytes = fs::read(&path).unwrap();
        let holds = |wanted: &[u8]| bytes.windows(wanted.len()).any(|window| window == wanted);
        assert!(holds(b"kept") && holds(open.verifier.expose().0));
        // Neither what the link holds, nor what its holder proves, nor what comes of it.
        let secret: Key = ticket.reveal().rsplit('.').next().unwrap().parse().unwrap();
        for key in [secret, ticket.proof(), ticket.proof().client_key()] {
            assert!(!holds(key.expose()) && !holds(key.reveal().as_bytes()));
        }
    }

    #[test]
    fn t09_terms_that_were_altered_in_the_file_do_not_carry_the_holders_seal() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path().join("x").as_path(), "login1".into()).unwrap();
        let (open, ticket) = open("kept", u64::MAX / 4, Some(("bob", 1002)));
        let client_key = ticket.proof().client_key();
        store.keep(&open).unwrap();
        assert!(store.load()[0].is_as_made(&client_key));
        for alteration in [
            "UPDATE shares SET uid = 1003",
            "UPDATE shares SET uid = 1002, share = replace(share, '\"logs\":true', '\"logs\":false')",
        ] {
            store.database().execute(alteration, []).unwrap();
            let altered = &store.load()[0];
            assert!(altered.verifier == open.verifier && !altered.is_as_made(&client_key), "{alteration}");
        }
    }

    #[test]
    fn shares_of_a_build_that_kept_keys_are_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("nodeglass");
        drop(Store::open(&folder, "login1".into()).unwrap());
        let old = Connection::open(folder.join("shares.db")).unwrap();
        old.execute_batch(
            "DROP TABLE shares; PRAGMA user_version = 0; \
             CREATE TABLE shares (host TEXT, id TEXT, key BLOB, uid INTEGER, share TEXT, expires_ms INTEGER); \
             INSERT INTO shares VALUES ('login1', 'abc', zeroblob(32), NULL, '{}', 9e18)",
        )
        .unwrap();
        drop(old);
        let store = Store::open(&folder, "login1".into()).unwrap();
        assert!(store.load().is_empty());
        store.keep(&open("kept", u64::MAX / 4, None).0).unwrap();
        drop(store);
        assert_eq!(ids(&Store::open(&folder, "login1".into()).unwrap()), ["kept"]);
    }

    #[test]
    fn t23_a_file_that_others_can_read_is_refused_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("nodeglass");
        drop(Store::open(&folder, "login1".into()).unwrap());
        fs::set_permissions(folder.join("shares.db"), fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(Store::open(&folder, "login1".into()), Err(StoreError::Open { mode: 0o644, .. })));
        fs::remove_file(folder.join("shares.db")).unwrap();
        std::os::unix::fs::symlink("/dev/null", folder.join("shares.db")).unwrap();
        assert!(matches!(Store::open(&folder, "login1".into()), Err(StoreError::Open { .. })));
    }

    #[test]
    fn a_share_for_one_user_never_becomes_one_for_everybody() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path().join("x").as_path(), "login1".into()).unwrap();
        store.keep(&open("kept", u64::MAX / 4, Some(("bob", 1002))).0).unwrap();
        store.database().execute("UPDATE shares SET uid = NULL", []).unwrap();
        assert!(store.load().is_empty());
    }
}
