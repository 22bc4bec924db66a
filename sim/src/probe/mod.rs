//! A simulated probe: node-probe's state machine on a node of a scenario, driven by a virtual clock.
//!
//! It performs no I/O. Its caller moves the clock, passes on control lines, and takes its output.

mod node;
mod predecessor;
mod streams;

pub(crate) use streams::Streams;

use crate::scenario::file::FaultKind;
use crate::scenario::{Scenario, ScenarioTime};
use node::SimulatedNode;
use node_probe::control::ControlLines;
use node_probe::probe::engine::{Engine, Timeouts};
use nodeglass_protocol::probe::{Bye, ProbeLine};
use predecessor::Predecessor;
use std::sync::Arc;
use streams::NodeStream;

/// Interval of checks for events of the node, in ms.
const CHECK_MS: i64 = 500;
/// Maximum number of past samples that one call of [`SimulatedProbe::advance`] computes.
const PAST_BATCH: usize = 32;

/// The end of a simulated probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeEnd {
    /// It exited with status 0.
    Exited,
    /// The connection ended; with a reason for the user.
    Disconnected(&'static str),
}

/// The probe on one node of a scenario, for the duration of one link.
pub struct SimulatedProbe {
    scenario: Arc<Scenario>,
    streams: Arc<Streams>,
    node: usize,
    now: ScenarioTime,
    state: State,
    control_lines: ControlLines,
    /// Identity of the sample stream.
    boots: u64,
    restarts: u64,
}

/// The state of a probe. Boxed, because the variants differ in size.
enum State {
    /// Computes the samples that its predecessor took.
    Starting(Box<Predecessor>),
    Running(Box<Engine<SimulatedNode>>),
    /// Has ended; its last output may wait.
    Ended(ProbeEnd, Option<Box<SimulatedNode>>),
}

impl SimulatedProbe {
    /// Starts a probe, which continues the node's stream of samples.
    pub(crate) fn start(
        scenario: Arc<Scenario>,
        streams: Arc<Streams>,
        node: usize,
        now: ScenarioTime,
    ) -> Self {
        let stream = streams.take(&scenario, node, now);
        let (boots, restarts) = (stream.boots, stream.restarts);
        let predecessor = Box::new(Predecessor::new(scenario.clone(), node, stream));
        let control_lines = ControlLines::default();
        Self {
            scenario,
            streams,
            node,
            now,
            state: State::Starting(predecessor),
            control_lines,
            boots,
            restarts,
        }
    }

    /// Moves the clock to `to` and does all that is due until then, each at its own time.
    ///
    /// At first only a part of the past is computed per call; [`Self::next_wake`] is `to` then.
    pub fn advance(&mut self, to: ScenarioTime) {
        if let State::Starting(predecessor) = &mut self.state {
            self.now = to;
            if predecessor.run(to, PAST_BATCH) {
                self.begin();
            }
            return;
        }
        while let Some(wake) = self.next_wake().filter(|wake| wake.t_ms <= to.t_ms) {
            self.set_now(wake);
            self.run_due_tasks();
        }
        self.set_now(to);
    }

    /// Returns the time at which [`Self::advance`] has something to do; `None` once it has ended.
    pub fn next_wake(&self) -> Option<ScenarioTime> {
        match &self.state {
            State::Starting(_) => Some(self.now),
            State::Running(engine) => {
                let check_ms = (self.now.t_ms.div_euclid(CHECK_MS) + 1) * CHECK_MS;
                let deadline_ms = engine.environment().t_ms(engine.next_deadline());
                Some(ScenarioTime { t_ms: deadline_ms.min(check_ms).max(self.now.t_ms), ..self.now })
            }
            State::Ended(..) => None,
        }
    }

    /// Receives bytes of the relay at the time of the last [`Self::advance`].
    pub fn receive(&mut self, bytes: &[u8]) {
        let State::Running(engine) = &mut self.state else { return };
        let mut stopped = None;
        // Invalid lines are ignored, as by a real probe, which reports them on stderr.
        for control in self.control_lines.push(bytes).flatten() {
            stopped = engine.handle_control(control);
            if stopped.is_some() {
                break;
            }
        }
        match stopped {
            Some(why) => self.stop(why),
            None => self.run_due_tasks(),
        }
    }

    /// Handles the end of the relay's input.
    pub fn input_ended(&mut self) {
        match &mut self.state {
            State::Running(engine) => engine.orphan("stdin was closed"),
            State::Starting(_) => self.finish(ProbeEnd::Exited, false),
            State::Ended(..) => {}
        }
        self.run_due_tasks();
    }

    /// Returns whether there is output to be taken.
    pub fn has_output(&self) -> bool {
        let is_silent = self.fault_age_ms(FaultKind::Silent).is_some();
        !is_silent && self.environment().is_some_and(SimulatedNode::has_output)
    }

    /// Takes the next output, about 64 KiB at most; empty if there is none.
    pub fn take_output(&mut self) -> Vec<u8> {
        match &mut self.state {
            State::Running(engine) => engine.environment_mut().take_output(),
            State::Ended(_, Some(node)) => node.take_output(),
            State::Starting(_) | State::Ended(_, None) => Vec::new(),
        }
    }

    /// Returns how it ended, if it has.
    pub fn end(&self) -> Option<ProbeEnd> {
        match self.state {
            State::Ended(end, _) => Some(end),
            State::Starting(_) | State::Running(_) => None,
        }
    }

    fn environment(&self) -> Option<&SimulatedNode> {
        match &self.state {
            State::Running(engine) => Some(engine.environment()),
            State::Ended(_, node) => node.as_deref(),
            State::Starting(_) => None,
        }
    }

    fn fault_age_ms(&self, kind: FaultKind) -> Option<i64> {
        self.scenario.fault_age_ms(self.node, kind, self.now.t_ms)
    }

    fn set_now(&mut self, now: ScenarioTime) {
        self.now = now;
        if let State::Running(engine) = &mut self.state {
            engine.environment_mut().set_now(now);
        }
    }

    /// Starts sampling once the past is complete.
    fn begin(&mut self) {
        let ended = State::Ended(ProbeEnd::Exited, None);
        let State::Starting(predecessor) = std::mem::replace(&mut self.state, ended) else { return };
        let (scenario, node, now) = (self.scenario.clone(), self.node, self.now);
        let state = predecessor.into_state();
        let hello = crate::gpu::facts::hello(&scenario, node, now);
        let environment = SimulatedNode::new(scenario, node, now, &state.ring);
        let vendors: Vec<_> = hello.sources.iter().map(|source| source.vendor).collect();
        let engine = Engine::new(environment, &vendors, hello, state, Timeouts::default());
        self.state = State::Running(Box::new(engine));
        self.run_due_tasks();
    }

    /// Does what is due at the current time.
    fn run_due_tasks(&mut self) {
        let broken = [
            (FaultKind::Dies, "the connection was reset by the node"),
            (FaultKind::Unreachable, "the node's network is down"),
        ];
        if let Some((_, why)) = broken.iter().find(|(kind, _)| self.fault_age_ms(*kind).is_some()) {
            self.finish(ProbeEnd::Disconnected(why), false);
            return;
        }
        let State::Running(engine) = &mut self.state else { return };
        node::serve(engine);
        if let Some(why) = engine.run_due_tasks() {
            self.stop(why);
            return;
        }
        node::serve(engine);
    }

    /// Prints the last line and exits.
    fn stop(&mut self, why: &str) {
        if let State::Running(engine) = &mut self.state {
            engine.print(&ProbeLine::Bye(Bye { reason: why.into() }));
        }
        self.finish(ProbeEnd::Exited, true);
    }

    /// Ends, and leaves the stream of samples to the next probe of the node.
    fn finish(&mut self, end: ProbeEnd, keeps_output: bool) {
        let (schedule, last_wall_ms, state, output) =
            match std::mem::replace(&mut self.state, State::Ended(end, None)) {
                State::Starting(predecessor) => {
                    let (schedule, last_wall_ms) = predecessor.progress();
                    (schedule, last_wall_ms, predecessor.into_state(), None)
                }
                State::Running(engine) => {
                    let schedule = engine.schedule();
                    let (node, state) = engine.into_parts();
                    (schedule, self.now.wall_ms(), state, keeps_output.then(|| Box::new(node)))
                }
                ended @ State::Ended(..) => {
                    self.state = ended;
                    return;
                }
            };
        let (interval_ms, phase_ms) = schedule;
        let (boots, restarts) = (self.boots, self.restarts);
        let stream = NodeStream { boots, restarts, state, last_wall_ms, interval_ms, phase_ms };
        self.streams.put_back(self.node, stream);
        self.state = State::Ended(end, output);
    }
}

impl Drop for SimulatedProbe {
    fn drop(&mut self) {
        self.finish(ProbeEnd::Exited, false);
    }
}

impl std::fmt::Debug for SimulatedProbe {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("SimulatedProbe").field("node", &self.node).finish_non_exhaustive()
    }
}
