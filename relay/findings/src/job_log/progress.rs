//! How far a program is by its log, how fast it advances, and when it will be done.

use super::count::{self, Count, Epoch, Left};
use nodeglass_protocol::Text;
use nodeglass_protocol::insight::EpochProgress;
use std::cmp::Ordering;
use std::collections::VecDeque;

/// Maximum number of counters that are followed per log: a bar for each epoch is one.
const MAX_COUNTERS: usize = 8;
/// Maximum number of observations per counter; of more, every second one is dropped.
const MAX_OBSERVATIONS: usize = 64;
/// Time in ms over which the rate is measured at least: evaluations and checkpoints interrupt the steps.
const MIN_SPAN_MS: u64 = 60_000;
/// Time in ms after which a counter that stands still no longer counts as the program's progress.
const STALE_MS: u64 = 3_600_000;
/// Number of consecutive reads with a lower count after which a counter has restarted: ranks interleave their lines.
const MAX_LOWER_READS: u32 = 3;
/// Time in ms after which a program's own estimate no longer counts.
const ESTIMATE_MS: u64 = 600_000;
/// A program's own estimate counts while it differs from the measured rate by at most this factor.
const ESTIMATE_FACTOR: f64 = 2.0;

/// How far a program is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Progress {
    /// What is counted, as the log names it, masked: `epoch`, `step`; empty for a bar without a name.
    pub label: Text,
    /// How many are done. Within an epoch, epochs with their parts: 2.25 in the third one.
    pub done: f64,
    /// Of how many; `None` if the log does not state it.
    pub total: Option<f64>,
    /// The epoch that runs, if the log states how far it is.
    pub epoch: Option<EpochProgress>,
    /// When `done` last grew, in ms of the relay's clock.
    pub advanced_ms: u64,
    /// How many are done per second; `None` until it can be measured.
    pub rate: Option<f64>,
    /// When all will be done, in ms of the relay's clock: the earliest and the latest. The program's own estimate, or
    /// by the fastest and the slowest part of the time observed.
    pub end_ms: Option<(u64, u64)>,
    /// For how long the rate was measured, in ms, without the first count: it includes compilation.
    pub steady_ms: u64,
    /// How often the count was seen to grow in that time.
    pub advances: usize,
}

impl Progress {
    /// How much of the program is done, in %; `None` if the log does not state how much there is.
    pub fn pct(&self) -> Option<f64> {
        Some((100.0 * self.done / self.total?).clamp(0.0, 100.0))
    }
}

/// The counters in a log.
#[derive(Debug, Default)]
pub struct ProgressTracker {
    counters: Vec<Counter>,
    /// The epoch that the last line without other counts named.
    epoch: Option<Epoch>,
    /// How many steps the whole run has, as a line stated once.
    run_steps: Option<f64>,
    /// The last count within an epoch.
    in_epoch: Option<EpochProgress>,
    /// The total of steps that count through all epochs, although lines name the epoch as well.
    run_total: Option<f64>,
    /// The total of steps that began again in an epoch.
    epoch_total: Option<f64>,
}

#[derive(Debug)]
struct Counter {
    key: Key,
    observations: VecDeque<(u64, f64)>,
    /// Whether it began again: what it counts is a part of the program's work.
    is_part: bool,
    /// The epoch in which the last observation was made.
    epoch: Option<EpochProgress>,
    /// Whether an epoch with the number 0 was seen.
    is_zero_based: bool,
    /// In how many readings in a row it stood below the last observation.
    lower_reads: u32,
    /// The program's own estimate of the end, and when it was read, in ms of the relay's clock.
    estimate: Option<(u64, u64)>,
    /// The remaining time as it was last stated, in s.
    left_s: Option<f64>,
}

/// What a counter counts.
#[derive(Clone, Debug, PartialEq)]
struct Key {
    /// The format of the lines; `None` for epochs, and for counts that are named in a sentence.
    format: Option<usize>,
    label: String,
    total: Option<f64>,
}

/// A count of a counter.
#[derive(Clone, Debug, PartialEq)]
struct Reading {
    key: Key,
    done: f64,
    /// Whether it counts within one epoch while the number of epochs is unknown.
    is_part: bool,
    epoch: Option<EpochProgress>,
    /// The time that is left for the whole counter, in s.
    left_s: Option<f64>,
}

/// When lines are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadTime {
    /// In ms of the relay's clock.
    pub relay_ms: u64,
    /// In s since 1970.
    pub wall_s: i64,
    /// Offset of the local time zone from UTC, in s: a program writes `will finish Tue Mar  4 02:11:12` without one.
    pub utc_offset_s: i64,
}

/// Of two counters, the one that is the program's: of those that are not complete the one that ends last.
pub(super) fn longest(a: Option<Progress>, b: Option<Progress>) -> Option<Progress> {
    match (a, b) {
        (Some(a), Some(b)) => Some(if by_relevance(&a, &b) == Ordering::Less { b } else { a }),
        (a, b) => a.or(b),
    }
}

fn by_relevance(a: &Progress, b: &Progress) -> Ordering {
    let key = |progress: &Progress| {
        let end_ms = progress.end_ms.map_or(0, |(_, latest)| latest);
        let is_complete = progress.total.is_some_and(|total| progress.done >= total);
        let is_whole = progress.total.is_some() || progress.end_ms.is_some();
        (!is_auxiliary(progress.label.as_str()), is_whole, !is_complete, end_ms, progress.advanced_ms)
    };
    key(a).cmp(&key(b))
}

/// Returns whether the label names setup or evaluation work rather than the main loop.
fn is_auxiliary(label: &str) -> bool {
    const WORK: [&str; 16] = [
        "download",
        "load",
        "fetch",
        "map",
        "filter",
        "tokeniz",
        "generating",
        "casting",
        "valid",
        "eval",
        "test",
        "sanity",
        "saving",
        "predict",
        "resolving",
        "extract",
    ];
    let label = label.to_ascii_lowercase();
    WORK.iter().any(|work| label.starts_with(work))
}

/// Returns whether a counter of this name may count within an epoch.
fn is_within_epochs(label: &str) -> bool {
    label.is_empty() || label == "batch" || is_step(label)
}

/// Returns whether a counter counts steps by its name.
fn is_step(label: &str) -> bool {
    matches!(label, "step" | "iter" | "iteration" | "update")
}

/// Returns whether a line states a count.
pub(super) fn is_count(line: &str) -> bool {
    count::parse(line).is_some_and(|count| count.done.is_some() || count.epoch.is_some())
}

impl ProgressTracker {
    /// Takes in the lines that were read at a time.
    pub fn read<'a>(&mut self, lines: impl Iterator<Item = &'a str>, now: ReadTime) {
        // All were written since the last reading: of each counter the largest counts, as ranks write theirs in any
        // order, unless it began again in between.
        let mut newest: Vec<Reading> = Vec::new();
        let mut before: Option<Key> = None;
        for count in lines.filter_map(count::parse) {
            self.run_steps = count.run_steps.or(self.run_steps);
            if count.done.is_none() && count.epoch.is_none() {
                // An estimate on a line of its own is of the count before it.
                if let Some(last) = newest.iter_mut().find(|known| Some(&known.key) == before.as_ref()) {
                    last.left_s = seconds(count.left, now, true);
                }
                continue;
            }
            let Some(reading) = self.reading(count, now) else { continue };
            before = Some(reading.key.clone());
            match newest.iter().position(|known| known.key == reading.key) {
                // Whether the number of an epoch alone is that of one that begins or ends is not known.
                Some(at) if newest[at].epoch.is_some() && reading.epoch.is_none() => {}
                Some(at) if newest[at].epoch.is_none() && reading.epoch.is_some() => newest[at] = reading,
                Some(at) if newest[at].begins_again(&reading) => {
                    newest[at] = Reading { is_part: true, ..reading };
                }
                Some(at) if reading.done >= newest[at].done => {
                    let is_part = reading.is_part || newest[at].is_part;
                    newest[at] = Reading { is_part, ..reading };
                }
                None if newest.len() < MAX_COUNTERS => newest.push(reading),
                Some(_) | None => {}
            }
        }
        let run_total = self.run_total;
        let is_misread =
            |epoch: Option<EpochProgress>| epoch.is_some_and(|epoch| Some(epoch.total) == run_total);
        newest.retain(|reading| !is_misread(reading.epoch));
        self.counters.retain(|counter| !is_misread(counter.epoch));
        newest.into_iter().for_each(|reading| self.observe(reading, now.relay_ms));
    }

    /// What a line means for a counter: within a known number of epochs, it is a count of epochs.
    fn reading(&mut self, count: Count, now: ReadTime) -> Option<Reading> {
        let epoch = match count.epoch {
            Some(epoch) if count.done.is_none() => {
                self.epoch = Some(epoch).filter(|_| count.is_header);
                Some(epoch)
            }
            // What a program counts without naming its epoch is within the one that it has just named.
            None if is_within_epochs(&count.label) && count.total.is_some() => self.epoch,
            epoch => epoch,
        };
        let part = match (count.done, count.total) {
            (Some(done), Some(total)) => Some((done, total)),
            _ => None,
        };
        if let (Some(epoch), Some((done, total))) = (epoch, part) {
            self.detect_steps_of_the_run(EpochProgress { number: epoch.number, done, total });
        }
        let counts_run = part.is_some_and(|(_, total)| Some(total) == self.run_total);
        let Some(epoch) = epoch.filter(|_| !counts_run) else {
            let left_s = seconds(count.left, now, true);
            let done = count.done?;
            let steps = self.run_steps.filter(|steps| is_step(&count.label) && done <= *steps);
            let total = count.total.or(steps);
            // A step alone says nothing about the whole.
            if total.is_none() && left_s.is_none() {
                return None;
            }
            let key = Key { format: count.format, label: count.label, total };
            return Some(Reading { key, done, is_part: false, epoch: None, left_s });
        };
        let in_epoch = part.map(|(done, total)| EpochProgress { number: epoch.number, done, total });
        let (key, done) = match epoch.total {
            Some(total) => {
                let key = Key { format: None, label: "epoch".to_owned(), total: Some(total) };
                let is_zero_based = epoch.number == 0.0 || self.is_zero_based(&key);
                let before = if is_zero_based { epoch.number } else { epoch.number - 1.0 };
                let of_part = |(done, total): (f64, f64)| {
                    (before + done / total).clamp(0.0, epoch.total.unwrap_or(0.0))
                };
                (key, part.map_or(epoch.number, of_part))
            }
            None => (Key { format: count.format, label: count.label, total: count.total }, count.done?),
        };
        // The time that is left of an epoch is not that of the program.
        let left_s = seconds(count.left, now, false);
        Some(Reading { key, done, is_part: epoch.total.is_none(), epoch: in_epoch, left_s })
    }

    /// Steps that do not begin again in the next epoch count through all of them. Two readings may be an epoch apart:
    /// steps that began again once are those of an epoch.
    fn detect_steps_of_the_run(&mut self, now: EpochProgress) {
        let last = self.in_epoch.replace(now);
        let Some(last) = last.filter(|last| last.total == now.total && last.number < now.number) else {
            return;
        };
        if now.done < last.done {
            self.epoch_total = Some(now.total);
            if self.run_total.take_if(|total| *total == now.total).is_some() {
                self.counters.retain(|counter| counter.key.total != Some(now.total));
            }
        } else if now.done > last.done && self.epoch_total != Some(now.total) {
            self.run_total = Some(now.total);
        }
    }

    fn is_zero_based(&self, key: &Key) -> bool {
        self.counters.iter().any(|known| known.key == *key && known.is_zero_based)
    }

    fn observe(&mut self, reading: Reading, now_ms: u64) {
        if let Some(counter) = self.counters.iter_mut().find(|known| known.key == reading.key) {
            counter.observe(&reading, now_ms);
            return;
        }
        if self.counters.len() == MAX_COUNTERS {
            let oldest = (0..self.counters.len()).min_by_key(|at| self.counters[*at].last_ms());
            oldest.map(|at| self.counters.swap_remove(at));
        }
        self.counters.push(Counter::new(reading, now_ms));
    }

    /// The progress of the program as a whole: of the counters that still advance, the one with the longest way to go.
    pub fn progress(&self, now_ms: u64) -> Option<Progress> {
        let current =
            |counter: &&Counter| now_ms.saturating_sub(counter.last_ms()) <= counter.stale_after_ms();
        // Without an epoch, the progress of a part says nothing about the program.
        let is_known = |counter: &&Counter| !counter.is_part || counter.epoch.is_some();
        // Setup that is complete is not the program.
        let is_over = |progress: &Progress| {
            is_auxiliary(progress.label.as_str())
                && progress.total.is_some_and(|total| progress.done >= total)
        };
        let current = self.counters.iter().filter(current).filter(is_known);
        current.map(|counter| counter.progress(now_ms)).filter(|known| !is_over(known)).max_by(by_relevance)
    }
}

/// Seconds that are left for the program; for the counter of a line as well if that `is_whole`.
fn seconds(left: Option<Left>, now: ReadTime, is_whole: bool) -> Option<f64> {
    match left? {
        Left::Counter(left_s) => is_whole.then_some(left_s),
        Left::Program(left_s) => Some(left_s),
        Left::Until(local_s) => {
            Some(local_s.saturating_sub(now.wall_s + now.utc_offset_s) as f64).filter(|left_s| *left_s >= 0.0)
        }
    }
}

impl Reading {
    /// Returns whether it follows a larger one because the counter began again: from its end to its start, or in the
    /// next epoch.
    fn is_restart_of(&self, before: f64, epoch: Option<EpochProgress>) -> bool {
        let is_next_epoch = match (epoch, self.epoch) {
            (Some(before), Some(now)) => self.is_part && now.number != before.number,
            _ => false,
        };
        let Some(total) = self.key.total else { return is_next_epoch };
        let is_back = self.done < before;
        is_next_epoch || is_back && (before >= total || self.done <= 0.1 * total && before >= 0.5 * total)
    }

    fn begins_again(&self, next: &Self) -> bool {
        next.is_restart_of(self.done, self.epoch)
    }
}

impl Counter {
    fn new(reading: Reading, now_ms: u64) -> Self {
        let mut counter = Self {
            observations: VecDeque::from([(now_ms, reading.done)]),
            is_part: reading.is_part,
            epoch: None,
            is_zero_based: false,
            lower_reads: 0,
            estimate: None,
            left_s: None,
            key: reading.key.clone(),
        };
        counter.apply_epoch_and_estimate(&reading, now_ms);
        counter
    }

    /// Takes over the epoch and the estimate that a line states.
    fn apply_epoch_and_estimate(&mut self, reading: &Reading, now_ms: u64) {
        self.epoch = reading.epoch.or(self.epoch);
        self.is_zero_based |= self.epoch.is_some_and(|epoch| epoch.number == 0.0);
        self.left_s = reading.left_s;
        if let Some(left_s) = reading.left_s {
            self.estimate = Some((now_ms.saturating_add((1_000.0 * left_s) as u64), now_ms));
        }
    }

    /// After how long without progress it no longer counts, in ms: an epoch may take hours.
    fn stale_after_ms(&self) -> u64 {
        let gaps = self.observations.iter().zip(self.observations.iter().skip(1));
        let longest_ms = gaps.map(|((before, _), (after, _))| after.saturating_sub(*before)).max();
        STALE_MS.max(longest_ms.unwrap_or(0).saturating_mul(2))
    }

    fn last_ms(&self) -> u64 {
        self.observations.back().map_or(0, |(at_ms, _)| *at_ms)
    }

    fn observe(&mut self, reading: &Reading, now_ms: u64) {
        self.is_part |= reading.is_part;
        match (self.epoch, reading.epoch) {
            (Some(_), None) => return,
            (None, Some(_)) => self.observations.clear(),
            _ => {}
        }
        let last = self.observations.back().map(|(_, done)| *done);
        match last {
            Some(last) if reading.is_restart_of(last, self.epoch) => {
                self.is_part = true;
                self.estimate = None;
                self.observations.clear();
            }
            Some(last) if reading.done < last => {
                // A rank that is behind, or a program that resumed from a checkpoint.
                self.lower_reads += 1;
                if self.lower_reads < MAX_LOWER_READS {
                    return;
                }
                self.observations.clear();
            }
            Some(last) if reading.done == last => {
                self.lower_reads = 0;
                // An unchanged line, such as the bar of a hung program, is no new estimate.
                if reading.left_s.is_some() && reading.left_s != self.left_s {
                    self.apply_epoch_and_estimate(reading, now_ms);
                }
                return;
            }
            _ => {}
        }
        self.lower_reads = 0;
        self.apply_epoch_and_estimate(reading, now_ms);
        if self.observations.len() == MAX_OBSERVATIONS {
            let mut at = 0;
            self.observations.retain(|_| {
                at += 1;
                at % 2 == 1
            });
        }
        self.observations.push_back((now_ms, reading.done));
    }

    fn progress(&self, now_ms: u64) -> Progress {
        let (advanced_ms, done) = self.observations.back().copied().unwrap_or_default();
        let count = self.observations.len();
        // The first step compiles and fills buffers.
        let first = usize::from(count > 2);
        let rate = self.rate(first, count);
        let measured = self
            .key
            .total
            .and_then(|total| self.measured_end(total - done, first, count, rate?, advanced_ms));
        // One that has stood still for longer than it had left has no end that is known.
        let end_ms =
            self.estimated_end(measured, now_ms).or(measured).filter(|(_, latest_ms)| *latest_ms >= now_ms);
        let steady_ms = self.observations.get(first).map_or(0, |(at_ms, _)| advanced_ms - at_ms);
        let progress = Progress {
            label: self.key.label.as_str().into(),
            done,
            total: self.key.total,
            epoch: self.epoch,
            advanced_ms,
            rate,
            end_ms,
            steady_ms,
            advances: count.saturating_sub(first + 1),
        };
        match self.epoch {
            // Of how many epochs is not known.
            Some(epoch) if self.is_part => Progress {
                label: "epoch".into(),
                done: epoch.number,
                total: None,
                rate: None,
                end_ms: self.estimated_end(None, now_ms),
                ..progress
            },
            _ => progress,
        }
    }

    /// The program's own estimate, while it is recent and agrees with the measured one.
    fn estimated_end(&self, measured: Option<(u64, u64)>, now_ms: u64) -> Option<(u64, u64)> {
        let (end_ms, read_ms) = self.estimate?;
        let left_ms = |end_ms: u64| end_ms.saturating_sub(read_ms).max(MIN_SPAN_MS) as f64;
        let agrees = measured.is_none_or(|(earliest_ms, latest_ms)| {
            left_ms(end_ms) * ESTIMATE_FACTOR >= left_ms(earliest_ms)
                && left_ms(end_ms) <= left_ms(latest_ms) * ESTIMATE_FACTOR
        });
        let is_recent = now_ms.saturating_sub(read_ms) <= ESTIMATE_MS;
        (agrees && is_recent && end_ms >= now_ms).then_some((end_ms, end_ms))
    }

    /// When all will be done, in ms of the relay's clock, by the rates that were observed.
    fn measured_end(
        &self,
        left: f64,
        first: usize,
        count: usize,
        rate: f64,
        advanced_ms: u64,
    ) -> Option<(u64, u64)> {
        // A program that slows down, or that has been evaluating, is not as regular as its mean.
        let middle = usize::midpoint(first, count);
        let halves = [self.rate(first, middle + 1), self.rate(middle, count)];
        let left = left.max(0.0);
        let is_number = self.epoch.is_none() && matches!(self.key.label.as_str(), "epoch" | "round");
        // Whether the number of an epoch is that of one that begins or ends is not known.
        let at_most = if is_number { left + 1.0 } else { left };
        let rates = halves.into_iter().flatten().chain([rate]);
        let after = |left: f64, rate: f64| advanced_ms.saturating_add((1_000.0 * left / rate) as u64);
        let (slowest, fastest) =
            rates.fold((f64::MAX, f64::MIN), |(low, high), rate| (low.min(rate), high.max(rate)));
        Some((after(left, fastest), after(at_most, slowest)))
    }

    /// How many are done per second between two observations, if they are far enough apart.
    fn rate(&self, from: usize, to: usize) -> Option<f64> {
        let (first, last) = (self.observations.get(from)?, self.observations.get(to.checked_sub(1)?)?);
        let (span_ms, done) = (last.0.saturating_sub(first.0), last.1 - first.1);
        (span_ms >= MIN_SPAN_MS && done > 0.0).then(|| 1_000.0 * done / span_ms as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(relay_ms: u64) -> ReadTime {
        ReadTime { relay_ms, ..ReadTime::default() }
    }

    fn read(tracker: &mut ProgressTracker, line: &str, now_s: u64) {
        tracker.read([line].into_iter(), at(now_s * 1_000));
    }

    #[test]
    fn the_rate_and_the_end_are_those_of_the_time_observed() {
        let mut tracker = ProgressTracker::default();
        for minute in 0..=20 {
            read(&mut tracker, &format!("step {}/1000", 100 + 10 * minute), 60 * minute);
        }
        let progress = tracker.progress(1_200_000).unwrap();
        assert_eq!((progress.done, progress.pct()), (300.0, Some(30.0)));
        assert!((progress.rate.unwrap() - 1.0 / 6.0).abs() < 1e-9);
        let (earliest, latest) = progress.end_ms.unwrap();
        assert_eq!((earliest, latest), (1_200_000 + 4_200_000, 1_200_000 + 4_200_000));
        assert_eq!((progress.steady_ms, progress.advances), (19 * 60_000, 19));
        assert_eq!(tracker.progress(1_200_000 + STALE_MS + 1), None, "it stands still");
    }

    #[test]
    fn a_rate_needs_a_minute_and_is_uncertain_where_it_changes() {
        let mut tracker = ProgressTracker::default();
        read(&mut tracker, "step 10/1000", 0);
        read(&mut tracker, "step 20/1000", 30);
        assert_eq!(tracker.progress(30_000).unwrap().end_ms, None);
        for (step, second) in [(30, 60), (40, 120), (50, 180), (60, 480), (70, 960)] {
            read(&mut tracker, &format!("step {step}/1000"), second);
        }
        let (earliest, latest) = tracker.progress(960_000).unwrap().end_ms.unwrap();
        assert!(latest > earliest + (earliest - 960_000) / 2, "{earliest} {latest}");
    }

    #[test]
    fn a_bar_that_begins_again_is_not_the_program() {
        let mut tracker = ProgressTracker::default();
        for minute in 0..10 {
            let lines = [
                format!("Epoch {}/50", minute / 2 + 1),
                format!("Train: {}%|##| {}/1000 [", 50, 100 + 400 * (minute % 2)),
            ];
            tracker.read(lines.iter().map(String::as_str), at(minute * 60_000));
        }
        let progress = tracker.progress(600_000).unwrap();
        assert_eq!((progress.label.as_str(), progress.done, progress.total), ("epoch", 5.0, Some(50.0)));
        assert!(progress.end_ms.is_some());
    }

    #[test]
    fn the_first_step_is_no_measure_of_the_others() {
        let mut tracker = ProgressTracker::default();
        read(&mut tracker, "step 0/1000", 0);
        read(&mut tracker, "step 1/1000", 90);
        for second in [100, 110, 120, 130, 140, 150, 160] {
            read(&mut tracker, &format!("step {}/1000", second - 90), second);
        }
        assert!((tracker.progress(160_000).unwrap().rate.unwrap() - 1.0).abs() < 0.05);
    }

    #[test]
    fn ranks_that_are_behind_and_a_resumed_program_do_not_hide_progress() {
        let mut tracker = ProgressTracker::default();
        for second in (0..300).step_by(10) {
            let lines = [format!("step {}/1000", 100 + second), format!("step {}/1000", 99 + second)];
            tracker.read(lines.iter().map(String::as_str), at(second * 1_000));
        }
        read(&mut tracker, "step 380/1000", 300);
        assert_eq!(tracker.progress(300_000).unwrap().done, 390.0, "one rank");
        for (reading, second) in (310..400).step_by(10).enumerate() {
            read(&mut tracker, &format!("step {}/1000", 300 + reading), second);
        }
        let progress = tracker.progress(400_000).unwrap();
        assert_eq!(progress.done, 308.0, "it resumed from a checkpoint");
    }

    #[test]
    fn a_bar_names_its_epoch_and_is_a_part_of_it() {
        let mut tracker = ProgressTracker::default();
        read(&mut tracker, "Epoch 3/99:  45%|####5     | 450/1000 [01:23<01:41,  5.43it/s]", 0);
        let progress = tracker.progress(0).unwrap();
        assert_eq!((progress.label.as_str(), progress.done, progress.total), ("epoch", 2.45, Some(99.0)));
        read(&mut tracker, "Epoch 4:  45%|####5     | 450/2000 [01:23<01:41,  5.43it/s]", 10);
        assert_eq!(tracker.progress(10_000).unwrap().total, Some(99.0));
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut tracker = ProgressTracker::default();
        for number in 0..10_000u64 {
            let line = format!("step {}/{}", number % 900, 1_000 + number % 100);
            tracker.read(
                [line.as_str(), "step 999999999999999999999999/9999999999999999999999999999"].into_iter(),
                at(number * 1_000),
            );
        }
        assert!(tracker.counters.len() <= MAX_COUNTERS);
        assert!(tracker.counters.iter().all(|counter| counter.observations.len() <= MAX_OBSERVATIONS));
    }
}
