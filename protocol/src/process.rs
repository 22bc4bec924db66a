//! A process on a GPU is told in two parts: who it is, and what it does now.

use crate::{GpuUuid, JobId, LongText, Reading, Text};
use serde::{Deserialize, Serialize};

/// Who a process on a GPU is: one entry per process and GPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcessFacts {
    /// The GPU or MIG instance.
    pub gpu: GpuUuid,
    /// Pid on the node.
    pub pid: u32,
    /// Pid of its parent (`/proc/PID/stat` field 4).
    #[serde(default)]
    pub parent: Reading<u32>,
    /// When it started, in ms since 1970 by the node's clock (`/proc/PID/stat` field 22): with the pid, its identity.
    #[serde(default)]
    pub started_ms: Reading<u64>,
    /// Login name (owner of `/proc/PID`), or the uid in digits.
    #[serde(default)]
    pub user: Reading<Text>,
    /// Name (`/proc/PID/comm`); failed when the pid belongs to another pid namespace, hidden when `/proc` is
    /// mounted with `hidepid`.
    #[serde(default)]
    pub command: Reading<Text>,
    /// Beginning of the command line, secrets masked; hidden of other users' processes.
    #[serde(default)]
    pub args: Reading<Text>,
    /// Working directory (`/proc/PID/cwd`); hidden of other users' processes.
    #[serde(default)]
    pub cwd: Reading<Text>,
    /// Which of NVML's lists it is in.
    pub kind: ProcessKind,
    /// SLURM's number of the job whose cgroup it is in (`/proc/PID/cgroup`), or from its environment.
    #[serde(default)]
    pub job: Option<JobId>,
    /// Its step within the job: `0`, `batch`, `extern`, `interactive`.
    #[serde(default)]
    pub step: Option<Text>,
    /// Its place among the tasks of a parallel program, own processes only.
    #[serde(default)]
    pub rank: Option<Rank>,
    /// The container that it runs in, if one.
    #[serde(default)]
    pub container: Option<Container>,
}

impl ProcessFacts {
    /// A process of which only the pid is known.
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

/// Why processes of a GPU may be missing from a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProcessGap {
    /// The driver offers no list of its processes.
    Unsupported,
    /// A list could not be read this time, in the source's own word. What is listed was there when it last could.
    Failed(Text),
    /// So many more entries are there than are listed.
    More(u32),
}

/// Which of NVML's process lists an entry comes from.
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
    /// In the lists of either.
    pub fn union(self, other: Self) -> Self {
        Self {
            compute: self.compute || other.compute,
            graphics: self.graphics || other.graphics,
            mps: self.mps || other.mps,
        }
    }

    /// In the lists of both.
    pub fn intersection(self, other: Self) -> Self {
        Self {
            compute: self.compute && other.compute,
            graphics: self.graphics && other.graphics,
            mps: self.mps && other.mps,
        }
    }
}

/// A task's place in a parallel program, by its environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rank {
    /// `RANK`, `OMPI_COMM_WORLD_RANK`, `PMI_RANK`, `PMIX_RANK` or `SLURM_PROCID`, in this order.
    pub global: u32,
    /// `LOCAL_RANK`, `OMPI_COMM_WORLD_LOCAL_RANK`, `MPI_LOCALRANKID` or `SLURM_LOCALID`.
    pub local: Option<u32>,
    /// `WORLD_SIZE`, `OMPI_COMM_WORLD_SIZE`, `PMI_SIZE` or `SLURM_NTASKS`.
    pub world: Option<u32>,
}

/// The container of a process, by its cgroup, its namespaces and its environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Container {
    /// What runs it.
    pub runtime: Runtime,
    /// Its image or short id, as far as known.
    pub name: Option<Text>,
}

/// What runs a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Runtime {
    /// Apptainer, or Singularity as it was called.
    Apptainer,
    /// Enroot, mostly by way of Pyxis.
    Enroot,
    /// Docker.
    Docker,
    /// Podman.
    Podman,
    /// Kubernetes, containerd or CRI-O.
    Kubernetes,
    /// A container of a kind that is not known: its own mount and pid namespace.
    Other,
}

readings! {
    /// What a process does now; shares are those since the last look.
    ProcessReadings of ProcessField {
        /// Device memory in bytes; unsupported under WDDM and for some graphics contexts.
        gpu_mem_bytes => GpuMem,
        /// Share of the SMs' time, in % (`nvmlDeviceGetProcessUtilization.smUtil`); unsupported under MIG.
        sm_pct => Sm,
        /// Share of the memory bandwidth's time, in % (`memUtil`).
        mem_bw_pct => MemBw,
        /// Share of the encoder, in % (`encUtil`).
        enc_pct => Encoder,
        /// Share of the decoder, in % (`decUtil`).
        dec_pct => Decoder,
        /// CPU time in % of one core (`/proc/PID/stat` fields 14 and 15).
        cpu_pct => Cpu,
        /// Resident memory in bytes (`/proc/PID/stat` field 24).
        rss_bytes => Rss,
        /// Threads (`/proc/PID/stat` field 20).
        threads => Threads,
        /// Its state as a number of [`ProcessState`] (`/proc/PID/stat` field 3).
        state => State,
    }
}

/// The states of a process that are worth telling apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ProcessState {
    /// Running or ready to (`R`, `S`, `I`): what flickers between these is no news.
    Alive = 0,
    /// Waits for a device and cannot be killed (`D`).
    Uninterruptible = 1,
    /// Has ended, and its parent has not noticed (`Z`).
    Zombie = 2,
    /// Stopped by a signal or a debugger (`T`, `t`).
    Stopped = 3,
}

impl ProcessState {
    /// The state of a letter of `/proc/PID/stat`.
    pub fn of_letter(letter: u8) -> Self {
        match letter {
            b'D' => Self::Uninterruptible,
            b'Z' | b'X' | b'x' => Self::Zombie,
            b'T' | b't' => Self::Stopped,
            _ => Self::Alive,
        }
    }

    /// The state of a number, as cells carry it.
    pub fn of_number(number: u64) -> Self {
        match number {
            1 => Self::Uninterruptible,
            2 => Self::Zombie,
            3 => Self::Stopped,
            _ => Self::Alive,
        }
    }
}

/// Everything that is told of a process when somebody asks: owner only.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessDetail {
    /// Its ancestors, oldest first, then itself.
    pub ancestors: Vec<RelatedProcess>,
    /// Its descendants, each after its parent.
    pub descendants: Vec<RelatedProcess>,
    /// The whole command line, secrets masked; own processes only.
    pub args: Reading<LongText>,
    /// Working directory.
    pub cwd: Reading<LongText>,
    /// The program (`/proc/PID/exe`).
    pub exe: Reading<LongText>,
    /// Its cgroup, by which job, step and container are known.
    pub cgroup: Reading<LongText>,
    /// Open files (`/proc/PID/fd`).
    pub open_files: Reading<u64>,
    /// Bytes read from storage since it started (`/proc/PID/io` `read_bytes`).
    pub read_bytes: Reading<u64>,
    /// Bytes written to storage since it started.
    pub written_bytes: Reading<u64>,
    /// Where in the kernel it waits (`/proc/PID/wchan`), if it does.
    pub waits_in: Reading<Text>,
    /// Its environment, secrets masked, by name: own processes only, and only when asked for.
    pub environment: Reading<Vec<Variable>>,
}

/// One process of a family.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RelatedProcess {
    /// Pid on the node.
    pub pid: u32,
    /// Pid of its parent.
    pub parent: u32,
    /// Login name.
    pub user: Text,
    /// Its command line if it is our own, secrets masked; otherwise its name.
    pub command: LongText,
    /// Its state.
    pub state: u8,
}

/// One variable of an environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Variable {
    /// Its name.
    pub name: Text,
    /// Its value, or a mask in its place.
    pub value: LongText,
}
