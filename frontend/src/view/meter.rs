//! A meter is a bar whose length is a share and whose class is its hue.

use crate::markup::{Spot, View, view};
use crate::text;

/// A bar from 0 to 100 %, or an empty one that no screen reader reads.
#[derive(Clone, Copy, PartialEq)]
pub struct Meter(Option<f64>);

impl Meter {
    /// The bar of a share of 0 to 1.
    pub fn of(share: Option<f64>) -> Self {
        Self(share)
    }

    /// It as it is drawn for the first time: the whole, and the bar in it.
    pub fn drawn(self, label: &'static str, hue: &'static str, whole: &Spot, bar: &Spot) -> View {
        view! {
            <span
                node_ref=whole.clone()
                class=self.class()
                role="meter"
                aria-label=label
                aria-valuemin="0"
                aria-valuemax="100"
                aria-valuenow=self.percent()
                aria-hidden=self.hidden()
            >
                <i node_ref=bar.clone() class=hue style:--share=self.length()></i>
            </span>
        }
    }

    /// Writes what is not as it was.
    pub fn write(self, before: Self, whole: &Spot, bar: &Spot) {
        if self.length() != before.length() {
            bar.write_style("--share", &self.length());
        }
        if self.percent() != before.percent() {
            whole.write("aria-valuenow", self.percent().as_deref());
        }
        if self.0.is_some() != before.0.is_some() {
            whole.write("class", Some(self.class()));
            whole.write("aria-hidden", self.hidden());
        }
    }

    fn length(self) -> String {
        text::share(self.0.unwrap_or(0.0))
    }

    fn percent(self) -> Option<String> {
        self.0.map(|share| ((share.clamp(0.0, 1.0) * 100.0).round() as u32).to_string())
    }

    fn class(self) -> &'static str {
        if self.0.is_some() { "meter" } else { "meter meter--absent" }
    }

    fn hidden(self) -> Option<&'static str> {
        self.0.is_none().then_some("true")
    }
}
