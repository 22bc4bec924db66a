//! The graph of a comparison: a line for each job, its axes, and the readings at a moment.

use super::curves::{Curves, format_value};
use super::parts::label_of;
use crate::chart::{Frame, line, time_ticks, value_ticks};
use crate::domain::compared::{Compared, Part};
use crate::domain::text;
use crate::platform;
use crate::state::time::Time;
use crate::view::charts::heat_map::main_px;
use leptos::prelude::*;
use leptos::wasm_bindgen::JsCast as _;
use nodeglass_protocol::Text;
use nodeglass_protocol::report::Report;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Shortest and longest time that is shown, in ms.
const SPAN_MS: RangeInclusive<u64> = 60_000..=400 * 86_400_000;
/// Smallest and largest number of labels of the time axis, and the width of the page for each, in px.
const MOMENTS: RangeInclusive<usize> = 3..=8;
const MOMENT_PX: f64 = 160.0;
/// The width of "first reading" up to the middle of the next label, in px.
const ORIGIN_PX: f64 = 125.0;
/// Width of the main area beside the graph, in px.
const MARGINS_PX: f64 = 86.0;
/// Step of an arrow key, as a share of the width.
const KEY_STEP: f64 = 1.0 / 60.0;
/// The text without a pointer over the readings.
const READOUT_HELP: &str = "Hover, or focus and use ← →.";
/// The text in place of lines.
const MISSING: &str = "No readings of this run are kept: the relay has those of the last 200 jobs, for a week; a long-term storage (--history-url) keeps more.";
/// The box of the graph.
const FRAME: Frame = Frame { width: 1_000.0, height: 200.0, pad: 2.0 };

/// Content of the graph, and the place of the pointer.
#[derive(Clone, Copy)]
pub(super) struct CurvePlot {
    compared: Memo<Vec<Compared>>,
    reports: Memo<Arc<Vec<Report>>>,
    /// Title of the moment at which the jobs are aligned, if it is not their start.
    note: Memo<Option<Text>>,
    curves: Memo<Vec<Curves>>,
    /// The index of the field among [`FIELDS`](super::curves::FIELDS).
    field: RwSignal<usize>,
    /// The time that the width shows, in ms.
    span_ms: Memo<u64>,
    /// The value at the top.
    full: Memo<f32>,
    /// The place of the pointer or the keyboard, as a share of the width.
    cursor: RwSignal<Option<f64>>,
}

impl CurvePlot {
    /// Creates the graph of a field over the `aligned` times.
    pub(super) fn new(
        compared: Memo<Vec<Compared>>,
        reports: Memo<Arc<Vec<Report>>>,
        aligned: Memo<Vec<Option<Part>>>,
        note: Memo<Option<Text>>,
        curves: Memo<Vec<Curves>>,
        field: RwSignal<usize>,
    ) -> Self {
        let span_ms = Memo::new(move |_| {
            let longest_s = aligned.with(|times| times.iter().flatten().map(|time| time.length_s()).max());
            longest_s.unwrap_or(0).saturating_mul(1_000).clamp(*SPAN_MS.start(), *SPAN_MS.end())
        });
        let full = Memo::new(move |_| {
            let highest = |curves: &Vec<Curves>| {
                let values = curves.iter().flat_map(|curves| &curves.lines[field.get()]).flatten();
                values.copied().fold(0.0, f32::max)
            };
            if field.get() == 0 { 100.0 } else { curves.with(highest).max(1.0) * 1.1 }
        });
        Self { compared, reports, note, curves, field, span_ms, full, cursor: RwSignal::new(None) }
    }

    /// Returns the graph, and the readings at the moment that is pointed at.
    pub(super) fn view(self) -> AnyView {
        let (cursor, time) = (self.cursor, Time::from_context());
        let point = move |event: web_sys::PointerEvent| cursor.set(Some(share_of(&event)));
        let press = move |event: web_sys::KeyboardEvent| {
            if let Some(next) = self.key_moves_to(&event.key()) {
                // The arrows would change the node, and Escape would leave the page.
                event.prevent_default();
                event.stop_propagation();
                cursor.set(next);
            }
        };
        let hairline = move || {
            let left = format!("{}%", cursor.get()? * 100.0);
            Some(view! { <i class="curves__cursor" style:left=left></i> })
        };
        view! {
            <div class="curves num" role="group" tabindex="0" aria-label="Readings over the time since the start; use the arrow keys to read values"
                on:keydown=press on:blur=move |_| cursor.set(None)>
                <div class="curves__values" aria-hidden="true">{move || self.value_axis()}</div>
                <div class="curves__plot" on:pointermove=point on:pointerdown=point on:pointerleave=move |_| cursor.set(None)>
                <svg viewBox=format!("0 0 {} {}", FRAME.width, FRAME.height) preserveAspectRatio="none" role="img" aria-label="The readings over time; the arrow keys read them">{move || self.lines()}</svg>
                {hairline}
                {move || self.missing().map(|text| view! { <p class="curves__none" role="status">{text}</p> })}
                </div>
                <div class="curves__moments" aria-hidden="true">{move || self.time_axis(time.width())}</div>
            </div>
            <p class="curves__readout num" role="status">{move || self.readout()}</p>
        }
        .into_any()
    }

    /// Returns a line for each job.
    fn lines(self) -> AnyView {
        let (full, field, span_ms) = (self.full.get(), self.field.get(), self.span_ms.get() as f32);
        self.curves.with(|curves| {
            let path = |(at, curves): (usize, &Curves)| {
                let (points, slot_ms) = (&curves.lines[field], curves.slot_ms as f32);
                // Each slot is drawn at its middle, a single one over its length.
                let (points, from_slot) = match points.as_slice() {
                    [only] => (&vec![*only; 2], 0.0),
                    _ => (points, 0.5),
                };
                let slots = if from_slot > 0.0 { points.len().saturating_sub(1) } else { 1 };
                let x = |ms: f32| ms / span_ms * FRAME.width;
                let (left, width) = (x(curves.first_ms as f32 + from_slot * slot_ms), x(slots as f32 * slot_ms));
                let scaled: Vec<_> = points.iter().map(|point| point.map(|value| value / full)).collect();
                let d = line(&scaled, Frame { width, ..FRAME });
                view! { <path class=format!("curve curve--{at}") d=d transform=format!("translate({left})")/> }
            };
            curves.iter().enumerate().map(path).collect_view().into_any()
        })
    }

    /// Explains why readings are missing; `None` if some are there, or not loaded yet.
    fn missing(self) -> Option<String> {
        self.curves.with(|curves| {
            if let Some(problem) = curves.iter().find_map(|curves| curves.problem.as_ref()) {
                return Some(problem.to_string());
            }
            let are_missing = !curves.is_empty() && curves.iter().all(Curves::is_empty);
            are_missing.then(|| MISSING.to_owned())
        })
    }

    /// Returns the labels beside the graph.
    fn value_axis(self) -> AnyView {
        let (field, full) = (self.field.get(), self.full.get());
        let tick = |tick: f32| {
            let bottom = format!("{}%", tick / full * 100.0);
            view! { <span class="curves__value" style:bottom=bottom>{format_value(field, tick)}</span> }
        };
        value_ticks(full).into_iter().map(tick).collect_view().into_any()
    }

    /// Returns the labels below the graph, on a page of this width in px.
    fn time_axis(self, page_width: f64) -> AnyView {
        let span_s = (self.span_ms.get() / 1_000).max(1);
        let most = ((page_width / MOMENT_PX) as usize).clamp(*MOMENTS.start(), *MOMENTS.end());
        // A label beside the name of the first reading would seem to be a part of it.
        let least_s = ORIGIN_PX / (main_px(page_width) - MARGINS_PX) * span_s as f64;
        let is_apart = |at_s: &u64| *at_s == 0 || self.note.get().is_none() || *at_s as f64 >= least_s;
        let ticks: Vec<u64> = time_ticks(span_s, most).into_iter().filter(is_apart).collect();
        let percent = |at_s: u64| format!("{}%", at_s as f64 / span_s as f64 * 100.0);
        let origin = || self.note.get().map_or_else(|| "start".to_owned(), |text| text.to_string());
        // The text of a note ends before the next label.
        let room = percent(ticks.get(1).copied().unwrap_or(span_s));
        let tick = |tick: u64| {
            let is_first = tick == 0;
            // Its text would pass the edge.
            let is_last = tick as f64 > 0.96 * span_s as f64;
            let label = if is_first { origin() } else { format!("+{}", text::exact_span(tick)) };
            let room = is_first.then(|| room.clone());
            view! { <span class="curves__moment" class:is-first=is_first class:is-last=is_last style:left=percent(tick) style:max-width=room>{label}</span> }
        };
        ticks.into_iter().map(tick).collect_view().into_any()
    }

    /// Returns the readings of all jobs at the cursor.
    fn readout(self) -> String {
        let (field, Some(share)) = (self.field.get(), self.cursor.get()) else {
            return READOUT_HELP.to_owned();
        };
        let at_ms = (share * self.span_ms.get() as f64) as u64;
        let value = |(one, curves): (&Compared, &Curves)| {
            let value = curves.value_at(field, at_ms);
            let value = value.map_or_else(|| "no data".to_owned(), |value| format_value(field, value));
            format!("{}: {value}", self.reports.with(|reports| label_of(one.job, reports)))
        };
        let each: Vec<_> =
            self.compared.with(|all| self.curves.with(|curves| all.iter().zip(curves).map(value).collect()));
        format!("+{} · {}", text::duration(at_ms / 1_000), each.join(" · "))
    }

    /// Returns where a key moves the cursor, or `None` if it does not; does not subscribe.
    fn key_moves_to(self, key: &str) -> Option<Option<f64>> {
        // Where any of them is known.
        let known_ms = self.curves.with_untracked(|curves| {
            let known = curves.iter().filter_map(|curves| curves.known_ms(self.field.get_untracked()));
            known.reduce(|(first, last), (from, to)| (first.min(from), last.max(to)))
        });
        let share = |ms: u64| (ms as f64 / self.span_ms.get_untracked() as f64).min(1.0);
        let (first, last) = known_ms.map_or((0.0, 1.0), |(first, last)| (share(first), share(last)));
        match (key, self.cursor.get_untracked()) {
            ("ArrowLeft", at) => Some(Some(at.map_or(last, |at| (at - KEY_STEP).max(first)))),
            ("ArrowRight", at) => Some(Some(at.map_or(first, |at| (at + KEY_STEP).min(last)))),
            ("Home", _) => Some(Some(first)),
            ("End", _) => Some(Some(last)),
            ("Escape", Some(_)) => Some(None),
            _ => None,
        }
    }
}

/// Returns the place of a pointer over the graph, as a share of its width.
fn share_of(event: &web_sys::PointerEvent) -> f64 {
    let area = event.current_target().and_then(|target| target.dyn_into::<web_sys::Element>().ok());
    let Some([left, _, width, _]) = area.map(|area| platform::bounding_rect(&area)) else { return 0.0 };
    ((f64::from(event.client_x()) - left) / width.max(1.0)).clamp(0.0, 1.0)
}
