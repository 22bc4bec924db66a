//! Summarizes the samples of a slot.

use nodeglass_protocol::Cell;
use nodeglass_protocol::field::ValueKind;
use nodeglass_protocol::range::Summary;

/// The samples of one field in one slot.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Accumulator {
    count: u32,
    /// Sum of the values; of a bit mask, all bits that were set.
    sum: u64,
    /// Lowest value; of a bit mask, the bits that were always set.
    min: u32,
    max: u32,
    /// The last cell without a value.
    missing: Cell,
}

impl Accumulator {
    /// Adds a sample.
    pub(super) fn add(&mut self, cell: Cell, kind: ValueKind) {
        match cell.value() {
            Some(value) => self.merge(
                &Self { count: 1, sum: value.into(), min: value, max: value, missing: Cell::NOT_YET },
                kind,
            ),
            None if cell != Cell::NOT_YET => self.missing = cell,
            None => {}
        }
    }

    /// Adds the samples of a shorter slot.
    pub(super) fn merge(&mut self, other: &Self, kind: ValueKind) {
        if other.missing != Cell::NOT_YET {
            self.missing = other.missing;
        }
        if other.count == 0 {
            return;
        }
        let is_first = self.count == 0;
        self.count = self.count.saturating_add(other.count);
        match kind {
            ValueKind::BitMask => {
                self.sum |= other.sum;
                self.min = if is_first { other.min } else { self.min & other.min };
                self.max |= other.max;
            }
            ValueKind::Gauge | ValueKind::Counter | ValueKind::State => {
                self.sum = self.sum.saturating_add(other.sum);
                self.min = if is_first { other.min } else { self.min.min(other.min) };
                self.max = self.max.max(other.max);
            }
        }
    }

    /// Adds the summary of a shorter slot; its samples count as one.
    pub(super) fn add_summary(&mut self, summary: &Summary, kind: ValueKind) {
        let values = [summary.mean, summary.min, summary.max].map(Cell::value);
        let [Some(mean), Some(min), Some(max)] = values else {
            return self.add(summary.mean, kind);
        };
        self.merge(&Self { count: 1, sum: mean.into(), min, max, missing: Cell::NOT_YET }, kind);
    }

    /// The summary; `None` without samples.
    pub(super) fn summary(&self, kind: ValueKind) -> Option<Summary> {
        if self.count == 0 {
            return (self.missing != Cell::NOT_YET).then_some(Summary::of(self.missing));
        }
        let mean = match kind {
            ValueKind::BitMask => self.sum,
            // Rounded, as a cell is.
            _ => (self.sum + u64::from(self.count) / 2) / u64::from(self.count),
        };
        Some(Summary {
            mean: Cell::steps(u32::try_from(mean).unwrap_or(u32::MAX)),
            min: Cell::steps(self.min),
            max: Cell::steps(self.max),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(cells: &[Cell], kind: ValueKind) -> Option<Summary> {
        let mut all = Accumulator::default();
        cells.iter().for_each(|cell| all.add(*cell, kind));
        all.summary(kind)
    }

    #[test]
    fn a_spike_survives_in_the_maximum() {
        let cells = [1, 1, 1, 97].map(Cell::steps);
        let expected = Summary { mean: Cell::steps(25), min: Cell::steps(1), max: Cell::steps(97) };
        assert_eq!(summary(&cells, ValueKind::Gauge), Some(expected));
    }

    #[test]
    fn flags_are_combined_and_not_averaged() {
        let cells = [0b0110, 0b0100].map(Cell::steps);
        let expected =
            Summary { mean: Cell::steps(0b0110), min: Cell::steps(0b0100), max: Cell::steps(0b0110) };
        assert_eq!(summary(&cells, ValueKind::BitMask), Some(expected));
    }

    #[test]
    fn a_missing_value_is_not_zero_and_does_not_hide_values() {
        assert_eq!(summary(&[Cell::NOT_YET], ValueKind::Gauge), None);
        assert_eq!(
            summary(&[Cell::NOT_YET, Cell::FAILED], ValueKind::Gauge),
            Some(Summary::of(Cell::FAILED))
        );
        let mixed = [Cell::FAILED, Cell::steps(4), Cell::FAILED];
        assert_eq!(summary(&mixed, ValueKind::Gauge), Some(Summary::of(Cell::steps(4))));
    }

    #[test]
    fn merged_slots_equal_one_of_all_samples() {
        let (mut left, mut right, mut all) =
            (Accumulator::default(), Accumulator::default(), Accumulator::default());
        for (position, value) in [9, 2, 40, 7, 7].into_iter().enumerate() {
            let part = if position < 2 { &mut left } else { &mut right };
            part.add(Cell::steps(value), ValueKind::Gauge);
            all.add(Cell::steps(value), ValueKind::Gauge);
        }
        left.merge(&right, ValueKind::Gauge);
        assert_eq!(left.summary(ValueKind::Gauge), all.summary(ValueKind::Gauge));
    }
}
