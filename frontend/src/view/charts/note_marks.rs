//! The notes of a graph: a thin line at the time of each, with a label where there is room.

use crate::chart::{NoteMark, Side, Window, note_marks};
use crate::describe::note::mark_label;
use crate::domain::text;
use crate::state::page::Page;
use leptos::prelude::*;

/// The marks of the notes in view. Each is moved by a transform alone, which costs no layout.
#[component]
pub fn NoteMarks(
    /// The steps.
    window: Memo<Window>,
) -> impl IntoView {
    let page = Page::from_context();
    let notes = page.notes;
    let marks = Memo::new(move |_| {
        let times = page.note_times.get();
        if times.is_empty() { Vec::new() } else { note_marks(&window.get(), &times) }
    });
    // Keyed by what they say, so that a mark that moves with time keeps its elements.
    let keys = Memo::new(move |_| {
        let key = |mark: &NoteMark| {
            let label = mark.label.map(|side| {
                notes.with(|notes| notes.get(mark.first).map(|note| (side, mark_label(note, mark.count))))
            });
            (notes.with(|notes| notes.get(mark.first).map(|note| note.id)), label.flatten())
        };
        marks.with(|marks| marks.iter().map(key).collect::<Vec<_>>())
    });
    let one = move |(id, label): (Option<nodeglass_protocol::note::NoteId>, Option<(Side, String)>)| {
        let share = move || {
            let place = notes.with(|notes| notes.iter().position(|note| Some(note.id) == id));
            marks.with(|marks| marks.iter().find(|mark| Some(mark.first) == place).map(|mark| mark.share))
        };
        let transform = move || share().map(|share| format!("translateX({}%)", text::tenths(share * 100.0)));
        let room = move || {
            let place = notes.with(|notes| notes.iter().position(|note| Some(note.id) == id));
            marks.with(|marks| marks.iter().find(|mark| Some(mark.first) == place).map(|mark| mark.room))
        };
        let widest = move || room().map(|room| format!("calc({}% - 6px)", text::tenths(room * 100.0)));
        let label = label.map(|(side, label)| {
            let class = if side == Side::Left { "stage__label stage__label--left" } else { "stage__label" };
            view! { <b class=class style:max-width=widest>{label}</b> }.into_any()
        });
        view! { <i class="stage__note" style:transform=transform>{label}</i> }
    };
    view! {
        <span class="stage__veil" aria-hidden="true">
            <For each=move || keys.get() key=Clone::clone children=one/>
        </span>
    }
}
