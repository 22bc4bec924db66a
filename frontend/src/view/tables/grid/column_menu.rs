//! The menu for choosing and ordering columns, reachable by keyboard.

use super::state::Grid;
use crate::table::choice::Choice;
use crate::view::widgets::menu::Menu;
use leptos::prelude::*;
use std::sync::Arc;

/// The column menu.
#[component]
pub fn ColumnMenu(
    /// The table.
    grid: Grid,
) -> impl IntoView {
    let open = RwSignal::new(false);
    let inside = Arc::new(move || inside(&grid));
    view! { <Menu title="Columns" about="Choose and order the columns" open inside/> }
}

fn inside(grid: &Grid) -> AnyView {
    let (shown, count) = (grid.shown, grid.columns.len());
    // Shown columns first, in their order.
    let order = Memo::new(move |_| {
        shown.with(|shown| {
            let hidden = (0..count).filter(|at| !shown.contains(at));
            shown.iter().copied().chain(hidden).collect::<Vec<_>>()
        })
    });
    let (item, reset) = (grid.clone(), grid.clone());
    let empty = grid.empty_columns();
    let entry = move |at| entry(&item, at, empty.contains(&at));
    view! {
        <ul class="menu__list"><For each=move || order.get() key=usize::clone children=entry/></ul>
        <button class="btn" on:click=move |_| reset.choose(Choice::default())>"Reset columns"</button>
    }
    .into_any()
}

fn entry(grid: &Grid, at: usize, is_empty: bool) -> AnyView {
    let column = untrack(|| grid.column(at));
    let shown = grid.shown;
    let is_shown = Memo::new(move |_| shown.with(|shown| shown.contains(&at)));
    let toggle = {
        let grid = grid.clone();
        move |_| grid.choose(grid.choice.with_untracked(|choice| choice.toggled(at, &shown.get_untracked())))
    };
    let step = |step: isize| {
        let grid = grid.clone();
        move |_| {
            grid.choose(grid.choice.with_untracked(|choice| choice.moved(at, step, &shown.get_untracked())))
        }
    };
    let label = |way: &str| format!("{} further {way}", column.full_title());
    view! {
        <li>
            <label title=column.about>
                <input type="checkbox" prop:checked=is_shown on:change=toggle/>
                <span>{column.full_title()}</span>
                <small>{is_empty.then(|| view! { <b class="absent">"no values here"</b> " · " })} {column.about}</small>
            </label>
            <button class="menu__step" aria-label=label("left") hidden=move || !is_shown.get() on:click=step(-1)>"↑"</button>
            <button class="menu__step" aria-label=label("right") hidden=move || !is_shown.get() on:click=step(1)>"↓"</button>
        </li>
    }
    .into_any()
}
