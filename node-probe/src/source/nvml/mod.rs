//! NVML through `nvml-wrapper`: the only folder that knows it.

mod device;
mod facts;
mod legacy;
mod lists;
mod readings;
mod word;
mod xid;

use super::{Absent, Inventory, News, Occupant, Session, Source};
use device::Seat;
use nodeglass_protocol::probe::{GpuFacts, GpuHealth, GpuSample, NvmlState};
use nvml_wrapper::{Nvml, error::NvmlError};
use std::{collections::HashMap, ffi::OsString, path::PathBuf};
use xid::XidWatch;

/// The library as drivers install it.
const LIBRARY: &str = "libnvidia-ml.so.1";

/// NVML of this machine.
pub struct NvmlSource {
    library: OsString,
    nvml: Option<Nvml>,
}

impl NvmlSource {
    /// NVML from the library of the installed driver, or from another one.
    pub fn new(library: Option<PathBuf>) -> Self {
        Self { library: library.map_or_else(|| LIBRARY.into(), Into::into), nvml: None }
    }
}

impl Source for NvmlSource {
    fn open(&mut self) -> Result<Box<dyn Session + '_>, Absent> {
        // The old one first: its `Drop` shuts NVML down, and a reloaded driver wants a new start.
        self.nvml = None;
        let nvml = Nvml::builder().lib_path(&self.library).init().map_err(|error| self.absent(&error))?;
        let nvml = &*self.nvml.insert(nvml);
        nvml.device_count().map_err(|error| absent(&error))?;
        Ok(Box::new(NvmlSession { nvml, seats: Vec::new(), known: HashMap::new(), xids: None }))
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
    seats: Vec<Seat<'nvml>>,
    /// What each GPU said of itself when it last answered, by index.
    known: HashMap<u32, GpuFacts>,
    xids: Option<XidWatch<'nvml>>,
}

impl NvmlSession<'_> {
    /// Facts of every seat. A GPU that was lost meanwhile keeps its name and its identity.
    fn facts(&mut self) -> Vec<GpuFacts> {
        let mut gpus = Vec::with_capacity(self.seats.len());
        for seat in &mut self.seats {
            let facts = match self.known.get(&seat.index) {
                Some(known) if !seat.answers => known.clone(),
                _ => facts::of(seat),
            };
            seat.uuid = facts.uuid.clone();
            if seat.answers && seat.mig.is_none() {
                self.known.insert(seat.index, facts.clone());
            }
            gpus.push(facts);
        }
        gpus
    }
}

impl Session for NvmlSession<'_> {
    fn inventory(&mut self) -> Inventory {
        self.seats = device::enumerate(self.nvml);
        let gpus = self.facts();
        // Registering again would deliver old events again: only once per set of devices.
        if !self.xids.as_ref().is_some_and(|watch| watch.covers(&self.seats)) {
            self.xids = XidWatch::start(self.nvml, &self.seats);
        }
        let nvml = NvmlState::Ready {
            driver: word::text(self.nvml.sys_driver_version()),
            nvml: word::text(self.nvml.sys_nvml_version()),
            cuda: word::reading(self.nvml.sys_cuda_driver_version()).map(facts::cuda_version),
        };
        Inventory { nvml, gpus, topology: Vec::new() }
    }

    fn readings(&mut self) -> Result<Vec<GpuSample>, Absent> {
        // Cheap, and the one call that says whether there still is a driver when there is no GPU.
        match self.nvml.device_count() {
            Err(error) if ends_session(&error) => Err(absent(&error)),
            _ => Ok(self.seats.iter().map(readings::of).collect()),
        }
    }

    fn occupants(&mut self) -> Vec<Occupant> {
        lists::occupants(&self.seats)
    }

    fn health(&mut self) -> Vec<GpuHealth> {
        self.seats.iter().map(|_| GpuHealth::default()).collect()
    }

    fn news(&mut self) -> Vec<News> {
        self.xids.as_ref().map(|watch| watch.news(&self.seats)).unwrap_or_default()
    }
}
