//! Rate limit for log messages: repeated ones are counted rather than written. Pure: the caller passes the time.

use std::collections::HashMap;
use std::fmt;
use tracing::Level;

/// Maximum number of messages of one kind per [`WINDOW_MS`].
pub const BURST: u32 = 5;
/// Maximum number of messages written per [`WINDOW_MS`] in total.
pub const LINES: u32 = 300;
/// Length of the window over which messages are counted.
pub const WINDOW_MS: u64 = 60_000;
/// Maximum number of kinds counted separately; further kinds share one count.
const KINDS: usize = 512;

/// Whether a message is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Write it.
    Write,
    /// Do not write it; only count it.
    Suppress,
}

/// Summary of the suppressed messages of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suppressed {
    /// Number of messages.
    pub count: u64,
    /// Over how long, in ms.
    pub over_ms: u64,
    /// Their level.
    pub level: Level,
    /// Text of the last message of the kind that was written; empty for several kinds together.
    pub example: String,
}

impl fmt::Display for Suppressed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, seconds) = (self.count, self.over_ms.div_ceil(1_000));
        let over =
            if self.over_ms <= WINDOW_MS { "the last minute".to_owned() } else { format!("{seconds} s") };
        match self.example.as_str() {
            "" => write!(f, "… {count} more of other kinds in {over}"),
            example => write!(f, "… {count} more in {over} like: {example}"),
        }
    }
}

/// Counts messages by their kind.
#[derive(Debug, Default)]
pub struct Limiter {
    kinds: HashMap<u64, Count>,
    /// Messages beyond [`LINES`] or [`KINDS`].
    overflow: Count,
    /// Lines written in this window.
    lines: Count,
    /// Earliest end of a window, in ms.
    next_due_ms: u64,
}

#[derive(Debug)]
struct Count {
    since_ms: u64,
    written: u32,
    suppressed: u64,
    level: Level,
    example: String,
}

impl Default for Count {
    fn default() -> Self {
        Self { since_ms: 0, written: 0, suppressed: 0, level: Level::WARN, example: String::new() }
    }
}

impl Limiter {
    /// Counts a message of a kind and decides whether it is written.
    pub fn admit(&mut self, kind: u64, now_ms: u64) -> Verdict {
        if now_ms.saturating_sub(self.lines.since_ms) >= WINDOW_MS {
            self.lines = Count { since_ms: now_ms, ..Count::default() };
        }
        if self.lines.written >= LINES || (self.kinds.len() >= KINDS && !self.kinds.contains_key(&kind)) {
            if self.overflow.suppressed == 0 {
                self.overflow = Count { since_ms: now_ms, ..Count::default() };
                self.schedule(now_ms);
            }
            self.overflow.suppressed += 1;
            return Verdict::Suppress;
        }
        let count = self.kinds.entry(kind).or_insert_with(|| Count { since_ms: now_ms, ..Count::default() });
        let verdict = if count.written < BURST { Verdict::Write } else { Verdict::Suppress };
        match verdict {
            Verdict::Write => {
                count.written += 1;
                self.lines.written += 1;
            }
            Verdict::Suppress => count.suppressed += 1,
        }
        self.schedule(now_ms);
        verdict
    }

    /// Stores a written message as the example of its kind, for the summary of suppressed ones.
    pub fn set_example(&mut self, kind: u64, level: Level, summary: String) {
        if let Some(count) = self.kinds.get_mut(&kind) {
            (count.level, count.example) = (level, summary);
        }
    }

    /// Returns the suppressed messages of completed windows; each is returned once. With [`u64::MAX`] for `now_ms`
    /// every window counts as completed.
    pub fn take_due(&mut self, now_ms: u64) -> Vec<Suppressed> {
        if now_ms < self.next_due_ms {
            return Vec::new();
        }
        let is_over = |count: &Count| now_ms.saturating_sub(count.since_ms) >= WINDOW_MS;
        let mut suppressed: Vec<Suppressed> = Vec::new();
        self.kinds.retain(|_, count| {
            let over = is_over(count);
            suppressed.extend((over && count.suppressed > 0).then(|| count.suppressed(now_ms)));
            !over
        });
        if is_over(&self.overflow) && self.overflow.suppressed > 0 {
            suppressed.push(self.overflow.suppressed(now_ms));
            self.overflow = Count::default();
        }
        let overflow_since_ms = (self.overflow.suppressed > 0).then_some(self.overflow.since_ms);
        let first = self.kinds.values().map(|count| count.since_ms).chain(overflow_since_ms).min();
        self.next_due_ms = first.map_or(u64::MAX, |since_ms| since_ms.saturating_add(WINDOW_MS));
        suppressed
    }

    fn schedule(&mut self, now_ms: u64) {
        self.next_due_ms = self.next_due_ms.min(now_ms.saturating_add(WINDOW_MS));
    }
}

impl Count {
    fn suppressed(&self, now_ms: u64) -> Suppressed {
        // At the end of the log every window counts as completed.
        let over_ms = if now_ms == u64::MAX { WINDOW_MS } else { now_ms - self.since_ms };
        Suppressed { count: self.suppressed, over_ms, level: self.level, example: self.example.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admitted(limiter: &mut Limiter, kind: u64, times: u32, now_ms: u64) -> u32 {
        (0..times).filter(|_| limiter.admit(kind, now_ms) == Verdict::Write).count() as u32
    }

    #[test]
    fn t25_the_same_message_is_written_five_times_a_minute_and_counted_beyond() {
        let mut limiter = Limiter::default();
        assert_eq!(admitted(&mut limiter, 1, 129, 1_000), BURST);
        limiter.set_example(1, Level::WARN, "no job list".into());
        assert!(limiter.take_due(60_999).is_empty());
        let [suppressed] = &limiter.take_due(61_000)[..] else { panic!("one summary") };
        assert_eq!(suppressed.to_string(), "… 124 more in the last minute like: no job list");
        assert!(limiter.take_due(61_000).is_empty(), "reported once");
        assert_eq!(admitted(&mut limiter, 1, 9, 61_001), BURST, "a new minute");
    }

    #[test]
    fn t25_a_flood_of_one_kind_hides_no_other() {
        let mut limiter = Limiter::default();
        assert_eq!(admitted(&mut limiter, 1, 1_000_000, 0), BURST);
        assert_eq!(admitted(&mut limiter, 2, 3, 0), 3);
    }

    #[test]
    fn t25_kinds_without_end_are_bounded_in_lines_and_in_memory() {
        let mut limiter = Limiter::default();
        let written: u32 = (0..100_000).map(|kind| admitted(&mut limiter, kind, 2, 5)).sum();
        assert_eq!(written, LINES);
        assert!(limiter.kinds.len() <= KINDS);
        let total: u64 = limiter.take_due(60_005).iter().map(|suppressed| suppressed.count).sum();
        assert_eq!(total, 200_000 - u64::from(LINES), "none is lost");
        assert!(limiter.kinds.is_empty());
    }

    #[test]
    fn t25_pending_counts_are_written_when_the_log_ends() {
        let mut limiter = Limiter::default();
        admitted(&mut limiter, 1, 7, 1_000);
        assert_eq!(limiter.take_due(u64::MAX).iter().map(|suppressed| suppressed.count).sum::<u64>(), 2);
    }

    #[test]
    fn a_clock_that_is_set_back_stops_no_message_for_good() {
        let mut limiter = Limiter::default();
        admitted(&mut limiter, 1, 9, 10_000_000);
        let written = (0..3).map(|minute| {
            limiter.take_due(5_000 + minute * 10_000_000);
            admitted(&mut limiter, 1, 9, 5_000 + minute * 10_000_000)
        });
        assert!(written.sum::<u32>() >= BURST);
    }
}
