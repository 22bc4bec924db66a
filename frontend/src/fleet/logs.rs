//! The followed logs: the last lines of each, with line numbers that do not change.

use leptos::prelude::*;
use nodeglass_protocol::LongText;
use nodeglass_protocol::request::{LogRef, Tail};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// The end of a log as received so far.
#[derive(Debug, Default)]
pub struct Log {
    /// Whether anything was received yet.
    pub received: bool,
    /// Number of the first kept line; the first line that this page received has number 0.
    pub first_line: u64,
    /// The last lines, at most [`Tail::MAX_LINES`].
    pub lines: VecDeque<LongText>,
    /// The unfinished last line: text after the last line break.
    pub partial: Option<LongText>,
    /// Whether earlier lines of the log are missing here.
    pub truncated: bool,
    /// Reason for not reading it, if any.
    pub error: Option<String>,
    /// When it was last written, in s since 1970.
    pub written_s: Option<i64>,
    /// Whether the next message restarts the log instead of continuing it.
    restart_expected: bool,
}

impl Log {
    /// Applies a message.
    pub fn append(&mut self, tail: Tail) {
        let restarted = std::mem::take(&mut self.restart_expected);
        self.received = true;
        self.error = tail.error.map(|why| why.to_string());
        // While the log cannot be read, its lines stay.
        if self.error.is_some() && tail.lines.is_empty() && tail.partial.is_none() && !tail.restarted {
            self.restart_expected = restarted;
            return;
        }
        if restarted || tail.restarted {
            self.first_line += self.lines.len() as u64;
            self.lines.clear();
            self.truncated = false;
        }
        if tail.skipped > 0 {
            self.first_line += self.lines.len() as u64 + 1;
            self.lines.clear();
            self.truncated = true;
        }
        self.lines.extend(tail.lines);
        (self.partial, self.written_s) = (tail.partial, tail.written_s);
        let surplus = self.lines.len().saturating_sub(Tail::MAX_LINES);
        if surplus > 0 {
            self.lines.drain(..surplus);
            self.first_line += surplus as u64;
            self.truncated = true;
        }
    }

    /// Prepares for a new connection, on which the relay sends the log from the start.
    fn expect_restart(&mut self) {
        self.restart_expected = true;
    }
}

/// One followed log. Clones share it.
#[derive(Clone)]
pub struct LogSignals(Arc<Inner>);

struct Inner {
    log_ref: LogRef,
    changed: ArcTrigger,
    state: Mutex<State>,
}

/// A log, and whether its subscribers have still to be notified of a change.
#[derive(Default)]
struct State {
    log: Log,
    changed: bool,
}

impl LogSignals {
    fn new(log_ref: LogRef) -> Self {
        Self(Arc::new(Inner { log_ref, changed: ArcTrigger::new(), state: Mutex::default() }))
    }

    /// Reads the log, and subscribes the caller to changes.
    pub fn read<R>(&self, read: impl FnOnce(&Log) -> R) -> R {
        self.0.changed.track();
        read(&self.state().log)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The followed logs.
#[derive(Default)]
pub struct Logs(RwLock<Vec<LogSignals>>);

impl Logs {
    /// Follows these logs from now on; logs that were followed already keep their lines.
    pub fn follow(&self, wanted: &[LogRef]) -> Vec<LogSignals> {
        let mut logs = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let known = |log_ref: &LogRef| logs.iter().find(|cell| cell.0.log_ref == *log_ref).cloned();
        let cells: Vec<LogSignals> = wanted
            .iter()
            .map(|log_ref| known(log_ref).unwrap_or_else(|| LogSignals::new(*log_ref)))
            .collect();
        logs.clone_from(&cells);
        cells
    }

    /// Returns which logs are followed.
    pub fn followed(&self) -> Vec<LogRef> {
        self.cells().iter().map(|cell| cell.0.log_ref).collect()
    }

    /// Clears every log, even if a view still holds it, and follows none.
    pub fn clear(&self) {
        self.cells().iter().for_each(|cell| *cell.state() = State::default());
        self.follow(&[]);
    }

    /// Prepares for a new connection, on which the relay sends each log from the start.
    pub fn expect_restart(&self) {
        self.cells().iter().for_each(|cell| cell.state().log.expect_restart());
    }

    /// Applies a message to its log; ignores a log that was just unfollowed.
    pub fn append(&self, log_ref: LogRef, tail: Tail) {
        if let Some(cell) = self.cells().iter().find(|cell| cell.0.log_ref == log_ref) {
            let mut state = cell.state();
            state.log.append(tail);
            state.changed = true;
        }
    }

    /// Notifies the subscribers of logs that changed since the last call.
    pub fn flush(&self) {
        for cell in self.cells() {
            let changed = std::mem::take(&mut cell.state().changed);
            if changed {
                cell.0.changed.notify();
            }
        }
    }

    fn cells(&self) -> Vec<LogSignals> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::JobId;
    use nodeglass_protocol::request::LogStream;

    fn tail(lines: &[&str]) -> Tail {
        Tail { lines: lines.iter().map(LongText::new).collect(), ..Tail::default() }
    }

    fn shown(log: &Log) -> Vec<String> {
        log.lines.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn lines_are_appended_and_a_partial_line_is_replaced() {
        let mut log = Log::default();
        log.append(Tail { partial: Some("10 %".into()), ..tail(&["a"]) });
        log.append(Tail { partial: Some("20 %".into()), ..tail(&[]) });
        assert_eq!((shown(&log), log.partial.clone()), (vec!["a".to_owned()], Some("20 %".into())));
        log.append(tail(&["100 %"]));
        assert_eq!((shown(&log).len(), log.partial.is_none()), (2, true));
    }

    #[test]
    fn the_oldest_lines_are_dropped_and_numbers_stay() {
        let mut log = Log::default();
        let many: Vec<String> = (0..Tail::MAX_LINES + 5).map(|n| n.to_string()).collect();
        log.append(tail(&many.iter().map(String::as_str).collect::<Vec<_>>()));
        assert_eq!((log.lines.len(), log.first_line, log.truncated), (Tail::MAX_LINES, 5, true));
        assert_eq!(log.lines[0].as_str(), "5");
    }

    #[test]
    fn a_log_restarts_after_a_reconnect_without_duplicates() {
        let logs = Logs::default();
        let log_ref = LogRef { job: JobId(17), stream: LogStream::Stdout };
        Owner::new().with(|| {
            let cell = logs.follow(&[log_ref]).remove(0);
            logs.append(log_ref, tail(&["a", "b"]));
            logs.expect_restart();
            assert_eq!(cell.read(shown), ["a", "b"]);
            logs.append(log_ref, tail(&["a", "b", "c"]));
            assert_eq!(cell.read(shown), ["a", "b", "c"]);
            logs.append(log_ref, tail(&["d"]));
            assert_eq!(cell.read(|log| (log.lines.len(), log.first_line)), (4, 2));
        });
    }

    #[test]
    fn an_error_is_shown_and_earlier_lines_stay() {
        let mut log = Log::default();
        log.append(tail(&["a"]));
        log.append(Tail { error: Some("no such file".into()), ..Tail::default() });
        assert_eq!((shown(&log), log.error.as_deref()), (vec!["a".to_owned()], Some("no such file")));
        log.append(tail(&["b"]));
        assert_eq!((shown(&log).len(), log.error), (2, None));
    }

    #[test]
    fn a_truncated_file_starts_again() {
        let mut log = Log::default();
        log.append(tail(&["a", "b"]));
        log.append(Tail { restarted: true, ..tail(&["x"]) });
        assert_eq!((shown(&log), log.first_line), (vec!["x".to_owned()], 2));
    }

    #[test]
    fn a_log_still_followed_keeps_its_lines_and_others_are_dropped() {
        let logs = Logs::default();
        let [out, err] =
            [LogStream::Stdout, LogStream::Stderr].map(|stream| LogRef { job: JobId(1), stream });
        Owner::new().with(|| {
            logs.follow(&[out, err]);
            logs.append(out, tail(&["a"]));
            let cell = logs.follow(&[out]).remove(0);
            assert_eq!(cell.read(shown), ["a"]);
            assert_eq!(logs.followed(), [out]);
            logs.append(err, tail(&["lost"]));
            assert_eq!(logs.follow(&[err]).remove(0).read(shown), [""; 0]);
        });
    }
}
