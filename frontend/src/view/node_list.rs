//! All nodes of a job at a glance: a row each, with a line of the past for each GPU, and all that its host tells.

use super::dot::dot;
use super::grid::{self, Entry, Marks, Names, Own, Source, Subject, Table};
use super::heat::heat;
use super::scope::{Scope, is_left_out};
use crate::fleet::{NodeCell, Scene};
use crate::health::{Freshness, Health, Shape, freshness};
use crate::page::Page;
use crate::place::{Place, Tab};
use crate::table::nodes::{self, NodeRow};
use crate::table::{Column, Value};
use leptos::prelude::*;
use nodeglass_protocol::JobId;
use std::sync::Arc;

/// The nodes of a job.
#[component]
pub fn NodeList(
    /// The nodes and the job.
    scope: Scope,
    /// The job.
    job: JobId,
) -> impl IntoView {
    view! { <Table source=Arc::new(Nodes { scope, job, page: Page::here() })/> }
}

/// The state of a node as it is now; wakes nobody.
pub fn health_of(page: &Page, scene: &Scene, node: &NodeCell) -> Arc<Health> {
    let now_ms = page.fleet.shown_ms();
    let unknown = || Arc::new(Health { shape: Shape::Waiting, word: "not known".to_owned() });
    scene.health(node, now_ms).unwrap_or_else(unknown)
}

/// Nodes as rows.
struct Nodes {
    scope: Scope,
    job: JobId,
    page: Page,
}

impl Nodes {
    fn place(&self, node: &NodeCell) -> Place {
        Place::Job(self.job, Tab::Node(node.name().clone()))
    }
}

impl Source for Nodes {
    fn names(&self) -> Names {
        Names {
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

    fn entries(&self) -> Vec<Entry> {
        let entry = |cell: NodeCell| {
            let key = cell.name().to_string().into();
            Entry { key, depth: 0, subject: Subject::Node(cell) }
        };
        self.scope.nodes.get().into_iter().map(entry).collect()
    }

    fn track(&self) {
        self.scope.scene.pulse().track();
    }

    fn stamp(&self, entry: &Entry) -> u64 {
        let Subject::Node(cell) = &entry.subject else { return 0 };
        cell.sampled().count() + cell.head().count() + cell.past().count()
    }

    fn values(&self, entry: &Entry, columns: &[usize], into: &mut Vec<Value>) {
        let Subject::Node(cell) = &entry.subject else { return };
        let now_ms = self.page.fleet.shown_ms();
        let values = self.scope.scene.node(cell, |node| {
            let row = NodeRow::new(node, Some(self.job), cell.health(node, now_ms));
            into.extend(columns.iter().map(|column| nodes::value(&row, *column)));
        });
        if values.is_none() {
            into.extend(columns.iter().map(|_| Value::NOT_YET));
        }
    }

    fn marks(&self, entry: &Entry) -> Marks {
        let Subject::Node(cell) = &entry.subject else { return Marks::default() };
        let now_ms = self.page.fleet.shown_ms();
        let stale = self.scope.scene.node(cell, |node| {
            node.head.nvml_stuck_ms.is_some() || freshness(node, now_ms) != Freshness::Fresh
        });
        Marks { stale: stale.unwrap_or(true), ..Marks::default() }
    }

    fn adds(&self, entry: &Entry) -> bool {
        let Subject::Node(cell) = &entry.subject else { return false };
        let (now_ms, all) = (self.page.fleet.shown_ms(), self.scope.nodes.with_untracked(Vec::len));
        self.scope.scene.node(cell, |node| !is_left_out(node, all, now_ms)) == Some(true)
    }

    fn draw(&self, entry: &Entry, column: &'static str) -> Own {
        let Subject::Node(cell) = &entry.subject else { return Own::by_itself(()) };
        if column == "node" {
            let (page, scene, cell) = (self.page.clone(), self.scope.scene.clone(), cell.clone());
            let health = RwSignal::new(health_of(&page, &scene, &cell));
            let name = cell.name().to_string();
            let dot = (move || health.with(|health| dot(health))).into_any();
            let link = grid::link(page.href(&self.place(&cell)), dot, move || name.clone());
            return Own::written(link, move || {
                let now = health_of(&page, &scene, &cell);
                if health.with_untracked(|health| *health != now) {
                    health.set(now);
                }
            });
        }
        let label = format!("utilisation of every GPU of {} over the last ten minutes", cell.name());
        let (drawn, write) = heat(&self.page, &self.scope, cell, label);
        Own::written(drawn, write)
    }

    fn open(&self, entry: &Entry) {
        if let Subject::Node(cell) = &entry.subject {
            self.page.address.go(self.place(cell));
        }
    }
}
