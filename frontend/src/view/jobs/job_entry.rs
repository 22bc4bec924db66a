//! A job in the list: its health, its name, the time left, and a cell per GPU.

use super::gpu_cells::Cells;
use super::job_progress::Progress;
use crate::describe::job::time_left;
use crate::domain::attention::Entry;
use crate::domain::health::Health;
use crate::domain::job_health;
use crate::domain::ownership;
use crate::domain::route::{JobTab, Route};
use crate::domain::severity::Severity;
use crate::domain::text;
use crate::platform;
use crate::state::page::Page;
use crate::view::scope::NodeScope;
use crate::view::severity_class::SeverityClass;
use crate::view::widgets::dot::Dot;
use leptos::prelude::*;
use nodeglass_protocol::JobId;
use nodeglass_protocol::job::{Job, JobState};
use std::sync::Arc;

/// A job in the list.
#[component]
pub fn JobEntry(
    /// The job.
    id: JobId,
) -> impl IntoView {
    let page = Page::from_context();
    let job = {
        let page = page.clone();
        Memo::new(move |_| page.job(id))
    };
    let scope = overview_scope(&page, id);
    let health = job_health(&page, &scope, job);
    let name = move || job.with(|job| job.as_ref().map(|job| job.name.to_string()));
    let several_users = page.several_users;
    let allocation = move || {
        let user = |job: &Job| if several_users.get() { format!("{} · ", job.user) } else { String::new() };
        job.with(|job| job.as_ref().map(|job| format!("{}{}", user(job), allocation(job))))
    };
    let when = {
        let page = page.clone();
        Memo::new(move |_| {
            job.with(|job| job.as_ref().map(|job| when(job, page.wall_s()))).unwrap_or_default()
        })
    };
    let (here, what) = (page.route, allocation);
    view! {
        <li>
            <a
                class="job"
                title=what
                href=page.href(&Route::Job(id, JobTab::Nodes))
                aria-current=move || (here.with(Route::job) == Some(id)).then_some("page")
            >
                <Dot health/>
                <b class="job__name" title=name>{move || name()}</b>
                <span class="job__when"><span class="num">{move || when.get().0}</span> " " <small>{move || when.get().1}</small></span>
                <small class="job__what">{move || health.with(reason).unwrap_or_else(|| allocation().into_any())}</small>
                <Progress id in_list=true/>
                <Cells scope/>
            </a>
        </li>
    }
}

/// Returns a job's nodes in the overview.
pub fn overview_scope(page: &Page, id: JobId) -> NodeScope {
    let store = page.fleet.overview().clone();
    let all = page.job_nodes(&store, id);
    let page = page.clone();
    // The nodes of an ended job may serve another job by now; its last picture is on its own page.
    let nodes =
        Memo::new(
            move |_| if page.job(id).is_some_and(|job| job.is_active()) { all.get() } else { Vec::new() },
        );
    NodeScope { store, nodes, job: Some(id), is_whole_job: true }
}

/// Returns what is wrong with a job, for its second line, which has no room for more; `None` if all is well.
pub fn reason(health: &Health) -> Option<AnyView> {
    let is_wrong = health.severity.needs_attention();
    is_wrong
        .then(|| view! { <span class=health.severity.text_class()>{health.label.clone()}</span> }.into_any())
}

/// Returns a job's health by the overview, updated once a second.
pub fn job_health(page: &Page, scope: &NodeScope, job: Memo<Option<Job>>) -> Memo<Health> {
    health_by(page, scope, job, page.attention.entries())
}

/// Returns a job's health by these items, updated once a second.
pub fn health_by(
    page: &Page,
    scope: &NodeScope,
    job: Memo<Option<Job>>,
    entries: Memo<Arc<Vec<Entry>>>,
) -> Memo<Health> {
    let (page, scope) = (page.clone(), scope.clone());
    Memo::new(move |_| {
        let entries = entries.get();
        scope.nodes.track();
        let now_ms = page.now_ms();
        let health = job.with(|job| {
            let job = job.as_ref()?;
            Some(scope.store.read(|picture| {
                let nodes = ownership::job_nodes(job, picture);
                job_health::for_job(job, nodes.iter().map(|node| &picture.nodes[*node]), &entries, now_ms)
            }))
        });
        health.unwrap_or_else(|| Health { severity: Severity::Pending, label: "not known".to_owned() })
    })
}

/// Summarises a job: its number, its nodes, its GPUs.
pub fn allocation(job: &Job) -> String {
    let mut parts = vec![job.label.to_string()];
    match job.nodes.as_slice() {
        [only] => parts.push(only.to_string()),
        _ => parts.push(text::count(job.node_count as usize, "node", "nodes")),
    }
    match job.gpu_count {
        Some(gpus) => parts.push(text::count(gpus as usize, "GPU", "GPUs")),
        None if job.is_active() => parts.push("GPUs unknown".to_owned()),
        None => {}
    }
    parts.join(" · ")
}

/// Returns the relevant time of a job, and its meaning.
pub fn when(job: &Job, now_s: i64) -> (String, &'static str) {
    match job.state {
        JobState::Pending => match job.start {
            Some(start) => (format!("~{}", platform::format_time_or_date(start)), "start"),
            None => (String::new(), ""),
        },
        JobState::Ended(_) => {
            let ago = job.ended.map(|at| text::span(now_s.saturating_sub(at).max(0).cast_unsigned()));
            (ago.unwrap_or_default(), "ago")
        }
        _ => match time_left(job, now_s) {
            Some(left) => (text::short_span(left), "left"),
            None => (String::new(), ""),
        },
    }
}
