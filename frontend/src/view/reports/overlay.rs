//! Several jobs or parts of them in one graph, aligned at their start or at a note that each has.

use super::curves::{Curves, FIELDS, format_value};
use super::parts::{Parts, label_of, run};
use crate::chart::{Frame, Range, line, time_ticks, value_ticks};
use crate::describe::report::{common_notes, note_at_s};
use crate::domain::compared::{Compared, Part};
use crate::domain::text;
use crate::platform;
use crate::state::page::Page;
use crate::state::time::Time;
use leptos::prelude::*;
use leptos::wasm_bindgen::JsCast as _;
use nodeglass_protocol::Text;
use nodeglass_protocol::report::Report;
use std::sync::Arc;

/// Shortest time that is shown, in ms.
const SHORTEST_MS: u64 = 60_000;
/// Maximum number of labels of the time axis, on a wide page and on a phone.
const MOMENTS: (usize, usize) = (8, 3);
/// How far an arrow key moves, as a share of the width.
const KEY_STEP: f64 = 1.0 / 60.0;
/// What stands in the place of the readings that are pointed at.
const READOUT_HELP: &str = "Hover, or focus and use ← →.";
/// The box of the graph.
const FRAME: Frame = Frame { width: 1_000.0, height: 200.0, pad: 2.0 };

/// The mean of a field over the GPUs of each job, by the time since its start.
#[component]
pub fn Overlay(
    /// The compared jobs.
    compared: Memo<Vec<Compared>>,
    /// The reports of its jobs; they change while one of them runs.
    reports: Memo<Arc<Vec<Report>>>,
) -> impl IntoView {
    let field = RwSignal::new(0_usize);
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
    let curves = loaded_curves(compared, reports, aligned);
    let full = Memo::new(move |_| {
        let highest = |curves: &Vec<Curves>| {
            let values = curves.iter().flat_map(|curves| &curves.lines[field.get()]).flatten();
            values.copied().fold(0.0, f32::max)
        };
        if field.get() == 0 { 100.0 } else { curves.with(highest).max(1.0) * 1.1 }
    });
    let paths = move || {
        let (full, field, span_ms) = (full.get(), field.get(), span_ms.get() as f32);
        let scaled = |points: &[Option<f32>]| {
            points.iter().map(|point| point.map(|value| value / full)).collect::<Vec<_>>()
        };
        curves.with(|curves| {
            let paths = curves.iter().enumerate().map(|(at, curves)| {
                let (points, slot_ms) = (&curves.lines[field], curves.slot_ms as f32);
                // Each slot is drawn at its middle, a single one over its length.
                let (points, from_slot) = match points.as_slice() {
                    [only] => (&vec![*only; 2], 0.0),
                    _ => (points, 0.5),
                };
                let slots = if from_slot > 0.0 { points.len().saturating_sub(1) } else { 1 };
                let x = |ms: f32| ms / span_ms * FRAME.width;
                let (left, width) = (x(curves.first_ms as f32 + from_slot * slot_ms), x(slots as f32 * slot_ms));
                let d = line(&scaled(points), Frame { width, ..FRAME });
                view! { <path class=format!("curve curve--{at}") d=d transform=format!("translate({left})")/> }
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
            let option = |text: Text| {
                let value = text.to_string();
                let selected = move || note.with(|note| note.as_ref() == Some(&text));
                view! { <option value=value.clone() selected=selected>{value.clone()}</option> }
            };
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
    // Where the pointer or the keyboard is, as a share of the width.
    let cursor = RwSignal::new(None::<f64>);
    let values = move || {
        let (field, full) = (field.get(), full.get());
        let tick = |tick: f32| {
            let bottom = format!("{}%", tick / full * 100.0);
            view! { <span class="curves__value" style:bottom=bottom>{format_value(field, tick)}</span> }
        };
        value_ticks(full).into_iter().map(tick).collect_view()
    };
    let view_size = Time::from_context();
    let times_of_axis = move || {
        let span_s = (span_ms.get() / 1_000).max(1);
        let ticks = time_ticks(span_s, if view_size.width() > 760.0 { MOMENTS.0 } else { MOMENTS.1 });
        let percent = |at_s: u64| format!("{}%", at_s as f64 / span_s as f64 * 100.0);
        // The text of a note ends before the next label.
        let room = percent(ticks.get(1).copied().unwrap_or(span_s));
        let tick = |tick: u64| {
            let is_first = tick == 0;
            let label = if is_first { origin() } else { format!("+{}", text::exact_span(tick)) };
            let room = is_first.then(|| room.clone());
            view! { <span class="curves__moment" class:is-first=is_first class:is-last=tick == span_s style:left=percent(tick) style:max-width=room>{label}</span> }
        };
        ticks.into_iter().map(tick).collect_view()
    };
    let readout = move || {
        let Some(share) = cursor.get() else { return READOUT_HELP.to_owned() };
        let at_ms = (share * span_ms.get() as f64) as u64;
        let value = |(one, curves): (&Compared, &Curves)| {
            let value = curves.value_at(field.get(), at_ms);
            let value = value.map_or_else(|| "no data".to_owned(), |value| format_value(field.get(), value));
            format!("{}: {value}", reports.with(|reports| label_of(one.job, reports)))
        };
        let each =
            compared.with(|all| curves.with(|curves| all.iter().zip(curves).map(value).collect::<Vec<_>>()));
        format!("+{} · {}", text::duration(at_ms / 1_000), each.join(" · "))
    };
    let point = move |event: web_sys::PointerEvent| cursor.set(Some(share_of(&event)));
    let press = move |event: web_sys::KeyboardEvent| {
        // Where any of them is known.
        let known_ms = curves.with_untracked(|curves| {
            let known = curves.iter().filter_map(|curves| curves.known_ms(field.get_untracked()));
            known.reduce(|(first, last), (from, to)| (first.min(from), last.max(to)))
        });
        let share = |ms: u64| (ms as f64 / span_ms.get_untracked() as f64).min(1.0);
        let (first, last) = known_ms.map_or((0.0, 1.0), |(first, last)| (share(first), share(last)));
        let next = match (event.key().as_str(), cursor.get_untracked()) {
            ("ArrowLeft", at) => Some(at.map_or(last, |at| (at - KEY_STEP).max(first))),
            ("ArrowRight", at) => Some(at.map_or(first, |at| (at + KEY_STEP).min(last))),
            ("Home", _) => Some(first),
            ("End", _) => Some(last),
            ("Escape", Some(_)) => None,
            _ => return,
        };
        // The arrows would change the node, and Escape would leave the page.
        event.prevent_default();
        event.stop_propagation();
        cursor.set(next);
    };
    let hairline = move || {
        let left = format!("{}%", cursor.get()? * 100.0);
        Some(view! { <i class="curves__cursor" style:left=left></i> })
    };
    view! {
        <section class="card" aria-label="Readings over time">
            <div class="overlay-head">
                <h2>{move || format!("{}, mean of each job's GPUs", FIELDS[field.get()].1)}</h2>
                {align}
                <div role="group" aria-label="Metric" class="usage__days">{choices}</div>
            </div>
            <div class="curves num" role="group" tabindex="0" aria-label="Readings by the time since the start; arrow keys read them"
                on:keydown=press on:blur=move |_| cursor.set(None)>
                <div class="curves__values" aria-hidden="true">{values}</div>
                <div class="curves__plot" on:pointermove=point on:pointerdown=point on:pointerleave=move |_| cursor.set(None)>
                <svg viewBox=format!("0 0 {} {}", FRAME.width, FRAME.height) preserveAspectRatio="none" role="img" aria-label="The lines of the jobs; their figures are in the table below">{paths}</svg>
                {hairline}
                </div>
                <div class="curves__moments" aria-hidden="true">{times_of_axis}</div>
            </div>
            <p class="curves__readout num" role="status">{readout}</p>
            <Parts compared reports times aligned curves/>
        </section>
    }
}

/// Where a pointer is over the graph, as a share of its width.
fn share_of(event: &web_sys::PointerEvent) -> f64 {
    let area = event.current_target().and_then(|target| target.dyn_into::<web_sys::Element>().ok());
    let Some([left, _, width, _]) = area.map(|area| platform::bounding_rect(&area)) else { return 0.0 };
    ((f64::from(event.client_x()) - left) / width.max(1.0)).clamp(0.0, 1.0)
}

/// Loads the readings of what is compared, and again when anything of it changes.
fn loaded_curves(
    compared: Memo<Vec<Compared>>,
    reports: Memo<Arc<Vec<Report>>>,
    times: Memo<Vec<Option<Part>>>,
) -> RwSignal<Vec<Curves>> {
    let (page, curves) = (Page::from_context(), RwSignal::new(Vec::new()));
    let newest = StoredValue::new(0_u64);
    Effect::new(move || {
        let (page, reports) = (page.clone(), reports.get());
        let wanted: Vec<_> = compared.get().into_iter().zip(times.get()).collect();
        if !page.feed.is_live() {
            return;
        }
        newest.update_value(|number| *number += 1);
        let number = newest.get_value();
        leptos::task::spawn_local(async move {
            let mut loaded = Vec::new();
            for (one, time) in wanted {
                let report = reports.iter().find(|report| report.job == one.job);
                loaded.push(match report.zip(time) {
                    Some((report, time)) => Curves::load(&page, report, time).await,
                    None => Curves::default(),
                });
                // What is compared has changed since, or the view is gone.
                if newest.try_get_value() != Some(number) {
                    return;
                }
            }
            curves.try_set(loaded);
        });
    });
    curves
}

/// The time that is compared of a job.
fn time(one: &Compared, reports: &[Report]) -> Option<Part> {
    one.time(run(one.job, reports))
}
