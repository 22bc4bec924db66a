//! A running relay keeps its link in a file that its owner alone can read, and that vanishes with it.

use super::runtime_dir::RuntimeDir;
use rustix::fs::{self, AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{Read, Write};

/// What a running relay writes down for `relay link`. It holds the key, so it has no `Debug`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Running {
    /// Its process.
    pub pid: u32,
    /// Its version.
    pub version: String,
    /// When it started, in seconds since 1970.
    pub since_s: u64,
    /// What it watches, as a sentence.
    pub watches: String,
    /// Its links, one per address.
    pub links: Vec<String>,
    /// The `ssh -L` line that leads to it.
    pub tunnel: String,
    /// The one that leads to its own socket, if it has one that ssh can reach.
    pub own_tunnel: Option<String>,
}

/// The file of this relay; dropping it removes it.
///
/// It stays locked while the relay lives, so that one left behind by a killed relay is known for what
/// it is: the kernel lets go of the lock, whatever became of the process.
#[derive(Debug)]
pub struct KeyFile {
    dir: RuntimeDir,
    name: String,
    _locked: File,
}

const SUFFIX: &str = ".key";

/// The name of a relay's own socket, beside its key file: `RuntimeDir::socket` leads there.
pub fn socket_name(pid: u32) -> String {
    format!("{pid}.sock")
}

/// A file of ours is far smaller; what is larger is not read.
const MAX_BYTES: u64 = 64 * 1024;

impl KeyFile {
    /// Writes the file of this process, readable by its owner alone (0600).
    ///
    /// # Errors
    /// When the directory cannot be written to.
    pub fn write(dir: RuntimeDir, running: &Running) -> std::io::Result<Self> {
        let (name, draft) = (format!("{}{SUFFIX}", running.pid), format!("{}.new", running.pid));
        remove(&dir, &draft);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(fs::openat(dir.fd(), &draft, flags, Mode::RUSR | Mode::WUSR)?);
        fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        file.write_all(&serde_json::to_vec(running)?)?;
        // Only now can `relay link` see it: whole and locked.
        fs::renameat(dir.fd(), &draft, dir.fd(), &name)?;
        Ok(Self { dir, name, _locked: file })
    }
}

impl Drop for KeyFile {
    fn drop(&mut self) {
        remove(&self.dir, &self.name);
    }
}

/// Every relay of this user that runs on this machine, oldest process first. Files of dead ones are removed.
///
/// # Errors
/// When the directory cannot be listed.
pub fn running(dir: &RuntimeDir) -> std::io::Result<Vec<Running>> {
    let mut found = Vec::new();
    for entry in fs::Dir::read_from(dir.fd())? {
        let entry = entry?;
        match entry.file_name().to_str() {
            Ok(name) if name.ends_with(SUFFIX) => found.extend(read(dir, name)),
            _ => {}
        }
    }
    found.sort_by_key(|running| running.pid);
    Ok(found)
}

fn read(dir: &RuntimeDir, name: &str) -> Option<Running> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(fs::openat(dir.fd(), name, flags, Mode::empty()).ok()?);
    match fs::flock(&file, FlockOperation::NonBlockingLockShared) {
        Err(Errno::WOULDBLOCK) => {}
        Ok(()) => {
            remove(dir, name);
            remove(dir, &format!("{}.sock", name.trim_end_matches(SUFFIX)));
            return None;
        }
        Err(_) => return None,
    }
    let mut text = String::new();
    file.take(MAX_BYTES).read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

/// Nothing depends on whether it was there, and nobody could do more about it.
fn remove(dir: &RuntimeDir, name: &str) {
    let _ = fs::unlinkat(dir.fd(), name, AtFlags::empty());
}

#[cfg(test)]
mod tests {
    use super::super::runtime_dir::Places;
    use super::*;
    use std::os::unix::fs::MetadataExt;

    fn dir(base: &tempfile::TempDir) -> RuntimeDir {
        RuntimeDir::open(&Places { session: None, temporary: base.path().into() }).unwrap()
    }

    fn one(pid: u32) -> Running {
        Running {
            pid,
            version: "0.1.0".into(),
            since_s: 1_763_725_200,
            watches: "your SLURM jobs".into(),
            links: vec![format!("http://127.0.0.1:{pid}/#k=x")],
            tunnel: "ssh -L …".into(),
            own_tunnel: None,
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
    fn only_the_owner_can_read_the_file() {
        let base = tempfile::tempdir().unwrap();
        let file = KeyFile::write(dir(&base), &one(17)).unwrap();
        let path = file.dir.path().join("17.key");
        assert_eq!(path.metadata().unwrap().mode() & 0o7777, 0o600);
    }

    #[test]
    fn what_a_killed_relay_left_behind_is_swept_away() {
        let base = tempfile::tempdir().unwrap();
        let path = dir(&base).path().join("99.key");
        std::fs::write(&path, serde_json::to_vec(&one(99)).unwrap()).unwrap();
        let socket = path.with_extension("sock");
        drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
        assert!(running(&dir(&base)).unwrap().is_empty());
        assert!(!path.exists() && !socket.exists());
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
