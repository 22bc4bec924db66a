//! The sample streams of all nodes, which outlive links: sequence numbers continue until a node
//! reboots.

use crate::scenario::{Scenario, ScenarioTime};
use node_probe::probe::engine::FIRST_INTERVAL_MS;
use node_probe::ring::MAX_AGE_NS;
use node_probe::sampler::HandoverState;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Maximum age of samples that a probe can replay, in ms.
pub(super) const HISTORY_MS: i64 = (MAX_AGE_NS / 1_000_000) as i64;

/// The sample stream of a node while no probe is connected.
#[derive(Debug)]
pub(super) struct NodeStream {
    /// Boot of the node that it belongs to.
    pub boots: u64,
    /// Number of streams of this boot before it.
    pub restarts: u64,
    /// Id, number of the next sample, and past samples.
    pub state: HandoverState,
    /// Time of the last sample, in ms since 1970.
    pub last_wall_ms: u64,
    /// Sampling interval in ms.
    pub interval_ms: u32,
    /// Offset of samples from multiples of the interval, in ms.
    pub phase_ms: u32,
}

/// The streams of all nodes.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    by_node: Mutex<BTreeMap<usize, Slot>>,
}

/// The stream of a node.
#[derive(Debug)]
enum Slot {
    /// Waits for the next probe.
    Idle(NodeStream),
    /// A probe continues it: its boot, and number within that boot.
    InUse(u64, u64),
}

impl Slot {
    /// Boot and number of the stream.
    fn identity(&self) -> (u64, u64) {
        match self {
            Self::Idle(stream) => (stream.boots, stream.restarts),
            Self::InUse(boots, restarts) => (*boots, *restarts),
        }
    }
}

impl Streams {
    /// Takes the stream of a node to continue it. A new one starts ten minutes ago or at a later
    /// boot; it has another id if a probe still continues the previous one.
    pub(super) fn take(&self, scenario: &Scenario, node: usize, now: ScenarioTime) -> NodeStream {
        let (boots, booted_ms) = scenario.boot(node, now.t_ms);
        let mut by_node = self.by_node();
        let restarts = match by_node.remove(&node) {
            Some(Slot::Idle(stream)) if stream.boots == boots => {
                by_node.insert(node, Slot::InUse(boots, stream.restarts));
                return stream;
            }
            Some(Slot::InUse(same, restarts)) if same == boots => restarts + 1,
            _ => 0,
        };
        by_node.insert(node, Slot::InUse(boots, restarts));
        let start_ms = booted_ms.max(now.t_ms - HISTORY_MS) - now.t_ms;
        NodeStream {
            boots,
            restarts,
            state: HandoverState::new(scenario.stream_id(node, boots).wrapping_add(restarts)),
            last_wall_ms: now.plus(start_ms).wall_ms(),
            interval_ms: FIRST_INTERVAL_MS,
            phase_ms: 0,
        }
    }

    /// Leaves a stream to the next probe of the node, unless another one replaced it.
    pub(super) fn put_back(&self, node: usize, stream: NodeStream) {
        let mut by_node = self.by_node();
        let is_current =
            by_node.get(&node).is_some_and(|slot| slot.identity() == (stream.boots, stream.restarts));
        if is_current {
            by_node.insert(node, Slot::Idle(stream));
        }
    }

    fn by_node(&self) -> MutexGuard<'_, BTreeMap<usize, Slot>> {
        self.by_node.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
