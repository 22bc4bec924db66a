//! Each thing that changes alone has one mark of its own, found by its identity and not by its place.

use crate::health::{self, Freshness, Health};
use leptos::prelude::*;
use nodeglass_protocol::picture::NodePicture;
use nodeglass_protocol::{GpuUuid, NodeName};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// What changes alone. Who follows it is woken; who looks now and then sees by a count whether it changed.
#[derive(Default)]
pub struct Mark {
    count: AtomicU32,
    followed: AtomicBool,
    trigger: ArcTrigger,
}

impl Mark {
    /// Wakes the caller when it changes.
    pub fn track(&self) {
        self.followed.store(true, Relaxed);
        self.trigger.track();
    }

    /// It has changed. Most of what changes is followed by nobody, which costs nothing.
    pub fn notify(&self) {
        self.count.fetch_add(1, Relaxed);
        if self.followed.swap(false, Relaxed) {
            self.trigger.notify();
        }
    }

    /// How often it has changed; wakes nobody.
    pub fn count(&self) -> u64 {
        self.count.load(Relaxed).into()
    }
}

/// The state of a node with what it was worked out from: the counts of its marks, and its age in seconds.
type Known = (u64, u64, Arc<Health>);

/// A node's marks. Clones are the same node.
#[derive(Clone)]
pub struct NodeCell(Arc<Node>);

struct Node {
    name: NodeName,
    position: AtomicUsize,
    trust: AtomicU8,
    head: Mark,
    sampled: Mark,
    past: Mark,
    cards: Mark,
    processes: Mark,
    members: Mark,
    uses: Mark,
    used: Mark,
    cores: Mark,
    gpus: ArcRwSignal<Vec<GpuCell>>,
    state: Mutex<Option<Known>>,
}

/// A GPU's mark. Clones are the same GPU.
#[derive(Clone)]
pub struct GpuCell(Arc<Gpu>);

struct Gpu {
    uuid: GpuUuid,
    position: AtomicUsize,
    row: Mark,
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
            head: Mark::default(),
            sampled: Mark::default(),
            past: Mark::default(),
            cards: Mark::default(),
            processes: Mark::default(),
            members: Mark::default(),
            uses: Mark::default(),
            used: Mark::default(),
            cores: Mark::default(),
            gpus: ArcRwSignal::new(Vec::new()),
            state: Mutex::default(),
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

    /// Takes in how far its values can be trusted by now, and says whether that is news. How old they are is news every
    /// second; that they are not, once.
    pub fn age(&self, now: Freshness) -> bool {
        let kind = match now {
            Freshness::Fresh => 0,
            Freshness::Stale(_) => 1,
            Freshness::Last => 2,
            Freshness::Never => 3,
        };
        let is_news = self.0.trust.swap(kind, Relaxed) != kind || kind == 1;
        if is_news {
            self.0.head.notify();
        }
        is_news
    }

    /// Its state, worked out once for all who show it.
    pub fn health(&self, node: &NodePicture, now_ms: u64) -> Arc<Health> {
        let age_s = match health::freshness(node, now_ms) {
            Freshness::Stale(age_ms) => 1 + age_ms / 1_000,
            _ => 0,
        };
        let count = self.0.head.count() + self.0.sampled.count();
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        match &*state {
            Some((known, known_s, health)) if (*known, *known_s) == (count, age_s) => health.clone(),
            _ => {
                let health = Arc::new(health::of_node(node, now_ms));
                *state = Some((count, age_s, health.clone()));
                health
            }
        }
    }

    /// Changes with its link, its facts, and its age once that is worth a word.
    pub fn head(&self) -> &Mark {
        &self.0.head
    }

    /// Changes with every sample.
    pub fn sampled(&self) -> &Mark {
        &self.0.sampled
    }

    /// Changes when its past is another one, not when the past merely grows.
    pub fn past(&self) -> &Mark {
        &self.0.past
    }

    /// Changes with the health of its GPUs.
    pub fn cards(&self) -> &Mark {
        &self.0.cards
    }

    /// Changes with which jobs use anything of it.
    pub fn uses(&self) -> &Mark {
        &self.0.uses
    }

    /// Changes with how much jobs use of it.
    pub fn used(&self) -> &Mark {
        &self.0.used
    }

    /// Changes with its CPUs one by one.
    pub fn cores(&self) -> &Mark {
        &self.0.cores
    }

    /// Changes with which processes it has, not with what they do.
    pub fn members(&self) -> &Mark {
        &self.0.members
    }

    /// Changes with its processes.
    pub fn processes(&self) -> &Mark {
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
        self.0.cards.notify();
        self.0.processes.notify();
        self.0.members.notify();
        self.0.uses.notify();
        self.0.used.notify();
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
                self.0.used.notify();
            }
        }
    }
}

impl GpuCell {
    fn new(uuid: GpuUuid) -> Self {
        Self(Arc::new(Gpu { uuid, position: AtomicUsize::new(0), row: Mark::default() }))
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
    pub fn row(&self) -> &Mark {
        &self.0.row
    }
}
