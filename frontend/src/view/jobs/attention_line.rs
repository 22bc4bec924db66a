//! What needs attention of a job in one line, above the tabs that are read: logs, report, about.

use crate::describe::finding::when;
use crate::domain::attention::Entry;
use crate::domain::text;
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
    move || {
        worst.get().map(|(severity, sentence, others)| {
            let title = sentence.clone();
            let more = (others > 0)
                .then(|| format!("and {}", text::count(others, "other finding", "other findings")));
            view! {
                <button class="attention-line" aria-expanded="false" on:click=move |_| is_unfolded.set(true)>
                    <i class=severity.class() aria-hidden="true"></i>
                    <span class="attention-line__what" title=title>{sentence}</span>
                    <small>{more}</small>
                    <span class="attention-line__go" aria-hidden="true">"▾"</span>
                </button>
            }
        })
    }
}
