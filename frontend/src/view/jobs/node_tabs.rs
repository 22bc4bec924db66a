//! The tabs of a job: all nodes, processes, logs, details, and its nodes with their health.

use super::node_picker::NodePicker;
use crate::domain::attention::{Entry, Item, affecting_node, of_node};
use crate::domain::health::Health;
use crate::domain::node_order::{MOST_TABS, tabs};
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
use std::sync::Arc;

/// The tabs of a job. With many nodes, only those that need attention and the current one have a tab; the others
/// are found in a list.
#[component]
pub fn NodeTabs(
    /// The nodes and the job.
    scope: Scope,
    /// The job.
    job: JobId,
    /// The names of the job's nodes, known before anything else about them.
    names: Memo<Vec<NodeName>>,
    /// What needs attention in the job.
    entries: Entries,
) -> impl IntoView {
    let page = Page::from_context();
    let (route, nav) = (page.route, NodeRef::<Nav>::new());
    // Where the tabs overflow, the current one is scrolled into view.
    Effect::new(move || {
        if let (Some(nav), Route::Job(_, JobTab::Node(_))) = (nav.get(), route.get()) {
            platform::on_next_frame(move || {
                let current = nav.query_selector("[aria-current]").ok().flatten();
                current.iter().for_each(platform::scroll_into_view);
            });
        }
    });
    let has_many = Memo::new(move |_| names.with(Vec::len) > MOST_TABS);
    let shown = Memo::new({
        let (page, store) = (page.clone(), scope.store.clone());
        move |_| {
            if !has_many.get() {
                return names.get();
            }
            page.assessment.track();
            let severity = |name: &NodeName| severity(&page, &store, entries, name);
            let current = match route.get() {
                Route::Job(_, JobTab::Node(name)) => Some(name),
                _ => None,
            };
            names.with(|names| tabs(names, severity, current.as_ref()))
        }
    });
    let picker = {
        let (page, store) = (page.clone(), scope.store.clone());
        move || {
            let (page, store) = (page.clone(), store.clone());
            let health =
                Arc::new(move |name: &NodeName| health(&page, &store, entries, name, affecting_node));
            has_many.get().then(|| view! { <NodePicker job names health/> })
        }
    };
    let tab = move |name: NodeName| node_tab(&scope.store, job, entries, name);
    let (guarded, href) = (page.clone(), page.href(&Route::Job(job, JobTab::Logs)));
    let current = move |tab: JobTab| move || (route.get() == Route::Job(job, tab.clone())).then_some("page");
    let logs = move || {
        let href = href.clone();
        guarded
            .shows_logs()
            .then(|| view! { <a href=href aria-current=current(JobTab::Logs)>"Logs"</a> }.into_any())
    };
    view! {
        <div class="tabs-line">
            <nav class="tabs" node_ref=nav aria-label="Views of the job">
                <a href=page.href(&Route::Job(job, JobTab::Nodes)) aria-current=current(JobTab::Nodes)>"All nodes"</a>
                <a href=page.href(&Route::Job(job, JobTab::Processes)) aria-current=current(JobTab::Processes)>"Processes"</a>
                {move || logs()}
                <a href=page.href(&Route::Job(job, JobTab::Report)) aria-current=current(JobTab::Report)>"Report"</a>
                <a href=page.href(&Route::Job(job, JobTab::About)) aria-current=current(JobTab::About)>"About"</a>
                <span class="tabs__gap"></span>
                <For each=move || shown.get() key=NodeName::clone children=tab/>
            </nav>
            {picker}
        </div>
    }
}

/// What needs attention in a job.
type Entries = Memo<Arc<Vec<Entry>>>;

/// Finds the worst item of a node.
type FindItem = for<'a> fn(&'a [Entry], &NodeName) -> Option<&'a Item>;

/// Returns the health of a node, or what `find` returns if that is worse; subscribes only to the set of nodes and to
/// what needs attention.
fn health(page: &Page, store: &TopicStore, entries: Entries, name: &NodeName, find: FindItem) -> Health {
    let own = match store.cell(name) {
        Some(cell) => Health::clone(&node_health(page, store, &cell)),
        None => Health { severity: Severity::Pending, label: "not known yet".to_owned() },
    };
    entries.with(|entries| match find(entries, name) {
        Some(item) if item.severity > own.severity => Health::new(item.severity, item.reason.clone()),
        _ => own,
    })
}

/// Returns how severe what concerns a node alone is: what all nodes share gives none of them a tab.
fn severity(page: &Page, store: &TopicStore, entries: Entries, name: &NodeName) -> Severity {
    health(page, store, entries, name, of_node).severity
}

/// The tab of a node.
fn node_tab(store: &TopicStore, job: JobId, entries: Entries, name: NodeName) -> AnyView {
    let page = Page::from_context();
    let route = Route::Job(job, JobTab::Node(name.clone()));
    let (href, text) = (page.href(&route), name.to_string());
    let (here, store) = (page.route, store.clone());
    let health = Memo::new(move |_| {
        if let Some(cell) = store.cell(&name) {
            cell.head().track();
            cell.samples().track();
        }
        health(&page, &store, entries, &name, affecting_node)
    });
    view! {
        <a href=href aria-current=move || here.with(|here| *here == route).then_some("page")>
            <Dot health/>
            {text}
        </a>
    }
    .into_any()
}
