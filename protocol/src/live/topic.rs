//! Topics to which a viewer subscribes.

use crate::{JobId, NodeName};
use serde::{Deserialize, Serialize};

/// A topic that viewers subscribe to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Topic {
    /// Jobs, relay status, audit log, and the connection state and a summary of every node.
    Overview,
    /// All details of the nodes of a job.
    Job(JobId),
    /// All details of one node.
    Node(NodeName),
}
