//! Keeps the history within its ages and its memory budget.

use super::row::RowHistory;
use super::tier::{TIERS, Tier};
use super::{LongHistory, NodeHistory};
use nodeglass_protocol::Field;

const HOUR_MS: u64 = 3_600_000;
/// Order of dropping chunks when memory is scarce, the oldest chunk of each tier first: the position of a tier in
/// [`TIERS`], and the age in ms up to which its chunks stay at that point. The coarse steps of the whole week go
/// last.
const DROP_ORDER: [(usize, u64); 5] = [(0, HOUR_MS), (1, 12 * HOUR_MS), (0, 0), (1, 0), (2, 0)];
/// A node without samples for this long is not watched any more.
const QUIET_MS: u64 = 600_000;

impl LongHistory {
    /// Memory in bytes, approximately.
    pub fn len(&self) -> usize {
        self.nodes.values().map(NodeHistory::len).sum()
    }

    /// Returns whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Changes the memory budget in bytes, and drops what exceeds it.
    pub fn set_budget(&mut self, budget: usize, now_ms: u64) {
        self.budget = budget;
        self.trim(now_ms);
    }

    /// Drops what is too old, and what exceeds the memory budget.
    pub(super) fn trim(&mut self, now_ms: u64) {
        for node in self.nodes.values_mut() {
            node.gpus.retain(|_, row| !expire(row, now_ms));
            expire(&mut node.host, now_ms);
        }
        self.nodes.retain(|_, node| !node.is_over(now_ms));
        let mut over = self.len().saturating_sub(self.budget);
        for (tier, keep_ms) in DROP_ORDER {
            let until = now_ms.saturating_sub(keep_ms) / TIERS[tier].step_ms;
            while over > 0 {
                match self.drop_oldest(tier, until) {
                    0 => break,
                    freed => over = over.saturating_sub(freed),
                }
            }
        }
        // Only the newest chunks are left, which stay where nodes are watched.
        while over > 0 {
            let oldest = self.nodes.iter().min_by_key(|(_, node)| node.host.newest_ms());
            let quiet = oldest.filter(|(_, node)| now_ms.saturating_sub(node.host.newest_ms()) > QUIET_MS);
            let Some(name) = quiet.map(|(name, _)| name.clone()) else { break };
            over = over.saturating_sub(self.nodes.remove(&name).map_or(0, |node| node.len()));
        }
    }

    /// Drops the oldest chunks of a tier, of all rows, if they end by the slot `until`; returns their size in
    /// bytes.
    fn drop_oldest(&mut self, tier: usize, until: u64) -> usize {
        let oldest = self.tiers(tier).filter_map(Tier::oldest_end).min();
        let Some(oldest) = oldest.filter(|end| *end <= until) else { return 0 };
        let mut freed = 0;
        for node in self.nodes.values_mut() {
            let gpus = node.gpus.values_mut().map(|row| &mut row.tiers_mut()[tier]);
            for tier in gpus.chain([&mut node.host.tiers_mut()[tier]]) {
                if tier.oldest_end() == Some(oldest) {
                    freed += tier.drop_oldest().unwrap_or(0);
                }
            }
        }
        freed
    }

    fn tiers(&self, tier: usize) -> impl Iterator<Item = &Tier> {
        self.nodes.values().flat_map(move |node| {
            node.gpus.values().map(move |row| &row.tiers()[tier]).chain([&node.host.tiers()[tier]])
        })
    }
}

impl NodeHistory {
    fn len(&self) -> usize {
        self.host.len() + self.gpus.values().map(RowHistory::len).sum::<usize>()
    }

    /// Returns whether it has nothing left.
    fn is_over(&self, now_ms: u64) -> bool {
        self.gpus.is_empty()
            && self.host.tiers().iter().all(Tier::is_empty)
            && now_ms.saturating_sub(self.host.newest_ms()) > TIERS[0].keep_ms
    }
}

/// Drops slots that are too old; returns whether a row without recent samples is empty then.
fn expire<F: Field>(row: &mut RowHistory<F>, now_ms: u64) -> bool {
    for (tier, spec) in row.tiers_mut().iter_mut().zip(TIERS) {
        tier.expire(now_ms.saturating_sub(spec.keep_ms) / spec.step_ms);
    }
    let is_quiet = now_ms.saturating_sub(row.newest_ms()) > TIERS[0].keep_ms;
    is_quiet && row.tiers().iter().all(Tier::is_empty)
}
