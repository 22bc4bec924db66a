//! The state of a table: from the URL, the browser's storage, and derived from both.

use super::empty_columns;
use super::rows::Rows;
use super::source::{RowEntry, SharedSource, TableNames};
use super::viewport::{MARGIN_PX, Viewport};
use crate::domain::colour_scheme::ColourScheme;
use crate::domain::query;
use crate::platform::{self, FrameQueue};
use crate::state::page::Page;
use crate::state::settings::{Settings, Theme};
use crate::state::time::Time;
use crate::table::choice::Choice;
use crate::table::sort::Sort;
use crate::table::window::Window;
use crate::table::{Column, Value, export, widths};
use gloo_timers::callback::Timeout;
use leptos::html;
use leptos::prelude::*;
use nodeglass_protocol::field::Vendors;
use std::sync::Arc;
use wasm_bindgen::JsCast;
use web_sys::{Element, HtmlElement};

/// From this height on, in px, a row has space for a second line.
const TALL_PX: u32 = 40;
/// Height of the sums, in px.
const SUMS_PX: f64 = 40.0;
/// Number of rows in view from which on the sums stay in view.
const MIN_SUMMED: f64 = 5.0;
/// Width of the table's frame besides its columns, in px.
const FRAME_PX: u32 = 4;
/// A filter that takes this long until the next frame waits for a pause in typing, in ms: three frames.
const SLOW_FILTER_MS: f64 = 50.0;
/// Length of that pause, in ms.
const TYPING_PAUSE_MS: u32 = 250;

/// The state of a table. Clones share the same state.
#[derive(Clone)]
pub struct Grid {
    /// The source of its rows.
    pub source: SharedSource,
    /// Its names.
    pub names: TableNames,
    /// Its columns, titled as for devices of unknown vendors.
    pub columns: Arc<Vec<Column>>,
    /// The vendors of its devices.
    vendors: Memo<Vendors>,
    /// The positions of the shown columns.
    pub shown: Memo<Vec<usize>>,
    /// The user's choice of columns.
    pub choice: RwSignal<Choice>,
    /// Its rows, filtered and in order.
    pub rows: Rows,
    /// The part of it that the page shows.
    pub viewport: Viewport,
    /// The rows that are rendered, among those that are not folded.
    pub window: Memo<Window>,
    /// The rows that are visible, or soon will be; empty while the table is out of view.
    pub in_view: Memo<Window>,
    /// The selected row.
    pub selected: RwSignal<Option<Arc<str>>>,
    /// The filter's input.
    pub input: NodeRef<html::Input>,
    /// Whether the user chose more columns than fit: the table then scrolls by itself, so that its horizontal
    /// scroll bar stays in view.
    pub is_wide: Memo<bool>,
    available_width: RwSignal<u32>,
    /// Time of the last filter until the next frame, in ms.
    filter_cost_ms: StoredValue<f64>,
    /// Applies what was typed, after a pause.
    typing: StoredValue<Option<Timeout>, LocalStorage>,
    page: Page,
    time: Time,
}

impl Grid {
    /// Creates the state of a table from the URL and the browser's storage.
    pub fn new(page: &Page, source: SharedSource) -> Self {
        let (names, columns) = (source.names(), Arc::new(source.columns()));
        let remembered = platform::load_item(platform::local(), &storage_name(names)).unwrap_or_default();
        let choice = RwSignal::new(Choice::parse(&remembered, &columns));
        let available_width = RwSignal::new(platform::width() as u32);
        let vendors = Memo::new({
            let source = source.clone();
            move |_| source.vendors()
        });
        let viewport = Viewport::new();
        let rows = Rows::new(page, &source, &columns, viewport.is_in_view);
        let without_values = empty_columns::by_default(page, &source, &columns, rows.entries);
        let shown = Memo::new({
            let columns = columns.clone();
            move |_| {
                let room = available_width.get();
                without_values.with(|without| choice.with(|choice| choice.shown(&columns, without, room)))
            }
        });
        let is_wide = Memo::new({
            let columns = columns.clone();
            move |_| choice.with(Choice::is_own) && shown_width(&columns, shown) > available_width.get()
        });
        Self {
            source,
            names,
            columns,
            vendors,
            shown,
            choice,
            rows,
            viewport,
            window: viewport.window(rows.order),
            in_view: viewport.in_view(rows.order),
            selected: RwSignal::new(None),
            input: NodeRef::new(),
            is_wide,
            available_width,
            filter_cost_ms: StoredValue::new(0.0),
            typing: StoredValue::new_local(None),
            page: page.clone(),
            time: Time::from_context(),
        }
    }

    /// Returns a column, titled as the vendors of its devices name it.
    pub fn column(&self, at: usize) -> Column {
        self.columns[at].for_vendors(self.vendors.get())
    }

    /// Returns the columns that have no value in any row at present; does not subscribe.
    pub fn empty_columns(&self) -> Vec<usize> {
        self.rows
            .entries
            .with_untracked(|entries| empty_columns::at_present(&self.source, &self.columns, entries))
    }

    /// Returns whether there are no rows at all, matching or not.
    pub fn is_empty(&self) -> Memo<bool> {
        let entries = self.rows.entries;
        Memo::new(move |_| entries.with(Vec::is_empty))
    }

    /// Returns the rendered rows.
    pub fn rendered(&self) -> Memo<Vec<RowEntry>> {
        let (order, window) = (self.rows.order, self.window);
        Memo::new(move |_| {
            let window = window.get();
            order.with(|order| order.get(window.first..window.end).unwrap_or_default().to_vec())
        })
    }

    /// Returns the height of the spacers above and below, in px.
    pub fn spaces(&self) -> (Memo<u32>, Memo<u32>) {
        let (order, window, row_px) = (self.rows.order, self.window, self.viewport.row_px);
        let above = Memo::new(move |_| window.get().first as u32 * row_px.get());
        let below =
            Memo::new(move |_| order.with(Vec::len).saturating_sub(window.get().end) as u32 * row_px.get());
        (above, below)
    }

    /// Sets the filter: at once, or after a pause in typing where that takes long.
    pub fn type_filter(&self, text: String) {
        let (address, name, cost_ms) = (self.page.address.clone(), self.names.filter, self.filter_cost_ms);
        let is_cleared = text.is_empty();
        let apply = move || {
            let began_ms = platform::now_ms();
            address.set_query(name, Some(text));
            platform::on_next_frame(move || _ = cost_ms.try_set_value(platform::now_ms() - began_ms));
        };
        if is_cleared || cost_ms.get_value() < SLOW_FILTER_MS {
            self.typing.set_value(None);
            apply();
        } else {
            // Replaces the timer of the key before.
            self.typing.set_value(Some(Timeout::new(TYPING_PAUSE_MS, apply)));
        }
    }

    /// Sets the order.
    pub fn sort_by(&self, sort: Option<Sort>) {
        self.page.address.set_query(self.names.sort, sort.map(|sort| sort.text(&self.columns)));
    }

    /// Sets and stores the choice of columns.
    pub fn choose(&self, choice: Choice) {
        platform::store_item(platform::local(), &storage_name(self.names), &choice.text(&self.columns));
        self.choice.set(choice);
    }

    /// Shows the folded rows, or hides them again.
    pub fn toggle_fold(&self) {
        let shown = (!self.rows.is_unfolded.get_untracked()).then(|| "all".to_owned());
        self.page.address.set_query(query::SHOWN, shown);
    }

    /// Selects a row and scrolls it into view.
    pub fn select(&self, index: usize) {
        let Some(key) =
            self.rows.order.with_untracked(|order| order.get(index).map(|entry| entry.key.clone()))
        else {
            return;
        };
        self.selected.set(Some(key));
        self.viewport.reveal(index, self.is_wide.get_untracked());
    }

    /// Returns the index of the selection among the rows.
    pub fn selection(&self) -> Option<usize> {
        let key = self.selected.get_untracked()?;
        self.rows.order.with_untracked(|order| order.iter().position(|entry| entry.key == key))
    }

    /// Opens what a row represents.
    pub fn open(&self, index: usize) {
        if let Some(entry) = self.rows.order.with_untracked(|order| order.get(index).cloned()) {
            self.source.open(&entry);
        }
    }

    /// Returns whether enough rows are in view for the sums to stay in view, too.
    pub fn has_room_for_sums(&self) -> Memo<bool> {
        let (in_view, row_px) = (self.in_view, self.viewport.row_px);
        Memo::new(move |_| {
            let Window { first, end } = in_view.get();
            let row_px = f64::from(row_px.get());
            end.saturating_sub(first) as f64 * row_px >= MARGIN_PX + SUMS_PX + MIN_SUMMED * row_px
        })
    }

    /// Moves the focus from the filter to the rows.
    pub fn focus_rows(&self) {
        if self.selection().is_none() {
            self.select(0);
        }
        self.focus_table();
    }

    /// Moves the focus to the table.
    pub fn focus_table(&self) {
        let table =
            self.viewport.outer.get_untracked().and_then(|outer| outer.query_selector("table").ok()?);
        if let Some(table) = table.and_then(|table| table.dyn_into::<HtmlElement>().ok()) {
            let _ = table.focus();
        }
    }

    /// Returns the id of a row's element.
    pub fn row_id(&self, key: &str) -> String {
        format!("{}:{key}", self.names.id)
    }

    /// Returns the id of the selected row, if it is rendered.
    pub fn active_row(&self) -> Option<String> {
        let key = self.selected.get()?;
        let window = self.window.get();
        let drawn = self.rows.order.with(|order| {
            order.get(window.first..window.end).unwrap_or_default().iter().any(|entry| entry.key == key)
        });
        drawn.then(|| self.row_id(&key))
    }

    /// Returns the width below which it scrolls horizontally: only for a user's choice of columns.
    pub fn min_width(&self) -> Option<String> {
        let own = self.choice.with(Choice::is_own);
        own.then(|| format!("{}px", shown_width(&self.columns, self.shown)))
    }

    /// Returns whether rows have space for a second line.
    pub fn is_tall(&self) -> bool {
        self.viewport.row_px.get() >= TALL_PX
    }

    /// Returns the shown columns of the matching rows, also of the folded ones, in an export format.
    pub fn export(&self, form: export::Form) -> String {
        let shown: Vec<usize> =
            self.shown.get_untracked().into_iter().filter(|at| self.columns[*at].has_value()).collect();
        let columns: Vec<Column> = untrack(|| shown.iter().map(|at| self.column(*at)).collect());
        let columns: Vec<&Column> = columns.iter().collect();
        let row = |entry: &RowEntry| -> Vec<Value> {
            shown.iter().map(|at| self.source.value(entry, *at)).collect()
        };
        let rows: Vec<Vec<Value>> = self.rows.matching.with_untracked(|rows| rows.iter().map(row).collect());
        export::write(form, &columns, &rows)
    }

    /// Returns the user's settings, including the colours of utilisation.
    pub fn settings(&self) -> Settings {
        self.page.settings
    }

    /// Returns what determines the look of rows besides their values.
    pub fn appearance(&self) -> (Theme, ColourScheme, u64) {
        (self.page.settings.theme(), self.page.settings.scheme(), self.time.track_colours())
    }

    /// Returns the queue that spreads updates over frames.
    pub fn frames(&self) -> FrameQueue {
        self.page.frames
    }

    /// Returns the step of the charts.
    pub fn step(&self) -> u64 {
        self.page.step.get()
    }

    /// Returns the widths of shown columns in px.
    pub fn widths(&self, shown: &[usize]) -> Vec<u32> {
        let sorted = self.rows.sort.get().map(|sort| sort.column);
        widths(&self.columns, shown, sorted, self.available_width.get())
    }

    /// Changes once a second, for aggregates.
    pub fn second(&self) -> u64 {
        self.page.second.get()
    }

    /// Reads the available width.
    pub fn measure(&self) {
        let Some(outer) = self.viewport.outer.get_untracked() else { return };
        // A hidden box has no width; the section around it has.
        let parent: Option<Element> = outer.parent_element().and_then(|parent| parent.dyn_into().ok());
        let width = parent.map_or(0, |parent| parent.client_width()).max(0).cast_unsigned();
        if width > 0 {
            self.available_width.set(width.saturating_sub(FRAME_PX));
        }
        self.viewport.measure();
    }
}

/// Returns the width of the shown columns in px.
fn shown_width(columns: &[Column], shown: Memo<Vec<usize>>) -> u32 {
    shown.with(|shown| shown.iter().map(|at| u32::from(columns[*at].width)).sum())
}

fn storage_name(names: TableNames) -> String {
    format!("nodeglass-columns-{}", names.id)
}
