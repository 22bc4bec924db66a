//! The relay's private directory is verified to be the owner's alone before anything is put into it.

use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;
use std::env;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Longest path of a Unix socket (`sun_path` holds 108 bytes with its end).
pub const MAX_SOCKET_PATH: usize = 107;

/// A directory that only this user can look into, held open so that it cannot be exchanged.
#[derive(Debug)]
pub struct RuntimeDir {
    path: PathBuf,
    fd: OwnedFd,
}

/// Where a runtime directory may be.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// `$XDG_RUNTIME_DIR`, which a login session sets up.
    pub session: Option<PathBuf>,
    /// `$TMPDIR`, or `/tmp`.
    pub temporary: PathBuf,
}

/// Why there is no safe directory. Each is a sentence for the user.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeDirError {
    /// Somebody put a symbolic link, or a file, there.
    #[error("{} is not a directory of its own; remove it, or {ELSEWHERE}", .0.display())]
    NotADirectory(PathBuf),
    /// It belongs to somebody else.
    #[error("{} belongs to another user (uid {uid}); {ELSEWHERE}", path.display())]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// Its owner.
        uid: u32,
    },
    /// Others may look into it.
    #[error("{} is open to others (mode {mode:04o}); run `chmod 700` on it, or {ELSEWHERE}", path.display())]
    Open {
        /// The directory.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// Others could exchange what is in the directory above.
    #[error("{} can be changed by others and has no sticky bit; {ELSEWHERE}", .0.display())]
    Unsafe(PathBuf),
    /// The system said no.
    #[error("the runtime directory {} cannot be used: {source}", path.display())]
    Io {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

const ELSEWHERE: &str = "set XDG_RUNTIME_DIR to a directory that only you can read";

impl Places {
    /// The places that the environment names.
    pub fn from_env() -> Self {
        let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        Self {
            session: absolute("XDG_RUNTIME_DIR"),
            temporary: absolute("TMPDIR").unwrap_or_else(|| "/tmp".into()),
        }
    }
}

impl RuntimeDir {
    /// Opens the directory, and makes it where it is missing: `nodeglass` in the session's own directory
    /// if that is private, else `nodeglass-UID` among the temporary files.
    ///
    /// # Errors
    /// [`RuntimeDirError`] if it is not ours alone; nothing is ever repaired by itself.
    pub fn open(places: &Places) -> Result<Self, RuntimeDirError> {
        // After `su` the variable may still name another user's directory; then it is passed over.
        if let Some(session) = places.session.as_deref().filter(|dir| open_private(dir).is_ok()) {
            return Self::within(session, "nodeglass");
        }
        let uid = rustix::process::geteuid().as_raw();
        safe_parent(&places.temporary, uid)?;
        Self::within(&places.temporary, &format!("nodeglass-{uid}"))
    }

    fn within(parent: &Path, name: &str) -> Result<Self, RuntimeDirError> {
        let path = parent.join(name);
        match fs::mkdir(&path, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(io(&path, error)),
        }
        Ok(Self { fd: open_private(&path)?, path })
    }

    /// Its path, for people.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path by which this process binds and reaches a socket in it. Where its own path is too long for
    /// a socket's address, the way leads through the open directory.
    pub fn socket(&self, name: &str) -> PathBuf {
        let path = self.path.join(name);
        if path.as_os_str().len() <= MAX_SOCKET_PATH {
            return path;
        }
        format!("/proc/self/fd/{}/{name}", self.fd.as_raw_fd()).into()
    }

    /// The directory itself.
    pub fn fd(&self) -> &OwnedFd {
        &self.fd
    }
}

/// Opens a directory that is no link, is ours, and is closed to others.
fn open_private(path: &Path) -> Result<OwnedFd, RuntimeDirError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = fs::open(path, flags, Mode::empty()).map_err(|error| match error {
        Errno::LOOP | Errno::NOTDIR => RuntimeDirError::NotADirectory(path.to_owned()),
        // Ours would be readable, so it is somebody else's; the path tells whose.
        Errno::ACCESS => foreign(path).unwrap_or_else(|| io(path, error)),
        error => io(path, error),
    })?;
    let stat = fs::fstat(&fd).map_err(|error| io(path, error))?;
    let mode = stat.st_mode & 0o7777;
    if stat.st_uid != rustix::process::geteuid().as_raw() {
        return Err(RuntimeDirError::Foreign { path: path.to_owned(), uid: stat.st_uid });
    }
    if mode & 0o077 != 0 {
        return Err(RuntimeDirError::Open { path: path.to_owned(), mode });
    }
    Ok(fd)
}

fn foreign(path: &Path) -> Option<RuntimeDirError> {
    let uid = path.symlink_metadata().ok()?.uid();
    (uid != rustix::process::geteuid().as_raw())
        .then(|| RuntimeDirError::Foreign { path: path.to_owned(), uid })
}

/// Whether nobody but root and us can exchange a directory of ours in `parent`.
fn safe_parent(parent: &Path, uid: u32) -> Result<(), RuntimeDirError> {
    let found =
        parent.metadata().map_err(|source| RuntimeDirError::Io { path: parent.to_owned(), source })?;
    let ours = found.uid() == uid || found.uid() == 0;
    let closed = found.mode() & 0o022 == 0 || found.mode() & 0o1000 != 0;
    if ours && closed { Ok(()) } else { Err(RuntimeDirError::Unsafe(parent.to_owned())) }
}

fn io(path: &Path, error: Errno) -> RuntimeDirError {
    RuntimeDirError::Io { path: path.to_owned(), source: error.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{Permissions, create_dir, set_permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn mode(path: &Path, mode: u32) {
        set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    fn temporary(dir: &Path) -> Places {
        Places { session: None, temporary: dir.to_owned() }
    }

    fn name() -> String {
        format!("nodeglass-{}", rustix::process::geteuid().as_raw())
    }

    #[test]
    fn a_fresh_directory_is_closed_to_others_and_found_again() {
        let base = tempfile::tempdir().unwrap();
        for _ in 0..2 {
            let dir = RuntimeDir::open(&temporary(base.path())).unwrap();
            assert_eq!(dir.path(), base.path().join(name()));
            assert_eq!(dir.path().metadata().unwrap().mode() & 0o7777, 0o700);
        }
    }

    #[test]
    fn a_socket_can_be_had_however_deep_the_directory_lies() {
        let base = tempfile::tempdir().unwrap();
        for deep in [base.path().to_owned(), base.path().join("d".repeat(120))] {
            std::fs::create_dir_all(&deep).unwrap();
            let dir = RuntimeDir::open(&temporary(&deep)).unwrap();
            let socket = std::os::unix::net::UnixListener::bind(dir.socket("1.sock")).unwrap();
            assert!(dir.path().join("1.sock").exists());
            std::os::unix::net::UnixStream::connect(dir.socket("1.sock")).unwrap();
            drop(socket);
        }
    }

    #[test]
    fn the_sessions_own_directory_is_taken_if_it_is_private() {
        let (session, base) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let places = Places { session: Some(session.path().into()), ..temporary(base.path()) };
        mode(session.path(), 0o700);
        assert_eq!(RuntimeDir::open(&places).unwrap().path(), session.path().join("nodeglass"));
        mode(session.path(), 0o755);
        assert_eq!(RuntimeDir::open(&places).unwrap().path(), base.path().join(name()));
    }

    #[test]
    fn a_link_a_file_or_an_open_directory_is_refused_and_left_alone() {
        let (base, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let path = base.path().join(name());
        symlink(elsewhere.path(), &path).unwrap();
        let error = RuntimeDir::open(&temporary(base.path())).unwrap_err();
        assert!(matches!(error, RuntimeDirError::NotADirectory(_)), "{error}");
        std::fs::remove_file(&path).unwrap();

        std::fs::write(&path, "").unwrap();
        let error = RuntimeDir::open(&temporary(base.path())).unwrap_err();
        assert!(matches!(error, RuntimeDirError::NotADirectory(_)), "{error}");
        std::fs::remove_file(&path).unwrap();

        create_dir(&path).unwrap();
        mode(&path, 0o750);
        let error = RuntimeDir::open(&temporary(base.path())).unwrap_err();
        assert!(error.to_string().contains("(mode 0750); run `chmod 700`"), "{error}");
        assert_eq!(path.metadata().unwrap().mode() & 0o7777, 0o750);
    }

    #[test]
    fn a_place_where_others_could_exchange_it_is_refused() {
        let base = tempfile::tempdir().unwrap();
        mode(base.path(), 0o777);
        let error = RuntimeDir::open(&temporary(base.path())).unwrap_err();
        assert!(matches!(error, RuntimeDirError::Unsafe(_)), "{error}");
        mode(base.path(), 0o1777);
        assert!(RuntimeDir::open(&temporary(base.path())).is_ok());
    }

    #[test]
    fn another_users_directory_is_refused() {
        // Only root can hand a directory over; elsewhere /proc/1 stands for one that is not ours.
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("theirs");
        create_dir(&path).unwrap();
        let path =
            if std::os::unix::fs::chown(&path, Some(65_534), None).is_ok() { path } else { "/root".into() };
        let error = open_private(&path).unwrap_err();
        assert!(matches!(error, RuntimeDirError::Foreign { .. }), "{error}");
    }
}
