//! Rounds that wait for the server: in memory while it accepts them, otherwise in a folder that the next relay reads.
//!
//! Each file has one round, so that it can be deleted as soon as it was sent. A relay that is killed in between sends a
//! round again; servers ignore samples that they have.

use super::request::{Request, Round};
use nodeglass_platform::frame_file::{Format, FrameReader, push_frame, write_header};
use nodeglass_platform::state_dir::StateDir;
use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Format of a file: each frame is the number of samples, four bytes little-endian, and the request.
const FORMAT: Format = Format { kind: *b"ngrw", name: "spool", version: 1 };
const SUFFIX: &str = "rw";
/// Maximum size of rounds in memory, in bytes. More go to the folder; without one, the oldest are dropped.
const MAX_MEMORY: u64 = 16 << 20;

/// Rounds in the order of their time.
#[derive(Debug, Default)]
pub struct Spool {
    dir: Option<StateDir>,
    /// Locked while the folder is used.
    _lock: Option<File>,
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
        let lock = File::create(dir.path().join("lock"))?;
        lock.try_lock().map_err(|_| io::Error::other("another relay of yours writes to it"))?;
        let mut found = Vec::new();
        for entry in fs::read_dir(dir.path())? {
            let entry = entry?;
            if let Some((number, samples)) = parse_name(&entry.file_name().to_string_lossy()) {
                found.push((number, samples, entry.metadata()?.len(), entry.path()));
            }
        }
        found.sort();
        let next_number = found.last().map_or(0, |(number, ..)| number + 1);
        let waiting = found.into_iter().map(|(number, samples, bytes, path)| Waiting {
            number,
            samples,
            bytes,
            place: Place::File(path),
        });
        let mut spool = Self {
            dir: Some(dir),
            _lock: Some(lock),
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
        let in_memory = self.waiting.iter().filter(|waiting| matches!(waiting.place, Place::Memory(_)));
        in_memory.map(|waiting| waiting.bytes).sum::<u64>() > MAX_MEMORY
    }

    /// Writes what is in memory to the folder, if there is one.
    ///
    /// # Errors
    /// It cannot be written; it stays in memory.
    pub fn persist(&mut self) -> io::Result<()> {
        let Some(dir) = &self.dir else { return Ok(()) };
        if self.current_file.is_none() && !self.current.is_empty() {
            let round = Round { requests: self.current.iter().cloned().collect() };
            let path = dir.path().join(name(self.current_number, round.samples()));
            write(&path, &round)?;
            self.current_file = Some(path);
        }
        for waiting in &mut self.waiting {
            let Place::Memory(round) = &waiting.place else { continue };
            let path = dir.path().join(name(waiting.number, waiting.samples));
            write(&path, round)?;
            waiting.place = Place::File(path);
        }
        Ok(())
    }

    /// The request to send next.
    pub(crate) fn front(&mut self) -> Option<Request> {
        while self.current.is_empty() {
            self.remove_current_file();
            let next = self.waiting.pop_front()?;
            self.current_number = next.number;
            match next.place {
                Place::Memory(round) => self.current = round.requests.into(),
                Place::File(path) => {
                    let requests = read(&path).unwrap_or_else(|error| {
                        tracing::warn!(path = %path.display(), %error, "a round of the spool cannot be read");
                        Vec::new()
                    });
                    let read: u64 = requests.iter().map(|request| u64::from(request.samples)).sum();
                    self.dropped += next.samples.saturating_sub(read);
                    (self.current, self.current_file) = (requests.into(), Some(path));
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

    /// Takes the number of samples that were dropped since the last call.
    pub fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }

    /// Drops the oldest rounds beyond the size limit.
    fn trim(&mut self) {
        let mut bytes: u64 = self.waiting.iter().map(|waiting| waiting.bytes).sum();
        while bytes > self.max_bytes {
            let Some(oldest) = self.waiting.pop_front() else { return };
            bytes -= oldest.bytes;
            self.dropped += oldest.samples;
            if let Place::File(path) = oldest.place {
                remove(&path);
            }
        }
    }

    fn remove_current_file(&mut self) {
        if let Some(path) = self.current_file.take() {
            remove(&path);
        }
    }
}

fn name(number: u64, samples: u64) -> String {
    format!("{number:016}-{samples}.{SUFFIX}")
}

fn parse_name(name: &str) -> Option<(u64, u64)> {
    let (number, samples) = name.strip_suffix(SUFFIX)?.strip_suffix('.')?.split_once('-')?;
    Some((number.parse().ok()?, samples.parse().ok()?))
}

fn write(path: &Path, round: &Round) -> io::Result<()> {
    let mut bytes = Vec::new();
    write_header(&mut bytes, FORMAT)?;
    for request in &round.requests {
        push_frame(&mut bytes, &[&request.samples.to_le_bytes(), &request.body[..]].concat());
    }
    let written = File::create(path).and_then(|mut file| file.write_all(&bytes));
    if written.is_err() {
        remove(path);
    }
    written
}

/// Reads the complete requests of a file: the relay may have been killed while it wrote.
fn read(path: &Path) -> io::Result<Vec<Request>> {
    let mut reader = FrameReader::open(File::open(path)?, FORMAT).map_err(io::Error::other)?;
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
        let mut spool = Spool::open(dir(&folder), 12).unwrap();
        for text in ["aaaaa", "bbbbb", "ccccc"] {
            spool.push(round(text, 3));
            spool.persist().unwrap();
        }
        assert_eq!(spool.take_dropped(), 3);
        assert_eq!(drain(&mut spool), ["bbbbb", "ccccc"]);
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
