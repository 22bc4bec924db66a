//! Ring of the sample lines of the last ten minutes, from which a relay can request what it missed.

use nodeglass_protocol::probe::MAX_SAMPLE_AGE_MS;
use std::collections::VecDeque;

/// Maximum age of a sample, in ns of `CLOCK_BOOTTIME`.
pub const MAX_AGE_NS: u64 = MAX_SAMPLE_AGE_MS * 1_000_000;
/// Maximum size in bytes, which bounds the probe's memory regardless of age.
pub const MAX_BYTES: usize = 3 << 20;

/// One sample line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingEntry {
    /// Sequence number.
    pub seq: u64,
    /// Sample time.
    pub mono_ns: u64,
    /// Whether its line is complete; others are relative to the previous sample.
    pub is_full: bool,
    /// The encoded line.
    pub line: Box<[u8]>,
}

/// Samples ordered by sequence number.
#[derive(Debug, Default)]
pub struct Ring {
    entries: VecDeque<RingEntry>,
    bytes: usize,
}

impl Ring {
    /// Adds the newest sample and evicts samples that exceed the age or size limit.
    pub fn push(&mut self, entry: RingEntry) {
        let now_ns = entry.mono_ns;
        self.bytes += entry.line.len();
        self.entries.push_back(entry);
        while let Some(oldest) = self.entries.front() {
            let is_recent = now_ns.saturating_sub(oldest.mono_ns) <= MAX_AGE_NS;
            if is_recent && self.bytes <= MAX_BYTES {
                break;
            }
            self.bytes -= oldest.line.len();
            self.entries.pop_front();
        }
    }

    /// Returns the number after which a replay must start, so that everything after `seq` can be
    /// decoded.
    pub fn replay_start(&self, seq: u64) -> u64 {
        let until = self.entries.partition_point(|entry| entry.seq <= seq.saturating_add(1));
        let is_full = self.entries.range(..until).rev().find(|entry| entry.is_full);
        is_full.map_or(seq, |entry| entry.seq.saturating_sub(1))
    }

    /// Returns the oldest sample after a sequence number.
    pub fn after(&self, seq: u64) -> Option<&RingEntry> {
        let first = self.entries.partition_point(|entry| entry.seq <= seq);
        self.entries.get(first)
    }

    /// Iterates over all samples, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &RingEntry> {
        self.entries.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry(seq: u64, second: u64, bytes: usize) -> RingEntry {
        RingEntry {
            seq,
            mono_ns: second * 1_000_000_000,
            is_full: seq.is_multiple_of(10),
            line: vec![b'x'; bytes].into(),
        }
    }

    #[test]
    fn a_replay_starts_with_a_complete_sample() {
        let mut ring = Ring::default();
        (5..30).for_each(|seq| ring.push(entry(seq, seq, 10)));
        // The first complete sample is number 10; nothing before it can be decoded.
        assert_eq!(
            [0, 8, 9, 10, 18, 19, 25, 99].map(|seq| ring.replay_start(seq)),
            [0, 8, 9, 9, 9, 19, 19, 19]
        );
    }

    #[test]
    fn samples_older_than_ten_minutes_are_evicted() {
        let mut ring = Ring::default();
        for second in 0..=1_000 {
            ring.push(entry(second, second, 10));
        }
        assert_eq!(ring.iter().next().unwrap().seq, 400);
        assert_eq!(ring.after(0).unwrap().seq, 400);
        assert_eq!(ring.after(999).unwrap().seq, 1_000);
        assert_eq!(ring.after(1_000), None);
    }

    proptest! {
        #[test]
        fn the_size_limit_is_never_exceeded(sizes in prop::collection::vec(1usize..300_000, 0..60)) {
            let mut ring = Ring::default();
            for (seq, size) in sizes.iter().enumerate() {
                ring.push(entry(seq as u64, seq as u64, *size));
                prop_assert!(ring.iter().map(|entry| entry.line.len()).sum::<usize>() <= MAX_BYTES);
                prop_assert_eq!(ring.iter().last().unwrap().seq, seq as u64);
            }
        }
    }
}
