//! One session per node keeps a probe running there for as long as it is wanted, and tells the fleet what it says.

pub mod backoff;
pub mod decoder;
mod pieces;
mod questions;
mod refusals;
mod session;
mod supervisor;
mod talk;

pub use questions::{ANSWER_LIMIT, Probes, Question};
pub use supervisor::Supervisor;

use nodeglass_protocol::{NodeName, Text, told::HeardLine};

/// What a session tells the fleet.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeEvent {
    /// A probe is being started, after so many failures in a row.
    Connecting {
        /// Failed tries before this one.
        failures: u32,
    },
    /// A line came in.
    Line(Box<HeardLine>),
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Orders {
    /// Time between samples, in ms.
    pub interval_ms: u32,
    /// How long after the whole interval, in ms.
    pub phase_ms: u32,
}

#[cfg(test)]
mod tests;
