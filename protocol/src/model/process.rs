//! A process on a GPU, split into static facts and changing readings.

pub use crate::field::catalogue::ProcessReadings;

use crate::{GpuUuid, JobId, LongText, Reading, Text};
use serde::{Deserialize, Serialize};

/// Static facts of a process: one entry per process and GPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcessFacts {
    /// The GPU or MIG instance.
    pub gpu: GpuUuid,
    /// Process id on the node.
    pub pid: u32,
    /// Pid of its parent (`/proc/PID/stat` field 4).
    #[serde(default)]
    pub parent: Reading<u32>,
    /// Start time in ms since 1970 by the node's clock (`/proc/PID/stat` field 22); with the pid,
    /// its identity.
    #[serde(default)]
    pub started_ms: Reading<u64>,
    /// Login name (owner of `/proc/PID`), or the uid in digits.
    #[serde(default)]
    pub user: Reading<Text>,
    /// Name (`/proc/PID/comm`); failed if the pid belongs to another pid namespace, hidden if
    /// `/proc` is mounted with `hidepid`.
    #[serde(default)]
    pub command: Reading<Text>,
    /// Beginning of the command line with secrets masked; hidden for other users' processes.
    #[serde(default)]
    pub args: Reading<Text>,
    /// Working directory (`/proc/PID/cwd`); hidden for other users' processes.
    #[serde(default)]
    pub cwd: Reading<Text>,
    /// NVML process lists that contain it.
    pub kind: ProcessKind,
    /// SLURM job id, by its cgroup (`/proc/PID/cgroup`) or its environment.
    #[serde(default)]
    pub job: Option<JobId>,
    /// Job step: `0`, `batch`, `extern`, `interactive`.
    #[serde(default)]
    pub step: Option<Text>,
    /// Rank in a parallel program; own processes only.
    #[serde(default)]
    pub rank: Option<Rank>,
    /// The container that it runs in, if any.
    #[serde(default)]
    pub container: Option<Container>,
}

impl ProcessFacts {
    /// Creates an entry for a process of which only the pid is known.
    pub fn new(gpu: GpuUuid, pid: u32, kind: ProcessKind) -> Self {
        Self {
            gpu,
            pid,
            parent: Reading::NotYet,
            started_ms: Reading::NotYet,
            user: Reading::NotYet,
            command: Reading::NotYet,
            args: Reading::NotYet,
            cwd: Reading::NotYet,
            kind,
            job: None,
            step: None,
            rank: None,
            container: None,
        }
    }
}

/// Reason why processes of a GPU may be missing from a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProcessGap {
    /// The driver does not list processes.
    Unsupported,
    /// A list could not be read this time, with the source's error; the entries shown are from the
    /// last successful read.
    Failed(Text),
    /// Number of entries omitted from the list.
    More(u32),
}

/// NVML process lists that contain an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessKind {
    /// Compute context (`C`).
    #[serde(default)]
    pub compute: bool,
    /// Graphics context (`G`).
    #[serde(default)]
    pub graphics: bool,
    /// Client of the Multi-Process Service (`M`).
    #[serde(default)]
    pub mps: bool,
}

impl ProcessKind {
    /// Lists that contain it in either.
    pub fn union(self, other: Self) -> Self {
        Self {
            compute: self.compute || other.compute,
            graphics: self.graphics || other.graphics,
            mps: self.mps || other.mps,
        }
    }

    /// Lists that contain it in both.
    pub fn intersection(self, other: Self) -> Self {
        Self {
            compute: self.compute && other.compute,
            graphics: self.graphics && other.graphics,
            mps: self.mps && other.mps,
        }
    }
}

/// Rank of a task in a parallel program, from its environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rank {
    /// `RANK`, `OMPI_COMM_WORLD_RANK`, `PMI_RANK`, `PMIX_RANK` or `SLURM_PROCID`, in this order.
    pub global: u32,
    /// `LOCAL_RANK`, `OMPI_COMM_WORLD_LOCAL_RANK`, `MPI_LOCALRANKID` or `SLURM_LOCALID`.
    pub local: Option<u32>,
    /// `WORLD_SIZE`, `OMPI_COMM_WORLD_SIZE`, `PMI_SIZE` or `SLURM_NTASKS`.
    pub world: Option<u32>,
}

/// Container of a process, from its cgroup, namespaces and environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Container {
    /// Container runtime.
    pub runtime: Runtime,
    /// Image name or short id, if known.
    pub name: Option<Text>,
}

/// Container runtimes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Runtime {
    /// Apptainer or Singularity.
    Apptainer,
    /// Enroot, usually through Pyxis.
    Enroot,
    /// Docker.
    Docker,
    /// Podman.
    Podman,
    /// Kubernetes, containerd or CRI-O.
    Kubernetes,
    /// An unrecognized runtime: its own mount and pid namespaces.
    Other,
}

/// Process states that matter to users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ProcessState {
    /// Running, runnable or sleeping (`R`, `S`, `I`), which alternate too quickly to be
    /// informative.
    Alive = 0,
    /// In uninterruptible sleep (`D`); cannot be killed.
    Uninterruptible = 1,
    /// Exited but not reaped by its parent (`Z`).
    Zombie = 2,
    /// Stopped by a signal or a debugger (`T`, `t`).
    Stopped = 3,
}

impl ProcessState {
    /// Returns the state for a letter of `/proc/PID/stat`.
    pub fn of_letter(letter: u8) -> Self {
        match letter {
            b'D' => Self::Uninterruptible,
            b'Z' | b'X' | b'x' => Self::Zombie,
            b'T' | b't' => Self::Stopped,
            _ => Self::Alive,
        }
    }

    /// Returns the state for a discriminant.
    pub fn of_number(number: u64) -> Self {
        match number {
            1 => Self::Uninterruptible,
            2 => Self::Zombie,
            3 => Self::Stopped,
            _ => Self::Alive,
        }
    }
}

/// Details of a process, sent on request to the owner only.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessDetail {
    /// Ancestors, oldest first, followed by the process itself.
    pub ancestors: Vec<RelatedProcess>,
    /// Descendants in depth-first order.
    pub descendants: Vec<RelatedProcess>,
    /// Full command line with secrets masked; own processes only.
    pub args: Reading<LongText>,
    /// Working directory.
    pub cwd: Reading<LongText>,
    /// Executable (`/proc/PID/exe`).
    pub exe: Reading<LongText>,
    /// Cgroup, which identifies job, step and container.
    pub cgroup: Reading<LongText>,
    /// Number of open files (`/proc/PID/fd`).
    pub open_files: Reading<u64>,
    /// Bytes read from storage since its start (`/proc/PID/io` `read_bytes`).
    pub read_bytes: Reading<u64>,
    /// Bytes written to storage since its start.
    pub written_bytes: Reading<u64>,
    /// Kernel function that it waits in (`/proc/PID/wchan`), if any.
    pub wait_channel: Reading<Text>,
    /// Environment by name, with secrets masked; own processes only, and only on request.
    pub environment: Reading<Vec<Variable>>,
}

/// An ancestor or descendant of a process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RelatedProcess {
    /// Process id on the node.
    pub pid: u32,
    /// Process id of its parent.
    pub parent: u32,
    /// Login name.
    pub user: Text,
    /// Command line with secrets masked for own processes, otherwise the name.
    pub command: LongText,
    /// Its state.
    pub state: u8,
}

/// One environment variable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Variable {
    /// Its name.
    pub name: Text,
    /// Its value, or the mask.
    pub value: LongText,
}
