//! Sums over time of one GPU and of one node, for the part that was allocated to a job.

use nodeglass_protocol::field::Row;
use nodeglass_protocol::picture::GpuPicture;
use nodeglass_protocol::report::UTIL_BINS;
use nodeglass_protocol::{GpuField, GpuUuid, HostField, JobField, NodeName};
use nodeglass_rules::limits;
use nodeglass_rules::throttle::REASONS;
use serde::{Deserialize, Serialize};

/// A GPU is idle at this utilisation or less, in %.
pub const IDLE_PCT: u64 = limits::IDLE_PCT as u64;
/// Number of throttle reasons whose time is summed: the first of [`REASONS`], which ends with idle clocks.
pub const THROTTLE_REASONS: usize = REASONS.len() - 1;

/// Integral of a reading over the time in which it was known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Integral {
    /// Time in which the reading was known, in ms.
    pub known_ms: u64,
    /// Unit of the reading × ms.
    pub sum: f64,
}

impl Integral {
    /// Adds a value that held for `span_ms`.
    fn add(&mut self, value: Option<u64>, span_ms: u64) {
        if let Some(value) = value {
            self.known_ms += span_ms;
            self.sum += value as f64 * span_ms as f64;
        }
    }

    fn merge(&mut self, other: &Self) {
        self.known_ms += other.known_ms;
        self.sum += other.sum;
    }

    /// Mean over the known time, in the unit of the reading.
    pub fn mean(&self) -> Option<f64> {
        (self.known_ms > 0).then(|| self.sum / self.known_ms as f64)
    }

    /// Integral in the unit of the reading × s; of a rate in B/s, that is bytes. `None` if it was never known.
    pub fn total(&self) -> Option<f64> {
        (self.known_ms > 0).then(|| self.sum / 1_000.0)
    }
}

/// Growth of a counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Growth {
    /// The newest value. Not stored: the relay did not see what happened since.
    #[serde(skip)]
    last: Option<u64>,
    /// The increases; `None` if the counter was never read.
    pub increase: Option<u64>,
}

impl Growth {
    fn add(&mut self, value: Option<u64>) {
        let Some(value) = value else { return };
        // A smaller value comes from a driver that was loaded again.
        let increase = self.last.map_or(0, |last| value.saturating_sub(last));
        self.increase = Some(self.increase.unwrap_or(0) + increase);
        self.last = Some(value);
    }

    fn merge(&mut self, other: &Self) {
        self.increase = sum(self.increase, other.increase);
    }
}

/// Sums of one GPU while a job had it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GpuTotals {
    /// The GPU or MIG instance.
    pub uuid: GpuUuid,
    /// Its index on the node.
    pub index: u32,
    /// Model.
    pub model: Option<String>,
    /// Time that samples stand for, in ms.
    pub observed_ms: u64,
    /// Utilisation in %; of a MIG instance, which has none, SM activity, by which findings judge it as well.
    pub util: Integral,
    /// Time in each tenth of the scale of utilisation, in ms.
    pub util_bins_ms: [u64; UTIL_BINS],
    /// Time at [`IDLE_PCT`] or less, in ms.
    pub idle_ms: u64,
    /// Power in W.
    pub power: Integral,
    /// SM clock, or the core clock of another vendor, in MHz.
    #[serde(default)]
    pub sm_clock: Integral,
    /// Most device memory in use, in bytes.
    pub mem_peak_bytes: Option<u64>,
    /// Size of the device memory, in bytes.
    pub mem_total_bytes: Option<u64>,
    /// Time in which each of the first [`REASONS`] applied, in ms.
    pub throttle_ms: [u64; THROTTLE_REASONS],
    /// Received over PCIe, in B/s.
    pub pcie_rx: Integral,
    /// Sent over PCIe, in B/s.
    pub pcie_tx: Integral,
    /// Received over NVLink or the links of another vendor, in B/s.
    pub link_rx: Integral,
    /// Sent over NVLink, in B/s.
    pub link_tx: Integral,
    /// Uncorrected ECC errors.
    pub ecc_uncorrected: Growth,
    /// Corrected ECC errors.
    pub ecc_corrected: Growth,
    /// Xid errors.
    pub xids: u32,
    /// Time in which the GPU could not be read, in ms.
    pub fault_ms: u64,
}

impl GpuTotals {
    /// Sums of a GPU that begin now.
    pub fn new(gpu: &GpuPicture) -> Self {
        Self {
            uuid: gpu.facts.uuid.clone(),
            index: gpu.facts.index,
            model: gpu.facts.name.value().map(ToString::to_string),
            observed_ms: 0,
            util: Integral::default(),
            util_bins_ms: [0; UTIL_BINS],
            idle_ms: 0,
            power: Integral::default(),
            sm_clock: Integral::default(),
            mem_peak_bytes: None,
            mem_total_bytes: None,
            throttle_ms: [0; THROTTLE_REASONS],
            pcie_rx: Integral::default(),
            pcie_tx: Integral::default(),
            link_rx: Integral::default(),
            link_tx: Integral::default(),
            ecc_uncorrected: Growth::default(),
            ecc_corrected: Growth::default(),
            xids: 0,
            fault_ms: 0,
        }
    }

    /// Returns the peak memory; `None` if only the sample was read from which observation began.
    pub fn observed_mem_peak(&self) -> Option<u64> {
        self.mem_peak_bytes.filter(|_| self.observed_ms > 0)
    }

    /// Adds readings that held for `span_ms`. Allocates nothing.
    pub fn add(&mut self, row: &Row<GpuField>, is_faulty: bool, span_ms: u64) {
        self.observed_ms += span_ms;
        if is_faulty {
            self.fault_ms += span_ms;
            return;
        }
        let util = row.value(if self.uuid.is_mig_instance() { GpuField::SmActive } else { GpuField::Util });
        self.util.add(util, span_ms);
        if let Some(util) = util {
            let bin = usize::try_from(util / 10).unwrap_or(UTIL_BINS).min(UTIL_BINS - 1);
            self.util_bins_ms[bin] += span_ms;
            self.idle_ms += if util <= IDLE_PCT { span_ms } else { 0 };
        }
        self.power.add(row.value(GpuField::Power), span_ms);
        self.sm_clock.add(row.value(GpuField::SmClock), span_ms);
        self.mem_peak_bytes = self.mem_peak_bytes.max(row.value(GpuField::MemUsed));
        self.mem_total_bytes = row.value(GpuField::MemTotal).or(self.mem_total_bytes);
        if let Some(reasons) = row.value(GpuField::Throttle) {
            for (reason, held_ms) in REASONS.iter().zip(&mut self.throttle_ms) {
                *held_ms += if reasons & u64::from(reason.bit) != 0 { span_ms } else { 0 };
            }
        }
        self.pcie_rx.add(row.value(GpuField::PcieRx), span_ms);
        self.pcie_tx.add(row.value(GpuField::PcieTx), span_ms);
        self.link_rx.add(row.value(GpuField::NvlinkRx), span_ms);
        self.link_tx.add(row.value(GpuField::NvlinkTx), span_ms);
        self.ecc_uncorrected.add(row.value(GpuField::EccUncorrected));
        self.ecc_corrected.add(row.value(GpuField::EccCorrected));
    }

    /// Adds sums of the same GPU over another time.
    pub fn merge(&mut self, other: &Self) {
        self.observed_ms += other.observed_ms;
        self.util.merge(&other.util);
        self.util_bins_ms.iter_mut().zip(other.util_bins_ms).for_each(|(sum, part)| *sum += part);
        self.idle_ms += other.idle_ms;
        self.power.merge(&other.power);
        self.sm_clock.merge(&other.sm_clock);
        self.mem_peak_bytes = self.mem_peak_bytes.max(other.mem_peak_bytes);
        self.mem_total_bytes = self.mem_total_bytes.or(other.mem_total_bytes);
        self.throttle_ms.iter_mut().zip(other.throttle_ms).for_each(|(sum, part)| *sum += part);
        self.pcie_rx.merge(&other.pcie_rx);
        self.pcie_tx.merge(&other.pcie_tx);
        self.link_rx.merge(&other.link_rx);
        self.link_tx.merge(&other.link_tx);
        self.ecc_uncorrected.merge(&other.ecc_uncorrected);
        self.ecc_corrected.merge(&other.ecc_corrected);
        self.xids += other.xids;
        self.fault_ms += other.fault_ms;
    }
}

/// Sums of one node while a job had a part of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeTotals {
    /// The node.
    pub node: NodeName,
    /// Number of its CPUs; `None` if unknown.
    #[serde(default)]
    pub cpus: Option<u32>,
    /// Time that samples stand for, in ms.
    pub observed_ms: u64,
    /// GPUs of the job.
    pub gpus: Vec<GpuTotals>,
    /// CPU utilisation of the job in %; 100 % is one core.
    pub cpu: Integral,
    /// Highest CPU utilisation of the job, in %.
    pub cpu_peak_pct: Option<u64>,
    /// Most host memory used by the job, in bytes.
    pub mem_peak_bytes: Option<u64>,
    /// Processes killed at the job's memory limit.
    pub oom_kills: Growth,
    /// Received from the network by the whole node, in B/s: InfiniBand and Ethernet.
    pub net_rx: Integral,
    /// Sent to the network by the whole node, in B/s.
    pub net_tx: Integral,
    /// Read from local disks by the whole node, in B/s.
    pub disk_read: Integral,
    /// Written to local disks by the whole node, in B/s.
    pub disk_write: Integral,
}

impl NodeTotals {
    /// Sums that begin now.
    pub fn new(node: NodeName) -> Self {
        Self {
            node,
            cpus: None,
            observed_ms: 0,
            gpus: Vec::new(),
            cpu: Integral::default(),
            cpu_peak_pct: None,
            mem_peak_bytes: None,
            oom_kills: Growth::default(),
            net_rx: Integral::default(),
            net_tx: Integral::default(),
            disk_read: Integral::default(),
            disk_write: Integral::default(),
        }
    }

    /// Returns the job's peak memory; `None` if only the sample was read from which observation began.
    pub fn observed_mem_peak(&self) -> Option<u64> {
        self.mem_peak_bytes.filter(|_| self.observed_ms > 0)
    }

    /// Adds readings of the host and of the job on it that held for `span_ms`.
    pub fn add(&mut self, host: &Row<HostField>, job: Option<&Row<JobField>>, span_ms: u64) {
        self.observed_ms += span_ms;
        self.net_rx.add(sum(host.value(HostField::NetRx), host.value(HostField::IbRx)), span_ms);
        self.net_tx.add(sum(host.value(HostField::NetTx), host.value(HostField::IbTx)), span_ms);
        self.disk_read.add(host.value(HostField::DiskRead), span_ms);
        self.disk_write.add(host.value(HostField::DiskWrite), span_ms);
        if let Some(job) = job {
            let cpu = job.value(JobField::Cpu);
            self.cpu.add(cpu, span_ms);
            self.cpu_peak_pct = self.cpu_peak_pct.max(cpu);
            self.mem_peak_bytes = self.mem_peak_bytes.max(job.value(JobField::MemUsed));
            self.oom_kills.add(job.value(JobField::OomKills));
        }
    }

    /// Leaves out the traffic of the whole node.
    pub fn hide_host(&mut self) {
        for sum in [&mut self.net_rx, &mut self.net_tx, &mut self.disk_read, &mut self.disk_write] {
            *sum = Integral::default();
        }
    }

    /// Adds sums of the same node over another time.
    pub fn merge(&mut self, other: &Self) {
        self.cpus = self.cpus.or(other.cpus);
        self.observed_ms += other.observed_ms;
        self.cpu.merge(&other.cpu);
        self.cpu_peak_pct = self.cpu_peak_pct.max(other.cpu_peak_pct);
        self.mem_peak_bytes = self.mem_peak_bytes.max(other.mem_peak_bytes);
        self.oom_kills.merge(&other.oom_kills);
        self.net_rx.merge(&other.net_rx);
        self.net_tx.merge(&other.net_tx);
        self.disk_read.merge(&other.disk_read);
        self.disk_write.merge(&other.disk_write);
        for gpu in &other.gpus {
            match self.gpus.iter_mut().find(|known| known.uuid == gpu.uuid) {
                Some(known) => known.merge(gpu),
                None => self.gpus.push(gpu.clone()),
            }
        }
    }
}

/// Returns the sum of the known values; `None` if neither is known.
fn sum(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    one.or(other).map(|_| one.unwrap_or(0) + other.unwrap_or(0))
}
