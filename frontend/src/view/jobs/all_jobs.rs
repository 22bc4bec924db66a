//! The overview of all jobs, one row each.

use super::attention_list::{AttentionList, TALL_PX};
use super::cluster::Cluster;
use super::gpu_cells::Cells;
use super::job_entry::{job_health as health_of, overview_scope};
use super::job_list::NoJobs;
use super::machine_groups::{ListNotices, MachineGroups};
use super::users::Users;
use crate::describe::job::pending_reason;
use crate::domain::compared;
use crate::domain::health::Health;
use crate::domain::job_groups::{self, is_task, task_number};
use crate::domain::job_health;
use crate::domain::job_names;
use crate::domain::other_users::Refusals;
use crate::domain::ownership;
use crate::domain::route::{JobTab, Route};
use crate::domain::severity::Severity;
use crate::domain::sorting;
use crate::domain::totals::Totals;
use crate::fleet::Phase;
use crate::platform;
use crate::state::page::Page;
use crate::table::jobs::{self, JobRow};
use crate::table::{CellStyle, Column, Now, Value};
use crate::view::charts::heat_map::HeatMap;
use crate::view::scope::NodeScope;
use crate::view::severity_class::SeverityClass;
use crate::view::tables::grid::{
    self, CustomCell, Folding, RowEntry, RowFlags, RowSource, RowSubject, Table, TableNames,
};
use crate::view::widgets::dot::Dot;
use leptos::prelude::*;
use nodeglass_protocol::JobId;
use nodeglass_protocol::job::Job;
use nodeglass_protocol::picture::Picture;
use std::collections::HashSet;
use std::sync::Arc;

/// In a narrower window, the column of the state is beyond the edge.
const STATE_IN_VIEW_PX: f64 = 600.0;
/// Maximum length of a job's state, in bytes, that a narrow column shows in full.
const FULL_STATE: usize = 22;
/// Numbers of jobs that the table shows until the others are unfolded.
const LISTED: std::ops::RangeInclusive<usize> = 6..=24;
/// Height of the first screen besides rows of jobs, in pixels: the attention list above, and the beginning of the
/// heat map below. Opened parts take more in a tall window.
const BESIDES_ROWS_PX: [f64; 2] = [600.0, 740.0];

/// All jobs.
#[component]
pub fn AllJobs() -> impl IntoView {
    let page = Page::from_context();
    let overview = page.fleet.overview().clone();
    let (usage, owned) = (page.href(&Route::Usage), page.clone());
    let compare = {
        let page = page.clone();
        let some_started = Memo::new({
            let page = page.clone();
            move |_| page.jobs.with(|jobs| jobs.iter().any(compared::has_started))
        });
        move || {
            let href = page.href(&Route::Compare(Vec::new()));
            some_started.get().then(|| view! { <a class="btn btn--small" href=href>"Compare jobs"</a> })
        }
    };
    let has_jobs = Memo::new(move |_| page.has_jobs());
    let usage = move || {
        let usage = usage.clone();
        (has_jobs.get() && owned.has_usage())
            .then(|| view! { <a class="btn btn--small" href=usage>"My usage"</a> })
    };
    view! {
        <div class="head head--line">
            <h1>{move || if has_jobs.get() { "All jobs" } else { "Machines" }}</h1>
            <span class="head__links">{compare} {usage}</span>
        </div>
        <ListNotices/>
        <Show when=move || overview.phase() != Phase::Pending><JobTable/></Show>
    }
}

/// The attention list, the table of jobs if there can be any, other machines, the heat map of all nodes, and the
/// cluster.
#[component]
fn JobTable() -> impl IntoView {
    let page = Page::from_context();
    let store = page.fleet.overview().clone();
    let (entries, overview) = (page.attention.entries(), store.clone());
    let silenced = page.attention.silenced();
    let has_jobs = {
        let page = page.clone();
        Memo::new(move |_| page.has_jobs())
    };
    let several_users = page.several_users;
    let some = Memo::new({
        let page = page.clone();
        move |_| has_jobs.get() && page.jobs.with(|jobs| !jobs.is_empty())
    });
    let jobs = move || {
        let source = Arc::new(Jobs { page: page.clone(), several_users: several_users.get(), array: None });
        some.get().then(|| view! { <Table source/> }.into_any())
    };
    let nodes = {
        let store = store.clone();
        Memo::new(move |_| store.nodes().get())
    };
    let any = Memo::new(move |_| {
        nodes.with(|nodes| nodes.iter().any(|node| node.gpus().with(|gpus| !gpus.is_empty())))
    });
    let heat = move || {
        let scope = NodeScope { store: store.clone(), nodes, job: None, is_whole_job: false };
        any.get().then(|| view! { <HeatMap scope glance=true/> }.into_any())
    };
    view! {
        <AttentionList entries silenced store=overview/>
        <Healthy/>
        <NotAdmitted/>
        <Users/>
        {move || jobs()}
        <NoJobs/>
        <MachineGroups/>
        {move || heat()}
        <Cluster/>
    }
}

/// The tasks of an array: how many run, wait and have ended in which way, what needs attention, and a row of each.
#[component]
pub fn ArrayTasks(
    /// The number of the array.
    id: JobId,
) -> impl IntoView {
    let page = Page::from_context();
    let tasks = Memo::new(move |_| {
        let tasks =
            |jobs: &Arc<Vec<Job>>| jobs.iter().filter(|job| is_task(job, id)).cloned().collect::<Vec<_>>();
        page.jobs.with(tasks)
    });
    let (entries, silenced) = (page.attention.entries(), page.attention.silenced());
    let store = page.fleet.overview().clone();
    let name = move || tasks.with(|tasks| tasks.first().map(job_names::first));
    let states = move || {
        let states = tasks.with(|tasks: &Vec<Job>| job_groups::states(tasks));
        states.into_iter().map(|state| view! { <span>{state}</span> }).collect_view()
    };
    let several_users = page.several_users;
    let table = move || {
        let several_users = several_users.get();
        let source = Arc::new(Jobs { page: page.clone(), several_users, array: Some(id) });
        view! { <Table source/> }.into_any()
    };
    view! {
        <div class="head">
            <div class="head__what">
                <div class="head__title"><h1>{name}</h1></div>
                <div class="meta"><span>"Array " <b class="num">{id.to_string()}</b></span> {states}</div>
            </div>
        </div>
        <AttentionList entries silenced store jobs=tasks/>
        {table}
    }
}

/// One line in place of the list of what needs attention, if nothing does.
#[component]
fn Healthy() -> impl IntoView {
    let page = Page::from_context();
    let entries = page.attention.entries();
    let health = Memo::new(move |_| {
        page.assessment.track();
        let running = page.jobs.with(|jobs| jobs.iter().filter(|job| job.is_active()).count());
        (running > 0 && entries.with(|entries| entries.is_empty())).then(|| {
            page.fleet.overview().read(|picture| job_health::without_problems(running, &picture.nodes))
        })
    });
    move || {
        health.get().map(|Health { severity, label }| {
            view! { <p class="healthy"><i class=severity.class() aria-hidden="true"></i> {label}</p> }
        })
    }
}

/// One line about the nodes of other users' jobs that do not admit the relay's user.
#[component]
fn NotAdmitted() -> impl IntoView {
    let page = Page::from_context();
    let sentence = Memo::new(move |_| {
        page.second.track();
        // The sentence addresses the relay's user.
        if !page.is_owner() {
            return None;
        }
        let viewer = page.owner();
        let read = |picture: &Picture| Refusals::new(&picture.jobs, &picture.nodes, &viewer).sentence();
        page.fleet.overview().read(read)
    });
    move || {
        sentence.get().map(|sentence| {
            view! { <p class="healthy"><i class=Severity::Ended.class() aria-hidden="true"></i> {sentence}</p> }
        })
    }
}

/// Rows of jobs.
struct Jobs {
    page: Page,
    several_users: bool,
    /// The array whose tasks they are, if they are not all jobs.
    array: Option<JobId>,
}

impl Jobs {
    fn at<R>(&self, entry: &RowEntry, read: impl FnOnce(&JobRow<'_>) -> R) -> Option<R> {
        let RowSubject::Job(id) = entry.subject else { return None };
        let job = untrack(|| self.page.job(id))?;
        let page_ms = platform::now_ms();
        let now =
            Now { relay_ms: self.page.fleet.relay_ms(page_ms), wall_s: self.page.fleet.wall_s(page_ms) };
        let entries = self.page.attention.entries().get_untracked();
        self.page.fleet.overview().read(|picture| {
            let nodes = ownership::job_nodes(&job, picture);
            let nodes = || nodes.iter().map(|at| &picture.nodes[*at]);
            // The nodes of an ended job may serve another job by now.
            let totals = if job.is_active() {
                ownership::job_totals(&job, nodes(), now.relay_ms)
            } else {
                Totals::default()
            };
            let health = job_health::for_job(&job, nodes(), &entries, now.relay_ms);
            let insight = picture.insight(id);
            Some(read(&JobRow { job: &job, totals, health: &health, insight, now }))
        })
    }
}

/// Returns how many rows leave room for the heat map on the first screen.
fn most_rows() -> usize {
    let row_px =
        f64::from(platform::media_token("--row").trim_end_matches("px").parse::<u32>().unwrap_or(26));
    let height_px = platform::height();
    let room = (height_px - BESIDES_ROWS_PX[usize::from(height_px >= TALL_PX)]) / row_px;
    (room.max(0.0) as usize).clamp(*LISTED.start(), *LISTED.end())
}

/// A job's state: what is wrong, or its state; why it waits is the tooltip.
fn state(job: Option<&Job>, health: &Health) -> AnyView {
    let Health { severity, label } = health;
    let title = job.and_then(pending_reason).unwrap_or_else(|| label.clone());
    view! { <span class=format!("said {}", severity.text_class()) title=title>{label.clone()}</span> }
        .into_any()
}

impl RowSource for Jobs {
    fn names(&self) -> TableNames {
        // One row stands for all tasks that wait.
        let (title, rows) =
            if self.array.is_some() { ("Tasks", ("row", "rows")) } else { ("Jobs", ("job", "jobs")) };
        TableNames {
            id: "jobs",
            title,
            rows,
            filter: "fj",
            sort: "sj",
            example: "util<50 left<1h state:running part_of:4711",
        }
    }

    fn columns(&self) -> Vec<Column> {
        let columns = jobs::columns(self.several_users);
        // All tasks of an array have its name.
        let of_array = |column: Column| match column.id {
            "name" => column.rank(Column::HIDDEN),
            // With a dot, and for `48440_[18-23%8]`.
            "job" => column.rank(0).style(CellStyle::Custom).width(150),
            _ => column,
        };
        if self.array.is_some() { columns.into_iter().map(of_array).collect() } else { columns }
    }

    fn entries(&self) -> Vec<RowEntry> {
        let entry = |job: &Job| RowEntry {
            key: job.id.to_string().into(),
            depth: 0,
            subject: RowSubject::Job(job.id),
        };
        let attention = self.page.attention.jobs().get();
        let position = |job: &Job| attention.iter().position(|id| *id == job.id).unwrap_or(usize::MAX);
        self.page.jobs.with(|jobs| {
            // Running jobs before ended ones, worst first; the others as SLURM lists them.
            let is_meant = |job: &&Job| self.array.is_none_or(|id| is_task(job, id));
            let mut jobs: Vec<&Job> = jobs.iter().filter(is_meant).collect();
            let task = |job: &Job| self.array.map(|_| task_number(job));
            sorting::sort_by_key(&mut jobs, |job| (jobs::has_ended(job), position(job), task(job)));
            jobs.into_iter().map(entry).collect()
        })
    }

    fn track(&self) {
        self.page.jobs.track();
        self.page.attention.jobs().track();
        self.page.second.track();
    }

    fn revision(&self, _: &RowEntry) -> u64 {
        // Many columns are durations, and the rest are totals: rows are updated with every tick.
        platform::now_ms().to_bits()
    }

    fn values(&self, entry: &RowEntry, columns: &[usize], into: &mut Vec<Value>) {
        let values =
            self.at(entry, |row| into.extend(columns.iter().map(|column| jobs::value(row, *column))));
        if values.is_none() {
            into.extend(columns.iter().map(|_| Value::NONE));
        }
    }

    fn row_flags(&self, entry: &RowEntry) -> RowFlags {
        RowFlags { partial: self.at(entry, |row| row.totals.partial()).flatten(), ..RowFlags::default() }
    }

    fn counts_in_totals(&self, entry: &RowEntry) -> bool {
        let RowSubject::Job(id) = entry.subject else { return false };
        self.page
            .jobs
            .with_untracked(|jobs| jobs.iter().any(|job| job.id == id && jobs::counts_in_totals(job)))
    }

    fn sums(&self, entries: &[RowEntry], columns: &[&'static str]) -> Vec<Option<Value>> {
        let id = |entry: &RowEntry| match entry.subject {
            RowSubject::Job(id) => Some(id),
            _ => None,
        };
        let shown: HashSet<JobId> = entries.iter().filter_map(id).collect();
        let now_ms = self.page.fleet.relay_ms(platform::now_ms());
        let overview = self.page.fleet.overview();
        let totals = overview.read(|picture| ownership::combined_totals(picture, &shown, now_ms));
        columns.iter().map(|column| jobs::sum(&totals, column)).collect()
    }

    fn folding(&self, rows: &[RowEntry]) -> Option<Folding> {
        if self.array.is_some() {
            return None;
        }
        let ended: HashSet<JobId> = self
            .page
            .jobs
            .with(|jobs| jobs.iter().filter(|job| jobs::has_ended(job)).map(|job| job.id).collect());
        let has_ended = |row: &RowEntry| matches!(row.subject, RowSubject::Job(id) if ended.contains(&id));
        let is_ended: Vec<bool> = rows.iter().map(has_ended).collect();
        let (shown, rest) = jobs::folded(&is_ended, most_rows())?;
        Some(Folding { shown: shown.into_iter().map(|at| rows[at].clone()).collect(), rest })
    }

    fn second_line(&self, entry: &RowEntry, is_shown: &dyn Fn(&str) -> bool) -> Option<String> {
        let state = self.at(entry, |row| row.health.label.clone())?;
        let is_cut = !is_shown("state") || state.len() > FULL_STATE || platform::width() < STATE_IN_VIEW_PX;
        Some(state).filter(|state| is_cut && state != "running")
    }

    fn custom_cell(&self, entry: &RowEntry, column: &'static str) -> CustomCell {
        let RowSubject::Job(id) = entry.subject else { return CustomCell::self_updating(()) };
        let (page, scope) = (self.page.clone(), overview_scope(&self.page, id));
        if column == "cells" {
            return CustomCell::self_updating(view! { <Cells scope/> });
        }
        let job = Memo::new({
            let page = page.clone();
            move |_| page.job(id)
        });
        if column == "state" {
            let health = health_of(&page, &scope, job);
            return CustomCell::self_updating(move || job.with(|job| state(job.as_ref(), &health.get())));
        }
        let health = health_of(&page, &scope, job);
        let dot = view! { <Dot health/> }.into_any();
        let label =
            move || job.with(|job| job.as_ref().map_or_else(|| id.to_string(), |job| job.label.to_string()));
        CustomCell::self_updating(grid::link(page.href(&Route::Job(id, JobTab::Nodes)), dot, {
            let page = page.clone();
            move || if column == "job" { label() } else { page.job_name(id) }
        }))
    }

    fn open(&self, entry: &RowEntry) {
        if let RowSubject::Job(id) = entry.subject {
            self.page.address.navigate(Route::Job(id, JobTab::Nodes));
        }
    }
}
