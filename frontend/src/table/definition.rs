//! The definition of a column: its description, and how its value is read from a row.

use super::column::Column;
use super::value::Value;
use nodeglass_protocol::Row;
use nodeglass_protocol::field::{Field, FullScale};

/// A column of a table with readings of `F`, and how its value is read: `R` is a function of a row.
pub struct ColumnDef<R, F> {
    /// Its description.
    pub column: Column,
    /// The reader of its value.
    pub read: ColumnReader<R, F>,
}

/// Reader of a column.
pub enum ColumnReader<R, F> {
    /// A field.
    Field(F),
    /// A field with the field of its maximum.
    Part(F, F),
    /// Computed by a function.
    Computed(R),
}

/// Defines a column that shows a field.
pub const fn field<R, F: Copy>(column: Column, field: F) -> ColumnDef<R, F> {
    ColumnDef { column, read: ColumnReader::Field(field) }
}

/// Defines a column that shows a field with its maximum.
pub const fn part<R, F: Copy>(column: Column, part: F, whole: F) -> ColumnDef<R, F> {
    ColumnDef { column, read: ColumnReader::Part(part, whole) }
}

/// Defines the column of a field as the catalogue describes it.
pub fn metric<R, F: Field>(of: F) -> ColumnDef<R, F> {
    styled(of, |column| column)
}

/// Defines the column of a field as the catalogue describes it, except for its style.
pub fn styled<R, F: Field>(of: F, style: impl FnOnce(Column) -> Column) -> ColumnDef<R, F> {
    let column = style(Column::of_field(of));
    match of.metric().full_scale {
        FullScale::Field(whole) => part(column, of, whole),
        _ => field(column, of),
    }
}

/// Appends the fields of the catalogue that no column shows, hidden by default. A field that is the
/// full scale of another one is shown with it.
pub fn with_catalogue<R, F: Field>(mut columns: Vec<ColumnDef<R, F>>) -> Vec<ColumnDef<R, F>> {
    let is_whole = |field: F| F::ALL.iter().any(|part| part.metric().full_scale == FullScale::Field(field));
    for field in F::ALL.iter().copied().filter(|field| !is_whole(*field)) {
        let id = field.metric().column_id();
        if !columns.iter().any(|known| known.column.id == id) {
            columns.push(metric(field));
        }
    }
    columns
}

/// Defines a computed column.
pub const fn computed<R: Copy, F: Copy>(column: Column, read: R) -> ColumnDef<R, F> {
    ColumnDef { column, read: ColumnReader::Computed(read) }
}

impl<R, F: Field> ColumnDef<R, F> {
    /// Returns the value of the column in a row.
    pub fn value(&self, readings: &Row<F>, read: impl FnOnce(&R) -> Value) -> Value {
        let cell = |field: F| Value::cell(readings.get(field), field.scale());
        match &self.read {
            ColumnReader::Field(field) => cell(*field),
            ColumnReader::Part(part, whole) => Value::ratio(cell(*part), &cell(*whole)),
            ColumnReader::Computed(by) => read(by),
        }
    }
}

/// The current time, for columns that show a duration or an age.
#[derive(Clone, Copy, Debug, Default)]
pub struct Now {
    /// The relay's clock in ms.
    pub relay_ms: u64,
    /// Unix time by the login node's clock, in s.
    pub wall_s: i64,
}

impl Now {
    /// Returns the time of the pictures of a job: now, or its end, in ms of the relay's clock.
    pub fn until(self, ended_ms: Option<u64>) -> Self {
        let since_ms = ended_ms.map_or(0, |ended_ms| self.relay_ms.saturating_sub(ended_ms));
        let wall_s = self.wall_s.saturating_sub_unsigned(since_ms / 1_000);
        Self { relay_ms: self.relay_ms - since_ms, wall_s }
    }
}
