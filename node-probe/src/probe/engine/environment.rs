//! Interfaces to the node that the probe's state machine needs.

use crate::{
    driver_thread::{DriverStatus, ReadRequest},
    host::HostReadings,
    sampler::Stamp,
    source::{GpuProcessList, Inventory},
};
use nodeglass_protocol::JobId;
use nodeglass_protocol::probe::{ProbeLine, ProbeResponse, ProbeUsage};
use nodeglass_protocol::request::ProbeRequest;
use std::time::Duration;

/// The clocks at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// Monotonic time since any fixed moment.
    pub elapsed: Duration,
    /// `CLOCK_BOOTTIME` in ns.
    pub mono_ns: u64,
    /// `CLOCK_REALTIME` in ns since 1970.
    pub wall_ns: u64,
}

impl Moment {
    /// Returns the stamp of a sample that starts now.
    pub fn stamp(self) -> Stamp {
        Stamp { mono_ns: self.mono_ns, wall_ms: self.wall_ns / 1_000_000 }
    }
}

/// A node, as the probe's state machine sees it. No call blocks; what takes long is requested here
/// and reported to the state machine later. A source is named by its position.
pub trait Environment {
    /// Reads the clocks.
    fn now(&self) -> Moment;

    /// Returns whether the interface to the relay has no link.
    fn is_cut_off(&self) -> bool {
        false
    }

    /// Checks whether a call of a source's driver exceeds `limit`; a call for a single GPU is
    /// abandoned then.
    fn check_driver(&mut self, source: usize, limit: Duration) -> DriverStatus;

    /// Requests readings, to be reported as [`Report::Read`](crate::source::Report::Read); returns
    /// whether the source accepted the request.
    fn request_readings(&mut self, source: usize, request: ReadRequest) -> bool;

    /// Returns how long the current call of a source's driver has been running.
    fn driver_call_duration(&self, source: usize) -> Option<Duration>;

    /// Stores the inventory of a source, so that hung GPUs keep their identity.
    fn set_inventory(&mut self, source: usize, inventory: Option<&Inventory>);

    /// Reads the host.
    fn read_host(&mut self) -> HostReadings;

    /// Reads what the probe itself uses; `None` if `/proc` does not state it.
    fn read_usage(&self) -> Option<ProbeUsage>;

    /// Submits processes for resolution; the result arrives as a process list.
    fn look_up_processes(&mut self, processes: GpuProcessList);

    /// Returns how long the current lookup has been running.
    fn lookup_duration(&self) -> Option<Duration>;

    /// Starts a request of the relay; returns the response if it is known immediately.
    fn respond(&mut self, number: u32, request: ProbeRequest) -> Option<ProbeResponse>;

    /// Requests new lines of the spool files of jobs; they are reported to the state machine later.
    fn read_notes(&mut self, jobs: &[JobId]);

    /// Queues a line, which may be superseded by a newer one while the pipe is full.
    fn print(&mut self, line: &ProbeLine);

    /// Queues an encoded sample if there is room.
    fn offer_sample(&mut self, line: Vec<u8>) -> bool;

    /// Queues encoded process readings if there is room.
    fn offer_readings(&mut self, line: Vec<u8>) -> bool;

    /// Queues a heartbeat if there is room.
    fn offer_heartbeat(&mut self, heartbeat: &ProbeLine) -> bool;

    /// Queues notes if there is room.
    fn offer_notes(&mut self, notes: &ProbeLine) -> bool;
}
