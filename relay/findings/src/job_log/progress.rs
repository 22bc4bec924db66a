//! Progress of a program by the counters in its log.

use super::count::{self, Count, Epoch, Left};
use super::counter::{Counter, Key, MAX_LOWER_READS, Progress, Reading};
use nodeglass_protocol::insight::EpochProgress;
use std::cmp::Ordering;

/// Maximum number of counters that are followed per log: a bar for each epoch is one.
const MAX_COUNTERS: usize = 8;
/// The counters in a log.
#[derive(Debug, Default)]
pub struct ProgressTracker {
    counters: Vec<Counter>,
    /// The epoch that the last line without other counts named.
    epoch: Option<Epoch>,
    /// Number of steps of the whole run, which a line states once.
    run_steps: Option<f64>,
    /// The last count within an epoch.
    in_epoch: Option<EpochProgress>,
    /// The total of steps that count through all epochs, although lines name the epoch as well.
    run_total: Option<f64>,
    /// The number of epochs that are counted from zero.
    zero_based: Option<f64>,
    /// The total of steps that began again in an epoch.
    epoch_total: Option<f64>,
    /// Whether a line stated a fraction of an epoch.
    has_epoch_fractions: bool,
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
    /// When their log was last written, in s since 1970, by the clock of its file system; `None` if that is not known.
    pub written_s: Option<i64>,
}

/// Returns the counter of the program: of two incomplete counters, the one that ends last.
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
        // A bar with a known end may count a part of an epoch.
        let is_run_of_epochs = progress.label.as_str() == "epoch" && progress.total.is_some() && !is_complete;
        let is_main = !is_auxiliary(progress.label.as_str());
        (is_main, is_run_of_epochs, !is_complete, is_whole, end_ms, progress.advanced_ms)
    };
    key(a).cmp(&key(b))
}

/// Returns whether the label names setup or evaluation work rather than the main loop.
fn is_auxiliary(label: &str) -> bool {
    const WORK: &str = "cach captur casting compil download eval extract fetch filter generating index load map \
                        predict prepar resolving sanity saving scan test tokeniz valid warm";
    let label = label.to_ascii_lowercase();
    WORK.split(' ').any(|work| label.starts_with(work))
}

/// Returns whether a counter of this name may count within an epoch.
fn is_within_epochs(label: &str) -> bool {
    label.is_empty() || label == "batch" || is_step(label)
}

/// Returns whether a counter counts steps by its name.
fn is_step(label: &str) -> bool {
    matches!(label, "step" | "iter" | "iteration" | "update" | "kimg")
}

/// Returns whether a bar counts the whole run by its name: `steps`, `Training Progress`.
fn names_run(label: &str) -> bool {
    let label = label.to_ascii_lowercase();
    let is_of_run =
        |word: &str| matches!(word, "step" | "steps" | "epoch" | "epochs" | "progress" | "overall" | "total");
    label.split_whitespace().any(is_of_run)
}

/// Returns whether a line states a count.
pub(super) fn is_count(line: &str) -> bool {
    count::parse(line).is_some_and(|count| !count.is_weak && (count.done.is_some() || count.epoch.is_some()))
}

/// Adds a reading to the newest ones of each counter.
fn take_in(newest: &mut Vec<Reading>, resumed: &mut Resumed, reading: Reading) {
    match newest.iter().position(|known| known.key == reading.key) {
        // A lone number of an epoch may be stated at its beginning or at its end.
        Some(at) if newest[at].epoch.is_some() && reading.epoch.is_none() => {}
        Some(at) if newest[at].epoch.is_none() && reading.epoch.is_some() => {
            newest[at] = Reading { is_sure: reading.is_sure || newest[at].is_sure, ..reading };
        }
        Some(at) if reading.is_evaluation_in(newest[at].epoch) => {}
        Some(at) if newest[at].begins_again(&reading) => {
            newest[at] = Reading { is_part: true, ..reading };
        }
        Some(at) if reading.done >= newest[at].done || resumed.is_seen(at, reading.done) => {
            let is_part = reading.is_part || newest[at].is_part;
            let is_sure = newest[at].is_sure || reading.done > newest[at].done;
            *resumed = Resumed::default();
            newest[at] = Reading { is_part, is_sure, ..reading };
        }
        None if newest.len() < MAX_COUNTERS => newest.push(reading),
        Some(_) | None => {}
    }
}

impl ProgressTracker {
    /// Takes in the lines that were read at a time, and the incomplete one at the end: a bar, or a part of a line.
    pub fn read<'a>(
        &mut self,
        lines: impl Iterator<Item = &'a str>,
        partial: Option<&'a str>,
        now: ReadTime,
    ) {
        // All were written since the last reading: of each counter the largest counts, as ranks write theirs in any
        // order, unless it began again in between.
        let mut newest: Vec<Reading> = Vec::new();
        let mut resumed = Resumed::default();
        let mut before: Option<Key> = None;
        let lines = lines.map(|line| (line, true)).chain(partial.map(|line| (line, false)));
        for (line, is_whole) in lines {
            self.has_epoch_fractions |= count::has_epoch_fraction(line);
            let Some(count) = count::parse(line) else { continue };
            self.run_steps = count.run_steps.or(self.run_steps);
            if count.done.is_none() && count.epoch.is_none() {
                // An estimate on a line of its own is of the count before it.
                if let Some(last) = newest.iter_mut().find(|known| Some(&known.key) == before.as_ref()) {
                    last.left_s = seconds(count.left, now, true);
                }
                continue;
            }
            let Some(reading) = self.reading(count, is_whole, now) else { continue };
            before = Some(reading.key.clone());
            take_in(&mut newest, &mut resumed, reading);
        }
        let run_total = self.run_total;
        let is_misread =
            |epoch: Option<EpochProgress>| epoch.is_some_and(|epoch| Some(epoch.total) == run_total);
        newest.retain(|reading| !is_misread(reading.epoch));
        self.counters.retain(|counter| !is_misread(counter.epoch));
        newest.into_iter().for_each(|reading| self.observe(reading, now.relay_ms));
    }

    /// Returns the meaning of a line for a counter: within a known number of epochs, it is a count of epochs.
    fn reading(&mut self, count: Count, is_whole: bool, now: ReadTime) -> Option<Reading> {
        // A truncated line may state wrong numbers: it counts once it has grown, or is read again unchanged.
        let is_sure = is_whole && !count.is_weak;
        let epoch = self.epoch_of(&count, is_whole);
        let part = count.done.zip(count.total);
        // Between two frames of a bar, any number of epochs may pass.
        if let (Some(epoch), Some((done, total)), true) = (epoch, part, is_whole) {
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
            return Some(Reading { key, done, is_part: count.is_part, is_sure, epoch: None, left_s });
        };
        let in_epoch = part.map(|(done, total)| EpochProgress { number: epoch.number, done, total });
        let (key, done) = match epoch.total {
            Some(total) => {
                let key = Key { format: None, label: "epoch".to_owned(), total: Some(total) };
                (key, self.epochs_done(epoch.number, total, part))
            }
            None => (Key { format: count.format, label: count.label, total: count.total }, count.done?),
        };
        // The time left of an epoch is not the time left of the program.
        let left_s = seconds(count.left, now, false);
        Some(Reading { key, done, is_part: epoch.total.is_none(), is_sure, epoch: in_epoch, left_s })
    }

    /// The epoch in which a line counts, if any.
    fn epoch_of(&mut self, count: &Count, is_whole: bool) -> Option<Epoch> {
        let epoch = match count.epoch {
            Some(epoch) if count.done.is_none() => {
                if is_whole {
                    self.epoch = Some(epoch).filter(|_| count.is_header);
                }
                Some(epoch)
            }
            // A count without an epoch is within the epoch that the program has just named.
            None if is_within_epochs(&count.label) && count.total.is_some() => self.epoch,
            epoch => epoch,
        };
        // A bar of epochs may name the running epoch: `Epoch 12/400:  3%|▎ | 11/400`.
        epoch.filter(|epoch| {
            let behind = count.done.map(|done| epoch.number - done);
            epoch.total.is_none() || epoch.total != count.total || !matches!(behind, Some(0.0 | 1.0))
        })
    }

    /// Returns the number of epochs that are done, with the part of the running one.
    fn epochs_done(&mut self, number: f64, epochs: f64, part: Option<(f64, f64)>) -> f64 {
        if number == 0.0 {
            self.zero_based = Some(epochs);
        }
        let before = if self.zero_based == Some(epochs) { number } else { number - 1.0 };
        part.map_or(number, |(done, total)| (before + done / total).clamp(0.0, epochs))
    }

    /// Steps that do not begin again in the next epoch count through all of them. Two readings may be an epoch apart:
    /// steps that began again once are steps of an epoch.
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
        let is_known = |counter: &&Counter| counter.is_sure && (!counter.is_part || counter.epoch.is_some());
        // Setup that is complete is not the program.
        let is_over = |progress: &Progress| {
            is_auxiliary(progress.label.as_str())
                && progress.total.is_some_and(|total| progress.done >= total)
        };
        let current = self.counters.iter().filter(current).filter(is_known);
        let known: Vec<(Progress, &Counter)> = current
            .map(|counter| (counter.progress(now_ms), counter))
            .filter(|(known, _)| !is_over(known))
            .collect();
        // The outer one of nested bars has no estimate until its first part is done.
        let outer = known.iter().find(|(progress, _)| !is_auxiliary(progress.label.as_str()));
        let is_at_start =
            |outer: &Progress| outer.done == 0.0 && outer.total.is_some() && outer.end_ms.is_none();
        let (progress, counter) = match outer.filter(|(outer, _)| is_at_start(outer)) {
            Some(outer) => outer.clone(),
            None => known.into_iter().max_by(|(a, _), (b, _)| by_relevance(a, b))?,
        };
        Some(match self.may_be_part(counter) {
            true => Progress { end_ms: None, part_end_ms: progress.end_ms, ..progress },
            false => progress,
        })
    }

    /// Returns whether a counter may count a part of the run: no line says that its total is the total of the run. The
    /// first bar of an epoch looks like the bar of a run.
    fn may_be_part(&self, counter: &Counter) -> bool {
        let Key { format, label, total } = &counter.key;
        if counter.epoch.is_some() {
            return false;
        }
        let is_steps_of_run = total.is_some() && *total == self.run_steps;
        let is_through_epochs = label.is_empty() && self.has_epoch_fractions;
        let is_bar = format.is_some_and(count::is_bar) || label == "batch";
        is_auxiliary(label) || is_bar && !names_run(label) && !is_steps_of_run && !is_through_epochs
    }
}

/// Detects a counter that resumed from a checkpoint: its lower counts grow, unlike the counts of ranks that lag
/// behind.
#[derive(Default)]
struct Resumed {
    /// The position of the counter, and its last count below the largest.
    last: Option<(usize, f64)>,
    growths: u32,
}

impl Resumed {
    /// Takes in a count below the largest of a counter.
    fn is_seen(&mut self, at: usize, done: f64) -> bool {
        self.growths += u32::from(self.last.is_some_and(|(counter, last)| counter == at && done > last));
        self.last = Some((at, done));
        self.growths >= MAX_LOWER_READS
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

#[cfg(test)]
mod tests {
    use super::super::counter::{MAX_OBSERVATIONS, STALE_MS};
    use super::*;

    fn at(relay_ms: u64) -> ReadTime {
        ReadTime { relay_ms, ..ReadTime::default() }
    }

    fn read(tracker: &mut ProgressTracker, line: &str, now_s: u64) {
        tracker.read([line].into_iter(), None, at(now_s * 1_000));
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
            tracker.read(lines.iter().map(String::as_str), None, at(minute * 60_000));
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
            tracker.read(lines.iter().map(String::as_str), None, at(second * 1_000));
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
    fn a_truncated_line_counts_once_it_has_grown() {
        let mut tracker = ProgressTracker::default();
        let lines = ["step 118/5000", "step 119/5000"];
        tracker.read(lines.into_iter(), Some("step 120/500"), at(0));
        assert_eq!(tracker.progress(0).unwrap().total, Some(5000.0));
        let mut tracker = ProgressTracker::default();
        let bar = |done: u32| format!("Train:  4%|#  | {done}/1000 [00:40<16:00,  1.00it/s]");
        tracker.read(std::iter::empty(), Some(&bar(40)), at(0));
        assert_eq!(tracker.progress(0), None);
        tracker.read(std::iter::empty(), Some(&bar(50)), at(10_000));
        assert_eq!(tracker.progress(10_000).unwrap().done, 50.0);
    }

    #[test]
    fn a_bar_that_is_drawn_is_within_the_epoch_of_the_line_before_it() {
        let mut tracker = ProgressTracker::default();
        let bar = " 45%|####5     | 450/1000 [01:23<01:41,  5.43it/s]";
        tracker.read(["Epoch 3/10"].into_iter(), Some(bar), at(0));
        assert_eq!(tracker.progress(0).unwrap().done, 2.45);
    }

    #[test]
    fn the_end_of_a_bar_is_the_end_of_the_run_only_if_the_log_says_so() {
        let ends = |before: &str, label: &str| {
            let mut tracker = ProgressTracker::default();
            for second in 0..200 {
                let bar = format!("{label} 45%|####5     | {}/1000 [01:23<01:41,  5.43it/s]", 400 + second);
                tracker.read([before].into_iter(), Some(&bar), at(1_000 * second));
            }
            let progress = tracker.progress(199_000).unwrap();
            assert!(progress.end_ms.is_none() || progress.part_end_ms.is_none());
            (progress.end_ms.is_some(), progress.part_end_ms.is_some())
        };
        for (before, label) in [("", ""), ("", "Train"), ("Epoch 1 loss 0.5", ""), ("", "Loading weights")] {
            assert_eq!(ends(before, label), (false, true), "{before} {label}");
        }
        let through_epochs = "{'loss': 1.8231, 'learning_rate': 1.9e-05, 'epoch': 0.04}";
        for (before, label) in [
            (through_epochs, ""),
            ("{'loss': '1.8', 'epoch': '0.04'}", ""),
            ("  Total optimization steps = 1,000", ""),
            ("", "steps:"),
            ("", "Training Progress:"),
        ] {
            assert_eq!(ends(before, label), (true, false), "{before} {label}");
        }
        assert_eq!(ends("{'loss': 1.8231, 'epoch': 1}", ""), (false, true), "a whole epoch");
        assert_eq!(ends(through_epochs, "Evaluating"), (false, true));
    }

    #[test]
    fn frames_of_a_bar_in_two_epochs_are_not_steps_of_the_run() {
        let mut tracker = ProgressTracker::default();
        for (number, done) in [(3, 40), (3, 90), (4, 95)] {
            let bar = format!("Epoch {number}: 40%|####| {done}/100 [00:40<00:05,  1.00it/s]");
            tracker.read(std::iter::empty(), Some(&bar), at(10_000 * number));
        }
        let progress = tracker.progress(50_000).unwrap();
        assert_eq!((progress.label.as_str(), progress.done, progress.total), ("epoch", 4.0, None));
    }

    #[test]
    fn a_program_that_resumed_counts_from_there_and_ranks_do_not() {
        let mut tracker = ProgressTracker::default();
        let read = |tracker: &mut ProgressTracker, steps: &[u32]| {
            let lines: Vec<String> = steps.iter().map(|step| format!("step {step}/1000")).collect();
            tracker.read(lines.iter().map(String::as_str), None, at(0));
            tracker.progress(0).unwrap().done
        };
        assert_eq!(read(&mut tracker, &[900, 897, 898, 901, 898, 899, 902, 899, 900, 903, 899]), 903.0);
        let mut tracker = ProgressTracker::default();
        assert_eq!(read(&mut tracker, &[900, 910, 800, 810, 820, 830, 840]), 840.0);
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
                None,
                at(number * 1_000),
            );
        }
        assert!(tracker.counters.len() <= MAX_COUNTERS);
        assert!(tracker.counters.iter().all(|counter| counter.observations.len() <= MAX_OBSERVATIONS));
    }
}
