//! A source and its sessions for the GPUs of one vendor, for any names of its drivers.

use super::attribute::{self, Attribute, ReadError, Reader};
use super::card::{self, Card};
use super::clients::{ClientScanner, Usage};
use super::facts;
use crate::clock;
use crate::source::bound;
use crate::source::calls::CallTracker;
use crate::source::limits::Limits;
use crate::source::plausible;
use crate::source::{
    Absent, DriverEvent, GpuProcess, GpuProcessList, HIDDEN_PROCESSES, Inventory, LOST_DEVICE, Session,
    Source,
};
use nodeglass_protocol::probe::{
    GpuFacts, GpuHealth, GpuSample, MAX_PROCESSES, ProcessGap, ProcessKind, ProcessReadings, SourceVersions,
};
use nodeglass_protocol::{GpuUuid, Reading, Text, Vendor};
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    marker::PhantomData,
    path::{Path, PathBuf},
    sync::Arc,
};

/// The reporter of a value, in messages.
const REPORTER: &str = "the driver";
/// Reason for not reading a suspended GPU.
const ASLEEP: &str = "the GPU is suspended, and reading it would wake it";

/// A GPU of one vendor with its open attributes.
pub trait Device: Sized {
    /// The vendor.
    const VENDOR: Vendor;
    /// Names of its kernel drivers.
    const DRIVERS: &'static [&'static str];

    /// Returns the entries of cards: several for a divided one.
    fn entries(_root: &Path, cards: Vec<Card>) -> Vec<Card> {
        cards
    }

    /// Opens the attributes of a card.
    fn open(root: &Path, card: &Card) -> Self;

    /// Reads the facts. For a suspended device, it reads only facts that do not wake it.
    fn facts(&mut self, is_awake: bool) -> GpuFacts;

    /// Reads the changing readings.
    fn read(&mut self, reader: &mut Reader, mono_ns: u64) -> GpuSample;

    /// Reads the health.
    fn health(&mut self, reader: &mut Reader) -> GpuHealth;

    /// Returns whether the memory of the GPU is the host's.
    fn is_integrated(&self) -> bool;

    /// Returns the processes that the driver lists itself, beside those with open files.
    fn listed_processes(&mut self) -> Vec<(u32, Usage)> {
        Vec::new()
    }

    /// Returns whether the driver lists the processes of other users.
    fn lists_others(&self) -> bool {
        false
    }
}

/// The source for the GPUs of one vendor.
pub struct DrmSource<D> {
    root: PathBuf,
    calls: Arc<CallTracker>,
    /// Whether there were GPUs before.
    had_gpus: bool,
    device: PhantomData<fn() -> D>,
}

impl<D: Device> DrmSource<D> {
    /// Creates a source of the `/sys` and `/proc` below `root`.
    pub fn new(root: &Path, calls: Arc<CallTracker>) -> Self {
        Self { root: root.to_owned(), calls, had_gpus: false, device: PhantomData }
    }
}

impl<D: Device> Source for DrmSource<D> {
    fn open(&mut self) -> Result<Box<dyn Session + '_>, Absent> {
        let vendor = D::VENDOR.name();
        let cards = card::cards(&self.root, D::DRIVERS)
            .map_err(|error| Absent::new(format!("the list of {vendor} GPUs cannot be read: {error}")))?;
        if cards.is_empty() {
            return Err(if self.had_gpus { lost_all(D::VENDOR) } else { Absent::no_device() });
        }
        self.had_gpus = true;
        Ok(Box::new(DrmSession::<D> {
            root: &self.root,
            calls: &self.calls,
            gpus: Vec::new(),
            uuids: Arc::default(),
            scanner: ClientScanner::new(&self.root),
            is_stale: false,
        }))
    }
}

fn lost_all(vendor: Vendor) -> Absent {
    Absent::new(format!("the kernel no longer lists any {} GPU", vendor.name()))
}

/// A GPU of the last inventory.
struct Gpu<D> {
    card: Card,
    facts: GpuFacts,
    /// Whether all facts were read; facts of a suspended GPU are not.
    has_facts: bool,
    /// `power/runtime_status`, which can be read without waking the device.
    runtime_status: Attribute,
    /// `None` if the kernel no longer lists it.
    device: Option<D>,
}

impl<D: Device> Gpu<D> {
    fn open(root: &Path, card: Card) -> Self {
        let mut gpu = Self {
            facts: GpuFacts::default(),
            has_facts: false,
            runtime_status: Attribute::open(&card.device.join("power/runtime_status")),
            device: Some(D::open(root, &card)),
            card,
        };
        gpu.take_facts();
        gpu
    }

    /// Reads the facts unless they are known.
    fn take_facts(&mut self) {
        let is_awake = self.power() == Power::Awake;
        let Some(device) = self.device.as_mut().filter(|_| !self.has_facts) else { return };
        self.facts = device.facts(is_awake);
        plausible::facts(&mut self.facts, REPORTER);
        self.has_facts = is_awake;
    }

    fn power(&self) -> Power {
        let mut buffer = [0; 32];
        match self.runtime_status.text(&mut buffer) {
            Ok("suspended" | "suspending") => Power::Suspended,
            Err(ReadError::Gone) => Power::Gone,
            // Without runtime power management the file is missing or says so.
            _ => Power::Awake,
        }
    }

    /// Reads the GPU, and returns whether that contradicts the inventory.
    fn read(&mut self, mono_ns: u64, calls: &Arc<CallTracker>) -> (GpuSample, bool) {
        let power = self.power();
        let Some(device) = &mut self.device else { return (faulty(LOST_DEVICE.into()), false) };
        let mut reader = Reader::tracked(calls);
        let sample = match power {
            Power::Awake => {
                let mut sample = device.read(&mut reader, mono_ns);
                plausible::sample(&mut sample, REPORTER);
                Limits::of(&self.facts).check(&mut sample, REPORTER);
                sample
            }
            Power::Suspended => asleep(),
            Power::Gone => GpuSample::default(),
        };
        if power == Power::Gone || reader.is_gone() {
            self.device = None;
            return (faulty(LOST_DEVICE.into()), true);
        }
        (sample, power == Power::Awake && !self.has_facts)
    }
}

/// Runtime power management of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Power {
    /// It can be read.
    Awake,
    /// Reading would wake it.
    Suspended,
    /// It was removed.
    Gone,
}

fn faulty(why: Text) -> GpuSample {
    GpuSample { fault: Some(why), ..GpuSample::default() }
}

/// Returns the sample of a suspended GPU: readings that every GPU has, but a suspended one does not state.
fn asleep() -> GpuSample {
    let asleep = || Reading::Failed(ASLEEP.into());
    GpuSample {
        util_pct: asleep(),
        mem_used_bytes: asleep(),
        mem_total_bytes: asleep(),
        temp_c: asleep(),
        power_mw: asleep(),
        sm_clock_mhz: asleep(),
        ..facts::unsupported_sample()
    }
}

/// The GPUs of one vendor.
struct DrmSession<'a, D> {
    root: &'a Path,
    calls: &'a Arc<CallTracker>,
    gpus: Vec<Gpu<D>>,
    uuids: Arc<[GpuUuid]>,
    scanner: ClientScanner,
    is_stale: bool,
}

impl<D: Device> DrmSession<'_, D> {
    /// Compares the GPUs with the list of the kernel. A vanished GPU is kept as lost.
    fn enumerate(&mut self) {
        let Ok(cards) = card::cards(self.root, D::DRIVERS) else { return };
        let mut before = std::mem::take(&mut self.gpus);
        for (index, card) in (0..).zip(D::entries(self.root, cards)) {
            self.calls.begin_gpu_call(index);
            let known = before.iter().position(|gpu| gpu.card.identity() == card.identity());
            let known = known.map(|position| before.remove(position));
            let gpu = match known {
                Some(gpu) if gpu.card == card && gpu.device.is_some() => gpu,
                _ => self.avoided(&card).unwrap_or_else(|| Gpu::open(self.root, card)),
            };
            self.gpus.push(gpu);
        }
        for mut gpu in before {
            gpu.device = None;
            let at = self.gpus.partition_point(|other| other.card.render < gpu.card.render);
            self.gpus.insert(at, gpu);
        }
    }

    /// Returns the last known facts of a GPU whose calls hang, so that it is not called.
    fn avoided(&self, card: &Card) -> Option<Gpu<D>> {
        let pci = Reading::Value(facts::long_address(card.pci.as_ref()?).into());
        let number = card.partition.map_or(0, |partition| partition.number);
        let mut known = self.calls.known()?.gpus.iter().filter(|facts| facts.pci == pci);
        let known = known.nth(usize::try_from(number).ok()?)?;
        self.calls.avoided(known.index)?;
        let runtime_status = Attribute::missing();
        Some(Gpu { card: card.clone(), facts: known.clone(), has_facts: true, runtime_status, device: None })
    }

    /// Numbers the GPUs. Only discrete ones have an index of a SLURM GRES, because their device files
    /// are what a `gres.conf` lists.
    fn number(&mut self) {
        let mut seen = HashSet::new();
        let mut discrete = 0..;
        for (index, gpu) in (0..).zip(&mut self.gpus) {
            gpu.take_facts();
            gpu.facts.index = index;
            // Two cards with the same serial number would be taken for one.
            if gpu.facts.uuid.as_str().is_empty() || !seen.insert(gpu.facts.uuid.clone()) {
                gpu.facts.uuid = GpuUuid::new(format!("{}-{}", D::VENDOR.name(), gpu.card.identity()));
                seen.insert(gpu.facts.uuid.clone());
            }
            let is_integrated = gpu.device.as_ref().is_some_and(Device::is_integrated);
            gpu.facts.minor = match gpu.card.render.filter(|_| !is_integrated).and_then(|_| discrete.next()) {
                Some(minor) => Reading::Value(minor),
                None => Reading::Unsupported,
            };
        }
    }

    fn usages(&mut self, list: &mut GpuProcessList) -> BTreeMap<(usize, u32), Usage> {
        // An open file states the device, not the partition, which only the driver's own list does.
        let position = |(position, gpu): (usize, &Gpu<D>)| {
            Some((gpu.card.pci.clone().filter(|_| gpu.card.partition.is_none())?, position))
        };
        let positions: HashMap<_, _> = self.gpus.iter().enumerate().filter_map(position).collect();
        let mut usages = match self.scanner.scan(clock::mono_ns(), &positions) {
            Ok(usages) => usages,
            Err(error) => {
                let why = Text::from(format!("/proc cannot be read: {error}"));
                self.uuids.iter().for_each(|uuid| list.gap(uuid, ProcessGap::Failed(why.clone())));
                BTreeMap::new()
            }
        };
        for (position, gpu) in self.gpus.iter_mut().enumerate() {
            let is_awake = gpu.power() == Power::Awake;
            let Some(device) = gpu.device.as_mut().filter(|_| is_awake) else { continue };
            for (pid, listed) in device.listed_processes() {
                let usage = usages.entry((position, pid)).or_default();
                // The driver's own figure includes what open files account for.
                usage.device_bytes = usage.device_bytes.max(listed.device_bytes);
                usage.is_compute |= listed.is_compute;
                if usage.compute_pct.value().is_none_or(|share| *share == 0)
                    && listed.compute_pct.value().is_some()
                {
                    usage.compute_pct = listed.compute_pct;
                }
            }
            if self.scanner.is_partial() && !device.lists_others() {
                list.gap(&gpu.facts.uuid, ProcessGap::Failed(HIDDEN_PROCESSES.into()));
            }
        }
        usages
    }
}

impl<D: Device> Session for DrmSession<'_, D> {
    fn inventory(&mut self) -> Inventory {
        self.enumerate();
        self.is_stale = false;
        self.number();
        let gpus: Vec<_> = self.gpus.iter().map(|gpu| gpu.facts.clone()).collect();
        self.uuids = gpus.iter().map(|gpu| gpu.uuid.clone()).collect();
        let driver = self.gpus.first().map(|gpu| gpu.card.driver.clone()).unwrap_or_default();
        Inventory { versions: versions(self.root, &driver), gpus, topology: Vec::new() }
    }

    fn readings(&mut self) -> Result<Vec<GpuSample>, Absent> {
        let is_lost = |gpu: &Gpu<D>| gpu.device.is_none() && self.calls.avoided(gpu.facts.index).is_none();
        if self.gpus.iter().all(is_lost) {
            return Err(lost_all(D::VENDOR));
        }
        let mono_ns = clock::mono_ns();
        let mut samples = Vec::with_capacity(self.gpus.len());
        for gpu in &mut self.gpus {
            if let Some(why) = self.calls.avoided(gpu.facts.index) {
                samples.push(faulty(why));
                continue;
            }
            self.calls.begin_gpu_call(gpu.facts.index);
            let (sample, is_contradicted) = gpu.read(mono_ns, self.calls);
            self.is_stale |= is_contradicted;
            samples.push(sample);
        }
        Ok(samples)
    }

    fn gpu_processes(&mut self) -> GpuProcessList {
        self.calls.begin_driver_call();
        let gpus = Arc::clone(&self.uuids);
        let mut list = GpuProcessList { mono_ns: clock::mono_ns(), gpus, ..GpuProcessList::default() };
        let usages = self.usages(&mut list);
        for ((position, pid), usage) in usages {
            let Some(gpu) = self.gpus.get(position) else { continue };
            let is_integrated = gpu.device.as_ref().is_some_and(Device::is_integrated);
            list.processes.push(process(&gpu.facts.uuid, pid, usage, is_integrated));
        }
        let counts = list.processes.chunk_by(|a, b| a.gpu == b.gpu).map(<[_]>::len);
        let cap = bound::fair_cap(counts, MAX_PROCESSES);
        bound::cut(&mut list.processes, &mut list.gaps, cap, |process| &process.gpu);
        list
    }

    fn health(&mut self) -> Vec<GpuHealth> {
        let mut reports = Vec::with_capacity(self.gpus.len());
        for gpu in &mut self.gpus {
            let is_awake = gpu.power() == Power::Awake && self.calls.avoided(gpu.facts.index).is_none();
            self.calls.begin_gpu_call(gpu.facts.index);
            let device = gpu.device.as_mut().filter(|_| is_awake);
            let mut health =
                device.map(|device| device.health(&mut Reader::tracked(self.calls))).unwrap_or_default();
            plausible::health(&mut health, REPORTER);
            reports.push(health);
        }
        reports
    }

    fn driver_events(&mut self) -> Vec<DriverEvent> {
        Vec::new()
    }

    fn is_stale(&self) -> bool {
        self.is_stale
    }
}

/// The host's memory counts for an integrated GPU, which has none or little of its own.
fn process(gpu: &GpuUuid, pid: u32, usage: Usage, is_integrated: bool) -> GpuProcess {
    let bytes = match (usage.device_bytes, usage.host_bytes) {
        (device, host) if is_integrated => {
            device.map_or(host, |device| Some(device.saturating_add(host.unwrap_or(0))))
        }
        (device, _) => device,
    };
    let is_compute = usage.is_compute || !usage.is_graphics;
    GpuProcess {
        gpu: gpu.clone(),
        pid,
        now: ProcessReadings {
            gpu_mem_bytes: bytes.map_or(Reading::Unsupported, Reading::Value),
            sm_pct: usage.compute_pct,
            mem_bw_pct: Reading::Unsupported,
            enc_pct: usage.encoder_pct,
            dec_pct: usage.decoder_pct,
            ..ProcessReadings::default()
        },
        kind: ProcessKind { compute: is_compute, graphics: usage.is_graphics, mps: false },
    }
}

/// Returns the versions of a driver: the module's version if it was built apart from the kernel, otherwise the
/// kernel's.
fn versions(root: &Path, driver: &str) -> SourceVersions {
    let module = attribute::read_text(&root.join("sys/module").join(driver).join("version"));
    let kernel = attribute::read_text(&root.join("proc/sys/kernel/osrelease"));
    let version = match (module, kernel) {
        (Ok(module), _) => Reading::Value(format!("{driver} {module}").into()),
        (_, Ok(kernel)) => Reading::Value(format!("{driver} of Linux {kernel}").into()),
        _ => Reading::Unsupported,
    };
    let rocm = root.join("opt/rocm/.info/version");
    let platform = if driver == "amdgpu" { attribute::read_reading(&rocm) } else { Reading::Unsupported };
    SourceVersions { driver: version, library: Reading::Unsupported, platform }
}
