//! A job's page: its head, its tabs, and the side that the URL names.

use super::job_about::JobAbout;
use super::job_head::JobHead;
use super::job_nodes::JobNodes;
use super::logs::Logs;
use super::node_page::NodeByName;
use super::node_tabs::NodeTabs;
use super::process_table::ProcessTable;
use super::scope::Scope;
use super::tiles::Tiles;
use crate::fleet::{Phase, Scene};
use crate::page::Page;
use crate::place::{Place, Tab};
use leptos::prelude::*;
use nodeglass_protocol::JobId;

/// A job.
#[component]
pub fn JobPage(
    /// The job.
    id: JobId,
    /// Its scene.
    scene: Scene,
) -> impl IntoView {
    let page = Page::here();
    let names = {
        let page = page.clone();
        Memo::new(move |_| page.job(id).map(|job| job.nodes).unwrap_or_default())
    };
    let nodes = page.nodes_of(&scene, id);
    let scope = Scope { scene: scene.clone(), nodes, job: Some(id) };
    let place = page.place;
    let tab = Memo::new(move |_| match place.get() {
        Place::Job(_, tab) => tab,
        _ => Tab::Nodes,
    });
    let side = {
        let scope = scope.clone();
        move || side(&scope, id, tab.get())
    };
    let waiting = Memo::new(move |_| names.with(Vec::is_empty));
    let body = move || {
        if waiting.get() {
            return view! { <NoNodes id scene=scene.clone()/> <JobAbout id/> }.into_any();
        }
        view! { <NodeTabs scope=scope.clone() job=id names/> {side.clone()} }.into_any()
    };
    view! { <JobHead id/> {move || body()} }
}

fn side(scope: &Scope, id: JobId, tab: Tab) -> AnyView {
    let (scope, scene) = (scope.clone(), scope.scene.clone());
    // Without its nodes, a table would say that there are none.
    let is_here = move || scene.phase() != Phase::Awaited;
    match tab {
        Tab::Nodes => view! {
            <Tiles scope=scope.clone()/>
            <Show when=is_here><JobNodes scope=scope.clone() job=id/></Show>
        }
        .into_any(),
        Tab::Processes => {
            view! { <Show when=is_here><ProcessTable scope=scope.clone() several=true/></Show> }.into_any()
        }
        Tab::Logs if !untrack(|| Page::here().shows_logs()) => {
            view! { <p class="empty">"Logs are not shared with you."</p> }.into_any()
        }
        Tab::Logs => view! { <Show when=is_here><Logs scope=scope.clone() id/></Show> }.into_any(),
        Tab::About => view! { <JobAbout id/> }.into_any(),
        Tab::Node(name) => view! { <NodeByName scene=scope.scene name job=Some(id)/> }.into_any(),
    }
}

/// A job that has no nodes says what it waits for, and one that is not known says so.
#[component]
fn NoNodes(id: JobId, scene: Scene) -> impl IntoView {
    let page = Page::here();
    let sentence = move || {
        if page.job(id).is_some() {
            return "This job has no nodes yet. Its GPUs appear here when it starts.".to_owned();
        }
        match scene.phase() {
            Phase::Awaited => String::new(),
            _ if page.share().is_some() => format!("Job {id} is not shared with you, or has ended."),
            _ => format!(
                "SLURM does not list job {id}. It may have ended long ago, or belong to someone else."
            ),
        }
    };
    view! { <p class="empty">{move || sentence()}</p> }
}
