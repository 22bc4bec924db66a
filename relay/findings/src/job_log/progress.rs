//! How far a program is by its log, how fast it advances, and when it will be done.

use nodeglass_protocol::Text;
use nodeglass_redact::mask;
use regex::{Captures, Regex};
use std::cmp::Ordering;
use std::collections::VecDeque;
use std::sync::LazyLock;

/// Maximum number of counters that are followed per log: a bar for each epoch is one.
const MAX_COUNTERS: usize = 8;
/// Maximum number of observations per counter; of more, every second one is dropped.
const MAX_OBSERVATIONS: usize = 64;
/// Time in ms over which the rate is measured at least: evaluations and checkpoints interrupt the steps.
const MIN_SPAN_MS: u64 = 60_000;
/// Time in ms after which a counter that stands still no longer counts as the program's progress.
const STALE_MS: u64 = 3_600_000;
/// Number of consecutive reads with a lower count after which a counter has restarted: ranks interleave their lines.
const MAX_BEHIND: u32 = 3;
/// Maximum length of a counter's name, in chars.
const MAX_LABEL: usize = 32;

/// How far a program is.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// What is counted, as the log names it, masked: `epoch`, `step`; empty for a bar without a name.
    pub label: Text,
    /// How many are done.
    pub done: f64,
    /// Of how many.
    pub total: f64,
    /// When `done` last grew, in ms of the relay's clock.
    pub advanced_ms: u64,
    /// How many are done per second; `None` until it can be measured.
    pub rate: Option<f64>,
    /// When all will be done, in ms of the relay's clock: the earliest and the latest, by the fastest and the slowest
    /// part of the time observed.
    pub end_ms: Option<(u64, u64)>,
    /// For how long the rate was measured, in ms, without the first count: it includes compilation.
    pub steady_ms: u64,
    /// How often the count was seen to grow in that time.
    pub advances: usize,
}

impl Progress {
    /// How much is done, in %.
    pub fn pct(&self) -> f64 {
        (100.0 * self.done / self.total).clamp(0.0, 100.0)
    }
}

/// The counters in a log.
#[derive(Debug, Default)]
pub struct ProgressTracker {
    counters: Vec<Counter>,
}

#[derive(Debug)]
struct Counter {
    label: String,
    total: f64,
    observations: VecDeque<(u64, f64)>,
    /// Whether it began again: what it counts is a part of the program's work.
    is_part: bool,
    /// In how many readings in a row it stood behind the last observation.
    behind: u32,
}

/// A count as it stands in a line.
#[derive(Clone, Debug, PartialEq)]
struct Count {
    label: String,
    done: f64,
    total: f64,
    /// Whether it is of one epoch by its name.
    is_part: bool,
}

/// Of two counters, the one that is the program's: of those that are not complete the one that ends last.
pub(super) fn longest(a: Option<Progress>, b: Option<Progress>) -> Option<Progress> {
    match (a, b) {
        (Some(a), Some(b)) => Some(if by_end(&a, &b) == Ordering::Less { b } else { a }),
        (a, b) => a.or(b),
    }
}

fn by_end(a: &Progress, b: &Progress) -> Ordering {
    let key = |progress: &Progress| {
        let end_ms = progress.end_ms.map_or(0, |(_, latest)| latest);
        (progress.done < progress.total, end_ms, progress.advanced_ms)
    };
    key(a).cmp(&key(b))
}

/// Returns whether a line states a count.
pub(super) fn is_count(line: &str) -> bool {
    !counts(line).is_empty()
}

/// The number of a step that a line states, of how many or not: `step 1201 loss 2.09`, `iter 250: loss …`.
pub(super) fn step_number(line: &str) -> Option<u64> {
    static STEP: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(r"(?i)(?-u:\b)(?:step|iter|iteration|batch|update)s?(?-u:\b)[\s:=#\[]{0,4}([0-9]{1,15})")
            .ok()
    });
    STEP.as_ref()?.captures(line)?[1].parse().ok()
}

impl ProgressTracker {
    /// Takes in the lines that were read at a time, in ms of the relay's clock.
    pub fn read<'a>(&mut self, lines: impl Iterator<Item = &'a str>, now_ms: u64) {
        // All were written since the last reading: of each counter the largest counts, as ranks write theirs in any
        // order, unless it began again in between.
        let mut newest: Vec<Count> = Vec::new();
        for count in lines.flat_map(counts) {
            match newest.iter().position(|known| known.is_of(&count.label, count.total)) {
                Some(at) if begins_again(newest[at].done, &count) => {
                    newest[at] = Count { is_part: true, ..count };
                }
                Some(at) => newest[at].done = newest[at].done.max(count.done),
                None if newest.len() < MAX_COUNTERS => newest.push(count),
                None => {}
            }
        }
        newest.into_iter().for_each(|count| self.observe(count, now_ms));
    }

    fn observe(&mut self, count: Count, now_ms: u64) {
        let known = self.counters.iter_mut().find(|known| count.is_of(&known.label, known.total));
        if let Some(counter) = known {
            counter.observe(&count, now_ms);
            return;
        }
        if self.counters.len() == MAX_COUNTERS {
            let oldest = (0..self.counters.len()).min_by_key(|at| self.counters[*at].last_ms());
            oldest.map(|at| self.counters.swap_remove(at));
        }
        let observations = VecDeque::from([(now_ms, count.done)]);
        let Count { label, total, is_part, .. } = count;
        self.counters.push(Counter { label, total, observations, is_part, behind: 0 });
    }

    /// The progress of the program as a whole: of the counters that still advance, the one with the longest way to go.
    pub fn progress(&self, now_ms: u64) -> Option<Progress> {
        let current =
            |counter: &&Counter| now_ms.saturating_sub(counter.last_ms()) <= counter.stale_after_ms();
        let whole = self.counters.iter().filter(current).filter(|counter| !counter.is_part);
        // One that has stood still for longer than it had left has no end that is known.
        let progress = |counter: &Counter| {
            let progress = counter.progress();
            Progress { end_ms: progress.end_ms.filter(|(_, latest_ms)| *latest_ms >= now_ms), ..progress }
        };
        whole.map(progress).max_by(by_end)
    }
}

impl Count {
    fn is_of(&self, label: &str, total: f64) -> bool {
        self.label == label && self.total == total
    }
}

/// Returns whether a count follows a larger one because the counter began again: from its end to its start.
fn begins_again(before: f64, count: &Count) -> bool {
    let is_back = count.done < before;
    is_back && (before >= count.total || count.done <= 0.1 * count.total && before >= 0.5 * count.total)
}

impl Counter {
    /// After how long without progress it no longer counts, in ms: an epoch may take hours.
    fn stale_after_ms(&self) -> u64 {
        let gaps = self.observations.iter().zip(self.observations.iter().skip(1));
        let longest_ms = gaps.map(|((before, _), (after, _))| after.saturating_sub(*before)).max();
        STALE_MS.max(longest_ms.unwrap_or(0).saturating_mul(2))
    }

    fn last_ms(&self) -> u64 {
        self.observations.back().map_or(0, |(at_ms, _)| *at_ms)
    }

    fn observe(&mut self, count: &Count, now_ms: u64) {
        self.is_part |= count.is_part;
        let last = self.observations.back().map(|(_, done)| *done);
        match last {
            Some(last) if begins_again(last, count) => {
                self.is_part = true;
                self.observations.clear();
            }
            Some(last) if count.done < last => {
                // A rank that is behind, or a program that resumed from a checkpoint.
                self.behind += 1;
                if self.behind < MAX_BEHIND {
                    return;
                }
                self.observations.clear();
            }
            Some(last) if count.done == last => {
                self.behind = 0;
                return;
            }
            _ => {}
        }
        self.behind = 0;
        if self.observations.len() == MAX_OBSERVATIONS {
            let mut at = 0;
            self.observations.retain(|_| {
                at += 1;
                at % 2 == 1
            });
        }
        self.observations.push_back((now_ms, count.done));
    }

    fn progress(&self) -> Progress {
        let (advanced_ms, done) = self.observations.back().copied().unwrap_or_default();
        let count = self.observations.len();
        // The first step compiles and fills buffers.
        let first = usize::from(count > 2);
        let rate = self.rate(first, count);
        // A program that slows down, or that has been evaluating, is not as regular as its mean.
        let middle = usize::midpoint(first, count);
        let halves = [self.rate(first, middle + 1), self.rate(middle, count)];
        let left = (self.total - done).max(0.0);
        // Whether the number of an epoch is that of one that begins or ends is not known.
        let at_most = if self.label == "epoch" || self.label == "round" { left + 1.0 } else { left };
        let end_ms = rate.map(|rate| {
            let rates = halves.into_iter().flatten().chain([rate]);
            let after = |left: f64, rate: f64| advanced_ms.saturating_add((1_000.0 * left / rate) as u64);
            let (slowest, fastest) =
                rates.fold((f64::MAX, f64::MIN), |(low, high), rate| (low.min(rate), high.max(rate)));
            (after(left, fastest), after(at_most, slowest))
        });
        let steady_ms = self.observations.get(first).map_or(0, |(at_ms, _)| advanced_ms - at_ms);
        Progress {
            label: self.label.as_str().into(),
            done,
            total: self.total,
            advanced_ms,
            rate,
            end_ms,
            steady_ms,
            advances: count.saturating_sub(first + 1),
        }
    }

    /// How many are done per second between two observations, if they are far enough apart.
    fn rate(&self, from: usize, to: usize) -> Option<f64> {
        let (first, last) = (self.observations.get(from)?, self.observations.get(to.checked_sub(1)?)?);
        let (span_ms, done) = (last.0.saturating_sub(first.0), last.1 - first.1);
        (span_ms >= MIN_SPAN_MS && done > 0.0).then(|| 1_000.0 * done / span_ms as f64)
    }
}

/// `Epoch [3/10]`, `step: 1,200/5,000`, `iteration 1200 of 5000`, `step 5k/10k`; `other` follows in dates and other numbers.
static NAMED: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"(?i)(?-u:\b)(?P<label>epoch|(global[_ ]?)?step|iter(ation)?|batch|round|episode|update|frame|chunk)s?(?-u:\b)\s*[:=#]?\s*[\[(]?\s*(?P<done>[0-9][0-9,_]*)(?P<dm>[kM]?)\s*(/|of)\s*(?P<total>[0-9][0-9,_]*)(?P<tm>[kM]?)(?P<other>[/\w]|\.[0-9])?",
    )
    .ok()
});

/// Bars of tqdm and rich: `Epoch 3:  45%|████▌     | 450/1000 [01:23<01:41,  5.43it/s]`.
static BAR: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"^(?P<label>[^|%]*?)\s*[0-9]{1,3}%\|[^|]*\|\s*(?P<done>[0-9.]+)(?P<dm>[kMGT]?)/(?P<total>[0-9.]+)(?P<tm>[kMGT]?)\s*\[",
    )
    .ok()
});

/// `progress: 45.2 %`, `45 % done`.
static PERCENT: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"(?i)(?-u:\b)progress(?-u:\b)[^0-9]{0,12}(?P<done>[0-9]{1,3}(\.[0-9]+)?)\s?%|(?P<done2>[0-9]{1,3}(\.[0-9]+)?)\s?% (complete|done|finished)",
    )
    .ok()
});

/// Returns the counts in a line: a bar may name the epoch that it is of.
fn counts(line: &str) -> Vec<Count> {
    if line.len() > 2_000 || !line.bytes().any(|byte| byte.is_ascii_digit()) {
        return Vec::new();
    }
    let captures = |regex: &'static LazyLock<Option<Regex>>| regex.as_ref()?.captures(line);
    if let Some(found) = captures(&BAR) {
        let label = found.name("label").map_or("", |label| label.as_str());
        return [named(label), bar(&found, label)].into_iter().flatten().collect();
    }
    let count = named(line).or_else(|| percent(&captures(&PERCENT)?));
    count.into_iter().collect()
}

fn named(text: &str) -> Option<Count> {
    let found = NAMED.as_ref()?.captures(text)?;
    if found.name("other").is_some() {
        return None;
    }
    of(found["label"].to_lowercase(), scaled(&found, "done", "dm")?, scaled(&found, "total", "tm")?)
}

fn bar(found: &Captures<'_>, label: &str) -> Option<Count> {
    // A bar for each epoch is the same counter that begins again.
    let is_text = |c: &char| !c.is_ascii_digit() && *c != ':' && *c != '/';
    // As a whole: a part of a secret is not recognized.
    let label: String = mask::command(label).chars().filter(is_text).collect();
    let words: Vec<&str> = label.split_whitespace().collect();
    let count = of(words.join(" "), scaled(found, "done", "dm")?, scaled(found, "total", "tm")?)?;
    let is_part = count.label.to_lowercase().contains("epoch");
    Some(Count { is_part, ..count })
}

fn percent(found: &Captures<'_>) -> Option<Count> {
    let done = found.name("done").or_else(|| found.name("done2"))?.as_str().parse().ok()?;
    of("%".to_owned(), done, 100.0)
}

fn scaled(found: &Captures<'_>, number: &str, scale: &str) -> Option<f64> {
    let factor = match found.name(scale).map_or("", |scale| scale.as_str()) {
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        _ => 1.0,
    };
    Some(found.name(number)?.as_str().replace([',', '_'], "").parse::<f64>().ok()? * factor)
}

fn of(label: String, done: f64, total: f64) -> Option<Count> {
    let label: String = label.chars().take(MAX_LABEL).collect();
    (total > 1.0 && done <= total && total < 1e15).then_some(Count { label, done, total, is_part: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Option<(String, f64, f64)> {
        counts(line).into_iter().next().map(|count| (count.label, count.done, count.total))
    }

    #[test]
    fn counters_of_frameworks_are_recognized() {
        for (line, label, done, total) in [
            (" 45%|████▌     | 450/1000 [01:23<01:41,  5.43it/s, loss=0.1]", "", 450.0, 1000.0),
            ("Epoch 3:  45%|####5     | 450/1000 [01:23<01:41,  5.43it/s]", "Epoch", 450.0, 1000.0),
            ("Map:  10%|█         | 1.00k/10.0k [00:01<00:09]", "Map", 1000.0, 10000.0),
            (
                " iteration     1200/    5000 | consumed samples: 307200 | loss 2.1",
                "iteration",
                1200.0,
                5000.0,
            ),
            ("Epoch [3/10], Step [100/600], Loss: 0.31", "epoch", 3.0, 10.0),
            ("step: 1,200/5,000 loss 2.1", "step", 1200.0, 5000.0),
            ("Step 12 of 40", "step", 12.0, 40.0),
            ("step 5/10k loss 1.0", "step", 5.0, 10_000.0),
            ("epoch 3/10.", "epoch", 3.0, 10.0),
            ("Epoch 3/10: loss 0.2", "epoch", 3.0, 10.0),
            ("progress: 45.2 %", "%", 45.2, 100.0),
            ("37% complete", "%", 37.0, 100.0),
        ] {
            assert_eq!(parsed(line), Some((label.to_owned(), done, total)), "{line}");
        }
    }

    #[test]
    fn other_fractions_are_none() {
        for line in [
            "GPU 3/8 ready",
            "2026/11/26 10:00",
            "Last update: 01/10/2026 10:00:00",
            "batch 3/12.5 s",
            "step 5/10ms",
            "loss 0.3",
            "step 1200",
            "epoch 12/10",
            "acc 45 %",
            "epoch 1/1",
            "",
        ] {
            assert_eq!(parsed(line), None, "{line}");
        }
    }

    fn read(tracker: &mut ProgressTracker, line: &str, now_s: u64) {
        tracker.read([line].into_iter(), now_s * 1_000);
    }

    #[test]
    fn the_rate_and_the_end_are_those_of_the_time_observed() {
        let mut tracker = ProgressTracker::default();
        for minute in 0..=20 {
            read(&mut tracker, &format!("step {}/1000", 100 + 10 * minute), 60 * minute);
        }
        let progress = tracker.progress(1_200_000).unwrap();
        assert_eq!((progress.done, progress.pct()), (300.0, 30.0));
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
            tracker.read(lines.iter().map(String::as_str), minute * 60_000);
        }
        let progress = tracker.progress(600_000).unwrap();
        assert_eq!((progress.label.as_str(), progress.done, progress.total), ("epoch", 5.0, 50.0));
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
            tracker.read(lines.iter().map(String::as_str), second * 1_000);
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
        assert_eq!((progress.label.as_str(), progress.done, progress.total), ("epoch", 3.0, 99.0));
        read(&mut tracker, "Epoch 4:  45%|####5     | 450/2000 [01:23<01:41,  5.43it/s]", 10);
        assert_eq!(tracker.progress(10_000).unwrap().total, 99.0);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut tracker = ProgressTracker::default();
        for number in 0..10_000u64 {
            let line = format!("step {}/{}", number % 900, 1_000 + number % 100);
            tracker.read(
                [line.as_str(), "step 999999999999999999999999/9999999999999999999999999999"].into_iter(),
                number * 1_000,
            );
        }
        assert!(tracker.counters.len() <= MAX_COUNTERS);
        assert!(tracker.counters.iter().all(|counter| counter.observations.len() <= MAX_OBSERVATIONS));
    }
}
