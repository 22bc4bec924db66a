//! Bytes of any kind from a node become lines of wire one, counted losses, or one clear reason to give the link up.

use nodeglass_protocol::probe::{Hello, MAGIC, MAX_LINE, MAX_NOISE, ProbeLine};
use nodeglass_protocol::version::{PROBE_WIRE, VersionRange};
use nodeglass_protocol::{NodeName, Text};
use std::collections::VecDeque;

/// So many bad lines within [`BAD_WINDOW_MS`] are no accident.
const MAX_BAD: usize = 10;
const BAD_WINDOW_MS: u64 = 60_000;
/// What the magic of every version begins with.
const ANY_MAGIC: &[u8] = b"\x1eNODEGLASS";
/// Kinds of line that this version knows, as they are named in JSON.
const KINDS: [&str; 6] = ["hello", "sample", "processes", "heartbeat", "event", "bye"];
/// A longer buffer is given back after its line.
const KEEP_CAPACITY: usize = 16 * 1024;

/// What was found in the bytes.
#[derive(Clone, Debug, PartialEq)]
pub enum Found {
    /// A line.
    Line(Box<ProbeLine>),
    /// Something else came before the first line; told once.
    Noise(Text),
    /// A line that is none was skipped.
    Lost {
        /// How many so far.
        lines: u64,
        /// How this one begins.
        sample: Text,
    },
}

/// Why a link is of no use. Each is a sentence for the user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Far too much that is no probe's.
    #[error("no probe answered; the node printed: {0}")]
    NoProbe(Text),
    /// The probe is of another time.
    #[error(
        "the probe there speaks version {theirs} and this relay version {ours}; end the other relay, or use the same release of both"
    )]
    Version {
        /// What it speaks.
        theirs: Text,
        /// What this build speaks.
        ours: u16,
    },
    /// Too many bad lines.
    #[error("{MAX_BAD} unreadable lines within a minute; the last one begins: {0}")]
    Garbage(Text),
}

/// Reads one link's bytes.
#[derive(Debug, Default)]
pub struct Decoder {
    state: State,
    /// What is not a whole line yet, or not yet recognised.
    buffer: Vec<u8>,
    lost: u64,
    bad_at: VecDeque<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Before the magic.
    #[default]
    Hunting,
    /// Between or within lines.
    Lines,
    /// Within a line that is too long.
    Discarding,
}

impl Decoder {
    /// Takes bytes that came at `now_ms` and appends what is in them to `found`.
    ///
    /// # Errors
    /// [`DecodeError`] when the link should be closed; what was found before it counts.
    pub fn feed(&mut self, bytes: &[u8], now_ms: u64, found: &mut Vec<Found>) -> Result<(), DecodeError> {
        match self.state {
            State::Hunting => self.hunt(bytes, now_ms, found),
            State::Lines | State::Discarding => self.split(bytes, now_ms, found),
        }
    }

    /// What was printed so far by something that is no probe, if no probe was heard.
    pub fn noise(&self) -> Option<Text> {
        (self.state == State::Hunting).then(|| Text::from_bytes(&self.buffer)).filter(|text| !text.is_empty())
    }

    fn hunt(&mut self, bytes: &[u8], now_ms: u64, found: &mut Vec<Found>) -> Result<(), DecodeError> {
        // The magic may have begun in the last piece.
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
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
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
                let mut whole = std::mem::take(&mut self.buffer);
                whole.extend_from_slice(line);
                let outcome = self.line(&whole, now_ms, found);
                whole.clear();
                whole.shrink_to(KEEP_CAPACITY);
                self.buffer = whole;
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
            Some(_) => line.strip_prefix(MAGIC.as_bytes()).ok_or_else(|| other_magic(line))?,
            None => line,
        };
        match serde_json::from_slice::<ProbeLine>(json) {
            Ok(ProbeLine::Hello(hello)) => {
                speakable(&hello)?;
                found.push(Found::Line(Box::new(ProbeLine::Hello(hello))));
            }
            Ok(line) => found.push(Found::Line(Box::new(line))),
            Err(_) if json.is_empty() || is_of_a_newer_probe(json) => {}
            Err(_) => self.bad(json, now_ms, found)?,
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

fn speakable(hello: &Hello) -> Result<(), DecodeError> {
    let VersionRange { min, max } = hello.proto;
    match VersionRange::only(PROBE_WIRE).common(hello.proto) {
        Some(_) => Ok(()),
        None => Err(DecodeError::Version { theirs: format!("{min}–{max}").into(), ours: PROBE_WIRE }),
    }
}

fn other_magic(line: &[u8]) -> DecodeError {
    let after = &line[ANY_MAGIC.len()..];
    let word = after.split(|byte| *byte == b' ').next().unwrap_or_default();
    DecodeError::Version { theirs: Text::from_bytes(&word[..word.len().min(16)]), ours: PROBE_WIRE }
}

/// Whether a line is sound but of a kind that this relay does not know.
fn is_of_a_newer_probe(json: &[u8]) -> bool {
    let object = serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(json);
    object.is_ok_and(|object| object.len() == 1 && object.keys().all(|kind| !KINDS.contains(&kind.as_str())))
}

/// The sentence for a node that ended without a word of a probe.
pub(super) fn silence(node: &NodeName, noise: Option<Text>) -> Text {
    match noise {
        Some(noise) => format!("no probe answered on {node}; it printed: {noise}").into(),
        None => format!("no probe answered on {node}").into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::probe::Heartbeat;
    use proptest::prelude::*;

    const HEARTBEAT: &str = r#"{"heartbeat":{"mono_ns":7}}"#;

    fn beat() -> Found {
        Found::Line(Box::new(ProbeLine::Heartbeat(Heartbeat { mono_ns: 7, nvml_stuck_ms: None })))
    }

    fn decode(decoder: &mut Decoder, bytes: &[u8]) -> Result<Vec<Found>, DecodeError> {
        let mut found = Vec::new();
        decoder.feed(bytes, 0, &mut found).map(|()| found)
    }

    fn started() -> Decoder {
        let mut decoder = Decoder::default();
        assert_eq!(decode(&mut decoder, format!("{MAGIC}{HEARTBEAT}\n").as_bytes()), Ok(vec![beat()]));
        decoder
    }

    #[test]
    fn what_a_login_shell_prints_first_is_skipped_and_told_once() {
        let mut decoder = Decoder::default();
        let bytes =
            format!("Welcome to \x1b[1mgpu-01\x1b[0m!\nQuota: 97%\n{MAGIC}{HEARTBEAT}\n{HEARTBEAT}\n");
        let noise = Found::Noise(Text::new("Welcome to \x1b[1mgpu-01\x1b[0m!\nQuota: 97%\n"));
        assert_eq!(decode(&mut decoder, bytes.as_bytes()), Ok(vec![noise, beat(), beat()]));
        assert_eq!(decoder.noise(), None);
    }

    #[test]
    fn endless_noise_is_given_up_with_a_sample() {
        let mut decoder = Decoder::default();
        let outcome = decode(&mut decoder, &b"motd ".repeat(MAX_NOISE / 4));
        assert!(outcome.unwrap_err().to_string().contains("motd motd"));
    }

    #[test]
    fn broken_lines_are_counted_and_the_rest_is_read() {
        let mut decoder = started();
        let found =
            decode(&mut decoder, b"{\"sample\":NaN}\n{\"heartbeat\":{\"mono_ns\":7}}\n\xff\xfe\n").unwrap();
        assert_eq!(found[0], Found::Lost { lines: 1, sample: "{\"sample\":NaN}".into() });
        assert_eq!(found[1], beat());
        assert!(matches!(found[2], Found::Lost { lines: 2, .. }));
    }

    #[test]
    fn ten_bad_lines_within_a_minute_end_the_link_but_not_ten_in_an_hour() {
        let mut decoder = started();
        let mut found = Vec::new();
        for minute in 0..60 {
            decoder.feed(b"rubbish\n", minute * 60_000, &mut found).unwrap();
        }
        let mut outcome = Ok(());
        for _ in 0..MAX_BAD {
            outcome = outcome.and(decoder.feed(b"rubbish\n", 3_600_000, &mut found));
        }
        assert_eq!(outcome, Err(DecodeError::Garbage("rubbish".into())));
    }

    #[test]
    fn a_line_of_ten_megabytes_costs_no_more_than_the_limit_and_is_lost_once() {
        let mut decoder = started();
        let mut found = Vec::new();
        for _ in 0..640 {
            decoder.feed(&[b'x'; 16 * 1024], 0, &mut found).unwrap();
            assert!(decoder.buffer.capacity() <= 2 * MAX_LINE);
        }
        decoder.feed(format!("\n{HEARTBEAT}\n").as_bytes(), 0, &mut found).unwrap();
        assert!(matches!(&found[..], [Found::Lost { lines: 1, .. }, line] if *line == beat()));
    }

    #[test]
    fn a_kind_of_line_that_only_a_newer_probe_knows_is_skipped_in_silence() {
        assert_eq!(decode(&mut started(), b"{\"nvlink\":{\"x\":[1,2]}}\n"), Ok(vec![]));
        assert_eq!(
            decode(&mut started(), b"\"later\"\n").unwrap().len(),
            1,
            "that is no line of any version"
        );
    }

    #[test]
    fn another_version_is_said_clearly() {
        for hello in ["\x1eNODEGLASS2 {}\n", "noise\x1eNODEGLASS17 {}\n"] {
            let error = decode(&mut Decoder::default(), hello.as_bytes()).unwrap_err();
            assert!(matches!(&error, DecodeError::Version { .. }), "{error}");
        }
        let hello = r#"{"hello":{"proto":{"min":2,"max":3},"build":"b","stream":1,"host":"h","boot_id":"i","kernel":"k",
            "cpus":1,"mem_total_bytes":1,"user":"u","pid":1,"nvml":{"absent":{"why":"w"}}}}"#
            .replace('\n', "");
        let error = decode(&mut Decoder::default(), format!("{MAGIC}{hello}\n").as_bytes()).unwrap_err();
        assert!(error.to_string().contains("speaks version 2–3 and this relay version 1"), "{error}");
    }

    #[test]
    fn a_deeply_nested_bomb_is_one_lost_line() {
        let bomb = format!("{}\n", "[".repeat(200_000));
        assert!(matches!(decode(&mut started(), bomb.as_bytes()).unwrap()[..], [Found::Lost { .. }]));
    }

    proptest! {
        #[test]
        fn any_bytes_in_any_pieces_neither_panic_nor_grow_the_buffer(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..50),
            begun in any::<bool>(),
        ) {
            let mut decoder = if begun { started() } else { Decoder::default() };
            let mut found = Vec::new();
            for piece in pieces {
                if decoder.feed(&piece, 0, &mut found).is_err() {
                    break;
                }
                prop_assert!(decoder.buffer.len() <= MAX_LINE.max(MAX_NOISE));
            }
        }

        #[test]
        fn lines_do_not_depend_on_how_the_network_cut_them(cuts in prop::collection::vec(1usize..40, 1..40)) {
            let text = format!("motd\n{MAGIC}{HEARTBEAT}\nbad\n{HEARTBEAT}\r\n{{\"new\":1}}\n{HEARTBEAT}\n");
            let whole = decode(&mut Decoder::default(), text.as_bytes()).unwrap();
            let (mut decoder, mut found, mut rest) = (Decoder::default(), Vec::new(), text.as_bytes());
            for cut in cuts.iter().cycle() {
                let (piece, after) = rest.split_at((*cut).min(rest.len()));
                decoder.feed(piece, 0, &mut found).unwrap();
                rest = after;
                if rest.is_empty() { break; }
            }
            prop_assert_eq!(found, whole);
        }
    }
}
