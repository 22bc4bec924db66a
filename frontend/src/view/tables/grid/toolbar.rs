//! The toolbar above a table: title, number of matching rows, filter, and menus.

use super::column_menu::ColumnMenu;
use super::export_menu::ExportMenu;
use super::head::HELD;
use super::state::Grid;
use crate::domain::text;
use leptos::prelude::*;
use web_sys::KeyboardEvent;

/// The toolbar.
#[component]
pub fn Toolbar(
    /// The table.
    grid: Grid,
) -> impl IntoView {
    let names = grid.names;
    let empty = grid.is_empty();
    let (entries, matching, error, filter_text) =
        (grid.rows.entries, grid.rows.matching, grid.rows.error, grid.rows.filter_text);
    let source = grid.source.clone();
    let count = Memo::new(move |_| {
        let (passing, all) = (matching.with(Vec::len), entries.with(Vec::len));
        if all == 0 {
            return String::new();
        }
        let counted = entries.with(|entries| untrack(|| source.counted(entries)));
        if passing == all {
            return counted;
        }
        let notes = matching.with(|rows| rows.iter().filter(|entry| source.is_note(entry)).count());
        format!("{} of {counted}", text::grouped((passing - notes) as u64))
    });
    let held = grid.rows.is_held;
    let error = move || {
        error.get().map(|error| {
            // Of several terms, the position names the right one.
            let several = filter_text.with(|text| text.as_deref().is_some_and(|text| text.trim().contains(' ')));
            let position = several.then(|| format!(" (at character {})", error.at + 1));
            view! { <p class="grid__error" id=format!("{}-error", names.id)>"◆ " {error.message} {position}</p> }
        })
    };
    view! {
        <div class="grid__bar">
            <h2>{names.title}</h2>
            <span class="grid__count" role="status">{count}</span>
            <span class="grid__held" class:is-held=held
                title=HELD>
                "sorting paused"
            </span>
            <div class="grid__tools" hidden=empty>
                <Input grid=grid.clone()/>
                <ColumnMenu grid=grid.clone()/>
                <ExportMenu grid=grid.clone()/>
            </div>
        </div>
        {error}
    }
}

#[component]
fn Input(grid: Grid) -> impl IntoView {
    let (names, filter_text, error) = (grid.names, grid.rows.filter_text, grid.rows.error);
    let key = grid.clone();
    let handle_key = move |event: KeyboardEvent| {
        event.stop_propagation();
        match event.key().as_str() {
            "Escape" => {
                key.type_filter(String::new());
                key.focus_table();
            }
            "Enter" | "ArrowDown" => {
                event.prevent_default();
                key.focus_rows();
            }
            _ => {}
        }
    };
    view! {
        <input
            class="grid__filter"
            type="search"
            node_ref=grid.input
            placeholder="Filter  /"
            title=format!("For example: {}", names.example)
            aria-label=format!("Filter {}", names.rows.1)
            aria-invalid=move || if error.with(Option::is_some) { "true" } else { "false" }
            autocomplete="off"
            spellcheck="false"
            prop:value=move || filter_text.get().unwrap_or_default()
            on:input=move |event| grid.type_filter(event_target_value(&event))
            on:keydown=handle_key
        />
    }
}
