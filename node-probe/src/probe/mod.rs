//! The probe's one loop: it samples when all nodes do, answers the relay, and ends when nobody listens.

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

/// Interval until the relay says another one, in ms.
const FIRST_INTERVAL_MS: u32 = 1_000;
/// How long the first line waits for the source.
const HELLO_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a probe that lost its relay waits for a newer one to go on: a cut cable that is mended
/// first ends the old connection, and only then makes the new one.
const SUCCESSOR_TIMEOUT: Duration = Duration::from_secs(12);
/// How long the last words may take.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(500);
/// Why a probe ends that could go on for ever without seeing a GPU: the relay starts another one.
const REPLACED: &str = "the NVIDIA driver was replaced, and only a new process can load its library";
/// Garbage on stdin is told this often on stderr, then no more.
const MAX_INVALID_LINES_LOGGED: u32 = 20;

/// How a probe is started.
#[derive(Debug, Default)]
pub struct Settings {
    /// The relay whose older probe is replaced.
    pub relay: Option<RelayId>,
    /// Ends after this long without a control line; by default [`PING_TIMEOUT_MS`].
    pub control_timeout: Option<Duration>,
    /// How long it waits for a newer probe once its pipe is closed; by default 12 s. Without a relay, not at all.
    pub successor: Option<Duration>,
    /// Patience with the source.
    pub timings: DriverTimings,
}

/// Streams until the relay, the pipe or a signal ends it.
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
    // A panic on this thread is reported as well: nothing but the last line is printed after it.
    let end = catch_unwind(AssertUnwindSafe(|| probe.stream()));
    let end = end.unwrap_or_else(|_| probe.failure());
    match probe.end(end) {
        None => Ok(()),
        Some(failure) => Err(io::Error::other(failure)),
    }
}

/// The name of a new row of samples.
fn new_stream() -> u64 {
    // Without random numbers the clock and the pid will do: the name must only differ.
    getrandom::u64().unwrap_or_else(|_| clock::mono_ns() ^ (u64::from(std::process::id()) << 40))
}

/// Why the probe ends.
enum End {
    /// Says so to whoever listens.
    Stopped(&'static str),
    /// A newer probe goes on.
    Successor(UnixStream),
    /// The probe itself failed; the relay starts another one.
    Failed(String),
}

/// What is known of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SourceState {
    /// It has not said anything yet, and neither has the probe.
    Opening,
    /// It answers requests.
    Ready,
    /// There is none; the host is sampled alone.
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
    /// The sample that waits for its readings.
    pending: Option<(Stamp, HostReadings)>,
    /// Whether the source answers, and how fast.
    driver_watch: DriverWatch,
    interval_ms: u32,
    phase_ms: u32,
    control_timeout: Duration,
    started: Instant,
    next_sample: Instant,
    last_line: Instant,
    last_control: Instant,
    last_processes: Option<Instant>,
    /// Process lists of before this, in ns of `CLOCK_BOOTTIME`, are void: the source went away, or newer ones were printed.
    processes_ns: u64,
    /// How long it waits for an heir without a pipe.
    successor: Duration,
    /// When it ends without an heir, and why, once its pipe is closed.
    orphaned_until: Option<(Instant, &'static str)>,
    /// What is being sent again: after this number, up to that one, not before then.
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

    /// Does what is due, then sleeps until something is due or happens.
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

    /// When a heartbeat is due if nothing else is printed: before [`heartbeat_ms`], so that it arrives by then.
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
            // The thread is no current one either if it is stuck, but that is true of the whole process.
            LoopEvent::Report(_, Report::Stuck) => return Some(End::Stopped(REPLACED)),
            LoopEvent::Report(number, report) if self.driver_thread.is_current(number) => {
                self.handle_report(report)
            }
            LoopEvent::Report(_, Report::Read { driver_events, .. }) => {
                self.print_late_driver_events(driver_events)
            }
            // Of a thread that was abandoned nothing else counts: another one has taken over.
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

    /// Notes that nobody listens any more. The ring is worth keeping for a moment: see [`SUCCESSOR_TIMEOUT`].
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
                // It may have said so because it did not understand the last one.
                self.sampler.force_full_sample();
            }
            // Another row is not ours to tell: whoever took it over has it, or nobody.
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
                // Nobody should look at an empty page until the grid's next line.
                self.next_sample = Instant::now();
            }
            Report::Absent(absent) => self.absent(absent.0),
            // It ends the probe, see above.
            Report::Stuck => {}
            Report::Read { gpus, processes, driver_events } => {
                self.finish_sample(gpus, processes, driver_events)
            }
            Report::Health(gpus) => self.print_health(gpus),
        }
    }

    /// Says that there is no source, unless that was said already.
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

    /// Why a thread of the probe ended, if one said so.
    fn failure(&self) -> End {
        let said = self.inbox.try_iter().find_map(|event| match event {
            LoopEvent::ThreadFailed(why) => Some(why),
            _ => None,
        });
        End::Failed(said.unwrap_or_else(|| "it panicked".into()))
    }

    /// Says why it ends, and returns that if it is a failure.
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
