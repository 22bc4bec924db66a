//! Content of the logs of jobs: messages that explain a problem, and progress. Pure: lines and times come from the
//! caller.

mod count;
mod counter;
mod duration;
mod followed;
mod patterns;
mod progress;

pub use counter::Progress;
pub use followed::FollowedLog;
use nodeglass_protocol::{JobId, LongText};
use nodeglass_redact::mask;
pub use patterns::{CustomPattern, LogPattern, LogPatterns, MAX_CUSTOM, PatternError};
use patterns::{is_exception, is_finite_again};
use progress::ProgressTracker;
pub use progress::ReadTime;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Content of the logs, by job.
pub type JobLogs = BTreeMap<JobId, JobLog>;

/// Time for which a message is kept after its last occurrence, in ms.
const KEPT_MS: u64 = 3_600_000;
/// A message is the end of a log if at most this many lines follow: a traceback, and the lines of other ranks.
const MAX_FOLLOWING: u64 = 400;
/// Maximum length of a kept line, in chars.
const MAX_LINE: usize = 200;
/// Growths of a log that are closer to each other than this, in ms, count as one.
const GROWTH_SPACING_MS: u64 = 20_000;
/// Number of growths that are kept: ten minutes of a log that grows all the time.
const MAX_GROWTHS: usize = 30;
/// Name of the pattern of a NaN loss.
pub const NAN_LOSS: &str = "nan_loss";
/// Name of the pattern of a process that was terminated.
const TERMINATED: &str = "terminated";
/// Number of the last lines that are kept for a job that fails.
const LAST_LINES: usize = 3;

/// Current content of a log, or of all logs of a job.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobLog {
    /// When it last grew, in ms of the relay's clock; `None` if it was not seen to grow.
    pub grown_ms: Option<u64>,
    /// Times at which it grew, oldest first, at least [`GROWTH_SPACING_MS`] apart; the last [`MAX_GROWTHS`].
    pub growths_ms: Vec<u64>,
    /// When it was written before it was first read, in the same clock; `None` if that is not known.
    pub written_ms: Option<u64>,
    /// Since when it is read, in the same clock.
    pub since_ms: u64,
    /// Whether it could be read.
    pub is_read: bool,
    /// When the number of its steps last grew, in the same clock, whether or not it states how many there are.
    pub advanced_ms: Option<u64>,
    /// Messages of the last hour, the latest last.
    pub messages: Vec<LogMessage>,
    /// Progress of the program.
    pub progress: Option<Progress>,
    /// The last lines that are not empty, masked.
    pub last_lines: Vec<String>,
}

/// A message that was found.
#[derive(Clone, Debug, PartialEq)]
pub struct LogMessage {
    /// The pattern that it matches.
    pub pattern: Arc<LogPattern>,
    /// The line, masked; of a traceback, the line of the exception.
    pub line: String,
    /// In how many lines it was found.
    pub count: u32,
    /// When it was first found, in ms of the relay's clock.
    pub first_ms: u64,
    /// When it was last found.
    pub last_ms: u64,
    /// When its log last grew, at or after that.
    pub written_ms: u64,
    /// Whether it was in the log when it was first read, and so may be older.
    pub or_earlier: bool,
    /// Whether the log ends with it.
    pub is_last: bool,
    /// The longest time, in ms, for which its log did not grow before it; `None` if that was not seen.
    pub longest_gap_ms: Option<u64>,
}

/// The kind of the lines that are read: lines written since the last reading, or the content of a log when it is
/// first read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogChunk {
    /// New lines.
    New,
    /// Lines of a job that has run for some time: messages count unless the program went on after them.
    First,
    /// Content of a log just after the start of its job: it may be of an earlier run, to which the job appends.
    Baseline,
}

impl JobLog {
    /// Merges several logs of a job: standard output and error.
    pub fn merge(logs: impl Iterator<Item = Self>) -> Self {
        let mut merged: Option<Self> = None;
        for log in logs {
            let Some(known) = &mut merged else {
                merged = Some(log);
                continue;
            };
            known.grown_ms = known.grown_ms.max(log.grown_ms);
            known.growths_ms.extend(log.growths_ms);
            known.written_ms = match (known.is_read, log.is_read) {
                (true, true) => known.written_ms.zip(log.written_ms).map(|(one, other)| one.max(other)),
                (true, false) => known.written_ms,
                (false, _) => log.written_ms,
            };
            known.since_ms = known.since_ms.min(log.since_ms);
            known.is_read |= log.is_read;
            known.advanced_ms = known.advanced_ms.max(log.advanced_ms);
            log.messages.into_iter().for_each(|message| known.add(message));
            known.progress = progress::longest(known.progress.take(), log.progress);
            // Errors explain an end better than results.
            if !log.last_lines.is_empty() {
                known.last_lines = log.last_lines;
            }
        }
        let mut merged = merged.unwrap_or_default();
        merged.messages.sort_by_key(|message| message.last_ms);
        merged.growths_ms.sort_unstable();
        merged.growths_ms.dedup_by(|later, earlier| *later < *earlier + GROWTH_SPACING_MS);
        let over = merged.growths_ms.len().saturating_sub(MAX_GROWTHS);
        merged.growths_ms.drain(..over);
        merged
    }

    /// Adds a message of another log: one of a pattern that both logs have is one message.
    fn add(&mut self, message: LogMessage) {
        let same = |known: &&mut LogMessage| known.pattern.name == message.pattern.name;
        let Some(known) = self.messages.iter_mut().find(same) else { return self.messages.push(message) };
        let (newer, older) =
            if message.last_ms > known.last_ms { (message, known.clone()) } else { (known.clone(), message) };
        let first = if older.first_ms <= newer.first_ms { &older } else { &newer };
        *known = LogMessage {
            count: newer.count.saturating_add(older.count),
            first_ms: first.first_ms,
            or_earlier: first.or_earlier,
            written_ms: newer.written_ms.max(older.written_ms),
            is_last: newer.is_last,
            ..newer.clone()
        };
    }
}

/// Reads the lines of one log.
#[derive(Debug)]
pub struct LogScanner {
    patterns: Arc<LogPatterns>,
    since_ms: u64,
    written_ms: Option<u64>,
    is_read: bool,
    grown_ms: Option<u64>,
    growths_ms: VecDeque<u64>,
    longest_gap_ms: Option<u64>,
    messages: Vec<Found>,
    progress: ProgressTracker,
    /// The last lines, not masked yet.
    last_lines: VecDeque<String>,
    /// The incomplete line at the end.
    partial: Option<LongText>,
    /// Whether it was searched for messages: a program may end without a newline.
    is_partial_scanned: bool,
    /// Number of lines read.
    lines: u64,
    /// The number of the newest step in a line, and when such a number last grew.
    step: Option<u64>,
    advanced_ms: Option<u64>,
    /// Whether the last lines state that SLURM ended the run; further lines are of the next run, which appends to the log.
    is_run_over: bool,
}

#[derive(Debug)]
struct Found {
    /// The message; its line is not masked yet.
    message: LogMessage,
    /// Number of its newest line.
    at_line: u64,
    /// Whether the exception of the traceback is still to come.
    is_open: bool,
}

impl LogScanner {
    /// Creates the state of a log that is not read yet.
    pub fn new(patterns: Arc<LogPatterns>, now_ms: u64) -> Self {
        Self {
            patterns,
            since_ms: now_ms,
            written_ms: None,
            is_read: false,
            grown_ms: None,
            growths_ms: VecDeque::new(),
            longest_gap_ms: None,
            messages: Vec::new(),
            progress: ProgressTracker::default(),
            last_lines: VecDeque::new(),
            partial: None,
            is_partial_scanned: false,
            lines: 0,
            step: None,
            advanced_ms: None,
            is_run_over: false,
        }
    }

    /// Notes when the log was written before it is first read.
    pub(super) fn written_at(&mut self, written_s: i64, now: ReadTime) {
        let age_ms = u64::try_from(now.wall_s.saturating_sub(written_s)).unwrap_or(0).saturating_mul(1_000);
        self.written_ms = Some(now.relay_ms.saturating_sub(age_ms));
    }

    /// Begins anew, because the log was truncated or replaced.
    pub fn reset(&mut self, now_ms: u64) {
        *self = Self::new(self.patterns.clone(), now_ms);
    }

    /// Takes in lines, and the incomplete one at the end, in which bars are drawn: it is read again each time.
    pub fn read(&mut self, lines: &[LongText], partial: Option<&LongText>, chunk: LogChunk, now: ReadTime) {
        let now_ms = now.relay_ms;
        self.is_read = true;
        if lines.is_empty() && partial == self.partial.as_ref() {
            // What is still incomplete at the next reading stays so: a bar, or the end of the log.
            if let Some(line) = partial.filter(|_| !self.is_partial_scanned) {
                self.is_partial_scanned = true;
                self.scan(line.as_str(), chunk, now_ms);
                if chunk != LogChunk::Baseline {
                    self.progress.read(std::iter::once(line.as_str()), None, now);
                }
            }
            return;
        }
        // What was searched while it was incomplete is not searched again.
        let known = self.partial.take().filter(|_| self.is_partial_scanned);
        (self.partial, self.is_partial_scanned) = (partial.cloned(), false);
        if chunk == LogChunk::New {
            self.grow(now_ms);
        }
        let mut of_run = lines;
        for (position, line) in lines.iter().enumerate() {
            self.lines += 1;
            if self.is_of_next_run(line.as_str()) {
                of_run = &lines[position..];
            }
            if position > 0 || known.as_ref() != Some(line) {
                self.scan(line.as_str(), chunk, now_ms);
            }
        }
        // A bar is redrawn until its epoch ends: a NaN loss in it must not wait for that.
        if let Some(line) = partial.filter(|_| chunk != LogChunk::Baseline) {
            let is_nan =
                self.patterns.find(line.as_str()).is_some_and(|pattern| pattern.name.as_str() == NAN_LOSS);
            if is_nan {
                self.is_partial_scanned = true;
                self.scan(line.as_str(), chunk, now_ms);
            } else {
                self.forget_handled(line.as_str(), chunk);
            }
        }
        if chunk != LogChunk::Baseline {
            self.progress.read(of_run.iter().map(LongText::as_str), partial.map(LongText::as_str), now);
        }
    }

    fn grow(&mut self, now_ms: u64) {
        let gap_ms = self.grown_ms.map(|grown_ms| now_ms.saturating_sub(grown_ms));
        self.longest_gap_ms = self.longest_gap_ms.max(gap_ms);
        self.grown_ms = Some(now_ms);
        if self.growths_ms.back().is_none_or(|last_ms| last_ms + GROWTH_SPACING_MS <= now_ms) {
            if self.growths_ms.len() == MAX_GROWTHS {
                self.growths_ms.pop_front();
            }
            self.growths_ms.push_back(now_ms);
        }
    }

    /// Returns whether the progress so far is that of an earlier run, because SLURM ended that with this line or before it. Messages
    /// are kept until a line follows: they may explain the end.
    fn is_of_next_run(&mut self, line: &str) -> bool {
        if ends_run(line) {
            self.is_run_over = true;
        } else if !self.is_run_over || line.trim().is_empty() || self.is_of_end(line) {
            return false;
        } else {
            self.is_run_over = false;
            self.messages.clear();
        }
        self.progress = ProgressTracker::default();
        (self.step, self.advanced_ms) = (None, None);
        true
    }

    /// Returns whether SLURM's commands print such a line when a run is ended.
    fn is_of_end(&self, line: &str) -> bool {
        let is_of_slurm = line.starts_with("srun: ") || line.starts_with("slurmstepd");
        is_of_slurm && self.patterns.find(line).is_none_or(|found| found.name.as_str() == TERMINATED)
    }

    fn scan(&mut self, line: &str, chunk: LogChunk, now_ms: u64) {
        if !line.trim().is_empty() {
            if self.last_lines.len() == LAST_LINES {
                self.last_lines.pop_front();
            }
            self.last_lines.push_back(cut(line));
        }
        if chunk == LogChunk::Baseline {
            return;
        }
        if let Some(step) = count::step_number(line) {
            if self.step.is_some_and(|last| last < step) {
                self.advanced_ms = Some(now_ms);
            }
            self.step = Some(step);
        }
        let mut is_of_traceback = false;
        if let Some(open) = self.messages.iter_mut().find(|found| found.is_open)
            && is_exception(line)
        {
            (open.message.line, open.is_open, is_of_traceback) = (cut(line), false, true);
        }
        let found = self.patterns.find(line).filter(|found| match found.name.as_str() {
            "exception" => !is_of_traceback,
            TERMINATED => !self.is_run_over,
            _ => true,
        });
        let Some(pattern) = found.cloned() else {
            self.forget_handled(line, chunk);
            return;
        };
        let is_open = pattern.name.as_str() == "traceback";
        let known = self.messages.iter().position(|found| found.message.pattern.name == pattern.name);
        let mut message = LogMessage {
            pattern,
            line: cut(line),
            count: 1,
            first_ms: now_ms,
            last_ms: now_ms,
            written_ms: now_ms,
            or_earlier: chunk == LogChunk::First,
            is_last: true,
            longest_gap_ms: self.longest_gap_ms,
        };
        if let Some(known) = known.map(|at| self.messages.remove(at).message) {
            message.count = known.count.saturating_add(1);
            (message.first_ms, message.or_earlier) = (known.first_ms, known.or_earlier);
        }
        self.messages.push(Found { message, at_line: self.lines, is_open });
    }

    /// Forgets messages after which a line shows that the program is well: a loss that is a number again, or in what
    /// was written before the first reading, progress.
    fn forget_handled(&mut self, line: &str, chunk: LogChunk) {
        if self.messages.is_empty() {
            return;
        }
        self.messages.retain(|found| {
            found.message.pattern.name.as_str() != NAN_LOSS || !is_finite_again(line, &found.message.line)
        });
        if chunk == LogChunk::First && (progress::is_count(line) || count::step_number(line).is_some()) {
            self.messages.retain(|found| found.message.pattern.outlasts_progress);
        }
    }

    /// Returns the current content.
    pub fn state(&mut self, now_ms: u64) -> JobLog {
        self.messages.retain(|found| now_ms.saturating_sub(found.message.last_ms) <= KEPT_MS);
        let messages = self.messages.iter().map(|found| LogMessage {
            line: mask::command(&found.message.line),
            written_ms: self.grown_ms.unwrap_or(0).max(found.message.last_ms),
            is_last: self.lines - found.at_line <= MAX_FOLLOWING,
            ..found.message.clone()
        });
        JobLog {
            grown_ms: self.grown_ms,
            growths_ms: self.growths_ms.iter().copied().collect(),
            written_ms: self.written_ms,
            since_ms: self.since_ms,
            is_read: self.is_read,
            advanced_ms: self.advanced_ms,
            messages: messages.collect(),
            progress: self.progress.progress(now_ms),
            last_lines: self.last_lines.iter().map(|line| mask::command(line)).collect(),
        }
    }
}

/// Returns whether SLURM states with a line that it ended a run which it may start again.
fn ends_run(line: &str) -> bool {
    let causes = ["JOB REQUEUE", "PREEMPTION", "NODE FAILURE"];
    let cause = line.starts_with("slurmstepd").then(|| line.split_once(" DUE TO ")).flatten();
    cause.is_some_and(|(_, cause)| causes.iter().any(|known| cause.starts_with(known)))
}

/// The beginning of a line. A cut word might not be recognized as a secret, so it is left out.
fn cut(line: &str) -> String {
    let line = line.trim();
    match line.char_indices().nth(MAX_LINE) {
        Some((at, _)) => {
            let whole = line[..at].rfind(char::is_whitespace).unwrap_or(0);
            format!("{}…", line[..whole].trim_end())
        }
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod samples;

#[cfg(test)]
mod tests {
    use super::*;

    fn scanner() -> LogScanner {
        LogScanner::new(Arc::new(LogPatterns::new(&[])), 1_000)
    }

    fn at(relay_ms: u64) -> ReadTime {
        ReadTime { relay_ms, ..ReadTime::default() }
    }

    fn lines(text: &str) -> Vec<LongText> {
        text.lines().map(LongText::line).collect()
    }

    #[test]
    fn a_message_is_counted_and_kept_for_an_hour() {
        let mut scanner = scanner();
        scanner.read(&lines("a\nstep 3/10 loss=nan\nb"), None, LogChunk::First, at(1_000));
        scanner.read(&lines("step 4/10 loss=nan"), None, LogChunk::New, at(61_000));
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
    fn a_loss_that_is_a_number_again_ends_the_message() {
        let mut scanner = scanner();
        scanner.read(&lines("{'loss': nan}\n{'loss': nan}"), None, LogChunk::New, at(1_000));
        assert_eq!(scanner.state(1_000).messages.len(), 1);
        scanner.read(&lines("{'loss': 2.31}"), None, LogChunk::New, at(2_000));
        assert!(scanner.state(2_000).messages.is_empty());
    }

    #[test]
    fn of_a_traceback_the_exception_is_kept_and_it_is_last_until_the_program_goes_on() {
        let mut scanner = scanner();
        let text = "  0%|          | 0/100 [00:00<?, ?it/s]Traceback (most recent call last):\n\
                    \x20 File \"a.py\", line 3, in <module>\nValueError: no batch";
        scanner.read(&lines(text), None, LogChunk::New, at(1_000));
        let state = scanner.state(1_000);
        assert_eq!(
            (state.messages[0].line.as_str(), state.messages[0].is_last),
            ("ValueError: no batch", true)
        );
        let later: Vec<LongText> =
            (0..=MAX_FOLLOWING).map(|step| format!("it {step}").as_str().into()).collect();
        scanner.read(&later, None, LogChunk::New, at(2_000));
        assert!(!scanner.state(2_000).messages[0].is_last);
        assert_eq!(scanner.state(2_000).messages[0].written_ms, 2_000);
    }

    #[test]
    fn what_is_kept_is_masked_and_bounded() {
        let mut scanner = scanner();
        let line = format!("loss=nan --api-key=sk-verysecret1234567890abcdef {}", "x ".repeat(1_000));
        scanner.read(&[LongText::line(&line)], None, LogChunk::New, at(0));
        let state = scanner.state(0);
        assert!(!state.messages[0].line.contains("verysecret"), "{}", state.messages[0].line);
        assert!(state.messages[0].line.chars().count() <= MAX_LINE + 1);
        assert_eq!(state.last_lines.len(), 1);
    }

    #[test]
    fn a_bar_without_a_newline_is_progress_and_grows_only_when_it_changes() {
        let bar =
            |done: u32| LongText::line(&format!(" {done}%|####5     | {done}/100 [01:23<01:41,  5.43it/s]"));
        let mut scanner = scanner();
        scanner.read(&[], Some(&bar(45)), LogChunk::New, at(1_000));
        for second in 2..60 {
            scanner.read(&[], Some(&bar(45)), LogChunk::New, at(second * 1_000));
        }
        let state = scanner.state(60_000);
        assert_eq!(
            (state.progress.map(|progress| progress.pct()), state.grown_ms),
            (Some(Some(45.0)), Some(1_000))
        );
        scanner.read(&[], Some(&bar(46)), LogChunk::New, at(61_000));
        assert_eq!(scanner.state(61_000).grown_ms, Some(61_000));
    }

    #[test]
    fn a_nan_loss_is_found_in_a_bar_that_is_still_drawn() {
        let bar = |step: u32, loss: &str| {
            LongText::line(&format!("Epoch 0: 23%|###   | {step}/2000 [00:10<20:00, 1.0it/s, loss={loss}]"))
        };
        let mut scanner = scanner();
        scanner.read(&[], Some(&bar(464, "2.31")), LogChunk::New, at(1_000));
        scanner.read(&[], Some(&bar(465, "nan")), LogChunk::New, at(11_000));
        assert_eq!(scanner.state(11_000).messages.len(), 1);
        scanner.read(&[], Some(&bar(475, "2.29")), LogChunk::New, at(21_000));
        assert!(scanner.state(21_000).messages.is_empty(), "the scaler skipped a step");
    }

    #[test]
    fn steps_without_a_total_show_that_a_program_goes_on() {
        let mut scanner = scanner();
        scanner.read(&lines("step 1201 loss 2.09"), None, LogChunk::New, at(1_000));
        assert_eq!(scanner.state(1_000).advanced_ms, None);
        scanner.read(&lines("step 1202 loss 2.08"), None, LogChunk::New, at(11_000));
        assert_eq!(scanner.state(11_000).advanced_ms, Some(11_000));
    }

    #[test]
    fn what_was_written_before_counts_unless_it_was_handled_or_is_of_an_earlier_run() {
        let text = "torch.OutOfMemoryError: CUDA out of memory.\nretrying with batch 8\nstep 200/1000";
        let mut handled = scanner();
        handled.read(&lines(text), None, LogChunk::First, at(1_000));
        assert!(handled.state(1_000).messages.is_empty());
        let mut last = scanner();
        last.read(
            &lines("step 200/1000\ntorch.OutOfMemoryError: CUDA out of memory."),
            None,
            LogChunk::First,
            at(1_000),
        );
        assert_eq!(last.state(1_000).messages.len(), 1);
        let mut appended = scanner();
        appended.read(
            &lines("torch.OutOfMemoryError: CUDA out of memory."),
            None,
            LogChunk::Baseline,
            at(1_000),
        );
        assert!(appended.state(1_000).messages.is_empty());
        assert_eq!(appended.state(1_000).last_lines.len(), 1);
    }

    #[test]
    fn what_an_earlier_run_appended_to_the_log_does_not_count() {
        let requeue =
            "slurmstepd-n1: error: *** JOB 12 ON n1 CANCELLED AT 2026-11-30T22:32:42 DUE TO JOB REQUEUE ***";
        let text = format!(
            "torch.OutOfMemoryError: CUDA out of memory.\nstep 1040/10000\n{requeue}\nsrun: error: n1: task 0: Terminated\n"
        );
        let mut scanner = scanner();
        scanner.read(&lines(&format!("{text}starting again")), None, LogChunk::First, at(1_000));
        let state = scanner.state(1_000);
        assert_eq!((state.messages, state.progress), (Vec::new(), None));
        scanner.read(&lines("step 20/10000"), None, LogChunk::New, at(2_000));
        assert!(scanner.state(2_000).progress.is_some());

        let mut over = LogScanner::new(Arc::new(LogPatterns::new(&[])), 1_000);
        over.read(&lines("step 1040/10000\nloss=nan"), None, LogChunk::New, at(1_000));
        over.read(&lines(requeue), None, LogChunk::New, at(2_000));
        let state = over.state(2_000);
        assert_eq!(state.messages.len(), 1, "it may explain the end");
        assert_eq!((state.messages[0].pattern.name.as_str(), state.progress), (NAN_LOSS, None));
    }

    #[test]
    fn the_name_of_a_bar_is_masked_as_a_whole() {
        let mut scanner = scanner();
        let bar = "--api-key=sk-verysecret1234567890abcdef  45%|####5     | 45/100 [01:23<01:41,  5.43it/s]";
        scanner.read(&[LongText::line(bar)], None, LogChunk::New, at(0));
        let progress = scanner.state(0).progress.unwrap();
        assert!(progress.label.as_str().contains("api-key"), "{}", progress.label);
        assert!(!progress.label.as_str().contains("verysecret"), "{}", progress.label);
    }

    #[test]
    fn the_logs_of_a_job_are_merged() {
        let (mut out, mut err) = (scanner(), scanner());
        out.read(&lines("loss=nan"), None, LogChunk::New, at(2_000));
        err.read(&lines("Epoch 3/10\nSegmentation fault"), None, LogChunk::New, at(1_000));
        let merged = JobLog::merge([out.state(3_000), err.state(3_000)].into_iter());
        let names: Vec<&str> = merged.messages.iter().map(|message| message.pattern.name.as_str()).collect();
        assert_eq!(names, ["segmentation_fault", "nan_loss"]);
        assert_eq!((merged.grown_ms, merged.last_lines.len()), (Some(2_000), 2));
        assert!(merged.progress.is_some());
        out.read(&lines("Segmentation fault (core dumped)"), None, LogChunk::New, at(4_000));
        let merged = JobLog::merge([out.state(5_000), err.state(5_000)].into_iter());
        let faults: Vec<_> =
            merged.messages.iter().map(|message| (message.count, message.first_ms)).collect();
        assert_eq!(faults, [(1, 2_000), (2, 1_000)], "a pattern of both logs is one message");
    }

    #[test]
    fn merged_logs_keep_as_many_growths_as_one() {
        let log = |from_ms: u64| JobLog {
            growths_ms: (0..MAX_GROWTHS as u64).map(|number| from_ms + number * GROWTH_SPACING_MS).collect(),
            ..JobLog::default()
        };
        let later_ms = 3_600_000;
        let merged = JobLog::merge([log(later_ms), log(0)].into_iter());
        assert_eq!(merged.growths_ms, log(later_ms).growths_ms);
    }

    #[test]
    fn logs_were_last_written_when_the_last_of_them_was() {
        let log = |written_ms| JobLog { written_ms, is_read: true, ..JobLog::default() };
        let merged = |logs: [JobLog; 2]| JobLog::merge(logs.into_iter()).written_ms;
        assert_eq!(merged([log(Some(1)), log(Some(2))]), Some(2));
        assert_eq!(merged([log(Some(1)), log(None)]), None, "it may be later");
        let missing = JobLog { is_read: false, ..log(None) };
        assert_eq!(merged([log(Some(1)), missing.clone()]), Some(1));
        assert_eq!(merged([missing, log(Some(1))]), Some(1));
    }

    #[test]
    fn a_line_that_was_searched_while_it_was_incomplete_counts_once() {
        let (mut scanner, line) = (scanner(), LongText::line("Segmentation fault"));
        scanner.read(&[], Some(&line), LogChunk::New, at(1_000));
        scanner.read(&[], Some(&line), LogChunk::New, at(2_000));
        assert_eq!(scanner.state(2_000).messages[0].count, 1);
        scanner.read(std::slice::from_ref(&line), None, LogChunk::New, at(3_000));
        assert_eq!(scanner.state(3_000).messages[0].count, 1);
        scanner.read(&[line], None, LogChunk::New, at(4_000));
        assert_eq!(scanner.state(4_000).messages[0].count, 2);
    }
}
