//! The list at the left: jobs that run, wait and ended, and machines that no job of the user holds.

use super::dot::Dot;
use super::job_entry::{Cells, JobEntry};
use super::node_list::health_of;
use super::scope::{Scope, alone};
use crate::fleet::NodeCell;
use crate::page::Page;
use crate::place::{Place, Tab};
use leptos::prelude::*;
use nodeglass_protocol::job::{Job, JobState};
use nodeglass_protocol::live::Mode;
use nodeglass_protocol::picture::JobsHealth;
use nodeglass_protocol::{JobId, NodeName};

/// The part of the list that a job is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Section {
    Running,
    Waiting,
    Ended,
}

impl Section {
    const ALL: [Self; 3] = [Self::Running, Self::Waiting, Self::Ended];

    fn title(self) -> &'static str {
        match self {
            Self::Running => "Running",
            Self::Waiting => "Waiting",
            Self::Ended => "Ended",
        }
    }

    fn of(job: &Job) -> Self {
        match job.state {
            JobState::Pending => Self::Waiting,
            JobState::Ended(_) => Self::Ended,
            _ => Self::Running,
        }
    }
}

/// The places of the list, from top to bottom.
pub fn listed(page: &Page) -> Vec<Place> {
    let jobs = Section::ALL.into_iter().flat_map(|section| ids(page, section));
    let machines = machines(page).into_iter().map(|cell| Place::Node(cell.name().clone()));
    jobs.map(|id| Place::Job(id, Tab::Nodes)).chain(machines).collect()
}

fn ids(page: &Page, section: Section) -> Vec<JobId> {
    page.jobs.with(|jobs| jobs.iter().filter(|job| Section::of(job) == section).map(|job| job.id).collect())
}

/// Nodes that no listed job has.
fn machines(page: &Page) -> Vec<NodeCell> {
    let cells = page.fleet.overview().nodes().get();
    let taken = |name: &NodeName| page.jobs.with(|jobs| jobs.iter().any(|job| job.nodes.contains(name)));
    cells.into_iter().filter(|cell| !taken(cell.name())).collect()
}

/// The list.
#[component]
pub fn JobList() -> impl IntoView {
    let page = Page::here();
    let section = |section: Section| {
        let page = page.clone();
        let ids = Memo::new(move |_| ids(&page, section));
        view! {
            <Show when=move || ids.with(|ids| !ids.is_empty())>
                <h2>{section.title()}</h2>
                <ul><For each=move || ids.get() key=|id| *id children=|id| view! { <JobEntry id/> }/></ul>
            </Show>
        }
    };
    view! {
        <nav class="jobs" aria-label="Jobs">
            {Section::ALL.map(section)}
            <Machines/>
            <NoJobs/>
        </nav>
    }
}

#[component]
fn Machines() -> impl IntoView {
    let page = Page::here();
    let cells = Memo::new({
        let page = page.clone();
        move |_| machines(&page)
    });
    let entry = move |cell: NodeCell| {
        let scope = Scope { scene: page.fleet.overview().clone(), nodes: alone(cell.clone()), job: None };
        let place = Place::Node(cell.name().clone());
        let (href, here, name) = (page.href(&place), page.place, cell.name().to_string());
        let health = health_of(&page, &scope, &cell);
        view! {
            <li>
                <a class="job job--machine" href=href aria-current=move || (here.get() == place).then_some("page")>
                    <Dot health/>
                    <b class="job__name">{name}</b>
                    <Cells scope/>
                </a>
            </li>
        }
    };
    view! {
        <Show when=move || cells.with(|cells| !cells.is_empty())>
            <h2>"Machines"</h2>
            <ul><For each=move || cells.get() key=|cell| cell.name().clone() children=entry.clone()/></ul>
        </Show>
    }
}

/// An empty list says why it is empty.
#[component]
fn NoJobs() -> impl IntoView {
    let page = Page::here();
    let sentence = Memo::new(move |_| {
        page.fleet.overview().relay().track();
        let health = page.fleet.overview().read(|picture| picture.relay.jobs.clone());
        let none = page.jobs.with(|jobs| jobs.is_empty());
        let local = page.fleet.welcome().is_some_and(|welcome| welcome.mode == Mode::Local);
        match health {
            _ if !none || local => None,
            JobsHealth::NotYet => Some("Asking SLURM for your jobs …"),
            JobsHealth::Stale { .. } => Some("SLURM does not answer. Your jobs appear as soon as it does."),
            _ => Some("You have no jobs now. One that you submit appears here by itself."),
        }
    });
    move || sentence.get().map(|sentence| view! { <p class="jobs__none">{sentence}</p> })
}
