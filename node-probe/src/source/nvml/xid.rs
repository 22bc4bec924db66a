//! Xid errors, polled without a waiting thread and reported once each.

use super::{device::DeviceHandle, ffi};
use crate::source::{DriverEvent, calls::CallTracker};
use nodeglass_protocol::GpuUuid;
use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::{EventSet, Nvml};
use std::collections::HashMap;

/// Maximum number of events per poll.
const MOST: usize = 16;

/// Maps device handles to UUIDs for the lifetime of the NVML session: a GPU that fell off the bus
/// cannot be queried, and its event contains only the handle.
#[derive(Debug, Default)]
pub struct HandleMap(HashMap<usize, (GpuUuid, u32)>);

impl HandleMap {
    /// Adds the handles of an inventory; those of GPUs that have none at present are kept.
    pub fn remember(&mut self, handles: &[DeviceHandle<'_>]) {
        for handle in handles {
            if let Ok(device) = &handle.device {
                self.0.insert(ffi::handle(device), (handle.uuid.clone(), handle.index));
            }
        }
    }
}

/// An event set with all GPUs that support Xid events.
pub struct XidWatch<'nvml> {
    set: EventSet<'nvml>,
    registered: Vec<String>,
}

impl<'nvml> XidWatch<'nvml> {
    /// Registers the GPUs; `None` if the driver does not support events.
    pub fn start(nvml: &'nvml Nvml, handles: &[DeviceHandle<'nvml>], calls: &CallTracker) -> Option<Self> {
        let mut set = nvml.create_event_set().ok()?;
        for handle in handles.iter().filter(|handle| handle.mig.is_none()) {
            let Ok(device) = &handle.device else { continue };
            calls.begin_gpu_call(handle.index);
            let offered = device.supported_event_types();
            if offered.is_ok_and(|types| types.contains(EventTypes::CRITICAL_XID_ERROR)) {
                set = device.register_events(EventTypes::CRITICAL_XID_ERROR, set).ok()?;
            }
        }
        Some(Self { set, registered: names(handles) })
    }

    /// Whether the event set covers these GPUs.
    pub fn covers(&self, handles: &[DeviceHandle<'_>]) -> bool {
        self.registered == names(handles)
    }

    /// Returns the events since the last call, without waiting.
    pub fn driver_events(&self, handle_map: &HandleMap) -> Vec<DriverEvent> {
        let waiting = std::iter::from_fn(|| self.set.wait(0).ok());
        waiting
            .take(MOST)
            .map(|event| {
                let gpu = handle_map.0.get(&ffi::handle(&event.device));
                let xid = match event.event_data {
                    Some(XidError::Value(number)) => Some(number),
                    _ => None,
                };
                DriverEvent::of_xid(xid, gpu.cloned())
            })
            .collect()
    }
}

/// The GPUs that can be registered: a GPU that recovered from a loss or a hang changes the set.
fn names(handles: &[DeviceHandle<'_>]) -> Vec<String> {
    let there = handles.iter().filter(|handle| handle.device.is_ok());
    there.map(|handle| handle.uuid.as_str().to_owned()).collect()
}
