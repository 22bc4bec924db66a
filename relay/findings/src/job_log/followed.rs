//! One log of a job over time: what is new in it, what an earlier run left, and what to make of a log that is missing.

use super::{JobLog, LogChunk, LogPatterns, LogScanner, ReadTime};
use nodeglass_protocol::request::Tail;
use std::sync::Arc;

/// Content within this time after the start of a job, in s, may be of an earlier run.
const NEW_S: i64 = 60;

/// A log of a job that is read again and again. Times of day are in s since 1970.
#[derive(Debug)]
pub struct FollowedLog {
    scanner: LogScanner,
    /// When its job started.
    start_s: Option<i64>,
    /// Whether it was read, or was found missing: what appears later is new.
    was_read: bool,
}

impl FollowedLog {
    /// Creates the state of the log of a job that started at `start_s`; the log is not read yet.
    pub fn new(patterns: Arc<LogPatterns>, start_s: Option<i64>, now_ms: u64) -> Self {
        Self { scanner: LogScanner::new(patterns, now_ms), start_s, was_read: false }
    }

    /// Takes in what is new, or that the log cannot be read, and returns what it states now.
    pub fn read(&mut self, tail: Option<&Tail>, now: ReadTime) -> JobLog {
        let is_young = self.start_s.is_some_and(|start_s| start_s + NEW_S >= now.wall_s);
        match tail {
            Some(tail) => self.scan(tail, is_young, now),
            // What appears in the log of a job that just started is new; of another one it may be old.
            None => self.was_read |= is_young,
        }
        self.scanner.state(now.relay_ms)
    }

    fn scan(&mut self, tail: &Tail, is_young: bool, now: ReadTime) {
        if tail.restarted && self.was_read {
            self.scanner.reset(now.relay_ms);
        }
        if let Some(written_s) = now.written_s.filter(|_| !self.was_read) {
            // What an earlier job wrote to the same file is not output of this one.
            self.scanner.written_at(written_s.max(self.start_s.unwrap_or(i64::MIN)), now);
        }
        let chunk = match (self.was_read, is_young) {
            (true, _) => LogChunk::New,
            (false, true) => LogChunk::Baseline,
            (false, false) => LogChunk::First,
        };
        self.was_read = true;
        self.scanner.read(&tail.lines, tail.partial.as_ref(), chunk, now);
    }
}
