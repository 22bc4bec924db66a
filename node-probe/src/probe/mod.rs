//! The probe's event loop: samples on a schedule, answers the relay, and exits when the relay is
//! gone.

mod driver_watch;
mod printing;

use crate::{
    clock, control,
    driver_thread::{DriverThread, DriverTimings, SourceFactory},
    hello,
    host::{Host, HostReadings},
    loop_event::LoopEvent,
    output::Output,
    panics,
    process::Inspector,
    requests::RequestHandler,
    ring::Ring,
    sampler::{Sampler, Stamp},
    source::Report,
    takeover::{self, HandoverState, RelayId},
};
use driver_watch::DriverWatch;
use nodeglass_protocol::Text;
use nodeglass_protocol::probe::{
    Bye, Control, Hello, NvmlState, PING_TIMEOUT_MS, ProbeLine, ProcessList, heartbeat_ms,
};
use std::{
    io,
    os::unix::net::UnixStream,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    time::{Duration, Instant},
};

/// Initial sampling interval in ms.
const FIRST_INTERVAL_MS: u32 = 1_000;
/// Maximum time that the first line waits for the source.
const HELLO_TIMEOUT: Duration = Duration::from_secs(2);
/// Time that a probe without a relay waits for a successor: after a repaired link, the old
/// connection ends before the new one starts.
const SUCCESSOR_TIMEOUT: Duration = Duration::from_secs(12);
/// Time limit for writing the last lines.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(500);
/// Reason to exit although the probe could continue without GPUs: the relay starts another one.
const REPLACED: &str = "the NVIDIA driver was replaced, and only a new process can load its library";
/// Maximum number of invalid control lines reported on stderr.
const MAX_INVALID_LINES_LOGGED: u32 = 20;

/// Options of a probe.
#[derive(Debug, Default)]
pub struct Settings {
    /// The relay whose older probe is replaced.
    pub relay: Option<RelayId>,
    /// Exits after this long without a control line; by default [`PING_TIMEOUT_MS`].
    pub control_timeout: Option<Duration>,
    /// Time to wait for a successor once the pipe is closed; by default 12 s. Zero without a relay.
    pub successor: Option<Duration>,
    /// Timing of driver calls.
    pub timings: DriverTimings,
}

/// Runs until the relay, a closed pipe or a signal ends it.
///
/// # Errors
/// If threads cannot be started, stdout is closed, or a thread panicked.
pub fn run(source: SourceFactory, settings: &Settings) -> io::Result<()> {
    let (events, inbox) = channel();
    panics::report_to(events.clone());
    crate::loop_event::on_signals(events.clone())?;
    control::listen(events.clone())?;
    let state = settings.relay.as_ref().and_then(takeover::request_handover);
    let mut probe = Probe::new(source, settings, state, inbox, events)?;
    // A panic on this thread is reported too; only the last line is printed after it.
    let end = catch_unwind(AssertUnwindSafe(|| probe.stream()));
    let end = end.unwrap_or_else(|_| probe.failure());
    match probe.end(end) {
        None => Ok(()),
        Some(failure) => Err(io::Error::other(failure)),
    }
}

/// Returns a new stream id.
fn new_stream() -> u64 {
    // Clock and pid suffice if there is no random number: the id must only differ.
    getrandom::u64().unwrap_or_else(|_| clock::mono_ns() ^ (u64::from(std::process::id()) << 40))
}

/// Reason to exit.
enum End {
    /// Regular end, which is reported in the last line.
    Stopped(&'static str),
    /// A newer probe takes over.
    Successor(UnixStream),
    /// Internal error; the relay starts another probe.
    Failed(String),
}

/// State of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SourceState {
    /// No report yet, and no line printed.
    Opening,
    /// Available.
    Ready,
    /// Unavailable; only the host is sampled.
    Absent,
}

struct Probe {
    inbox: Receiver<LoopEvent>,
    driver_thread: DriverThread,
    inspector: Inspector,
    output: Output,
    sampler: Sampler,
    host: Host,
    request_handler: RequestHandler,
    hello: Hello,
    source_state: SourceState,
    /// The sample that waits for readings.
    pending: Option<(Stamp, HostReadings)>,
    /// Responsiveness of the driver.
    driver_watch: DriverWatch,
    interval_ms: u32,
    phase_ms: u32,
    control_timeout: Duration,
    started: Instant,
    next_sample: Instant,
    last_line: Instant,
    last_control: Instant,
    last_processes: Option<Instant>,
    /// Process lists older than this, in ns of `CLOCK_BOOTTIME`, are obsolete.
    processes_ns: u64,
    /// Time to wait for a successor without a pipe.
    successor: Duration,
    /// Deadline for a successor, and the reason to exit then, once the pipe is closed.
    orphaned_until: Option<(Instant, &'static str)>,
    /// Replay in progress: last number sent, last number to send, and earliest time of the next
    /// batch.
    replay: Option<(u64, u64, Instant)>,
    invalid_lines: u32,
}

impl Probe {
    fn new(
        source: SourceFactory,
        settings: &Settings,
        state: Option<HandoverState>,
        inbox: Receiver<LoopEvent>,
        events: Sender<LoopEvent>,
    ) -> io::Result<Self> {
        if let Some(relay) = &settings.relay {
            takeover::listen(relay, events.clone())?;
        }
        let HandoverState { stream, next_seq, ring } = state.unwrap_or_else(|| HandoverState {
            stream: new_stream(),
            next_seq: 1,
            ring: Ring::default(),
        });
        let now = Instant::now();
        Ok(Self {
            inbox,
            output: Output::start(events.clone())?,
            request_handler: RequestHandler::new(events.clone()),
            inspector: Inspector::start(events.clone())?,
            driver_thread: DriverThread::start(source, settings.timings, events)?,
            sampler: Sampler::new(stream, next_seq, ring),
            host: Host::new(),
            hello: hello::of_this_node(stream, "the NVIDIA driver has not answered yet".into()),
            source_state: SourceState::Opening,
            pending: None,
            driver_watch: DriverWatch::default(),
            interval_ms: FIRST_INTERVAL_MS,
            phase_ms: 0,
            control_timeout: settings.control_timeout.unwrap_or(Duration::from_millis(PING_TIMEOUT_MS)),
            started: now,
            next_sample: Instant::now() + clock::until_next(clock::wall_ns(), FIRST_INTERVAL_MS, 0),
            last_line: now,
            last_control: now,
            last_processes: None,
            processes_ns: 0,
            successor: settings
                .relay
                .as_ref()
                .map_or(Duration::ZERO, |_| settings.successor.unwrap_or(SUCCESSOR_TIMEOUT)),
            orphaned_until: None,
            replay: None,
            invalid_lines: 0,
        })
    }

    /// Runs due tasks, then waits for the next deadline or event.
    fn stream(&mut self) -> End {
        loop {
            let now = Instant::now();
            if now >= self.last_control + self.control_timeout {
                return End::Stopped("no word from the relay");
            }
            if let Some((_, why)) = self.orphaned_until.filter(|(until, _)| now >= *until) {
                return End::Stopped(why);
            }
            self.run_due_tasks(now);
            let wait = self.next_deadline().saturating_duration_since(Instant::now());
            let ended = match self.inbox.recv_timeout(wait) {
                Ok(event) => self.handle_event(event),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => Some(End::Stopped("every thread ended")),
            };
            if let Some(end) = ended {
                return end;
            }
        }
    }

    fn run_due_tasks(&mut self, now: Instant) {
        if self.source_state == SourceState::Opening && now >= self.started + HELLO_TIMEOUT {
            self.absent("the NVIDIA driver does not answer".into());
        }
        if now >= self.next_sample {
            self.start_sample(now);
            self.next_sample =
                Instant::now() + clock::until_next(clock::wall_ns(), self.interval_ms, self.phase_ms);
        }
        if self.replay.is_some_and(|(.., not_before)| now >= not_before) {
            self.replay_batch(now);
        }
        if self.source_state != SourceState::Opening && now >= self.next_heartbeat() {
            self.print_heartbeat();
        }
    }

    fn next_deadline(&self) -> Instant {
        let mut next = self.next_sample.min(self.last_control + self.control_timeout);
        match self.source_state {
            SourceState::Opening => next = next.min(self.started + HELLO_TIMEOUT),
            SourceState::Ready | SourceState::Absent => next = next.min(self.next_heartbeat()),
        }
        let next = self.orphaned_until.map_or(next, |(until, _)| next.min(until));
        self.replay.map_or(next, |(.., not_before)| next.min(not_before))
    }

    /// Time of the next heartbeat if nothing else is printed: earlier than [`heartbeat_ms`], to
    /// allow for latency.
    fn next_heartbeat(&self) -> Instant {
        self.last_line + Duration::from_millis(heartbeat_ms(self.interval_ms) * 9 / 10)
    }

    fn handle_event(&mut self, event: LoopEvent) -> Option<End> {
        match event {
            LoopEvent::Control(control) => {
                self.last_control = Instant::now();
                return self.handle_control(control);
            }
            LoopEvent::InvalidControl(why) => self.ignore_invalid_line(&why),
            // From any thread, because it applies to the whole process.
            LoopEvent::Report(_, Report::Stuck) => return Some(End::Stopped(REPLACED)),
            LoopEvent::Report(number, report) if self.driver_thread.is_current(number) => {
                self.handle_report(report)
            }
            LoopEvent::Report(_, Report::Read { driver_events, .. }) => {
                self.print_late_driver_events(driver_events)
            }
            // Other reports of abandoned threads are obsolete.
            LoopEvent::Report(..) => {}
            LoopEvent::ThreadFailed(why) => return Some(End::Failed(why)),
            LoopEvent::Processes(list) if list.mono_ns > self.processes_ns => self.print_processes(list),
            LoopEvent::Processes(_) => {}
            LoopEvent::Answer(answer) => self.print_answer(*answer),
            LoopEvent::InputEnded => self.orphan("the relay closed the pipe"),
            LoopEvent::OutputClosed => self.orphan("nobody reads any more"),
            LoopEvent::Signal => return Some(End::Stopped("ended by a signal")),
            LoopEvent::Successor(socket) => return Some(End::Successor(socket)),
        }
        None
    }

    /// Records that the reader is gone. The ring is kept until [`SUCCESSOR_TIMEOUT`].
    fn orphan(&mut self, why: &'static str) {
        let until = Instant::now() + self.successor;
        self.orphaned_until.get_or_insert((until, why));
    }

    fn handle_control(&mut self, control: Control) -> Option<End> {
        match control {
            Control::Ping => {}
            Control::Stop => return Some(End::Stopped("the relay said so")),
            Control::Interval { ms, phase_ms } => {
                self.phase_ms = phase_ms;
                self.interval_ms = ms.clamp(*control::INTERVAL_MS.start(), *control::INTERVAL_MS.end());
                self.next_sample =
                    Instant::now() + clock::until_next(clock::wall_ns(), self.interval_ms, self.phase_ms);
                // The relay may have set it again because it could not decode the last sample.
                self.sampler.force_full_sample();
            }
            // Another stream is the responsibility of the probe that took it over.
            Control::Backfill { stream, after_seq } if stream == self.sampler.stream() => {
                let newest = self.sampler.next_seq().saturating_sub(1);
                self.replay = Some((self.sampler.ring().replay_start(after_seq), newest, Instant::now()));
            }
            Control::Backfill { .. } => {}
            Control::Ask { number, ask } => {
                if let Some(answer) = self.request_handler.handle(number, ask) {
                    self.print_answer(answer);
                }
            }
        }
        None
    }

    fn ignore_invalid_line(&mut self, why: &str) {
        self.invalid_lines += 1;
        if self.invalid_lines <= MAX_INVALID_LINES_LOGGED {
            eprintln!("node-probe: ignored a control line: {}", Text::new(why));
        }
    }

    fn handle_report(&mut self, report: Report) {
        match report {
            Report::Opened(inventory) => {
                self.driver_thread.set_inventory(Some(&inventory));
                self.sampler.set_gpus(inventory.gpus.iter().map(|gpu| gpu.uuid.clone()).collect());
                self.source_state = SourceState::Ready;
                (self.hello.nvml, self.hello.gpus) = (inventory.nvml, inventory.gpus);
                self.hello.topology = inventory.topology;
                self.print_hello();
                // Sample immediately, so that the page is not empty until the next aligned time.
                self.next_sample = Instant::now();
            }
            Report::Absent(absent) => self.absent(absent.0),
            // Handled by the caller.
            Report::Stuck => {}
            Report::Read { gpus, processes, driver_events } => {
                self.finish_sample(gpus, processes, driver_events)
            }
            Report::Health(gpus) => self.print_health(gpus),
        }
    }

    /// Reports that there is no source, if that is new.
    fn absent(&mut self, why: Text) {
        let nvml = NvmlState::Absent { why };
        let changed = self.source_state != SourceState::Absent || self.hello.nvml != nvml;
        self.source_state = SourceState::Absent;
        self.pending = None;
        self.driver_watch = DriverWatch::default();
        self.driver_thread.set_inventory(None);
        if changed {
            self.sampler.set_gpus(Vec::new());
            (self.hello.nvml, self.hello.gpus) = (nvml, Vec::new());
            self.hello.topology = Vec::new();
            self.print_hello();
            self.print_processes(ProcessList { mono_ns: clock::mono_ns(), ..ProcessList::default() });
        }
    }

    /// Returns the message of the thread that failed.
    fn failure(&self) -> End {
        let said = self.inbox.try_iter().find_map(|event| match event {
            LoopEvent::ThreadFailed(why) => Some(why),
            _ => None,
        });
        End::Failed(said.unwrap_or_else(|| "it panicked".into()))
    }

    /// Prints the last line, and returns the message of a failure.
    fn end(self, end: End) -> Option<String> {
        let mut failure = None;
        let why = match end {
            End::Stopped(why) => why.into(),
            End::Failed(why) => Text::new(failure.insert(format!("internal error: {why}"))),
            End::Successor(socket) => {
                let Self { sampler, .. } = &self;
                if let Err(error) =
                    takeover::hand_over(socket, sampler.stream(), sampler.next_seq(), sampler.ring())
                {
                    eprintln!("node-probe: failed to hand over to a newer probe: {error}");
                }
                "a newer probe took over".into()
            }
        };
        self.output.print(&ProbeLine::Bye(Bye { why }));
        self.output.close(CLOSE_TIMEOUT);
        failure
    }
}
