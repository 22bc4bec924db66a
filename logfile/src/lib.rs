//! Opens the log of a job with its owner's rights, without letting anybody else choose which file that is.
//!
//! The owner reads whatever their rights allow. A guest of a share has no rights on the machine at all, but may be
//! able to write to the folder of the log; the file is therefore opened by [`walk`], one component at a time.

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

/// Device and inode: which file it is, whatever its name.
pub type FileId = (u64, u64);

/// A log that was opened.
#[derive(Debug)]
pub struct LogFile {
    file: File,
    /// Which file it is, to notice that another one took its name.
    pub id: FileId,
    /// Its size when it was opened, in bytes.
    pub size: u64,
    /// When it was last written, in s since 1970.
    pub written_s: i64,
}

/// Why a log was not opened. Each message reads well after "it cannot be read: ".
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is no such file.
    #[error("no such file")]
    Missing,
    /// The path does not say where it begins.
    #[error("the path of a log must begin with /")]
    Relative,
    /// The system does not let this user read it.
    #[error("it may not be read by this user")]
    Denied,
    /// It is something else than a regular file.
    #[error("it is {0}, not a regular file")]
    Kind(&'static str),
    /// A guest asks, and it is not certain that the file is the job's log.
    #[error("it is not shown to guests: {0}")]
    Distrusted(#[from] Distrust),
    /// The system failed.
    #[error("{0}")]
    Io(io::Error),
}

/// Why a file is not taken for the job's log when a guest asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Distrust {
    /// Somebody else made a symbolic link on the way.
    #[error("a symbolic link on its path belongs to another user")]
    ForeignLink,
    /// More links than the system itself follows.
    #[error("its path leads through too many symbolic links")]
    TooManyLinks,
    /// It is not the job owner's.
    #[error("the file belongs to another user")]
    ForeignFile,
    /// It has another name somewhere.
    #[error("the file has several names (hard links)")]
    SeveralNames,
    /// It was last written before the job started.
    #[error("the file is older than the job")]
    OlderThanJob,
    /// Somebody else can exchange it, and could not read what they may have put there.
    #[error("others can replace it but may not read it themselves; give them the right to read it")]
    Replaceable,
    /// It lies among keys and passwords.
    #[error("it lies where keys and passwords are kept")]
    Credentials,
}

impl LogFile {
    /// Opens the log at `path` with the rights of this process, which is the job owner's.
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

    /// Reads `length` bytes from the offset `from`; fewer if the file became shorter meanwhile.
    ///
    /// # Errors
    /// What the file system says.
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

/// What a log is opened with: a pipe that took its place after it was looked at is not waited for.
const READ: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

fn open_as_the_system_does(path: &Path) -> Result<LogFile, OpenError> {
    // Opening a pipe may wait for a writer, and opening a device may do anything at all.
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
