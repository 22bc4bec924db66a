//! Reads local logs on separate threads, so that a hanging file system blocks nothing else.

use nodeglass_logfile::{FileId, LogFile, OpenError};
use nodeglass_protocol::Text;
use nodeglass_protocol::request::{Audience, Tail};
use nodeglass_redact::log::Window;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;

/// Time limit of a read.
const READ_TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum number of concurrent reads; while all hang, nothing is read.
const THREADS: usize = 8;

/// Reads the ends of files. Cheap to clone.
#[derive(Clone, Debug)]
pub struct LogReader(Arc<Semaphore>);

/// The result of a read.
#[derive(Debug)]
pub struct LogRead {
    /// The new end of the file.
    pub tail: Tail,
    /// The file's identity, for the next read.
    pub file: FileId,
    /// When it was last written, in seconds since 1970.
    pub written_s: i64,
}

/// Why a file cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogReadError {
    /// There is no such file.
    Missing,
    /// It cannot be opened or read.
    Failed(Text),
}

impl Default for LogReader {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(THREADS)))
    }
}

impl LogReader {
    /// Reads a regular file from offset `after`; `before` identifies the previously read file.
    /// Permissions of `audience` are checked each time, as the file may have been replaced.
    ///
    /// # Errors
    /// [`LogReadError`], within three seconds.
    pub async fn read(
        &self,
        path: String,
        after: u64,
        before: Option<FileId>,
        audience: Audience,
    ) -> Result<LogRead, LogReadError> {
        let hangs = || LogReadError::Failed("its file system does not answer".into());
        let permit = self.0.clone().try_acquire_owned().map_err(|_| hangs())?;
        let (reply, response) = oneshot::channel();
        let thread = std::thread::Builder::new().name("log".to_owned()).spawn(move || {
            let _ = reply.send(read_tail(&path, after, before, audience));
            drop(permit);
        });
        thread.map_err(|error| LogReadError::Failed(format!("failed to start a thread: {error}").into()))?;
        match timeout(READ_TIMEOUT, response).await {
            Ok(Ok(read)) => read,
            Ok(Err(_)) | Err(_) => Err(hangs()),
        }
    }
}

fn read_tail(
    path: &str,
    after: u64,
    before: Option<FileId>,
    audience: Audience,
) -> Result<LogRead, LogReadError> {
    let file = LogFile::open(Path::new(path), audience).map_err(read_error)?;
    let window = Window::of(after, file.size, before.is_none_or(|before| before == file.id));
    let bytes = file
        .read(window.from, window.length)
        .map_err(|error| LogReadError::Failed(error.to_string().into()))?;
    Ok(LogRead { tail: window.tail(&bytes), file: file.id, written_s: file.written_s })
}

fn read_error(error: OpenError) -> LogReadError {
    match error {
        OpenError::Missing => LogReadError::Missing,
        error => LogReadError::Failed(error.to_string().into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::Mode;
    use std::io::Write;

    #[tokio::test]
    async fn a_growing_file_is_read_incrementally() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let (reader, path) = (LogReader::default(), file.path().to_str().unwrap().to_owned());
        file.write_all(b"one\ntwo\nthr").unwrap();
        let first = reader.read(path.clone(), 0, None, Audience::Owner).await.unwrap();
        assert_eq!(first.tail.lines, ["one".into(), "two".into()]);
        let now_s = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs().cast_signed();
        assert!((now_s - first.written_s).abs() < 60);
        file.write_all(b"ee\n").unwrap();
        let second =
            reader.read(path.clone(), first.tail.end, Some(first.file), Audience::Owner).await.unwrap();
        assert_eq!((second.tail.lines.as_slice(), second.tail.restarted), (&["three".into()][..], false));
        // Another file of the same name.
        let other = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(other.path(), "new beginning\n").unwrap();
        std::fs::rename(other.path(), file.path()).unwrap();
        let third = reader.read(path, second.tail.end, Some(second.file), Audience::Owner).await.unwrap();
        assert!(third.tail.restarted);
        assert_eq!(third.tail.lines, ["new beginning".into()]);
    }

    #[tokio::test]
    async fn only_regular_files_are_read_and_a_pipe_does_not_block() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, Mode::RUSR | Mode::WUSR).unwrap();
        let reader = LogReader::default();
        for (path, word) in [(pipe.to_str().unwrap(), "a pipe"), ("/dev/zero", "a device"), ("/", "a folder")]
        {
            let why = reader.read(path.to_owned(), 0, None, Audience::Owner).await.unwrap_err();
            assert!(
                matches!(&why, LogReadError::Failed(why) if why.as_str().contains(word)),
                "{path}: {why:?}"
            );
        }
        let missing = folder.path().join("none").to_str().unwrap().to_owned();
        assert_eq!(reader.read(missing, 0, None, Audience::Owner).await.unwrap_err(), LogReadError::Missing);
    }

    #[tokio::test]
    async fn hanging_reads_are_limited() {
        let reader = LogReader::default();
        let hung = reader.0.clone().acquire_many_owned(THREADS as u32).await.unwrap();
        let why = reader.read("/etc/hostname".into(), 0, None, Audience::Owner).await.unwrap_err();
        assert_eq!(why, LogReadError::Failed("its file system does not answer".into()));
        drop(hung);
        assert!(reader.read("/proc/self/comm".into(), 0, None, Audience::Owner).await.is_ok());
    }
}
