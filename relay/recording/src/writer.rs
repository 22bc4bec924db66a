//! Writes a recording on a thread of its own, so that the event loop never waits for a disk.

use super::event::{RecordedEvent, Stamped};
use super::{FORMAT, Info, MAX_BLOCK};
use flate2::Compression;
use flate2::write::ZlibEncoder;
use nodeglass_fleet::Event;
use nodeglass_platform::disk_thread::{DiskThread, Refused};
use nodeglass_platform::frame_file::{MAX_PAYLOAD, push_frame, write_header};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Events that wait for the disk; further ones are dropped.
const QUEUE: usize = 16 * 1024;
/// A block is written at this length before compression, in bytes,
const BLOCK: usize = 512 * 1024;
/// or after this time: what a crash of the machine can cost.
const BLOCK_AGE: Duration = Duration::from_secs(2);

/// Records events. Dropping it completes the file.
#[derive(Debug)]
pub struct Recorder {
    thread: DiskThread<(u64, Event)>,
    path: PathBuf,
    has_gaps: bool,
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
        let name = path.display().to_string();
        let thread = DiskThread::start("recorder", QUEUE, move |events| {
            if let Err(error) = writer.run(&events) {
                tracing::error!(file = name, %error, "recording stopped; the part recorded so far can be replayed");
            }
        });
        let thread = thread.map_err(failed)?;
        Ok(Self { thread, path: path.to_owned(), has_gaps: false })
    }

    /// Records an event; while the disk does not keep up, it is dropped.
    pub fn record(&mut self, at_ms: u64, event: &Event) {
        // That the thread has ended, because writing failed, was logged.
        if self.thread.pass((at_ms, event.clone())) == Err(Refused::Full) && !self.has_gaps {
            self.has_gaps = true;
            let file = self.path.display();
            tracing::warn!(%file, "the disk is too slow for the recording, which will have gaps");
        }
    }
}

/// The file of a recording.
pub(super) struct Writer {
    file: File,
    /// Bytes up to the end of the last complete frame.
    length: u64,
    /// Events that have not been written.
    block: Vec<u8>,
}

impl Writer {
    /// Creates a file, readable by its owner only.
    pub(super) fn create(path: &Path, info: &Info) -> Result<Self, RecorderError> {
        let failed = |source| RecorderError::Create { path: path.to_owned(), source };
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        let file = file.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => RecorderError::Exists(path.to_owned()),
            _ => failed(error),
        })?;
        let mut writer = Self { file, length: 0, block: Vec::new() };
        writer.begin(info).map_err(failed)?;
        Ok(writer)
    }

    fn begin(&mut self, info: &Info) -> io::Result<()> {
        let mut bytes = Vec::new();
        write_header(&mut bytes, FORMAT)?;
        push_frame(&mut bytes, &serde_json::to_vec(info)?);
        self.append(&bytes)
    }

    fn run(mut self, events: &Receiver<(u64, Event)>) -> io::Result<()> {
        let mut began = Instant::now();
        loop {
            if self.block.is_empty() {
                began = Instant::now();
            }
            match events.recv_timeout(BLOCK_AGE.saturating_sub(began.elapsed())) {
                Ok((at_ms, event)) => {
                    if let Some(event) = RecordedEvent::of(event) {
                        self.push(at_ms, event)?;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return self.finish().map(drop),
            }
            if began.elapsed() >= BLOCK_AGE {
                self.write()?;
            }
        }
    }

    /// Adds an event; writes a block if it is long enough.
    pub(super) fn push(&mut self, at_ms: u64, event: RecordedEvent) -> io::Result<()> {
        let before = self.block.len();
        serde_json::to_writer(&mut self.block, &Stamped { at_ms, event })?;
        self.block.push(b'\n');
        if self.block.len() > MAX_BLOCK {
            tracing::warn!("an event is too long for the recording and was left out");
            self.block.truncate(before);
        }
        if self.block.len() >= BLOCK { self.write() } else { Ok(()) }
    }

    /// Writes the last block; returns the size of the file in bytes.
    pub(super) fn finish(&mut self) -> io::Result<u64> {
        self.write()?;
        self.file.sync_all()?;
        Ok(self.length)
    }

    /// Writes the events so far as a block.
    fn write(&mut self) -> io::Result<()> {
        if self.block.is_empty() {
            return Ok(());
        }
        let mut packed = ZlibEncoder::new(Vec::new(), Compression::default());
        packed.write_all(&self.block)?;
        self.block.clear();
        let packed = packed.finish()?;
        if packed.len() > MAX_PAYLOAD {
            tracing::warn!(bytes = packed.len(), "an event is too long for the recording and was left out");
            return Ok(());
        }
        let mut bytes = Vec::with_capacity(packed.len() + 8);
        push_frame(&mut bytes, &packed);
        self.append(&bytes)
    }

    /// Appends bytes; if that fails, the file ends as before.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Err(error) = self.file.write_all(bytes) {
            // On a full disk, the beginning of the frame was written.
            let _ = self.file.set_len(self.length);
            return Err(error);
        }
        self.length += bytes.len() as u64;
        Ok(())
    }
}
