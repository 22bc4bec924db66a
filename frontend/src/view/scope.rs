//! A scope: the GPUs that a part of the page covers, of one node or of a job on all its nodes.

use crate::chart::{Point, Series, Sums, Window, share};
use crate::domain::health::is_stale;
use crate::domain::ownership::{self, ReadNodes};
use crate::domain::totals::{HostTotals, Totals};
use crate::fleet::{GpuSignals, NodeSignals, TopicStore};
use crate::state::page::Page;
use leptos::prelude::*;
use nodeglass_protocol::field::Vendors;
use nodeglass_protocol::picture::{GpuPicture, Link, NodePicture};
use nodeglass_protocol::trace::Trace;
use nodeglass_protocol::{GpuField, HostField, JobId};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// Visits the traces of a node, each with its maximum.
type Each = Box<dyn Fn(&NodePicture, &mut dyn FnMut(&Trace, f32)) + Send + Sync>;

/// Some nodes of a store, for a job if there is one.
#[derive(Clone)]
pub struct NodeScope {
    /// The store.
    pub store: TopicStore,
    /// The nodes.
    pub nodes: Memo<Vec<NodeSignals>>,
    /// The job whose GPUs count.
    pub job: Option<JobId>,
    /// Whether the nodes are all that are known of the job.
    pub is_whole_job: bool,
}

impl NodeScope {
    /// Returns whether each of its nodes reported that it has no GPUs.
    pub fn has_no_gpus(&self) -> Memo<bool> {
        let scope = self.clone();
        Memo::new(move |_| {
            let has_none = |cell: &NodeSignals| {
                cell.head().track();
                scope.store.node(cell, |node| node.head.no_gpu.is_some()) == Some(true)
            };
            scope.nodes.with(|nodes| !nodes.is_empty() && nodes.iter().all(has_none))
        })
    }

    /// Returns the vendors of its devices; subscribes to the set of devices.
    pub fn vendors(&self) -> Vendors {
        let mut vendors = Vec::new();
        for cell in self.nodes.get() {
            cell.gpus().track();
            self.store.node(&cell, |node| vendors.extend(node.gpus.iter().map(|gpu| gpu.facts.vendor)));
        }
        vendors.into_iter().collect()
    }

    /// Returns the totals of its GPUs, updated once a second. Stale ones are counted and left out.
    pub fn totals(&self, page: &Page) -> Totals {
        let is_old = self.stale_filter(page);
        let mut totals = Totals::default();
        self.each_node(|node| {
            totals.at_end |= node.head.link == Link::Ended;
            ownership::add_to_totals(&mut totals, node, self.job, is_old(node));
        });
        totals.leave_out(self.unread_gpus(page));
        totals
    }

    /// Returns the number of GPUs of a whole job that are on nodes which were not read yet.
    fn unread_gpus(&self, page: &Page) -> usize {
        let Some(job) = self.job.filter(|_| self.is_whole_job).and_then(|id| page.job(id)) else { return 0 };
        let mut read = ReadNodes::default();
        self.each_node(|node| read.add(node, job.id));
        read.unread_gpus(&job)
    }

    /// Returns the totals of its hosts, updated once a second; stale ones are left out.
    pub fn hosts(&self, page: &Page) -> HostTotals {
        let is_old = self.stale_filter(page);
        let mut totals = HostTotals::default();
        self.each_node(|node| {
            if !is_old(node) {
                totals.add(&node.host);
            }
        });
        totals
    }

    /// Returns a predicate for nodes that are too stale for totals.
    fn stale_filter(&self, page: &Page) -> impl Fn(&NodePicture) -> bool + use<> {
        let (now_ms, all) = (page.now_ms(), self.nodes.with(Vec::len));
        move |node| is_left_out(node, all, now_ms)
    }

    /// Returns a field over time as a fraction of its maximum, all GPUs together. Updated with every step of
    /// the charts, incrementally.
    pub fn series(&self, page: &Page, field: GpuField) -> Memo<Series> {
        let scope = self.clone();
        self.sum_memo(
            page,
            Box::new(move |node, add| {
                let Some(series) = &node.history else { return };
                for (index, gpu) in scope.gpus(node) {
                    if let (Some(trace), Some(whole)) = (series.gpu(index, field), scale_max_of(gpu, field)) {
                        add(trace, whole);
                    }
                }
            }),
        )
    }

    /// Returns the mean CPU use of its hosts over time.
    pub fn host_series(&self, page: &Page) -> Memo<Series> {
        self.sum_memo(
            page,
            Box::new(move |node, add| {
                if let Some(trace) =
                    node.history.as_ref().and_then(|history| history.host.get(HostField::Cpu))
                {
                    add(trace, 100.0);
                }
            }),
        )
    }

    fn sum_memo(&self, page: &Page, of: Each) -> Memo<Series> {
        let (scope, page) = (self.clone(), page.clone());
        let (sums, turns) = (Mutex::new(Sums::default()), AtomicU64::new(0));
        let histories = Memo::new({
            let scope = scope.clone();
            move |_| {
                for cell in scope.nodes.get() {
                    cell.history().track();
                    cell.gpus().track();
                }
                turns.fetch_add(1, Relaxed)
            }
        });
        Memo::new(move |_| {
            let (window, stamp) = (page.window(), histories.get());
            let mut sums = sums.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(first) = sums.advance(window, stamp) {
                scope.each_node(|node| {
                    of(node, &mut |trace, whole| {
                        sums.add(first, &window.points(trace, first, |steps| steps as f32), whole);
                    });
                });
            }
            sums.series()
        })
    }

    /// Returns the number of GPUs of a node that count; does not subscribe.
    pub fn count(&self, node: &NodeSignals) -> usize {
        self.store.node(node, |node| self.gpus(node).count()).unwrap_or(0)
    }

    /// Returns the utilisation in % of each GPU of a node, in the steps from `first` on; does not subscribe.
    pub fn utilisation(&self, node: &NodeSignals, window: &Window, first: usize) -> Vec<Vec<Point>> {
        let rows = self.store.node(node, |node| {
            let trace = |index| node.history.as_ref().and_then(|series| series.gpu(index, GpuField::Util));
            let row = |(index, _)| match trace(index) {
                Some(trace) => window.points(trace, first, |steps| steps as f32),
                None => vec![Point::Gap; window.steps() - first],
            };
            self.gpus(node).map(row).collect()
        });
        rows.unwrap_or_default()
    }

    /// Returns the cells of a node's GPUs that count.
    pub fn job_gpus(&self, node: &NodeSignals) -> Vec<GpuSignals> {
        let cells = node.gpus().get();
        let indices =
            self.store.node(node, |node| self.gpus(node).map(|(index, _)| index).collect::<Vec<_>>());
        indices.unwrap_or_default().into_iter().filter_map(|index| cells.get(index).cloned()).collect()
    }

    /// Returns the GPUs of a node that count.
    fn gpus<'a>(&self, node: &'a NodePicture) -> impl Iterator<Item = (usize, &'a GpuPicture)> + use<'a> {
        let job = self.job;
        node.gpus.iter().enumerate().filter(move |(_, gpu)| ownership::belongs_to_job(node, gpu, job))
    }

    fn each_node(&self, mut look: impl FnMut(&NodePicture)) {
        self.nodes.with(|nodes| {
            for cell in nodes {
                self.store.node(cell, &mut look);
            }
        });
    }
}

/// Returns whether one of `of` nodes is too stale for totals: among several, a node that does not report now; a
/// single one never, because it is dimmed as a whole.
pub fn is_left_out(node: &NodePicture, of: usize, now_ms: u64) -> bool {
    of > 1 && (is_stale(node, now_ms) || node.head.driver_stuck_ms.is_some())
}

/// Returns a list of one node.
pub fn alone(node: NodeSignals) -> Memo<Vec<NodeSignals>> {
    Memo::new(move |_| vec![node.clone()])
}

/// Returns a GPU's field over time as a fraction of its maximum.
pub fn gpu_series(
    page: &Page,
    store: &TopicStore,
    node: &NodeSignals,
    gpu: &GpuSignals,
    field: GpuField,
) -> Series {
    let window = page.window();
    node.history().track();
    let series = store.node(node, |node| {
        let trace = node.history.as_ref()?.gpu(gpu.position(), field)?;
        let whole = scale_max_of(node.gpus.get(gpu.position())?, field)?;
        Some(share(&window.series(trace), whole))
    });
    series.flatten().unwrap_or_default()
}

/// Returns the maximum of a field, in the steps that a trace holds.
fn scale_max_of(gpu: &GpuPicture, field: GpuField) -> Option<f32> {
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
    fn silent_nodes_are_left_out_of_several_and_ended_ones_are_not() {
        let mut node = NodePicture::new(NodeName::new("n1").unwrap());
        assert!(is_left_out(&node, 2, 60_000), "there never was a sample");
        node.sampled_at_ms = Some(10_000);
        node.head.link = Link::Live;
        assert!(!is_left_out(&node, 2, 11_000));
        assert!(is_left_out(&node, 2, 60_000));
        assert!(!is_left_out(&node, 1, 60_000), "a single node is dimmed as a whole");
        node.head.link = Link::Ended;
        assert!(!is_left_out(&node, 2, 60_000));
    }
}
