//! Reads local logs on separate threads, so that a hanging file system blocks nothing else.

use nodeglass_logfile::{FileId, LogFile, OpenError};
use nodeglass_protocol::Text;
use nodeglass_protocol::request::{Audience, Tail};
use nodeglass_redact::log::Window;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

/// Time limit of a read.
const READ_TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum number of concurrent reads that may still return in time.
const THREADS: usize = 8;
/// Maximum number of reads that hang: as many as there are logs of watched jobs. While all hang, further reads fail.
const MAX_HANGING: usize = 64;

/// Reads the ends of files. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct LogReader(Arc<Mutex<Vec<Ongoing>>>);

/// A read that has not returned.
#[derive(Debug)]
struct Ongoing {
    path: String,
    since: Instant,
}

/// Removes a read from the ongoing ones when dropped.
#[derive(Debug)]
struct Permit {
    reader: LogReader,
    path: String,
    since: Instant,
}

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

/// Error of reading a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogReadError {
    /// The file does not exist.
    Missing,
    /// It cannot be opened or read.
    Failed(Text),
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
        let of = path.clone();
        self.run(path, move || read_tail(&of, after, before, audience)).await
    }

    /// Runs a read on a thread of its own.
    async fn run<T: Send + 'static>(
        &self,
        path: String,
        read: impl FnOnce() -> Result<T, LogReadError> + Send + 'static,
    ) -> Result<T, LogReadError> {
        let hangs = || LogReadError::Failed("its file system does not respond".into());
        let permit = self.permit(path.clone()).ok_or_else(hangs)?;
        let (reply, response) = oneshot::channel();
        let thread = std::thread::Builder::new().name("log".to_owned()).spawn(move || {
            let result = read();
            // Before the reply, so that the next read of this file is admitted.
            drop(permit);
            let _ = reply.send(result);
        });
        thread.map_err(|error| LogReadError::Failed(format!("failed to start a thread: {error}").into()))?;
        match timeout(READ_TIMEOUT, response).await {
            Ok(Ok(read)) => read,
            Ok(Err(_)) => Err(hangs()),
            Err(_) => {
                // Once per hang: further reads of this file are refused until this one returns.
                tracing::warn!(%path, "log not read: its file system does not respond");
                Err(hangs())
            }
        }
    }

    /// Admits a read, unless too many are ongoing, or one of the same file hangs: it would hang as well. Those that hang
    /// take no thread from logs on other file systems.
    fn permit(&self, path: String) -> Option<Permit> {
        let since = Instant::now();
        let mut ongoing = self.ongoing();
        let hangs = |read: &&Ongoing| read.since.elapsed() >= READ_TIMEOUT;
        let hanging = ongoing.iter().filter(hangs).count();
        let is_hanging = ongoing.iter().filter(hangs).any(|read| read.path == path);
        if is_hanging || hanging >= MAX_HANGING || ongoing.len() - hanging >= THREADS {
            return None;
        }
        ongoing.push(Ongoing { path: path.clone(), since });
        Some(Permit { reader: self.clone(), path, since })
    }

    // Every change is a single step, so a panic cannot leave the state inconsistent.
    fn ongoing(&self) -> MutexGuard<'_, Vec<Ongoing>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut ongoing = self.reader.ongoing();
        let is_this = |read: &Ongoing| read.path == self.path && read.since == self.since;
        if let Some(at) = ongoing.iter().position(is_this) {
            ongoing.swap_remove(at);
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
    let tail = Tail { written_s: Some(file.written_s), ..window.tail(&bytes) };
    Ok(LogRead { tail, file: file.id, written_s: file.written_s })
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
    use std::io::{Seek, Write};

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
    async fn of_a_log_that_grows_by_fifty_megabytes_the_end_is_read_and_the_rest_counted() {
        const STEP: u64 = 50 << 20;
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let (reader, path) = (LogReader::default(), file.path().to_str().unwrap().to_owned());
        let (mut after, mut before) = (0, None);
        for (number, size) in [2 << 30, (2 << 30) + STEP, (2 << 30) + 2 * STEP].into_iter().enumerate() {
            // The rest is a hole, and so takes no space.
            let words = format!("\nstep {number}\n");
            file.as_file().set_len(size - words.len() as u64).unwrap();
            file.seek(std::io::SeekFrom::End(0)).unwrap();
            file.write_all(words.as_bytes()).unwrap();
            let read = reader.read(path.clone(), after, before, Audience::Owner).await.unwrap();
            let bytes: usize = read.tail.lines.iter().map(|line| line.as_str().len()).sum();
            assert_eq!(read.tail.lines.last().unwrap().as_str(), format!("step {number}"));
            assert!(bytes as u64 <= Tail::MAX_BYTES, "{bytes}");
            assert!(read.tail.skipped >= size - after - 2 * Tail::MAX_BYTES, "{}", read.tail.skipped);
            (after, before) = (read.tail.end, Some(read.file));
            assert_eq!(after, size);
        }
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

    /// Begins a read that hangs until the sender is dropped, and waits until it is given up.
    async fn hang(reader: &LogReader, path: &str) -> std::sync::mpsc::Sender<()> {
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let read = move || {
            let _ = ended.recv();
            Ok(())
        };
        // Only meanwhile: paused time does not wait for threads.
        tokio::time::pause();
        assert_eq!(reader.run(path.to_owned(), read).await, Err(hung()));
        tokio::time::resume();
        end
    }

    fn hung() -> LogReadError {
        LogReadError::Failed("its file system does not respond".into())
    }

    #[tokio::test]
    async fn a_file_whose_last_read_hangs_is_not_read_again_until_it_returns() {
        let reader = LogReader::default();
        let end = hang(&reader, "/hung/1.out").await;
        for _ in 0..THREADS {
            let again = reader.run("/hung/1.out".to_owned(), || -> Result<(), _> { panic!("read again") });
            assert_eq!(again.await, Err(hung()));
        }
        assert_eq!(reader.ongoing().len(), 1);
        assert_eq!(reader.run("/other/2.out".to_owned(), || Ok(2)).await, Ok(2));
        drop(end);
        while !reader.ongoing().is_empty() {
            tokio::task::yield_now().await;
        }
        assert_eq!(reader.run("/hung/1.out".to_owned(), || Ok(1)).await, Ok(1));
    }

    #[tokio::test]
    async fn hanging_reads_are_limited() {
        let reader = LogReader::default();
        let mut hanging = Vec::new();
        for file in 0..MAX_HANGING {
            // Logs on other file systems are read meanwhile.
            assert_eq!(reader.run("/other".to_owned(), || Ok(())).await, Ok(()), "{file}");
            hanging.push(hang(&reader, &format!("/hung/{file}")).await);
        }
        assert_eq!(reader.run("/other".to_owned(), || Ok(())).await, Err(hung()));
        drop(hanging);
    }
}
