//! Opens the log of a job with its owner's permissions, without letting other users choose the file.
//!
//! The owner reads any file that their permissions allow. A guest of a share has no permissions on the machine, but
//! may be able to write to the folder of the log; the file is therefore opened by [`walk`], one component at a time.

pub mod access_list;
mod credentials;
mod walk;

use nodeglass_protocol::request::Audience;
use rustix::fs::{FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use walk::Guard;

/// Device and inode: the identity of a file, independent of its name.
pub type FileId = (u64, u64);

/// An open log.
#[derive(Debug)]
pub struct LogFile {
    file: File,
    /// Its identity, to notice that another file took its name.
    pub id: FileId,
    /// Its size when it was opened, in bytes.
    pub size: u64,
    /// When it was last written, in s since 1970.
    pub written_s: i64,
}

/// Error of opening a log. Messages read well after "it cannot be read: ".
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file does not exist.
    #[error("no such file")]
    Missing,
    /// The path is relative.
    #[error("the path of a log must begin with /")]
    Relative,
    /// Permission denied.
    #[error("it may not be read by this user")]
    Denied,
    /// It is not a regular file.
    #[error("it is {0}, not a regular file")]
    Kind(&'static str),
    /// A guest requests it, and it may not be the job's log.
    #[error("it is not shown to guests: {0}")]
    Distrusted(#[from] Distrust),
    /// An I/O error.
    #[error("{0}")]
    Io(io::Error),
}

/// Reason for not showing a file to a guest as the job's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Distrust {
    /// Another user created a symbolic link on the path.
    #[error("a symbolic link on its path belongs to another user")]
    ForeignLink,
    /// More links than Linux itself follows.
    #[error("its path leads through too many symbolic links")]
    TooManyLinks,
    /// It does not belong to the job's owner.
    #[error("the file belongs to another user")]
    ForeignFile,
    /// It has another hard link.
    #[error("the file has several names (hard links)")]
    SeveralNames,
    /// It was last written before the job started.
    #[error("the file is older than the job")]
    OlderThanJob,
    /// Other users can replace it, and could not read what they may have put there.
    #[error("others can replace it but may not read it themselves; give them read permission")]
    Replaceable,
    /// It is in a location of keys and passwords.
    #[error("it is in a location of keys and passwords")]
    Credentials,
}

impl LogFile {
    /// Opens the log at `path` with the permissions of this process, which is the job owner's.
    ///
    /// # Errors
    /// [`OpenError`]; a pipe or a device is recognised without being opened.
    pub fn open(path: &Path, audience: Audience) -> Result<Self, OpenError> {
        if !path.is_absolute() {
            return Err(OpenError::Relative);
        }
        match audience {
            Audience::Owner => open_as_the_system_does(path),
            Audience::Guest { since_s } => Guard::of_this_user(since_s).open(path),
        }
    }

    /// Reads `length` bytes from the offset `from`; fewer if the file was truncated meanwhile.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn read(&self, from: u64, length: u64) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
        let mut filled = 0;
        while filled < bytes.len() {
            match self.file.read_at(&mut bytes[filled..], from + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        bytes.truncate(filled);
        Ok(bytes)
    }

    fn new(file: File, stat: &Stat) -> Self {
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        Self { file, id: id(stat), size, written_s: stat.st_mtime }
    }
}

/// Flags for opening a log: a pipe that replaced it after the check does not block.
const READ: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

fn open_as_the_system_does(path: &Path) -> Result<LogFile, OpenError> {
    // Opening a pipe may wait for a writer, and opening a device may have any effect.
    regular(&rustix::fs::stat(path)?)?;
    let file = File::from(rustix::fs::open(path, READ, Mode::empty())?);
    // Another file may have taken the name since.
    let stat = rustix::fs::fstat(&file)?;
    regular(&stat)?;
    Ok(LogFile::new(file, &stat))
}

fn regular(stat: &Stat) -> Result<(), OpenError> {
    Err(OpenError::Kind(match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => return Ok(()),
        FileType::Directory => "a folder",
        FileType::Fifo => "a pipe",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        _ => "something else",
    }))
}

fn id(stat: &Stat) -> FileId {
    (stat.st_dev, stat.st_ino)
}

impl From<Errno> for OpenError {
    fn from(error: Errno) -> Self {
        match error {
            Errno::NOENT | Errno::NOTDIR => Self::Missing,
            Errno::ACCESS | Errno::PERM => Self::Denied,
            error => Self::Io(error.into()),
        }
    }
}

#[cfg(test)]
mod tests;
