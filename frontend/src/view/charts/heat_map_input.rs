//! Input of the heat map: which GPU the pointer or the keyboard is at, and what is said about it.

use super::gpu_groups::{GpuEntry, NodeGroup};
use super::plot_area::PlotHandlers;
use super::tooltip::TooltipText;
use crate::chart::{Point, Strips, Window};
use crate::domain::metric::GraphMetric;
use crate::domain::route::{JobTab, Route};
use crate::domain::severity::Severity;
use crate::fleet::TopicStore;
use crate::state::page::{Page, node_health_in};
use crate::state::time::{GpuRef, Time};
use crate::view::scope::NodeScope;
use leptos::prelude::*;
use std::sync::Arc;

/// The state for the input of one column of nodes.
#[derive(Clone)]
pub(super) struct HeatMapInput {
    pub(super) page: Page,
    pub(super) time: Time,
    pub(super) scope: NodeScope,
    pub(super) groups: Memo<Vec<NodeGroup>>,
    /// The lines of their GPUs.
    pub(super) strips: Memo<Strips>,
    pub(super) metric: Memo<GraphMetric>,
    pub(super) window: Memo<Window>,
}

impl HeatMapInput {
    /// Returns the handlers of the plot.
    pub(super) fn handlers(self) -> PlotHandlers {
        let (over, down, known, open, describe) =
            (self.clone(), self.clone(), self.clone(), self.clone(), self);
        PlotHandlers {
            over: Arc::new(move |_, y, _| {
                let line = over.strips.with_untracked(|strips| strips.nearest(y));
                over.time.hover_gpu(line.and_then(|line| over.gpu_at(line)));
            }),
            down: Arc::new(move |by| down.move_by(by)),
            known: Arc::new(move || known.known_steps()),
            open: Arc::new(move || open.open_node()),
            leaves: true,
            describe: Arc::new(move |at_ms, is_touch| describe.describe(at_ms, is_touch)),
        }
    }

    /// Returns the GPU of a line; does not subscribe.
    fn gpu_at(&self, line: usize) -> Option<GpuRef> {
        self.groups.with_untracked(|groups| lines(groups).nth(line).map(|(group, gpu)| group.gpu_ref(gpu)))
    }

    /// Moves the highlight by this number of lines.
    fn move_by(&self, by: isize) {
        let here = untrack(|| self.time.highlighted())
            .and_then(|gpu_ref| self.groups.with_untracked(|groups| line_index(groups, &gpu_ref)));
        let last = self.strips.with_untracked(Strips::len).saturating_sub(1);
        let line = here.map_or(0, |line| line.saturating_add_signed(by).min(last));
        self.time.hover_gpu(self.gpu_at(line));
    }

    /// Returns the first and the last step with a value of the highlighted GPU; does not subscribe.
    fn known_steps(&self) -> Option<(usize, usize)> {
        let (gpu_ref, window) = (untrack(|| self.time.highlighted())?, self.window.get_untracked());
        self.groups.with_untracked(|groups| {
            let (group, gpu) = lines(groups).find(|(group, gpu)| group.gpu_ref(gpu) == gpu_ref)?;
            let (_, points) = group.values(&self.scope.store, gpu, self.metric.get_untracked(), &window, 0);
            let has_value = |point: &Point| point.value().is_some();
            points.iter().position(has_value).zip(points.iter().rposition(has_value))
        })
    }

    /// Opens the node of the highlighted GPU: in the job whose heat map it is, if there is one.
    fn open_node(&self) {
        if let Some(gpu_ref) = untrack(|| self.time.highlighted()) {
            self.page.address.navigate(match self.scope.job {
                Some(job) => Route::Job(job, JobTab::Node(gpu_ref.node)),
                None => Route::Node(gpu_ref.node),
            });
        }
    }

    /// Describes the highlighted GPU at a moment.
    fn describe(&self, at_ms: u64, is_touch: bool) -> Option<TooltipText> {
        let (gpu_ref, store) = (self.time.highlighted()?, &self.scope.store);
        self.groups.with(|groups| {
            let group = groups.iter().find(|group| *group.node.name() == gpu_ref.node)?;
            let gpu = group.gpus.iter().find(|gpu| *gpu.cell.uuid() == gpu_ref.gpu)?;
            let health = node_health_in(&self.page, store, self.scope.job, &group.node);
            let is_odd = !matches!(health.severity, Severity::Ok | Severity::Ended);
            let health = is_odd.then(|| format!("node: {}", health.label));
            let tap = is_touch.then(|| "tap again to open the node".to_owned());
            Some(TooltipText {
                value: cell_text(store, group, gpu, self.metric.get(), &self.window.get(), at_ms),
                title: self.metric.get().title().to_owned(),
                subject: group.name(store, gpu),
                lines: health.into_iter().chain([self.time.moment_text(at_ms)]).chain(tap).collect(),
            })
        })
    }
}

/// Returns the GPU of each line.
fn lines(groups: &[NodeGroup]) -> impl Iterator<Item = (&NodeGroup, &GpuEntry)> {
    groups.iter().flat_map(|group| group.gpus.iter().map(move |gpu| (group, gpu)))
}

/// Returns the index of a GPU among the lines.
pub(super) fn line_index(groups: &[NodeGroup], gpu_ref: &GpuRef) -> Option<usize> {
    lines(groups).position(|(group, gpu)| group.gpu_ref(gpu) == *gpu_ref)
}

/// Returns the value of a GPU in the cell at a moment: what its colour shows, if that is a value.
fn cell_text(
    store: &TopicStore,
    group: &NodeGroup,
    gpu: &GpuEntry,
    metric: GraphMetric,
    window: &Window,
    at_ms: u64,
) -> String {
    let has_mean = metric != GraphMetric::THROTTLE && metric != GraphMetric::DEVIATION;
    let step = window.step_at(at_ms).filter(|_| has_mean);
    let points = step.map(|step| group.values(store, gpu, metric, window, step).1);
    match points.as_deref().and_then(<[Point]>::first) {
        Some(Point::Value(value)) => metric.format(*value),
        _ => group.text_at(store, gpu, metric, at_ms),
    }
}
