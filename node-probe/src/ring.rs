//! The last ten minutes of samples, as they were printed, so that a relay can ask for what it missed.

use std::collections::VecDeque;

/// How long a sample is kept, in ns of `CLOCK_BOOTTIME`.
pub const KEPT_NS: u64 = 600 * 1_000_000_000;
/// The most bytes that are kept, whatever their age: the probe promises to stay small.
pub const KEPT_BYTES: usize = 3 << 20;

/// One sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Its number.
    pub seq: u64,
    /// When it was taken.
    pub mono_ns: u64,
    /// Whether its line tells all of it; others tell what is new since the one before.
    pub whole: bool,
    /// Its line.
    pub line: Box<[u8]>,
}

/// Samples in the order of their numbers.
#[derive(Debug, Default)]
pub struct Ring {
    kept: VecDeque<Kept>,
    bytes: usize,
}

impl Ring {
    /// Adds the newest sample and lets go of what is too old or too much.
    pub fn push(&mut self, kept: Kept) {
        let now_ns = kept.mono_ns;
        self.bytes += kept.line.len();
        self.kept.push_back(kept);
        while let Some(oldest) = self.kept.front() {
            let fresh = now_ns.saturating_sub(oldest.mono_ns) <= KEPT_NS;
            if fresh && self.bytes <= KEPT_BYTES {
                break;
            }
            self.bytes -= oldest.line.len();
            self.kept.pop_front();
        }
    }

    /// The number after which to begin, so that whoever reads from there on understands everything after `seq`.
    pub fn beginning(&self, seq: u64) -> u64 {
        let until = self.kept.partition_point(|kept| kept.seq <= seq.saturating_add(1));
        let whole = self.kept.range(..until).rev().find(|kept| kept.whole);
        whole.map_or(seq, |kept| kept.seq.saturating_sub(1))
    }

    /// The oldest sample after a number.
    pub fn after(&self, seq: u64) -> Option<&Kept> {
        let first = self.kept.partition_point(|kept| kept.seq <= seq);
        self.kept.get(first)
    }

    /// All samples, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Kept> {
        self.kept.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn kept(seq: u64, second: u64, bytes: usize) -> Kept {
        Kept {
            seq,
            mono_ns: second * 1_000_000_000,
            whole: seq.is_multiple_of(10),
            line: vec![b'x'; bytes].into(),
        }
    }

    #[test]
    fn what_is_told_again_begins_with_a_whole_sample() {
        let mut ring = Ring::default();
        (5..30).for_each(|seq| ring.push(kept(seq, seq, 10)));
        // The first whole one is number 10, and before it nothing can be understood.
        assert_eq!([0, 8, 9, 10, 18, 19, 25, 99].map(|seq| ring.beginning(seq)), [0, 8, 9, 9, 9, 19, 19, 19]);
    }

    #[test]
    fn ten_minutes_are_kept_and_no_more() {
        let mut ring = Ring::default();
        for second in 0..=1_000 {
            ring.push(kept(second, second, 10));
        }
        assert_eq!(ring.iter().next().unwrap().seq, 400);
        assert_eq!(ring.after(0).unwrap().seq, 400);
        assert_eq!(ring.after(999).unwrap().seq, 1_000);
        assert_eq!(ring.after(1_000), None);
    }

    proptest! {
        #[test]
        fn it_never_holds_more_than_it_promises(sizes in prop::collection::vec(1usize..300_000, 0..60)) {
            let mut ring = Ring::default();
            for (seq, size) in sizes.iter().enumerate() {
                ring.push(kept(seq as u64, seq as u64, *size));
                prop_assert!(ring.iter().map(|kept| kept.line.len()).sum::<usize>() <= KEPT_BYTES);
                prop_assert_eq!(ring.iter().last().unwrap().seq, seq as u64);
            }
        }
    }
}
