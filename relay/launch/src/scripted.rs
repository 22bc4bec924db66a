//! Launches the probes of a simulated cluster (`--demo`), and lists and controls its jobs, through the interfaces of
//! a real one.

mod clock;

use super::{LaunchError, Launcher, NodeStream, PIPE_DEPTH, StreamEnd};
use async_trait::async_trait;
use bytes::Bytes;
use clock::ScenarioClock;
use nodeglass_protocol::job::Job;
use nodeglass_protocol::request::{JobAction, Tail};
use nodeglass_protocol::{NodeName, Text};
use nodeglass_sim::{Cluster, ConnectError, ProbeEnd, Scenario, ScenarioError, ScenarioTime, SimulatedProbe};
use nodeglass_slurm::{JobController, JobSource, JobsError};
use tokio::sync::{mpsc, oneshot};

/// A cluster that plays a scenario, starting when it is created.
#[derive(Clone, Debug)]
pub struct ScriptedCluster {
    cluster: Cluster,
    clock: ScenarioClock,
}

impl ScriptedCluster {
    /// Creates the cluster of `relay --demo`.
    pub fn demo() -> Self {
        Self::from_toml(nodeglass_sim::DEMO)
            .expect("the demo scenario is part of the binary, and a test reads it")
    }

    /// Creates a cluster that plays a scenario file.
    ///
    /// # Errors
    /// [`ScenarioError`] for the first invalid line.
    pub fn from_toml(text: &str) -> Result<Self, ScenarioError> {
        Ok(Self { cluster: Cluster::new(Scenario::from_toml(text)?), clock: ScenarioClock::start() })
    }

    /// Returns the scenario.
    pub fn scenario(&self) -> &Scenario {
        self.cluster.scenario()
    }

    /// Returns the current time of the scenario.
    pub fn now(&self) -> ScenarioTime {
        self.clock.now()
    }

    /// Returns what is new in the log of an ended job after an offset; `None` if there is no such file.
    pub fn log_tail(&self, job: &Job, path: &str, after: u64) -> Option<Tail> {
        // SLURM forgets the job soon, but the file stays as it was at its end.
        let ended_ms = job.ended?.saturating_add(1).saturating_mul(1_000);
        let mut at = self.now();
        at.t_ms = at.t_ms.min(ended_ms.saturating_sub(at.start_wall_ms));
        self.scenario().log_tail(at, path, after)
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

/// Launcher of simulated probes.
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
        let ScriptedCluster { cluster, clock } = &self.cluster;
        tokio::time::sleep(cluster.latency(node).map_err(failure)?).await;
        let probe = cluster.connect(node, clock.now()).map_err(failure)?;
        let (out, stdout) = mpsc::channel(PIPE_DEPTH);
        let (stdin, control) = mpsc::channel(PIPE_DEPTH);
        let (ended, end) = oneshot::channel();
        let link = Link { probe, clock: *clock, out };
        tokio::spawn(async move {
            // The receiver may be gone already.
            let _ = ended.send(link.run(control).await);
        });
        Ok(NodeStream { stdout, stdin, end })
    }
}

/// Maps a failure as the launchers of real nodes do.
fn failure(error: ConnectError) -> LaunchError {
    let why = Text::new(error.to_string());
    match error {
        ConnectError::UnknownHostKey(node) => LaunchError::HostKey {
            why,
            advice: format!("check it and record it by logging in once: ssh {node}").into(),
        },
        ConnectError::UnknownNode(_) | ConnectError::NoRoute(_) => LaunchError::Unreachable { why },
    }
}

/// The link to a simulated probe: moves its clock and its bytes.
struct Link {
    probe: SimulatedProbe,
    clock: ScenarioClock,
    out: mpsc::Sender<Bytes>,
}

impl Link {
    /// Runs until the probe ends or its pipe is closed.
    async fn run(mut self, mut control: mpsc::Receiver<Bytes>) -> StreamEnd {
        loop {
            self.probe.advance(self.clock.now());
            let Some(wake) = self.probe.next_wake() else { break };
            tokio::select! {
                biased;
                // The reader is gone.
                () = self.out.closed() => return exited(),
                // The pipe has room.
                Ok(permit) = self.out.reserve(), if self.probe.has_output() => {
                    permit.send(self.probe.take_output().into());
                }
                // A control line, or the end of the link.
                chunk = control.recv() => match chunk {
                    Some(chunk) => self.probe.receive(&chunk),
                    None => self.probe.input_ended(),
                },
                // Something is due. Computing the past takes a while, so other links get their turn.
                () = tokio::time::sleep_until(self.clock.instant(wake.t_ms)) => {
                    tokio::task::yield_now().await;
                }
            }
        }
        while self.probe.has_output() {
            if self.out.send(self.probe.take_output().into()).await.is_err() {
                break;
            }
        }
        match self.probe.end() {
            Some(ProbeEnd::Disconnected(why)) => {
                StreamEnd { broken: Some(why.into()), ..StreamEnd::default() }
            }
            Some(ProbeEnd::Exited) | None => exited(),
        }
    }
}

fn exited() -> StreamEnd {
    StreamEnd { exit: Some(0), ..StreamEnd::default() }
}

/// Job list and job control of a simulated cluster, equivalent to `squeue` and `scancel`.
#[derive(Clone, Debug)]
pub struct ScriptedJobs {
    cluster: ScriptedCluster,
}

#[async_trait]
impl JobSource for ScriptedJobs {
    fn is_free(&self) -> bool {
        true
    }

    async fn jobs(&mut self) -> Result<Vec<Job>, JobsError> {
        Ok(self.cluster.scenario().jobs(self.cluster.now()))
    }
}

#[async_trait]
impl JobController for ScriptedJobs {
    async fn execute(&self, job: &Job, order: JobAction) -> Result<Text, Text> {
        self.cluster.scenario().control_job(self.cluster.now(), job, order)
    }
}

#[cfg(test)]
mod tests;
