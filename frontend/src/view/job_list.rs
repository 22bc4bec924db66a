//! The list at the left: jobs that run, wait and ended, and machines that no job of the user holds.

use super::dot::Dot;
use super::job_bundle::{Folds, JobBundle};
use super::job_entry::{Cells, JobEntry};
use super::node_list::health_of;
use super::scope::{Scope, alone};
use crate::bundles::{self, Entry};
use crate::fleet::NodeCell;
use crate::health::Health;
use crate::page::Page;
use crate::place::{Place, Tab};
use leptos::prelude::*;
use nodeglass_protocol::job::{Job, JobState};
use nodeglass_protocol::live::Mode;
use nodeglass_protocol::picture::JobsHealth;
use nodeglass_protocol::{JobId, NodeName};

/// The part of the list that a job is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// It holds nodes.
    Running,
    /// It waits for them.
    Waiting,
    /// It is over.
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

    /// The part that a job is in.
    pub fn of(job: &Job) -> Self {
        match job.state {
            JobState::Pending => Self::Waiting,
            JobState::Ended(_) => Self::Ended,
            _ => Self::Running,
        }
    }
}

/// The places of the list, from top to bottom.
pub fn listed(page: &Page) -> Vec<Place> {
    // A bundle opens when one walks into it.
    let jobs = Section::ALL.into_iter().flat_map(|section| entries(page, section, |_| true));
    let jobs = jobs.filter_map(|entry| match entry {
        Entry::Job(id) => Some(id),
        Entry::Bundle(_) => None,
    });
    let machines = machines(page).into_iter().map(|cell| Place::Node(cell.name().clone()));
    jobs.map(|id| Place::Job(id, Tab::Nodes)).chain(machines).collect()
}

fn entries(page: &Page, section: Section, is_open: impl Fn(JobId) -> bool) -> Vec<Entry> {
    page.jobs.with(|jobs| {
        let jobs: Vec<&Job> = jobs.iter().filter(|job| Section::of(job) == section).collect();
        bundles::entries(&jobs, is_open)
    })
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
    let (page, folds) = (Page::here(), Folds::new());
    let section = |section: Section| {
        let page = page.clone();
        let entries = Memo::new(move |_| entries(&page, section, |of| folds.is_open(&page, of)));
        let some = Memo::new(move |_| entries.with(|entries| !entries.is_empty()));
        move || some.get().then(|| view! { <Jobs section entries folds/> }.into_any())
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
fn Jobs(section: Section, entries: Memo<Vec<Entry>>, folds: Folds) -> impl IntoView {
    let entry = move |entry: Entry| match entry {
        Entry::Job(id) => view! { <JobEntry id/> }.into_any(),
        Entry::Bundle(of) => view! { <JobBundle of section folds/> }.into_any(),
    };
    view! {
        <h2>{section.title()}</h2>
        <ul><For each=move || entries.get() key=Entry::clone children=entry/></ul>
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
        let health = {
            let (page, scene, cell) = (page.clone(), scope.scene.clone(), cell.clone());
            Memo::new(move |_| {
                page.second.track();
                Health::clone(&health_of(&page, &scene, &cell))
            })
        };
        view! {
            <li>
                <a class="job job--machine" href=href aria-current=move || (here.get() == place).then_some("page")>
                    <Dot health/>
                    <b class="job__name">{name}</b>
                    <Cells scope/>
                </a>
            </li>
        }
        .into_any()
    };
    let some = Memo::new(move |_| cells.with(|cells| !cells.is_empty()));
    move || {
        let entry = entry.clone();
        some.get().then(|| {
            view! {
                <h2>"Machines"</h2>
                <ul><For each=move || cells.get() key=|cell| cell.name().clone() children=entry/></ul>
            }
            .into_any()
        })
    }
}

/// An empty list says why it is empty; so does the page beside it, for on a phone the list is folded away.
#[component]
pub fn NoJobs() -> impl IntoView {
    let page = Page::here();
    let sentence = Memo::new(move |_| {
        page.fleet.overview().relay().track();
        let health = page.fleet.overview().read(|picture| picture.relay.jobs.clone());
        let none = page.jobs.with(|jobs| jobs.is_empty());
        let local = page.fleet.welcome().is_none_or(|welcome| welcome.mode == Mode::Local);
        match health {
            _ if !none || local => None,
            _ if page.share().is_some() => Some("No job runs now in what is shared with you."),
            JobsHealth::NotYet => Some("Asking SLURM for your jobs …"),
            JobsHealth::Stale { .. } => Some("SLURM does not answer. Your jobs appear as soon as it does."),
            _ => Some("You have no jobs now. One that you submit appears here by itself."),
        }
    });
    move || sentence.get().map(|sentence| view! { <p class="jobs__none">{sentence}</p> })
}
