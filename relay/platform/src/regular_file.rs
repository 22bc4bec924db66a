//! Opens files that a user may have replaced by something else: a pipe would block, a device may never end.

use rustix::fs::{FileType, Mode, OFlags, open as open_at};
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Opens a regular file for reading, without waiting for a writer. Symbolic links are followed.
///
/// # Errors
/// It cannot be opened, or it is a directory, a pipe, a socket or a device.
pub fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = File::from(open_at(path, flags, Mode::empty())?);
    check(&file)?;
    Ok(file)
}

/// Creates a regular file, or empties the one that is there, without waiting for a reader.
///
/// # Errors
/// It cannot be created, or something else than a regular file has its name.
pub fn create(path: &Path) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = File::from(open_at(path, flags | OFlags::NOFOLLOW, Mode::from_raw_mode(0o666))?);
    check(&file)?;
    // Only now: a device may take it for a command.
    file.set_len(0)?;
    Ok(file)
}

/// Reads a regular file of at most `max_bytes`.
///
/// # Errors
/// As [`open`]; it cannot be read, or is larger.
pub fn read(path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    content(open(path)?, max_bytes)
}

/// Reads an open file of at most `max_bytes`.
pub(crate) fn content(file: File, max_bytes: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // The size may be wrong, or grow meanwhile.
    file.take(max_bytes + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max_bytes {
        return Err(io::Error::other(format!("it is larger than {max_bytes} bytes")));
    }
    Ok(bytes)
}

/// Checks that an open file is a regular one.
///
/// # Errors
/// It is something else, which the error names.
pub fn check(file: &File) -> io::Result<()> {
    let is = match FileType::from_raw_mode(file.metadata()?.mode()) {
        FileType::RegularFile => return Ok(()),
        FileType::Directory => "a directory",
        FileType::Fifo => "a pipe",
        FileType::Socket => "a socket",
        _ => "a device",
    };
    Err(io::Error::other(format!("it is {is}, not a file")))
}

/// Returns whether a path still leads to an open file. A user may have deleted it, and what is written to it is lost then.
pub fn is_at(file: &File, path: &Path) -> bool {
    let there = identity(path);
    there.is_some() && file.metadata().ok().map(identity_of) == there
}

/// Returns device and inode of what is at a path; `None` if nothing is. Symbolic links are not followed.
pub fn identity(path: &Path) -> Option<(u64, u64)> {
    std::fs::symlink_metadata(path).ok().map(identity_of)
}

fn identity_of(metadata: Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

/// Creates a pipe in a directory, for tests of what opens files.
#[cfg(any(test, feature = "test-support"))]
pub fn make_pipe(path: &Path) {
    let mode = Mode::RUSR | Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, path, FileType::Fifo, mode, 0).expect("a pipe can be created");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_regular_file_is_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        make_pipe(&path("pipe"));
        let _socket = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
        std::fs::write(path("file"), "text").unwrap();
        let error = |path: &Path| open(path).unwrap_err().to_string();
        assert_eq!(error(&path("pipe")), "it is a pipe, not a file");
        assert_eq!(error(dir.path()), "it is a directory, not a file");
        assert_eq!(error(Path::new("/dev/zero")), "it is a device, not a file");
        assert!(open(&path("socket")).is_err());
        assert_eq!(open(&path("missing")).unwrap_err().kind(), io::ErrorKind::NotFound);
        for odd in ["pipe", "socket"].map(path) {
            assert!(create(&odd).is_err(), "{}", odd.display());
        }
        assert_eq!(read(&path("file"), 4).unwrap(), b"text");
        assert!(read(&path("file"), 3).unwrap_err().to_string().contains("larger than 3 bytes"));
    }
}
