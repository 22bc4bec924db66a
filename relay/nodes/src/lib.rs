//! One session per node keeps a probe running while it is wanted, and forwards its events to the fleet.
//!
//! The [`Supervisor`] starts and ends sessions as a [`Plan`] wants. A session launches a probe, retries with [`backoff`], and
//! splits and parses what it sends with a [`decoder`]; [`Probes`] passes requests to it.

mod auth_failures;
pub mod backoff;
mod connect_budget;
pub mod decoder;
mod input_limit;
mod line_assembler;
mod link_log;
mod probe_connection;
mod probe_requests;
mod session;
mod supervisor;

use nodeglass_fleet::SessionEvent;
use nodeglass_protocol::{JobId, NodeName};
pub use probe_requests::{Probes, QueuedRequest, RESPONSE_TIMEOUT, SupervisorRequest, unwatched};
use std::collections::BTreeMap;
pub use supervisor::Supervisor;

/// An event and its node.
#[derive(Clone, Debug, PartialEq)]
pub struct FromNode {
    /// The node.
    pub node: NodeName,
    /// The job that the probe runs in; `None` for the node's own probe.
    pub job: Option<JobId>,
    /// When it arrived, by the relay's clock.
    pub at_ms: u64,
    /// The event.
    pub event: SessionEvent,
}

/// The plan for a node: its sampling schedule and its jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodePlan {
    /// Sampling interval, in ms.
    pub interval_ms: u32,
    /// Offset from the whole interval, in ms.
    pub phase_ms: u32,
    /// The user's running jobs there, in the order of the list; empty without SLURM.
    pub jobs: Vec<JobId>,
    /// The jobs there whose notes are read, including completing ones.
    pub note_jobs: Vec<JobId>,
    /// Identifies how the node is reached; its probe is started anew when that changes.
    pub target: u64,
    /// Whether all jobs there are completing: a running probe continues, but none is started.
    pub is_ending: bool,
    /// The jobs there in which further probes run, because the node's own probe does not see their GPUs.
    pub job_probes: Vec<JobId>,
}

impl NodePlan {
    /// Time by which the probes of jobs sample earlier: their readings are shown with the next sample of the node's
    /// own probe.
    const LEAD_MS: u32 = 200;

    /// The plan for the probe of a job.
    fn of_job(&self, job: JobId) -> Self {
        let Self { interval_ms, phase_ms, target, .. } = *self;
        let lead_ms = Self::LEAD_MS.min(interval_ms / 2);
        let phase_ms = phase_ms.checked_sub(lead_ms).unwrap_or(phase_ms + interval_ms - lead_ms);
        Self { interval_ms, phase_ms, target, jobs: vec![job], ..Self::default() }
    }
}

/// The wanted nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The wanted nodes, each with its plan.
    pub nodes: BTreeMap<NodeName, NodePlan>,
    /// The job list that this plan is based on.
    pub list: JobListVersion,
}

/// Identifies a job list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobListVersion {
    /// Number of polls so far.
    pub number: u64,
    /// Whether the last poll succeeded.
    pub is_fresh: bool,
}

#[cfg(test)]
mod tests;
