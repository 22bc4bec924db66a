//! Samples are numbered without gaps and fall on whole multiples of the interval, even while nobody listens.

use std::collections::VecDeque;

/// How far back a probe can send samples again, in ms.
pub(super) const KEPT_MS: u64 = 600_000;
/// Time between samples until the relay says otherwise.
pub(super) const FIRST_INTERVAL_MS: u64 = 1_000;

/// Number and time of one sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Beat {
    /// Number within the stream.
    pub seq: u64,
    /// When, in ms since 1970.
    pub wall_ms: u64,
    /// Time until the next, in ms.
    pub interval_ms: u64,
}

/// The beats of a probe: one stretch for each interval it was told, the last one open.
#[derive(Clone, Debug)]
pub(super) struct Rhythm {
    /// The first beat of each stretch.
    stretches: VecDeque<Beat>,
}

impl Rhythm {
    /// Beats from `from_wall_ms` on.
    pub fn since(from_wall_ms: u64) -> Self {
        let interval_ms = FIRST_INTERVAL_MS;
        let wall_ms = from_wall_ms.next_multiple_of(interval_ms);
        Self { stretches: VecDeque::from([Beat { seq: 0, wall_ms, interval_ms }]) }
    }

    /// Beats at another interval after `now_wall_ms`.
    pub fn set_interval(&mut self, interval_ms: u64, now_wall_ms: u64) {
        let interval_ms = interval_ms.clamp(500, 60_000);
        let next = self.after(now_wall_ms);
        if next.interval_ms == interval_ms {
            return;
        }
        let wall_ms = (now_wall_ms + 1).next_multiple_of(interval_ms);
        self.stretches.retain(|first| first.wall_ms <= now_wall_ms);
        self.stretches.push_back(Beat { seq: next.seq, wall_ms, interval_ms });
        let kept = |second: &Beat| second.wall_ms + KEPT_MS < now_wall_ms;
        while self.stretches.get(1).is_some_and(kept) {
            self.stretches.pop_front();
        }
    }

    /// The first beat after a time.
    pub fn after(&self, wall_ms: u64) -> Beat {
        let current = self.stretches.partition_point(|first| first.wall_ms <= wall_ms);
        let first = match current.checked_sub(1) {
            Some(index) => self.stretches[index],
            None => return self.stretches[0],
        };
        let count = (wall_ms - first.wall_ms) / first.interval_ms + 1;
        let beat = Beat {
            seq: first.seq + count,
            wall_ms: first.wall_ms + count * first.interval_ms,
            interval_ms: first.interval_ms,
        };
        match self.stretches.get(current) {
            Some(next) if next.wall_ms <= beat.wall_ms || next.seq <= beat.seq => *next,
            _ => beat,
        }
    }

    /// The beats after one time up to and with another.
    pub fn between(&self, after_wall_ms: u64, upto_wall_ms: u64) -> impl Iterator<Item = Beat> + '_ {
        let first = self.after(after_wall_ms);
        std::iter::successors(Some(first), |beat| Some(self.after(beat.wall_ms)))
            .take_while(move |beat| beat.wall_ms <= upto_wall_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beats(rhythm: &Rhythm, after: u64, upto: u64) -> Vec<(u64, u64)> {
        rhythm.between(after, upto).map(|beat| (beat.seq, beat.wall_ms)).collect()
    }

    #[test]
    fn numbers_have_no_gap_when_the_interval_changes() {
        let mut rhythm = Rhythm::since(400);
        assert_eq!(beats(&rhythm, 0, 3_000), [(0, 1_000), (1, 2_000), (2, 3_000)]);
        rhythm.set_interval(5_000, 3_200);
        assert_eq!(beats(&rhythm, 1_000, 10_000), [(1, 2_000), (2, 3_000), (3, 5_000), (4, 10_000)]);
        rhythm.set_interval(500, 10_100);
        assert_eq!(beats(&rhythm, 5_000, 11_000), [(4, 10_000), (5, 10_500), (6, 11_000)]);
    }

    #[test]
    fn an_order_before_the_next_beat_replaces_the_last_one() {
        let mut rhythm = Rhythm::since(0);
        rhythm.set_interval(10_000, 2_500);
        rhythm.set_interval(1_000, 2_600);
        assert_eq!(beats(&rhythm, 0, 4_000), [(1, 1_000), (2, 2_000), (3, 3_000), (4, 4_000)]);
    }

    #[test]
    fn an_absurd_interval_is_bounded() {
        let mut rhythm = Rhythm::since(0);
        rhythm.set_interval(0, 0);
        assert_eq!(rhythm.after(0).interval_ms, 500);
        rhythm.set_interval(u64::MAX, 100);
        assert_eq!(rhythm.after(100).interval_ms, 60_000);
    }
}
