//! Long-term history of GPUs and hosts: minimum, mean and maximum in tiers of growing step length, within a
//! memory budget. Pure: time comes from the caller.
//!
//! [`LongHistory`] records samples; an [`Excerpt`] is what is stored and restored. A [`RangeSource`] is what a query selects, to be
//! decoded elsewhere.

mod accumulator;
mod budget;
mod excerpt;
mod query;
mod recent;
mod row;
mod tier;

use excerpt::Taken;
pub use excerpt::{Excerpt, NodeExcerpt, field_names};
use nodeglass_protocol::picture::{HistorySample, NodePicture};
use nodeglass_protocol::range::{RangeHistory, RangeQuery};
use nodeglass_protocol::{GpuField, GpuUuid, HostField, NodeName};
pub use query::{Span, StoredSource, VisibleNode};
pub use recent::RecentSource;
use row::{Moment, RowHistory};
use std::collections::BTreeMap;

/// Maximum number of GPUs per node; a driver that invents new UUIDs replaces the oldest ones.
const MAX_GPUS: usize = 128;
/// Interval between checks of the memory budget and the ages.
const TRIM_INTERVAL_MS: u64 = 60_000;

/// The data that a query selects, detached from the fleet and its history.
#[derive(Debug)]
pub enum RangeSource {
    /// Data of the long-term history.
    Stored(StoredSource),
    /// Data of the last ten minutes, with shorter steps.
    Recent(RecentSource),
}

impl RangeSource {
    /// Reads the summaries. Takes up to about 0.1 s for 1,000 GPUs: not for the event loop.
    pub fn read(&self) -> RangeHistory {
        match self {
            Self::Stored(source) => source.read(),
            Self::Recent(source) => source.read(),
        }
    }

    /// Returns whether some of the requested fields are missing, because the query selects too many rows.
    pub fn leaves_out_fields(&self) -> bool {
        match self {
            Self::Stored(source) => source.leaves_out_fields(),
            Self::Recent(source) => source.leaves_out_fields(),
        }
    }

    /// The number of values that the response has if each slot has a minimum, a mean and a maximum.
    pub fn max_value_count(&self, query: &RangeQuery) -> usize {
        match self {
            Self::Stored(source) => source.max_value_count(query),
            Self::Recent(source) => source.max_value_count(query),
        }
    }
}

/// Long-term history of all nodes. Nodes remain after their jobs have ended.
#[derive(Debug)]
pub struct LongHistory {
    nodes: BTreeMap<NodeName, NodeHistory>,
    /// Memory budget in bytes.
    budget: usize,
    trimmed_ms: u64,
    /// Slots that have been stored.
    taken: Taken,
}

/// Long-term history of one node.
#[derive(Debug, Default)]
struct NodeHistory {
    gpus: BTreeMap<GpuUuid, RowHistory<GpuField>>,
    host: RowHistory<HostField>,
}

impl LongHistory {
    /// An empty history that keeps at most about `budget` bytes.
    pub fn new(budget: usize) -> Self {
        Self { nodes: BTreeMap::new(), budget, trimmed_ms: 0, taken: Taken::default() }
    }

    /// Adds the newest sample of a node.
    pub fn record(&mut self, node: &NodePicture) {
        let Some(at_ms) = node.sampled_at_ms else { return };
        let hold_ms = node.hold_ms();
        let history = self.node(&node.name);
        for gpu in node.gpus.iter().take(MAX_GPUS) {
            history.gpu(&gpu.facts.uuid).record(at_ms, hold_ms, &gpu.row);
        }
        history.host.record(at_ms, hold_ms, &node.host);
    }

    /// Enters samples that were taken while the link was broken, oldest first. Slots that have values
    /// already keep them.
    pub fn backfill(&mut self, node: &NodePicture, samples: &[HistorySample]) {
        if let Some(first) = samples.first() {
            self.taken.reopen(first.at_ms);
        }
        let history = self.node(&node.name);
        for (position, gpu) in node.gpus.iter().take(MAX_GPUS).enumerate() {
            let moment = |sample: &HistorySample| {
                Some(Moment { at_ms: sample.at_ms, cells: Box::from(sample.gpus.get(position)?.as_slice()) })
            };
            history.gpu(&gpu.facts.uuid).backfill(samples.iter().filter_map(moment));
        }
        let moment =
            |sample: &HistorySample| Moment { at_ms: sample.at_ms, cells: Box::from(sample.host.as_slice()) };
        history.host.backfill(samples.iter().map(moment));
    }

    /// Drops what is too old, and what exceeds the memory budget; at most once a minute.
    pub fn tick(&mut self, now_ms: u64) {
        if now_ms.saturating_sub(self.trimmed_ms) >= TRIM_INTERVAL_MS {
            self.trimmed_ms = now_ms;
            self.trim(now_ms);
        }
    }

    fn node(&mut self, name: &NodeName) -> &mut NodeHistory {
        if !self.nodes.contains_key(name) {
            self.nodes.insert(name.clone(), NodeHistory::default());
        }
        self.nodes.get_mut(name).expect("inserted above")
    }
}

impl NodeHistory {
    fn gpu(&mut self, uuid: &GpuUuid) -> &mut RowHistory<GpuField> {
        if !self.gpus.contains_key(uuid) {
            if self.gpus.len() >= MAX_GPUS {
                let oldest = self.gpus.iter().min_by_key(|(_, row)| row.newest_ms());
                if let Some(oldest) = oldest.map(|(uuid, _)| uuid.clone()) {
                    self.gpus.remove(&oldest);
                }
            }
            self.gpus.insert(uuid.clone(), RowHistory::default());
        }
        self.gpus.get_mut(uuid).expect("inserted above")
    }
}

impl Default for LongHistory {
    fn default() -> Self {
        Self::new(64 << 20)
    }
}

#[cfg(test)]
mod tests;
