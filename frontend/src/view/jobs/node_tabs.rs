//! The tabs of a job: all nodes, each node with its health, processes, logs, details.

use crate::domain::health::Health;
use crate::domain::route::{JobTab, Route};
use crate::domain::severity::Severity;
use crate::fleet::TopicStore;
use crate::platform;
use crate::state::page::{Page, node_health};
use crate::view::scope::Scope;
use crate::view::widgets::dot::Dot;
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
    /// The names of the job's nodes, known before anything else about them.
    names: Memo<Vec<NodeName>>,
) -> impl IntoView {
    let page = Page::from_context();
    let (route, tabs) = (page.route, NodeRef::<Nav>::new());
    // With many nodes the tabs overflow: the current one is scrolled into view.
    Effect::new(move || {
        if let (Some(tabs), Route::Job(_, JobTab::Node(_))) = (tabs.get(), route.get()) {
            platform::on_next_frame(move || {
                let current = tabs.query_selector("[aria-current]").ok().flatten();
                current.iter().for_each(platform::scroll_into_view);
            });
        }
    });
    let tab = move |name: NodeName| node_tab(&scope.store, job, name);
    let (guarded, href) = (page.clone(), page.href(&Route::Job(job, JobTab::Logs)));
    let current = move |tab: JobTab| move || (route.get() == Route::Job(job, tab.clone())).then_some("page");
    let logs = move || {
        let href = href.clone();
        guarded
            .shows_logs()
            .then(|| view! { <a href=href aria-current=current(JobTab::Logs)>"Logs"</a> }.into_any())
    };
    view! {
        <nav class="tabs" node_ref=tabs aria-label="Sides of the job">
            <a href=page.href(&Route::Job(job, JobTab::Nodes)) aria-current=current(JobTab::Nodes)>"All nodes"</a>
            <a href=page.href(&Route::Job(job, JobTab::Processes)) aria-current=current(JobTab::Processes)>"Processes"</a>
            {move || logs()}
            <a href=page.href(&Route::Job(job, JobTab::About)) aria-current=current(JobTab::About)>"About"</a>
            <span class="tabs__gap"></span>
            <For each=move || names.get() key=NodeName::clone children=tab/>
        </nav>
    }
}

/// The tab of a node.
fn node_tab(store: &TopicStore, job: JobId, name: NodeName) -> AnyView {
    let page = Page::from_context();
    let route = Route::Job(job, JobTab::Node(name.clone()));
    let (href, text) = (page.href(&route), name.to_string());
    let (here, store) = (page.route, store.clone());
    let health = Memo::new(move |_| match store.cell(&name) {
        Some(cell) => {
            cell.head().track();
            cell.samples().track();
            Health::clone(&node_health(&page, &store, &cell))
        }
        None => Health { severity: Severity::Pending, label: "not known yet".to_owned() },
    });
    view! {
        <a href=href aria-current=move || here.with(|here| *here == route).then_some("page")>
            <Dot health/>
            {text}
        </a>
    }
    .into_any()
}
