//! The attention list of a job in one line, above the tabs for reading: logs, report, about.

use crate::describe::finding::when;
use crate::domain::attention::Entry;
use crate::domain::text;
use crate::view::severity_class::SeverityClass;
use leptos::prelude::*;
use std::sync::Arc;

/// The worst item and the number of the others; a click unfolds the list. Nothing without an item.
#[component]
pub fn AttentionLine(
    /// The items, worst first.
    entries: Memo<Arc<Vec<Entry>>>,
    /// Whether the list is shown instead.
    is_unfolded: RwSignal<bool>,
) -> impl IntoView {
    let worst = Memo::new(move |_| {
        entries.with(|entries| {
            let mut lasting = entries.iter().filter(|entry| !entry.is_resolved).map(|entry| &entry.item);
            let first = lasting.next()?;
            Some((first.severity, format!("{}, {}", first.title, when(first)), lasting.count()))
        })
    });
    let is_any = Memo::new(move |_| worst.with(Option::is_some));
    let sentence = move || worst.with(|worst| worst.as_ref().map(|(_, sentence, _)| sentence.clone()));
    let class = move || worst.with(|worst| worst.as_ref().map(|(severity, ..)| severity.class()));
    let more = move || {
        let others = worst.with(|worst| worst.as_ref().map_or(0, |(.., others)| *others));
        (others > 0).then(|| format!("and {}", text::count(others, "other finding", "other findings")))
    };
    view! {
        <Show when=move || is_any.get()>
            <button class="attention-line" aria-expanded="false" on:click=move |_| is_unfolded.set(true)>
                <i class=class aria-hidden="true"></i>
                <span class="attention-line__what" title=sentence>{sentence}</span>
                <small>{more}</small>
                <span class="attention-line__go" aria-hidden="true">"▸"</span>
            </button>
        </Show>
    }
}
