//! A scope is the GPUs that a part of the page speaks of: those of one node, or of a job on all its nodes.

use crate::chart::{Mark, Series, Sums, Window, share};
use crate::fleet::{GpuCell, NodeCell, Scene};
use crate::health::{Freshness, freshness};
use crate::page::Page;
use crate::roster;
use crate::totals::{HostTotals, Totals};
use leptos::prelude::*;
use nodeglass_protocol::picture::{GpuPicture, History, Link, NodePicture};
use nodeglass_protocol::trace::Trace;
use nodeglass_protocol::{GpuField, HostField, JobId};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// Adds the traces of a node, each with its whole, by the function it is given.
type Each = Box<dyn Fn(&NodePicture, &mut dyn FnMut(&Trace, f32)) + Send + Sync>;

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
    /// What its GPUs come to, renewed once a second. Those whose values are old are counted and left out.
    pub fn totals(&self, page: &Page) -> Totals {
        let is_old = self.sieve(page);
        let mut totals = Totals::default();
        self.each_node(|node| {
            let old = is_old(node);
            totals.at_end |= node.head.link == Link::Ended;
            let add = |gpu| if old { totals.leave_out() } else { totals.add(gpu) };
            roster::counted(node, self.job).for_each(add);
        });
        totals
    }

    /// What its hosts come to, renewed once a second; those whose values are old are left out.
    pub fn hosts(&self, page: &Page) -> HostTotals {
        let is_old = self.sieve(page);
        let mut totals = HostTotals::default();
        self.each_node(|node| {
            if !is_old(node) {
                totals.add(&node.host);
            }
        });
        totals
    }

    /// Which nodes are too old to be summed up.
    fn sieve(&self, page: &Page) -> impl Fn(&NodePicture) -> bool + use<> {
        let (now_ms, all) = (page.now_ms(), self.nodes.with(Vec::len));
        move |node| is_left_out(node, all, now_ms)
    }

    /// Share of a field over time, all GPUs together, renewed with every step of the charts: of the past only what is
    /// new is looked at.
    pub fn past(&self, page: &Page, field: GpuField) -> Memo<Series> {
        let scope = self.clone();
        self.kept(
            page,
            Box::new(move |node, add| {
                let Some(past) = &node.history else { return };
                for (index, gpu) in scope.gpus(node) {
                    if let (Some(trace), Some(whole)) = (past.gpu(index, field), whole_of(gpu, field)) {
                        add(trace, whole);
                    }
                }
            }),
        )
    }

    /// Mean CPU use of its hosts over time.
    pub fn host_past(&self, page: &Page) -> Memo<Series> {
        let column = History::HOST_FIELDS.iter().position(|field| *field == HostField::Cpu);
        self.kept(
            page,
            Box::new(move |node, add| {
                if let Some((past, column)) = node.history.as_ref().zip(column) {
                    add(&past.host[column], 100.0);
                }
            }),
        )
    }

    fn kept(&self, page: &Page, of: Each) -> Memo<Series> {
        let (scope, page) = (self.clone(), page.clone());
        let (sums, turns) = (Mutex::new(Sums::default()), AtomicU64::new(0));
        let pasts = Memo::new({
            let scope = scope.clone();
            move |_| {
                for cell in scope.nodes.get() {
                    cell.past().track();
                    cell.gpus().track();
                }
                turns.fetch_add(1, Relaxed)
            }
        });
        Memo::new(move |_| {
            let (window, stamp) = (page.window(), pasts.get());
            let mut sums = sums.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(first) = sums.go_on(window, stamp) {
                scope.each_node(|node| {
                    of(node, &mut |trace, whole| {
                        sums.add(first, &window.marks(trace, first, |steps| steps as f32), whole);
                    });
                });
            }
            sums.series()
        })
    }

    /// How many GPUs of a node count; wakes nobody.
    pub fn count(&self, node: &NodeCell) -> usize {
        self.scene.node(node, |node| self.gpus(node).count()).unwrap_or(0)
    }

    /// Utilisation in % of each GPU of a node, in the steps from the `first` on; wakes nobody.
    pub fn heat(&self, node: &NodeCell, window: &Window, first: usize) -> Vec<Vec<Mark>> {
        let rows = self.scene.node(node, |node| {
            let trace = |index| node.history.as_ref().and_then(|past| past.gpu(index, GpuField::Util));
            let row = |(index, _)| match trace(index) {
                Some(trace) => window.marks(trace, first, |steps| steps as f32),
                None => vec![Mark::Gap; window.steps() - first],
            };
            self.gpus(node).map(row).collect()
        });
        rows.unwrap_or_default()
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

    fn each_node(&self, mut look: impl FnMut(&NodePicture)) {
        self.nodes.with(|nodes| {
            for cell in nodes {
                self.scene.node(cell, &mut look);
            }
        });
    }
}

/// Whether one of so many nodes is too old to be summed up: of several those that do not tell now; a single one never, for
/// it is shown dimmed as a whole.
pub fn is_left_out(node: &NodePicture, of: usize, now_ms: u64) -> bool {
    let is_old = matches!(freshness(node, now_ms), Freshness::Stale(_) | Freshness::Never);
    of > 1 && (is_old || node.head.nvml_stuck_ms.is_some())
}

/// A list of one node.
pub fn alone(node: NodeCell) -> Memo<Vec<NodeCell>> {
    Memo::new(move |_| vec![node.clone()])
}

/// The share of a GPU's field over time.
pub fn gpu_past(page: &Page, scene: &Scene, node: &NodeCell, gpu: &GpuCell, field: GpuField) -> Series {
    let window = page.window();
    node.past().track();
    let series = scene.node(node, |node| {
        let trace = node.history.as_ref()?.gpu(gpu.position(), field)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::NodeName;

    #[test]
    fn of_several_nodes_those_that_are_silent_are_left_out_and_what_is_over_is_not() {
        let mut node = NodePicture::new(NodeName::new("n1").unwrap());
        assert!(is_left_out(&node, 2, 60_000), "nothing was ever told");
        node.sampled_at_ms = Some(10_000);
        node.head.link = Link::Live;
        assert!(!is_left_out(&node, 2, 11_000));
        assert!(is_left_out(&node, 2, 60_000));
        assert!(!is_left_out(&node, 1, 60_000), "a single node is dimmed as a whole");
        node.head.link = Link::Ended;
        assert!(!is_left_out(&node, 2, 60_000));
    }
}
