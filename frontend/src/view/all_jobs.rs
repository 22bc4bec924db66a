//! Every job at once: what each does, in one row.

use super::dot::Dot;
use super::grid::{self, Entry, Marks, Names, Own, Source, Subject, Table};
use super::heat_map::HeatMap;
use super::job_entry::{Cells, job_health, overview_scope};
use super::job_list::NoJobs;
use super::scope::Scope;
use crate::browser;
use crate::fleet::Phase;
use crate::health::{self, Freshness, freshness};
use crate::page::Page;
use crate::place::{Place, Tab};
use crate::roster;
use crate::table::jobs::{self, JobRow};
use crate::table::{Column, Now, Value};
use crate::totals::Totals;
use leptos::prelude::*;
use nodeglass_protocol::JobId;
use nodeglass_protocol::job::Job;
use nodeglass_protocol::live::Mode;
use std::collections::HashSet;
use std::sync::Arc;

/// Every job.
#[component]
pub fn AllJobs() -> impl IntoView {
    let fleet = Page::here().fleet;
    let (welcomed, overview) = (fleet.clone(), fleet.overview().clone());
    let local = Memo::new(move |_| welcomed.welcome().is_some_and(|welcome| welcome.mode == Mode::Local));
    view! {
        <div class="head head--line"><h1>{move || if local.get() { "Machines" } else { "All jobs" }}</h1></div>
        <Show when=move || overview.phase() != Phase::Awaited><JobTable/></Show>
    }
}

/// Everything over time, seen from afar, and the jobs row by row.
#[component]
fn JobTable() -> impl IntoView {
    let page = Page::here();
    let scene = page.fleet.overview().clone();
    let nodes = {
        let scene = scene.clone();
        Memo::new(move |_| scene.nodes().get())
    };
    let any = Memo::new(move |_| nodes.with(|nodes| !nodes.is_empty()));
    let heat = move || {
        let scope = Scope { scene: scene.clone(), nodes, job: None };
        any.get().then(|| view! { <HeatMap scope glance=true/> }.into_any())
    };
    view! {
        {move || heat()}
        <Table source=Arc::new(Jobs { page })/>
        <NoJobs/>
    }
}

/// Jobs as rows.
struct Jobs {
    page: Page,
}

impl Jobs {
    fn at<R>(&self, entry: &Entry, read: impl FnOnce(&JobRow<'_>) -> R) -> Option<R> {
        let Subject::Job(id) = entry.subject else { return None };
        let job = untrack(|| self.page.job(id))?;
        let page_ms = browser::now_ms();
        let now =
            Now { relay_ms: self.page.fleet.relay_ms(page_ms), wall_s: self.page.fleet.wall_s(page_ms) };
        let (totals, health) = self.page.fleet.overview().read(|picture| {
            let nodes = roster::nodes_of(&job, picture);
            let nodes = || nodes.iter().map(|at| &picture.nodes[*at]);
            let mut totals = Totals::default();
            // The nodes of an ended job serve somebody else by now.
            for node in nodes().filter(|_| job.is_active()) {
                let old = matches!(freshness(node, now.relay_ms), Freshness::Stale(_) | Freshness::Never);
                let add = |gpu| if old { totals.leave_out() } else { totals.add(gpu) };
                roster::counted(node, Some(id)).for_each(add);
            }
            (totals, health::of_job(&job, nodes(), now.relay_ms))
        });
        Some(read(&JobRow { job: &job, totals, health: &health, now }))
    }
}

impl Source for Jobs {
    fn names(&self) -> Names {
        Names {
            id: "jobs",
            title: "Jobs",
            rows: ("job", "jobs"),
            filter: "fj",
            sort: "sj",
            example: "util<50 left<1h state:running part_of:4711",
        }
    }

    fn columns(&self) -> Vec<Column> {
        jobs::columns()
    }

    fn entries(&self) -> Vec<Entry> {
        let entry =
            |job: &Job| Entry { key: job.id.to_string().into(), depth: 0, subject: Subject::Job(job.id) };
        self.page.jobs.with(|jobs| jobs.iter().map(entry).collect())
    }

    fn track(&self) {
        self.page.jobs.track();
        self.page.second.track();
    }

    fn stamp(&self, _: &Entry) -> u64 {
        // Much of it is told as a length of time, and the rest are sums: it is renewed whenever it may be.
        browser::now_ms().to_bits()
    }

    fn values(&self, entry: &Entry, columns: &[usize], into: &mut Vec<Value>) {
        let values =
            self.at(entry, |row| into.extend(columns.iter().map(|column| jobs::value(row, *column))));
        if values.is_none() {
            into.extend(columns.iter().map(|_| Value::NONE));
        }
    }

    fn marks(&self, _: &Entry) -> Marks {
        Marks::default()
    }

    fn adds(&self, entry: &Entry) -> bool {
        let Subject::Job(id) = entry.subject else { return false };
        untrack(|| self.page.job(id)).is_some_and(|job| jobs::adds(&job))
    }

    fn sum(&self, entries: &[Entry], column: &'static str) -> Option<Value> {
        let shown: HashSet<JobId> = entries
            .iter()
            .filter(|entry| self.adds(entry))
            .filter_map(|entry| match entry.subject {
                Subject::Job(id) => Some(id),
                _ => None,
            })
            .collect();
        let now_ms = self.page.fleet.relay_ms(browser::now_ms());
        let overview = self.page.fleet.overview();
        jobs::sum(&overview.read(|picture| roster::together(picture, &shown, now_ms)), column)
    }

    fn draw(&self, entry: &Entry, column: &'static str) -> Own {
        let Subject::Job(id) = entry.subject else { return Own::by_itself(()) };
        let (page, scope) = (self.page.clone(), overview_scope(&self.page, id));
        if column != "name" {
            return Own::by_itself(view! { <Cells scope/> });
        }
        let job = Memo::new({
            let page = page.clone();
            move |_| page.job(id)
        });
        let health = job_health(&page, &scope, job);
        let dot = view! { <Dot health/> }.into_any();
        Own::by_itself(grid::link(page.href(&Place::Job(id, Tab::Nodes)), dot, {
            let page = page.clone();
            move || page.job_name(id)
        }))
    }

    fn open(&self, entry: &Entry) {
        if let Subject::Job(id) = entry.subject {
            self.page.address.go(Place::Job(id, Tab::Nodes));
        }
    }
}
