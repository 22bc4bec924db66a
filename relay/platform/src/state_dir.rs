//! The state directory: where the relay keeps what outlives it, inaccessible to other users.

use crate::clock::Clock;
use crate::regular_file;
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Maximum time of waiting for a lock.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval between two attempts to lock a file.
const LOCK_RETRY: Duration = Duration::from_millis(20);

/// A directory that only its owner can access.
#[derive(Clone, Debug)]
pub struct StateDir {
    path: PathBuf,
}

/// Error of using the state directory or a file in it. Reads well after "… cannot be stored:".
#[derive(Debug, thiserror::Error)]
pub enum StateDirError {
    /// The user has no home directory.
    #[error("there is no directory for it; set XDG_STATE_HOME or HOME")]
    Nowhere,
    /// Others can access the file or directory.
    #[error(
        "{} is not yours alone (owner {uid}, mode {mode:04o}); it must belong to you, and nobody else may have access \
         (`chmod go=`)",
        path.display()
    )]
    NotPrivate {
        /// The file or directory.
        path: PathBuf,
        /// Its owner.
        uid: u32,
        /// Its permissions.
        mode: u32,
    },
    /// The system call failed.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

impl StateDir {
    /// Opens the user's state directory, as [`StateDir::locate`] finds it, and creates it if missing.
    ///
    /// # Errors
    /// [`StateDirError`].
    pub fn open() -> Result<Self, StateDirError> {
        Self::at(Self::locate()?.path)
    }

    /// The user's state directory, `$XDG_STATE_HOME/nodeglass` or `~/.local/state/nodeglass`, for users that call
    /// [`StateDir::prepare`] before each access, because it may become usable later.
    ///
    /// # Errors
    /// [`StateDirError::Nowhere`].
    pub fn locate() -> Result<Self, StateDirError> {
        let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")));
        Ok(Self { path: state.ok_or(StateDirError::Nowhere)?.join("nodeglass") })
    }

    /// Opens a directory, and creates it if missing.
    ///
    /// # Errors
    /// [`StateDirError`].
    pub fn at(path: impl Into<PathBuf>) -> Result<Self, StateDirError> {
        let dir = Self { path: path.into() };
        dir.prepare()?;
        Ok(dir)
    }

    /// Creates the directory if missing, and checks that only its owner can access it.
    ///
    /// # Errors
    /// [`StateDirError`].
    pub fn prepare(&self) -> Result<(), StateDirError> {
        // Checked before, because a network file system sends each attempt to create it to its server.
        if !self.path.is_dir() {
            DirBuilder::new().recursive(true).mode(0o700).create(&self.path).map_err(io_at(&self.path))?;
        }
        check_private(&self.path)
    }

    /// Opens a directory below it, and creates it if missing.
    ///
    /// # Errors
    /// [`StateDirError`].
    pub fn dir(&self, name: &str) -> Result<Self, StateDirError> {
        Self::at(self.path.join(name))
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of a file in it, which is created if missing. Refuses symbolic links and everything else that
    /// is not a file.
    ///
    /// # Errors
    /// [`StateDirError`].
    pub fn private_file(&self, name: &str) -> Result<PathBuf, StateDirError> {
        let path = self.path.join(name);
        let no_wait = OFlags::NONBLOCK.bits().cast_signed();
        let file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .mode(0o600)
            .custom_flags(no_wait)
            .open(&path);
        file.and_then(|file| regular_file::check(&file)).map_err(io_at(&path))?;
        check_private(&path)?;
        Ok(path)
    }

    /// Replaces the content of a file in it, so that a reader, also one after a crash, finds the old content or the new one.
    /// Returns the new file, which only its owner can read.
    ///
    /// # Errors
    /// What the file system states, such as a full disk; the old content is then left.
    pub fn replace(&self, name: &str, content: &[u8]) -> io::Result<File> {
        // Of a name that no other relay or host uses.
        let mut file = tempfile::Builder::new().prefix(&format!(".{name}.")).tempfile_in(&self.path)?;
        file.write_all(content)?;
        file.as_file().sync_all()?;
        file.persist(self.path.join(name)).map_err(|error| error.error)
    }

    /// Locks a file in it, which is created if missing, until the returned file is dropped. Excludes other relays, also on
    /// other hosts. Blocks for up to five seconds; `None` if another relay holds the lock for longer.
    ///
    /// # Errors
    /// [`StateDirError`].
    pub fn lock(&self, name: &str) -> Result<Option<File>, StateDirError> {
        let path = self.private_file(name)?;
        let file = File::open(&path).map_err(io_at(&path))?;
        let started = Instant::now();
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) if started.elapsed() < LOCK_TIMEOUT => sleep(LOCK_RETRY),
                Err(Errno::WOULDBLOCK) => return Ok(None),
                // Not every network file system has locks; a change is still a single rename there.
                Ok(()) | Err(Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOLCK) => return Ok(Some(file)),
                Err(error) => return Err(io_at(&path)(error.into())),
            }
        }
    }

    /// Renames a damaged SQLite database in it, and what belongs to it, to a name with the time of day. Returns the new
    /// path.
    ///
    /// # Errors
    /// [`StateDirError::Io`].
    pub fn set_aside(&self, name: &str) -> Result<PathBuf, StateDirError> {
        let path = self.path.join(name);
        let aside = self.path.join(format!("{name}.damaged-{}", Clock::wall_ms() / 1_000));
        fs::rename(&path, &aside).map_err(io_at(&path))?;
        for suffix in ["-wal", "-shm", "-journal"] {
            let of = |path: &PathBuf| PathBuf::from(format!("{}{suffix}", path.display()));
            // There is none in most cases.
            let _ = fs::rename(of(&path), of(&aside));
        }
        Ok(aside)
    }
}

fn io_at(path: &Path) -> impl Fn(io::Error) -> StateDirError {
    let path = path.to_owned();
    move |source| StateDirError::Io { path: path.clone(), source }
}

/// Checks that a path is not a symbolic link, belongs to us, and is inaccessible to others.
fn check_private(path: &Path) -> Result<(), StateDirError> {
    let found = fs::symlink_metadata(path).map_err(io_at(path))?;
    let (uid, mode) = (found.uid(), found.mode() & 0o7777);
    let ours = uid == rustix::process::geteuid().as_raw() && !found.file_type().is_symlink();
    if ours && mode & 0o077 == 0 {
        return Ok(());
    }
    Err(StateDirError::NotPrivate { path: path.to_owned(), uid, mode })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn t23_a_file_that_others_can_read_is_refused_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let dir = StateDir::at(folder.path().join("state/nodeglass")).unwrap();
        assert_eq!(dir.path().metadata().unwrap().mode() & 0o7777, 0o700);
        let file = dir.private_file("x.db").unwrap();
        assert_eq!(file.metadata().unwrap().mode() & 0o7777, 0o600);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(dir.private_file("x.db"), Err(StateDirError::NotPrivate { mode: 0o644, .. })));
        fs::remove_file(&file).unwrap();
        let other = folder.path().join("other");
        fs::write(&other, "").unwrap();
        std::os::unix::fs::symlink(&other, &file).unwrap();
        assert!(matches!(dir.private_file("x.db"), Err(StateDirError::NotPrivate { .. })));
    }

    #[test]
    fn a_pipe_or_a_directory_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let dir = StateDir::at(folder.path().join("nodeglass")).unwrap();
        regular_file::make_pipe(&dir.path().join("pipe"));
        fs::create_dir(dir.path().join("directory")).unwrap();
        let error = dir.private_file("pipe").unwrap_err().to_string();
        assert!(error.ends_with("nodeglass/pipe: it is a pipe, not a file"), "{error}");
        let error = dir.private_file("directory").unwrap_err().to_string();
        assert!(error.contains("nodeglass/directory: Is a directory"), "{error}");
    }
}
