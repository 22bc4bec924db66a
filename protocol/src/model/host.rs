//! The host of a node and the resource usage of its jobs.

pub use crate::field::catalogue::{HostSample, JobReadings};

use crate::JobId;
use serde::{Deserialize, Serialize};

/// Resource usage of a job on a node, from its cgroup (version 1 or 2).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobCgroupUsage {
    /// The job.
    pub job: JobId,
    /// Its current usage.
    pub now: JobReadings,
}
