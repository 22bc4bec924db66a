//! A meter is a bar whose length is a share and whose class is its hue.

use crate::lazy::lazy;
use crate::text;
use leptos::prelude::*;

/// A bar from 0 to 100 %.
#[component]
pub fn Meter(
    /// Share of 0 to 1; without one the bar is hatched.
    #[prop(into)]
    share: Signal<Option<f64>>,
    /// What it measures, for a screen reader.
    label: &'static str,
    /// Class of its colour.
    #[prop(into)]
    hue: Signal<&'static str>,
) -> impl IntoView {
    let percent = move || share.get().map(|share| (share.clamp(0.0, 1.0) * 100.0).round() as u32);
    view! {
        <span
            class="meter"
            class:meter--absent=lazy(move || share.get().is_none())
            role="meter"
            aria-label=label
            aria-valuemin="0"
            aria-valuemax="100"
            aria-valuenow=lazy(move || percent().map(|percent| percent.to_string()))
            aria-hidden=lazy(move || percent().is_none().then_some("true"))
        >
            <i class=lazy(move || hue.get()) style:--share=lazy(move || text::share(share.get().unwrap_or(0.0)))></i>
        </span>
    }
}
