//! Shares are kept over a restart where that was asked for: what the relay checks against, never a link.

use super::table::Open;
use crate::clock::Clock;
use nodeglass_protocol::Text;
use nodeglass_protocol::handshake::{Key, LEN};
use nodeglass_protocol::share::{Share, ShareId};
use rusqlite::{Connection, OpenFlags, params};
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

const SCHEMA: &str = "CREATE TABLE IF NOT EXISTS shares (
    host TEXT NOT NULL,
    id TEXT NOT NULL,
    key BLOB NOT NULL,
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
        database.execute_batch(SCHEMA)?;
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
        let mut query = database.prepare("SELECT key, uid, share FROM shares WHERE host = ?1")?;
        let rows = query.query_map([self.host.as_str()], |row| {
            Ok((row.get::<_, Vec<u8>>(0)?, row.get::<_, Option<u32>>(1)?, row.get::<_, String>(2)?))
        })?;
        let opened = |(key, uid, share): (Vec<u8>, Option<u32>, String)| {
            let key: [u8; LEN] = key.try_into().ok()?;
            let share: Share = serde_json::from_str(&share).ok()?;
            // A share for one user must not become one for everybody because a column was lost.
            let bound = share.terms.to.is_some() == uid.is_some();
            bound.then(|| Open { share, key: Key::new(key), uid })
        };
        Ok(rows.filter_map(Result::ok).filter_map(opened).collect())
    }

    /// Keeps a share.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub fn keep(&self, open: &Open) -> Result<(), StoreError> {
        let share = serde_json::to_string(&open.share).unwrap_or_default();
        let expires_ms = i64::try_from(open.share.terms.expires_ms).unwrap_or(i64::MAX);
        self.database().execute(
            "INSERT OR REPLACE INTO shares (host, id, key, uid, share, expires_ms) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            params![
                self.host.as_str(),
                open.share.id.as_str(),
                open.key.expose(),
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
        (Open { share, key: ticket.proof(), uid: to.map(|(_, uid)| uid) }, ticket)
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
        assert!(found[0].share == kept.share && found[0].key == kept.key && found[0].uid == kept.uid);
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
        let revealed = ticket.reveal();
        let revealed = revealed.rsplit('.').next().unwrap().as_bytes();
        assert!(bytes.windows(4).any(|window| window == b"kept"));
        assert!(!bytes.windows(revealed.len()).any(|window| window == revealed));
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
