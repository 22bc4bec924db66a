//! Readings of a probe that fill the fields of a row.

use super::{Field, Row};
use crate::{Reading, Text};

/// A struct of readings, each of which fills one cell of a row.
pub trait ReadingSet: Default {
    /// The fields of that row.
    type Fields: Field;

    /// Returns the reading that fills a field.
    fn reading(&self, field: Self::Fields) -> &Reading<u64>;

    /// Returns the reason why there are no readings, for rows that have such an entry.
    fn fault(&self) -> Option<&Option<Text>>;

    /// Quantizes all readings to a row.
    fn row(&self) -> Row<Self::Fields> {
        let mut row = Row::default();
        for field in Self::Fields::ALL {
            row.set(*field, field.cell(self.reading(*field)));
        }
        row
    }
}
