//! A scene is one topic's picture, kept outside the reactive graph, with the triggers that its changes pull.

use super::cells::{GpuCell, NodeCell};
use crate::health::{Health, freshness};
use leptos::prelude::*;
use nodeglass_protocol::live::{Delta, Histories, Snapshot, Topic};
use nodeglass_protocol::picture::{ApplyError, GpuPicture, NodePicture, Touched};
use nodeglass_protocol::{NodeName, Picture};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// One topic as this page knows it. Clones are the same scene.
#[derive(Clone)]
pub struct Scene(Arc<Inner>);

impl PartialEq for Scene {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

struct Inner {
    topic: Topic,
    phase: ArcRwSignal<Phase>,
    picture: RwLock<Picture>,
    stream: Mutex<Stream>,
    jobs: ArcTrigger,
    relay: ArcTrigger,
    deeds: ArcTrigger,
    sharing: ArcTrigger,
    pulse: ArcTrigger,
    nodes: ArcRwSignal<Vec<NodeCell>>,
}

/// Whether there is anything to see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It was asked for.
    Awaited,
    /// It is here.
    Here,
    /// The relay says that there is no such thing (any more).
    Gone,
}

/// Where the stream of deltas stands, and what was touched since the last frame.
#[derive(Default)]
struct Stream {
    /// The topic's number on this connection.
    number: Option<u32>,
    /// Number of the last delta.
    seq: u32,
    /// A delta was missed; nothing fits until the next snapshot.
    broken: bool,
    /// Which nodes there are changed: every position is new.
    everything: bool,
    touched: Vec<Touched>,
}

impl Stream {
    /// Keeps what was touched in order and once; most comes in order, and a list weighs less than a tree.
    fn touch(&mut self, touched: Touched) {
        if let Err(at) = self.touched.binary_search(&touched) {
            self.touched.insert(at, touched);
        }
    }
}

/// A delta was missed or does not fit, so the picture must come anew.
#[derive(Debug, PartialEq, Eq)]
pub struct Missed;

impl From<ApplyError> for Missed {
    fn from(_: ApplyError) -> Self {
        Self
    }
}

impl Scene {
    /// The scene of a topic that nothing is known of yet.
    pub fn new(topic: Topic) -> Self {
        Self(Arc::new(Inner {
            topic,
            phase: ArcRwSignal::new(Phase::Awaited),
            picture: RwLock::default(),
            stream: Mutex::default(),
            jobs: ArcTrigger::new(),
            relay: ArcTrigger::new(),
            deeds: ArcTrigger::new(),
            sharing: ArcTrigger::new(),
            pulse: ArcTrigger::new(),
            nodes: ArcRwSignal::new(Vec::new()),
        }))
    }

    /// Its topic.
    pub fn topic(&self) -> &Topic {
        &self.0.topic
    }

    /// Its number on this connection.
    pub fn number(&self) -> Option<u32> {
        self.stream().number
    }

    /// Whether there is anything to see.
    pub fn phase(&self) -> Phase {
        self.0.phase.get()
    }

    /// Changes with the job list.
    pub fn jobs(&self) -> &ArcTrigger {
        &self.0.jobs
    }

    /// Changes with the relay's status.
    pub fn relay(&self) -> &ArcTrigger {
        &self.0.relay
    }

    /// Changes with what was done for the owner.
    pub fn deeds(&self) -> &ArcTrigger {
        &self.0.deeds
    }

    /// Pulled when somebody may look who could not, or somebody comes or goes.
    pub fn sharing(&self) -> &ArcTrigger {
        &self.0.sharing
    }

    /// Pulled once in each frame in which anything changed, for lists that look themselves at what did.
    pub fn pulse(&self) -> &ArcTrigger {
        &self.0.pulse
    }

    /// Its nodes; changes with which they are.
    pub fn nodes(&self) -> &ArcRwSignal<Vec<NodeCell>> {
        &self.0.nodes
    }

    /// The cell of a node, following which nodes there are.
    pub fn cell(&self, name: &NodeName) -> Option<NodeCell> {
        self.0.nodes.with(|cells| cells.iter().find(|cell| cell.name() == name).cloned())
    }

    /// Looks at the picture as it is now.
    pub fn read<R>(&self, look: impl FnOnce(&Picture) -> R) -> R {
        look(&self.0.picture.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Looks at a node, if it is still there.
    pub fn node<R>(&self, cell: &NodeCell, look: impl FnOnce(&NodePicture) -> R) -> Option<R> {
        self.read(|picture| {
            let here = picture.nodes.get(cell.position()).filter(|node| node.name == *cell.name());
            here.or_else(|| picture.node(cell.name())).map(look)
        })
    }

    /// The state of a node as it is now; wakes nobody.
    pub fn health(&self, cell: &NodeCell, now_ms: u64) -> Option<Arc<Health>> {
        self.node(cell, |node| cell.health(node, now_ms))
    }

    /// Looks at a GPU, if it is still there, and is woken by its changes.
    pub fn gpu<R>(&self, node: &NodeCell, gpu: &GpuCell, look: impl FnOnce(&GpuPicture) -> R) -> Option<R> {
        gpu.row().track();
        self.node(node, |node| {
            let here = node.gpus.get(gpu.position()).filter(|here| here.facts.uuid == *gpu.uuid());
            here.map(look)
        })?
    }

    /// Takes the whole picture anew.
    pub fn replace(&self, snapshot: Snapshot) {
        {
            let mut stream = self.stream();
            stream.number = Some(snapshot.number);
            stream.seq = snapshot.seq;
            stream.broken = false;
            stream.everything = true;
        }
        let mut picture = snapshot.picture;
        self.read(|old| keep_pasts(old, &mut picture));
        self.set(picture);
        self.flush();
        self.0.phase.set(Phase::Here);
    }

    /// Applies a delta, and says what time it is on the relay.
    ///
    /// # Errors
    /// [`Missed`] the first time one is missing; then nothing but a snapshot helps.
    pub fn change(&self, delta: &Delta) -> Result<u64, Missed> {
        let mut stream = self.stream();
        let mut picture = self.0.picture.write().unwrap_or_else(PoisonError::into_inner);
        if stream.broken {
            return Ok(picture.at_ms);
        }
        stream.broken = delta.seq != stream.seq.wrapping_add(1);
        if stream.broken {
            return Err(Missed);
        }
        stream.seq = delta.seq;
        let applied = picture.apply(delta, |touched| stream.touch(touched));
        stream.broken = applied.is_err();
        applied?;
        Ok(picture.at_ms)
    }

    /// Takes pasts that came after the rest.
    ///
    /// # Errors
    /// [`Missed`] the first time that one does not fit; then nothing but a snapshot helps.
    pub fn apply_histories(&self, pasts: Histories) -> Result<(), Missed> {
        let mut stream = self.stream();
        if stream.broken {
            return Ok(());
        }
        let mut picture = self.0.picture.write().unwrap_or_else(PoisonError::into_inner);
        let entered = picture.apply_histories(pasts, |touched| stream.touch(touched));
        stream.broken = entered.is_err();
        Ok(entered?)
    }

    /// A second has passed: tells who looks at a node whose values are old. Were everybody to look at the clock
    /// instead, a second would wake every row of every table.
    pub fn age(&self, now_ms: u64) {
        let cells = self.0.nodes.get_untracked();
        let trust = |cell: &NodeCell| self.node(cell, |node| freshness(node, now_ms));
        let trust: Vec<_> = cells.iter().map(trust).collect();
        let mut is_news = false;
        cells
            .iter()
            .zip(trust)
            .for_each(|(cell, trust)| is_news |= trust.is_some_and(|trust| cell.age(trust)));
        if is_news {
            self.0.pulse.notify();
        }
    }

    /// The relay does not know this topic.
    pub fn gone(&self) {
        self.0.phase.set(Phase::Gone);
    }

    /// Drops what is known: it was of another run of the relay.
    pub fn forget(&self) {
        *self.stream() = Stream { everything: true, ..Stream::default() };
        self.set(Picture::default());
        self.flush();
        self.0.phase.set(Phase::Awaited);
    }

    /// Pulls the triggers of what was touched since the last time.
    pub fn flush(&self) {
        let (everything, touched) = {
            let mut stream = self.stream();
            (std::mem::take(&mut stream.everything), std::mem::take(&mut stream.touched))
        };
        if everything || touched.contains(&Touched::Nodes) {
            self.renew();
            return;
        }
        if touched.is_empty() {
            return;
        }
        let cells = self.0.nodes.get_untracked();
        touched.into_iter().for_each(|touched| self.notify(&cells, touched));
        self.0.pulse.notify();
    }

    fn notify(&self, cells: &[NodeCell], touched: Touched) {
        let at = |node: usize, tell: &dyn Fn(&NodeCell)| cells.get(node).into_iter().for_each(tell);
        match touched {
            Touched::Jobs => self.0.jobs.notify(),
            Touched::Relay => self.0.relay.notify(),
            Touched::AuditLog => self.0.deeds.notify(),
            Touched::Sharing => self.0.sharing.notify(),
            Touched::Health(node) => at(node, &|cell| cell.cards().notify()),
            Touched::JobUsage(node) => at(node, &|cell| {
                cell.uses().notify();
                cell.used().notify();
            }),
            Touched::Cores(node) => at(node, &|cell| cell.cores().notify()),
            Touched::Nodes => {}
            Touched::Head(node) => at(node, &|cell| cell.head().notify()),
            Touched::Gpus(node) => at(node, &|cell| {
                self.node(cell, |picture| cell.renew_gpus(picture));
                cell.notify_all();
            }),
            Touched::Processes(node) => at(node, &|cell| {
                cell.members().notify();
                cell.processes().notify();
            }),
            Touched::History(node) => at(node, &|cell| cell.past().notify()),
            Touched::Sampled(node) => at(node, &|cell| cell.sampled().notify()),
            Touched::Row(node, row) => at(node, &|cell| cell.notify_row(row)),
        }
    }

    /// Makes the cells anew from the picture, keeping those of nodes it knew, and tells everyone.
    fn renew(&self) {
        let old = self.0.nodes.get_untracked();
        let cells: Vec<NodeCell> = self.read(|picture| {
            let cell = |(position, node): (usize, &NodePicture)| {
                let Some(known) = old.iter().find(|cell| *cell.name() == node.name) else {
                    return NodeCell::new(position, node);
                };
                known.move_to(position);
                known.renew_gpus(node);
                known.clone()
            };
            picture.nodes.iter().enumerate().map(cell).collect()
        });
        self.0.nodes.set(cells.clone());
        self.0.jobs.notify();
        self.0.relay.notify();
        self.0.deeds.notify();
        self.0.sharing.notify();
        cells.iter().for_each(NodeCell::notify_all);
        self.0.pulse.notify();
    }

    fn set(&self, picture: Picture) {
        *self.0.picture.write().unwrap_or_else(PoisonError::into_inner) = picture;
    }

    fn stream(&self) -> MutexGuard<'_, Stream> {
        self.0.stream.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps the pasts of cards that are the same: those of a large picture come after it, and until then what was known of
/// them is no less true.
fn keep_pasts(old: &Picture, new: &mut Picture) {
    for node in new.nodes.iter_mut().filter(|node| node.history.is_none()) {
        let same = |known: &&NodePicture| {
            let cards =
                |node: &NodePicture| node.gpus.iter().map(|gpu| gpu.facts.uuid.clone()).collect::<Vec<_>>();
            cards(known) == cards(node)
        };
        node.history = old.node(&node.name).filter(same).and_then(|known| known.history.clone());
    }
}
