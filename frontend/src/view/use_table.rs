//! What jobs use of nodes, and may use, by their cgroups.

use super::grid::{Entry, Marks, Names, Own, Source, Subject, Table};
use super::scope::Scope;
use crate::fleet::NodeCell;
use crate::page::Page;
use crate::table::uses::{self, UseRow};
use crate::table::{Column, Value};
use leptos::prelude::*;
use std::sync::Arc;

/// What jobs use of the nodes of a scope; nothing where no cgroup tells.
#[component]
pub fn UseTable(
    /// The scope.
    scope: Scope,
    /// Whether the node is a column, because there are several; other jobs are then left out.
    #[prop(optional)]
    several: bool,
) -> impl IntoView {
    let uses = Arc::new(Uses { scope, several, page: Page::here() });
    let some = Memo::new({
        let uses = uses.clone();
        move |_| !uses.entries().is_empty()
    });
    move || some.get().then(|| view! { <Table source=uses.clone()/> }.into_any())
}

/// Jobs on nodes as rows.
struct Uses {
    scope: Scope,
    several: bool,
    page: Page,
}

impl Uses {
    fn entries_of(&self, cell: &NodeCell) -> Vec<Entry> {
        cell.uses().track();
        let mine = |job| !self.several || self.scope.job.is_none_or(|mine| mine == job);
        let jobs = self.scope.scene.node(cell, |node| {
            node.job_usage.iter().map(|used| used.job).filter(|job| mine(*job)).collect::<Vec<_>>()
        });
        let entry = |job| {
            let key = format!("{}/{job}", cell.name()).into();
            Entry { key, depth: 0, subject: Subject::Use(cell.clone(), job) }
        };
        jobs.unwrap_or_default().into_iter().map(entry).collect()
    }
}

impl Source for Uses {
    fn names(&self) -> Names {
        Names {
            id: if self.several { "uses-of-job" } else { "uses" },
            title: "What jobs use of the host",
            rows: ("job", "jobs"),
            filter: "fu",
            sort: "su",
            example: "mem>90% oom>0",
        }
    }

    fn columns(&self) -> Vec<Column> {
        let mut columns = uses::columns();
        if !self.several {
            columns[uses::NODE].rank = Column::HIDDEN;
        }
        columns
    }

    fn entries(&self) -> Vec<Entry> {
        self.scope.nodes.get().iter().flat_map(|cell| self.entries_of(cell)).collect()
    }

    fn track(&self) {
        self.scope.scene.pulse().track();
    }

    fn stamp(&self, entry: &Entry) -> u64 {
        let Subject::Use(cell, _) = &entry.subject else { return 0 };
        cell.used().count() + cell.sampled().count()
    }

    fn values(&self, entry: &Entry, columns: &[usize], into: &mut Vec<Value>) {
        let Subject::Use(cell, job) = &entry.subject else { return };
        let name = self.page.job_name_untracked(*job).unwrap_or_default();
        let value = self.scope.scene.node(cell, |node| {
            let used = node.job_usage.iter().find(|used| used.job == *job)?;
            let row = UseRow { node, used, name: &name };
            into.extend(columns.iter().map(|column| uses::value(&row, *column)));
            Some(())
        });
        if value.flatten().is_none() {
            into.extend(columns.iter().map(|_| Value::NOT_YET));
        }
    }

    fn marks(&self, entry: &Entry) -> Marks {
        let foreign = match (&entry.subject, self.scope.job) {
            (Subject::Use(_, job), Some(mine)) => *job != mine,
            _ => false,
        };
        Marks { foreign, ..Marks::default() }
    }

    fn draw(&self, _: &Entry, _: &'static str) -> Own {
        Own::by_itself(())
    }

    fn open(&self, _: &Entry) {}
}
