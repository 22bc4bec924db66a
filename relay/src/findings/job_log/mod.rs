//! What the logs of a job state: messages that explain a problem, and progress. Pure: lines and times come from the
//! caller.

mod patterns;
mod progress;

pub use patterns::{CustomPattern, LogPattern, LogPatterns, MAX_CUSTOM, PatternError};
pub use progress::Progress;

use nodeglass_protocol::{JobId, LongText};
use nodeglass_redact::mask;
use patterns::is_exception;
use progress::ProgressTracker;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// What is known of the logs of each job.
pub type JobLogs = BTreeMap<JobId, JobLog>;

/// How long a message is kept after it was last seen, in ms.
const KEPT_MS: u64 = 3_600_000;
/// A message is the end of a log if at most this many lines follow: a traceback, and those of other ranks.
const MAX_FOLLOWING: u64 = 400;
/// Maximum length of a kept line, in chars.
const MAX_LINE: usize = 200;
/// Number of the last lines that are kept for a job that fails.
const LAST_LINES: usize = 3;

/// What the logs of a job state now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobLog {
    /// When they last grew, in ms of the relay's clock; `None` if they were not seen to grow.
    pub grown_ms: Option<u64>,
    /// Since when they are read, in the same clock.
    pub since_ms: u64,
    /// What was found in the last hour, the latest last.
    pub messages: Vec<LogMessage>,
    /// How far the program is.
    pub progress: Option<Progress>,
    /// The last lines that are not empty, masked.
    pub last_lines: Vec<String>,
}

/// A message that was found.
#[derive(Clone, Debug)]
pub struct LogMessage {
    /// What it is.
    pub pattern: Arc<LogPattern>,
    /// The line, masked; of a traceback, that of the exception.
    pub line: String,
    /// In how many lines it was found.
    pub count: u32,
    /// When it was first found, in ms of the relay's clock.
    pub first_ms: u64,
    /// When it was last found.
    pub last_ms: u64,
    /// Whether it was in the log when it was first read, and so may be older.
    pub or_earlier: bool,
    /// Whether the log ends with it.
    pub is_last: bool,
}

impl PartialEq for LogMessage {
    fn eq(&self, other: &Self) -> bool {
        self.pattern.name == other.pattern.name && (self.count, self.is_last) == (other.count, other.is_last)
    }
}

/// Reads the lines of one job's logs.
#[derive(Debug)]
pub struct LogScanner {
    patterns: Arc<LogPatterns>,
    since_ms: u64,
    grown_ms: Option<u64>,
    messages: Vec<Found>,
    progress: ProgressTracker,
    last_lines: VecDeque<String>,
    /// Number of lines read.
    lines: u64,
}

#[derive(Debug)]
struct Found {
    message: LogMessage,
    /// Number of its newest line.
    at_line: u64,
    /// Whether the exception of the traceback is still to come.
    is_open: bool,
}

impl LogScanner {
    /// Nothing was read yet.
    pub fn new(patterns: Arc<LogPatterns>, now_ms: u64) -> Self {
        Self {
            patterns,
            since_ms: now_ms,
            grown_ms: None,
            messages: Vec::new(),
            progress: ProgressTracker::default(),
            last_lines: VecDeque::new(),
            lines: 0,
        }
    }

    /// Takes in new lines, and the incomplete one at the end, in which bars are drawn. `is_first` states that they may
    /// be as old as the job.
    pub fn read(&mut self, lines: &[LongText], partial: Option<&LongText>, is_first: bool, now_ms: u64) {
        if lines.is_empty() && partial.is_none() {
            return;
        }
        self.grown_ms = if is_first { self.grown_ms } else { Some(now_ms) };
        for line in lines {
            self.lines += 1;
            self.scan(line.as_str(), is_first, now_ms);
        }
        self.progress.read(lines.iter().chain(partial).map(LongText::as_str), now_ms);
    }

    fn scan(&mut self, line: &str, is_first: bool, now_ms: u64) {
        if !line.trim().is_empty() {
            if self.last_lines.len() == LAST_LINES {
                self.last_lines.pop_front();
            }
            self.last_lines.push_back(kept(line));
        }
        if let Some(open) = self.messages.iter_mut().find(|found| found.is_open)
            && is_exception(line)
        {
            (open.message.line, open.is_open) = (kept(line), false);
        }
        let Some(pattern) = self.patterns.find(line).cloned() else { return };
        let is_open = pattern.name.as_str() == "traceback";
        let known = self.messages.iter().position(|found| found.message.pattern.name == pattern.name);
        let mut message = LogMessage {
            pattern,
            line: kept(line),
            count: 1,
            first_ms: now_ms,
            last_ms: now_ms,
            or_earlier: is_first,
            is_last: true,
        };
        if let Some(known) = known.map(|at| self.messages.remove(at).message) {
            message.count = known.count.saturating_add(1);
            (message.first_ms, message.or_earlier) = (known.first_ms, known.or_earlier);
        }
        self.messages.push(Found { message, at_line: self.lines, is_open });
    }

    /// What is known now.
    pub fn state(&mut self, now_ms: u64) -> JobLog {
        self.messages.retain(|found| now_ms.saturating_sub(found.message.last_ms) <= KEPT_MS);
        let messages = self.messages.iter().map(|found| LogMessage {
            is_last: self.lines - found.at_line <= MAX_FOLLOWING,
            ..found.message.clone()
        });
        JobLog {
            grown_ms: self.grown_ms,
            since_ms: self.since_ms,
            messages: messages.collect(),
            progress: self.progress.progress(now_ms),
            last_lines: self.last_lines.iter().cloned().collect(),
        }
    }
}

/// A line as it is kept: masked like the arguments of a command, and cut.
fn kept(line: &str) -> String {
    let masked = mask::command(line.trim());
    match masked.char_indices().nth(MAX_LINE) {
        Some((at, _)) => format!("{}…", &masked[..at]),
        None => masked,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scanner() -> LogScanner {
        LogScanner::new(Arc::new(LogPatterns::new(&[])), 1_000)
    }

    fn lines(text: &str) -> Vec<LongText> {
        text.lines().map(LongText::line).collect()
    }

    #[test]
    fn a_message_is_counted_and_kept_for_an_hour() {
        let mut scanner = scanner();
        scanner.read(&lines("a\nstep 3/10 loss=nan\nb"), None, true, 1_000);
        scanner.read(&lines("step 4/10 loss=nan"), None, false, 61_000);
        let state = scanner.state(61_000);
        let message = &state.messages[0];
        assert_eq!(
            (message.count, message.first_ms, message.last_ms, message.or_earlier),
            (2, 1_000, 61_000, true)
        );
        assert_eq!(message.line, "step 4/10 loss=nan");
        assert_eq!(state.grown_ms, Some(61_000));
        assert_eq!(scanner.state(61_000 + KEPT_MS).messages.len(), 1);
        assert!(scanner.state(61_001 + KEPT_MS).messages.is_empty());
    }

    #[test]
    fn of_a_traceback_the_exception_is_kept_and_it_is_last_until_the_program_goes_on() {
        let mut scanner = scanner();
        let text =
            "Traceback (most recent call last):\n  File \"a.py\", line 3, in <module>\nValueError: no batch";
        scanner.read(&lines(text), None, false, 1_000);
        let state = scanner.state(1_000);
        assert_eq!(
            (state.messages[0].line.as_str(), state.messages[0].is_last),
            ("ValueError: no batch", true)
        );
        let later: Vec<LongText> =
            (0..MAX_FOLLOWING).map(|step| format!("it {step}").as_str().into()).collect();
        scanner.read(&later, None, false, 2_000);
        assert!(!scanner.state(2_000).messages[0].is_last);
    }

    #[test]
    fn what_is_kept_is_masked_and_bounded() {
        let mut scanner = scanner();
        let line = format!("loss=nan --api-key=sk-verysecret1234567890abcdef {}", "x ".repeat(1_000));
        scanner.read(&[LongText::line(&line)], None, false, 0);
        let state = scanner.state(0);
        assert!(!state.messages[0].line.contains("verysecret"), "{}", state.messages[0].line);
        assert!(state.messages[0].line.chars().count() <= MAX_LINE + 1);
        assert_eq!(state.last_lines.len(), 1);
    }

    #[test]
    fn a_bar_without_a_newline_is_progress() {
        let mut scanner = scanner();
        scanner.read(
            &[],
            Some(&LongText::line(" 45%|####5     | 450/1000 [01:23<01:41,  5.43it/s]")),
            false,
            0,
        );
        assert_eq!(scanner.state(0).progress.unwrap().pct(), 45.0);
    }
}
