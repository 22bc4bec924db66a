//! A SLURM job as a resource.

use super::{Clock, JobBottleneck, JobProgress, Timestamp};
use nodeglass_protocol::job::{self, JobState, Parent, TimeLimit};
use nodeglass_protocol::picture::{GpuPicture, Link, NodePicture, ProcessPicture};
use nodeglass_protocol::{GpuField, GpuUuid, Picture};
use nodeglass_rules::health::slurm_state;
use nodeglass_rules::run::Submission;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use utoipa::ToSchema;

/// A SLURM job, array task or heterogeneous component, as last reported by SLURM.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Job {
    /// Numeric job id (`squeue %A`).
    pub id: u32,
    /// Job id as users write it: `17`, `3_0`, `4+1`.
    pub label: String,
    /// Job name.
    pub name: String,
    /// Login name of the owner.
    pub user: String,
    /// Account.
    pub account: Option<String>,
    /// Partition, or the requested list while pending.
    pub partition: String,
    /// Quality of service.
    pub qos: Option<String>,
    /// SLURM's state: `PENDING`, `RUNNING`, `COMPLETED`, …; `ENDED` if the job only left the list.
    pub state: String,
    /// Whether it holds nodes at present.
    pub is_active: bool,
    /// SLURM's reason code while pending or after a failure.
    pub reason: Option<String>,
    /// Meaning of the reason, and advice.
    pub reason_text: Option<String>,
    /// Dependencies as SLURM writes them.
    pub dependency: Option<String>,
    /// The array that it is a task of.
    pub array: Option<ArrayTask>,
    /// The heterogeneous job that it is a component of.
    pub het: Option<HetComponent>,
    /// Submit time.
    pub submitted_at: Option<Timestamp>,
    /// Start time; while pending, the start that SLURM expects.
    pub started_at: Option<Timestamp>,
    /// End time.
    pub ended_at: Option<Timestamp>,
    /// Time limit in s; `null` if there is none or SLURM does not report it.
    pub time_limit_s: Option<u64>,
    /// Its nodes, in SLURM's order; empty while pending.
    pub nodes: Vec<String>,
    /// Number of nodes allocated or requested.
    pub node_count: u32,
    /// Number of CPUs allocated or requested.
    pub cpus: Option<u32>,
    /// Memory allocated or requested, in bytes.
    pub mem_bytes: Option<u64>,
    /// Number of GPUs allocated or requested.
    pub gpu_count: Option<u32>,
    /// UUIDs of its known GPUs; `totals` are sums over them.
    pub gpus: Vec<String>,
    /// UUIDs of further GPUs that its processes use, although SLURM has not allocated them to it.
    #[serde(default)]
    pub foreign_gpus: Vec<String>,
    /// Working directory.
    pub workdir: Option<String>,
    /// Batch script or command.
    pub command: Option<String>,
    /// Path of the standard output.
    pub stdout: Option<String>,
    /// Path of the standard error.
    pub stderr: Option<String>,
    /// Exit code and signal as SLURM writes them: `1:0`, `0:9`.
    pub exit_code: Option<String>,
    /// Number of restarts.
    pub restarts: u32,
    /// When it was last suspended or resumed; `null` if it never was.
    #[serde(default)]
    pub suspension: Option<JobSuspension>,
    /// Sums over its GPUs.
    pub totals: JobTotals,
    /// Progress of its program, by the counters in its logs; for the owner's running jobs.
    #[serde(default)]
    pub progress: Option<JobProgress>,
    /// The limit of its GPUs' speed; `null` if there is no clear one. For the owner's relay only.
    #[serde(default)]
    pub bottleneck: Option<JobBottleneck>,
}

/// The last time that a job was suspended, if its state is `SUSPENDED`, or else resumed. Neither its run time nor its time
/// limit counts while it is suspended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobSuspension {
    /// When it was suspended or resumed.
    pub at: Timestamp,
    /// Its run time until then, in s.
    pub ran_s: u64,
}

/// The array that a job is a task of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ArrayTask {
    /// Id of the array.
    pub job: u32,
    /// Task id; `null` for the pending rest.
    pub task: Option<u32>,
}

/// The heterogeneous job that a job is a component of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HetComponent {
    /// Id of the leader.
    pub job: u32,
    /// Offset of the component.
    pub offset: u32,
}

/// Sums over the GPUs of a job that can be read, on nodes that are connected; `null` where no GPU has the reading.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct JobTotals {
    /// Number of its GPUs that are read.
    pub gpus: u32,
    /// Mean utilisation in %.
    pub util_pct: Option<f64>,
    /// Power draw in W.
    pub power_w: Option<u64>,
    /// Device memory in use, in bytes.
    pub mem_used_bytes: Option<u64>,
    /// Device memory in bytes.
    pub mem_total_bytes: Option<u64>,
    /// Highest temperature in °C.
    pub temp_c: Option<u64>,
}

impl Job {
    /// Returns whether it has ended, rather than that it holds nodes or waits for them.
    pub fn has_ended(&self) -> bool {
        !self.is_active && !self.is_pending()
    }

    /// Returns whether it waits for nodes.
    pub fn is_pending(&self) -> bool {
        self.state == "PENDING"
    }

    /// Returns its submission, which distinguishes it from another job with its number.
    pub fn submission(&self) -> Submission<'_> {
        let array = self.array.as_ref().map(|array| array.job);
        Submission {
            user: &self.user,
            name: &self.name,
            submitted_s: self.submitted_at.and_then(|at| i64::try_from(at.as_millis() / 1_000).ok()),
            parent: array.or_else(|| self.het.as_ref().map(|het| het.job)),
        }
    }

    /// Returns its run time as SLURM counts it, if it has started: at its end, or at `now_s` in s since 1970.
    pub fn run_time_s(&self, now_s: u64) -> Option<u64> {
        let started_at = self.started_at.filter(|_| self.is_active || self.ended_at.is_some())?;
        let until_s = self.ended_at.map_or(now_s, |at| at.as_millis() / 1_000);
        let since = |at: Timestamp| until_s.saturating_sub(at.as_millis() / 1_000);
        Some(match &self.suspension {
            Some(suspension) if self.state == "SUSPENDED" => suspension.ran_s,
            Some(suspension) => suspension.ran_s.saturating_add(since(suspension.at)),
            None => since(started_at),
        })
    }

    pub(super) fn new(job: &job::Job, picture: &Picture, clock: Clock) -> Self {
        let insight = picture.insight(job.id);
        let nodes = || picture.nodes.iter().filter(|node| job.nodes.contains(&node.name));
        let is_own = |gpu: &&GpuPicture| gpu.is_owned_by(job.id);
        let own: Vec<&GpuPicture> = nodes().flat_map(|node| &node.gpus).filter(is_own).collect();
        let current = nodes().filter(|node| !is_stale(node)).flat_map(|node| &node.gpus).filter(is_own);
        let (array, het) = match job.part_of {
            Some(Parent::Array { job, task }) => (Some(ArrayTask { job: job.0, task }), None),
            Some(Parent::Het { job, offset }) => (None, Some(HetComponent { job: job.0, offset })),
            None => (None, None),
        };
        Self {
            id: job.id.0,
            label: job.label.to_string(),
            name: job.name.to_string(),
            user: job.user.to_string(),
            account: job.account.as_ref().map(ToString::to_string),
            partition: job.partition.to_string(),
            qos: job.qos.as_ref().map(ToString::to_string),
            state: state(&job.state),
            is_active: job.is_active(),
            reason: job.reason.as_ref().map(ToString::to_string),
            reason_text: job.reason_text.as_ref().map(ToString::to_string),
            dependency: job.dependency.as_ref().map(ToString::to_string),
            array,
            het,
            submitted_at: job.submitted.and_then(Timestamp::from_secs),
            started_at: job.start.and_then(Timestamp::from_secs),
            ended_at: job.ended.and_then(Timestamp::from_secs),
            time_limit_s: match job.limit {
                TimeLimit::Seconds(s) => Some(s),
                TimeLimit::Unknown | TimeLimit::Unlimited => None,
            },
            nodes: job.nodes.iter().map(ToString::to_string).collect(),
            node_count: job.node_count,
            cpus: job.cpus,
            mem_bytes: job.mem_bytes,
            gpu_count: job.gpu_count,
            gpus: own.iter().map(|gpu| gpu.facts.uuid.to_string()).collect(),
            foreign_gpus: foreign_gpus(job, picture),
            workdir: job.workdir.as_ref().map(ToString::to_string),
            command: job.command.as_ref().map(ToString::to_string),
            stdout: job.stdout.as_ref().map(ToString::to_string),
            stderr: job.stderr.as_ref().map(ToString::to_string),
            exit_code: job.exit.as_ref().map(ToString::to_string),
            restarts: job.restarts,
            suspension: job.suspension.and_then(|suspension| {
                Some(JobSuspension { at: Timestamp::from_secs(suspension.at)?, ran_s: suspension.ran_s })
            }),
            totals: JobTotals::new(current),
            progress: insight
                .and_then(|insight| insight.progress.as_ref())
                .map(|progress| JobProgress::new(progress, clock)),
            bottleneck: insight.and_then(|insight| insight.bottleneck.as_ref()).map(JobBottleneck::new),
        }
    }
}

/// The GPUs on the nodes of a job that its processes compute on, and that are not its own.
fn foreign_gpus(job: &job::Job, picture: &Picture) -> Vec<String> {
    let nodes = picture.nodes.iter().filter(|node| job.nodes.contains(&node.name));
    let foreign = nodes.flat_map(|node| {
        // Once, as a hostile node may list as many GPUs and processes as it is allowed to.
        let is_own =
            |process: &&ProcessPicture| process.facts.job == Some(job.id) && process.facts.kind.compute;
        let used: BTreeSet<&GpuUuid> =
            node.processes.iter().filter(is_own).map(|process| &process.facts.gpu).collect();
        node.gpus.iter().filter(move |gpu| {
            gpu.owners.iter().all(|owner| owner.job != job.id) && used.contains(&gpu.facts.uuid)
        })
    });
    foreign.map(|gpu| gpu.facts.uuid.to_string()).collect()
}

/// Returns whether the readings of a node are from before its connection broke.
fn is_stale(node: &NodePicture) -> bool {
    let link = &node.head.link;
    matches!(link, Link::Silent | Link::Down { .. } | Link::Connecting { .. } | Link::Refused { .. })
}

impl JobTotals {
    fn new<'a>(gpus: impl Iterator<Item = &'a GpuPicture>) -> Self {
        let read: Vec<_> = gpus.filter(|gpu| gpu.fault.is_none()).collect();
        let values = |field: GpuField| read.iter().filter_map(move |gpu| gpu.row.value(field));
        let sum = |field| values(field).reduce(u64::saturating_add);
        let utilized = values(GpuField::Util).count();
        Self {
            gpus: u32::try_from(read.len()).unwrap_or(u32::MAX),
            util_pct: (utilized > 0).then(|| {
                (values(GpuField::Util).sum::<u64>() as f64 / utilized as f64 * 10.0).round() / 10.0
            }),
            power_w: sum(GpuField::Power),
            mem_used_bytes: sum(GpuField::MemUsed),
            mem_total_bytes: sum(GpuField::MemTotal),
            temp_c: values(GpuField::Temp).max(),
        }
    }
}

/// SLURM's name of a state.
fn state(state: &JobState) -> String {
    match slurm_state(state) {
        "" => "ENDED".to_owned(),
        name => name.to_owned(),
    }
}
