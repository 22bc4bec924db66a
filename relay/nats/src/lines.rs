//! Splits the output of a probe into lines, and keeps those that a late joiner needs; pure.

use super::message::MAX_SENT;
use nodeglass_protocol::probe::{Hello, MAGIC, MAX_LINE, MAX_NOISE, Piece};
use serde::Deserialize;

/// Maximum size of the kept notes, in bytes.
const MAX_NOTES: usize = 64 * 1024;

/// Lines of one probe, with what is current.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    /// The beginning of a line, or output before the hello.
    rest: Vec<u8>,
    /// Whether the line is too long, and skipped.
    skips: bool,
    /// The newest line of each kind, in the order of a snapshot.
    hello: Vec<u8>,
    health: Vec<u8>,
    link_rates: Vec<u8>,
    processes: Vec<u8>,
    process_readings: Vec<u8>,
    usage: Vec<u8>,
    notes: Vec<u8>,
    /// Number of the split line that is a response.
    response: Option<u32>,
    /// The stream of its samples, after the hello.
    pub(crate) stream: Option<u64>,
    /// The newest live sample.
    pub(crate) seq: u64,
    /// The newest replayed sample.
    pub(crate) replayed_seq: u64,
}

/// The beginning of a sample line, up to its number.
const SAMPLE: &[u8] = br#"{"sample":{"seq":"#;
const REPLAY: &[u8] = br#"{"sample":{"replay":true,"seq":"#;

/// Returns the number of the live sample that a line is.
pub(crate) fn sample_seq(line: &[u8]) -> Option<u64> {
    number(line.strip_prefix(SAMPLE)?)
}

fn number(digits: &[u8]) -> Option<u64> {
    let end = digits.iter().position(|byte| !byte.is_ascii_digit())?;
    str::from_utf8(&digits[..end]).ok()?.parse().ok()
}

#[derive(Deserialize)]
struct HelloLine {
    hello: Hello,
}

#[derive(Deserialize)]
struct PieceLine {
    piece: Piece,
}

impl Lines {
    /// Takes output, and appends its complete lines to `out`, without responses to the relay's own requests.
    pub(crate) fn feed(&mut self, mut chunk: &[u8], out: &mut Vec<u8>) {
        while let Some(end) = memchr::memchr(b'\n', chunk) {
            self.rest.extend_from_slice(&chunk[..=end]);
            chunk = &chunk[end + 1..];
            let line = std::mem::take(&mut self.rest);
            if !std::mem::take(&mut self.skips) && line.len() <= MAX_LINE + MAX_NOISE {
                self.line(&line, out);
            }
            self.rest = line;
            self.rest.clear();
        }
        if self.rest.len() + chunk.len() > MAX_LINE + MAX_NOISE {
            (self.skips, self.rest) = (true, Vec::new());
        } else if !self.skips {
            self.rest.extend_from_slice(chunk);
        }
    }

    /// Whether its hello has arrived.
    pub(crate) fn has_hello(&self) -> bool {
        !self.hello.is_empty()
    }

    /// The lines that a late joiner needs before the live ones, except a complete sample.
    pub(crate) fn snapshot(&self) -> Vec<u8> {
        let kinds = [
            &self.hello,
            &self.health,
            &self.link_rates,
            &self.processes,
            &self.process_readings,
            &self.usage,
            &self.notes,
        ];
        let mut snapshot = Vec::new();
        for lines in kinds {
            // What does not fit is sent again by the probe within a minute.
            if snapshot.len() + lines.len() <= MAX_SENT {
                snapshot.extend_from_slice(lines);
            }
        }
        snapshot
    }

    fn line(&mut self, line: &[u8], out: &mut Vec<u8>) {
        if !self.has_hello() {
            let magic = memchr::memmem::find(line, MAGIC.as_bytes());
            if let Some(at) = magic {
                self.hello(&line[at..], out);
            }
            return;
        }
        let is = |kind: &str| line.starts_with(format!("{{\"{kind}\":").as_bytes());
        if line.starts_with(SAMPLE) {
            self.seq = sample_seq(line).unwrap_or(self.seq);
        } else if let Some(digits) = line.strip_prefix(REPLAY) {
            self.replayed_seq = number(digits).unwrap_or(self.replayed_seq);
        } else if is("response") || self.is_piece_of_response(line) {
            return;
        } else if is("hello") {
            return self.hello(line, out);
        } else if is("processes") {
            self.process_readings.clear();
            self.processes = line.to_vec();
        } else if is("process_readings") {
            self.process_readings = line.to_vec();
        } else if is("health") {
            self.link_rates.clear();
            self.health = line.to_vec();
        } else if is("link_rates") {
            self.link_rates = line.to_vec();
        } else if is("usage") {
            self.usage = line.to_vec();
        } else if is("notes") && self.notes.len() + line.len() <= MAX_NOTES {
            self.notes.extend_from_slice(line);
        }
        out.extend_from_slice(line);
    }

    /// Takes a hello, the first of which has the magic. Lists that were for other GPUs are dropped.
    fn hello(&mut self, line: &[u8], out: &mut Vec<u8>) {
        let json = line.strip_prefix(MAGIC.as_bytes()).unwrap_or(line);
        let Ok(HelloLine { hello }) = serde_json::from_slice(json) else { return };
        out.extend_from_slice(line);
        self.stream = Some(hello.stream);
        self.hello = [MAGIC.as_bytes(), json].concat();
        for list in [&mut self.health, &mut self.link_rates, &mut self.processes, &mut self.process_readings]
        {
            list.clear();
        }
    }

    /// Returns whether a line is a piece of a response. Pieces of two lines are not interleaved.
    fn is_piece_of_response(&mut self, line: &[u8]) -> bool {
        if !line.starts_with(br#"{"piece":"#) {
            return false;
        }
        let Ok(PieceLine { piece }) = serde_json::from_slice(line) else { return true };
        if piece.part == 0 {
            self.response = piece.text.starts_with(r#"{"response":"#).then_some(piece.line);
        }
        self.response == Some(piece.line)
    }
}

/// Splits lines at their ends into payloads of at most [`MAX_SENT`] bytes.
pub(crate) fn payloads(lines: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = lines;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let end = match rest.len() <= MAX_SENT {
            true => rest.len(),
            false => memchr::memrchr(b'\n', &rest[..MAX_SENT]).map_or(rest.len(), |end| end + 1),
        };
        let (payload, after) = rest.split_at(end);
        rest = after;
        Some(payload)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELLO: &str = concat!(
        r#"{"hello":{"proto":{"min":1,"max":1},"build":"b","stream":7,"host":"n1","boot_id":"x","kernel":"6","#,
        r#""cpus":1,"mem_total_bytes":1,"user":"a","pid":1,"sources":[]}}"#
    );

    fn fed(chunks: &[&str]) -> (Lines, String) {
        let (mut lines, mut out) = (Lines::default(), Vec::new());
        chunks.iter().for_each(|chunk| lines.feed(chunk.as_bytes(), &mut out));
        (lines, String::from_utf8(out).unwrap())
    }

    #[test]
    fn lines_are_passed_on_from_the_hello_on_however_they_are_cut() {
        let text = format!("Welcome\nto n1 {MAGIC}{HELLO}\n{{\"sample\":{{\"seq\":12,\"x\":1}}}}\n{{\"hea");
        let wanted = format!("{MAGIC}{HELLO}\n{{\"sample\":{{\"seq\":12,\"x\":1}}}}\n");
        for cut in 0..text.len() {
            let (lines, out) = fed(&[&text[..cut], &text[cut..]]);
            assert_eq!((out, lines.seq, lines.stream), (wanted.clone(), 12, Some(7)));
        }
    }

    #[test]
    fn responses_never_leave_the_relay_that_asked() {
        let hello = format!("{MAGIC}{HELLO}\n");
        let piece = |line: u32, part: u32, text: &str| {
            let text = serde_json::to_string(text).unwrap();
            format!("{{\"piece\":{{\"line\":{line},\"part\":{part},\"parts\":2,\"text\":{text}}}}}\n")
        };
        let secret = [piece(1, 0, r#"{"response":{"number":1,"#), piece(1, 1, "secret}}")].concat();
        let list = [piece(2, 0, r#"{"processes":{"#), piece(2, 1, "}}")].concat();
        let (_, out) = fed(&[&hello, "{\"response\":{\"secret\":1}}\n", &secret, &list]);
        assert_eq!(out, format!("{hello}{list}"));
    }

    #[test]
    fn a_snapshot_has_the_newest_of_each_kind() {
        let hello = format!("{MAGIC}{HELLO}\n");
        let (lines, _) = fed(&[
            &hello,
            "{\"processes\":1}\n{\"process_readings\":1}\n{\"processes\":2}\n{\"health\":1}\n{\"health\":2}\n",
            "{\"sample\":{\"seq\":1,\"replay\":false}}\n{\"heartbeat\":{}}\n",
        ]);
        let snapshot = String::from_utf8(lines.snapshot()).unwrap();
        assert_eq!(snapshot, format!("{hello}{{\"health\":2}}\n{{\"processes\":2}}\n"));
    }

    #[test]
    fn endless_lines_take_no_memory() {
        let (mut lines, mut out) = (Lines::default(), Vec::new());
        let long = vec![b'x'; 100_000];
        (0..100).for_each(|_| lines.feed(&long, &mut out));
        assert!(lines.rest.len() <= MAX_LINE + MAX_NOISE && out.is_empty());
        lines.feed(format!("\n{MAGIC}{HELLO}\n").as_bytes(), &mut out);
        assert!(lines.has_hello());
    }

    #[test]
    fn payloads_end_with_lines() {
        let lines = [vec![b'a'; MAX_SENT - 10], b"\n".to_vec(), vec![b'b'; 100], b"\n".to_vec()].concat();
        let payloads: Vec<_> = payloads(&lines).map(<[u8]>::len).collect();
        assert_eq!(payloads, [MAX_SENT - 9, 101]);
    }
}
