//! Small charts: one SVG path each, updated when the time grid advances.

use crate::chart::{Frame, Series, area, line};
use crate::domain::text;
use leptos::prelude::*;
use wasm_bindgen::JsCast;

/// Its padding keeps a line at 100 % away from the row above, where it would look like a border.
const SPARK: Frame = Frame { width: 200.0, height: 18.0, pad: 4.0 };
const TILE: Frame = Frame { width: 300.0, height: 34.0, pad: 1.5 };

/// Returns the path of a sparkline over ten minutes, of values from 0 to 1.
pub fn spark_line(series: &Series) -> String {
    line(series, SPARK)
}

/// A sparkline with the CSS class of its colour.
pub fn spark(d: impl Fn() -> String + Send + Sync + 'static, hue: &'static str) -> impl IntoView {
    view! {
        <svg class="spark" viewBox="0 0 200 18" preserveAspectRatio="none" aria-hidden="true">
            <path class=hue d=d></path>
        </svg>
    }
}

/// A small chart of a series with its last value or the hovered one, and the top of its scale.
#[component]
pub fn MiniChart(
    /// The title.
    title: &'static str,
    /// Values on their scale, 0 to 1, one a second up to now; nothing to the left of the first.
    #[prop(into)]
    series: Signal<Series>,
    /// The top of the scale.
    #[prop(into)]
    top: Signal<f32>,
    /// Formats a value.
    format: fn(f32) -> String,
    /// CSS class of its colour.
    hue: &'static str,
    /// Position of the cursor that several charts share, 0 to 1.
    cursor: RwSignal<Option<f64>>,
    /// Says since when values are collected, until there is a line to draw.
    since: String,
) -> impl IntoView {
    let value =
        move || series.with(|series| value_text(series, cursor.get(), |share| format(share * top.get())));
    let is_empty = Memo::new(move |_| series.with(|series| series.iter().flatten().count() < 2));
    let plot = move || match is_empty.get() {
        true => view! { <p class="mini__since">{since.clone()}</p> }.into_any(),
        false => {
            let transform =
                move || cursor.get().map(|at| format!("translateX({}%)", text::tenths(at * 100.0)));
            view! {
                <small class="mini__top">"0–" {move || format(top.get())}</small>
                {spark(move || series.with(spark_line), hue)}
                <span class="stage__veil"><i class="stage__cursor" hidden=move || cursor.get().is_none() style:transform=transform></i></span>
            }
            .into_any()
        }
    };
    let point = move |event: web_sys::PointerEvent| cursor.set(Some(share_of(&event)));
    view! {
        <div class="mini">
            <div class="mini__head"><span>{title}</span> <b>{value}</b></div>
            <div
                class="mini__plot"
                on:pointermove=point
                on:pointerdown=point
                on:pointerleave=move |_| cursor.set(None)
            >
                {move || plot()}
            </div>
        </div>
    }
}

/// Describes the last value, or the one under the cursor, which is a share of the width.
fn value_text(series: &Series, cursor: Option<f64>, format: impl Fn(f32) -> String) -> String {
    let Some(cursor) = cursor else {
        let value = series.last().copied().flatten();
        return value.map_or_else(|| text::ABSENT.to_owned(), format);
    };
    let (at, last) = ((cursor * series.len() as f64) as usize, series.len().saturating_sub(1));
    let before = text::span(last.saturating_sub(at) as u64);
    match series.get(at).copied().flatten() {
        Some(share) => format!("{} · {before} ago", format(share)),
        None => format!("no data · {before} ago"),
    }
}

/// Returns the place of a pointer over a chart, as a share of its width.
fn share_of(event: &web_sys::PointerEvent) -> f64 {
    let chart = event.current_target().and_then(|target| target.dyn_into::<web_sys::Element>().ok());
    let width = chart.map_or(1.0, |chart| f64::from(chart.client_width()).max(1.0));
    (f64::from(event.offset_x()) / width).clamp(0.0, 0.999)
}

/// A line of the last ten minutes with a filled area below it, for a tile.
#[component]
pub fn Area(
    /// Values from 0 to 1.
    #[prop(into)]
    series: Signal<Series>,
    /// CSS class of its colour.
    hue: &'static str,
) -> impl IntoView {
    view! {
        <svg class=format!("area {hue}") viewBox="0 0 300 34" preserveAspectRatio="none" aria-hidden="true">
            <path class="area__fill" d=move || series.with(|series| area(series, TILE))></path>
            <path class="area__line" d=move || series.with(|series| line(series, TILE))></path>
        </svg>
    }
}
