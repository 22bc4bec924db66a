//! Excerpts of a history: what is stored of it, and what a later run of the relay restores.

use super::accumulator::Accumulator;
use super::row::RowHistory;
use super::tier::TIERS;
use super::{LongHistory, MAX_GPUS, NodeHistory};
use nodeglass_protocol::range::Summaries;
use nodeglass_protocol::{Field, GpuField, GpuUuid, HostField, NodeName};
use std::ops::Range;

/// Tiers that are stored; coarser ones follow from them.
const STORED: usize = 2;
/// Interval between excerpts of each tier, in ms.
const INTERVAL_MS: [u64; STORED] = [60_000, 600_000];
/// Slots are stored this long after their end, in ms: a sample of the next slot completes them.
const DELAY_MS: [u64; STORED] = [30_000, 90_000];
/// Maximum number of nodes that are restored.
const MAX_NODES: usize = 16 * 1024;

/// Summaries of all rows in some slots of a tier.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Excerpt {
    /// Length of a slot in ms.
    pub step_ms: u64,
    /// Its slots.
    pub slots: Range<u64>,
    /// Its nodes.
    pub nodes: Vec<NodeExcerpt>,
}

/// Summaries of a node.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeExcerpt {
    /// The node.
    pub name: NodeName,
    /// The fields of the host, in the order of [`Field::HISTORY`].
    pub host: Vec<Summaries>,
    /// The fields of each GPU, in the order of [`Field::HISTORY`].
    pub gpus: Vec<(GpuUuid, Vec<Summaries>)>,
}

/// Slots that were taken out of a history to be stored.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Taken {
    /// The first slot of each stored tier that has not been taken; `None` before the first call.
    next: [Option<u64>; STORED],
}

impl Taken {
    /// Samples from a time on were entered late: their slots are taken again.
    pub(super) fn reopen(&mut self, from_ms: u64) {
        for (next, tier) in self.next.iter_mut().zip(TIERS) {
            *next = next.map(|next| next.min(from_ms / tier.step_ms));
        }
    }
}

impl LongHistory {
    /// Takes what is due to be stored: complete slots since the last call. With `is_last`, all of them.
    pub fn take_excerpts(&mut self, now_ms: u64, is_last: bool) -> Vec<Excerpt> {
        let mut excerpts = Vec::new();
        for tier in 0..STORED {
            let step_ms = TIERS[tier].step_ms;
            let delay_ms = if is_last { 0 } else { DELAY_MS[tier] };
            let to = now_ms.saturating_sub(delay_ms) / step_ms;
            // What ended before the first call is what an earlier run of the relay stored.
            let from = *self.taken.next[tier].get_or_insert(now_ms / step_ms);
            let is_due = is_last || to.saturating_sub(from) >= INTERVAL_MS[tier] / step_ms;
            if is_due && to > from {
                self.taken.next[tier] = Some(to);
                excerpts.extend(self.excerpt(tier, from..to));
            }
        }
        excerpts
    }

    /// `None` if there is nothing in these slots.
    fn excerpt(&self, tier: usize, slots: Range<u64>) -> Option<Excerpt> {
        let of_node = |(name, node): (&NodeName, &NodeHistory)| {
            let host = node.host.excerpt(tier, &slots);
            let gpus = node.gpus.iter().map(|(uuid, row)| (uuid.clone(), row.excerpt(tier, &slots)));
            let gpus: Vec<_> = gpus.filter(|(_, fields)| !is_empty(fields)).collect();
            (!is_empty(&host) || !gpus.is_empty()).then(|| NodeExcerpt { name: name.clone(), host, gpus })
        };
        let nodes: Vec<_> = self.nodes.iter().filter_map(of_node).collect();
        (!nodes.is_empty()).then_some(Excerpt { step_ms: TIERS[tier].step_ms, slots, nodes })
    }

    /// Enters an excerpt of an earlier run, whose slots are those of this run's clock. Existing slots are kept, and
    /// slots later than `now_ms` are left out.
    pub fn restore(&mut self, excerpt: &Excerpt, now_ms: u64) {
        let Some(tier) = TIERS[..STORED].iter().position(|tier| tier.step_ms == excerpt.step_ms) else {
            return;
        };
        let slots = now_ms.saturating_sub(TIERS[tier].keep_ms) / excerpt.step_ms..now_ms / excerpt.step_ms;
        for node in &excerpt.nodes {
            if !self.nodes.contains_key(&node.name) && self.nodes.len() >= MAX_NODES {
                continue;
            }
            let history = self.node(&node.name);
            history.host.restore(tier, &slots, &node.host);
            for (uuid, fields) in node.gpus.iter().take(MAX_GPUS) {
                history.gpu(uuid).restore(tier, &slots, fields);
            }
        }
    }

    /// Keeps the memory budget while more is restored, oldest first.
    pub fn trim_restored(&mut self, now_ms: u64) {
        if self.len() > self.budget {
            self.derive_coarser(false);
            self.trim(now_ms);
        }
    }

    /// Completes coarser tiers from finer ones, after everything was restored.
    pub fn complete_restored(&mut self, now_ms: u64) {
        self.derive_coarser(true);
        self.trim(now_ms);
    }

    fn derive_coarser(&mut self, is_last: bool) {
        for node in self.nodes.values_mut() {
            node.host.derive_coarser(is_last);
            node.gpus.values_mut().for_each(|row| row.derive_coarser(is_last));
        }
    }

    /// Enters a history that was restored while this one recorded. The stored part of this history remains marked as
    /// stored, so no slot is stored twice.
    pub fn merge_restored(&mut self, restored: Self, now_ms: u64) {
        for (name, restored) in restored.nodes {
            if !self.nodes.contains_key(&name) && self.nodes.len() >= MAX_NODES {
                continue;
            }
            let node = self.node(&name);
            node.host.merge_restored(restored.host);
            for (uuid, restored) in restored.gpus {
                // A restored slot does not replace a sampled one.
                if node.gpus.contains_key(&uuid) || node.gpus.len() < MAX_GPUS {
                    node.gpu(&uuid).merge_restored(restored);
                }
            }
        }
        self.trim(now_ms);
    }
}

fn is_empty(fields: &[Summaries]) -> bool {
    fields.iter().all(Summaries::is_empty)
}

impl<F: Field> RowHistory<F> {
    fn excerpt(&self, tier: usize, slots: &Range<u64>) -> Vec<Summaries> {
        let positions: Vec<_> = (0..F::HISTORY.len()).map(Some).collect();
        let part = self.tiers()[tier].part(slots.clone(), &positions);
        let field = |position: usize| {
            let mut summaries = Summaries::default();
            part.each(position, slots.start, |slot, summary| {
                if slot < slots.end {
                    summaries.push(slot, summary);
                }
            });
            summaries
        };
        (0..F::HISTORY.len()).map(field).collect()
    }

    fn restore(&mut self, tier: usize, slots: &Range<u64>, fields: &[Summaries]) {
        let within = |field: &Summaries| {
            let from = field.since(slots.start).take_while(|(slot, _)| *slot < slots.end);
            from.filter_map(|(slot, summary)| Some((slot, summary?))).collect()
        };
        let mut within: Vec<_> = fields.iter().take(F::HISTORY.len()).map(within).collect();
        within.resize_with(F::HISTORY.len(), Vec::new);
        self.tiers_mut()[tier].restore(&within);
    }

    /// Appends what a finer tier has after the end of each coarser one. Unless it `is_last`, the slot that the finer
    /// tier has not completed waits for the next call.
    fn derive_coarser(&mut self, is_last: bool) {
        for tier in 1..TIERS.len() {
            let (finer, coarser) = (TIERS[tier - 1], TIERS[tier]);
            let steps = coarser.step_ms / finer.step_ms;
            let from = self.tiers()[tier].newest_slot().map_or(0, |newest| newest + 1);
            let newest = self.tiers()[tier - 1].newest_slot().map_or(0, |newest| newest / steps);
            let to = if is_last { u64::MAX } else { newest };
            let positions: Vec<_> = (0..F::HISTORY.len()).map(Some).collect();
            let part = self.tiers()[tier - 1].part(from * steps..u64::MAX / finer.step_ms, &positions);
            let derived = |(position, field): (usize, &F)| {
                let kind = field.metric().kind;
                let mut slots: Vec<(u64, Accumulator)> = Vec::new();
                part.each(position, from * steps, |slot, summary| {
                    let slot = slot / steps;
                    if slot >= to {
                        return;
                    }
                    if slots.last().is_none_or(|(last, _)| *last != slot) {
                        slots.push((slot, Accumulator::default()));
                    }
                    if let Some((_, sum)) = slots.last_mut() {
                        sum.add_summary(&summary, kind);
                    }
                });
                slots.iter().filter_map(|(slot, sum)| Some((*slot, sum.summary(kind)?))).collect()
            };
            let derived: Vec<_> = F::HISTORY.iter().enumerate().map(derived).collect();
            self.tiers_mut()[tier].restore(&derived);
        }
    }
}

/// Names of the fields of GPUs and hosts, in the order of an excerpt.
pub fn field_names() -> (Vec<&'static str>, Vec<&'static str>) {
    (
        GpuField::HISTORY.iter().map(|field| field.name()).collect(),
        HostField::HISTORY.iter().map(|field| field.name()).collect(),
    )
}
