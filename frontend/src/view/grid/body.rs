//! The rows of a table near the eye, the room of the others, and the sums below.

use super::cell;
use super::source::{Entry, Marks};
use super::state::Grid;
use crate::lazy::{Memo, lazy, memo, rows};
use crate::markup::view;
use crate::table::column::Sum;
use crate::table::{Value, sum};
use leptos::prelude::*;
use std::sync::Arc;

/// What is shown of a row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Line {
    /// What stands in its shown columns.
    pub values: Vec<Value>,
    /// How it is to be taken.
    pub marks: Marks,
}

impl Line {
    /// What stands at a place.
    pub fn value(&self, at: usize) -> &Value {
        self.values.get(at).unwrap_or(&Value::NONE)
    }
}

/// The rows.
#[component]
pub fn Body(
    /// The table.
    grid: Grid,
    /// Its shown columns.
    shown: Vec<usize>,
) -> impl IntoView {
    let (above, below) = grid.spaces();
    let space = |height: Memo<u32>| {
        view! {
            <tr aria-hidden="true" class="grid__space" hidden=lazy(move || height.get() == 0)>
                <td style:height=lazy(move || format!("{}px", height.get()))></td>
            </tr>
        }
    };
    let shown = Arc::new(shown);
    let visible = grid.visible();
    let row = {
        let grid = grid.clone();
        move |entry: Entry| row(&grid, &shown, entry, visible)
    };
    let list = rows(visible, |entry| entry.key.to_string(), row);
    view! { <tbody>{space(above)} {list} {space(below)}</tbody> }
}

fn row(grid: &Grid, shown: &Arc<Vec<usize>>, entry: Entry, visible: Memo<Vec<Entry>>) -> AnyView {
    let line = memo({
        let (source, entry, shown) = (grid.source.clone(), entry.clone(), shown.clone());
        move || {
            source.track(&entry);
            let values = shown.iter().map(|at| source.value(&entry, *at)).collect();
            Arc::new(Line { values, marks: source.marks(&entry) })
        }
    });
    let place = {
        let (key, window) = (entry.key.clone(), grid.window);
        move || {
            visible.with(|rows| rows.iter().position(|row| row.key == key)).map(|at| at + window.get().first)
        }
    };
    let cells = {
        let first = untrack(|| line.get());
        let cells =
            shown.iter().enumerate().map(|(at, column)| cell::cell(grid, &entry, &first, at, *column));
        let (cells, written): (Vec<_>, Vec<_>) = cells.unzip();
        cell::keep_written(grid, line, written.into_iter().flatten().collect());
        cells
    };
    let marks = memo(move || line.with(|line| line.marks));
    let selected = {
        let (key, selected) = (entry.key.clone(), grid.selected);
        memo(move || selected.with(|selected| selected.as_ref() == Some(&key)))
    };
    let class = {
        let is_part = entry.depth > 0;
        move || {
            let Marks { foreign, lost, stale } = marks.get();
            let all = [
                (is_part, "is-part"),
                (foreign, "is-foreign"),
                (lost, "is-lost"),
                (stale, "is-stale"),
                (selected.get(), "is-selected"),
            ];
            all.into_iter().filter(|(holds, _)| *holds).map(|(_, class)| class).collect::<Vec<_>>().join(" ")
        }
    };
    let click = {
        let (grid, entry) = (grid.clone(), entry.clone());
        move |_| {
            grid.selected.set(Some(entry.key.clone()));
            grid.source.open(&entry);
        }
    };
    view! {
        <tr
            id=grid.row_id(&entry.key)
            title=grid.source.about(&entry)
            class=lazy(class)
            aria-selected=lazy(move || if selected.get() { "true" } else { "false" })
            aria-rowindex=lazy(move || place().map(|place| (place + 2).to_string()))
            on:click=click
        >
            {cells}
        </tr>
    }
    .into_any()
}

/// The sums of the rows that pass, if any column has one and there are several rows.
#[component]
pub fn Foot(
    /// The table.
    grid: Grid,
    /// Its shown columns.
    shown: Vec<usize>,
) -> impl IntoView {
    let sums = shown.iter().any(|at| grid.columns[*at].sum != Sum::None);
    let several = memo({
        let order = grid.order;
        move || order.with(|order| order.len() > 1)
    });
    let line = memo({
        let (grid, shown) = (grid.clone(), shown.clone());
        move || {
            grid.track_second();
            Arc::new(summed(&grid, &shown))
        }
    });
    let first = untrack(|| line.get());
    let cells = shown.iter().enumerate().map(|(at, column)| cell::sum(&grid, &first, at, *column));
    let (cells, written): (Vec<_>, Vec<_>) = cells.unzip();
    cell::keep_written(&grid, line, written.into_iter().flatten().collect());
    sums.then(|| {
        view! {
            <tfoot hidden=lazy(move || !several.get())>
                <tr>{cells}</tr>
            </tfoot>
        }
    })
}

/// The sums of the rows whose values are of now; parts of a GPU are in it already.
fn summed(grid: &Grid, shown: &[usize]) -> Line {
    let counts = |entry: &&Entry| entry.depth == 0 && !grid.source.marks(entry).stale;
    let values = grid.order.with(|order| {
        let fresh: Vec<&Entry> = order.iter().filter(counts).collect();
        let column = |at: &usize| {
            let values = fresh.iter().map(|entry| grid.source.value(entry, *at));
            match grid.columns[*at].sum {
                Sum::None => Value::NONE,
                kind => sum::of(kind, values),
            }
        };
        shown.iter().map(column).collect()
    });
    Line { values, marks: Marks::default() }
}
