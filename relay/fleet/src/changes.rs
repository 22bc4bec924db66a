//! Records which parts of the fleet changed since they were last published.

use nodeglass_protocol::picture::GpuHealth;
use nodeglass_protocol::{GpuUuid, JobId, NodeName};
use std::collections::{BTreeMap, BTreeSet};

/// Changes since the last [`super::Fleet::take_changes`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    /// The job list.
    pub jobs: bool,
    /// The relay's status.
    pub relay: bool,
    /// The audit log.
    pub audit_log: bool,
    /// Open shares or visitors.
    pub sharing: bool,
    /// Notes.
    pub notes: bool,
    /// Findings.
    pub findings: bool,
    /// Further conclusions about running jobs.
    pub insights: bool,
    /// The set of nodes.
    pub membership: bool,
    /// Jobs that switched between live nodes and their last picture.
    pub switched: BTreeSet<JobId>,
    /// Changes of single nodes.
    pub nodes: BTreeMap<NodeName, NodeChanges>,
}

/// Changes of a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeChanges {
    /// All known state is void: it was removed and added again.
    pub fresh: bool,
    /// Link, facts or notes.
    pub head: bool,
    /// The set of GPUs, their faults or owners.
    pub gpus: bool,
    /// The set of processes.
    pub processes: bool,
    /// Devices that processes may see by their environments, on which owners of GPUs depend.
    pub job_devices: bool,
    /// Previous health of the GPUs whose health changed.
    pub were: Vec<(GpuUuid, GpuHealth)>,
    /// NVLink rates.
    pub rates: bool,
    /// The set of jobs that use it.
    pub job_usage: bool,
    /// Utilisation per CPU core.
    pub cores: bool,
    /// Its history, other than by appending the newest sample.
    pub history: bool,
    /// It has a new sample.
    pub sampled: bool,
}

impl NodeChanges {
    /// Adds further changes.
    pub fn add(&mut self, other: Self) {
        self.fresh |= other.fresh;
        self.head |= other.head;
        self.gpus |= other.gpus;
        self.processes |= other.processes;
        self.job_devices |= other.job_devices;
        self.rates |= other.rates;
        self.job_usage |= other.job_usage;
        self.cores |= other.cores;
        self.history |= other.history;
        self.sampled |= other.sampled;
        other.were.into_iter().for_each(|(gpu, health)| self.was(&gpu, health));
    }

    /// Takes the changes of which GPUs, processes and devices of jobs there are.
    pub(crate) fn take_members(&mut self) -> Self {
        let Self { gpus, processes, job_devices, .. } = self;
        let (gpus, processes) = (std::mem::take(gpus), std::mem::take(processes));
        Self { gpus, processes, job_devices: std::mem::take(job_devices), ..Self::default() }
    }

    /// Returns whether a link or the health of a GPU changed.
    pub fn may_be_fault(&self) -> bool {
        self.fresh || self.head || self.gpus || !self.were.is_empty()
    }

    /// Records the health of a GPU as of the last publication.
    pub fn was(&mut self, gpu: &GpuUuid, health: GpuHealth) {
        if !self.were.iter().any(|(known, _)| known == gpu) {
            self.were.push((gpu.clone(), health));
        }
    }
}

impl Changes {
    /// Returns whether nothing changed.
    pub fn is_empty(&self) -> bool {
        // Complete, so that a further field is not forgotten.
        let Self { jobs, relay, audit_log, sharing, notes, findings, insights, membership, switched, nodes } =
            self;
        let lists = [jobs, relay, audit_log, sharing, notes, findings, insights, membership];
        !lists.into_iter().any(|changed| *changed)
            && switched.is_empty()
            && nodes.values().all(|node| *node == NodeChanges::default())
    }

    /// The changes of a node.
    pub fn node(&mut self, name: &NodeName) -> &mut NodeChanges {
        self.nodes.entry(name.clone()).or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_loses_its_last_picture_is_a_change() {
        let switched = BTreeSet::from([JobId(1)]);
        assert!(!Changes { switched, ..Changes::default() }.is_empty());
        let nodes = BTreeMap::from([(NodeName::new("n1").unwrap(), NodeChanges::default())]);
        assert!(Changes { nodes, ..Changes::default() }.is_empty());
    }
}
