//! The form for a note: what it says, and when; the moment that was pointed at can be changed.

use crate::describe::note::{outside_text, subject_text, too_long_text};
use crate::domain::text;
use crate::platform;
use crate::state::page::{NoteDraft, Page};
use crate::view::widgets::actions::show_toast;
use crate::view::widgets::sheet::{Close, Sheet};
use leptos::html::Input;
use leptos::prelude::*;
use nodeglass_protocol::Text;
use nodeglass_protocol::live::Mode;
use nodeglass_protocol::note::{self, NewNote, NoteEdit, NoteId, NoteRequest, NoteSource};
use nodeglass_protocol::request::{Request, Response};
use std::sync::Arc;

/// The form, while a note is being written.
#[component]
pub fn NoteSheet() -> impl IntoView {
    let page = Page::from_context();
    let draft = page.note_draft;
    move || {
        let shown = draft.get()?;
        let close: Close = Arc::new(move || draft.set(None));
        let label = if shown.id.is_some() { "Edit note" } else { "Add note" };
        let content = form(&page, shown, label);
        Some(view! { <Sheet class="ask" label close>{content}</Sheet> }.into_any())
    }
}

fn form(page: &Page, draft: NoteDraft, title: &'static str) -> AnyView {
    let (field, at_field) = (NodeRef::<Input>::new(), NodeRef::<Input>::new());
    // What is typed continues the text; browsers begin at its start.
    Effect::new(move |_| {
        field.get().into_iter().for_each(|field| drop(field.set_selection_range(u32::MAX, u32::MAX)));
    });
    let waits = RwSignal::new(false);
    let label_of = |id| page.job(id).map(|job| job.label.to_string());
    let of = untrack(|| subject_text(draft.job, draft.node.as_ref(), label_of));
    let clock = |at_ms: u64| platform::local_datetime((at_ms / 1_000).cast_signed());
    let shown_at = clock(draft.at_ms);
    let typed_at = RwSignal::new(shown_at.clone());
    let age = {
        let page = page.clone();
        move || age_text(platform::parse_local_datetime(&typed_at.get())?, page.wall_s())
    };
    // The notes are those of the same job or node, as long as the form is open.
    let (notes, edited) = (page.notes, draft.id);
    let is_deleted = Memo::new(move |_| {
        edited.is_some_and(|id| notes.with(|notes| notes.iter().all(|note| note.id != id)))
    });
    // What was wrong, and whether that was an edit: it does not matter once the note is known to be deleted.
    let wrong = RwSignal::new((String::new(), false));
    let complaint = move || {
        let (text, of_edit) = wrong.get();
        if of_edit && is_deleted.get() { String::new() } else { text }
    };
    let refuse_time = move |why: String| {
        wrong.set((why, false));
        at_field.get_untracked().into_iter().for_each(|field| drop(field.focus()));
    };
    let (page, known) = (page.clone(), draft.text.clone());
    let submit = move |event: web_sys::SubmitEvent| {
        event.prevent_default();
        let read =
            |field: NodeRef<Input>| field.get_untracked().map(|field| field.value()).unwrap_or_default();
        // A time that was not changed keeps its milliseconds.
        let at_ms = match read(at_field) {
            same if same.trim() == shown_at => Some(draft.at_ms),
            typed => milliseconds(&typed),
        };
        let Some(at_ms) = at_ms else {
            return refuse_time("Enter a time such as 2026-11-25 09:14:03.".to_owned());
        };
        let job = untrack(|| draft.job.and_then(|id| page.job(id)));
        // The relay refuses it as well, but with times in UTC: it does not know the time zone of the browser.
        if let Some(why) = job.and_then(|job| outside_text(&job, at_ms, clock)) {
            return refuse_time(why);
        }
        let id = draft.id.filter(|_| !is_deleted.get_untracked());
        let typed = read(field);
        let text = match note::text(&typed) {
            Ok(text) if text.as_str().is_empty() => {
                field.get_untracked().into_iter().for_each(|field| drop(field.focus()));
                return wrong.set(("Enter what happened.".to_owned(), false));
            }
            Ok(text) => text,
            Err(_) => return wrong.set((too_long_text(&typed), false)),
        };
        let request = request(&draft, id, at_ms, text);
        let page = page.clone();
        waits.set(true);
        leptos::task::spawn_local(async move {
            let answer = page.request(Request::Note(request)).await;
            // The sheet may be closed by now.
            waits.try_set(false);
            match answer {
                Response::Note(saved) => {
                    page.note_draft.set(None);
                    // Data of a simulated cluster is not stored.
                    let is_simulated = page.fleet.welcome().is_some_and(|welcome| welcome.mode == Mode::Demo);
                    if !saved.is_stored && !is_simulated {
                        let text = "The note is shown, but could not be stored yet.";
                        show_toast(page, text.to_owned(), false);
                    }
                }
                Response::Refused(why) => _ = wrong.try_set((text::sentence(why.as_str()), id.is_some())),
                _ => {
                    let text = "The relay answered something else; reload the page and try again.";
                    _ = wrong.try_set((text.to_owned(), false));
                }
            }
        });
    };
    let deleted = move || {
        is_deleted.get().then(|| {
            let text =
                "This note was deleted in the meantime. You can add this text as a new note.";
            view! { <p class="note-form__deleted">{text}</p> }.into_any()
        })
    };
    let save = move || if is_deleted.get() { "Add as new note" } else { "Save note" };
    let draft = Page::from_context().note_draft;
    view! {
        <form class="note-form" on:submit=submit>
            <h2>{title}</h2>
            <p class="sheet__where">{of}</p>
            <input class="field" aria-label="Note" node_ref=field value=known maxlength="240" autofocus=true
                autocomplete="off" placeholder="such as: epoch 3, learning rate lowered"/>
            <label class="note-form__time">"Time "
                <input class="field num" node_ref=at_field value=typed_at.get_untracked() maxlength="30" autocomplete="off"
                    spellcheck="false" on:input=move |event| typed_at.set(event_target_value(&event))/>
                <span>{age}</span>
            </label>
            <div role="alert">{deleted} <p class="gate__wrong">{complaint}</p></div>
            <div class="ask__ways">
                <button class="btn" type="button" on:click=move |_| draft.set(None)>"Cancel" <kbd>"Esc"</kbd></button>
                <button class="btn btn--primary" type="submit" disabled=move || waits.get()>{save}</button>
            </div>
        </form>
    }
    .into_any()
}

/// Parses a time of day with its date; `None` if it is none, or before 1970.
fn milliseconds(typed: &str) -> Option<u64> {
    u64::try_from(platform::parse_local_datetime(typed)?).ok()?.checked_mul(1_000)
}

/// Returns how long ago a moment is, or that it is to come.
fn age_text(at_s: i64, now_s: i64) -> Option<String> {
    let age_s = now_s.checked_sub(at_s)?;
    let span = text::span(age_s.unsigned_abs());
    Some(if age_s < 0 { format!("in {span}") } else { format!("{span} ago") })
}

fn request(draft: &NoteDraft, id: Option<NoteId>, at_ms: u64, text: Text) -> NoteRequest {
    match id {
        Some(id) => NoteRequest::Edit { id, edit: NoteEdit { text: Some(text), at_ms: Some(at_ms) } },
        None => NoteRequest::Add(NewNote {
            job: draft.job,
            node: draft.node.clone(),
            at_ms: Some(at_ms),
            text,
            source: NoteSource::Page,
        }),
    }
}
