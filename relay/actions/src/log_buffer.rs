//! The buffered end of one log, with a cursor per reader.

use nodeglass_protocol::LongText;
use nodeglass_protocol::request::Tail;
use std::collections::VecDeque;

/// Maximum size of the buffered lines in bytes, besides [`Tail::MAX_LINES`].
const MAX_BYTES: usize = 512 * 1024;

/// The last lines of a log. Pure.
#[derive(Debug, Default)]
pub struct LogBuffer {
    lines: VecDeque<LongText>,
    bytes: usize,
    /// Number of the first buffered line, counted from the first ever read.
    first: u64,
    /// Bytes of the file that were skipped or dropped.
    skipped: u64,
    /// Incremented when the file restarts.
    generation: u64,
    partial: Option<LongText>,
    end: u64,
    error: Option<nodeglass_protocol::Text>,
    written_s: Option<i64>,
    /// Incremented with every change.
    version: u64,
}

/// The position of a reader.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogCursor {
    generation: Option<u64>,
    next: u64,
    skipped: u64,
    version: u64,
}

impl LogBuffer {
    /// Appends the result of a read; returns whether anything changed.
    pub fn push(&mut self, tail: Tail) -> bool {
        let is_new = tail.restarted
            || !tail.lines.is_empty()
            || tail.partial != self.partial
            || tail.error != self.error
            || self.version == 0;
        if !is_new {
            self.end = tail.end;
            return false;
        }
        self.version += 1;
        if tail.error.is_some() && !tail.restarted {
            // Lines that were read before stay.
            self.error = tail.error;
            return true;
        }
        if tail.restarted || tail.skipped > 0 {
            // Plus one for the skipped part, so that readers notice the gap.
            self.first += self.lines.len() as u64 + 1;
            self.lines.clear();
            self.bytes = 0;
            self.generation += u64::from(tail.restarted);
            self.skipped = if tail.restarted { tail.skipped } else { self.skipped + tail.skipped };
        }
        self.bytes += tail.lines.iter().map(|line| line.as_str().len()).sum::<usize>();
        self.lines.extend(tail.lines);
        (self.partial, self.end, self.error) = (tail.partial, tail.end, tail.error);
        self.written_s = tail.written_s;
        self.drop_oldest();
        true
    }

    fn drop_oldest(&mut self) {
        while self.lines.len() > Tail::MAX_LINES || self.bytes > MAX_BYTES {
            let Some(line) = self.lines.pop_front() else { return };
            self.bytes -= line.as_str().len();
            self.skipped += line.as_str().len() as u64 + 1;
            self.first += 1;
        }
    }

    /// Returns new content for a reader and advances its cursor; `None` if there is none.
    ///
    /// The first read returns the whole buffer as a restart: the page may still show an older state.
    pub fn read(&self, cursor: &mut LogCursor) -> Option<Tail> {
        if cursor.version == self.version {
            return None;
        }
        let restarted = cursor.generation != Some(self.generation);
        // Dropped lines are reported as missed.
        let from = if restarted { self.first } else { cursor.next.max(self.first) };
        let missed = restarted || from > cursor.next;
        let skipped = match (restarted, missed) {
            (true, _) => self.skipped,
            (false, true) => self.skipped.saturating_sub(cursor.skipped).max(1),
            (false, false) => 0,
        };
        let start = usize::try_from(from - self.first).unwrap_or(self.lines.len()).min(self.lines.len());
        *cursor = LogCursor {
            generation: Some(self.generation),
            next: self.first + self.lines.len() as u64,
            skipped: self.skipped,
            version: self.version,
        };
        Some(Tail {
            end: self.end,
            restarted,
            skipped,
            lines: self.lines.iter().skip(start).cloned().collect(),
            partial: self.partial.clone(),
            error: self.error.clone(),
            written_s: self.written_s,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tail(lines: &[&str]) -> Tail {
        Tail { lines: lines.iter().map(|line| (*line).into()).collect(), ..Tail::default() }
    }

    fn lines(tail: &Tail) -> Vec<&str> {
        tail.lines.iter().map(LongText::as_str).collect()
    }

    #[test]
    fn each_reader_learns_when_the_file_was_written() {
        let mut buffer = LogBuffer::default();
        buffer.push(Tail { written_s: Some(1_000), ..tail(&["one"]) });
        let written = |buffer: &LogBuffer, cursor: &mut LogCursor| Some(buffer.read(cursor)?.written_s);
        let (mut early, mut late) = (LogCursor::default(), LogCursor::default());
        assert_eq!(written(&buffer, &mut early), Some(Some(1_000)));
        assert!(buffer.push(Tail { written_s: Some(1_060), ..tail(&["two"]) }));
        assert_eq!([&mut early, &mut late].map(|cursor| written(&buffer, cursor)), [Some(Some(1_060)); 2]);
    }

    #[test]
    fn every_reader_gets_every_line_once() {
        let (mut buffer, mut early, mut late) =
            (LogBuffer::default(), LogCursor::default(), LogCursor::default());
        assert!(buffer.push(tail(&["one", "two"])));
        let first = buffer.read(&mut early).unwrap();
        assert_eq!((lines(&first), first.restarted), (vec!["one", "two"], true));
        assert_eq!(buffer.read(&mut early), None);
        assert!(buffer.push(Tail { partial: Some("50 %".into()), ..tail(&["three"]) }));
        let more = buffer.read(&mut early).unwrap();
        assert_eq!((lines(&more), more.restarted, more.skipped), (vec!["three"], false, 0));
        assert_eq!(more.partial, Some("50 %".into()));
        assert_eq!(lines(&buffer.read(&mut late).unwrap()), ["one", "two", "three"]);
    }

    #[test]
    fn an_empty_read_is_reported_once() {
        let (mut buffer, mut cursor) = (LogBuffer::default(), LogCursor::default());
        assert!(buffer.push(tail(&[])), "an existing empty log is reported once");
        assert!(buffer.read(&mut cursor).is_some());
        assert!(!buffer.push(tail(&[])));
        assert_eq!(buffer.read(&mut cursor), None);
    }

    #[test]
    fn a_restarted_file_is_reported_to_every_reader() {
        let (mut buffer, mut cursor) = (LogBuffer::default(), LogCursor::default());
        buffer.push(tail(&["old"]));
        buffer.read(&mut cursor);
        buffer.push(Tail { restarted: true, ..tail(&["new"]) });
        let got = buffer.read(&mut cursor).unwrap();
        assert_eq!((lines(&got), got.restarted), (vec!["new"], true));
    }

    #[test]
    fn a_slow_reader_learns_the_number_of_missed_lines() {
        let (mut buffer, mut cursor) = (LogBuffer::default(), LogCursor::default());
        buffer.push(tail(&["first"]));
        buffer.read(&mut cursor);
        for n in 0..3 * Tail::MAX_LINES {
            buffer.push(tail(&[&format!("line {n}")]));
        }
        let got = buffer.read(&mut cursor).unwrap();
        assert_eq!(got.lines.len(), Tail::MAX_LINES);
        assert!(got.skipped > 0 && !got.restarted);
        let wide = "x".repeat(4_000);
        for _ in 0..1_000 {
            buffer.push(tail(&[&wide]));
        }
        assert!(buffer.bytes <= MAX_BYTES);
    }

    #[test]
    fn skipped_bytes_are_reported_to_readers() {
        let (mut buffer, mut cursor) = (LogBuffer::default(), LogCursor::default());
        buffer.push(tail(&["one"]));
        buffer.read(&mut cursor);
        buffer.push(Tail { skipped: 500, ..tail(&["last"]) });
        let got = buffer.read(&mut cursor).unwrap();
        assert_eq!((lines(&got), got.skipped, got.restarted), (vec!["last"], 500, false));
    }

    #[test]
    fn errors_are_reported_and_lines_stay() {
        let (mut buffer, mut cursor) = (LogBuffer::default(), LogCursor::default());
        buffer.push(Tail { partial: Some("half".into()), ..tail(&["one"]) });
        buffer.push(Tail { error: Some("gone".into()), ..Tail::default() });
        let got = buffer.read(&mut cursor).unwrap();
        assert_eq!((lines(&got), &got.error), (vec!["one"], &Some("gone".into())));
        assert_eq!(got.partial, Some("half".into()));
        buffer.push(tail(&["two"]));
        let got = buffer.read(&mut cursor).unwrap();
        assert_eq!((lines(&got), &got.error), (vec!["two"], &None));
    }
}
