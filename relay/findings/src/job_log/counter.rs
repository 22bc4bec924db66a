//! A counter in a log: what was observed of it, how fast it advances, and when it will be done.

use nodeglass_protocol::Text;
use nodeglass_protocol::insight::EpochProgress;
use std::collections::VecDeque;

/// Maximum number of observations per counter; of more, every second one is dropped.
pub(super) const MAX_OBSERVATIONS: usize = 64;
/// Time in ms over which the rate is measured at least: evaluations and checkpoints interrupt the steps.
const MIN_SPAN_MS: u64 = 60_000;
/// Time in ms after which a counter that stands still no longer counts as the program's progress.
pub(super) const STALE_MS: u64 = 3_600_000;
/// Number of consecutive reads with a lower count after which a counter has restarted: ranks interleave their lines.
pub(super) const MAX_LOWER_READS: u32 = 3;
/// Time in ms after which a program's own estimate no longer counts.
const ESTIMATE_MS: u64 = 600_000;
/// A program's own estimate counts while it differs from the measured rate by at most this factor.
const ESTIMATE_FACTOR: f64 = 2.0;

/// Progress of a program.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Progress {
    /// Unit of the counter as the log names it, masked: `epoch`, `step`; empty for a bar without a name.
    pub label: Text,
    /// Number of units that are done. Within an epoch, it includes the part of the epoch: 2.25 in the third one.
    pub done: f64,
    /// Total number of units; `None` if the log does not state it.
    pub total: Option<f64>,
    /// The epoch that runs, if the log states how far it is.
    pub epoch: Option<EpochProgress>,
    /// When `done` last grew, in ms of the relay's clock.
    pub advanced_ms: u64,
    /// Units per second; `None` until they can be measured.
    pub rate: Option<f64>,
    /// When all will be done, in ms of the relay's clock: the earliest and the latest. The program's own estimate, or
    /// by the fastest and the slowest part of the time observed.
    pub end_ms: Option<(u64, u64)>,
    /// End of a bar that may count a part of the run, as one is drawn for each epoch; `end_ms` is then `None`.
    pub part_end_ms: Option<(u64, u64)>,
    /// For how long the rate was measured, in ms, without the first count: it includes compilation.
    pub steady_ms: u64,
    /// Number of times that the count grew in that time.
    pub advances: usize,
}

impl Progress {
    /// Returns the part of the program that is done, in %; `None` if the log does not state the total.
    pub fn pct(&self) -> Option<f64> {
        Some((100.0 * self.done / self.total?).clamp(0.0, 100.0))
    }
}

/// A counter in a log.
#[derive(Debug)]
pub(super) struct Counter {
    pub(super) key: Key,
    pub(super) observations: VecDeque<(u64, f64)>,
    /// Whether it began again: what it counts is a part of the program's work.
    pub(super) is_part: bool,
    /// The epoch in which the last observation was made.
    pub(super) epoch: Option<EpochProgress>,
    /// Whether it counts: one of a weak format, or from a truncated line, must have grown.
    pub(super) is_sure: bool,
    /// In how many readings in a row it stood below the last observation.
    lower_reads: u32,
    /// The program's own estimate of the end, and when it was read, in ms of the relay's clock.
    estimate: Option<(u64, u64)>,
    /// The remaining time as it was last stated, in s.
    left_s: Option<f64>,
}

/// Identity of a counter.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Key {
    /// The format of the lines; `None` for epochs, and for counts that are named in a sentence.
    pub(super) format: Option<usize>,
    pub(super) label: String,
    pub(super) total: Option<f64>,
}

/// A count of a counter.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Reading {
    pub(super) key: Key,
    pub(super) done: f64,
    /// Whether it counts within one epoch while the number of epochs is unknown.
    pub(super) is_part: bool,
    /// Whether it counts without having grown before.
    pub(super) is_sure: bool,
    pub(super) epoch: Option<EpochProgress>,
    /// The time that is left for the whole counter, in s.
    pub(super) left_s: Option<f64>,
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

    /// Returns whether it counts a shorter part of the same epoch: the evaluation that ends it.
    pub(super) fn is_evaluation_in(&self, epoch: Option<EpochProgress>) -> bool {
        let (Some(known), Some(now)) = (epoch, self.epoch) else { return false };
        known.number == now.number && now.total < known.total
    }

    pub(super) fn begins_again(&self, next: &Self) -> bool {
        next.is_restart_of(self.done, self.epoch)
    }
}

impl Counter {
    pub(super) fn new(reading: Reading, now_ms: u64) -> Self {
        let mut counter = Self {
            observations: VecDeque::from([(now_ms, reading.done)]),
            is_part: reading.is_part,
            epoch: None,
            is_sure: reading.is_sure,
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
        self.left_s = reading.left_s;
        if let Some(left_s) = reading.left_s {
            self.estimate = Some((now_ms.saturating_add((1_000.0 * left_s) as u64), now_ms));
        }
    }

    /// After how long without progress it no longer counts, in ms: an epoch may take hours.
    pub(super) fn stale_after_ms(&self) -> u64 {
        let gaps = self.observations.iter().zip(self.observations.iter().skip(1));
        let longest_ms = gaps.map(|((before, _), (after, _))| after.saturating_sub(*before)).max();
        STALE_MS.max(longest_ms.unwrap_or(0).saturating_mul(2))
    }

    pub(super) fn last_ms(&self) -> u64 {
        self.observations.back().map_or(0, |(at_ms, _)| *at_ms)
    }

    pub(super) fn observe(&mut self, reading: &Reading, now_ms: u64) {
        self.is_part |= reading.is_part;
        self.is_sure |= reading.is_sure;
        match (self.epoch, reading.epoch) {
            (Some(_), None) => return,
            (known, _) if reading.is_evaluation_in(known) => return,
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
                // An unchanged line, such as the bar of a hung program, is not a new estimate.
                if reading.left_s.is_some() && reading.left_s != self.left_s {
                    self.apply_epoch_and_estimate(reading, now_ms);
                }
                return;
            }
            Some(_) => self.is_sure = true,
            None => {}
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

    pub(super) fn progress(&self, now_ms: u64) -> Progress {
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
            part_end_ms: None,
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
        // The number of an epoch may be stated at its beginning or at its end.
        let at_most = if is_number { left + 1.0 } else { left };
        let rates = halves.into_iter().flatten().chain([rate]);
        let after = |left: f64, rate: f64| advanced_ms.saturating_add((1_000.0 * left / rate) as u64);
        let (slowest, fastest) =
            rates.fold((f64::MAX, f64::MIN), |(low, high), rate| (low.min(rate), high.max(rate)));
        Some((after(left, fastest), after(at_most, slowest)))
    }

    /// Returns the units per second between two observations, if they are far enough apart.
    fn rate(&self, from: usize, to: usize) -> Option<f64> {
        let (first, last) = (self.observations.get(from)?, self.observations.get(to.checked_sub(1)?)?);
        let (span_ms, done) = (last.0.saturating_sub(first.0), last.1 - first.1);
        (span_ms >= MIN_SPAN_MS && done > 0.0).then(|| 1_000.0 * done / span_ms as f64)
    }
}
