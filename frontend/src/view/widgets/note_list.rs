//! The notes of a job or node as a list, which the owner can edit.

use crate::describe::note::{deletion, note_text, source_text, subject_text};
use crate::domain::text;
use crate::platform;
use crate::state::page::{NoteDraft, Page};
use leptos::prelude::*;
use nodeglass_protocol::note::Note;

/// Number of notes shown before *Show earlier*.
const FIRST: usize = 50;

/// The notes of what the page shows, newest first; nothing if there are none.
#[component]
pub fn NoteList() -> impl IntoView {
    let page = Page::from_context();
    let notes = page.notes;
    let is_any = Memo::new(move |_| notes.with(|notes| !notes.is_empty()));
    let shows_all = RwSignal::new(false);
    let shown = Memo::new(move |_| {
        let most = if shows_all.get() { usize::MAX } else { FIRST };
        notes.with(|notes| notes.iter().rev().take(most).cloned().collect::<Vec<_>>())
    });
    let count = Memo::new(move |_| notes.with(|notes| notes.len()));
    let rest = move || {
        let more = count.get().saturating_sub(shown.with(Vec::len));
        (more > 0).then(|| {
            let label = format!("Show {more} earlier");
            view! { <button class="btn btn--small" on:click=move |_| shows_all.set(true)>{label}</button> }
        })
    };
    let entry = {
        let page = page.clone();
        move |note: Note| entry(&page, note)
    };
    view! {
        <Show when=move || is_any.get()>
            <section class="notes" aria-label="Notes">
                <h2 class="caption"><b>{move || text::count(count.get(), "note", "notes")}</b></h2>
                <ul>
                    <For each=move || shown.get() key=|note| (note.id, note.text.clone(), note.at_ms) children=entry.clone()/>
                </ul>
                {rest}
            </section>
        </Show>
    }
}

/// One note. Its buttons are named after it, for screen readers; a note that concerns more than this job or node says
/// so.
fn entry(page: &Page, note: Note) -> AnyView {
    let said = note_text(&note);
    let at_s = (note.at_ms / 1_000).cast_signed();
    let (at, source) = (platform::format_time_or_date(at_s), source_text(note.source));
    let label_of = |id| page.job(id).map(|job| job.label.to_string());
    let subject = untrack(|| subject_text(note.job, note.node.as_ref(), label_of));
    let of_others = (note.job.is_none()).then(|| format!("of {subject}, "));
    let after_end = untrack(|| page.is_after_end(&note)).then_some("after the end, ");
    let buttons = untrack(|| page.may_note()).then(|| {
        let (edited, deleted) = (page.clone(), page.clone());
        let edit_label = format!("Edit note of {subject}: {said}");
        let delete_label = format!("Delete note of {subject}: {said}");
        let action = deletion(&note, &subject);
        let draft = NoteDraft {
            id: Some(note.id),
            job: note.job,
            node: note.node.clone(),
            at_ms: note.at_ms,
            text: note.text.to_string(),
        };
        view! {
            <span class="notes__do">
                <button class="btn btn--small" aria-label=edit_label on:click=move |_| edited.note_draft.set(Some(draft.clone()))>"Edit"</button>
                <button class="btn btn--small" title=format!("Delete the note of {subject}") aria-label=delete_label on:click=move |_| deleted.propose(action.clone())>"Delete"</button>
            </span>
        }
        .into_any()
    });
    view! {
        <li>
            <time class="num" title=platform::format_time_s(at_s)>{at}</time>
            <span class="notes__text">{said}</span>
            <small>{after_end}{of_others}{source}</small>
            {buttons}
        </li>
    }
    .into_any()
}
