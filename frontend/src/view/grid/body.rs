//! The rows of a table near the eye, the room of the others, and the sums below.

use super::cell::{self, Written};
use super::source::{Entry, Marks};
use super::state::Grid;
use crate::lazy::{Memo, Writers, effect, lazy, memo, rows};
use crate::markup::{Spot, view};
use crate::scheme::Scheme;
use crate::settings::Theme;
use crate::table::column::Sum;
use crate::table::window::Window;
use crate::table::{Value, sum};
use leptos::prelude::*;
use send_wrapper::SendWrapper;
use std::cell::RefCell;
use std::rc::Rc;
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
    /// What is shown of a row now.
    fn of(grid: &Grid, entry: &Entry, shown: &[usize]) -> Self {
        let mut values = Vec::with_capacity(shown.len());
        grid.source.values(entry, shown, &mut values);
        Self { values, marks: grid.source.marks(entry) }
    }

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
    let now = Rc::new(RefCell::new(Now::of(&grid, visible)));
    let writers = Writers::woken_by({
        let (grid, now) = (grid.clone(), now.clone());
        move || *now.borrow_mut() = Now::of(&grid, visible)
    });
    let now = SendWrapper::new(now);
    let row = {
        let grid = grid.clone();
        move |entry: Entry| untrack(|| row(&grid, &shown, &entry, &now, &writers))
    };
    let list = rows(visible, |entry| entry.key.to_string(), row);
    view! { <tbody>{space(above)} {list} {space(below)}</tbody> }
}

/// A row that nobody sees is written once in so many seconds, each in its turn: who looks for a word in the page, or has it
/// read aloud, finds nothing older.
const TURN_S: u64 = 10;

/// What holds for all rows while they are written.
struct Now {
    step: u64,
    second: u64,
    seen: Window,
    looks: (Theme, Scheme, u64),
    selected: Option<Arc<str>>,
    /// The place of the first row that is drawn.
    first: usize,
    rows: Vec<Arc<str>>,
}

impl Now {
    /// As it is now; wakes the caller when a row may have changed, too.
    fn of(grid: &Grid, visible: Memo<Vec<Entry>>) -> Self {
        let second = if grid.in_sight.get() {
            grid.source.track();
            untrack(|| grid.second())
        } else {
            grid.second()
        };
        Self {
            step: grid.step(),
            second,
            seen: grid.seen.get(),
            looks: grid.looks(),
            selected: grid.selected.get(),
            first: grid.window.get().first,
            rows: visible.with(|rows| rows.iter().map(|row| row.key.clone()).collect()),
        }
    }

    /// Whether a row is written now.
    fn writes(&self, place: Option<usize>) -> bool {
        place.is_none_or(|at| self.seen.holds(at) || at as u64 % TURN_S == self.second % TURN_S)
    }

    /// The place of a row among all that pass, if it is drawn; mostly where it was.
    fn place(&self, key: &Arc<str>, before: Option<usize>) -> Option<usize> {
        let same = before.and_then(|at| at.checked_sub(self.first));
        let same = same.filter(|at| self.rows.get(*at) == Some(key));
        same.or_else(|| self.rows.iter().position(|row| row == key)).map(|at| at + self.first)
    }
}

/// A row as it was last written.
struct Last {
    stamp: (u64, u64),
    looks: (Theme, Scheme, u64),
    line: Line,
    selected: bool,
    place: Option<usize>,
}

impl Last {
    fn class(&self, is_part: bool) -> String {
        let Marks { foreign, lost, stale } = self.line.marks;
        let all = [
            (is_part, "is-part"),
            (foreign, "is-foreign"),
            (lost, "is-lost"),
            (stale, "is-stale"),
            (self.selected, "is-selected"),
        ];
        all.into_iter().filter(|(holds, _)| *holds).map(|(_, class)| class).collect::<Vec<_>>().join(" ")
    }
}

fn row(
    grid: &Grid,
    shown: &Arc<Vec<usize>>,
    entry: &Entry,
    now: &Rc<RefCell<Now>>,
    writers: &Writers,
) -> AnyView {
    let current = now.borrow();
    let first = Last {
        // What is drawn in its own way is written for the first time with all others.
        stamp: (u64::MAX, 0),
        looks: current.looks,
        line: Line::of(grid, entry, shown),
        selected: current.selected.as_ref() == Some(&entry.key),
        place: current.place(&entry.key, None),
    };
    let cells =
        shown.iter().enumerate().map(|(at, column)| cell::cell(grid, entry, &first.line, at, *column));
    let (cells, written): (Vec<_>, Vec<_>) = cells.unzip();
    let written: Vec<Written> = written.into_iter().flatten().collect();
    let (spot, is_part) = (Spot::default(), entry.depth > 0);
    let click = {
        let (grid, entry) = (grid.clone(), entry.clone());
        move |_| {
            grid.selected.set(Some(entry.key.clone()));
            grid.source.open(&entry);
        }
    };
    let drawn = view! {
        <tr
            node_ref=spot.clone()
            id=grid.row_id(&entry.key)
            title=grid.source.about(entry)
            class=first.class(is_part)
            aria-selected=if first.selected { "true" } else { "false" }
            aria-rowindex=first.place.map(row_index)
            on:click=click
        >
            {cells}
        </tr>
    }
    .into_any();
    drop(current);
    let last = RefCell::new(first);
    let (grid, entry, shown, now) = (grid.clone(), entry.clone(), shown.clone(), now.clone());
    writers.add(move || {
        let (mut last, now) = (last.borrow_mut(), now.borrow());
        let stamp = (grid.source.stamp(&entry), now.step);
        let selected = now.selected.as_ref() == Some(&entry.key);
        let place = now.place(&entry.key, last.place);
        if place != last.place {
            spot.write("aria-rowindex", place.map(row_index).as_deref());
            last.place = place;
        }
        let was = (last.line.marks, last.selected);
        let writes = now.writes(place);
        if writes && (stamp != last.stamp || now.looks != last.looks) {
            let line = Line::of(&grid, &entry, &shown);
            cell::write(&written, (&last.line, last.looks.1), (&line, now.looks.1));
            (last.stamp, last.looks, last.line) = (stamp, now.looks, line);
        }
        if selected != last.selected {
            spot.write("aria-selected", Some(if selected { "true" } else { "false" }));
            last.selected = selected;
        }
        if was != (last.line.marks, last.selected) {
            spot.write("class", Some(&last.class(is_part)));
        }
    });
    drawn
}

/// As a screen reader counts: from one, the head included.
fn row_index(place: usize) -> String {
    (place + 2).to_string()
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
    let first = untrack(|| summed(&grid, &shown));
    let cells = shown.iter().enumerate().map(|(at, column)| cell::sum(&grid, &first, at, *column));
    let (cells, written): (Vec<_>, Vec<_>) = cells.unzip();
    let written: Vec<Written> = written.into_iter().flatten().collect();
    let (scheme, order) = (untrack(|| grid.scheme()), grid.order);
    let last = RefCell::new((first, scheme));
    effect(move || {
        if !grid.in_sight.get() {
            return;
        }
        grid.second();
        order.track();
        let (scheme, now) = (grid.scheme(), untrack(|| summed(&grid, &shown)));
        let mut last = last.borrow_mut();
        cell::write(&written, (&last.0, last.1), (&now, scheme));
        *last = (now, scheme);
    });
    sums.then(|| {
        view! {
            <tfoot hidden=lazy(move || !several.get())>
                <tr>{cells}</tr>
            </tfoot>
        }
    })
}

/// The sums of the rows that count.
fn summed(grid: &Grid, shown: &[usize]) -> Line {
    let with_sum: Vec<usize> =
        shown.iter().copied().filter(|at| grid.columns[*at].sum != Sum::None).collect();
    let mut all = Vec::new();
    let mut own = Vec::new();
    if !with_sum.is_empty() {
        let counts = |entry: &&Entry| grid.source.adds(entry);
        let rows: Vec<Entry> =
            grid.order.with_untracked(|order| order.iter().filter(counts).cloned().collect());
        rows.iter().for_each(|entry| grid.source.values(entry, &with_sum, &mut all));
        own.extend(with_sum.iter().map(|at| grid.source.sum(&rows, grid.columns[*at].id)));
    }
    let value = |at: &usize| match with_sum.iter().position(|with_sum| with_sum == at) {
        Some(place) => own[place].clone().unwrap_or_else(|| {
            sum::of(grid.columns[*at].sum, all.iter().skip(place).step_by(with_sum.len()))
        }),
        None => Value::NONE,
    };
    Line { values: shown.iter().map(value).collect(), marks: Marks::default() }
}
