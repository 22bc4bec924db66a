//! A job's page: its head, its tabs, and the side that the URL names.

use super::job_head::JobHead;
use super::node_page::NodeByName;
use super::node_tabs::NodeTabs;
use super::rest::{later, later_of};
use super::scope::Scope;
use super::tiles::Tiles;
use crate::fleet::{Phase, Scene};
use crate::lazy::{memo, part, words};
use crate::markup::view;
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
        memo(move || page.job(id).map(|job| job.nodes).unwrap_or_default())
    };
    let nodes = page.nodes_of(&scene, id);
    let scope = Scope { scene: scene.clone(), nodes, job: Some(id) };
    let place = page.place;
    let tab = memo(move || match place.get() {
        Place::Job(_, tab) => tab,
        _ => Tab::Nodes,
    });
    let side = {
        let scope = scope.clone();
        move || side(&scope, id, tab.get())
    };
    let waiting = memo(move || names.with(Vec::is_empty));
    let body = part(move || {
        if waiting.get() {
            return view! { <NoNodes id scene=scene.clone()/> {later(move |rest| (rest.about)(id))} }
                .into_any();
        }
        view! { <NodeTabs scope=scope.clone() job=id names/> {side.clone()} }.into_any()
    });
    view! { <JobHead id/> {body} }
}

fn side(scope: &Scope, id: JobId, tab: Tab) -> AnyView {
    match tab {
        Tab::Nodes => view! {
            <Tiles scope=scope.clone()/>
            {later_of(scope, id, |rest| rest.nodes)}
        }
        .into_any(),
        Tab::Processes => later_of(scope, id, |rest| rest.processes),
        Tab::Logs if !untrack(|| Page::here().shows_logs()) => {
            view! { <p class="empty">"Logs are not shared with you."</p> }.into_any()
        }
        Tab::Logs => later_of(scope, id, |rest| rest.logs),
        Tab::About => later(move |rest| (rest.about)(id)),
        Tab::Node(name) => view! { <NodeByName scene=scope.scene.clone() name job=Some(id)/> }.into_any(),
    }
}

/// A job that has no nodes says what it waits for, and one that is not known says so.
#[component]
fn NoNodes(id: JobId, scene: Scene) -> impl IntoView {
    let page = Page::here();
    let sentence = words(move || {
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
    });
    view! { <p class="empty">{sentence}</p> }
}
