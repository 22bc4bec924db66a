//! The state that all graphs of a page share: time range, cursor, and the highlighted GPU.

use crate::chart::{Placement, Range, Window};
use crate::domain::metric::GraphMetric;
use crate::domain::query::{METRIC, PIN, RANGE};
use crate::domain::text;
use crate::fleet::TopicStore;
use crate::platform::{self, Listener};
use crate::state::page::Page;
use leptos::prelude::*;
use nodeglass_protocol::range::RangeQuery;
use nodeglass_protocol::{GpuUuid, NodeName};
use wasm_bindgen::JsCast;

/// State that the graphs share; a Leptos context. Clones share the same state.
#[derive(Clone)]
pub struct Time {
    page: Page,
    range: RwSignal<Range>,
    /// The range in the URL.
    written: StoredValue<Range>,
    /// The moment under the cursor, in ms of the relay's clock.
    pub cursor: RwSignal<Option<u64>>,
    hovered: RwSignal<Option<GpuRef>>,
    /// The GPU that the URL names.
    pinned: Memo<Option<GpuRef>>,
    metric: RwSignal<Option<GraphMetric>>,
    /// Width and height of the viewport in CSS pixels.
    size: RwSignal<(f64, f64)>,
    tooltip: RwSignal<Option<TooltipPlace>>,
    system_theme_changes: RwSignal<u64>,
}

/// The graph whose tooltip is shown, and where.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TooltipPlace {
    /// Number of the graph.
    pub graph: u32,
    /// Its place.
    pub placement: Placement,
}

/// A GPU, identified across nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct GpuRef {
    /// Its node.
    pub node: NodeName,
    /// The GPU.
    pub gpu: GpuUuid,
}

impl GpuRef {
    /// Parses `NODE/UUID`.
    fn parse(text: &str) -> Option<Self> {
        let (node, gpu) = text.split_once('/')?;
        Some(Self { node: node.parse().ok()?, gpu: GpuUuid::new(gpu) })
    }
}

/// Length of a range in s from which its axis shows dates.
const DATES_S: u64 = Range::WEEK_MS / 1_000 + 1;
/// Length of a range in s from which its axis also shows years.
const YEARS_S: u64 = 300 * 86_400;

/// Number of steps of the long-term history that are loaded; graphs with less space combine several.
const LOADED_STEPS: usize = 600;

impl Time {
    /// Creates the state from the URL and keeps both in sync.
    pub fn start(page: &Page) -> Self {
        let pin = page.address.query(PIN);
        let time = Self {
            page: page.clone(),
            range: RwSignal::new(Range::default()),
            written: StoredValue::new(Range::default()),
            cursor: page.cursor,
            hovered: RwSignal::new(None),
            pinned: Memo::new(move |_| pin.with(|pin| GpuRef::parse(pin.as_ref()?))),
            metric: RwSignal::new(None),
            size: RwSignal::new((platform::width(), platform::height())),
            tooltip: RwSignal::new(None),
            system_theme_changes: RwSignal::new(0),
        };
        let changes = time.system_theme_changes;
        StoredValue::new_local(platform::on_system_theme(move |_| {
            platform::clear_token_cache();
            changes.update(|changes| *changes += 1);
        }));
        let size = time.size;
        let resized = move |_| size.set((platform::width(), platform::height()));
        StoredValue::new_local(Listener::new(window(), "resize", resized));
        // A finger leaves its tooltip behind until it touches something else.
        let touched = time.clone();
        let dismiss = move |event: web_sys::Event| {
            let target = event.target().and_then(|target| target.dyn_into::<web_sys::Element>().ok());
            let is_graph = target.and_then(|target| target.closest(".stage").ok().flatten()).is_some();
            if !is_graph && touched.tooltip.get_untracked().is_some() {
                touched.leave();
            }
        };
        StoredValue::new_local(Listener::new(window(), "pointerdown", dismiss));
        time.read_url();
        time.write_url();
        time.load_long_history();
        time
    }

    /// Loads what the graphs show of the long-term history: one query at a time, and again with every step. A long-term
    /// storage that hangs delays nothing that the relay has itself.
    fn load_long_history(&self) {
        let (time, loading) = (self.clone(), [RwSignal::new(false), RwSignal::new(false)]);
        platform::effect(move || {
            let range = time.range();
            time.page.second.track();
            time.page.ended_ms.track();
            let now_ms = time.now_ms();
            let window = range.window(now_ms, LOADED_STEPS);
            let stores = time.page.fleet.detail().into_iter().chain([time.page.fleet.overview().clone()]);
            let missing = |store: TopicStore| Some((store.long_history().missing(&window, now_ms)?, store));
            let next = stores.filter_map(missing).next();
            let Some((request, store)) = next.filter(|_| window.is_long()) else { return };
            // Without a connection there is no response, and the next attempt would follow at once, forever.
            if !time.page.feed.is_live() {
                return;
            }
            let is_old = time.is_old(request.start_ms());
            let is_loading = loading[usize::from(is_old)];
            if is_loading.get() {
                return;
            }
            is_loading.set(true);
            let shown = time.clone();
            let feed = time.page.feed.clone();
            leptos::task::spawn_local(async move {
                let range = feed.range(request.query(store.topic())).await;
                let window = untrack(|| shown.range()).window(shown.now_ms(), LOADED_STEPS);
                // The user may have chosen a range of the other kind, which must not be replaced.
                if let Some(range) = range.filter(|_| shown.is_old(window.start_ms()) == is_old) {
                    store.long_history().set(request, range, now_ms);
                }
                is_loading.set(false);
            });
        });
    }

    /// Returns whether a range that begins at a moment is one of the long-term storage. Does not subscribe the caller.
    fn is_old(&self, from_ms: u64) -> bool {
        RangeQuery::needs_storage(from_ms, self.page.fleet.relay_ms(platform::now_ms()))
    }

    /// Returns the length of the longest range in ms: a week, or what the relay reads of a long-term storage.
    pub fn longest_ms(&self) -> u64 {
        let days = self.page.fleet.welcome().map_or(0, |welcome| welcome.history_days);
        (u64::from(days) * 86_400_000).clamp(Range::WEEK_MS, Range::LONGEST_MS)
    }

    /// Returns the state of the calling view's page.
    pub fn from_context() -> Self {
        expect_context()
    }

    /// The page.
    pub fn page(&self) -> &Page {
        &self.page
    }

    /// Returns the time range that is shown: the chosen one, without the time before an ended job.
    pub fn range(&self) -> Range {
        self.range.get().within_run(self.page.run_ms.get())
    }

    /// Returns the time range that the user chose.
    pub fn chosen_range(&self) -> Range {
        self.range.get()
    }

    /// Changes the range, given the shown one and the relay's clock.
    pub fn set_range(&self, at: impl FnOnce(Range, u64) -> Range) {
        let now_ms = self.now_ms();
        let range = untrack(|| at(self.range(), now_ms).limited(self.longest_ms(), now_ms));
        if range != self.range.get_untracked() {
            self.range.set(range);
        }
    }

    /// Changes the range like [`Self::set_range`], but as a step of the browser's history: Back shows the current one.
    pub fn zoom(&self, at: impl FnOnce(Range, u64) -> Range) {
        self.write_range(false);
        self.set_range(at);
        self.write_range(true);
    }

    /// Changes the range while the pointer stays over a graph: the cursor is at the same place of the new range.
    pub fn with_pointer_over(&self, change: impl FnOnce(&Self)) {
        let (before, now_ms) = (untrack(|| self.range()), self.now_ms());
        change(self);
        let (range, cursor) = (untrack(|| self.range()), self.cursor.get_untracked());
        if range != before {
            self.set_cursor(cursor.map(|at_ms| range.at_place_in(before, at_ms, now_ms)));
        }
    }

    /// Returns the window of a graph with at most `most` steps; changes when a step passes.
    pub fn window(&self, most: Signal<usize>) -> Memo<Window> {
        self.follow(most, Range::window)
    }

    /// Returns the window of a heat map with at most `most` cells a line; changes when a cell begins.
    pub fn cells(&self, most: Signal<usize>) -> Memo<Window> {
        self.follow(most, Range::cells)
    }

    /// Returns a window of the range. Graphs follow the clock one after another, each in a frame of its own: a page has up
    /// to ten.
    fn follow(&self, most: Signal<usize>, window: fn(Range, u64, usize) -> Window) -> Memo<Window> {
        let clock_ms = {
            let time = self.clone();
            move || time.now_ms()
        };
        let shown_ms = RwSignal::new(clock_ms());
        let (second, frames, read_ms) = (self.page.second, self.page.frames, clock_ms.clone());
        Effect::watch(
            move || second.get(),
            move |_, _, _| {
                let read_ms = read_ms.clone();
                // The view may be gone by then.
                frames.push(move || _ = shown_ms.try_set(read_ms()));
            },
            false,
        );
        let (time, ended_ms, started_ms) = (self.clone(), self.page.ended_ms, self.page.started_ms);
        Memo::new(move |_| {
            let range = time.range();
            let now_ms = ended_ms.get().unwrap_or_else(|| match range.is_live() {
                true => shown_ms.get(),
                false => clock_ms(),
            });
            window(range, now_ms, most.get()).since(started_ms.get().unwrap_or_default())
        })
    }

    /// Returns the moment at which a live range ends: the relay's clock, or the end of an ended job. Does not
    /// subscribe the caller.
    pub fn now_ms(&self) -> u64 {
        let ended_ms = self.page.ended_ms.get_untracked();
        ended_ms.unwrap_or_else(|| self.page.fleet.relay_ms(platform::now_ms()))
    }

    /// Returns whether the graphs end with an ended job.
    pub fn is_over(&self) -> bool {
        self.page.ended_ms.get().is_some()
    }

    /// Subscribes to theme (the system's, too) and colour scheme; the number changes with the system's theme.
    pub fn track_colours(&self) -> u64 {
        self.page.settings.theme();
        self.page.settings.scheme();
        self.system_theme_changes.get()
    }

    /// Returns the width of the viewport in CSS pixels.
    pub fn width(&self) -> f64 {
        self.size.get().0
    }

    /// Shows the tooltip of a graph for a pointer at a point of the window.
    pub fn show_tooltip(&self, graph: u32, at: (f64, f64), is_touch: bool) {
        let placement = Placement::beside(at, self.size.get_untracked(), is_touch);
        self.tooltip.set(Some(TooltipPlace { graph, placement }));
    }

    /// Returns where the tooltip of a graph lies, if it is shown.
    pub fn tooltip(&self, graph: u32) -> Option<Placement> {
        self.tooltip.get().filter(|place| place.graph == graph).map(|place| place.placement)
    }

    /// Removes cursor, tooltip and highlight.
    pub fn leave(&self) {
        self.tooltip.set(None);
        self.set_cursor(None);
        self.hover_gpu(None);
    }

    /// Returns the moment under the cursor, in ms of the relay's clock.
    pub fn cursor(&self) -> Option<u64> {
        self.cursor.get()
    }

    /// Moves the cursor.
    pub fn set_cursor(&self, at_ms: Option<u64>) {
        if self.cursor.get_untracked() != at_ms {
            self.cursor.set(at_ms);
        }
    }

    /// Returns the highlighted GPU: the hovered one, or else the pinned one.
    pub fn highlighted(&self) -> Option<GpuRef> {
        self.hovered.get().or_else(|| self.pinned.get())
    }

    /// Sets the hovered GPU.
    pub fn hover_gpu(&self, highlighted: Option<GpuRef>) {
        if self.hovered.with_untracked(|known| *known != highlighted) {
            self.hovered.set(highlighted);
        }
    }

    /// Pins a GPU, or unpins it if it was pinned.
    pub fn toggle_pinned(&self, highlighted: Option<GpuRef>) {
        let is_pinned = self.pinned.with_untracked(|known| *known == highlighted);
        let pinned = highlighted.filter(|_| !is_pinned);
        self.page.address.set_query(PIN, pinned.map(|GpuRef { node, gpu }| format!("{node}/{gpu}")));
    }

    /// Returns the pinned GPU.
    pub fn pinned(&self) -> Option<GpuRef> {
        self.pinned.get()
    }

    /// Returns the metric that the user selected for heat map and overlay.
    pub fn metric(&self) -> Option<GraphMetric> {
        self.metric.get()
    }

    /// Selects the metric.
    pub fn set_metric(&self, metric: GraphMetric) {
        self.metric.set(Some(metric));
        self.page.address.set_query(METRIC, Some(metric.name().into_owned()));
    }

    /// Converts a moment to Unix time by the login node's clock, in s.
    pub fn wall_s(&self, at_ms: u64) -> i64 {
        (at_ms / 1_000).cast_signed() + self.wall_offset_s()
    }

    /// Formats a moment in the browser's time zone, with seconds.
    pub fn clock(&self, at_ms: u64) -> String {
        platform::format_time_s(self.wall_s(at_ms))
    }

    /// Formats a moment for a range of `span_s` seconds: `09:14:03`, `09:14` from an hour on, and with the day
    /// from twelve hours on.
    pub fn axis_clock(&self, at_ms: u64, span_s: u64) -> String {
        let wall_s = self.wall_s(at_ms);
        match span_s {
            0..3_600 => platform::format_time_s(wall_s),
            3_600..43_200 => platform::format_time(wall_s),
            _ => platform::format_date_time(wall_s),
        }
    }

    /// Formats a moment for the axis of a range of `span_s` seconds: like [`Self::axis_clock`], but as a date beyond a
    /// week: `22 Nov`, or `22 Nov 2025`.
    pub fn axis_text(&self, at_ms: u64, span_s: u64) -> String {
        let wall_s = self.wall_s(at_ms);
        match span_s {
            0..DATES_S => self.axis_clock(at_ms, span_s),
            DATES_S..YEARS_S => platform::format_date(wall_s),
            _ => {
                let year: String = platform::local_datetime(wall_s).chars().take(4).collect();
                format!("{} {year}", platform::format_date(wall_s))
            }
        }
    }

    /// Formats a moment with its distance from the end of a live range: `09:14:03 · 2 min ago`.
    pub fn moment_text(&self, at_ms: u64) -> String {
        let before_s = self.now_ms().saturating_sub(at_ms) / 1_000;
        let than = if self.is_over() { "before the end" } else { "ago" };
        format!("{} · {} {than}", self.axis_clock(at_ms, before_s), text::span(before_s))
    }

    /// Time of day minus relay's clock, in s. It does not depend on the moment, so that a range in the URL stays the same.
    fn wall_offset_s(&self) -> i64 {
        self.page.fleet.wall_ahead_ms().div_euclid(1_000)
    }

    fn read_url(&self) {
        let (range, metric) = (self.page.address.query(RANGE), self.page.address.query(METRIC));
        let time = self.clone();
        // The relay's clock is unknown before its first message.
        let known = Memo::new({
            let fleet = self.page.fleet.clone();
            move |_| fleet.welcome().is_some()
        });
        platform::effect(move || {
            let text = range.get();
            if !known.get() || text == time.range_text() {
                return;
            }
            let now_ms = time.now_ms();
            let range = text.and_then(|text| Range::from_text(&text, time.wall_offset_s(), now_ms));
            time.range.set(range.unwrap_or_default().limited(time.longest_ms(), now_ms));
        });
        let time = self.clone();
        platform::effect(move || {
            time.metric.set(metric.get().and_then(|name| GraphMetric::from_name(&name)));
        });
    }

    fn range_text(&self) -> Option<String> {
        self.range.get_untracked().text(self.wall_offset_s())
    }

    /// Updates the URL once a second: browsers throttle more frequent updates.
    fn write_url(&self) {
        let time = self.clone();
        platform::effect(move || {
            time.page.second.track();
            time.write_range(false);
        });
    }

    /// Writes the range to the URL if it has changed; as a step of the history, or in place of the current one.
    fn write_range(&self, is_step: bool) {
        let range = self.range.get_untracked();
        if range != self.written.get_value() {
            self.written.set_value(range);
            match is_step {
                true => self.page.address.push_query(RANGE, self.range_text()),
                false => self.page.address.set_query(RANGE, self.range_text()),
            }
        }
    }
}
