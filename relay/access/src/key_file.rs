//! Stores the link of a running relay in a file that only its owner can read, removed on exit.

use super::runtime_dir::RuntimeDir;
use rustix::fs::{self, AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt as _;

/// Description of a running relay that is stored for `relay link`. Contains the key, which `Debug` omits.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Running {
    /// Its process id.
    pub pid: u32,
    /// Its version.
    pub version: String,
    /// When it started, in seconds since 1970.
    pub since_s: u64,
    /// The watched jobs or machines, as shown to the user.
    pub watches: String,
    /// The requested jobs or machines, to compare with another request; empty if an older build runs.
    #[serde(default)]
    pub requested_watch: String,
    /// Its other settings by name, to compare with another request.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
    /// The addresses that it listens on.
    #[serde(default)]
    pub addresses: Vec<String>,
    /// Whether actions are disabled.
    #[serde(default)]
    pub read_only: bool,
    /// Its links, one per address.
    pub links: Vec<String>,
    /// The `ssh -L` command that leads to it.
    pub tunnel: String,
    /// The `ssh -L` command for its private socket, if ssh can reach that.
    pub own_tunnel: Option<String>,
    /// Whether other users could listen at the path of the private socket once its folder is gone.
    #[serde(default)]
    pub is_socket_in_shared_place: bool,
}

impl fmt::Debug for Running {
    /// Without the links, which contain the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running")
            .field("pid", &self.pid)
            .field("watches", &self.watches)
            .finish_non_exhaustive()
    }
}

/// The key file of this relay, removed on drop.
///
/// It stays locked while the relay lives, which distinguishes it from one left behind by a killed relay:
/// the kernel releases the lock in any case.
#[derive(Debug)]
pub struct KeyFile {
    dir: RuntimeDir,
    name: String,
    content: Vec<u8>,
    locked: File,
}

const SUFFIX: &str = ".key";
/// Suffix of the file of a relay that is shutting down.
const ENDING_SUFFIX: &str = ".ending";

/// The name of a relay's private socket, next to its key file; see `RuntimeDir::socket`.
pub fn socket_name(pid: u32) -> String {
    format!("{pid}.sock")
}

/// Maximum size of a key file; larger files are not read.
const MAX_BYTES: u64 = 64 * 1024;

impl KeyFile {
    /// Writes the key file of this process, readable by its owner only (0600).
    ///
    /// # Errors
    /// If the directory is not writable.
    pub fn write(dir: RuntimeDir, running: &Running) -> std::io::Result<Self> {
        let (name, content) = (format!("{}{SUFFIX}", running.pid), serde_json::to_vec(running)?);
        let locked = publish(&dir, &name, &content)?;
        Ok(Self { dir, name, content, locked })
    }

    /// Writes the file again if it or its directory was deleted, as by a program that cleans `/tmp`. Returns whether it was.
    ///
    /// # Errors
    /// If that is not possible at present.
    pub fn restore(&mut self) -> std::io::Result<bool> {
        let found = std::fs::symlink_metadata(self.dir.path().join(&self.name));
        let own = self.locked.metadata()?;
        if found.is_ok_and(|found| (found.dev(), found.ino()) == (own.dev(), own.ino())) {
            return Ok(false);
        }
        let dir = self.dir.restored().map_err(std::io::Error::other)?;
        (self.locked, self.dir) = (publish(&dir, &self.name, &self.content)?, dir);
        Ok(true)
    }

    /// Withdraws the links while the relay shuts down: [`running`] no longer finds it, but [`ending`] does.
    pub fn withdraw(&mut self) {
        let ending = self.name.replace(SUFFIX, ENDING_SUFFIX);
        if fs::renameat(self.dir.fd(), &self.name, self.dir.fd(), &ending).is_ok() {
            self.name = ending;
        }
    }
}

impl Drop for KeyFile {
    fn drop(&mut self) {
        remove(&self.dir, &self.name);
    }
}

/// Writes a key file, which others see complete and locked; returns the locked file.
fn publish(dir: &RuntimeDir, name: &str, content: &[u8]) -> std::io::Result<File> {
    let draft = format!("{}.new", name.trim_end_matches(SUFFIX));
    remove(dir, &draft);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(fs::openat(dir.fd(), &draft, flags, Mode::RUSR | Mode::WUSR)?);
    fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    file.write_all(content)?;
    // systemd deletes old files of a temporary directory, but not below a directory that is locked.
    let _ = fs::flock(dir.fd(), FlockOperation::NonBlockingLockShared);
    // Only now is it visible to `relay link`.
    fs::renameat(dir.fd(), &draft, dir.fd(), name)?;
    Ok(file)
}

/// All relays of this user on this machine, oldest process first. Removes the files of dead ones.
///
/// # Errors
/// If the directory cannot be listed.
pub fn running(dir: &RuntimeDir) -> std::io::Result<Vec<Running>> {
    of_living(dir, SUFFIX)
}

/// The relays of this user on this machine that are shutting down, oldest process first. Removes the files of dead ones.
///
/// # Errors
/// If the directory cannot be listed.
pub fn ending(dir: &RuntimeDir) -> std::io::Result<Vec<Running>> {
    of_living(dir, ENDING_SUFFIX)
}

fn of_living(dir: &RuntimeDir, suffix: &str) -> std::io::Result<Vec<Running>> {
    let mut found = Vec::new();
    for entry in fs::Dir::read_from(dir.fd())? {
        let entry = entry?;
        match entry.file_name().to_str() {
            Ok(name) if name.ends_with(suffix) => found.extend(read(dir, name, suffix)),
            _ => {}
        }
    }
    found.sort_by_key(|running| running.pid);
    Ok(found)
}

fn read(dir: &RuntimeDir, name: &str, suffix: &str) -> Option<Running> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(fs::openat(dir.fd(), name, flags, Mode::empty()).ok()?);
    match fs::flock(&file, FlockOperation::NonBlockingLockShared) {
        Err(Errno::WOULDBLOCK) => {}
        Ok(()) => {
            remove(dir, name);
            remove(dir, &format!("{}.sock", name.trim_end_matches(suffix)));
            return None;
        }
        Err(_) => return None,
    }
    let mut text = String::new();
    file.take(MAX_BYTES).read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

/// Best effort: nothing depends on the file's existence.
fn remove(dir: &RuntimeDir, name: &str) {
    let _ = fs::unlinkat(dir.fd(), name, AtFlags::empty());
}

#[cfg(test)]
mod tests {
    use super::super::runtime_dir::Places;
    use super::*;
    use std::os::unix::fs::MetadataExt;

    fn dir(base: &tempfile::TempDir) -> RuntimeDir {
        RuntimeDir::open(&Places { temporary: base.path().into(), ..Places::default() }).unwrap()
    }

    fn one(pid: u32) -> Running {
        Running {
            pid,
            version: "0.1.0".into(),
            since_s: 1_763_725_200,
            watches: "your SLURM jobs".into(),
            requested_watch: "your SLURM jobs".into(),
            settings: BTreeMap::from([("bind".into(), format!("127.0.0.1:{pid}"))]),
            addresses: vec![format!("127.0.0.1:{pid}")],
            read_only: false,
            links: vec![format!("http://127.0.0.1:{pid}/#k=x")],
            tunnel: "ssh -L …".into(),
            own_tunnel: None,
            is_socket_in_shared_place: false,
        }
    }

    #[test]
    fn running_relays_are_found_and_vanish_when_they_end() {
        let base = tempfile::tempdir().unwrap();
        let first = KeyFile::write(dir(&base), &one(17)).unwrap();
        let second = KeyFile::write(dir(&base), &one(4)).unwrap();
        assert!(running(&dir(&base)).unwrap() == [one(4), one(17)]);
        drop(second);
        assert!(running(&dir(&base)).unwrap() == [one(17)]);
        drop(first);
        assert!(running(&dir(&base)).unwrap().is_empty());
    }

    #[test]
    fn a_relay_that_shuts_down_has_no_links_any_more_until_it_has_ended() {
        let base = tempfile::tempdir().unwrap();
        let mut file = KeyFile::write(dir(&base), &one(17)).unwrap();
        assert!(ending(&dir(&base)).unwrap().is_empty());
        file.withdraw();
        assert!(running(&dir(&base)).unwrap().is_empty());
        assert!(ending(&dir(&base)).unwrap() == [one(17)]);
        drop(file);
        assert!(ending(&dir(&base)).unwrap().is_empty());
        // One that was killed meanwhile.
        let path = dir(&base).path().join("99.ending");
        std::fs::write(&path, serde_json::to_vec(&one(99)).unwrap()).unwrap();
        assert!(ending(&dir(&base)).unwrap().is_empty() && !path.exists());
    }

    #[test]
    fn f24_a_key_file_that_was_deleted_is_written_again_with_its_directory() {
        let base = tempfile::tempdir().unwrap();
        let mut file = KeyFile::write(dir(&base), &one(17)).unwrap();
        assert!(!file.restore().unwrap());
        let path = dir(&base).path().to_owned();
        let deletes: [fn(&std::path::Path) -> std::io::Result<()>; 2] =
            [|path| std::fs::remove_dir_all(path), |path| std::fs::remove_file(path.join("17.key"))];
        for delete in deletes {
            delete(&path).unwrap();
            assert!(file.restore().unwrap() && !file.restore().unwrap());
            assert!(running(&dir(&base)).unwrap() == [one(17)]);
            assert_eq!(path.metadata().unwrap().mode() & 0o7777, 0o700);
            assert_eq!(path.join("17.key").metadata().unwrap().mode() & 0o7777, 0o600);
        }
        // Nobody else's directory is used.
        std::fs::remove_dir_all(&path).unwrap();
        std::os::unix::fs::symlink(base.path(), &path).unwrap();
        file.restore().unwrap_err();
    }

    #[test]
    fn only_the_owner_can_read_the_file() {
        let base = tempfile::tempdir().unwrap();
        let file = KeyFile::write(dir(&base), &one(17)).unwrap();
        let path = file.dir.path().join("17.key");
        assert_eq!(path.metadata().unwrap().mode() & 0o7777, 0o600);
    }

    #[test]
    fn leftovers_of_a_killed_relay_are_removed() {
        let base = tempfile::tempdir().unwrap();
        let path = dir(&base).path().join("99.key");
        std::fs::write(&path, serde_json::to_vec(&one(99)).unwrap()).unwrap();
        let socket = path.with_extension("sock");
        drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
        assert!(running(&dir(&base)).unwrap().is_empty());
        assert!(!path.exists() && !socket.exists());
    }

    #[test]
    fn a_relay_of_an_older_build_is_found_too() {
        let old = r#"{"pid":7,"version":"0.0.9","since_s":1,"watches":"x","links":[],"tunnel":"","own_tunnel":null}"#;
        let found: Running = serde_json::from_str(old).unwrap();
        assert_eq!((found.pid, found.requested_watch.as_str(), found.addresses.len()), (7, "", 0));
    }

    #[test]
    fn strange_files_are_no_relays() {
        let base = tempfile::tempdir().unwrap();
        let path = dir(&base).path().to_owned();
        std::os::unix::fs::symlink("/etc/passwd", path.join("1.key")).unwrap();
        std::fs::create_dir(path.join("2.key")).unwrap();
        std::fs::write(path.join("notes"), "x").unwrap();
        assert!(running(&dir(&base)).unwrap().is_empty());
    }
}
