//! A figure is a reading as text; where there is none, a dash says why.

use crate::lazy::{lazy, words};
use crate::text;
use leptos::prelude::*;
use nodeglass_protocol::Cell;

/// One reading.
#[component]
pub fn Figure(
    /// The cell.
    #[prop(into)]
    cell: Signal<Cell>,
    /// What a step of the cell's field is worth, and how it is written.
    write: fn(u32) -> String,
) -> impl IntoView {
    view! {
        <span class="num" class:absent=lazy(move || cell.get().value().is_none()) title=lazy(move || text::absence(cell.get()))>
            {words(move || text::or_absent(cell.get().value().map(write)))}
        </span>
    }
}
