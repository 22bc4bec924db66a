//! Reads the tail of a log file of this user; only regular files are opened, so reading cannot
//! block indefinitely.

use nodeglass_logfile::{FileId, LogFile, OpenError};
use nodeglass_protocol::Text;
use nodeglass_protocol::request::{Audience, Tail};
use nodeglass_redact::log::Window;
use std::{
    collections::HashMap,
    io,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

/// Maximum number of remembered files.
const MAX_FILES: usize = 64;

/// Files found at paths in the last read.
#[derive(Debug, Default)]
pub struct Files(Mutex<HashMap<PathBuf, FileId>>);

impl Files {
    /// Returns the part of the content after offset `after` that the audience may read.
    pub fn tail(&self, path: &Path, after: u64, audience: Audience) -> Tail {
        self.try_tail(path, after, audience).unwrap_or_else(|why| Tail {
            end: after,
            error: Some(why),
            ..Tail::default()
        })
    }

    fn try_tail(&self, path: &Path, after: u64, audience: Audience) -> Result<Tail, Text> {
        let file = LogFile::open(path, audience).map_err(|error| unopened(path, error))?;
        let window = Window::of(after, file.size, self.is_same(path, file.id));
        let bytes = file.read(window.from, window.length).map_err(|error| unread(path, &error))?;
        Ok(Tail { written_s: Some(file.written_s), ..window.tail(&bytes) })
    }

    /// Returns whether it is the file of the last read; the first read trusts the given offset.
    fn is_same(&self, path: &Path, file: FileId) -> bool {
        let mut files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if files.len() >= MAX_FILES && !files.contains_key(path) {
            files.clear();
        }
        files.insert(path.to_owned(), file).is_none_or(|before| before == file)
    }
}

fn unopened(path: &Path, error: OpenError) -> Text {
    let shown = path.display();
    match error {
        OpenError::Missing => format!("no such file: {shown}").into(),
        OpenError::Denied => format!("{shown} may not be read by this user").into(),
        OpenError::Kind(what) => format!("{shown} is {what}").into(),
        OpenError::Relative => "the path of a log must begin with /".into(),
        OpenError::Distrusted(why) => format!("{shown} is not shown to guests: {why}").into(),
        OpenError::Io(error) => unread(path, &error),
    }
}

fn unread(path: &Path, error: &io::Error) -> Text {
    format!("failed to read {}: {error}", path.display()).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{FileType, Mode};
    use std::{fs, io::Write};

    fn lines(tail: &Tail) -> Vec<&str> {
        tail.lines.iter().map(|line| line.as_str()).collect()
    }

    #[test]
    fn a_log_is_followed_through_growth_truncation_and_rotation() {
        let folder = tempfile::tempdir().unwrap();
        let (path, files) = (folder.path().join("job.out"), Files::default());
        fs::write(&path, "one\n 10%|#  |\r 90%|## |").unwrap();
        let first = files.tail(&path, 0, Audience::Owner);
        assert_eq!((lines(&first), first.partial.as_ref().unwrap().as_str()), (vec!["one"], " 90%|## |"));
        assert!(first.written_s.is_some(), "{first:?}");
        fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"\r100%|###|\nend\n").unwrap();
        let second = files.tail(&path, first.end, Audience::Owner);
        assert_eq!(
            (lines(&second), &second.partial, second.restarted),
            (vec!["100%|###|", "end"], &None, false)
        );
        fs::write(&path, "anew\n").unwrap();
        let third = files.tail(&path, second.end, Audience::Owner);
        assert_eq!((lines(&third), third.restarted), (vec!["anew"], true));
        fs::rename(&path, folder.path().join("job.out.1")).unwrap();
        fs::write(&path, "another file, longer\n").unwrap();
        let fourth = files.tail(&path, third.end, Audience::Owner);
        assert_eq!((lines(&fourth), fourth.restarted), (vec!["another file, longer"], true));
    }

    #[test]
    fn only_regular_files_are_opened() {
        let folder = tempfile::tempdir().unwrap();
        let files = Files::default();
        let pipe = folder.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        for (path, word) in [
            (pipe.as_path(), "a pipe"),
            (folder.path(), "a folder"),
            (Path::new("/dev/null"), "a device"),
            (Path::new("/no/such/log"), "no such file"),
            (Path::new("job.out"), "must begin with /"),
        ] {
            let tail = files.tail(path, 5, Audience::Owner);
            assert!(tail.error.as_ref().unwrap().as_str().contains(word), "{:?}", tail.error);
            assert_eq!(tail.end, 5);
        }
    }
}
