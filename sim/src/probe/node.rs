//! A node of a scenario, as the probe's state machine sees it: its clocks, driver, host, processes,
//! and the pipe to the relay.

use super::streams::HISTORY_MS;
use crate::gpu::{facts, health, readings};
use crate::scenario::file::FaultKind;
use crate::scenario::{Scenario, ScenarioTime};
use crate::{processes, responses};
use node_probe::driver_thread::{DriverStatus, DriverTimings, ReadRequest};
use node_probe::host::HostReadings;
use node_probe::output::{LineWriter, OutputQueue, encode, replayed};
use node_probe::probe::engine::Engine;
use node_probe::probe::engine::environment::{Environment, Moment};
use node_probe::ring::Ring;
use node_probe::source::{Absent, DriverEvent, GpuProcess, GpuProcessList, Inventory, Report};
use nodeglass_protocol::JobId;
use nodeglass_protocol::probe::{Event, ProbeLine, ProbeResponse, ProbeUsage, ProcessList, ProcessSample};
use nodeglass_protocol::request::ProbeRequest;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Approximate size of output chunks.
const CHUNK_BYTES: usize = 64 * 1024;
/// Xid of a GPU that fell off the bus.
const XID_OFF_THE_BUS: u64 = 79;

/// Resource usage of a probe on a node with eight GPUs: CPU time for its start, then in 1/1000 of a CPU, and memory.
const START_CPU_MS: u64 = 30;
const CPU_PER_MILLE: u64 = 3;
const RSS_BYTES: u64 = 9 << 20;

/// A node of a scenario.
#[derive(Debug)]
pub(super) struct SimulatedNode {
    scenario: Arc<Scenario>,
    node: usize,
    now: ScenarioTime,
    started: ScenarioTime,
    driver: Driver,
    /// Time of the requested process lookup, in ns of `CLOCK_BOOTTIME`.
    lookup_ns: Option<u64>,
    queue: OutputQueue,
    writer: LineWriter,
    /// Output of the login shell before the first line.
    motd: Vec<u8>,
    /// Past samples and events, which follow the first line.
    past: VecDeque<Vec<u8>>,
    has_begun: bool,
}

/// The NVIDIA driver of a node, as its probe knows it.
#[derive(Debug, Default)]
struct Driver {
    /// Whether it is loaded; `None` before the first report.
    is_loaded: Option<bool>,
    /// The pending request, and its time in ms.
    request: Option<(ReadRequest, i64)>,
    /// Time of the last health query in ms.
    last_health_ms: Option<i64>,
    is_health_due: bool,
    /// Time of the last query for events in ms.
    last_events_ms: i64,
    /// For each GPU, whether it was lost then.
    lost: Vec<bool>,
}

/// A result of what are threads on a real node.
enum Outcome {
    /// A report of the driver.
    Report(Report),
    /// A resolved process list.
    Processes(ProcessList),
}

/// Gives a probe the results of its requests that the node can respond to now.
pub(super) fn serve(engine: &mut Engine<SimulatedNode>) {
    while let Some(outcome) = engine.environment_mut().next_outcome() {
        match outcome {
            Outcome::Report(report) => engine.handle_report(0, report),
            Outcome::Processes(list) => engine.handle_processes(list),
        }
    }
}

impl SimulatedNode {
    /// Starts a probe on a node that has taken these samples before.
    pub fn new(scenario: Arc<Scenario>, node: usize, now: ScenarioTime, ring: &Ring) -> Self {
        let script = &scenario.nodes[node];
        let decodable = ring.iter().skip_while(|entry| !entry.is_full);
        let samples = decodable.map(|entry| replayed(&entry.line));
        let past = samples.chain(past_events(&scenario, node, now)).collect();
        let driver =
            Driver { last_events_ms: now.t_ms, lost: vec![false; script.gpus()], ..Driver::default() };
        let motd = script.motd.clone().unwrap_or_default().into_bytes();
        let (queue, writer) = (OutputQueue::default(), LineWriter::default());
        Self {
            scenario,
            node,
            now,
            started: now,
            driver,
            lookup_ns: None,
            queue,
            writer,
            motd,
            past,
            has_begun: false,
        }
    }

    /// Moves the clock.
    pub fn set_now(&mut self, now: ScenarioTime) {
        self.now = now;
    }

    /// Converts a deadline of the state machine to ms since the scenario's start.
    pub fn t_ms(&self, deadline: Duration) -> i64 {
        let (_, booted_ms) = self.scenario.boot(self.node, self.now.t_ms);
        booted_ms + i64::try_from(deadline.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX / 2)
    }

    /// Returns whether there is output to be taken.
    pub fn has_output(&self) -> bool {
        !self.motd.is_empty() || !self.queue.is_empty() || (self.has_begun && !self.past.is_empty())
    }

    /// Takes the next chunk of output; empty if there is none.
    pub fn take_output(&mut self) -> Vec<u8> {
        let mut chunk = std::mem::take(&mut self.motd);
        while chunk.len() < CHUNK_BYTES {
            let past = if self.has_begun { self.past.pop_front() } else { None };
            let Some(line) = past.or_else(|| self.queue.pop()) else { break };
            self.has_begun = true;
            let append = |bytes: &[u8]| {
                chunk.extend_from_slice(bytes);
                Ok(())
            };
            self.writer.write(&line, append).expect("a Vec takes every write");
        }
        chunk
    }

    fn fault_age_ms(&self, kind: FaultKind) -> Option<i64> {
        self.scenario.fault_age_ms(self.node, kind, self.now.t_ms)
    }

    fn next_outcome(&mut self) -> Option<Outcome> {
        let is_loaded = self.fault_age_ms(FaultKind::NoDriver).is_none();
        if self.driver.is_loaded.replace(is_loaded) != Some(is_loaded) {
            self.driver.request = None;
            return Some(Outcome::Report(self.opened(is_loaded)));
        }
        if let Some(mono_ns) = self.lookup_ns.take() {
            let list = processes::processes(&self.scenario, self.node, self.now);
            return Some(Outcome::Processes(ProcessList { mono_ns, ..list }));
        }
        if self.fault_age_ms(FaultKind::NvmlStuck).is_some() {
            return None;
        }
        if let Some((request, _)) = self.driver.request.take() {
            self.driver.is_health_due = self.driver.last_health_ms.is_none_or(|last_ms| {
                self.now.t_ms - last_ms >= DriverTimings::default().health_interval.as_millis() as i64
            });
            return Some(Outcome::Report(self.read(request)));
        }
        if std::mem::take(&mut self.driver.is_health_due) {
            self.driver.last_health_ms = Some(self.now.t_ms);
            let report = health::report(&self.scenario, self.node, self.now);
            return Some(Outcome::Report(Report::Health(report.gpus)));
        }
        None
    }

    /// The result of opening the driver.
    fn opened(&self, is_loaded: bool) -> Report {
        let hello = facts::hello(&self.scenario, self.node, self.now);
        let state = hello.sources.into_iter().next().expect("a simulated node has one source");
        match state.absent_reason() {
            Some(reason) if !is_loaded => Report::Absent(Absent::new(reason.clone())),
            _ => Report::Opened(Inventory {
                versions: state.versions().cloned().unwrap_or_default(),
                gpus: hello.gpus,
                topology: hello.topology,
            }),
        }
    }

    /// Answers a request for readings.
    fn read(&mut self, request: ReadRequest) -> Report {
        Report::Read {
            gpus: readings::gpus(&self.scenario, self.node, self.now),
            processes: request.processes.then(|| self.gpu_processes()),
            driver_events: self.driver_events(),
        }
    }

    /// Returns the driver's list of processes.
    fn gpu_processes(&self) -> GpuProcessList {
        let list = processes::processes(&self.scenario, self.node, self.now);
        let known = |process: ProcessSample| GpuProcess {
            gpu: process.facts.gpu,
            pid: process.facts.pid,
            now: process.now,
            kind: process.facts.kind,
        };
        GpuProcessList {
            mono_ns: self.now().mono_ns,
            gpus: facts::uuids(&self.scenario, self.node).into(),
            processes: list.processes.into_iter().map(known).collect(),
            ..GpuProcessList::default()
        }
    }

    /// Returns Xids since the last call.
    fn driver_events(&mut self) -> Vec<DriverEvent> {
        let (scenario, node, t_ms) = (&self.scenario, self.node, self.now.t_ms);
        let new_ms = t_ms - std::mem::replace(&mut self.driver.last_events_ms, t_ms);
        let mut events: Vec<_> = xids(scenario, node, t_ms, new_ms).map(|(_, event)| event).collect();
        let script = &scenario.nodes[node];
        for (gpu, was_lost) in self.driver.lost.iter_mut().enumerate() {
            let is_lost = readings::is_lost(script, gpu, t_ms);
            if is_lost && !*was_lost {
                events.push(xid_event(scenario, node, gpu, XID_OFF_THE_BUS));
            }
            *was_lost = is_lost;
        }
        events
    }
}

impl Environment for SimulatedNode {
    fn now(&self) -> Moment {
        let mono_ns = self.scenario.mono_ns(self.node, self.now);
        let wall_ms = self.scenario.node_wall_ms(self.node, self.now);
        Moment { elapsed: Duration::from_nanos(mono_ns), mono_ns, wall_ns: wall_ms * 1_000_000 }
    }

    fn check_driver(&mut self, source: usize, limit: Duration) -> DriverStatus {
        match self.driver_call_duration(source) {
            Some(duration) if duration >= limit => DriverStatus::Hung { duration },
            _ => DriverStatus::Responsive,
        }
    }

    fn request_readings(&mut self, _: usize, request: ReadRequest) -> bool {
        self.driver.request.get_or_insert((request, self.now.t_ms)).0 == request
    }

    fn driver_call_duration(&self, _: usize) -> Option<Duration> {
        let (_, since_ms) = self.driver.request?;
        Some(Duration::from_millis(u64::try_from(self.now.t_ms - since_ms).unwrap_or(0)))
    }

    fn set_inventory(&mut self, _: usize, _: Option<&Inventory>) {}

    fn read_host(&mut self) -> HostReadings {
        readings::host(&self.scenario, self.node, self.now)
    }

    fn read_usage(&self) -> Option<ProbeUsage> {
        let runs_ms = u64::try_from(self.now.t_ms - self.started.t_ms).unwrap_or(0);
        Some(ProbeUsage { cpu_ms: START_CPU_MS + runs_ms * CPU_PER_MILLE / 1_000, rss_bytes: RSS_BYTES })
    }

    fn look_up_processes(&mut self, processes: GpuProcessList) {
        self.lookup_ns = Some(processes.mono_ns);
    }

    fn lookup_duration(&self) -> Option<Duration> {
        None
    }

    fn respond(&mut self, number: u32, request: ProbeRequest) -> Option<ProbeResponse> {
        let response = responses::respond(&self.scenario, self.node, self.now, &request);
        Some(ProbeResponse { number, response })
    }

    /// Simulated jobs write none.
    fn read_notes(&mut self, _: &[JobId]) {}

    fn print(&mut self, line: &ProbeLine) {
        let mono_ns = self.now().mono_ns;
        self.queue.print(line, mono_ns);
    }

    fn offer_sample(&mut self, line: Vec<u8>) -> bool {
        self.queue.offer_sample(line)
    }

    fn offer_readings(&mut self, line: Vec<u8>) -> bool {
        self.queue.offer_readings(line)
    }

    fn offer_heartbeat(&mut self, heartbeat: &ProbeLine) -> bool {
        self.queue.offer(heartbeat)
    }

    fn offer_notes(&mut self, notes: &ProbeLine) -> bool {
        self.queue.offer(notes)
    }
}

/// Lines of the Xids of the last ten minutes, which the driver's log still has.
fn past_events(scenario: &Scenario, node: usize, now: ScenarioTime) -> Vec<Vec<u8>> {
    let lines = xids(scenario, node, now.t_ms, HISTORY_MS).map(|(ago_ms, event)| {
        let DriverEvent { gpu, xid, text } = event;
        let mono_ns = scenario.mono_ns(node, now.plus(-ago_ms));
        let mut line = Vec::new();
        encode(&ProbeLine::Event(Event { mono_ns, gpu, xid, text }), &mut line);
        line
    });
    lines.collect()
}

/// Xids of the last `new_ms` ms, each with its age.
fn xids(
    scenario: &Scenario,
    node: usize,
    t_ms: i64,
    new_ms: i64,
) -> impl Iterator<Item = (i64, DriverEvent)> + '_ {
    scenario.nodes[node].faults.iter().filter_map(move |fault| {
        let ago_ms = fault.window.begun_for_ms(t_ms);
        let event = xid_event(scenario, node, fault.gpu as usize, fault.xid?);
        (ago_ms < new_ms).then_some((ago_ms, event))
    })
}

fn xid_event(scenario: &Scenario, node: usize, gpu: usize, xid: u64) -> DriverEvent {
    DriverEvent::of_xid(Some(xid), Some((facts::gpu_uuid(scenario, node, gpu), gpu as u32)))
}
