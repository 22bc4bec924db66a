//! A node's page: notices, totals, GPUs, processes.

use super::host_panel::HostPanel;
use super::node_faults::NodeFaults;
use super::node_head::GpuNotes;
use super::node_notice::NodeNotice;
use super::tiles::Tiles;
use super::topology::Topology;
use crate::describe::commands::on_node;
use crate::domain::text;
use crate::fleet::{NodeSignals, TopicStore};
use crate::state::page::Page;
use crate::view::charts::time_line::TimeLine;
use crate::view::scope::{NodeScope, alone};
use crate::view::tables::gpu_table::GpuTable;
use crate::view::tables::job_usage_table::JobUsageTable;
use crate::view::tables::process_table::ProcessTable;
use crate::view::widgets::copy::commands;
use crate::view::widgets::later::Later;
use crate::view::widgets::note_list::NoteList;
use leptos::prelude::*;
use nodeglass_protocol::picture::{Link, NodePicture};
use nodeglass_protocol::{JobId, NodeName};

/// A node of a store, found by name.
#[component]
pub fn NodeByName(
    /// The store.
    store: TopicStore,
    /// The name.
    name: NodeName,
    /// The job it is shown for.
    #[prop(optional_no_strip)]
    job: Option<JobId>,
) -> impl IntoView {
    let cell = {
        let (store, name) = (store.clone(), name.clone());
        Memo::new(move |_| store.cell(&name))
    };
    move || match cell.get() {
        Some(cell) => {
            let scope =
                NodeScope { store: store.clone(), nodes: alone(cell.clone()), job, is_whole_job: false };
            view! { <NodePage scope cell/> }.into_any()
        }
        None => {
            view! { <p class="empty">{format!("Waiting for the first data from {name}.")}</p> }.into_any()
        }
    }
}

/// A node.
#[component]
pub fn NodePage(
    /// The node, shown for a job if there is one.
    scope: NodeScope,
    /// Its cell.
    cell: NodeSignals,
) -> impl IntoView {
    let page = Page::from_context();
    let store = scope.store.clone();
    let stale = page.is_stale(&store, &cell);
    let no_gpus = {
        let cell = cell.clone();
        Memo::new(move |_| cell.gpus().with(Vec::is_empty))
    };
    let table = {
        let scope = scope.clone();
        move || (!no_gpus.get()).then(|| view! { <GpuTable scope=scope.clone()/> }.into_any())
    };
    // Without a sample there is nothing but the reason, which the notice gives once.
    let unreachable = {
        let (store, cell) = (store.clone(), cell.clone());
        Memo::new(move |_| {
            cell.head().track();
            cell.samples().track();
            store.node(&cell, is_unreachable) == Some(true)
        })
    };
    let ways = ways(page, cell.name().clone(), scope.job);
    view! {
        <NodeNotice store=store.clone() node=cell.clone()/>
        <div class="node" class:is-stale=stale hidden=unreachable>
            <Tiles scope=scope.clone()/>
            {move || table()}
            <GpuNotes store=store.clone() node=cell.clone()/>
            {later(scope.clone(), cell.clone())}
        </div>
        <Topology store=store.clone() node=cell.clone()/>
        <NodeFaults name=cell.name().clone()/>
        {ways}
        <Facts store node=cell/>
    }
}

/// Commands for a shell on the node, for viewers who come from one of its jobs.
fn ways(page: Page, name: NodeName, job: Option<JobId>) -> impl Fn() -> Option<AnyView> {
    move || {
        // A guest cannot enter another user's job.
        let lines = page
            .job(job.filter(|_| page.is_owner())?)
            .map(|job| on_node(&job, &name))
            .filter(|lines| !lines.is_empty())?;
        Some(view! { <div class="ways">{commands(lines)}</div> }.into_any())
    }
}

/// The parts below the first screen, each created in a frame of its own.
fn later(scope: NodeScope, cell: NodeSignals) -> impl IntoView {
    let (processes, host, usage, host_only) =
        (scope.clone(), scope.clone(), scope.clone(), scope.has_no_gpus());
    view! {
        <Later><TimeLine scope=scope.clone()/></Later>
        <Later>
            {
                let scope = processes.clone();
                move || (!host_only.get()).then(|| view! { <ProcessTable scope=scope.clone()/> }.into_any())
            }
        </Later>
        <Later><HostPanel store=host.store.clone() node=cell.clone()/></Later>
        <Later><JobUsageTable scope=usage.clone()/></Later>
        <Later><NoteList/></Later>
    }
}

/// Returns whether a node has sent nothing, and is not merely about to.
fn is_unreachable(node: &NodePicture) -> bool {
    let waits = matches!(node.head.link, Link::Waiting | Link::Connecting { failures: 0 } | Link::Live);
    node.sampled_at_ms.is_none() && !waits
}

/// The constant facts of a node, in one line.
#[component]
fn Facts(store: TopicStore, node: NodeSignals) -> impl IntoView {
    let facts = move || {
        node.head().track();
        store.node(&node, |node| {
            let facts = node.head.facts.as_ref()?;
            let host = facts.host.as_str();
            let mut parts: Vec<String> =
                (host != node.name.as_str()).then(|| host.to_owned()).into_iter().collect();
            for (vendor, versions) in facts.drivers() {
                let platform = vendor.platform();
                parts.extend(versions.driver.value().map(|driver| format!("driver {driver}")));
                parts.extend(versions.platform.value().map(|version| format!("{platform} {version}")));
            }
            let absent = facts.absent_accelerators().filter(|_| node.head.no_gpu.is_none());
            parts.extend(absent.map(ToString::to_string));
            let interval_ms = u64::from(node.head.interval_ms);
            let whole = interval_ms.is_multiple_of(1_000);
            let every = if whole { text::span(interval_ms / 1_000) } else { text::age(interval_ms) };
            parts.push(format!("sampled every {every}"));
            parts.extend(node.head.notes.iter().map(ToString::to_string));
            Some(parts.join(" · "))
        })
    };
    view! { <p class="facts">{move || facts().flatten()}</p> }
}
