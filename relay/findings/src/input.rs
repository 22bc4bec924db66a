//! Input of the detectors: jobs with their GPUs, and the readings of the last minutes.

use super::held_rules::HeldRules;
use super::job_log::JobLogs;
use super::now::Now;
use super::series::{GpuSeries, NodeSeries};
use super::thresholds::Thresholds;
use super::tracker::{KnownCause, Tracker};
use nodeglass_protocol::finding::FindingKind;
use nodeglass_protocol::job::{Job, JobState};
use nodeglass_protocol::picture::{GpuPicture, NodePicture};
use nodeglass_protocol::{GpuField, JobField, JobId, NodeName};
use nodeglass_rules::health::{Freshness, freshness};
use nodeglass_rules::ownership;
use std::collections::{BTreeMap, BTreeSet};

/// Time after the first sample of a node, in ms, from which a condition that newly appears is known to have just begun: a
/// probe examines links and memory every few seconds, and detectors run every ten.
const SETTLING_MS: u64 = 30_000;

/// Everything that detectors examine.
pub struct DetectorInput<'a> {
    /// Login name of the user who runs the relay; empty if unknown.
    pub user: &'a str,
    /// All jobs.
    pub jobs: &'a [Job],
    /// All nodes by name.
    pub nodes: &'a BTreeMap<&'a NodeName, &'a NodePicture>,
    /// The series of each node.
    pub series: &'a BTreeMap<NodeName, NodeSeries>,
    /// Content of the logs of jobs.
    pub logs: &'a JobLogs,
    /// Thresholds of the detectors.
    pub thresholds: &'a Thresholds,
    /// The current time.
    pub now: Now,
    /// The hosts that are watched whether or not a job runs there.
    pub hosts: Option<&'a BTreeSet<NodeName>>,
    /// The nodes to which the user cannot log in, for a reason that is the same for all of them.
    pub refused_logins: Option<&'a BTreeSet<NodeName>>,
    /// Jobs that hung lately, by this relay or an earlier one.
    pub hung: Option<&'a BTreeMap<JobId, u64>>,
    /// The rows for which rules hold.
    pub held: Option<&'a HeldRules>,
    /// The findings so far.
    pub tracker: Option<&'a Tracker>,
    /// The active jobs on each node.
    jobs_on: BTreeMap<&'a NodeName, Vec<&'a Job>>,
}

/// One GPU of a job.
#[derive(Clone, Copy)]
pub struct JobGpu<'a> {
    /// Its node.
    pub node: &'a NodePicture,
    /// The GPU.
    pub gpu: &'a GpuPicture,
    /// Its readings of the last ten minutes.
    pub series: &'a GpuSeries,
}

/// The GPUs of a running job.
pub struct JobGpus<'a> {
    /// The job.
    pub job: &'a Job,
    /// Its GPUs in SLURM's order.
    pub units: Vec<JobGpu<'a>>,
    /// Whether all of them are known and currently read. Otherwise nothing may be concluded about the job as a whole.
    pub is_complete: bool,
    /// When it began, in ms of the relay's clock.
    pub started_ms: u64,
}

impl JobGpus<'_> {
    /// CPU use of the job in % of one core per GPU; `None` where it is not known on every node.
    pub fn cores_busy(&self) -> Option<u64> {
        let mut sum = 0;
        let mut last = None;
        for unit in &self.units {
            if last == Some(&unit.node.name) {
                continue;
            }
            last = Some(&unit.node.name);
            let usage = unit.node.job_usage.iter().find(|usage| usage.job == self.job.id)?;
            sum = u64::saturating_add(sum, usage.row.value(JobField::Cpu)?);
        }
        Some(sum / self.units.len() as u64)
    }
}

impl<'a> DetectorInput<'a> {
    /// The state of a fleet at a moment.
    pub fn new(
        user: &'a str,
        jobs: &'a [Job],
        nodes: &'a BTreeMap<&'a NodeName, &'a NodePicture>,
        series: &'a BTreeMap<NodeName, NodeSeries>,
        logs: &'a JobLogs,
        thresholds: &'a Thresholds,
        now: Now,
    ) -> Self {
        let mut jobs_on: BTreeMap<&NodeName, Vec<&Job>> = BTreeMap::new();
        for job in jobs.iter().filter(|job| job.is_active()) {
            job.nodes.iter().for_each(|node| jobs_on.entry(node).or_default().push(job));
        }
        Self {
            user,
            jobs,
            nodes,
            series,
            logs,
            thresholds,
            now,
            hosts: None,
            refused_logins: None,
            hung: None,
            held: None,
            tracker: None,
            jobs_on,
        }
    }

    /// Returns whether a job hung lately.
    pub fn was_hung(&self, job: JobId) -> bool {
        self.hung.is_some_and(|hung| hung.contains_key(&job))
    }

    /// Returns the cause that was last read for a finding that lasts.
    pub fn known_cause(&self, kind: FindingKind, subject: &str) -> Option<KnownCause<'a>> {
        self.tracker?.cause(kind, subject)
    }

    /// Returns until when findings of these kinds about a job lasted; see [`Tracker::lasted_until_ms`].
    pub fn lasted_until_ms(&self, kinds: &[FindingKind], job: JobId) -> Option<u64> {
        self.tracker?.lasted_until_ms(kinds, &job.to_string())
    }

    /// Returns whether the readings of a node are current.
    pub fn is_current(&self, node: &NodePicture) -> bool {
        freshness(node, self.now.relay_ms) == Freshness::Fresh && node.head.driver_stuck_ms.is_none()
    }

    /// The start of a condition that is seen now for the first time, in ms of the relay's clock, and whether it may have
    /// begun earlier, because the node was read for a moment only.
    pub fn seen_now(&self, node: &NodePicture) -> (u64, bool) {
        let first_ms = self.series.get(&node.name).and_then(NodeSeries::first_ms);
        let is_settled = first_ms.is_some_and(|first_ms| first_ms + SETTLING_MS <= self.now.relay_ms);
        (self.now.relay_ms, !is_settled)
    }

    /// Returns whether a node is watched whether or not a job runs there.
    pub fn is_listed(&self, node: &NodePicture) -> bool {
        self.hosts.is_some_and(|hosts| hosts.contains(&node.name))
    }

    /// Returns whether a node is examined: one on which a job runs, or that is watched in any case. One whose jobs have
    /// ended is not.
    pub fn is_examined(&self, node: &NodePicture) -> bool {
        self.is_listed(node) || self.jobs.is_empty() || !self.jobs_on(node).is_empty()
    }

    /// The active jobs on a node.
    pub fn jobs_on(&self, node: &NodePicture) -> &[&'a Job] {
        self.jobs_on.get(&node.name).map_or(&[], Vec::as_slice)
    }

    /// The GPUs of each running job.
    pub fn job_gpus(&self) -> Vec<JobGpus<'a>> {
        let running = self.jobs.iter().filter(|job| job.state == JobState::Running);
        running.map(|job| self.gpus_of(job)).collect()
    }

    fn gpus_of(&self, job: &'a Job) -> JobGpus<'a> {
        let mut units = Vec::new();
        let mut is_complete = !job.nodes.is_empty();
        for name in &job.nodes {
            let Some(node) = self.nodes.get(name).copied().filter(|node| self.is_current(node)) else {
                is_complete = false;
                continue;
            };
            // Where ownership is unknown, a GPU may be another job's.
            let is_shared = self.jobs_on(node).len() > 1;
            for gpu in &node.gpus {
                if !ownership::counts(node, gpu, Some(job.id)) || is_shared && gpu.owners.is_empty() {
                    continue;
                }
                let series = self.series.get(name).and_then(|series| series.gpu(&gpu.facts.uuid));
                match series.filter(|_| gpu.fault.is_none()) {
                    Some(series) => units.push(JobGpu { node, gpu, series }),
                    None => is_complete = false,
                }
            }
        }
        let started_ms = job.start.map_or(0, |start| self.now.to_relay_ms(start));
        JobGpus { job, units, is_complete, started_ms }
    }
}

impl JobGpu<'_> {
    /// `gpu-h05 GPU 3`.
    pub fn location(&self) -> String {
        format!("{} {}", self.node.name, self.gpu.facts.label())
    }

    /// `rank 35`, or the location if no single rank is known; a job may have several GPUs with one index.
    pub fn name(&self) -> String {
        match ownership::ranks(self.node, &self.gpu.facts.uuid).as_slice() {
            [rank] => format!("rank {rank}"),
            _ => self.location(),
        }
    }

    /// `Rank 35 (gpu-h05 GPU 3)`, or the location alone if no rank is known.
    pub fn title(&self) -> String {
        match ownership::ranks(self.node, &self.gpu.facts.uuid).as_slice() {
            [] => self.location(),
            [rank] => format!("Rank {rank} ({})", self.location()),
            ranks => {
                let ranks: Vec<String> = ranks.iter().map(u32::to_string).collect();
                format!("Ranks {} ({})", ranks.join(", "), self.location())
            }
        }
    }

    /// Returns whether its readings show what one job does.
    pub fn is_whole(&self) -> bool {
        ownership::is_whole(self.node, self.gpu)
    }

    /// The current value of a field in its unit.
    pub fn value(&self, field: GpuField) -> Option<u64> {
        self.gpu.row.value(field)
    }
}

/// Returns the names of at most four GPUs: `n1 GPU 0, n1 GPU 1 and 6 more`.
pub fn locations(units: &[JobGpu<'_>]) -> String {
    let names: Vec<String> = units.iter().take(4).map(JobGpu::location).collect();
    match units.len().saturating_sub(names.len()) {
        0 => names.join(", "),
        more => format!("{} and {more} more", names.join(", ")),
    }
}
