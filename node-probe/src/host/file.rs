//! Kernel files that stay open and are read repeatedly from the start.

use nodeglass_protocol::{Reading, Text};
use std::{fs::File, io, os::unix::fs::FileExt, path::Path};

/// Initial buffer size; larger files grow it.
const INITIAL_BYTES: usize = 2_048;
/// Maximum size of a file.
const MAX_BYTES: usize = 1 << 20;

/// Error of reading a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadError {
    /// The kernel does not provide the file, or the feature is disabled.
    Missing,
    /// Reading failed.
    Failed(Text),
}

impl From<&io::Error> for ReadError {
    fn from(error: &io::Error) -> Self {
        // Error of PSI files when disabled at boot.
        let off = error.raw_os_error() == Some(rustix::io::Errno::OPNOTSUPP.raw_os_error());
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Self::Missing,
            _ if off => Self::Missing,
            _ => Self::Failed(error.to_string().into()),
        }
    }
}

impl From<&str> for ReadError {
    fn from(why: &str) -> Self {
        Self::Failed(why.into())
    }
}

/// Converts a result to a reading.
pub fn reading(result: Result<u64, ReadError>) -> Reading<u64> {
    match result {
        Ok(value) => Reading::Value(value),
        Err(ReadError::Missing) => Reading::Unsupported,
        Err(ReadError::Failed(why)) => Reading::Failed(why.into()),
    }
}

/// An open file, or the error of opening it.
#[derive(Debug)]
pub struct OpenFile(Result<File, ReadError>);

impl OpenFile {
    /// Opens a file; an error is returned by each read.
    pub fn open(path: &Path) -> Self {
        Self(File::open(path).map_err(|error| ReadError::from(&error)))
    }

    /// Returns whether the file could be opened.
    pub fn is_open(&self) -> bool {
        self.0.is_ok()
    }

    /// Reads the whole file.
    ///
    /// # Errors
    /// If it could not be opened or read, or is not UTF-8.
    pub fn text<'a>(&self, buffer: &'a mut Vec<u8>) -> Result<&'a str, ReadError> {
        self.text_until(buffer, |_| false)
    }

    /// Reads the file at least until `enough`. Only a single read is consistent, so a longer one
    /// starts again.
    ///
    /// # Errors
    /// As [`OpenFile::text`].
    pub fn text_until<'a>(
        &self,
        buffer: &'a mut Vec<u8>,
        enough: impl Fn(&[u8]) -> bool,
    ) -> Result<&'a str, ReadError> {
        let file = self.0.as_ref().map_err(Clone::clone)?;
        if buffer.len() < INITIAL_BYTES {
            buffer.resize(INITIAL_BYTES, 0);
        }
        let length = loop {
            let length = file.read_at(buffer, 0).map_err(|error| ReadError::from(&error))?;
            // The end of what fits may be short by less than a page.
            if length + INITIAL_BYTES / 2 < buffer.len()
                || enough(&buffer[..length])
                || buffer.len() >= MAX_BYTES
            {
                break length;
            }
            // A short read may be the end of the file, or precede a line that did not fit.
            if length < buffer.len() && file.read_at(&mut [0; 1], length as u64).is_ok_and(|more| more == 0) {
                break length;
            }
            buffer.resize(buffer.len() * 2, 0);
        };
        std::str::from_utf8(&buffer[..length]).map_err(|_| "not the text that it should be".into())
    }

    /// Reads the file as a single number.
    ///
    /// # Errors
    /// As [`OpenFile::text`], and if it is not a number.
    pub fn number(&self, buffer: &mut Vec<u8>) -> Result<u64, ReadError> {
        self.text(buffer)?.trim().parse().map_err(|_| "not the number that it should be".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_any_length_are_read_completely_and_repeatedly() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        let mut buffer = Vec::new();
        for length in [0, 1, INITIAL_BYTES - 1, INITIAL_BYTES, INITIAL_BYTES + 1, 3 * INITIAL_BYTES, 50_000] {
            std::fs::write(&path, "x".repeat(length)).unwrap();
            let file = OpenFile::open(&path);
            assert_eq!(file.text(&mut buffer).unwrap().len(), length);
            assert_eq!(file.text(&mut buffer).unwrap().len(), length);
        }
    }

    #[test]
    fn missing_files_are_unsupported_and_malformed_ones_failed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        let mut buffer = Vec::new();
        assert_eq!(reading(OpenFile::open(&path).number(&mut buffer)), Reading::Unsupported);
        std::fs::write(&path, b"\xff").unwrap();
        assert!(matches!(reading(OpenFile::open(&path).number(&mut buffer)), Reading::Failed(_)));
        std::fs::write(&path, "12\n").unwrap();
        assert_eq!(reading(OpenFile::open(&path).number(&mut buffer)), Reading::Value(12));
    }
}
