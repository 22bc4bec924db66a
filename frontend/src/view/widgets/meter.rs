//! A meter: a bar whose length is a fraction and whose CSS class is its hue.

use crate::domain::text;
use leptos::prelude::*;

/// A bar for a fraction of 0 to 1, or an empty one that screen readers skip.
pub fn meter(label: &'static str, hue: &'static str, share: Option<f64>) -> AnyView {
    let percent = share.map(|share| ((share.clamp(0.0, 1.0) * 100.0).round() as u32).to_string());
    view! {
        <span
            class=if share.is_some() { "meter" } else { "meter meter--absent" }
            role="meter"
            aria-label=label
            aria-valuemin="0"
            aria-valuemax="100"
            aria-valuenow=percent
            aria-hidden=share.is_none().then_some("true")
        >
            <i class=hue style:--share=text::share(share.unwrap_or(0.0))></i>
        </span>
    }
    .into_any()
}
