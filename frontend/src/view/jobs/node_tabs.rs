//! The tabs of a job: all nodes, processes, logs, details, and its nodes with their health.

use super::node_picker::NodePicker;
use crate::domain::attention::{Entry, Item, affecting_node, of_node, worse};
use crate::domain::health::Health;
use crate::domain::node_order::{TabRank, TabRoom, tabs};
use crate::domain::route::{JobTab, Route};
use crate::domain::severity::Severity;
use crate::fleet::TopicStore;
use crate::platform;
use crate::state::page::{Page, node_health};
use crate::state::time::Time;
use crate::view::scope::NodeScope;
use crate::view::widgets::dot::Dot;
use leptos::html::Div;
use leptos::prelude::*;
use nodeglass_protocol::{JobId, NodeName};
use std::sync::Arc;

/// Maximum width of the viewport, in pixels, at which the nodes have a line of their own, as in the style sheet.
const NARROW_PX: f64 = 760.0;
/// Width of the button that opens the list of nodes, and of the gaps, in pixels.
const PICKER_PX: f64 = 132.0;

/// The tabs of a job. If not all nodes have room, only those that need attention and the current one have a tab; the
/// others are found in a list.
#[component]
pub fn NodeTabs(
    /// The nodes and the job.
    scope: NodeScope,
    /// The job.
    job: JobId,
    /// The names of the job's nodes, known before anything else about them.
    names: Memo<Vec<NodeName>>,
    /// The attention list of the job.
    entries: Entries,
) -> impl IntoView {
    let page = Page::from_context();
    let line = NodeRef::<Div>::new();
    let fitting = fitting(names, line);
    let has_picker = Memo::new(move |_| names.with(Vec::len) > fitting.get());
    let ranks = Ranks { page: page.clone(), store: scope.store.clone(), entries };
    let shown = shown_tabs(&ranks, names, has_picker, fitting);
    let hidden_problems = hidden_problems(ranks, names, shown);
    let picker = {
        let (page, store) = (page.clone(), scope.store.clone());
        move || {
            let (page, store) = (page.clone(), store.clone());
            let health =
                Arc::new(move |name: &NodeName| health(&page, &store, entries, name, affecting_node));
            has_picker.get().then(|| view! { <NodePicker job names health hidden_problems/> })
        }
    };
    let tab = move |name: NodeName| node_tab(&scope.store, job, entries, name);
    view! {
        <div class="tabs-line" node_ref=line>
            {view_tabs(page, job)}
            <nav class="tabs tabs--nodes" aria-label="Nodes of the job">
                <For each=move || shown.get() key=NodeName::clone children=tab/>
            </nav>
            {picker}
            <span class="tabs__sample" aria-hidden="true"><i class="dot"></i> {move || longest(names)}</span>
        </div>
    }
}

/// The tabs of what concerns all nodes.
fn view_tabs(page: Page, job: JobId) -> AnyView {
    let (route, href) = (page.route, page.href(&Route::Job(job, JobTab::Logs)));
    let current = move |tab: JobTab| move || (route.get() == Route::Job(job, tab.clone())).then_some("page");
    let guarded = page.clone();
    let logs = move || {
        let href = href.clone();
        guarded
            .shows_logs()
            .then(|| view! { <a href=href aria-current=current(JobTab::Logs)>"Logs"</a> }.into_any())
    };
    view! {
        <nav class="tabs" aria-label="Views of the job">
            <a href=page.href(&Route::Job(job, JobTab::Nodes)) aria-current=current(JobTab::Nodes)>"All nodes"</a>
            <a href=page.href(&Route::Job(job, JobTab::Processes)) aria-current=current(JobTab::Processes)>"Processes"</a>
            {logs}
            <a href=page.href(&Route::Job(job, JobTab::Report)) aria-current=current(JobTab::Report)>"Report"</a>
            <a href=page.href(&Route::Job(job, JobTab::About)) aria-current=current(JobTab::About)>"About"</a>
        </nav>
    }
    .into_any()
}

/// Returns the nodes that have a tab: all of them, or those that need attention and the current one.
fn shown_tabs(
    ranks: &Ranks,
    names: Memo<Vec<NodeName>>,
    has_picker: Memo<bool>,
    fitting: Memo<usize>,
) -> Memo<Vec<NodeName>> {
    let ranks = ranks.clone();
    Memo::new(move |_| {
        if !has_picker.get() {
            return names.get();
        }
        ranks.page.assessment.track();
        let current = match ranks.page.route.get() {
            Route::Job(_, JobTab::Node(name)) => Some(name),
            _ => None,
        };
        names.with(|names| tabs(names, |name: &NodeName| ranks.rank(name), current.as_ref(), fitting.get()))
    })
}

/// Returns how many nodes without a tab need attention, and the worst severity of them.
fn hidden_problems(
    ranks: Ranks,
    names: Memo<Vec<NodeName>>,
    shown: Memo<Vec<NodeName>>,
) -> Memo<(usize, Severity)> {
    Memo::new(move |_| {
        ranks.page.assessment.track();
        let is_hidden = |name: &&NodeName| shown.with(|shown| !shown.contains(name));
        names.with(|names| {
            let hidden = names.iter().filter(is_hidden).map(|name| ranks.rank(name).0);
            let problems = hidden.filter(|severity| severity.needs_attention());
            problems.fold((0, Severity::Ok), |(count, worst), one| (count + 1, worst.max(one)))
        })
    })
}

/// Returns how many nodes have a tab, by the widths of the line and of the longest tab; measured again with the viewport.
fn fitting(names: Memo<Vec<NodeName>>, line: NodeRef<Div>) -> Memo<usize> {
    let (room, time) = (RwSignal::new(None), Time::from_context());
    platform::effect(move || {
        let (width, Some(line)) = (time.width(), line.get()) else { return };
        names.track();
        let width_of = |part: &str| {
            let part = line.query_selector(part).ok().flatten();
            part.map_or(0.0, |part| platform::bounding_rect(&part)[2])
        };
        let views = if width > NARROW_PX { width_of(".tabs") } else { 0.0 };
        let for_nodes = platform::bounding_rect(&line)[2] - views;
        room.set(Some(TabRoom { for_nodes, tab: width_of(".tabs__sample"), picker: PICKER_PX }));
    });
    Memo::new(move |_| {
        let count = names.with(Vec::len);
        room.get().map_or(count, |room| room.tabs(count))
    })
}

fn longest(names: Memo<Vec<NodeName>>) -> String {
    names.with(|names| {
        names.iter().map(NodeName::as_str).max_by_key(|name| name.len()).unwrap_or_default().to_owned()
    })
}

/// The attention list of a job.
type Entries = Memo<Arc<Vec<Entry>>>;

/// Finds the worst item of a node.
type FindItem = for<'a> fn(&'a [Entry], &NodeName) -> Option<&'a Item>;

/// Returns the health of a node, or what `find` returns if that is worse; subscribes only to the set of nodes and to
/// what needs attention.
fn health(page: &Page, store: &TopicStore, entries: Entries, name: &NodeName, find: FindItem) -> Health {
    let own = match store.cell(name) {
        Some(cell) => node_health(page, store, &cell),
        None => Arc::new(Health::new(Severity::Pending, "not known yet")),
    };
    entries.with(|entries| Health::clone(&worse(own, find(entries, name))))
}

/// Input of ranking the nodes of a job.
#[derive(Clone)]
struct Ranks {
    page: Page,
    store: TopicStore,
    entries: Entries,
}

impl Ranks {
    /// Returns how much a node needs attention because of items about it alone: an item that all nodes share gives none
    /// of them a tab.
    fn rank(&self, name: &NodeName) -> TabRank {
        let is_about = |entry: &Entry| entry.item.nodes == std::slice::from_ref(name);
        let place = self.entries.with(|entries| entries.iter().position(is_about));
        let health = health(&self.page, &self.store, self.entries, name, of_node);
        (health.severity, place.unwrap_or(usize::MAX))
    }
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
