//! A log on this machine is read on a thread of its own, for a file system that hangs must hang nobody else.

use nodeglass_logfile::{FileId, LogFile, OpenError};
use nodeglass_protocol::Text;
use nodeglass_protocol::ask::{Audience, Tail};
use nodeglass_protocol::log::Window;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;

/// How long a read may take.
const PATIENCE: Duration = Duration::from_secs(3);
/// How many reads may hang at once; beyond that nothing is read until one returns.
const THREADS: usize = 8;

/// Reads the ends of files. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Reader(Arc<Semaphore>);

/// What a look brought.
#[derive(Debug)]
pub struct Look {
    /// What came to the end of the file.
    pub tail: Tail,
    /// Which file it is: for the next look.
    pub file: FileId,
    /// When it was written last, in s since 1970.
    pub written_s: i64,
}

/// Why a file could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unread {
    /// There is no such file here.
    Missing,
    /// It is there; why it is not read.
    Because(Text),
}

impl Default for Reader {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(THREADS)))
    }
}

impl Reader {
    /// Reads what came after `after` to the end of a regular file; `before` is the file of the last look. Whether
    /// `audience` may see the file is decided anew each time: another one may have taken its name.
    ///
    /// # Errors
    /// [`Unread`], at the latest after three seconds.
    pub async fn look(
        &self,
        path: String,
        after: u64,
        before: Option<FileId>,
        audience: Audience,
    ) -> Result<Look, Unread> {
        let hangs = || Unread::Because("its file system does not answer".into());
        let permit = self.0.clone().try_acquire_owned().map_err(|_| hangs())?;
        let (reply, answer) = oneshot::channel();
        let thread = std::thread::Builder::new().name("log".to_owned()).spawn(move || {
            let _ = reply.send(look(&path, after, before, audience));
            drop(permit);
        });
        thread.map_err(|error| Unread::Because(format!("no thread to read it: {error}").into()))?;
        match timeout(PATIENCE, answer).await {
            Ok(Ok(look)) => look,
            Ok(Err(_)) | Err(_) => Err(hangs()),
        }
    }
}

fn look(path: &str, after: u64, before: Option<FileId>, audience: Audience) -> Result<Look, Unread> {
    let file = LogFile::open(Path::new(path), audience).map_err(unread)?;
    let window = Window::of(after, file.size, before.is_none_or(|before| before == file.id));
    let bytes =
        file.read(window.from, window.length).map_err(|error| Unread::Because(error.to_string().into()))?;
    Ok(Look { tail: window.tail(&bytes), file: file.id, written_s: file.written_s })
}

fn unread(error: OpenError) -> Unread {
    match error {
        OpenError::Missing => Unread::Missing,
        error => Unread::Because(error.to_string().into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::Mode;
    use std::io::Write;

    #[tokio::test]
    async fn a_file_that_grows_is_read_from_where_it_was_left() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let (reader, path) = (Reader::default(), file.path().to_str().unwrap().to_owned());
        file.write_all(b"one\ntwo\nthr").unwrap();
        let first = reader.look(path.clone(), 0, None, Audience::Owner).await.unwrap();
        assert_eq!(first.tail.lines, ["one".into(), "two".into()]);
        let now_s = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs().cast_signed();
        assert!((now_s - first.written_s).abs() < 60);
        file.write_all(b"ee\n").unwrap();
        let second =
            reader.look(path.clone(), first.tail.end, Some(first.file), Audience::Owner).await.unwrap();
        assert_eq!((second.tail.lines.as_slice(), second.tail.restarted), (&["three".into()][..], false));
        // Another file of the same name.
        let other = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(other.path(), "new beginning\n").unwrap();
        std::fs::rename(other.path(), file.path()).unwrap();
        let third = reader.look(path, second.tail.end, Some(second.file), Audience::Owner).await.unwrap();
        assert!(third.tail.restarted);
        assert_eq!(third.tail.lines, ["new beginning".into()]);
    }

    #[tokio::test]
    async fn only_regular_files_are_read_and_a_pipe_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, Mode::RUSR | Mode::WUSR).unwrap();
        let reader = Reader::default();
        for (path, word) in [(pipe.to_str().unwrap(), "a pipe"), ("/dev/zero", "a device"), ("/", "a folder")]
        {
            let why = reader.look(path.to_owned(), 0, None, Audience::Owner).await.unwrap_err();
            assert!(matches!(&why, Unread::Because(why) if why.as_str().contains(word)), "{path}: {why:?}");
        }
        let missing = folder.path().join("none").to_str().unwrap().to_owned();
        assert_eq!(reader.look(missing, 0, None, Audience::Owner).await.unwrap_err(), Unread::Missing);
    }

    #[tokio::test]
    async fn reads_that_hang_are_counted_and_no_more_are_begun() {
        let reader = Reader::default();
        let hung = reader.0.clone().acquire_many_owned(THREADS as u32).await.unwrap();
        let why = reader.look("/etc/hostname".into(), 0, None, Audience::Owner).await.unwrap_err();
        assert_eq!(why, Unread::Because("its file system does not answer".into()));
        drop(hung);
        assert!(reader.look("/proc/self/comm".into(), 0, None, Audience::Owner).await.is_ok());
    }
}
