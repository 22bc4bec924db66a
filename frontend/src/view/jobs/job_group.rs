//! A group of array tasks in the job list, which expands to show them.

use super::job_entry::reason;
use super::section::Section;
use crate::domain::health::Health;
use crate::domain::job_groups;
use crate::domain::job_health;
use crate::domain::ownership;
use crate::domain::route::Route;
use crate::domain::severity::Severity;
use crate::state::page::Page;
use crate::view::widgets::dot::Dot;
use leptos::prelude::*;
use nodeglass_protocol::JobId;
use nodeglass_protocol::job::Job;

/// The groups that the user expanded or collapsed; others are expanded while one of their jobs is shown.
#[derive(Clone, Copy)]
pub struct ExpandedGroups(RwSignal<Vec<(JobId, bool)>>);

impl ExpandedGroups {
    /// Creates the initial state.
    pub fn new() -> Self {
        Self(RwSignal::new(Vec::new()))
    }

    /// Returns whether a group is expanded.
    pub fn is_open(self, page: &Page, of: JobId) -> bool {
        let chosen = self
            .0
            .with(|folds| folds.iter().find(|(parent_job, _)| *parent_job == of).map(|(_, open)| *open));
        chosen.unwrap_or_else(|| {
            let here = page.route.with(Route::job);
            here.and_then(|id| page.job(id)).is_some_and(|job| job_groups::parent_job(&job) == Some(of))
        })
    }

    fn set(self, of: JobId, open: bool) {
        self.0.update(|folds| {
            folds.retain(|(parent_job, _)| *parent_job != of);
            folds.push((of, open));
        });
    }
}

/// The entry of a group.
#[component]
pub fn JobGroup(
    /// The parent's number.
    of: JobId,
    /// The section of the list.
    section: Section,
    /// The expanded groups.
    folds: ExpandedGroups,
) -> impl IntoView {
    let page = Page::from_context();
    let members = {
        let page = page.clone();
        let attention = page.attention.jobs();
        Memo::new(move |_| {
            attention.with(|attention| page.jobs.with(|jobs| members(jobs, attention, section, of)))
        })
    };
    let open = {
        let page = page.clone();
        Memo::new(move |_| folds.is_open(&page, of))
    };
    let href = page.href(&Route::Array(of));
    let health = Memo::new(move |_| members.with(|members| worst(&page, members)));
    let is_array = Memo::new(move |_| {
        open.get() && members.with(|members| members.iter().any(|job| job_groups::is_task(job, of)))
    });
    let all_tasks = move || {
        let href = href.clone();
        is_array
            .get()
            .then(|| view! { <p class="jobs__none"><a class="link" href=href>"All tasks in a table"</a></p> })
    };
    let name = move || members.with(|members| members.first().map(|job| job.name.to_string()));
    let summary = move || members.with(|members| job_groups::summary(of, members.iter()));
    view! {
        <li>
            <button
                class="job job--bundle"
                aria-expanded=move || if open.get() { "true" } else { "false" }
                on:click=move |_| folds.set(of, !open.get_untracked())
            >
                <Dot health/>
                <b class="job__name">{move || name()}</b>
                <span class="job__when" aria-hidden="true">{move || if open.get() { "▾" } else { "▸" }}</span>
                <small class="job__what">{move || health.with(reason).unwrap_or_else(|| summary().into_any())}</small>
            </button>
            {all_tasks}
        </li>
    }
}

fn members(jobs: &[Job], attention: &[JobId], section: Section, of: JobId) -> Vec<Job> {
    let belongs =
        |job: &&Job| Section::for_job(job, attention) == section && job_groups::parent_job(job) == Some(of);
    jobs.iter().filter(belongs).cloned().collect()
}

/// Returns the worst health of the members.
fn worst(page: &Page, members: &[Job]) -> Health {
    let now_ms = page.now_ms();
    let entries = page.attention.entries().get();
    let worst = page.fleet.overview().read(|picture| {
        let health = |job: &Job| {
            let nodes = ownership::job_nodes(job, picture);
            job_health::for_job(job, nodes.iter().map(|at| &picture.nodes[*at]), &entries, now_ms)
        };
        members.iter().map(health).max_by_key(|health| health.severity)
    });
    worst.unwrap_or_else(|| Health { severity: Severity::Pending, label: "not known".to_owned() })
}
