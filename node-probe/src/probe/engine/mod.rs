//! The probe's state machine: decides which line is printed when, given events and the clocks of its [`Environment`].
//!
//! It has no threads, files or clocks of its own. The probe's event loop drives it with those of a node
//! ([`super::node`]); a simulation drives it with a virtual clock.

mod driver_watch;
pub mod environment;
mod printing;

use crate::{
    clock::until_next,
    control,
    sampler::{HandoverState, Sampler},
    source::{Absent, Inventory, Report, multi::MultiSource},
};
use driver_watch::{Driver, PendingSample, RecentEvent};
use environment::{Environment, Moment};
use nodeglass_protocol::probe::{
    Control, Hello, PING_TIMEOUT_MS, ProbeResponse, ProcessList, SpoolNotes, heartbeat_ms,
};
use nodeglass_protocol::{JobId, Vendor};
use std::{collections::VecDeque, time::Duration};

/// Initial sampling interval in ms.
pub const FIRST_INTERVAL_MS: u32 = 1_000;
/// Maximum number of jobs whose spool files are read.
const MAX_NOTE_JOBS: usize = 256;
/// Maximum time that the first line waits for the source.
const HELLO_TIMEOUT: Duration = Duration::from_secs(2);

/// Time without a control line after which the node's own network is checked: pings arrive every 5 s.
const QUIET: Duration = Duration::from_secs(10);
/// Maximum time for which a probe on a node without a network waits for its relay; the ring holds no older samples.
const MAX_CUT: Duration = Duration::from_secs(600);

/// Time limits of a probe without a relay.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// Time without a control line after which it exits.
    pub control: Duration,
    /// Time to wait for a successor once the pipe is closed.
    pub successor: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { control: Duration::from_millis(PING_TIMEOUT_MS), successor: Duration::ZERO }
    }
}

/// Phase of sampling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// No line was printed, because a source has not reported yet.
    Opening,
    /// GPUs and the host: at least one source is available.
    Ready,
    /// Only the host.
    HostOnly,
}

/// The state machine of one probe. Times are [`Moment::elapsed`].
pub struct Engine<E> {
    pub(super) env: E,
    pub(super) sampler: Sampler,
    pub(super) hello: Hello,
    pub(super) sources: MultiSource,
    /// The driver of each source, in the order of `sources`.
    drivers: Vec<Driver>,
    /// Whether the first line was printed.
    is_greeted: bool,
    /// The sample that waits for readings.
    pending: Option<PendingSample>,
    /// Driver events that were printed recently.
    pub(super) recent_events: VecDeque<RecentEvent>,
    pub(super) interval_ms: u32,
    phase_ms: u32,
    timeouts: Timeouts,
    started: Duration,
    next_sample: Duration,
    pub(super) last_line: Duration,
    last_control: Duration,
    /// When the node was last seen without a network, since the last control line.
    last_cut: Option<Duration>,
    pub(super) last_processes: Option<Duration>,
    /// Process lists older than this, in ns of `CLOCK_BOOTTIME`, are obsolete.
    pub(super) processes_ns: u64,
    /// Deadline for a successor, and the reason to exit then, once the pipe is closed.
    orphaned_until: Option<(Duration, &'static str)>,
    /// The jobs whose spool files are read.
    note_jobs: Vec<JobId>,
    last_notes: Option<Duration>,
    /// Time of the last line about the probe's own usage.
    last_usage: Option<Duration>,
    /// Notes for which the pipe has had no room yet.
    pending_notes: Option<SpoolNotes>,
    /// Replay in progress: last number sent, last number to send, and earliest time of the next
    /// batch.
    pub(super) replay: Option<(u64, u64, Duration)>,
}

impl<E: Environment> Engine<E> {
    /// Creates the state machine of a probe, which starts or continues a stream of samples.
    ///
    /// `hello` describes the node without its sources, which are reported later; `vendors` are theirs.
    pub fn new(env: E, vendors: &[Vendor], hello: Hello, state: HandoverState, timeouts: Timeouts) -> Self {
        let now = env.now();
        let sources = MultiSource::new(vendors.iter().copied());
        let stream = state.stream;
        Self {
            env,
            sampler: Sampler::new(state),
            hello: Hello { stream, sources: sources.states(), ..hello },
            sources,
            drivers: vendors.iter().map(|vendor| Driver::new(*vendor)).collect(),
            is_greeted: false,
            pending: None,
            recent_events: VecDeque::new(),
            interval_ms: FIRST_INTERVAL_MS,
            phase_ms: 0,
            timeouts,
            started: now.elapsed,
            next_sample: now.elapsed + until_next(now.wall_ns, FIRST_INTERVAL_MS, 0),
            last_line: now.elapsed,
            last_control: now.elapsed,
            last_cut: None,
            last_processes: None,
            processes_ns: 0,
            orphaned_until: None,
            note_jobs: Vec::new(),
            last_notes: None,
            last_usage: None,
            pending_notes: None,
            replay: None,
        }
    }

    /// The node.
    pub fn environment(&self) -> &E {
        &self.env
    }

    /// The node, for inputs that the state machine does not handle.
    pub fn environment_mut(&mut self) -> &mut E {
        &mut self.env
    }

    /// The stream of samples.
    pub fn sampler(&self) -> &Sampler {
        &self.sampler
    }

    /// Sampling interval and phase, both in ms.
    pub fn schedule(&self) -> (u32, u32) {
        (self.interval_ms, self.phase_ms)
    }

    /// Ends the probe: returns its node, and the state for a successor.
    pub fn into_parts(self) -> (E, HandoverState) {
        (self.env, self.sampler.into_state())
    }

    /// Runs due tasks; returns the reason to exit, if there is one.
    pub fn run_due_tasks(&mut self) -> Option<&'static str> {
        let now = self.env.now().elapsed;
        self.check_network(now);
        if now >= self.silence_limit() {
            return Some("no message from the relay");
        }
        if let Some((_, why)) = self.orphaned_until.filter(|(until, _)| now >= *until) {
            return Some(why);
        }
        if self.phase() == Phase::Opening && now >= self.started + HELLO_TIMEOUT {
            for source in self.sources.opening().collect::<Vec<_>>() {
                let vendor = self.sources.vendor(source).name();
                self.set_absent(source, Absent::new(format!("the {vendor} driver does not respond")));
            }
        }
        if now >= self.next_sample {
            self.start_sample(now);
            self.read_notes(now);
            self.print_usage(now);
            self.schedule_sample();
        } else if self.pending.as_ref().is_some_and(|pending| now >= pending.until) {
            self.start_sample(now);
        }
        if self.replay.is_some_and(|(.., not_before)| now >= not_before) {
            self.replay_batch(now);
        }
        if self.phase() != Phase::Opening && now >= self.next_heartbeat() {
            self.print_heartbeat();
        }
        None
    }

    /// Returns the time at which [`Self::run_due_tasks`] has something to do.
    pub fn next_deadline(&self) -> Duration {
        let mut next = self.next_sample.min(self.silence_limit());
        match self.phase() {
            Phase::Opening => next = next.min(self.started + HELLO_TIMEOUT),
            Phase::Ready | Phase::HostOnly => next = next.min(self.next_heartbeat()),
        }
        let next = self.pending.as_ref().map_or(next, |pending| next.min(pending.until));
        let next = self.orphaned_until.map_or(next, |(until, _)| next.min(until));
        self.replay.map_or(next, |(.., not_before)| next.min(not_before))
    }

    /// Records whether the node has no network: silence then says nothing about the relay, which requests what it
    /// missed once it is reachable again.
    fn check_network(&mut self, now: Duration) {
        if now >= self.last_control + QUIET && now < self.last_control + MAX_CUT && self.env.is_cut_off() {
            self.last_cut = Some(now);
        }
    }

    /// Time at which the relay counts as gone.
    fn silence_limit(&self) -> Duration {
        self.last_cut.unwrap_or(self.last_control) + self.timeouts.control
    }

    /// Time of the next heartbeat if nothing else is printed: earlier than [`heartbeat_ms`], to
    /// allow for latency.
    fn next_heartbeat(&self) -> Duration {
        self.last_line + Duration::from_millis(heartbeat_ms(self.interval_ms) * 9 / 10)
    }

    /// Schedules the next sample at the next aligned time.
    fn schedule_sample(&mut self) {
        let Moment { elapsed, wall_ns, .. } = self.env.now();
        self.next_sample = elapsed + until_next(wall_ns, self.interval_ms, self.phase_ms);
    }

    /// Records that the reader is gone. The ring is kept until the time limit for a successor.
    pub fn orphan(&mut self, why: &'static str) {
        let until = self.env.now().elapsed + self.timeouts.successor;
        self.orphaned_until.get_or_insert((until, why));
    }

    /// Handles a control line; returns the reason to exit, if it is one.
    pub fn handle_control(&mut self, control: Control) -> Option<&'static str> {
        (self.last_control, self.last_cut) = (self.env.now().elapsed, None);
        match control {
            Control::Ping => {}
            Control::Stop => return Some("stopped by the relay"),
            Control::Interval { ms, phase_ms } => {
                self.phase_ms = phase_ms;
                self.interval_ms = ms.clamp(*control::INTERVAL_MS.start(), *control::INTERVAL_MS.end());
                self.schedule_sample();
                // The relay may have set it again because it could not decode the last sample.
                self.sampler.force_full_sample();
            }
            // Another stream is the responsibility of the probe that took it over.
            Control::Backfill { stream, after_seq } if stream == self.sampler.stream() => {
                let newest = self.sampler.next_seq().saturating_sub(1);
                let start = self.sampler.ring().replay_start(after_seq);
                self.replay = Some((start, newest, self.env.now().elapsed));
            }
            Control::Backfill { .. } => {}
            Control::Notes { mut jobs } => {
                jobs.truncate(MAX_NOTE_JOBS);
                self.note_jobs = jobs;
            }
            Control::Request { number, request } => {
                if let Some(response) = self.env.respond(number, request) {
                    self.print_response(response);
                }
            }
        }
        None
    }

    /// The vendor of a source.
    pub fn vendor(&self, source: usize) -> Vendor {
        self.sources.vendor(source)
    }

    pub(super) fn phase(&self) -> Phase {
        match self.is_greeted {
            false => Phase::Opening,
            true if self.sources.ready().next().is_some() => Phase::Ready,
            true => Phase::HostOnly,
        }
    }

    /// Handles a report of a source; [`Report::NeedsNewProcess`] is the caller's, because it concerns the
    /// whole process.
    pub fn handle_report(&mut self, source: usize, report: Report) {
        match report {
            Report::Opened(inventory) => self.set_ready(source, inventory),
            Report::Absent(absent) => self.set_absent(source, absent),
            Report::NeedsNewProcess => {}
            Report::Read { gpus, processes, driver_events } => {
                self.take_readings(source, gpus, processes, driver_events)
            }
            Report::Health(gpus) => {
                let all = self.sources.set_health(source, gpus);
                self.print_health(all);
            }
        }
    }

    /// Handles a resolved process list, unless a newer one was printed.
    pub fn handle_processes(&mut self, list: ProcessList) {
        if list.mono_ns > self.processes_ns {
            self.print_processes(list);
        }
    }

    /// Handles the response to a request.
    pub fn handle_response(&mut self, response: ProbeResponse) {
        self.print_response(response);
    }

    fn set_ready(&mut self, source: usize, inventory: Inventory) {
        self.env.set_inventory(source, Some(&inventory));
        self.sources.set_ready(source, inventory);
        self.renew_inventory();
        // Sample immediately, so that the page is not empty until the next aligned time.
        self.next_sample = self.env.now().elapsed;
    }

    /// Reports that a source is unavailable, if that is new.
    fn set_absent(&mut self, source: usize, absent: Absent) {
        // A source that is absent anyway retries while a sample of others may be pending.
        if self.sources.is_ready(source) {
            self.pending = None;
        }
        self.drivers[source].reset();
        self.env.set_inventory(source, None);
        if self.sources.set_absent(source, absent) {
            self.renew_inventory();
            if self.phase() == Phase::HostOnly {
                let mono_ns = self.env.now().mono_ns;
                self.print_processes(ProcessList { mono_ns, ..ProcessList::default() });
            }
        }
    }

    /// Prints the GPUs of all sources, once each of them has reported.
    fn renew_inventory(&mut self) {
        if !self.is_greeted && self.sources.opening().next().is_some() {
            return;
        }
        self.is_greeted = true;
        self.sampler.set_gpus(self.sources.uuids());
        self.hello.sources = self.sources.states();
        (self.hello.gpus, self.hello.topology) = (self.sources.gpus(), self.sources.topology());
        self.print_hello();
    }
}

#[cfg(test)]
mod tests;
