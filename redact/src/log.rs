//! Terminal rendering of the tail of a log file.
//!
//! Probe and relay follow logs in the same way: [`Window::of`] selects the bytes to read,
//! [`Window::tail`] renders them, and [`Tail::end`] is the offset for the next read.

use nodeglass_protocol::LongText;
use nodeglass_protocol::request::Tail;

/// Byte range of a file to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Offset of the first byte.
    pub from: u64,
    /// Number of bytes, at most [`Tail::MAX_BYTES`].
    pub length: u64,
    /// Offset of the end of the last read; 0 if that was another file.
    after: u64,
    restarted: bool,
}

impl Window {
    /// Selects the unread end of a file of `size` bytes that was read up to offset `after`.
    ///
    /// `same` states whether it is still the same file (by its inode), if known.
    pub fn of(after: u64, size: u64, same: bool) -> Self {
        let restarted = after > size || (after > 0 && !same);
        let after = if restarted { 0 } else { after };
        let length = (size - after).min(Tail::MAX_BYTES);
        Self { from: size - length, length, after, restarted }
    }

    /// Renders the bytes of this window, which may be fewer than requested.
    pub fn tail(&self, bytes: &[u8]) -> Tail {
        let bytes = &bytes[..bytes.len().min(usize::try_from(self.length).unwrap_or(usize::MAX))];
        let complete_end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let whole = &bytes[self.complete_start(bytes)..complete_end];
        let newest_lines = newest(whole, Tail::MAX_LINES);
        let start = if newest_lines.is_empty() { 0 } else { complete_end - newest_lines.len() };
        let rest = &bytes[complete_end..];
        // The file may grow while it is read: the next read starts after these bytes.
        let end = self.from + (complete_end + settled(rest)) as u64;
        let first =
            if newest_lines.is_empty() { self.from + complete_end as u64 } else { self.from + start as u64 };
        let partial = shown(without_broken_end(rest));
        Tail {
            end,
            restarted: self.restarted,
            skipped: first.saturating_sub(self.after),
            lines: newest_lines.split_inclusive(|byte| *byte == b'\n').map(shown).collect(),
            partial: (!partial.is_empty()).then_some(partial),
            error: None,
            written_s: None,
        }
    }

    /// Offset of the first complete line: a window within the file may start within a line.
    fn complete_start(&self, bytes: &[u8]) -> usize {
        if self.from == self.after {
            return 0;
        }
        let next = bytes.iter().position(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        // The end of a line that is longer than the window is better than nothing.
        if next == bytes.len() { 0 } else { next }
    }
}

/// Returns the last `most` lines.
fn newest(whole: &[u8], most: usize) -> &[u8] {
    let ends = whole.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n');
    match ends.map(|(at, _)| at + 1).nth(most) {
        Some(start) => &whole[start..],
        None => whole,
    }
}

/// Number of bytes of an incomplete line that need not be read again, because later text overwrote
/// them.
///
/// A progress bar may run for hours without a newline.
fn settled(rest: &[u8]) -> usize {
    let written = rest.iter().rposition(|byte| *byte != b'\r' && *byte != b'\x1b').unwrap_or(0);
    let over = rest[..written].iter().rposition(|byte| *byte == b'\r').map_or(0, |at| at + 1);
    // Only an escape sequence may follow the carriage return; no text was overwritten yet.
    if shown(&rest[over..]).is_empty() { 0 } else { over }
}

/// Removes an incomplete UTF-8 sequence at the end.
fn without_broken_end(rest: &[u8]) -> &[u8] {
    match rest.utf8_chunks().last() {
        Some(chunk) if !chunk.invalid().is_empty() && rest.len() - chunk.invalid().len() > 0 => {
            &rest[..rest.len() - chunk.invalid().len()]
        }
        _ => rest,
    }
}

/// Renders a line as a terminal would display it finally: without colours, titles and overwritten
/// text.
pub fn shown(line: &[u8]) -> LongText {
    let text = String::from_utf8_lossy(line);
    let mut screen = Line::default();
    let mut chars = text.trim_end_matches(['\n', '\r']).chars();
    while let Some(c) = chars.next() {
        match c {
            '\r' => screen.back_to_start(),
            '\u{8}' => screen.back(1),
            '\x1b' => screen.escape(&mut chars),
            '\u{9b}' => screen.control_sequence(&mut chars),
            '\u{7}' | '\0' => {}
            c => screen.write(c),
        }
    }
    LongText::line(&screen.cells.iter().collect::<String>())
}

/// One line of a terminal.
#[derive(Default)]
struct Line {
    cells: Vec<char>,
    cursor: usize,
    /// Set after a carriage return: the next character clears the line.
    clear_on_write: bool,
}

impl Line {
    fn write(&mut self, c: char) {
        if std::mem::take(&mut self.clear_on_write) {
            self.cells.clear();
        }
        if self.cursor < self.cells.len() {
            self.cells[self.cursor] = c;
        } else {
            self.cells.push(c);
        }
        self.cursor += 1;
    }

    fn back_to_start(&mut self) {
        (self.cursor, self.clear_on_write) = (0, true);
    }

    fn back(&mut self, cells: usize) {
        self.cursor = self.cursor.saturating_sub(cells);
    }

    /// Handles the characters after an escape character.
    fn escape(&mut self, chars: &mut std::str::Chars<'_>) {
        match chars.next() {
            Some('[') => self.control_sequence(chars),
            // OSC, DCS and similar strings: text up to BEL or `ESC \`.
            Some(']' | 'P' | 'X' | '^' | '_') => {
                while let Some(c) = chars.next() {
                    if c == '\u{7}' || c == '\u{9c}' || (c == '\x1b' && chars.next() == Some('\\')) {
                        break;
                    }
                }
            }
            // Character set selection has one more character.
            Some(' '..='/') => drop(chars.next()),
            _ => {}
        }
    }

    /// Handles a CSI sequence; supports the sequences of progress bars to move the cursor or erase.
    fn control_sequence(&mut self, chars: &mut std::str::Chars<'_>) {
        let mut parameter = String::new();
        for c in chars.by_ref() {
            match c {
                '0'..='?' => parameter.push(c),
                ' '..='/' => {}
                '@'..='~' => return self.execute(c, parameter.parse().ok()),
                // Not a control sequence after all.
                c => return self.write(c),
            }
        }
    }

    fn execute(&mut self, letter: char, parameter: Option<usize>) {
        match (letter, parameter) {
            ('K', None | Some(0)) => self.cells.truncate(self.cursor),
            ('K', Some(2)) => self.cells.clear(),
            ('G', None | Some(0 | 1)) => self.back_to_start(),
            ('D', count) => self.back(count.unwrap_or(1).max(1)),
            _ => return,
        }
        self.cursor = self.cursor.min(self.cells.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(file: &[u8], after: u64, same: bool) -> Tail {
        let window = Window::of(after, file.len() as u64, same);
        let from = window.from as usize;
        window.tail(&file[from..from + window.length as usize])
    }

    fn lines(tail: &Tail) -> Vec<&str> {
        tail.lines.iter().map(LongText::as_str).collect()
    }

    fn partial(tail: &Tail) -> Option<&str> {
        tail.partial.as_ref().map(LongText::as_str)
    }

    #[test]
    fn lines_render_as_a_terminal_would_display_them() {
        let cases: [(&[u8], &str); 12] = [
            (b"loss 0.3\n", "loss 0.3"),
            (b"windows\r\n", "windows"),
            (b" 10%|#   |\r 20%|##  |\r100%|####|\n", "100%|####|"),
            (b"a long line\rshort\n", "short"),
            (b"\x1b[1;31mred\x1b[0m \x1b[38;5;12mblue\x1b[m", "red blue"),
            (b"\x1b]0;a title\x07text \x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "text link"),
            (b"1/10\x08\x08\x08\x082/10", "2/10"),
            (b"half\r\x1b[2Kdone", "done"),
            (b"half\x1b[1Gdone", "done"),
            (b"abcdef\x1b[3Dx\x1b[K", "abcx"),
            (b"\xff\xfe ok \x1b(B", "\u{fffd}\u{fffd} ok"),
            ("\u{9b}31mr\u{e9}d".as_bytes(), "r\u{e9}d"),
        ];
        for (raw, seen) in cases {
            assert_eq!(shown(raw).as_str(), seen, "{raw:?}");
        }
    }

    #[test]
    fn new_lines_are_sent_once_and_an_incomplete_line_again() {
        let first = read(b"one\ntwo\nthr", 0, true);
        assert_eq!((lines(&first), partial(&first), first.skipped), (vec!["one", "two"], Some("thr"), 0));
        let second = read(b"one\ntwo\nthree\nfour\n", first.end, true);
        assert_eq!((lines(&second), partial(&second), second.skipped), (vec!["three", "four"], None, 0));
        let third = read(b"one\ntwo\nthree\nfour\n", second.end, true);
        assert_eq!(third, Tail { end: second.end, ..Tail::default() });
    }

    #[test]
    fn truncated_and_replaced_files_restart() {
        for (after, same) in [(100, true), (2, false)] {
            let tail = read(b"new\n", after, same);
            assert!(tail.restarted);
            assert_eq!((lines(&tail), tail.skipped), (vec!["new"], 0));
        }
        assert!(!read(b"new\n", 0, false).restarted);
    }

    #[test]
    fn a_long_file_yields_the_complete_lines_at_its_end() {
        let file: Vec<u8> = (0..30_000).flat_map(|n| format!("line {n}\n").into_bytes()).collect();
        let tail = read(&file, 0, true);
        assert_eq!(tail.lines.len(), Tail::MAX_LINES);
        assert_eq!(tail.lines.last().unwrap().as_str(), "line 29999");
        assert_eq!(tail.lines[0].as_str(), "line 28000");
        assert_eq!(tail.skipped as usize, file.len() - 2_000 * "line 28000\n".len());
    }

    #[test]
    fn a_progress_bar_is_read_from_its_last_carriage_return() {
        let mut file = b"start\n".to_vec();
        for step in 0..20_000 {
            file.extend_from_slice(format!("\rstep {step}/20000").as_bytes());
        }
        let tail = read(&file, 0, true);
        assert_eq!((lines(&tail), partial(&tail)), (vec![], Some("step 19999/20000")));
        assert_eq!(tail.end as usize, file.len() - "step 19999/20000".len());
        file.extend_from_slice(b"\rdone\n");
        let tail = read(&file, tail.end, true);
        assert_eq!((lines(&tail), partial(&tail)), (vec!["done"], None));
    }

    #[test]
    fn a_carriage_return_before_its_newline_loses_nothing() {
        let tail = read(b"a\rfinal\r", 0, true);
        assert_eq!(partial(&tail), Some("final"));
        assert_eq!(lines(&read(b"a\rfinal\r\n", tail.end, true)), ["final"]);
        let tail = read(b"final\r\x1b[", 0, true);
        assert_eq!(lines(&read(b"final\r\x1b[0m\n", tail.end, true)), ["final"]);
    }

    #[test]
    fn an_incomplete_utf8_sequence_is_deferred() {
        assert_eq!(partial(&read("gr\u{fc}n".as_bytes().split_at(3).0, 0, true)), Some("gr"));
    }

    #[test]
    fn a_line_longer_than_the_window_is_truncated_at_its_start() {
        let mut file = vec![b'x'; 100_000];
        assert!(read(&file, 0, true).partial.is_some());
        file.push(b'\n');
        let tail = read(&file, 0, true);
        assert_eq!((tail.lines.len(), tail.end as usize), (1, file.len()));
    }

    proptest! {
        #[test]
        fn arbitrary_files_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..600), after in 0u64..700, same: bool) {
            let tail = read(&bytes, after, same);
            prop_assert!(tail.end <= bytes.len() as u64);
            prop_assert!(tail.lines.iter().all(|line| !line.as_str().contains(char::is_control)));
        }

        #[test]
        fn incremental_reads_yield_each_line_once(
            text in prop::collection::vec(prop::sample::select(b"ab \r\n\x08".to_vec()), 0..300),
            cuts in prop::collection::vec(0usize..300, 0..12),
        ) {
            let whole = read(&text, 0, true);
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            cuts.push(text.len());
            cuts.sort_unstable();
            let (mut lines_read, mut after, mut last) = (Vec::new(), 0, Tail::default());
            for cut in cuts {
                last = read(&text[..cut], after, true);
                after = last.end;
                lines_read.append(&mut last.lines);
            }
            prop_assert_eq!(lines_read, whole.lines);
            prop_assert_eq!(last.partial, whole.partial);
        }
    }
}
