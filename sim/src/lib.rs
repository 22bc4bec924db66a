//! Simulates a whole cluster from a scenario file: jobs, nodes, GPUs and faults.
//!
//! It is the engine of `relay --demo`, of tests and of benchmarks. A [`Scenario`] is a pure function
//! of time: it computes readings and jobs for any moment, reproducibly. A [`SimulatedProbe`] drives
//! node-probe's own state machine with it, on a virtual clock: the same scenario, times and control
//! lines yield the same bytes.

mod captures;
mod cluster;
mod gpu;
mod host;
mod launcher;
mod logs;
mod probe;
mod processes;
mod responses;
mod scenario;

pub use launcher::{Cluster, ConnectError};
pub use probe::{ProbeEnd, SimulatedProbe};
pub use scenario::{Scenario, ScenarioError, ScenarioFault, ScenarioTime};

use gpu::{facts, health, readings};
use nodeglass_protocol::job::Job;
use nodeglass_protocol::probe::{HealthReport, Hello, ProcessList, Sample};
use nodeglass_protocol::request::{JobAction, ProbeRequest, Response, Tail};
use nodeglass_protocol::{NodeName, Text};

/// The scenario of `relay --demo`: 16 nodes with 8 GPUs each, some of other kinds, and something of
/// everything.
pub const DEMO: &str = include_str!("../scenarios/demo.toml");
/// One job on 64 nodes with 8 GPUs each.
pub const LARGE: &str = include_str!("../scenarios/large.toml");
/// Two nodes with two GPUs each whose readings never change.
pub const QUIET: &str = include_str!("../scenarios/quiet.toml");

/// The cluster at a time.
impl Scenario {
    /// Returns the hello of a node's probe; `None` for an unknown node.
    pub fn hello(&self, node: &NodeName, at: ScenarioTime) -> Option<Hello> {
        Some(facts::hello(self, *self.by_name.get(node)?, at))
    }

    /// Returns the readings of a node, without sequence number and interval, which the probe sets;
    /// `None` for an unknown node.
    pub fn sample(&self, node: &NodeName, at: ScenarioTime) -> Option<Sample> {
        Some(readings::sample(self, *self.by_name.get(node)?, at))
    }

    /// Returns the processes on a node's GPUs; `None` for an unknown node.
    pub fn processes(&self, node: &NodeName, at: ScenarioTime) -> Option<ProcessList> {
        Some(processes::processes(self, *self.by_name.get(node)?, at))
    }

    /// Returns the health of a node's GPUs; `None` for an unknown node.
    pub fn health(&self, node: &NodeName, at: ScenarioTime) -> Option<HealthReport> {
        Some(health::report(self, *self.by_name.get(node)?, at))
    }

    /// The owner's jobs, as SLURM would list them.
    pub fn jobs(&self, at: ScenarioTime) -> Vec<Job> {
        cluster::schedule::jobs(self, at)
    }

    /// Returns the response of a node's probe to a request, and performs it; `None` for an unknown
    /// node.
    pub fn respond(&self, node: &NodeName, at: ScenarioTime, request: &ProbeRequest) -> Option<Response> {
        Some(responses::respond(self, *self.by_name.get(node)?, at, request))
    }

    /// Returns what is new in a log of the owner's jobs after an offset; `None` if there is no such file.
    pub fn log_tail(&self, at: ScenarioTime, path: &str, after: u64) -> Option<Tail> {
        logs::tail(self, at, path, after)
    }

    /// Performs a job control operation on one of the owner's jobs, as `scancel` and `scontrol` do.
    ///
    /// # Errors
    /// Reason for the rejection.
    pub fn control_job(&self, at: ScenarioTime, job: &Job, order: JobAction) -> Result<Text, Text> {
        cluster::job_control::apply(self, at, job, order)
    }
}

#[cfg(test)]
mod tests;
