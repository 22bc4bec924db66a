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
    let hovered = move || series.with(|series| Some((cursor.get()? * series.len() as f64) as usize));
    let value = move || {
        series.with(|series| {
            let last = series.len().saturating_sub(1);
            let Some(at) = hovered() else {
                let value = series.last().copied().flatten();
                return value.map_or_else(|| text::ABSENT.to_owned(), |share| format(share * top.get()));
            };
            let before = text::span(last.saturating_sub(at) as u64);
            match series.get(at).copied().flatten() {
                Some(share) => format!("{} · {before} ago", format(share * top.get())),
                None => format!("no data · {before} ago"),
            }
        })
    };
    let is_empty = Memo::new(move |_| series.with(|series| series.iter().flatten().count() < 2));
    let plot = move || match is_empty.get() {
        true => view! { <p class="mini__since">{since.clone()}</p> }.into_any(),
        false => {
            let transform =
                move || cursor.get().map(|at| format!("translateX({}%)", text::tenths(at * 100.0)));
            view! {
                <small class="mini__top">{move || format(top.get())}</small>
                {spark(move || series.with(spark_line), hue)}
                <span class="stage__veil"><i class="stage__cursor" hidden=move || cursor.get().is_none() style:transform=transform></i></span>
            }
            .into_any()
        }
    };
    let point = move |event: web_sys::PointerEvent| {
        let width = event.current_target().and_then(|target| target.dyn_into::<web_sys::Element>().ok());
        let width = width.map_or(1.0, |element| f64::from(element.client_width()).max(1.0));
        cursor.set(Some((f64::from(event.offset_x()) / width).clamp(0.0, 0.999)));
    };
    view! {
        <div class="mini">
            <div class="mini__head"><span>{title}</span> <b>{move || value()}</b></div>
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
