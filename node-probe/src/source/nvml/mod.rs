//! The NVML source; the only module that uses `nvml-wrapper`.

mod affinity;
mod device;
mod device_state;
mod error;
mod facts;
mod ffi;
mod ffi_compat;
mod fields;
mod gpm;
mod health;
mod license;
mod nvlinks;
mod pcie;
mod processes;
mod query_cache;
mod readings;
mod sample_cursor;
mod topology;
mod unload;
mod usage;
mod xid;

use super::{Absent, DriverEvent, GpuProcessList, Inventory, Session, Source, calls::CallTracker};
use device::DeviceHandle;
use device_state::DeviceState;
use ffi_compat::RawList;
use nodeglass_protocol::GpuUuid;
use nodeglass_protocol::probe::{GpuFacts, GpuHealth, GpuPath, GpuSample, SourceVersions};
use nvml_wrapper::{Nvml, error::NvmlError};
use pcie::MeasurementSchedule;
use readings::ReadContext;
use std::{
    collections::{HashMap, HashSet},
    ffi::OsString,
    path::PathBuf,
    sync::Arc,
    time::Instant,
};
use xid::{HandleMap, XidWatch};

/// File name of the installed library.
const LIBRARY: &str = "libnvidia-ml.so.1";

/// The reporter of a value, in messages.
const REPORTER: &str = "NVML";

/// The NVML source of this machine.
pub struct NvmlSource {
    library: OsString,
    nvml: Option<Nvml>,
    calls: Arc<CallTracker>,
}

impl NvmlSource {
    /// Creates a source with the driver's library, or with another one.
    pub fn new(library: Option<PathBuf>) -> Self {
        Self::with_calls(library, Arc::default())
    }

    /// Creates a source that marks its calls in `calls` and skips GPUs that are avoided there.
    pub fn with_calls(library: Option<PathBuf>, calls: Arc<CallTracker>) -> Self {
        Self { library: library.map_or_else(|| LIBRARY.into(), Into::into), nvml: None, calls }
    }
}

impl Source for NvmlSource {
    fn open(&mut self) -> Result<Box<dyn Session + '_>, Absent> {
        // Drop the old instance first, which shuts NVML down and unloads the library, so that a
        // newly installed driver's library is loaded.
        self.nvml = None;
        let nvml = Nvml::builder().lib_path(&self.library).init().map_err(|error| self.absent(&error))?;
        let nvml = &*self.nvml.insert(nvml);
        device::count(nvml).map_err(|error| absent(&error))?;
        let known = self.calls.known();
        Ok(Box::new(NvmlSession {
            nvml,
            calls: &self.calls,
            handles: Vec::new(),
            uuids: Arc::default(),
            device_states: Vec::new(),
            topology: known.map(|known| known.topology.clone()).unwrap_or_default(),
            known: HashMap::new(),
            list: RawList::default(),
            handle_map: HandleMap::default(),
            xids: None,
            schedule: MeasurementSchedule::default(),
            is_stale: false,
        }))
    }

    fn needs_new_process(&self) -> bool {
        self.nvml.is_none() && unload::holds_replaced(&self.library)
    }
}

impl NvmlSource {
    fn absent(&self, error: &NvmlError) -> Absent {
        match error {
            NvmlError::LibloadingError(reason) => {
                Absent::new(error::of_library(&self.library.to_string_lossy(), &reason.to_string()))
            }
            error => absent(error),
        }
    }
}

fn absent(error: &NvmlError) -> Absent {
    Absent::new(error::of_driver(error))
}

/// An initialized NVML with the devices of the last enumeration.
struct NvmlSession<'nvml> {
    nvml: &'nvml Nvml,
    /// Tracks the current call for the watchdog.
    calls: &'nvml Arc<CallTracker>,
    handles: Vec<DeviceHandle<'nvml>>,
    /// UUIDs of the handles.
    uuids: Arc<[GpuUuid]>,
    /// State of each handle, in the same order.
    device_states: Vec<DeviceState<'nvml>>,
    /// Topology when all GPUs last responded.
    topology: Vec<Vec<GpuPath>>,
    /// Last known facts of each GPU by index.
    known: HashMap<u32, GpuFacts>,
    /// Reusable buffer for process lists.
    list: RawList,
    /// UUIDs by device handle, for events.
    handle_map: HandleMap,
    xids: Option<XidWatch<'nvml>>,
    /// Schedule of PCIe measurements.
    schedule: MeasurementSchedule,
    /// Whether readings contradict the inventory.
    is_stale: bool,
}

impl NvmlSession<'_> {
    /// Returns the facts of all handles. A lost GPU keeps its previous facts, unless the GPU that had its index
    /// has another one now.
    fn facts(&mut self) -> Vec<GpuFacts> {
        let mut gpus = Vec::with_capacity(self.handles.len());
        let answering = self.handles.iter().filter(|handle| handle.answers);
        let present: HashSet<_> = answering.map(|handle| handle.uuid.clone()).collect();
        for handle in &mut self.handles {
            self.calls.begin_gpu_call(handle.index);
            let known = self.known.get(&handle.index).filter(|_| handle.mig.is_none());
            let known = known.filter(|known| !present.contains(&known.uuid));
            let known = known.or_else(|| self.calls.known_facts(&handle.uuid));
            let facts = match known {
                Some(known) if !handle.answers => known.clone(),
                _ => facts::of(self.nvml, handle),
            };
            handle.uuid = facts.uuid.clone();
            if handle.answers && handle.mig.is_none() {
                self.known.insert(handle.index, facts.clone());
            }
            gpus.push(facts);
        }
        gpus
    }

    fn read(&mut self) -> Result<Vec<GpuSample>, Absent> {
        self.schedule.begin(self.device_states.iter().map(|device_state| &device_state.pcie), Instant::now());
        let mut gpu = None;
        let mut samples = Vec::with_capacity(self.handles.len());
        for (position, (handle, device_state)) in self.handles.iter().zip(&mut self.device_states).enumerate()
        {
            self.calls.begin_gpu_call(handle.index);
            // Instances follow their GPU.
            if handle.mig.is_none() {
                gpu = handle.device.as_ref().ok();
            }
            let context = ReadContext { gpu, measure_pcie: self.schedule.of(position) };
            let was_measured = device_state.pcie.is_measured();
            let sample = readings::of(handle, device_state, &context);
            if !was_measured && device_state.pcie.is_measured() {
                self.schedule.count_first();
            }
            // A replaced driver still reports the GPU count from a cache.
            if let Some(why) = device_state.queries.gone() {
                return Err(Absent::new(why.clone()));
            }
            let rest = &self.handles[position + 1..];
            let instances = rest.iter().take_while(|handle| handle.mig.is_some()).count();
            self.is_stale |=
                contradicts(self.nvml, (handle, &rest[..instances]), device_state, sample.fault.is_some());
            samples.push(sample);
        }
        Ok(samples)
    }

    /// Assigns the previous state to the same UUIDs.
    fn remember(&mut self, before: Vec<GpuUuid>) {
        let mut device_states: HashMap<_, _> =
            before.into_iter().zip(std::mem::take(&mut self.device_states)).collect();
        let device_state = |handle: &DeviceHandle<'_>| match device_states.remove(&handle.uuid) {
            Some(device_state) => device_state.renewed(handle),
            None => DeviceState::new(handle),
        };
        self.device_states = self.handles.iter().map(device_state).collect();
    }
}

/// Returns whether the readings of a GPU or instance show that the inventory is out of date.
fn contradicts(
    nvml: &Nvml,
    (handle, instances): (&DeviceHandle<'_>, &[DeviceHandle<'_>]),
    device_state: &mut DeviceState<'_>,
    is_faulty: bool,
) -> bool {
    let has_returned = std::mem::replace(&mut device_state.was_faulty, is_faulty) && !is_faulty;
    let contradicted = device_state.queries.is_contradicted();
    match &handle.device {
        _ if has_returned => true,
        Ok(_) if handle.mig.is_some() => contradicted,
        Ok(_) if handle.answers && is_faulty => false,
        _ => handle.has_changed(nvml, instances) || contradicted && handle.has_another_mode(),
    }
}

impl Session for NvmlSession<'_> {
    fn inventory(&mut self) -> Inventory {
        self.is_stale = false;
        let mut before: Vec<_> = self.handles.iter().map(|handle| handle.uuid.clone()).collect();
        let mut known = self.handles.iter().filter(|handle| handle.mig.is_none()).count();
        // A replacement session continues with the GPUs of its predecessor.
        if let (true, Some(known_inventory)) = (before.is_empty(), self.calls.known()) {
            before = known_inventory.gpus.iter().map(|facts| facts.uuid.clone()).collect();
            known = known_inventory.gpus.iter().filter(|facts| facts.mig_parent.is_none()).count();
        }
        self.handles = device::enumerate(self.nvml, self.calls, u32::try_from(known).unwrap_or(0));
        let gpus = self.facts();
        self.uuids = self.handles.iter().map(|handle| handle.uuid.clone()).collect();
        // A lost GPU keeps its topology along with its identity.
        let same = self.handles.iter().map(|handle| &handle.uuid).eq(&before);
        if !same || self.handles.iter().all(|handle| handle.answers) {
            self.topology = topology::of(self.nvml, &self.handles, self.calls);
        }
        self.remember(before);
        self.handle_map.remember(&self.handles);
        for (facts, device_state) in gpus.iter().zip(&mut self.device_states) {
            device_state.set_limits(facts);
        }
        // Registering again would repeat old events, so it happens once per set of devices.
        if !self.xids.as_ref().is_some_and(|watch| watch.covers(&self.handles)) {
            self.xids = XidWatch::start(self.nvml, &self.handles, self.calls);
        }
        self.calls.begin_driver_call();
        let versions = SourceVersions {
            driver: error::text(self.nvml.sys_driver_version()),
            library: error::text(self.nvml.sys_nvml_version()),
            platform: error::reading(self.nvml.sys_cuda_driver_version()).map(facts::cuda_version),
        };
        Inventory { versions, gpus, topology: self.topology.clone() }
    }

    fn readings(&mut self) -> Result<Vec<GpuSample>, Absent> {
        // A cheap call, and the only one that detects a missing driver without GPUs.
        match device::count(self.nvml) {
            Err(error) if error::ends_session(&error) => return Err(absent(&error)),
            Err(error @ NvmlError::InsufficientSize(_)) => return Err(absent(&error)),
            Ok(count) => {
                let gpus = self.handles.iter().filter(|handle| handle.mig.is_none()).count();
                self.is_stale |= usize::try_from(count) != Ok(gpus);
            }
            Err(_) => {}
        }
        self.read()
    }

    fn gpu_processes(&mut self) -> GpuProcessList {
        let mut gpu_process_list =
            processes::gpu_processes(&self.handles, Arc::clone(&self.uuids), &mut self.list, self.calls);
        usage::fill(&self.handles, &mut self.device_states, &mut gpu_process_list.processes, self.calls);
        gpu_process_list
    }

    fn health(&mut self) -> Vec<GpuHealth> {
        let mut reports = Vec::with_capacity(self.handles.len());
        for (handle, device_state) in self.handles.iter().zip(&mut self.device_states) {
            self.calls.begin_gpu_call(handle.index);
            // Some drivers keep reporting a utilization of 0 in MIG mode, which contradicts
            // nothing.
            self.is_stale |= handle.divided.is_some() && handle.has_another_mode();
            reports.push(health::of(handle, device_state));
        }
        reports
    }

    fn driver_events(&mut self) -> Vec<DriverEvent> {
        self.xids.as_ref().map(|watch| watch.driver_events(&self.handle_map)).unwrap_or_default()
    }

    fn is_stale(&self) -> bool {
        self.is_stale
    }
}
