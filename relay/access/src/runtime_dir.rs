//! Opens the relay's private directory after verifying that only the owner can access it.

use super::safe_path;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{self, AtFlags, Mode, OFlags};
use rustix::io::Errno;
use std::env;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Maximum path length of a Unix socket (`sun_path` has 108 bytes including the NUL).
pub const MAX_SOCKET_PATH: usize = 107;

/// A directory that only this user can access, held open so that it cannot be exchanged.
#[derive(Debug)]
pub struct RuntimeDir {
    path: PathBuf,
    fd: OwnedFd,
}

/// Candidate locations of the runtime directory.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// `$XDG_RUNTIME_DIR`, which a login session sets up.
    pub session: Option<PathBuf>,
    /// Whether systemd removes the session's directory when the user logs out everywhere, while a relay may go on.
    pub session_ends: bool,
    /// `$TMPDIR`, or `/tmp`.
    pub temporary: PathBuf,
}

/// Error of finding a safe directory. Messages are complete sentences for the user.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeDirError {
    /// A symbolic link or a file is there.
    #[error("{} is not a directory, or is a symbolic link; remove it, or {ELSEWHERE}", .0.display())]
    NotADirectory(PathBuf),
    /// It belongs to another user.
    #[error("{} belongs to another user (uid {uid}); {ELSEWHERE}", path.display())]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// Its owner.
        uid: u32,
    },
    /// Other users can access it.
    #[error("{} is accessible to others (mode {mode:04o}); run `chmod 700` on it, or {ELSEWHERE}", path.display())]
    Open {
        /// The directory.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// Other users could exchange it, given the permissions of its parent.
    #[error("{} is writable by others and has no sticky bit; {ELSEWHERE}", .0.display())]
    Unsafe(PathBuf),
    /// It is not writable.
    #[error(
        "cannot write to {} ({source}), where the relay stores its link and its socket; free space there, \
         or {ELSEWHERE}",
        path.display()
    )]
    Full {
        /// The directory.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The system call failed.
    #[error("cannot use the runtime directory {}: {source}", path.display())]
    Io {
        /// The directory.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
}

/// Minimum free space in bytes: a key file, a socket and the first log lines need less.
const ROOM: usize = 16 * 1024;

const ELSEWHERE: &str = "set XDG_RUNTIME_DIR to a directory that only you can access";

/// The directory of systemd's session directories.
const SESSIONS: &str = "/run/user";
/// The directory in which systemd has a file for each user whose services and directories stay without a session.
const LINGERING: &str = "/var/lib/systemd/linger";

/// Returns whether systemd keeps the session's directory of this user without a session.
fn lingers() -> bool {
    super::user::exact_name_of(uid()).is_some_and(|name| Path::new(LINGERING).join(name).exists())
}

impl Places {
    /// The locations that the environment specifies.
    pub fn from_env() -> Self {
        let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let session = absolute("XDG_RUNTIME_DIR");
        Self {
            session_ends: session.as_ref().is_some_and(|session| session.starts_with(SESSIONS)) && !lingers(),
            session,
            temporary: absolute("TMPDIR").unwrap_or_else(|| "/tmp".into()),
        }
    }

    /// The well-known name in the temporary directory and its owner, if that is another user: a saved `ssh -L` line that names
    /// it leads to a program of theirs.
    pub fn taken(&self) -> Option<(PathBuf, u32)> {
        match foreign(&self.temporary.join(shared_name()))? {
            RuntimeDirError::Foreign { path, uid } => Some((path, uid)),
            _ => None,
        }
    }

    /// The session's own directory, if it is private.
    fn session(&self) -> Option<&Path> {
        self.session.as_deref().filter(|dir| open_private(dir).is_ok())
    }
}

impl RuntimeDirError {
    /// Returns whether another user's file or directory occupies the path, which this user can neither use nor
    /// remove.
    fn is_of_another_user(&self) -> bool {
        match self {
            Self::Foreign { .. } => true,
            Self::NotADirectory(path) => foreign(path).is_some(),
            _ => false,
        }
    }
}

fn uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The well-known name in the temporary directory.
fn shared_name() -> String {
    format!("nodeglass-{}", uid())
}

/// Alternative directories of ours, created when another user occupied the well-known name, in a stable
/// order.
fn alternatives(parent: &Path) -> Vec<PathBuf> {
    let prefix = format!("{}-", shared_name());
    let is_one = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&prefix))
            && open_private(path).is_ok()
    };
    let entries = std::fs::read_dir(parent).into_iter().flatten();
    let mut found: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).filter(is_one).collect();
    found.sort();
    found
}

impl RuntimeDir {
    /// Opens the directory, creating it if missing: `nodeglass` in the session's own directory if that is
    /// private, has space and stays when the user logs out, else `nodeglass-UID` in the temporary directory, or, if
    /// another user occupies that name, `nodeglass-UID-…` with an unpredictable suffix.
    ///
    /// # Errors
    /// [`RuntimeDirError`] if it is not private; permissions are never repaired.
    pub fn open(places: &Places) -> Result<Self, RuntimeDirError> {
        if places.session_ends
            && let Ok(opened) = Self::open_temporary(&places.temporary)
        {
            return Ok(opened);
        }
        // After `su` the variable may still name another user's directory, which is skipped.
        if let Some(session) = places.session() {
            match Self::within(session, "nodeglass").and_then(Self::check_writable) {
                Err(RuntimeDirError::Full { path, source }) => {
                    tracing::warn!(path = %path.display(), %source, "the session's directory is full, so another is used");
                }
                opened => return opened,
            }
        }
        Self::open_temporary(&places.temporary)
    }

    fn open_temporary(temporary: &Path) -> Result<Self, RuntimeDirError> {
        safe_parent(temporary)?;
        match Self::within(temporary, &shared_name()) {
            Err(error) if error.is_of_another_user() => Self::alternative(temporary)?.check_writable(),
            opened => opened.and_then(Self::check_writable),
        }
    }

    /// All directories that [`RuntimeDir::open`] may have chosen before, best first, if they are private.
    pub fn existing(places: &Places) -> Vec<Self> {
        let shared = safe_parent(&places.temporary).is_ok().then(|| {
            [places.temporary.join(shared_name())].into_iter().chain(alternatives(&places.temporary))
        });
        let paths = places.session().map(|session| session.join("nodeglass")).into_iter();
        paths
            .chain(shared.into_iter().flatten())
            .filter_map(|path| Some(Self { fd: open_private(&path).ok()?, path }))
            .collect()
    }

    /// The alternative directory for a name that another user occupies. Its suffix is random, and its
    /// owner finds it again by its permissions: nobody else can create a directory that is ours.
    fn alternative(parent: &Path) -> Result<Self, RuntimeDirError> {
        if let Some(path) = alternatives(parent).first() {
            return Ok(Self { fd: open_private(path)?, path: path.clone() });
        }
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(|error| RuntimeDirError::Io {
            path: parent.to_owned(),
            source: std::io::Error::other(error.to_string()),
        })?;
        Self::within(parent, &format!("{}-{:016x}", shared_name(), u64::from_ne_bytes(random)))
    }

    /// Returns the directory if it is writable and has space.
    fn check_writable(self) -> Result<Self, RuntimeDirError> {
        let name = format!("{}.room", std::process::id());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let written = fs::openat(&self.fd, &name, flags, Mode::RUSR | Mode::WUSR)
            .map_err(std::io::Error::from)
            .and_then(|fd| std::fs::File::from(fd).write_all(&[0; ROOM]));
        let _ = fs::unlinkat(&self.fd, &name, AtFlags::empty());
        match written {
            Ok(()) => Ok(self),
            Err(source) => Err(RuntimeDirError::Full { path: self.path, source }),
        }
    }

    fn within(parent: &Path, name: &str) -> Result<Self, RuntimeDirError> {
        let path = parent.join(name);
        match fs::mkdir(&path, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error @ (Errno::NOSPC | Errno::DQUOT | Errno::ROFS)) => {
                return Err(RuntimeDirError::Full { path, source: error.into() });
            }
            Err(error) => return Err(io(&path, error)),
        }
        Ok(Self { fd: open_private(&path)?, path })
    }

    /// Creates the directory again at the same path if it was deleted, and opens it.
    ///
    /// # Errors
    /// [`RuntimeDirError`], also while its parent is gone.
    pub fn restored(&self) -> Result<Self, RuntimeDirError> {
        let parts = self.path.parent().zip(self.path.file_name().and_then(|name| name.to_str()));
        let (parent, name) = parts.ok_or_else(|| RuntimeDirError::NotADirectory(self.path.clone()))?;
        safe_parent(parent)?;
        Self::within(parent, name)
    }

    /// Duplicates the handle, with a descriptor of its own.
    ///
    /// # Errors
    /// If no descriptor is free.
    pub fn try_clone(&self) -> std::io::Result<Self> {
        Ok(Self { path: self.path.clone(), fd: self.fd.try_clone()? })
    }

    /// Returns whether other users can create a directory of this name once it is gone, as after a restart of the machine.
    pub fn is_in_shared_place(&self) -> bool {
        let parent = self.path.parent().and_then(|parent| parent.metadata().ok());
        parent.is_none_or(|parent| parent.mode() & 0o022 != 0)
    }

    /// Its path, for display.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path to bind and connect a socket in it. If its own path is too long for a socket address, it
    /// goes through the open directory's descriptor.
    pub fn socket(&self, name: &str) -> PathBuf {
        let path = self.path.join(name);
        if path.as_os_str().len() <= MAX_SOCKET_PATH {
            return path;
        }
        format!("/proc/self/fd/{}/{name}", self.fd.as_raw_fd()).into()
    }

    /// The open directory.
    pub fn fd(&self) -> &OwnedFd {
        &self.fd
    }
}

/// Opens a directory that is not a link, belongs to us, and is inaccessible to others.
fn open_private(path: &Path) -> Result<OwnedFd, RuntimeDirError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = fs::open(path, flags, Mode::empty()).map_err(|error| match error {
        Errno::LOOP | Errno::NOTDIR => RuntimeDirError::NotADirectory(path.to_owned()),
        // Ours would be readable, so it belongs to another user; the path names which.
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

/// Returns whether only root and we can exchange a directory of ours in `parent`.
fn safe_parent(parent: &Path) -> Result<(), RuntimeDirError> {
    let found =
        parent.metadata().map_err(|source| RuntimeDirError::Io { path: parent.to_owned(), source })?;
    match safe_path::exposed_folder(parent, &found) {
        None => Ok(()),
        Some(_) => Err(RuntimeDirError::Unsafe(parent.to_owned())),
    }
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
        Places { temporary: dir.to_owned(), ..Places::default() }
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
    fn a_socket_can_be_bound_in_a_deep_directory() {
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
    fn the_session_directory_is_used_if_it_is_private() {
        let (session, base) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let places = Places { session: Some(session.path().into()), ..temporary(base.path()) };
        mode(session.path(), 0o700);
        let own = RuntimeDir::open(&places).unwrap();
        assert_eq!((own.path(), own.is_in_shared_place()), (&*session.path().join("nodeglass"), false));
        mode(session.path(), 0o755);
        mode(base.path(), 0o1777);
        let shared = RuntimeDir::open(&places).unwrap();
        assert_eq!((shared.path(), shared.is_in_shared_place()), (&*base.path().join(name()), true));
    }

    #[test]
    fn f27_a_session_directory_that_ends_with_the_session_is_used_only_without_another_one() {
        let (session, base) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let session_path = Some(session.path().into());
        let places = Places { session: session_path, session_ends: true, ..temporary(base.path()) };
        mode(session.path(), 0o700);
        assert_eq!(RuntimeDir::open(&places).unwrap().path(), base.path().join(name()));
        let places = Places { temporary: base.path().join("missing"), ..places };
        assert_eq!(RuntimeDir::open(&places).unwrap().path(), session.path().join("nodeglass"));
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
        // Only root can change an owner; otherwise /proc/1 serves as a directory that is not ours.
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("theirs");
        create_dir(&path).unwrap();
        let path =
            if std::os::unix::fs::chown(&path, Some(65_534), None).is_ok() { path } else { "/root".into() };
        let error = open_private(&path).unwrap_err();
        assert!(matches!(error, RuntimeDirError::Foreign { .. }), "{error}");
    }

    #[test]
    fn a_name_taken_by_another_user_is_skipped_and_the_chosen_one_found_again() {
        let base = tempfile::tempdir().unwrap();
        let (places, taken) = (temporary(base.path()), base.path().join(name()));
        create_dir(&taken).unwrap();
        mode(base.path(), 0o1777);
        if std::os::unix::fs::chown(&taken, Some(65_534), None).is_err() {
            return;
        }
        let first = RuntimeDir::open(&places).unwrap();
        assert_ne!(first.path(), taken);
        assert_eq!(places.taken(), Some((taken.clone(), 65_534)));
        assert_eq!(first.path().metadata().unwrap().mode() & 0o7777, 0o700);
        // A directory of that form is ignored unless it is private.
        let decoy = base.path().join(format!("{}-0", name()));
        create_dir(&decoy).unwrap();
        std::os::unix::fs::chown(&decoy, Some(65_534), None).unwrap();
        symlink("/root", base.path().join(format!("{}-1", name()))).unwrap();
        assert_eq!(RuntimeDir::open(&places).unwrap().path(), first.path());
        let existing =
            || RuntimeDir::existing(&places).iter().map(|dir| dir.path().to_owned()).collect::<Vec<_>>();
        assert_eq!(existing(), [first.path()]);
        // Once the other user's directory is gone the usual name is used again, and a running relay is
        // still found.
        std::fs::remove_dir(&taken).unwrap();
        assert_eq!(RuntimeDir::open(&places).unwrap().path(), taken);
        assert_eq!(existing(), [taken.as_path(), first.path()]);
        assert_eq!(places.taken(), None);
    }
}
