//! Decodes bytes from a node into lines of the probe wire, and counts what it skips.

use super::line_assembler::LineAssembler;
use nodeglass_protocol::probe::delta::ParsedLine;
use nodeglass_protocol::probe::{Hello, MAGIC, MAX_LINE, MAX_NOISE, ProbeLine};
use nodeglass_protocol::version::{PROBE_WIRE, VersionRange};
use nodeglass_protocol::{NodeName, Text};
use std::collections::VecDeque;

/// Number of unreadable lines within [`BAD_WINDOW_MS`] that end the link.
const MAX_BAD: usize = 10;
/// Time for which an unreadable line counts, in ms.
const BAD_WINDOW_MS: u64 = 60_000;
/// The common prefix of all versions' magic.
const ANY_MAGIC: &[u8] = b"\x1eNODEGLASS";
/// Kinds of line that this version knows, as named in JSON, in the order of [`ProbeLine`].
const KNOWN_KINDS: [&str; 13] = [
    "hello",
    "sample",
    "processes",
    "process_readings",
    "health",
    "link_rates",
    "heartbeat",
    "event",
    "response",
    "bye",
    "piece",
    "notes",
    "usage",
];
/// Capacity in bytes to which a larger buffer is shrunk after its line.
const KEEP_CAPACITY: usize = 16 * 1024;

/// A decoded item.
#[derive(Clone, Debug, PartialEq)]
pub enum Found {
    /// A line.
    Line(Box<ParsedLine>),
    /// A piece of a line of which more pieces follow: the probe is alive.
    Piece,
    /// Output before the first line; reported once.
    Noise(Text),
    /// An invalid line was skipped.
    Lost {
        /// Number of lines so far.
        lines: u64,
        /// The beginning of this one.
        sample: Text,
    },
}

/// Reason for closing a link. Messages are complete sentences for the user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Too much output that is not a probe's.
    #[error("no probe answered; the node printed: {0}")]
    NoProbe(Text),
    /// The probe speaks another version.
    #[error(
        "the probe there speaks version {theirs} and this relay version {ours}; stop the other relay, or use the same release of both"
    )]
    Version {
        /// The probe's version.
        theirs: Text,
        /// This build's version.
        ours: u16,
    },
    /// Too many invalid lines.
    #[error("{MAX_BAD} unreadable lines within a minute; the last one begins: {0}")]
    Garbage(Text),
}

/// Decodes the bytes of one link.
#[derive(Debug, Default)]
pub struct Decoder {
    state: State,
    /// An incomplete line, or output before the magic.
    buffer: Vec<u8>,
    pieces: LineAssembler,
    lost: u64,
    bad_at: VecDeque<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Before the magic.
    #[default]
    Searching,
    /// Between or within lines.
    Lines,
    /// Within a line that is too long.
    Discarding,
}

impl Decoder {
    /// Decodes bytes that arrived at `now_ms` and appends the result to `found`.
    ///
    /// # Errors
    /// [`DecodeError`] if the link should be closed; items decoded before it are valid.
    pub fn feed(&mut self, bytes: &[u8], now_ms: u64, found: &mut Vec<Found>) -> Result<(), DecodeError> {
        match self.state {
            State::Searching => self.search(bytes, now_ms, found),
            State::Lines | State::Discarding => self.split(bytes, now_ms, found),
        }
    }

    /// The output so far, if no probe has said hello yet.
    pub fn noise(&self) -> Option<Text> {
        (self.state == State::Searching)
            .then(|| Text::from_bytes(&self.buffer))
            .filter(|text| !text.is_empty())
    }

    fn search(&mut self, bytes: &[u8], now_ms: u64, found: &mut Vec<Found>) -> Result<(), DecodeError> {
        // The magic may have begun in the previous chunk.
        let from = self.buffer.len().saturating_sub(ANY_MAGIC.len());
        self.buffer.extend_from_slice(bytes);
        let at = self.buffer[from..].windows(ANY_MAGIC.len()).position(|window| window == ANY_MAGIC);
        let Some(at) = at.map(|at| from + at) else {
            return match self.buffer.len() > MAX_NOISE {
                true => Err(DecodeError::NoProbe(Text::from_bytes(&self.buffer[..Text::MAX_BYTES]))),
                false => Ok(()),
            };
        };
        let noise = Text::from_bytes(&self.buffer[..at]);
        if !noise.is_empty() {
            found.push(Found::Noise(noise));
        }
        self.state = State::Lines;
        let rest = std::mem::take(&mut self.buffer).split_off(at);
        self.split(&rest, now_ms, found)
    }

    fn split(&mut self, mut bytes: &[u8], now_ms: u64, found: &mut Vec<Found>) -> Result<(), DecodeError> {
        while let Some(end) = memchr::memchr(b'\n', bytes) {
            let (line, rest) = (&bytes[..end], &bytes[end + 1..]);
            bytes = rest;
            if self.state == State::Discarding {
                self.state = State::Lines;
                continue;
            }
            if self.buffer.len() + line.len() > MAX_LINE {
                self.too_long(line, now_ms, found)?;
            } else if self.buffer.is_empty() {
                self.line(line, now_ms, found)?;
            } else {
                let mut complete = std::mem::take(&mut self.buffer);
                complete.extend_from_slice(line);
                let outcome = self.line(&complete, now_ms, found);
                complete.clear();
                complete.shrink_to(KEEP_CAPACITY);
                self.buffer = complete;
                outcome?;
            }
        }
        if self.state == State::Lines && self.buffer.len() + bytes.len() > MAX_LINE {
            self.state = State::Discarding;
            return self.too_long(bytes, now_ms, found);
        }
        if self.state == State::Lines {
            self.buffer.extend_from_slice(bytes);
        }
        Ok(())
    }

    fn too_long(&mut self, more: &[u8], now_ms: u64, found: &mut Vec<Found>) -> Result<(), DecodeError> {
        let start = std::mem::take(&mut self.buffer);
        let head: Vec<u8> = start.iter().chain(more).take(Text::MAX_BYTES).copied().collect();
        self.bad(&head, now_ms, found)
    }

    fn line(&mut self, line: &[u8], now_ms: u64, found: &mut Vec<Found>) -> Result<(), DecodeError> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let json = match line.strip_prefix(ANY_MAGIC) {
            Some(_) => line.strip_prefix(MAGIC.as_bytes()).ok_or_else(|| version_mismatch(line))?,
            None => line,
        };
        // Validated as a whole at once, rather than again for each string in it.
        let read =
            std::str::from_utf8(json).ok().and_then(|json| serde_json::from_str::<ParsedLine>(json).ok());
        match read {
            Some(ProbeLine::Hello(hello)) => {
                check_version(&hello)?;
                found.push(Found::Line(Box::new(ProbeLine::Hello(hello))));
            }
            Some(ProbeLine::Piece(piece)) => match self.pieces.add(piece) {
                Ok(None) => found.push(Found::Piece),
                Ok(Some(complete)) => self.line(complete.as_bytes(), now_ms, found)?,
                Err(_) => self.bad(json, now_ms, found)?,
            },
            Some(line) => found.push(Found::Line(Box::new(line))),
            None if json.is_empty() || is_of_a_newer_probe(json) => {}
            None => self.bad(json, now_ms, found)?,
        }
        Ok(())
    }

    fn bad(&mut self, line: &[u8], now_ms: u64, found: &mut Vec<Found>) -> Result<(), DecodeError> {
        let sample = Text::from_bytes(&line[..line.len().min(Text::MAX_BYTES)]);
        self.lost += 1;
        found.push(Found::Lost { lines: self.lost, sample: sample.clone() });
        self.bad_at.push_back(now_ms);
        while self.bad_at.front().is_some_and(|at| now_ms.saturating_sub(*at) >= BAD_WINDOW_MS) {
            self.bad_at.pop_front();
        }
        if self.bad_at.len() >= MAX_BAD { Err(DecodeError::Garbage(sample)) } else { Ok(()) }
    }
}

fn check_version(hello: &Hello) -> Result<(), DecodeError> {
    let VersionRange { min, max } = hello.proto;
    match VersionRange::only(PROBE_WIRE).common(hello.proto) {
        Some(_) => Ok(()),
        None => {
            let theirs = if min == max { min.to_string() } else { format!("{min}–{max}") };
            Err(DecodeError::Version { theirs: theirs.into(), ours: PROBE_WIRE })
        }
    }
}

fn version_mismatch(line: &[u8]) -> DecodeError {
    let after = &line[ANY_MAGIC.len()..];
    let version = after.split(|byte| *byte == b' ').next().unwrap_or_default();
    DecodeError::Version { theirs: Text::from_bytes(&version[..version.len().min(16)]), ours: PROBE_WIRE }
}

/// Returns whether a line is valid JSON of a kind that this relay does not know.
fn is_of_a_newer_probe(json: &[u8]) -> bool {
    let object = serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(json);
    object.is_ok_and(|object| {
        object.len() == 1 && object.keys().all(|kind| !KNOWN_KINDS.contains(&kind.as_str()))
    })
}

/// The message for a node on which no probe said hello.
pub(super) fn no_probe_message(node: &NodeName, noise: Option<Text>) -> Text {
    match noise {
        Some(noise) => format!("no probe answered on {node}; it printed: {noise}").into(),
        None => format!("no probe answered on {node}").into(),
    }
}

#[cfg(test)]
#[path = "decoder_tests.rs"]
mod tests;
