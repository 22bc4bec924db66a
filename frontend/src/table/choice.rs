//! The user's choice of columns and their order, stored by column id.

use super::column::{Column, find, fitting};

/// The chosen columns of a table; without a choice, the default that fits the available width.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice(Option<Vec<usize>>);

impl Choice {
    /// Parses a stored choice; drops unknown columns.
    pub fn parse(text: &str, columns: &[Column]) -> Self {
        let found: Vec<usize> = text.split(',').filter_map(|name| find(columns, name)).collect();
        Self((!found.is_empty()).then_some(found))
    }

    /// Returns the form to store; empty for the default.
    pub fn text(&self, columns: &[Column]) -> String {
        let names = self.0.iter().flatten().map(|at| columns[*at].id);
        names.collect::<Vec<_>>().join(",")
    }

    /// Returns whether the user made a choice.
    pub fn is_own(&self) -> bool {
        self.0.is_some()
    }

    /// Returns the columns to show in a width in px, by default without those `without_values`. A user's choice
    /// is shown in full: the table scrolls.
    pub fn shown(&self, columns: &[Column], without_values: &[usize], room: u32) -> Vec<usize> {
        self.0.clone().unwrap_or_else(|| fitting(columns, without_values, room))
    }

    /// Returns the choice with a column shown or hidden; the last one stays.
    pub fn toggled(&self, column: usize, shown: &[usize]) -> Self {
        let mut own = shown.to_vec();
        match own.iter().position(|at| *at == column) {
            Some(_) if own.len() == 1 => {}
            Some(at) => drop(own.remove(at)),
            None => {
                // At its default position, if the others are in the default order.
                let at = own.iter().position(|other| *other > column).unwrap_or(own.len());
                own.insert(at, column);
            }
        }
        Self(Some(own))
    }

    /// Returns the choice with a shown column moved by `step`.
    pub fn moved(&self, column: usize, step: isize, shown: &[usize]) -> Self {
        let mut own = shown.to_vec();
        let from = own.iter().position(|at| *at == column);
        let to = from.and_then(|from| from.checked_add_signed(step)).filter(|to| *to < own.len());
        if let (Some(from), Some(to)) = (from, to) {
            own.swap(from, to);
        }
        Self(Some(own))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::value::CellUnit;

    const COLUMNS: [Column; 4] = [
        Column::new("gpu", "GPU", CellUnit::Id, 40, "").rank(0),
        Column::new("sm", "SM", CellUnit::Percent, 50, "").rank(1),
        Column::new("cwd", "Folder", CellUnit::Text, 200, ""),
        Column::new("mem", "Memory", CellUnit::Gib, 80, "").rank(1),
    ];

    #[test]
    fn a_choice_round_trips_and_drops_unknown_columns() {
        let choice = Choice::parse("mem,gone,gpu", &COLUMNS);
        assert_eq!(choice.shown(&COLUMNS, &[], 10), [3, 0]);
        assert_eq!(choice.text(&COLUMNS), "mem,gpu");
        assert!(!Choice::parse("gone", &COLUMNS).is_own());
        assert_eq!(Choice::default().text(&COLUMNS), "");
    }

    #[test]
    fn a_column_is_inserted_in_default_order_and_the_last_one_stays() {
        let shown = Choice::default().shown(&COLUMNS, &[], 500);
        let more = Choice::default().toggled(2, &shown);
        assert_eq!(more.shown(&COLUMNS, &[3], 0), [0, 1, 2, 3]);
        assert_eq!(more.toggled(0, &[0]).shown(&COLUMNS, &[3], 0), [0]);
    }

    #[test]
    fn columns_move_within_the_table() {
        let choice = Choice::default();
        assert_eq!(choice.moved(1, 1, &[0, 1, 3]).shown(&COLUMNS, &[3], 0), [0, 3, 1]);
        assert_eq!(choice.moved(0, -1, &[0, 1, 3]).shown(&COLUMNS, &[3], 0), [0, 1, 3]);
    }
}
