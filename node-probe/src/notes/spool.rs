//! Reads new lines of the spool files of jobs: `JOB` and `JOB.SUFFIX` in one folder of the user.
//!
//! The files are the record: a probe keeps no position across its end, reads them again from the beginning, and the
//! relay recognizes the lines. Only regular files of this user are read, in a folder that nobody else can write to,
//! and no symbolic link is followed. Sizes and rates are bounded, so that no content can do more than be left out.

use nodeglass_protocol::probe::{SpoolNote, SpoolNotes};
use nodeglass_protocol::{JobId, Text, note};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

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
/// An incomplete last line is reported if its file has not changed for this long.
const INCOMPLETE_NS: u64 = 10_000_000_000;
/// Time between lines that were read together, so that their order is kept.
const LINE_STEP_NS: u64 = 1_000_000;
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

/// Job and suffix of a file's name.
type FileKey = (JobId, String);

/// The spool of one user on this node.
#[derive(Debug)]
pub(super) struct Spool {
    folder: PathBuf,
    uid: u32,
    files: BTreeMap<FileKey, Followed>,
    /// The last search of the folder, if its result holds until the folder changes.
    listed: Option<Listed>,
    /// The file to begin with, because the last scan ended before it.
    next: Option<FileKey>,
    /// The problems that were last reported; `None` before the first scan, so that the relay forgets reports of an
    /// earlier probe.
    problems: Option<Vec<Text>>,
}

/// A search of the folder.
#[derive(Debug)]
struct Listed {
    jobs: Vec<JobId>,
    /// When the folder had changed last.
    changed_ns: u64,
    problem: Option<Text>,
}

/// Position up to which a file was read.
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
    /// Number of lines that were left out.
    long_lines: usize,
    /// Time of the last line that was passed on.
    last_line_ns: u64,
    /// Reason for not reading the file, or some of it.
    problem: Option<Problem>,
    /// The first bytes before the offset. A file that starts with others was written anew.
    head: Vec<u8>,
}

impl Spool {
    /// The spool in a folder, which need not exist.
    pub(super) fn new(folder: PathBuf) -> Self {
        let uid = rustix::process::geteuid().as_raw();
        Self { folder, uid, files: BTreeMap::new(), listed: None, next: None, problems: None }
    }

    /// Reads lines of these jobs that were not read before, at most [`note::MAX_PER_LINE`].
    pub(super) fn scan(&mut self, jobs: &[JobId], now: ScanTime) -> SpoolNotes {
        let mut notes = Vec::new();
        let problems = match self.try_scan(jobs, now, &mut notes) {
            Ok(of_folder) => self.problems_with(of_folder),
            Err(unreadable) => vec![unreadable],
        };
        // Once, until they change.
        if self.problems.as_ref() == Some(&problems) {
            return SpoolNotes { notes, problems: None };
        }
        self.problems = Some(problems.clone());
        SpoolNotes { notes, problems: Some(problems) }
    }

    /// Reads the folder; returns what is wrong with its list. An error says why nothing could be read.
    fn try_scan(
        &mut self,
        jobs: &[JobId],
        now: ScanTime,
        notes: &mut Vec<SpoolNote>,
    ) -> Result<Option<Text>, Text> {
        let Some((folder, changed_ns)) = self.open_folder()? else {
            self.files.clear();
            self.listed = None;
            return Ok(None);
        };
        let problem = self.list(&folder, changed_ns, jobs, now).err();
        // In turn: a file that grows without end leaves no room for the others.
        let from = self.next.take().unwrap_or((JobId(0), String::new()));
        let order =
            self.files.range(from.clone()..).chain(self.files.range(..from)).map(|(key, _)| key.clone());
        for key in order.collect::<Vec<_>>() {
            if notes.len() >= note::MAX_PER_LINE {
                self.next = Some(key);
                break;
            }
            let (job, suffix) = &key;
            let Some(file) = self.files.get_mut(&key) else { continue };
            let name = file_name(*job, suffix);
            let read = file.read(&folder, &name, self.uid, now, |offset, mono_ns, text| {
                notes.push(SpoolNote { job: *job, suffix: Text::new(suffix), offset, mono_ns, text });
                notes.len() < note::MAX_PER_LINE
            });
            // A file whose turn did not come keeps the problem of its last read.
            file.problem = read.err();
        }
        Ok(problem)
    }

    /// The problems with the folder and each file, at most [`note::MAX_PROBLEMS`].
    fn problems_with(&self, of_folder: Option<Text>) -> Vec<Text> {
        let of_file = |((job, suffix), file): (&(JobId, String), &Followed)| {
            let path = self.folder.join(file_name(*job, suffix));
            file.problem.as_ref().map(|problem| problem.describe(&path))
        };
        let mut problems: Vec<_> =
            of_folder.into_iter().chain(self.files.iter().filter_map(of_file)).collect();
        if let Some(further) =
            problems.len().checked_sub(note::MAX_PROBLEMS - 1).filter(|further| *further > 1)
        {
            problems.truncate(note::MAX_PROBLEMS - 1);
            let folder = self.folder.display();
            problems.push(Text::new(format!("{further} further files in {folder} have such problems")));
        }
        problems
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
        if let Some(listed) = &self.listed
            && listed.jobs == jobs
            && listed.changed_ns == changed_ns
        {
            return listed.problem.clone().map_or(Ok(()), Err);
        }
        let path = self.folder.clone();
        let failed = |why: &str| Text::new(format!("notes in {} are left out: {why}", path.display()));
        let entries = Dir::read_from(folder).map_err(|error| failed(&io::Error::from(error).to_string()))?;
        let names = entries.map(|entry| entry.map(|entry| entry.file_name().to_str().ok().and_then(parsed)));
        let problem = self.follow(names, jobs).map_err(|why| failed(&why))?.map(|why| failed(&why));
        let is_settled = now.wall_ns.saturating_sub(changed_ns) >= COARSE_NS;
        self.listed =
            is_settled.then(|| Listed { jobs: jobs.to_vec(), changed_ns, problem: problem.clone() });
        problem.map_or(Ok(()), Err)
    }

    /// Follows the files of these jobs, by the names of all; returns why it follows not all of them. After an error it
    /// follows the same ones as before.
    fn follow(
        &mut self,
        names: impl Iterator<Item = Result<Option<FileKey>, Errno>>,
        jobs: &[JobId],
    ) -> Result<Option<String>, String> {
        let mut keys = BTreeSet::new();
        let mut problem = None;
        for (count, name) in names.enumerate() {
            let name = name.map_err(|error| io::Error::from(error).to_string())?;
            if count >= MAX_ENTRIES {
                problem = Some("it has too many files".to_owned());
                break;
            }
            let Some(key) = name.filter(|(job, _)| jobs.contains(job)) else { continue };
            if keys.len() >= MAX_FILES {
                problem = Some(format!("only {MAX_FILES} files of running jobs are read"));
                break;
            }
            keys.insert(key);
        }
        let mut known = std::mem::take(&mut self.files);
        let followed = |key: FileKey| {
            let file = known.remove(&key).unwrap_or_default();
            (key, file)
        };
        self.files = keys.into_iter().map(followed).collect();
        Ok(problem)
    }
}

/// Opens a spool file, and checks what was opened: another file may have taken the name since.
fn open(folder: &OwnedFd, name: &str, uid: u32) -> Result<(File, Stat), Problem> {
    let failed = |error: Errno| Problem::File(io::Error::from(error).to_string());
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(folder, name, flags, Mode::empty()).map_err(failed)?;
    let stat = rustix::fs::fstat(&file).map_err(failed)?;
    check(&stat, uid).map_err(Problem::File)?;
    Ok((File::from(file), stat))
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
    ) -> Result<(), Problem> {
        let stat = match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(()),
            Err(error) => return Err(Problem::File(io::Error::from(error).to_string())),
        };
        check(&stat, uid).map_err(Problem::File)?;
        let identity =
            |stat: &Stat| (stat.st_ino, u64::try_from(stat.st_size).unwrap_or(0), changed_ns(stat));
        if self.seen == Some(identity(&stat)) && self.is_done {
            self.seen_ns = now.mono_ns;
            return self.left_out(now);
        }
        let (file, stat) = open(folder, name, uid)?;
        let (inode, size, at_ns) = identity(&stat);
        if let Some((old_inode, old_size, old_ns)) = self.seen
            && (old_inode != inode
                || size == old_size && at_ns != old_ns
                || !self.continues_in(&file).map_err(|error| Problem::File(error.to_string()))?)
        {
            // It was written anew; the relay recognizes lines that are still there.
            (self.offset, self.lines, self.is_in_long_line, self.long_lines) = (0, 0, false, 0);
            self.head.clear();
        }
        let written_ns = self.written_ns(at_ns, now);
        self.seen = Some((inode, size, at_ns));
        let mut line_ns = self.last_line_ns;
        let read = self.read_lines(&file, size, |offset, text| {
            line_ns = written_ns.max(line_ns + LINE_STEP_NS);
            add(offset, line_ns, text)
        });
        self.last_line_ns = line_ns;
        self.is_done = read.map_err(|error| Problem::File(error.to_string()))?;
        if self.is_done {
            self.seen_ns = now.mono_ns;
        }
        self.left_out(now)
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
                self.long_lines += usize::from(!self.is_in_long_line);
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

    /// An error if some of the file is left out, or its last line has been incomplete for a while.
    fn left_out(&self, now: ScanTime) -> Result<(), Problem> {
        let (size, changed_ns) = self.seen.map_or((0, 0), |(_, size, changed_ns)| (size, changed_ns));
        let has_more = size > self.offset;
        let why = match () {
            () if has_more && self.lines >= MAX_LINES => format!("it has more than {MAX_LINES} lines"),
            () if has_more && self.offset >= MAX_BYTES => {
                format!("it has more than {} KiB", MAX_BYTES / 1024)
            }
            () if self.long_lines == 1 => format!("a line is longer than {} KiB", CHUNK / 1024),
            () if self.long_lines > 1 => {
                format!("{} lines are longer than {} KiB", self.long_lines, CHUNK / 1024)
            }
            () if has_more && self.is_done && now.wall_ns.saturating_sub(changed_ns) >= INCOMPLETE_NS => {
                "its last line does not end with a newline".to_owned()
            }
            () => return Ok(()),
        };
        Err(Problem::Part(why))
    }
}

/// Reason for not reading a file.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Problem {
    /// Nothing of it.
    File(String),
    /// Some of it.
    Part(String),
}

impl Problem {
    /// A complete sentence about the file at this path.
    fn describe(&self, path: &Path) -> Text {
        let path = path.display();
        Text::new(match self {
            Self::File(why) => format!("notes in {path} are not read: {why}"),
            Self::Part(why) => format!("some notes in {path} are not read: {why}"),
        })
    }
}

/// Refuses a path that is not a regular file of this user.
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
