//! A scroll is the end of one log as it is known now; each reader takes from it what it has not read yet.

use nodeglass_protocol::LongText;
use nodeglass_protocol::ask::Tail;
use std::collections::VecDeque;

/// How many bytes of lines are kept, besides [`Tail::MAX_LINES`].
const MAX_BYTES: usize = 512 * 1024;

/// The last lines of a log. Pure: it is told what a look brought and says what a reader is to get.
#[derive(Debug, Default)]
pub struct Scroll {
    lines: VecDeque<LongText>,
    bytes: usize,
    /// Number of the first kept line, counted from the first that was ever told.
    first: u64,
    /// Bytes of the file that were never told, or are kept no more.
    skipped: u64,
    /// Goes up when the file began anew.
    edition: u64,
    partial: Option<LongText>,
    end: u64,
    trouble: Option<nodeglass_protocol::Text>,
    /// Goes up with every change.
    version: u64,
}

/// How far somebody has read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mark {
    edition: Option<u64>,
    next: u64,
    skipped: u64,
    version: u64,
}

impl Scroll {
    /// Takes in what a look brought; returns whether anything is new.
    pub fn take(&mut self, tail: Tail) -> bool {
        let news = tail.restarted
            || !tail.lines.is_empty()
            || tail.partial != self.partial
            || tail.trouble != self.trouble
            || self.version == 0;
        if !news {
            self.end = tail.end;
            return false;
        }
        self.version += 1;
        if tail.trouble.is_some() && !tail.restarted {
            // What was read stays, whatever happened to the file since.
            self.trouble = tail.trouble;
            return true;
        }
        if tail.restarted || tail.skipped > 0 {
            // One more, for whatever was skipped: readers see that they missed something.
            self.first += self.lines.len() as u64 + 1;
            self.lines.clear();
            self.bytes = 0;
            self.edition += u64::from(tail.restarted);
            self.skipped = if tail.restarted { tail.skipped } else { self.skipped + tail.skipped };
        }
        self.bytes += tail.lines.iter().map(|line| line.as_str().len()).sum::<usize>();
        self.lines.extend(tail.lines);
        (self.partial, self.end, self.trouble) = (tail.partial, tail.end, tail.trouble);
        self.forget_oldest();
        true
    }

    fn forget_oldest(&mut self) {
        while self.lines.len() > Tail::MAX_LINES || self.bytes > MAX_BYTES {
            let Some(line) = self.lines.pop_front() else { return };
            self.bytes -= line.as_str().len();
            self.skipped += line.as_str().len() as u64 + 1;
            self.first += 1;
        }
    }

    /// What is new for a reader, who has read it then; `None` when nothing is.
    ///
    /// The first time it is the whole, as of a file that began anew: a page may still show an older reading.
    pub fn read(&self, mark: &mut Mark) -> Option<Tail> {
        if mark.version == self.version {
            return None;
        }
        let restarted = mark.edition != Some(self.edition);
        // Lines that were dropped since are missed; so is all before them on the page.
        let from = if restarted { self.first } else { mark.next.max(self.first) };
        let missed = restarted || from > mark.next;
        let skipped = match (restarted, missed) {
            (true, _) => self.skipped,
            (false, true) => self.skipped.saturating_sub(mark.skipped).max(1),
            (false, false) => 0,
        };
        let start = usize::try_from(from - self.first).unwrap_or(self.lines.len()).min(self.lines.len());
        *mark = Mark {
            edition: Some(self.edition),
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
            trouble: self.trouble.clone(),
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
    fn each_reader_gets_every_line_once_whenever_it_comes() {
        let (mut scroll, mut early, mut late) = (Scroll::default(), Mark::default(), Mark::default());
        assert!(scroll.take(tail(&["one", "two"])));
        let first = scroll.read(&mut early).unwrap();
        assert_eq!((lines(&first), first.restarted), (vec!["one", "two"], true));
        assert_eq!(scroll.read(&mut early), None);
        assert!(scroll.take(Tail { partial: Some("50 %".into()), ..tail(&["three"]) }));
        let more = scroll.read(&mut early).unwrap();
        assert_eq!((lines(&more), more.restarted, more.skipped), (vec!["three"], false, 0));
        assert_eq!(more.partial, Some("50 %".into()));
        assert_eq!(lines(&scroll.read(&mut late).unwrap()), ["one", "two", "three"]);
    }

    #[test]
    fn a_look_that_brings_nothing_tells_nobody() {
        let (mut scroll, mut mark) = (Scroll::default(), Mark::default());
        assert!(scroll.take(tail(&[])), "that the log is there and empty is news once");
        assert!(scroll.read(&mut mark).is_some());
        assert!(!scroll.take(tail(&[])));
        assert_eq!(scroll.read(&mut mark), None);
    }

    #[test]
    fn a_file_that_began_anew_is_told_as_such_to_everybody() {
        let (mut scroll, mut mark) = (Scroll::default(), Mark::default());
        scroll.take(tail(&["old"]));
        scroll.read(&mut mark);
        scroll.take(Tail { restarted: true, ..tail(&["new"]) });
        let told = scroll.read(&mut mark).unwrap();
        assert_eq!((lines(&told), told.restarted), (vec!["new"], true));
    }

    #[test]
    fn a_reader_that_slept_misses_what_is_kept_no_more_and_is_told_so() {
        let (mut scroll, mut mark) = (Scroll::default(), Mark::default());
        scroll.take(tail(&["first"]));
        scroll.read(&mut mark);
        for n in 0..3 * Tail::MAX_LINES {
            scroll.take(tail(&[&format!("line {n}")]));
        }
        let told = scroll.read(&mut mark).unwrap();
        assert_eq!(told.lines.len(), Tail::MAX_LINES);
        assert!(told.skipped > 0 && !told.restarted);
        let wide = "x".repeat(4_000);
        for _ in 0..1_000 {
            scroll.take(tail(&[&wide]));
        }
        assert!(scroll.bytes <= MAX_BYTES);
    }

    #[test]
    fn what_a_look_skipped_is_told_to_those_who_read_on() {
        let (mut scroll, mut mark) = (Scroll::default(), Mark::default());
        scroll.take(tail(&["one"]));
        scroll.read(&mut mark);
        scroll.take(Tail { skipped: 500, ..tail(&["last"]) });
        let told = scroll.read(&mut mark).unwrap();
        assert_eq!((lines(&told), told.skipped, told.restarted), (vec!["last"], 500, false));
    }

    #[test]
    fn trouble_is_told_and_what_was_read_stays() {
        let (mut scroll, mut mark) = (Scroll::default(), Mark::default());
        scroll.take(Tail { partial: Some("half".into()), ..tail(&["one"]) });
        scroll.take(Tail { trouble: Some("gone".into()), ..Tail::default() });
        let told = scroll.read(&mut mark).unwrap();
        assert_eq!((lines(&told), &told.trouble), (vec!["one"], &Some("gone".into())));
        assert_eq!(told.partial, Some("half".into()));
        scroll.take(tail(&["two"]));
        let told = scroll.read(&mut mark).unwrap();
        assert_eq!((lines(&told), &told.trouble), (vec!["two"], &None));
    }
}
