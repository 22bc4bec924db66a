//! The form for a note: what it says, at the moment that was pointed at.

use crate::domain::text;
use crate::platform;
use crate::state::page::{NoteDraft, Page};
use crate::view::widgets::actions::show_toast;
use crate::view::widgets::sheet::{Close, Sheet};
use leptos::html::Input;
use leptos::prelude::*;
use nodeglass_protocol::note::{NewNote, NoteEdit, NoteRequest, NoteSource};
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
    let (field, wrong, waits) = (NodeRef::<Input>::new(), RwSignal::new(String::new()), RwSignal::new(false));
    let of = match draft.job {
        Some(id) => {
            untrack(|| page.job(id)).map_or_else(|| format!("job {id}"), |job| format!("job {}", job.label))
        }
        None => draft.node.as_ref().map_or_else(|| "the whole cluster".to_owned(), ToString::to_string),
    };
    let at_s = (draft.at_ms / 1_000).cast_signed();
    let ago_s = untrack(|| page.wall_s()).saturating_sub(at_s).max(0).unsigned_abs();
    let at = if ago_s < 86_400 { platform::clock_of_day(at_s) } else { platform::minute_of_date(at_s) };
    let when = format!("{of}, at {at} ({} ago)", text::span(ago_s));
    let (page, known) = (page.clone(), draft.text.clone());
    let submit = move |event: web_sys::SubmitEvent| {
        event.prevent_default();
        let typed = field.get_untracked().map(|field| field.value()).unwrap_or_default();
        let request = request(&draft, typed.as_str().into());
        let page = page.clone();
        waits.set(true);
        leptos::task::spawn_local(async move {
            let answer = page.request(Request::Note(request)).await;
            // The sheet may be closed by now.
            waits.try_set(false);
            match answer {
                Response::Note(saved) => {
                    page.note_draft.set(None);
                    if !saved.is_stored {
                        let text = "The note is shown, but could not be stored yet.";
                        show_toast(page, text.to_owned(), false);
                    }
                }
                Response::Refused(why) => _ = wrong.try_set(why.to_string()),
                _ => _ = wrong.try_set("Unexpected reply from the relay.".to_owned()),
            }
        });
    };
    view! {
        <form class="note-form" on:submit=submit>
            <h2>{title}</h2>
            <p class="sheet__where">{when}</p>
            <input class="field" aria-label="Note" node_ref=field value=known maxlength="200" autofocus=true
                autocomplete="off" placeholder="such as: epoch 3, learning rate lowered"/>
            <p class="gate__wrong" role="alert">{move || wrong.get()}</p>
            <div class="ask__ways">
                <button class="btn btn--primary" type="submit" disabled=move || waits.get()>"Save note"</button>
            </div>
        </form>
    }
    .into_any()
}

fn request(draft: &NoteDraft, text: nodeglass_protocol::Text) -> NoteRequest {
    match draft.id {
        Some(id) => NoteRequest::Edit { id, edit: NoteEdit { text: Some(text), at_ms: None } },
        None => NoteRequest::Add(NewNote {
            job: draft.job,
            node: draft.node.clone(),
            at_ms: Some(draft.at_ms),
            text,
            source: NoteSource::Page,
        }),
    }
}
