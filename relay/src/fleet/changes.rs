//! Changes say which parts of the fleet are no longer as they were last told.

use nodeglass_protocol::{JobId, NodeName};
use std::collections::{BTreeMap, BTreeSet};

/// What changed since it was last asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// The job list.
    pub jobs: bool,
    /// The relay's figures.
    pub relay: bool,
    /// What was done for the owner.
    pub deeds: bool,
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeChanges {
    /// Nothing that was known of it holds any more: it left and came back.
    pub fresh: bool,
    /// Link, facts or notes.
    pub head: bool,
    /// Which GPUs it has, their faults or owners.
    pub gpus: bool,
    /// Which processes it has.
    pub processes: bool,
    /// The health of its GPUs.
    pub health: bool,
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
    /// What is in either.
    pub fn and(self, other: Self) -> Self {
        Self {
            fresh: self.fresh | other.fresh,
            head: self.head | other.head,
            gpus: self.gpus | other.gpus,
            processes: self.processes | other.processes,
            health: self.health | other.health,
            rates: self.rates | other.rates,
            uses: self.uses | other.uses,
            cores: self.cores | other.cores,
            past: self.past | other.past,
            sampled: self.sampled | other.sampled,
        }
    }
}

impl Changes {
    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        !self.jobs
            && !self.relay
            && !self.deeds
            && !self.sharing
            && !self.membership
            && self.nodes.values().all(|node| *node == NodeChanges::default())
    }

    /// The entry of a node.
    pub fn node(&mut self, name: &NodeName) -> &mut NodeChanges {
        // Not the entry API: it would clone the name for every sample.
        if !self.nodes.contains_key(name) {
            self.nodes.insert(name.clone(), NodeChanges::default());
        }
        self.nodes.get_mut(name).expect("inserted above")
    }
}
