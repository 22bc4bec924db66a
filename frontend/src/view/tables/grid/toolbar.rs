//! The toolbar above a table: title, number of matching rows, filter, and menus.

use super::column_menu::ColumnMenu;
use super::export_menu::ExportMenu;
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
    let (entries, order, error) = (grid.entries, grid.order, grid.error);
    let counts = Memo::new(move |_| (order.with(Vec::len), entries.with(Vec::len)));
    let count = move || match counts.get() {
        // The table itself says that it is empty.
        (_, 0) => String::new(),
        (passing, all) if passing == all => text::count(all, names.rows.0, names.rows.1),
        (passing, all) => {
            format!("{} of {}", text::grouped(passing as u64), text::count(all, names.rows.0, names.rows.1))
        }
    };
    let error = move || {
        error.get().map(|error| {
            let position = format!(" (at character {})", error.at + 1);
            view! { <p class="grid__error" id=format!("{}-error", names.id)>"◆ " {error.message} {position}</p> }
        })
    };
    view! {
        <div class="grid__bar">
            <h2>{names.title}</h2>
            <span class="grid__count" role="status">{move || count()}</span>
            <div class="grid__tools" hidden=move || empty.get()>
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
    let (names, filter_text, error) = (grid.names, grid.filter_text, grid.error);
    let input = grid.input;
    let key = grid.clone();
    let handle_key = move |event: KeyboardEvent| {
        event.stop_propagation();
        match event.key().as_str() {
            "Escape" => {
                key.type_filter(String::new());
                input.get_untracked().into_iter().for_each(|input| drop(input.blur()));
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
            node_ref=input
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
