//! A scope is the GPUs that a part of the page speaks of: those of one node, or of a job on all its nodes.

use crate::chart::{Series, merged, share};
use crate::fleet::{GpuCell, NodeCell, Scene};
use crate::health::{Freshness, freshness};
use crate::lazy::{Memo, memo};
use crate::page::Page;
use crate::roster;
use crate::totals::{HostTotals, Totals};
use leptos::prelude::*;
use nodeglass_protocol::picture::{GpuPicture, NodePicture};
use nodeglass_protocol::{GpuField, HostField, JobId};

/// Some nodes of a scene, seen for a job if there is one.
#[derive(Clone)]
pub struct Scope {
    /// The scene.
    pub scene: Scene,
    /// The nodes.
    pub nodes: Memo<Vec<NodeCell>>,
    /// The job whose GPUs count.
    pub job: Option<JobId>,
}

impl Scope {
    /// One node of it.
    pub fn only(&self, node: NodeCell) -> Self {
        Self { nodes: alone(node), ..self.clone() }
    }

    /// What its GPUs come to, renewed with every sample. Those whose values are old are counted and left out.
    pub fn totals(&self, page: &Page) -> Totals {
        let is_old = self.sieve(page);
        let mut totals = Totals::default();
        self.each_node(
            |cell| cell.sampled().track(),
            |node| {
                let old = is_old(node);
                let add = |gpu| if old { totals.leave_out() } else { totals.add(gpu) };
                crate::roster::counted(node, self.job).for_each(add);
            },
        );
        totals
    }

    /// What its hosts come to, renewed with every sample; those whose values are old are left out.
    pub fn hosts(&self, page: &Page) -> HostTotals {
        let is_old = self.sieve(page);
        let mut totals = HostTotals::default();
        self.each_node(
            |cell| cell.sampled().track(),
            |node| {
                if !is_old(node) {
                    totals.add(&node.host);
                }
            },
        );
        totals
    }

    /// Which nodes are too old to be summed up. Of several nodes, those that do not tell now; a single
    /// one never, for it is shown dimmed as a whole.
    fn sieve(&self, page: &Page) -> impl Fn(&NodePicture) -> bool + use<> {
        let now_ms = page.now_ms();
        let several = self.nodes.with(|nodes| nodes.len() > 1);
        move |node| several && matches!(freshness(node, now_ms), Freshness::Stale(_) | Freshness::Never)
    }

    /// Share of a field over time, all GPUs together, renewed with every step of the charts.
    pub fn past(&self, page: &Page, field: GpuField) -> Series {
        let window = page.window();
        let mut parts = Vec::new();
        self.each_node(
            |cell| cell.past().track(),
            |node| {
                let Some(past) = &node.past else { return };
                for (index, gpu) in self.gpus(node) {
                    if let (Some(trace), Some(whole)) = (past.gpu(index, field), whole_of(gpu, field)) {
                        parts.push((window.series(trace), whole));
                    }
                }
            },
        );
        merged(parts.iter().map(|(series, whole)| (series.as_slice(), *whole)))
    }

    /// Mean CPU use of its hosts over time.
    pub fn host_past(&self, page: &Page) -> Series {
        let window = page.window();
        let mut parts = Vec::new();
        self.each_node(
            |cell| cell.past().track(),
            |node| {
                let column =
                    nodeglass_protocol::picture::Past::HOST_FIELDS.iter().position(|f| *f == HostField::Cpu);
                if let Some((past, column)) = node.past.as_ref().zip(column) {
                    parts.push(window.series(&past.host[column]));
                }
            },
        );
        merged(parts.iter().map(|series| (series.as_slice(), 100.0)))
    }

    /// Utilisation in % of each GPU over time.
    pub fn heat(&self, page: &Page) -> Vec<Series> {
        let window = page.window();
        let mut rows = Vec::new();
        self.each_node(
            |cell| cell.past().track(),
            |node| {
                let trace = |index| node.past.as_ref().and_then(|past| past.gpu(index, GpuField::Util));
                rows.extend(self.gpus(node).map(|(index, _)| {
                    trace(index).map_or_else(|| vec![None; window.steps()], |trace| window.series(trace))
                }));
            },
        );
        rows
    }

    /// The cells of a node's GPUs that count.
    pub fn of_job(&self, node: &NodeCell) -> Vec<GpuCell> {
        let cells = node.gpus().get();
        let theirs =
            self.scene.node(node, |node| self.gpus(node).map(|(index, _)| index).collect::<Vec<_>>());
        theirs.unwrap_or_default().into_iter().filter_map(|index| cells.get(index).cloned()).collect()
    }

    /// The GPUs of a node that count.
    fn gpus<'a>(&self, node: &'a NodePicture) -> impl Iterator<Item = (usize, &'a GpuPicture)> + use<'a> {
        let job = self.job;
        node.gpus.iter().enumerate().filter(move |(_, gpu)| roster::is_of_job(node, gpu, job))
    }

    fn each_node(&self, track: impl Fn(&NodeCell), mut look: impl FnMut(&NodePicture)) {
        for cell in self.nodes.get() {
            track(&cell);
            cell.gpus().track();
            self.scene.node(&cell, &mut look);
        }
    }
}

/// A list of one node.
pub fn alone(node: NodeCell) -> Memo<Vec<NodeCell>> {
    memo(move || vec![node.clone()])
}

/// The share of a GPU's field over time.
pub fn gpu_past(page: &Page, scene: &Scene, node: &NodeCell, gpu: &GpuCell, field: GpuField) -> Series {
    let window = page.window();
    node.past().track();
    let series = scene.node(node, |node| {
        let trace = node.past.as_ref()?.gpu(gpu.position(), field)?;
        let whole = whole_of(node.gpus.get(gpu.position())?, field)?;
        Some(share(&window.series(trace), whole))
    });
    series.flatten().unwrap_or_default()
}

/// What is the whole of a field's value, in the steps that a trace holds.
fn whole_of(gpu: &GpuPicture, field: GpuField) -> Option<f32> {
    let steps = |field| gpu.row.get(field).value().map(|steps| steps as f32);
    match field {
        GpuField::Util | GpuField::MemUtil | GpuField::Temp => Some(100.0),
        GpuField::MemUsed => steps(GpuField::MemTotal),
        GpuField::Power => steps(GpuField::PowerLimit),
        _ => None,
    }
}
