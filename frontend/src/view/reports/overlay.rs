//! Readings of several jobs over time in one graph, aligned at their starts or at a note that each has.

use crate::chart::{Extreme, Frame, Range, Window, line};
use crate::describe::bytes;
use crate::describe::report::{common_notes, course_begins_ms, course_ms, precise};
use crate::domain::text;
use crate::state::page::Page;
use leptos::prelude::*;
use nodeglass_protocol::live::Topic;
use nodeglass_protocol::range::RangeQuery;
use nodeglass_protocol::report::Report;
use nodeglass_protocol::{Field as _, GpuField, Text};
use std::sync::Arc;

/// The fields that can be compared; the first one is shown first.
const FIELDS: [(GpuField, &str); 4] = [
    (GpuField::Util, "Utilisation"),
    (GpuField::Power, "Power"),
    (GpuField::SmClock, "SM clock"),
    (GpuField::MemUsed, "Memory"),
];
/// Maximum number of steps of a line.
const STEPS: usize = 300;
/// Shortest time that is shown, in ms.
const SHORTEST_MS: u64 = 60_000;
/// The box of the graph.
const FRAME: Frame = Frame { width: 1_000.0, height: 200.0, pad: 2.0 };

/// The mean of a field over the GPUs of each job, by the time since its start.
#[component]
pub fn Overlay(
    /// The jobs; they change while one of them runs.
    reports: Memo<Arc<Vec<Report>>>,
) -> impl IntoView {
    let page = Page::from_context();
    let field = RwSignal::new(FIELDS[0].0);
    let lines = RwSignal::new(Vec::<Vec<Option<f32>>>::new());
    let chosen = RwSignal::new(String::new());
    let common = Memo::new(move |_| reports.with(|reports| common_notes(reports)));
    // A note that was deleted or edited aligns nothing.
    let note = Memo::new(move |_| {
        common.with(|common| common.iter().find(|text| text.as_str() == chosen.get()).cloned())
    });
    let span_ms = Memo::new(move |_| {
        let note = note.get();
        let course_ms = |report: &Report| course_ms(report, note.as_ref());
        let longest_ms = reports.with(|reports| reports.iter().map(course_ms).max());
        longest_ms.unwrap_or(0).clamp(SHORTEST_MS, Range::LONGEST_MS)
    });
    Effect::new(move || {
        let (page, reports, field, span_ms) = (page.clone(), reports.get(), field.get(), span_ms.get());
        let note = note.get();
        if !page.feed.is_live() {
            return;
        }
        leptos::task::spawn_local(async move {
            let mut loaded = Vec::new();
            for report in reports.iter() {
                loaded.push(curve(&page, (report, note.as_ref()), field, span_ms).await);
            }
            // The view may be gone by then.
            lines.try_set(loaded);
        });
    });
    let full = Memo::new(move |_| {
        let highest = lines.with(|lines| lines.iter().flatten().flatten().copied().fold(0.0, f32::max));
        if field.get() == GpuField::Util { 100.0 } else { highest.max(1.0) * 1.1 }
    });
    let paths = move || {
        let full = full.get();
        let scaled = |points: &Vec<Option<f32>>| {
            points.iter().map(|point| point.map(|value| value / full)).collect::<Vec<_>>()
        };
        lines.with(|lines| {
            let paths = lines.iter().enumerate().map(|(at, points)| {
                view! { <path class=format!("curve curve--{at}") d=line(&scaled(points), FRAME)/> }
            });
            paths.collect_view()
        })
    };
    let choice = move |(offered, name): (GpuField, &'static str)| {
        view! {
            <button class="btn btn--small" aria-pressed=move || (field.get() == offered).to_string() on:click=move |_| field.set(offered)>
                {name}
            </button>
        }
        .into_any()
    };
    let top = move || {
        let (field, full) = (field.get(), f64::from(full.get()));
        match field {
            GpuField::MemUsed => bytes(full as u64),
            _ => format!("{} {}", precise(full), field.metric().unit.symbol()),
        }
    };
    let align = move || {
        let options = common.get();
        (!options.is_empty()).then(|| {
            let option = |text: Text| view! { <option value=text.to_string()>{text.to_string()}</option> };
            view! {
                <label class="curves__align">
                    "Align at"
                    <select class="field" on:change=move |event| chosen.set(event_target_value(&event))>
                        <option value="">"the start"</option>
                        {options.into_iter().map(option).collect_view()}
                    </select>
                </label>
            }
            .into_any()
        })
    };
    let origin = move || note.get().map_or_else(|| "start".to_owned(), |text| text.to_string());
    let labels = move || {
        let label = |report: &Report| format!("{} {}", report.label, report.name);
        reports.with(|reports| reports.iter().map(label).enumerate().collect::<Vec<_>>())
    };
    let entry = move |(at, label): (usize, String)| {
        let is_empty = move || {
            lines.with(|lines| lines.get(at).is_some_and(|points| points.iter().all(Option::is_none)))
        };
        view! {
            <li>
                <svg class="curve__key" viewBox="0 0 24 4" aria-hidden="true"><path class=format!("curve curve--{at}") d="M0 2h24"/></svg>
                {label} {move || is_empty().then_some(" (its history is no longer kept)")}
            </li>
        }
        .into_any()
    };
    view! {
        <section class="card" aria-label="Curves since the start">
            <div class="overlay-head">
                <h2>"Mean of its GPUs"</h2>
                {align}
                <div role="group" aria-label="Metric" class="usage__days">{FIELDS.map(choice)}</div>
            </div>
            <div class="curves">
                <span class="curves__top num">{move || top()}</span>
                <svg viewBox=format!("0 0 {} {}", FRAME.width, FRAME.height) preserveAspectRatio="none" role="img" aria-label="The lines of the jobs; their figures are in the table">{paths}</svg>
            </div>
            <p class="curves__time num"><span>{origin}</span> <span>{move || format!("+{}", text::span(span_ms.get() / 1_000))}</span></p>
            <ul class="curves__legend"><For each=labels key=Clone::clone children=entry/></ul>
        </section>
    }
}

/// The mean of a field over a job's GPUs in each step since its start, or a note.
async fn curve(
    page: &Page,
    (report, note): (&Report, Option<&Text>),
    field: GpuField,
    span_ms: u64,
) -> Vec<Option<f32>> {
    let Some(begins_ms) = course_begins_ms(report, note) else { return Vec::new() };
    let from_ms = u64::try_from(begins_ms - page.fleet.wall_ahead_ms()).unwrap_or(0);
    let to_ms = from_ms.saturating_add(span_ms);
    let window = Window::over(to_ms, span_ms, STEPS).of_long_history(to_ms);
    let query = RangeQuery {
        topic: Topic::Job(report.job),
        from_ms: window.start_ms(),
        to_ms: window.end_ms(),
        step_ms: window.step_ms(),
        gpu_fields: vec![field.name().into()],
        host_fields: Vec::new(),
    };
    let Some(range) = page.feed.range(query).await else { return Vec::new() };
    let slot_ms = range.step_ms.max(1);
    let measure = |steps: u32| field.scale().value(u64::from(steps)) as f32;
    let gpus = range.nodes.iter().flat_map(|node| &node.gpus);
    let of_job = gpus.filter(|gpu| report.gpus.iter().any(|own| own.uuid == gpu.uuid));
    let mut sums: Vec<(f32, u32)> = Vec::new();
    for summaries in of_job.filter_map(|gpu| gpu.fields.first()) {
        let points = window.long_points(summaries, slot_ms, 0, Extreme::Mean, measure);
        sums.resize(points.len().max(sums.len()), (0.0, 0));
        for (sum, point) in sums.iter_mut().zip(points) {
            if let Some(value) = point.value() {
                *sum = (sum.0 + value, sum.1 + 1);
            }
        }
    }
    // Its GPUs may belong to another job after its end.
    let kept = course_ms(report, note).div_ceil(window.step_ms()) as usize;
    let mean = |(at, (sum, count)): (usize, (f32, u32))| (count > 0 && at < kept).then(|| sum / count as f32);
    sums.into_iter().enumerate().map(mean).collect()
}
