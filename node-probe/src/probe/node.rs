//! The node that the probe runs on: its clocks, the threads that read it, and the pipe to the relay.

use super::engine::environment::{Environment, Moment};
use super::network::Uplink;
use crate::{
    clock,
    driver_thread::{DriverStatus, DriverThread, DriverTimings, ReadRequest, SourceConfig},
    host::{Host, HostReadings},
    loop_event::LoopEvent,
    notes::NoteReader,
    output::Output,
    process::{Inspector, own_usage},
    requests::RequestHandler,
    source::{GpuProcessList, Inventory, WorkerId},
};
use nodeglass_protocol::JobId;
use nodeglass_protocol::probe::{ProbeLine, ProbeResponse, ProbeUsage};
use nodeglass_protocol::request::ProbeRequest;
use std::{
    io,
    sync::mpsc::Sender,
    time::{Duration, Instant},
};

/// This node. Results of its threads arrive as [`LoopEvent`]s.
pub(super) struct Node {
    started: Instant,
    /// The driver of each source.
    drivers: Vec<DriverThread>,
    inspector: Inspector,
    output: Output,
    host: Host,
    request_handler: RequestHandler,
    notes: NoteReader,
    uplink: Uplink,
}

impl Node {
    /// Starts the threads.
    ///
    /// # Errors
    /// If one of them cannot be started, or stdout is closed.
    pub fn start(
        sources: Vec<SourceConfig>,
        timings: DriverTimings,
        events: Sender<LoopEvent>,
    ) -> io::Result<Self> {
        let driver = |(source, config): (usize, SourceConfig)| {
            DriverThread::start(source, config.make, timings, events.clone())
        };
        Ok(Self {
            drivers: sources.into_iter().enumerate().map(driver).collect::<io::Result<_>>()?,
            started: Instant::now(),
            output: Output::start(events.clone())?,
            request_handler: RequestHandler::new(events.clone()),
            notes: NoteReader::start(events.clone())?,
            inspector: Inspector::start(events)?,
            host: Host::new(),
            uplink: Uplink::of_this_process(),
        })
    }

    /// Returns the time until a deadline, which is zero once it has passed.
    pub fn until(&self, deadline: Duration) -> Duration {
        deadline.saturating_sub(self.started.elapsed())
    }

    /// Returns whether a report is from the current source thread, not from an abandoned one.
    pub fn is_current_thread(&self, worker: WorkerId) -> bool {
        self.drivers[worker.source].is_current(worker)
    }

    /// Waits until everything is written, up to a timeout.
    pub fn close(self, timeout: Duration) {
        self.output.close(timeout);
    }
}

impl Environment for Node {
    fn now(&self) -> Moment {
        Moment { elapsed: self.started.elapsed(), mono_ns: clock::mono_ns(), wall_ns: clock::wall_ns() }
    }

    fn is_cut_off(&self) -> bool {
        self.uplink.is_cut()
    }

    fn check_driver(&mut self, source: usize, limit: Duration) -> DriverStatus {
        self.drivers[source].check(limit).unwrap_or_else(|error| {
            eprintln!(
                "node-probe: cannot go on without the GPU that hangs, no thread can be started: {error}"
            );
            DriverStatus::Hung { duration: limit }
        })
    }

    fn request_readings(&mut self, source: usize, request: ReadRequest) -> bool {
        self.drivers[source].request(request)
    }

    fn driver_call_duration(&self, source: usize) -> Option<Duration> {
        self.drivers[source].call_duration()
    }

    fn set_inventory(&mut self, source: usize, inventory: Option<&Inventory>) {
        self.drivers[source].set_inventory(inventory);
    }

    fn read_host(&mut self) -> HostReadings {
        self.host.read()
    }

    fn read_usage(&self) -> Option<ProbeUsage> {
        own_usage()
    }

    fn look_up_processes(&mut self, processes: GpuProcessList) {
        self.inspector.inspect(processes);
    }

    fn lookup_duration(&self) -> Option<Duration> {
        self.inspector.busy()
    }

    fn respond(&mut self, number: u32, request: ProbeRequest) -> Option<ProbeResponse> {
        self.request_handler.handle(number, request)
    }

    fn read_notes(&mut self, jobs: &[JobId]) {
        self.notes.request(jobs);
    }

    fn print(&mut self, line: &ProbeLine) {
        self.output.print(line);
    }

    fn offer_sample(&mut self, line: Vec<u8>) -> bool {
        self.output.offer_sample(line)
    }

    fn offer_readings(&mut self, line: Vec<u8>) -> bool {
        self.output.offer_readings(line)
    }

    fn offer_heartbeat(&mut self, heartbeat: &ProbeLine) -> bool {
        self.output.offer(heartbeat)
    }

    fn offer_notes(&mut self, notes: &ProbeLine) -> bool {
        self.output.offer(notes)
    }
}
