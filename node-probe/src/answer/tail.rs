//! The end of a file of this user's is read without waiting for what may never come: only regular files are opened.

use nodeglass_protocol::Text;
use nodeglass_protocol::ask::Tail;
use nodeglass_protocol::log::Window;
use rustix::fs::{FileType, Mode, OFlags};
use std::{
    collections::HashMap,
    fs::File,
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

/// So many files are remembered.
const MOST_FILES: usize = 64;

/// Which file was at a path at the last look, by device and inode.
#[derive(Debug, Default)]
pub struct Files(Mutex<HashMap<PathBuf, (u64, u64)>>);

impl Files {
    /// What came to the end of a file since `after`.
    pub fn tail(&self, path: &Path, after: u64) -> Tail {
        self.try_tail(path, after).unwrap_or_else(|why| Tail {
            end: after,
            trouble: Some(why),
            ..Tail::default()
        })
    }

    fn try_tail(&self, path: &Path, after: u64) -> Result<Tail, Text> {
        if !path.is_absolute() {
            return Err("the path of a log must begin with /".into());
        }
        // To open a pipe may wait for a writer, and to open a device may do anything at all.
        let found = rustix::fs::stat(path).map_err(|error| trouble(path, error.into()))?;
        regular(path, FileType::from_raw_mode(found.st_mode))?;
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file =
            rustix::fs::open(path, flags, Mode::empty()).map_err(|error| trouble(path, error.into()))?;
        // It may be another one by now.
        let opened = rustix::fs::fstat(&file).map_err(|error| trouble(path, error.into()))?;
        regular(path, FileType::from_raw_mode(opened.st_mode))?;
        let same = self.is_same(path, (opened.st_dev, opened.st_ino));
        let size = u64::try_from(opened.st_size).unwrap_or(0);
        let window = Window::of(after, size, same);
        let bytes = read(&File::from(file), window).map_err(|error| trouble(path, error))?;
        Ok(window.tail(&bytes))
    }

    /// Whether it is the file of the last look; the first look cannot tell and trusts the number it was given.
    fn is_same(&self, path: &Path, file: (u64, u64)) -> bool {
        let mut files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if files.len() >= MOST_FILES && !files.contains_key(path) {
            files.clear();
        }
        files.insert(path.to_owned(), file).is_none_or(|before| before == file)
    }
}

fn read(file: &File, window: Window) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(window.length).unwrap_or(0)];
    let mut filled = 0;
    while filled < bytes.len() {
        match file.read_at(&mut bytes[filled..], window.from + filled as u64) {
            // It became shorter meanwhile.
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

fn regular(path: &Path, kind: FileType) -> Result<(), Text> {
    let what = match kind {
        FileType::RegularFile => return Ok(()),
        FileType::Directory => "a folder",
        FileType::Fifo => "a pipe",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        _ => "no file",
    };
    Err(format!("{} is {what}", path.display()).into())
}

fn trouble(path: &Path, error: io::Error) -> Text {
    let path = path.display();
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => format!("no such file: {path}").into(),
        io::ErrorKind::PermissionDenied => format!("{path} may not be read by this user").into(),
        _ => format!("failed to read {path}: {error}").into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, io::Write};

    fn lines(tail: &Tail) -> Vec<&str> {
        tail.lines.iter().map(|line| line.as_str()).collect()
    }

    #[test]
    fn a_log_is_followed_through_growth_truncation_and_rotation() {
        let folder = tempfile::tempdir().unwrap();
        let (path, files) = (folder.path().join("job.out"), Files::default());
        fs::write(&path, "one\n 10%|#  |\r 90%|## |").unwrap();
        let first = files.tail(&path, 0);
        assert_eq!((lines(&first), first.partial.as_ref().unwrap().as_str()), (vec!["one"], " 90%|## |"));
        fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"\r100%|###|\nend\n").unwrap();
        let second = files.tail(&path, first.end);
        assert_eq!(
            (lines(&second), &second.partial, second.restarted),
            (vec!["100%|###|", "end"], &None, false)
        );
        fs::write(&path, "anew\n").unwrap();
        let third = files.tail(&path, second.end);
        assert_eq!((lines(&third), third.restarted), (vec!["anew"], true));
        fs::rename(&path, folder.path().join("job.out.1")).unwrap();
        fs::write(&path, "another file, longer\n").unwrap();
        let fourth = files.tail(&path, third.end);
        assert_eq!((lines(&fourth), fourth.restarted), (vec!["another file, longer"], true));
    }

    #[test]
    fn what_is_no_file_is_not_opened() {
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
            let tail = files.tail(path, 5);
            assert!(tail.trouble.as_ref().unwrap().as_str().contains(word), "{:?}", tail.trouble);
            assert_eq!(tail.end, 5);
        }
    }
}
