//! The stacks of a capture, folded until they are asked for.

use crate::describe::capture;
use leptos::prelude::*;
use nodeglass_protocol::capture::FindingCapture;
use std::sync::Arc;

/// The stacks of the processes when a finding began, and the files that explain more; nothing without a capture.
#[component]
pub fn Stacks(
    /// The capture. The view is built again if it changes.
    #[prop(into)]
    capture: Signal<Option<Arc<FindingCapture>>>,
) -> impl IntoView {
    move || {
        capture.with(|captured| {
            let captured = captured.as_deref()?;
            let summary = capture::summary(captured)?;
            let text = capture::lines(captured).join("\n");
            let label = summary.clone();
            Some(
                view! {
                    <details class="stacks">
                        <summary>{summary}</summary>
                        <pre role="region" aria-label=label tabindex="0">{text}</pre>
                    </details>
                }
                .into_any(),
            )
        })
    }
}
