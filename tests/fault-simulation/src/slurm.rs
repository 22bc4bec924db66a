//! The simulated cluster: its scenario, which states the faults of nodes, and its job list.

use crate::broken::Broken;
use crate::history::{Fault, Kind, NODES, node_name};
use async_trait::async_trait;
use nodeglass_launch::scripted::ScriptedCluster;
use nodeglass_protocol::NodeName;
use nodeglass_protocol::job::{Job, JobState};
use nodeglass_slurm::{JobSource, JobsError};
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Time limit of `squeue`.
const SQUEUE_LIMIT: Duration = Duration::from_secs(10);
/// The job that faults change, on the second half of the nodes.
pub const CHANGED_JOB: u32 = 2;
/// The node whose jobs end.
pub const ENDING: usize = NODES;
/// The node on which a job runs at times.
pub const ADDED: usize = NODES + 1;
/// Number of nodes that ever have jobs.
pub const ALL: usize = NODES + 2;

/// The cluster of a history, which begins now.
///
/// # Errors
/// The scenario is invalid.
pub fn cluster(faults: &[Fault], seed: u64, broken: Option<Broken>) -> anyhow::Result<ScriptedCluster> {
    let mut toml = scenario(faults, seed);
    if broken == Some(Broken::Findings) {
        toml.push_str("[[fault]]\nnodes = \"n2\"\nkind = \"clock_skew\"\n");
    }
    Ok(ScriptedCluster::from_toml(&toml)?)
}

/// The scenario of a history. The nodes have just booted, because every sample of a probe's first ten minutes costs time.
fn scenario(faults: &[Fault], seed: u64) -> String {
    let mut toml = format!(
        "cluster = \"simulated\"\nuser = \"alice\"\nseed = {seed}\ncycle = \"30d\"\n\
         [[node]]\nname = \"n[1-{ALL}]\"\nmodel = \"h100\"\ngpus = 2\ncpus = 16\nmem_gib = 256\n\
         [[fault]]\nnodes = \"n[1-{ALL}]\"\nkind = \"dies\"\nat = \"-90s\"\nfor = \"30s\"\n"
    );
    let half = NODES / 2;
    job(&mut toml, 1, &format!("n[1-{half}]"), -3_600, None);
    job(&mut toml, CHANGED_JOB, &format!("n[{}-{NODES}]", half + 1), -3_600, None);
    let (mut id, mut start_s) = (30, -3_600);
    for fault in faults.iter().filter(|fault| fault.kind == Kind::JobEnds) {
        let (end_s, next_s) = (fault.from_s as i64, fault.to_s as i64);
        if end_s > start_s {
            job(&mut toml, id, &node_name(ENDING), start_s, Some(end_s));
            (id, start_s) = (id + 1, next_s);
        }
    }
    job(&mut toml, id, &node_name(ENDING), start_s, None);
    let mut until_s = 0;
    for (id, fault) in (50..).zip(faults.iter().filter(|fault| fault.kind == Kind::NodeAdded)) {
        if fault.from_s > until_s {
            until_s = fault.to_s;
            job(&mut toml, id, &node_name(ADDED), fault.from_s as i64, Some(fault.to_s as i64));
        }
    }
    for fault in faults {
        if let Some(kind) = kind_in_scenario(fault.kind) {
            for node in &fault.of {
                let (name, lasts_s) = (node_name(*node), fault.to_s - fault.from_s);
                let _ = write!(
                    toml,
                    "[[fault]]\nnodes = \"{name}\"\nkind = \"{kind}\"\nat = \"{}s\"\nfor = \"{lasts_s}s\"\n",
                    fault.from_s
                );
            }
        }
    }
    toml
}

fn job(toml: &mut String, id: u32, nodes: &str, start_s: i64, end_s: Option<i64>) {
    let end = end_s.map_or_else(String::new, |end_s| format!("end = \"{end_s}s\"\n"));
    let _ = write!(
        toml,
        "[[job]]\nid = {id}\nname = \"job{id}\"\npartition = \"gpu\"\nsubmitted = \"-2h\"\nstart = \"{start_s}s\"\n{end}\
         limit = \"30d\"\nnodes = \"{nodes}\"\nbehaviour = \"inference\"\nargs = \"python3 train.py\"\n"
    );
}

/// The scenario's name of a fault.
fn kind_in_scenario(kind: Kind) -> Option<&'static str> {
    Some(match kind {
        Kind::Crash => "dies",
        Kind::Unreachable => "unreachable",
        Kind::Silent => "silent",
        Kind::DriverHang => "nvml_stuck",
        Kind::NoDriver => "no_driver",
        Kind::ClockSkew => "clock_skew",
        _ => return None,
    })
}

/// The job list of a cluster.
#[derive(Clone)]
pub struct Squeue {
    pub cluster: ScriptedCluster,
    pub faults: Arc<Vec<Fault>>,
    pub start: Instant,
}

impl Squeue {
    /// The true list.
    pub fn list(&self) -> Vec<Job> {
        let at_s = self.start.elapsed().as_secs();
        let now = self.cluster.now();
        let begin_s = now.start_wall_ms / 1_000;
        let mut jobs = self.cluster.scenario().jobs(now);
        for job in jobs.iter_mut().filter(|job| job.id.0 == CHANGED_JOB) {
            for fault in self.faults.iter().filter(|fault| fault.from_s <= at_s) {
                let is_active = fault.is_active(at_s);
                match fault.kind {
                    Kind::NodeRemoved if is_active => {
                        let removed = node_name(NODES - 1);
                        job.nodes.retain(|node| node.as_str() != removed);
                        job.gpus.retain(|gpus| gpus.node.as_str() != removed);
                    }
                    Kind::JobRequeued => {
                        job.restarts += 1;
                        // SLURM expects the start at the end of the wait.
                        job.start = Some(begin_s + fault.to_s.cast_signed());
                        if is_active {
                            job.state = JobState::Pending;
                            job.nodes.clear();
                            job.gpus.clear();
                        }
                    }
                    _ => {}
                }
            }
        }
        jobs
    }

    /// The nodes of running jobs.
    pub fn nodes(&self) -> Vec<NodeName> {
        self.list().into_iter().filter(Job::is_active).flat_map(|job| job.nodes).collect()
    }

    fn has(&self, kind: Kind) -> bool {
        let at_s = self.start.elapsed().as_secs();
        self.faults.iter().any(|fault| fault.kind == kind && fault.is_active(at_s))
    }
}

#[async_trait]
impl JobSource for Squeue {
    async fn jobs(&mut self) -> Result<Vec<Job>, JobsError> {
        if self.has(Kind::SlurmHangs) {
            sleep(SQUEUE_LIMIT).await;
            return Err(JobsError { why: "squeue did not answer within 10 s".into() });
        }
        if self.has(Kind::SlurmFails) {
            return Err(JobsError { why: "slurmctld cannot be reached".into() });
        }
        Ok(self.list())
    }

    fn requests(&self) -> u32 {
        2
    }
}
