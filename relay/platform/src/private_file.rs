//! Reads secrets from files that only their owner can read.

use super::regular_file;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Error of reading a secret. Reads well after the name of a setting.
#[derive(Debug, thiserror::Error)]
pub enum PrivateFileError {
    /// The file cannot be read, is too large, or is not a regular file.
    #[error("{} cannot be read: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Other users can read it.
    #[error(
        "{} can be read by others (mode {mode:04o}); run `chmod 600` on it, and replace the secret if others may have read it",
        path.display()
    )]
    Open {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
}

/// Reads a regular file of at most `max_bytes` that neither group nor others can access. Permissions and content are of the
/// same open file.
///
/// # Errors
/// [`PrivateFileError`].
pub fn read(path: &Path, max_bytes: u64) -> Result<Vec<u8>, PrivateFileError> {
    let unreadable = |source| PrivateFileError::Unreadable { path: path.to_owned(), source };
    let file = regular_file::open(path).map_err(unreadable)?;
    let mode = file.metadata().map_err(unreadable)?.mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(PrivateFileError::Open { path: path.to_owned(), mode });
    }
    regular_file::content(file, max_bytes).map_err(unreadable)
}

/// As [`read`], for a file of text.
///
/// # Errors
/// [`PrivateFileError`].
pub fn read_text(path: &Path, max_bytes: u64) -> Result<String, PrivateFileError> {
    String::from_utf8(read(path, max_bytes)?).map_err(|_| PrivateFileError::Unreadable {
        path: path.to_owned(),
        source: io::Error::other("it is not text"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{Permissions, set_permissions, write};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_secret_that_others_can_access_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        write(&path, "alice:s3cret\n").unwrap();
        for mode in [0o644, 0o640, 0o604, 0o660, 0o610] {
            set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let error = read(&path, 100).unwrap_err().to_string();
            assert!(error.contains(&format!("(mode {mode:04o}); run `chmod 600`")), "{error}");
        }
        for mode in [0o600, 0o400] {
            set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            assert_eq!(read_text(&path, 100).unwrap(), "alice:s3cret\n");
        }
    }

    #[test]
    fn what_is_no_file_of_text_within_the_limit_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        write(path("binary"), b"\xff\xfe").unwrap();
        regular_file::make_pipe(&path("pipe"));
        set_permissions(path("binary"), Permissions::from_mode(0o600)).unwrap();
        for (name, max_bytes, why) in [
            ("binary", 100, "it is not text"),
            ("binary", 1, "larger than 1 bytes"),
            ("pipe", 100, "it is a pipe"),
            ("missing", 100, "cannot be read: No such file"),
        ] {
            let error = read_text(&path(name), max_bytes).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
