//! The picture is what one viewer knows now of one topic: jobs, nodes, their GPUs, processes and past.

pub use crate::gpu::{GpuFacts, GpuHealth, GpuPath};
pub use crate::process::{ProcessFacts, ProcessGap};

use crate::ask::AuditEntry;
use crate::cell::{Field as _, ROW_WIDTH, Row};
use crate::job::Job;
use crate::share::Sharing;
use crate::trace::{Trace, TracePoint};
use crate::{Cell, GpuField, GpuUuid, HostField, JobField, JobId, NodeName, ProcessField, Reading, Text};
use serde::{Deserialize, Serialize};

/// Everything a topic tells. Nodes keep one order, which the positional deltas refer to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Picture {
    /// The relay's clock at the last update, in ms (see [`crate::live::CLOCK_STARTS_AT_MS`]). Every
    /// `…at_ms` is of this clock.
    pub at_ms: u64,
    /// The relay itself; only in [`crate::live::Topic::Overview`].
    pub relay: RelayStatus,
    /// Jobs, running first; only in [`crate::live::Topic::Overview`].
    pub jobs: Vec<Job>,
    /// What was done for the owner, oldest first; only in [`crate::live::Topic::Overview`].
    #[serde(rename = "deeds")]
    pub audit_log: Vec<AuditEntry>,
    /// Who may look, and who does; told to the owner only, by the overview.
    pub sharing: Sharing,
    /// Nodes of this topic.
    pub nodes: Vec<NodePicture>,
}

/// What is known of one node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodePicture {
    /// Its name in SLURM or in the host list.
    pub name: NodeName,
    /// Link and facts.
    pub head: NodeHead,
    /// When the newest sample was taken, by the relay's clock.
    pub sampled_at_ms: Option<u64>,
    /// GPUs and MIG instances in NVML's order.
    pub gpus: Vec<GpuPicture>,
    /// Host readings.
    pub host: Row<HostField>,
    /// Processes on its GPUs.
    pub processes: Vec<ProcessPicture>,
    /// What each job uses of it.
    #[serde(rename = "uses")]
    pub job_usage: Vec<JobUsagePicture>,
    /// Busy share of each CPU in %; only in [`crate::live::Topic::Node`].
    pub cores: Vec<u8>,
    /// The past of [`GpuPicture`]s and host, if this topic carries it.
    #[serde(rename = "past")]
    pub history: Option<History>,
}

/// What changes rarely of a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeHead {
    /// The link to its probe.
    pub link: Link,
    /// What the probe said of the host, once it did.
    pub facts: Option<NodeFacts>,
    /// Why there are no GPUs to show (`no NVIDIA driver: …`), if so.
    pub no_gpu: Option<Text>,
    /// For how long the NVML call in flight has not returned, in ms, if it hangs.
    pub nvml_stuck_ms: Option<u64>,
    /// Things to know that are no fault: shell noise skipped, lines lost, a probe of another build.
    pub notes: Vec<Text>,
    /// What happened to its GPUs, oldest first: Xid errors, a GPU lost or back.
    pub events: Vec<GpuEvent>,
    /// Time between samples now, in ms.
    pub interval_ms: u32,
    /// Jobs on it that have none of its GPUs, as SLURM says, in ascending order. A job that is neither here nor among the
    /// owners of a GPU may have any of them.
    pub without_gpus: Vec<JobId>,
}

/// Host facts of [`crate::probe::Hello`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeFacts {
    /// `uname -n`.
    pub host: Text,
    /// Kernel release.
    pub kernel: Text,
    /// Driver version.
    pub driver: Reading<Text>,
    /// CUDA version the driver supports.
    pub cuda: Reading<Text>,
    /// Number of CPUs.
    pub cpus: u32,
    /// Model of its CPUs.
    pub cpu_model: Text,
    /// Where its scratch disk is mounted, if it has one.
    pub scratch: Option<Text>,
    /// How each GPU reaches each other one, by positions among those that are no MIG instance.
    pub topology: Vec<Vec<GpuPath>>,
}

/// Something that happened to a GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuEvent {
    /// When, by the relay's clock.
    pub at_ms: u64,
    /// The GPU, if it is known which.
    pub gpu: Option<GpuUuid>,
    /// Xid number, if it is one.
    pub xid: Option<u64>,
    /// One sentence.
    pub text: Text,
}

/// The link to a node's probe, with what is then known.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Link {
    /// Not tried yet.
    #[default]
    Waiting,
    /// A probe is being started.
    Connecting {
        /// How many tries failed before.
        failures: u32,
    },
    /// Lines are coming in.
    Live,
    /// Nothing for three intervals; values are shown with their age.
    Late,
    /// Nothing for 15 s; values are shown grey.
    Silent,
    /// The link is down and will be tried again.
    Down {
        /// What went wrong, one sentence.
        why: Text,
        /// When the next try is due, by the relay's clock.
        retry_at_ms: u64,
    },
    /// It needs the user: authentication or a host key. Not tried again by itself.
    Refused {
        /// What went wrong, one sentence.
        why: Text,
        /// What to do about it, one sentence.
        advice: Text,
    },
    /// No job of the user's is on it any more; the last picture stays.
    Ended,
}

/// One GPU or MIG instance.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GpuPicture {
    /// What does not change.
    pub facts: GpuFacts,
    /// Jobs that have it, and how that is known.
    pub owners: Vec<Owner>,
    /// Why it cannot be read (`GPU is lost`), if so.
    pub fault: Option<Text>,
    /// How well it is.
    pub health: GpuHealth,
    /// Readings.
    pub row: Row<GpuField>,
    /// Why processes of it, or of its instances, may be missing from the node's; only in topics that tell of processes.
    pub gaps: Vec<ProcessGap>,
}

/// A job that has a GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// The job.
    pub job: JobId,
    /// How it is known.
    pub by: Evidence,
}

/// How it is known that a GPU belongs to a job, surest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Evidence {
    /// SLURM's GRES index is the GPU's minor number.
    GresIndex,
    /// A process of the job runs on it.
    Process,
    /// The job has every GPU of the node.
    WholeNode,
}

/// One process on one GPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcessPicture {
    /// Who it is.
    pub facts: ProcessFacts,
    /// Readings.
    pub row: Row<ProcessField>,
}

/// What a job uses of a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobUsagePicture {
    /// The job.
    pub job: JobId,
    /// Readings.
    pub row: Row<JobField>,
}

/// What the relay says of itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RelayStatus {
    /// The job list.
    pub jobs: JobsHealth,
    /// Connected pages, this one included.
    pub viewers: u32,
    /// CPU time the relay used so far, in ms (`CLOCK_PROCESS_CPUTIME_ID`).
    pub cpu_ms: u64,
    /// Frames that slow viewers did not get one by one.
    pub coalesced: u64,
}

/// How good the job list is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobsHealth {
    /// Not asked yet.
    #[default]
    NotYet,
    /// No SLURM here: the relay watches machines, not jobs.
    NoSlurm,
    /// It answered.
    Fresh {
        /// When, by the relay's clock.
        at_ms: u64,
    },
    /// It did not answer; the last list is shown.
    Stale {
        /// When it last answered, if ever.
        last_ms: Option<u64>,
        /// What went wrong, one sentence.
        why: Text,
        /// When it is asked again, by the relay's clock.
        retry_at_ms: u64,
    },
}

/// The recent past of a node's rows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct History {
    /// Whether only the first of [`History::GPU_FIELDS`] is told: a glance at the past.
    #[serde(rename = "glance")]
    pub is_summary: bool,
    /// For each GPU, in order, one trace for each of [`History::GPU_FIELDS`].
    pub gpus: Vec<[Trace; History::GPU_FIELDS.len()]>,
    /// One trace for each of [`History::HOST_FIELDS`].
    pub host: [Trace; History::HOST_FIELDS.len()],
}

/// The cells of a GPU at a moment, of [`History::GPU_FIELDS`].
pub type GpuHistoryCells = [Cell; History::GPU_FIELDS.len()];
/// The cells of a host at a moment, of [`History::HOST_FIELDS`].
pub type HostHistoryCells = [Cell; History::HOST_FIELDS.len()];

/// What a past keeps of a sample.
#[derive(Clone, Debug)]
pub struct HistorySample {
    /// When it was taken, by the relay's clock.
    pub at_ms: u64,
    /// See [`NodePicture::hold_ms`].
    pub hold_ms: u64,
    /// Of each GPU.
    pub gpus: Box<[GpuHistoryCells]>,
    /// Of the host.
    pub host: HostHistoryCells,
}

impl History {
    /// The GPU fields whose past is kept.
    pub const GPU_FIELDS: [GpuField; 7] = [
        GpuField::Util,
        GpuField::MemUsed,
        GpuField::Power,
        GpuField::Temp,
        GpuField::SmClock,
        GpuField::Throttle,
        GpuField::SmActive,
    ];
    /// GPU fields that stay or only grow; of the others an earlier moment is not known unless their past is kept.
    const STABLE_FIELDS: [GpuField; 7] = [
        GpuField::EccUncorrected,
        GpuField::EccCorrected,
        GpuField::PowerLimit,
        GpuField::MemReserved,
        GpuField::MemTotal,
        GpuField::Energy,
        GpuField::Fan,
    ];
    /// The host fields whose past is kept.
    pub const HOST_FIELDS: [HostField; 2] = [HostField::Cpu, HostField::MemUsed];

    /// Enters the current cells of a node at `at_ms`.
    pub fn push(&mut self, at_ms: u64, gpus: &[GpuPicture], host: &Row<HostField>, hold_ms: u64) {
        let gpus = gpus.iter().map(|gpu| Self::of_gpu(&gpu.row));
        self.push_cells(at_ms, gpus, Self::of_host(host), hold_ms);
    }

    /// Enters the cells of a moment.
    fn push_cells(
        &mut self,
        at_ms: u64,
        gpus: impl ExactSizeIterator<Item = GpuHistoryCells>,
        host: HostHistoryCells,
        hold_ms: u64,
    ) {
        self.gpus.resize_with(gpus.len(), Default::default);
        let kept = if self.is_summary { 1 } else { Self::GPU_FIELDS.len() };
        for (traces, cells) in self.gpus.iter_mut().zip(gpus) {
            for (trace, cell) in traces.iter_mut().zip(cells).take(kept) {
                trace.push(at_ms, cell, hold_ms);
            }
        }
        if self.is_summary {
            return;
        }
        for (trace, cell) in self.host.iter_mut().zip(host) {
            trace.push(at_ms, cell, hold_ms);
        }
    }

    /// Enters what was sampled at moments that may be earlier than the newest; each trace is laid open once for all.
    pub fn extend(&mut self, samples: &[HistorySample]) {
        let gpus = samples.iter().map(|sample| sample.gpus.len()).max().unwrap_or(0);
        if gpus > self.gpus.len() {
            self.gpus.resize_with(gpus, Default::default);
        }
        let point =
            |sample: &HistorySample, cell| TracePoint { at_ms: sample.at_ms, hold_ms: sample.hold_ms, cell };
        for (gpu, traces) in self.gpus.iter_mut().enumerate() {
            for (field, trace) in traces.iter_mut().enumerate() {
                let known = samples.iter().filter_map(|sample| Some((sample, sample.gpus.get(gpu)?)));
                trace.extend(known.map(|(sample, cells)| point(sample, cells[field])));
            }
        }
        for (field, trace) in self.host.iter_mut().enumerate() {
            trace.extend(samples.iter().map(|sample| point(sample, sample.host[field])));
        }
    }

    /// What is kept of a GPU's row.
    pub fn of_gpu(row: &Row<GpuField>) -> GpuHistoryCells {
        Self::GPU_FIELDS.map(|field| row.get(field))
    }

    /// What is kept of a host's row.
    pub fn of_host(row: &Row<HostField>) -> HostHistoryCells {
        Self::HOST_FIELDS.map(|field| row.get(field))
    }

    /// The past that a glance tells: of each GPU the first field.
    pub fn summary(&self) -> Self {
        let first = |traces: &[Trace; Self::GPU_FIELDS.len()]| {
            let mut summary: [Trace; Self::GPU_FIELDS.len()] = Default::default();
            summary[0].clone_from(&traces[0]);
            summary
        };
        Self { is_summary: true, gpus: self.gpus.iter().map(first).collect(), host: Default::default() }
    }

    /// About how many bytes it is told in.
    pub fn encoded_len(&self) -> usize {
        self.gpus.iter().flatten().chain(&self.host).map(Trace::encoded_len).sum()
    }

    /// The trace of a GPU's field, if it is kept.
    pub fn gpu(&self, gpu: usize, field: GpuField) -> Option<&Trace> {
        let column = Self::GPU_FIELDS.iter().position(|kept| *kept == field)?;
        self.gpus.get(gpu).map(|traces| &traces[column])
    }
}

impl NodePicture {
    /// A node of which nothing is known yet.
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

    /// How many rows the positional deltas see: GPUs, then the host, then processes, then what jobs use.
    pub fn row_count(&self) -> usize {
        self.gpus.len() + 1 + self.processes.len() + self.job_usage.len()
    }

    /// The cells of a row by position.
    pub fn row(&self, index: usize) -> Option<&[Cell; ROW_WIDTH]> {
        let (gpus, processes) = (self.gpus.len(), self.processes.len());
        match index {
            i if i < gpus => Some(self.gpus[i].row.cells()),
            i if i == gpus => Some(self.host.cells()),
            i if i <= gpus + processes => Some(self.processes[i - gpus - 1].row.cells()),
            i => self.job_usage.get(i - gpus - processes - 1).map(|usage| usage.row.cells()),
        }
    }

    /// The cells of a row by position, to change.
    pub fn row_mut(&mut self, index: usize) -> Option<&mut [Cell; ROW_WIDTH]> {
        let (gpus, processes) = (self.gpus.len(), self.processes.len());
        match index {
            i if i < gpus => Some(self.gpus[i].row.cells_mut()),
            i if i == gpus => Some(self.host.cells_mut()),
            i if i <= gpus + processes => Some(self.processes[i - gpus - 1].row.cells_mut()),
            i => self.job_usage.get_mut(i - gpus - processes - 1).map(|usage| usage.row.cells_mut()),
        }
    }

    /// How long a value stays on the time grid without a new sample: 2.5 intervals.
    pub fn hold_ms(&self) -> u64 {
        u64::from(self.head.interval_ms.max(1_000)) * 5 / 2
    }

    /// Goes back to how it was at `at_ms`, as far as its past tells; what it does not tell is not yet known again.
    pub fn rewind(&mut self, at_ms: u64) {
        let Some(history) = self.history.as_mut().filter(|_| self.sampled_at_ms.is_some_and(|at| at > at_ms))
        else {
            return;
        };
        for (gpu, traces) in self.gpus.iter_mut().zip(&mut history.gpus) {
            for field in GpuField::ALL.iter().filter(|field| !History::STABLE_FIELDS.contains(field)) {
                gpu.row.set(*field, Cell::NOT_YET);
            }
            for (trace, field) in traces.iter_mut().zip(History::GPU_FIELDS) {
                trace.rewind(at_ms).into_iter().for_each(|cell| gpu.row.set(field, cell));
            }
        }
        for field in HostField::ALL.iter().filter(|field| !field.name().contains("_total_")) {
            self.host.set(*field, Cell::NOT_YET);
        }
        for (trace, field) in history.host.iter_mut().zip(History::HOST_FIELDS) {
            trace.rewind(at_ms).into_iter().for_each(|cell| self.host.set(field, cell));
        }
        self.cores.clear();
        self.sampled_at_ms = Some(at_ms);
    }

    /// Notes that every row was sampled at `at_ms`, whether it changed or not.
    pub fn sampled(&mut self, at_ms: u64) {
        self.sampled_at_ms = Some(at_ms);
        let hold_ms = self.hold_ms();
        if let Some(history) = &mut self.history {
            history.push(at_ms, &self.gpus, &self.host, hold_ms);
        }
    }
}

/// What an update touched, so that a page renews no more than that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Touched {
    /// The job list.
    Jobs,
    /// The relay's status.
    Relay,
    /// What was done for the owner.
    AuditLog,
    /// [`Picture::sharing`].
    Sharing,
    /// Which nodes there are.
    Nodes,
    /// A node's head.
    Head(usize),
    /// Which GPUs a node has, or to whom they belong.
    Gpus(usize),
    /// The health of a node's GPUs.
    Health(usize),
    /// Which processes a node has.
    Processes(usize),
    /// Which jobs use a node.
    JobUsage(usize),
    /// A node's CPUs one by one.
    Cores(usize),
    /// A node's past as a whole.
    History(usize),
    /// Cells of a row of a node.
    Row(usize, usize),
    /// A node was sampled; comes after its `Row`s.
    Sampled(usize),
}

/// Why a delta cannot be applied; the viewer asks for a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// The delta speaks of a node, GPU or process that this picture does not have.
    #[error("apply a delta: it speaks of {0} that is not in the picture")]
    Unknown(&'static str),
    /// The packed cells end early or make no sense.
    #[error("apply a delta: its cells are broken")]
    Broken,
}

impl Picture {
    /// A node by position.
    pub(crate) fn node_mut(&mut self, index: u32) -> Result<&mut NodePicture, ApplyError> {
        self.nodes.get_mut(index as usize).ok_or(ApplyError::Unknown("a node"))
    }

    /// A node by name.
    pub fn node(&self, name: &NodeName) -> Option<&NodePicture> {
        self.nodes.iter().find(|node| node.name == *name)
    }
}
