//! The state of a table: from the URL, the browser's storage, and derived from both.

use super::empty_columns;
use super::source::{Folding, RowEntry, SharedSource, TableNames};
use crate::domain::colour_scheme::ColourScheme;
use crate::domain::query;
use crate::platform::{self, FrameQueue, Listener, Observer, Visibility};
use crate::state::page::Page;
use crate::state::settings::{Settings, Theme};
use crate::state::time::Time;
use crate::table::choice::Choice;
use crate::table::filter::{Filter, FilterError};
use crate::table::sort::{Sort, ordered};
use crate::table::window::{Window, scroll_to_reveal, visible_part};
use crate::table::{Column, Value, export, widths};
use gloo_timers::callback::Timeout;
use leptos::html;
use leptos::prelude::*;
use nodeglass_protocol::field::Vendors;
use std::sync::Arc;
use wasm_bindgen::JsCast;
use web_sys::{Element, HtmlElement};

/// Height of a row in px, unless the style sheet says otherwise.
const ROW_PX: u32 = 26;
/// From this height on, in px, a row has space for a second line.
const TALL_PX: u32 = 40;
/// How far beyond the viewport rows count as visible, in px, as in the observer.
const MARGIN_PX: f64 = 120.0;
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
    /// The text of the filter.
    pub filter_text: Memo<Option<String>>,
    /// Why the text is not a filter, if so.
    pub error: Memo<Option<FilterError>>,
    /// The order.
    pub sort: Memo<Option<Sort>>,
    /// All rows.
    pub entries: Memo<Vec<RowEntry>>,
    /// The matching rows in order, also the folded ones.
    pub matching: Memo<Vec<RowEntry>>,
    /// Which of them are folded unless the user unfolded them; `None` if none are.
    pub folding: Memo<Option<Folding>>,
    /// Whether the user unfolded them.
    pub is_unfolded: Memo<bool>,
    /// The matching rows that are not folded, in order.
    pub order: Memo<Vec<RowEntry>>,
    /// Which of them are rendered.
    pub window: Memo<Window>,
    /// The rows that are visible, or soon will be; empty while the table is out of view.
    pub in_view: Memo<Window>,
    /// The selected row.
    pub selected: RwSignal<Option<Arc<str>>>,
    /// Whether the pointer is over it: rows keep their place.
    pub is_hovered: RwSignal<bool>,
    /// Whether the order is held although readings may have changed it.
    pub is_held: Memo<bool>,
    /// Height of a row in px; rows are taller on narrow and touch screens.
    row_px: RwSignal<u32>,
    /// The element around the table, which scrolls by itself only if the user chose more columns than fit.
    pub outer: NodeRef<html::Div>,
    /// The filter's input.
    pub input: NodeRef<html::Input>,
    /// Whether any part of it is visible.
    pub is_in_view: Memo<bool>,
    /// Whether the user chose more columns than fit: the table then scrolls by itself, so that its horizontal
    /// scroll bar stays in view.
    pub is_wide: Memo<bool>,
    scroll: RwSignal<u32>,
    visibility: RwSignal<Visibility>,
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
        let (scroll, is_hovered) = (RwSignal::new(0), RwSignal::new(false));
        let visibility = RwSignal::new(Visibility::Part(0, 0));
        let row_px = RwSignal::new(row_height());
        let is_in_view = Memo::new(move |_| visibility.get() != Visibility::Hidden);
        let vendors = Memo::new({
            let source = source.clone();
            move |_| source.vendors()
        });
        let entries = Memo::new({
            let source = source.clone();
            move |_| source.entries()
        });
        let without_values = empty_columns::by_default(page, &source, &columns, entries);
        let shown = Memo::new({
            let columns = columns.clone();
            move |_| {
                let room = available_width.get();
                without_values.with(|without| choice.with(|choice| choice.shown(&columns, without, room)))
            }
        });
        let is_wide = Memo::new({
            let columns = columns.clone();
            move |_| {
                let width = |at: &usize| u32::from(columns[*at].width);
                choice.with(Choice::is_own)
                    && shown.with(|shown| shown.iter().map(width).sum::<u32>()) > available_width.get()
            }
        });
        let filter_text = page.address.query(names.filter);
        let (filter, error) = filter(filter_text, &columns);
        let sort = Memo::new({
            let (text, columns) = (page.address.query(names.sort), columns.clone());
            move |_| text.with(|text| Sort::parse(text.as_deref()?, &columns))
        });
        let is_held =
            Memo::new(move |_| is_hovered.get() && (sort.get().is_some() || filter_text.get().is_some()));
        let matching = Memo::new({
            let (source, columns, step) = (source.clone(), columns.clone(), page.step);
            move |_| {
                let (sort, filter) = (sort.get(), filter.get());
                // An order or filter that depends on readings is re-evaluated now and then, but not under the
                // pointer or out of view.
                if (sort.is_some() || !filter.is_empty()) && !is_hovered.get() && is_in_view.get() {
                    step.track();
                }
                entries.with(|entries| in_order(&source, &columns, entries, &filter, sort))
            }
        });
        // A filter shows all that it finds.
        let folding = Memo::new({
            let source = source.clone();
            move |_| {
                matching.with(|rows| if filter_text.get().is_some() { None } else { source.folding(rows) })
            }
        });
        let is_unfolded = page.address.has_query(query::SHOWN);
        let order = Memo::new(move |_| match folding.get() {
            Some(folding) if !is_unfolded.get() => folding.shown,
            _ => matching.get(),
        });
        // While out of view, the rendered part stays.
        let last = StoredValue::new((0, 0));
        let part = Memo::new(move |_| {
            match visibility.get() {
                Visibility::Hidden => {}
                Visibility::Part(from, height) => last.set_value((scroll.get() + from, height)),
                Visibility::Full => last.set_value((0, u32::MAX)),
            }
            last.get_value()
        });
        let window = Memo::new(move |_| {
            let (top, height) = part.get();
            Window::over(order.with(Vec::len), top, height, row_px.get())
        });
        let in_view = Memo::new(move |_| {
            let (top, height) = if is_in_view.get() { part.get() } else { (0, 0) };
            Window::in_view(order.with(Vec::len), top, height, row_px.get())
        });
        let selected = RwSignal::new(None);
        let (outer, input) = (NodeRef::new(), NodeRef::new());
        let page = page.clone();
        Self {
            source,
            names,
            columns,
            vendors,
            shown,
            choice,
            filter_text,
            error,
            sort,
            entries,
            matching,
            folding,
            is_unfolded,
            order,
            window,
            in_view,
            selected,
            is_hovered,
            is_held,
            row_px,
            outer,
            input,
            is_in_view,
            is_wide,
            scroll,
            visibility,
            available_width,
            filter_cost_ms: StoredValue::new(0.0),
            typing: StoredValue::new_local(None),
            page,
            time: Time::from_context(),
        }
    }

    /// Returns a column, titled as the vendors of its devices name it.
    pub fn column(&self, at: usize) -> Column {
        self.columns[at].for_vendors(self.vendors.get())
    }

    /// Returns the columns that have no value in any row at present; does not subscribe.
    pub fn empty_columns(&self) -> Vec<usize> {
        self.entries.with_untracked(|entries| empty_columns::at_present(&self.source, &self.columns, entries))
    }

    /// Returns whether there are no rows at all, matching or not.
    pub fn is_empty(&self) -> Memo<bool> {
        let entries = self.entries;
        Memo::new(move |_| entries.with(Vec::is_empty))
    }

    /// Returns the rendered rows.
    pub fn rendered(&self) -> Memo<Vec<RowEntry>> {
        let (order, window) = (self.order, self.window);
        Memo::new(move |_| {
            let window = window.get();
            order.with(|order| order.get(window.first..window.end).unwrap_or_default().to_vec())
        })
    }

    /// Returns the height of the spacers above and below, in px.
    pub fn spaces(&self) -> (Memo<u32>, Memo<u32>) {
        let (order, window, row_px) = (self.order, self.window, self.row_px);
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
        let shown = (!self.is_unfolded.get_untracked()).then(|| "all".to_owned());
        self.page.address.set_query(query::SHOWN, shown);
    }

    /// Selects a row and scrolls it into view.
    pub fn select(&self, index: usize) {
        let Some(key) = self.order.with_untracked(|order| order.get(index).map(|entry| entry.key.clone()))
        else {
            return;
        };
        self.selected.set(Some(key));
        self.reveal(index);
    }

    /// Scrolls until a row is visible between the sticky head and footer.
    fn reveal(&self, index: usize) {
        let Some(outer) = self.outer.get_untracked() else { return };
        let scroller = if self.is_wide.get_untracked() { Some(outer.clone().into()) } else { main(&outer) };
        let Some(scroller) = scroller else { return };
        let height = |part: &str| {
            let part = outer.query_selector(part).ok().flatten();
            part.map_or(0, |part| platform::bounding_rect(&part)[3] as i32)
        };
        let (head, row) = (height("thead"), self.row_px.get_untracked().cast_signed());
        let inner_scroll = self.scroll.get_untracked().cast_signed();
        let first = platform::bounding_rect(&outer)[1] as i32 + head - inner_scroll;
        let top = first + index as i32 * row;
        let [_, view, _, view_height] = platform::bounding_rect(&scroller).map(|side| side as i32);
        let view = (view + head, view + view_height - height("tfoot"));
        if let Some(by) = scroll_to_reveal((top, top + row), view) {
            scroller.set_scroll_top(scroller.scroll_top() + by);
        }
    }

    /// Returns the index of the selection among the rows.
    pub fn selection(&self) -> Option<usize> {
        let key = self.selected.get_untracked()?;
        self.order.with_untracked(|order| order.iter().position(|entry| entry.key == key))
    }

    /// Opens what a row represents.
    pub fn open(&self, index: usize) {
        if let Some(entry) = self.order.with_untracked(|order| order.get(index).cloned()) {
            self.source.open(&entry);
        }
    }

    /// Returns whether enough rows are in view for the sums to stay in view, too.
    pub fn has_room_for_sums(&self) -> Memo<bool> {
        let (in_view, row_px) = (self.in_view, self.row_px);
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
        let table = self.outer.get_untracked().and_then(|outer| outer.query_selector("table").ok()?);
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
        let drawn = self.order.with(|order| {
            order.get(window.first..window.end).unwrap_or_default().iter().any(|entry| entry.key == key)
        });
        drawn.then(|| self.row_id(&key))
    }

    /// Returns the width below which it scrolls horizontally: only for a user's choice of columns.
    pub fn min_width(&self) -> Option<String> {
        let own = self.choice.with(Choice::is_own);
        own.then(|| format!("{}px", self.width()))
    }

    /// Returns the width of the shown columns in px.
    fn width(&self) -> u32 {
        self.shown.with(|shown| shown.iter().map(|at| u32::from(self.columns[*at].width)).sum())
    }

    /// Returns whether rows have space for a second line.
    pub fn is_tall(&self) -> bool {
        self.row_px.get() >= TALL_PX
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
        let rows: Vec<Vec<Value>> = self.matching.with_untracked(|rows| rows.iter().map(row).collect());
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
        widths(&self.columns, shown, self.available_width.get())
    }

    /// Changes once a second, for aggregates.
    pub fn second(&self) -> u64 {
        self.page.second.get()
    }

    /// Observes which part of it is visible, until the guards are dropped. The observer reports no change while a
    /// table that exceeds the viewport scrolls through it, so that the page's scrolling is observed as well.
    pub fn observe_visibility(&self) -> Option<(Observer, Listener)> {
        let outer = self.outer.get_untracked()?;
        let (visibility, seen, scrolled) = (self.visibility, self.clone(), self.clone());
        let observer = Observer::visibility(outer.as_ref(), move |part| match part {
            Visibility::Hidden => visibility.set(Visibility::Hidden),
            _ => seen.read_visible_part(),
        });
        let on_scroll = move |_| scrolled.read_visible_part();
        let guards = observer.zip(main(&outer).map(|main| Listener::new(main, "scroll", on_scroll)));
        if guards.is_none() {
            visibility.set(Visibility::Full);
        }
        guards
    }

    /// Reads which part of it the page shows.
    fn read_visible_part(&self) {
        let Some(outer) = self.outer.get_untracked() else { return };
        let Some(main) = main(&outer) else { return };
        let place = |element: &Element| {
            let [_, top, _, height] = platform::bounding_rect(element);
            (top, height)
        };
        let part = visible_part(place(&outer), place(&main), MARGIN_PX);
        let part = part.map_or(Visibility::Hidden, |(from, height)| Visibility::Part(from, height));
        if self.visibility.get_untracked() != part {
            self.visibility.set(part);
        }
    }

    /// Reads the scroll offset.
    pub fn on_scroll(&self) {
        if let Some(outer) = self.outer.get_untracked() {
            let at = outer.scroll_top().max(0).cast_unsigned();
            if self.scroll.get_untracked() != at {
                self.scroll.set(at);
            }
        }
    }

    /// Reads the available width.
    pub fn measure(&self) {
        let Some(outer) = self.outer.get_untracked() else { return };
        // A hidden box has no width; the section around it has.
        let parent: Option<Element> = outer.parent_element().and_then(|parent| parent.dyn_into().ok());
        let width = parent.map_or(0, |parent| parent.client_width()).max(0).cast_unsigned();
        if width > 0 {
            self.available_width.set(width.saturating_sub(FRAME_PX));
        }
        if self.row_px.get_untracked() != row_height() {
            self.row_px.set(row_height());
        }
        self.on_scroll();
        if self.is_in_view.get_untracked() {
            self.read_visible_part();
        }
    }
}

/// Returns the element that scrolls the page.
fn main(outer: &HtmlElement) -> Option<Element> {
    outer.closest("main").ok().flatten()
}

/// Returns the height of a row in px, as in the style sheet.
fn row_height() -> u32 {
    platform::media_token("--row").trim_end_matches("px").parse().unwrap_or(ROW_PX)
}

fn in_order(
    source: &SharedSource,
    columns: &[Column],
    entries: &[RowEntry],
    filter: &Filter,
    sort: Option<Sort>,
) -> Vec<RowEntry> {
    if filter.is_empty() && sort.is_none() {
        return entries.to_vec();
    }
    let depths: Vec<u8> = entries.iter().map(|entry| entry.depth).collect();
    let keep = |row: usize| filter.passes(columns, &|column| source.value(&entries[row], column));
    let order = ordered(&depths, &keep, sort, &|row, column| source.value(&entries[row], column));
    order.into_iter().map(|row| entries[row].clone()).collect()
}

/// Returns the filter of a text, and its error; an invalid text keeps the last valid filter.
fn filter(
    filter_text: Memo<Option<String>>,
    columns: &Arc<Vec<Column>>,
) -> (Memo<Filter>, Memo<Option<FilterError>>) {
    let parsed = Memo::new({
        let columns = columns.clone();
        move |_| {
            filter_text
                .with(|filter_text| Filter::parse(filter_text.as_deref().unwrap_or_default(), &columns))
        }
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

fn storage_name(names: TableNames) -> String {
    format!("nodeglass-columns-{}", names.id)
}
