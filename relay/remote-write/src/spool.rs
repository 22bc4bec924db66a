//! Rounds that wait for the server: in memory while it accepts them, otherwise in a folder that the next relay reads.
//!
//! Each file has one round, so that it can be deleted as soon as it was sent. A relay that is killed in between sends a
//! round again; servers ignore samples that they have.

use super::request::{Request, Round};
use nodeglass_platform::frame_file::{Format, FrameReader, OpenError, push_frame, write_header};
use nodeglass_platform::regular_file;
use nodeglass_platform::state_dir::StateDir;
use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Format of a file: each frame is the number of samples, four bytes little-endian, and the request.
const FORMAT: Format = Format { kind: *b"ngrw", name: "spool", version: 1 };
const SUFFIX: &str = "rw";
const LOCK: &str = "lock";
/// Maximum size of rounds in memory, in bytes. More go to the folder; without one that can be written, the oldest are
/// dropped.
const MAX_MEMORY: u64 = 16 << 20;
/// Maximum number of files. Homes have limits of these as well, and 16,384 rounds of 15 s are almost three days.
const MAX_FILES: usize = 16_384;
/// Unit in which a file takes disk space, in bytes.
const BLOCK: u64 = 4_096;
/// Maximum number of files in a row that are tried although none of them can be read.
const MAX_UNREADABLE: usize = 8;

/// Rounds in the order of their time.
#[derive(Debug, Default)]
pub struct Spool {
    dir: Option<StateDir>,
    /// Locked while the folder is used.
    lock: Option<File>,
    max_bytes: u64,
    waiting: VecDeque<Waiting>,
    /// Requests of the current round that have not been sent.
    current: VecDeque<Request>,
    /// Number of the current round.
    current_number: u64,
    /// File of the current round, if it is on disk.
    current_file: Option<PathBuf>,
    next_number: u64,
    /// Samples that were dropped and not reported yet.
    dropped: u64,
}

#[derive(Debug)]
struct Waiting {
    number: u64,
    samples: u64,
    bytes: u64,
    place: Place,
}

#[derive(Debug)]
enum Place {
    Memory(Round),
    File(PathBuf),
    /// It could not be read for this reason, and is tried again.
    Unreadable(PathBuf, String),
}

/// Result of reading a file of the spool.
enum ReadFile {
    /// Its complete requests.
    Requests(Vec<Request>),
    /// It has none: it is damaged or gone.
    Lost(String),
    /// It may be readable later, or by another version.
    Unreadable(String),
}

impl Spool {
    /// One whose rounds wait in memory only, at most 16 MiB of them.
    pub fn in_memory(max_bytes: u64) -> Self {
        Self { max_bytes: max_bytes.min(MAX_MEMORY), ..Self::default() }
    }

    /// Opens a folder with what an earlier relay left.
    ///
    /// # Errors
    /// The folder cannot be read, or another relay uses it.
    pub fn open(dir: StateDir, max_bytes: u64) -> io::Result<Self> {
        let lock = lock(&dir)?;
        let (mut found, mut next_number) = (Vec::new(), 0);
        for entry in fs::read_dir(dir.path())? {
            let entry = entry?;
            let Some((number, samples)) = parse_name(&entry.file_name().to_string_lossy()) else { continue };
            next_number = next_number.max(number.saturating_add(1));
            if entry.file_type()?.is_file() {
                found.push((number, samples, entry.metadata()?.len(), entry.path()));
            } else {
                tracing::warn!(path = %entry.path().display(), "not a file: the spool does without it");
            }
        }
        found.sort();
        let waiting = found.into_iter().map(|(number, samples, bytes, path)| Waiting {
            number,
            samples,
            bytes,
            place: Place::File(path),
        });
        let mut spool = Self {
            dir: Some(dir),
            lock: Some(lock),
            max_bytes,
            waiting: waiting.collect(),
            next_number,
            ..Self::default()
        };
        spool.trim();
        Ok(spool)
    }

    /// Adds a round in memory.
    pub fn push(&mut self, round: Round) {
        if !round.requests.is_empty() {
            let (samples, bytes) = (round.samples(), round.bytes());
            let number = self.next_number;
            self.next_number += 1;
            self.waiting.push_back(Waiting { number, samples, bytes, place: Place::Memory(round) });
            self.trim();
        }
    }

    /// Returns whether too much is in memory, because the server accepts rounds more slowly than they come.
    pub(crate) fn exceeds_memory(&self) -> bool {
        self.bytes_in_memory() > MAX_MEMORY
    }

    fn bytes_in_memory(&self) -> u64 {
        self.waiting.iter().filter(|waiting| waiting.is_in_memory()).map(|waiting| waiting.bytes).sum()
    }

    /// Writes what is in memory to the folder, if there is one.
    ///
    /// # Errors
    /// It cannot be written; the newest 16 MiB stay in memory.
    pub fn persist(&mut self) -> io::Result<()> {
        let stored = self.store();
        self.trim();
        self.trim_memory();
        stored
    }

    fn store(&mut self) -> io::Result<()> {
        let Some(dir) = &self.dir else { return Ok(()) };
        if !self.lock.as_ref().is_some_and(|lock| regular_file::is_at(lock, &dir.path().join(LOCK))) {
            // Somebody has deleted the folder, or put another in its place.
            dir.prepare().map_err(io::Error::other)?;
            self.lock = Some(lock(dir)?);
        }
        if self.current_file.is_none() && !self.current.is_empty() {
            let round = Round { requests: self.current.iter().cloned().collect() };
            let path = dir.path().join(name(self.current_number, round.samples()));
            write(&path, &round)?;
            self.current_file = Some(path);
        }
        for waiting in &mut self.waiting {
            let Place::Memory(round) = &waiting.place else { continue };
            let path = dir.path().join(name(waiting.number, waiting.samples));
            waiting.bytes = write(&path, round)?;
            waiting.place = Place::File(path);
        }
        Ok(())
    }

    /// The request to send next. A file that cannot be read now waits behind the others.
    pub(crate) fn front(&mut self) -> Option<Request> {
        let mut unreadable = 0;
        while self.current.is_empty() {
            self.remove_current_file();
            let Waiting { number, samples, bytes, place } = self.waiting.pop_front()?;
            self.current_number = number;
            let path = match place {
                Place::Memory(round) => {
                    self.current = round.requests.into();
                    continue;
                }
                Place::File(path) | Place::Unreadable(path, _) => path,
            };
            match read(&path) {
                ReadFile::Requests(requests) => {
                    let read: u64 = requests.iter().map(|request| u64::from(request.samples)).sum();
                    self.dropped += samples.saturating_sub(read);
                    (self.current, self.current_file) = (requests.into(), Some(path));
                }
                ReadFile::Lost(why) => {
                    tracing::warn!(path = %path.display(), why, "a round of the spool is lost");
                    self.dropped += samples;
                    self.current_file = path.exists().then_some(path);
                }
                ReadFile::Unreadable(why) => {
                    let place = Place::Unreadable(path, why);
                    self.waiting.push_back(Waiting { number, samples, bytes, place });
                    unreadable += 1;
                    if unreadable >= MAX_UNREADABLE.min(self.waiting.len()) {
                        return None;
                    }
                }
            }
        }
        self.current.front().cloned()
    }

    /// Removes the request that [`Self::front`] returned.
    pub(crate) fn pop(&mut self) {
        self.current.pop_front();
        if self.current.is_empty() {
            self.remove_current_file();
        }
    }

    /// Number of samples that wait, and their size in bytes.
    pub fn pending(&self) -> (u64, u64) {
        let samples = self.waiting.iter().map(|waiting| waiting.samples).sum::<u64>();
        let bytes = self.waiting.iter().map(|waiting| waiting.bytes).sum::<u64>();
        let current = self.current.iter();
        let (more, more_bytes) = current.fold((0, 0), |(samples, bytes), request| {
            (samples + u64::from(request.samples), bytes + request.body.len() as u64)
        });
        (samples + more, bytes + more_bytes)
    }

    /// Returns why a file could not be read, as a complete sentence; `None` if no such file waits.
    pub(crate) fn unreadable(&self) -> Option<String> {
        self.waiting.iter().find_map(|waiting| match &waiting.place {
            Place::Unreadable(path, why) => {
                Some(format!("samples in {} cannot be read, and are tried again: {why}", path.display()))
            }
            _ => None,
        })
    }

    /// Takes the number of samples that were dropped since the last call.
    pub fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }

    /// Drops the oldest rounds beyond the limits of space and files.
    fn trim(&mut self) {
        let mut space: u64 = self.waiting.iter().map(Waiting::space).sum();
        while space > self.max_bytes || self.waiting.len() > MAX_FILES {
            let Some(oldest) = self.waiting.pop_front() else { return };
            space -= oldest.space();
            self.dropped += oldest.samples;
            if let Place::File(path) | Place::Unreadable(path, _) = oldest.place {
                remove(&path);
            }
        }
    }

    /// Drops the oldest rounds in memory beyond its limit, because they could not be stored.
    fn trim_memory(&mut self) {
        let mut bytes = self.bytes_in_memory();
        self.waiting.retain(|waiting| {
            let is_dropped = bytes > MAX_MEMORY && waiting.is_in_memory();
            if is_dropped {
                bytes -= waiting.bytes;
                self.dropped += waiting.samples;
            }
            !is_dropped
        });
    }

    fn remove_current_file(&mut self) {
        if let Some(path) = self.current_file.take() {
            remove(&path);
        }
    }
}

impl Waiting {
    /// Disk space that it takes: full blocks.
    fn space(&self) -> u64 {
        self.bytes.next_multiple_of(BLOCK)
    }

    fn is_in_memory(&self) -> bool {
        matches!(self.place, Place::Memory(_))
    }
}

fn lock(dir: &StateDir) -> io::Result<File> {
    let lock = regular_file::create(&dir.path().join(LOCK))?;
    lock.try_lock().map_err(|_| io::Error::other("another relay of yours writes to it"))?;
    Ok(lock)
}

fn name(number: u64, samples: u64) -> String {
    format!("{number:016}-{samples}.{SUFFIX}")
}

fn parse_name(name: &str) -> Option<(u64, u64)> {
    let (number, samples) = name.strip_suffix(SUFFIX)?.strip_suffix('.')?.split_once('-')?;
    Some((number.parse().ok()?, samples.parse().ok()?))
}

/// Writes a round, and returns the size of its file.
fn write(path: &Path, round: &Round) -> io::Result<u64> {
    let mut bytes = Vec::new();
    write_header(&mut bytes, FORMAT)?;
    for request in &round.requests {
        push_frame(&mut bytes, &[&request.samples.to_le_bytes(), &request.body[..]].concat());
    }
    let mut file = regular_file::create(path)?;
    let written = file.write_all(&bytes);
    if written.is_err() {
        remove(path);
    }
    written.map(|()| bytes.len() as u64)
}

/// Reads the complete requests of a file: the relay may have been killed while it wrote.
fn read(path: &Path) -> ReadFile {
    match read_requests(path) {
        Ok(requests) => ReadFile::Requests(requests),
        Err(error @ OpenError::OtherKind { .. }) => ReadFile::Lost(error.to_string()),
        Err(OpenError::Io(error)) if error.kind() == io::ErrorKind::NotFound => {
            ReadFile::Lost(error.to_string())
        }
        Err(error) => ReadFile::Unreadable(error.to_string()),
    }
}

fn read_requests(path: &Path) -> Result<Vec<Request>, OpenError> {
    let mut reader = FrameReader::open(regular_file::open(path)?, FORMAT)?;
    let mut requests = Vec::new();
    while let Some(frame) = reader.next_frame()? {
        let Some((samples, body)) = frame.split_first_chunk() else { break };
        requests.push(Request { samples: u32::from_le_bytes(*samples), body: body.to_vec().into() });
    }
    Ok(requests)
}

fn remove(path: &Path) {
    if let Err(error) = fs::remove_file(path) {
        tracing::warn!(path = %path.display(), %error, "a round of the spool cannot be removed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(text: &'static str, samples: u32) -> Round {
        Round { requests: vec![Request { samples, body: text.into() }] }
    }

    fn dir(folder: &tempfile::TempDir) -> StateDir {
        StateDir::at(folder.path().join("spool")).unwrap()
    }

    fn drain(spool: &mut Spool) -> Vec<String> {
        let mut bodies = Vec::new();
        while let Some(request) = spool.front() {
            bodies.push(String::from_utf8(request.body.to_vec()).unwrap());
            spool.pop();
        }
        bodies
    }

    #[test]
    fn more_than_fits_into_memory_is_to_be_stored() {
        let folder = tempfile::tempdir().unwrap();
        let mut spool = Spool::open(dir(&folder), 1 << 30).unwrap();
        let large = || Round { requests: vec![Request { samples: 1, body: vec![0; 6 << 20].into() }] };
        (0..2).for_each(|_| spool.push(large()));
        assert!(!spool.exceeds_memory());
        spool.push(large());
        assert!(spool.exceeds_memory());
        spool.persist().unwrap();
        assert!(!spool.exceeds_memory() && spool.pending().0 == 3);
    }

    #[test]
    fn a_folder_that_cannot_be_written_does_not_fill_the_memory() {
        let folder = tempfile::tempdir().unwrap();
        let mut spool = Spool::open(dir(&folder), 1 << 30).unwrap();
        fs::remove_dir_all(folder.path().join("spool")).unwrap();
        fs::write(folder.path().join("spool"), "in its place").unwrap();
        for number in 0..4 {
            spool.push(Round { requests: vec![Request { samples: 1, body: vec![number; 6 << 20].into() }] });
            assert!(spool.persist().is_err());
        }
        assert_eq!((spool.pending().0, spool.take_dropped()), (2, 2));
        assert_eq!(spool.front().unwrap().body[0], 2, "the oldest are dropped");
    }

    #[test]
    fn f24_a_folder_that_was_deleted_is_created_and_locked_again() {
        let folder = tempfile::tempdir().unwrap();
        let mut spool = Spool::open(dir(&folder), 1 << 20).unwrap();
        spool.push(round("first", 1));
        spool.persist().unwrap();
        fs::remove_dir_all(folder.path().join("spool")).unwrap();
        spool.push(round("second", 1));
        spool.persist().unwrap();
        assert!(Spool::open(dir(&folder), 1 << 20).is_err(), "another relay must not write to it");
        drop(spool);
        assert_eq!(drain(&mut Spool::open(dir(&folder), 1 << 20).unwrap()), ["second"]);
    }

    #[test]
    fn a_file_that_cannot_be_read_now_is_kept_and_sent_later() {
        let folder = tempfile::tempdir().unwrap();
        let mut spool = Spool::open(dir(&folder), 1 << 20).unwrap();
        for text in ["first", "second"] {
            spool.push(round(text, 3));
        }
        spool.persist().unwrap();
        let path = folder.path().join("spool").join(name(0, 3));
        let (bytes, newer) = (fs::read(&path).unwrap(), Format { version: 2, ..FORMAT });
        let mut header = Vec::new();
        write_header(&mut header, newer).unwrap();
        fs::write(&path, header).unwrap();
        assert_eq!(drain(&mut spool), ["second"]);
        assert_eq!((spool.pending().0, spool.take_dropped()), (3, 0));
        assert!(spool.unreadable().unwrap().ends_with("it has format version 2, this build reads version 1"));
        fs::write(&path, bytes).unwrap();
        spool.push(round("third", 3));
        assert_eq!(drain(&mut spool), ["first", "third"]);
        assert_eq!((spool.unreadable(), spool.take_dropped(), path.exists()), (None, 0, false));
    }

    #[test]
    fn many_files_that_cannot_be_read_are_tried_in_turn() {
        let folder = tempfile::tempdir().unwrap();
        let mut spool = Spool::open(dir(&folder), 1 << 20).unwrap();
        (0..2 * MAX_UNREADABLE as u64).for_each(|_| spool.push(round("x", 1)));
        spool.persist().unwrap();
        for number in 0..MAX_UNREADABLE as u64 {
            let path = folder.path().join("spool").join(name(number, 1));
            fs::remove_file(&path).unwrap();
            fs::create_dir(path).unwrap();
        }
        assert_eq!(spool.front(), None);
        assert_eq!(drain(&mut spool).len(), MAX_UNREADABLE);
        assert_eq!(spool.pending().0, MAX_UNREADABLE as u64);
    }

    #[test]
    fn rounds_survive_a_restart_in_order_and_leave_no_file_once_sent() {
        let folder = tempfile::tempdir().unwrap();
        let mut spool = Spool::open(dir(&folder), 1 << 20).unwrap();
        for text in ["first", "second", "third"] {
            spool.push(round(text, 2));
        }
        assert_eq!(&spool.front().unwrap().body[..], b"first");
        spool.persist().unwrap();
        spool.push(round("fourth", 2));
        spool.persist().unwrap();
        drop(spool);
        let mut spool = Spool::open(dir(&folder), 1 << 20).unwrap();
        assert_eq!(spool.pending().0, 8);
        assert_eq!(drain(&mut spool), ["first", "second", "third", "fourth"]);
        let files = fs::read_dir(folder.path().join("spool")).unwrap();
        assert_eq!(files.map(|file| file.unwrap().file_name()).collect::<Vec<_>>(), ["lock"]);
        assert_eq!((spool.pending(), spool.take_dropped()), ((0, 0), 0));
    }

    #[test]
    fn the_oldest_are_dropped_and_counted_when_it_is_full() {
        let folder = tempfile::tempdir().unwrap();
        // Small files take a block each.
        let mut spool = Spool::open(dir(&folder), 2 * BLOCK).unwrap();
        for text in ["aaaaa", "bbbbb", "ccccc"] {
            spool.push(round(text, 3));
            spool.persist().unwrap();
        }
        assert_eq!(spool.take_dropped(), 3);
        assert_eq!(drain(&mut spool), ["bbbbb", "ccccc"]);
    }

    #[test]
    fn there_are_never_too_many_files() {
        let mut spool = Spool { max_bytes: u64::MAX, ..Spool::default() };
        (0..=MAX_FILES).for_each(|_| spool.push(round("x", 1)));
        assert_eq!((spool.pending().0, spool.take_dropped()), (MAX_FILES as u64, 1));
    }

    #[test]
    fn what_is_no_file_blocks_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: String| folder.path().join("spool").join(name);
        drop(Spool::open(dir(&folder), 1 << 20).unwrap());
        regular_file::make_pipe(&at(name(0, 1)));
        std::os::unix::fs::symlink("/dev/zero", at(name(1, 1))).unwrap();
        let mut spool = Spool::open(dir(&folder), 1 << 20).unwrap();
        spool.push(round("first", 1));
        spool.persist().unwrap();
        // It appears while the relay runs.
        regular_file::make_pipe(&at(name(3, 5)));
        spool.push(round("second", 5));
        assert!(spool.persist().is_err());
        assert_eq!(drain(&mut spool), ["first", "second"]);
        drop(spool);

        fs::remove_file(at("lock".into())).unwrap();
        regular_file::make_pipe(&at("lock".into()));
        assert!(Spool::open(dir(&folder), 1 << 20).is_err());
    }

    #[test]
    fn a_file_that_was_cut_at_any_byte_costs_no_other_and_is_counted() {
        let folder = tempfile::tempdir().unwrap();
        let mut spool = Spool::open(dir(&folder), 1 << 20).unwrap();
        spool.push(round("first", 3));
        spool.push(round("second", 4));
        spool.persist().unwrap();
        drop(spool);
        let path = folder.path().join("spool").join(name(0, 3));
        let bytes = fs::read(&path).unwrap();
        for cut in 0..bytes.len() {
            fs::write(&path, &bytes[..cut]).unwrap();
            let mut spool = Spool::open(dir(&folder), 1 << 20).unwrap();
            assert_eq!(&spool.front().unwrap().body[..], b"second", "cut at {cut}");
            assert_eq!(spool.take_dropped(), 3);
        }
    }
}
