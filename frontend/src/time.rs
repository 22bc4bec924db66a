//! All graphs of a page share one stretch of time, one cursor and one GPU that is pointed at.

use crate::browser::{self, Listener};
use crate::chart::{Range, Window};
use crate::metric::Metric;
use crate::page::Page;
use crate::query::RANGE;
use leptos::prelude::*;
use nodeglass_protocol::{GpuUuid, NodeName};

/// What the graphs share; a context. Clones are the same.
#[derive(Clone)]
pub struct Time {
    page: Page,
    range: RwSignal<Range>,
    /// The moment that is pointed at, in ms of the relay's clock.
    pub cursor: RwSignal<Option<u64>>,
    pointed: RwSignal<Option<Pick>>,
    chosen: RwSignal<Option<Pick>>,
    metric: RwSignal<Metric>,
    width: RwSignal<f64>,
    system_looks: RwSignal<u64>,
}

/// A GPU that stands out.
#[derive(Clone, Debug, PartialEq)]
pub struct Pick {
    /// Its node.
    pub node: NodeName,
    /// The GPU.
    pub gpu: GpuUuid,
}

/// The name of the metric in the URL.
const METRIC: &str = "m";

impl Time {
    /// What the URL says, kept up with it both ways.
    pub fn start(page: &Page) -> Self {
        let time = Self {
            page: page.clone(),
            range: RwSignal::new(Range::default()),
            cursor: RwSignal::new(None),
            pointed: RwSignal::new(None),
            chosen: RwSignal::new(None),
            metric: RwSignal::new(Metric::default()),
            width: RwSignal::new(browser::width()),
            system_looks: RwSignal::new(0),
        };
        let looks = time.system_looks;
        StoredValue::new_local(browser::on_system_theme(move |_| {
            browser::forget_tokens();
            looks.update(|looks| *looks += 1);
        }));
        let width = time.width;
        StoredValue::new_local(Listener::new(window(), "resize", move |_| width.set(browser::width())));
        time.read_url();
        time.write_url();
        time
    }

    /// The time of the page that the calling view is on.
    pub fn here() -> Self {
        expect_context()
    }

    /// What is looked at.
    pub fn range(&self) -> Range {
        self.range.get()
    }

    /// Looks at another stretch, given the one before and the relay's clock.
    pub fn look(&self, at: impl FnOnce(Range, u64) -> Range) {
        let now_ms = self.page.fleet.relay_ms(browser::now_ms());
        let range = at(self.range.get_untracked(), now_ms);
        if range != self.range.get_untracked() {
            self.range.set(range);
        }
    }

    /// The steps of a graph that has room for so many, renewed when the newest is another one.
    pub fn window(&self, most: Signal<usize>) -> Memo<Window> {
        let time = self.clone();
        Memo::new(move |_| {
            let (range, now_ms) = (time.range.get(), time.now_ms());
            Window::over(range.end_ms(now_ms), range.span_ms(), most.get())
        })
    }

    /// The relay's clock: renewed every second while graphs follow it, and at rest while they do not.
    pub fn now_ms(&self) -> u64 {
        if self.range.get().is_live() {
            self.page.now_ms()
        } else {
            self.page.fleet.relay_ms(browser::now_ms())
        }
    }

    /// Follows the colours: the theme, the system's too, and the scheme; a number that grows with the system's.
    pub fn follow_looks(&self) -> u64 {
        self.page.settings.theme();
        self.page.settings.scheme();
        self.system_looks.get()
    }

    /// Width of the window in CSS pixels.
    pub fn width(&self) -> f64 {
        self.width.get()
    }

    /// The moment that is pointed at, in ms of the relay's clock.
    pub fn cursor(&self) -> Option<u64> {
        self.cursor.get()
    }

    /// Points at a moment.
    pub fn point_at(&self, at_ms: Option<u64>) {
        if self.cursor.get_untracked() != at_ms {
            self.cursor.set(at_ms);
        }
    }

    /// The GPU that stands out: the one pointed at, or else the one chosen.
    pub fn pick(&self) -> Option<Pick> {
        self.pointed.get().or_else(|| self.chosen.get())
    }

    /// Points at a GPU.
    pub fn point_at_gpu(&self, pick: Option<Pick>) {
        if self.pointed.with_untracked(|known| *known != pick) {
            self.pointed.set(pick);
        }
    }

    /// Chooses a GPU, or lets go of it when it was chosen already.
    pub fn choose(&self, pick: Option<Pick>) {
        let again = self.chosen.with_untracked(|known| *known == pick);
        self.chosen.set(pick.filter(|_| !again));
    }

    /// The metric that heat map and overlay show.
    pub fn metric(&self) -> Metric {
        self.metric.get()
    }

    /// Shows another metric.
    pub fn show(&self, metric: Metric) {
        self.metric.set(metric);
        self.page.address.set_query(METRIC, (metric != Metric::default()).then(|| metric.name().to_owned()));
    }

    /// The cluster's time of day of a moment, in seconds since 1970.
    pub fn wall_s(&self, at_ms: u64) -> i64 {
        (at_ms / 1_000).cast_signed() + self.wall_ahead_s()
    }

    /// The cluster's time of day of a moment, as a clock with seconds.
    pub fn clock(&self, at_ms: u64) -> String {
        browser::clock_of_day(self.wall_s(at_ms))
    }

    fn wall_ahead_s(&self) -> i64 {
        let page_ms = browser::now_ms();
        self.page.fleet.wall_s(page_ms) - (self.page.fleet.relay_ms(page_ms) / 1_000).cast_signed()
    }

    fn read_url(&self) {
        let (range, metric) = (self.page.address.query(RANGE), self.page.address.query(METRIC));
        let time = self.clone();
        // The relay's clock is not known before its first message.
        let known = Memo::new({
            let fleet = self.page.fleet.clone();
            move |_| fleet.welcome().is_some()
        });
        Effect::new(move || {
            let text = range.get();
            if !known.get() || text == time.range_text() {
                return;
            }
            let now_ms = time.page.fleet.relay_ms(browser::now_ms());
            let range = text.and_then(|text| Range::of_text(&text, time.wall_ahead_s(), now_ms));
            time.range.set(range.unwrap_or_default());
        });
        let time = self.clone();
        Effect::new(move || {
            let named = metric.get().and_then(|name| Metric::of_name(&name));
            time.metric.set(named.unwrap_or_default());
        });
    }

    fn range_text(&self) -> Option<String> {
        self.range.get_untracked().text(self.wall_ahead_s())
    }

    /// The URL follows once a second: browsers refuse to be told at every turn of a wheel.
    fn write_url(&self) {
        let time = self.clone();
        let last = StoredValue::new(self.range.get_untracked());
        Effect::new(move || {
            time.page.second.track();
            let range = time.range.get_untracked();
            if range != last.get_value() {
                last.set_value(range);
                time.page.address.set_query(RANGE, time.range_text());
            }
        });
    }
}
