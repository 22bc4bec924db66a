//! Each thing that changes alone has one trigger of its own, found by its identity and not by its place.

use crate::health::Freshness;
use leptos::prelude::*;
use nodeglass_protocol::picture::NodePicture;
use nodeglass_protocol::{GpuUuid, NodeName};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed};

/// A node's triggers. Clones are the same node.
#[derive(Clone)]
pub struct NodeCell(Arc<Node>);

struct Node {
    name: NodeName,
    position: AtomicUsize,
    trust: AtomicU8,
    head: ArcTrigger,
    sampled: ArcTrigger,
    past: ArcTrigger,
    health: ArcTrigger,
    processes: ArcTrigger,
    members: ArcTrigger,
    uses: ArcTrigger,
    cores: ArcTrigger,
    gpus: ArcRwSignal<Vec<GpuCell>>,
}

/// A GPU's trigger. Clones are the same GPU.
#[derive(Clone)]
pub struct GpuCell(Arc<Gpu>);

struct Gpu {
    uuid: GpuUuid,
    position: AtomicUsize,
    row: ArcTrigger,
}

impl PartialEq for NodeCell {
    /// The same node of the same scene, whatever is known of it now.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl PartialEq for GpuCell {
    /// The same GPU of the same scene.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl NodeCell {
    /// The cell of a node at a position of its picture.
    pub fn new(position: usize, node: &NodePicture) -> Self {
        let cell = Self(Arc::new(Node {
            name: node.name.clone(),
            position: AtomicUsize::new(position),
            trust: AtomicU8::new(0),
            head: ArcTrigger::new(),
            sampled: ArcTrigger::new(),
            past: ArcTrigger::new(),
            health: ArcTrigger::new(),
            processes: ArcTrigger::new(),
            members: ArcTrigger::new(),
            uses: ArcTrigger::new(),
            cores: ArcTrigger::new(),
            gpus: ArcRwSignal::new(Vec::new()),
        }));
        cell.renew_gpus(node);
        cell
    }

    /// Its name.
    pub fn name(&self) -> &NodeName {
        &self.0.name
    }

    /// Where it was last in the picture.
    pub fn position(&self) -> usize {
        self.0.position.load(Relaxed)
    }

    /// Moves it to another position.
    pub fn move_to(&self, position: usize) {
        self.0.position.store(position, Relaxed);
    }

    /// Takes in how far its values can be trusted by now. How old they are is news every second; that they are not, once.
    pub fn age(&self, now: Freshness) {
        let kind = match now {
            Freshness::Fresh => 0,
            Freshness::Stale(_) => 1,
            Freshness::Last => 2,
            Freshness::Never => 3,
        };
        if self.0.trust.swap(kind, Relaxed) != kind || kind == 1 {
            self.0.head.notify();
        }
    }

    /// Changes with its link, its facts, and its age once that is worth a word.
    pub fn head(&self) -> &ArcTrigger {
        &self.0.head
    }

    /// Changes with every sample.
    pub fn sampled(&self) -> &ArcTrigger {
        &self.0.sampled
    }

    /// Changes when its past is another one, not when the past merely grows.
    pub fn past(&self) -> &ArcTrigger {
        &self.0.past
    }

    /// Changes with the health of its GPUs.
    pub fn health(&self) -> &ArcTrigger {
        &self.0.health
    }

    /// Changes with what jobs use of it.
    pub fn uses(&self) -> &ArcTrigger {
        &self.0.uses
    }

    /// Changes with its CPUs one by one.
    pub fn cores(&self) -> &ArcTrigger {
        &self.0.cores
    }

    /// Changes with which processes it has, not with what they do.
    pub fn members(&self) -> &ArcTrigger {
        &self.0.members
    }

    /// Changes with its processes.
    pub fn processes(&self) -> &ArcTrigger {
        &self.0.processes
    }

    /// Its GPUs; changes with which they are and to whom they belong.
    pub fn gpus(&self) -> &ArcRwSignal<Vec<GpuCell>> {
        &self.0.gpus
    }

    /// Brings its GPUs up to the picture, keeping the cells of those it knew.
    pub fn renew_gpus(&self, node: &NodePicture) {
        let old = self.0.gpus.get_untracked();
        let cell = |(position, gpu): (usize, &nodeglass_protocol::picture::GpuPicture)| {
            let known = old.iter().find(|cell| cell.0.uuid == gpu.facts.uuid).cloned();
            let cell = known.unwrap_or_else(|| GpuCell::new(gpu.facts.uuid.clone()));
            cell.0.position.store(position, Relaxed);
            cell
        };
        self.0.gpus.set(node.gpus.iter().enumerate().map(cell).collect());
    }

    /// Tells whoever looks at anything of it.
    pub fn notify_all(&self) {
        self.0.head.notify();
        self.0.sampled.notify();
        self.0.past.notify();
        self.0.health.notify();
        self.0.processes.notify();
        self.0.members.notify();
        self.0.uses.notify();
        self.0.cores.notify();
        self.0.gpus.get_untracked().iter().for_each(|gpu| gpu.0.row.notify());
    }

    /// Tells whoever looks at a row, by its place among GPUs, host, processes and uses.
    pub fn notify_row(&self, row: usize) {
        let gpus = self.0.gpus.get_untracked();
        match gpus.get(row) {
            Some(gpu) => gpu.0.row.notify(),
            // The host's readings are shown as sums, which are renewed with every sample.
            None if row == gpus.len() => {}
            // Which of the two it is only the picture knows; whoever looks at one mostly looks at both.
            None => {
                self.0.processes.notify();
                self.0.uses.notify();
            }
        }
    }
}

impl GpuCell {
    fn new(uuid: GpuUuid) -> Self {
        Self(Arc::new(Gpu { uuid, position: AtomicUsize::new(0), row: ArcTrigger::new() }))
    }

    /// Its identity.
    pub fn uuid(&self) -> &GpuUuid {
        &self.0.uuid
    }

    /// Where it was last among the GPUs of its node.
    pub fn position(&self) -> usize {
        self.0.position.load(Relaxed)
    }

    /// Changes with its readings, faults and owners.
    pub fn row(&self) -> &ArcTrigger {
        &self.0.row
    }
}
