//! Coverage of a table: the columns that have values on its devices, and those that have none.

use super::value::{NO_GPU, NO_INSTANCE, NO_START, NOT_PENDING, TOO_FEW_PEERS, Value};

/// Coverage of the columns of a table: a column has no values once a row states that it is unsupported and no row has
/// had one. A late, stale or failed value decides nothing, because columns must not come and go.
#[derive(Clone, Debug, Default)]
pub struct Coverage {
    columns: Vec<Support>,
}

/// Whether a column has values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Support {
    /// Unknown yet.
    #[default]
    Unknown,
    /// No row has had a value, and at least one states that it has none.
    Unsupported,
    /// A row has or had a value.
    HasValues,
}

impl Coverage {
    /// Creates the coverage of a number of columns, without any rows.
    pub fn new(columns: usize) -> Self {
        Self { columns: vec![Support::default(); columns] }
    }

    /// Returns the columns that have had no value so far, among some.
    pub fn undecided(&self, among: impl Iterator<Item = usize>) -> Vec<usize> {
        among.filter(|at| self.columns.get(*at).is_some_and(|known| *known != Support::HasValues)).collect()
    }

    /// Adds a value of a column.
    pub fn add(&mut self, column: usize, value: &Value) {
        let Some(known) = self.columns.get_mut(column) else { return };
        match value.why_absent() {
            None => *known = Support::HasValues,
            Some(_) if states_absence(value) && *known == Support::Unknown => *known = Support::Unsupported,
            Some(_) => {}
        }
    }

    /// Returns the columns without values.
    pub fn without_values(&self) -> Vec<usize> {
        let columns = self.columns.iter().enumerate();
        columns.filter(|(_, known)| **known == Support::Unsupported).map(|(at, _)| at).collect()
    }
}

/// Returns whether a row states that it will have no value.
fn states_absence(value: &Value) -> bool {
    [Value::UNSUPPORTED, NO_GPU, NO_INSTANCE, NO_START, NOT_PENDING, TOO_FEW_PEERS].contains(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_statement_without_any_value_hides_a_column() {
        let mut coverage = Coverage::new(4);
        coverage.add(0, &Value::NOT_YET);
        coverage.add(1, &Value::Absent("reading failed this time"));
        coverage.add(2, &Value::UNSUPPORTED);
        coverage.add(3, &Value::UNSUPPORTED);
        assert_eq!(coverage.without_values(), [2, 3]);
        coverage.add(3, &Value::Number(0));
        assert_eq!(coverage.without_values(), [2], "zero is a value");
        assert_eq!(coverage.undecided(0..4), [0, 1, 2]);
        coverage.add(3, &Value::UNSUPPORTED);
        assert_eq!(coverage.without_values(), [2], "a column that had values stays");
        coverage.add(2, &Value::NOT_YET);
        assert_eq!(coverage.without_values(), [2], "a momentary gap brings none back");
        coverage.add(9, &Value::NONE);
    }
}
