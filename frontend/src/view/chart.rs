//! Charts on the page: one path each, drawn anew only when its time line takes a step.

use crate::chart::{Frame, Series, area, line};
use crate::lazy::lazy;
use crate::markup::view;
use leptos::prelude::*;

const SPARK: Frame = Frame { width: 200.0, height: 18.0, pad: 1.2 };
const TILE: Frame = Frame { width: 300.0, height: 34.0, pad: 1.5 };

/// A line of the last ten minutes on a scale of 0 to 100 %.
#[component]
pub fn Spark(
    /// Shares of 0 to 1.
    #[prop(into)]
    series: Signal<Series>,
    /// Class of its colour.
    #[prop(into)]
    hue: Signal<&'static str>,
) -> impl IntoView {
    view! {
        <svg class="spark" viewBox="0 0 200 18" preserveAspectRatio="none" aria-hidden="true">
            <path class=lazy(move || hue.get()) d=lazy(move || series.with(|series| line(series, SPARK)))></path>
        </svg>
    }
}

/// The same with what lies under the line filled, for a tile.
#[component]
pub fn Area(
    /// Shares of 0 to 1.
    #[prop(into)]
    series: Signal<Series>,
    /// Class of its colour.
    hue: &'static str,
) -> impl IntoView {
    view! {
        <svg class=format!("area {hue}") viewBox="0 0 300 34" preserveAspectRatio="none" aria-hidden="true">
            <path class="area__fill" d=lazy(move || series.with(|series| area(series, TILE)))></path>
            <path class="area__line" d=lazy(move || series.with(|series| line(series, TILE)))></path>
        </svg>
    }
}
