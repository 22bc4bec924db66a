//! A trace is the recent history of one cell on a fixed time grid, identical in relay and page;
//! missing samples are gaps.

mod codes;

use crate::Cell;
use codes::Codes;
use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use std::collections::VecDeque;
use std::fmt;

/// Ring of the last [`Trace::CAPACITY`] slots of one cell; one slot per second of the relay's
/// clock.
///
/// The JSON form lists every slot; the binary form is the internal delta and run-length encoding.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// Number of the newest slot (relay clock / [`Trace::STEP_MS`]); meaningless while empty.
    newest: u64,
    /// Codes of cells, oldest first; 0 is a gap.
    codes: Codes,
}

/// One sampled cell, to be added to a trace.
#[derive(Clone, Copy, Debug)]
pub struct TracePoint {
    /// Sample time, in ms of the relay's clock.
    pub at_ms: u64,
    /// Time for which a value is held without a new sample, in ms.
    pub hold_ms: u64,
    /// The sampled cell.
    pub cell: Cell,
}

impl Trace {
    /// Length of a slot in ms.
    pub const STEP_MS: u64 = 1_000;
    /// Maximum number of slots: ten minutes.
    pub const CAPACITY: usize = 600;

    /// Returns when the slot of a sample begins, in ms of the relay's clock.
    pub fn slot_ms(at_ms: u64) -> u64 {
        at_ms / Self::STEP_MS * Self::STEP_MS
    }

    /// Adds a cell sampled at `at_ms` of the relay's clock. Empty slots since the newest one repeat
    /// its value if they span at most `hold_ms` (slow but regular sampling is not a gap).
    ///
    /// A slot older than the newest one is overwritten in place (back-fill after a broken link);
    /// one older than the trace is ignored.
    pub fn push(&mut self, at_ms: u64, cell: Cell, hold_ms: u64) {
        let point = TracePoint { at_ms, hold_ms, cell };
        let (slot, code) = (at_ms / Self::STEP_MS, code(cell));
        match self.codes.last() {
            None => self.newest = slot,
            Some(last) if slot == self.newest && code == last => return,
            Some(_) if slot <= self.newest => return self.extend([point]),
            Some(last) => match point.gap_since(self.newest, last) {
                None => self.codes = Codes::default(),
                Some((missed, filler)) => {
                    self.codes.pop_front((self.codes.len() + missed + 1).saturating_sub(Self::CAPACITY));
                    (0..missed).for_each(|_| self.codes.push(filler));
                }
            },
        }
        self.codes.push(code);
        self.newest = slot;
    }

    /// Equivalent to [`Trace::push`] of each point, at about the cost of one out-of-order
    /// insertion.
    pub fn extend(&mut self, points: impl IntoIterator<Item = TracePoint>) {
        let mut slots = Slots { newest: self.newest, codes: self.codes.iter().collect() };
        points.into_iter().for_each(|point| slots.insert(point));
        *self = Self { newest: slots.newest, codes: slots.codes.into_iter().collect() };
    }

    /// Returns the same slots, with gaps before `from_ms` and after `to_ms`: for viewers who may know
    /// when samples were taken but not their values.
    pub fn within(&self, from_ms: u64, to_ms: u64) -> Self {
        let first = self.newest.saturating_add(1).saturating_sub(self.codes.len() as u64);
        let is_shown = |slot: u64| (from_ms..=to_ms).contains(&slot.saturating_mul(Self::STEP_MS));
        let shown = |(code, slot)| if is_shown(slot) { code } else { 0 };
        Self { newest: self.newest, codes: self.codes.iter().zip(first..).map(shown).collect() }
    }

    /// Removes everything after `at_ms` and returns the last remaining cell, if any.
    pub fn rewind(&mut self, at_ms: u64) -> Option<Cell> {
        let over = self.newest.saturating_sub(at_ms / Self::STEP_MS).min(self.codes.len() as u64);
        if over > 0 {
            self.codes = self.codes.iter().take(self.codes.len() - over as usize).collect();
            self.newest -= over;
        }
        self.codes.iter().filter(|code| *code != 0).last().map(|code| Cell::from_code(u32::from(code)))
    }

    /// Moves all slots later by a number of them, or earlier if it is negative; a trace that would begin before the
    /// clock does is emptied.
    pub fn shift(&mut self, slots: i64) {
        let newest = self.newest.checked_add_signed(slots);
        let first = newest.and_then(|newest| (newest + 1).checked_sub(self.codes.len() as u64));
        match newest.filter(|_| first.is_some()) {
            Some(newest) => self.newest = newest,
            None => *self = Self::default(),
        }
    }

    /// Number of the newest slot; `None` if there are no slots.
    pub fn newest_slot(&self) -> Option<u64> {
        (!self.is_empty()).then_some(self.newest)
    }

    /// Iterates over the slots from oldest to newest: time in ms of the relay's clock, and the cell
    /// or `None` for a gap.
    pub fn points(&self) -> impl Iterator<Item = (u64, Option<Cell>)> + '_ {
        self.since(0)
    }

    /// Iterates over the slots from `at_ms` on; skipping earlier ones is cheap.
    pub fn since(&self, at_ms: u64) -> impl Iterator<Item = (u64, Option<Cell>)> + '_ {
        let first = self.newest.saturating_add(1).saturating_sub(self.codes.len() as u64);
        let skipped = (at_ms / Self::STEP_MS).saturating_sub(first).min(self.codes.len() as u64);
        self.codes
            .iter_from(skipped as usize)
            .zip(first + skipped..)
            .map(|(code, slot)| (slot.saturating_mul(Self::STEP_MS), known(code)))
    }

    /// Returns the cell of the slot at `at_ms`; constant time for the newest slot.
    pub fn at(&self, at_ms: u64) -> Option<Cell> {
        let slot = at_ms / Self::STEP_MS;
        if slot == self.newest {
            return self.codes.last().and_then(known);
        }
        let (of_slot, cell) = self.since(at_ms).next()?;
        cell.filter(|_| of_slot / Self::STEP_MS == slot)
    }

    /// Approximate size of the binary encoding in bytes.
    pub fn encoded_len(&self) -> usize {
        self.codes.encoded().1.len() + size_of::<u32>()
    }

    /// Number of slots.
    pub fn len(&self) -> usize {
        self.codes.len()
    }

    /// Returns whether the trace has no slots.
    pub fn is_empty(&self) -> bool {
        self.codes.is_empty()
    }
}

fn code(cell: Cell) -> u16 {
    u16::try_from(cell.code()).unwrap_or(u16::MAX)
}

fn known(code: u16) -> Option<Cell> {
    (code != 0).then(|| Cell::from_code(u32::from(code)))
}

impl TracePoint {
    /// Returns the number of skipped slots between `newest`, whose code is `last`, and this point,
    /// and the code that fills them; `None` if they would fill the whole trace.
    fn gap_since(self, newest: u64, last: u16) -> Option<(usize, u16)> {
        // Compared before the cast, because `usize` has 32 bits in the page.
        let missed = (self.at_ms / Trace::STEP_MS - newest - 1).min(Trace::CAPACITY as u64);
        let held = missed * Trace::STEP_MS <= self.hold_ms;
        (missed < Trace::CAPACITY as u64).then_some((missed as usize, if held { last } else { 0 }))
    }
}

/// A decoded trace, for out-of-order insertion.
struct Slots {
    newest: u64,
    codes: VecDeque<u16>,
}

impl Slots {
    fn insert(&mut self, point: TracePoint) {
        let (slot, code) = (point.at_ms / Trace::STEP_MS, code(point.cell));
        match self.codes.back() {
            None => {}
            Some(_) if slot <= self.newest => return self.fill_in(slot, code),
            Some(last) => match point.gap_since(self.newest, *last) {
                None => self.codes.clear(),
                Some((missed, filler)) => self.codes.extend(std::iter::repeat_n(filler, missed)),
            },
        }
        self.codes.push_back(code);
        self.newest = slot;
        self.codes.drain(..self.codes.len().saturating_sub(Trace::CAPACITY));
    }

    fn fill_in(&mut self, slot: u64, code: u16) {
        let back = self.newest - slot;
        if back >= Trace::CAPACITY as u64 {
            return;
        }
        let back = back as usize;
        while self.codes.len() <= back {
            self.codes.push_front(0);
        }
        let index = self.codes.len() - 1 - back;
        self.codes[index] = code;
    }
}

/// JSON form of a trace.
#[derive(Serialize, Deserialize)]
#[serde(rename = "Trace")]
struct Plain {
    newest: u64,
    codes: Vec<u16>,
}

/// Binary form of a trace; `bytes` are tokens of [`codes`].
#[derive(Serialize, Deserialize)]
struct Packed<B> {
    newest: u64,
    before: u16,
    bytes: B,
}

impl Serialize for Trace {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            return Plain { newest: self.newest, codes: self.codes.iter().collect() }.serialize(serializer);
        }
        let (before, bytes) = self.codes.encoded();
        Packed { newest: self.newest, before, bytes: Borrowed(bytes) }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Trace {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let invalid = || de::Error::custom("invalid trace: longer than ten minutes or malformed");
        if deserializer.is_human_readable() {
            let Plain { newest, codes } = Plain::deserialize(deserializer)?;
            let fits = codes.len() <= Self::CAPACITY;
            return if fits {
                Ok(Self { newest, codes: codes.into_iter().collect() })
            } else {
                Err(invalid())
            };
        }
        let Packed { newest, before, bytes: Owned(bytes) } = Packed::deserialize(deserializer)?;
        let codes = Codes::read(before, bytes, Self::CAPACITY).ok_or_else(invalid)?;
        Ok(Self { newest, codes })
    }
}

/// Serializes as one byte string instead of a sequence of integers.
struct Borrowed<'a>(&'a [u8]);

impl Serialize for Borrowed<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0)
    }
}

/// Deserializes from one byte string.
struct Owned(Vec<u8>);

impl<'de> Deserialize<'de> for Owned {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Bytes;
        impl Visitor<'_> for Bytes {
            type Value = Owned;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes")
            }

            fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Owned, E> {
                Ok(Owned(bytes.to_vec()))
            }
        }
        deserializer.deserialize_bytes(Bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shifted_trace_has_the_same_cells_at_other_times() {
        let mut trace = Trace::default();
        trace.push(5_000, Cell::steps(1), 0);
        trace.push(7_000, Cell::steps(2), 0);
        let points = |trace: &Trace| trace.points().collect::<Vec<_>>();
        trace.shift(-4);
        let expected = [(1_000, Some(Cell::steps(1))), (2_000, None), (3_000, Some(Cell::steps(2)))];
        assert_eq!(points(&trace), expected);
        trace.shift(10);
        assert_eq!(points(&trace)[0], (11_000, Some(Cell::steps(1))));
        trace.shift(-12);
        assert!(trace.is_empty());
    }

    fn values(trace: &Trace) -> Vec<Option<u32>> {
        trace.points().map(|(_, cell)| cell.and_then(Cell::value)).collect()
    }

    #[test]
    fn missing_samples_are_a_gap_and_not_a_flat_line() {
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
    fn late_samples_are_inserted_at_their_slot() {
        let mut trace = Trace::default();
        trace.push(1_000, Cell::steps(1), 0);
        trace.push(4_000, Cell::steps(4), 0);
        trace.push(2_500, Cell::steps(2), 0);
        trace.push(0, Cell::steps(9), 0);
        assert_eq!(values(&trace), [Some(9), Some(1), Some(2), None, Some(4)]);
    }

    #[test]
    fn since_starts_at_the_requested_slot() {
        let mut trace = Trace::default();
        (3..=6).for_each(|second| trace.push(second * 1_000, Cell::steps(second as u32), 0));
        let from = |at_ms| trace.since(at_ms).map(|(at_ms, _)| at_ms).collect::<Vec<_>>();
        assert_eq!(from(5_900), [5_000, 6_000]);
        assert_eq!(from(0), from(3_000));
        assert!(from(60_000).is_empty());
    }

    #[test]
    fn each_slot_is_found_by_its_time() {
        let mut trace = Trace::default();
        (3..=6).for_each(|second| trace.push(second * 1_000, Cell::steps(second as u32), 0));
        trace.push(9_000, Cell::steps(9), 0);
        let found: Vec<_> = (2..=10).map(|second| trace.at(second * 1_000 + 7)?.value()).collect();
        assert_eq!(found, [None, Some(3), Some(4), Some(5), Some(6), None, None, Some(9), None]);
        assert_eq!(Trace::default().at(0), None);
    }

    #[test]
    fn extend_equals_repeated_push() {
        let point = |(second, value): (u64, u32)| TracePoint {
            at_ms: second * 1_000 + 300,
            hold_ms: 2_000,
            cell: Cell::steps(value),
        };
        let orders: [&[(u64, u32)]; 4] = [
            &[(5, 1), (6, 2), (7, 2), (10, 3), (20, 4), (8, 9), (2, 2), (20, 5)],
            &[(5, 1), (1_000, 2), (401, 7), (400, 7), (999, 3)],
            &[(900, 1), (3, 2), (301, 4)],
            &[],
        ];
        for order in orders {
            let (mut one_by_one, mut at_once) = (Trace::default(), Trace::default());
            for point in order.iter().copied().map(point) {
                one_by_one.push(point.at_ms, point.cell, point.hold_ms);
            }
            at_once.extend(order.iter().copied().map(point));
            assert_eq!(at_once, one_by_one);
        }
    }

    #[test]
    fn both_forms_round_trip_and_oversized_traces_are_rejected() {
        let mut trace = Trace::default();
        (0..900).for_each(|second| trace.push(second * 1_000, Cell::steps(second as u32 / 7 * 400), 0));
        let packed = postcard::to_stdvec(&trace).unwrap();
        assert_eq!(postcard::from_bytes::<Trace>(&packed).unwrap(), trace);
        let plain = serde_json::to_string(&trace).unwrap();
        assert_eq!(serde_json::from_str::<Trace>(&plain).unwrap(), trace);
        assert!(packed.len() < 300, "{}", packed.len());

        let codes = vec![0_u16; Trace::CAPACITY + 1];
        let long = serde_json::to_string(&serde_json::json!({ "newest": 1, "codes": codes })).unwrap();
        assert!(serde_json::from_str::<Trace>(&long).is_err());
        let long = postcard::to_stdvec(&(9_u64, 0_u16, vec![0xBF_u8; 10])).unwrap();
        assert!(postcard::from_bytes::<Trace>(&long).is_err());
    }

    #[test]
    fn rewind_removes_everything_after_a_time() {
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
    fn capacity_is_ten_minutes_and_a_clock_jump_clears_the_trace() {
        let mut trace = Trace::default();
        for second in 0..2_000 {
            trace.push(second * 1_000, Cell::steps(1), 0);
        }
        assert_eq!(trace.len(), Trace::CAPACITY);
        trace.push(u64::MAX, Cell::steps(2), 0);
        assert_eq!(trace.len(), 1);
    }
}
