//! The log file: two halves, of which the older is dropped when the newer is full.

use nodeglass_access::runtime_dir::RuntimeDir;
use rustix::fs::{self, AtFlags, FlockOperation, Mode, OFlags};
use std::fs::File;
use std::io::{self, Write};

/// Maximum size of both halves in bytes.
pub const MAX_BYTES: u64 = 1 << 20;
/// Number of logs of exited relays that are kept.
const KEPT: usize = 4;
const SUFFIX: &str = ".log";
const OLDER: &str = ".old.log";

/// The log of this process in the runtime directory, readable by its owner alone. It is made with its first line, and
/// locked while the process lives.
#[derive(Debug)]
pub struct Ring {
    dir: RuntimeDir,
    pid: u32,
    max_bytes: u64,
    newer: Option<File>,
    written: u64,
    /// Whether the last line could not be written: a disk that is full stops no relay, and what could not be written is
    /// lost.
    is_failing: bool,
}

impl Ring {
    /// The log of the process `pid`. Removes old logs of exited relays.
    pub fn of(dir: RuntimeDir, pid: u32) -> Self {
        sweep(&dir);
        Self { dir, pid, max_bytes: MAX_BYTES, newer: None, written: 0, is_failing: false }
    }

    /// Sets another bound, for tests.
    #[must_use]
    pub fn with_max(self, max_bytes: u64) -> Self {
        Self { max_bytes, ..self }
    }

    /// Writes a line. Returns why it could not be written, unless that was so of the line before.
    pub fn write(&mut self, line: &str) -> Option<io::Error> {
        let written = self.try_write(line);
        let was_failing = std::mem::replace(&mut self.is_failing, written.is_err());
        written.err().filter(|_| !was_failing)
    }

    fn try_write(&mut self, line: &str) -> io::Result<()> {
        let half = self.max_bytes / 2;
        let length = line.len() as u64;
        if length > half {
            return Ok(());
        }
        if self.newer.is_some() && self.written + length > half {
            fs::renameat(self.dir.fd(), self.name(SUFFIX), self.dir.fd(), self.name(OLDER))?;
            self.newer = None;
        }
        let mut file = match self.newer.take() {
            Some(file) => file,
            None => self.begin()?,
        };
        // A part of the last line may have been written.
        let gap = if self.is_failing && self.written > 0 { "\n" } else { "" };
        let written = file.write_all([gap, line].concat().as_bytes());
        self.written += length + gap.len() as u64;
        self.newer = Some(file);
        written
    }

    /// Creates a new file; one left behind by another process with this pid is replaced.
    fn begin(&mut self) -> io::Result<File> {
        let name = self.name(SUFFIX);
        let _ = fs::unlinkat(self.dir.fd(), &name, AtFlags::empty());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(fs::openat(self.dir.fd(), &name, flags, Mode::RUSR | Mode::WUSR)?);
        fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        self.written = 0;
        Ok(file)
    }

    fn name(&self, suffix: &str) -> String {
        format!("{}{suffix}", self.pid)
    }
}

/// Removes the logs of exited relays, except the newest. Nothing else in the directory is touched.
fn sweep(dir: &RuntimeDir) {
    let mut gone: Vec<(i64, u32)> =
        logs(dir).into_iter().filter_map(|pid| Some((left(dir, pid)?, pid))).collect();
    gone.sort_unstable();
    let too_many = gone.len().saturating_sub(KEPT);
    for (_, pid) in gone.into_iter().take(too_many) {
        for suffix in [SUFFIX, OLDER] {
            let _ = fs::unlinkat(dir.fd(), format!("{pid}{suffix}"), AtFlags::empty());
        }
    }
}

/// Process ids of existing logs.
fn logs(dir: &RuntimeDir) -> Vec<u32> {
    let Ok(entries) = fs::Dir::read_from(dir.fd()) else { return Vec::new() };
    let names = entries.filter_map(|entry| Some(entry.ok()?.file_name().to_str().ok()?.to_owned()));
    names.filter_map(|name| name.strip_suffix(SUFFIX)?.parse().ok()).collect()
}

/// Returns when the log of an exited relay was last written; `None` if the relay lives, or the file is not a log.
fn left(dir: &RuntimeDir, pid: u32) -> Option<i64> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = fs::openat(dir.fd(), format!("{pid}{SUFFIX}"), flags, Mode::empty()).ok()?;
    fs::flock(&file, FlockOperation::NonBlockingLockShared).ok()?;
    let stat = fs::fstat(&file).ok()?;
    let is_file = rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::RegularFile;
    is_file.then_some(stat.st_mtime as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_access::runtime_dir::Places;
    use std::os::unix::fs::{MetadataExt, symlink};

    fn dir(base: &tempfile::TempDir) -> RuntimeDir {
        RuntimeDir::open(&Places { temporary: base.path().into(), ..Places::default() }).unwrap()
    }

    fn names(base: &tempfile::TempDir) -> Vec<String> {
        let entries = std::fs::read_dir(dir(base).path()).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn t25_the_file_never_outgrows_its_bound_and_keeps_the_newest_lines() {
        let base = tempfile::tempdir().unwrap();
        let mut ring = Ring::of(dir(&base), 7).with_max(10_000);
        assert!(names(&base).is_empty(), "no line, no file");
        let path = |name: &str| dir(&base).path().join(name);
        for number in 0..5_000 {
            ring.write(&format!("line {number}\n"));
            let size = |name| path(name).metadata().map_or(0, |meta| meta.len());
            assert!(size("7.log") + size("7.old.log") <= 10_000);
        }
        let text = [path("7.old.log"), path("7.log")].map(|path| std::fs::read_to_string(path).unwrap());
        let numbers: Vec<u32> =
            text.concat().lines().map(|line| line.strip_prefix("line ").unwrap().parse().unwrap()).collect();
        assert_eq!(numbers.last(), Some(&4_999));
        assert!(numbers.len() > 400 && numbers.windows(2).all(|pair| pair[1] == pair[0] + 1));
        for name in names(&base) {
            assert_eq!(path(&name).metadata().unwrap().mode() & 0o7777, 0o600, "{name}");
        }
    }

    #[test]
    fn lines_are_written_again_after_some_could_not_be() {
        let base = tempfile::tempdir().unwrap();
        let mut ring = Ring::of(dir(&base), 7).with_max(60);
        let obstacle = dir(&base).path().join("7.old.log");
        std::fs::create_dir(&obstacle).unwrap();
        assert!(ring.write("a line of twenty-six bytes").is_none());
        assert!(ring.write("a line that is lost\n").is_some());
        assert!(ring.write("another that is lost\n").is_none(), "reported once");
        std::fs::remove_dir(&obstacle).unwrap();
        assert!(ring.write("a line\n").is_none());
        let text = std::fs::read_to_string(dir(&base).path().join("7.log")).unwrap();
        assert_eq!(text, "a line\n");
        assert_eq!(std::fs::read_to_string(&obstacle).unwrap(), "a line of twenty-six bytes");
    }

    #[test]
    fn t23_an_existing_file_with_the_name_of_the_log_is_not_written() {
        let base = tempfile::tempdir().unwrap();
        let victim = base.path().join("victim");
        std::fs::write(&victim, "untouched").unwrap();
        symlink(&victim, dir(&base).path().join("7.log")).unwrap();
        Ring::of(dir(&base), 7).write("a line\n");
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "untouched");
        assert_eq!(std::fs::read_to_string(dir(&base).path().join("7.log")).unwrap(), "a line\n");
    }

    #[test]
    fn old_logs_are_removed_and_those_of_running_relays_stay() {
        let base = tempfile::tempdir().unwrap();
        let mut living = Ring::of(dir(&base), 1);
        living.write("alive\n");
        for pid in 2..9 {
            Ring::of(dir(&base), pid).write("gone\n");
            let file =
                File::options().write(true).open(dir(&base).path().join(format!("{pid}.log"))).unwrap();
            let age = std::time::Duration::from_secs(1_000 - u64::from(pid));
            file.set_modified(std::time::SystemTime::now() - age).unwrap();
        }
        std::fs::write(dir(&base).path().join("notes.log"), "another's").unwrap();
        std::fs::write(dir(&base).path().join("9.key"), "another's").unwrap();
        let _ = Ring::of(dir(&base), 99);
        assert_eq!(names(&base), ["1.log", "5.log", "6.log", "7.log", "8.log", "9.key", "notes.log"]);
    }
}
