//! The heat map: every GPU of a job or the cluster over time, one line each, grouped by node.

use super::colour_map::{ColourMap, ShownScale, shown_scale};
use super::gpu_groups::{NodeGroup, history_revision};
use super::graph_panel::GraphPanel;
use super::heat_map_input::{HeatMapInput, line_index};
use super::heat_map_paint::{Brush, paint};
use super::plot_area::PlotArea;
use super::summary::{legend, metric_buttons, metric_menu, summary};
use super::time_bar::{TimeAxis, TimeBar};
use crate::chart::{Strips, Window};
use crate::domain::health::Health;
use crate::domain::metric::GraphMetric;
use crate::domain::route::Route;
use crate::domain::severity::Severity;
use crate::domain::text;
use crate::fleet::TopicStore;
use crate::platform;
use crate::state::page::{Page, is_stale, node_health_in};
use crate::state::time::Time;
use crate::view::scope::NodeScope;
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
    scope: NodeScope,
    /// Whether only the overview is subscribed: then the history of few metrics is known.
    #[prop(optional)]
    glance: bool,
) -> impl IntoView {
    let GraphPanel { page, time, groups, metric, export } = GraphPanel::new(&scope, glance);
    let shown = shown_scale(&page, &time, &scope.store, groups, metric);
    let columns = column_count(&time, groups);
    // The hovered value is announced to screen readers; periodic changes are not.
    let live = {
        let time = time.clone();
        Memo::new(move |_| time.cursor().is_some())
    };
    let label = summary(&page, &time, &scope.store, groups, metric);
    let rows = Memo::new(move |_| groups.with(|groups| rows_text(groups)));
    let blocks = {
        let scope = scope.clone();
        move || {
            let (scope, all) = (scope.clone(), columns.get());
            (0..all)
                .map(move |column| {
                    let groups = nodes_of_column(groups, column, all);
                    view! { <Block scope=scope.clone() groups metric shown label columns=all/> }
                })
                .collect_view()
        }
    };
    view! {
        <section class="panel heat-map" aria-label="All GPUs over time">
            <div class="panel__head">
                <h2>"All GPUs" <small>{move || rows.get()}</small></h2>
                {(!glance).then(|| metric_menu(&time, &scope, metric))}
                <span class="spring"></span>
                {glance.then(|| metric_buttons(&time, metric))}
                {export.menu()}
            </div>
            <TimeBar/>
            <div class="heat-map__blocks">{move || blocks()}</div>
            {legend(shown)}
            <p class="only-read" aria-live=move || if live.get() { "polite" } else { "off" }>{label}</p>
        </section>
    }
}

/// Counts the rows; nothing if there are none.
fn rows_text(groups: &[NodeGroup]) -> Option<String> {
    let gpus = || groups.iter().flat_map(|group| &group.gpus);
    let (all, instances) = (gpus().count(), gpus().filter(|gpu| gpu.is_instance).count());
    let counted = text::gpu_count(all - instances, instances);
    match (all, groups.len()) {
        (0, _) => None,
        (1, _) => Some(counted),
        (_, 0 | 1) => Some(format!("{counted}, one row each")),
        // Tables of jobs count the GPUs of jobs.
        (_, nodes) => Some(format!("{counted} on {nodes} nodes, one row each")),
    }
}

/// Returns the number of columns: as many as the nodes need and the page has room for.
fn column_count(time: &Time, groups: Memo<Vec<NodeGroup>>) -> Memo<usize> {
    let time = time.clone();
    Memo::new(move |_| {
        let room = ((main_px(time.width()) / 340.0) as usize).max(1);
        groups.with(Vec::len).div_ceil(MAX_ROWS).clamp(1, room)
    })
}

/// Returns the nodes in one of `columns` columns.
fn nodes_of_column(groups: Memo<Vec<NodeGroup>>, column: usize, columns: usize) -> Memo<Vec<NodeGroup>> {
    Memo::new(move |_| {
        let per = groups.with(Vec::len).div_ceil(columns).max(1);
        groups.with(|groups| groups.iter().skip(column * per).take(per).cloned().collect::<Vec<_>>())
    })
}

/// Returns the width of the main area of a page of a width, in px.
pub fn main_px(width: f64) -> f64 {
    if width > 760.0 { width - 330.0 } else { width - 48.0 }
}

/// A column of nodes.
#[component]
fn Block(
    scope: NodeScope,
    groups: Memo<Vec<NodeGroup>>,
    metric: Memo<GraphMetric>,
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
            ((main_px(width.width()) / columns as f64 - NAMES_PX) as usize).clamp(100, 600)
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
    let (name_columns, state_columns) = (name_width(groups), state_width(&scope.store, groups, metric));
    let highlight = highlight(&time, groups, strips);
    let input = HeatMapInput { page, time, scope, groups, strips, metric, window };
    view! {
        <div class="heat-map__block" style:--names=move || name_columns.get().to_string()
            style:--states=move || state_columns.get().to_string()>
            <div class="heat-map__names">{names}</div>
            <PlotArea label window handlers=input.handlers()>
                <canvas class="heat" node_ref=canvas style:height=move || format!("{}px", strips.with(Strips::height))></canvas>
                {highlight}
            </PlotArea>
            <div class="heat-map__states">{states}</div>
            <span></span>
            <TimeAxis/>
        </div>
    }
}

/// Returns the width of the column of names, in characters: the width of the longest one, for any states of the
/// nodes, so that nothing moves when one needs attention.
fn name_width(groups: Memo<Vec<NodeGroup>>) -> Memo<usize> {
    Memo::new(move |_| {
        let longest = groups.with(|groups| groups.iter().map(|group| group.node.name().as_str().len()).max());
        longest.unwrap_or(0).clamp(4, MAX_NAME)
    })
}

/// Returns the width of the column of states, in characters: the width of the highest value, for any values.
fn state_width(store: &TopicStore, groups: Memo<Vec<NodeGroup>>, metric: Memo<GraphMetric>) -> Memo<usize> {
    let store = store.clone();
    Memo::new(move |_| {
        let metric = metric.get();
        let widest = |group: &NodeGroup| {
            let at = group.gpus.first()?.cell.position();
            let top = store.node(&group.node, |node| metric.scale_max(node.gpus.get(at)?))??;
            Some(metric.format(top).chars().count())
        };
        groups.with(|groups| groups.iter().filter_map(widest).max()).unwrap_or(0).max(MIN_STATE)
    })
}

/// Returns the frame around the line of the highlighted GPU.
fn highlight(
    time: &Time,
    groups: Memo<Vec<NodeGroup>>,
    strips: Memo<Strips>,
) -> impl Fn() -> Option<AnyView> + use<> {
    let time = time.clone();
    move || {
        let gpu_ref = time.highlighted()?;
        let at = groups.with(|groups| line_index(groups, &gpu_ref))?;
        let (top, line) = strips.with(|strips| (strips.tops().nth(at), strips.thickness()));
        let (top, height) = (format!("{}px", top?), format!("{line}px"));
        Some(view! { <i class="heat-map__pick" style:top=top style:height=height></i> }.into_any())
    }
}

/// Paints the new steps when a step passes, and everything when anything else changes.
fn keep_painted(
    page: &Page,
    scope: &NodeScope,
    groups: Memo<Vec<NodeGroup>>,
    shown: Memo<ShownScale>,
    strips: Memo<Strips>,
    window: Memo<Window>,
    canvas: NodeRef<Canvas>,
) {
    let (page, time, store) = (page.clone(), Time::from_context(), scope.store.clone());
    let history_revision = history_revision(&store, groups, move || shown.with(|shown| shown.metric));
    let last = RefCell::new(None);
    platform::effect(move || {
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

/// A node's group of lines, for the columns beside them.
struct Row {
    page: Page,
    scope: NodeScope,
    group: NodeGroup,
    metric: Memo<GraphMetric>,
    pitch: usize,
}

impl Row {
    /// Returns the node's health, updated with every assessment.
    fn health(&self) -> Memo<Arc<Health>> {
        let (page, store, node) = (self.page.clone(), self.scope.store.clone(), self.group.node.clone());
        let job = self.scope.job;
        Memo::new(move |_| {
            store.nodes().track();
            page.assessment.track();
            node_health_in(&page, &store, job, &node)
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

/// Formats the mean of the values of GPUs; of deviations and throttling the worst, which matters, and of the memory of MIG
/// instances, which differ in size, the sum.
fn row_text(metric: GraphMetric, values: &[f32], are_instances: bool) -> String {
    let sum = || values.iter().sum::<f32>();
    let shown = match metric {
        GraphMetric::DEVIATION | GraphMetric::THROTTLE => values.iter().copied().fold(0.0, f32::max),
        GraphMetric::MEMORY if are_instances => sum(),
        _ => sum() / values.len() as f32,
    };
    text::or_absent((!values.is_empty()).then(|| metric.format(shown)))
}

/// A node's state where its lines end: its mean or its largest deviation; without current values, over the end of its lines
/// what is wrong.
fn state(row: Row) -> AnyView {
    let (health, time) = (row.health(), Time::from_context());
    let Row { page, scope, group, metric, pitch } = row;
    let are_instances = group.gpus.iter().all(|gpu| gpu.is_instance);
    let shown = Memo::new(move |_| {
        let (metric, range) = (metric.get(), time.range());
        if !range.is_live() {
            // Its history may still be loading.
            page.second.track();
            let end_ms = range.end_ms(time.now_ms()).saturating_sub(1);
            let at_end = |gpu| group.value_at(&scope.store, gpu, metric, end_ms);
            let values: Vec<f32> = group.gpus.iter().filter_map(at_end).collect();
            return (false, row_text(metric, &values, are_instances));
        }
        page.second.track();
        let health = health.get();
        let values: Vec<f32> =
            group.gpus.iter().filter_map(|gpu| group.now(&scope.store, gpu, metric)).collect();
        // A fault of a GPU does not replace the mean of the others, whose lines a word would cover; stale values do.
        let is_unwell = !matches!(health.severity, Severity::Ok | Severity::Warning);
        if (is_unwell && values.is_empty()) || is_stale(&page, &scope.store, &group.node) {
            return (true, health.label.clone());
        }
        (false, row_text(metric, &values, are_instances))
    });
    let label = move || shown.with(|(_, label)| label.clone());
    view! {
        <span class="num" class:is-word=move || shown.with(|(is_word, _)| *is_word) title=label style:line-height=format!("{pitch}px")>
            <b>{label}</b>
        </span>
    }
    .into_any()
}
