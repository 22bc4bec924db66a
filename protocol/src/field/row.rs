//! The cells of one GPU, host, process or job.

use super::{Cell, Field};
use crate::Reading;
use serde::de::{self, MapAccess, SeqAccess, Visitor};
use serde::ser::{SerializeMap, SerializeTuple};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::{fmt, marker::PhantomData};

/// Number of cells in a row; each kind of row uses the first few.
pub const ROW_WIDTH: usize = 48;

/// The cells of one GPU, host, process or job, indexed by field.
pub struct Row<F> {
    cells: [Cell; ROW_WIDTH],
    kind: PhantomData<F>,
}

impl<F: Field> Row<F> {
    /// Returns the cell of a field.
    pub fn get(&self, field: F) -> Cell {
        self.cells[field.index()]
    }

    /// Sets the cell of a field.
    pub fn set(&mut self, field: F, cell: Cell) {
        self.cells[field.index()] = cell;
    }

    /// Returns the value of a field in its unit, if there is one.
    pub fn value(&self, field: F) -> Option<u64> {
        self.get(field).value().map(|steps| field.scale().value(u64::from(steps)))
    }

    /// Iterates over all fields that have a value, with the value in the field's unit.
    pub fn values(&self) -> impl Iterator<Item = (F, u64)> {
        F::ALL.iter().filter_map(|field| Some((*field, self.value(*field)?)))
    }

    /// Borrows all positions, used or not.
    pub fn cells(&self) -> &[Cell; ROW_WIDTH] {
        &self.cells
    }

    /// Mutably borrows all positions, used or not.
    pub fn cells_mut(&mut self) -> &mut [Cell; ROW_WIDTH] {
        &mut self.cells
    }
}

impl<F> Clone for Row<F> {
    fn clone(&self) -> Self {
        Self { cells: self.cells, kind: PhantomData }
    }
}

impl<F> Default for Row<F> {
    fn default() -> Self {
        Self { cells: [Cell::NOT_YET; ROW_WIDTH], kind: PhantomData }
    }
}

impl<F> PartialEq for Row<F> {
    fn eq(&self, other: &Self) -> bool {
        self.cells == other.cells
    }
}

impl<F: Field> fmt::Debug for Row<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(F::ALL.iter().map(|field| (field.name(), self.get(*field)))).finish()
    }
}

/// A cell in JSON: the value in its unit, `"unsupported"`, `"failed"`, or `null` for not yet.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum HumanCell {
    Value(u64),
    Absent(HumanAbsence),
    NotYet(()),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum HumanAbsence {
    Unsupported,
    Failed,
}

impl HumanCell {
    fn of<F: Field>(field: F, cell: Cell) -> Self {
        match cell.value() {
            Some(steps) => Self::Value(field.scale().value(u64::from(steps))),
            None if cell == Cell::NOT_YET => Self::NotYet(()),
            None if cell == Cell::UNSUPPORTED => Self::Absent(HumanAbsence::Unsupported),
            None => Self::Absent(HumanAbsence::Failed),
        }
    }

    fn cell<F: Field>(&self, field: F) -> Cell {
        match self {
            Self::Value(value) => Cell::quantize(field, &Reading::Value(*value)),
            Self::Absent(HumanAbsence::Unsupported) => Cell::UNSUPPORTED,
            Self::Absent(HumanAbsence::Failed) => Cell::FAILED,
            Self::NotYet(()) => Cell::NOT_YET,
        }
    }
}

impl<F: Field> Serialize for Row<F> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            let known = || F::ALL.iter().filter(|field| self.get(**field) != Cell::NOT_YET);
            let mut map = serializer.serialize_map(Some(known().count()))?;
            for field in known() {
                map.serialize_entry(field.name(), &HumanCell::of(*field, self.get(*field)))?;
            }
            return map.end();
        }
        // One length byte, then the codes up to the last set one.
        let used = self.cells.iter().rposition(|cell| *cell != Cell::NOT_YET).map_or(0, |last| last + 1);
        let mut tuple = serializer.serialize_tuple(used + 1)?;
        tuple.serialize_element(&(used as u8))?;
        for cell in &self.cells[..used] {
            tuple.serialize_element(&cell.code())?;
        }
        tuple.end()
    }
}

impl<'de, F: Field> Deserialize<'de> for Row<F> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            deserializer.deserialize_map(RowVisitor(PhantomData))
        } else {
            deserializer.deserialize_tuple(ROW_WIDTH + 1, RowVisitor(PhantomData))
        }
    }
}

/// Some cells of a row keyed by field name, in JSON only; see [`crate::live::Readings::Plain`].
#[derive(Clone, Debug, PartialEq)]
pub struct NamedCells<F>(pub Vec<(F, Cell)>);

impl<F: Field> NamedCells<F> {
    /// Applies the cells to a row.
    pub fn apply(&self, row: &mut Row<F>) {
        self.0.iter().for_each(|(field, cell)| row.set(*field, *cell));
    }
}

impl<F: Field> Serialize for NamedCells<F> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer
            .collect_map(self.0.iter().map(|(field, cell)| (field.name(), HumanCell::of(*field, *cell))))
    }
}

impl<'de, F: Field> Deserialize<'de> for NamedCells<F> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // The page uses only the binary form, so this type does not support it.
        if !deserializer.is_human_readable() {
            return Err(de::Error::custom("cells by name are only available in JSON"));
        }
        let cells = std::collections::BTreeMap::<String, HumanCell>::deserialize(deserializer)?;
        let named = |field: &F| cells.get(field.name()).map(|cell| (*field, cell.cell(*field)));
        Ok(Self(F::ALL.iter().filter_map(named).collect()))
    }
}

struct RowVisitor<F>(PhantomData<F>);

impl<'de, F: Field> Visitor<'de> for RowVisitor<F> {
    type Value = Row<F>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the cells of a row")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut row = Row::default();
        while let Some(name) = map.next_key::<String>()? {
            let cell: HumanCell = map.next_value()?;
            // Fields of a newer relay are ignored.
            if let Some(field) = F::ALL.iter().find(|field| field.name() == name) {
                row.set(*field, cell.cell(*field));
            }
        }
        Ok(row)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let used: u8 = seq.next_element()?.ok_or_else(|| de::Error::custom("an empty row"))?;
        if usize::from(used) > ROW_WIDTH {
            return Err(de::Error::custom("a row wider than this version knows"));
        }
        let mut row = Row::default();
        for cell in &mut row.cells[..usize::from(used)] {
            *cell = Cell::from_code(seq.next_element()?.ok_or_else(|| de::Error::custom("a short row"))?);
        }
        Ok(row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::GpuField;

    #[test]
    fn a_row_round_trips_in_both_forms() {
        let mut row = Row::<GpuField>::default();
        row.set(GpuField::Util, Cell::steps(97));
        row.set(GpuField::Fan, Cell::UNSUPPORTED);
        row.set(GpuField::MemUsed, Cell::FAILED);
        let json = serde_json::to_string(&row).unwrap();
        assert_eq!(json, r#"{"util_pct":97,"mem_used_bytes":"failed","fan_pct":"unsupported"}"#);
        assert_eq!(serde_json::from_str::<Row<GpuField>>(&json).unwrap(), row);
        let bytes = postcard::to_stdvec(&row).unwrap();
        assert_eq!(bytes.len(), 10);
        assert_eq!(postcard::from_bytes::<Row<GpuField>>(&bytes).unwrap(), row);
    }
}
