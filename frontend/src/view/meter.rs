//! A meter is a bar whose length is a share and whose class is its hue.

use crate::markup::{View, view};
use crate::text;

/// A bar from 0 to 100 % that is drawn anew with what it is in.
pub fn meter(share: Option<f64>, label: &'static str, hue: &'static str) -> View {
    let percent = share.map(percent);
    view! {
        <span
            class="meter"
            class:meter--absent=percent.is_none()
            role="meter"
            aria-label=label
            aria-valuemin="0"
            aria-valuemax="100"
            aria-valuenow=percent.map(|percent| percent.to_string())
            aria-hidden=percent.is_none().then_some("true")
        >
            <i class=hue style:--share=text::share(share.unwrap_or(0.0))></i>
        </span>
    }
}

fn percent(share: f64) -> u32 {
    (share.clamp(0.0, 1.0) * 100.0).round() as u32
}
