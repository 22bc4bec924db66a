//! Reports: resource usage of a job, and sums over many jobs.

use crate::finding::{Finding, FindingKind, FindingSeverity};
use crate::note::Note;
use crate::{GpuUuid, JobId, LongText, NodeName, Text};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Number of tenths of the scale of utilisation.
pub const UTIL_BINS: usize = 10;

/// Maximum number of jobs of one query.
pub const MAX_JOBS: usize = 8;
/// Maximum number of days of one query.
pub const MAX_DAYS: u32 = 366;

/// A query for reports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReportQuery {
    /// The reports of these jobs, at most [`MAX_JOBS`].
    Jobs(Vec<JobId>),
    /// Usage of the owner's jobs of the last days, at most [`MAX_DAYS`]; owner only.
    Usage {
        /// Number of days, up to now.
        days: u32,
    },
    /// Faults of a node and of its GPUs during the jobs of the last days, at most [`MAX_DAYS`]; owner only.
    Faults {
        /// The node.
        node: NodeName,
        /// Number of days, up to now.
        days: u32,
    },
}

/// Response to a [`ReportQuery`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReportAnswer {
    /// The reports of those jobs that the relay has seen and the viewer may see, in the order of the query.
    Jobs(Vec<Report>),
    /// Usage of the owner's jobs.
    Usage(Box<Usage>),
    /// No answer, for this reason.
    Refused(Text),
    /// Faults of the node, the worst first, then the latest.
    Faults(Vec<NodeFault>),
}

/// One kind of fault of a GPU or of a node as a whole, as found during jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NodeFault {
    /// The node.
    pub node: NodeName,
    /// Index of the GPU; `None` if the fault is of the node as a whole.
    pub gpu: Option<u32>,
    /// The kind of finding.
    pub kind: FindingKind,
    /// The worst severity.
    pub severity: FindingSeverity,
    /// The latest title.
    pub title: LongText,
    /// Number of such findings.
    pub times: u32,
    /// Number of jobs that it affected.
    pub jobs: u32,
    /// When it began first, in ms since 1970.
    pub first_ms: u64,
    /// When it was last seen, in ms since 1970.
    pub last_ms: u64,
    /// For how long it lasted in all, in s; 0 for an event such as an Xid.
    pub lasted_s: u64,
    /// Whether it lasted when the report was made.
    pub is_active: bool,
}

/// Report of a job's resource usage. A value that was never known is absent, not zero.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Report {
    /// Numeric job id.
    pub job: JobId,
    /// Job id as users write it.
    pub label: Text,
    /// Job name.
    pub name: Text,
    /// Owner.
    pub user: Text,
    /// Account.
    pub account: Option<Text>,
    /// Partition.
    pub partition: Text,
    /// SLURM's state, such as `RUNNING`, `COMPLETED` or `TIMEOUT`; empty if the job only left the list.
    pub state: Text,
    /// Exit code and signal as SLURM writes them.
    pub exit: Option<Text>,
    /// Detected application.
    pub application: Option<Text>,
    /// Whether the job has ended.
    pub is_final: bool,
    /// Time of the report, in s since 1970.
    pub at_s: i64,
    /// Start, in s since 1970.
    pub start_s: Option<i64>,
    /// End, in s since 1970.
    pub ended_s: Option<i64>,
    /// Run time in s.
    pub elapsed_s: u64,
    /// Time limit in s, if there is one.
    pub limit_s: Option<u64>,
    /// Nodes of which samples were taken.
    pub nodes: Vec<NodeName>,
    /// Number of nodes allocated.
    pub node_count: u32,
    /// Share of the run time, on all nodes, for which there are samples, in %.
    pub observed_pct: f64,
    /// Sums over all GPUs and nodes.
    pub totals: Totals,
    /// Statement of SLURM's accounting, if it exists and the job has ended.
    pub accounting: Option<Accounting>,
    /// Each GPU.
    pub gpus: Vec<GpuReport>,
    /// Advice on a better request for such a job.
    pub advice: Vec<Advice>,
    /// Notes of the job, by time, from its submission on.
    #[serde(default)]
    pub notes: Vec<Note>,
    /// Whether notes of the job may be missing: stored ones could not be read, or the job has as many as are kept.
    #[serde(default)]
    pub lacks_notes: bool,
    /// Findings during its run, by time; at most [`MAX_FINDINGS`].
    #[serde(default)]
    pub findings: Vec<Finding>,
}

impl Report {
    /// Returns whether its utilisation is, of some GPUs, the SM activity of MIG instances.
    pub fn has_sm_activity(&self) -> bool {
        self.gpus.iter().any(|gpu| gpu.util_pct.is_some() && gpu.uuid.is_mig_instance())
    }

    /// Returns whether it is unknown at `now_s`, in s since 1970, if the job still runs: it may have ended while no relay ran,
    /// which is why no relay has stored newer figures.
    pub fn is_outdated(&self, now_s: i64) -> bool {
        !self.is_final && now_s.saturating_sub(self.at_s) > OUTDATED_S
    }

    /// Returns a sentence about a job whose figures are outdated, the newest ones being of `at`.
    pub fn last_observed(at: impl fmt::Display) -> String {
        format!(
            "The job was running at {at}, when it was last observed; it is not known whether it has ended."
        )
    }
}

/// Age in s of the figures of a running job that shows that no relay observes it: one that does stores them every few minutes.
const OUTDATED_S: i64 = 1_800;

/// Maximum number of findings of a report; the oldest ones are left out.
pub const MAX_FINDINGS: usize = 64;

/// Sums over all GPUs and nodes of a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Totals {
    /// Number of GPUs by SLURM, else as observed.
    pub gpus: u32,
    /// GPUs × run time, in h.
    pub gpu_hours_allocated: f64,
    /// Part of it for which there are samples, in h.
    pub gpu_hours_observed: f64,
    /// Integral of utilisation over the observed time without hangs, in h.
    pub gpu_hours_used: f64,
    /// GPU time of collective hangs, in h: busy by its utilisation, and lost.
    pub gpu_hours_hung: f64,
    /// Part of `gpu_hours_used` that findings state as lost to GPUs slower than their peers, in h: the others waited for them.
    pub gpu_hours_slowed: f64,
    /// Observed time at 5 % utilisation or less, in h.
    pub gpu_hours_idle: f64,
    /// Observed time with a known utilisation that was not used, in h: `gpu_hours_idle`, `gpu_hours_hung`, and what busy GPUs
    /// had left.
    pub gpu_hours_unused: f64,
    /// Mean utilisation in %; of MIG instances, SM activity.
    pub util_pct: Option<f64>,
    /// Share of the time in each tenth of the scale of utilisation, in %.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Vec<f64>>))]
    pub util_distribution_pct: Option<[f64; UTIL_BINS]>,
    /// Energy of the GPUs while their power was known, in kWh.
    pub energy_kwh: Option<f64>,
    /// Share of the allocated GPU time in which power was known, in %.
    pub energy_known_pct: f64,
    /// Share of the run for which traffic, and CPUs and memory of the job, are known, in %: probes do not keep these from before
    /// the relay's first sample. 100 if none of them is ever known.
    pub usage_known_pct: f64,
    /// Mean SM clock, or core clock of another vendor, in MHz.
    pub sm_clock_mhz: Option<f64>,
    /// Most memory in use of one GPU, in bytes.
    pub gpu_mem_peak_bytes: Option<u64>,
    /// Memory of one GPU, in bytes.
    pub gpu_mem_total_bytes: Option<u64>,
    /// Throttling of all GPUs.
    pub throttled: Vec<Throttled>,
    /// Xid errors.
    pub xids: u32,
    /// Uncorrected ECC errors.
    pub ecc_uncorrected: Option<u64>,
    /// Corrected ECC errors.
    pub ecc_corrected: Option<u64>,
    /// Received over PCIe, in bytes.
    pub pcie_rx_bytes: Option<f64>,
    /// Sent over PCIe, in bytes.
    pub pcie_tx_bytes: Option<f64>,
    /// Received over NVLink or the links of another vendor, in bytes.
    pub link_rx_bytes: Option<f64>,
    /// Sent over NVLink, in bytes.
    pub link_tx_bytes: Option<f64>,
    /// Received from the network by all of the job's nodes as a whole, in bytes.
    pub nodes_net_rx_bytes: Option<f64>,
    /// Sent to the network by them, in bytes.
    pub nodes_net_tx_bytes: Option<f64>,
    /// Read from local disks by them, in bytes.
    pub nodes_disk_read_bytes: Option<f64>,
    /// Written to local disks by them, in bytes.
    pub nodes_disk_write_bytes: Option<f64>,
    /// Mean number of CPUs used, on all nodes.
    pub cpus_used: Option<f64>,
    /// Sum of the highest numbers of CPUs used on each node.
    pub cpus_peak: Option<f64>,
    /// CPUs allocated.
    pub cpus_allocated: Option<u32>,
    /// Sum of the most memory used on each node, in bytes.
    pub mem_peak_bytes: Option<u64>,
    /// Memory requested, in bytes.
    pub mem_requested_bytes: Option<u64>,
    /// Processes killed at the memory limit.
    pub oom_kills: Option<u64>,
    /// Price of the allocated GPU hours, if the relay was given one.
    pub cost: Option<Cost>,
    /// Emissions of the known energy in kg of CO₂, if the relay knows the emissions of a kWh.
    pub co2_kg: Option<f64>,
}

/// Statement of SLURM's accounting (`sacct`) about an ended job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Accounting {
    /// State, such as `COMPLETED` or `CANCELLED by 2001`.
    pub state: Text,
    /// Exit code of the batch script.
    pub exit_code: u32,
    /// Signal that ended it.
    pub signal: Option<u32>,
    /// Highest exit code of the job's steps (`DerivedExitCode`).
    pub step_exit_code: Option<u32>,
    /// Most memory of one task in any step (`MaxRSS`), in bytes.
    pub max_rss_bytes: Option<u64>,
    /// End, in s since 1970.
    pub ended_s: i64,
    /// Run time in s.
    pub elapsed_s: Option<u64>,
    /// Last reason why the job waited, or why it failed.
    pub reason: Option<Text>,
}

/// An amount of money.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Cost {
    /// The amount.
    pub amount: f64,
    /// Its currency, or another unit of account, as configured.
    pub currency: Text,
}

/// Time for which clocks were throttled for one reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Throttled {
    /// The reason.
    pub reason: Text,
    /// Sum over the GPUs, in s.
    pub seconds: f64,
}

/// One GPU of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GpuReport {
    /// Its node.
    pub node: NodeName,
    /// Its index there.
    pub index: u32,
    /// Its UUID.
    pub uuid: GpuUuid,
    /// Model.
    pub model: Option<Text>,
    /// Observed time in s.
    pub observed_s: f64,
    /// Mean utilisation in %; of a MIG instance, SM activity.
    pub util_pct: Option<f64>,
    /// Share of the time in each tenth of the scale of utilisation, in %.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Vec<f64>>))]
    pub util_distribution_pct: Option<[f64; UTIL_BINS]>,
    /// Time at 5 % utilisation or less, in s.
    pub idle_s: Option<f64>,
    /// Energy in kWh.
    pub energy_kwh: Option<f64>,
    /// Mean SM clock, or core clock of another vendor, in MHz.
    pub sm_clock_mhz: Option<f64>,
    /// Most memory in use, in bytes.
    pub mem_peak_bytes: Option<u64>,
    /// Size of the memory, in bytes.
    pub mem_total_bytes: Option<u64>,
    /// Throttling.
    pub throttled: Vec<Throttled>,
    /// Xid errors.
    pub xids: u32,
    /// Uncorrected ECC errors.
    pub ecc_uncorrected: Option<u64>,
    /// Corrected ECC errors.
    pub ecc_corrected: Option<u64>,
    /// Time in which it could not be read, in s.
    pub fault_s: f64,
}

/// One piece of advice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Advice {
    /// The observation, a complete sentence with its numbers.
    pub text: Text,
    /// The line of the batch script that would have fitted, if one would.
    pub sbatch: Option<Text>,
}

/// Resource usage of all jobs of the last days.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Usage {
    /// Number of days, up to now, in which the jobs started.
    pub days: u32,
    /// All of them.
    pub total: UsageSums,
    /// By week of their start, newest first.
    pub weeks: Vec<WeekUsage>,
    /// By project, most unused GPU hours first.
    pub projects: Vec<ProjectUsage>,
    /// The jobs with the most unused GPU hours, worst first.
    pub wasteful: Vec<JobUsage>,
    /// The newest jobs, newest first.
    pub jobs: Vec<JobUsage>,
    /// Reason why jobs that ended while no relay ran may be missing, a complete sentence; absent if `sacct` listed
    /// them.
    #[serde(default)]
    pub incomplete: Option<Text>,
}

/// Sums over jobs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UsageSums {
    /// Number of jobs.
    pub jobs: u32,
    /// Number of jobs without an observation: `sacct` states their allocation.
    pub jobs_unobserved: u32,
    /// See [`Totals::gpu_hours_allocated`].
    pub gpu_hours_allocated: f64,
    /// See [`Totals::gpu_hours_observed`]. All that follows is of these hours.
    pub gpu_hours_observed: f64,
    /// See [`Totals::gpu_hours_used`].
    pub gpu_hours_used: f64,
    /// See [`Totals::gpu_hours_unused`].
    pub gpu_hours_unused: f64,
    /// See [`Totals::gpu_hours_hung`]; a part of the unused ones.
    pub gpu_hours_hung: f64,
    /// See [`Totals::gpu_hours_slowed`]; a part of the used ones.
    pub gpu_hours_slowed: f64,
    /// See [`Totals::gpu_hours_idle`]; a part of the unused ones.
    pub gpu_hours_idle: f64,
    /// See [`Totals::energy_kwh`].
    pub energy_kwh: Option<f64>,
    /// See [`Totals::cost`]; one amount per currency.
    pub costs: Vec<Cost>,
    /// See [`Totals::co2_kg`].
    pub co2_kg: Option<f64>,
}

/// The jobs that started in one week.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WeekUsage {
    /// Its Monday, 0 h in the time zone of the relay, in s since 1970.
    pub monday_s: i64,
    /// Sums over its jobs.
    pub sums: UsageSums,
}

/// The jobs of one project.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ProjectUsage {
    /// The account, else the job name without the numbers at its end.
    pub project: Text,
    /// Sums over its jobs.
    pub sums: UsageSums,
}

/// One job among many.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct JobUsage {
    /// Job id.
    pub job: JobId,
    /// Job id as users write it.
    pub label: Text,
    /// Job name.
    pub name: Text,
    /// See [`Report::state`].
    pub state: Text,
    /// Whether the job has ended.
    pub is_final: bool,
    /// Start, in s since 1970.
    pub start_s: Option<i64>,
    /// Run time in s.
    pub elapsed_s: u64,
    /// Number of GPUs.
    pub gpus: u32,
    /// See [`Totals::gpu_hours_allocated`].
    pub gpu_hours_allocated: f64,
    /// See [`Totals::gpu_hours_observed`].
    pub gpu_hours_observed: f64,
    /// See [`Totals::gpu_hours_used`].
    pub gpu_hours_used: f64,
    /// See [`Totals::gpu_hours_unused`].
    pub gpu_hours_unused: f64,
    /// See [`Totals::gpu_hours_hung`]; a part of the unused ones.
    pub gpu_hours_hung: f64,
    /// See [`Totals::gpu_hours_slowed`]; a part of the used ones.
    pub gpu_hours_slowed: f64,
    /// Mean utilisation in %.
    pub util_pct: Option<f64>,
    /// See [`Report::observed_pct`].
    pub observed_pct: f64,
}

impl UsageSums {
    /// Adds a job.
    pub fn add(&mut self, report: &Report) {
        self.jobs = self.jobs.saturating_add(1);
        let Totals { gpu_hours_allocated, gpu_hours_observed, gpu_hours_used, .. } = report.totals;
        // The first sums of a job that has just started may be missing.
        let is_unobserved = gpu_hours_observed == 0.0 && gpu_hours_allocated > 0.0 && report.is_final;
        self.jobs_unobserved = self.jobs_unobserved.saturating_add(u32::from(is_unobserved));
        self.gpu_hours_allocated += gpu_hours_allocated;
        // The clocks of SLURM and of the relay differ by moments.
        self.gpu_hours_observed += gpu_hours_observed.min(gpu_hours_allocated);
        self.gpu_hours_used += gpu_hours_used;
        self.gpu_hours_unused += report.totals.gpu_hours_unused;
        self.gpu_hours_hung += report.totals.gpu_hours_hung;
        self.gpu_hours_slowed += report.totals.gpu_hours_slowed;
        self.gpu_hours_idle += report.totals.gpu_hours_idle;
        let sum = |all: Option<f64>, part: Option<f64>| part.map(|part| all.unwrap_or(0.0) + part).or(all);
        self.energy_kwh = sum(self.energy_kwh, report.totals.energy_kwh);
        self.co2_kg = sum(self.co2_kg, report.totals.co2_kg);
        if let Some(cost) = &report.totals.cost {
            match self.costs.iter_mut().find(|sum| sum.currency == cost.currency) {
                Some(sum) => sum.amount += cost.amount,
                None => self.costs.push(cost.clone()),
            }
        }
    }
}
