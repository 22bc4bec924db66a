//! The roll of a scope's GPUs, node by node: who they are, what they are called, and what was read of them.

use super::scope::Scope;
use crate::chart::{Mark, Window};
use crate::fleet::{GpuCell, NodeCell, Scene};
use crate::metric::Metric;
use crate::throttle;
use crate::time::Pick;
use leptos::prelude::*;
use nodeglass_protocol::picture::{GpuPicture, Link, NodePicture};
use nodeglass_protocol::trace::Trace;
use nodeglass_protocol::{Cell, GpuField};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A node and those of its GPUs that count.
#[derive(Clone, PartialEq)]
pub struct Group {
    /// The node.
    pub node: NodeCell,
    /// Its GPUs.
    pub gpus: Vec<Entry>,
}

/// A GPU with the name that graphs give it.
#[derive(Clone, PartialEq)]
pub struct Entry {
    /// The GPU.
    pub cell: GpuCell,
    /// `GPU 1`, or `GPU 1 · 3g.40gb` of a MIG instance.
    pub label: String,
}

/// Every GPU of a scope, following which there are.
pub fn roll(scope: &Scope) -> Vec<Group> {
    let group = |node: NodeCell| {
        let entry = |cell: GpuCell| {
            let gpu = scope.scene.node(&node, |node| node.gpus.get(cell.position()).map(label));
            Entry { label: gpu.flatten().unwrap_or_default(), cell }
        };
        let gpus = scope.of_job(&node).into_iter().map(entry).collect();
        Group { node, gpus }
    };
    scope.nodes.get().into_iter().map(group).collect()
}

/// Whether what is seen of these nodes is the end of a job; wakes nobody.
pub fn is_over(scene: &Scene, groups: &[Group]) -> bool {
    let is_over = |group: &Group| scene.node(&group.node, |node| node.head.link == Link::Ended);
    !groups.is_empty() && groups.iter().all(|group| is_over(group) == Some(true))
}

/// Grows when there are other GPUs, or when a past is another one; not when it merely grows.
pub fn pasts(groups: Memo<Vec<Group>>) -> Memo<u64> {
    let turns = AtomicU64::new(0);
    Memo::new(move |_| {
        groups.with(|groups| groups.iter().for_each(|group| group.node.past().track()));
        turns.fetch_add(1, Relaxed)
    })
}

fn label(gpu: &GpuPicture) -> String {
    let part = gpu.facts.mig.as_ref().map(|mig| match &mig.profile {
        Some(profile) => format!(" · {profile}"),
        None => format!(" · MIG {}", mig.gpu_instance),
    });
    format!("GPU {}{}", gpu.facts.index, part.unwrap_or_default())
}

impl Group {
    /// What stands out when one of its GPUs is pointed at.
    pub fn pick(&self, gpu: &Entry) -> Pick {
        Pick { node: self.node.name().clone(), gpu: gpu.cell.uuid().clone() }
    }

    /// A GPU's name in full: `gpu-06 GPU 1, rank 41`.
    pub fn name(&self, scene: &Scene, gpu: &Entry) -> String {
        let rank = scene.node(&self.node, |node| rank(node, gpu)).flatten();
        let rank = rank.map(|rank| format!(", rank {rank}")).unwrap_or_default();
        format!("{} {}{rank}", self.node.name(), gpu.label)
    }

    /// Looks at one of its GPUs and at the past of one of its fields.
    pub fn past<R>(
        &self,
        scene: &Scene,
        gpu: &Entry,
        metric: Metric,
        look: impl FnOnce(&GpuPicture, &Trace) -> R,
    ) -> Option<R> {
        let at = gpu.cell.position();
        scene.node(&self.node, |node| {
            Some(look(node.gpus.get(at)?, node.history.as_ref()?.gpu(at, metric.field())?))
        })?
    }

    /// What is known of a GPU in each step of a window from the `first` on, as shares of its scale.
    pub fn marks(
        &self,
        scene: &Scene,
        gpu: &Entry,
        metric: Metric,
        window: &Window,
        first: usize,
    ) -> Vec<Mark> {
        let marks = self.past(scene, gpu, metric, |picture, trace| {
            let top = metric.top(picture).filter(|top| *top > 0.0)?;
            Some(window.marks(trace, first, |steps| metric.measure(steps) / top))
        });
        marks.flatten().unwrap_or_else(|| vec![Mark::Gap; window.steps().saturating_sub(first)])
    }

    /// The value of now, in the metric's unit; nothing of a card that cannot be read.
    pub fn now(&self, scene: &Scene, gpu: &Entry, metric: Metric) -> Option<f32> {
        let cell = scene.node(&self.node, |node| {
            let picture = node.gpus.get(gpu.cell.position()).filter(|picture| picture.fault.is_none());
            picture.map(|picture| picture.row.get(metric.field()))
        });
        cell.flatten().and_then(Cell::value).map(|steps| metric.measure(steps))
    }

    /// What was read at a moment, in words.
    pub fn words_at(&self, scene: &Scene, gpu: &Entry, metric: Metric, at_ms: u64) -> String {
        let cell = self.past(scene, gpu, metric, |_, trace| trace.at(at_ms));
        match cell.flatten() {
            None => "no data".to_owned(),
            Some(Cell::UNSUPPORTED) => "not offered by this card".to_owned(),
            Some(cell) => match cell.value() {
                Some(bits) if metric.field() == GpuField::Throttle => throttle::names(bits),
                Some(steps) => metric.words(metric.measure(steps)),
                None => "reading failed".to_owned(),
            },
        }
    }
}

/// The rank of a program that runs on a GPU, if one does and tells.
fn rank(node: &NodePicture, gpu: &Entry) -> Option<u32> {
    let mut here = node.processes.iter().filter(|process| process.facts.gpu == *gpu.cell.uuid());
    here.find_map(|process| process.facts.rank).map(|rank| rank.global)
}
