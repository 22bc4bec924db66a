//! The form for a note: what it says, and when; the moment that was pointed at can be changed.

use crate::describe::note::{changed_text, outside_text, subject_text, too_long_text};
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
    let label_of = |id| page.job(id).map(|job| job.label.to_string());
    let of = untrack(|| subject_text(draft.job, draft.node.as_ref(), label_of));
    let known = draft.text.clone();
    let form = NoteForm::new(page, draft);
    let NoteForm { field, at_field, typed_at, waits, is_deleted, changed, .. } = form;
    // What is typed continues the text; browsers begin at its start.
    platform::effect(move || {
        field.get().into_iter().for_each(|field| drop(field.set_selection_range(u32::MAX, u32::MAX)));
    });
    let age = {
        let page = page.clone();
        move || age_text(platform::parse_local_datetime(&typed_at.get())?, page.wall_s())
    };
    let wrong = form.wrong;
    let complaint = move || wrong.with(|wrong| wrong.text(is_deleted.get()));
    let meanwhile = move || {
        let text = match (is_deleted.get(), changed.get()) {
            (true, _) => {
                "This note was deleted in the meantime. You can add this text as a new note.".to_owned()
            }
            (false, Some((text, at_ms))) => changed_text(text.as_str(), &local_clock(at_ms)),
            (false, None) => return None,
        };
        Some(view! { <p class="note-form__meanwhile">{text}</p> }.into_any())
    };
    let save = move || match (is_deleted.get(), changed.with(Option::is_some)) {
        (true, _) => "Add as new note",
        (false, true) => "Replace note",
        (false, false) => "Save note",
    };
    let submit = move |event: web_sys::SubmitEvent| {
        event.prevent_default();
        form.submit();
    };
    let draft = page.note_draft;
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
            <div role="alert">{meanwhile} <p class="gate__wrong">{complaint}</p></div>
            <div class="ask__ways">
                <button class="btn" type="button" on:click=move |_| draft.set(None)>"Cancel" <kbd>"Esc"</kbd></button>
                <button class="btn btn--primary" type="submit" disabled=waits>{save}</button>
            </div>
        </form>
    }
    .into_any()
}

/// Reason for not saving a note.
#[derive(Clone, Default)]
struct Mistake {
    text: String,
    /// Whether the relay refused to edit the note: this does not matter once the note is known to be deleted.
    of_edit: bool,
    /// The input in which it is.
    input: Option<NodeRef<Input>>,
}

impl Mistake {
    fn text(&self, is_deleted: bool) -> String {
        if self.of_edit && is_deleted { String::new() } else { self.text.clone() }
    }
}

/// A note that is being written, until it is saved.
#[derive(Clone)]
struct NoteForm {
    page: Page,
    draft: NoteDraft,
    /// The input for the text.
    field: NodeRef<Input>,
    /// The input for the time.
    at_field: NodeRef<Input>,
    typed_at: RwSignal<String>,
    /// Whether the note that is edited was deleted in the meantime.
    is_deleted: Memo<bool>,
    /// Text and time of the note that is edited, if somebody changed it in the meantime.
    changed: Memo<Option<(Text, u64)>>,
    /// Whether it is being saved.
    waits: RwSignal<bool>,
    wrong: RwSignal<Mistake>,
}

impl NoteForm {
    fn new(page: &Page, draft: NoteDraft) -> Self {
        // While the form is open, the notes belong to the same job or node.
        let (notes, edited) = (page.notes, draft.id);
        let is_deleted = Memo::new(move |_| {
            edited.is_some_and(|id| notes.with(|notes| notes.iter().all(|note| note.id != id)))
        });
        let (text, at_ms) = (draft.text.clone(), draft.at_ms);
        let changed = Memo::new(move |_| {
            let now = notes.with(|notes| {
                let note = notes.iter().find(|note| edited == Some(note.id))?;
                Some((note.text.clone(), note.at_ms))
            });
            now.filter(|(now, now_at_ms)| now.as_str() != text || *now_at_ms != at_ms)
        });
        Self {
            field: NodeRef::new(),
            at_field: NodeRef::new(),
            typed_at: RwSignal::new(local_clock(draft.at_ms)),
            is_deleted,
            changed,
            waits: RwSignal::new(false),
            wrong: RwSignal::new(Mistake::default()),
            page: page.clone(),
            draft,
        }
    }

    /// Saves the note, or shows what is wrong with it.
    fn submit(&self) {
        match self.entered() {
            Ok((at_ms, text)) => self.save(at_ms, text),
            Err(mistake) => {
                let input = mistake.input.and_then(|input| input.get_untracked());
                self.wrong.set(mistake);
                input.into_iter().for_each(|input| drop(input.focus()));
            }
        }
    }

    /// Reads the time, in ms since 1970, and the text.
    fn entered(&self) -> Result<(u64, Text), Mistake> {
        let at_ms = self.entered_time().map_err(|text| Mistake {
            text,
            of_edit: false,
            input: Some(self.at_field),
        })?;
        let typed = value_of(self.field);
        match note::text(&typed) {
            Ok(text) if text.as_str().is_empty() => Err(Mistake {
                text: "Enter what happened.".to_owned(),
                of_edit: false,
                input: Some(self.field),
            }),
            Ok(text) => Ok((at_ms, text)),
            Err(_) => Err(Mistake { text: too_long_text(&typed), ..Mistake::default() }),
        }
    }

    fn entered_time(&self) -> Result<u64, String> {
        // A time that was not changed keeps its milliseconds.
        let at_ms = match value_of(self.at_field) {
            same if same.trim() == local_clock(self.draft.at_ms) => Some(self.draft.at_ms),
            typed => milliseconds(&typed),
        };
        let at_ms = at_ms.ok_or_else(|| "Enter a time such as 2026-11-25 09:14:03.".to_owned())?;
        let job = untrack(|| self.draft.job.and_then(|id| self.page.job(id)));
        // The relay refuses it as well, but with times in UTC: it does not know the time zone of the browser.
        job.and_then(|job| outside_text(&job, at_ms, local_clock)).map_or(Ok(at_ms), Err)
    }

    /// Sends the note to the relay, and closes the form once it is saved.
    fn save(&self, at_ms: u64, text: Text) {
        let id = self.draft.id.filter(|_| !self.is_deleted.get_untracked());
        // What the form shows is replaced, and nothing newer.
        let known = self.changed.get_untracked();
        let known = known.unwrap_or_else(|| (self.draft.text.as_str().into(), self.draft.at_ms));
        let request = request(&self.draft, id.map(|id| (id, known)), at_ms, text);
        let (page, waits, wrong) = (self.page.clone(), self.waits, self.wrong);
        waits.set(true);
        leptos::task::spawn_local(async move {
            let answer = page.request(Request::Note(request)).await;
            // The sheet may be closed by now.
            waits.try_set(false);
            let refused = match answer {
                Response::Note(saved) => return close_saved(page, saved.is_stored),
                Response::Refused(why) => Mistake {
                    text: text::sentence(why.as_str()),
                    of_edit: id.is_some(),
                    ..Mistake::default()
                },
                _ => Mistake {
                    text: "The relay answered something else; reload the page and try again.".to_owned(),
                    ..Mistake::default()
                },
            };
            wrong.try_set(refused);
        });
    }
}

/// Closes the form of a note that was saved.
fn close_saved(page: Page, is_stored: bool) {
    page.note_draft.set(None);
    // Data of a simulated cluster is not stored.
    let is_simulated = page.fleet.welcome().is_some_and(|welcome| welcome.mode == Mode::Demo);
    if !is_stored && !is_simulated {
        show_toast(page, "The note is shown, but could not be stored yet.".to_owned(), false);
    }
}

fn value_of(field: NodeRef<Input>) -> String {
    field.get_untracked().map(|field| field.value()).unwrap_or_default()
}

fn local_clock(at_ms: u64) -> String {
    platform::local_datetime((at_ms / 1_000).cast_signed())
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

/// The request to save a note; `edited` is the known one, with its text and time.
fn request(draft: &NoteDraft, edited: Option<(NoteId, (Text, u64))>, at_ms: u64, text: Text) -> NoteRequest {
    match edited {
        Some((id, (known, known_ms))) => {
            let (if_text, if_at_ms) = (Some(known), Some(known_ms));
            NoteRequest::Edit {
                id,
                edit: NoteEdit { text: Some(text), at_ms: Some(at_ms), if_text, if_at_ms },
            }
        }
        None => NoteRequest::Add(NewNote {
            job: draft.job,
            node: draft.node.clone(),
            at_ms: Some(at_ms),
            text,
            source: NoteSource::Page,
        }),
    }
}
