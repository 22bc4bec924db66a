//! Resources for programs: jobs, nodes, GPUs and processes as plain JSON; pure.
//!
//! The HTTP API serves them, and the commands of the terminal read them back. They are made from a [`Picture`] that
//! is already filtered for its viewer. Times are RFC 3339 in UTC by the login node's clock. A reading without a value
//! is `null`, never zero, and [`Absences`] states why.

mod capture;
mod finding;
#[cfg(any(test, feature = "test-support"))]
pub mod fixtures;
mod gpu;
mod insight;
mod job;
mod job_selector;
mod losses;
pub mod metrics;
mod node;
mod notification;
mod own_load;
mod probe;
mod process;
mod readings;
mod select;
mod series;
mod share;
mod silence;
mod timestamp;
mod token;

pub use capture::{Capture, ProcessGroup};
pub use finding::{AffectedGpu, Finding};
pub use gpu::{Gpu, GpuJob, Health, Limits, Link, Mig, PcieLink};
pub use insight::{JobBottleneck, JobProgress};
pub use job::{ArrayTask, HetComponent, Job, JobSuspension, JobTotals};
pub use job_selector::{JobSelector, JobSelectorError, Listed, NotOneJob};
pub use losses::{ConnectionLosses, Losses, UnstoredRecords};
pub use node::{ConnectionState, Driver, Node, NodeEvent, NodeJob};
use nodeglass_protocol::picture::NodePicture;
use nodeglass_protocol::{JobId, NodeName, Picture};
pub use notification::{ChannelStatus, RemoteWriteStatus};
pub use own_load::{AutoExit, LimitedBy, OwnLoad};
pub use probe::ProbeStatus;
pub use process::{ContainerInfo, Process, ProcessContext, ProcessRank, RunState};
pub use readings::{Absence, Absences, GpuReadings, HostReadings, JobReadings, ProcessReadings, Readings};
pub use select::{Fields, UnknownField};
use serde::{Deserialize, Serialize};
pub use series::{History, Series};
pub use share::ShareList;
pub use silence::{Silence, SilenceChange, silenced_jobs};
use std::collections::HashMap;
pub use timestamp::Timestamp;
pub use token::{CreatedToken, NewToken, Token};
use utoipa::ToSchema;

/// Everything that a viewer may see at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Snapshot {
    /// When it was taken; while a recording is played, the time in the recording.
    #[serde(default)]
    pub at: Option<Timestamp>,
    /// Jobs, running ones first.
    pub jobs: Vec<Job>,
    /// Nodes of running jobs, and listed machines, by name.
    pub nodes: Vec<Node>,
    /// GPUs and MIG instances of these nodes.
    pub gpus: Vec<Gpu>,
    /// Processes on these GPUs: one entry per process and GPU.
    pub processes: Vec<Process>,
    /// Findings: active ones, the worst first, then those that ended within the last hour.
    #[serde(default)]
    pub findings: Vec<Finding>,
}

impl Snapshot {
    /// Converts a picture whose clock is `wall_ahead_ms` behind the time since 1970.
    pub fn new(picture: &Picture, wall_ahead_ms: i64) -> Self {
        let clock = Clock { wall_ahead_ms };
        let nodes = || picture.nodes.iter();
        let unlocated = UnlocatedJobs::new(picture);
        Self {
            at: Some(clock.timestamp(picture.at_ms)),
            jobs: picture.jobs.iter().map(|job| Job::new(job, picture, clock)).collect(),
            nodes: nodes().map(|node| Node::new(node, picture, clock)).collect(),
            gpus: nodes()
                .flat_map(|node| {
                    let may_have_any = unlocated.are_on(node);
                    node.gpus.iter().map(move |gpu| Gpu::new(node, gpu, may_have_any, clock))
                })
                .collect(),
            processes: nodes()
                .flat_map(|node| node.processes.iter().map(move |process| Process::new(node, process)))
                .collect(),
            findings: picture.findings.iter().map(Finding::new).collect(),
        }
    }
}

/// The jobs of each node, to find those of which it is unknown which GPUs of the node they have.
struct UnlocatedJobs<'a> {
    jobs: HashMap<&'a NodeName, Vec<JobId>>,
}

impl<'a> UnlocatedJobs<'a> {
    fn new(picture: &'a Picture) -> Self {
        let mut jobs = HashMap::<_, Vec<_>>::new();
        for job in picture.jobs.iter().filter(|job| job.is_active()) {
            job.nodes.iter().for_each(|node| jobs.entry(node).or_default().push(job.id));
        }
        Self { jobs }
    }

    /// Returns whether such a job is on a node. A job that SLURM says to have no GPU is none.
    fn are_on(&self, node: &NodePicture) -> bool {
        let is_located = |job| {
            node.gpus.iter().any(|gpu| gpu.is_owned_by(job))
                || node.head.without_gpus.binary_search(&job).is_ok()
        };
        self.jobs.get(&node.name).is_some_and(|jobs| !jobs.iter().all(|job| is_located(*job)))
    }
}

/// Converts times of the relay's clock.
#[derive(Clone, Copy, Debug)]
struct Clock {
    wall_ahead_ms: i64,
}

impl Clock {
    fn timestamp(self, at_ms: u64) -> Timestamp {
        Timestamp::from_millis(at_ms.saturating_add_signed(self.wall_ahead_ms))
    }
}

/// The value of a reading; its other states are `null` in JSON.
fn value<T: Clone>(reading: &nodeglass_protocol::Reading<T>) -> Option<T> {
    reading.value().cloned()
}

/// Returns the value of a text, if it has one.
fn text(reading: &nodeglass_protocol::Reading<nodeglass_protocol::Text>) -> Option<String> {
    reading.value().map(ToString::to_string)
}

#[cfg(test)]
mod tests;
