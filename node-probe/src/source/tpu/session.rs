//! The source of TPUs and its sessions.

use super::chips::{self, Chip};
use super::client::{Client, Missing};
use super::holders::Holders;
use super::library::{DeviceMetrics, Report};
use crate::clock;
use crate::source::bound;
use crate::source::calls::CallTracker;
use crate::source::drm::attribute::{self, ReadError, Reader};
use crate::source::drm::facts::{self, long_address, narrow};
use crate::source::drm::link::PcieLink;
use crate::source::{
    Absent, DriverEvent, GpuProcess, GpuProcessList, HIDDEN_PROCESSES, Inventory, LOST_DEVICE, PCI_EVERY,
    Session, Source,
};
use nodeglass_protocol::probe::{
    GpuFacts, GpuHealth, GpuSample, MAX_PROCESSES, ProcessGap, ProcessKind, ProcessReadings, SourceVersions,
};
use nodeglass_protocol::{GpuUuid, Reading, Text, Vendor};
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Status of `tpu_metrics` if the runtime of the workload does not respond.
const NO_RESPONSE: i32 = 2;
/// The probe's own executable, even after its file was removed.
const OWN_PROGRAM: &str = "/proc/self/exe";

/// The source of TPUs.
pub struct TpuSource {
    root: PathBuf,
    library: PathBuf,
    calls: Arc<CallTracker>,
    had_chips: bool,
    attempts: u32,
}

impl TpuSource {
    /// Creates a source of the `/sys` and `/proc` below `root`, and of a libtpuinfo.
    pub fn new(root: &Path, library: &Path, calls: Arc<CallTracker>) -> Self {
        Self { root: root.to_owned(), library: library.to_owned(), calls, had_chips: false, attempts: 0 }
    }
}

impl Source for TpuSource {
    fn open(&mut self) -> Result<Box<dyn Session + '_>, Absent> {
        let attempt = self.attempts;
        self.attempts = attempt.wrapping_add(1);
        if !self.had_chips && !attempt.is_multiple_of(PCI_EVERY) {
            return Err(Absent::no_device());
        }
        let chips = chips::chips(&self.root)
            .map_err(|error| Absent::new(format!("the list of TPUs cannot be read: {error}")))?;
        if chips.is_empty() {
            return Err(if self.had_chips { lost_all() } else { Absent::no_device() });
        }
        self.had_chips = true;
        Ok(Box::new(TpuSession {
            client: Client::new(OWN_PROGRAM.into(), self.library.clone()),
            holders: Holders::new(&self.root),
            root: &self.root,
            calls: &self.calls,
            devices: Vec::new(),
            uuids: Arc::default(),
        }))
    }
}

fn lost_all() -> Absent {
    Absent::new("the kernel no longer lists any TPU")
}

/// A device of the TPU runtime: a chip, or one of the two cores of an older one.
struct Device {
    chip: Chip,
    facts: GpuFacts,
    link: PcieLink,
    /// HBM in use at the last reading, in bytes.
    used: Option<u64>,
}

impl Device {
    fn new(chip: &Chip, index: u32, core: u32) -> Self {
        let link = PcieLink::of(&chip.folder);
        let mut facts = facts_of(chip, &link);
        facts.index = index;
        facts.uuid = GpuUuid::new(match chip.generation.devices {
            1 => format!("TPU-{}", chip.pci),
            _ => format!("TPU-{}-{core}", chip.pci),
        });
        Self { chip: chip.clone(), facts, link, used: None }
    }

    fn is_listed(&self) -> bool {
        self.chip.folder.join("vendor").exists()
    }
}

fn facts_of(chip: &Chip, link: &PcieLink) -> GpuFacts {
    // The kernel states −1 on machines without NUMA.
    let numa_node = attribute::read_number(&chip.folder.join("numa_node"));
    GpuFacts {
        vendor: Vendor::Tpu,
        pci: Reading::Value(long_address(&chip.pci).into()),
        name: Reading::Value(chip.generation.name.into()),
        pcie_gen_max: narrow(link.max_generation()),
        pcie_width_max: narrow(link.max_width()),
        numa_node: narrow(numa_node.or(Err(ReadError::Missing))),
        cpu_affinity: attribute::read_reading(&chip.folder.join("local_cpulist")),
        ..GpuFacts::unsupported()
    }
}

/// The TPUs of a node.
struct TpuSession<'a> {
    root: &'a Path,
    calls: &'a CallTracker,
    client: Client,
    holders: Holders,
    devices: Vec<Device>,
    uuids: Arc<[GpuUuid]>,
}

impl TpuSession<'_> {
    fn update_holders(&mut self) -> std::io::Result<()> {
        let files: BTreeSet<String> =
            self.devices.iter().filter_map(|device| device.chip.file.clone()).collect();
        self.holders.update(clock::mono_ns(), &files)
    }

    /// Returns whether no visible process has a chip open. Without a runtime, no query gets a response. Those of other users
    /// are visible to root only, so that anybody else cannot tell their chips from idle ones.
    fn is_idle(&self) -> bool {
        self.devices.iter().all(|device| {
            device.chip.file.is_some() && self.holders.of(device.chip.file.as_deref()).len() == 0
        })
    }
}

impl Session for TpuSession<'_> {
    fn inventory(&mut self) -> Inventory {
        self.calls.begin_driver_call();
        // A failure leaves the last list, whose chips are then read or lost one by one.
        if let Ok(chips) = chips::chips(self.root)
            && !chips.is_empty()
        {
            let cores =
                chips.iter().flat_map(|chip| (0..chip.generation.devices).map(move |core| (chip, core)));
            self.devices =
                (0..).zip(cores).map(|(index, (chip, core))| Device::new(chip, index, core)).collect();
        }
        let gpus: Vec<_> = self.devices.iter().map(|device| device.facts.clone()).collect();
        self.uuids = gpus.iter().map(|gpu| gpu.uuid.clone()).collect();
        let versions = SourceVersions {
            driver: Reading::Unsupported,
            library: Reading::Unsupported,
            platform: Reading::Unsupported,
        };
        Inventory { versions, gpus, topology: Vec::new() }
    }

    fn readings(&mut self) -> Result<Vec<GpuSample>, Absent> {
        self.calls.begin_driver_call();
        if !self.devices.iter().any(Device::is_listed) {
            return Err(lost_all());
        }
        // Without the holders, an idle runtime is a failed one.
        let _ = self.update_holders();
        let (report, is_idle) = (self.client.report(), self.is_idle());
        let expected = self.devices.len();
        let samples = self.devices.iter_mut().enumerate().map(|(position, device)| {
            if !device.is_listed() {
                return GpuSample { fault: Some(LOST_DEVICE.into()), ..GpuSample::default() };
            }
            let sample = sample(&report, position, expected, is_idle);
            device.used = sample.mem_used_bytes.value().copied();
            sample
        });
        Ok(samples.collect())
    }

    fn gpu_processes(&mut self) -> GpuProcessList {
        self.calls.begin_driver_call();
        let gpus = Arc::clone(&self.uuids);
        let mut list = GpuProcessList { mono_ns: clock::mono_ns(), gpus, ..GpuProcessList::default() };
        let failed =
            self.update_holders().err().map(|error| Text::from(format!("/proc cannot be read: {error}")));
        for device in &self.devices {
            let uuid = &device.facts.uuid;
            if let Some(why) = &failed {
                list.gap(uuid, ProcessGap::Failed(why.clone()));
            } else if device.chip.file.is_none() {
                list.gap(uuid, ProcessGap::Unsupported);
            } else if self.holders.is_partial() {
                list.gap(uuid, ProcessGap::Failed(HIDDEN_PROCESSES.into()));
            }
            let holders = self.holders.of(device.chip.file.as_deref());
            if holders.len() == 0 && device.used.is_some() && !self.holders.is_partial() {
                // Containers of root, for example.
                list.gap(uuid, ProcessGap::Failed(HIDDEN_PROCESSES.into()));
            }
            // The memory belongs to the runtime, which is in the only process that has the chip open.
            let used = device.used.filter(|_| holders.len() == 1);
            list.processes.extend(holders.map(|pid| process(uuid, pid, used)));
        }
        let counts = list.processes.chunk_by(|a, b| a.gpu == b.gpu).map(<[_]>::len);
        let cap = bound::fair_cap(counts, MAX_PROCESSES);
        bound::cut(&mut list.processes, &mut list.gaps, cap, |process| &process.gpu);
        list
    }

    fn health(&mut self) -> Vec<GpuHealth> {
        self.calls.begin_driver_call();
        let mut reader = Reader::default();
        let mut health = |device: &Device| GpuHealth {
            pcie_gen: reader.take(device.link.generation()),
            pcie_width: reader.take(device.link.width()),
            ..GpuHealth::unsupported()
        };
        self.devices.iter().map(&mut health).collect()
    }

    fn driver_events(&mut self) -> Vec<DriverEvent> {
        Vec::new()
    }
}

fn process(gpu: &GpuUuid, pid: u32, used: Option<u64>) -> GpuProcess {
    GpuProcess {
        gpu: gpu.clone(),
        pid,
        now: ProcessReadings {
            gpu_mem_bytes: used.map_or(Reading::Unsupported, Reading::Value),
            sm_pct: Reading::Unsupported,
            mem_bw_pct: Reading::Unsupported,
            enc_pct: Reading::Unsupported,
            dec_pct: Reading::Unsupported,
            ..ProcessReadings::default()
        },
        kind: ProcessKind { compute: true, graphics: false, mps: false },
    }
}

/// Returns the sample of a device.
fn sample(report: &Result<Report, Missing>, position: usize, expected: usize, is_idle: bool) -> GpuSample {
    let blank = |reading: Reading<u64>| GpuSample {
        util_pct: reading.clone(),
        mem_used_bytes: reading.clone(),
        mem_total_bytes: reading,
        ..facts::unsupported_sample()
    };
    match device_metrics(report, position, expected) {
        Ok(metrics) => {
            let (used, total) = memory(metrics);
            GpuSample {
                util_pct: duty(metrics),
                mem_used_bytes: used,
                mem_total_bytes: total,
                ..facts::unsupported_sample()
            }
        }
        Err(_) if matches!(report, Err(Missing::Pending)) => blank(Reading::NotYet),
        // The runtime of a workload reports the metrics, and there is none.
        Err(_) if is_idle && report.as_ref().is_ok_and(|report| report.status == NO_RESPONSE) => {
            blank(Reading::NotYet)
        }
        Err(why) => blank(Reading::Failed(why.into())),
    }
}

fn device_metrics(
    report: &Result<Report, Missing>,
    position: usize,
    expected: usize,
) -> Result<&DeviceMetrics, Text> {
    let report = report.as_ref().map_err(|missing| missing.why())?;
    if usize::try_from(report.count) != Ok(expected) {
        return Err(format!("libtpuinfo counts {} devices, the kernel lists {expected}", report.count).into());
    }
    match report.status {
        0 => {}
        NO_RESPONSE => return Err("the TPU runtime of the workload does not report metrics".into()),
        other => return Err(format!("libtpuinfo failed with status {other}").into()),
    }
    // The workers of a pod may count on: what matters is the order of the numbers.
    let mut devices: Vec<_> = report.devices.iter().collect();
    devices.sort_by_key(|device| device.id);
    if devices.windows(2).any(|pair| pair[0].id == pair[1].id) || devices.iter().any(|device| device.id < 0) {
        return Err("libtpuinfo reports devices whose numbers are not unique".into());
    }
    devices.get(position).copied().ok_or_else(|| "libtpuinfo reports nothing of this device".into())
}

fn duty(metrics: &DeviceMetrics) -> Reading<u64> {
    match metrics.duty_pct {
        Some(duty) if (0.0..=100.0).contains(&duty) => Reading::Value(duty.round() as u64),
        Some(duty) => Reading::Failed(format!("libtpuinfo reported a duty cycle of {duty} %").into()),
        None => Reading::Failed("libtpuinfo reported a duty cycle that is not a number".into()),
    }
}

fn memory(metrics: &DeviceMetrics) -> (Reading<u64>, Reading<u64>) {
    let DeviceMetrics { used, total, .. } = *metrics;
    match (u64::try_from(used), u64::try_from(total)) {
        (Ok(used), Ok(total @ 1..)) if used <= total => (Reading::Value(used), Reading::Value(total)),
        _ => {
            let failed = Reading::Failed(format!("libtpuinfo reported {used} of {total} bytes").into());
            (failed.clone(), failed)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics(id: i64, used: i64, total: i64, duty: f64) -> DeviceMetrics {
        DeviceMetrics { id, used, total, duty_pct: Some(duty).filter(|duty| duty.is_finite()) }
    }

    fn of(devices: Vec<DeviceMetrics>, count: i32, status: i32) -> Result<Report, Missing> {
        Ok(Report { count, status, devices })
    }

    #[test]
    fn devices_are_found_by_the_order_of_their_numbers() {
        for first in [0, 4] {
            let report = of(vec![metrics(first + 1, 2, 8, 40.4), metrics(first, 1, 8, 99.6)], 2, 0);
            let utils = [0, 1].map(|position| sample(&report, position, 2, false).util_pct);
            assert_eq!(utils, [Reading::Value(100), Reading::Value(40)]);
        }
    }

    #[test]
    fn absurd_metrics_fail_with_what_was_reported() {
        for (duty, used, total) in
            [(f64::NAN, 1, 8), (-1.0, 1, 8), (1e300, 1, 8), (5.0, 9, 8), (5.0, -1, 8), (5.0, 0, 0)]
        {
            let sample = sample(&of(vec![metrics(0, used, total, duty)], 1, 0), 0, 1, false);
            let failed = [&sample.util_pct, &sample.mem_used_bytes];
            assert!(
                failed.iter().any(|reading| matches!(reading, Reading::Failed(_))),
                "{duty} {used} {total}"
            );
        }
        for report in
            [of(vec![], 1, 0), of(vec![metrics(0, 1, 8, 5.0); 2], 1, 0), of(vec![], -7, 0), of(vec![], 1, 3)]
        {
            assert!(matches!(sample(&report, 0, 1, true).util_pct, Reading::Failed(_)), "{report:?}");
        }
    }

    #[test]
    fn without_a_workload_readings_are_missing_and_not_zero_or_failed() {
        let silent = of(vec![], 1, NO_RESPONSE);
        assert_eq!(sample(&silent, 0, 1, true).util_pct, Reading::NotYet);
        assert!(matches!(sample(&silent, 0, 1, false).util_pct, Reading::Failed(_)));
    }
}
