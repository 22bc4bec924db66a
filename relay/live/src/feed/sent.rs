//! The published state of a node that cannot be derived from its current state.

use super::DirtyNode;
use nodeglass_fleet::NodeChanges;
use nodeglass_history::VisibleNode;
use nodeglass_protocol::live::codec::SentRows;
use nodeglass_protocol::live::detail::DetailLevel;
use nodeglass_protocol::live::{Change, HealthChange};
use nodeglass_protocol::picture::{GpuHealth, GpuPicture, NodeHead, NodePicture, ProcessPicture};
use nodeglass_protocol::{GpuUuid, JobId, NodeName};
use nodeglass_share::NodeView;

/// The published state of one node.
#[derive(Debug)]
pub(super) struct SentNode {
    pub(super) name: NodeName,
    pub(super) rows: SentRows,
    head: NodeHead,
    gpus: Vec<GpuUuid>,
    processes: Vec<(u32, GpuUuid)>,
    job_usage: Vec<JobId>,
    /// Health of its GPUs, at the highest level of detail: their NVLink rates change all the time.
    health: Vec<GpuHealth>,
    cores: Vec<u8>,
    /// The part of its history that a restricted viewer may see; `None` for the owner.
    pub(super) visible: Option<VisibleNode>,
    /// Whether each GPU is without health; only for restricted viewers.
    without_health: Vec<bool>,
}

/// Parts of a node that may have changed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DirtyFlags {
    pub(super) head: bool,
    pub(super) gpus: bool,
    pub(super) health: bool,
    pub(super) processes: bool,
    pub(super) job_usage: bool,
    pub(super) cores: bool,
}

impl DirtyFlags {
    /// For subscribers that do not have the node yet.
    pub(super) const ALL: Self =
        Self { head: true, gpus: true, health: false, processes: true, job_usage: true, cores: true };
    /// Parts that may change for a restricted viewer with the job list.
    pub(super) const JOB_DEPENDENT: Self = Self { cores: false, ..Self::ALL };

    /// Selects the parts that the fleet recorded as changed.
    pub(super) fn from_changes(changes: &NodeChanges) -> Self {
        Self {
            head: changes.head,
            gpus: changes.gpus,
            health: !changes.were.is_empty() || changes.rates,
            processes: changes.processes,
            job_usage: changes.job_usage,
            cores: changes.cores,
        }
    }

    /// The union of both.
    pub(super) fn union(self, other: Self) -> Self {
        Self {
            head: self.head | other.head,
            gpus: self.gpus | other.gpus,
            health: self.health | other.health,
            processes: self.processes | other.processes,
            job_usage: self.job_usage | other.job_usage,
            cores: self.cores | other.cores,
        }
    }

    /// Adds the head for a restricted viewer: visible GPUs follow from owners and processes, and their topology is part of the
    /// head.
    pub(super) fn for_restricted_viewer(self) -> Self {
        Self { head: !self.is_empty(), ..self }
    }

    fn is_empty(self) -> bool {
        !(self.head | self.gpus | self.health | self.processes | self.job_usage | self.cores)
    }
}

impl SentNode {
    /// A node of which subscribers only have the name.
    pub(super) fn new(name: NodeName) -> Self {
        Self {
            name,
            rows: SentRows::default(),
            head: NodeHead::default(),
            gpus: Vec::new(),
            processes: Vec::new(),
            job_usage: Vec::new(),
            health: Vec::new(),
            cores: Vec::new(),
            visible: None,
            without_health: Vec::new(),
        }
    }

    /// A node that is published as a whole.
    pub(super) fn of(view: NodePicture, detail: DetailLevel) -> Self {
        let mut sent = Self::new(view.name.clone());
        sent.rows = SentRows::of(&view);
        sent.set_gpus(&view.gpus, detail);
        sent.set_processes(&view.processes);
        sent.job_usage = view.job_usage.iter().map(|usage| usage.job).collect();
        (sent.head, sent.cores) = (view.head, view.cores);
        sent
    }

    /// The published state, given the current one.
    pub(super) fn picture(&self, view: Option<&NodeView<'_>>, detail: DetailLevel) -> NodePicture {
        let mut view = match view {
            Some(view) => detail.view(view.now()),
            None => NodePicture::new(self.name.clone()),
        };
        view.head.clone_from(&self.head);
        self.rows.copy_into(&mut view);
        view
    }

    /// Pushes what differs from the published state; returns whether the set of GPUs changed.
    pub(super) fn push_changes(
        &mut self,
        dirty: &DirtyNode<'_>,
        what: DirtyFlags,
        detail: DetailLevel,
        out: &mut Vec<Change>,
    ) -> bool {
        if what.is_empty() {
            return false;
        }
        let (now, node) = (dirty.view.now(), dirty.index as u32);
        if what.head && self.head != now.head {
            self.head.clone_from(&now.head);
            out.push(Change::Head { node, head: Box::new(now.head.clone()) });
        }
        let gpus_changed = !now.gpus.iter().map(|gpu| &gpu.facts.uuid).eq(&self.gpus);
        let gpus = what.gpus || gpus_changed;
        if gpus {
            let gpus = detail.gpus(&now.gpus);
            self.rows.set_gpus(&gpus);
            self.set_gpus(&gpus, detail);
            out.push(Change::Gpus { node, gpus });
        }
        if what.health && !gpus {
            // NVLink rates are not among these, so that a feed that does not carry them compares nothing.
            let were = dirty.node_changes.map_or(&[][..], |node_changes| &node_changes.were);
            let changed = self.health_changes(&now.gpus, were, detail);
            if !changed.is_empty() {
                out.push(Change::Health { node, changed });
            }
        }
        if detail != DetailLevel::Summary {
            self.push_details(dirty, what, detail, out);
        }
        gpus_changed
    }

    /// Pushes what differs of the parts that no summary has.
    fn push_details(
        &mut self,
        dirty: &DirtyNode<'_>,
        what: DirtyFlags,
        detail: DetailLevel,
        out: &mut Vec<Change>,
    ) {
        let (now, node) = (dirty.view.now(), dirty.index as u32);
        let identities = now.processes.iter().map(|process| (process.facts.pid, &process.facts.gpu));
        if what.processes || !identities.eq(self.processes.iter().map(|(pid, gpu)| (*pid, gpu))) {
            self.set_processes(&now.processes);
            self.rows.set_processes(&now.processes);
            out.push(Change::Processes { node, processes: now.processes.clone() });
        }
        if what.job_usage || !now.job_usage.iter().map(|usage| &usage.job).eq(&self.job_usage) {
            self.job_usage = now.job_usage.iter().map(|usage| usage.job).collect();
            self.rows.set_job_usage(&now.job_usage);
            out.push(Change::JobUsage { node, job_usage: now.job_usage.clone() });
        }
        if detail == DetailLevel::Expanded && what.cores && self.cores != now.cores {
            self.cores.clone_from(&now.cores);
            out.push(Change::Cores { node, cores: now.cores.clone() });
        }
    }

    /// Records which GPUs are without health; returns whether these are others than before. For a
    /// restricted viewer, a sample alone changes that: it may be from a time for which the job's readings are withheld.
    pub(super) fn record_health(&mut self, now: &NodePicture) -> bool {
        let without: Vec<_> = now.gpus.iter().map(|gpu| gpu.health == GpuHealth::default()).collect();
        let is_another = without != self.without_health;
        self.without_health = without;
        is_another
    }

    fn set_gpus(&mut self, gpus: &[GpuPicture], detail: DetailLevel) {
        self.gpus = gpus.iter().map(|gpu| gpu.facts.uuid.clone()).collect();
        if detail == DetailLevel::Expanded {
            self.health = gpus.iter().map(|gpu| gpu.health.clone()).collect();
        }
    }

    fn set_processes(&mut self, processes: &[ProcessPicture]) {
        self.processes =
            processes.iter().map(|process| (process.facts.pid, process.facts.gpu.clone())).collect();
    }

    /// Health changes since they were published, where that is stored, otherwise since the fleet recorded
    /// them.
    fn health_changes(
        &mut self,
        now: &[GpuPicture],
        were: &[(GpuUuid, GpuHealth)],
        detail: DetailLevel,
    ) -> Vec<HealthChange> {
        let mut changes = Vec::new();
        for (index, gpu) in now.iter().enumerate() {
            let was = || were.iter().find(|(uuid, _)| *uuid == gpu.facts.uuid).map(|(_, was)| was);
            let Some(old) = self.health.get(index).or_else(was) else { continue };
            changes.extend(HealthChange::between(index as u32, old, &gpu.health, detail));
            if let Some(sent) = self.health.get_mut(index) {
                *sent = detail.health(&gpu.health);
            }
        }
        changes
    }
}
