//! The record of a job: its sums, and what is stated beside them.

use super::{NodeTotals, advice, summary};
use nodeglass_protocol::NodeName;
use nodeglass_protocol::finding::{Finding, FindingTrait};
use nodeglass_protocol::job::Job;
use nodeglass_protocol::note::{self, MAX_PER_JOB, Note};
use nodeglass_protocol::report::{Accounting, Cost, Report};
use nodeglass_rules::ownership::has_every_cpu;
use nodeglass_rules::run::{ms_of, run_time_until};
use serde::{Deserialize, Serialize};

/// A job and its sums: what a report is made from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobRecord {
    /// The job as SLURM last reported it.
    pub job: Job,
    /// Whether the job has ended, so that nothing will be added.
    pub is_final: bool,
    /// When the sums were taken, in s since 1970.
    pub at_s: i64,
    /// Detected application.
    pub application: Option<String>,
    /// Sums by node.
    pub nodes: Vec<NodeTotals>,
    /// Cost of a GPU hour and of energy when it ran.
    #[serde(default)]
    pub factors: Factors,
    /// Record of SLURM's accounting about it.
    #[serde(default)]
    pub accounting: Option<Accounting>,
    /// Findings during its run, by time.
    #[serde(default)]
    pub findings: Vec<Finding>,
    /// When its first sample was taken, in s since 1970: what a finding lost before is not part of the sums.
    #[serde(default)]
    pub observed_from_s: Option<i64>,
    /// The last change of its size.
    #[serde(default)]
    pub resized: Resized,
    /// [`JobRecord::at_s`] of the last record of the run that was final although the job ran on.
    #[serde(default)]
    pub false_end_s: Option<i64>,
}

/// The last change of a running job's size, as by `scontrol update NumNodes=`; zero if there was none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Resized {
    /// Run time of the job at the change, in s.
    pub elapsed_s: u64,
    /// Allocated GPU time until then, in GPU seconds.
    pub gpu_s: u64,
}

impl Resized {
    /// Returns what a job of `gpu_count` GPUs since then was allocated in a run time, in GPU seconds.
    pub(crate) fn gpu_seconds(self, gpu_count: u32, elapsed_s: u64) -> u64 {
        let since_s = elapsed_s.saturating_sub(self.elapsed_s);
        self.gpu_s.saturating_add(since_s.saturating_mul(gpu_count.into()))
    }

    /// Returns the last change, given that a job is listed at `wall_s`, in s since 1970, which was `before`.
    pub(crate) fn updated(self, before: &Job, job: &Job, wall_s: i64) -> Self {
        match (before.gpu_count, job.gpu_count, run_time_until(before, wall_s)) {
            (Some(old), Some(new), Some(elapsed_s)) if old != new && before.start == job.start => {
                Self { elapsed_s, gpu_s: self.gpu_seconds(old, elapsed_s) }
            }
            _ => self,
        }
    }
}

/// Cost of a GPU hour and emissions of a kWh, as configured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Factors {
    /// Price of an allocated GPU hour.
    pub gpu_hour: Option<Cost>,
    /// Emissions of a kWh in g of CO₂.
    pub co2_g_per_kwh: Option<f64>,
}

/// The notes for a report.
#[derive(Clone, Debug, Default)]
pub struct ReportNotes {
    /// The notes.
    pub notes: Vec<Note>,
    /// Whether these are all; not if stored ones could not be read.
    pub are_complete: bool,
}

impl From<Vec<Note>> for ReportNotes {
    fn from(notes: Vec<Note>) -> Self {
        Self { notes, are_complete: true }
    }
}

impl JobRecord {
    /// Creates the record of a job without an observation.
    pub fn of(job: Job, at_s: i64) -> Self {
        Self {
            job,
            is_final: false,
            at_s,
            application: None,
            nodes: Vec::new(),
            factors: Factors::default(),
            accounting: None,
            findings: Vec::new(),
            observed_from_s: None,
            resized: Resized::default(),
            false_end_s: None,
        }
    }

    /// Returns for how long its nodes were observed together, in ms.
    pub fn observed_ms(&self) -> u64 {
        self.nodes.iter().map(|node| node.observed_ms).fold(0, u64::saturating_add)
    }

    /// The final record of the job, which ended as `job` states.
    pub(crate) fn ended(mut self, job: Job) -> Self {
        let ended_ms = job.ended.map_or(0, ms_of);
        for finding in &mut self.findings {
            finding.ended_ms = finding.ended_ms.or(Some(ended_ms.max(finding.since_ms)));
        }
        Self { job, is_final: true, ..self }
    }

    /// The report of the job.
    pub fn report(&self) -> Report {
        let report = summary::without_advice(self);
        Report { advice: advice::of(&report, &self.nodes), ..report }
    }

    /// Returns the report of the job with its notes, without the notes of an earlier job with the same number.
    pub fn report_with(&self, notes: impl Into<ReportNotes>) -> Report {
        let ReportNotes { mut notes, are_complete } = notes.into();
        let lacks_notes = !are_complete || notes.len() >= MAX_PER_JOB;
        let since_ms = self.job.submitted.map_or(0, ms_of);
        notes.retain(|note| note.at_ms >= since_ms);
        notes.sort_unstable_by_key(note::order);
        Report { notes, lacks_notes, ..self.report() }
    }

    /// Leaves out what a guest may not see, who sees the job as `visible`; `None` if that is another run of it.
    pub fn for_guest(mut self, visible: Job) -> Option<Self> {
        if self.job.start != visible.start {
            return None;
        }
        // As for the readings: of a shared node, the traffic tells what other users do.
        let has_hosts = has_every_cpu(&self.job, self.nodes.iter().map(|node| node.cpus));
        if !has_hosts {
            self.nodes.iter_mut().for_each(NodeTotals::hide_host);
        }
        let count = self.nodes.len();
        self.nodes.retain(|node| visible.nodes.contains(&node.node));
        let is_part = self.nodes.len() < count;
        let hidden: Vec<NodeName> =
            self.job.nodes.iter().filter(|node| !visible.nodes.contains(node)).cloned().collect();
        self.job = visible;
        if is_part {
            // They are of the whole job.
            (self.job.gpu_count, self.job.cpus, self.job.mem_bytes) = (None, None, None);
            if let Some(accounting) = &mut self.accounting {
                accounting.max_rss_bytes = None;
            }
            self.job.node_count = u32::try_from(self.nodes.len()).unwrap_or(u32::MAX);
        }
        let names_only_shown = |finding: &Finding| {
            // Those of nodes, and of what processes leave behind, may be made from what a share hides.
            !finding.kind.is(FindingTrait::OfNode)
                && !finding.kind.is(FindingTrait::OfProcesses)
                && (has_hosts || !finding.kind.is(FindingTrait::OfHost))
                && finding.jobs == [self.job.id]
                && finding.nodes.iter().all(|node| self.job.nodes.contains(node))
        };
        self.findings.retain(names_only_shown);
        self.findings = std::mem::take(&mut self.findings)
            .into_iter()
            .filter_map(nodeglass_findings::for_guests)
            .filter_map(|finding| nodeglass_findings::without_nodes(finding, &hidden))
            .collect();
        // It follows from the arguments of processes.
        self.application = None;
        // What the owner pays is the owner's. Emissions are left out as well: beside the energy, they state the factor.
        self.factors = Factors::default();
        Some(self)
    }
}
