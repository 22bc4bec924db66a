//! A process on a GPU as a resource.

use super::{Absences, ProcessReadings, Timestamp, text, value};
use nodeglass_protocol::ProcessField;
use nodeglass_protocol::picture::{NodePicture, ProcessPicture};
use nodeglass_protocol::process::{ProcessState, Runtime};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A process on one GPU. A process on several GPUs has an entry for each.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Process {
    /// Its node.
    pub node: String,
    /// UUID of the GPU or MIG instance.
    pub gpu: String,
    /// Index of the GPU on its node.
    pub gpu_index: Option<u32>,
    /// Process id on the node.
    pub pid: u32,
    /// Process id of its parent.
    pub parent: Option<u32>,
    /// Start time.
    pub started_at: Option<Timestamp>,
    /// Login name, or the uid in digits.
    pub user: Option<String>,
    /// Name (`/proc/PID/comm`).
    pub command: Option<String>,
    /// Command line with secrets masked; `null` if it is hidden.
    pub args: Option<String>,
    /// Working directory; `null` if it is hidden.
    pub cwd: Option<String>,
    /// Contexts that it has on the GPU.
    pub contexts: Vec<ProcessContext>,
    /// SLURM job.
    pub job: Option<u32>,
    /// Step of the job.
    pub step: Option<String>,
    /// Rank in a parallel program.
    pub rank: Option<ProcessRank>,
    /// The container that it runs in.
    pub container: Option<ContainerInfo>,
    /// State of the process.
    pub state: Option<RunState>,
    /// Readings.
    pub readings: ProcessReadings,
    /// Reasons for readings without a value.
    pub absent: Absences,
}

/// A kind of context on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProcessContext {
    /// Compute (`C`).
    Compute,
    /// Graphics (`G`).
    Graphics,
    /// Client of the Multi-Process Service (`M`).
    Mps,
}

/// Rank of a task in a parallel program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProcessRank {
    /// Rank among all.
    pub global: u32,
    /// Rank on its node.
    pub local: Option<u32>,
    /// Number of ranks.
    pub world: Option<u32>,
}

/// Container of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ContainerInfo {
    /// Runtime: `apptainer`, `enroot`, `docker`, `podman`, `kubernetes`, or `other`.
    pub runtime: String,
    /// Image name or short id.
    pub name: Option<String>,
}

/// State of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// Running, runnable or sleeping.
    Alive,
    /// In uninterruptible sleep (`D`); cannot be killed.
    Uninterruptible,
    /// Exited, but not reaped by its parent (`Z`).
    Zombie,
    /// Stopped by a signal or a debugger (`T`).
    Stopped,
}

impl Process {
    pub(super) fn new(node: &NodePicture, process: &ProcessPicture) -> Self {
        let facts = &process.facts;
        let kinds = [
            (facts.kind.compute, ProcessContext::Compute),
            (facts.kind.graphics, ProcessContext::Graphics),
            (facts.kind.mps, ProcessContext::Mps),
        ];
        Self {
            node: node.name.to_string(),
            gpu: facts.gpu.to_string(),
            gpu_index: node.gpus.iter().find(|gpu| gpu.facts.uuid == facts.gpu).map(|gpu| gpu.facts.index),
            pid: facts.pid,
            parent: value(&facts.parent),
            started_at: value(&facts.started_ms).map(Timestamp::from_millis),
            user: text(&facts.user),
            command: text(&facts.command),
            args: text(&facts.args),
            cwd: text(&facts.cwd),
            contexts: kinds.into_iter().filter_map(|(is_one, context)| is_one.then_some(context)).collect(),
            job: facts.job.map(|job| job.0),
            step: facts.step.as_ref().map(ToString::to_string),
            rank: facts.rank.map(|rank| ProcessRank {
                global: rank.global,
                local: rank.local,
                world: rank.world,
            }),
            container: facts.container.as_ref().map(|container| ContainerInfo {
                runtime: runtime(container.runtime).to_owned(),
                name: container.name.as_ref().map(ToString::to_string),
            }),
            state: process.row.value(ProcessField::State).map(RunState::of_number),
            readings: ProcessReadings::new(&process.row),
            absent: Absences::new(&process.row),
        }
    }
}

impl RunState {
    fn of_number(number: u64) -> Self {
        match ProcessState::of_number(number) {
            ProcessState::Alive => Self::Alive,
            ProcessState::Uninterruptible => Self::Uninterruptible,
            ProcessState::Zombie => Self::Zombie,
            ProcessState::Stopped => Self::Stopped,
        }
    }
}

const fn runtime(runtime: Runtime) -> &'static str {
    match runtime {
        Runtime::Apptainer => "apptainer",
        Runtime::Enroot => "enroot",
        Runtime::Docker => "docker",
        Runtime::Podman => "podman",
        Runtime::Kubernetes => "kubernetes",
        Runtime::Other => "other",
    }
}
