//! A scenario that makes no sense is refused with one sentence that names the line.

use nodeglass_protocol::NodeName;

/// Why a scenario cannot be played, and on which line of its file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("read the scenario: line {line}: {fault}")]
pub struct ScenarioError {
    /// Line of the file, from 1.
    pub line: usize,
    /// What is wrong there.
    pub fault: ScenarioFault,
}

/// What is wrong on a line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScenarioFault {
    /// It is not TOML, or not the language of scenarios.
    #[error("{0}")]
    Syntax(String),
    /// A node pattern cannot be read.
    #[error("{0:?} names no nodes; write gpu-h[01-08] or gpu-h01,gpu-h02")]
    Pattern(String),
    /// A node is described twice.
    #[error("node {0} is described twice")]
    DuplicateNode(NodeName),
    /// A node has more GPUs than a machine holds.
    #[error("{0} GPUs on a node are too many; at most 64 are played")]
    TooManyGpus(u32),
    /// A job or fault is on a node that is not described.
    #[error("node {0} is not described by any [[node]]")]
    UnknownNode(NodeName),
    /// An episode is on a node that its job does not have.
    #[error("job {job} is not on node {node}")]
    NotOnNode {
        /// The job.
        job: u32,
        /// The node.
        node: NodeName,
    },
    /// A GPU index is too large.
    #[error("node {node} has no GPU {gpu}; it has {has}")]
    NoSuchGpu {
        /// The node.
        node: NodeName,
        /// The index.
        gpu: u32,
        /// How many GPUs there are.
        has: u32,
    },
    /// Two jobs want a GPU at the same time.
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
    /// Two jobs come to the same number.
    #[error("job {0} has a number that another job has or will have; jobs that come again count on by 1000")]
    DuplicateJob(u32),
    /// Times are in no possible order.
    #[error("job {job} {what}")]
    Times {
        /// The job.
        job: u32,
        /// What about it, a fragment that follows its number.
        what: &'static str,
    },
    /// A share is over 100 %.
    #[error("memory_pct is a share of the card's memory, 0 to 100, not {0}")]
    Share(u32),
    /// The cycle is not a length of time.
    #[error("cycle must be at least 60s")]
    Cycle,
    /// More slices than a GPU has.
    #[error("{0} slices are too many for one GPU; it has 7")]
    TooManySlices(u32),
    /// What befalls a GPU, without its index.
    #[error("a {0} fault needs gpu = N")]
    WhichGpu(&'static str),
    /// An Xid without its number.
    #[error("an xid fault needs xid = N")]
    WhichXid,
}

/// The line of a byte position in a file, from 1.
pub fn line_of(text: &str, position: usize) -> usize {
    let before = text.as_bytes().iter().take(position);
    1 + before.filter(|byte| **byte == b'\n').count()
}
