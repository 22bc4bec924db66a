//! Errors in scenario files, with a message and a line number.

use nodeglass_protocol::NodeName;

/// Error in a scenario file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("read the scenario: line {line}: {fault}")]
pub struct ScenarioError {
    /// Line of the file, from 1.
    pub line: usize,
    /// The fault.
    pub fault: ScenarioFault,
}

/// Faults in a scenario file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScenarioFault {
    /// Invalid TOML, or unknown keys.
    #[error("{0}")]
    Syntax(String),
    /// An invalid node pattern.
    #[error("{0:?} names no nodes; write gpu-h[01-08] or gpu-h01,gpu-h02")]
    Pattern(String),
    /// A duplicate node.
    #[error("node {0} is described twice")]
    DuplicateNode(NodeName),
    /// Too many GPUs per node.
    #[error("{0} GPUs on a node are too many; at most 64 are played")]
    TooManyGpus(u32),
    /// A job or fault on an unknown node.
    #[error("node {0} is not described by any [[node]]")]
    UnknownNode(NodeName),
    /// An episode on a node that its job does not have.
    #[error("job {job} is not on node {node}")]
    NotOnNode {
        /// The job.
        job: u32,
        /// The node.
        node: NodeName,
    },
    /// A GPU index out of range.
    #[error("node {node} has no GPU {gpu}; it has {has}")]
    NoSuchGpu {
        /// The node.
        node: NodeName,
        /// The index.
        gpu: u32,
        /// Number of GPUs.
        has: u32,
    },
    /// Two jobs use a GPU at the same time.
    #[error("jobs {first} and {second} both have GPU {gpu} of node {node} at the same time")]
    Overlap {
        /// The earlier entry.
        first: u32,
        /// This entry.
        second: u32,
        /// The GPU.
        gpu: u32,
        /// Its node.
        node: NodeName,
    },
    /// Duplicate job id.
    #[error("job {0} has a number that another job has or will have; jobs that come again count on by 1000")]
    DuplicateJob(u32),
    /// Inconsistent times.
    #[error("job {job} {what}")]
    Times {
        /// The job.
        job: u32,
        /// Description that follows the job id.
        what: &'static str,
    },
    /// A percentage above 100.
    #[error("memory_pct is a share of the card's memory, 0 to 100, not {0}")]
    Share(u32),
    /// An invalid cycle.
    #[error("cycle must be at least 60s")]
    Cycle,
    /// Too many MIG slices.
    #[error("{0} slices are too many for one GPU; it has 7")]
    TooManySlices(u32),
    /// A GPU fault without a GPU index.
    #[error("a {0} fault needs gpu = N")]
    WhichGpu(&'static str),
    /// An Xid fault without a number.
    #[error("an xid fault needs xid = N")]
    WhichXid,
}

/// Returns the line of a byte offset, from 1.
pub fn line_of(text: &str, position: usize) -> usize {
    let before = text.as_bytes().iter().take(position);
    1 + before.filter(|byte| **byte == b'\n').count()
}
