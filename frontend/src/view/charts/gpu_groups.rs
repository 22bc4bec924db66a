//! The GPUs of a scope, grouped by node, with their names and values for graphs.

use crate::chart::{Extreme, Point, Window};
use crate::describe::gpu::instance_label;
use crate::domain::deviation::{Deviation, StepDeviation};
use crate::domain::metric::GraphMetric;
use crate::domain::throttle::ThrottleSummary;
use crate::domain::{ownership, throttle};
use crate::fleet::{GpuSignals, NodeSignals, TopicStore};
use crate::platform;
use crate::state::time::GpuRef;
use crate::view::scope::NodeScope;
use leptos::prelude::*;
use nodeglass_protocol::picture::{GpuPicture, Link, NodePicture};
use nodeglass_protocol::range::Summaries;
use nodeglass_protocol::trace::Trace;
use nodeglass_protocol::{Cell, GpuField, Vendor};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A node and its GPUs that count.
#[derive(Clone, PartialEq)]
pub struct NodeGroup {
    /// The node.
    pub node: NodeSignals,
    /// Its GPUs.
    pub gpus: Vec<GpuEntry>,
}

/// A GPU with its label in graphs.
#[derive(Clone, PartialEq)]
pub struct GpuEntry {
    /// The GPU.
    pub cell: GpuSignals,
    /// `GPU 1`, or `GPU 1 · 3g.40gb · 2/0` of a MIG instance.
    pub label: String,
    /// Its vendor.
    pub vendor: Vendor,
    /// Whether it is a MIG instance.
    pub is_instance: bool,
}

/// Returns every GPU of a scope; subscribes to the set of GPUs.
pub fn gpu_groups(scope: &NodeScope) -> Vec<NodeGroup> {
    let group = |node: NodeSignals| {
        let entry = |cell: GpuSignals| {
            let gpu = scope.store.node(&node, |node| {
                let gpu = node.gpus.get(cell.position())?;
                Some((instance_label(&gpu.facts), gpu.facts.vendor, gpu.facts.mig_parent.is_some()))
            });
            let (label, vendor, is_instance) = gpu.flatten().unwrap_or_default();
            GpuEntry { cell, label, vendor, is_instance }
        };
        let gpus = scope.job_gpus(&node).into_iter().map(entry).collect();
        NodeGroup { node, gpus }
    };
    scope.nodes.get().into_iter().map(group).collect()
}

/// Returns whether none of the GPUs supports a metric; does not subscribe.
pub fn is_unsupported(store: &TopicStore, groups: &[NodeGroup], metric: GraphMetric) -> bool {
    let Some(field) = metric.field() else { return false };
    let lacks = |group: &NodeGroup, gpu: &GpuEntry| {
        let cell = store.node(&group.node, |node| {
            node.gpus.get(gpu.cell.position()).map(|picture| picture.row.get(field))
        });
        cell.flatten() == Some(Cell::UNSUPPORTED)
    };
    let mut gpus = groups.iter().flat_map(|group| group.gpus.iter().map(move |gpu| (group, gpu))).peekable();
    gpus.peek().is_some() && gpus.all(|(group, gpu)| lacks(group, gpu))
}

/// Returns whether these nodes show the end of a job; does not subscribe.
pub fn is_over(store: &TopicStore, groups: &[NodeGroup]) -> bool {
    let is_over = |group: &NodeGroup| store.node(&group.node, |node| node.head.link == Link::Ended);
    !groups.is_empty() && groups.iter().all(|group| is_over(group) == Some(true))
}

/// Grows when the set of GPUs changes or a history is replaced; not when a history merely grows. Requests the
/// long-term history of the metric.
pub fn history_revision(
    store: &TopicStore,
    groups: Memo<Vec<NodeGroup>>,
    metric: impl Fn() -> GraphMetric + Send + Sync + 'static,
) -> Memo<u64> {
    let turns = AtomicU64::new(0);
    let (long_history, wanted) = (store.long_history().clone(), store.long_history().clone());
    platform::effect(move || {
        if let Some(field) = metric().field() {
            wanted.want(field);
        }
    });
    Memo::new(move |_| {
        long_history.revision();
        groups.with(|groups| groups.iter().for_each(|group| group.node.history().track()));
        turns.fetch_add(1, Relaxed)
    })
}

impl NodeGroup {
    /// Returns the identity of one of its GPUs.
    pub fn gpu_ref(&self, gpu: &GpuEntry) -> GpuRef {
        GpuRef { node: self.node.name().clone(), gpu: gpu.cell.uuid().clone() }
    }

    /// Returns a GPU's full name: `gpu-06 GPU 1, rank 41`.
    pub fn name(&self, store: &TopicStore, gpu: &GpuEntry) -> String {
        let rank = self.ranks(store, gpu).first().map(|rank| format!(", rank {rank}")).unwrap_or_default();
        format!("{} {}{rank}", self.node.name(), gpu.label)
    }

    /// Returns the ranks of the programs on a GPU.
    pub fn ranks(&self, store: &TopicStore, gpu: &GpuEntry) -> Vec<u32> {
        store.node(&self.node, |node| ownership::ranks(node, gpu.cell.uuid())).unwrap_or_default()
    }

    /// Returns how far a GPU is from its peers over the last two minutes; `None` if it is not compared.
    pub fn deviation(&self, store: &TopicStore, gpu: &GpuEntry) -> Option<Deviation> {
        let (node, gpu) = (self.node.position(), gpu.cell.position());
        store.comparison(|comparison| comparison.deviation(node, gpu).copied())
    }

    /// Reads one of its GPUs and the history of a metric.
    pub fn with_history<R>(
        &self,
        store: &TopicStore,
        gpu: &GpuEntry,
        metric: GraphMetric,
        read: impl FnOnce(&GpuPicture, &Trace) -> R,
    ) -> Option<R> {
        let at = gpu.cell.position();
        store.node(&self.node, |node| {
            Some(read(node.gpus.get(at)?, node.history.as_ref()?.gpu(at, metric.field()?)?))
        })?
    }

    /// Returns what is known of a GPU in each step of a window from `first` on, in the metric's unit, and
    /// the maximum of its scale; nothing without a history.
    pub fn values(
        &self,
        store: &TopicStore,
        gpu: &GpuEntry,
        metric: GraphMetric,
        window: &Window,
        first: usize,
    ) -> (Option<f32>, Vec<Point>) {
        if metric == GraphMetric::DEVIATION {
            let (node, gpu) = (self.node.position(), gpu.cell.position());
            let points = store.comparison(|comparison| comparison.points(node, gpu, window, first));
            return (Some(100.0), points);
        }
        if window.is_long() {
            let picture = |node: &NodePicture| metric.scale_max(node.gpus.get(gpu.cell.position())?);
            let top = store.node(&self.node, picture).flatten();
            return (top, self.long_values(store, gpu, metric, window, first, Extreme::Mean));
        }
        let values = self.with_history(store, gpu, metric, |picture, trace| {
            (metric.scale_max(picture), window.points(trace, first, |steps| metric.measure(steps)))
        });
        values.unwrap_or_default()
    }

    /// Returns the mean or an extreme of each step of a long window from `first` on, in the metric's unit;
    /// nothing before it is loaded.
    pub fn long_values(
        &self,
        store: &TopicStore,
        gpu: &GpuEntry,
        metric: GraphMetric,
        window: &Window,
        first: usize,
        extreme: Extreme,
    ) -> Vec<Point> {
        let Some(field) = metric.field() else { return Vec::new() };
        let measure = |steps| metric.measure(steps);
        let points =
            store.long_history().with(self.node.name(), gpu.cell.uuid(), field, |summaries, slot_ms| {
                window.long_points(summaries, slot_ms, first, extreme, measure)
            });
        points.unwrap_or_default()
    }

    /// Returns what throttled a GPU in a window; `None` without a reading in it.
    pub fn throttling(
        &self,
        store: &TopicStore,
        gpu: &GpuEntry,
        window: &Window,
    ) -> Option<Vec<ThrottleSummary>> {
        if window.is_long() {
            return self.long_throttling(store, gpu, window);
        }
        let (start_ms, end_ms) = (window.shown_from_ms(), window.end_ms());
        let read = |_: &GpuPicture, trace: &Trace| {
            let mut shown = trace.since(start_ms).take_while(|(at_ms, _)| *at_ms < end_ms);
            let has_reading = shown.any(|(_, cell)| cell.and_then(Cell::value).is_some());
            has_reading.then(|| throttle::summarize(trace, start_ms, end_ms))
        };
        self.with_history(store, gpu, GraphMetric::THROTTLE, read).flatten()
    }

    fn long_throttling(
        &self,
        store: &TopicStore,
        gpu: &GpuEntry,
        window: &Window,
    ) -> Option<Vec<ThrottleSummary>> {
        let read = |summaries: &Summaries, slot_ms: u64| {
            let slots: Vec<_> = summaries
                .since(window.shown_from_ms() / slot_ms)
                .take_while(|(slot, _)| slot * slot_ms < window.end_ms())
                .filter_map(|(slot, summary)| Some((slot * slot_ms, summary?.mean.value()?)))
                .collect();
            (!slots.is_empty()).then(|| throttle::summarize_long(&slots, slot_ms))
        };
        store.long_history().with(self.node.name(), gpu.cell.uuid(), GpuField::Throttle, read).flatten()
    }

    /// Returns what is known of a GPU in each step of a window from `first` on, as fractions of its scale.
    pub fn points(
        &self,
        store: &TopicStore,
        gpu: &GpuEntry,
        metric: GraphMetric,
        window: &Window,
        first: usize,
    ) -> Vec<Point> {
        let (top, mut points) = self.values(store, gpu, metric, window, first);
        let top = top.filter(|top| *top > 0.0);
        points.resize(window.steps().saturating_sub(first), Point::Gap);
        for point in &mut points {
            *point = match (*point, top) {
                (Point::Value(value), Some(top)) => Point::Value(value / top),
                (_, None) => Point::Gap,
                (other, _) => other,
            };
        }
        points
    }

    /// Returns the current value in the metric's unit; `None` for a GPU that cannot be read.
    pub fn now(&self, store: &TopicStore, gpu: &GpuEntry, metric: GraphMetric) -> Option<f32> {
        let Some(field) = metric.field() else {
            return Some(self.deviation(store, gpu)?.percent.unsigned_abs() as f32);
        };
        let cell = store.node(&self.node, |node| {
            let picture = node.gpus.get(gpu.cell.position()).filter(|picture| picture.fault.is_none());
            picture.map(|picture| picture.row.get(field))
        });
        cell.flatten().and_then(Cell::value).map(|steps| metric.measure(steps))
    }

    /// Returns the value at a moment in the metric's unit; `None` without one.
    pub fn value_at(
        &self,
        store: &TopicStore,
        gpu: &GpuEntry,
        metric: GraphMetric,
        at_ms: u64,
    ) -> Option<f32> {
        if metric == GraphMetric::DEVIATION {
            let StepDeviation::Value(away) = self.deviation_at(store, gpu, at_ms) else { return None };
            return Some(away.percent.unsigned_abs() as f32);
        }
        self.cell_at(store, gpu, metric, at_ms)?.value().map(|steps| metric.measure(steps))
    }

    /// Formats the value at a moment.
    pub fn text_at(&self, store: &TopicStore, gpu: &GpuEntry, metric: GraphMetric, at_ms: u64) -> String {
        if metric == GraphMetric::DEVIATION {
            return match self.deviation_at(store, gpu, at_ms) {
                StepDeviation::NoData => "no data".to_owned(),
                StepDeviation::NotCompared => "not compared".to_owned(),
                StepDeviation::Value(away) => away.label(),
            };
        }
        match self.cell_at(store, gpu, metric, at_ms) {
            None => "no data".to_owned(),
            Some(Cell::UNSUPPORTED) => "not supported".to_owned(),
            Some(cell) => match cell.value() {
                Some(bits) if metric == GraphMetric::THROTTLE => throttle::names(bits),
                Some(steps) => metric.format(metric.measure(steps)),
                None => "reading failed".to_owned(),
            },
        }
    }

    fn deviation_at(&self, store: &TopicStore, gpu: &GpuEntry, at_ms: u64) -> StepDeviation {
        let (node, gpu) = (self.node.position(), gpu.cell.position());
        store.comparison(|comparison| comparison.at(node, gpu, at_ms))
    }

    /// Returns what is known of a metric's field at a moment.
    fn cell_at(&self, store: &TopicStore, gpu: &GpuEntry, metric: GraphMetric, at_ms: u64) -> Option<Cell> {
        let recent = self.with_history(store, gpu, metric, |_, trace| trace.at(at_ms)).flatten();
        let long = || {
            store.long_history().with(
                self.node.name(),
                gpu.cell.uuid(),
                metric.field()?,
                |all, slot_ms| {
                    let (slot, summary) = all.since(at_ms / slot_ms).next()?;
                    summary.filter(|_| slot == at_ms / slot_ms).map(|summary| summary.mean)
                },
            )?
        };
        recent.or_else(long)
    }
}
