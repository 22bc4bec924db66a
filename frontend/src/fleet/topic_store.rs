//! One topic's picture, kept outside the reactive graph, with the signals that its changes notify.

use super::long_history::LongHistory;
use super::signals::{GpuSignals, NodeSignals};
use crate::domain::deviation::Comparison;
use crate::domain::health::{Health, freshness};
use leptos::prelude::*;
use nodeglass_protocol::live::{Delta, Histories, Snapshot, Topic};
use nodeglass_protocol::picture::{ApplyError, ChangedPart, GpuPicture, NodePicture};
use nodeglass_protocol::{NodeName, Picture};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// Maximum number of nodes of a topic whose histories are compared as soon as they arrive.
const MAX_COMPARED_AT_ONCE: usize = 16;

/// The state of one topic. Clones share the same state.
#[derive(Clone)]
pub struct TopicStore(Arc<Inner>);

impl PartialEq for TopicStore {
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
    audit_log: ArcTrigger,
    sharing: ArcTrigger,
    notes: ArcTrigger,
    insights: ArcTrigger,
    changed: ArcTrigger,
    nodes: ArcRwSignal<Vec<NodeSignals>>,
    comparison: Mutex<Comparison>,
    long_history: LongHistory,
}

/// Whether the topic has data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Subscribed, no data yet.
    Pending,
    /// The picture is here.
    Ready,
    /// The relay does not know the topic, or no longer.
    Gone,
}

/// Position in the stream of deltas, and changes since the last frame.
#[derive(Default)]
struct Stream {
    /// The topic's number on this connection.
    number: Option<u32>,
    /// Number of the last delta.
    seq: u32,
    /// A delta was missed; deltas are ignored until the next snapshot.
    broken: bool,
    /// The set of nodes changed: every position is new.
    everything: bool,
    touched: Vec<ChangedPart>,
}

impl Stream {
    /// Records a change once and in order. Changes arrive mostly in order, so a list is cheaper than a tree.
    fn record(&mut self, touched: ChangedPart) {
        if let Err(at) = self.touched.binary_search(&touched) {
            self.touched.insert(at, touched);
        }
    }
}

/// A delta was missed or does not apply, so a new snapshot is needed.
#[derive(Debug, PartialEq, Eq)]
pub struct OutOfSync;

impl From<ApplyError> for OutOfSync {
    fn from(_: ApplyError) -> Self {
        Self
    }
}

impl TopicStore {
    /// Creates the store of a topic without data.
    pub fn new(topic: Topic) -> Self {
        Self(Arc::new(Inner {
            topic,
            phase: ArcRwSignal::new(Phase::Pending),
            picture: RwLock::default(),
            stream: Mutex::default(),
            jobs: ArcTrigger::new(),
            relay: ArcTrigger::new(),
            audit_log: ArcTrigger::new(),
            sharing: ArcTrigger::new(),
            notes: ArcTrigger::new(),
            insights: ArcTrigger::new(),
            changed: ArcTrigger::new(),
            nodes: ArcRwSignal::new(Vec::new()),
            comparison: Mutex::default(),
            long_history: LongHistory::default(),
        }))
    }

    /// Returns its topic.
    pub fn topic(&self) -> &Topic {
        &self.0.topic
    }

    /// Returns its long-term history.
    pub fn long_history(&self) -> &LongHistory {
        &self.0.long_history
    }

    /// Returns its number on this connection.
    pub fn number(&self) -> Option<u32> {
        self.stream().number
    }

    /// Returns whether there is data.
    pub fn phase(&self) -> Phase {
        self.0.phase.get()
    }

    /// Trigger for changes of the job list.
    pub fn jobs(&self) -> &ArcTrigger {
        &self.0.jobs
    }

    /// Trigger for changes of the relay's status.
    pub fn relay(&self) -> &ArcTrigger {
        &self.0.relay
    }

    /// Trigger for changes of the audit log.
    pub fn audit_log(&self) -> &ArcTrigger {
        &self.0.audit_log
    }

    /// Trigger for changes of the shares and their visitors.
    pub fn sharing(&self) -> &ArcTrigger {
        &self.0.sharing
    }

    /// Trigger for changes of the insights into running jobs.
    pub fn insights(&self) -> &ArcTrigger {
        &self.0.insights
    }

    /// Trigger for changes of the notes.
    pub fn notes(&self) -> &ArcTrigger {
        &self.0.notes
    }

    /// Trigger for each frame in which anything changed, for lists that poll revisions.
    pub fn changed(&self) -> &ArcTrigger {
        &self.0.changed
    }

    /// Its nodes; notifies of changes of the set of nodes.
    pub fn nodes(&self) -> &ArcRwSignal<Vec<NodeSignals>> {
        &self.0.nodes
    }

    /// Returns the cell of a node, and subscribes to the set of nodes.
    pub fn cell(&self, name: &NodeName) -> Option<NodeSignals> {
        self.0.nodes.with(|cells| cells.iter().find(|cell| cell.name() == name).cloned())
    }

    /// Reads the current picture.
    pub fn read<R>(&self, read: impl FnOnce(&Picture) -> R) -> R {
        read(&self.0.picture.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads a node, if it still exists.
    pub fn node<R>(&self, cell: &NodeSignals, read: impl FnOnce(&NodePicture) -> R) -> Option<R> {
        self.read(|picture| {
            let here = picture.nodes.get(cell.position()).filter(|node| node.name == *cell.name());
            here.or_else(|| picture.node(cell.name())).map(read)
        })
    }

    /// Returns the current health of a node; does not subscribe.
    pub fn health(&self, cell: &NodeSignals, now_ms: u64) -> Option<Arc<Health>> {
        self.node(cell, |node| cell.health(node, now_ms))
    }

    /// Reads the deviations of the GPUs from their peers, which are computed once for all views. Positions are the
    /// picture's; does not subscribe.
    pub fn comparison<R>(&self, read: impl FnOnce(&Comparison) -> R) -> R {
        read(&self.valid_comparison())
    }

    /// Updates the comparison to the newest step of the charts if any view has read it since the last update.
    pub fn update_comparison(&self) {
        let mut comparison = self.lock_comparison();
        if comparison.was_read() {
            self.compare(&mut comparison);
        }
    }

    /// Not generic, so that the page contains it once.
    fn valid_comparison(&self) -> MutexGuard<'_, Comparison> {
        let mut comparison = self.lock_comparison();
        if !comparison.is_valid() {
            self.compare(&mut comparison);
        }
        comparison.note_read();
        comparison
    }

    fn compare(&self, comparison: &mut Comparison) {
        let cells = self.0.nodes.get_untracked();
        let only = match self.0.topic {
            Topic::Job(job) => Some(job),
            _ => None,
        };
        self.read(|picture| {
            let revision = |node: usize| cells.get(node).map_or(0, |cell| cell.history().count());
            comparison.update(picture, only, &revision);
        });
    }

    fn lock_comparison(&self) -> MutexGuard<'_, Comparison> {
        self.0.comparison.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads a GPU, if it still exists, and subscribes to its changes.
    pub fn gpu<R>(
        &self,
        node: &NodeSignals,
        gpu: &GpuSignals,
        read: impl FnOnce(&GpuPicture) -> R,
    ) -> Option<R> {
        gpu.row().track();
        self.node(node, |node| {
            let here = node.gpus.get(gpu.position()).filter(|here| here.facts.uuid == *gpu.uuid());
            here.map(read)
        })?
    }

    /// Replaces the whole picture.
    pub fn replace(&self, snapshot: Snapshot) {
        {
            let mut stream = self.stream();
            stream.number = Some(snapshot.number);
            stream.seq = snapshot.seq;
            stream.broken = false;
            stream.everything = true;
        }
        let mut picture = snapshot.picture;
        self.read(|old| keep_histories(old, &mut picture));
        self.set(picture);
        self.flush();
        self.0.phase.set(Phase::Ready);
    }

    /// Applies a delta and returns the relay's time.
    ///
    /// # Errors
    /// Returns [`OutOfSync`] the first time one is missing; after that only a snapshot helps.
    pub fn change(&self, delta: &Delta) -> Result<u64, OutOfSync> {
        let mut stream = self.stream();
        let mut picture = self.0.picture.write().unwrap_or_else(PoisonError::into_inner);
        if stream.broken {
            return Ok(picture.at_ms);
        }
        stream.broken = delta.seq != stream.seq.wrapping_add(1);
        if stream.broken {
            return Err(OutOfSync);
        }
        stream.seq = delta.seq;
        let applied = picture.apply(delta, |touched| stream.record(touched));
        stream.broken = applied.is_err();
        applied?;
        Ok(picture.at_ms)
    }

    /// Applies history that arrives after the snapshot.
    ///
    /// # Errors
    /// Returns [`OutOfSync`] the first time one does not apply; after that only a snapshot helps.
    pub fn apply_histories(&self, histories: Histories) -> Result<(), OutOfSync> {
        let mut stream = self.stream();
        if stream.broken {
            return Ok(());
        }
        let mut picture = self.0.picture.write().unwrap_or_else(PoisonError::into_inner);
        let entered = picture.apply_histories(histories, |touched| stream.record(touched));
        stream.broken = entered.is_err();
        Ok(entered?)
    }

    /// Notifies subscribers of nodes whose freshness changed. If every row read the clock instead, each
    /// second would wake every row of every table.
    pub fn update_freshness(&self, now_ms: u64) {
        let cells = self.0.nodes.get_untracked();
        let trust = |cell: &NodeSignals| self.node(cell, |node| freshness(node, now_ms));
        let trust: Vec<_> = cells.iter().map(trust).collect();
        let mut is_new = false;
        cells
            .iter()
            .zip(trust)
            .for_each(|(cell, trust)| is_new |= trust.is_some_and(|trust| cell.set_freshness(trust)));
        if is_new {
            self.0.changed.notify();
        }
    }

    /// Marks the topic as unknown to the relay.
    pub fn set_gone(&self) {
        self.0.phase.set(Phase::Gone);
    }

    /// Drops the data: it belongs to another run of the relay.
    pub fn forget(&self) {
        *self.stream() = Stream { everything: true, ..Stream::default() };
        self.set(Picture::default());
        self.0.long_history.clear();
        self.flush();
        self.0.phase.set(Phase::Pending);
    }

    /// Notifies the signals of what changed since the last call.
    pub fn flush(&self) {
        let (everything, touched) = {
            let mut stream = self.stream();
            (std::mem::take(&mut stream.everything), std::mem::take(&mut stream.touched))
        };
        if everything || touched.contains(&ChangedPart::Nodes) {
            self.rebuild();
            return;
        }
        if touched.is_empty() {
            return;
        }
        let cells = self.0.nodes.get_untracked();
        touched.into_iter().for_each(|touched| self.notify(&cells, touched));
        self.0.changed.notify();
    }

    fn notify(&self, cells: &[NodeSignals], touched: ChangedPart) {
        let at = |node: usize, notify: &dyn Fn(&NodeSignals)| cells.get(node).into_iter().for_each(notify);
        match touched {
            ChangedPart::Jobs => self.0.jobs.notify(),
            ChangedPart::Relay => self.0.relay.notify(),
            ChangedPart::AuditLog => self.0.audit_log.notify(),
            ChangedPart::Sharing => self.0.sharing.notify(),
            ChangedPart::Notes => self.0.notes.notify(),
            // Read with the next assessment, once a second.
            ChangedPart::Findings => {}
            ChangedPart::Insights => self.0.insights.notify(),
            ChangedPart::Health(node) => at(node, &|cell| cell.gpu_health().notify()),
            ChangedPart::JobUsage(node) => at(node, &|cell| {
                cell.usage_jobs().notify();
                cell.job_usage().notify();
            }),
            ChangedPart::Cores(node) => at(node, &|cell| cell.cores().notify()),
            ChangedPart::Nodes => {}
            ChangedPart::Head(node) => at(node, &|cell| cell.head().notify()),
            ChangedPart::Gpus(node) => at(node, &|cell| {
                self.outdate_comparison();
                self.node(cell, |picture| cell.update_gpus(picture));
                cell.notify_all();
            }),
            ChangedPart::Processes(node) => at(node, &|cell| {
                cell.process_set().notify();
                cell.processes().notify();
            }),
            ChangedPart::History(node) => at(node, &|cell| {
                // Of many nodes, the histories come one after another: they are compared with the next step.
                if cells.len() <= MAX_COMPARED_AT_ONCE {
                    self.outdate_comparison();
                }
                cell.history().notify();
            }),
            ChangedPart::Sampled(node) => at(node, &|cell| cell.samples().notify()),
            ChangedPart::Row(node, row) => at(node, &|cell| cell.notify_row(row)),
        }
    }

    /// Rebuilds the cells from the picture, keeping the cells of known nodes, and notifies all subscribers.
    fn rebuild(&self) {
        let old = self.0.nodes.get_untracked();
        let cells: Vec<NodeSignals> = self.read(|picture| {
            let cell = |(position, node): (usize, &NodePicture)| {
                let Some(known) = old.iter().find(|cell| *cell.name() == node.name) else {
                    return NodeSignals::new(position, node);
                };
                known.move_to(position);
                known.update_gpus(node);
                known.clone()
            };
            picture.nodes.iter().enumerate().map(cell).collect()
        });
        self.outdate_comparison();
        self.0.nodes.set(cells.clone());
        self.0.jobs.notify();
        self.0.relay.notify();
        self.0.audit_log.notify();
        self.0.sharing.notify();
        self.0.notes.notify();
        self.0.insights.notify();
        cells.iter().for_each(NodeSignals::notify_all);
        self.0.changed.notify();
    }

    fn outdate_comparison(&self) {
        self.lock_comparison().invalidate();
    }

    fn set(&self, picture: Picture) {
        *self.0.picture.write().unwrap_or_else(PoisonError::into_inner) = picture;
    }

    fn stream(&self) -> MutexGuard<'_, Stream> {
        self.0.stream.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps the history of nodes with the same GPUs: in a large snapshot the history follows later, and until
/// then the known history is still valid.
fn keep_histories(old: &Picture, new: &mut Picture) {
    for node in new.nodes.iter_mut().filter(|node| node.history.is_none()) {
        let same = |known: &&NodePicture| {
            let uuids =
                |node: &NodePicture| node.gpus.iter().map(|gpu| gpu.facts.uuid.clone()).collect::<Vec<_>>();
            uuids(known) == uuids(node)
        };
        node.history = old.node(&node.name).filter(same).and_then(|known| known.history.clone());
    }
}
