//! NVML through `nvml-wrapper`: the only folder that knows it.

mod asker;
mod beyond;
mod device;
mod facts;
mod fields;
mod gpm;
mod health;
mod legacy;
mod lists;
mod meter;
mod nvlinks;
mod past;
mod pcie;
mod places;
mod plausible;
mod readings;
mod topology;
mod unload;
mod usage;
mod word;
mod xid;
mod xids;

use super::{Absent, Inventory, News, Occupancy, Session, Source, calls::Calls};
use device::Seat;
use legacy::RawList;
use nodeglass_protocol::GpuUuid;
use nodeglass_protocol::probe::{GpuFacts, GpuHealth, GpuPath, GpuSample, NvmlState};
use nvml_wrapper::{Nvml, error::NvmlError};
use past::Past;
use pcie::Turns;
use readings::Means;
use std::{collections::HashMap, ffi::OsString, path::PathBuf, sync::Arc, time::Instant};
use xid::{Handles, XidWatch};

/// The library as drivers install it.
const LIBRARY: &str = "libnvidia-ml.so.1";

/// NVML of this machine.
pub struct NvmlSource {
    library: OsString,
    nvml: Option<Nvml>,
    calls: Arc<Calls>,
}

impl NvmlSource {
    /// NVML from the library of the installed driver, or from another one.
    pub fn new(library: Option<PathBuf>) -> Self {
        Self::with_calls(library, Arc::default())
    }

    /// The same; its calls are marked in `calls`, and GPUs that are avoided there are not called.
    pub fn with_calls(library: Option<PathBuf>, calls: Arc<Calls>) -> Self {
        Self { library: library.map_or_else(|| LIBRARY.into(), Into::into), nvml: None, calls }
    }
}

impl Source for NvmlSource {
    fn open(&mut self) -> Result<Box<dyn Session + '_>, Absent> {
        // The old one first: its `Drop` shuts NVML down and unloads the library, so that the one of a driver
        // that was installed meanwhile is loaded instead.
        self.nvml = None;
        let nvml = Nvml::builder().lib_path(&self.library).init().map_err(|error| self.absent(&error))?;
        let nvml = &*self.nvml.insert(nvml);
        device::count(nvml).map_err(|error| absent(&error))?;
        let known = self.calls.known();
        Ok(Box::new(NvmlSession {
            nvml,
            calls: &self.calls,
            seats: Vec::new(),
            uuids: Arc::default(),
            pasts: Vec::new(),
            topology: known.map(|known| known.topology.clone()).unwrap_or_default(),
            known: HashMap::new(),
            list: RawList::default(),
            handles: Handles::default(),
            xids: None,
            turns: Turns::default(),
            is_stale: false,
        }))
    }

    fn is_stuck(&self) -> bool {
        self.nvml.is_none() && unload::is_stuck_with_replaced(&self.library)
    }
}

impl NvmlSource {
    fn absent(&self, error: &NvmlError) -> Absent {
        match error {
            NvmlError::LibloadingError(reason) => {
                Absent(word::of_library(&self.library.to_string_lossy(), &reason.to_string()))
            }
            error => absent(error),
        }
    }
}

fn absent(error: &NvmlError) -> Absent {
    Absent(word::of_driver(error))
}

/// An initialised NVML and the devices it had when they were last enumerated.
struct NvmlSession<'nvml> {
    nvml: &'nvml Nvml,
    /// Where each GPU is marked before it is called.
    calls: &'nvml Calls,
    seats: Vec<Seat<'nvml>>,
    /// Their UUIDs.
    uuids: Arc<[GpuUuid]>,
    /// What is remembered of each of them, in the same order.
    pasts: Vec<Past<'nvml>>,
    /// How they reach each other, as long as all of them answered.
    topology: Vec<Vec<GpuPath>>,
    /// What each GPU said of itself when it last answered, by index.
    known: HashMap<u32, GpuFacts>,
    /// What a process list is read into.
    list: RawList,
    /// Which handle is whose.
    handles: Handles,
    xids: Option<XidWatch<'nvml>>,
    /// Whose PCIe is measured next.
    turns: Turns,
    /// Whether something was read that the last inventory does not explain.
    is_stale: bool,
}

impl NvmlSession<'_> {
    /// Facts of every seat. A GPU that was lost meanwhile keeps its name and its identity.
    fn facts(&mut self) -> Vec<GpuFacts> {
        let mut gpus = Vec::with_capacity(self.seats.len());
        for seat in &mut self.seats {
            self.calls.enter_gpu(seat.index);
            let known = self.known.get(&seat.index).filter(|_| seat.mig.is_none());
            let known = known.or_else(|| self.calls.known_facts(&seat.uuid));
            let facts = match known {
                Some(known) if !seat.answers => known.clone(),
                _ => facts::of(self.nvml, seat),
            };
            seat.uuid = facts.uuid.clone();
            if seat.answers && seat.mig.is_none() {
                self.known.insert(seat.index, facts.clone());
            }
            gpus.push(facts);
        }
        gpus
    }

    fn read(&mut self) -> Result<Vec<GpuSample>, Absent> {
        self.turns.begin(self.pasts.iter().map(|past| &past.pcie), Instant::now());
        let mut gpu = None;
        let mut samples = Vec::with_capacity(self.seats.len());
        for (position, (seat, past)) in self.seats.iter().zip(&mut self.pasts).enumerate() {
            self.calls.enter_gpu(seat.index);
            // Instances follow their GPU.
            if seat.mig.is_none() {
                gpu = seat.device.as_ref().ok();
            }
            let means = Means { gpu, measure_pcie: self.turns.of(position) };
            let was_measured = past.pcie.is_measured();
            let sample = readings::of(seat, past, &means);
            if !was_measured && past.pcie.is_measured() {
                self.turns.count_first();
            }
            // A driver that was replaced still counts its GPUs, from memory.
            if let Some(why) = past.asker.gone() {
                return Err(Absent(why.clone()));
            }
            let instances = self.seats[position + 1..].iter().take_while(|seat| seat.mig.is_some()).count();
            self.is_stale |= contradicts(self.nvml, (seat, instances), past, sample.fault.is_some());
            samples.push(sample);
        }
        Ok(samples)
    }

    /// Whoever was there before keeps its past, wherever it sits now.
    fn remember(&mut self, before: Vec<GpuUuid>) {
        let mut pasts: HashMap<_, _> = before.into_iter().zip(std::mem::take(&mut self.pasts)).collect();
        let past = |seat: &Seat<'_>| match pasts.remove(&seat.uuid) {
            Some(past) => past.renewed(seat),
            None => Past::new(seat),
        };
        self.pasts = self.seats.iter().map(past).collect();
    }
}

/// Whether what was read of a GPU or instance, which has so many instances, shows that the last inventory
/// is out of date.
fn contradicts(
    nvml: &Nvml,
    (seat, instances): (&Seat<'_>, usize),
    past: &mut Past<'_>,
    is_faulty: bool,
) -> bool {
    let has_returned = std::mem::replace(&mut past.was_faulty, is_faulty) && !is_faulty;
    let contradicted = past.asker.is_contradicted();
    match &seat.device {
        _ if has_returned => true,
        Ok(_) if seat.mig.is_some() => contradicted,
        Ok(_) if seat.answers && is_faulty => false,
        _ => seat.has_changed(nvml, instances) || contradicted && seat.has_another_mode(),
    }
}

impl Session for NvmlSession<'_> {
    fn inventory(&mut self) -> Inventory {
        self.is_stale = false;
        let mut before: Vec<_> = self.seats.iter().map(|seat| seat.uuid.clone()).collect();
        // A session that takes over from one that hangs goes on with its GPUs.
        if let (true, Some(known)) = (before.is_empty(), self.calls.known()) {
            before = known.gpus.iter().map(|facts| facts.uuid.clone()).collect();
        }
        self.seats = device::enumerate(self.nvml, self.calls);
        let gpus = self.facts();
        self.uuids = self.seats.iter().map(|seat| seat.uuid.clone()).collect();
        // A GPU that is lost keeps its paths as it keeps its name.
        let same = self.seats.iter().map(|seat| &seat.uuid).eq(&before);
        if !same || self.seats.iter().all(|seat| seat.answers) {
            self.topology = topology::of(self.nvml, &self.seats, self.calls);
        }
        self.remember(before);
        self.handles.remember(&self.seats);
        for (facts, past) in gpus.iter().zip(&mut self.pasts) {
            past.pcie.set_link(facts.pcie_gen_max.value().copied(), facts.pcie_width_max.value().copied());
        }
        // Registering again would deliver old events again: only once per set of devices.
        if !self.xids.as_ref().is_some_and(|watch| watch.covers(&self.seats)) {
            self.xids = XidWatch::start(self.nvml, &self.seats, self.calls);
        }
        self.calls.enter_driver();
        let nvml = NvmlState::Ready {
            driver: word::text(self.nvml.sys_driver_version()),
            nvml: word::text(self.nvml.sys_nvml_version()),
            cuda: word::reading(self.nvml.sys_cuda_driver_version()).map(facts::cuda_version),
        };
        Inventory { nvml, gpus, topology: self.topology.clone() }
    }

    fn readings(&mut self) -> Result<Vec<GpuSample>, Absent> {
        // Cheap, and the one call that says whether there still is a driver when there is no GPU.
        match device::count(self.nvml) {
            Err(error) if word::ends_session(&error) => return Err(absent(&error)),
            Err(error @ NvmlError::InsufficientSize(_)) => return Err(absent(&error)),
            Ok(count) => {
                let gpus = self.seats.iter().filter(|seat| seat.mig.is_none()).count();
                self.is_stale |= usize::try_from(count) != Ok(gpus);
            }
            Err(_) => {}
        }
        self.read()
    }

    fn occupants(&mut self) -> Occupancy {
        let mut occupancy =
            lists::occupants(&self.seats, Arc::clone(&self.uuids), &mut self.list, self.calls);
        usage::fill(&self.seats, &mut self.pasts, &mut occupancy.occupants, self.calls);
        occupancy
    }

    fn health(&mut self) -> Vec<GpuHealth> {
        let mut reports = Vec::with_capacity(self.seats.len());
        for (seat, past) in self.seats.iter().zip(&mut self.pasts) {
            self.calls.enter_gpu(seat.index);
            // Some drivers go on to tell the load of a GPU that was divided, as 0, so that nothing contradicts.
            self.is_stale |= seat.divided.is_some() && seat.has_another_mode();
            reports.push(health::of(seat, past));
        }
        reports
    }

    fn news(&mut self) -> Vec<News> {
        self.xids.as_ref().map(|watch| watch.news(&self.handles)).unwrap_or_default()
    }

    fn is_stale(&self) -> bool {
        self.is_stale
    }
}
