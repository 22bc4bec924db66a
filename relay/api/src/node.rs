//! A node as a resource.

use super::{Absences, Clock, HostReadings, JobReadings, Timestamp, text};
use nodeglass_protocol::picture::{GpuPath, Link, NodePicture};
use nodeglass_protocol::source::SourceStatus;
use nodeglass_protocol::{Picture, Vendor};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use utoipa::ToSchema;

/// A node of a job, or a listed machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Node {
    /// Name in SLURM or in the list of machines.
    pub name: String,
    /// State of the connection to its probe.
    pub connection: ConnectionState,
    /// Reason for the missing connection.
    pub reason: Option<String>,
    /// Advice on how to restore it.
    pub advice: Option<String>,
    /// Time of the next attempt to connect.
    pub retry_at: Option<Timestamp>,
    /// Time of the newest sample.
    pub sampled_at: Option<Timestamp>,
    /// Sampling interval in ms.
    pub interval_ms: u32,
    /// Host name (`uname -n`).
    pub hostname: Option<String>,
    /// Kernel release.
    pub kernel: Option<String>,
    /// Number of CPUs.
    pub cpus: Option<u32>,
    /// Model of its CPUs.
    pub cpu_model: Option<String>,
    /// Drivers of its accelerators.
    pub drivers: Vec<Driver>,
    /// Reason for the absence of GPUs.
    pub no_gpu: Option<String>,
    /// Time for which the driver has not responded, in ms.
    pub driver_stuck_ms: Option<u64>,
    /// Group in the list of machines.
    pub group: Option<String>,
    /// Remarks that are not faults.
    pub remarks: Vec<String>,
    /// Events of its GPUs, oldest first.
    pub events: Vec<NodeEvent>,
    /// UUIDs of its GPUs and MIG instances.
    pub gpus: Vec<String>,
    /// Paths between its GPUs without MIG instances, in their order, as `nvidia-smi topo -m` names them: `NV18` (18
    /// NVLinks), `PIX`, `PXB`, `PHB`, `NODE`, `SYS`, `X` for the same GPU, `null` if the driver does not state it. Empty
    /// if none is known.
    #[schema(value_type = Vec<Vec<Option<String>>>)]
    #[serde(default)]
    pub topology: Vec<Vec<Option<Cow<'static, str>>>>,
    /// Readings of the host.
    pub readings: HostReadings,
    /// Reasons for readings of the host without a value.
    pub absent: Absences,
    /// Running jobs on it, with what they use of its CPUs and memory.
    pub jobs: Vec<NodeJob>,
}

/// State of the connection to a node's probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ConnectionState {
    /// Not attempted yet.
    Waiting,
    /// A probe is being started.
    Connecting,
    /// Samples arrive on schedule.
    Live,
    /// No sample for about three intervals, or for 12 s if they are longer.
    Late,
    /// No sample for 15 s: all readings are old.
    Silent,
    /// Disconnected; it is retried.
    Down,
    /// Needs the user: authentication failed, or the host key is not trusted.
    Refused,
    /// The jobs on it have ended; the last state is kept.
    Ended,
}

/// The driver of a vendor on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Driver {
    /// Vendor: `nvidia`, `amd`, `intel`, `tpu`, or `unknown`.
    pub vendor: String,
    /// Version of the kernel driver.
    pub version: Option<String>,
    /// Version of the library that readings come from.
    pub library: Option<String>,
    /// Newest version of CUDA, ROCm, Level Zero or libtpu that it supports.
    pub platform: Option<String>,
    /// Reason why it is not available, or sees only some accelerators.
    pub reason: Option<String>,
}

/// An event of a GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeEvent {
    /// When.
    pub at: Timestamp,
    /// UUID of the GPU.
    pub gpu: Option<String>,
    /// Number of the Xid error, if it is one.
    pub xid: Option<u64>,
    /// The message.
    pub text: String,
}

/// Resource usage of a job on a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NodeJob {
    /// Numeric job id.
    pub job: u32,
    /// Readings of the job's cgroup on the node.
    pub readings: JobReadings,
    /// Reasons for readings without a value.
    pub absent: Absences,
}

impl ConnectionState {
    /// The state of a connection.
    pub fn of(link: &Link) -> Self {
        match link {
            Link::Waiting => Self::Waiting,
            Link::Connecting { .. } => Self::Connecting,
            Link::Live => Self::Live,
            Link::Late => Self::Late,
            Link::Silent => Self::Silent,
            Link::Down { .. } => Self::Down,
            Link::Refused { .. } => Self::Refused,
            Link::Ended => Self::Ended,
        }
    }

    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Waiting,
        Self::Connecting,
        Self::Live,
        Self::Late,
        Self::Silent,
        Self::Down,
        Self::Refused,
        Self::Ended,
    ];

    /// Its name, as in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Connecting => "connecting",
            Self::Live => "live",
            Self::Late => "late",
            Self::Silent => "silent",
            Self::Down => "down",
            Self::Refused => "refused",
            Self::Ended => "ended",
        }
    }

    /// Returns whether the readings of the node are of this moment.
    pub const fn is_current(self) -> bool {
        matches!(self, Self::Live | Self::Late)
    }
}

impl Node {
    pub(super) fn new(node: &NodePicture, picture: &Picture, clock: Clock) -> Self {
        let head = &node.head;
        let (reason, advice, retry_at) = match &head.link {
            Link::Down { reason, retry_at_ms } => (Some(reason), None, Some(clock.timestamp(*retry_at_ms))),
            Link::Refused { reason, advice } => (Some(reason), Some(advice), None),
            _ => (None, None, None),
        };
        let facts = head.facts.as_ref();
        let running = picture
            .jobs
            .iter()
            .filter(|job| job.is_active() && job.nodes.contains(&node.name))
            .map(|job| job.id);
        let job = |id| {
            let row = node.job_usage.iter().find(|usage| usage.job == id).map(|usage| &usage.row);
            NodeJob {
                job: id.0,
                readings: row.map_or_else(JobReadings::default, JobReadings::new),
                absent: row.map_or_else(Absences::default, Absences::new),
            }
        };
        Self {
            name: node.name.to_string(),
            connection: ConnectionState::of(&head.link),
            reason: reason.map(ToString::to_string),
            advice: advice.map(ToString::to_string),
            retry_at,
            sampled_at: node.sampled_at_ms.map(|at_ms| clock.timestamp(at_ms)),
            interval_ms: head.interval_ms,
            hostname: facts.map(|facts| facts.host.to_string()),
            kernel: facts.map(|facts| facts.kernel.to_string()),
            cpus: facts.map(|facts| facts.cpus),
            cpu_model: facts.map(|facts| facts.cpu_model.to_string()),
            drivers: facts.map_or_else(Vec::new, |facts| facts.sources.iter().map(Driver::new).collect()),
            no_gpu: head.no_gpu.as_ref().map(ToString::to_string),
            driver_stuck_ms: head.driver_stuck_ms,
            group: head.group.as_ref().map(ToString::to_string),
            remarks: head.notes.iter().map(ToString::to_string).collect(),
            events: head
                .events
                .iter()
                .map(|event| NodeEvent {
                    at: clock.timestamp(event.at_ms),
                    gpu: event.gpu.as_ref().map(ToString::to_string),
                    xid: event.xid,
                    text: event.text.to_string(),
                })
                .collect(),
            gpus: node.gpus.iter().map(|gpu| gpu.facts.uuid.to_string()).collect(),
            topology: facts
                .map_or_else(Vec::new, |facts| facts.topology.iter().map(|row| names(row)).collect()),
            readings: HostReadings::new(&node.host),
            absent: Absences::new(&node.host),
            jobs: running.map(job).collect(),
        }
    }
}

fn names(row: &[GpuPath]) -> Vec<Option<Cow<'static, str>>> {
    row.iter().map(|path| path.name()).collect()
}

impl Driver {
    fn new(source: &nodeglass_protocol::picture::SourceState) -> Self {
        let (versions, reason) = match &source.status {
            SourceStatus::Ready(versions) => (Some(versions), None),
            SourceStatus::Absent { reason } | SourceStatus::Confined { reason } => (None, Some(reason)),
        };
        Self {
            vendor: vendor(source.vendor).to_owned(),
            version: versions.and_then(|versions| text(&versions.driver)),
            library: versions.and_then(|versions| text(&versions.library)),
            platform: versions.and_then(|versions| text(&versions.platform)),
            reason: reason.map(ToString::to_string),
        }
    }
}

/// The name of a vendor, as in JSON.
pub(super) const fn vendor(vendor: Vendor) -> &'static str {
    match vendor {
        Vendor::Unknown => "unknown",
        Vendor::Nvidia => "nvidia",
        Vendor::Amd => "amd",
        Vendor::Intel => "intel",
        Vendor::Tpu => "tpu",
    }
}
