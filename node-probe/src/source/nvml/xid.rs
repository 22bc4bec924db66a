//! Xid errors, each told once, without a thread that waits for them.

use super::{beyond, device::Seat, xids};
use crate::source::{News, calls::Calls};
use nodeglass_protocol::GpuUuid;
use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::{EventSet, Nvml};
use std::collections::HashMap;

/// The most events that one tick tells.
const MOST: usize = 16;

/// Which GPU a device handle is of, kept as long as NVML is open: a GPU that falls off the bus can be asked
/// nothing, not even who it is, and the event that tells of it names it by its handle alone.
#[derive(Debug, Default)]
pub struct Handles(HashMap<usize, (GpuUuid, u32)>);

impl Handles {
    /// Takes note of the handles of an inventory; those of GPUs that have none at present are kept.
    pub fn remember(&mut self, seats: &[Seat<'_>]) {
        for seat in seats {
            if let Ok(device) = &seat.device {
                self.0.insert(beyond::handle(device), (seat.uuid.clone(), seat.index));
            }
        }
    }
}

/// An event set in which every GPU that can is registered for Xid errors.
pub struct XidWatch<'nvml> {
    set: EventSet<'nvml>,
    registered: Vec<String>,
}

impl<'nvml> XidWatch<'nvml> {
    /// Registers; `None` if the driver offers no events.
    pub fn start(nvml: &'nvml Nvml, seats: &[Seat<'nvml>], calls: &Calls) -> Option<Self> {
        let mut set = nvml.create_event_set().ok()?;
        for seat in seats.iter().filter(|seat| seat.mig.is_none()) {
            let Ok(device) = &seat.device else { continue };
            calls.enter_gpu(seat.index);
            let offered = device.supported_event_types();
            if offered.is_ok_and(|types| types.contains(EventTypes::CRITICAL_XID_ERROR)) {
                set = device.register_events(EventTypes::CRITICAL_XID_ERROR, set).ok()?;
            }
        }
        Some(Self { set, registered: names(seats) })
    }

    /// Whether these are the GPUs it was started for.
    pub fn covers(&self, seats: &[Seat<'_>]) -> bool {
        self.registered == names(seats)
    }

    /// What happened since the last call; does not wait.
    pub fn news(&self, handles: &Handles) -> Vec<News> {
        let waiting = std::iter::from_fn(|| self.set.wait(0).ok());
        waiting
            .take(MOST)
            .map(|event| {
                let gpu = handles.0.get(&beyond::handle(&event.device));
                let xid = match event.event_data {
                    Some(XidError::Value(number)) => Some(number),
                    _ => None,
                };
                let number = xid.map_or_else(|| "of unknown number".to_owned(), |xid| xid.to_string());
                let place = gpu.map_or_else(|| "a GPU".to_owned(), |(_, index)| format!("GPU {index}"));
                News {
                    gpu: gpu.map(|(uuid, _)| uuid.clone()),
                    xid,
                    text: match xid.and_then(xids::words) {
                        Some(words) => format!("Xid {number} on {place}: {words}").into(),
                        None => format!("Xid {number} on {place}").into(),
                    },
                }
            })
            .collect()
    }
}

/// The GPUs that can be registered: one that is back from a loss or a hang makes another set of them.
fn names(seats: &[Seat<'_>]) -> Vec<String> {
    let there = seats.iter().filter(|seat| seat.device.is_ok());
    there.map(|seat| seat.uuid.as_str().to_owned()).collect()
}
