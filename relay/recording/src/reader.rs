//! Reads a recording, up to its last complete block.

use super::event::Stamped;
use super::{FORMAT, Info, MAX_BLOCK};
use flate2::read::ZlibDecoder;
use nodeglass_fleet::Event;
use nodeglass_platform::frame_file::{End, FrameReader, OpenError};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// Maximum time of a clock in ms, far beyond any real one.
const MAX_CLOCK_MS: u64 = 1 << 50;
/// Maximum length of a recording in ms: ten years.
const MAX_SPAN_MS: u64 = 10 * 366 * 86_400_000;

/// Reads the events of a recording in order.
#[derive(Debug)]
pub struct Reader {
    frames: FrameReader<BufReader<File>>,
    info: Info,
    /// The rest of the current block: events as lines of JSON. A block may have a million of them, which take a
    /// multiple of its size once they are decoded.
    block: io::Cursor<Vec<u8>>,
    /// Time of the newest event that was decoded.
    newest_ms: u64,
    /// Bytes up to the end of the newest block that was decoded.
    readable: u64,
    /// Whether a block could not be decoded.
    is_damaged: bool,
}

/// The readable part of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Time of the first event, by the recording relay's clock.
    pub from_ms: u64,
    /// Time of the last one.
    pub to_ms: u64,
    /// Bytes at the end of the file that are damaged or incomplete.
    pub lost_bytes: u64,
}

/// Error of opening a recording. Messages are complete sentences for the user.
#[derive(Debug, thiserror::Error)]
#[error("{} cannot be replayed: {reason}", path.display())]
pub struct RecordingError {
    /// The file.
    pub path: PathBuf,
    /// The cause.
    pub reason: Reason,
}

/// Reason for not opening a recording.
#[derive(Debug, thiserror::Error)]
pub enum Reason {
    /// It is a directory or a device.
    #[error("it is not a regular file")]
    NotAFile,
    /// It is not a recording of this version.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// It has no complete frame, or the first one is damaged.
    #[error("it ends before its first event, or is damaged there")]
    Empty,
}

impl From<io::Error> for Reason {
    fn from(error: io::Error) -> Self {
        Self::Open(error.into())
    }
}

impl RecordingError {
    /// The file cannot be read.
    pub(super) fn new(path: &Path, error: io::Error) -> Self {
        Self { path: path.to_owned(), reason: error.into() }
    }
}

impl Reader {
    /// Returns the readable part of a recording.
    ///
    /// # Errors
    /// [`RecordingError`].
    pub fn span(path: &Path) -> Result<Span, RecordingError> {
        let failed = |error| RecordingError::new(path, error);
        let mut reader = Self::open(path)?;
        let first = reader.next_event().map_err(failed)?;
        let (from_ms, _) =
            first.ok_or_else(|| RecordingError { path: path.to_owned(), reason: Reason::Empty })?;
        // Only the last block is decoded: a recording of days is long.
        let mut last = None;
        while let Some(frame) = reader.frames.next_frame().map_err(failed)? {
            last = Some(frame);
        }
        if last.as_ref().is_some_and(|last| !reader.unpack(last) || reader.next_in_block().is_none()) {
            // The end is in one of the blocks before.
            reader = Self::open(path)?;
            while reader.next_event().map_err(failed)?.is_some() {}
        }
        while reader.next_in_block().is_some() {}
        let length = path.metadata().map_err(failed)?.len();
        Ok(Span { from_ms, to_ms: reader.newest_ms, lost_bytes: length.saturating_sub(reader.readable) })
    }

    /// Opens a recording.
    ///
    /// # Errors
    /// [`RecordingError`].
    pub fn open(path: &Path) -> Result<Self, RecordingError> {
        Self::read(path).map_err(|reason| RecordingError { path: path.to_owned(), reason })
    }

    fn read(path: &Path) -> Result<Self, Reason> {
        // Before opening: a pipe would block.
        if !std::fs::metadata(path)?.is_file() {
            return Err(Reason::NotAFile);
        }
        let mut frames = FrameReader::open(BufReader::new(File::open(path)?), FORMAT)?;
        let info = frames.next_frame()?.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let info: Info = info.ok_or(Reason::Empty)?;
        if info.at_ms > MAX_CLOCK_MS || info.wall_ms > MAX_CLOCK_MS {
            return Err(Reason::Empty);
        }
        let (newest_ms, readable) = (info.at_ms, frames.valid());
        Ok(Self { frames, info, block: io::Cursor::default(), newest_ms, readable, is_damaged: false })
    }

    /// Returns its origin.
    pub fn info(&self) -> &Info {
        &self.info
    }

    /// The next event and its time by the recording relay's clock; `None` after the last readable one.
    ///
    /// # Errors
    /// Those of the file.
    pub fn next_event(&mut self) -> io::Result<Option<(u64, Event)>> {
        loop {
            if let Some(Stamped { at_ms, event }) = self.next_in_block() {
                return Ok(Some((at_ms, event.into_event())));
            }
            if self.is_damaged {
                return Ok(None);
            }
            let Some(frame) = self.frames.next_frame()? else { return Ok(None) };
            self.unpack(&frame);
        }
    }

    /// Time of the newest event that was read.
    pub fn newest_ms(&self) -> u64 {
        self.newest_ms
    }

    /// Returns whether reading ended before the end of the file, because what follows is damaged or incomplete.
    pub fn is_cut_short(&self) -> bool {
        self.is_damaged || matches!(self.frames.end(), Some(End::Damaged | End::Truncated))
    }

    /// Bytes at the end of a file of this length that are not read: all that follows the last readable block.
    pub(super) fn lost_bytes(&self, length: u64) -> u64 {
        if self.is_cut_short() { length.saturating_sub(self.readable) } else { 0 }
    }

    /// Decodes a block; returns whether it could be decoded.
    fn unpack(&mut self, frame: &[u8]) -> bool {
        let mut json = Vec::new();
        // One byte more than is allowed, so that a longer block is noticed.
        let unpacked = ZlibDecoder::new(frame).take(MAX_BLOCK as u64 + 1).read_to_end(&mut json);
        if unpacked.is_err() || json.len() > MAX_BLOCK {
            self.is_damaged = true;
            json.clear();
        } else {
            self.readable = self.frames.valid();
        }
        self.block = io::Cursor::new(json);
        !self.is_damaged
    }

    /// The next event of the current block.
    fn next_in_block(&mut self) -> Option<Stamped> {
        let mut line = Vec::new();
        loop {
            line.clear();
            // Memory cannot fail to be read.
            if self.block.read_until(b'\n', &mut line).unwrap_or(0) == 0 {
                return None;
            }
            // An event of a newer build is left out.
            let Ok(stamped) = serde_json::from_slice::<Stamped>(&line) else { continue };
            // Time never runs backwards, and a file may claim anything.
            let at_ms = stamped.at_ms.clamp(self.newest_ms, self.info.at_ms.saturating_add(MAX_SPAN_MS));
            self.newest_ms = at_ms;
            return Some(Stamped { at_ms, ..stamped });
        }
    }
}
