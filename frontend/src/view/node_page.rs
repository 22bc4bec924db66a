//! A node's page: what is wrong with it if anything, its sums, its GPUs, its processes.

use super::copy::commands;
use super::gpu_table::GpuTable;
use super::host_panel::HostPanel;
use super::node_notice::NodeNotice;
use super::process_table::ProcessTable;
use super::scope::{Scope, alone};
use super::tiles::Tiles;
use super::time_line::TimeLine;
use super::topology::Topology;
use super::use_table::UseTable;
use crate::fleet::{NodeCell, Scene};
use crate::page::Page;
use crate::tell::commands::on_node;
use crate::text;
use leptos::prelude::*;
use nodeglass_protocol::{JobId, NodeName};

/// A node within a scene, found by its name whenever it is there.
#[component]
pub fn NodeByName(
    /// The scene.
    scene: Scene,
    /// The name.
    name: NodeName,
    /// The job it is seen for.
    #[prop(optional_no_strip)]
    job: Option<JobId>,
) -> impl IntoView {
    let cell = {
        let (scene, name) = (scene.clone(), name.clone());
        Memo::new(move |_| scene.cell(&name))
    };
    move || match cell.get() {
        Some(cell) => {
            let scope = Scope { scene: scene.clone(), nodes: alone(cell.clone()), job };
            view! { <NodePage scope cell/> }.into_any()
        }
        None => view! { <p class="empty">{format!("Nothing is known of {name} yet.")}</p> }.into_any(),
    }
}

/// A node.
#[component]
pub fn NodePage(
    /// The node, seen for a job if there is one.
    scope: Scope,
    /// Its cell.
    cell: NodeCell,
) -> impl IntoView {
    let page = Page::here();
    let scene = scope.scene.clone();
    let stale = page.is_stale(&scene, &cell);
    let no_gpus = {
        let cell = cell.clone();
        Memo::new(move |_| cell.gpus().with(Vec::is_empty))
    };
    let table = {
        let scope = scope.clone();
        move || (!no_gpus.get()).then(|| view! { <GpuTable scope=scope.clone()/> }.into_any())
    };
    // A shell on it, for who is here because of a job.
    let ways = {
        let (page, name, job) = (page.clone(), cell.name().clone(), scope.job);
        move || {
            // A guest cannot enter somebody else's job.
            let lines = page
                .job(job.filter(|_| page.is_owner())?)
                .map(|job| on_node(&job, &name))
                .filter(|lines| !lines.is_empty())?;
            Some(view! { <div class="ways">{commands(lines)}</div> }.into_any())
        }
    };
    view! {
        <NodeNotice scene=scene.clone() node=cell.clone()/>
        <div class="node" class:is-stale=move || stale.get()>
            <Tiles scope=scope.clone()/>
            {move || table()}
            <TimeLine scope=scope.clone()/>
            <ProcessTable scope=scope.clone()/>
            <HostPanel scene=scene.clone() node=cell.clone()/>
            <UseTable scope=scope.clone()/>
        </div>
        <Topology scene=scene.clone() node=cell.clone()/>
        {move || ways()}
        <Facts scene node=cell/>
    }
}

/// What does not change of a node, in one quiet line.
#[component]
fn Facts(scene: Scene, node: NodeCell) -> impl IntoView {
    let facts = move || {
        node.head().track();
        scene.node(&node, |node| {
            let facts = node.head.facts.as_ref()?;
            let host = facts.host.as_str();
            let mut parts: Vec<String> =
                (host != node.name.as_str()).then(|| host.to_owned()).into_iter().collect();
            parts.extend(facts.driver.value().map(|driver| format!("driver {driver}")));
            parts.extend(facts.cuda.value().map(|cuda| format!("CUDA {cuda}")));
            parts.push(format!("kernel {}", facts.kernel));
            parts.push(text::count(facts.cpus as usize, "CPU", "CPUs"));
            let interval_ms = u64::from(node.head.interval_ms);
            let whole = interval_ms.is_multiple_of(1_000);
            let every = if whole { text::span(interval_ms / 1_000) } else { text::age(interval_ms) };
            parts.push(format!("a sample every {every}"));
            parts.extend(node.head.notes.iter().map(ToString::to_string));
            Some(parts.join(" · "))
        })
    };
    view! { <p class="facts">{move || facts().flatten()}</p> }
}
