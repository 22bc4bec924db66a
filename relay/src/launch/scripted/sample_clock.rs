//! Sequence numbers and times of samples: without gaps, aligned to the interval, and independent of
//! links.

use std::collections::VecDeque;

/// Maximum age of samples that a probe can replay, in ms.
pub(super) const HISTORY_MS: u64 = 600_000;
/// Initial sampling interval.
pub(super) const FIRST_INTERVAL_MS: u64 = 1_000;

/// Number and time of one sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SampleTick {
    /// Number within the stream.
    pub seq: u64,
    /// Time in ms since 1970.
    pub wall_ms: u64,
    /// Interval to the next sample, in ms.
    pub interval_ms: u64,
}

/// The sample times of a probe: one segment per interval setting, the last one open-ended.
#[derive(Clone, Debug)]
pub(super) struct SampleClock {
    /// The first sample of each segment.
    segments: VecDeque<SampleTick>,
}

impl SampleClock {
    /// Creates a clock that starts at `from_wall_ms`.
    pub fn since(from_wall_ms: u64) -> Self {
        let interval_ms = FIRST_INTERVAL_MS;
        let wall_ms = from_wall_ms.next_multiple_of(interval_ms);
        Self { segments: VecDeque::from([SampleTick { seq: 0, wall_ms, interval_ms }]) }
    }

    /// Changes the interval after `now_wall_ms`.
    pub fn set_interval(&mut self, interval_ms: u64, now_wall_ms: u64) {
        let interval_ms = interval_ms.clamp(500, 60_000);
        let next = self.after(now_wall_ms);
        if next.interval_ms == interval_ms {
            return;
        }
        let wall_ms = (now_wall_ms + 1).next_multiple_of(interval_ms);
        self.segments.retain(|first| first.wall_ms <= now_wall_ms);
        self.segments.push_back(SampleTick { seq: next.seq, wall_ms, interval_ms });
        let kept = |second: &SampleTick| second.wall_ms + HISTORY_MS < now_wall_ms;
        while self.segments.get(1).is_some_and(kept) {
            self.segments.pop_front();
        }
    }

    /// Returns the first sample after a time.
    pub fn after(&self, wall_ms: u64) -> SampleTick {
        let current = self.segments.partition_point(|first| first.wall_ms <= wall_ms);
        let first = match current.checked_sub(1) {
            Some(index) => self.segments[index],
            None => return self.segments[0],
        };
        let count = (wall_ms - first.wall_ms) / first.interval_ms + 1;
        let tick = SampleTick {
            seq: first.seq + count,
            wall_ms: first.wall_ms + count * first.interval_ms,
            interval_ms: first.interval_ms,
        };
        match self.segments.get(current) {
            Some(next) if next.wall_ms <= tick.wall_ms || next.seq <= tick.seq => *next,
            _ => tick,
        }
    }

    /// Iterates over the samples after one time up to and including another.
    pub fn between(&self, after_wall_ms: u64, upto_wall_ms: u64) -> impl Iterator<Item = SampleTick> + '_ {
        let first = self.after(after_wall_ms);
        std::iter::successors(Some(first), |tick| Some(self.after(tick.wall_ms)))
            .take_while(move |tick| tick.wall_ms <= upto_wall_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks(sample_clock: &SampleClock, after: u64, upto: u64) -> Vec<(u64, u64)> {
        sample_clock.between(after, upto).map(|tick| (tick.seq, tick.wall_ms)).collect()
    }

    #[test]
    fn numbers_have_no_gap_when_the_interval_changes() {
        let mut sample_clock = SampleClock::since(400);
        assert_eq!(ticks(&sample_clock, 0, 3_000), [(0, 1_000), (1, 2_000), (2, 3_000)]);
        sample_clock.set_interval(5_000, 3_200);
        assert_eq!(ticks(&sample_clock, 1_000, 10_000), [(1, 2_000), (2, 3_000), (3, 5_000), (4, 10_000)]);
        sample_clock.set_interval(500, 10_100);
        assert_eq!(ticks(&sample_clock, 5_000, 11_000), [(4, 10_000), (5, 10_500), (6, 11_000)]);
    }

    #[test]
    fn a_later_interval_before_the_next_sample_wins() {
        let mut sample_clock = SampleClock::since(0);
        sample_clock.set_interval(10_000, 2_500);
        sample_clock.set_interval(1_000, 2_600);
        assert_eq!(ticks(&sample_clock, 0, 4_000), [(1, 1_000), (2, 2_000), (3, 3_000), (4, 4_000)]);
    }

    #[test]
    fn an_absurd_interval_is_bounded() {
        let mut sample_clock = SampleClock::since(0);
        sample_clock.set_interval(0, 0);
        assert_eq!(sample_clock.after(0).interval_ms, 500);
        sample_clock.set_interval(u64::MAX, 100);
        assert_eq!(sample_clock.after(100).interval_ms, 60_000);
    }
}
