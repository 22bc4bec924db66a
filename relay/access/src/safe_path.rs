//! Checks that no other user can exchange a file or socket: by its permissions, or by the permissions of a folder
//! above it.
//!
//! The rule is the one of sshd's `StrictModes`: owned by the user or root, not writable by others. The owner counts
//! regardless of the mode, as the owner can change the mode.

use nodeglass_logfile::access_list;
use rustix::process::geteuid;
use std::fmt;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// An entry that other users could exchange. Reads well before "so that …".
#[derive(Debug, thiserror::Error)]
pub struct Exposed {
    /// The file or folder.
    pub path: PathBuf,
    /// The way to exchange it.
    pub how: How,
}

/// A way in which other users could exchange an entry.
#[derive(Debug)]
pub enum How {
    /// It belongs to another user.
    Foreign {
        /// The owner.
        uid: u32,
    },
    /// It is writable by others.
    Writable {
        /// Its permissions.
        mode: u32,
    },
    /// It cannot be checked.
    Unknown(io::Error),
}

impl fmt::Display for Exposed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.how {
            How::Foreign { uid } => write!(f, "{path} belongs to another user (uid {uid})"),
            How::Writable { mode } => write!(f, "{path} can be written to by others (mode {mode:04o})"),
            How::Unknown(error) => write!(f, "{path} cannot be checked ({error})"),
        }
    }
}

/// The kernel's overflow uid: owners that are not mapped into the user namespace.
const OVERFLOW_UID: u32 = 65_534;

/// Checks the folder for a socket, and those above it. The folder itself must not even be sticky: any
/// user could create a socket there while the relay is down.
///
/// # Errors
/// [`Exposed`].
pub fn check_folder(socket: &Path) -> Result<(), Exposed> {
    let folder = socket.parent().unwrap_or(Path::new("/"));
    let real = real(folder)?;
    let found = metadata(&real)?;
    if is_writable_by_others(&real, &found) {
        return Err(Exposed { path: real, how: How::Writable { mode: found.mode() & 0o7777 } });
    }
    check_folders(&real, None)
}

/// Checks an open file and the folders above it, up to `home` if it is below it; what is above that is the
/// system's responsibility.
///
/// # Errors
/// [`Exposed`].
pub fn check_file(path: &Path, file: &Metadata, home: Option<&Path>) -> Result<(), Exposed> {
    // Pipes and the like, as created by `--config <(…)`, are in no folder.
    if !file.is_file() {
        return Ok(());
    }
    if let Some(how) = exposed(path, file) {
        return Err(Exposed { path: path.to_owned(), how });
    }
    let path = real(path)?;
    let home = home.and_then(|home| home.canonicalize().ok());
    check_folders(path.parent().unwrap_or(Path::new("/")), home.as_deref())
}

fn check_folders(folder: &Path, home: Option<&Path>) -> Result<(), Exposed> {
    for folder in folder.ancestors() {
        let found = metadata(folder)?;
        if let Some(how) = exposed_folder(folder, &found) {
            return Err(Exposed { path: folder.to_owned(), how });
        }
        if home == Some(folder) {
            break;
        }
    }
    Ok(())
}

/// Returns how other users could exchange this user's entries in a folder, ignoring the folders above it.
pub(super) fn exposed_folder(folder: &Path, found: &Metadata) -> Option<How> {
    let how = exposed(folder, found)?;
    let is_harmless = match how {
        // In a sticky folder only the owner of an entry can exchange it, and the entry itself is checked
        // as well.
        How::Writable { .. } => found.mode() & 0o1000 != 0,
        How::Foreign { .. } => is_of_system(found),
        How::Unknown(_) => false,
    };
    (!is_harmless).then_some(how)
}

/// Returns whether the owner is unknown to this user namespace: in a container, system folders are.
fn is_of_system(found: &Metadata) -> bool {
    found.uid() == OVERFLOW_UID && found.mode() & 0o022 == 0 && !is_mapped(OVERFLOW_UID)
}

/// Returns whether this user namespace maps that uid.
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

fn exposed(path: &Path, found: &Metadata) -> Option<How> {
    let (uid, mode) = (found.uid(), found.mode() & 0o7777);
    if uid != 0 && uid != geteuid().as_raw() {
        return Some(How::Foreign { uid });
    }
    is_writable_by_others(path, found).then_some(How::Writable { mode })
}

/// A group with the owner's own number is the owner's private group, which several distributions create
/// together with umask 002. With an ACL the group bits of the mode may apply to any user.
fn is_writable_by_others(path: &Path, found: &Metadata) -> bool {
    let by_all = found.mode() & 0o002 != 0;
    let by_group = found.mode() & 0o020 != 0;
    by_all || by_group && (found.gid() != found.uid() || access_list::is_on_path(path))
}

fn real(path: &Path) -> Result<PathBuf, Exposed> {
    path.canonicalize().map_err(|error| Exposed { path: path.to_owned(), how: How::Unknown(error) })
}

fn metadata(path: &Path) -> Result<Metadata, Exposed> {
    path.metadata().map_err(|error| Exposed { path: path.to_owned(), how: How::Unknown(error) })
}

/// Grants another user access by a POSIX ACL, as `setfacl -m u:USER:…` does.
#[cfg(any(test, feature = "test-support"))]
pub fn grant_by_acl(path: &Path, rights: u16) -> rustix::io::Result<()> {
    const NOBODY: u32 = u32::MAX;
    // The tags of linux/posix_acl.h: owner, user, group, mask, others.
    let entries = [(1, 7, NOBODY), (2, rights, 7_102), (4, 0, NOBODY), (16, rights, NOBODY), (32, 0, NOBODY)];
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, rights, id) in entries {
        list.extend(u16::to_le_bytes(tag));
        list.extend(u16::to_le_bytes(rights));
        list.extend(u32::to_le_bytes(id));
    }
    rustix::fs::setxattr(path, "system.posix_acl_access", &list, rustix::fs::XattrFlags::empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{File, Permissions, create_dir, set_permissions};
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    fn mode(path: &Path, mode: u32) {
        set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    fn file(path: &Path, home: &Path) -> Result<(), String> {
        let found = File::open(path).unwrap().metadata().unwrap();
        check_file(path, &found, Some(home)).map_err(|exposed| exposed.to_string())
    }

    #[test]
    fn a_socket_is_created_only_where_no_other_user_could_create_it() {
        let base = tempfile::tempdir().unwrap();
        let folder = base.path().join("run");
        create_dir(&folder).unwrap();
        let socket = folder.join("relay.sock");
        for (bits, is_safe) in [(0o700, true), (0o755, true), (0o777, false), (0o1777, false), (0o757, false)]
        {
            mode(&folder, bits);
            let checked = check_folder(&socket);
            assert_eq!(checked.is_ok(), is_safe, "{bits:o}: {checked:?}");
        }
        mode(&folder, 0o700);
        mode(base.path(), 0o777);
        assert!(check_folder(&socket).unwrap_err().to_string().contains("written to by others (mode 0777)"));
        // The system's own /tmp.
        mode(base.path(), 0o1777);
        assert!(check_folder(&socket).is_ok());
        symlink("/tmp", base.path().join("link")).unwrap();
        assert!(
            check_folder(&base.path().join("link/relay.sock")).is_err(),
            "the target of the link is checked"
        );
        assert!(check_folder(&base.path().join("none/relay.sock")).is_err());
    }

    #[test]
    fn a_file_in_reach_of_others_is_exposed_by_its_mode_its_owner_or_a_folder() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("nodeglass");
        create_dir(&folder).unwrap();
        let path = folder.join("config.toml");
        File::create(&path).unwrap();
        for (bits, is_safe) in [(0o600, true), (0o644, true), (0o666, false), (0o646, false)] {
            mode(&path, bits);
            assert_eq!(file(&path, home.path()).is_ok(), is_safe, "{bits:o}");
        }
        mode(&path, 0o600);
        mode(&folder, 0o777);
        assert!(file(&path, home.path()).unwrap_err().contains("nodeglass can be written to"));
        mode(&folder, 0o700);
        if chown(&path, Some(65_533), None).is_ok() {
            assert!(file(&path, home.path()).unwrap_err().contains("another user (uid 65533)"));
            chown(&path, Some(0), Some(65_533)).unwrap();
            mode(&path, 0o660);
            assert!(file(&path, home.path()).unwrap_err().contains("(mode 0660)"), "a group of others");
            chown(&path, Some(0), Some(0)).unwrap();
            assert!(file(&path, home.path()).is_ok(), "the user's own group");
            chown(&folder, Some(65_533), None).unwrap();
            assert!(file(&path, home.path()).unwrap_err().contains("nodeglass belongs to another user"));
        }
    }

    #[test]
    fn a_file_that_an_acl_lets_others_write_is_exposed() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("nodeglass");
        create_dir(&folder).unwrap();
        let path = folder.join("config.toml");
        File::create(&path).unwrap();
        mode(&path, 0o600);
        let owner = geteuid().as_raw();
        if chown(&folder, None, Some(owner)).is_err() || grant_by_acl(&folder, 0o5).is_err() {
            eprintln!("skipped: no ACL can be set here");
            return;
        }
        assert!(file(&path, home.path()).is_ok(), "others may only read");
        let socket = folder.join("relay.sock");
        assert!(check_folder(&socket).is_ok());
        grant_by_acl(&folder, 0o7).unwrap();
        assert!(file(&path, home.path()).unwrap_err().contains("nodeglass can be written to by others"));
        assert!(
            check_folder(&socket).unwrap_err().to_string().contains("nodeglass can be written to by others")
        );
        rustix::fs::removexattr(&folder, "system.posix_acl_access").unwrap();
        mode(&folder, 0o770);
        assert!(file(&path, home.path()).is_ok(), "the owner's private group");
    }

    #[test]
    fn only_a_user_namespace_has_owners_without_a_number() {
        assert!(map_has("         0          0 4294967295\n", OVERFLOW_UID));
        assert!(map_has("0 100000 65536\n", OVERFLOW_UID));
        assert!(!map_has("0 1000 1\n", OVERFLOW_UID));
        assert!(!map_has("", OVERFLOW_UID));
    }

    #[test]
    fn folders_above_the_home_belong_to_the_system() {
        let base = tempfile::tempdir().unwrap();
        let home = base.path().join("alice");
        create_dir(&home).unwrap();
        let path = home.join("config.toml");
        File::create(&path).unwrap();
        mode(&path, 0o600);
        mode(&home, 0o700);
        mode(base.path(), 0o777);
        assert!(file(&path, &home).is_ok());
        assert!(file(&path, Path::new("/nowhere")).is_err());
    }
}
