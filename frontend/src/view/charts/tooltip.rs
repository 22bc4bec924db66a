//! The tooltip of a graph beside the pointer. A transform moves it, so that it costs no layout of the page.

use crate::state::time::Time;
use leptos::prelude::*;

/// Text of a tooltip.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TooltipText {
    /// The value.
    pub value: String,
    /// The quantity.
    pub title: String,
    /// The subject; empty for none.
    pub subject: String,
    /// More about it, one line each.
    pub lines: Vec<String>,
}

/// The tooltip of a graph; shown while [`Time::tooltip`] places it and there is something to say.
#[component]
pub fn Tooltip(
    /// Number of the graph.
    graph: u32,
    /// The text.
    text: Signal<Option<TooltipText>>,
) -> impl IntoView {
    let time = Time::from_context();
    let placement = Memo::new(move |_| time.tooltip(graph));
    let is_shown = Memo::new(move |_| placement.get().is_some());
    let content = move || {
        let TooltipText { value, title, subject, lines } = text.get()?;
        let lines =
            lines.into_iter().map(|line| view! { <div class="tip__line">{line}</div> }).collect_view();
        Some(
            view! {
                <div class="tip__head"><b>{value}</b> <span>{title}</span></div>
                <div>{subject}</div>
                {lines}
            }
            .into_any(),
        )
    };
    // The read-out of the graph is what screen readers announce.
    move || {
        is_shown.get().then(|| {
            let transform = move || placement.get().map(|placement| placement.transform());
            view! { <div class="tip" aria-hidden="true" style:transform=transform>{move || content()}</div> }
                .into_any()
        })
    }
}
