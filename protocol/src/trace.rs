//! A trace is the recent past of one cell on a fixed time grid, the same in relay and page; a gap is a gap.

use crate::Cell;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// The last [`Trace::CAPACITY`] slots of one cell, one slot a second of the relay's clock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trace {
    /// Number of the newest slot (relay clock / [`Trace::STEP_MS`]); meaningless while empty.
    newest: u64,
    /// Codes of cells, oldest first; 0 is a gap.
    codes: VecDeque<u16>,
}

impl Trace {
    /// Length of a slot in ms.
    pub const STEP_MS: u64 = 1_000;
    /// How many slots are kept: ten minutes.
    pub const CAPACITY: usize = 600;

    /// Enters a cell sampled at `at_ms` of the relay's clock. Empty slots since the newest one are
    /// filled with its value if they span at most `hold_ms` (a slow but regular sampling is no gap).
    ///
    /// A slot older than the newest is filled in its place (back-fill after a broken link); one older
    /// than the trace is dropped.
    pub fn push(&mut self, at_ms: u64, cell: Cell, hold_ms: u64) {
        let slot = at_ms / Self::STEP_MS;
        let code = u16::try_from(cell.code()).unwrap_or(u16::MAX);
        if self.codes.is_empty() {
            self.newest = slot;
            self.make_room(1);
            self.codes.push_back(code);
            return;
        }
        if slot <= self.newest {
            self.fill_in(slot, code);
            return;
        }
        let missed = slot - self.newest - 1;
        // Compared before it is cut to the page's 32 bits.
        if missed >= Self::CAPACITY as u64 {
            self.codes.clear();
        } else {
            let held = missed * Self::STEP_MS <= hold_ms;
            let filler = if held { self.codes.back().copied().unwrap_or(0) } else { 0 };
            self.make_room(missed as usize + 1);
            self.codes.extend(std::iter::repeat_n(filler, missed as usize));
        }
        self.codes.push_back(code);
        self.newest = slot;
    }

    /// Makes room for so many slots, at most [`Trace::CAPACITY`]: forgets the oldest, and grows no further than
    /// needed, for a relay holds very many traces.
    fn make_room(&mut self, more: usize) {
        let over = (self.codes.len() + more).saturating_sub(Self::CAPACITY);
        self.codes.drain(..over.min(self.codes.len()));
        let free = self.codes.capacity() - self.codes.len();
        if free < more {
            let ahead = (self.codes.len() / 4).clamp(8, Self::CAPACITY);
            self.codes.reserve_exact(more.max(ahead.min(Self::CAPACITY - self.codes.len())));
        }
    }

    fn fill_in(&mut self, slot: u64, code: u16) {
        let back = self.newest - slot;
        if back >= Self::CAPACITY as u64 {
            return;
        }
        let back = back as usize;
        self.codes.reserve_exact((back + 1).saturating_sub(self.codes.len()));
        while self.codes.len() <= back {
            self.codes.push_front(0);
        }
        let index = self.codes.len() - 1 - back;
        self.codes[index] = code;
    }

    /// Forgets everything after `at_ms`, and returns the last cell before that, if any is left.
    pub fn rewind(&mut self, at_ms: u64) -> Option<Cell> {
        let slot = at_ms / Self::STEP_MS;
        while self.newest > slot && !self.codes.is_empty() {
            self.codes.pop_back();
            self.newest -= 1;
        }
        self.codes.iter().rev().find(|code| **code != 0).map(|code| Cell::from_code(u32::from(*code)))
    }

    /// The slots from oldest to newest: their time in ms of the relay's clock, and the cell or `None` for a gap.
    pub fn points(&self) -> impl Iterator<Item = (u64, Option<Cell>)> + '_ {
        self.since(0)
    }

    /// The slots from the one of `at_ms` on; those before it cost nothing.
    pub fn since(&self, at_ms: u64) -> impl Iterator<Item = (u64, Option<Cell>)> + '_ {
        let first = self.newest.saturating_add(1).saturating_sub(self.codes.len() as u64);
        let skipped = (at_ms / Self::STEP_MS).saturating_sub(first).min(self.codes.len() as u64);
        self.codes.range(skipped as usize..).zip(first + skipped..).map(|(code, slot)| {
            let cell = (*code != 0).then(|| Cell::from_code(u32::from(*code)));
            (slot.saturating_mul(Self::STEP_MS), cell)
        })
    }

    /// How many slots are held.
    pub fn len(&self) -> usize {
        self.codes.len()
    }

    /// Whether nothing was entered yet.
    pub fn is_empty(&self) -> bool {
        self.codes.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(trace: &Trace) -> Vec<Option<u32>> {
        trace.points().map(|(_, cell)| cell.and_then(Cell::value)).collect()
    }

    #[test]
    fn a_silence_is_a_gap_and_not_a_flat_line() {
        let mut trace = Trace::default();
        trace.push(1_000, Cell::steps(5), 2_000);
        trace.push(6_000, Cell::steps(7), 2_000);
        assert_eq!(values(&trace), [Some(5), None, None, None, None, Some(7)]);
    }

    #[test]
    fn slow_but_regular_sampling_is_held() {
        let mut trace = Trace::default();
        trace.push(1_000, Cell::steps(5), 3_000);
        trace.push(4_000, Cell::steps(7), 3_000);
        assert_eq!(values(&trace), [Some(5), Some(5), Some(5), Some(7)]);
    }

    #[test]
    fn what_was_missed_is_filled_in_where_it_belongs() {
        let mut trace = Trace::default();
        trace.push(1_000, Cell::steps(1), 0);
        trace.push(4_000, Cell::steps(4), 0);
        trace.push(2_500, Cell::steps(2), 0);
        trace.push(0, Cell::steps(9), 0);
        assert_eq!(values(&trace), [Some(9), Some(1), Some(2), None, Some(4)]);
    }

    #[test]
    fn a_part_of_it_begins_where_it_was_asked_to() {
        let mut trace = Trace::default();
        (3..=6).for_each(|second| trace.push(second * 1_000, Cell::steps(second as u32), 0));
        let from = |at_ms| trace.since(at_ms).map(|(at_ms, _)| at_ms).collect::<Vec<_>>();
        assert_eq!(from(5_900), [5_000, 6_000]);
        assert_eq!(from(0), from(3_000));
        assert!(from(60_000).is_empty());
    }

    #[test]
    fn rewound_it_ends_where_it_was_then() {
        let mut trace = Trace::default();
        (1..=9).for_each(|second| trace.push(second * 1_000, Cell::steps(second as u32), 0));
        assert_eq!(trace.rewind(6_400), Some(Cell::steps(6)));
        assert_eq!(values(&trace), (1..=6).map(Some).collect::<Vec<_>>());
        assert_eq!(trace.rewind(60_000), Some(Cell::steps(6)));
        assert_eq!(trace.rewind(0), None);
        trace.push(3_000, Cell::steps(3), 0);
        assert_eq!(values(&trace), [Some(3)]);
    }

    #[test]
    fn it_keeps_ten_minutes_and_survives_a_jump() {
        let mut trace = Trace::default();
        for second in 0..2_000 {
            trace.push(second * 1_000, Cell::steps(1), 0);
        }
        assert_eq!(trace.len(), Trace::CAPACITY);
        trace.push(u64::MAX, Cell::steps(2), 0);
        assert_eq!(trace.len(), 1);
    }
}
