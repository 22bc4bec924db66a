//! A line with the symbol of a severity, on top of a sheet.

use crate::domain::severity::Severity;
use crate::view::severity_class::SeverityClass;
use leptos::prelude::*;

/// The most important statement about the subject of a sheet, with advice.
#[component]
pub fn StatusLine(
    /// The severity and the sentence.
    #[prop(into)]
    status: Signal<(Severity, String)>,
    /// Advice, if any.
    #[prop(optional, into)]
    advice: Signal<Option<String>>,
) -> impl IntoView {
    let advice = move || {
        let line = advice.get().map(|advice| format!("→ {advice}"));
        line.map(|line| view! { <small class="status-line__advice">{line}</small> })
    };
    view! {
        <p class="status-line">
            <i class=move || status.with(|(severity, _)| severity.class()) aria-hidden="true"></i>
            <span>{move || status.with(|(_, text)| text.clone())} {advice}</span>
        </p>
    }
}
