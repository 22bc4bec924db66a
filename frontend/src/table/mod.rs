//! What a table is besides its drawing: columns, values, order, filter, choice and export; pure, without a document.

pub mod choice;
pub mod column;
pub mod export;
pub mod filter;
pub mod gpus;
pub mod jobs;
pub mod nodes;
pub mod processes;
pub mod sort;
pub mod sum;
pub mod unseen;
pub mod uses;
pub mod value;
pub mod window;

pub use column::{Column, Look};
pub use value::{Unit, Value};

use nodeglass_protocol::Row;
use nodeglass_protocol::cell::Field;

/// A column of a table whose readings are `F`, and how it is read: `R` is a function of a row.
pub struct Told<R, F> {
    /// What it is called and how it looks.
    pub column: Column,
    /// How it is read.
    pub read: Read<R, F>,
}

/// How a column is read.
pub enum Read<R, F> {
    /// It is a reading.
    Field(F),
    /// It is a reading with the reading of which it is a part.
    Part(F, F),
    /// It is found otherwise.
    By(R),
}

/// A column that is a reading.
pub const fn field<R, F: Copy>(column: Column, field: F) -> Told<R, F> {
    Told { column, read: Read::Field(field) }
}

/// A column that is a part of another reading.
pub const fn part<R, F: Copy>(column: Column, part: F, whole: F) -> Told<R, F> {
    Told { column, read: Read::Part(part, whole) }
}

/// A column that is found otherwise.
pub const fn by<R: Copy, F: Copy>(column: Column, read: R) -> Told<R, F> {
    Told { column, read: Read::By(read) }
}

impl<R, F: Field> Told<R, F> {
    /// What stands there.
    pub fn value(&self, readings: &Row<F>, read: impl FnOnce(&R) -> Value) -> Value {
        let cell = |field: F| Value::cell(readings.get(field), field.scale());
        match &self.read {
            Read::Field(field) => cell(*field),
            Read::Part(part, whole) => Value::of_whole(cell(*part), &cell(*whole)),
            Read::By(by) => read(by),
        }
    }
}

/// What it is now, for what is told as a length of time or an age.
#[derive(Clone, Copy, Debug, Default)]
pub struct Now {
    /// The relay's clock in ms.
    pub relay_ms: u64,
    /// The cluster's time of day in s since 1970.
    pub wall_s: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tables() -> [(&'static str, Vec<Column>); 5] {
        [
            ("gpus", gpus::columns()),
            ("processes", processes::columns()),
            ("nodes", nodes::columns()),
            ("uses", uses::columns()),
            ("jobs", jobs::columns()),
        ]
    }

    #[test]
    fn every_name_means_one_column() {
        for (table, columns) in tables() {
            let mut names: Vec<&str> = columns
                .iter()
                .flat_map(|column| column.aliases.iter().chain([&column.id]))
                .copied()
                .collect();
            let count = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), count, "{table}");
            assert!(
                names.iter().all(|name| name.chars().all(|c| c.is_ascii_lowercase() || c == '_')),
                "{table}"
            );
        }
    }

    #[test]
    fn every_column_says_what_it_is_and_the_default_fits_a_laptop() {
        for (table, columns) in tables() {
            assert!(columns.iter().all(|column| !column.about.is_empty() && column.width > 0), "{table}");
            let shown = column::fitting(&columns, 320);
            assert!((2..6).contains(&shown.len()), "{table} on a phone: {shown:?}");
            assert!(column::fitting(&columns, 1_100).len() >= 6, "{table}");
        }
    }
}
