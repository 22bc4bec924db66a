//! Runs a probe: an event loop that drives the state machine ([`engine`]) with the clocks, threads
//! and pipes of this node.

pub mod engine;
mod network;
mod node;

use crate::{
    clock, control,
    driver_thread::{DriverTimings, SourceConfig},
    hello, library_exit,
    loop_event::LoopEvent,
    panics,
    sampler::HandoverState,
    source::{Report, WorkerId},
    takeover::{self, RelayId},
};
use engine::{Engine, Timeouts};
use node::Node;
use nodeglass_protocol::Text;
use nodeglass_protocol::probe::{Bye, PING_TIMEOUT_MS, ProbeLine};
use std::{
    io,
    os::unix::net::UnixStream,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    time::Duration,
};

/// Time that a probe without a relay waits for a successor: after a repaired link, the old
/// connection ends before the new one starts.
const SUCCESSOR_TIMEOUT: Duration = Duration::from_secs(12);
/// Time limit for writing the last lines.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(500);
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

impl Settings {
    fn timeouts(&self) -> Timeouts {
        let successor = self.successor.unwrap_or(SUCCESSOR_TIMEOUT);
        Timeouts {
            control: self.control_timeout.unwrap_or(Duration::from_millis(PING_TIMEOUT_MS)),
            successor: self.relay.as_ref().map_or(Duration::ZERO, |_| successor),
        }
    }
}

/// Runs until the relay, a closed pipe or a signal ends it.
///
/// # Errors
/// If threads cannot be started, stdout is closed, or a thread panicked.
pub fn run(sources: Vec<SourceConfig>, settings: &Settings) -> io::Result<()> {
    let (events, inbox) = channel();
    panics::report_to(events.clone());
    let _guard = library_exit::report_to(events.clone());
    crate::loop_event::on_signals(events.clone())?;
    control::listen(events.clone())?;
    let state = settings.relay.as_ref().and_then(takeover::request_handover);
    let mut probe = Probe::new(sources, settings, state, inbox, events)?;
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
    Stopped(Text),
    /// A newer probe takes over.
    Successor(UnixStream),
    /// Internal error; the relay starts another probe.
    Failed(String),
}

struct Probe {
    inbox: Receiver<LoopEvent>,
    engine: Engine<Node>,
    invalid_lines: u32,
}

impl Probe {
    fn new(
        sources: Vec<SourceConfig>,
        settings: &Settings,
        state: Option<HandoverState>,
        inbox: Receiver<LoopEvent>,
        events: Sender<LoopEvent>,
    ) -> io::Result<Self> {
        if let Some(relay) = &settings.relay {
            takeover::listen(relay, events.clone())?;
        }
        let state = state.unwrap_or_else(|| HandoverState::new(new_stream()));
        let hello = hello::of_this_node(state.stream, Vec::new());
        let vendors: Vec<_> = sources.iter().map(|source| source.vendor).collect();
        let node = Node::start(sources, settings.timings, events)?;
        let engine = Engine::new(node, &vendors, hello, state, settings.timeouts());
        Ok(Self { inbox, engine, invalid_lines: 0 })
    }

    /// Runs due tasks, then waits for the next deadline or event.
    fn stream(&mut self) -> End {
        loop {
            if let Some(why) = self.engine.run_due_tasks() {
                return End::Stopped(why.into());
            }
            let wait = self.engine.environment().until(self.engine.next_deadline());
            let ended = match self.inbox.recv_timeout(wait) {
                Ok(event) => self.handle_event(event),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => Some(End::Stopped("every thread ended".into())),
            };
            if let Some(end) = ended {
                return end;
            }
        }
    }

    fn handle_event(&mut self, event: LoopEvent) -> Option<End> {
        match event {
            LoopEvent::Control(control) => {
                return self.engine.handle_control(control).map(|why| End::Stopped(why.into()));
            }
            LoopEvent::InvalidControl(why) => self.ignore_invalid_line(&why),
            // From any thread, because it applies to the whole process.
            LoopEvent::Report(worker, Report::NeedsNewProcess) => return Some(self.replaced(worker)),
            LoopEvent::Report(worker, report) if self.engine.environment().is_current_thread(worker) => {
                self.engine.handle_report(worker.source, report)
            }
            LoopEvent::Report(_, Report::Read { driver_events, .. }) => {
                self.engine.print_late_driver_events(driver_events)
            }
            // Other reports of abandoned threads are obsolete.
            LoopEvent::Report(..) => {}
            LoopEvent::ThreadFailed(why) => return Some(End::Failed(why)),
            LoopEvent::Processes(list) => self.engine.handle_processes(list),
            LoopEvent::Notes(notes) => self.engine.handle_notes(notes),
            LoopEvent::Response(response) => self.engine.handle_response(*response),
            LoopEvent::InputEnded => self.engine.orphan("stdin was closed"),
            LoopEvent::OutputClosed => self.engine.orphan("stdout was closed"),
            LoopEvent::Signal => return Some(End::Stopped("ended by a signal".into())),
            LoopEvent::Successor(socket) => return Some(End::Successor(socket)),
        }
        None
    }

    /// Ends although the probe could continue without these GPUs: the relay starts another one.
    fn replaced(&self, worker: WorkerId) -> End {
        let vendor = self.engine.vendor(worker.source).name();
        let why = format!("the {vendor} driver was replaced, and only a new process can load its library");
        End::Stopped(why.into())
    }

    fn ignore_invalid_line(&mut self, why: &str) {
        self.invalid_lines += 1;
        if self.invalid_lines <= MAX_INVALID_LINES_LOGGED {
            eprintln!("node-probe: ignored a control line: {}", Text::new(why));
        }
    }

    /// Returns the message of the thread that failed.
    fn failure(&self) -> End {
        let reason = self.inbox.try_iter().find_map(|event| match event {
            LoopEvent::ThreadFailed(why) => Some(why),
            _ => None,
        });
        End::Failed(reason.unwrap_or_else(|| "it panicked".into()))
    }

    /// Prints the last line, and returns the message of a failure.
    fn end(self, end: End) -> Option<String> {
        let Self { mut engine, .. } = self;
        let mut failure = None;
        let why = match end {
            End::Stopped(why) => why,
            End::Failed(why) => Text::new(failure.insert(format!("internal error: {why}"))),
            End::Successor(socket) => {
                if let Err(error) = takeover::hand_over(socket, engine.sampler().state()) {
                    eprintln!("node-probe: failed to hand over to a newer probe: {error}");
                }
                Bye::REPLACED.into()
            }
        };
        engine.print(&ProbeLine::Bye(Bye { reason: why }));
        engine.into_parts().0.close(CLOSE_TIMEOUT);
        failure
    }
}
