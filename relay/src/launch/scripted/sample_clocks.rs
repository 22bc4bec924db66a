//! Sample clocks of all nodes, which outlive links: sequence numbers continue until the node
//! reboots.

use super::sample_clock::{HISTORY_MS, SampleClock};
use super::scenario::{Scenario, ScenarioTime};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// The sample clock of each node, and the boot it belongs to.
#[derive(Debug, Default)]
pub(super) struct SampleClocks {
    by_node: Mutex<BTreeMap<usize, (u64, SampleClock)>>,
}

impl SampleClocks {
    /// Returns the clock of a node; it starts ten minutes ago, or at a later boot.
    pub fn of(&self, scenario: &Scenario, node: usize, now: ScenarioTime) -> SampleClock {
        self.with(scenario, node, now, |sample_clock| sample_clock.clone())
    }

    /// Changes a node's interval.
    pub fn set_interval(&self, scenario: &Scenario, node: usize, now: ScenarioTime, interval_ms: u64) {
        self.with(scenario, node, now, |sample_clock| sample_clock.set_interval(interval_ms, now.wall_ms()));
    }

    fn with<T>(
        &self,
        scenario: &Scenario,
        node: usize,
        now: ScenarioTime,
        act: impl FnOnce(&mut SampleClock) -> T,
    ) -> T {
        let (boots, booted_ms) = scenario.boot(node, now.t_ms);
        let begun = || {
            let first_ms = booted_ms.max(now.t_ms - HISTORY_MS as i64);
            (boots, SampleClock::since(now.plus(first_ms - now.t_ms).wall_ms()))
        };
        let mut by_node = self.by_node.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = by_node.entry(node).or_insert_with(begun);
        if entry.0 != boots {
            *entry = begun();
        }
        act(&mut entry.1)
    }
}
