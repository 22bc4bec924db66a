//! Sorts rows: stable, with missing values last.

use super::column::{self, Column};
use super::value::Value;
use crate::domain::sorting;
use std::cmp::Ordering;

/// The order of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sort {
    /// The column's position.
    pub column: usize,
    /// Descending.
    pub down: bool,
}

impl Sort {
    /// Parses the form of the URL: `sm-` descending, `gpu` or `gpu+` ascending.
    pub fn parse(text: &str, columns: &[Column]) -> Option<Self> {
        let (name, down) = match text.strip_suffix('-') {
            Some(name) => (name, true),
            None => (text.trim_end_matches(['+', ' ']), false),
        };
        let column = column::find(columns, name).filter(|at| columns[*at].has_value())?;
        Some(Self { column, down })
    }

    /// Returns the form of the URL.
    pub fn text(self, columns: &[Column]) -> String {
        format!("{}{}", columns[self.column].id, if self.down { "-" } else { "" })
    }

    /// Returns the order after a click on a column's head: first its default direction, then the other one,
    /// then none.
    pub fn after_click(now: Option<Self>, column: usize, columns: &[Column]) -> Option<Self> {
        let first = Self::default_for(column, columns);
        match now {
            Some(now) if now == first => Some(Self { down: !first.down, ..first }),
            Some(now) if now.column == column => None,
            _ => Some(first),
        }
    }

    /// Returns the default direction of a column: numbers descending, names ascending.
    fn default_for(column: usize, columns: &[Column]) -> Self {
        let unit = columns[column].unit;
        Self { column, down: unit.is_number() && unit != super::value::CellUnit::Id }
    }

    /// Returns the order by the shown column `step` places further.
    pub fn next_column(now: Option<Self>, step: isize, shown: &[usize], columns: &[Column]) -> Option<Self> {
        let sortable: Vec<usize> = shown.iter().copied().filter(|at| columns[*at].has_value()).collect();
        let here = now.and_then(|now| sortable.iter().position(|at| *at == now.column));
        let next = match (here, step) {
            (Some(here), _) => here.checked_add_signed(step)?,
            (None, 1..) => 0,
            (None, _) => sortable.len().checked_sub(1)?,
        };
        sortable.get(next).map(|at| Self::default_for(*at, columns))
    }

    /// Returns the reversed order.
    pub fn reversed(self) -> Self {
        Self { down: !self.down, ..self }
    }

    fn compare(self, one: &Value, other: &Value) -> Ordering {
        match (one.why_absent(), other.why_absent()) {
            (None, None) if self.down => other.compare(one),
            (None, None) => one.compare(other),
            (one, other) => one.is_some().cmp(&other.is_some()),
        }
    }
}

/// Returns the positions of the rows to show, in order. A row of depth above 0 belongs to the last row of
/// depth 0 before it and moves with it; a row that is kept keeps its parent.
pub fn ordered(
    depths: &[u8],
    keep: &dyn Fn(usize) -> bool,
    sort: Option<Sort>,
    value: &dyn Fn(usize, usize) -> Value,
) -> Vec<usize> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (row, depth) in depths.iter().enumerate() {
        match groups.last_mut() {
            Some(group) if *depth > 0 => group.push(row),
            _ => groups.push(vec![row]),
        }
    }
    for group in &mut groups {
        let head = group[0];
        group.retain(|row| keep(*row));
        if !group.is_empty() && group[0] != head {
            group.insert(0, head);
        }
    }
    groups.retain(|group| !group.is_empty());
    if let Some(sort) = sort {
        let keys = |rows: &[usize]| rows.iter().map(|row| value(*row, sort.column)).collect::<Vec<_>>();
        for group in groups.iter_mut().filter(|group| group.len() > 2) {
            let sorted =
                sorted(&keys(&group[1..]), sort).into_iter().map(|at| group[at + 1]).collect::<Vec<_>>();
            group.truncate(1);
            group.extend(sorted);
        }
        let heads: Vec<usize> = groups.iter().map(|group| group[0]).collect();
        let order = sorted(&keys(&heads), sort);
        return order.into_iter().flat_map(|at| groups[at].iter().copied()).collect();
    }
    groups.concat()
}

fn sorted(values: &[Value], sort: Sort) -> Vec<usize> {
    sorting::positions(values.len(), &|one, other| sort.compare(&values[one], &values[other]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::value::CellUnit;

    const COLUMNS: [Column; 3] = [
        Column::new("node", "Node", CellUnit::Text, 80, ""),
        Column::new("sm", "SM", CellUnit::Percent, 50, ""),
        Column::new("gpu", "GPU", CellUnit::Id, 50, ""),
    ];

    fn order(depths: &[u8], values: &[Option<u64>], down: bool) -> Vec<usize> {
        ordered(depths, &|_| true, Some(Sort { column: 1, down }), &|row, _| Value::number(values[row]))
    }

    #[test]
    fn missing_values_come_last_either_way_and_equal_rows_keep_their_order() {
        let values = [Some(5), None, Some(9), Some(5), Some(0)];
        assert_eq!(order(&[0; 5], &values, true), [2, 0, 3, 4, 1]);
        assert_eq!(order(&[0; 5], &values, false), [4, 0, 3, 2, 1]);
    }

    #[test]
    fn parts_move_with_their_parent() {
        let values = [Some(1), Some(10), Some(20), Some(30), Some(7)];
        assert_eq!(order(&[0, 1, 1, 0, 0], &values, true), [3, 4, 0, 2, 1]);
    }

    #[test]
    fn a_kept_part_keeps_its_parent() {
        let value = |_: usize, _: usize| Value::NONE;
        assert_eq!(ordered(&[0, 1, 1, 0], &|row| row == 2, None, &value), [0, 2]);
        assert_eq!(ordered(&[0, 1, 1, 0], &|row| row == 0, None, &value), [0]);
    }

    #[test]
    fn a_sort_round_trips_through_the_url() {
        for sort in [Sort { column: 1, down: true }, Sort { column: 2, down: false }] {
            assert_eq!(Sort::parse(&sort.text(&COLUMNS), &COLUMNS), Some(sort));
        }
        assert_eq!(Sort::parse("gpu+", &COLUMNS), Some(Sort { column: 2, down: false }));
        assert_eq!(Sort::parse("nonsense-", &COLUMNS), None);
    }

    #[test]
    fn clicks_cycle_through_the_orders() {
        let first = Sort::after_click(None, 1, &COLUMNS);
        assert_eq!(first, Some(Sort { column: 1, down: true }));
        let second = Sort::after_click(first, 1, &COLUMNS);
        assert_eq!(second, Some(Sort { column: 1, down: false }));
        assert_eq!(Sort::after_click(second, 1, &COLUMNS), None);
        assert_eq!(Sort::after_click(second, 0, &COLUMNS), Some(Sort { column: 0, down: false }));
    }

    #[test]
    fn keys_step_through_the_shown_columns_and_stop_at_the_ends() {
        let at = |column| Some(Sort { column, down: column == 1 });
        assert_eq!(Sort::next_column(None, 1, &[2, 1], &COLUMNS), at(2));
        assert_eq!(Sort::next_column(at(2), 1, &[2, 1], &COLUMNS), at(1));
        assert_eq!(Sort::next_column(at(1), 1, &[2, 1], &COLUMNS), None);
        assert_eq!(Sort::next_column(None, -1, &[2, 1], &COLUMNS), at(1));
    }
}
