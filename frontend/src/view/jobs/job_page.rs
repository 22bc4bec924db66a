//! A job's page: its head, its tabs, and the tab that the URL names.

use super::attention_line::AttentionLine;
use super::attention_list::AttentionList;
use super::job_about::JobAbout;
use super::job_head::JobHead;
use super::job_nodes::JobNodes;
use super::logs::Logs;
use super::node_tabs::NodeTabs;
use super::unknown_job::UnknownJob;
use crate::domain::attention::{Entry, Item};
use crate::domain::route::{JobTab, Route};
use crate::fleet::{Phase, TopicStore};
use crate::state::page::Page;
use crate::view::node::node_page::NodeByName;
use crate::view::node::tiles::Tiles;
use crate::view::reports::job_report::JobReport;
use crate::view::scope::NodeScope;
use crate::view::tables::process_table::ProcessTable;
use leptos::prelude::*;
use nodeglass_protocol::JobId;
use nodeglass_protocol::job::JobState;
use nodeglass_rules::run::has_run;
use std::sync::Arc;

/// A job.
#[component]
pub fn JobPage(
    /// The job.
    id: JobId,
    /// Its store.
    store: TopicStore,
) -> impl IntoView {
    let page = Page::from_context();
    let job = {
        let page = page.clone();
        Memo::new(move |_| page.job(id))
    };
    let names =
        Memo::new(move |_| job.with(|job| job.as_ref().map(|job| job.nodes.clone()).unwrap_or_default()));
    let nodes = page.job_nodes(&store, id);
    let scope = NodeScope { store: store.clone(), nodes, job: Some(id), is_whole_job: true };
    let entries = page.attention.of_job(&store, id, job);
    let silenced = page.attention.silenced_of(id);
    let route = page.route;
    let tab = Memo::new(move |_| match route.get() {
        Route::Job(_, tab) => tab,
        _ => JobTab::Nodes,
    });
    let side = {
        let scope = scope.clone();
        move || side(&scope, id, tab.get())
    };
    let waiting = Memo::new(move |_| names.with(Vec::is_empty));
    let body = move || {
        if waiting.get() {
            if tab.get() == JobTab::Report {
                return view! { <JobReport id/> }.into_any();
            }
            return view! { <NoNodes id/> <JobAbout id/> }.into_any();
        }
        view! { <NodeTabs scope=scope.clone() job=id names entries/> {side.clone()} }.into_any()
    };
    let attention = attention(&store, tab, entries, silenced);
    let is_unknown = {
        let phase = page.fleet.overview().clone();
        Memo::new(move |_| {
            let is_listed = job.with(Option::is_some) || phase.phase() == Phase::Pending;
            !is_listed && tab.get() != JobTab::Report
        })
    };
    move || match is_unknown.get() {
        true => view! { <UnknownJob label=id.to_string() id=Some(id)/> }.into_any(),
        false => view! { <JobHead id entries/> {attention.clone()} {body.clone()} }.into_any(),
    }
}

/// The attention list of the job; above text for reading, it is one line until it is unfolded.
fn attention(
    store: &TopicStore,
    tab: Memo<JobTab>,
    entries: Memo<Arc<Vec<Entry>>>,
    silenced: Memo<Arc<Vec<Item>>>,
) -> impl Fn() -> AnyView + Clone + use<> {
    let store = store.clone();
    let is_read = Memo::new(move |_| matches!(tab.get(), JobTab::Logs | JobTab::Report | JobTab::About));
    let is_unfolded = RwSignal::new(false);
    move || match is_read.get() && !is_unfolded.get() {
        true => view! { <AttentionLine entries is_unfolded/> }.into_any(),
        false => view! { <AttentionList entries silenced store=store.clone() in_job=true/> }.into_any(),
    }
}

fn side(scope: &NodeScope, id: JobId, tab: JobTab) -> AnyView {
    let (scope, store) = (scope.clone(), scope.store.clone());
    // Before the nodes are known, a table would show that there are none.
    let is_here = move || store.phase() != Phase::Pending;
    match tab {
        JobTab::Nodes => view! {
            <Tiles scope=scope.clone()/>
            <Show when=is_here><JobNodes scope=scope.clone() job=id/></Show>
        }
        .into_any(),
        JobTab::Processes => {
            view! { <Show when=is_here><ProcessTable scope=scope.clone() several=true/></Show> }.into_any()
        }
        JobTab::Logs if !untrack(|| Page::from_context().shows_logs()) => {
            view! { <p class="empty">"Logs are not shared with you."</p> }.into_any()
        }
        JobTab::Logs if untrack(|| Page::from_context().replay().get().is_some()) => {
            view! { <p class="empty">"A recording does not contain logs."</p> }.into_any()
        }
        JobTab::Logs => view! { <Show when=is_here><Logs scope=scope.clone() id/></Show> }.into_any(),
        JobTab::Report => view! { <JobReport id/> }.into_any(),
        JobTab::About => view! { <JobAbout id/> }.into_any(),
        JobTab::Node(name) => view! { <NodeByName store=scope.store name job=Some(id)/> }.into_any(),
    }
}

/// A job without nodes.
#[component]
fn NoNodes(
    /// The job.
    id: JobId,
) -> impl IntoView {
    let page = Page::from_context();
    let href = page.href(&Route::Job(id, JobTab::Report));
    let job = Memo::new(move |_| page.job(id));
    let was_requeued =
        Memo::new(move |_| job.get().is_some_and(|job| job.restarts > 0 && job.state == JobState::Pending));
    let why = Memo::new(move |_| match job.get() {
        None => "Waiting for the list of jobs …",
        Some(job) if matches!(job.state, JobState::Ended(_)) && has_run(&job) => {
            "SLURM no longer states the nodes of this job."
        }
        Some(job) if matches!(job.state, JobState::Ended(_)) => "This job ended before it started.",
        _ if was_requeued.get() => {
            "This job was requeued, and waits. Its GPUs appear here when it starts again. "
        }
        _ => "This job has no nodes yet. Its GPUs appear here when it starts.",
    });
    view! {
        <p class="empty">
            {why}
            <Show when=move || was_requeued.get()>
                <a class="link" href=href.clone()>"Report of its run until then"</a>
            </Show>
        </p>
    }
}
