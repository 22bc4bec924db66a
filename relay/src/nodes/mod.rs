//! One session per node keeps a probe running while it is wanted, and forwards its events to the fleet.

mod auth_failures;
pub mod backoff;
pub mod decoder;
mod input_limit;
mod line_assembler;
mod probe_connection;
mod questions;
mod session;
mod supervisor;

pub use questions::{ANSWER_LIMIT, Probes, Question, Request};
pub use supervisor::Supervisor;

use nodeglass_protocol::{JobId, NodeName, Text, probe::delta::ParsedLine};
use std::collections::BTreeMap;

/// Events of a session for the fleet.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeEvent {
    /// A probe is being started.
    Connecting {
        /// Failed attempts before this one.
        failures: u32,
    },
    /// A line was received.
    Line(Box<ParsedLine>),
    /// Unreadable lines were skipped.
    Lost {
        /// Number since the link was established.
        lines: u64,
        /// The beginning of one of them.
        sample: Text,
    },
    /// Output of a login shell before the probe's first line, which was skipped.
    Noise(Text),
    /// The link is down and will be retried.
    Down {
        /// The cause, a complete sentence.
        why: Text,
        /// When it is retried, by the relay's clock.
        retry_at_ms: u64,
    },
    /// The link is down until the user acts.
    Refused {
        /// The cause, a complete sentence.
        why: Text,
        /// What to do about it, a complete sentence.
        advice: Text,
    },
    /// The link is down and not retried: the user's jobs on the node are completing.
    Ending,
}

/// An event and its node.
#[derive(Clone, Debug, PartialEq)]
pub struct FromNode {
    /// The node.
    pub node: NodeName,
    /// When it came in, by the relay's clock.
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
