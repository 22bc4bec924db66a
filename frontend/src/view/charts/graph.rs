//! A line graph of some GPUs over time that highlights the hovered one.

use super::gpu_groups::{NodeGroup, history_revision};
use super::plot::Plot;
use super::plot_area::{PlotArea, PlotHandlers};
use super::plot_paint::paint;
use super::time_bar::TimeAxis;
use super::tooltip::TooltipText;
use crate::chart::band::spread;
use crate::chart::{Series, value_ticks};
use crate::domain::metric::GraphMetric;
use crate::domain::text;
use crate::fleet::TopicStore;
use crate::platform::{self, Observer};
use crate::state::time::{GpuRef, Time};
use crate::view::scope::is_left_out;
use leptos::html::Canvas;
use leptos::prelude::*;
use std::sync::Arc;

/// Stands for a value that is missing.
const NO_DATA: &str = "no data";

/// A plot that is updated incrementally.
pub type Plots = Memo<Plot>;

/// Returns the plot of some GPUs, updated when a step passes.
pub fn plot_memo(
    time: &Time,
    store: &TopicStore,
    groups: Memo<Vec<NodeGroup>>,
    metric: Memo<GraphMetric>,
    most: usize,
) -> Plots {
    let (window, store) = (time.window(Signal::stored(most)), store.clone());
    let history_revision = history_revision(&store, groups, move || metric.get());
    Memo::new_owning(move |before| {
        groups.with(|groups| {
            Plot::update(before, &store, groups, metric.get(), window.get(), history_revision.get())
        })
    })
}

/// The current value of each line of a plot; `None` where it is stale or cannot be read.
pub type Current = Memo<Vec<Option<f32>>>;

/// Returns the current values of some GPUs, updated once a second: a step of the plot is a mean, and may be longer.
pub fn current_memo(
    time: &Time,
    store: &TopicStore,
    groups: Memo<Vec<NodeGroup>>,
    metric: Memo<GraphMetric>,
) -> Current {
    let (page, store) = (time.page().clone(), store.clone());
    Memo::new(move |_| {
        page.second.track();
        let (metric, now_ms) = (metric.get(), page.now_ms());
        groups.with(|groups| {
            let of_group = |group: &NodeGroup| {
                let is_old =
                    store.node(&group.node, |node| is_left_out(node, groups.len(), now_ms)).unwrap_or(true);
                let now = |gpu| group.now(&store, gpu, metric).filter(|_| !is_old);
                group.gpus.iter().map(now).collect::<Vec<_>>()
            };
            groups.iter().flat_map(of_group).collect()
        })
    })
}

/// The text in place of values that are not loaded.
pub(super) fn loading_text(is_connected: bool) -> &'static str {
    if is_connected { "Loading…" } else { "Not loaded: no connection to the relay" }
}

/// A line graph with its scale at the left.
#[component]
pub fn Graph(
    /// The lines.
    plot: Plots,
    /// Their current values.
    current: Current,
    /// The metric.
    metric: Memo<GraphMetric>,
    /// The alternative text.
    #[prop(into)]
    label: Signal<String>,
    /// The CSS token of its colour.
    hue: &'static str,
    /// Height in pixels.
    #[prop(default = 96)]
    height: u32,
) -> impl IntoView {
    let (time, canvas) = (Time::from_context(), NodeRef::<Canvas>::new());
    let window = Memo::new(move |_| plot.with(|plot| plot.window));
    let is_empty = Memo::new(move |_| {
        plot.with(|plot| !plot.lines.iter().any(|line| line.values.iter().any(Option::is_some)))
    });
    let feed = time.page().feed.clone();
    // The text, and whether the names of gaps are hidden, which explain only why data is missing.
    let none = Memo::new(move |_| match plot.with(|plot| (plot.is_unsupported, plot.is_loading)) {
        (true, _) => ("Not supported by this device or driver", true),
        (_, true) => (loading_text(feed.is_live()), true),
        _ => ("No data in this time", false),
    });
    keep_painted(&time, plot, hue, canvas);
    let ticks = move || {
        let top = plot.with(|plot| plot.top);
        let tick = |tick: f32| {
            let bottom = format!("{}%", tick / top * 100.0);
            view! { <span class="graph__tick" style:bottom=bottom>{short(metric.get(), tick)}</span> }
        };
        value_ticks(top).into_iter().map(tick).collect_view()
    };
    view! {
        <div class="graph">
            <Title plot current metric/>
            <div class="graph__ticks" aria-hidden="true">{move || ticks()}</div>
            <PlotArea label window handlers=handlers(&time, plot, metric)>
                <canvas node_ref=canvas style:height=format!("{height}px")></canvas>
                {move || is_empty.get().then(|| view! { <p class="graph__none" class:hides-gaps=move || none.get().1>{move || none.get().0}</p> }.into_any())}
            </PlotArea>
            <TimeAxis/>
        </div>
    }
}

/// The title, and the value at the cursor or the current one.
#[component]
fn Title(plot: Plots, current: Current, metric: Memo<GraphMetric>) -> impl IntoView {
    let time = Time::from_context();
    let sentence = move || {
        if plot.with(|plot| plot.is_unsupported) {
            return "not supported".to_owned();
        }
        let metric = metric.get();
        let (cursor, gpu_ref) = (time.cursor(), time.highlighted());
        plot.with(|plot| {
            let step = cursor.and_then(|at_ms| plot.window.step_at(at_ms));
            let (at, at_end) = step.map_or_else(|| plot.newest(), |step| (step, false));
            // A live range ends with the job.
            let is_current = step.is_none() && time.range().is_live();
            let at_end = at_end || (is_current && time.is_over());
            // As in the tables: a step is a mean.
            let current = (at_end || is_current).then(|| current.get());
            let value = |index: usize| match &current {
                Some(current) => current.get(index).copied().flatten(),
                None => plot.lines[index].values.get(at).copied().flatten(),
            };
            let gpu_ref = gpu_ref.filter(|_| plot.lines.len() > 1);
            let highlighted_value = gpu_ref.and_then(|gpu_ref| {
                plot.line_for(&gpu_ref)
                    .map(|(index, line)| format!("{} {}", line.name, value_text(metric, value(index))))
            });
            let all = all_text(plot, metric, &(0..plot.lines.len()).map(value).collect::<Vec<_>>());
            let text = [highlighted_value, all].into_iter().flatten().collect::<Vec<_>>().join(" · ");
            if at_end { format!("at the end: {text}") } else { text }
        })
    };
    let title = move || metric.get().title_for(plot.with(|plot| plot.vendors));
    view! {
        <div class="graph__title"><b>{move || title()}</b> " " {move || sentence()}</div>
    }
}

/// Paints the graph, and again when its lines, its size, the highlight or the colours change.
fn keep_painted(time: &Time, plot: Plots, hue: &'static str, canvas: NodeRef<Canvas>) {
    let (size, sizes) = (RwSignal::new((0, 0)), StoredValue::new_local(None));
    platform::effect(move || {
        let Some(canvas) = canvas.get() else { return };
        let seen = canvas.clone();
        let measure = move || size.set((seen.client_width(), seen.client_height()));
        sizes.set_value(Observer::sizes(&canvas, measure));
    });
    let time = time.clone();
    platform::effect(move || {
        let (Some(canvas), size) = (canvas.get(), size.get()) else { return };
        time.track_colours();
        let gpu_ref = time.highlighted();
        plot.with(|plot| paint(&canvas, size, plot, gpu_ref.as_ref(), hue));
    });
}

fn value_text(metric: GraphMetric, value: Option<f32>) -> String {
    value.map_or_else(|| NO_DATA.to_owned(), |value| metric.format(value))
}

/// Describes the values of all lines: each if they are one or two, or median, lowest and highest.
fn all_text(plot: &Plot, metric: GraphMetric, values: &[Option<f32>]) -> Option<String> {
    match (&plot.band, values) {
        (Some(_), _) => {
            let spread = spread(&mut values.iter().copied().flatten().collect::<Vec<_>>());
            Some(spread.map_or_else(
                || NO_DATA.to_owned(),
                |(low, mid, high)| {
                    let [low, mid, high] = [low, mid, high].map(|value| metric.format(value));
                    format!("median {mid}, {low} to {high}")
                },
            ))
        }
        (None, [one]) => Some(value_text(metric, *one)),
        (None, [None, None]) => Some(NO_DATA.to_owned()),
        (None, [one, other]) => {
            Some(format!("{} and {}", value_text(metric, *one), value_text(metric, *other)))
        }
        (None, _) => None,
    }
}

/// Formats a value of the scale as short as possible.
fn short(metric: GraphMetric, value: f32) -> String {
    match metric {
        GraphMetric::THROTTLE => String::new(),
        // Without their unit, which the title contains.
        GraphMetric::MEMORY | GraphMetric::CLOCK if (value - value.round()).abs() < 0.05 => {
            text::grouped(value.round() as u64)
        }
        GraphMetric::MEMORY => text::tenths(value.into()),
        _ => metric.format(value),
    }
}

fn handlers(time: &Time, plot: Plots, metric: Memo<GraphMetric>) -> PlotHandlers {
    let (over, down, open, described) = (time.clone(), time.clone(), time.clone(), time.clone());
    let pointed = time.clone();
    PlotHandlers {
        over: Arc::new(move |step, y, height| {
            let share = 1.0 - ((y / height) as f32).clamp(0.0, 1.0);
            let gpu_ref = plot
                .with_untracked(|plot| plot.nearest(step, share * plot.top).map(|line| line.gpu_ref.clone()));
            over.hover_gpu(gpu_ref);
        }),
        down: Arc::new(move |by| {
            let gpu_ref = untrack(|| down.highlighted());
            let next = plot.with_untracked(|plot| {
                let here = gpu_ref.and_then(|gpu_ref| plot.line_for(&gpu_ref).map(|(at, _)| at));
                let last = plot.lines.len().saturating_sub(1);
                let at = here.map_or(0, |here| here.saturating_add_signed(by).min(last));
                plot.lines.get(at).map(|line| line.gpu_ref.clone())
            });
            down.hover_gpu(next);
        }),
        known: Arc::new(move || {
            let gpu_ref = untrack(|| pointed.highlighted());
            plot.with_untracked(|plot| plot.known(gpu_ref.as_ref()))
        }),
        open: Arc::new(move || open.toggle_pinned(untrack(|| open.highlighted()))),
        leaves: false,
        describe: Arc::new(move |at_ms, is_touch| {
            let gpu_ref = described.highlighted();
            let tap = is_touch.then(|| "tap again to pin".to_owned());
            let text = plot.with(|plot| tooltip_text(plot, metric.get(), gpu_ref.as_ref(), at_ms))?;
            let lines = text.lines.into_iter().chain([described.moment_text(at_ms)]).chain(tap);
            Some(TooltipText { lines: lines.collect(), ..text })
        }),
    }
}

/// Describes the highlighted line at a moment, and where it lies among the others.
fn tooltip_text(
    plot: &Plot,
    metric: GraphMetric,
    gpu_ref: Option<&GpuRef>,
    at_ms: u64,
) -> Option<TooltipText> {
    let step = plot.window.step_at(at_ms)?;
    let value_text = |values: &[Option<f32>]| {
        values.get(step).copied().flatten().map_or_else(|| NO_DATA.to_owned(), |value| metric.format(value))
    };
    let line = gpu_ref.and_then(|gpu_ref| plot.line_for(gpu_ref)).map(|(_, line)| line);
    let line = line.or_else(|| plot.lines.first().filter(|_| plot.lines.len() == 1));
    let spread = plot.band.as_ref().filter(|band| band.mid.get(step).copied().flatten().is_some());
    let spread = spread.map(|band| {
        let [mid, low, high] = [&band.mid, &band.low, &band.high].map(|values| value_text(values));
        format!("median {mid} · {low} to {high}")
    });
    let within = line.and_then(|line| {
        let at = |values: &Series| values.get(step).copied().flatten();
        let (low, high) = at(&line.extremes.0).zip(at(&line.extremes.1))?;
        let length = text::span(plot.window.step_ms() / 1_000);
        Some(format!("mean of {length} · {} to {}", metric.format(low), metric.format(high)))
    });
    Some(TooltipText {
        value: line.map_or_else(|| NO_DATA.to_owned(), |line| value_text(&line.values)),
        title: metric.title().to_owned(),
        subject: line.map_or_else(String::new, |line| line.name.clone()),
        lines: within.into_iter().chain(spread).collect(),
    })
}
