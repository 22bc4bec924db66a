//! Reads a file that lists machines, within bounds and without waiting for a writer.

use nodeglass_platform::regular_file;
use std::io::{self, Read};
use std::path::Path;

/// Maximum size of a file; a thousand hosts are 20 kB.
pub const MAX_BYTES: u64 = 1 << 20;

/// Error of reading a list of machines. Fragments read well after "the list of machines PATH cannot be read: ".
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It cannot be opened or read, or is a directory, a pipe or a device.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Too large.
    #[error("it is larger than 1 MiB; is it the right file?")]
    Large,
    /// Not text.
    #[error("it is not a text file")]
    Binary,
}

/// Reads the text of a file.
///
/// # Errors
/// [`FileError`].
pub fn read(path: &Path) -> Result<String, FileError> {
    let mut bytes = Vec::new();
    // The size may be wrong: files of /proc have none.
    regular_file::open(path)?.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(FileError::Large);
    }
    // A comment may be in any encoding; an entry with such a character is reported with its line.
    match bytes.contains(&0) {
        true => Err(FileError::Binary),
        false => Ok(String::from_utf8_lossy(&bytes).into_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn what_is_no_text_file_is_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        regular_file::make_pipe(&path("pipe"));
        fs::write(path("large"), vec![b'#'; MAX_BYTES as usize + 1]).unwrap();
        fs::write(path("nul"), b"gpu1\0").unwrap();
        for (name, message) in [
            ("pipe", "a pipe"),
            (".", "a directory"),
            ("large", "1 MiB"),
            ("nul", "not a text file"),
            ("missing", "No such file"),
        ] {
            let error = read(&path(name)).unwrap_err().to_string();
            assert!(error.contains(message), "{name}: {error}");
        }
        assert!(read(Path::new("/dev/null")).unwrap_err().to_string().contains("a device"));
    }

    #[test]
    fn a_file_may_be_empty_and_in_any_encoding() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("hosts"), "").unwrap();
        assert_eq!(read(&dir.path().join("hosts")).unwrap(), "");
        fs::write(dir.path().join("latin"), b"gpu1 # \xfc\n").unwrap();
        assert!(read(&dir.path().join("latin")).unwrap().starts_with("gpu1 # "));
    }
}
