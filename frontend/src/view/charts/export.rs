//! Exports of a graph: a picture with title and time, or the underlying numbers.

use super::gpu_groups::{GpuEntry, NodeGroup};
use crate::chart::{Point, intervals};
use crate::domain::deviation::StepDeviation;
use crate::domain::metric::GraphMetric;
use crate::fleet::TopicStore;
use crate::platform;
use crate::state::page::Page;
use crate::state::time::Time;
use crate::view::widgets::copy::copy;
use crate::view::widgets::menu::Menu;
use leptos::prelude::*;
use nodeglass_protocol::Cell;
use nodeglass_rules::csv;
use std::borrow::Cow;
use std::fmt::Write;
use std::sync::Arc;
use wasm_bindgen::JsCast;
use web_sys::{CanvasRenderingContext2d, Element, HtmlAnchorElement, HtmlCanvasElement, MouseEvent};

/// Elements of a panel that are drawn into a picture, besides its title.
const PARTS: &str = "canvas, .axis span, .heat-map__names a > span, .heat-map__states b, .legend i, .legend span, .read-out, .graph__tick, .graph__title, .lane span, .lane__time";

/// The exports of one graph.
#[derive(Clone)]
pub struct Export {
    page: Page,
    time: Time,
    store: TopicStore,
    groups: Memo<Vec<NodeGroup>>,
    metric: Memo<GraphMetric>,
    /// The metrics of several graphs, which are exported together; empty for one graph.
    metrics: Vec<GraphMetric>,
}

/// Maximum number of lines of a CSV of the long-term history.
const CSV_STEPS: usize = 600;

/// Space for the title above a picture, and around it, in pixels.
const HEAD: f64 = 48.0;
const EDGE: f64 = 20.0;

impl Export {
    /// Creates the exports of a metric of some GPUs.
    pub fn new(
        page: &Page,
        time: &Time,
        store: &TopicStore,
        groups: Memo<Vec<NodeGroup>>,
        metric: Memo<GraphMetric>,
    ) -> Self {
        let (page, time, store, metrics) = (page.clone(), time.clone(), store.clone(), Vec::new());
        Self { page, time, store, groups, metric, metrics }
    }

    /// Exports these metrics together: those of the graphs of a panel.
    pub fn of(self, metrics: impl Iterator<Item = GraphMetric>) -> Self {
        Self { metrics: metrics.collect(), ..self }
    }

    /// Returns the menu.
    pub fn menu(&self) -> AnyView {
        let (export, open) = (self.clone(), RwSignal::new(false));
        let inside = Arc::new(move || export.items(open));
        let about =
            if self.metrics.is_empty() { "Save or copy this graph" } else { "Save or copy these graphs" };
        view! { <Menu title="⋯" about open inside/> }.into_any()
    }

    fn items(&self, open: RwSignal<bool>) -> AnyView {
        let (picture, copied, numbers) = (self.clone(), self.clone(), self.clone());
        // The graph is found by the button, which the menu removes when it closes.
        let save = move |event| {
            picture.save(&event);
            open.set(false);
        };
        let save_numbers = move |_| {
            numbers.save_numbers();
            open.set(false);
        };
        let copy_numbers = move |_| {
            copy(&copied.page, &copied.numbers(), || ());
            open.set(false);
        };
        view! {
            <button class="menu__item" on:click=save>"Save as PNG"</button>
            <button class="menu__item" on:click=save_numbers>"Save numbers as CSV"</button>
            <button class="menu__item" on:click=copy_numbers>"Copy numbers as CSV"</button>
        }
        .into_any()
    }

    /// A picture's title. Somebody may look at it weeks later.
    fn title(&self, what: &str) -> String {
        let now_ms = self.time.now_ms();
        let range = untrack(|| self.time.range());
        let name = untrack(|| self.page.route.get().job().map(|id| self.page.job_name_and_label(id)));
        let name = name.map(|name| format!("{name} · ")).unwrap_or_default();
        let [from, to] = [range.start_ms(now_ms), range.end_ms(now_ms)]
            .map(|at_ms| platform::local_datetime(self.time.wall_s(at_ms)));
        format!("{name}{what} · {from} – {to} {}", platform::utc_text(platform::utc_offset_min()))
    }

    /// The file's name: of files of two jobs, none replaces the other.
    fn file(&self, what: &str, kind: &str) -> String {
        let job = untrack(|| self.page.route.get().job()).map(|id| format!("{id}-")).unwrap_or_default();
        format!("nodeglass-{job}{what}.{kind}")
    }

    /// Returns a CSV with one line per second, or per step of the long-term history, and, for each GPU, a column of each metric and one of
    /// the deviation from its peers, in the units named in the first line; empty where unknown. Of several metrics, those without a value
    /// have no column.
    pub fn numbers(&self) -> String {
        let (metric, groups) = (self.metric.get_untracked(), self.groups.get_untracked());
        let is_one = self.metrics.is_empty();
        let metrics = if is_one { std::slice::from_ref(&metric) } else { &self.metrics };
        let now_ms = self.time.now_ms();
        let range = untrack(|| self.time.range());
        let started_ms = self.page.started_ms.get_untracked().unwrap_or_default();
        let window = range.window(now_ms, CSV_STEPS).since(started_ms);
        let step_s = if window.is_long() { window.step_ms() / 1_000 } else { 1 };
        let (from, to) = match window.is_long() {
            true => (window.start_ms() / 1_000, window.end_ms() / 1_000),
            false => (range.start_ms(now_ms).max(started_ms) / 1_000, range.end_ms(now_ms) / 1_000),
        };
        let mut columns: Vec<Vec<Option<f32>>> = Vec::new();
        let mut out = String::from("unix_s");
        let all = || groups.iter().flat_map(|group| group.gpus.iter().map(move |gpu| (group, gpu)));
        let is_compared = |(group, gpu): &(&NodeGroup, &GpuEntry)| {
            let (node, gpu) = (group.node.position(), gpu.cell.position());
            self.store.comparison(|comparison| comparison.has_peers(node, gpu))
        };
        let deviations = all().filter(is_compared).map(|entry| (entry, GraphMetric::DEVIATION));
        let shown = metrics.iter().filter(|metric| **metric != GraphMetric::DEVIATION);
        let shown = shown.flat_map(|metric| all().map(move |entry| (entry, *metric)));
        for ((group, gpu), metric) in shown.chain(deviations) {
            let column = match window.is_long() {
                true => {
                    let (_, points) = group.values(&self.store, gpu, metric, &window, 0);
                    points.into_iter().map(Point::value).collect()
                }
                false => self.column(group, gpu, metric, from, to),
            };
            if !is_one && column.iter().all(Option::is_none) {
                continue;
            }
            let rank = group.ranks(&self.store, gpu).first().map(|rank| format!(" rank {rank}"));
            let (label, rank) = (&gpu.label, rank.unwrap_or_default());
            let title = format!("{} {label}{rank} {}", group.node.name(), metric.name());
            let _ = write!(out, ",{}", csv::cell(&title));
            columns.push(column);
        }
        out.push('\n');
        for second in (from..to).step_by(step_s as usize) {
            let _ = write!(out, "{}", self.time.wall_s(second * 1_000));
            for column in &columns {
                out.push(',');
                if let Some(value) = column.get(((second - from) / step_s) as usize).copied().flatten() {
                    // One decimal, formatted with integers as everywhere.
                    let tenths = (value * 10.0).round() as u64;
                    let _ = write!(out, "{}", tenths / 10);
                    if !tenths.is_multiple_of(10) {
                        let _ = write!(out, ".{}", tenths % 10);
                    }
                }
            }
            out.push('\n');
        }
        out
    }

    fn column(
        &self,
        group: &NodeGroup,
        gpu: &GpuEntry,
        metric: GraphMetric,
        from: u64,
        to: u64,
    ) -> Vec<Option<f32>> {
        let mut column = vec![None; (to - from) as usize];
        if metric == GraphMetric::DEVIATION {
            let (node, gpu) = (group.node.position(), gpu.cell.position());
            self.store.comparison(|comparison| {
                for (second, value) in (from..to).zip(&mut column) {
                    if let StepDeviation::Value(away) = comparison.at(node, gpu, second * 1_000) {
                        *value = Some(away.percent.unsigned_abs() as f32);
                    }
                }
            });
            return column;
        }
        group.with_history(&self.store, gpu, metric, |_, trace| {
            let slots =
                trace.since(from * 1_000).map(|(at_ms, cell)| (at_ms / 1_000, cell.and_then(Cell::value)));
            slots.take_while(|(second, _)| *second < to).for_each(|(second, value)| {
                column[(second - from) as usize] = value.map(|steps| metric.measure(steps));
            });
        });
        column
    }

    fn save_numbers(&self) {
        let numbers = String::from(js_sys::encode_uri_component(&self.numbers()));
        save(&format!("data:text/csv;charset=utf-8,{numbers}"), &self.file(&self.name(), "csv"));
    }

    /// Returns the name of the metric, or of the panel, for the names of files.
    fn name(&self) -> Cow<'static, str> {
        if self.metrics.is_empty() { self.metric.get_untracked().name() } else { "time-line".into() }
    }

    /// Saves the panel that contains the clicked button, canvases and texts, as one picture.
    fn save(&self, event: &MouseEvent) {
        let button = event.target().and_then(|target| target.dyn_into::<Element>().ok());
        let Some(panel) = button.and_then(|button| button.closest(".panel").ok().flatten()) else { return };
        let title = match self.metrics.is_empty() {
            true => self.metric.get_untracked().title().to_owned(),
            false => panel.get_attribute("aria-label").unwrap_or_default(),
        };
        if let Some(url) = picture(&panel, &self.title(&title)) {
            save(&url, &self.file(&self.name(), "png"));
        }
    }
}

fn save(url: &str, name: &str) {
    let anchor =
        document().create_element("a").ok().and_then(|anchor| anchor.dyn_into::<HtmlAnchorElement>().ok());
    if let Some(anchor) = anchor {
        anchor.set_href(url);
        anchor.set_download(name);
        anchor.click();
    }
}

/// Returns the panel as the data URL of a PNG with twice the screen's resolution.
fn picture(panel: &Element, title: &str) -> Option<String> {
    const FINE: f64 = 2.0;
    let [body_left, body_top, body_width, body_height] = platform::bounding_rect(panel);
    let parts = platform::query_all(panel, PARTS);
    // Controls above the graphs are left out, and so is their room.
    let is_drawn = |[_, _, width, height]: &[f64; 4]| *width > 0.0 && *height > 0.0;
    let tops = parts.iter().map(platform::bounding_rect).filter(is_drawn).map(|[_, top, ..]| top);
    let first = tops.fold(f64::INFINITY, f64::min).clamp(body_top, body_top + body_height);
    let (width, height) = (body_width, body_height - (first - body_top) + HEAD);
    let canvas: HtmlCanvasElement = document().create_element("canvas").ok()?.dyn_into().ok()?;
    canvas.set_width((width * FINE) as u32);
    canvas.set_height((height * FINE) as u32);
    let context: CanvasRenderingContext2d = canvas.get_context("2d").ok()??.dyn_into().ok()?;
    let _ = context.scale(FINE, FINE);
    let ink = |name: &str| context.set_fill_style_str(&platform::token(name));
    ink("--panel");
    context.fill_rect(0.0, 0.0, width, height);
    ink("--text");
    context.set_font("600 15px Inter, system-ui, sans-serif");
    let _ = context.fill_text(title, EDGE, 26.0);
    context.set_image_smoothing_enabled(false);
    context.set_text_baseline("middle");
    for element in parts {
        let [left, top, own_width, own_height] = platform::bounding_rect(&element);
        let (x, y) = (left - body_left, top - first + HEAD);
        if element.class_name() == "lane__time" {
            lane(&context, &element, [x, y, own_width, own_height]);
            continue;
        }
        if element.tag_name() == "I" {
            swatch(&context, &element.class_name(), [x, y, own_width, own_height]);
            continue;
        }
        // A legend's text begins after its swatch.
        let swatch =
            element.query_selector("i").ok().flatten().map(|swatch| platform::bounding_rect(&swatch));
        let x = x + swatch.map_or(0.0, |[_, _, width, _]| width + 5.0);
        match element.dyn_ref::<HtmlCanvasElement>() {
            Some(graph) => {
                let _ = context
                    .draw_image_with_html_canvas_element_and_dw_and_dh(graph, x, y, own_width, own_height);
            }
            None => {
                ink("--dim");
                context.set_font("11px Inter, system-ui, sans-serif");
                let _ =
                    context.fill_text(&element.text_content().unwrap_or_default(), x, y + own_height / 2.0);
            }
        }
    }
    canvas.to_data_url().ok()
}

/// Draws the intervals of a lane as the style sheet does.
fn lane(context: &CanvasRenderingContext2d, lane: &Element, [x, y, width, height]: [f64; 4]) {
    let fill = |token: &str| context.set_fill_style_str(&platform::token(token));
    fill("--line-soft");
    context.fill_rect(x, y, width, height);
    let is_warning = lane.closest(".lane--attention").ok().flatten().is_some();
    fill(if is_warning { "--warn" } else { "--off" });
    let path = lane.query_selector("path").ok().flatten().and_then(|path| path.get_attribute("d"));
    for [left, length] in intervals(&path.unwrap_or_default()) {
        context.fill_rect(x + left * width, y, length * width, height);
    }
}

/// Draws a legend's swatch as the style sheet does.
fn swatch(context: &CanvasRenderingContext2d, class: &str, [x, y, width, height]: [f64; 4]) {
    let bar = |token: &str, from: f64, to: f64, thick: f64| {
        context.set_fill_style_str(&platform::token(token));
        context.fill_rect(x + from * width, y + (height - thick) / 2.0, (to - from) * width, thick);
    };
    let dashes = |token: &str, count: u32, thick: f64| {
        (0..count).map(f64::from).for_each(|dash| {
            bar(token, dash / f64::from(count), (dash + 0.6) / f64::from(count), thick);
        });
    };
    match class {
        "legend__ramp" => ["--util-0", "--util-1", "--util-2", "--util-3"]
            .iter()
            .zip([0.0, 0.25, 0.5, 0.75])
            .for_each(|(token, from)| bar(token, from, from + 0.25, height)),
        "legend__ramp legend__ramp--deviation" => {
            bar("--util-0", 0.0, 0.5, height);
            bar("--warn", 0.5, 1.0, height);
        }
        "legend__gap" => dashes("--faint", 8, height),
        "legend__failed" => dashes("--bad", 3, height),
        "legend__lack" => bar("--faint", 0.0, 1.0, 1.0),
        "legend__line" => bar("--util-line", 0.0, 1.0, 2.0),
        "legend__pick" => bar("--accent", 0.0, 1.0, 3.0),
        "legend__far" => dashes("--warn", 3, 2.0),
        "legend__band" => {
            context.set_global_alpha(0.25);
            bar("--util-line", 0.0, 1.0, height);
            context.set_global_alpha(1.0);
        }
        _ => {}
    }
}
