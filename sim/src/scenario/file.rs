//! The format of a scenario file; rules that involve several entries are checked elsewhere.
//!
//! Times count from the scenario's start; the times of episodes, faults and checkpoints repeat every `cycle`.

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
    /// The first controller of its SLURM.
    #[serde(default)]
    pub controller: Option<String>,
    /// The owner, whose jobs are listed.
    pub user: String,
    /// Seed of the random numbers.
    #[serde(default)]
    pub seed: u64,
    /// Disables randomness: readings are constant.
    #[serde(default)]
    pub still: bool,
    /// After this time, episodes and faults repeat.
    #[serde(default = "default_cycle")]
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

fn default_cycle() -> Spanned<SignedDuration> {
    Spanned::new(0..0, SignedDuration::seconds(900))
}

/// Nodes of one kind.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeGroup {
    /// Their names, such as `gpu-h[01-12]`.
    pub name: Spanned<String>,
    /// Model of their GPUs.
    #[serde(deserialize_with = "model")]
    pub model: &'static GpuModel,
    /// Number of GPUs per node.
    pub gpus: Spanned<u32>,
    /// The MIG instances that each GPU is divided into, as `["3g.40gb", "1g.10gb"]`; jobs then have instances
    /// (`gpus` counts them over the node), and no whole GPU.
    #[serde(default)]
    pub mig: Vec<Spanned<Profile>>,
    /// CPUs of each.
    #[serde(default = "default_cpus")]
    pub cpus: u32,
    /// Memory of each, in GiB.
    #[serde(default = "default_memory_gib")]
    pub mem_gib: u64,
    /// Driver version.
    #[serde(default = "default_driver")]
    pub driver: String,
    /// Newest CUDA version the driver supports.
    #[serde(default = "default_cuda")]
    pub cuda: String,
    /// Kernel release.
    #[serde(default = "default_kernel")]
    pub kernel: String,
    /// Output of a login shell before the probe's first line.
    #[serde(default)]
    pub motd: Option<String>,
}

fn model<'de, D: Deserializer<'de>>(deserializer: D) -> Result<&'static GpuModel, D::Error> {
    let id = String::deserialize(deserializer)?;
    let known = || MODELS.map(|model| model.id).join(", ");
    GpuModel::by_id(&id)
        .ok_or_else(|| D::Error::custom(format!("no GPU model is called {id:?}; there are {}", known())))
}

fn default_cpus() -> u32 {
    64
}

fn default_memory_gib() -> u64 {
    512
}

fn default_driver() -> String {
    "570.133.20".to_owned()
}

fn default_cuda() -> String {
    "12.8".to_owned()
}

fn default_kernel() -> String {
    "5.15.0-139-generic".to_owned()
}

/// A job.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobEntry {
    /// SLURM's job id; of an array or heterogeneous job the first one.
    pub id: Spanned<u32>,
    /// Its name.
    pub name: String,
    /// Its owner; by default the scenario's.
    pub user: Option<String>,
    /// Account.
    pub account: Option<String>,
    /// Partition.
    pub partition: String,
    /// Quality of service.
    pub qos: Option<String>,
    /// Submission time.
    pub submitted: SignedDuration,
    /// Start time; without nodes, the expected start (which never comes).
    pub start: Option<SignedDuration>,
    /// End time; by default its time limit.
    pub end: Option<SignedDuration>,
    /// SLURM's state after its end.
    #[serde(default = "default_end_state")]
    pub ends_as: String,
    /// Time limit.
    pub limit: Option<SignedDuration>,
    /// Reason while it is pending.
    pub reason: Option<String>,
    /// Dependencies, in SLURM's notation.
    pub dependency: Option<String>,
    /// Its batch script.
    #[serde(default = "default_script")]
    pub script: String,
    /// Repeats after this time, with another job id.
    pub every: Option<SignedDuration>,
    /// Its nodes; without any it remains pending.
    pub nodes: Option<Spanned<String>>,
    /// GPUs on each node; by default all.
    pub gpus: Option<Vec<u32>>,
    /// Number of nodes that a pending job requests.
    pub node_count: Option<u32>,
    /// Number of GPUs that a pending job requests.
    pub gpu_count: Option<u32>,
    /// Behaviour of its GPUs.
    #[serde(default)]
    pub behaviour: Behaviour,
    /// Time between checkpoints of a training.
    pub checkpoint_every: Option<SignedDuration>,
    /// Device memory that it uses, in % of the GPU's.
    #[serde(default = "default_memory_pct")]
    pub memory_pct: Spanned<u32>,
    /// Name of its processes.
    #[serde(default = "default_program")]
    pub command: String,
    /// Command line of its processes.
    pub args: Option<String>,
    /// The container that they run in.
    pub container: Option<ContainerEntry>,
    /// It is an array.
    pub array: Option<ArrayEntry>,
    /// It is a part of a heterogeneous job.
    pub het: Option<HetEntry>,
    /// Number of training steps that its log counts to; by default it states none.
    pub steps: Option<u32>,
    /// A line that its program writes once to its standard output.
    pub message: Option<MessageEntry>,
    /// Times and places at which its GPUs behave differently.
    #[serde(rename = "episode", default)]
    pub episodes: Vec<EpisodeEntry>,
}

fn default_end_state() -> String {
    "COMPLETED".to_owned()
}

fn default_memory_pct() -> Spanned<u32> {
    Spanned::new(0..0, 88)
}

fn default_script() -> String {
    "train.sbatch".to_owned()
}

fn default_program() -> String {
    "python3".to_owned()
}

/// An array of tasks with one GPU each; as many run at once as the job has GPUs.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArrayEntry {
    /// Number of tasks.
    pub tasks: u32,
    /// Duration of each.
    pub task_time: SignedDuration,
}

/// A container.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContainerEntry {
    /// Its runtime.
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

/// A line that a program writes once.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MessageEntry {
    /// When it is written; it takes the place of the next line.
    pub at: SignedDuration,
    /// The line.
    pub line: String,
    /// Whether the program writes nothing more.
    #[serde(default)]
    pub is_last: bool,
}

/// A time and place at which a job's GPUs behave differently.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EpisodeEntry {
    /// The behaviour.
    pub behaviour: Behaviour,
    /// The affected nodes of the job; by default all.
    pub nodes: Option<Spanned<String>>,
    /// The affected GPUs of these nodes; by default all of the job's.
    pub gpus: Option<Vec<u32>>,
    /// Start in each cycle.
    #[serde(default)]
    pub from: SignedDuration,
    /// Duration; by default always.
    #[serde(rename = "for")]
    pub lasts: Option<SignedDuration>,
}

/// Behaviour of a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Behaviour {
    /// Busy at its power cap; occasionally a checkpoint, during which all ranks but 0 seem busy.
    #[default]
    Training,
    /// Too hot: low clock, thermal throttling; the other ranks wait for it.
    Straggler,
    /// Allocated, but without a process.
    IdleGpu,
    /// Seems fully busy, at the power of a waiting collective and with constant memory.
    Hang,
    /// Serves requests: load varies smoothly.
    Inference,
    /// Batches with pauses between them.
    Bursty,
    /// Memory allocated, and cells that run rarely.
    Notebook,
    /// Waits for its input in 82 % of the samples, never longer than 8 s.
    InputBound,
    /// A training on a GPU with increasing corrected ECC errors.
    Ecc,
    /// Constant load: half utilisation at half power.
    Steady,
    /// A training whose memory grows by 0.4 % of the GPU's a minute, from half of the job's on.
    Leak,
    /// A training whose memory is constant for a quarter of an hour after the start of the scenario, and then grows
    /// as with a leak.
    LateLeak,
    /// A training at a clock that is a fifth lower, for no reason that the GPU reports; the other ranks wait for it.
    Slow,
    /// Kernels run all the time, and occupy few SMs.
    SmallKernels,
    /// Minutes of generation and of training in turn, as reinforcement learning does.
    Alternating,
    /// Molecular dynamics: steady, at two thirds of the power limit.
    Dynamics,
    /// Collectives take most of each step.
    Communication,
    /// Decoding of a language model: the bandwidth of the GPU's memory is used up.
    MemoryBound,
    /// A training whose host memory grows by 0.5 % of the job's limit a minute.
    HostLeak,
    /// The model is loaded, and nothing runs.
    Idle,
    /// Waits for its data loaders in 55 % of the seconds, never longer than 4 s, while they use all CPUs of the job.
    Starved,
    /// A stage of a pipeline: each step has a bubble of a fifth of it, at another time than on the other ranks.
    Pipeline,
    /// A training with an evaluation of 75 s every ten minutes, and a checkpoint of 58 s after it.
    Evaluating,
}

/// A fault of a node.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultEntry {
    /// The nodes.
    pub nodes: Spanned<String>,
    /// Kind of the fault.
    pub kind: FaultKind,
    /// Start in each cycle.
    #[serde(default)]
    pub at: SignedDuration,
    /// Duration; by default always.
    #[serde(rename = "for")]
    pub lasts: Option<SignedDuration>,
    /// After a crash: time until the job's processes are back.
    #[serde(default)]
    pub rejoin: SignedDuration,
    /// The GPU, if the fault affects one.
    pub gpu: Option<u32>,
    /// Number of an Xid.
    pub xid: Option<u64>,
}

/// Kind of a node's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// It crashes: links break, connections fail, and it reboots.
    Dies,
    /// Its network is down: links break and connections fail, but it keeps running.
    Unreachable,
    /// Its host key is not recorded: logins stop before they start.
    UnknownHostKey,
    /// Links stay open, but no line arrives.
    Silent,
    /// The driver is unloaded.
    NoDriver,
    /// One GPU falls off the bus (Xid 79).
    LostGpu,
    /// An NVML call does not return.
    NvmlStuck,
    /// NVML denies GPM counters to unprivileged users.
    NoPermission,
    /// The driver reports an Xid of a GPU once, at the beginning.
    Xid,
    /// The power supply slows a GPU down (`HwPowerBrake`).
    PowerBrake,
    /// Rows of a GPU's memory wait for a reset to be remapped.
    RowRemap,
    /// The last NVLink of a GPU is down.
    NvlinkDown,
    /// A GPU's PCIe link has eight lanes instead of sixteen.
    PcieNarrow,
    /// Memory of a GPU is used by a hidden process.
    HeldMemory,
    /// A process has ended, but its memory on a GPU was not freed.
    Zombie,
    /// A process of an earlier job still uses a GPU.
    LeftOver,
    /// The node's clock is 42 s ahead.
    ClockSkew,
    /// The power limit of the node's GPUs is three fifths of the default.
    PowerLimited,
    /// The hardware slows a GPU down and states no reason (`HwSlowdown` alone).
    Slowdown,
    /// A vGPU has lost its license; before the fault, it has one.
    Unlicensed,
    /// The process on a GPU waits in the kernel (D state) and does nothing.
    Stuck,
    /// 98 % of the node's memory is in use.
    HostMemory,
    /// The node reads memory back from swap.
    Swapping,
    /// `/dev/shm` of the node is 97 % full.
    ShmFull,
}

impl FaultKind {
    /// Returns whether it affects one GPU, which the file must name.
    pub fn takes_gpu(self) -> bool {
        !matches!(
            self,
            Self::Dies
                | Self::Unreachable
                | Self::UnknownHostKey
                | Self::Silent
                | Self::NoDriver
                | Self::NvmlStuck
                | Self::NoPermission
                | Self::ClockSkew
                | Self::PowerLimited
                | Self::HostMemory
                | Self::Swapping
                | Self::ShmFull
        )
    }

    /// Its name in a file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Dies => "dies",
            Self::Unreachable => "unreachable",
            Self::UnknownHostKey => "unknown_host_key",
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
            Self::LeftOver => "left_over",
            Self::ClockSkew => "clock_skew",
            Self::PowerLimited => "power_limited",
            Self::Slowdown => "slowdown",
            Self::Unlicensed => "unlicensed",
            Self::Stuck => "stuck",
            Self::HostMemory => "host_memory",
            Self::Swapping => "swapping",
            Self::ShmFull => "shm_full",
        }
    }
}
