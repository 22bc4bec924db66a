//! A scenario is a simulated cluster whose readings and jobs are defined for every time, past and
//! future.

mod compile;
mod duration;
mod error;
pub(crate) mod file;
pub(crate) mod interventions;
mod mig_profile;
pub(crate) mod rng;
pub(crate) mod validate;
pub(crate) mod window;

pub use error::{ScenarioError, ScenarioFault};

use file::{Behaviour, FaultKind, MessageEntry};
use interventions::Interventions;
use nodeglass_gpu_models::GpuModel;
use nodeglass_protocol::process::Container;
use nodeglass_protocol::{JobId, NodeName, Text};
use rng::Rng;
use std::collections::BTreeMap;
use window::Window;

/// A time of a scenario, relative to its start and absolute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScenarioTime {
    /// Milliseconds since the scenario's start; negative before it.
    pub t_ms: i64,
    /// Start of the scenario, in ms since 1970.
    pub start_wall_ms: i64,
}

impl ScenarioTime {
    /// Returns this time in ms since 1970.
    pub fn wall_ms(self) -> u64 {
        u64::try_from(self.start_wall_ms.saturating_add(self.t_ms)).unwrap_or(0)
    }

    /// Returns the time of a wall clock in ms since 1970.
    pub(crate) fn at_wall_ms(self, wall_ms: u64) -> Self {
        Self { t_ms: i64::try_from(wall_ms).unwrap_or(i64::MAX) - self.start_wall_ms, ..self }
    }

    /// Returns a later time (earlier if negative).
    pub fn plus(self, ms: i64) -> Self {
        Self { t_ms: self.t_ms + ms, ..self }
    }
}

/// A simulated cluster. Deterministic: the same time yields the same readings, except for actions
/// of its owner.
#[derive(Debug)]
pub struct Scenario {
    pub(crate) cluster: Text,
    pub(crate) controller: Option<Text>,
    pub(crate) user: Text,
    pub(crate) rng: Rng,
    pub(crate) nodes: Vec<NodeScript>,
    pub(crate) jobs: Vec<JobScript>,
    pub(crate) by_name: BTreeMap<NodeName, usize>,
    /// Actions of the owner.
    pub(crate) interventions: Interventions,
}

/// A node of the scenario.
#[derive(Debug)]
pub(crate) struct NodeScript {
    pub name: NodeName,
    /// Its GPUs and their MIG instances, in NVML's order.
    pub units: Vec<Unit>,
    /// The model of its GPUs.
    pub model: GpuModel,
    pub cpus: u32,
    pub mem_bytes: u64,
    pub driver: Text,
    pub cuda: Text,
    pub kernel: Text,
    pub motd: Option<String>,
    pub faults: Vec<Fault>,
    /// For each GPU, or each instance in MIG mode, the jobs that use it at any time.
    pub assignments: Vec<Vec<Assignment>>,
}

impl NodeScript {
    /// Number of GPUs.
    pub fn gpus(&self) -> usize {
        self.units.iter().filter(|unit| unit.mig.is_none()).count()
    }

    /// Returns whether its GPUs are in MIG mode.
    pub fn is_divided(&self) -> bool {
        self.units.iter().any(|unit| unit.mig.is_some())
    }

    /// Returns whether a GPU is a vGPU of a virtual machine, which loses its license at some time.
    pub fn is_vgpu(&self, gpu: usize) -> bool {
        self.faults.iter().any(|fault| fault.kind == FaultKind::Unlicensed && fault.gpu as usize == gpu)
    }

    /// Returns the unit of a GPU or instance index.
    pub fn unit(&self, gres_index: usize) -> Option<&Unit> {
        self.units.iter().find(|unit| unit.gres_index == Some(gres_index))
    }

    /// Returns the specifications of a GPU or instance.
    pub fn model_at(&self, gres_index: usize) -> &GpuModel {
        self.unit(gres_index).map_or(&self.model, |unit| &unit.model)
    }

    /// Iterates over the active faults of one of its GPUs.
    pub fn fault_of(&self, gpu: usize, kind: FaultKind, t_ms: i64) -> Option<i64> {
        let of_kind = self.faults.iter().filter(|fault| fault.kind == kind && fault.gpu as usize == gpu);
        of_kind.filter_map(|fault| fault.window.age_ms(t_ms)).max()
    }
}

/// A GPU or MIG instance.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unit {
    /// The GPU.
    pub gpu: usize,
    /// Index in [`NodeScript::assignments`]; none for a GPU in MIG mode.
    pub gres_index: Option<usize>,
    /// Specifications.
    pub model: GpuModel,
    /// MIG instance, if it is one.
    pub mig: Option<Part>,
}

/// A MIG instance of a scenario.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    /// GPU instance id.
    pub gpu_instance: u32,
    /// Number of slices out of seven.
    pub slices: u32,
    /// Nominal memory in GB.
    pub mem_gb: u64,
}

/// A job on one GPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Assignment {
    /// Position in [`Scenario::jobs`].
    pub job: usize,
    /// Position in [`JobScript::locations`].
    pub slot: usize,
}

/// A fault of a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    pub kind: FaultKind,
    pub window: Window,
    pub rejoin_ms: i64,
    pub gpu: u32,
    pub xid: Option<u64>,
}

/// SLURM's state of a job that ran out of host memory.
pub(crate) const OUT_OF_MEMORY: &str = "OUT_OF_MEMORY";
/// Time before the end of such a job at which the kernel kills one of its processes, in ms.
const KILLED_BEFORE_MS: i64 = 20_000;

/// A job of the scenario. Times are in ms since the scenario's start.
#[derive(Debug)]
pub(crate) struct JobScript {
    pub id: u32,
    pub name: Text,
    pub user: Text,
    pub account: Option<Text>,
    pub partition: Text,
    pub qos: Option<Text>,
    pub submitted_ms: i64,
    pub start_ms: Option<i64>,
    pub end_ms: Option<i64>,
    pub ends_as: Text,
    pub limit_ms: Option<i64>,
    pub reason: Option<Text>,
    pub dependency: Option<Text>,
    pub script: String,
    pub every_ms: Option<i64>,
    pub cycle_ms: i64,
    pub nodes: Vec<usize>,
    /// Its GPUs, node by node; the position is the rank.
    pub locations: Vec<GpuLocation>,
    pub asks_nodes: u32,
    pub asks_gpus: u32,
    pub behaviour: Behaviour,
    pub checkpoint_ms: i64,
    pub memory_pct: u32,
    pub command: Text,
    pub args: Option<Text>,
    pub container: Option<Container>,
    pub array: Option<ArrayScript>,
    pub het: Option<(JobId, u32)>,
    pub steps: Option<u32>,
    pub message: Option<MessageEntry>,
    pub episodes: Vec<Episode>,
    /// Time at which one of its nodes is unavailable, and the node.
    pub deaths: Vec<(usize, Window)>,
}

impl JobScript {
    /// The share of a run of a job that ends out of memory at a time, from 0 to 1; `None` of other jobs.
    pub fn share_until_out_of_memory(&self, t_ms: i64) -> Option<f64> {
        let (start_ms, end_ms) = (self.start_ms?, self.end_ms?);
        if self.ends_as.as_str() != OUT_OF_MEMORY || self.array.is_some() || end_ms <= start_ms {
            return None;
        }
        let age_ms = match self.every_ms {
            Some(every_ms) => (t_ms - start_ms).rem_euclid(every_ms),
            None => t_ms - start_ms,
        };
        Some((age_ms as f64 / (end_ms - start_ms) as f64).clamp(0.0, 1.0))
    }

    /// Returns whether the kernel has killed a process of the job, which its batch script outlives by 20 s.
    pub fn is_killed_at(&self, t_ms: i64) -> bool {
        let life_ms = self.end_ms.zip(self.start_ms).map_or(0, |(end_ms, start_ms)| end_ms - start_ms);
        let killed = 1.0 - KILLED_BEFORE_MS as f64 / life_ms.max(1) as f64;
        self.share_until_out_of_memory(t_ms).is_some_and(|share| share >= killed && share < 1.0)
    }

    /// Its working directory.
    pub fn workdir(&self) -> String {
        let kept = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
        let name: String = self.name.as_str().chars().map(kept).collect();
        format!("/home/{}/runs/{name}", self.user)
    }
}

/// A GPU of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GpuLocation {
    /// Position in [`Scenario::nodes`].
    pub node: usize,
    pub gpu: u32,
}

/// An array of tasks with one GPU each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArrayScript {
    pub tasks: u32,
    pub task_ms: i64,
}

/// A period with another behaviour of some GPUs of a job.
#[derive(Debug)]
pub(crate) struct Episode {
    pub behaviour: Behaviour,
    pub window: Window,
    /// For each GPU of the job, whether it is affected.
    pub slots: Vec<bool>,
}

impl Scenario {
    /// Parses and validates a scenario file.
    ///
    /// # Errors
    /// [`ScenarioError`] for the first fault.
    pub fn from_toml(text: &str) -> Result<Self, ScenarioError> {
        compile::compile(text)
    }

    /// Names of all nodes, in the order of the file.
    pub fn node_names(&self) -> impl Iterator<Item = &NodeName> {
        self.nodes.iter().map(|node| &node.name)
    }

    /// The owner.
    pub fn user(&self) -> &Text {
        &self.user
    }

    /// Name of the cluster.
    pub fn cluster(&self) -> &Text {
        &self.cluster
    }

    /// The first controller of its SLURM.
    pub fn controller(&self) -> Option<&Text> {
        self.controller.as_ref()
    }

    /// Returns how long ago a fault of this kind began on a node, if it is active.
    pub(crate) fn fault_age_ms(&self, node: usize, kind: FaultKind, t_ms: i64) -> Option<i64> {
        let of_kind = self.nodes[node].faults.iter().filter(|fault| fault.kind == kind);
        of_kind.filter_map(|fault| fault.window.age_ms(t_ms)).max()
    }

    /// Returns `CLOCK_REALTIME` of a node, in ms since 1970.
    pub(crate) fn node_wall_ms(&self, node: usize, at: ScenarioTime) -> u64 {
        let is_wrong = self.fault_age_ms(node, FaultKind::ClockSkew, at.t_ms).is_some();
        at.wall_ms() + if is_wrong { 42_000 } else { 0 }
    }

    /// Returns `CLOCK_BOOTTIME` of a node, in ns.
    pub(crate) fn mono_ns(&self, node: usize, at: ScenarioTime) -> u64 {
        let (_, booted_ms) = self.boot(node, at.t_ms);
        u64::try_from(at.t_ms - booted_ms).unwrap_or(0) * 1_000_000
    }

    /// Returns the id of the first sample stream of a boot.
    pub(crate) fn stream_id(&self, node: usize, boots: u64) -> u64 {
        self.rng.at(node as u64).at(boots).number(2) >> 11
    }

    /// Returns the number of boots of a node, and the time of the last one in ms since the
    /// scenario's start.
    pub(crate) fn boot(&self, node: usize, t_ms: i64) -> (u64, i64) {
        let deaths = self.nodes[node].faults.iter().filter(|fault| fault.kind == FaultKind::Dies);
        let mut boots = 0;
        let mut booted_ms =
            -FIRST_UPTIME_MS - (self.rng.at(node as u64).number(1) % (30 * 86_400_000)) as i64;
        for death in deaths {
            boots += death.window.ends_before(t_ms);
            if let Some(over) = death.window.over_for_ms(t_ms) {
                booted_ms = booted_ms.max(t_ms - over);
            }
        }
        (boots.rem_euclid(1 << 32) as u64, booted_ms)
    }
}

/// Minimum uptime of a node without crashes.
const FIRST_UPTIME_MS: i64 = 9 * 86_400_000;
