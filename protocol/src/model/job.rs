//! A SLURM job as all parts of nodeglass represent it.

use crate::{JobId, LongText, NodeName, Text};
use serde::{Deserialize, Serialize};

/// One job, array task or heterogeneous part as last reported by SLURM.
///
/// Times are in seconds since 1970 by SLURM's clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Numeric job id (`%A`).
    pub id: JobId,
    /// Job id as users write it (`%i`): `17`, `3_0`, `4+1`, `3_[2-5%2]`.
    pub label: Text,
    /// The array or heterogeneous job that it belongs to.
    pub part_of: Option<Parent>,
    /// Job name, sanitized.
    pub name: Text,
    /// Login name of the owner.
    pub user: Text,
    /// Account, if the site uses them.
    pub account: Option<Text>,
    /// Partition, or the requested list while pending.
    pub partition: Text,
    /// Quality of service, if the site uses them.
    pub qos: Option<Text>,
    /// State.
    pub state: JobState,
    /// SLURM's reason code while pending (`Priority`, `Resources`, …) or after a failure.
    pub reason: Option<Text>,
    /// Explanation of the reason, with possible remedies.
    pub reason_text: Option<LongText>,
    /// Dependencies as SLURM writes them (`afterok:17(unfulfilled)`).
    pub dependency: Option<Text>,
    /// Submit time.
    pub submitted: Option<i64>,
    /// Start time, or the expected start time while pending.
    pub start: Option<i64>,
    /// End time, reported by SLURM or observed when the job left the list.
    pub ended: Option<i64>,
    /// Time limit.
    pub limit: TimeLimit,
    /// Nodes in SLURM's order; empty while pending.
    pub nodes: Vec<NodeName>,
    /// Number of nodes allocated or requested.
    pub node_count: u32,
    /// Number of CPUs allocated or requested, if known.
    pub cpus: Option<u32>,
    /// Total memory allocated or requested, in bytes, if known (`mem` of its TRES).
    pub mem_bytes: Option<u64>,
    /// Total number of GPUs allocated or requested; `None` if SLURM does not report it.
    pub gpu_count: Option<u32>,
    /// GPUs on each node, if SLURM reports them.
    pub gpus: Vec<NodeGpus>,
    /// Node that runs the batch script.
    pub batch_host: Option<NodeName>,
    /// Working directory.
    pub workdir: Option<LongText>,
    /// The batch script or command.
    pub command: Option<LongText>,
    /// Path of the standard output.
    pub stdout: Option<LongText>,
    /// Path of the standard error.
    pub stderr: Option<LongText>,
    /// Exit code as SLURM writes it (`0:0`, `1:0`, `0:9`), once it ended.
    pub exit: Option<Text>,
    /// Number of restarts.
    pub restarts: u32,
    /// When it was last suspended or resumed, if it ever was.
    #[serde(default)]
    pub suspension: Option<Suspension>,
}

/// The last time that a job was suspended, if it is, or else resumed.
///
/// SLURM counts neither its run time nor its time limit while a job is suspended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suspension {
    /// When it was suspended or resumed (`SuspendTime`).
    pub at: i64,
    /// Its run time until then, in s (`SecsPreSuspend`).
    pub ran_s: u64,
}

impl Job {
    /// Creates a job of which only id, owner and state are known.
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
            reason_text: None,
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
            suspension: None,
        }
    }

    /// Returns whether it currently holds nodes.
    pub fn is_active(&self) -> bool {
        !matches!(self.state, JobState::Pending | JobState::Ended(_))
    }

    /// Returns the GPUs of this job on a node, as SLURM reports them.
    pub fn gpus_on(&self, node: &NodeName) -> Option<&GpuSet> {
        self.gpus.iter().find(|gpus| gpus.node == *node).map(|gpus| &gpus.set)
    }
}

/// The job that an array task or heterogeneous part belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Parent {
    /// Task of an array; `task` is `None` for the pending rest, which has no task ids yet.
    Array {
        /// `%F`.
        job: JobId,
        /// `%K`.
        task: Option<u32>,
    },
    /// Component of a heterogeneous job.
    Het {
        /// Id of the leader.
        job: JobId,
        /// Offset of this component.
        offset: u32,
    },
}

impl Parent {
    /// The array, or the leader of the heterogeneous job.
    pub fn job(&self) -> JobId {
        match self {
            Self::Array { job, .. } | Self::Het { job, .. } => *job,
        }
    }
}

/// Job state; keeps SLURM's name where it is only displayed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// Waiting for resources.
    Pending,
    /// Nodes are being configured (`CONFIGURING`).
    Configuring,
    /// Running.
    Running,
    /// Its processes are suspended (`SUSPENDED`, `STOPPED`).
    Suspended,
    /// Its processes are ending (`COMPLETING`).
    Completing,
    /// Finished, with SLURM's state (`COMPLETED`, `CANCELLED`, `TIMEOUT`, …); empty if it only left
    /// the list.
    Ended(Text),
    /// Another state that holds its nodes (`RESIZING`, `SIGNALING`, `STAGE_OUT`, …).
    Other(Text),
}

/// Time limit of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TimeLimit {
    /// Not reported.
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
    /// Its GPUs.
    pub set: GpuSet,
}

/// GPUs of a node that belong to a job, as precisely as SLURM reports them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GpuSet {
    /// GRES indices (`IDX:`); they are minor numbers of `/dev/nvidiaN`, never NVML indices.
    Indices(Vec<u32>),
    /// Only their number.
    Count(u32),
    /// Missing or truncated in SLURM's output.
    Unknown,
}
