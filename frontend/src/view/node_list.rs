//! All nodes of a job at a glance: a row each, with a line of the past for each GPU, and all that its host tells.

use super::dot::Dot;
use super::grid::{self, Entry, Marks, Names, Source, Subject, Table};
use super::heat::Heat;
use super::scope::Scope;
use crate::browser;
use crate::fleet::{NodeCell, Scene};
use crate::health::{self, Freshness, Health, Shape, freshness};
use crate::lazy::{Memo, memo};
use crate::markup::view;
use crate::page::Page;
use crate::place::{Place, Tab};
use crate::table::nodes::{self, NodeRow};
use crate::table::{Column, Now, Value};
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

/// The state of a node, renewed with its samples, and with time once it is old.
pub fn health_of(page: &Page, scope: &Scope, node: &NodeCell) -> Memo<Health> {
    let (page, scene, node) = (page.clone(), scope.scene.clone(), node.clone());
    memo(move || health_now(&page, &scene, &node))
}

/// The same as it is now, for who follows it already.
pub fn health_now(page: &Page, scene: &Scene, node: &NodeCell) -> Health {
    node.head().track();
    node.sampled().track();
    let now_ms = page.fleet.relay_ms(browser::now_ms());
    let health = scene.node(node, |node| health::of_node(node, now_ms));
    health.unwrap_or_else(|| Health { shape: Shape::Waiting, word: "not known".to_owned() })
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

    fn track(&self, entry: &Entry) {
        let Subject::Node(cell) = &entry.subject else { return };
        cell.sampled().track();
        cell.head().track();
        cell.gpus().track();
    }

    fn value(&self, entry: &Entry, column: usize) -> Value {
        let Subject::Node(cell) = &entry.subject else { return Value::NONE };
        let now = Now { relay_ms: self.page.fleet.relay_ms(browser::now_ms()), wall_s: 0 };
        let value = self
            .scope
            .scene
            .node(cell, |node| nodes::value(&NodeRow { node, job: Some(self.job), now }, column));
        value.unwrap_or(Value::NOT_YET)
    }

    fn marks(&self, entry: &Entry) -> Marks {
        let Subject::Node(cell) = &entry.subject else { return Marks::default() };
        let now_ms = self.page.fleet.relay_ms(browser::now_ms());
        let stale = self.scope.scene.node(cell, |node| {
            node.head.nvml_stuck_ms.is_some() || freshness(node, now_ms) != Freshness::Fresh
        });
        Marks { stale: stale.unwrap_or(true), ..Marks::default() }
    }

    fn draw(&self, entry: &Entry, column: &'static str) -> AnyView {
        let Subject::Node(cell) = &entry.subject else { return ().into_any() };
        if column == "node" {
            let health = health_of(&self.page, &self.scope, cell);
            let name = cell.name().to_string();
            let dot = view! { <Dot health/> }.into_any();
            return grid::link(self.page.href(&self.place(cell)), dot, move || name.clone());
        }
        let (scope, page) = (self.scope.only(cell.clone()), self.page.clone());
        let rows = memo(move || scope.heat(&page));
        let label = format!("utilisation of every GPU of {} over the last ten minutes", cell.name());
        view! { <Heat rows dense=Signal::stored(true) label=Signal::stored(label)/> }.into_any()
    }

    fn open(&self, entry: &Entry) {
        if let Subject::Node(cell) = &entry.subject {
            self.page.address.go(self.place(cell));
        }
    }
}
