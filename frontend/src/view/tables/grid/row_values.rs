//! Content of a row of a table: the values of its shown columns, and its flags.

use super::source::{RowEntry, RowFlags};
use super::state::Grid;
use crate::table::Value;

/// Content of a row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RowValues {
    /// The values of its shown columns.
    pub values: Vec<Value>,
    /// Its flags.
    pub row_flags: RowFlags,
}

impl RowValues {
    /// Reads what a row shows now.
    pub fn read(grid: &Grid, entry: &RowEntry, shown: &[usize]) -> Self {
        let mut values = Vec::with_capacity(shown.len());
        grid.source.values(entry, shown, &mut values);
        Self { values, row_flags: grid.source.row_flags(entry) }
    }

    /// Returns the value at a position.
    pub fn value(&self, at: usize) -> &Value {
        self.values.get(at).unwrap_or(&Value::NONE)
    }
}
