//! The table of processes on GPUs, and of memory that no visible process holds.

use super::gpu_table::find;
use super::grid::{CustomCell, ProcessKey, RowEntry, RowFlags, RowSource, RowSubject, Table, TableNames};
use crate::domain::ownership;
use crate::domain::query;
use crate::domain::sorting;
use crate::domain::text;
use crate::domain::unattributed;
use crate::fleet::NodeSignals;
use crate::platform;
use crate::state::page::Page;
use crate::table::processes::{self, Holder, ProcessRow};
use crate::table::{Column, Now, Value};
use crate::view::scope::NodeScope;
use leptos::prelude::*;
use nodeglass_protocol::field::Vendors;
use nodeglass_protocol::picture::{NodePicture, ProcessPicture};
use nodeglass_protocol::share;
use std::sync::Arc;

/// The processes of a scope.
#[component]
pub fn ProcessTable(
    /// The scope.
    scope: NodeScope,
    /// Whether the node is a column, because there are several.
    #[prop(optional)]
    several: bool,
) -> impl IntoView {
    view! { <Table source=Arc::new(Processes { scope, several, page: Page::from_context() })/> }
}

/// Rows of processes.
struct Processes {
    scope: NodeScope,
    several: bool,
    page: Page,
}

/// A row with its sort key.
type KeyedEntry = ((bool, u32, u32), RowEntry);

impl Processes {
    /// Reads a row; does not subscribe.
    fn at<R>(&self, entry: &RowEntry, read: impl FnOnce(&ProcessRow<'_>) -> R) -> Option<R> {
        let page_ms = platform::now_ms();
        let now =
            Now { relay_ms: self.page.fleet.relay_ms(page_ms), wall_s: self.page.fleet.wall_s(page_ms) };
        let now = now.until(self.page.ended_ms.get_untracked());
        match &entry.subject {
            RowSubject::Process(cell, key, index) => self.scope.store.node(cell, |node| {
                let process = process(node, key, *index)?;
                let gpu = node.gpus.iter().find(|gpu| gpu.facts.uuid == key.gpu);
                Some(read(&ProcessRow { node, gpu, holder: Holder::Process(process), now }))
            })?,
            RowSubject::Unattributed(cell, gpu) => self.scope.store.node(cell, |node| {
                let bytes = unattributed::bytes(node, gpu.position()).unwrap_or(0);
                read(&ProcessRow { node, gpu: find(node, gpu), holder: Holder::Unattributed(bytes), now })
            }),
            RowSubject::Gap(cell, gpu, index) => self.scope.store.node(cell, |node| {
                let gpu = find(node, gpu);
                let holder = Holder::Gap(gpu?.gaps.get(*index)?);
                Some(read(&ProcessRow { node, gpu, holder, now }))
            })?,
            _ => None,
        }
    }

    fn is_foreign(&self, node: &NodePicture, process: &ProcessPicture) -> bool {
        let Some(job) = self.scope.job else { return false };
        if let Some(owner) = process.facts.job {
            return owner != job;
        }
        let gpu = node.gpus.iter().find(|gpu| gpu.facts.uuid == process.facts.gpu);
        !gpu.is_none_or(|gpu| ownership::belongs_to_job(node, gpu, Some(job)))
    }

    fn node_entries(&self, cell: &NodeSignals) -> Vec<RowEntry> {
        cell.process_set().track();
        let gpus = cell.gpus().get();
        let mut rows: Vec<KeyedEntry> = Vec::new();
        // Where processes are hidden, memory without a visible process is expected.
        let sees_all = self.page.person().is_none()
            && self
                .page
                .share()
                .is_none_or(|terms| terms.scope == share::Scope::All && !terms.hidden.other_users);
        self.scope.store.node(cell, |node| {
            for (index, process) in node.processes.iter().enumerate() {
                let (gpu, pid) = (process.facts.gpu.clone(), process.facts.pid);
                let gpu_index = node.gpus.iter().position(|known| known.facts.uuid == gpu);
                let key = format!("{}/{gpu}/{pid}", cell.name()).into();
                let subject = RowSubject::Process(cell.clone(), ProcessKey { gpu, pid }, index);
                let sort_key =
                    (self.is_foreign(node, process), gpu_index.map_or(u32::MAX, |index| index as u32), pid);
                rows.push((sort_key, RowEntry { key, depth: 0, subject }));
            }
            for (gpu, picture) in gpus.iter().filter_map(|gpu| Some((gpu, find(node, gpu)?))) {
                let foreign = !ownership::belongs_to_job(node, picture, self.scope.job);
                for index in 0..picture.gaps.len() {
                    let key = format!("{}/{}/gap-{index}", cell.name(), gpu.uuid()).into();
                    let subject = RowSubject::Gap(cell.clone(), gpu.clone(), index);
                    // No process has this pid: sorts before the listed ones.
                    rows.push(((foreign, gpu.position() as u32, 0), RowEntry { key, depth: 0, subject }));
                }
            }
            for gpu in gpus.iter().filter(|_| sees_all) {
                let Some(picture) =
                    find(node, gpu).filter(|_| unattributed::bytes(node, gpu.position()).is_some())
                else {
                    continue;
                };
                let foreign = !ownership::belongs_to_job(node, picture, self.scope.job);
                let key = format!("{}/{}/unseen", cell.name(), gpu.uuid()).into();
                let subject = RowSubject::Unattributed(cell.clone(), gpu.clone());
                rows.push(((foreign, gpu.position() as u32, u32::MAX), RowEntry { key, depth: 0, subject }));
            }
        });
        sorting::sort_by_key(&mut rows, |(sort_key, _)| *sort_key);
        rows.into_iter().map(|(_, entry)| entry).collect()
    }
}

/// Returns the numbers of a job's processes, of those of other jobs on its nodes, and of notes.
fn counted(own: usize, others: usize, notes: usize) -> String {
    let others = (others > 0).then(|| format!("{} of other jobs", text::grouped(others as u64)));
    let notes = (notes > 0).then(|| text::count(notes, "note", "notes"));
    [Some(text::count(own, "process", "processes")), others, notes]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join(", ")
}

/// Returns a process in the list of its node.
fn process<'a>(node: &'a NodePicture, key: &ProcessKey, index: usize) -> Option<&'a ProcessPicture> {
    let is = |process: &&ProcessPicture| process.facts.pid == key.pid && process.facts.gpu == key.gpu;
    node.processes.get(index).filter(is).or_else(|| node.processes.iter().find(is))
}

impl RowSource for Processes {
    fn names(&self) -> TableNames {
        TableNames {
            id: if self.several { "processes-of-job" } else { "processes" },
            title: "Processes",
            rows: ("process", "processes"),
            filter: "f",
            sort: "s",
            example: "user:alice sm>50 mem>10g node:gpu-0* state:zombie rank:3 !docker \"free text\"",
        }
    }

    fn columns(&self) -> Vec<Column> {
        let mut columns = processes::columns();
        if !self.several {
            columns[processes::NODE].rank = Column::HIDDEN;
            columns[processes::PID].rank = 0;
        }
        columns
    }

    fn vendors(&self) -> Vendors {
        self.scope.vendors()
    }

    fn entries(&self) -> Vec<RowEntry> {
        // Unattributed memory appears and disappears without a change of any process.
        self.page.step.track();
        self.scope.nodes.get().iter().flat_map(|cell| self.node_entries(cell)).collect()
    }

    fn track(&self) {
        self.scope.store.changed().track();
        self.page.second.track();
    }

    fn revision(&self, entry: &RowEntry) -> u64 {
        let (RowSubject::Process(cell, ..) | RowSubject::Unattributed(cell, _) | RowSubject::Gap(cell, ..)) =
            &entry.subject
        else {
            return 0;
        };
        // Some columns are durations.
        cell.processes().count() + self.page.second.get_untracked()
    }

    fn values(&self, entry: &RowEntry, columns: &[usize], into: &mut Vec<Value>) {
        let values =
            self.at(entry, |row| into.extend(columns.iter().map(|column| processes::value(row, *column))));
        if values.is_none() {
            into.extend(columns.iter().map(|_| Value::Absent("it has ended")));
        }
    }

    fn row_flags(&self, entry: &RowEntry) -> RowFlags {
        let foreign = self.at(entry, |row| match row.holder {
            Holder::Process(process) => self.is_foreign(row.node, process),
            Holder::Unattributed(_) | Holder::Gap(_) => {
                row.gpu.is_some_and(|gpu| !ownership::belongs_to_job(row.node, gpu, self.scope.job))
            }
        });
        RowFlags { foreign: foreign.unwrap_or(true), lost: self.is_note(entry), ..RowFlags::default() }
    }

    fn is_note(&self, entry: &RowEntry) -> bool {
        matches!(entry.subject, RowSubject::Unattributed(..) | RowSubject::Gap(..))
    }

    fn counted(&self, entries: &[RowEntry]) -> String {
        let (notes, processes): (Vec<_>, Vec<_>) = entries.iter().partition(|entry| self.is_note(entry));
        let others = processes.iter().filter(|entry| self.row_flags(entry).foreign).count();
        counted(processes.len() - others, others, notes.len())
    }

    fn second_line(&self, entry: &RowEntry, _: &dyn Fn(&str) -> bool) -> Option<String> {
        if !self.is_note(entry) {
            return None;
        }
        match self.at(entry, processes::command)? {
            Value::Text(note) => Some(note),
            _ => None,
        }
    }

    fn about(&self, entry: &RowEntry) -> Option<&'static str> {
        match entry.subject {
            RowSubject::Unattributed(..) => Some(unattributed::ABOUT),
            RowSubject::Gap(..) => Some(processes::ABOUT_GAPS),
            _ => None,
        }
    }

    fn custom_cell(&self, _: &RowEntry, _: &'static str) -> CustomCell {
        CustomCell::self_updating(())
    }

    fn open(&self, entry: &RowEntry) {
        let RowSubject::Process(cell, key, _) = &entry.subject else { return };
        let started = self.at(entry, |row| match row.holder {
            Holder::Process(process) => process.facts.started_ms.value().copied(),
            Holder::Unattributed(_) | Holder::Gap(_) => None,
        });
        let started = started.flatten().unwrap_or(0);
        let process = format!("{}/{}/{started}", cell.name(), key.pid);
        self.page.address.push_query(query::PROCESS, Some(process));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_of_other_jobs_on_the_node_are_counted_apart() {
        assert_eq!(counted(1, 0, 0), "1 process");
        assert_eq!(counted(3, 4, 1), "3 processes, 4 of other jobs, 1 note");
    }
}
