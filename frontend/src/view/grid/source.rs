//! A source is what a table shows: which rows there are, what stands in them, and what opens when one is chosen.

use crate::fleet::{GpuCell, NodeCell};
use crate::table::{Column, Value};
use leptos::prelude::{AnyView, IntoAny};
use nodeglass_protocol::{GpuUuid, JobId};
use std::sync::Arc;

/// What a table shows. One that is shared by threads, for views must be.
pub type Shared = Arc<dyn Source + Send + Sync>;

/// What a table shows.
pub trait Source {
    /// Its names.
    fn names(&self) -> Names;
    /// Its columns, in the order they have by themselves.
    fn columns(&self) -> Vec<Column>;
    /// Its rows, in the order they have by themselves; woken when there are others.
    fn entries(&self) -> Vec<Entry>;
    /// Wakes the caller when rows may have changed, all of them together.
    fn track(&self);
    /// A number that is another one once a row may have changed; wakes nobody.
    fn stamp(&self, entry: &Entry) -> u64;
    /// Adds what stands in some columns of a row now; wakes nobody.
    fn values(&self, entry: &Entry, columns: &[usize], into: &mut Vec<Value>);
    /// What stands in a column of a row now; wakes nobody.
    fn value(&self, entry: &Entry, column: usize) -> Value {
        let mut values = Vec::with_capacity(1);
        self.values(entry, &[column], &mut values);
        values.pop().unwrap_or(Value::NONE)
    }
    /// How a row is to be taken now; wakes nobody.
    fn marks(&self, entry: &Entry) -> Marks;
    /// What a row that explains itself is, for a title.
    fn about(&self, _: &Entry) -> Option<&'static str> {
        None
    }
    /// Whether a row counts in the sums: parts of a GPU are in it already, and what is old is not of now.
    fn adds(&self, entry: &Entry) -> bool {
        entry.depth == 0 && !self.marks(entry).stale
    }
    /// What a column of these rows comes to, where it is not the sum of what stands in them: rows that share a GPU have it
    /// once.
    fn sum(&self, _: &[Entry], _: &'static str) -> Option<Value> {
        None
    }
    /// Draws a cell that is drawn in its table's own way.
    fn draw(&self, entry: &Entry, column: &'static str) -> Own;
    /// Opens what a row stands for.
    fn open(&self, entry: &Entry);
}

/// A cell that is drawn in its table's own way.
pub struct Own {
    /// What stands in the document.
    pub view: AnyView,
    /// Writes it anew where it is another one, when its row has changed or time took a step; none where it follows what
    /// it shows by itself.
    pub write: Option<Box<dyn Fn()>>,
}

impl Own {
    /// A cell that its row writes.
    pub fn written(view: impl IntoAny, write: impl Fn() + 'static) -> Self {
        Self { view: view.into_any(), write: Some(Box::new(write)) }
    }

    /// A cell that renews itself, or never changes.
    pub fn by_itself(view: impl IntoAny) -> Self {
        Self { view: view.into_any(), write: None }
    }
}

/// What a table is called.
#[derive(Clone, Copy, Debug)]
pub struct Names {
    /// In storage and in the ids of its rows.
    pub id: &'static str,
    /// Above it.
    pub title: &'static str,
    /// One row, and several.
    pub rows: (&'static str, &'static str),
    /// In the URL: its filter.
    pub filter: &'static str,
    /// In the URL: its order.
    pub sort: &'static str,
    /// What a filter might be, for an example.
    pub example: &'static str,
}

/// One row: which thing it is.
#[derive(Clone, PartialEq)]
pub struct Entry {
    /// Its identity, in a text without blanks.
    pub key: Arc<str>,
    /// 1 for what is a part of the last row of depth 0 above it.
    pub depth: u8,
    /// What it stands for.
    pub subject: Subject,
}

/// What a row stands for.
#[derive(Clone, PartialEq)]
pub enum Subject {
    /// A job.
    Job(JobId),
    /// A node.
    Node(NodeCell),
    /// A GPU of a node.
    Gpu(NodeCell, GpuCell),
    /// A process on a GPU of a node, and where it was last in its list.
    Process(NodeCell, ProcessKey, usize),
    /// What nobody who can be seen holds of a GPU.
    Unseen(NodeCell, GpuCell),
    /// Why processes of a GPU may be missing, by the position among its gaps.
    Gap(NodeCell, GpuCell, usize),
    /// What a job uses of a node.
    Use(NodeCell, JobId),
}

/// A process on a GPU, while its list is the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessKey {
    /// The GPU.
    pub gpu: GpuUuid,
    /// The process.
    pub pid: u32,
}

/// How a row is to be taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// It is not the job's that is looked at.
    pub foreign: bool,
    /// It cannot be read.
    pub lost: bool,
    /// Its values are of before.
    pub stale: bool,
}
