//! A job's sides are tabs: all nodes, each node with its state, the processes.

use super::dot::Dot;
use super::node_list::health_of;
use super::scope::Scope;
use crate::browser;
use crate::fleet::Scene;
use crate::health::{Health, Shape};
use crate::page::Page;
use crate::place::{Place, Tab};
use leptos::html::Nav;
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
    let (place, tabs) = (page.place, NodeRef::<Nav>::new());
    // Many nodes are more tabs than fit: the current one comes into sight.
    Effect::new(move || {
        if let (Some(tabs), Place::Job(_, Tab::Node(_))) = (tabs.get(), place.get()) {
            browser::on_next_frame(move || {
                let current = tabs.query_selector("[aria-current]").ok().flatten();
                current.iter().for_each(browser::bring_into_sight);
            });
        }
    });
    let tab = move |name: NodeName| node_tab(&scope.scene, job, name);
    let (guarded, href) = (page.clone(), page.href(&Place::Job(job, Tab::Logs)));
    let current = move |tab: Tab| move || (place.get() == Place::Job(job, tab.clone())).then_some("page");
    let logs = move || {
        let href = href.clone();
        guarded
            .shows_logs()
            .then(|| view! { <a href=href aria-current=current(Tab::Logs)>"Logs"</a> }.into_any())
    };
    view! {
        <nav class="tabs" node_ref=tabs aria-label="Sides of the job">
            <a href=page.href(&Place::Job(job, Tab::Nodes)) aria-current=current(Tab::Nodes)>"All nodes"</a>
            <a href=page.href(&Place::Job(job, Tab::Processes)) aria-current=current(Tab::Processes)>"Processes"</a>
            {move || logs()}
            <a href=page.href(&Place::Job(job, Tab::About)) aria-current=current(Tab::About)>"About"</a>
            <span class="tabs__gap"></span>
            <For each=move || names.get() key=NodeName::clone children=tab/>
        </nav>
    }
}

/// The tab of a node.
fn node_tab(scene: &Scene, job: JobId, name: NodeName) -> AnyView {
    let page = Page::here();
    let place = Place::Job(job, Tab::Node(name.clone()));
    let (href, words) = (page.href(&place), name.to_string());
    let (here, scene) = (page.place, scene.clone());
    let health = Memo::new(move |_| match scene.cell(&name) {
        Some(cell) => {
            cell.head().track();
            cell.sampled().track();
            Health::clone(&health_of(&page, &scene, &cell))
        }
        None => Health { shape: Shape::Waiting, word: "not known yet".to_owned() },
    });
    view! {
        <a href=href aria-current=move || here.with(|here| *here == place).then_some("page")>
            <Dot health/>
            {words}
        </a>
    }
    .into_any()
}
