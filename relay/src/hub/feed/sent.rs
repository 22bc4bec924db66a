//! What viewers know of a node, as far as it does not follow from how the node is: the rest was told whenever it changed.

use super::Looked;
use crate::fleet::NodeChanges;
use crate::share::Seen;
use nodeglass_protocol::detail::DetailLevel;
use nodeglass_protocol::live::{Change, HealthChange};
use nodeglass_protocol::packed::SentRows;
use nodeglass_protocol::picture::{GpuHealth, GpuPicture, NodeHead, NodePicture, ProcessPicture};
use nodeglass_protocol::{GpuUuid, JobId, NodeName};

/// One node as viewers know it.
#[derive(Debug)]
pub(super) struct SentNode {
    pub(super) name: NodeName,
    pub(super) rows: SentRows,
    head: NodeHead,
    gpus: Vec<GpuUuid>,
    processes: Vec<(u32, GpuUuid)>,
    uses: Vec<JobId>,
    /// How well its GPUs are, for who looks closely: what their NVLinks carry never rests.
    health: Vec<GpuHealth>,
    cores: Vec<u8>,
}

/// What is told of a node.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Told {
    pub(super) head: bool,
    pub(super) gpus: bool,
    pub(super) health: bool,
    pub(super) processes: bool,
    pub(super) uses: bool,
    pub(super) cores: bool,
}

impl Told {
    /// What viewers need who do not know the node.
    pub(super) const EVERYTHING: Self =
        Self { head: true, gpus: true, health: false, processes: true, uses: true, cores: true };
    /// What may be other for a guest when there are other jobs.
    pub(super) const RESETTLED: Self = Self { cores: false, ..Self::EVERYTHING };

    /// What the fleet noted.
    pub(super) fn noted(changes: &NodeChanges) -> Self {
        Self {
            head: changes.head,
            gpus: changes.gpus,
            health: !changes.were.is_empty() || changes.rates,
            processes: changes.processes,
            uses: changes.uses,
            cores: changes.cores,
        }
    }

    /// What is in either.
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            head: self.head | other.head,
            gpus: self.gpus | other.gpus,
            health: self.health | other.health,
            processes: self.processes | other.processes,
            uses: self.uses | other.uses,
            cores: self.cores | other.cores,
        }
    }

    /// A guest's: which GPUs he sees follows from owners and processes, and how they are linked stands in the head.
    pub(super) fn to_a_guest(self) -> Self {
        Self { head: !self.is_nothing(), ..self }
    }

    fn is_nothing(self) -> bool {
        !(self.head | self.gpus | self.health | self.processes | self.uses | self.cores)
    }
}

impl SentNode {
    /// A node of which viewers know its name.
    pub(super) fn new(name: NodeName) -> Self {
        Self {
            name,
            rows: SentRows::default(),
            head: NodeHead::default(),
            gpus: Vec::new(),
            processes: Vec::new(),
            uses: Vec::new(),
            health: Vec::new(),
            cores: Vec::new(),
        }
    }

    /// A node that was told as a whole, as `view` tells it.
    pub(super) fn of(view: NodePicture, detail: DetailLevel) -> Self {
        let mut sent = Self::new(view.name.clone());
        sent.rows = SentRows::of(&view);
        sent.set_gpus(&view.gpus, detail);
        sent.set_processes(&view.processes);
        sent.uses = view.job_usage.iter().map(|usage| usage.job).collect();
        (sent.head, sent.cores) = (view.head, view.cores);
        sent
    }

    /// What viewers know of the node, which is now like this.
    pub(super) fn picture(&self, seen: Option<&Seen<'_>>, detail: DetailLevel) -> NodePicture {
        let mut view = match seen {
            Some(seen) => detail.view(seen.now()),
            None => NodePicture::new(self.name.clone()),
        };
        view.head.clone_from(&self.head);
        self.rows.copy_into(&mut view);
        view
    }

    /// Tells what of it may be other than viewers know; returns whether its GPUs are others than before.
    pub(super) fn tell(
        &mut self,
        looked: &Looked<'_>,
        what: Told,
        detail: DetailLevel,
        told: &mut Vec<Change>,
    ) -> bool {
        if what.is_nothing() {
            return false;
        }
        let (now, node) = (looked.seen.now(), looked.place as u32);
        if what.head && self.head != now.head {
            self.head.clone_from(&now.head);
            told.push(Change::Head { node, head: Box::new(now.head.clone()) });
        }
        let regrouped = !now.gpus.iter().map(|gpu| &gpu.facts.uuid).eq(&self.gpus);
        let gpus = what.gpus || regrouped;
        if gpus {
            let gpus = detail.gpus(&now.gpus);
            self.rows.set_gpus(&gpus);
            self.set_gpus(&gpus, detail);
            told.push(Change::Gpus { node, gpus });
        }
        if detail == DetailLevel::Summary {
            return regrouped;
        }
        if what.health && !gpus {
            let were = looked.noted.map_or(&[][..], |noted| &noted.were);
            let changed = self.health_changes(&now.gpus, were, detail);
            if !changed.is_empty() {
                told.push(Change::Health { node, changed });
            }
        }
        let identities = now.processes.iter().map(|process| (process.facts.pid, &process.facts.gpu));
        if what.processes || !identities.eq(self.processes.iter().map(|(pid, gpu)| (*pid, gpu))) {
            self.set_processes(&now.processes);
            self.rows.set_processes(&now.processes);
            told.push(Change::Processes { node, processes: now.processes.clone() });
        }
        if what.uses || !now.job_usage.iter().map(|usage| &usage.job).eq(&self.uses) {
            self.uses = now.job_usage.iter().map(|usage| usage.job).collect();
            self.rows.set_job_usage(&now.job_usage);
            told.push(Change::JobUsage { node, job_usage: now.job_usage.clone() });
        }
        if detail == DetailLevel::Expanded && what.cores && self.cores != now.cores {
            self.cores.clone_from(&now.cores);
            told.push(Change::Cores { node, cores: now.cores.clone() });
        }
        regrouped
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

    /// What changed in how well its GPUs are: since it was told, where that is kept, and else since the fleet noted it.
    fn health_changes(
        &mut self,
        now: &[GpuPicture],
        were: &[(GpuUuid, GpuHealth)],
        detail: DetailLevel,
    ) -> Vec<HealthChange> {
        let mut changes = Vec::new();
        for (place, gpu) in now.iter().enumerate() {
            let was = || were.iter().find(|(uuid, _)| *uuid == gpu.facts.uuid).map(|(_, was)| was);
            let Some(old) = self.health.get(place).or_else(was) else { continue };
            changes.extend(HealthChange::between(place as u32, old, &gpu.health, detail));
            if let Some(sent) = self.health.get_mut(place) {
                *sent = detail.health(&gpu.health);
            }
        }
        changes
    }
}
