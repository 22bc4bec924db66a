//! The rows of a table near the eye, the room of the others, and the sums below.

use super::cell::{self, Update};
use super::source::{Entry, Marks};
use super::state::Grid;
use super::updater::RowUpdater;
use crate::scheme::Scheme;
use crate::settings::Theme;
use crate::table::column::Sum;
use crate::table::window::Window;
use crate::table::{Value, sum};
use leptos::prelude::*;
use std::cell::Cell;
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
            <tr aria-hidden="true" class="grid__space" hidden=move || height.get() == 0>
                <td style:height=move || format!("{}px", height.get())></td>
            </tr>
        }
    };
    let shown = Arc::new(shown);
    let visible = grid.visible();
    let frame = StoredValue::new_local(Frame::of(&grid, visible));
    let updater = RowUpdater::new({
        let grid = grid.clone();
        move || frame.set_value(Frame::of(&grid, visible))
    });
    let row = move |entry: Entry| untrack(|| row(&grid, &shown, &entry, frame, updater));
    view! {
        <tbody>
            {space(above)}
            <For each=move || visible.get() key=|entry| entry.key.clone() children=row/>
            {space(below)}
        </tbody>
    }
}

/// Seconds between updates of a row that is out of sight. Find-in-page and screen readers still reach such rows, so they
/// are updated in turn.
const TURN_S: u64 = 10;

/// What all rows share while they are updated.
struct Frame {
    step: u64,
    second: u64,
    seen: Window,
    looks: (Theme, Scheme, u64),
    selected: Option<Arc<str>>,
    /// The place of the first row that is drawn.
    first: usize,
    rows: Vec<Arc<str>>,
}

impl Frame {
    /// The current state; the caller is notified of whatever may change a row.
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

    /// Whether the values of a row are updated in this frame.
    fn updates(&self, place: Option<usize>) -> bool {
        place.is_none_or(|at| self.seen.holds(at) || at as u64 % TURN_S == self.second % TURN_S)
    }

    /// The place of a row among all that pass, if it is drawn; mostly where it was.
    fn place(&self, key: &Arc<str>, before: Option<usize>) -> Option<usize> {
        let same = before.and_then(|at| at.checked_sub(self.first));
        let same = same.filter(|at| self.rows.get(*at) == Some(key));
        same.or_else(|| self.rows.iter().position(|row| row == key)).map(|at| at + self.first)
    }

    fn is_selected(&self, key: &Arc<str>) -> bool {
        self.selected.as_ref() == Some(key)
    }
}

/// What a row shows besides its cells.
#[derive(Clone, Copy, PartialEq)]
struct RowState {
    marks: Marks,
    selected: bool,
    place: Option<usize>,
}

impl RowState {
    fn class(&self, is_part: bool) -> String {
        let Marks { foreign, lost, stale } = self.marks;
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

/// What the values of a row were read from: its revision, the step of the charts, and the colours.
type Version = (u64, u64, (Theme, Scheme, u64));

fn row(
    grid: &Grid,
    shown: &Arc<Vec<usize>>,
    entry: &Entry,
    frame: StoredValue<Frame, LocalStorage>,
    updater: RowUpdater,
) -> AnyView {
    let line = Line::of(grid, entry, shown);
    let state = RwSignal::new(frame.with_value(|frame| RowState {
        marks: line.marks,
        selected: frame.is_selected(&entry.key),
        place: frame.place(&entry.key, None),
    }));
    let cells = shown.iter().enumerate().map(|(at, column)| cell::cell(grid, entry, &line, at, *column));
    let (cells, updates): (Vec<AnyView>, Vec<Update>) = cells.unzip();
    let is_part = entry.depth > 0;
    let click = {
        let (grid, entry) = (grid.clone(), entry.clone());
        move |_| {
            grid.selected.set(Some(entry.key.clone()));
            grid.source.open(&entry);
        }
    };
    let drawn = view! {
        <tr
            id=grid.row_id(&entry.key)
            title=grid.source.about(entry)
            class=move || state.with(|state| state.class(is_part))
            aria-selected=move || if state.with(|state| state.selected) { "true" } else { "false" }
            aria-rowindex=move || state.with(|state| state.place).map(row_index)
            on:click=click
        >
            {cells}
        </tr>
    };
    // No version yet: cells that their table draws itself are painted with the first update.
    let version: Cell<Option<Version>> = Cell::new(None);
    let (grid, entry, shown) = (grid.clone(), entry.clone(), shown.clone());
    updater.add(move || {
        frame.with_value(|frame| {
            let before = state.get_untracked();
            let mut now = RowState {
                selected: frame.is_selected(&entry.key),
                place: frame.place(&entry.key, before.place),
                ..before
            };
            let latest = Some((grid.source.stamp(&entry), frame.step, frame.looks));
            if frame.updates(now.place) && version.get() != latest {
                let line = Line::of(&grid, &entry, &shown);
                now.marks = line.marks;
                updates.iter().for_each(|update| update.run(&line));
                version.set(latest);
            }
            if now != before {
                state.set(now);
            }
        });
    });
    drawn.into_any()
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
    let has_sums = shown.iter().any(|at| grid.columns[*at].sum != Sum::None);
    let several = Memo::new({
        let order = grid.order;
        move |_| order.with(|order| order.len() > 1)
    });
    let sums = Memo::new({
        let (grid, shown) = (grid.clone(), shown.clone());
        move |_| {
            if grid.in_sight.get() {
                grid.second();
                grid.order.track();
            }
            untrack(|| summed(&grid, &shown))
        }
    });
    has_sums.then(|| {
        let cells = shown.iter().enumerate().map(|(at, column)| cell::sum(&grid, sums, at, *column));
        view! {
            <tfoot hidden=move || !several.get()>
                <tr>{cells.collect_view()}</tr>
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
