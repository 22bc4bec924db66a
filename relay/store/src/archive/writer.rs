//! Writes segments on a thread of its own, so that the event loop never waits for a disk.

use super::ended::{self, EndedJob, PackedJob};
use super::runs::Runs;
use super::segment::{FORMAT, Kind, Segment, encode, segments};
use nodeglass_history::{Excerpt, Span};
use nodeglass_platform::disk_thread::{DiskThread, Items, Progress, Refused};
use nodeglass_platform::frame_file::{MAX_PAYLOAD, push_frame, write_header};
use nodeglass_platform::loss_count::LossCount;
use nodeglass_platform::regular_file;
use nodeglass_platform::state_dir::{StateDir, StateDirError};
use nodeglass_protocol::Text;
use rustix::fs::{FlockOperation, flock};
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Items that wait for the disk: the excerpts of some minutes, and the jobs that ended then.
const QUEUE: usize = 32;
/// Maximum length of the frames that wait while the disk fails, in bytes; the oldest is dropped first.
const MAX_WAITING: usize = 8 << 20;
/// A segment is continued up to this part of the space, because only whole segments that are complete are deleted.
const SEGMENT_SHARE: u64 = 8;
/// Name of the file that the relay which stores holds locked.
const LOCK: &str = "lock";
/// Time without stored data after which the system clock may be ahead. Longer than a segment of a day is continued.
const CLOCK_GAP: Duration = Duration::from_secs(36 * 3_600);
/// Time after which a clock that may be ahead is trusted all the same.
const CLOCK_DOUBT: Duration = Duration::from_secs(24 * 3_600);
/// Interval of renewing the list of runs; after a crash, a downtime seems to begin that much earlier.
const RUN_INTERVAL: Duration = Duration::from_secs(60);

/// Whether the history is being stored; otherwise why not, a complete sentence.
pub type Storing = Result<(), Text>;

/// Stores excerpts. Dropping it completes what is queued.
#[derive(Debug)]
pub struct Archive {
    queue: Queue,
    state: watch::Sender<Storing>,
    downtimes: Vec<Span>,
    jobs: Vec<EndedJob>,
    lost: LossCount,
}

/// The way to the disk.
#[derive(Debug)]
enum Queue {
    Thread(DiskThread<Item>),
    /// Writes at once, for simulations.
    #[cfg(any(test, feature = "test-support"))]
    Inline(std::sync::Mutex<SegmentWriter>),
}

/// An item to store.
#[derive(Debug)]
enum Item {
    Excerpt(Excerpt),
    /// Those that ended together, so that a large array takes a single place of the queue.
    Ended(Vec<EndedJob>),
}

impl Item {
    /// The number of records that are lost with it.
    fn records(&self) -> usize {
        match self {
            Self::Excerpt(_) => 1,
            Self::Ended(ended) => ended.len(),
        }
    }
}

/// Error of storing a history.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The directory cannot be used.
    #[error(transparent)]
    Dir(#[from] StateDirError),
    /// Another relay stores its history there.
    #[error("another relay of yours stores its history in {0}")]
    Locked(String),
    /// The system call failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Archive {
    /// Locks a directory and stores excerpts in it, at most about `cap` bytes. `wall_ahead_ms` returns the time of day
    /// minus the relay's clock, which changes if the system clock is set; `watches` tells ended jobs apart that relays
    /// with other settings saw.
    ///
    /// # Errors
    /// [`ArchiveError`].
    pub fn open(
        dir: StateDir,
        cap: u64,
        wall_ahead_ms: impl Fn() -> u64 + Send + 'static,
        watches: &str,
    ) -> Result<Self, ArchiveError> {
        let lock = DirLock::acquire(dir.clone())?;
        let (state, _) = watch::channel(Ok(()));
        let runs = Runs::begin(&dir, wall_ms());
        let downtimes = runs.downtimes();
        let jobs = ended::load(&dir, watches, wall_ms(), wall_ahead_ms());
        let mut writer = SegmentWriter::new(dir, cap, wall_ahead_ms());
        let (reported, watches, lost) = (state.clone(), watches.to_owned(), writer.lost.clone());
        let thread = DiskThread::start("history", QUEUE, move |items| {
            writer.run(&items, &reported, lock, runs, &watches, wall_ahead_ms);
        })?;
        Ok(Self { queue: Queue::Thread(thread), state, downtimes, jobs, lost })
    }

    /// Stores excerpts in a directory on the calling thread, without a lock and the list of runs.
    #[cfg(any(test, feature = "test-support"))]
    pub fn inline(dir: StateDir, cap: u64, wall_ahead_ms: u64) -> Self {
        let writer = SegmentWriter::new(dir, cap, wall_ahead_ms);
        let lost = writer.lost.clone();
        let (queue, state) = (Queue::Inline(std::sync::Mutex::new(writer)), watch::channel(Ok(())).0);
        Self { queue, state, downtimes: Vec::new(), jobs: Vec::new(), lost }
    }

    /// When no relay stored the history here before this run, in ms since 1970, oldest first.
    pub fn downtimes(&self) -> &[Span] {
        &self.downtimes
    }

    /// Takes the jobs that an earlier relay saw end, oldest first.
    pub fn take_jobs(&mut self) -> Vec<EndedJob> {
        std::mem::take(&mut self.jobs)
    }

    /// Returns whether storing works, and each change of that.
    pub fn state(&self) -> watch::Receiver<Storing> {
        self.state.subscribe()
    }

    /// Returns the number of excerpts and jobs that were dropped.
    pub fn lost(&self) -> u64 {
        self.lost.get()
    }

    /// Stores an excerpt; while the disk does not keep up, it is dropped.
    pub fn store(&self, excerpt: Excerpt) {
        self.pass(Item::Excerpt(excerpt));
    }

    /// Stores jobs that ended; while the disk does not keep up, they are dropped.
    pub fn store_jobs(&self, ended: Vec<EndedJob>) {
        if !ended.is_empty() {
            self.pass(Item::Ended(ended));
        }
    }

    fn pass(&self, item: Item) {
        match &self.queue {
            Queue::Thread(thread) => {
                let records = item.records();
                let passed = thread.pass(item);
                self.lost.add(if passed.is_err() { records } else { 0 });
                if passed == Err(Refused::Full) {
                    report(&self.state, Err("the disk is too slow to store the history".into()));
                }
            }
            #[cfg(any(test, feature = "test-support"))]
            Queue::Inline(writer) => {
                let mut writer = writer.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                let stored = writer.write(item, "", wall_ms());
                writer.report(&self.state, stored);
            }
        }
    }
}

/// Publishes whether storing works, and logs it when that changes.
fn report(state: &watch::Sender<Storing>, now: Storing) {
    state.send_if_modified(|before| {
        if *before == now {
            return false;
        }
        match &now {
            Ok(()) => tracing::info!("the history is stored again"),
            Err(why) => tracing::warn!(%why, "the history is not stored at present"),
        }
        *before = now;
        true
    });
}

/// The lock of a directory, which one relay holds.
#[derive(Debug)]
struct DirLock {
    dir: StateDir,
    file: File,
}

impl DirLock {
    fn acquire(dir: StateDir) -> Result<Self, ArchiveError> {
        let file = regular_file::open(&dir.private_file(LOCK)?)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| ArchiveError::Locked(dir.path().display().to_string()))?;
        Ok(Self { dir, file })
    }

    /// Creates and locks the directory again if a user has deleted it.
    fn keep(&mut self) -> io::Result<()> {
        let path = self.dir.path();
        if regular_file::is_at(&self.file, &path.join(LOCK)) {
            return Ok(());
        }
        let dir = StateDir::at(path).map_err(io::Error::other)?;
        *self = Self::acquire(dir).map_err(io::Error::other)?;
        tracing::warn!("the directory of the history was deleted; it is created again");
        Ok(())
    }
}

/// Writes segments on the calling thread.
#[derive(Debug)]
pub struct SegmentWriter {
    dir: StateDir,
    cap: u64,
    wall_ahead_ms: u64,
    /// The segments that this run appends to.
    open: Vec<(Segment, File)>,
    /// Frames that could not be written yet.
    waiting: VecDeque<(Kind, Vec<u8>)>,
    /// Ended jobs that could not be written yet.
    waiting_jobs: VecDeque<PackedJob>,
    lost: LossCount,
    /// Set if the system clock may be ahead.
    doubt: Option<Doubt>,
    progress: Progress,
}

impl SegmentWriter {
    /// Writes to a directory, which holds at most about `cap` bytes. `wall_ahead_ms` is the time of day minus the
    /// relay's clock.
    pub fn new(dir: StateDir, cap: u64, wall_ahead_ms: u64) -> Self {
        let (open, waiting, waiting_jobs, lost, doubt, progress) = Default::default();
        Self { dir, cap, wall_ahead_ms, open, waiting, waiting_jobs, lost, doubt, progress }
    }

    fn run(
        &mut self,
        items: &Items<Item>,
        state: &watch::Sender<Storing>,
        mut lock: DirLock,
        mut runs: Runs,
        watches: &str,
        wall_ahead_ms: impl Fn() -> u64,
    ) {
        // The time of day by the relay's clock, which no jump of the system clock moves ahead: what it makes look old must
        // not be deleted. One that was ahead may be set back.
        let (began, begin_ms) = (Instant::now(), wall_ms());
        let now_ms = || wall_ms().min(begin_ms + began.elapsed().as_millis() as u64);
        self.progress = items.progress();
        self.begin_aging(begin_ms);
        ended::trim(self.dir.path(), self.cap, self.aging_ms(now_ms()));
        let mut recorded = None::<Instant>;
        loop {
            if recorded.is_none_or(|at| at.elapsed() >= RUN_INTERVAL) {
                recorded = Some(Instant::now());
                // An error is that of recording, too.
                let _ = lock.keep();
                self.record(state, &mut runs, now_ms());
            }
            match items.recv_timeout(RUN_INTERVAL) {
                Ok(item) => {
                    self.wall_ahead_ms = wall_ahead_ms();
                    let stored = match lock.keep() {
                        Ok(()) => self.write(item, watches, now_ms()),
                        Err(error) => self.push(item, watches).and(Err(error)),
                    };
                    self.report(state, stored);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        self.record(state, &mut runs, now_ms());
    }

    fn write(&mut self, item: Item, watches: &str, wall_ms: u64) -> io::Result<()> {
        self.push(item, watches)?;
        self.flush(wall_ms)
    }

    /// Adds an item to those that wait; while the disk fails for long, the oldest are dropped.
    fn push(&mut self, item: Item, watches: &str) -> io::Result<()> {
        match item {
            Item::Excerpt(excerpt) => self.push_excerpt(excerpt),
            Item::Ended(ended) => {
                let mut packed = Ok(());
                for ended in ended {
                    match ended::pack(watches, self.wall_ahead_ms, ended) {
                        Ok(job) => self.waiting_jobs.push_back(job),
                        Err(error) => {
                            self.lost.add(1);
                            packed = Err(error);
                        }
                    }
                }
                while self.waiting_jobs.iter().map(|job| job.bytes.len()).sum::<usize>() > MAX_WAITING {
                    self.waiting_jobs.pop_front();
                    self.lost.add(1);
                }
                packed
            }
        }
    }

    /// Writes what waits.
    fn flush(&mut self, wall_ms: u64) -> io::Result<()> {
        while let Some((kind, bytes)) = self.waiting.pop_front() {
            if let Err(error) = self.append(kind, &bytes, wall_ms) {
                self.waiting.push_front((kind, bytes));
                return Err(error);
            }
            self.progress.count();
        }
        while let Some(job) = self.waiting_jobs.front() {
            ended::store(self.dir.path(), job)?;
            self.waiting_jobs.pop_front();
            self.progress.count();
            ended::trim(self.dir.path(), self.cap, self.aging_ms(wall_ms));
        }
        Ok(())
    }

    /// Records that this run lasts. A full disk may have room for this and nothing else, so that success says nothing.
    fn record(&self, state: &watch::Sender<Storing>, runs: &mut Runs, now_ms: u64) {
        if let Err(error) = runs.record(now_ms) {
            self.report(state, Err(error));
        }
    }

    fn report(&self, state: &watch::Sender<Storing>, stored: io::Result<()>) {
        report(state, stored.map_err(|error| Text::new(format!("{}: {error}", self.dir.path().display()))));
    }

    /// Appends an excerpt, after those that could not be written before.
    ///
    /// # Errors
    /// The disk is full or cannot be written; the excerpt waits for the next call.
    pub fn store(&mut self, excerpt: Excerpt, wall_ms: u64) -> io::Result<()> {
        self.push_excerpt(excerpt)?;
        self.flush(wall_ms)
    }

    fn push_excerpt(&mut self, excerpt: Excerpt) -> io::Result<()> {
        let kind = Kind::of(excerpt.step_ms);
        let payload = encode(excerpt, self.wall_ahead_ms)?;
        if payload.len() > MAX_PAYLOAD {
            self.lost.add(1);
            return Err(io::Error::other("the history of a minute is too large to be stored"));
        }
        let mut bytes = Vec::with_capacity(payload.len() + 8);
        push_frame(&mut bytes, &payload);
        self.waiting.push_back((kind, bytes));
        while self.waiting.iter().map(|(_, bytes)| bytes.len()).sum::<usize>() > MAX_WAITING {
            self.waiting.pop_front();
            self.lost.add(1);
        }
        Ok(())
    }

    /// Appends a frame, to a new segment if the current one of its kind is long enough at `wall_ms`. After an error, the
    /// segment ends as before.
    fn append(&mut self, kind: Kind, bytes: &[u8], wall_ms: u64) -> io::Result<()> {
        let max_bytes = self.cap / SEGMENT_SHARE;
        self.open.retain(|(segment, file)| {
            let age_ms = u128::from(wall_ms.saturating_sub(segment.wall_ms));
            // No two segments begin in one millisecond.
            let is_complete = segment.bytes >= max_bytes && age_ms > 0;
            // A segment of the future was begun before the clock was set back.
            let is_usable = !is_complete
                && segment.wall_ms <= wall_ms
                && age_ms < kind.length().as_millis()
                && regular_file::is_at(file, &segment.path);
            segment.kind != kind || is_usable
        });
        if !self.open.iter().any(|(segment, _)| segment.kind == kind) {
            self.trim(wall_ms);
            self.begin(kind, wall_ms)?;
        }
        let Some((segment, file)) = self.open.iter_mut().find(|(segment, _)| segment.kind == kind) else {
            return Ok(());
        };
        let written = file.write_all(bytes).and_then(|()| file.sync_data());
        if let Err(error) = written {
            // On a full disk, the beginning of the frame was written.
            let _ = file.set_len(segment.bytes);
            self.open.retain(|(segment, _)| segment.kind != kind);
            return Err(error);
        }
        segment.bytes += bytes.len() as u64;
        Ok(())
    }

    fn begin(&mut self, kind: Kind, wall_ms: u64) -> io::Result<()> {
        let path = self.dir.path().join(kind.file_name(wall_ms));
        let mut file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(&path)?;
        let mut header = Vec::new();
        write_header(&mut header, FORMAT)?;
        if let Err(error) = file.write_all(&header) {
            let _ = std::fs::remove_file(&path);
            return Err(error);
        }
        self.open.push((Segment { kind, wall_ms, path, bytes: header.len() as u64 }, file));
        Ok(())
    }

    /// Deletes what is too old at the start of a run, unless the system clock may be ahead.
    pub(super) fn begin_aging(&mut self, wall_ms: u64) {
        self.doubt = Doubt::of(self.dir.path(), wall_ms);
        self.trim(wall_ms);
    }

    /// The time of day by which stored data is too old at `wall_ms`.
    fn aging_ms(&self, wall_ms: u64) -> u64 {
        match self.doubt {
            Some(doubt) if wall_ms < doubt.until_ms => wall_ms.min(doubt.newest_ms),
            _ => wall_ms,
        }
    }

    /// Deletes segments that are too old, then the oldest ones that exceed the cap: ten-second segments first.
    pub(super) fn trim(&self, wall_ms: u64) {
        let now_ms = self.aging_ms(wall_ms);
        let Ok(found) = segments(self.dir.path()) else { return };
        let mut total: u64 = found.iter().map(|segment| segment.bytes).sum();
        for segment in found {
            let age_ms = u128::from(now_ms.saturating_sub(segment.wall_ms));
            let is_old = age_ms > (segment.kind.keep() + segment.kind.length()).as_millis();
            let is_open = self.open.iter().any(|(open, _)| open.path == segment.path);
            if (is_old || total > self.cap) && !is_open && std::fs::remove_file(&segment.path).is_ok() {
                total = total.saturating_sub(segment.bytes);
            }
        }
    }
}

/// Doubt about the system clock: the stored data before this run, or before one that began within a day, is so old that
/// the clock may be ahead. Nothing is deleted for its age before the clock could be set.
#[derive(Clone, Copy, Debug)]
struct Doubt {
    /// Time of the newest data before the gap, in ms since 1970.
    newest_ms: u64,
    /// End of the doubt, in ms since 1970.
    until_ms: u64,
}

impl Doubt {
    fn of(dir: &Path, wall_ms: u64) -> Option<Self> {
        let segments = segments(dir).unwrap_or_default();
        let stored = segments.iter().map(|segment| segment.wall_ms).chain(ended::newest_ms(dir));
        let mut times: Vec<u64> = stored.filter(|at_ms| *at_ms <= wall_ms).chain([wall_ms]).collect();
        times.sort_unstable();
        let mut pairs = times.windows(2).rev().map(|pair| (pair[0], pair[1]));
        let is_gap = |(from_ms, to_ms): &(u64, u64)| u128::from(to_ms - from_ms) > CLOCK_GAP.as_millis();
        let (newest_ms, to_ms) = pairs.find(is_gap)?;
        let until_ms = to_ms.saturating_add(CLOCK_DOUBT.as_millis() as u64);
        if until_ms <= wall_ms {
            return None;
        }
        tracing::info!(
            dir = %dir.display(),
            "no history was stored for {} hours; in case the clock is ahead, nothing is deleted for its age within a day",
            (to_ms - newest_ms) / 3_600_000
        );
        Some(Self { newest_ms, until_ms })
    }
}

fn wall_ms() -> u64 {
    nodeglass_platform::clock::Clock::wall_ms()
}
