//! Changes say which parts of the fleet are no longer as they were last told.

use nodeglass_protocol::picture::GpuHealth;
use nodeglass_protocol::{GpuUuid, JobId, NodeName};
use std::collections::{BTreeMap, BTreeSet};

/// What changed since it was last asked for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    /// The job list.
    pub jobs: bool,
    /// The relay's figures.
    pub relay: bool,
    /// What was done for the owner.
    pub audit_log: bool,
    /// Who may look, or who does.
    pub sharing: bool,
    /// Which nodes there are.
    pub membership: bool,
    /// Jobs whose nodes are now others than before: live ones gave way to the last picture, or came back.
    pub switched: BTreeSet<JobId>,
    /// Parts of single nodes.
    pub nodes: BTreeMap<NodeName, NodeChanges>,
}

/// What changed of one node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeChanges {
    /// Nothing that was known of it holds any more: it left and came back.
    pub fresh: bool,
    /// Link, facts or notes.
    pub head: bool,
    /// Which GPUs it has, their faults or owners.
    pub gpus: bool,
    /// Which processes it has.
    pub processes: bool,
    /// How well those of its GPUs were of which the health is another one now.
    pub were: Vec<(GpuUuid, GpuHealth)>,
    /// What their NVLinks carry.
    pub rates: bool,
    /// Which jobs use it.
    pub uses: bool,
    /// Its CPUs one by one.
    pub cores: bool,
    /// Its past, other than by the newest sample.
    pub past: bool,
    /// It was sampled.
    pub sampled: bool,
}

impl NodeChanges {
    /// Notes what changed besides.
    pub fn add(&mut self, other: Self) {
        self.fresh |= other.fresh;
        self.head |= other.head;
        self.gpus |= other.gpus;
        self.processes |= other.processes;
        self.rates |= other.rates;
        self.uses |= other.uses;
        self.cores |= other.cores;
        self.past |= other.past;
        self.sampled |= other.sampled;
        other.were.into_iter().for_each(|(gpu, health)| self.was(&gpu, health));
    }

    /// Notes how well a GPU was when this was last asked for.
    pub fn was(&mut self, gpu: &GpuUuid, health: GpuHealth) {
        if !self.were.iter().any(|(known, _)| known == gpu) {
            self.were.push((gpu.clone(), health));
        }
    }
}

impl Changes {
    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        !self.jobs
            && !self.relay
            && !self.audit_log
            && !self.sharing
            && !self.membership
            && self.nodes.values().all(|node| *node == NodeChanges::default())
    }

    /// The entry of a node.
    pub fn node(&mut self, name: &NodeName) -> &mut NodeChanges {
        self.nodes.entry(name.clone()).or_default()
    }
}
