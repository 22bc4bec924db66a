//! A job's sides are tabs: all nodes, each node with its state, the processes.

use super::dot::NodeDot;
use super::node_list::health_of;
use super::scope::Scope;
use crate::browser;
use crate::fleet::Scene;
use crate::health::{Health, Shape};
use crate::lazy::{Memo, Writers, lazy, part, rows};
use crate::markup::{Spot, view};
use crate::page::Page;
use crate::place::{Place, Tab};
use leptos::prelude::*;
use nodeglass_protocol::{JobId, NodeName};
use std::cell::Cell;
use std::sync::Arc;

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
    let writers = Writers::woken_by({
        let (scene, place) = (scope.scene.clone(), page.place);
        move || {
            scene.pulse().track();
            scene.nodes().track();
            place.track();
        }
    });
    let list = rows(names, NodeName::to_string, move |name| tab(&scope.scene, job, name, &writers));
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

/// The tab of a node.
fn tab(scene: &Scene, job: JobId, name: NodeName, writers: &Writers) -> AnyView {
    let page = Page::here();
    let place = Place::Job(job, Tab::Node(name.clone()));
    let (href, words) = (page.href(&place), name.to_string());
    let health = {
        let (page, scene) = (page.clone(), scene.clone());
        move || match untrack(|| scene.cell(&name)) {
            Some(cell) => health_of(&page, &scene, &cell),
            None => Arc::new(Health { shape: Shape::Waiting, word: "not known yet".to_owned() }),
        }
    };
    let (dot, spot) = (NodeDot::new(health()), Spot::default());
    let drawn = view! { <a node_ref=spot.clone() href=href>{dot.view()} {words}</a> };
    let is_current = Cell::new(false);
    writers.add(move || {
        dot.write(health());
        let now = page.place.with_untracked(|here| *here == place);
        if is_current.replace(now) != now {
            spot.write("aria-current", now.then_some("page"));
            // Many nodes are more tabs than fit: the current one comes into sight.
            if now {
                spot.element().into_iter().for_each(|anchor| browser::bring_into_sight(&anchor));
            }
        }
    });
    drawn.into_any()
}
