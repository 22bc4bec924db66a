//! A line with the symbol of a severity, on top of a sheet.

use crate::domain::severity::Severity;
use leptos::prelude::*;

/// What matters most about the subject of a sheet, in one line.
#[component]
pub fn StatusLine(
    /// The severity and the sentence.
    #[prop(into)]
    status: Signal<(Severity, String)>,
) -> impl IntoView {
    view! {
        <p class="status-line">
            <i class=move || status.with(|(severity, _)| severity.class()) aria-hidden="true"></i>
            <span>{move || status.with(|(_, text)| text.clone())}</span>
        </p>
    }
}
