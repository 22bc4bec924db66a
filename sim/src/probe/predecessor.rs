//! The samples that a node's previous probe took while no relay was connected.

use super::streams::{HISTORY_MS, NodeStream};
use crate::gpu::readings;
use crate::scenario::file::FaultKind;
use crate::scenario::{Scenario, ScenarioTime};
use node_probe::clock::until_next;
use node_probe::sampler::{HandoverState, Sampler, Stamp};
use std::sync::Arc;

/// A probe without a relay: it samples on schedule, and keeps ten minutes of samples.
#[derive(Debug)]
pub(super) struct Predecessor {
    scenario: Arc<Scenario>,
    node: usize,
    sampler: Sampler,
    /// Time of the last sample, in ms since 1970.
    last_wall_ms: u64,
    interval_ms: u32,
    phase_ms: u32,
}

impl Predecessor {
    /// Continues the stream of a node.
    pub fn new(scenario: Arc<Scenario>, node: usize, stream: NodeStream) -> Self {
        Self {
            scenario,
            node,
            sampler: Sampler::new(stream.state),
            last_wall_ms: stream.last_wall_ms,
            interval_ms: stream.interval_ms,
            phase_ms: stream.phase_ms,
        }
    }

    /// Takes samples until `to`, at most `count`; returns whether these were all.
    pub fn run(&mut self, to: ScenarioTime, count: usize) -> bool {
        self.skip_until(to.plus(-HISTORY_MS).wall_ms());
        for _ in 0..count {
            let next_ms = self.next_wall_ms();
            if next_ms > to.wall_ms() {
                return true;
            }
            self.last_wall_ms = next_ms;
            self.sample(to.at_wall_ms(next_ms));
        }
        false
    }

    /// Returns interval and phase, and the time of the last sample in ms since 1970.
    pub fn progress(&self) -> ((u32, u32), u64) {
        ((self.interval_ms, self.phase_ms), self.last_wall_ms)
    }

    /// Ends it; its successor continues the stream.
    pub fn into_state(self) -> HandoverState {
        self.sampler.into_state()
    }

    fn next_wall_ms(&self) -> u64 {
        let wait = until_next(self.last_wall_ms * 1_000_000, self.interval_ms, self.phase_ms);
        self.last_wall_ms + wait.as_millis() as u64
    }

    /// Counts samples before `wall_ms`, which can no longer be requested.
    fn skip_until(&mut self, wall_ms: u64) {
        let interval_ms = u64::from(self.interval_ms);
        let count = wall_ms.saturating_sub(self.last_wall_ms) / interval_ms;
        self.last_wall_ms += count * interval_ms;
        self.sampler.skip(count);
    }

    /// Takes a sample, unless a fault prevents it.
    fn sample(&mut self, at: ScenarioTime) {
        let prevented = [FaultKind::Dies, FaultKind::NvmlStuck, FaultKind::NoDriver];
        if prevented.iter().any(|kind| self.scenario.fault_age_ms(self.node, *kind, at.t_ms).is_some()) {
            return;
        }
        let gpus = readings::gpus(&self.scenario, self.node, at);
        let host = readings::host(&self.scenario, self.node, at);
        let stamp = Stamp {
            mono_ns: self.scenario.mono_ns(self.node, at),
            wall_ms: self.scenario.node_wall_ms(self.node, at),
        };
        let sample = self.sampler.sample(stamp, self.interval_ms, gpus, host);
        // The line is kept in the ring.
        self.sampler.line(sample);
    }
}
