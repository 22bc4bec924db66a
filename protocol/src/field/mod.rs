//! Fields: the columns of a kind of row, their metrics in the catalogue, and the cells that hold their
//! values.

pub mod catalogue;
mod cell;
mod metric;
mod reading_set;
mod row;
mod scale;
mod wording;

pub use cell::Cell;
pub use metric::{Aggregate, FullScale, Group, Limit, Metric, Retention, Unit, ValueKind};
pub use reading_set::ReadingSet;
pub use row::{NamedCells, ROW_WIDTH, Row};
pub use scale::Scale;
pub use wording::{VendorWording, Vendors, Wording};

use crate::Reading;
use std::fmt;

/// A column of a kind of row, described by the catalogue.
pub trait Field: Copy + Eq + Ord + fmt::Debug + 'static {
    /// All fields in order of their positions.
    const ALL: &'static [Self];
    /// Kind of row, as in Prometheus metric names: `gpu`.
    const ROW_KIND: &'static str;
    /// Fields with history, in order of their positions.
    const HISTORY: &'static [Self];
    /// Fields with history in summaries, in order of their positions.
    const SUMMARY_HISTORY: &'static [Self];
    /// Fields of a summary, in order of their positions.
    const SUMMARY: &'static [Self];
    /// JSON name of the entry with the reason why the row as a whole has no readings, if it has such an entry.
    const FAULT: Option<&'static str>;

    /// Position in the row; also its bit in a change mask.
    fn index(self) -> usize;

    /// The metric that the catalogue lists for the field.
    fn metric(self) -> &'static Metric<Self>;

    /// Name with the unit as its suffix, as in JSON.
    fn name(self) -> &'static str {
        self.metric().name
    }

    /// Mapping between the steps of a code and values.
    fn scale(self) -> Scale {
        self.metric().scale
    }

    /// Returns the field with a name, if there is one.
    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|field| field.name() == name)
    }

    /// Quantizes a reading to a cell.
    fn cell(self, reading: &Reading<u64>) -> Cell {
        match (reading, self.metric().divisor) {
            (Reading::Value(value), divisor @ 2..) => {
                Cell::quantize(self, &Reading::Value(value.saturating_add(divisor / 2) / divisor))
            }
            (reading, _) => Cell::quantize(self, reading),
        }
    }
}
