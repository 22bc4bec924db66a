//! One session per node keeps a probe running there for as long as it is wanted, and tells the fleet what it says.

pub mod backoff;
pub mod decoder;
mod flood;
mod pieces;
mod questions;
mod refusals;
mod session;
mod supervisor;
mod talk;

pub use questions::{ANSWER_LIMIT, Probes, Question, Request};
pub use supervisor::Supervisor;

use nodeglass_protocol::{JobId, NodeName, Text, probe::delta::ParsedLine};
use std::collections::BTreeMap;

/// What a session tells the fleet.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeEvent {
    /// A probe is being started, after so many failures in a row.
    Connecting {
        /// Failed tries before this one.
        failures: u32,
    },
    /// A line came in.
    Line(Box<ParsedLine>),
    /// Lines that could not be read were skipped; how many in all on this link.
    Lost {
        /// Count since the link came up.
        lines: u64,
        /// The beginning of one of them.
        sample: Text,
    },
    /// A login shell printed this before the probe's first line; it was skipped.
    Noise(Text),
    /// The link is down and is tried again.
    Down {
        /// What went wrong, one sentence.
        why: Text,
        /// When the next try is due, by the relay's clock.
        retry_at_ms: u64,
    },
    /// The link is down and needs the user.
    Refused {
        /// What went wrong, one sentence.
        why: Text,
        /// What to do about it, one sentence.
        advice: Text,
    },
    /// The link is down and stays so: SLURM says that the user's jobs on the node are completing.
    Ending,
}

/// An event and the node it comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct FromNode {
    /// The node.
    pub node: NodeName,
    /// When it came in, by the relay's clock.
    pub at_ms: u64,
    /// What happened.
    pub event: NodeEvent,
}

/// What the fleet wants of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Orders {
    /// Time between samples, in ms.
    pub interval_ms: u32,
    /// How long after the whole interval, in ms.
    pub phase_ms: u32,
    /// The user's jobs that run there, in the order of the list; none where there is no SLURM.
    pub jobs: Vec<JobId>,
    /// Whether all jobs there are completing: a probe that runs goes on, but none is started.
    pub is_ending: bool,
}

/// What the fleet wants of all sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The nodes that are wanted.
    pub nodes: BTreeMap<NodeName, Orders>,
    /// The job list that this comes of.
    pub list: JobList,
}

/// Which job list it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobList {
    /// How often SLURM was asked by now.
    pub number: u64,
    /// Whether it answered the last time.
    pub is_fresh: bool,
}

#[cfg(test)]
mod tests;
