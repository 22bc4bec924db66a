//! The heat map: every GPU of a job or the cluster over time, one line each, grouped by node.

use super::colour_map::{ColourMap, ShownScale, shown_scale};
use super::gpu_groups::{GpuEntry, NodeGroup, history_revision};
use super::graph_panel::GraphPanel;
use super::heat_map_paint::{Brush, paint};
use super::plot_area::{PlotArea, PlotHandlers};
use super::summary::{legend, metric_buttons, metric_menu, summary};
use super::time_bar::{TimeAxis, TimeBar};
use super::tooltip::TooltipText;
use crate::chart::{Point, Strips, Window};
use crate::domain::health::Health;
use crate::domain::metric::Metric;
use crate::domain::route::{JobTab, Route};
use crate::domain::severity::Severity;
use crate::domain::text;
use crate::fleet::TopicStore;
use crate::state::page::{Page, is_stale, node_health};
use crate::state::time::Time;
use crate::view::scope::Scope;
use crate::view::widgets::dot::dot;
use leptos::html::Canvas;
use leptos::prelude::*;
use std::cell::RefCell;
use std::sync::Arc;

/// Number of nodes in a column before another column is started.
const MAX_ROWS: usize = 22;
/// Height that a column should not exceed, in pixels: about half a screen.
const HEIGHT: usize = 440;
/// Longer names of nodes are cut, in characters.
const MAX_NAME: usize = 20;
/// Narrowest column of values, in characters: `100 %`.
const MIN_STATE: usize = 5;
/// Width of a node's name and state beside its strips, in pixels.
const NAMES_PX: f64 = 140.0;

/// The heat map of a scope's GPUs.
#[component]
pub fn HeatMap(
    /// The scope.
    scope: Scope,
    /// Whether only the overview is subscribed: then the history of few metrics is known.
    #[prop(optional)]
    glance: bool,
) -> impl IntoView {
    let GraphPanel { page, time, groups, metric, export } = GraphPanel::new(&scope, glance);
    let shown = shown_scale(&page, &time, &scope.store, groups, metric);
    let columns = {
        let time = time.clone();
        Memo::new(move |_| {
            let room = ((room(time.width()) / 340.0) as usize).max(1);
            groups.with(Vec::len).div_ceil(MAX_ROWS).clamp(1, room)
        })
    };
    // The hovered value is announced to screen readers; periodic changes are not.
    let live = {
        let time = time.clone();
        Memo::new(move |_| time.cursor().is_some())
    };
    let label = summary(&page, &time, &scope.store, groups, metric);
    let gpus =
        Memo::new(move |_| groups.with(|groups| groups.iter().map(|group| group.gpus.len()).sum::<usize>()));
    let blocks = {
        let scope = scope.clone();
        move || {
            let (scope, all) = (scope.clone(), columns.get());
            (0..all)
                .map(move |column| {
                    let part = Memo::new(move |_| {
                        let per = groups.with(Vec::len).div_ceil(all).max(1);
                        groups.with(|groups| {
                            groups.iter().skip(column * per).take(per).cloned().collect::<Vec<_>>()
                        })
                    });
                    view! { <Block scope=scope.clone() groups=part metric shown label columns=all/> }
                })
                .collect_view()
        }
    };
    view! {
        <section class="panel heat-map" aria-label="All GPUs over time">
            <div class="panel__head">
                <h2>"All GPUs" <small>{move || format!("{}, one row each", text::count(gpus.get(), "GPU", "GPUs"))}</small></h2>
                {(!glance).then(|| metric_menu(&time, &scope))}
                <span class="spring"></span>
                {glance.then(|| metric_buttons(&time, metric))}
                {export.menu()}
            </div>
            <TimeBar/>
            <div class="heat-map__blocks">{move || blocks()}</div>
            {legend(shown)}
            <p class="only-read" aria-live=move || if live.get() { "polite" } else { "off" }>{move || label.get()}</p>
        </section>
    }
}

/// Returns the width of the page's main area, in pixels.
fn room(width: f64) -> f64 {
    if width > 760.0 { width - 330.0 } else { width - 48.0 }
}

/// A column of nodes.
#[component]
fn Block(
    scope: Scope,
    groups: Memo<Vec<NodeGroup>>,
    metric: Memo<Metric>,
    shown: Memo<ShownScale>,
    label: Signal<String>,
    columns: usize,
) -> impl IntoView {
    let (page, time) = (Page::from_context(), Time::from_context());
    let strips = {
        let time = time.clone();
        Memo::new(move |_| {
            let lowest = if time.width() > 760.0 { 16 } else { 13 };
            let counts: Vec<usize> =
                groups.with(|groups| groups.iter().map(|group| group.gpus.len()).collect());
            Strips::layout(HEIGHT, &counts, lowest)
        })
    };
    let window = {
        let time = time.clone();
        let width = time.clone();
        time.cells(Signal::derive(move || {
            ((room(width.width()) / columns as f64 - NAMES_PX) as usize).clamp(100, 600)
        }))
    };
    let canvas = NodeRef::<Canvas>::new();
    keep_painted(&page, &scope, groups, shown, strips, window, canvas);
    // Names and states are two columns of one list.
    let beside = |draw: fn(Row) -> AnyView| {
        let (page, scope) = (page.clone(), scope.clone());
        move || {
            let row = |(index, group): (usize, &NodeGroup)| {
                let pitch = strips.with(|strips| strips.pitch(index));
                let (page, scope, group) = (page.clone(), scope.clone(), group.clone());
                untrack(|| draw(Row { page, scope, group, metric, pitch }))
            };
            groups.with(|groups| groups.iter().enumerate().map(row).collect_view())
        }
    };
    let (names, states) = (beside(name), beside(state));
    // As wide as the longest name, whatever the states of the nodes: nothing moves when one needs attention.
    let name_columns = Memo::new(move |_| {
        let longest = groups.with(|groups| groups.iter().map(|group| group.node.name().as_str().len()).max());
        longest.unwrap_or(0).clamp(4, MAX_NAME)
    });
    // As wide as the highest value, whatever the values are.
    let state_columns = {
        let store = scope.store.clone();
        Memo::new(move |_| {
            let metric = metric.get();
            let widest = |group: &NodeGroup| {
                let at = group.gpus.first()?.cell.position();
                let top = store.node(&group.node, |node| metric.scale_max(node.gpus.get(at)?))??;
                Some(metric.format(top).chars().count())
            };
            groups.with(|groups| groups.iter().filter_map(widest).max()).unwrap_or(0).max(MIN_STATE)
        })
    };
    let highlight = {
        let time = time.clone();
        move || {
            let gpu_ref = time.highlighted()?;
            let at = groups.with(|groups| line_index(groups, |group, gpu| group.gpu_ref(gpu) == gpu_ref))?;
            let (top, line) = strips.with(|strips| (strips.tops().nth(at), strips.thickness()));
            let (top, height) = (format!("{}px", top?), format!("{line}px"));
            Some(view! { <i class="heat-map__pick" style:top=top style:height=height></i> }.into_any())
        }
    };
    view! {
        <div class="heat-map__block" style:--names=move || name_columns.get().to_string()
            style:--states=move || state_columns.get().to_string()>
            <div class="heat-map__names">{names}</div>
            <PlotArea label window handlers=handlers(&page, &time, &scope, groups, strips, metric, window)>
                <canvas class="heat" node_ref=canvas style:height=move || format!("{}px", strips.with(Strips::height))></canvas>
                {move || highlight()}
            </PlotArea>
            <div class="heat-map__states">{states}</div>
            <span></span>
            <TimeAxis/>
        </div>
    }
}

/// Paints the new steps when a step passes, and everything when anything else changes.
fn keep_painted(
    page: &Page,
    scope: &Scope,
    groups: Memo<Vec<NodeGroup>>,
    shown: Memo<ShownScale>,
    strips: Memo<Strips>,
    window: Memo<Window>,
    canvas: NodeRef<Canvas>,
) {
    let (page, time, store) = (page.clone(), Time::from_context(), scope.store.clone());
    let history_revision = history_revision(&store, groups, move || shown.with(|shown| shown.metric));
    let last = RefCell::new(None);
    Effect::new(move || {
        let Some(canvas) = canvas.get() else { return };
        // The newest cell may be incomplete.
        page.step.track();
        page.settings.theme();
        time.track_colours();
        let ShownScale { metric, scale, .. } = shown.get();
        let brush = Brush {
            window: window.get(),
            strips: strips.get(),
            palette: ColourMap::for_metric(metric, page.settings.scheme(), scale),
            metric,
            history_revision: history_revision.get(),
        };
        groups.with(|groups| paint(&canvas, &store, groups, &mut last.borrow_mut(), brush));
    });
}

/// Returns the index of a GPU among the lines.
fn line_index(groups: &[NodeGroup], is: impl Fn(&NodeGroup, &GpuEntry) -> bool) -> Option<usize> {
    groups
        .iter()
        .flat_map(|group| group.gpus.iter().map(move |gpu| (group, gpu)))
        .position(|(group, gpu)| is(group, gpu))
}

fn handlers(
    page: &Page,
    time: &Time,
    scope: &Scope,
    groups: Memo<Vec<NodeGroup>>,
    strips: Memo<Strips>,
    metric: Memo<Metric>,
    window: Memo<Window>,
) -> PlotHandlers {
    let at = move |line: usize| {
        groups.with_untracked(|groups| {
            let mut all = groups.iter().flat_map(|group| group.gpus.iter().map(move |gpu| (group, gpu)));
            all.nth(line).map(|(group, gpu)| group.gpu_ref(gpu))
        })
    };
    let here = {
        let time = time.clone();
        move || {
            let gpu_ref = untrack(|| time.highlighted())?;
            groups.with_untracked(|groups| line_index(groups, |group, gpu| group.gpu_ref(gpu) == gpu_ref))
        }
    };
    let (over, down) = (time.clone(), time.clone());
    let describe = {
        let (page, time, store) = (page.clone(), time.clone(), scope.store.clone());
        move |at_ms: u64, is_touch: bool| {
            let gpu_ref = time.highlighted()?;
            groups.with(|groups| {
                let group = groups.iter().find(|group| *group.node.name() == gpu_ref.node)?;
                let gpu = group.gpus.iter().find(|gpu| *gpu.cell.uuid() == gpu_ref.gpu)?;
                let health = node_health(&page, &store, &group.node);
                let is_odd = !matches!(health.severity, Severity::Ok | Severity::Ended);
                let health = is_odd.then(|| format!("node: {}", health.label));
                let tap = is_touch.then(|| "tap again to open the node".to_owned());
                Some(TooltipText {
                    value: cell_text(&store, group, gpu, metric.get(), &window.get(), at_ms),
                    title: metric.get().title().to_owned(),
                    subject: group.name(&store, gpu),
                    lines: health.into_iter().chain([time.moment_text(at_ms)]).chain(tap).collect(),
                })
            })
        }
    };
    let known = {
        let (time, store) = (time.clone(), scope.store.clone());
        move || {
            let (gpu_ref, window) = (untrack(|| time.highlighted())?, window.get_untracked());
            groups.with_untracked(|groups| {
                let mut all = groups.iter().flat_map(|group| group.gpus.iter().map(move |gpu| (group, gpu)));
                let (group, gpu) = all.find(|(group, gpu)| group.gpu_ref(gpu) == gpu_ref)?;
                let (_, points) = group.values(&store, gpu, metric.get_untracked(), &window, 0);
                let has_value = |point: &Point| point.value().is_some();
                points.iter().position(has_value).zip(points.iter().rposition(has_value))
            })
        }
    };
    let (page, time, job) = (page.clone(), time.clone(), scope.job);
    PlotHandlers {
        known: Arc::new(known),
        over: Arc::new(move |_, y, _| {
            over.hover_gpu(strips.with_untracked(|strips| strips.nearest(y)).and_then(at))
        }),
        down: Arc::new(move |by| {
            let last = strips.with_untracked(Strips::len).saturating_sub(1);
            let line = here().map_or(0, |line| line.saturating_add_signed(by).min(last));
            down.hover_gpu(at(line));
        }),
        open: Arc::new(move || {
            if let Some(gpu_ref) = untrack(|| time.highlighted()) {
                page.address.navigate(match job {
                    Some(job) => Route::Job(job, JobTab::Node(gpu_ref.node)),
                    None => Route::Node(gpu_ref.node),
                });
            }
        }),
        leaves: true,
        describe: Arc::new(describe),
    }
}

/// Returns the value of a GPU in the cell at a moment: what its colour shows, if that is a value.
fn cell_text(
    store: &TopicStore,
    group: &NodeGroup,
    gpu: &GpuEntry,
    metric: Metric,
    window: &Window,
    at_ms: u64,
) -> String {
    let has_mean = metric != Metric::THROTTLE && metric != Metric::DEVIATION;
    let step = window.step_at(at_ms).filter(|_| has_mean);
    let points = step.map(|step| group.values(store, gpu, metric, window, step).1);
    match points.as_deref().and_then(<[Point]>::first) {
        Some(Point::Value(value)) => metric.format(*value),
        _ => group.text_at(store, gpu, metric, at_ms),
    }
}

/// A node's group of lines, for the columns beside them.
struct Row {
    page: Page,
    scope: Scope,
    group: NodeGroup,
    metric: Memo<Metric>,
    pitch: usize,
}

impl Row {
    /// Returns the node's health, updated with every assessment.
    fn health(&self) -> Memo<Arc<Health>> {
        let (page, store, node) = (self.page.clone(), self.scope.store.clone(), self.group.node.clone());
        Memo::new(move |_| {
            store.nodes().track();
            page.assessment.track();
            node_health(&page, &store, &node)
        })
    }
}

/// A node's name beside its lines; with a symbol unless it is healthy. It leads to the node, unless the job's tabs do.
fn name(row: Row) -> AnyView {
    let name = row.group.node.name();
    let href = row.scope.job.is_none().then(|| row.page.href(&Route::Node(name.clone())));
    let (name_text, height) = (name.to_string(), format!("{}px", row.pitch));
    let health = row.health();
    let unwell = move || health.with(|health| (health.severity != Severity::Ok).then(|| dot(health)));
    view! { <a href=href style:height=height>{move || unwell()} <span>{name_text}</span></a> }.into_any()
}

/// A node's current state: its mean or its largest deviation; without current values, over the end of its lines what is
/// wrong.
fn state(row: Row) -> AnyView {
    let health = row.health();
    let Row { page, scope, group, metric, pitch } = row;
    let shown = Memo::new(move |_| {
        page.step.track();
        let (health, metric) = (health.get(), metric.get());
        let values: Vec<f32> =
            group.gpus.iter().filter_map(|gpu| group.now(&scope.store, gpu, metric)).collect();
        // A fault of a GPU does not replace the mean of the others, whose lines a word would cover; stale values do.
        let is_unwell = !matches!(health.severity, Severity::Ok | Severity::Warning);
        if (is_unwell && values.is_empty()) || is_stale(&page, &scope.store, &group.node) {
            return (true, health.label.clone());
        }
        // Of deviations, the largest matters.
        let shown = match metric {
            Metric::DEVIATION => values.iter().copied().fold(0.0, f32::max),
            _ => values.iter().sum::<f32>() / values.len() as f32,
        };
        (false, text::or_absent((!values.is_empty()).then(|| metric.format(shown))))
    });
    let label = move || shown.with(|(_, label)| label.clone());
    view! {
        <span class="num" class:is-word=move || shown.with(|(is_word, _)| *is_word) title=label style:line-height=format!("{pitch}px")>
            <b>{label}</b>
        </span>
    }
    .into_any()
}
