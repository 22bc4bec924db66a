//! The rows of a table near the viewport, spacers for the others, and the footer.

use super::cell::{self, Update};
use super::row_values::RowValues;
use super::source::{RowEntry, RowFlags};
use super::state::Grid;
use super::updater::{RowUpdater, Urgency};
use crate::domain::colour_scheme::ColourScheme;
use crate::state::settings::Theme;
use crate::table::column::Sum;
use crate::table::window::Window;
use crate::table::{Value, sum};
use leptos::prelude::*;
use std::cell::Cell;
use std::sync::Arc;

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
    let rendered = grid.rendered();
    let frame = StoredValue::new_local(Frame::read(&grid, rendered));
    let updater = RowUpdater::new(grid.frames(), {
        let grid = grid.clone();
        move || {
            let now = Frame::read(&grid, rendered);
            let urgency = frame.with_value(|before| now.urgency_after(before));
            frame.set_value(now);
            urgency
        }
    });
    let row = move |entry: RowEntry| untrack(|| row(&grid, &shown, &entry, frame, updater));
    view! {
        <tbody>
            {space(above)}
            <For each=move || rendered.get() key=|entry| entry.key.clone() children=row/>
            {space(below)}
        </tbody>
    }
}

/// Seconds between updates of a row outside the viewport. Find-in-page and screen readers still reach such
/// rows, so they are updated in turn.
const OFFSCREEN_UPDATE_S: u64 = 10;

/// State that all rows share during an update.
struct Frame {
    step: u64,
    second: u64,
    in_view: Window,
    appearance: (Theme, ColourScheme, u64),
    selected: Option<Arc<str>>,
    /// Whether rows have space for a second line.
    is_tall: bool,
    /// Index of the first rendered row.
    first: usize,
    rows: Vec<Arc<str>>,
}

impl Frame {
    /// Reads the current state and subscribes to everything that may change a row.
    fn read(grid: &Grid, rendered: Memo<Vec<RowEntry>>) -> Self {
        let second = if grid.viewport.is_in_view.get() {
            grid.source.track();
            untrack(|| grid.second())
        } else {
            grid.second()
        };
        Self {
            step: grid.step(),
            second,
            in_view: grid.in_view.get(),
            appearance: grid.appearance(),
            selected: grid.selected.get(),
            is_tall: grid.is_tall(),
            first: grid.window.get().first,
            rows: rendered.with(|rows| rows.iter().map(|row| row.key.clone()).collect()),
        }
    }

    /// Returns what the change since an earlier frame requires.
    fn urgency_after(&self, before: &Self) -> Urgency {
        let same = self.in_view == before.in_view
            && self.appearance == before.appearance
            && self.selected == before.selected
            && self.first == before.first
            && self.rows == before.rows;
        if same { Urgency::Readings } else { Urgency::Interaction }
    }

    /// Returns whether a row's values are updated in this frame.
    fn updates(&self, index: Option<usize>) -> bool {
        index.is_none_or(|at| {
            self.in_view.contains(at) || at as u64 % OFFSCREEN_UPDATE_S == self.second % OFFSCREEN_UPDATE_S
        })
    }

    /// Returns the index of a row among all matching ones, if it is rendered; mostly unchanged.
    fn index_of(&self, key: &Arc<str>, before: Option<usize>) -> Option<usize> {
        let same = before.and_then(|at| at.checked_sub(self.first));
        let same = same.filter(|at| self.rows.get(*at) == Some(key));
        same.or_else(|| self.rows.iter().position(|row| row == key)).map(|at| at + self.first)
    }

    fn is_selected(&self, key: &Arc<str>) -> bool {
        self.selected.as_ref() == Some(key)
    }
}

/// State of a row besides its cells.
#[derive(Clone, Copy, PartialEq)]
struct RowState {
    row_flags: RowFlags,
    selected: bool,
    index: Option<usize>,
    has_second_line: bool,
}

impl RowState {
    fn class(&self, is_part: bool) -> String {
        let RowFlags { foreign, lost, stale, partial } = self.row_flags;
        let all = [
            (is_part, "is-part"),
            (foreign, "is-foreign"),
            (lost, "is-lost"),
            (stale, "is-stale"),
            (partial.is_some(), "is-partial"),
            (self.selected, "is-selected"),
            (self.has_second_line, "has-second-line"),
        ];
        all.into_iter().filter(|(holds, _)| *holds).map(|(_, class)| class).collect::<Vec<_>>().join(" ")
    }

    /// Explains the mark of partial totals.
    fn about_partial(&self) -> Option<String> {
        let (counted, all) = self.row_flags.partial?;
        Some(format!("* of {counted} of its {all} GPUs: the others have no current values"))
    }
}

/// The version of a row's inputs: its revision, the step of the charts, the colours, and whether it is tall.
type Version = (u64, u64, (Theme, ColourScheme, u64), bool);

fn row(
    grid: &Grid,
    shown: &Arc<Vec<usize>>,
    entry: &RowEntry,
    frame: StoredValue<Frame, LocalStorage>,
    updater: RowUpdater,
) -> AnyView {
    let line = RowValues::read(grid, entry, shown);
    let second_line = RwSignal::new(read_second_line(grid, entry, shown));
    let state = RwSignal::new(frame.with_value(|frame| RowState {
        row_flags: line.row_flags,
        selected: frame.is_selected(&entry.key),
        index: frame.index_of(&entry.key, None),
        has_second_line: second_line.with_untracked(Option::is_some),
    }));
    let cells = shown
        .iter()
        .enumerate()
        .map(|(at, column)| cell::cell(grid, entry, &line, (at, *column), second_line));
    let (cells, updates): (Vec<AnyView>, Vec<Update>) = cells.unzip();
    let (is_part, about) = (entry.depth > 0, grid.source.about(entry));
    let click = open_on_click(grid, entry);
    let drawn = view! {
        <tr
            id=grid.row_id(&entry.key)
            title=move || state.with(RowState::about_partial).or_else(|| about.map(str::to_owned))
            class=move || state.with(|state| state.class(is_part))
            aria-selected=move || if state.with(|state| state.selected) { "true" } else { "false" }
            aria-rowindex=move || state.with(|state| state.index).map(row_index)
            on:click=move |_| click()
        >
            {cells}
        </tr>
    };
    let row = DrawnRow {
        grid: grid.clone(),
        entry: entry.clone(),
        shown: shown.clone(),
        state,
        second_line,
        updates,
        version: Cell::new(None),
    };
    updater.add(move || frame.with_value(|frame| row.update(frame)));
    drawn.into_any()
}

/// The updater of a drawn row.
struct DrawnRow {
    grid: Grid,
    entry: RowEntry,
    shown: Arc<Vec<usize>>,
    state: RwSignal<RowState>,
    second_line: RwSignal<Option<String>>,
    /// One for each cell.
    updates: Vec<Update>,
    /// `None` at first, so that custom cells are drawn with the first update.
    version: Cell<Option<Version>>,
}

impl DrawnRow {
    /// Updates what differs in this frame.
    fn update(&self, frame: &Frame) {
        let Self { grid, entry, shown, state, .. } = self;
        let before = state.get_untracked();
        let mut now = RowState {
            selected: frame.is_selected(&entry.key),
            index: frame.index_of(&entry.key, before.index),
            ..before
        };
        let latest = Some((grid.source.revision(entry), frame.step, frame.appearance, frame.is_tall));
        if frame.updates(now.index) && self.version.get() != latest {
            let line = RowValues::read(grid, entry, shown);
            now.row_flags = line.row_flags;
            self.updates.iter().for_each(|update| update.run(&line));
            let text = read_second_line(grid, entry, shown);
            now.has_second_line = text.is_some();
            if self.second_line.with_untracked(|before| *before != text) {
                self.second_line.set(text);
            }
            self.version.set(latest);
        }
        if now != before {
            state.set(now);
        }
    }
}

/// Returns what a click on a row does: it selects the row, and opens what it represents.
fn open_on_click(grid: &Grid, entry: &RowEntry) -> impl Fn() + use<> {
    let (grid, entry) = (grid.clone(), entry.clone());
    move || {
        grid.selected.set(Some(entry.key.clone()));
        grid.source.open(&entry);
    }
}

/// Returns the second line of a row, if rows have space for one.
fn read_second_line(grid: &Grid, entry: &RowEntry, shown: &[usize]) -> Option<String> {
    let is_shown = |id: &str| shown.iter().any(|at| grid.columns[*at].id == id);
    if grid.is_tall() { grid.source.second_line(entry, &is_shown) } else { None }
}

/// Returns the `aria-rowindex`: counted from one, the head included.
fn row_index(index: usize) -> String {
    (index + 2).to_string()
}

/// The footer with aggregates, if any column has one and there are several rows.
#[component]
pub fn Footer(
    /// The table.
    grid: Grid,
    /// Its shown columns.
    shown: Vec<usize>,
) -> impl IntoView {
    let has_sums = shown.iter().any(|at| grid.columns[*at].sum != Sum::None);
    let several = Memo::new({
        let matching = grid.rows.matching;
        move |_| matching.with(|rows| rows.len() > 1)
    });
    let sums = Memo::new({
        let (grid, shown) = (grid.clone(), shown.clone());
        move |_| {
            if grid.viewport.is_in_view.get() {
                grid.second();
                grid.rows.matching.track();
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

/// Returns the aggregates of the rows that count.
fn summed(grid: &Grid, shown: &[usize]) -> RowValues {
    let with_sum: Vec<usize> =
        shown.iter().copied().filter(|at| grid.columns[*at].sum != Sum::None).collect();
    let mut all = Vec::new();
    let mut own = Vec::new();
    if !with_sum.is_empty() {
        let counts = |entry: &&RowEntry| grid.source.counts_in_totals(entry);
        let rows: Vec<RowEntry> =
            grid.rows.matching.with_untracked(|rows| rows.iter().filter(counts).cloned().collect());
        rows.iter().for_each(|entry| grid.source.values(entry, &with_sum, &mut all));
        let columns: Vec<_> = with_sum.iter().map(|at| grid.columns[*at].id).collect();
        // Without a row, 0 would seem to be measured.
        own = if rows.is_empty() { vec![None; columns.len()] } else { grid.source.sums(&rows, &columns) };
    }
    let value = |at: &usize| match with_sum.iter().position(|with_sum| with_sum == at) {
        Some(index) => own[index].clone().unwrap_or_else(|| {
            sum::aggregate(grid.columns[*at].sum, all.iter().skip(index).step_by(with_sum.len()))
        }),
        None => Value::NONE,
    };
    RowValues { values: shown.iter().map(value).collect(), row_flags: RowFlags::default() }
}
