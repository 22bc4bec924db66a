//! A log that is followed keeps its last lines here, under numbers that stay while newer ones come.

use leptos::prelude::*;
use nodeglass_protocol::LongText;
use nodeglass_protocol::ask::{LogRef, Tail};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// The end of a log as far as it was told.
#[derive(Debug, Default)]
pub struct Log {
    /// Whether anything was told of it yet.
    pub heard: bool,
    /// Number of the first kept line, from 0 where this page began to read.
    pub first: u64,
    /// The last lines, at most [`Tail::MAX_LINES`].
    pub lines: VecDeque<LongText>,
    /// The line that has no end yet.
    pub partial: Option<LongText>,
    /// Whether something came before the first line that is not shown.
    pub cut: bool,
    /// Why it cannot be read, if so.
    pub trouble: Option<String>,
    /// The next words are the log anew and not its continuation.
    anew: bool,
}

impl Log {
    /// Takes in what came to its end.
    pub fn hear(&mut self, tail: Tail) {
        let fresh = std::mem::take(&mut self.anew);
        self.heard = true;
        self.trouble = tail.trouble.map(|why| why.to_string());
        // A log that cannot be read now keeps what was read of it.
        if self.trouble.is_some() && tail.lines.is_empty() && tail.partial.is_none() && !tail.restarted {
            self.anew = fresh;
            return;
        }
        if fresh || tail.restarted {
            self.first += self.lines.len() as u64;
            self.lines.clear();
            self.cut = false;
        }
        if tail.skipped > 0 {
            self.first += self.lines.len() as u64 + 1;
            self.lines.clear();
            self.cut = true;
        }
        self.lines.extend(tail.lines);
        self.partial = tail.partial;
        let surplus = self.lines.len().saturating_sub(Tail::MAX_LINES);
        if surplus > 0 {
            self.lines.drain(..surplus);
            self.first += surplus as u64;
            self.cut = true;
        }
    }

    /// A connection begins: the relay tells the log again.
    fn expect_anew(&mut self) {
        self.anew = true;
    }
}

/// One log that is followed. Clones are the same log.
#[derive(Clone)]
pub struct LogCell(Arc<Inner>);

struct Inner {
    of: LogRef,
    changed: ArcTrigger,
    log: Mutex<(Log, bool)>,
}

impl LogCell {
    fn new(of: LogRef) -> Self {
        Self(Arc::new(Inner { of, changed: ArcTrigger::new(), log: Mutex::default() }))
    }

    /// Looks at the log, and is woken when more comes.
    pub fn read<R>(&self, look: impl FnOnce(&Log) -> R) -> R {
        self.0.changed.track();
        look(&self.log().0)
    }

    fn log(&self) -> MutexGuard<'_, (Log, bool)> {
        self.0.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The logs that are followed.
#[derive(Default)]
pub struct Logs(RwLock<Vec<LogCell>>);

impl Logs {
    /// Follows these from now on; those that were followed before keep what is known of them.
    pub fn follow(&self, wanted: &[LogRef]) -> Vec<LogCell> {
        let mut logs = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let known = |of: &LogRef| logs.iter().find(|cell| cell.0.of == *of).cloned();
        let cells: Vec<LogCell> =
            wanted.iter().map(|of| known(of).unwrap_or_else(|| LogCell::new(*of))).collect();
        logs.clone_from(&cells);
        cells
    }

    /// Which ones.
    pub fn followed(&self) -> Vec<LogRef> {
        self.cells().iter().map(|cell| cell.0.of).collect()
    }

    /// Drops what is known of each, also where a view still holds one, and follows none.
    pub fn forget(&self) {
        self.cells().iter().for_each(|cell| *cell.log() = Default::default());
        self.follow(&[]);
    }

    /// A connection begins, on which each will be told anew.
    pub fn expect_anew(&self) {
        self.cells().iter().for_each(|cell| cell.log().0.expect_anew());
    }

    /// Takes in what came to the end of one; one that was left just now finds nobody.
    pub fn hear(&self, of: LogRef, tail: Tail) {
        if let Some(cell) = self.cells().iter().find(|cell| cell.0.of == of) {
            let mut log = cell.log();
            log.0.hear(tail);
            log.1 = true;
        }
    }

    /// Tells whoever looks at those that changed since the last time.
    pub fn flush(&self) {
        for cell in self.cells() {
            let changed = std::mem::take(&mut cell.log().1);
            if changed {
                cell.0.changed.notify();
            }
        }
    }

    fn cells(&self) -> Vec<LogCell> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::JobId;
    use nodeglass_protocol::ask::LogStream;

    fn tail(lines: &[&str]) -> Tail {
        Tail { lines: lines.iter().map(LongText::new).collect(), ..Tail::default() }
    }

    fn shown(log: &Log) -> Vec<String> {
        log.lines.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn lines_come_to_the_end_and_an_unfinished_one_is_told_again() {
        let mut log = Log::default();
        log.hear(Tail { partial: Some("10 %".into()), ..tail(&["a"]) });
        log.hear(Tail { partial: Some("20 %".into()), ..tail(&[]) });
        assert_eq!((shown(&log), log.partial.clone()), (vec!["a".to_owned()], Some("20 %".into())));
        log.hear(tail(&["100 %"]));
        assert_eq!((shown(&log).len(), log.partial.is_none()), (2, true));
    }

    #[test]
    fn a_ring_of_lines_forgets_the_oldest_and_numbers_stay() {
        let mut log = Log::default();
        let many: Vec<String> = (0..Tail::MAX_LINES + 5).map(|n| n.to_string()).collect();
        log.hear(tail(&many.iter().map(String::as_str).collect::<Vec<_>>()));
        assert_eq!((log.lines.len(), log.first, log.cut), (Tail::MAX_LINES, 5, true));
        assert_eq!(log.lines[0].as_str(), "5");
    }

    #[test]
    fn after_a_reconnect_the_log_is_told_anew_and_not_twice() {
        let logs = Logs::default();
        let of = LogRef { job: JobId(17), stream: LogStream::Stdout };
        Owner::new().with(|| {
            let cell = logs.follow(&[of]).remove(0);
            logs.hear(of, tail(&["a", "b"]));
            logs.expect_anew();
            assert_eq!(cell.read(shown), ["a", "b"]);
            logs.hear(of, tail(&["a", "b", "c"]));
            assert_eq!(cell.read(shown), ["a", "b", "c"]);
            logs.hear(of, tail(&["d"]));
            assert_eq!(cell.read(|log| (log.lines.len(), log.first)), (4, 2));
        });
    }

    #[test]
    fn trouble_is_said_and_what_was_read_stays() {
        let mut log = Log::default();
        log.hear(tail(&["a"]));
        log.hear(Tail { trouble: Some("no such file".into()), ..Tail::default() });
        assert_eq!((shown(&log), log.trouble.as_deref()), (vec!["a".to_owned()], Some("no such file")));
        log.hear(tail(&["b"]));
        assert_eq!((shown(&log).len(), log.trouble), (2, None));
    }

    #[test]
    fn a_file_that_was_cut_short_begins_again() {
        let mut log = Log::default();
        log.hear(tail(&["a", "b"]));
        log.hear(Tail { restarted: true, ..tail(&["x"]) });
        assert_eq!((shown(&log), log.first), (vec!["x".to_owned()], 2));
    }

    #[test]
    fn what_is_followed_still_keeps_its_lines_and_what_was_left_is_forgotten() {
        let logs = Logs::default();
        let [out, err] =
            [LogStream::Stdout, LogStream::Stderr].map(|stream| LogRef { job: JobId(1), stream });
        Owner::new().with(|| {
            logs.follow(&[out, err]);
            logs.hear(out, tail(&["a"]));
            let cell = logs.follow(&[out]).remove(0);
            assert_eq!(cell.read(shown), ["a"]);
            assert_eq!(logs.followed(), [out]);
            logs.hear(err, tail(&["lost"]));
            assert_eq!(logs.follow(&[err]).remove(0).read(shown), [""; 0]);
        });
    }
}
