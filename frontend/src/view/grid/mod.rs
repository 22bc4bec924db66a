//! The one table of the page: sorted, filtered, chosen from, taken along, and drawn only where the eye is.

mod bar;
mod body;
mod cell;
mod columns;
mod head;
mod keys;
mod menu;
mod source;
mod state;
mod take;
mod updater;

pub use cell::{figure, link};
pub use source::{Entry, Marks, Names, Own, ProcessKey, Shared, Source, Subject};
pub use state::{Grid, Grids};

use crate::browser::Listener;
use crate::page::Page;
use leptos::prelude::*;

/// A table with its filter and its menus.
#[component]
pub fn Table(
    /// What it shows.
    source: Shared,
) -> impl IntoView {
    let page = Page::here();
    let grid = Grid::new(&page, source);
    page.grids.add(&grid);
    measure(&grid);
    let empty = grid.is_empty();
    let names = grid.names;
    view! {
        <section class=format!("grid grid--{}", names.id) aria-label=names.title>
            <bar::Bar grid=grid.clone()/>
            <Box grid=grid.clone() empty/>
            {move || empty.get().then(|| view! { <p class="grid__none">{format!("No {} to see here.", names.rows.1)}</p> }.into_any())}
        </section>
    }
}

#[component]
fn Box(grid: Grid, empty: Memo<bool>) -> impl IntoView {
    let names = grid.names;
    let (scroll, over, out) = (grid.clone(), grid.clone(), grid.clone());
    let count = grid.order;
    let (key, active, width) = (grid.clone(), grid.clone(), grid.clone());
    let inside = {
        let grid = grid.clone();
        // Other columns are another table; other rows are not.
        move || {
            let shown = grid.shown.get();
            view! {
                <head::Head grid=grid.clone() shown=shown.clone()/>
                <body::Body grid=grid.clone() shown=shown.clone()/>
                <body::Foot grid=grid.clone() shown/>
            }
        }
    };
    view! {
        <div
            class="grid__box"
            node_ref=grid.outer
            hidden=move || empty.get()
            on:scroll=move |_| scroll.scrolled()
            on:pointerenter=move |_| over.held.set(true)
            on:pointerleave=move |_| out.held.set(false)
        >
            <table
                class="table"
                role="grid"
                tabindex="0"
                aria-label=names.title
                aria-rowcount=move || (count.with(Vec::len) + 1).to_string()
                aria-activedescendant=move || active.active_row()
                style:min-width=move || width.least_width()
                on:keydown=move |event| keys::hear(&key, &event)
            >
                {inside}
            </table>
        </div>
    }
}

/// Follows how much room there is, and which part of it can be seen.
fn measure(grid: &Grid) {
    let (first, later) = (grid.clone(), grid.clone());
    let sight = StoredValue::new_local(None);
    Effect::new(move || {
        first.outer.track();
        first.measure();
        sight.set_value(first.follow_sight());
    });
    StoredValue::new_local(Listener::new(window(), "resize", move |_| later.measure()));
}
