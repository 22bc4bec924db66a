//! What SLURM says of one job, in words every part of nodeglass shares.

use crate::{JobId, LongText, NodeName, Text};
use serde::{Deserialize, Serialize};

/// One job, array task or heterogeneous part as last reported by SLURM.
///
/// Times are in seconds since 1970 by SLURM's clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// SLURM's own number (`%A`).
    pub id: JobId,
    /// The id as people write it (`%i`): `17`, `3_0`, `4+1`, `3_[2-5%2]`.
    pub label: Text,
    /// Which larger job it is a part of.
    pub part_of: Option<Parent>,
    /// Job name, cleaned.
    pub name: Text,
    /// Login name of the owner.
    pub user: Text,
    /// Account, if the site uses them.
    pub account: Option<Text>,
    /// Partition, or the list asked for while pending.
    pub partition: Text,
    /// Quality of service, if the site uses them.
    pub qos: Option<Text>,
    /// State.
    pub state: JobState,
    /// SLURM's reason code while pending (`Priority`, `Resources`, …) or after a failure.
    pub reason: Option<Text>,
    /// The same in plain words, with what one can do about it.
    pub reason_words: Option<LongText>,
    /// Jobs that it waits for, as SLURM writes them (`afterok:17(unfulfilled)`).
    pub dependency: Option<Text>,
    /// When it was submitted.
    pub submitted: Option<i64>,
    /// When it started, or is expected to start while pending.
    pub start: Option<i64>,
    /// When it ended, once it has; SLURM's own word or the time it left the list.
    pub ended: Option<i64>,
    /// How long it may run.
    pub limit: TimeLimit,
    /// Its nodes, in SLURM's order; empty while pending.
    pub nodes: Vec<NodeName>,
    /// How many nodes it has or asks for.
    pub node_count: u32,
    /// How many CPUs it has or asks for, if known.
    pub cpus: Option<u32>,
    /// Memory that it has or asks for in all, in bytes, if known (`mem` of its TRES).
    pub mem_bytes: Option<u64>,
    /// How many GPUs it has or asks for in all; `None` when SLURM does not say.
    pub gpu_count: Option<u32>,
    /// Its GPUs on each of its nodes, as far as SLURM tells.
    pub gpus: Vec<NodeGpus>,
    /// Where its batch script runs.
    pub batch_host: Option<NodeName>,
    /// Working directory.
    pub workdir: Option<LongText>,
    /// The batch script or command.
    pub command: Option<LongText>,
    /// Where its standard output goes.
    pub stdout: Option<LongText>,
    /// Where its standard error goes.
    pub stderr: Option<LongText>,
    /// How it ended, as SLURM writes it (`0:0`, `1:0`, `0:9`), once it has.
    pub exit: Option<Text>,
    /// How often it was started again.
    pub restarts: u32,
}

impl Job {
    /// A job of which only number, owner and state are known.
    pub fn new(id: JobId, user: Text, state: JobState) -> Self {
        Self {
            id,
            label: id.to_string().into(),
            part_of: None,
            name: Text::default(),
            user,
            account: None,
            partition: Text::default(),
            qos: None,
            state,
            reason: None,
            reason_words: None,
            dependency: None,
            submitted: None,
            start: None,
            ended: None,
            limit: TimeLimit::Unknown,
            nodes: Vec::new(),
            node_count: 0,
            cpus: None,
            mem_bytes: None,
            gpu_count: None,
            gpus: Vec::new(),
            batch_host: None,
            workdir: None,
            command: None,
            stdout: None,
            stderr: None,
            exit: None,
            restarts: 0,
        }
    }

    /// Whether it holds nodes now.
    pub fn is_active(&self) -> bool {
        !matches!(self.state, JobState::Pending | JobState::Ended(_))
    }

    /// The GPUs of this job on a node, as SLURM tells.
    pub fn gpus_on(&self, node: &NodeName) -> Option<&GpuSet> {
        self.gpus.iter().find(|gpus| gpus.node == *node).map(|gpus| &gpus.set)
    }
}

/// The job that an array task or heterogeneous part belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Parent {
    /// Task of an array; `task` is `None` for the pending rest that has no numbers of its own yet.
    Array {
        /// `%F`.
        job: JobId,
        /// `%K`.
        task: Option<u32>,
    },
    /// Part of a heterogeneous job.
    Het {
        /// Id of the leading part.
        job: JobId,
        /// Offset of this part.
        offset: u32,
    },
}

/// State of a job; SLURM's word where it matters only to be shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// Waiting for resources.
    Pending,
    /// Nodes are being prepared (`CONFIGURING`).
    Configuring,
    /// Running.
    Running,
    /// Its processes are stopped (`SUSPENDED`, `STOPPED`).
    Suspended,
    /// Its processes are ending (`COMPLETING`).
    Completing,
    /// Over; SLURM's word for how (`COMPLETED`, `CANCELLED`, `TIMEOUT`, …), empty when it only left the list.
    Ended(Text),
    /// Another state that holds its nodes (`RESIZING`, `SIGNALING`, `STAGE_OUT`, …).
    Other(Text),
}

/// How long a job may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TimeLimit {
    /// SLURM did not say.
    Unknown,
    /// No limit.
    Unlimited,
    /// Seconds.
    Seconds(u64),
}

/// The GPUs of a job on one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeGpus {
    /// The node.
    pub node: NodeName,
    /// Which of its GPUs.
    pub set: GpuSet,
}

/// Which GPUs of a node belong to a job, as exactly as SLURM tells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GpuSet {
    /// GRES indices (`IDX:`); they are minor numbers of `/dev/nvidiaN`, never NVML indices.
    Indices(Vec<u32>),
    /// Only how many.
    Count(u32),
    /// SLURM's text was cut or missing.
    Unknown,
}
