//! The job list: running, pending and ended jobs, and machines without a job of the user.

use super::job_entry::JobEntry;
use super::job_group::{ExpandedGroups, JobGroup};
use super::machines::{Machines, machines};
use super::section::Section;
use crate::domain::job_groups::{self, ListEntry};
use crate::domain::route::{JobTab, Route};
use crate::domain::sorting;
use crate::platform;
use crate::state::page::Page;
use crate::table::jobs::has_ended;
use leptos::prelude::*;
use nodeglass_protocol::JobId;
use nodeglass_protocol::job::{Job, JobState};
use nodeglass_protocol::picture::JobsHealth;

/// Number of entries that a section shows; the table of all jobs, which can be filtered, has the rest.
const SHOWN: usize = 200;

/// Returns the routes of the list, from top to bottom.
pub fn listed_routes(page: &Page) -> Vec<Route> {
    // A group expands when a shortcut moves into it.
    let jobs = Section::ALL.into_iter().flat_map(|section| {
        let entries = entries(page, section, |_| true);
        entries.into_iter().take(SHOWN)
    });
    let jobs = jobs.filter_map(|entry| match entry {
        ListEntry::Job(id) => Some(id),
        ListEntry::Group(_) => None,
    });
    let machines = machines(page).into_iter().map(|cell| Route::Node(cell.name().clone()));
    jobs.map(|id| Route::Job(id, JobTab::Nodes)).chain(machines).collect()
}

fn entries(page: &Page, section: Section, is_open: impl Fn(JobId) -> bool) -> Vec<ListEntry> {
    let attention = page.attention.jobs().get();
    page.jobs.with(|jobs| {
        let belongs = |job: &&Job| Section::for_job(job, &attention) == section;
        let mut jobs: Vec<&Job> = jobs.iter().filter(belongs).collect();
        if section.folds(jobs.len()) && !is_unfolded(page, section).get() {
            // While they are folded, the shown one has its entry all the same.
            let current = page.route.with(Route::job);
            jobs.retain(|job| current == Some(job.id));
        }
        if section == Section::Attention {
            sorting::sort_by_key(&mut jobs, |job| attention.iter().position(|id| *id == job.id));
        }
        job_groups::entries(&jobs, is_open)
    })
}

/// Returns whether a section that folds is unfolded.
fn is_unfolded(page: &Page, section: Section) -> RwSignal<bool> {
    if section == Section::Waiting { page.lists_waiting } else { page.lists_ended }
}

/// The list.
#[component]
pub fn JobList() -> impl IntoView {
    let (page, folds) = (Page::from_context(), ExpandedGroups::new());
    let (entered, left) = (page.attention.clone(), page.attention.clone());
    let has_jobs = {
        let page = page.clone();
        Memo::new(move |_| page.has_jobs())
    };
    let section = |section: Section| {
        let (page, listed) = (page.clone(), page.clone());
        let entries = Memo::new(move |_| entries(&listed, section, |of| folds.is_open(&listed, of)));
        let attention = page.attention.jobs();
        // In a section that is folded, there are more jobs than entries.
        let members = Memo::new(move |_| {
            let belongs =
                |job: &&Job| attention.with(|attention| Section::for_job(job, attention) == section);
            page.jobs.with(|jobs| jobs.iter().filter(belongs).count())
        });
        let some = Memo::new(move |_| members.get() > 0);
        move || some.get().then(|| view! { <Jobs section entries members folds/> }.into_any())
    };
    view! {
        <nav
            class="jobs"
            aria-label=move || if has_jobs.get() { "Jobs" } else { "Machines" }
            on:pointerenter=move |_| entered.hold_jobs(true)
            on:pointerleave=move |_| left.hold_jobs(false)
        >
            {Section::ALL.map(section)}
            <Machines/>
            <NoJobs/>
        </nav>
    }
}

#[component]
fn Jobs(
    section: Section,
    entries: Memo<Vec<ListEntry>>,
    members: Memo<usize>,
    folds: ExpandedGroups,
) -> impl IntoView {
    let entry = move |entry: ListEntry| match entry {
        ListEntry::Job(id) => view! { <JobEntry id/> }.into_any(),
        ListEntry::Group(of) => view! { <JobGroup of section folds/> }.into_any(),
    };
    let page = Page::from_context();
    let rest = Memo::new(move |_| entries.with(|entries| entries.len().saturating_sub(SHOWN)));
    let shown = move || entries.with(|entries| entries.iter().take(SHOWN).copied().collect::<Vec<_>>());
    let more = move || {
        let rest = Some(rest.get()).filter(|rest| *rest > 0)?;
        let href = page.href(&Route::AllJobs);
        let label = format!("{rest} more in the table of all jobs");
        Some(view! { <p class="jobs__none"><a class="link" href=href>{label}</a></p> })
    };
    let is_folding = Memo::new(move |_| section.folds(members.get()));
    let heading = move || match is_folding.get() {
        true => view! { <Fold section members/> }.into_any(),
        false => section.title().into_any(),
    };
    view! {
        <h2>{heading}</h2>
        <ul><For each=shown key=ListEntry::clone children=entry/></ul>
        {more}
    }
}

/// The button that lists the jobs of a section, with their number and what matters most about them: how many failed, or
/// when the first one starts.
#[component]
fn Fold(section: Section, members: Memo<usize>) -> impl IntoView {
    let page = Page::from_context();
    let (listed, jobs, attention) = (is_unfolded(&page, section), page.jobs, page.attention.jobs());
    let failed = Memo::new(move |_| {
        let is_failed =
            |job: &&Job| has_ended(job) && attention.with(|attention| attention.contains(&job.id));
        jobs.with(|jobs| jobs.iter().filter(is_failed).count())
    });
    let next = Memo::new(move |_| {
        let starts = |job: &Job| job.start.filter(|_| job.state == JobState::Pending);
        jobs.with(|jobs| jobs.iter().filter_map(starts).min())
    });
    let (what, more) = match section {
        Section::Waiting => (" waiting", {
            let more = move || Some(format!(" · next ~{}", platform::format_time_or_date(next.get()?)));
            (move || more().into_any()).into_any()
        }),
        _ => (" ended", {
            let some = move || Some(failed.get()).filter(|failed| *failed > 0);
            (move || some().map(|failed| view! { <span class="is-bad">" · " {failed} " failed"</span> }))
                .into_any()
        }),
    };
    view! {
        <button class="jobs__fold" aria-expanded=move || listed.get().to_string() on:click=move |_| listed.update(|listed| *listed = !*listed)>
            {members} {what} {more}
            <span aria-hidden="true">{move || if listed.get() { " ▾" } else { " ▸" }}</span>
        </button>
    }
}

/// Says why the list is empty; shown on the page, too, because on a phone the list is collapsed.
#[component]
pub fn NoJobs() -> impl IntoView {
    let page = Page::from_context();
    let sentence = Memo::new(move |_| {
        page.fleet.overview().relay().track();
        let health = page.fleet.overview().read(|picture| picture.relay.jobs.clone());
        let none = page.jobs.with(|jobs| jobs.is_empty());
        let local = page.fleet.welcome().is_none() || !page.has_jobs();
        let sentence = match health {
            _ if !none || local => return None,
            _ if page.share().is_some() => "None of the jobs shared with you is running.",
            JobsHealth::NotYet => "Asking SLURM for your jobs …",
            JobsHealth::Stale { reason, .. } => {
                return Some(format!(
                    "The list of jobs cannot be read: {reason}. Your jobs appear as soon as it can."
                ));
            }
            _ => "You have no jobs now. New ones appear here when you submit them.",
        };
        Some(sentence.to_owned())
    });
    move || sentence.get().map(|sentence| view! { <p class="jobs__none">{sentence}</p> })
}
