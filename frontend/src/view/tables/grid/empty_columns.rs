//! The columns of a table without any value: hidden by default, and marked in the menu.

use super::source::{RowEntry, SharedSource};
use crate::state::page::Page;
use crate::table::Column;
use crate::table::coverage::Coverage;
use leptos::prelude::*;
use std::sync::Arc;

/// Returns the columns that have no value in any row.
pub fn at_present(source: &SharedSource, columns: &[Column], entries: &[RowEntry]) -> Vec<usize> {
    let mut coverage = Coverage::new(columns.len());
    let with_value: Vec<usize> = (0..columns.len()).filter(|at| columns[*at].has_value()).collect();
    add_values(source, entries, &with_value, &mut coverage);
    coverage.undecided(with_value.into_iter())
}

/// Returns the default columns that no device of the table supports.
pub fn by_default(
    page: &Page,
    source: &SharedSource,
    columns: &Arc<Vec<Column>>,
    entries: Memo<Vec<RowEntry>>,
) -> Memo<Vec<usize>> {
    let (source, columns, step) = (source.clone(), columns.clone(), page.step);
    let coverage = StoredValue::new(Coverage::new(columns.len()));
    Memo::new(move |_| {
        step.track();
        coverage.update_value(|coverage| {
            let undecided = coverage.undecided(
                (0..columns.len())
                    .filter(|at| columns[*at].rank != Column::HIDDEN && columns[*at].has_value()),
            );
            entries.with(|entries| add_values(&source, entries, &undecided, coverage));
        });
        coverage.with_value(Coverage::without_values)
    })
}

/// Adds the values of columns until each has one.
fn add_values(source: &SharedSource, entries: &[RowEntry], columns: &[usize], coverage: &mut Coverage) {
    let (mut undecided, mut values) = (columns.to_vec(), Vec::new());
    for entry in entries {
        if undecided.is_empty() {
            return;
        }
        values.clear();
        source.values(entry, &undecided, &mut values);
        undecided.iter().zip(&values).for_each(|(column, value)| coverage.add(*column, value));
        undecided = coverage.undecided(undecided.into_iter());
    }
}
