//! The report of a job, computed from its sums.

use super::JobRecord;
use super::totals::{BINS, GpuTotals, Integral, NodeTotals, THROTTLE_REASONS};
use nodeglass_protocol::job::{JobState, TimeLimit};
use serde::{Deserialize, Serialize};

/// Milliseconds of an hour.
const HOUR_MS: f64 = 3_600_000.0;
/// Joules of a kilowatt-hour.
const KWH_J: f64 = 3_600_000.0;

/// What a job did with what it was given. A value that was never known is absent, not zero.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Numeric job id.
    pub job: u32,
    /// Job id as users write it.
    pub label: String,
    /// Job name.
    pub name: String,
    /// Owner.
    pub user: String,
    /// Account.
    pub account: Option<String>,
    /// Partition.
    pub partition: String,
    /// SLURM's state, such as `RUNNING`, `COMPLETED` or `TIMEOUT`; empty if the job only left the list.
    pub state: String,
    /// Exit code and signal as SLURM writes them.
    pub exit: Option<String>,
    /// Detected application.
    pub application: Option<String>,
    /// Whether the job has ended.
    pub is_final: bool,
    /// What the report is of, in s since 1970.
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
    pub nodes: Vec<String>,
    /// Number of nodes allocated.
    pub node_count: u32,
    /// Share of the run time, on all nodes, for which there are samples, in %.
    pub observed_pct: f64,
    /// Sums over all GPUs and nodes.
    pub totals: Totals,
    /// Each GPU.
    pub gpus: Vec<GpuReport>,
    /// What would have fitted the job better.
    pub advice: Vec<Advice>,
}

/// Sums over all GPUs and nodes of a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    /// Number of GPUs by SLURM, else as observed.
    pub gpus: u32,
    /// GPUs × run time, in h.
    pub gpu_hours_allocated: f64,
    /// Part of it for which there are samples, in h.
    pub gpu_hours_observed: f64,
    /// Integral of utilisation over the observed time, in h.
    pub gpu_hours_used: f64,
    /// Observed time at 5 % utilisation or less, in h.
    pub gpu_hours_idle: f64,
    /// Mean utilisation in %.
    pub util_pct: Option<f64>,
    /// Share of the time in each tenth of the scale of utilisation, in %.
    pub util_distribution_pct: Option<[f64; BINS]>,
    /// Energy of the GPUs while their power was known, in kWh.
    pub energy_kwh: Option<f64>,
    /// Share of the allocated GPU time in which power was known, in %.
    pub energy_known_pct: f64,
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
    /// Sent over the same, in bytes.
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
}

/// How long clocks were lowered for one reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Throttled {
    /// The reason.
    pub reason: String,
    /// Sum over the GPUs, in s.
    pub seconds: f64,
}

/// One GPU of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GpuReport {
    /// Its node.
    pub node: String,
    /// Its index there.
    pub index: u32,
    /// Its UUID.
    pub uuid: String,
    /// Model.
    pub model: Option<String>,
    /// Observed time in s.
    pub observed_s: f64,
    /// Mean utilisation in %.
    pub util_pct: Option<f64>,
    /// Share of the time in each tenth of the scale of utilisation, in %.
    pub util_distribution_pct: Option<[f64; BINS]>,
    /// Time at 5 % utilisation or less, in s.
    pub idle_s: Option<f64>,
    /// Energy in kWh.
    pub energy_kwh: Option<f64>,
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
pub struct Advice {
    /// What was observed, a complete sentence with its numbers.
    pub text: String,
    /// The line of the batch script that would have fitted, if one would.
    pub sbatch: Option<String>,
}

impl Report {
    /// The report of a job's sums, without advice.
    pub(super) fn without_advice(record: &JobRecord) -> Self {
        let JobRecord { job, nodes, .. } = record;
        let until_s = job.ended.unwrap_or(record.at_s);
        let elapsed_s = job.start.map_or(0, |start| until_s.saturating_sub(start).max(0).cast_unsigned());
        let gpus =
            nodes.iter().flat_map(|node| node.gpus.iter().map(|gpu| GpuReport::new(node, gpu))).collect();
        let observed_ms: u64 = nodes.iter().map(|node| node.observed_ms).sum();
        let node_count = job.node_count.max(u32::try_from(nodes.len()).unwrap_or(u32::MAX));
        Self {
            job: job.id.0,
            label: job.label.to_string(),
            name: job.name.to_string(),
            user: job.user.to_string(),
            account: job.account.as_ref().map(ToString::to_string),
            partition: job.partition.to_string(),
            state: state_name(&job.state),
            exit: job.exit.as_ref().map(ToString::to_string),
            application: record.application.clone(),
            is_final: record.is_final,
            at_s: record.at_s,
            start_s: job.start,
            ended_s: job.ended,
            elapsed_s,
            limit_s: match job.limit {
                TimeLimit::Seconds(limit_s) => Some(limit_s),
                TimeLimit::Unknown | TimeLimit::Unlimited => None,
            },
            nodes: nodes.iter().map(|node| node.node.to_string()).collect(),
            node_count,
            observed_pct: share(observed_ms as f64, elapsed_s as f64 * 1_000.0 * f64::from(node_count)),
            totals: Totals::new(record, elapsed_s),
            gpus,
            advice: Vec::new(),
        }
    }

    /// GPU hours that were allocated and not used, as far as they were observed: the measure of waste.
    pub fn gpu_hours_unused(&self) -> f64 {
        (self.totals.gpu_hours_observed - self.totals.gpu_hours_used).max(0.0)
    }
}

impl Totals {
    fn new(JobRecord { job, nodes, .. }: &JobRecord, elapsed_s: u64) -> Self {
        let gpus: Vec<&GpuTotals> = nodes.iter().flat_map(|node| &node.gpus).collect();
        let count = job.gpu_count.unwrap_or(u32::try_from(gpus.len()).unwrap_or(u32::MAX));
        let allocated_h = f64::from(count) * elapsed_s as f64 / 3_600.0;
        let util = integral(gpus.iter().map(|gpu| &gpu.util));
        let power = integral(gpus.iter().map(|gpu| &gpu.power));
        let hours = |of: fn(&GpuTotals) -> u64| gpus.iter().map(|gpu| of(gpu)).sum::<u64>() as f64 / HOUR_MS;
        let of_gpus = |of: fn(&GpuTotals) -> &Integral| integral(gpus.iter().map(|gpu| of(gpu))).total();
        let of_nodes = |of: fn(&NodeTotals) -> &Integral| integral(nodes.iter().map(of)).total();
        let mut bins_ms = [0; BINS];
        let mut throttle_ms = [0; THROTTLE_REASONS.len()];
        for gpu in &gpus {
            bins_ms.iter_mut().zip(gpu.util_bins_ms).for_each(|(sum, part)| *sum += part);
            throttle_ms.iter_mut().zip(gpu.throttle_ms).for_each(|(sum, part)| *sum += part);
        }
        Self {
            gpus: count,
            gpu_hours_allocated: allocated_h,
            gpu_hours_observed: hours(|gpu| gpu.observed_ms),
            gpu_hours_used: util.sum / 100.0 / HOUR_MS,
            gpu_hours_idle: hours(|gpu| gpu.idle_ms),
            util_pct: util.mean(),
            util_distribution_pct: distribution(&bins_ms),
            energy_kwh: power.total().map(|joules| joules / KWH_J),
            energy_known_pct: share(power.known_ms as f64, allocated_h * HOUR_MS),
            gpu_mem_peak_bytes: gpus.iter().filter_map(|gpu| gpu.mem_peak_bytes).max(),
            gpu_mem_total_bytes: gpus.iter().filter_map(|gpu| gpu.mem_total_bytes).max(),
            throttled: throttled(&throttle_ms),
            xids: gpus.iter().map(|gpu| gpu.xids).sum(),
            ecc_uncorrected: sum(gpus.iter().map(|gpu| gpu.ecc_uncorrected.increase)),
            ecc_corrected: sum(gpus.iter().map(|gpu| gpu.ecc_corrected.increase)),
            pcie_rx_bytes: of_gpus(|gpu| &gpu.pcie_rx),
            pcie_tx_bytes: of_gpus(|gpu| &gpu.pcie_tx),
            link_rx_bytes: of_gpus(|gpu| &gpu.link_rx),
            link_tx_bytes: of_gpus(|gpu| &gpu.link_tx),
            nodes_net_rx_bytes: of_nodes(|node| &node.net_rx),
            nodes_net_tx_bytes: of_nodes(|node| &node.net_tx),
            nodes_disk_read_bytes: of_nodes(|node| &node.disk_read),
            nodes_disk_write_bytes: of_nodes(|node| &node.disk_write),
            cpus_used: fold(nodes.iter().map(|node| node.cpu.mean().map(|pct| pct / 100.0))),
            cpus_peak: fold(nodes.iter().map(|node| node.cpu_peak_pct.map(|pct| pct as f64 / 100.0))),
            cpus_allocated: job.cpus,
            mem_peak_bytes: sum(nodes.iter().map(|node| node.mem_peak_bytes)),
            mem_requested_bytes: job.mem_bytes,
            oom_kills: sum(nodes.iter().map(|node| node.oom_kills.increase)),
        }
    }
}

impl GpuReport {
    fn new(node: &NodeTotals, gpu: &GpuTotals) -> Self {
        Self {
            node: node.node.to_string(),
            index: gpu.index,
            uuid: gpu.uuid.to_string(),
            model: gpu.model.clone(),
            observed_s: gpu.observed_ms as f64 / 1_000.0,
            util_pct: gpu.util.mean(),
            util_distribution_pct: distribution(&gpu.util_bins_ms),
            idle_s: (gpu.util.known_ms > 0).then(|| gpu.idle_ms as f64 / 1_000.0),
            energy_kwh: gpu.power.total().map(|joules| joules / KWH_J),
            mem_peak_bytes: gpu.mem_peak_bytes,
            mem_total_bytes: gpu.mem_total_bytes,
            throttled: throttled(&gpu.throttle_ms),
            xids: gpu.xids,
            ecc_uncorrected: gpu.ecc_uncorrected.increase,
            ecc_corrected: gpu.ecc_corrected.increase,
            fault_s: gpu.fault_ms as f64 / 1_000.0,
        }
    }
}

/// SLURM's name of a state.
fn state_name(state: &JobState) -> String {
    match state {
        JobState::Pending => "PENDING".to_owned(),
        JobState::Configuring => "CONFIGURING".to_owned(),
        JobState::Running => "RUNNING".to_owned(),
        JobState::Suspended => "SUSPENDED".to_owned(),
        JobState::Completing => "COMPLETING".to_owned(),
        JobState::Ended(name) | JobState::Other(name) => name.to_string(),
    }
}

fn integral<'a>(parts: impl Iterator<Item = &'a Integral>) -> Integral {
    parts.fold(Integral::default(), |all, part| Integral {
        known_ms: all.known_ms + part.known_ms,
        sum: all.sum + part.sum,
    })
}

fn sum(parts: impl Iterator<Item = Option<u64>>) -> Option<u64> {
    parts.flatten().fold(None, |all: Option<u64>, part| Some(all.unwrap_or(0).saturating_add(part)))
}

fn fold(parts: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    parts.flatten().fold(None, |all: Option<f64>, part| Some(all.unwrap_or(0.0) + part))
}

/// A part in % of a whole, at most 100: the clocks of SLURM and of the relay differ by moments.
fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { (100.0 * part / whole).min(100.0) } else { 0.0 }
}

fn distribution(bins_ms: &[u64; BINS]) -> Option<[f64; BINS]> {
    let all: u64 = bins_ms.iter().sum();
    (all > 0).then(|| bins_ms.map(|bin_ms| 100.0 * bin_ms as f64 / all as f64))
}

fn throttled(held_ms: &[u64; THROTTLE_REASONS.len()]) -> Vec<Throttled> {
    let reasons = THROTTLE_REASONS.iter().zip(held_ms).filter(|(_, held_ms)| **held_ms > 0);
    reasons
        .map(|((_, reason), held_ms)| Throttled {
            reason: (*reason).to_owned(),
            seconds: *held_ms as f64 / 1_000.0,
        })
        .collect()
}
