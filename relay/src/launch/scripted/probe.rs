//! A scripted probe: speaks wire one like a real one, samples on schedule, handles control lines,
//! and ends with its pipe.

use super::clock::ScenarioClock;
use super::file::FaultKind;
use super::sample_clock::{HISTORY_MS, SampleClock, SampleTick};
use super::scenario::{Scenario, ScenarioTime};
use super::{answers, facts, health, processes, readings, sample_clocks::SampleClocks};
use crate::launch::StreamEnd;
use bytes::Bytes;
use nodeglass_protocol::Text;
use nodeglass_protocol::probe::{
    Bye, Control, Event, HealthReport, Heartbeat, MAGIC, MAX_LINE, PING_TIMEOUT_MS, ProbeAnswer, ProbeLine,
    ProcessFacts, ProcessListReadings, heartbeat_ms,
};
use std::ops::ControlFlow;
use std::sync::Arc;
use tokio::sync::mpsc;

/// Maximum time between checks for node events, in ms.
const LOOK_MS: i64 = 500;
/// Approximate size of output chunks.
const CHUNK_BYTES: usize = 64 * 1024;
/// Interval of process lists without change, in ms.
const PROCESSES_MS: i64 = 10_000;
/// Interval of process readings, in ms.
const VITALS_MS: i64 = 2_000;
/// Interval of health checks, in ms.
const HEALTH_MS: i64 = 5_000;
/// Interval of health lines without change, in ms.
const HEALTH_REPEAT_MS: i64 = 60_000;
/// Xid of a GPU that fell off the bus.
const XID_OFF_THE_BUS: u64 = 79;

/// The probe on one node of a scenario, for the duration of one link.
#[derive(Debug)]
pub(super) struct ScriptedProbe {
    scenario: Arc<Scenario>,
    node: usize,
    clock: ScenarioClock,
    sample_clocks: Arc<SampleClocks>,
    out: mpsc::Sender<Bytes>,
    lines: Vec<u8>,
    job_control: Vec<u8>,
    greeted: bool,
    driver: bool,
    lost: Vec<bool>,
    last_tick_ms: u64,
    last_look_ms: i64,
    last_line_ms: i64,
    /// Maximum time between two lines.
    heartbeat_ms: i64,
    last_order_ms: i64,
    last_processes: Option<(i64, Vec<ProcessFacts>)>,
    last_vitals_ms: i64,
    /// Identifies the last process list in lines with readings.
    list_ns: u64,
    last_health: Option<(i64, HealthReport)>,
    last_health_look_ms: i64,
    last_xids_ms: i64,
}

/// Reason to stop.
type Flow = ControlFlow<StreamEnd>;

impl ScriptedProbe {
    /// Creates a newly started probe.
    pub fn new(
        scenario: Arc<Scenario>,
        node: usize,
        clock: ScenarioClock,
        sample_clocks: Arc<SampleClocks>,
        out: mpsc::Sender<Bytes>,
    ) -> Self {
        let now = clock.now();
        Self {
            lost: vec![false; scenario.nodes[node].gpus()],
            scenario,
            node,
            clock,
            sample_clocks,
            out,
            lines: Vec::new(),
            job_control: Vec::new(),
            greeted: false,
            driver: true,
            last_tick_ms: now.wall_ms(),
            last_look_ms: now.t_ms,
            last_line_ms: now.t_ms,
            heartbeat_ms: heartbeat_ms(0) as i64,
            last_order_ms: now.t_ms,
            last_processes: None,
            last_vitals_ms: now.t_ms,
            list_ns: 0,
            last_health: None,
            last_health_look_ms: i64::MIN / 2,
            last_xids_ms: now.t_ms - HISTORY_MS as i64,
        }
    }

    /// Runs until it is stopped, its pipe is closed, or a fault of the node ends it.
    pub async fn run(mut self, mut stdin: mpsc::Receiver<Bytes>) -> StreamEnd {
        let mut flow = self.look().await;
        loop {
            if let ControlFlow::Break(end) = flow {
                return end;
            }
            let wake = self.clock.instant(self.next_look_ms());
            flow = tokio::select! {
                // The reader is gone.
                () = self.out.closed() => ControlFlow::Break(exited(0)),
                // A control line, or the end of the link.
                chunk = stdin.recv() => match chunk {
                    Some(chunk) => self.obey(&chunk).await,
                    None => ControlFlow::Break(exited(0)),
                },
                // The next sample is due, or an event may have occurred.
                () = tokio::time::sleep_until(wake) => self.look().await,
            };
        }
    }

    fn next_look_ms(&self) -> i64 {
        let tick = self.sample_clock(self.clock.now()).after(self.last_tick_ms);
        self.clock.t_ms(tick.wall_ms).min(self.last_look_ms + LOOK_MS)
    }

    fn sample_clock(&self, now: ScenarioTime) -> SampleClock {
        self.sample_clocks.of(&self.scenario, self.node, now)
    }

    fn age_ms(&self, kind: FaultKind, t_ms: i64) -> Option<i64> {
        self.scenario.fault_age_ms(self.node, kind, t_ms)
    }

    /// Performs what is due.
    async fn look(&mut self) -> Flow {
        let now = self.clock.now();
        self.last_look_ms = now.t_ms;
        let broken =
            |why: &str| ControlFlow::Break(StreamEnd { broken: Some(why.into()), ..StreamEnd::default() });
        if self.age_ms(FaultKind::Dies, now.t_ms).is_some() {
            return broken("the connection was reset by the node");
        }
        if self.age_ms(FaultKind::Unreachable, now.t_ms).is_some() {
            return broken("the network to the node is gone");
        }
        if now.t_ms - self.last_order_ms >= PING_TIMEOUT_MS as i64 {
            return self.bye("no word from the relay for 30 s").await;
        }
        if self.age_ms(FaultKind::Silent, now.t_ms).is_some() {
            self.last_tick_ms = now.wall_ms();
            return ControlFlow::Continue(());
        }
        self.print_changes(now).await?;
        match self.age_ms(FaultKind::NvmlStuck, now.t_ms) {
            Some(stuck_ms) => {
                self.last_tick_ms = now.wall_ms();
                self.heartbeat(now, Some(stuck_ms as u64));
            }
            None => {
                self.live_samples(now);
                self.heartbeat(now, None);
            }
        }
        self.flush().await
    }

    /// Prints the hello and the history once, then only changes of the hello.
    async fn print_changes(&mut self, now: ScenarioTime) -> Flow {
        let driver = self.age_ms(FaultKind::NoDriver, now.t_ms).is_none();
        if !self.greeted {
            let motd = self.scenario.nodes[self.node].motd.clone().unwrap_or_default();
            self.lines.extend_from_slice(motd.as_bytes());
            self.lines.extend_from_slice(MAGIC.as_bytes());
        }
        if !self.greeted || driver != self.driver {
            let hello = facts::hello(&self.scenario, self.node, now);
            self.line(&ProbeLine::Hello(Box::new(hello)));
            self.driver = driver;
        }
        if !self.greeted {
            self.greeted = true;
            self.last_tick_ms = now.wall_ms();
            let sample_clock = self.sample_clock(now);
            let past = now.wall_ms().saturating_sub(HISTORY_MS);
            self.replay(sample_clock.between(past, now.wall_ms())).await?;
        }
        self.print_lost_gpus(now);
        self.print_xid_events(now);
        ControlFlow::Continue(())
    }

    /// Prints each Xid once, including those of the last ten minutes at first, as the driver's log
    /// does.
    fn print_xid_events(&mut self, now: ScenarioTime) {
        let new_ms = now.t_ms - std::mem::replace(&mut self.last_xids_ms, now.t_ms);
        let scenario = self.scenario.clone();
        for fault in &scenario.nodes[self.node].faults {
            let (ago_ms, Some(xid)) = (fault.window.begun_for_ms(now.t_ms), fault.xid) else { continue };
            if ago_ms >= new_ms {
                continue;
            }
            let gpu = fault.gpu as usize;
            let text = Text::new(format!("Xid {xid}: {}", xid_words(xid)));
            let (gpu, mono_ns) =
                (Some(facts::gpu_uuid(&scenario, self.node, gpu)), self.mono_ns(now.plus(-ago_ms)));
            self.line(&ProbeLine::Event(Event { mono_ns, gpu, xid: Some(xid), text }));
        }
    }

    fn print_lost_gpus(&mut self, now: ScenarioTime) {
        let script = &self.scenario.nodes[self.node];
        let lost: Vec<bool> =
            (0..self.lost.len()).map(|gpu| readings::is_lost(script, gpu, now.t_ms)).collect();
        for (gpu, (is, was)) in lost.iter().zip(std::mem::replace(&mut self.lost, lost.clone())).enumerate() {
            let (xid, text) = match (*is, was) {
                (true, false) => (Some(XID_OFF_THE_BUS), format!("Xid 79: GPU {gpu} has fallen off the bus")),
                (false, true) => (None, format!("GPU {gpu} is back")),
                _ => continue,
            };
            let gpu = Some(facts::gpu_uuid(&self.scenario, self.node, gpu));
            let event = Event { mono_ns: self.mono_ns(now), gpu, xid, text: text.into() };
            self.line(&ProbeLine::Event(event));
        }
    }

    fn live_samples(&mut self, now: ScenarioTime) {
        let due: Vec<SampleTick> = self.sample_clock(now).between(self.last_tick_ms, now.wall_ms()).collect();
        for tick in due {
            self.last_tick_ms = tick.wall_ms;
            self.sample(tick, false);
            self.processes(self.clock.scenario_time(tick.wall_ms));
            self.health(self.clock.scenario_time(tick.wall_ms));
        }
    }

    fn sample(&mut self, tick: SampleTick, replay: bool) {
        let mut sample = readings::sample(&self.scenario, self.node, self.clock.scenario_time(tick.wall_ms));
        sample.seq = tick.seq;
        sample.interval_ms = tick.interval_ms as u32;
        sample.replay = replay;
        self.line(&ProbeLine::Sample(Box::new(sample)));
    }

    /// Prints the process list when it changed or is due, otherwise the readings.
    fn processes(&mut self, at: ScenarioTime) {
        let mut list = processes::processes(&self.scenario, self.node, at);
        let facts: Vec<ProcessFacts> = list.processes.iter().map(|process| process.facts.clone()).collect();
        let repeats = self
            .last_processes
            .as_ref()
            .is_some_and(|(sent_ms, sent)| *sent == facts && at.t_ms - sent_ms < PROCESSES_MS);
        if !repeats {
            self.last_vitals_ms = at.t_ms;
            self.last_processes = Some((at.t_ms, facts));
            self.list_ns = self.mono_ns(at);
            list.mono_ns = self.list_ns;
            self.line(&ProbeLine::Processes(list));
        } else if at.t_ms - self.last_vitals_ms >= VITALS_MS && !list.processes.is_empty() {
            self.last_vitals_ms = at.t_ms;
            let now = list.processes.into_iter().map(|process| process.now).collect();
            self.line(&ProbeLine::ProcessReadings(ProcessListReadings {
                list_ns: self.list_ns,
                sparse: false,
                now,
            }));
        }
    }

    /// Prints health when it changed or is due.
    fn health(&mut self, at: ScenarioTime) {
        if at.t_ms - self.last_health_look_ms < HEALTH_MS {
            return;
        }
        self.last_health_look_ms = at.t_ms;
        let report = health::report(&self.scenario, self.node, at);
        let repeats = self
            .last_health
            .as_ref()
            .is_some_and(|(sent_ms, sent)| *sent == report && at.t_ms - sent_ms < HEALTH_REPEAT_MS);
        if !repeats {
            self.line(&ProbeLine::Health(report.clone()));
            self.last_health = Some((at.t_ms, report));
        }
    }

    fn heartbeat(&mut self, now: ScenarioTime, nvml_stuck_ms: Option<u64>) {
        if now.t_ms - self.last_line_ms >= self.heartbeat_ms - LOOK_MS {
            let mono_ns = self.mono_ns(now);
            self.line(&ProbeLine::Heartbeat(Heartbeat { mono_ns, nvml_stuck_ms }));
        }
    }

    fn mono_ns(&self, now: ScenarioTime) -> u64 {
        let (_, booted_ms) = self.scenario.boot(self.node, now.t_ms);
        u64::try_from(now.t_ms - booted_ms).unwrap_or(0) * 1_000_000
    }

    /// Sends past samples, except those of times at which the node was down.
    async fn replay(&mut self, ticks: impl Iterator<Item = SampleTick>) -> Flow {
        for tick in ticks {
            let t_ms = self.clock.t_ms(tick.wall_ms);
            let prevented = [FaultKind::Dies, FaultKind::NvmlStuck, FaultKind::NoDriver];
            if prevented.iter().all(|kind| self.age_ms(*kind, t_ms).is_none()) {
                self.sample(tick, true);
            }
            if self.lines.len() >= CHUNK_BYTES {
                self.flush().await?;
                // Computing ten minutes takes a while, so other links of this thread get their
                // turn.
                tokio::task::yield_now().await;
            }
        }
        self.flush().await
    }

    /// Reads control lines from chunks of stdin; invalid lines are skipped as by the real probe.
    async fn obey(&mut self, chunk: &[u8]) -> Flow {
        self.last_order_ms = self.clock.now().t_ms;
        self.job_control.extend_from_slice(chunk);
        while let Some(end) = self.job_control.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.job_control.drain(..=end).collect();
            if let Ok(order) = serde_json::from_slice(&line) {
                self.follow(order).await?;
            }
        }
        if self.job_control.len() > MAX_LINE {
            self.job_control.clear();
        }
        ControlFlow::Continue(())
    }

    async fn follow(&mut self, order: Control) -> Flow {
        let now = self.clock.now();
        match order {
            Control::Ping => ControlFlow::Continue(()),
            // Scripted output has no queue for this line.
            Control::Interval { ms, phase_ms: _ } => {
                self.sample_clocks.set_interval(&self.scenario, self.node, now, u64::from(ms));
                self.heartbeat_ms = heartbeat_ms(ms) as i64;
                ControlFlow::Continue(())
            }
            Control::Backfill { stream, after_seq } => self.backfill(now, stream, after_seq).await,
            Control::Ask { number, ask } => {
                let answer = answers::answer(&self.scenario, self.node, now, &ask);
                self.line(&ProbeLine::Answer(Box::new(ProbeAnswer { number, answer })));
                self.flush().await
            }
            Control::Stop => self.bye("the relay said stop").await,
        }
    }

    /// Sequence numbers of another boot are unknown here, so nothing is sent for them.
    async fn backfill(&mut self, now: ScenarioTime, stream: u64, after_seq: u64) -> Flow {
        if facts::hello(&self.scenario, self.node, now).stream != stream || !self.greeted {
            return ControlFlow::Continue(());
        }
        let sample_clock = self.sample_clock(now);
        let past = now.wall_ms().saturating_sub(HISTORY_MS);
        self.replay(sample_clock.between(past, self.last_tick_ms).filter(|tick| tick.seq > after_seq)).await
    }

    async fn bye(&mut self, why: &str) -> Flow {
        self.line(&ProbeLine::Bye(Bye { why: why.into() }));
        self.flush().await?;
        ControlFlow::Break(exited(0))
    }

    fn line(&mut self, line: &ProbeLine) {
        let length = self.lines.len();
        match serde_json::to_writer(&mut self.lines, line) {
            Ok(()) => self.lines.push(b'\n'),
            Err(_) => self.lines.truncate(length),
        }
        self.last_line_ms = self.last_look_ms;
    }

    async fn flush(&mut self) -> Flow {
        if self.lines.is_empty() {
            return ControlFlow::Continue(());
        }
        match self.out.send(std::mem::take(&mut self.lines).into()).await {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(exited(0)),
        }
    }
}

/// Describes an Xid, after the vendor's list.
fn xid_words(xid: u64) -> &'static str {
    match xid {
        13 => "a program made the graphics engine fail",
        31 => "a program touched memory that is not its own",
        43 => "the GPU stopped working for a program",
        48 => "an ECC error that could not be corrected",
        63 => "a row of memory is to be remapped at the next reset",
        74 => "an NVLink error",
        94 => "an ECC error that was contained to one program",
        _ => "see the vendor's list of Xids",
    }
}

fn exited(status: i32) -> StreamEnd {
    StreamEnd { exit: Some(status), ..StreamEnd::default() }
}
