//! The table of job usage: what jobs use of nodes, and their limits, by cgroup.

use super::grid::{CustomCell, RowEntry, RowFlags, RowSource, RowSubject, Table, TableNames};
use crate::fleet::NodeSignals;
use crate::state::page::Page;
use crate::table::job_usage::{self, JobUsageRow};
use crate::table::{Column, Value};
use crate::view::scope::NodeScope;
use leptos::prelude::*;
use std::sync::Arc;

/// The job usage of a scope's nodes, behind a button until it is asked for; nothing if no cgroup reports any.
#[component]
pub fn JobUsageTable(
    /// The scope.
    scope: NodeScope,
    /// Whether the node is a column because there are several; other jobs are then left out.
    #[prop(optional)]
    several: bool,
) -> impl IntoView {
    let rows = Arc::new(JobUsageRows { scope, several, page: Page::from_context() });
    let some = Memo::new({
        let rows = rows.clone();
        move |_| !rows.entries().is_empty()
    });
    // A link to a filtered or sorted table shows it.
    let (names, address) = (rows.names(), rows.page.address.clone());
    let is_asked =
        [names.filter, names.sort].into_iter().any(|part| untrack(|| address.query(part).get()).is_some());
    let is_open = RwSignal::new(is_asked);
    move || {
        some.get().then(|| match is_open.get() {
            true => view! { <Table source=rows.clone()/> }.into_any(),
            false => view! {
                <button class="grid__show" aria-expanded="false" on:click=move |_| is_open.set(true)>
                    <span aria-hidden="true">"▸"</span> {names.title}
                </button>
            }
            .into_any(),
        })
    }
}

/// Rows of job usage.
struct JobUsageRows {
    scope: NodeScope,
    several: bool,
    page: Page,
}

impl JobUsageRows {
    fn node_entries(&self, cell: &NodeSignals) -> Vec<RowEntry> {
        cell.usage_jobs().track();
        let is_included = |job| !self.several || self.scope.job.is_none_or(|own| own == job);
        let jobs = self.scope.store.node(cell, |node| {
            node.job_usage.iter().map(|used| used.job).filter(|job| is_included(*job)).collect::<Vec<_>>()
        });
        let entry = |job| {
            let key = format!("{}/{job}", cell.name()).into();
            RowEntry { key, depth: 0, subject: RowSubject::JobUsage(cell.clone(), job) }
        };
        jobs.unwrap_or_default().into_iter().map(entry).collect()
    }
}

impl RowSource for JobUsageRows {
    fn names(&self) -> TableNames {
        TableNames {
            id: if self.several { "uses-of-job" } else { "uses" },
            title: if self.several { "Host usage of this job" } else { "Host usage by job" },
            rows: if self.several { ("node", "nodes") } else { ("job", "jobs") },
            filter: "fu",
            sort: "su",
            example: "mem>90% oom>0",
        }
    }

    fn columns(&self) -> Vec<Column> {
        let mut columns = job_usage::columns();
        if !self.several {
            columns[job_usage::NODE].rank = Column::HIDDEN;
        }
        columns
    }

    fn entries(&self) -> Vec<RowEntry> {
        self.scope.nodes.get().iter().flat_map(|cell| self.node_entries(cell)).collect()
    }

    fn track(&self) {
        self.scope.store.changed().track();
    }

    fn revision(&self, entry: &RowEntry) -> u64 {
        let RowSubject::JobUsage(cell, _) = &entry.subject else { return 0 };
        cell.job_usage().count() + cell.samples().count()
    }

    fn values(&self, entry: &RowEntry, columns: &[usize], into: &mut Vec<Value>) {
        let RowSubject::JobUsage(cell, job) = &entry.subject else { return };
        let name = self.page.job_name_untracked(*job).unwrap_or_default();
        let value = self.scope.store.node(cell, |node| {
            let usage = node.job_usage.iter().find(|used| used.job == *job)?;
            let row = JobUsageRow { node, usage, name: &name };
            into.extend(columns.iter().map(|column| job_usage::value(&row, *column)));
            Some(())
        });
        if value.flatten().is_none() {
            into.extend(columns.iter().map(|_| Value::NOT_YET));
        }
    }

    fn row_flags(&self, entry: &RowEntry) -> RowFlags {
        let foreign = match (&entry.subject, self.scope.job) {
            (RowSubject::JobUsage(_, job), Some(own)) => *job != own,
            _ => false,
        };
        RowFlags { foreign, ..RowFlags::default() }
    }

    fn custom_cell(&self, _: &RowEntry, _: &'static str) -> CustomCell {
        CustomCell::self_updating(())
    }

    fn open(&self, _: &RowEntry) {}
}
