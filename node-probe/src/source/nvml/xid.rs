//! Xid errors, each told once, without a thread that waits for them.

use super::{device::Seat, xids};
use crate::source::{News, calls::Calls};
use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::{EventSet, Nvml};

/// The most events that one tick tells.
const MOST: usize = 16;

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
    pub fn news(&self, seats: &[Seat<'_>]) -> Vec<News> {
        let waiting = std::iter::from_fn(|| self.set.wait(0).ok());
        waiting
            .take(MOST)
            .map(|event| {
                let uuid = event.device.uuid().ok();
                let seat = seats.iter().find(|seat| Some(seat.uuid.as_str()) == uuid.as_deref());
                let xid = match event.event_data {
                    Some(XidError::Value(number)) => Some(number),
                    _ => None,
                };
                let number = xid.map_or_else(|| "of unknown number".to_owned(), |xid| xid.to_string());
                let place = seat.map_or_else(|| "a GPU".to_owned(), |seat| format!("GPU {}", seat.index));
                News {
                    gpu: seat.map(|seat| seat.uuid.clone()),
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
