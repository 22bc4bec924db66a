//! A line with the symbol of a severity, on top of a sheet.

use crate::domain::severity::Severity;
use crate::view::severity_class::SeverityClass;
use crate::view::widgets::code_text::code_text;
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
        advice
            .get()
            .map(|advice| view! { <small class="status-line__advice">"→ " {code_text(&advice)}</small> })
    };
    view! {
        <p class="status-line">
            <i class=move || status.with(|(severity, _)| severity.class()) aria-hidden="true"></i>
            <span>{move || status.with(|(_, text)| text.clone())} {advice}</span>
        </p>
    }
}
