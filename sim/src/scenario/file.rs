//! The language of a scenario file, exactly as it is written; nothing is checked here that needs two entries.
//!
//! Times count from the scenario's start; those of episodes, faults and checkpoints repeat every `cycle`.

use crate::scenario::duration::SignedDuration;
use crate::scenario::mig_profile::Profile;
use nodeglass_gpu_models::{GpuModel, MODELS};
use nodeglass_protocol::process::Runtime;
use serde::Deserialize;
use serde::de::{Deserializer, Error};
use toml::Spanned;

/// A whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScenarioFile {
    /// Name of the cluster.
    pub cluster: String,
    /// The owner: whose jobs are listed.
    pub user: String,
    /// Seed of the random numbers.
    #[serde(default)]
    pub seed: u64,
    /// Disables randomness: readings are constant.
    #[serde(default)]
    pub still: bool,
    /// After this time, episodes and faults repeat.
    #[serde(default = "quarter_hour")]
    pub cycle: Spanned<SignedDuration>,
    /// Nodes.
    #[serde(rename = "node", default)]
    pub nodes: Vec<NodeGroup>,
    /// Jobs.
    #[serde(rename = "job", default)]
    pub jobs: Vec<JobEntry>,
    /// Faults of nodes.
    #[serde(rename = "fault", default)]
    pub faults: Vec<FaultEntry>,
}

fn quarter_hour() -> Spanned<SignedDuration> {
    Spanned::new(0..0, SignedDuration::seconds(900))
}

/// Nodes that are alike.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeGroup {
    /// Their names, as `gpu-h[01-12]`.
    pub name: Spanned<String>,
    /// Model of their GPUs.
    #[serde(deserialize_with = "model")]
    pub model: &'static GpuModel,
    /// How many GPUs each has.
    pub gpus: Spanned<u32>,
    /// The MIG instances that each GPU is divided into, as `["3g.40gb", "1g.10gb"]`; jobs then have instances
    /// (`gpus` counts them over the node), and no whole GPU.
    #[serde(default)]
    pub mig: Vec<Spanned<Profile>>,
    /// CPUs of each.
    #[serde(default = "some_cpus")]
    pub cpus: u32,
    /// Memory of each, in GiB.
    #[serde(default = "some_memory")]
    pub mem_gib: u64,
    /// Driver version.
    #[serde(default = "some_driver")]
    pub driver: String,
    /// Newest CUDA version the driver supports.
    #[serde(default = "some_cuda")]
    pub cuda: String,
    /// Kernel release.
    #[serde(default = "some_kernel")]
    pub kernel: String,
    /// What a login shell prints before the probe's first line.
    #[serde(default)]
    pub motd: Option<String>,
}

fn model<'de, D: Deserializer<'de>>(deserializer: D) -> Result<&'static GpuModel, D::Error> {
    let id = String::deserialize(deserializer)?;
    let known = || MODELS.map(|model| model.id).join(", ");
    GpuModel::by_id(&id)
        .ok_or_else(|| D::Error::custom(format!("no GPU model is called {id:?}; there are {}", known())))
}

fn some_cpus() -> u32 {
    64
}

fn some_memory() -> u64 {
    512
}

fn some_driver() -> String {
    "570.133.20".to_owned()
}

fn some_cuda() -> String {
    "12.8".to_owned()
}

fn some_kernel() -> String {
    "5.15.0-139-generic".to_owned()
}

/// A job.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobEntry {
    /// SLURM's number; of an array or heterogeneous job the first one.
    pub id: Spanned<u32>,
    /// Its name.
    pub name: String,
    /// Its owner; the scenario's if left out.
    pub user: Option<String>,
    /// Account.
    pub account: Option<String>,
    /// Partition.
    pub partition: String,
    /// Quality of service.
    pub qos: Option<String>,
    /// When it was submitted.
    pub submitted: SignedDuration,
    /// When it starts or, without nodes, is expected to start (and never does).
    pub start: Option<SignedDuration>,
    /// When it ends; its time limit if left out.
    pub end: Option<SignedDuration>,
    /// SLURM's state after its end.
    #[serde(default = "completed")]
    pub ends_as: String,
    /// How long it may run.
    pub limit: Option<SignedDuration>,
    /// Why it waits, while it does.
    pub reason: Option<String>,
    /// Jobs that it waits for, as SLURM writes them.
    pub dependency: Option<String>,
    /// Its batch script.
    #[serde(default = "train_script")]
    pub script: String,
    /// Repeats after this time, with another job id.
    pub every: Option<SignedDuration>,
    /// Its nodes; without any it stays pending.
    pub nodes: Option<Spanned<String>>,
    /// Which GPUs of each node; all if left out.
    pub gpus: Option<Vec<u32>>,
    /// Number of nodes that a pending job requests.
    pub node_count: Option<u32>,
    /// Number of GPUs that a pending job requests.
    pub gpu_count: Option<u32>,
    /// What its GPUs do.
    #[serde(default)]
    pub behaviour: Behaviour,
    /// Time between checkpoints of a training.
    pub checkpoint_every: Option<SignedDuration>,
    /// Device memory it holds, in % of the card's.
    #[serde(default = "most_memory")]
    pub memory_pct: Spanned<u32>,
    /// Name of its processes.
    #[serde(default = "python")]
    pub command: String,
    /// Command line of its processes.
    pub args: Option<String>,
    /// The container that they run in.
    pub container: Option<ContainerEntry>,
    /// It is an array.
    pub array: Option<ArrayEntry>,
    /// It is a part of a heterogeneous job.
    pub het: Option<HetEntry>,
    /// Times and places at which its GPUs do something else.
    #[serde(rename = "episode", default)]
    pub episodes: Vec<EpisodeEntry>,
}

fn completed() -> String {
    "COMPLETED".to_owned()
}

fn most_memory() -> Spanned<u32> {
    Spanned::new(0..0, 88)
}

fn train_script() -> String {
    "train.sbatch".to_owned()
}

fn python() -> String {
    "python3".to_owned()
}

/// An array of tasks with one GPU each; as many run at once as the job has GPUs.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArrayEntry {
    /// How many tasks.
    pub tasks: u32,
    /// How long each runs.
    pub task_time: SignedDuration,
}

/// A container.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContainerEntry {
    /// What runs it.
    pub runtime: Runtime,
    /// Its image or short id.
    pub name: Option<String>,
}

/// A part of a heterogeneous job.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HetEntry {
    /// Number of the leading part.
    pub job: u32,
    /// Offset of this part.
    pub offset: u32,
}

/// A time and place at which a job's GPUs do something else.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EpisodeEntry {
    /// What they do.
    pub behaviour: Behaviour,
    /// On which of the job's nodes; all if left out.
    pub nodes: Option<Spanned<String>>,
    /// On which GPUs of these; all of the job's if left out.
    pub gpus: Option<Vec<u32>>,
    /// From when in each cycle.
    #[serde(default)]
    pub from: SignedDuration,
    /// For how long; always if left out.
    #[serde(rename = "for")]
    pub lasts: Option<SignedDuration>,
}

/// What a GPU does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Behaviour {
    /// Busy at its power cap; a checkpoint now and then, during which all but rank 0 seem busy.
    #[default]
    Training,
    /// Too hot: low clock, thermal bits; its peers wait for it.
    Straggler,
    /// Allocated, but no process is on it.
    IdleGpu,
    /// Seems fully busy at the power of waiting, with flat memory.
    Hang,
    /// Serves requests: load varies smoothly.
    Inference,
    /// Batches with pauses between them.
    Bursty,
    /// Memory held, rarely a cell that runs.
    Notebook,
    /// Waits for its input in 82 % of the samples, never longer than 8 s.
    InputBound,
    /// A training on a card whose corrected ECC errors grow.
    Ecc,
    /// Half busy at half power, always the same.
    Steady,
}

/// A fault of a node.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultEntry {
    /// The nodes.
    pub nodes: Spanned<String>,
    /// What goes wrong.
    pub kind: FaultKind,
    /// When in each cycle.
    #[serde(default)]
    pub at: SignedDuration,
    /// For how long; always if left out.
    #[serde(rename = "for")]
    pub lasts: Option<SignedDuration>,
    /// After a death: how long until the job's processes are back.
    #[serde(default)]
    pub rejoin: SignedDuration,
    /// The GPU, if the fault affects one.
    pub gpu: Option<u32>,
    /// The number of an Xid.
    pub xid: Option<u64>,
}

/// What goes wrong on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// It crashes: links break, connections fail, and it reboots.
    Dies,
    /// Its network is down: links break and connections fail, but it keeps running.
    Unreachable,
    /// Links stay open, but no line arrives.
    Silent,
    /// The driver is unloaded.
    NoDriver,
    /// One GPU falls off the bus (Xid 79).
    LostGpu,
    /// An NVML call does not return.
    NvmlStuck,
    /// NVML refuses the counters of GPM to an ordinary user.
    NoPermission,
    /// The driver reports an Xid of a GPU once, at the beginning.
    Xid,
    /// The power supply makes a GPU slow down (`HwPowerBrake`).
    PowerBrake,
    /// Rows of a GPU's memory wait for a reset to be remapped.
    RowRemap,
    /// The last NVLink of a GPU is down.
    NvlinkDown,
    /// A GPU has eight PCIe lanes of sixteen.
    PcieNarrow,
    /// Memory of a GPU is held by a process that cannot be seen.
    HeldMemory,
    /// A process has ended, but its memory on a GPU is not given back.
    Zombie,
}

impl FaultKind {
    /// Whether it befalls one GPU, which the file has to name.
    pub fn takes_gpu(self) -> bool {
        !matches!(
            self,
            Self::Dies
                | Self::Unreachable
                | Self::Silent
                | Self::NoDriver
                | Self::NvmlStuck
                | Self::NoPermission
        )
    }

    /// Its name in a file.
    pub fn word(self) -> &'static str {
        match self {
            Self::Dies => "dies",
            Self::Unreachable => "unreachable",
            Self::Silent => "silent",
            Self::NoDriver => "no_driver",
            Self::LostGpu => "lost_gpu",
            Self::NvmlStuck => "nvml_stuck",
            Self::NoPermission => "no_permission",
            Self::Xid => "xid",
            Self::PowerBrake => "power_brake",
            Self::RowRemap => "row_remap",
            Self::NvlinkDown => "nvlink_down",
            Self::PcieNarrow => "pcie_narrow",
            Self::HeldMemory => "held_memory",
            Self::Zombie => "zombie",
        }
    }
}
