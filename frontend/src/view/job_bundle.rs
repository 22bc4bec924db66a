//! Tasks of an array are one line of the list, which opens to show them.

use super::dot::Dot;
use super::job_list::Section;
use crate::bundles;
use crate::health::{self, Health, Shape};
use crate::page::Page;
use crate::place::Place;
use crate::roster;
use leptos::prelude::*;
use nodeglass_protocol::JobId;
use nodeglass_protocol::job::Job;

/// Which bundles the user opened or shut; the others are open while one of their jobs is looked at.
#[derive(Clone, Copy)]
pub struct Folds(RwSignal<Vec<(JobId, bool)>>);

impl Folds {
    /// Nothing opened or shut by hand.
    pub fn new() -> Self {
        Self(RwSignal::new(Vec::new()))
    }

    /// Whether a bundle is open.
    pub fn is_open(self, page: &Page, of: JobId) -> bool {
        let chosen = self.0.with(|folds| folds.iter().find(|(whole, _)| *whole == of).map(|(_, open)| *open));
        chosen.unwrap_or_else(|| {
            let here = page.place.with(Place::job);
            here.and_then(|id| page.job(id)).is_some_and(|job| bundles::whole(&job) == Some(of))
        })
    }

    fn set(self, of: JobId, open: bool) {
        self.0.update(|folds| {
            folds.retain(|(whole, _)| *whole != of);
            folds.push((of, open));
        });
    }
}

/// The line of a bundle.
#[component]
pub fn JobBundle(
    /// The number of the whole.
    of: JobId,
    /// The part of the list it stands in.
    section: Section,
    /// Which bundles are open.
    folds: Folds,
) -> impl IntoView {
    let page = Page::here();
    let members = {
        let page = page.clone();
        Memo::new(move |_| page.jobs.with(|jobs| members(jobs, section, of)))
    };
    let open = {
        let page = page.clone();
        Memo::new(move |_| folds.is_open(&page, of))
    };
    let health = Memo::new(move |_| members.with(|members| worst(&page, members)));
    let name = move || members.with(|members| members.first().map(|job| job.name.to_string()));
    let what = move || members.with(|members| bundles::what(of, members.iter()));
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
                <small class="job__what">{move || what()}</small>
            </button>
        </li>
    }
}

fn members(jobs: &[Job], section: Section, of: JobId) -> Vec<Job> {
    let theirs = |job: &&Job| Section::of(job) == section && bundles::whole(job) == Some(of);
    jobs.iter().filter(theirs).cloned().collect()
}

/// The state of the one that fares worst.
fn worst(page: &Page, members: &[Job]) -> Health {
    let now_ms = page.now_ms();
    let worst = page.fleet.overview().read(|picture| {
        let health = |job: &Job| {
            let nodes = roster::nodes_of(job, picture);
            health::of_job(job, nodes.iter().map(|at| &picture.nodes[*at]), now_ms)
        };
        members.iter().map(health).max_by_key(|health| health.shape)
    });
    worst.unwrap_or_else(|| Health { shape: Shape::Waiting, word: "not known".to_owned() })
}
