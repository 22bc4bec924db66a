//! The nodes of a SLURM cluster by partition and state, and their GPUs by type.

use crate::Text;
use serde::{Deserialize, Serialize};

/// Nodes and GPUs of the watched partitions (`scontrol show node`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterSummary {
    /// Time of the query by the relay's clock.
    pub at_ms: u64,
    /// Partitions by name. A node may belong to several, so their counts do not add up.
    pub partitions: Vec<PartitionSummary>,
    /// Nodes that accept no jobs, by name; at most [`ClusterSummary::MAX_UNAVAILABLE`].
    pub unavailable: Vec<UnavailableNode>,
    /// Number of further such nodes that are not listed.
    pub unavailable_omitted: u32,
}

/// Nodes and GPUs of one partition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionSummary {
    /// `PartitionName`.
    pub name: Text,
    /// Nodes by state.
    pub nodes: NodeCounts,
    /// GPUs by type; `None` if SLURM does not state the GPUs of some node.
    pub gpus: Option<Vec<GpuCounts>>,
}

/// Numbers of nodes by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeCounts {
    /// Without jobs, and available.
    pub idle: u32,
    /// Partly allocated.
    pub mixed: u32,
    /// Fully allocated.
    pub allocated: u32,
    /// Drained or draining.
    pub drained: u32,
    /// Down or not responding.
    pub down: u32,
    /// In any other state: under maintenance, reserved, rebooting, unknown.
    pub other: u32,
}

/// Numbers of GPUs, or of MIG instances, of one type.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuCounts {
    /// Type in SLURM's GRES; `None` if the site gives none.
    pub kind: Option<Text>,
    /// All.
    pub total: u32,
    /// Allocated to jobs, if known for every node.
    pub allocated: Option<u32>,
    /// Not allocated, on nodes that accept no jobs, if known for every node.
    pub unavailable: Option<u32>,
}

/// A node that accepts no jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnavailableNode {
    /// `NodeName`.
    pub name: Text,
    /// `State` in lower case, such as `idle+drain`.
    pub state: Text,
    /// `Reason` without its author and time, if there is one.
    pub reason: Option<Text>,
    /// Time at which the reason was set, in s since 1970, if stated.
    pub since: Option<i64>,
}

impl ClusterSummary {
    /// Maximum number of nodes that are listed.
    pub const MAX_UNAVAILABLE: usize = 200;
}

impl GpuCounts {
    /// Returns the number that jobs could be given now, if known.
    pub fn free(&self) -> Option<u32> {
        Some(self.total.saturating_sub(self.allocated?).saturating_sub(self.unavailable?))
    }
}
