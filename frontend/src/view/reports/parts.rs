//! The table of what is compared: jobs, the times of each, and their figures, which can be changed, added and removed.

use super::curves::{Curves, FIELDS, FieldSummary, format_value};
use crate::describe::report::{self, difference};
use crate::domain::compared::{Compared, Edge, Part, TimeError, has_started};
use crate::domain::route::{JobTab, Route};
use crate::domain::text::{self, ABSENT};
use crate::platform;
use crate::state::address::Address;
use crate::state::page::Page;
use leptos::prelude::*;
use nodeglass_protocol::JobId;
use nodeglass_protocol::job::Job;
use nodeglass_protocol::report::{MAX_JOBS, Report};
use std::sync::Arc;

/// Maximum number of other jobs that are offered.
const OFFERED: usize = 40;
/// Maximum length of a job's name among them, in characters.
const MAX_NAME: usize = 40;

/// The compared part of each job, with its figures.
#[component]
pub fn Parts(
    /// The compared jobs and times.
    compared: Memo<Vec<Compared>>,
    /// The reports of its jobs.
    reports: Memo<Arc<Vec<Report>>>,
    /// The time of each.
    times: Memo<Vec<Option<Part>>>,
    /// The part from the note on at which they are aligned.
    aligned: Memo<Vec<Option<Part>>>,
    /// The readings of each.
    curves: Memo<Vec<Curves>>,
) -> impl IntoView {
    // A row keeps its inputs while its job and the others change.
    let rows = move || (0..compared.with(Vec::len)).collect::<Vec<_>>();
    let row = move |at: usize| view! { <PartRow at compared reports times aligned curves/> };
    let heads = FIELDS.map(|(_, title)| {
        view! { <th scope="col" class="num" title="Mean over time and GPUs; below it, the lowest and the highest of any GPU">{title}</th> }
    });
    view! {
        <div class="report__table parts" role="region" aria-label="Compared jobs and times" tabindex="0">
            <table class="plain">
                <thead><tr>
                    <th scope="col">"Job"</th>
                    <th scope="col">"From, to"</th>
                    <th scope="col" class="num">"Length"</th>
                    {heads}
                    <td></td>
                </tr></thead>
                <tbody><For each=rows key=|at| *at children=row/></tbody>
            </table>
        </div>
    }
}

/// A job or a part of its run.
#[component]
fn PartRow(
    at: usize,
    compared: Memo<Vec<Compared>>,
    reports: Memo<Arc<Vec<Report>>>,
    times: Memo<Vec<Option<Part>>>,
    aligned: Memo<Vec<Option<Part>>>,
    curves: Memo<Vec<Curves>>,
) -> impl IntoView {
    let page = Page::from_context();
    let time = Memo::new(move |_| times.with(|times| times.get(at).copied().flatten()));
    let shown = Memo::new(move |_| aligned.with(|times| times.get(at).copied().flatten()));
    let job = Memo::new(move |_| compared.with(|all| all.get(at).map(|one| one.job)));
    let ran = Memo::new(move |_| reports.with(|reports| run(job.get()?, reports)));
    let is_part = Memo::new(move |_| compared.with(|all| all.get(at).is_some_and(|one| one.part.is_some())));
    let is_only = Memo::new(move |_| compared.with(|all| all.len() < 2));
    let edit = Edit { address: page.address.clone(), compared, at };
    let (whole_run, removed) = (edit.clone(), edit.clone());
    let label = move || job.get().map(|job| reports.with(|reports| job_link(&page, job, reports)));
    let length =
        move || shown.get().map_or_else(|| ABSENT.to_owned(), |time| text::duration(time.length_s()));
    let remark = move || {
        let has_report = reports.with(|reports| reports.iter().any(|report| Some(report.job) == job.get()));
        remark(has_report, time.get(), shown.get())
    };
    let whole = move || {
        let edit = whole_run.clone();
        let button = || view! { <button class="link parts__whole" on:click=move |_| edit.set_part(None)>"whole run"</button> };
        is_part.get().then(|| button().into_any())
    };
    let cells: [AnyView; FIELDS.len()] = std::array::from_fn(|field| figure_cell(curves, at, field));
    view! {
        <tr>
            <th scope="row">
                <span class="parts__job">
                    <svg class="curve__key" viewBox="0 0 24 4" aria-hidden="true"><path class=format!("curve curve--{at}") d="M0 2h24"/></svg>
                    <span>{label}</span>
                </span>
            </th>
            <td class="parts__time" data-title="From, to">{time_inputs(time, ran, edit)}</td>
            <td class="num" data-title="Length">{length} <small class="parts__range">{remark}</small> {whole}</td>
            {cells}
            <td class="parts__do"><button class="btn btn--small" hidden=is_only title="Remove from the comparison" aria-label="Remove from the comparison" on:click=move |_| removed.remove()>"×"</button></td>
        </tr>
    }
}

/// Explains why the shown time differs from the chosen one, or is missing.
fn remark(has_report: bool, time: Option<Part>, shown: Option<Part>) -> Option<&'static str> {
    match (has_report, time, shown) {
        (false, ..) => Some("no report"),
        (_, None, _) => Some("not within the run"),
        (_, _, None) => Some("without the note"),
        (_, time, shown) if time != shown => Some("from the note on"),
        _ => None,
    }
}

/// Changes a row of what is compared, in the address.
#[derive(Clone)]
struct Edit {
    address: Address,
    compared: Memo<Vec<Compared>>,
    /// The row.
    at: usize,
}

impl Edit {
    /// Compares this part of the job; `None` for its whole run.
    fn set_part(&self, part: Option<Part>) {
        let mut all = self.compared.get_untracked();
        if let Some(one) = all.get_mut(self.at) {
            one.part = part;
        }
        self.address.replace_route(Route::Compare(all));
    }

    /// Removes the row, unless it is the only one.
    fn remove(&self) {
        let mut all = self.compared.get_untracked();
        if all.len() > 1 && self.at < all.len() {
            all.remove(self.at);
        }
        self.address.replace_route(Route::Compare(all));
    }
}

/// Inputs for the start and the end of a part. They apply with Enter and when they are left, so that nothing changes
/// while a time is being typed. An invalid time stays, with what is wrong; Escape brings the valid one back.
fn time_inputs(time: Memo<Option<Part>>, ran: Memo<Option<Part>>, edit: Edit) -> AnyView {
    let wrong = RwSignal::new(None::<(Edge, String)>);
    platform::effect(move || {
        time.track();
        wrong.set(None);
    });
    let input = |edge, label| TimeInput { edge, time, ran, wrong, edit: edit.clone() }.view(label);
    let problem = move || wrong.get().map(|(_, text)| text);
    view! {
        {input(Edge::From, "From")} {input(Edge::To, "To")}
        <small class="parts__wrong" role="alert">{problem}</small>
    }
    .into_any()
}

/// The input for one end of a part.
#[derive(Clone)]
struct TimeInput {
    edge: Edge,
    /// The part.
    time: Memo<Option<Part>>,
    /// When the job ran.
    ran: Memo<Option<Part>>,
    /// The invalid end, and the reason.
    wrong: RwSignal<Option<(Edge, String)>>,
    edit: Edit,
}

impl TimeInput {
    fn view(self, label: &'static str) -> AnyView {
        let Self { edge, time, wrong, .. } = self;
        let is_edited = RwSignal::new(false);
        let value =
            move || time.get().map(|time| platform::local_datetime(time.edge(edge))).unwrap_or_default();
        // The end of a running job moves on, but not under the hands of its user.
        let shown = Memo::new(move |before: Option<&String>| match before {
            Some(before) if is_edited.get() => before.clone(),
            _ => value(),
        });
        let (left, entered) = (self.clone(), self);
        let on_key = move |event: web_sys::KeyboardEvent| {
            let input: web_sys::HtmlInputElement = event_target(&event);
            match event.key().as_str() {
                "Enter" => entered.apply(&input.value()),
                "Escape" => {
                    // Escape would leave the page.
                    event.stop_propagation();
                    input.set_value(&untrack(value));
                    wrong.set(None);
                }
                _ => {}
            }
        };
        let is_wrong = move || wrong.with(|wrong| wrong.as_ref().is_some_and(|(of, _)| *of == edge));
        view! {
            <input
                type="text"
                spellcheck="false"
                autocomplete="off"
                aria-label=label
                aria-invalid=move || is_wrong().to_string()
                disabled=move || time.get().is_none()
                prop:value=shown
                on:focus=move |_| is_edited.set(true)
                on:blur=move |event| {
                    left.apply(&event_target_value(&event));
                    is_edited.set(false);
                }
                on:keydown=on_key
            />
        }
        .into_any()
    }

    /// Applies what was typed, or shows what is wrong with it.
    fn apply(&self, typed: &str) {
        let Some((time, ran)) = self.time.get_untracked().zip(self.ran.get_untracked()) else { return };
        let at_s = platform::parse_local_datetime(typed);
        if at_s == Some(time.edge(self.edge)) {
            return self.wrong.set(None);
        }
        match time.with_edge(self.edge, at_s, ran) {
            Ok(part) => {
                self.wrong.set(None);
                self.edit.set_part(Some(part));
            }
            Err(error) => self.wrong.set(Some((self.edge, error_text(error, ran)))),
        }
    }
}

/// Describes the problem of an entered time of a job that ran at `ran`, and a valid entry.
fn error_text(error: TimeError, ran: Part) -> String {
    match error {
        TimeError::NoTime => "Enter a time such as 2026-11-25 09:14:03, or press Esc.".to_owned(),
        TimeError::Reversed => "The start must be before the end.".to_owned(),
        TimeError::OutsideRun => {
            let [from, to] = [ran.from_s, ran.to_s].map(platform::local_datetime);
            format!("The job ran from {from} to {to}.")
        }
    }
}

/// Adds a job, or another time of a compared one.
#[component]
pub fn Add(
    /// The compared jobs and times.
    compared: Memo<Vec<Compared>>,
    /// The reports of its jobs.
    reports: Memo<Arc<Vec<Report>>>,
) -> impl IntoView {
    let page = Page::from_context();
    let jobs = page.jobs;
    let offers =
        Memo::new(move |_| reports.with(|reports| jobs.with(|jobs| offers(&compared.get(), reports, jobs))));
    let is_full = Memo::new(move |_| compared.with(|all| all.len() >= MAX_JOBS));
    let add = move |event: leptos::ev::Event| {
        let select: web_sys::HtmlSelectElement = event_target(&event);
        let job = select.value().parse::<JobId>().ok();
        select.set_selected_index(0);
        let with_job =
            |job| reports.with_untracked(|reports| with_job(compared.get_untracked(), reports, job));
        if let Some(all) = job.and_then(with_job) {
            page.address.replace_route(Route::Compare(all));
        }
    };
    let prompt = move || match reports.with(|reports| reports.is_empty()) {
        _ if is_full.get() => "At most eight are compared",
        true => "Choose a job …",
        false => "Add a job or another time …",
    };
    let option = |(job, label): (JobId, String)| view! { <option value=job.to_string()>{label}</option> };
    view! {
        <p class="parts__add">
            <select class="btn" aria-label="Add a job or another time" disabled=is_full on:change=add>
                <option value="">{prompt}</option>
                <For each=move || offers.get() key=Clone::clone children=option/>
            </select>
        </p>
    }
}

/// Returns what can be added: another time of each job that is compared, then other jobs, with their labels.
fn offers(compared: &[Compared], reports: &[Report], jobs: &[Job]) -> Vec<(JobId, String)> {
    let mut offers = Vec::new();
    for one in compared.iter().filter(|one| run(one.job, reports).is_some()) {
        let offer = (one.job, format!("Another time of {}", label_of(one.job, reports)));
        if !offers.contains(&offer) {
            offers.push(offer);
        }
    }
    let is_new = |job: JobId| compared.iter().all(|one| one.job != job);
    let others = jobs.iter().filter(|job| has_started(job) && is_new(job.id)).take(OFFERED);
    let short = |name: &str| name.chars().take(MAX_NAME).collect::<String>();
    offers.extend(others.map(|job| (job.id, format!("{} {}", job.label, short(job.name.as_str())))));
    offers
}

/// Returns what is compared once a job is added: another time of it, if it is compared already and has one.
fn with_job(mut compared: Vec<Compared>, reports: &[Report], job: JobId) -> Option<Vec<Compared>> {
    if reports.is_empty() {
        compared.clear();
    }
    let newest = compared.iter().rev().find(|one| one.job == job);
    let observed = || report::observed(reports.iter().find(|report| report.job == job)?);
    let added = newest.map_or(Some(Compared::whole(job)), |newest| newest.another_time(observed()));
    compared.push(added?);
    Some(compared)
}

/// A field of a row: the mean, and its difference from the first row's.
fn figure_cell(curves: Memo<Vec<Curves>>, at: usize, field: usize) -> AnyView {
    let figure = move |at: usize| -> Option<FieldSummary> {
        curves.with(|curves| curves.get(at).and_then(|curves| curves.summaries[field]))
    };
    let shown =
        move || figure(at).map_or_else(|| ABSENT.to_owned(), |figure| format_value(field, figure.mean));
    let number = move |at| figure(at).map(|figure| f64::from(figure.mean));
    let than_first = move || if at == 0 { String::new() } else { difference(number(at), number(0)) };
    let range = move || {
        let (low, high) = figure(at)?.extremes?;
        Some(format!("{} to {}", format_value(field, low), format_value(field, high)))
    };
    view! {
        <td class="num" data-title=FIELDS[field].1>
            <small>{than_first}</small> " " {shown}
            <small class="parts__range">{range}</small>
        </td>
    }
    .into_any()
}

fn job_link(page: &Page, job: JobId, reports: &[Report]) -> AnyView {
    let name = reports.iter().find(|report| report.job == job).map(|report| report.name.to_string());
    let href = page.href(&Route::Job(job, JobTab::Report));
    view! { <a class="link" href=href>{label_of(job, reports)}</a> <small>{name}</small> }.into_any()
}

/// The label of a job, or its number without a report.
pub(super) fn label_of(job: JobId, reports: &[Report]) -> String {
    let report = reports.iter().find(|report| report.job == job);
    report.map_or_else(|| job.to_string(), |report| report.label.to_string())
}

/// When a job ran, by its report.
pub(super) fn run(job: JobId, reports: &[Report]) -> Option<Part> {
    report::run(reports.iter().find(|report| report.job == job)?)
}
