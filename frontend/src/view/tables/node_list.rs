//! The table of a job's nodes, with a small heat map each, and the readings of their hosts.

use super::grid::{self, CustomCell, RowEntry, RowFlags, RowSource, RowSubject, Table, TableNames};
use crate::domain::health::{Freshness, Health, freshness};
use crate::domain::ownership;
use crate::domain::route::{JobTab, Route};
use crate::domain::severity::Severity;
use crate::domain::totals::Totals;
use crate::fleet::NodeSignals;
use crate::state::page::{Page, node_health_in};
use crate::table::nodes::{self, NodeRow};
use crate::table::{Column, Value};
use crate::view::charts::mini_heat_map::mini_heat_map;
use crate::view::scope::{NodeScope, is_left_out};
use crate::view::widgets::dot::dot;
use leptos::prelude::*;
use nodeglass_protocol::JobId;
use std::sync::Arc;

/// The nodes of a job.
#[component]
pub fn NodeList(
    /// The nodes and the job.
    scope: NodeScope,
    /// The job.
    job: JobId,
) -> impl IntoView {
    view! { <Table source=Arc::new(Nodes { scope, job, page: Page::from_context() })/> }
}

/// Rows of nodes.
struct Nodes {
    scope: NodeScope,
    job: JobId,
    page: Page,
}

impl Nodes {
    fn route(&self, node: &NodeSignals) -> Route {
        Route::Job(self.job, JobTab::Node(node.name().clone()))
    }

    fn health(&self, node: &NodeSignals) -> Arc<Health> {
        node_health_in(&self.page, &self.scope.store, Some(self.job), node)
    }
}

impl RowSource for Nodes {
    fn names(&self) -> TableNames {
        TableNames {
            id: "nodes",
            title: "Nodes",
            rows: ("node", "nodes"),
            filter: "fn",
            sort: "sn",
            example: "util<50 state:silent ram>90%",
        }
    }

    fn columns(&self) -> Vec<Column> {
        nodes::columns()
    }

    fn entries(&self) -> Vec<RowEntry> {
        let entry = |cell: NodeSignals| {
            let key = cell.name().to_string().into();
            RowEntry { key, depth: 0, subject: RowSubject::Node(cell) }
        };
        self.scope.nodes.get().into_iter().map(entry).collect()
    }

    fn track(&self) {
        self.scope.store.changed().track();
    }

    fn revision(&self, entry: &RowEntry) -> u64 {
        let RowSubject::Node(cell) = &entry.subject else { return 0 };
        cell.samples().count() + cell.head().count() + cell.history().count()
    }

    fn values(&self, entry: &RowEntry, columns: &[usize], into: &mut Vec<Value>) {
        let RowSubject::Node(cell) = &entry.subject else { return };
        let health = self.health(cell);
        let values = self.scope.store.node(cell, |node| {
            let row = NodeRow::new(node, Some(self.job), health.clone());
            into.extend(columns.iter().map(|column| nodes::value(&row, *column)));
        });
        if values.is_none() {
            into.extend(columns.iter().map(|_| Value::NOT_YET));
        }
    }

    fn row_flags(&self, entry: &RowEntry) -> RowFlags {
        let RowSubject::Node(cell) = &entry.subject else { return RowFlags::default() };
        let now_ms = self.page.fleet.shown_ms();
        let stale = self.scope.store.node(cell, |node| {
            node.head.driver_stuck_ms.is_some() || freshness(node, now_ms) != Freshness::Fresh
        });
        RowFlags { stale: stale.unwrap_or(true), ..RowFlags::default() }
    }

    fn counts_in_totals(&self, entry: &RowEntry) -> bool {
        let RowSubject::Node(cell) = &entry.subject else { return false };
        let (now_ms, all) = (self.page.fleet.shown_ms(), self.scope.nodes.with_untracked(Vec::len));
        self.scope.store.node(cell, |node| !is_left_out(node, all, now_ms)) == Some(true)
    }

    fn sums(&self, entries: &[RowEntry], columns: &[&'static str]) -> Vec<Option<Value>> {
        let mut totals = Totals::default();
        for entry in entries {
            let RowSubject::Node(cell) = &entry.subject else { continue };
            self.scope.store.node(cell, |node| {
                ownership::counting_gpus(node, Some(self.job)).for_each(|gpu| totals.add(gpu));
            });
        }
        columns.iter().map(|column| nodes::sum(&totals, column)).collect()
    }

    fn second_line(&self, entry: &RowEntry, is_shown: &dyn Fn(&str) -> bool) -> Option<String> {
        let RowSubject::Node(cell) = &entry.subject else { return None };
        let health = self.health(cell);
        let state = self
            .scope
            .store
            .node(cell, |node| (health.severity >= Severity::Pending).then(|| nodes::state(node, &health)));
        state.flatten().filter(|_| !is_shown("state"))
    }

    fn custom_cell(&self, entry: &RowEntry, column: &'static str) -> CustomCell {
        let RowSubject::Node(cell) = &entry.subject else { return CustomCell::self_updating(()) };
        if column == "node" {
            let (page, store, cell) = (self.page.clone(), self.scope.store.clone(), cell.clone());
            let (health, job) = (RwSignal::new(self.health(&cell)), Some(self.job));
            let name = cell.name().to_string();
            let dot = (move || health.with(|health| dot(health))).into_any();
            let link = grid::link(page.href(&self.route(&cell)), dot, move || name.clone());
            return CustomCell::updated_by_row(link, move || {
                let now = node_health_in(&page, &store, job, &cell);
                if health.with_untracked(|health| *health != now) {
                    health.set(now);
                }
            });
        }
        let label = format!("utilisation of each GPU of {} over the last ten minutes", cell.name());
        let (drawn, write) = mini_heat_map(&self.page, &self.scope, cell, label);
        CustomCell::updated_by_row(drawn, write)
    }

    fn open(&self, entry: &RowEntry) {
        if let RowSubject::Node(cell) = &entry.subject {
            self.page.address.navigate(self.route(cell));
        }
    }
}
