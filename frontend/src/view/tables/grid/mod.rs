//! The table component: sorted, filtered, configured, exported, and rendered only near the viewport.

mod body;
mod cell;
mod column_menu;
mod empty_columns;
mod export_menu;
mod grids;
mod head;
mod keys;
mod row_values;
mod rows;
mod source;
mod state;
mod toolbar;
mod updater;
mod viewport;

pub use cell::{figure, link};
pub use grids::{Grids, TableMenu};
pub use source::{
    CustomCell, Folding, ProcessKey, RowEntry, RowFlags, RowSource, RowSubject, SharedSource, TableNames,
};
pub use state::Grid;

use crate::platform::{self, Listener};
use crate::state::page::Page;
use leptos::prelude::*;
use leptos::wasm_bindgen::JsCast as _;

/// A table with its filter and its menus.
#[component]
pub fn Table(
    /// The rows it shows.
    source: SharedSource,
) -> impl IntoView {
    let page = Page::from_context();
    let grid = Grid::new(&page, source);
    Grids::from_context().add(&grid);
    measure(&grid);
    let empty = grid.is_empty();
    let names = grid.names;
    view! {
        <section class=format!("grid grid--{}", names.id) aria-label=names.title>
            <toolbar::Toolbar grid=grid.clone()/>
            <Box grid=grid.clone() empty/>
        </section>
    }
}

#[component]
fn Box(grid: Grid, empty: Memo<bool>) -> impl IntoView {
    let names = grid.names;
    let (viewport, is_hovered, wide) = (grid.viewport, grid.rows.is_hovered, grid.is_wide);
    let (count, is_summed) = (grid.rows.order, grid.has_room_for_sums());
    let (key, active, width) = (grid.clone(), grid.clone(), grid.clone());
    let folding = grid.rows.folding;
    let folds = Memo::new(move |_| folding.with(Option::is_some));
    let is_focused = RwSignal::new(false);
    let inside = {
        let grid = grid.clone();
        // Other columns recreate the table; other rows do not.
        move || {
            let shown = grid.shown.get();
            view! {
                <head::Head grid=grid.clone() shown=shown.clone()/>
                <body::Body grid=grid.clone() shown=shown.clone()/>
                <body::Footer grid=grid.clone() shown/>
            }
        }
    };
    view! {
        <div
            class="grid__box"
            class:grid__box--wide=wide
            class:grid__box--summed=is_summed
            class:grid__box--folds=folds
            class:grid__box--focus=is_focused
            node_ref=viewport.outer
            hidden=empty
            on:scroll=move |_| viewport.on_scroll()
            on:pointerenter=move |_| is_hovered.set(true)
            on:pointerleave=move |_| is_hovered.set(false)
        >
            <table
                class="table"
                role="grid"
                tabindex="0"
                aria-label=names.title
                aria-rowcount=move || (count.with(Vec::len) + 1).to_string()
                aria-activedescendant=move || active.active_row()
                style:min-width=move || width.min_width()
                on:keydown=move |event| {
                    is_focused.set(is_focus_visible(&event));
                    keys::handle_key(&key, &event);
                }
                on:focus=move |event| is_focused.set(is_focus_visible(&event))
                on:blur=move |_| is_focused.set(false)
            >
                {inside}
            </table>
            <Unfold grid=grid.clone()/>
        </div>
    }
}

/// Returns whether the focused table of an event has a focus ring, which follows the keyboard and not the pointer. Not by
/// `:has()`: that costs the styles of the page as much as all scripts.
fn is_focus_visible(event: &web_sys::Event) -> bool {
    let table = event.current_target().and_then(|target| target.dyn_into::<web_sys::Element>().ok());
    table.is_some_and(|table| table.matches(":focus-visible").unwrap_or(false))
}

/// The button below a table that shows its folded rows, or hides them again.
#[component]
fn Unfold(grid: Grid) -> impl IntoView {
    let (folding, is_unfolded) = (grid.rows.folding, grid.rows.is_unfolded);
    move || {
        let rest = folding.with(|folding| folding.as_ref().map(|folding| folding.rest.clone()))?;
        let (mark, label) = if is_unfolded.get() { ("▾", "Show fewer".to_owned()) } else { ("▸", rest) };
        let grid = grid.clone();
        Some(view! {
            <button class="grid__unfold" aria-expanded=is_unfolded.get().to_string() on:click=move |_| grid.toggle_fold()>
                <span aria-hidden="true">{mark}</span> {label}
            </button>
        })
    }
}

/// Observes the available width, and which part of the table is visible.
fn measure(grid: &Grid) {
    let (first, later) = (grid.clone(), grid.clone());
    let visibility = StoredValue::new_local(None);
    platform::effect(move || {
        first.viewport.outer.track();
        first.measure();
        visibility.set_value(first.viewport.observe());
    });
    StoredValue::new_local(Listener::new(window(), "resize", move |_| later.measure()));
}
