//! Writes a recording on a thread of its own, so that the event loop never waits for a disk.

use super::event::{RecordedEvent, Stamped};
use super::{FORMAT, Info, MAX_BLOCK};
use flate2::Compression;
use flate2::write::ZlibEncoder;
use nodeglass_fleet::Event;
use nodeglass_platform::disk_thread::{DiskThread, Items, Refused};
use nodeglass_platform::frame_file::{MAX_PAYLOAD, push_frame, write_header};
use nodeglass_platform::loss_count::LossCount;
use nodeglass_protocol::Text;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Events that wait for the disk; further ones are dropped.
const QUEUE: usize = 16 * 1024;
/// Length before compression, in bytes, at which a block is written.
const BLOCK: usize = 512 * 1024;
/// Age at which a shorter block is written: the time that a crash of the machine can cost.
const BLOCK_AGE: Duration = Duration::from_secs(2);
/// Maximum length of the blocks that wait while the disk fails, in bytes; further blocks are lost.
const MAX_UNWRITTEN: usize = MAX_PAYLOAD;

/// Records events. Dropping it completes the file.
#[derive(Debug)]
pub struct Recorder {
    thread: DiskThread<(u64, Event)>,
    state: watch::Sender<RecordingState>,
    lost: LossCount,
}

/// Whether a recording is complete and being written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordingState {
    /// Reason why nothing can be written now.
    failure: Option<Text>,
    /// Whether events are missing.
    has_gaps: bool,
}

impl RecordingState {
    /// Returns what is wrong with the recording, a complete sentence for the user.
    pub fn problem(&self) -> Option<Text> {
        match &self.failure {
            Some(why) => Some(Text::new(format!("nothing is recorded at present: {why}"))),
            None => self
                .has_gaps
                .then(|| "the recording has gaps, because the disk failed or was too slow".into()),
        }
    }
}

/// Error of recording. Messages are complete sentences for the user.
#[derive(Debug, thiserror::Error)]
pub enum RecorderError {
    /// There is a file already.
    #[error("{} exists; a recording never overwrites a file, choose another name", .0.display())]
    Exists(PathBuf),
    /// The file cannot be created.
    #[error("failed to create {}: {source}", path.display())]
    Create {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

impl Recorder {
    /// Checks that a file does not exist, and its folder does.
    ///
    /// # Errors
    /// [`RecorderError`], as of [`Recorder::create`].
    pub fn check(path: &Path) -> Result<(), RecorderError> {
        if path.symlink_metadata().is_ok() {
            return Err(RecorderError::Exists(path.to_owned()));
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let metadata = folder.unwrap_or(Path::new(".")).metadata();
        let is_folder = metadata.and_then(|metadata| match metadata.is_dir() {
            true => Ok(()),
            false => Err(io::ErrorKind::NotADirectory.into()),
        });
        is_folder.map_err(|source| RecorderError::Create { path: path.to_owned(), source })
    }

    /// Creates a file, readable by its owner only, and records to it.
    ///
    /// # Errors
    /// [`RecorderError`].
    pub fn create(path: &Path, info: &Info) -> Result<Self, RecorderError> {
        let failed = |source| RecorderError::Create { path: path.to_owned(), source };
        let writer = Writer::create(path, info)?;
        let (state, _) = watch::channel(RecordingState::default());
        let (reported, path, lost) = (state.clone(), path.to_owned(), writer.lost.clone());
        let thread =
            DiskThread::start("recorder", QUEUE, move |events| writer.run(&events, &reported, &path));
        Ok(Self { thread: thread.map_err(failed)?, state, lost })
    }

    /// Returns whether recording works, and each change of that.
    pub fn state(&self) -> watch::Receiver<RecordingState> {
        self.state.subscribe()
    }

    /// Returns the number of events that are missing.
    pub fn lost(&self) -> u64 {
        self.lost.get()
    }

    /// Records an event; while the disk does not keep up, it is dropped.
    pub fn record(&mut self, at_ms: u64, event: &Event) {
        if self.thread.pass((at_ms, event.clone())) == Err(Refused::Full) {
            self.lost.add(1);
            report_gap(&self.state);
        }
    }
}

/// Publishes that events are missing, and logs it the first time.
fn report_gap(state: &watch::Sender<RecordingState>) {
    let is_first = state.send_if_modified(|state| !std::mem::replace(&mut state.has_gaps, true));
    if is_first {
        tracing::warn!("the disk fails or is too slow for the recording, which has gaps");
    }
}

/// Publishes whether writing `file` works, and logs it when that changes.
fn report(state: &watch::Sender<RecordingState>, file: &Path, written: io::Result<()>) {
    let failure = written.err().map(|error| Text::new(format!("{}: {error}", file.display())));
    state.send_if_modified(|state| {
        if state.failure == failure {
            return false;
        }
        match &failure {
            Some(why) => tracing::warn!(%why, "nothing is recorded at present"),
            None => tracing::info!(file = %file.display(), "the recording goes on"),
        }
        state.failure = failure;
        true
    });
}

/// The file of a recording.
pub(super) struct Writer {
    file: File,
    /// Bytes up to the end of the last complete frame.
    length: u64,
    /// Whether the file may be longer, because a failed write could not be undone.
    is_torn: bool,
    /// Events that have not been written.
    block: Vec<u8>,
    /// Frames that could not be written yet.
    unwritten: Vec<u8>,
    /// Number of events that were lost.
    lost: LossCount,
}

impl Writer {
    /// Creates a file, readable by its owner only.
    pub(super) fn create(path: &Path, info: &Info) -> Result<Self, RecorderError> {
        let failed = |source| RecorderError::Create { path: path.to_owned(), source };
        let file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(path);
        let file = file.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => RecorderError::Exists(path.to_owned()),
            _ => failed(error),
        })?;
        let mut writer = Self {
            file,
            length: 0,
            is_torn: false,
            block: Vec::new(),
            unwritten: Vec::new(),
            lost: LossCount::default(),
        };
        writer.begin(info).map_err(failed)?;
        Ok(writer)
    }

    fn begin(&mut self, info: &Info) -> io::Result<()> {
        let mut bytes = Vec::new();
        write_header(&mut bytes, FORMAT)?;
        push_frame(&mut bytes, &serde_json::to_vec(info)?);
        self.append(&bytes)
    }

    /// Writes events until the queue is closed. What the disk refuses is tried again with the next block.
    fn run(mut self, events: &Items<(u64, Event)>, state: &watch::Sender<RecordingState>, file: &Path) {
        let mut began = Instant::now();
        loop {
            if self.block.is_empty() {
                began = Instant::now();
            }
            let mut written = match events.recv_timeout(BLOCK_AGE.saturating_sub(began.elapsed())) {
                Ok((at_ms, event)) => {
                    RecordedEvent::of(event).map_or(Ok(false), |event| self.push(at_ms, event))
                }
                Err(RecvTimeoutError::Timeout) => Ok(false),
                Err(RecvTimeoutError::Disconnected) => return report(state, file, self.finish().map(drop)),
            };
            if began.elapsed() >= BLOCK_AGE {
                written = self.write().map(|()| true);
            }
            if self.lost.get() > 0 {
                report_gap(state);
            }
            match written {
                Ok(false) => {}
                written => report(state, file, written.map(drop)),
            }
        }
    }

    /// Adds an event; writes a block if it is long enough. Returns whether it was.
    pub(super) fn push(&mut self, at_ms: u64, event: RecordedEvent) -> io::Result<bool> {
        let before = self.block.len();
        serde_json::to_writer(&mut self.block, &Stamped { at_ms, event })?;
        self.block.push(b'\n');
        if self.block.len() > MAX_BLOCK {
            tracing::warn!("an event is too long for the recording and was left out");
            self.lost.add(1);
            self.block.truncate(before);
        }
        if self.block.len() >= BLOCK { self.write().map(|()| true) } else { Ok(false) }
    }

    /// Writes the last block; returns the size of the file in bytes.
    pub(super) fn finish(&mut self) -> io::Result<u64> {
        self.write()?;
        self.file.sync_all()?;
        Ok(self.length)
    }

    /// Writes the events so far as a block, after those that could not be written before.
    fn write(&mut self) -> io::Result<()> {
        self.pack()?;
        if self.unwritten.is_empty() {
            return Ok(());
        }
        let bytes = std::mem::take(&mut self.unwritten);
        self.append(&bytes).inspect_err(|_| self.unwritten = bytes)
    }

    /// Compresses the events so far into a frame.
    fn pack(&mut self) -> io::Result<()> {
        if self.block.is_empty() {
            return Ok(());
        }
        let mut packed = ZlibEncoder::new(Vec::new(), Compression::default());
        packed.write_all(&self.block)?;
        let events = self.block.iter().filter(|byte| **byte == b'\n').count();
        self.block.clear();
        let packed = packed.finish()?;
        if packed.len() > MAX_PAYLOAD {
            tracing::warn!(bytes = packed.len(), "events are too long for the recording and were left out");
            self.lost.add(events);
        } else if self.unwritten.len() > MAX_UNWRITTEN {
            self.lost.add(events);
        } else {
            push_frame(&mut self.unwritten, &packed);
        }
        Ok(())
    }

    /// Appends bytes; if that fails, the file ends as before.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.is_torn {
            self.file.set_len(self.length)?;
            self.is_torn = false;
        }
        if let Err(error) = self.file.write_all(bytes) {
            // On a full disk, the beginning of the frame was written.
            self.is_torn = self.file.set_len(self.length).is_err();
            return Err(error);
        }
        self.length += bytes.len() as u64;
        Ok(())
    }
}
