//! Simulates a whole cluster from a scenario file: jobs, nodes and faults, through the same
//! interfaces as a real one.
//!
//! It is the engine of `relay --demo` and of tests. [`Scenario`] is the pure core that computes
//! readings and jobs for any time, reproducibly. A task per link speaks wire one.

mod activity;
mod answers;
mod clock;
mod compile;
mod duration;
mod energy;
mod error;
mod facts;
mod file;
mod gpu_model;
mod health;
mod host;
mod hostlist;
mod interventions;
mod job_control;
mod log;
mod probe;
mod processes;
mod profile;
mod readings;
mod rng;
mod sample_clock;
mod sample_clocks;
mod scenario;
mod schedule;
mod traffic;
mod validate;
mod window;
mod workload;

pub use error::{ScenarioError, ScenarioFault};
pub use scenario::{Scenario, ScenarioTime};

use super::{LaunchError, Launcher, NodeStream, PIPE_DEPTH};
use crate::slurm::{JobController, JobSource, JobsError};
use async_trait::async_trait;
use clock::ScenarioClock;
use file::FaultKind;
use nodeglass_protocol::ask::JobOrder;
use nodeglass_protocol::job::Job;
use nodeglass_protocol::{NodeName, Text};
use probe::ScriptedProbe;
use sample_clocks::SampleClocks;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// The scenario of `relay --demo`: 16 nodes with 8 GPUs each, some of other kinds, and something of everything.
pub const DEMO: &str = include_str!("../../scenarios/demo.toml");
/// One job on 64 nodes with 8 GPUs each.
pub const LARGE: &str = include_str!("../../scenarios/large.toml");
/// Two nodes with two GPUs each whose readings never change.
pub const QUIET: &str = include_str!("../../scenarios/quiet.toml");

/// A cluster that plays a scenario, starting when it is created.
#[derive(Clone, Debug)]
pub struct ScriptedCluster {
    scenario: Arc<Scenario>,
    clock: ScenarioClock,
    sample_clocks: Arc<SampleClocks>,
}

impl ScriptedCluster {
    /// Creates the cluster of `relay --demo`.
    pub fn demo() -> Self {
        Self::from_toml(DEMO).expect("the demo scenario is part of this binary, and a test reads it")
    }

    /// Creates a cluster that plays a scenario file.
    ///
    /// # Errors
    /// [`ScenarioError`] for the first invalid line.
    pub fn from_toml(text: &str) -> Result<Self, ScenarioError> {
        let scenario = Arc::new(Scenario::from_toml(text)?);
        Ok(Self { scenario, clock: ScenarioClock::start(), sample_clocks: Arc::default() })
    }

    /// Returns the scenario.
    pub fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    /// Returns the current time of the scenario.
    pub fn now(&self) -> ScenarioTime {
        self.clock.now()
    }

    /// Returns the launcher of its probes.
    pub fn launcher(&self) -> Scripted {
        Scripted { cluster: self.clone() }
    }

    /// Returns its job list, which also performs job control.
    pub fn jobs(&self) -> ScriptedJobs {
        ScriptedJobs { cluster: self.clone() }
    }
}

/// Launcher of scripted probes.
#[derive(Clone, Debug)]
pub struct Scripted {
    cluster: ScriptedCluster,
}

#[async_trait]
impl Launcher for Scripted {
    fn name(&self) -> &'static str {
        "scripted"
    }

    async fn launch(&self, node: &NodeName) -> Result<NodeStream, LaunchError> {
        let ScriptedCluster { scenario, clock, sample_clocks } = &self.cluster;
        let unreachable = |why: String| LaunchError::Unreachable { why: Text::new(why) };
        let index = scenario.by_name.get(node);
        let index =
            *index.ok_or_else(|| unreachable(format!("cannot find {node}: name or service not known")))?;
        // Simulates connection latency, which differs between nodes.
        tokio::time::sleep(Duration::from_millis(120 + scenario.rng.at(index as u64).number(41) % 500)).await;
        let gone = [FaultKind::Dies, FaultKind::Unreachable];
        if gone.iter().any(|kind| scenario.fault_age_ms(index, *kind, clock.now().t_ms).is_some()) {
            return Err(unreachable(format!("cannot connect to {node} port 22: no route to host")));
        }
        let (out, stdout) = mpsc::channel(PIPE_DEPTH);
        let (stdin, job_control) = mpsc::channel(PIPE_DEPTH);
        let (ended, end) = oneshot::channel();
        let probe = ScriptedProbe::new(scenario.clone(), index, *clock, sample_clocks.clone(), out);
        tokio::spawn(async move {
            // The receiver may be gone already.
            let _ = ended.send(probe.run(job_control).await);
        });
        Ok(NodeStream { stdout, stdin, end })
    }
}

/// Job list and job control of a scripted cluster, equivalent to `squeue` and `scancel`.
#[derive(Clone, Debug)]
pub struct ScriptedJobs {
    cluster: ScriptedCluster,
}

#[async_trait]
impl JobSource for ScriptedJobs {
    async fn jobs(&mut self) -> Result<Vec<Job>, JobsError> {
        Ok(self.cluster.scenario.jobs(self.cluster.now()))
    }
}

#[async_trait]
impl JobController for ScriptedJobs {
    async fn execute(&self, job: &Job, order: JobOrder) -> Result<Text, Text> {
        job_control::apply(&self.cluster.scenario, self.cluster.now(), job, order)
    }
}

#[cfg(test)]
mod tests;
