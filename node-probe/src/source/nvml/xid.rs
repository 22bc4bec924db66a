//! Xid errors, polled without a waiting thread and reported once each.

use super::{device::DeviceHandle, ffi};
use crate::source::{DriverEvent, calls::CallTracker};
use nodeglass_protocol::GpuUuid;
use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::{EventSet, Nvml};
use std::collections::HashMap;

/// The events that are registered.
const XID: EventTypes = EventTypes::CRITICAL_XID_ERROR;
/// Maximum number of events per poll.
const MAX_EVENTS: usize = 16;

/// Maps device handles to UUIDs for the lifetime of the NVML session: a GPU that fell off the bus
/// cannot be queried, and its event contains only the handle.
#[derive(Debug, Default)]
pub struct HandleMap(HashMap<usize, (GpuUuid, u32)>);

impl HandleMap {
    /// Adds the handles of an inventory; keeps handles of GPUs that have none at present.
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
        let offers = |handle: &&DeviceHandle<'_>| {
            let (None, Ok(device)) = (&handle.mig, &handle.device) else { return false };
            calls.begin_gpu_call(handle.index);
            device.supported_event_types().is_ok_and(|types| types.contains(XID))
        };
        let mut gpus: Vec<_> = handles.iter().filter(offers).collect();
        // A GPU that refuses ends the set, which then begins again without it.
        loop {
            match Self::registered(nvml, &gpus, calls) {
                Ok(set) => return Some(Self { set, registered: names(handles) }),
                Err(refuses) => _ = gpus.remove(refuses?),
            }
        }
    }

    /// Returns a set with these GPUs.
    ///
    /// # Errors
    /// The position of a GPU that refuses; `None` if there cannot be a set.
    fn registered(
        nvml: &'nvml Nvml,
        gpus: &[&DeviceHandle<'nvml>],
        calls: &CallTracker,
    ) -> Result<EventSet<'nvml>, Option<usize>> {
        let mut set = nvml.create_event_set().map_err(|_| None)?;
        for (position, handle) in gpus.iter().enumerate() {
            calls.begin_gpu_call(handle.index);
            if let Ok(device) = &handle.device {
                set = device.register_events(XID, set).map_err(|_| Some(position))?;
            }
        }
        Ok(set)
    }

    /// Returns whether the event set covers these GPUs.
    pub fn covers(&self, handles: &[DeviceHandle<'_>]) -> bool {
        self.registered == names(handles)
    }

    /// Returns the events since the last call, without waiting.
    pub fn driver_events(&self, handle_map: &HandleMap) -> Vec<DriverEvent> {
        let waiting = std::iter::from_fn(|| self.set.wait(0).ok());
        waiting
            .take(MAX_EVENTS)
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
