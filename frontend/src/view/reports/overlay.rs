//! Several jobs or parts of them in one graph, aligned at their start or at a note that each has,
//! and what of each is compared.

use super::course::{Course, FIELDS, Figure};
use crate::chart::{Frame, Range, line};
use crate::describe::bytes;
use crate::describe::report::{common_notes, difference, note_at_s, precise};
use crate::domain::compared::{Compared, Part};
use crate::domain::route::{JobTab, Route};
use crate::domain::text::{self, ABSENT};
use crate::platform;
use crate::state::page::Page;
use leptos::prelude::*;
use nodeglass_protocol::report::{MAX_JOBS, Report};
use nodeglass_protocol::{Field as _, GpuField, JobId, Text};
use std::sync::Arc;

/// Shortest time that is shown, in ms.
const SHORTEST_MS: u64 = 60_000;
/// The box of the graph.
const FRAME: Frame = Frame { width: 1_000.0, height: 200.0, pad: 2.0 };
/// Maximum number of other jobs that are offered.
const OFFERED: usize = 40;

/// The mean of a field over the GPUs of each job, by the time since its start.
#[component]
pub fn Overlay(
    /// What is compared.
    compared: Memo<Vec<Compared>>,
    /// The reports of its jobs; they change while one of them runs.
    reports: Memo<Arc<Vec<Report>>>,
) -> impl IntoView {
    let page = Page::from_context();
    let field = RwSignal::new(0_usize);
    let courses = RwSignal::new(Vec::<Course>::new());
    let times = Memo::new(move |_| {
        reports
            .with(|reports| compared.with(|all| all.iter().map(|one| time(one, reports)).collect::<Vec<_>>()))
    });
    let chosen = RwSignal::new(String::new());
    let common = Memo::new(move |_| reports.with(|reports| common_notes(reports)));
    // A note that was deleted or edited aligns nothing.
    let note = Memo::new(move |_| {
        common.with(|common| common.iter().find(|text| text.as_str() == chosen.get()).cloned())
    });
    let aligned = Memo::new(move |_| {
        let since_note = |(one, time): (&Compared, Option<Part>)| {
            let Some(note) = note.get() else { return time };
            let at_s = reports.with(|reports| {
                reports
                    .iter()
                    .find(|report| report.job == one.job)
                    .and_then(|report| note_at_s(report, &note))
            });
            time?.since(at_s?)
        };
        compared.with(|all| all.iter().zip(times.get()).map(since_note).collect::<Vec<_>>())
    });
    let span_ms = Memo::new(move |_| {
        let longest_s = aligned.with(|times| times.iter().flatten().map(|time| time.length_s()).max());
        longest_s.unwrap_or(0).saturating_mul(1_000).clamp(SHORTEST_MS, Range::LONGEST_MS)
    });
    let loader = page.clone();
    Effect::new(move || {
        let (page, reports, span_ms) = (loader.clone(), reports.get(), span_ms.get());
        let wanted: Vec<_> = compared.get().into_iter().zip(aligned.get()).collect();
        if !page.feed.is_live() {
            return;
        }
        leptos::task::spawn_local(async move {
            let mut loaded = Vec::new();
            for (one, time) in wanted {
                let report = reports.iter().find(|report| report.job == one.job);
                loaded.push(match report.zip(time) {
                    Some((report, time)) => Course::load(&page, report, time, span_ms).await,
                    None => Course::default(),
                });
            }
            // The view may be gone by then.
            courses.try_set(loaded);
        });
    });
    let full = Memo::new(move |_| {
        let highest = |courses: &Vec<Course>| {
            let values = courses.iter().flat_map(|course| &course.lines[field.get()]).flatten();
            values.copied().fold(0.0, f32::max)
        };
        if field.get() == 0 { 100.0 } else { courses.with(highest).max(1.0) * 1.1 }
    });
    let paths = move || {
        let (full, field) = (full.get(), field.get());
        let scaled = |points: &[Option<f32>]| {
            points.iter().map(|point| point.map(|value| value / full)).collect::<Vec<_>>()
        };
        courses.with(|courses| {
            let paths = courses.iter().enumerate().map(|(at, course)| {
                let d = line(&scaled(&course.lines[field]), FRAME);
                view! { <path class=format!("curve curve--{at}") d=d/> }
            });
            paths.collect_view()
        })
    };
    let choice = move |at: usize| {
        view! {
            <button class="btn btn--small" aria-pressed=move || (field.get() == at).to_string() on:click=move |_| field.set(at)>
                {FIELDS[at].1}
            </button>
        }
        .into_any()
    };
    let choices: [AnyView; FIELDS.len()] = std::array::from_fn(choice);
    let align = move || {
        let options = common.get();
        (!options.is_empty()).then(|| {
            let option = |text: Text| view! { <option value=text.to_string()>{text.to_string()}</option> };
            view! {
                <label class="curves__align">
                    "Align at"
                    <select class="btn" on:change=move |event| chosen.set(event_target_value(&event))>
                        <option value="">"the start"</option>
                        {options.into_iter().map(option).collect_view()}
                    </select>
                </label>
            }
            .into_any()
        })
    };
    let origin = move || note.get().map_or_else(|| "start".to_owned(), |text| text.to_string());
    view! {
        <section class="card" aria-label="Courses since the start">
            <div class="overlay-head">
                <h2>"Mean of its GPUs"</h2>
                {align}
                <div role="group" aria-label="Metric" class="usage__days">{choices}</div>
            </div>
            <div class="curves">
                <span class="curves__top num">{move || value(field.get(), full.get())}</span>
                <svg viewBox=format!("0 0 {} {}", FRAME.width, FRAME.height) preserveAspectRatio="none" role="img" aria-label="The lines of the jobs; their figures are in the table below">{paths}</svg>
            </div>
            <p class="curves__time num"><span>{origin}</span> <span>{move || format!("+{}", text::span(span_ms.get() / 1_000))}</span></p>
            <Parts compared reports times courses/>
        </section>
    }
}

/// What of each job is compared, with its figures; the owner of the address can change it.
#[component]
fn Parts(
    compared: Memo<Vec<Compared>>,
    reports: Memo<Arc<Vec<Report>>>,
    times: Memo<Vec<Option<Part>>>,
    courses: RwSignal<Vec<Course>>,
) -> impl IntoView {
    let page = Page::from_context();
    let change = {
        let page = page.clone();
        move |edit: &dyn Fn(&mut Vec<Compared>)| {
            let mut all = compared.get_untracked();
            edit(&mut all);
            page.address.replace_route(Route::Compare(all));
        }
    };
    let row = {
        let (page, change) = (page.clone(), change.clone());
        move |at: usize| {
            let label = {
                let page = page.clone();
                move || {
                    let job = compared.with(|all| all.get(at).map(|one| one.job));
                    job.map(|job| reports.with(|reports| job_link(&page, job, reports)))
                }
            };
            let set = {
                let change = change.clone();
                move |part: Option<Part>| {
                    change(&|all| {
                        if let Some(one) = all.get_mut(at) {
                            one.part = part;
                        }
                    });
                }
            };
            let remove = {
                let change = change.clone();
                move |_| {
                    change(&|all| {
                        if all.len() > 1 {
                            _ = all.remove(at)
                        }
                    })
                }
            };
            let is_part =
                Memo::new(move |_| compared.with(|all| all.get(at).is_some_and(|one| one.part.is_some())));
            let time = Memo::new(move |_| times.with(|times| times.get(at).copied().flatten()));
            let whole = {
                let set = set.clone();
                move || {
                    let set = set.clone();
                    is_part.get().then(|| {
                        view! { <button class="btn btn--small" on:click=move |_| set(None)>"Whole run"</button> }.into_any()
                    })
                }
            };
            let length =
                move || time.get().map_or_else(|| ABSENT.to_owned(), |time| text::span(time.length_s()));
            let cells: [AnyView; FIELDS.len()] = std::array::from_fn(|field| figure_cell(courses, at, field));
            let is_only = Memo::new(move |_| compared.with(|all| all.len() < 2));
            view! {
                <tr>
                    <th scope="row">
                        <span class="parts__job">
                            <svg class="curve__key" viewBox="0 0 24 4" aria-hidden="true"><path class=format!("curve curve--{at}") d="M0 2h24"/></svg>
                            <span>{label}</span>
                        </span>
                    </th>
                    <td class="parts__time">{time_inputs(time, set)}</td>
                    <td class="num">{length}</td>
                    {cells}
                    <td class="parts__do">{whole} <button class="btn btn--small" hidden=move || is_only.get() title="Remove from the comparison" aria-label="Remove from the comparison" on:click=remove>"×"</button></td>
                </tr>
            }
            .into_any()
        }
    };
    // A row keeps its inputs while its job and the others change.
    let rows = move || (0..compared.with(Vec::len)).collect::<Vec<_>>();
    let heads = FIELDS.map(|(_, title)| view! { <th scope="col" class="num">{title}</th> });
    view! {
        <div class="report__table parts" role="region" aria-label="What is compared" tabindex="0">
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
        <Add compared reports/>
    }
}

/// Inputs for the start and the end of a part; an invalid time is shown as such until it is corrected.
fn time_inputs(time: Memo<Option<Part>>, set: impl Fn(Option<Part>) + Clone + 'static) -> AnyView {
    let input = |is_end: bool, label: &'static str| {
        let set = set.clone();
        let value = move || {
            let time = time.get()?;
            Some(platform::local_datetime(if is_end { time.to_s } else { time.from_s }))
        };
        let changed = move |event: leptos::ev::Event| {
            let (at_s, Some(time)) =
                (platform::parse_local_datetime(&event_target_value(&event)), time.get_untracked())
            else {
                return;
            };
            let part = at_s.and_then(|at_s| match is_end {
                true => Part::new(time.from_s, at_s),
                false => Part::new(at_s, time.to_s),
            });
            let input: web_sys::HtmlInputElement = event_target(&event);
            input.set_custom_validity(if part.is_some() { "" } else { "The start must be before the end." });
            let _ = input.report_validity();
            if part.is_some() {
                set(part);
            }
        };
        view! { <input type="datetime-local" step="1" aria-label=label prop:value=move || value().unwrap_or_default() on:change=changed/> }
    };
    view! { {input(false, "From")} {input(true, "To")} }.into_any()
}

/// Adds a job, or another time of one that is compared.
#[component]
fn Add(compared: Memo<Vec<Compared>>, reports: Memo<Arc<Vec<Report>>>) -> impl IntoView {
    let page = Page::from_context();
    let offers = {
        let page = page.clone();
        Memo::new(move |_| {
            let all = compared.get();
            let mut offers = Vec::new();
            for one in &all {
                let label = reports.with(|reports| label_of(one.job, reports));
                let offer = (one.job, format!("Another time of {label}"));
                if !offers.contains(&offer) {
                    offers.push(offer);
                }
            }
            let is_new = |job: JobId| all.iter().all(|one| one.job != job);
            page.jobs.with(|jobs| {
                let others = jobs.iter().filter(|job| job.start.is_some() && is_new(job.id)).take(OFFERED);
                offers.extend(others.map(|job| (job.id, format!("{} {}", job.label, job.name))));
            });
            offers
        })
    };
    let is_full = Memo::new(move |_| compared.with(|all| all.len() >= MAX_JOBS));
    let add = move |event: leptos::ev::Event| {
        let select: web_sys::HtmlSelectElement = event_target(&event);
        let job = select.value().parse::<JobId>().ok();
        select.set_selected_index(0);
        let Some(job) = job else { return };
        let mut all = compared.get_untracked();
        let newest = all.iter().rev().find(|one| one.job == job);
        let added = match newest {
            Some(newest) => reports.with_untracked(|reports| newest.another_time(run(job, reports))),
            None => Some(Compared::whole(job)),
        };
        if let Some(added) = added {
            all.push(added);
            page.address.replace_route(Route::Compare(all));
        }
    };
    let option = |(job, label): (JobId, String)| view! { <option value=job.to_string()>{label}</option> };
    view! {
        <p class="parts__add">
            <select class="btn" aria-label="Add a job or another time" disabled=move || is_full.get() on:change=add>
                <option value="">{move || if is_full.get() { "At most eight are compared" } else { "Add a job or another time …" }}</option>
                <For each=move || offers.get() key=Clone::clone children=option/>
            </select>
        </p>
    }
}

/// A field of a row: the mean, and its difference from that of the first row.
fn figure_cell(courses: RwSignal<Vec<Course>>, at: usize, field: usize) -> AnyView {
    let figure = move |at: usize| -> Option<Figure> {
        courses.with(|courses| courses.get(at).and_then(|course| course.figures[field]))
    };
    let shown = move || figure(at).map_or_else(|| ABSENT.to_owned(), |figure| value(field, figure.mean));
    let number = move |at| figure(at).map(|figure| f64::from(figure.mean));
    let than_first = move || if at == 0 { String::new() } else { difference(number(at), number(0)) };
    let range = move || {
        figure(at).map(|figure| format!("{} to {}", value(field, figure.low), value(field, figure.high)))
    };
    view! {
        <td class="num">
            <small>{than_first}</small> " " {shown}
            <small class="parts__range">{range}</small>
        </td>
    }
    .into_any()
}

/// Formats a value of a field.
fn value(field: usize, value: f32) -> String {
    let field = FIELDS[field].0;
    match field {
        GpuField::MemUsed => bytes(f64::from(value) as u64),
        _ => format!("{} {}", precise(f64::from(value)), field.metric().unit.symbol()),
    }
}

fn job_link(page: &Page, job: JobId, reports: &[Report]) -> AnyView {
    let name = reports.iter().find(|report| report.job == job).map(|report| report.name.to_string());
    let href = page.href(&Route::Job(job, JobTab::Report));
    view! { <a class="link" href=href>{label_of(job, reports)}</a> <small>{name}</small> }.into_any()
}

fn label_of(job: JobId, reports: &[Report]) -> String {
    let report = reports.iter().find(|report| report.job == job);
    report.map_or_else(|| job.to_string(), |report| report.label.to_string())
}

/// The time that is compared of a job.
fn time(one: &Compared, reports: &[Report]) -> Option<Part> {
    one.time(run(one.job, reports))
}

/// When a job ran, by its report.
fn run(job: JobId, reports: &[Report]) -> Option<Part> {
    let report = reports.iter().find(|report| report.job == job)?;
    let from_s = report.start_s?;
    Part::new(from_s, from_s.checked_add(i64::try_from(report.elapsed_s).ok()?)?)
}
