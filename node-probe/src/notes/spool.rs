//! Reads new lines of the spool files of jobs: `JOB` and `JOB.SUFFIX` in one folder of the user.
//!
//! The files are the record: a probe keeps no position across its end, reads them again from the beginning, and the
//! relay recognizes the lines. Only regular files of this user are read, in a folder that nobody else can write to,
//! and no symbolic link is followed. Sizes and rates are bounded, so that no content can do more than be left out.

use nodeglass_protocol::probe::{SpoolNote, SpoolNotes};
use nodeglass_protocol::{JobId, Text, note};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// Maximum number of files of all jobs; further ones are not read.
const MAX_FILES: usize = 256;
/// Maximum number of entries of the folder that are looked at.
const MAX_ENTRIES: usize = 8_192;
/// Maximum number of bytes of a file that are read, from its beginning.
const MAX_BYTES: u64 = 256 * 1024;
/// Maximum number of lines of a file: as many as a job may have notes.
const MAX_LINES: usize = note::MAX_PER_JOB;
/// Number of bytes that are read of a file at once; a longer line is left out.
const CHUNK: usize = 16 * 1024;
/// Maximum number of bytes from the start of a file by which it is recognized.
const HEAD: usize = 1_024;
/// Maximum length of a suffix, in bytes.
const MAX_SUFFIX: usize = 64;
/// A folder that was listed this soon after it changed may have changed again without a new time.
const COARSE_NS: u64 = 3_000_000_000;

/// The two clocks at the start of a scan, in ns.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScanTime {
    /// `CLOCK_BOOTTIME`.
    pub(super) mono_ns: u64,
    /// `CLOCK_REALTIME`, which file systems use.
    pub(super) wall_ns: u64,
}

/// The spool of one user on this node.
#[derive(Debug)]
pub(super) struct Spool {
    folder: PathBuf,
    uid: u32,
    files: BTreeMap<(JobId, String), Followed>,
    /// The jobs that the folder was searched for, and its time of change then, if it need not be searched again.
    listed: Option<(Vec<JobId>, u64)>,
    /// What was last reported.
    problem: Option<Text>,
}

/// How far a file was read.
#[derive(Debug, Default)]
struct Followed {
    /// Inode, size and time of change of the last read.
    seen: Option<(u64, u64, u64)>,
    /// When all of its lines were last read, by `CLOCK_BOOTTIME` in ns; 0 if never.
    seen_ns: u64,
    offset: u64,
    lines: usize,
    /// Whether every complete line was read.
    is_done: bool,
    /// Whether the offset is within a line that is left out.
    is_in_long_line: bool,
    /// The first bytes before the offset. A file that starts with others was written anew.
    head: Vec<u8>,
}

impl Spool {
    /// The spool in a folder, which need not exist.
    pub(super) fn new(folder: PathBuf) -> Self {
        let uid = rustix::process::geteuid().as_raw();
        Self { folder, uid, files: BTreeMap::new(), listed: None, problem: None }
    }

    /// Reads lines of these jobs that were not read before, at most [`note::MAX_PER_LINE`].
    pub(super) fn scan(&mut self, jobs: &[JobId], now: ScanTime) -> SpoolNotes {
        let mut notes = Vec::new();
        let problem = self.try_scan(jobs, now, &mut notes).err();
        // Once, until it changes.
        let is_new = problem != self.problem;
        self.problem.clone_from(&problem);
        SpoolNotes { notes, problem: problem.filter(|_| is_new) }
    }

    /// The same; an error says what was left out, while everything else was read.
    fn try_scan(&mut self, jobs: &[JobId], now: ScanTime, notes: &mut Vec<SpoolNote>) -> Result<(), Text> {
        let Some((folder, changed_ns)) = self.open_folder()? else {
            self.files.clear();
            self.listed = None;
            return Ok(());
        };
        let mut problem = self.list(&folder, changed_ns, jobs, now).err();
        for ((job, suffix), file) in &mut self.files {
            if notes.len() >= note::MAX_PER_LINE {
                break;
            }
            let name = file_name(*job, suffix);
            let read = file.read(&folder, &name, self.uid, now, |offset, mono_ns, text| {
                notes.push(SpoolNote { job: *job, suffix: Text::new(suffix), offset, mono_ns, text });
                notes.len() < note::MAX_PER_LINE
            });
            if let Err(why) = read {
                let path = self.folder.join(&name);
                problem.get_or_insert(Text::new(format!("notes in {} are not read: {why}", path.display())));
            }
        }
        problem.map_or(Ok(()), Err)
    }

    /// The open folder and its time of change; `None` if there is none.
    fn open_folder(&self) -> Result<Option<(OwnedFd, u64)>, Text> {
        let refused =
            |why: &str| Text::new(format!("notes in {} are not read: {why}", self.folder.display()));
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = match rustix::fs::openat(CWD, &self.folder, flags, Mode::empty()) {
            Ok(folder) => folder,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::NOTDIR | Errno::LOOP) => return Err(refused("it is not a folder")),
            Err(error) => return Err(refused(&io::Error::from(error).to_string())),
        };
        let stat =
            rustix::fs::fstat(&folder).map_err(|error| refused(&io::Error::from(error).to_string()))?;
        if stat.st_uid != self.uid {
            return Err(refused("it belongs to another user"));
        }
        if stat.st_mode & 0o022 != 0 {
            return Err(refused("other users can write to it; run chmod 700"));
        }
        Ok(Some((folder, changed_ns(&stat))))
    }

    /// Searches the folder for files of these jobs, if it or they have changed.
    fn list(&mut self, folder: &OwnedFd, changed_ns: u64, jobs: &[JobId], now: ScanTime) -> Result<(), Text> {
        if self.listed.as_ref().is_some_and(|(known, at_ns)| known == jobs && *at_ns == changed_ns) {
            return Ok(());
        }
        let failed = |why: &str| Text::new(format!("notes in {} are left out: {why}", self.folder.display()));
        let entries = Dir::read_from(folder).map_err(|error| failed(&io::Error::from(error).to_string()))?;
        let mut files = BTreeMap::new();
        let mut problem = None;
        for (count, entry) in entries.enumerate() {
            let entry = entry.map_err(|error| failed(&io::Error::from(error).to_string()))?;
            if count >= MAX_ENTRIES {
                problem = Some(failed("it has too many files"));
                break;
            }
            let name = entry.file_name().to_str().ok().and_then(parsed);
            let Some(key) = name.filter(|(job, _)| jobs.contains(job)) else { continue };
            if files.len() >= MAX_FILES {
                problem = Some(failed(&format!("only {MAX_FILES} files of running jobs are read")));
                break;
            }
            let known = self.files.remove(&key).unwrap_or_default();
            files.insert(key, known);
        }
        self.files = files;
        let is_settled = now.wall_ns.saturating_sub(changed_ns) >= COARSE_NS;
        self.listed = is_settled.then(|| (jobs.to_vec(), changed_ns));
        problem.map_or(Ok(()), Err)
    }
}

impl Followed {
    /// Passes new complete lines on, each with its offset and time, while `add` returns `true`.
    fn read(
        &mut self,
        folder: &OwnedFd,
        name: &str,
        uid: u32,
        now: ScanTime,
        mut add: impl FnMut(u64, u64, Text) -> bool,
    ) -> Result<(), String> {
        let stat = match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(()),
            Err(error) => return Err(io::Error::from(error).to_string()),
        };
        check(&stat, uid)?;
        let identity =
            |stat: &Stat| (stat.st_ino, u64::try_from(stat.st_size).unwrap_or(0), changed_ns(stat));
        if self.seen == Some(identity(&stat)) && self.is_done {
            self.seen_ns = now.mono_ns;
            return self.limit();
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(folder, name, flags, Mode::empty())
            .map_err(|error| io::Error::from(error).to_string())?;
        // Another file may have taken the name since.
        let stat = rustix::fs::fstat(&file).map_err(|error| io::Error::from(error).to_string())?;
        check(&stat, uid)?;
        let (inode, size, at_ns) = identity(&stat);
        let file = File::from(file);
        if let Some((old_inode, old_size, old_ns)) = self.seen
            && (old_inode != inode
                || size == old_size && at_ns != old_ns
                || !self.continues_in(&file).map_err(|error| error.to_string())?)
        {
            // It was written anew; the relay recognizes lines that are still there.
            (self.offset, self.lines, self.is_in_long_line) = (0, 0, false);
            self.head.clear();
        }
        let written_ns = self.written_ns(at_ns, now);
        self.seen = Some((inode, size, at_ns));
        let read = self.read_lines(&file, size, |offset, text| add(offset, written_ns, text));
        self.is_done = read.map_err(|error| error.to_string())?;
        if self.is_done {
            self.seen_ns = now.mono_ns;
        }
        self.limit()
    }

    /// Returns whether what was read before the offset is still there: a file that was written anew may be longer.
    fn continues_in(&self, file: &File) -> io::Result<bool> {
        let mut head = [0; HEAD];
        let mut last = [0];
        let head = &mut head[..self.head.len()];
        let read = file.read_exact_at(head, 0).and_then(|()| match self.offset.checked_sub(1) {
            Some(before) => file.read_exact_at(&mut last, before),
            None => Ok(()),
        });
        match read {
            Ok(()) => {
                let is_line_start = self.offset == 0 || self.is_in_long_line || last == *b"\n";
                Ok(*head == self.head[..] && is_line_start)
            }
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Moves the offset behind these bytes.
    fn advance(&mut self, bytes: &[u8]) {
        let room = HEAD - self.head.len();
        self.head.extend(&bytes[..bytes.len().min(room)]);
        self.offset += bytes.len() as u64;
    }

    /// When the file was last written, by `CLOCK_BOOTTIME`. Not in the future, and not before its lines were missing:
    /// the clock of a file server may differ.
    fn written_ns(&self, changed_ns: u64, now: ScanTime) -> u64 {
        let age_ns = now.wall_ns.saturating_sub(changed_ns);
        now.mono_ns.saturating_sub(age_ns).max(self.seen_ns)
    }

    /// Passes complete lines on; returns whether there are no more.
    fn read_lines(
        &mut self,
        file: &File,
        size: u64,
        mut add: impl FnMut(u64, Text) -> bool,
    ) -> io::Result<bool> {
        let mut chunk = [0; CHUNK];
        while self.offset < size.min(MAX_BYTES) && self.lines < MAX_LINES {
            let room = usize::try_from(MAX_BYTES - self.offset).unwrap_or(CHUNK).min(CHUNK);
            let count = file.read_at(&mut chunk[..room], self.offset)?;
            let Some(last) = chunk[..count].iter().rposition(|byte| *byte == b'\n') else {
                if count < room {
                    // The last line is incomplete yet.
                    break;
                }
                self.advance(&chunk[..count]);
                self.is_in_long_line = true;
                continue;
            };
            for line in chunk[..=last].split_inclusive(|byte| *byte == b'\n') {
                let (offset, text) = (self.offset, Text::from_bytes(&line[..line.len() - 1]));
                self.advance(line);
                if std::mem::take(&mut self.is_in_long_line) || text.is_empty() {
                    continue;
                }
                self.lines += 1;
                if !add(offset, text) {
                    return Ok(false);
                }
                if self.lines >= MAX_LINES {
                    break;
                }
            }
        }
        Ok(true)
    }

    /// An error if the file has more than is read of one.
    fn limit(&self) -> Result<(), String> {
        let size = self.seen.map_or(0, |(_, size, _)| size);
        if size <= self.offset {
            Ok(())
        } else if self.lines >= MAX_LINES {
            Err(format!("it has more than {MAX_LINES} lines"))
        } else if self.offset >= MAX_BYTES {
            Err(format!("it has more than {} KiB", MAX_BYTES / 1024))
        } else {
            Ok(())
        }
    }
}

/// Refuses what is no regular file of this user.
fn check(stat: &Stat, uid: u32) -> Result<(), String> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile if stat.st_uid == uid => Ok(()),
        FileType::RegularFile => Err("the file belongs to another user".to_owned()),
        FileType::Symlink => Err("it is a symbolic link".to_owned()),
        _ => Err("it is not a regular file".to_owned()),
    }
}

fn changed_ns(stat: &Stat) -> u64 {
    let seconds = u64::try_from(stat.st_mtime).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(stat.st_mtime_nsec)
}

fn file_name(job: JobId, suffix: &str) -> String {
    if suffix.is_empty() { job.to_string() } else { format!("{job}.{suffix}") }
}

/// Job and suffix of a file name; `None` for another file.
fn parsed(name: &str) -> Option<(JobId, String)> {
    let (job, suffix) = name.split_once('.').unwrap_or((name, ""));
    let is_number = !job.is_empty() && job.bytes().all(|byte| byte.is_ascii_digit()) && !job.starts_with('0');
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let is_suffix = suffix.len() <= MAX_SUFFIX && suffix.bytes().all(is_plain) && !name.ends_with('.');
    (is_number && is_suffix).then(|| Some((job.parse().ok()?, suffix.to_owned())))?
}

#[cfg(test)]
mod tests;
