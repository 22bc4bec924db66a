//! Rows are put in an order that keeps equals as they were, and those without a value at the end.

use super::column::{self, Column};
use super::value::Value;
use std::cmp::Ordering;

/// By what a table is sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sort {
    /// The column's position.
    pub column: usize,
    /// Largest first.
    pub down: bool,
}

impl Sort {
    /// Reads it as the URL has it: `sm-` from the top, `gpu` or `gpu+` from the bottom.
    pub fn parse(text: &str, columns: &[Column]) -> Option<Self> {
        let (name, down) = match text.strip_suffix('-') {
            Some(name) => (name, true),
            None => (text.trim_end_matches(['+', ' ']), false),
        };
        let column = column::find(columns, name).filter(|at| columns[*at].is_told())?;
        Some(Self { column, down })
    }

    /// As the URL has it.
    pub fn text(self, columns: &[Column]) -> String {
        format!("{}{}", columns[self.column].id, if self.down { "-" } else { "" })
    }

    /// What a click on a head makes of it: first the order that one mostly wants, then the other way round,
    /// then as it was.
    pub fn clicked(now: Option<Self>, column: usize, columns: &[Column]) -> Option<Self> {
        let first = Self::first(column, columns);
        match now {
            Some(now) if now == first => Some(Self { down: !first.down, ..first }),
            Some(now) if now.column == column => None,
            _ => Some(first),
        }
    }

    /// The order that one mostly wants: large numbers first, names from the beginning of the alphabet.
    fn first(column: usize, columns: &[Column]) -> Self {
        let unit = columns[column].unit;
        Self { column, down: unit.is_number() && unit != super::value::Unit::Id }
    }

    /// The order by the next of the shown columns, `step` further.
    pub fn moved(now: Option<Self>, step: isize, shown: &[usize], columns: &[Column]) -> Option<Self> {
        let told: Vec<usize> = shown.iter().copied().filter(|at| columns[*at].is_told()).collect();
        let here = now.and_then(|now| told.iter().position(|at| *at == now.column));
        let next = match (here, step) {
            (Some(here), _) => here.checked_add_signed(step)?,
            (None, 1..) => 0,
            (None, _) => told.len().checked_sub(1)?,
        };
        told.get(next).map(|at| Self::first(*at, columns))
    }

    /// The other way round.
    pub fn turned(self) -> Self {
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

/// The positions of rows in their order. A row of depth above 0 belongs to the last one of depth 0 before it and
/// goes where that one goes; a row that is kept keeps the one it belongs to.
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
        let by = |rows: &[usize]| rows.iter().map(|row| value(*row, sort.column)).collect::<Vec<_>>();
        for group in groups.iter_mut().filter(|group| group.len() > 2) {
            let sorted =
                sorted(&by(&group[1..]), sort).into_iter().map(|at| group[at + 1]).collect::<Vec<_>>();
            group.truncate(1);
            group.extend(sorted);
        }
        let heads: Vec<usize> = groups.iter().map(|group| group[0]).collect();
        let order = sorted(&by(&heads), sort);
        return order.into_iter().flat_map(|at| groups[at].iter().copied()).collect();
    }
    groups.concat()
}

fn sorted(values: &[Value], sort: Sort) -> Vec<usize> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    // With the position as the last word the order is stable, and the smaller code of an unstable sort will do.
    order.sort_unstable_by(|a, b| sort.compare(&values[*a], &values[*b]).then(a.cmp(b)));
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::value::Unit;

    const COLUMNS: [Column; 3] = [
        Column::new("node", "Node", Unit::Words, 80, ""),
        Column::new("sm", "SM", Unit::Percent, 50, ""),
        Column::new("gpu", "GPU", Unit::Id, 50, ""),
    ];

    fn order(depths: &[u8], values: &[Option<u64>], down: bool) -> Vec<usize> {
        ordered(depths, &|_| true, Some(Sort { column: 1, down }), &|row, _| Value::number(values[row]))
    }

    #[test]
    fn what_is_absent_comes_last_whichever_way_and_equals_stay() {
        let values = [Some(5), None, Some(9), Some(5), Some(0)];
        assert_eq!(order(&[0; 5], &values, true), [2, 0, 3, 4, 1]);
        assert_eq!(order(&[0; 5], &values, false), [4, 0, 3, 2, 1]);
    }

    #[test]
    fn parts_go_where_their_whole_goes() {
        let values = [Some(1), Some(10), Some(20), Some(30), Some(7)];
        assert_eq!(order(&[0, 1, 1, 0, 0], &values, true), [3, 4, 0, 2, 1]);
    }

    #[test]
    fn a_part_that_is_kept_keeps_its_whole() {
        let value = |_: usize, _: usize| Value::NONE;
        assert_eq!(ordered(&[0, 1, 1, 0], &|row| row == 2, None, &value), [0, 2]);
        assert_eq!(ordered(&[0, 1, 1, 0], &|row| row == 0, None, &value), [0]);
    }

    #[test]
    fn a_sort_comes_back_from_the_url() {
        for sort in [Sort { column: 1, down: true }, Sort { column: 2, down: false }] {
            assert_eq!(Sort::parse(&sort.text(&COLUMNS), &COLUMNS), Some(sort));
        }
        assert_eq!(Sort::parse("gpu+", &COLUMNS), Some(Sort { column: 2, down: false }));
        assert_eq!(Sort::parse("nonsense-", &COLUMNS), None);
    }

    #[test]
    fn clicks_go_round_and_begin_with_what_one_wants() {
        let first = Sort::clicked(None, 1, &COLUMNS);
        assert_eq!(first, Some(Sort { column: 1, down: true }));
        let second = Sort::clicked(first, 1, &COLUMNS);
        assert_eq!(second, Some(Sort { column: 1, down: false }));
        assert_eq!(Sort::clicked(second, 1, &COLUMNS), None);
        assert_eq!(Sort::clicked(second, 0, &COLUMNS), Some(Sort { column: 0, down: false }));
    }

    #[test]
    fn keys_walk_over_the_shown_columns_and_stop_at_the_ends() {
        let at = |column| Some(Sort { column, down: column == 1 });
        assert_eq!(Sort::moved(None, 1, &[2, 1], &COLUMNS), at(2));
        assert_eq!(Sort::moved(at(2), 1, &[2, 1], &COLUMNS), at(1));
        assert_eq!(Sort::moved(at(1), 1, &[2, 1], &COLUMNS), None);
        assert_eq!(Sort::moved(None, -1, &[2, 1], &COLUMNS), at(1));
    }
}
