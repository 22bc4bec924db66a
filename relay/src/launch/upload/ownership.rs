//! Who could exchange the local probe: its owner, the owners of the folders above it, and who else may write there.

use std::fs::{Metadata, metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What makes a probe unsafe to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Risk {
    /// A file or folder can be written by others.
    Writable(PathBuf),
    /// A file or folder belongs to another user, who can make it writable at any time.
    Foreign(PathBuf, u32),
}

/// The file, or the first folder above it, that others could use to exchange the probe. As sshd's StrictModes, but the
/// owner counts whatever the mode is: he can change the mode.
pub(super) fn risk(path: &Path, meta: &Metadata) -> io::Result<Option<Risk>> {
    let own_uid = rustix::process::getuid().as_raw();
    if let Some(risk) = risk_of(path, meta, own_uid) {
        return Ok(Some(risk));
    }
    for folder in path.ancestors().skip(1) {
        let meta = metadata(folder)?;
        // In a container the system's folders belong to a user who has no number in it.
        let is_of_system = meta.uid() == OVERFLOW_UID && meta.mode() & 0o022 == 0 && !is_mapped(OVERFLOW_UID);
        match risk_of(folder, &meta, own_uid) {
            Some(_) if is_of_system => {}
            Some(risk) => return Ok(Some(risk)),
            None => {}
        }
    }
    Ok(None)
}

/// The kernel's number for owners that a user namespace does not know.
const OVERFLOW_UID: u32 = 65_534;

/// Whether this user namespace has a user of that number.
fn is_mapped(uid: u32) -> bool {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    map_has(&map, uid)
}

fn map_has(map: &str, uid: u32) -> bool {
    map.lines().any(|line| {
        let mut numbers = line.split_ascii_whitespace().map(str::parse::<u64>);
        let (Some(Ok(first)), Some(Ok(_)), Some(Ok(count))) =
            (numbers.next(), numbers.next(), numbers.next())
        else {
            return false;
        };
        (first..first.saturating_add(count)).contains(&u64::from(uid))
    })
}

/// A group whose number is the owner's own is taken for the owner's private group, which several distributions give
/// everyone together with umask 002. Within a sticky folder only the owner of an entry can exchange it.
fn risk_of(path: &Path, meta: &Metadata, own_uid: u32) -> Option<Risk> {
    if meta.uid() != 0 && meta.uid() != own_uid {
        return Some(Risk::Foreign(path.to_owned(), meta.uid()));
    }
    let is_sticky = meta.is_dir() && meta.mode() & 0o1000 != 0;
    let by_all = meta.mode() & 0o002 != 0;
    let by_group = meta.mode() & 0o020 != 0 && meta.gid() != meta.uid();
    ((by_all || by_group) && !is_sticky).then(|| Risk::Writable(path.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_user_namespace_has_owners_without_a_number() {
        assert!(map_has("         0          0 4294967295\n", OVERFLOW_UID));
        assert!(map_has("0 100000 65536\n", OVERFLOW_UID));
        assert!(!map_has("0 1000 1\n", OVERFLOW_UID));
        assert!(!map_has("", OVERFLOW_UID));
    }
}
