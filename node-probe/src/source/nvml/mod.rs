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
mod places;
mod readings;
mod topology;
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
use std::{collections::HashMap, ffi::OsString, path::PathBuf, sync::Arc};
use xid::XidWatch;

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
        // The old one first: its `Drop` shuts NVML down, and a reloaded driver wants a new start.
        self.nvml = None;
        let nvml = Nvml::builder().lib_path(&self.library).init().map_err(|error| self.absent(&error))?;
        let nvml = &*self.nvml.insert(nvml);
        nvml.device_count().map_err(|error| absent(&error))?;
        let known = self.calls.known();
        Ok(Box::new(NvmlSession {
            nvml,
            calls: &self.calls,
            seats: Vec::new(),
            pasts: Vec::new(),
            topology: known.map(|known| known.topology.clone()).unwrap_or_default(),
            known: HashMap::new(),
            list: RawList::default(),
            xids: None,
        }))
    }
}

impl NvmlSource {
    fn absent(&self, error: &NvmlError) -> Absent {
        match error {
            NvmlError::LibloadingError(_) => {
                let library = self.library.to_string_lossy();
                Absent(format!("no NVIDIA driver: {library} cannot be loaded on this machine").into())
            }
            error => absent(error),
        }
    }
}

/// The sentence for an error that concerns the whole driver.
fn absent(error: &NvmlError) -> Absent {
    let why = match error {
        NvmlError::DriverNotLoaded => "no NVIDIA driver: its kernel module is not loaded".into(),
        NvmlError::LibRmVersionMismatch => {
            "the NVIDIA driver was updated but not reloaded: library and kernel module differ in version"
                .into()
        }
        NvmlError::NoPermission => "this user has no permission to use the NVIDIA driver".into(),
        error => format!("the NVIDIA driver does not work: {}", word::of(error)).into(),
    };
    Absent(why)
}

/// Whether an error of one call means that the driver as a whole is gone.
fn ends_session(error: &NvmlError) -> bool {
    matches!(error, NvmlError::Uninitialized | NvmlError::DriverNotLoaded | NvmlError::LibRmVersionMismatch)
}

/// An initialised NVML and the devices it had when they were last enumerated.
struct NvmlSession<'nvml> {
    nvml: &'nvml Nvml,
    /// Where each GPU is marked before it is called.
    calls: &'nvml Calls,
    seats: Vec<Seat<'nvml>>,
    /// What is remembered of each of them, in the same order.
    pasts: Vec<Past<'nvml>>,
    /// How they reach each other, as long as all of them answered.
    topology: Vec<Vec<GpuPath>>,
    /// What each GPU said of itself when it last answered, by index.
    known: HashMap<u32, GpuFacts>,
    /// What a process list is read into.
    list: RawList,
    xids: Option<XidWatch<'nvml>>,
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

    fn read(&mut self) -> Vec<GpuSample> {
        let mut gpu = None;
        let mut samples = Vec::with_capacity(self.seats.len());
        for (seat, past) in self.seats.iter().zip(&mut self.pasts) {
            self.calls.enter_gpu(seat.index);
            // Instances follow their GPU.
            if seat.mig.is_none() {
                gpu = seat.device.as_ref().ok();
            }
            samples.push(readings::of(seat, past, gpu));
        }
        samples
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

impl Session for NvmlSession<'_> {
    fn inventory(&mut self) -> Inventory {
        let mut before: Vec<_> = self.seats.iter().map(|seat| seat.uuid.clone()).collect();
        // A session that takes over from one that hangs goes on with its GPUs.
        if let (true, Some(known)) = (before.is_empty(), self.calls.known()) {
            before = known.gpus.iter().map(|facts| facts.uuid.clone()).collect();
        }
        self.seats = device::enumerate(self.nvml, self.calls);
        let gpus = self.facts();
        // A GPU that is lost keeps its paths as it keeps its name.
        let same = self.seats.iter().map(|seat| &seat.uuid).eq(&before);
        if !same || self.seats.iter().all(|seat| seat.answers) {
            self.topology = topology::of(self.nvml, &self.seats, self.calls);
        }
        self.remember(before);
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
        match self.nvml.device_count() {
            Err(error) if ends_session(&error) => Err(absent(&error)),
            _ => Ok(self.read()),
        }
    }

    fn occupants(&mut self) -> Occupancy {
        let mut occupancy = lists::occupants(&self.seats, &mut self.list, self.calls);
        usage::fill(&self.seats, &mut self.pasts, &mut occupancy.occupants, self.calls);
        occupancy
    }

    fn health(&mut self) -> Vec<GpuHealth> {
        let health = |(seat, past): (&Seat<'_>, _)| {
            self.calls.enter_gpu(seat.index);
            health::of(seat, past)
        };
        self.seats.iter().zip(&mut self.pasts).map(health).collect()
    }

    fn news(&mut self) -> Vec<News> {
        self.xids.as_ref().map(|watch| watch.news(&self.seats)).unwrap_or_default()
    }
}
