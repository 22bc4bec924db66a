//! One session per node keeps a probe running while it is wanted, and forwards its events to the fleet.

mod auth_failures;
pub mod backoff;
pub mod decoder;
mod input_limit;
mod line_assembler;
mod link_log;
mod probe_connection;
mod probe_requests;
mod session;
mod supervisor;

pub use probe_requests::{Probes, QueuedRequest, RESPONSE_TIMEOUT, Request};
pub use supervisor::Supervisor;

use crate::fleet::NodeEvent;
use nodeglass_protocol::{JobId, NodeName};
use std::collections::BTreeMap;

/// An event and its node.
#[derive(Clone, Debug, PartialEq)]
pub struct FromNode {
    /// The node.
    pub node: NodeName,
    /// When it arrived, by the relay's clock.
    pub at_ms: u64,
    /// What happened.
    pub event: NodeEvent,
}

/// The sampling schedule and jobs of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SampleSchedule {
    /// Sampling interval, in ms.
    pub interval_ms: u32,
    /// Offset from the whole interval, in ms.
    pub phase_ms: u32,
    /// The user's running jobs there, in the order of the list; empty without SLURM.
    pub jobs: Vec<JobId>,
    /// Identifies how the node is reached; its probe is started anew when that changes.
    pub target: u64,
    /// Whether all jobs there are completing: a running probe continues, but none is started.
    pub is_ending: bool,
}

/// The wanted nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The wanted nodes and their schedules.
    pub nodes: BTreeMap<NodeName, SampleSchedule>,
    /// The job list that this plan is based on.
    pub list: JobList,
}

/// Identifies a job list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobList {
    /// Number of polls so far.
    pub number: u64,
    /// Whether the last poll succeeded.
    pub is_fresh: bool,
}

#[cfg(test)]
mod tests;
