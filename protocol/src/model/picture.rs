//! The picture is a viewer's state of one topic: jobs, nodes, their GPUs, processes and history.

pub use crate::gpu::{GpuFacts, GpuHealth, GpuPath};
pub use crate::history::{GpuHistoryCells, History, HistorySample, HostHistoryCells, Traces};
pub use crate::process::{ProcessFacts, ProcessGap};
pub use crate::source::{SourceState, SourceVersions};

use crate::cluster::ClusterSummary;
use crate::field::{Field, FullScale, ROW_WIDTH, Row};
use crate::finding::Finding;
use crate::insight::JobInsight;
use crate::job::Job;
use crate::note::Note;
use crate::replay::ReplayStatus;
use crate::request::AuditEntry;
use crate::share::Sharing;
use crate::trace::Trace;
use crate::{Cell, GpuField, GpuUuid, HostField, JobField, JobId, NodeName, ProcessField, Text, Vendor};
use serde::{Deserialize, Serialize};

/// State of one topic. Deltas refer to nodes by position.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Picture {
    /// The relay's clock at the last update, in ms (see [`crate::live::CLOCK_STARTS_AT_MS`]). All
    /// `…at_ms` fields use this clock.
    pub at_ms: u64,
    /// Status of the relay; only in [`crate::live::Topic::Overview`].
    pub relay: RelayStatus,
    /// Jobs, running first; only in [`crate::live::Topic::Overview`].
    pub jobs: Vec<Job>,
    /// Actions performed for the owner, oldest first; only in [`crate::live::Topic::Overview`].
    pub audit_log: Vec<AuditEntry>,
    /// Active shares and connected viewers; sent to the owner only, in the overview.
    pub sharing: Sharing,
    /// Nodes of this topic.
    pub nodes: Vec<NodePicture>,
    /// Notes of this topic, by time. The overview has the notes of the whole cluster; a job and a node also have
    /// their own, and a node those of the jobs on it.
    #[serde(default)]
    pub notes: Vec<Note>,
    /// Findings about the content of the topic, in the order of [`crate::finding::order`]: active ones, and those
    /// that ended within the last hour.
    #[serde(default)]
    pub findings: Vec<Finding>,
    /// Further conclusions about running jobs, by id; sent to the owner only, in the overview.
    #[serde(default)]
    pub insights: Vec<JobInsight>,
}

/// State of one node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodePicture {
    /// Name in SLURM or in the host list.
    pub name: NodeName,
    /// Connection state and facts.
    pub head: NodeHead,
    /// Time of the newest sample, by the relay's clock.
    pub sampled_at_ms: Option<u64>,
    /// GPUs and MIG instances in the order of [`crate::probe::Hello::gpus`].
    pub gpus: Vec<GpuPicture>,
    /// Host readings.
    pub host: Row<HostField>,
    /// Processes on its GPUs.
    pub processes: Vec<ProcessPicture>,
    /// Resource usage per job.
    pub job_usage: Vec<JobUsagePicture>,
    /// Utilization of each CPU in %; only in [`crate::live::Topic::Node`].
    pub cores: Vec<u8>,
    /// History of GPUs and host, if included.
    pub history: Option<History>,
}

/// Rarely changing state of a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeHead {
    /// Connection to its probe.
    pub link: Link,
    /// Host facts, once the probe has sent them.
    pub facts: Option<NodeFacts>,
    /// Reason for the absence of GPUs (`the NVIDIA driver is not loaded: …`).
    pub no_gpu: Option<Text>,
    /// Duration of the current driver call in ms, if no source responds.
    pub driver_stuck_ms: Option<u64>,
    /// Notes that are not faults: skipped shell output, lost lines, a probe of another build.
    pub notes: Vec<Text>,
    /// GPU events, oldest first: Xid errors, a GPU lost or recovered.
    pub events: Vec<GpuEvent>,
    /// Current sampling interval in ms.
    pub interval_ms: u32,
    /// Jobs on it without any of its GPUs according to SLURM, in ascending order. A job that is
    /// neither listed here nor an owner of a GPU may have any GPU.
    pub without_gpus: Vec<JobId>,
    /// Group in the list of machines, if any.
    pub group: Option<Text>,
}

/// Host facts of [`crate::probe::Hello`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeFacts {
    /// `uname -n`.
    pub host: Text,
    /// Kernel release.
    pub kernel: Text,
    /// State of each source of accelerators.
    pub sources: Vec<SourceState>,
    /// Number of CPUs.
    pub cpus: u32,
    /// Model of its CPUs.
    pub cpu_model: Text,
    /// Mount point of its scratch disk, if any.
    pub scratch: Option<Text>,
    /// Connection between each pair of GPUs, indexed by position without MIG instances.
    pub topology: Vec<Vec<GpuPath>>,
}

impl NodeFacts {
    /// Returns the vendor and versions of each available source.
    pub fn drivers(&self) -> impl Iterator<Item = (Vendor, &SourceVersions)> {
        self.sources.iter().filter_map(|source| Some((source.vendor, source.versions()?)))
    }

    /// Returns how many accelerators the node's device cgroups admit and why, unless they admit all.
    pub fn confinement(&self) -> Option<&Text> {
        self.sources.iter().find_map(SourceState::confinement)
    }

    /// Returns the reasons for unavailable sources that concern the accelerators of this node: NVIDIA's driver is
    /// expected only if the node has no other accelerators.
    pub fn absent_accelerators(&self) -> impl Iterator<Item = &Text> {
        let is_expected = self.drivers().next().is_none();
        let sources =
            self.sources.iter().filter(move |source| is_expected || source.vendor != Vendor::Nvidia);
        sources.filter_map(SourceState::absent_reason)
    }
}

impl NodeHead {
    /// Returns the vendor of the node's accelerators; unknown if there are several.
    pub fn vendor(&self) -> Vendor {
        let sources = self.facts.as_ref().map_or(&[][..], |facts| &facts.sources);
        let known: Vec<_> = sources.iter().filter(|source| source.vendor != Vendor::Unknown).collect();
        let ready: Vec<_> = known.iter().filter(|source| source.versions().is_some()).collect();
        match (&*ready, &*known) {
            // A driver that hangs from the start is not ready.
            ([only], _) => only.vendor,
            ([], [only]) => only.vendor,
            _ => Vendor::Unknown,
        }
    }
}

/// A GPU event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuEvent {
    /// Time by the relay's clock.
    pub at_ms: u64,
    /// The GPU, if known.
    pub gpu: Option<GpuUuid>,
    /// Xid number, if it is one.
    pub xid: Option<u64>,
    /// Message for the user.
    pub text: Text,
}

/// Connection state of a node's probe.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Link {
    /// Not attempted yet.
    #[default]
    Waiting,
    /// A probe is being started.
    Connecting {
        /// Number of failed attempts before this one.
        failures: u32,
    },
    /// Lines are received on schedule.
    Live,
    /// No line for about three intervals, or for 12 s if they are longer; the page shows the age of values.
    Late,
    /// No line for 15 s; the page greys out values.
    Silent,
    /// Disconnected; will be retried.
    Down {
        /// Error message.
        reason: Text,
        /// Time of the next attempt, by the relay's clock.
        retry_at_ms: u64,
    },
    /// Needs the user: authentication failed or the host key is not trusted. Not retried
    /// automatically.
    Refused {
        /// Error message.
        reason: Text,
        /// Suggested remedy.
        advice: Text,
    },
    /// The user's jobs on the node have ended; the last state is kept.
    Ended,
}

/// One GPU or MIG instance.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GpuPicture {
    /// Static facts.
    pub facts: GpuFacts,
    /// Jobs that own it, with the evidence.
    pub owners: Vec<Owner>,
    /// Reason why it cannot be read (`GPU is lost`), if so.
    pub fault: Option<Text>,
    /// Health.
    pub health: GpuHealth,
    /// Readings.
    pub row: Row<GpuField>,
    /// Reasons why processes of it or its instances may be missing; only in topics with processes.
    pub gaps: Vec<ProcessGap>,
}

/// A job that owns a GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// The job.
    pub job: JobId,
    /// The evidence.
    pub by: Evidence,
}

/// Evidence that a GPU belongs to a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Evidence {
    /// SLURM's GRES index is the GPU's minor number.
    GresIndex,
    /// A process of the job runs on it.
    Process,
    /// The job has every GPU of the node.
    WholeNode,
    /// The job's device cgroup admits its processes to it; stronger than a process.
    DeviceCgroup,
    /// The environment of the job's processes names it; weaker than all others.
    VisibleDevices,
}

/// One process on one GPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcessPicture {
    /// Static facts.
    pub facts: ProcessFacts,
    /// Readings.
    pub row: Row<ProcessField>,
}

/// Resource usage of a job on a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobUsagePicture {
    /// The job.
    pub job: JobId,
    /// Readings.
    pub row: Row<JobField>,
}

/// Status of the relay.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RelayStatus {
    /// State of the job list.
    pub jobs: JobsHealth,
    /// Connected pages, this one included.
    pub viewers: u32,
    /// CPU time used by the relay, in ms (`CLOCK_PROCESS_CPUTIME_ID`).
    pub cpu_ms: u64,
    /// Number of frames coalesced for slow viewers.
    pub coalesced: u64,
    /// The launcher of probes; `None` for guests.
    pub launcher: Option<LauncherStatus>,
    /// Problems with the list of machines, that the history cannot be stored or is still being read; complete sentences, owner only.
    pub notices: Vec<Text>,
    /// Nodes and GPUs of the cluster, if jobs of several users are watched; owner only.
    #[serde(default)]
    pub cluster: Option<ClusterSummary>,
    /// The recording that is being played; `None` for a live cluster.
    #[serde(default)]
    pub replay: Option<ReplayStatus>,
    /// Names of the clusters that a view-only relay has found over NATS, at most 16, sorted; empty for other relays, owner only.
    #[serde(default)]
    pub clusters: Vec<Text>,
}

/// The launcher with which a relay starts probes on nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LauncherStatus {
    /// `ssh2` (built-in SSH), `openssh` (the system's ssh), `srun` (job steps), `local` (child processes), `scripted`.
    pub name: Text,
    /// Reason for replacing the launcher that was tried first, a complete sentence.
    pub reason: Option<Text>,
}

/// State of the job list.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobsHealth {
    /// Not queried yet.
    #[default]
    NotYet,
    /// No SLURM: the relay monitors machines, not jobs.
    NoSlurm,
    /// The last query succeeded.
    Fresh {
        /// Time by the relay's clock.
        at_ms: u64,
    },
    /// The last query failed; the previous list is shown.
    Stale {
        /// Time of the last successful query, if any.
        last_ms: Option<u64>,
        /// Error message.
        reason: Text,
        /// Time of the next query, by the relay's clock.
        retry_at_ms: u64,
    },
}

impl GpuPicture {
    /// Returns whether a job owns it.
    pub fn is_owned_by(&self, job: JobId) -> bool {
        self.owners.iter().any(|owner| owner.job == job)
    }

    /// Returns the value that fills the scale of a field, in its unit, if it is known.
    pub fn full_scale(&self, field: GpuField) -> Option<u64> {
        match field.metric().full_scale {
            FullScale::None => None,
            FullScale::Constant(value) => Some(value),
            FullScale::Field(whole) => self.row.value(whole),
            FullScale::Limit(limit) => self.facts.limit(limit),
        }
    }
}

impl NodePicture {
    /// Creates a node without any state.
    pub fn new(name: NodeName) -> Self {
        Self {
            name,
            head: NodeHead::default(),
            sampled_at_ms: None,
            gpus: Vec::new(),
            host: Row::default(),
            processes: Vec::new(),
            job_usage: Vec::new(),
            cores: Vec::new(),
            history: None,
        }
    }

    /// Number of rows that deltas refer to: GPUs, then the host, then processes, then job usage.
    pub fn row_count(&self) -> usize {
        self.gpus.len() + 1 + self.processes.len() + self.job_usage.len()
    }

    /// Borrows the cells of a row by position.
    pub fn row(&self, index: usize) -> Option<&[Cell; ROW_WIDTH]> {
        let (gpus, processes) = (self.gpus.len(), self.processes.len());
        match index {
            i if i < gpus => Some(self.gpus[i].row.cells()),
            i if i == gpus => Some(self.host.cells()),
            i if i <= gpus + processes => Some(self.processes[i - gpus - 1].row.cells()),
            i => self.job_usage.get(i - gpus - processes - 1).map(|usage| usage.row.cells()),
        }
    }

    /// Mutably borrows the cells of a row by position.
    pub fn row_mut(&mut self, index: usize) -> Option<&mut [Cell; ROW_WIDTH]> {
        let (gpus, processes) = (self.gpus.len(), self.processes.len());
        match index {
            i if i < gpus => Some(self.gpus[i].row.cells_mut()),
            i if i == gpus => Some(self.host.cells_mut()),
            i if i <= gpus + processes => Some(self.processes[i - gpus - 1].row.cells_mut()),
            i => self.job_usage.get_mut(i - gpus - processes - 1).map(|usage| usage.row.cells_mut()),
        }
    }

    /// Time for which a value is held without a new sample: 2.5 intervals.
    pub fn hold_ms(&self) -> u64 {
        u64::from(self.head.interval_ms.max(1_000)) * 5 / 2
    }

    /// Restores the state at `at_ms` from the history; readings without history become not yet
    /// taken.
    pub fn rewind(&mut self, at_ms: u64) {
        let Some(history) = self.history.as_mut().filter(|_| self.sampled_at_ms.is_some_and(|at| at > at_ms))
        else {
            return;
        };
        for (gpu, traces) in self.gpus.iter_mut().zip(&mut history.gpus) {
            forget(&mut gpu.row);
            traces.rewind(at_ms).for_each(|(field, cell)| gpu.row.set(field, cell));
        }
        forget(&mut self.host);
        history.host.rewind(at_ms).for_each(|(field, cell)| self.host.set(field, cell));
        self.cores.clear();
        self.sampled_at_ms = Some(at_ms);
    }

    /// Converts its times to another clock, which reads `by_ms` more, to the nearest slot of the history.
    pub fn shift(&mut self, by_ms: i64) {
        let step_ms = Trace::STEP_MS.cast_signed();
        let slots = by_ms.saturating_add(step_ms / 2).div_euclid(step_ms);
        let later = |at_ms: u64| at_ms.saturating_add_signed(slots.saturating_mul(step_ms));
        self.sampled_at_ms = self.sampled_at_ms.map(later);
        self.head.events.iter_mut().for_each(|event| event.at_ms = later(event.at_ms));
        if let Some(history) = &mut self.history {
            history.shift(slots);
        }
    }

    /// Records that all rows were sampled at `at_ms`, whether changed or not.
    pub fn sampled(&mut self, at_ms: u64) {
        self.sampled_at_ms = Some(at_ms);
        let hold_ms = self.hold_ms();
        if let Some(history) = &mut self.history {
            history.push(at_ms, self.gpus.iter().map(|gpu| &gpu.row), &self.host, hold_ms);
        }
    }
}

/// Clears the cells of which an earlier value is not implied by the newest one.
fn forget<F: Field>(row: &mut Row<F>) {
    for field in F::ALL.iter().filter(|field| !field.metric().is_stable) {
        row.set(*field, Cell::NOT_YET);
    }
}

/// Part of a picture changed by an update, so that the page re-renders only that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChangedPart {
    /// State of the job list.
    Jobs,
    /// The relay's status.
    Relay,
    /// The audit log.
    AuditLog,
    /// [`Picture::sharing`].
    Sharing,
    /// [`Picture::notes`].
    Notes,
    /// [`Picture::findings`].
    Findings,
    /// [`Picture::insights`].
    Insights,
    /// The set of nodes.
    Nodes,
    /// A node's head.
    Head(usize),
    /// The GPUs of a node, or their owners.
    Gpus(usize),
    /// The health of a node's GPUs.
    Health(usize),
    /// The processes of a node.
    Processes(usize),
    /// The jobs that use a node.
    JobUsage(usize),
    /// Per-core CPU load of a node.
    Cores(usize),
    /// The complete history of a node.
    History(usize),
    /// Cells of one row of a node.
    Row(usize, usize),
    /// A node was sampled; reported after its `Row`s.
    Sampled(usize),
}

/// Error of applying a delta; the viewer requests a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// The delta refers to a node, GPU or process that is not in the picture.
    #[error("apply a delta: it refers to {0} that is not in the picture")]
    Unknown(&'static str),
    /// The encoded cells are truncated or invalid.
    #[error("apply a delta: its cells are invalid")]
    Broken,
}

impl Picture {
    /// Looks up a node by position.
    pub(crate) fn node_mut(&mut self, index: u32) -> Result<&mut NodePicture, ApplyError> {
        self.nodes.get_mut(index as usize).ok_or(ApplyError::Unknown("a node"))
    }

    /// Returns further conclusions about a running job.
    pub fn insight(&self, job: JobId) -> Option<&JobInsight> {
        self.insights.iter().find(|insight| insight.job == job)
    }

    /// Looks up a node by name.
    pub fn node(&self, name: &NodeName) -> Option<&NodePicture> {
        self.nodes.iter().find(|node| node.name == *name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(sources: Vec<SourceState>) -> NodeHead {
        NodeHead { facts: Some(NodeFacts { sources, ..NodeFacts::default() }), ..NodeHead::default() }
    }

    #[test]
    fn the_vendor_of_a_node_is_that_of_its_only_driver() {
        let ready = |vendor| SourceState::ready(vendor, SourceVersions::default());
        let absent = |vendor| SourceState::absent(vendor, "absent");
        let vendor = |sources| head(sources).vendor();
        assert_eq!(vendor(vec![absent(Vendor::Nvidia), ready(Vendor::Amd)]), Vendor::Amd);
        assert_eq!(vendor(vec![ready(Vendor::Nvidia), ready(Vendor::Amd)]), Vendor::Unknown);
        assert_eq!(vendor(vec![absent(Vendor::Nvidia), absent(Vendor::Unknown)]), Vendor::Nvidia);
        assert_eq!(vendor(Vec::new()), Vendor::Unknown);
    }

    #[test]
    fn a_missing_nvidia_driver_does_not_matter_beside_another() {
        let ready = SourceState::ready(Vendor::Amd, SourceVersions::default());
        let nvidia = SourceState::absent(Vendor::Nvidia, "not installed");
        let unread = SourceState::absent(Vendor::Unknown, "no source reads it");
        let reasons = |sources| {
            let head = head(sources);
            let facts = head.facts.as_ref().map(|facts| facts.absent_accelerators().map(ToString::to_string));
            facts.into_iter().flatten().collect::<Vec<_>>()
        };
        assert_eq!(reasons(vec![nvidia.clone(), ready, unread.clone()]), ["no source reads it"]);
        assert_eq!(reasons(vec![nvidia, unread]), ["not installed", "no source reads it"]);
    }
}
