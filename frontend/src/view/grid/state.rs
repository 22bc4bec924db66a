//! The state of a table: part of it is the URL, part the browser's memory, and the rest follows.

use super::source::{Entry, Names, Shared};
use crate::browser::{self, Observer, Seen};
use crate::page::Page;
use crate::scheme::Scheme;
use crate::settings::{Settings, Theme};
use crate::table::choice::Choice;
use crate::table::filter::{Filter, FilterError};
use crate::table::sort::{Sort, ordered};
use crate::table::window::{MOST_WHOLE, Window, revealing};
use crate::table::{Column, Value, export};
use crate::time::Time;
use leptos::html;
use leptos::prelude::*;
use std::sync::Arc;
use wasm_bindgen::JsCast;
use web_sys::{Element, HtmlElement, Node};

/// Height of a row in px; the style sheet says the same.
const ROW_PX: u32 = 26;
/// Height of head and foot together in px.
const EDGES_PX: u32 = 58;
/// What a table has for itself left and right of its columns, in px.
const FRAME_PX: u32 = 4;

/// A table's state. Clones are the same table.
#[derive(Clone)]
pub struct Grid {
    /// What it shows.
    pub source: Shared,
    /// What it is called.
    pub names: Names,
    /// Its columns.
    pub columns: Arc<Vec<Column>>,
    /// The positions of those that are shown.
    pub shown: Memo<Vec<usize>>,
    /// What was chosen of them.
    pub choice: RwSignal<Choice>,
    /// What is typed as a filter.
    pub typed: Memo<Option<String>>,
    /// Why that is none, if so.
    pub error: Memo<Option<FilterError>>,
    /// By what it is sorted.
    pub sort: Memo<Option<Sort>>,
    /// All rows.
    pub entries: Memo<Vec<Entry>>,
    /// The rows that pass, in their order.
    pub order: Memo<Vec<Entry>>,
    /// Which of them are drawn.
    pub window: Memo<Window>,
    /// Which of them can be seen, or soon will be; none while the table is out of sight.
    pub seen: Memo<Window>,
    /// The row that the keyboard is at.
    pub selected: RwSignal<Option<Arc<str>>>,
    /// Somebody points at it: rows stay where they are.
    pub held: RwSignal<bool>,
    /// What scrolls.
    pub outer: NodeRef<html::Div>,
    /// Where a filter is typed.
    pub input: NodeRef<html::Input>,
    /// Whether anything of it can be seen.
    pub in_sight: Memo<bool>,
    scroll: RwSignal<u32>,
    sight: RwSignal<Seen>,
    /// How high it can be.
    tall: RwSignal<u32>,
    room: RwSignal<u32>,
    page: Page,
    time: Time,
}

impl Grid {
    /// The state of a table that shows this, as URL and browser remember it.
    pub fn new(page: &Page, source: Shared) -> Self {
        let (names, columns) = (source.names(), Arc::new(source.columns()));
        let remembered = browser::recall(browser::local(), &storage_name(names)).unwrap_or_default();
        let choice = RwSignal::new(Choice::parse(&remembered, &columns));
        let room = RwSignal::new(browser::width() as u32);
        let (scroll, held) = (RwSignal::new(0), RwSignal::new(false));
        let sight = RwSignal::new(Seen::Part(0, 0));
        let tall = RwSignal::new(browser::height());
        let in_sight = Memo::new(move |_| sight.get() != Seen::Nothing);
        let shown = Memo::new({
            let columns = columns.clone();
            move |_| choice.with(|choice| choice.shown(&columns, room.get()))
        });
        let typed = page.address.query(names.filter);
        let (filter, error) = filter(typed, &columns);
        let sort = Memo::new({
            let (text, columns) = (page.address.query(names.sort), columns.clone());
            move |_| text.with(|text| Sort::parse(text.as_deref()?, &columns))
        });
        let entries = Memo::new({
            let source = source.clone();
            move |_| source.entries()
        });
        let order = Memo::new({
            let (source, columns, step) = (source.clone(), columns.clone(), page.step);
            move |_| {
                let (sort, filter) = (sort.get(), filter.get());
                // What is sorted or filtered by readings takes a new order now and then, and none under the pointer or
                // out of sight.
                if (sort.is_some() || !filter.is_empty()) && !held.get() && in_sight.get() {
                    step.track();
                }
                entries.with(|entries| in_order(&source, &columns, entries, &filter, sort))
            }
        });
        // What was drawn stays where it is while nobody sees it.
        let last = StoredValue::new((0, 0));
        let part = Memo::new(move |_| {
            match sight.get() {
                Seen::Nothing => {}
                Seen::Part(from, height) => last.set_value((scroll.get() + from, height)),
                Seen::Whole => last.set_value((scroll.get(), tall.get())),
            }
            last.get_value()
        });
        let window = Memo::new(move |_| {
            let (top, height) = part.get();
            Window::over(order.with(Vec::len), top, height, ROW_PX)
        });
        let seen = Memo::new(move |_| {
            let (top, height) = if in_sight.get() { part.get() } else { (0, 0) };
            Window::seen(order.with(Vec::len), top, height, ROW_PX)
        });
        let selected = RwSignal::new(None);
        let (outer, input) = (NodeRef::new(), NodeRef::new());
        let page = page.clone();
        Self {
            source,
            names,
            columns,
            shown,
            choice,
            typed,
            error,
            sort,
            entries,
            order,
            window,
            seen,
            selected,
            held,
            outer,
            input,
            in_sight,
            scroll,
            sight,
            tall,
            room,
            page,
            time: Time::here(),
        }
    }

    /// Whether there is nothing to show, filter or not.
    pub fn is_empty(&self) -> Memo<bool> {
        let entries = self.entries;
        Memo::new(move |_| entries.with(Vec::is_empty))
    }

    /// The rows that are drawn.
    pub fn visible(&self) -> Memo<Vec<Entry>> {
        let (order, window) = (self.order, self.window);
        Memo::new(move |_| {
            let window = window.get();
            order.with(|order| order.get(window.first..window.end).unwrap_or_default().to_vec())
        })
    }

    /// The room that the rows above and below those take, in px.
    pub fn spaces(&self) -> (Memo<u32>, Memo<u32>) {
        let (order, window) = (self.order, self.window);
        let above = Memo::new(move |_| window.get().first as u32 * ROW_PX);
        let below = Memo::new(move |_| order.with(Vec::len).saturating_sub(window.get().end) as u32 * ROW_PX);
        (above, below)
    }

    /// Filters by another text.
    pub fn type_filter(&self, text: String) {
        self.page.address.set_query(self.names.filter, Some(text));
    }

    /// Sorts otherwise.
    pub fn sort_by(&self, sort: Option<Sort>) {
        self.page.address.set_query(self.names.sort, sort.map(|sort| sort.text(&self.columns)));
    }

    /// Shows other columns, and remembers that.
    pub fn choose(&self, choice: Choice) {
        browser::remember(browser::local(), &storage_name(self.names), &choice.text(&self.columns));
        self.choice.set(choice);
    }

    /// Moves the selection to a row and brings it into sight.
    pub fn select(&self, index: usize) {
        let Some(key) = self.order.with_untracked(|order| order.get(index).map(|entry| entry.key.clone()))
        else {
            return;
        };
        let id = self.row_id(&key);
        self.selected.set(Some(key));
        let Some(outer) = self.outer.get_untracked() else { return };
        if self.order.with_untracked(Vec::len) > MOST_WHOLE {
            let (top, height) = (self.scroll.get_untracked(), outer.client_height().max(0).cast_unsigned());
            if let Some(top) = revealing(index, top, height.saturating_sub(EDGES_PX), ROW_PX) {
                outer.set_scroll_top(top.cast_signed());
            }
        } else if let Some(row) = document().get_element_by_id(&id) {
            browser::bring_into_sight(&row);
        }
    }

    /// The place of the selection among the rows.
    pub fn selection(&self) -> Option<usize> {
        let key = self.selected.get_untracked()?;
        self.order.with_untracked(|order| order.iter().position(|entry| entry.key == key))
    }

    /// Opens what a row stands for.
    pub fn open(&self, index: usize) {
        if let Some(entry) = self.order.with_untracked(|order| order.get(index).cloned()) {
            self.source.open(&entry);
        }
    }

    /// Goes from the filter to the rows.
    pub fn focus_rows(&self) {
        if self.selection().is_none() {
            self.select(0);
        }
        let table = self.outer.get_untracked().and_then(|outer| outer.query_selector("table").ok()?);
        if let Some(table) = table.and_then(|table| table.dyn_into::<HtmlElement>().ok()) {
            let _ = table.focus();
        }
    }

    /// The id of a row in the document.
    pub fn row_id(&self, key: &str) -> String {
        format!("{}:{key}", self.names.id)
    }

    /// The id of the selected row, if it is drawn.
    pub fn active_row(&self) -> Option<String> {
        let key = self.selected.get()?;
        let window = self.window.get();
        let drawn = self.order.with(|order| {
            order.get(window.first..window.end).unwrap_or_default().iter().any(|entry| entry.key == key)
        });
        drawn.then(|| self.row_id(&key))
    }

    /// The width below which it scrolls sideways: only when the columns are the user's own.
    pub fn least_width(&self) -> Option<String> {
        let own = self.choice.with(Choice::is_own);
        let width: u32 =
            self.shown.with(|shown| shown.iter().map(|at| u32::from(self.columns[*at].width)).sum());
        own.then(|| format!("{width}px"))
    }

    /// What is shown, in a form to take along.
    pub fn taken(&self, form: export::Form) -> String {
        let shown: Vec<usize> =
            self.shown.get_untracked().into_iter().filter(|at| self.columns[*at].is_told()).collect();
        let columns: Vec<&Column> = shown.iter().map(|at| &self.columns[*at]).collect();
        let row =
            |entry: &Entry| -> Vec<Value> { shown.iter().map(|at| self.source.value(entry, *at)).collect() };
        let rows: Vec<Vec<Value>> = self.order.with_untracked(|order| order.iter().map(row).collect());
        export::write(form, &columns, &rows)
    }

    /// What the user chose, the colours of utilisation among it.
    pub fn settings(&self) -> Settings {
        self.page.settings
    }

    /// How rows look, but for what stands in them.
    pub fn looks(&self) -> (Theme, Scheme, u64) {
        (self.page.settings.theme(), self.page.settings.scheme(), self.time.follow_looks())
    }

    /// The step of the charts.
    pub fn step(&self) -> u64 {
        self.page.step.get()
    }

    /// Changes once a second, for sums.
    pub fn second(&self) -> u64 {
        self.page.second.get()
    }

    /// Follows which part of it can be seen, until the guard is dropped.
    pub fn follow_sight(&self) -> Option<Observer> {
        let sight = self.sight;
        let guard = Observer::sight(self.outer.get_untracked()?.as_ref(), move |seen| {
            if sight.get_untracked() != seen {
                sight.set(seen);
            }
        });
        if guard.is_none() {
            sight.set(Seen::Whole);
        }
        guard
    }

    /// Takes in where it was scrolled to.
    pub fn scrolled(&self) {
        if let Some(outer) = self.outer.get_untracked() {
            let at = outer.scroll_top().max(0).cast_unsigned();
            if self.scroll.get_untracked() != at {
                self.scroll.set(at);
            }
        }
    }

    /// Takes in how much room there is.
    pub fn measure(&self) {
        let Some(outer) = self.outer.get_untracked() else { return };
        // A hidden box has no width; the section around it has.
        let parent: Option<Element> = outer.parent_element().and_then(|parent| parent.dyn_into().ok());
        let width = parent.map_or(0, |parent| parent.client_width()).max(0).cast_unsigned();
        if width > 0 {
            self.room.set(width.saturating_sub(FRAME_PX));
        }
        self.tall.set(browser::height());
        self.scrolled();
    }
}

fn in_order(
    source: &Shared,
    columns: &[Column],
    entries: &[Entry],
    filter: &Filter,
    sort: Option<Sort>,
) -> Vec<Entry> {
    if filter.is_empty() && sort.is_none() {
        return entries.to_vec();
    }
    let depths: Vec<u8> = entries.iter().map(|entry| entry.depth).collect();
    let keep = |row: usize| filter.passes(columns, &|column| source.value(&entries[row], column));
    let order = ordered(&depths, &keep, sort, &|row, column| source.value(&entries[row], column));
    order.into_iter().map(|row| entries[row].clone()).collect()
}

/// The filter of what is typed, and what is wrong with it; the last one that was right stays until the next is.
fn filter(
    typed: Memo<Option<String>>,
    columns: &Arc<Vec<Column>>,
) -> (Memo<Filter>, Memo<Option<FilterError>>) {
    let parsed = Memo::new({
        let columns = columns.clone();
        move |_| typed.with(|typed| Filter::parse(typed.as_deref().unwrap_or_default(), &columns))
    });
    let last = StoredValue::new(Filter::default());
    let filter = Memo::new(move |_| {
        parsed.with(|parsed| {
            parsed.as_ref().ok().cloned().into_iter().for_each(|filter| last.set_value(filter))
        });
        last.get_value()
    });
    (filter, Memo::new(move |_| parsed.with(|parsed| parsed.as_ref().err().cloned())))
}

fn storage_name(names: Names) -> String {
    format!("nodeglass-columns-{}", names.id)
}

/// The tables of the page, for keys that mean one of them.
#[derive(Clone, Copy)]
pub struct Grids(RwSignal<Vec<Grid>>);

impl Default for Grids {
    fn default() -> Self {
        Self(RwSignal::new(Vec::new()))
    }
}

impl Grids {
    /// Knows a table for as long as the calling owner lives.
    pub fn add(self, grid: &Grid) {
        self.0.update_untracked(|grids| grids.push(grid.clone()));
        let (all, held) = (self.0, grid.held);
        on_cleanup(move || {
            all.try_update_untracked(|grids| grids.retain(|grid| grid.held != held));
        });
    }

    /// The table that a key means: the one that has the focus, or the topmost, whichever of them was made first.
    pub fn meant(self) -> Option<Grid> {
        let focus = document().active_element();
        let has_focus = |grid: &&Grid| {
            let outer = grid.outer.get_untracked();
            outer
                .and_then(|outer| outer.parent_element())
                .is_some_and(|section| section.contains(focus.as_deref()))
        };
        let is_above = |one: &Grid, other: &Grid| {
            let places = one.outer.get_untracked().zip(other.outer.get_untracked());
            places.is_some_and(|(one, other)| {
                one.compare_document_position(&other) & Node::DOCUMENT_POSITION_FOLLOWING != 0
            })
        };
        let grids = self.0.get_untracked();
        let filled = || grids.iter().filter(|grid| !grid.entries.with_untracked(Vec::is_empty));
        grids
            .iter()
            .find(has_focus)
            .or_else(|| filled().reduce(|first, grid| if is_above(grid, first) { grid } else { first }))
            .cloned()
    }

    /// Puts the cursor where a filter is typed.
    pub fn focus_filter(self) -> bool {
        let input = self.meant().and_then(|grid| grid.input.get_untracked());
        input.is_some_and(|input| input.focus().is_ok())
    }

    /// Sorts by the column `step` further.
    pub fn sort_next(self, step: isize) {
        let Some(grid) = self.meant() else { return };
        let sort = grid.sort.get_untracked();
        let moved = grid.shown.with_untracked(|shown| Sort::moved(sort, step, shown, &grid.columns));
        grid.sort_by(moved);
    }

    /// Sorts the other way round.
    pub fn turn_sort(self) {
        if let Some(grid) = self.meant() {
            grid.sort_by(grid.sort.get_untracked().map(Sort::turned));
        }
    }
}
