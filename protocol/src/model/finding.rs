//! Findings: what the relay concludes from readings, each with its evidence, meaning and advice.

use crate::capture::FindingCapture;
use crate::{GpuField, GpuUuid, JobId, LongText, NodeName, Text};
use serde::{Deserialize, Serialize};
use std::cmp::{Ordering, Reverse};

/// Maximum number of findings that a relay keeps: active ones, and those that ended within the last hour.
pub const MAX_FINDINGS: usize = 512;
/// Maximum number of lines of evidence of a finding.
pub const MAX_EVIDENCE: usize = 8;

/// Defines [`FindingKind`] with its names.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $name:literal,)*) => {
        /// What a finding is about.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
        #[serde(rename_all = "snake_case")]
        pub enum FindingKind {
            $($(#[$doc])* $kind,)*
        }

        impl FindingKind {
            /// All kinds.
            pub const ALL: &'static [Self] = &[$(Self::$kind,)*];

            /// Returns its name in the API, in metrics and on the command line: `idle_gpus`.
            pub fn name(self) -> &'static str {
                match self { $(Self::$kind => $name,)* }
            }
        }
    };
}

// Their numbers are part of the wire: new ones are added at the end.
kinds! {
    /// Some GPUs of a job do nothing while others work, or all have done nothing since its start.
    UnusedGpus = "unused_gpus",
    /// All GPUs of a job worked, and do nothing any more.
    IdleGpus = "idle_gpus",
    /// No process runs on the GPUs of a job.
    NoProcess = "no_process",
    /// All GPUs of a job report full utilisation at the power of a busy-wait.
    CollectiveHang = "collective_hang",
    /// A GPU of a job works less than its peers.
    Straggler = "straggler",
    /// The GPUs of a job wait for input most of the time.
    InputBound = "input_bound",
    /// The GPUs of a job are busy but do little work, by their power or their SMs' activity.
    LowEfficiency = "low_efficiency",
    /// The memory of a GPU will be exhausted.
    GpuMemoryForecast = "gpu_memory_forecast",
    /// The memory of a job on a node is close to its limit, or will reach it.
    JobMemoryForecast = "job_memory_forecast",
    /// The memory of a node is almost exhausted, or will be.
    HostMemory = "host_memory",
    /// A node swaps.
    Swapping = "swapping",
    /// A local disk or `/dev/shm` is almost full.
    DiskFull = "disk_full",
    /// Memory of a GPU that no visible process holds.
    HeldMemory = "held_memory",
    /// Heat lowers the clock of a GPU.
    Thermal = "thermal",
    /// The power supply lowers the clock of a GPU.
    PowerBrake = "power_brake",
    /// The hardware lowers the clock of a GPU without a reason.
    Slowdown = "slowdown",
    /// Errors or pending repairs of the memory of a GPU.
    MemoryErrors = "memory_errors",
    /// The driver reported an Xid.
    Xid = "xid",
    /// A GPU cannot be read any more.
    GpuLost = "gpu_lost",
    /// NVLinks of a GPU are down.
    NvlinkDown = "nvlink_down",
    /// A GPU has fewer PCIe lanes than it could.
    PcieNarrow = "pcie_narrow",
    /// A virtual GPU without a license.
    Unlicensed = "unlicensed",
    /// A process on a GPU is a zombie, or cannot be killed.
    StuckProcess = "stuck_process",
    /// A node does not answer, or refuses the connection.
    NodeUnreachable = "node_unreachable",
    /// The GPU driver of a node does not answer.
    DriverHang = "driver_hang",
    /// No GPU of a node can be read, although a job has some.
    NoGpu = "no_gpu",
    /// A pending job will not start by itself.
    PendingForever = "pending_forever",
    /// A job is about to reach its time limit.
    TimeLimit = "time_limit",
    /// A job ended abnormally.
    Failed = "failed",
    /// The log of a job has a message that explains a problem.
    LogMessage = "log_message",
    /// Communication between its GPUs limits a job.
    CommunicationBound = "communication_bound",
    /// The bandwidth of the GPUs' memory limits a job.
    MemoryBound = "memory_bound",
    /// The GPUs of a job on a node are slower than others of their model.
    SlowerThanModel = "slower_than_model",
    /// A process outside of a job uses its GPUs, or a GPU that no job has.
    OutsideJob = "outside_job",
    /// The clock of a node is wrong.
    ClockSkew = "clock_skew",
    /// A rule of the settings holds.
    CustomRule = "custom_rule",
}

impl FindingKind {
    /// Returns whether it is about a node as a whole: it affects every job there, and its texts name none.
    pub fn is_of_node(self) -> bool {
        matches!(
            self,
            Self::NodeUnreachable
                | Self::DriverHang
                | Self::NoGpu
                | Self::HostMemory
                | Self::Swapping
                | Self::DiskFull
                | Self::ClockSkew
        )
    }

    /// Returns whether it is about an event, which expires, and not about a condition, which ends.
    pub fn is_event(self) -> bool {
        matches!(self, Self::Failed | Self::Xid)
    }

    /// Returns the kind with a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.name() == name)
    }
}

/// Severity of a finding, least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum FindingSeverity {
    /// Information; no work is lost.
    Info,
    /// Work goes on, but slower or at risk, or GPUs are wasted.
    Warning,
    /// Work stands still, or results may be wrong.
    Error,
}

impl FindingSeverity {
    /// Returns its name in the API and in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = ReportFinding))]
pub struct Finding {
    /// Kind and subject, the same for as long as it lasts: `straggler/17/GPU-2f…`.
    pub key: Text,
    /// Kind.
    pub kind: FindingKind,
    /// Severity.
    pub severity: FindingSeverity,
    /// Confidence in %.
    pub confidence_pct: u8,
    /// Jobs that it affects; empty for a machine without a job.
    pub jobs: Vec<JobId>,
    /// Nodes on which it was found.
    pub nodes: Vec<NodeName>,
    /// GPUs that it is about.
    pub gpus: Vec<FindingGpu>,
    /// The problem and its place, one sentence without a full stop.
    pub title: LongText,
    /// The problem in a few words: `GPU 3 too hot`.
    pub reason: Text,
    /// The numbers that show it, a statement each.
    pub evidence: Vec<Text>,
    /// Advice on how to solve it.
    pub advice: LongText,
    /// When it began, in ms since 1970 by the login node's clock.
    pub since_ms: u64,
    /// Whether it may have begun earlier, before it could be seen.
    pub or_earlier: bool,
    /// When it was found, in ms since 1970.
    pub found_ms: u64,
    /// When it ended, in ms since 1970; `None` while it lasts.
    pub ended_ms: Option<u64>,
    /// Until when it is silenced, in ms since 1970; `None` if it is not.
    #[serde(default)]
    pub silenced_until_ms: Option<u64>,
    /// Number of GPUs that do no useful work because of it.
    pub wasted_gpus: u32,
    /// The places of the job's processes when it began, if captured; never sent to guests.
    #[serde(default)]
    pub capture: Option<Box<FindingCapture>>,
}

/// A time in which some findings are not reported: listed as silenced, and never a notice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Silence {
    /// The kind that is silenced; all kinds if absent.
    #[serde(default)]
    pub kind: Option<FindingKind>,
    /// The job, array or heterogeneous job that is silenced; everything if absent.
    #[serde(default)]
    pub job: Option<JobId>,
    /// When it ends, in ms since 1970.
    pub until_ms: u64,
}

/// Silences findings for a time from now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SilenceRequest {
    /// See [`Silence::kind`]; kind or job must be present.
    #[serde(default)]
    pub kind: Option<FindingKind>,
    /// See [`Silence::job`].
    #[serde(default)]
    pub job: Option<JobId>,
    /// For how long, in s; 0 ends the silence of this kind and job.
    pub for_s: u32,
}

impl Silence {
    /// Maximum number of silences.
    pub const MAX: usize = 64;
    /// Longest time of a silence, in s: thirty days.
    pub const MAX_S: u32 = 30 * 86_400;

    /// Returns whether it silences a finding. A finding that also affects other jobs is not silenced. `whole` returns
    /// the array or heterogeneous job that a job is a part of.
    pub fn covers(&self, finding: &Finding, whole: impl Fn(JobId) -> Option<JobId>) -> bool {
        let is_of = |affected: JobId, job| affected == job || whole(affected) == Some(job);
        let is_of_job =
            |job| !finding.jobs.is_empty() && finding.jobs.iter().all(|affected| is_of(*affected, job));
        self.kind.is_none_or(|kind| kind == finding.kind) && self.job.is_none_or(is_of_job)
    }
}

/// A GPU that a finding is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FindingGpu {
    /// Its node.
    pub node: NodeName,
    /// Its UUID.
    pub uuid: GpuUuid,
    /// The metric whose graph shows it, by name in the catalogue.
    pub metric: Option<Text>,
}

/// Compares findings for display: active ones first, warnings and errors before remarks, problems that can still be
/// solved before failures of ended jobs, then by severity and by the number of wasted GPUs.
pub fn order(a: &Finding, b: &Finding) -> Ordering {
    let rank = |finding: &Finding| {
        let severity = Reverse(finding.severity);
        (
            !finding.is_active(),
            finding.severity == FindingSeverity::Info,
            finding.kind == FindingKind::Failed,
            severity,
            Reverse(finding.wasted_gpus),
            Reverse(finding.ended_ms),
            finding.since_ms,
        )
    };
    rank(a).cmp(&rank(b)).then_with(|| a.key.cmp(&b.key))
}

impl Finding {
    /// Returns whether it still lasts.
    pub fn is_active(&self) -> bool {
        self.ended_ms.is_none()
    }

    /// Returns the GPU-hours lost to it by `now_ms`, in ms since 1970.
    pub fn wasted_gpu_hours(&self, now_ms: u64) -> f64 {
        gpu_hours(self.wasted_gpus, self.since_ms, self.ended_ms.unwrap_or(now_ms))
    }
}

/// Returns the GPU-hours of `gpus` GPUs from `since_ms` to `until_ms`.
pub fn gpu_hours(gpus: u32, since_ms: u64, until_ms: u64) -> f64 {
    f64::from(gpus) * until_ms.saturating_sub(since_ms) as f64 / 3_600_000.0
}

impl FindingGpu {
    /// A GPU whose graph of `field` shows the finding.
    pub fn new(node: &NodeName, uuid: &GpuUuid, field: Option<GpuField>) -> Self {
        use crate::field::Field as _;
        let metric = field.map(|field| Text::new(field.metric().name));
        Self { node: node.clone(), uuid: uuid.clone(), metric }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_kind_is_that_of_its_json_form() {
        for kind in FindingKind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
            assert_eq!(FindingKind::from_name(kind.name()), Some(*kind));
        }
        assert_eq!(FindingKind::from_name("none"), None);
    }
}
