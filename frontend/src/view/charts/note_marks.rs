//! The notes of a graph: a thin line at the time of each, with a label where there is room.

use crate::chart::{NoteMark, Side, Window, note_marks, shown_times};
use crate::describe::note::{mark_label, text_in_graph};
use crate::domain::text;
use crate::platform::{self, Observer};
use crate::state::page::Page;
use leptos::html::Span;
use leptos::prelude::*;
use nodeglass_protocol::note::NoteId;

/// Font of a label, as in the style sheet.
const LABEL_FONT: &str = "500 11px";
/// Inner distance of a label's text from both of its edges together, and the rounding of its width, in pixels.
const LABEL_PAD_PX: f64 = 9.0;

/// The marks of the notes in view. Each is moved by a transform alone, which costs no layout.
#[component]
pub fn NoteMarks(
    /// The steps.
    window: Memo<Window>,
) -> impl IntoView {
    let (page, veil) = (Page::from_context(), NodeRef::<Span>::new());
    let notes = page.notes;
    let marks = placed_marks(page.clone(), window, width_px(veil));
    // Keyed by what they say, so that a mark that moves with time keeps its elements.
    let keys = Memo::new(move |_| {
        let key = |mark: &NoteMark| {
            let label = mark.label.and_then(|side| Some((side, label(&page, mark.first, mark.count)?)));
            (notes.with(|notes| notes.get(mark.first).map(|note| note.id)), label)
        };
        marks.with(|marks| marks.iter().map(key).collect::<Vec<_>>())
    });
    let one = move |(id, label): (Option<NoteId>, Option<(Side, String)>)| {
        let share = move || {
            let place = notes.with(|notes| notes.iter().position(|note| Some(note.id) == id));
            marks.with(|marks| marks.iter().find(|mark| Some(mark.first) == place).map(|mark| mark.share))
        };
        let transform = move || share().map(|share| format!("translateX({}%)", text::tenths(share * 100.0)));
        let label = label.map(|(side, label)| {
            let class = if side == Side::Left { "stage__label stage__label--left" } else { "stage__label" };
            view! { <b class=class>{label}</b> }.into_any()
        });
        view! { <i class="stage__note" style:transform=transform>{label}</i> }
    };
    view! {
        <span class="stage__veil stage__notes" aria-hidden="true" node_ref=veil>
            <For each=move || keys.get() key=Clone::clone children=one/>
        </span>
    }
}

/// Returns the width of an element in pixels, updated when it changes.
fn width_px(element: NodeRef<Span>) -> RwSignal<i32> {
    let (width_px, sizes) = (RwSignal::new(0), StoredValue::new_local(None));
    platform::effect(move || {
        let Some(element) = element.get() else { return };
        let seen = element.clone();
        sizes.set_value(Observer::sizes(&element, move || {
            let now_px = seen.client_width();
            if width_px.get_untracked() != now_px {
                width_px.set(now_px);
            }
        }));
    });
    width_px
}

/// Returns the marks in view, with labels where there is room.
fn placed_marks(page: Page, window: Memo<Window>, width_px: RwSignal<i32>) -> Memo<Vec<NoteMark>> {
    Memo::new(move |_| {
        let times = page.note_times.get();
        if times.is_empty() {
            return Vec::new();
        }
        let label_px = |first, count| {
            let label = label(&page, first, count);
            label.map_or(0.0, |label| platform::text_width_px(&label, LABEL_FONT) + LABEL_PAD_PX)
        };
        let window = window.get();
        let times = shown_times(&window, &times, page.ended_ms.get());
        note_marks(&window, &times, f64::from(width_px.get()), label_px)
    })
}

/// Returns the label of `count` notes from `first` on.
fn label(page: &Page, first: usize, count: usize) -> Option<String> {
    page.notes.with(|notes| {
        let note = notes.get(first)?;
        Some(mark_label(&text_in_graph(note, page.is_after_end(note)), count))
    })
}
