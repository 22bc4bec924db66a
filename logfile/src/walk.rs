//! Walks the path of a log one component at a time, so that everything on the path is verified.
//!
//! Every component is opened relative to the folder before it and checked by `fstat` of the opened
//! file: there is no time between check and use in which another user could replace it. `openat2`
//! would not help, and Linux 4.18, which RHEL 8 uses, lacks it. Links of `/proc` to open files are
//! read as text, never followed.
//!
//! Two rules follow from who could have put there what the walk finds:
//!
//! * A symbolic link is followed if it belongs to root or to the job's owner.
//! * A folder that other users can write to lets them rename its contents: folders, files and even the
//!   owner's links. Everything behind such a folder must therefore be accessible to these users anyway,
//!   so that they cannot use the owner's permissions to read what they could not read with their own. In
//!   a folder with the sticky bit, users can rename only what is theirs.
//!
//! With a POSIX ACL, the group bits of the mode do not reveal who has which permission. Such a
//! folder counts as writable by everybody if its ACL lets other users write, and its contents as
//! readable only by the bits for others.

use super::{Distrust, FileId, LogFile, OpenError, READ, access_list, credentials, id, regular};
use rustix::fs::{FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// Maximum number of links; Linux's own limit.
const MAX_LINKS: u32 = 40;
/// Tolerated difference between the clocks of file servers and SLURM's controller, in seconds.
const SKEW_S: i64 = 120;

const READ_BIT: u32 = 0o4;
const WRITE_BIT: u32 = 0o2;
const SEARCH_BIT: u32 = 0o1;
const STICKY: u32 = 0o1000;

/// Requirements of a file for a guest.
pub(crate) struct Guard {
    /// The owner of the job.
    pub owner: u32,
    /// When the job started, in s since 1970.
    pub since_s: i64,
    /// Locations that must not contain a log.
    pub credentials: Vec<FileId>,
}

impl Guard {
    /// For a job of the user as whom this thread runs.
    pub fn of_this_user(since_s: i64) -> Self {
        let owner = rustix::process::geteuid().as_raw();
        Self { owner, since_s, credentials: credentials::places() }
    }

    /// Opens the log at an absolute path.
    pub fn open(&self, path: &Path) -> Result<LogFile, OpenError> {
        let mut walk = Walk::from_root(self)?;
        let mut ahead = components(path.as_os_str());
        while let Some(name) = ahead.pop_front() {
            if name == ".." {
                walk.up();
                continue;
            }
            walk.note_who_can_write_here();
            match walk.inspect(&name)? {
                Found::Folder(_) if credentials::is_runtime_folder(&name) => {
                    return Err(Distrust::Credentials.into());
                }
                Found::Folder(folder) => walk.enter(folder)?,
                Found::Link(target) => {
                    walk.count_link()?;
                    if target.as_bytes().starts_with(b"/") {
                        walk.folders.truncate(1);
                    }
                    for name in components(&target).into_iter().rev() {
                        ahead.push_front(name);
                    }
                }
                Found::Other if ahead.is_empty() => return walk.open_file(&name),
                Found::Other => return Err(OpenError::Missing),
            }
        }
        Err(OpenError::Kind("a folder"))
    }
}

/// The components of a path, without `.` and empty ones.
fn components(path: &OsStr) -> VecDeque<OsString> {
    let parts = path.as_bytes().split(|byte| *byte == b'/');
    parts
        .filter(|part| !part.is_empty() && *part != b".")
        .map(|part| OsString::from_vec(part.to_vec()))
        .collect()
}

/// An open folder.
struct Folder {
    fd: OwnedFd,
    access: Access,
}

/// Permissions of a file or folder.
struct Access {
    stat: Stat,
    has_acl: bool,
}

impl Access {
    fn of(fd: impl AsFd, stat: Stat) -> Self {
        // Without group bits, the mask cancels everything that an ACL grants.
        let has_acl = stat.st_mode & 0o070 != 0 && access_list::is_on(fd);
        Self { stat, has_acl }
    }
}

enum Found {
    Folder(Folder),
    Link(OsString),
    Other,
}

/// Other users who share a permission.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Group(u32),
    Everybody,
}

impl Class {
    /// Returns whether these users certainly have the permission on a file.
    fn may(self, bit: u32, access: &Access) -> bool {
        let stat = &access.stat;
        match self {
            Self::Group(group) if group == stat.st_gid && !access.has_acl => stat.st_mode & (bit << 3) != 0,
            Self::Group(_) | Self::Everybody => stat.st_mode & bit != 0,
        }
    }
}

struct Walk<'a> {
    guard: &'a Guard,
    /// From the root to the current folder; never empty.
    folders: Vec<Folder>,
    /// Users who could have chosen the next component.
    choosers: Vec<Class>,
    links: u32,
}

impl<'a> Walk<'a> {
    fn from_root(guard: &'a Guard) -> Result<Self, OpenError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open("/", flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&fd)?;
        let access = Access::of(&fd, stat);
        Ok(Self { guard, folders: vec![Folder { fd, access }], choosers: Vec::new(), links: 0 })
    }

    fn here(&self) -> &Folder {
        self.folders.last().expect("the root is never left")
    }

    /// Returns to the previous folder of the walk: not `..` of the file system, which moves with its folder.
    fn up(&mut self) {
        if self.folders.len() > 1 {
            self.folders.pop();
        }
    }

    fn enter(&mut self, folder: Folder) -> Result<(), OpenError> {
        self.judge(&folder.access, SEARCH_BIT)?;
        self.folders.push(folder);
        Ok(())
    }

    fn count_link(&mut self) -> Result<(), Distrust> {
        self.links += 1;
        if self.links > MAX_LINKS { Err(Distrust::TooManyLinks) } else { Ok(()) }
    }

    /// Notes who, besides root and the job's owner, can replace the contents of this folder.
    fn note_who_can_write_here(&mut self) {
        let Access { stat, has_acl } = &self.here().access;
        let foreign = !self.is_trusted(stat.st_uid);
        let mut found = Vec::new();
        if foreign {
            // A folder's owner can always write to it, but need not be in its group: files created in a
            // setgid folder get its group. So only what all users may access is certainly accessible to the
            // owner.
            found.push(Class::Everybody);
        }
        if (foreign || stat.st_mode & STICKY == 0) && self.is_accessible_to_others() {
            if stat.st_mode & WRITE_BIT != 0 || *has_acl && stat.st_mode & WRITE_BIT << 3 != 0 {
                found.push(Class::Everybody);
            }
            // The group of root has no other members.
            if stat.st_mode & WRITE_BIT << 3 != 0 && stat.st_gid != 0 {
                found.push(Class::Group(stat.st_gid));
            }
        }
        found.retain(|class| !self.choosers.contains(class));
        self.choosers.append(&mut found);
    }

    /// Returns whether other users can enter. A user may be in several groups, and an ACL may name anyone, so
    /// only a folder that is closed to all other users keeps them out.
    fn is_accessible_to_others(&self) -> bool {
        let anyone = SEARCH_BIT | SEARCH_BIT << 3;
        self.folders.iter().all(|folder| folder.access.stat.st_mode & anyone != 0)
    }

    fn is_trusted(&self, uid: u32) -> bool {
        uid == 0 || uid == self.guard.owner
    }

    /// The entry of this name, not opened for reading yet.
    fn inspect(&self, name: &OsStr) -> Result<Found, OpenError> {
        let path = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // As a folder first: this also mounts a file system that is mounted on demand.
        match rustix::fs::openat(&self.here().fd, name, path | OFlags::DIRECTORY, Mode::empty()) {
            Ok(fd) => {
                let stat = rustix::fs::fstat(&fd)?;
                let access = Access::of(&fd, stat);
                return Ok(Found::Folder(Folder { fd, access }));
            }
            Err(Errno::NOTDIR | Errno::LOOP) => {}
            Err(error) => return Err(error.into()),
        }
        let fd = rustix::fs::openat(&self.here().fd, name, path, Mode::empty())?;
        let stat = rustix::fs::fstat(&fd)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
            regular(&stat)?;
            return Ok(Found::Other);
        }
        if !self.is_trusted(stat.st_uid) {
            return Err(Distrust::ForeignLink.into());
        }
        // A link can have a second hard link created by another user, unless the system forbids that.
        let is_shared = self.here().access.stat.st_mode & (WRITE_BIT | WRITE_BIT << 3) != 0;
        if stat.st_nlink > 1 && (is_shared || !self.choosers.is_empty()) {
            return Err(Distrust::SeveralNames.into());
        }
        let target = rustix::fs::readlinkat(&fd, "", Vec::new())?;
        Ok(Found::Link(OsString::from_vec(target.into_bytes())))
    }

    /// Opens the file of this name and checks the opened file.
    fn open_file(&self, name: &OsStr) -> Result<LogFile, OpenError> {
        let fd = match rustix::fs::openat(&self.here().fd, name, READ | OFlags::NOFOLLOW, Mode::empty()) {
            // It became a link since the check.
            Err(Errno::LOOP) => return Err(Distrust::ForeignLink.into()),
            opened => opened?,
        };
        let stat = rustix::fs::fstat(&fd)?;
        regular(&stat)?;
        if stat.st_uid != self.guard.owner {
            return Err(Distrust::ForeignFile.into());
        }
        if stat.st_nlink > 1 {
            return Err(Distrust::SeveralNames.into());
        }
        if stat.st_mtime < self.guard.since_s.saturating_sub(SKEW_S) {
            return Err(Distrust::OlderThanJob.into());
        }
        self.judge(&Access::of(&fd, stat), READ_BIT)?;
        Ok(LogFile::new(File::from(fd), &stat))
    }

    /// Returns whether everybody who could have chosen it may read it themselves, and it is not in a location
    /// of keys.
    fn judge(&self, access: &Access, bit: u32) -> Result<(), Distrust> {
        if self.guard.credentials.contains(&id(&access.stat)) {
            return Err(Distrust::Credentials);
        }
        let open = self.choosers.iter().all(|class| class.may(bit, access));
        if open { Ok(()) } else { Err(Distrust::Replaceable) }
    }
}
