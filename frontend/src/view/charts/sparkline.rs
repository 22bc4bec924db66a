//! Small charts: one SVG path each, updated when the time grid advances.

use crate::chart::{Frame, Series, area, line};
use leptos::prelude::*;

const SPARK: Frame = Frame { width: 200.0, height: 18.0, pad: 1.2 };
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

/// The sparkline of a series.
#[component]
pub fn Spark(
    /// Values from 0 to 1.
    #[prop(into)]
    series: Signal<Series>,
    /// CSS class of its colour.
    hue: &'static str,
) -> impl IntoView {
    spark(move || series.with(spark_line), hue)
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
