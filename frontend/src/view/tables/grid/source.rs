//! Row sources: which rows a table has, their values, and what opens when one is chosen.

use crate::domain::text;
use crate::fleet::{GpuSignals, NodeSignals};
use crate::table::{Column, Value};
use leptos::prelude::{AnyView, IntoAny};
use nodeglass_protocol::field::Vendors;
use nodeglass_protocol::{GpuUuid, JobId};
use std::sync::Arc;

/// A row source that can be shared between threads, as views require.
pub type SharedSource = Arc<dyn RowSource + Send + Sync>;

/// The rows of a table.
pub trait RowSource {
    /// Returns its names.
    fn names(&self) -> TableNames;
    /// Returns its columns in their default order.
    fn columns(&self) -> Vec<Column>;
    /// Returns the vendors of its devices, which decide about titles; subscribes to the set of devices.
    fn vendors(&self) -> Vendors {
        Vendors::Unknown
    }
    /// Returns its rows in their default order; subscribes to the set of rows.
    fn entries(&self) -> Vec<RowEntry>;
    /// Subscribes to any change of the rows, all of them together.
    fn track(&self);
    /// Returns a number that changes when a row may have changed; does not subscribe.
    fn revision(&self, entry: &RowEntry) -> u64;
    /// Appends the current values of some columns of a row; does not subscribe.
    fn values(&self, entry: &RowEntry, columns: &[usize], into: &mut Vec<Value>);
    /// Returns the current value of a column of a row; does not subscribe.
    fn value(&self, entry: &RowEntry, column: usize) -> Value {
        let mut values = Vec::with_capacity(1);
        self.values(entry, &[column], &mut values);
        values.pop().unwrap_or(Value::NONE)
    }
    /// Returns the current flags of a row; does not subscribe.
    fn row_flags(&self, entry: &RowEntry) -> RowFlags;
    /// Returns whether a row is a remark among the rows, which is not counted as one of them.
    fn is_note(&self, _: &RowEntry) -> bool {
        false
    }
    /// Returns how many rows these are, in words: `8 nodes`.
    fn counted(&self, entries: &[RowEntry]) -> String {
        let (one, many) = self.names().rows;
        text::count(entries.len(), one, many)
    }
    /// Returns which of the matching rows, in order, are shown until the user unfolds the others; `None` shows them all.
    /// Subscribes to what decides it.
    fn folding(&self, _: &[RowEntry]) -> Option<Folding> {
        None
    }
    /// Returns a second line for a row that is tall enough, on narrow and touch screens: what a tooltip or a
    /// column that is not shown would explain.
    fn second_line(&self, _: &RowEntry, _is_shown: &dyn Fn(&str) -> bool) -> Option<String> {
        None
    }
    /// Returns an explanation of a special row, for a tooltip.
    fn about(&self, _: &RowEntry) -> Option<&'static str> {
        None
    }
    /// Returns whether a row counts in the totals: instances are included in their GPU, stale rows are not current, and those
    /// of other jobs are not part of this one.
    fn counts_in_totals(&self, entry: &RowEntry) -> bool {
        let RowFlags { stale, foreign, .. } = self.row_flags(entry);
        entry.depth == 0 && !stale && !foreign
    }
    /// Returns the aggregate of each of some columns over rows that count, or `None` where it is the aggregate of the rows'
    /// values: rows that share a GPU count it once.
    fn sums(&self, _: &[RowEntry], columns: &[&'static str]) -> Vec<Option<Value>> {
        vec![None; columns.len()]
    }
    /// Creates a cell with [`crate::table::CellStyle::Custom`].
    fn custom_cell(&self, entry: &RowEntry, column: &'static str) -> CustomCell;
    /// Opens what a row represents.
    fn open(&self, entry: &RowEntry);
}

/// The folded rows of a table.
#[derive(Clone, PartialEq)]
pub struct Folding {
    /// The others, in order.
    pub shown: Vec<RowEntry>,
    /// The folded rows in words: `9 more · 50 ended`.
    pub rest: String,
}

/// A cell that is rendered by its table.
pub struct CustomCell {
    /// Its content.
    pub view: AnyView,
    /// Updates it if its value changed; called when the row changed or the charts took a step. `None` if it
    /// updates itself.
    pub write: Option<Box<dyn Fn()>>,
}

impl CustomCell {
    /// Creates a cell that its row updates.
    pub fn updated_by_row(view: impl IntoAny, write: impl Fn() + 'static) -> Self {
        Self { view: view.into_any(), write: Some(Box::new(write)) }
    }

    /// Creates a cell that updates itself, or never changes.
    pub fn self_updating(view: impl IntoAny) -> Self {
        Self { view: view.into_any(), write: None }
    }
}

/// The names of a table.
#[derive(Clone, Copy, Debug)]
pub struct TableNames {
    /// In storage and in the ids of its rows.
    pub id: &'static str,
    /// The title above it.
    pub title: &'static str,
    /// One row, and several.
    pub rows: (&'static str, &'static str),
    /// Query parameter of its filter.
    pub filter: &'static str,
    /// Query parameter of its order.
    pub sort: &'static str,
    /// An example of a filter.
    pub example: &'static str,
}

/// One row.
#[derive(Clone, PartialEq)]
pub struct RowEntry {
    /// Its identity, without blanks.
    pub key: Arc<str>,
    /// 1 for a part of the last row of depth 0 above it.
    pub depth: u8,
    /// Its subject.
    pub subject: RowSubject,
}

/// Subject of a row.
#[derive(Clone, PartialEq)]
pub enum RowSubject {
    /// A job.
    Job(JobId),
    /// A node.
    Node(NodeSignals),
    /// A GPU of a node.
    Gpu(NodeSignals, GpuSignals),
    /// A process on a GPU of a node, with its last position in the list.
    Process(NodeSignals, ProcessKey, usize),
    /// Memory of a GPU that no visible process holds.
    Unattributed(NodeSignals, GpuSignals),
    /// Reason why processes of a GPU may be missing, by the index of the gap.
    Gap(NodeSignals, GpuSignals, usize),
    /// Resource usage of a job on a node.
    JobUsage(NodeSignals, JobId),
}

/// Identifies a process on a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessKey {
    /// The GPU.
    pub gpu: GpuUuid,
    /// The process.
    pub pid: u32,
}

/// Flags of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowFlags {
    /// It belongs to another job.
    pub foreign: bool,
    /// It cannot be read.
    pub lost: bool,
    /// Its values are stale.
    pub stale: bool,
    /// Its totals cover only some of its GPUs: how many, of how many.
    pub partial: Option<(usize, usize)>,
}
