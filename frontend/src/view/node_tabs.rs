//! A job's sides are tabs: all nodes, each node with its state, the processes.

use super::dot::Dot;
use super::node_list::health_now;
use super::scope::Scope;
use crate::browser;
use crate::health::{Health, Shape};
use crate::lazy::{Memo, effect, lazy, memo, part, rows};
use crate::markup::view;
use crate::page::Page;
use crate::place::{Place, Tab};
use leptos::html::A;
use leptos::prelude::*;
use nodeglass_protocol::{JobId, NodeName};

/// The tabs of a job.
#[component]
pub fn NodeTabs(
    /// The nodes and the job.
    scope: Scope,
    /// The job.
    job: JobId,
    /// The names of the job's nodes, known before anything else of them.
    names: Memo<Vec<NodeName>>,
) -> impl IntoView {
    let page = Page::here();
    let list = rows(names, NodeName::to_string, move |name| {
        view! { <NodeTab scope=scope.clone() job name/> }.into_any()
    });
    let place = page.place;
    let (guarded, href) = (page.clone(), page.href(&Place::Job(job, Tab::Logs)));
    let current =
        move |tab: Tab| lazy(move || (place.get() == Place::Job(job, tab.clone())).then_some("page"));
    let logs = part(move || {
        let href = href.clone();
        guarded.shows_logs().then(|| view! { <a href=href aria-current=current(Tab::Logs)>"Logs"</a> })
    });
    view! {
        <nav class="tabs" aria-label="Sides of the job">
            <a href=page.href(&Place::Job(job, Tab::Nodes)) aria-current=current(Tab::Nodes)>"All nodes"</a>
            <a href=page.href(&Place::Job(job, Tab::Processes)) aria-current=current(Tab::Processes)>"Processes"</a>
            {logs}
            <a href=page.href(&Place::Job(job, Tab::About)) aria-current=current(Tab::About)>"About"</a>
            <span class="tabs__gap"></span>
            {list}
        </nav>
    }
}

#[component]
fn NodeTab(scope: Scope, job: JobId, name: NodeName) -> impl IntoView {
    let page = Page::here();
    let place = Place::Job(job, Tab::Node(name.clone()));
    let href = page.href(&place);
    let here = page.place;
    let health = {
        let (page, name, scene) = (page.clone(), name.clone(), scope.scene.clone());
        let cell = memo({
            let scene = scene.clone();
            move || scene.cell(&name)
        });
        memo(move || {
            let known = cell.get().map(|cell| health_now(&page, &scene, &cell));
            known.unwrap_or_else(|| Health { shape: Shape::Waiting, word: "not known yet".to_owned() })
        })
    };
    let current = memo(move || here.get() == place);
    let anchor = NodeRef::<A>::new();
    // Many nodes are more tabs than fit: the current one comes into sight.
    effect(move || {
        if let (true, Some(anchor)) = (current.get(), anchor.get()) {
            browser::bring_into_sight(&anchor);
        }
    });
    view! {
        <a node_ref=anchor href=href aria-current=lazy(move || current.get().then_some("page"))>
            <Dot health/> {name.to_string()}
        </a>
    }
}
