//! Change notification per node and per GPU, keyed by identity rather than position.

use crate::domain::health::{self, Freshness, Health};
use leptos::prelude::*;
use nodeglass_protocol::picture::NodePicture;
use nodeglass_protocol::{GpuUuid, NodeName};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// A revision counter. Subscribers are notified of changes; pollers compare counts.
#[derive(Default)]
pub struct Revision {
    count: AtomicU32,
    followed: AtomicBool,
    trigger: ArcTrigger,
}

impl Revision {
    /// Subscribes the caller.
    pub fn track(&self) {
        self.followed.store(true, Relaxed);
        self.trigger.track();
    }

    /// Counts a change. Most counters have no subscriber, which costs nothing.
    pub fn notify(&self) {
        self.count.fetch_add(1, Relaxed);
        if self.followed.swap(false, Relaxed) {
            self.trigger.notify();
        }
    }

    /// Returns the number of changes; does not subscribe.
    pub fn count(&self) -> u64 {
        self.count.load(Relaxed).into()
    }
}

/// A node's cached health with its inputs: the revision counts, and the age in seconds.
type CachedHealth = (u64, u64, Arc<Health>);

/// A node's signals. Clones are the same node.
#[derive(Clone)]
pub struct NodeSignals(Arc<NodeSignalsInner>);

struct NodeSignalsInner {
    name: NodeName,
    position: AtomicUsize,
    freshness: AtomicU8,
    head: Revision,
    samples: Revision,
    history: Revision,
    gpu_health: Revision,
    processes: Revision,
    process_set: Revision,
    usage_jobs: Revision,
    job_usage: Revision,
    cores: Revision,
    gpus: ArcRwSignal<Vec<GpuSignals>>,
    state: Mutex<Option<CachedHealth>>,
}

/// A GPU's signals. Clones are the same GPU.
#[derive(Clone)]
pub struct GpuSignals(Arc<GpuSignalsInner>);

struct GpuSignalsInner {
    uuid: GpuUuid,
    position: AtomicUsize,
    row: Revision,
}

impl PartialEq for NodeSignals {
    /// Compares identity: the same node of the same store.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl PartialEq for GpuSignals {
    /// Compares identity: the same GPU of the same store.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl NodeSignals {
    /// Creates the cell of a node at a position of its picture.
    pub fn new(position: usize, node: &NodePicture) -> Self {
        let cell = Self(Arc::new(NodeSignalsInner {
            name: node.name.clone(),
            position: AtomicUsize::new(position),
            freshness: AtomicU8::new(0),
            head: Revision::default(),
            samples: Revision::default(),
            history: Revision::default(),
            gpu_health: Revision::default(),
            processes: Revision::default(),
            process_set: Revision::default(),
            usage_jobs: Revision::default(),
            job_usage: Revision::default(),
            cores: Revision::default(),
            gpus: ArcRwSignal::new(Vec::new()),
            state: Mutex::default(),
        }));
        cell.update_gpus(node);
        cell
    }

    /// Returns its name.
    pub fn name(&self) -> &NodeName {
        &self.0.name
    }

    /// Returns its last position in the picture.
    pub fn position(&self) -> usize {
        self.0.position.load(Relaxed)
    }

    /// Sets its position.
    pub fn move_to(&self, position: usize) {
        self.0.position.store(position, Relaxed);
    }

    /// Stores the freshness of its values and returns whether subscribers should be notified: every second
    /// while it is stale, otherwise once per change.
    pub fn set_freshness(&self, now: Freshness) -> bool {
        let kind = match now {
            Freshness::Fresh => 0,
            Freshness::Stale(_) => 1,
            Freshness::Last => 2,
            Freshness::Never => 3,
        };
        let is_new = self.0.freshness.swap(kind, Relaxed) != kind || kind == 1;
        if is_new {
            self.0.head.notify();
        }
        is_new
    }

    /// Returns its health, computed once for all views.
    pub fn health(&self, node: &NodePicture, now_ms: u64) -> Arc<Health> {
        let age_s = match health::freshness(node, now_ms) {
            Freshness::Stale(age_ms) => 1 + age_ms / 1_000,
            _ => 0,
        };
        let count = self.0.head.count() + self.0.samples.count();
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        match &*state {
            Some((known, known_s, health)) if (*known, *known_s) == (count, age_s) => health.clone(),
            _ => {
                let health = Arc::new(health::for_node(node, now_ms));
                *state = Some((count, age_s, health.clone()));
                health
            }
        }
    }

    /// Revision of its link, its facts, and, once it is stale, its age.
    pub fn head(&self) -> &Revision {
        &self.0.head
    }

    /// Revision of its samples.
    pub fn samples(&self) -> &Revision {
        &self.0.samples
    }

    /// Revision of its history; it counts replacements, not the samples by which the history grows.
    pub fn history(&self) -> &Revision {
        &self.0.history
    }

    /// Revision of the health of its GPUs.
    pub fn gpu_health(&self) -> &Revision {
        &self.0.gpu_health
    }

    /// Revision of the set of jobs that have usage on it.
    pub fn usage_jobs(&self) -> &Revision {
        &self.0.usage_jobs
    }

    /// Revision of the usage of its jobs.
    pub fn job_usage(&self) -> &Revision {
        &self.0.job_usage
    }

    /// Revision of its usage per CPU.
    pub fn cores(&self) -> &Revision {
        &self.0.cores
    }

    /// Revision of its set of processes, without their readings.
    pub fn process_set(&self) -> &Revision {
        &self.0.process_set
    }

    /// Revision of its processes and their readings.
    pub fn processes(&self) -> &Revision {
        &self.0.processes
    }

    /// Its GPUs; notifies of changes of the set of GPUs and their owners.
    pub fn gpus(&self) -> &ArcRwSignal<Vec<GpuSignals>> {
        &self.0.gpus
    }

    /// Updates its GPUs from the picture, keeping the cells of known ones.
    pub fn update_gpus(&self, node: &NodePicture) {
        let old = self.0.gpus.get_untracked();
        let cell = |(position, gpu): (usize, &nodeglass_protocol::picture::GpuPicture)| {
            let known = old.iter().find(|cell| cell.0.uuid == gpu.facts.uuid).cloned();
            let cell = known.unwrap_or_else(|| GpuSignals::new(gpu.facts.uuid.clone()));
            cell.0.position.store(position, Relaxed);
            cell
        };
        self.0.gpus.set(node.gpus.iter().enumerate().map(cell).collect());
    }

    /// Notifies all subscribers of this node.
    pub fn notify_all(&self) {
        self.0.head.notify();
        self.0.samples.notify();
        self.0.history.notify();
        self.0.gpu_health.notify();
        self.0.processes.notify();
        self.0.process_set.notify();
        self.0.usage_jobs.notify();
        self.0.job_usage.notify();
        self.0.cores.notify();
        self.0.gpus.get_untracked().iter().for_each(|gpu| gpu.0.row.notify());
    }

    /// Notifies the subscribers of a row, by its index among GPUs, host, processes and job usage.
    pub fn notify_row(&self, row: usize) {
        let gpus = self.0.gpus.get_untracked();
        match gpus.get(row) {
            Some(gpu) => gpu.0.row.notify(),
            // The host's readings are shown as sums, which are recomputed with every sample.
            None if row == gpus.len() => {}
            // Only the picture knows which of the two it is; most views show both.
            None => {
                self.0.processes.notify();
                self.0.job_usage.notify();
            }
        }
    }
}

impl GpuSignals {
    fn new(uuid: GpuUuid) -> Self {
        Self(Arc::new(GpuSignalsInner { uuid, position: AtomicUsize::new(0), row: Revision::default() }))
    }

    /// Returns its UUID.
    pub fn uuid(&self) -> &GpuUuid {
        &self.0.uuid
    }

    /// Returns its last position among the GPUs of its node.
    pub fn position(&self) -> usize {
        self.0.position.load(Relaxed)
    }

    /// Changes with its readings, faults and owners.
    pub fn row(&self) -> &Revision {
        &self.0.row
    }
}
