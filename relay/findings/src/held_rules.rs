//! The rows for which the rules of the settings hold, and since when.

use super::rule::{Rule, RuleMetric};
use nodeglass_protocol::picture::NodePicture;
use nodeglass_protocol::{GpuUuid, JobId, NodeName};
use std::collections::BTreeMap;

/// Time between two samples in ms from which on readings are missing: that time neither confirms nor ends anything.
const MAX_GAP_MS: u64 = 30_000;
/// Maximum number of rows for which rules hold; further ones are not followed.
const MAX_HELD: usize = 8_192;

/// The row that a rule holds for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RuleRow {
    /// A GPU or MIG instance.
    Gpu(GpuUuid),
    /// The node.
    Host,
    /// A job on the node.
    Job(JobId),
}

/// A row for which a rule holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Since when, in ms of the relay's clock, without the time of missing readings.
    pub since_ms: u64,
    /// The newest sample in which it did, in ms of the relay's clock.
    pub last_ms: u64,
    /// The newest value, in the unit of the metric.
    pub value: u64,
    /// Whether it held with the first sample of its node.
    pub or_earlier: bool,
}

/// The rows for which rules hold, by node, number of the rule, and row.
#[derive(Debug, Default)]
pub struct HeldRules(BTreeMap<(NodeName, usize, RuleRow), Held>);

impl HeldRules {
    /// Applies rules to the newest sample of a node. `is_first` if there is no earlier one.
    pub fn record(&mut self, rules: &[Rule], node: &NodePicture, is_first: bool) {
        let Some(at_ms) = node.sampled_at_ms else { return };
        for (number, rule) in rules.iter().enumerate() {
            let mut enter = |row: RuleRow, value: Option<u64>| {
                if let Some(value) = value {
                    self.enter((node.name.clone(), number, row), rule, value, at_ms, is_first);
                }
            };
            match rule.metric {
                RuleMetric::Gpu(field) => {
                    node.gpus.iter().filter(|gpu| gpu.fault.is_none()).for_each(|gpu| {
                        enter(RuleRow::Gpu(gpu.facts.uuid.clone()), gpu.row.value(field));
                    })
                }
                RuleMetric::Host(field) => enter(RuleRow::Host, node.host.value(field)),
                RuleMetric::Job(field) => node.job_usage.iter().for_each(|usage| {
                    enter(RuleRow::Job(usage.job), usage.row.value(field));
                }),
            }
        }
    }

    fn enter(
        &mut self,
        key: (NodeName, usize, RuleRow),
        rule: &Rule,
        value: u64,
        at_ms: u64,
        is_first: bool,
    ) {
        if !rule.comparison.holds(value, rule.limit) {
            self.0.remove(&key);
            return;
        }
        let is_full = self.0.len() >= MAX_HELD;
        match self.0.get_mut(&key) {
            Some(held) => {
                let gap_ms = at_ms.saturating_sub(held.last_ms);
                held.since_ms += if gap_ms > MAX_GAP_MS { gap_ms } else { 0 };
                (held.last_ms, held.value) = (at_ms, value);
            }
            None if is_full => {}
            None => {
                let held = Held { since_ms: at_ms, last_ms: at_ms, value, or_earlier: is_first };
                self.0.insert(key, held);
            }
        }
    }

    /// Drops what is known of other nodes.
    pub fn retain(&mut self, is_known: impl Fn(&NodeName) -> bool) {
        self.0.retain(|(node, ..), _| is_known(node));
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns the rows of a node for which a rule holds, by the number of the rule.
    pub fn of<'a>(
        &'a self,
        node: &NodeName,
        number: usize,
    ) -> impl Iterator<Item = (&'a RuleRow, &'a Held)> + 'a {
        let from = (node.clone(), number, RuleRow::Gpu(GpuUuid::new("")));
        let node = node.clone();
        self.0
            .range(from..)
            .take_while(move |((name, of, _), _)| *name == node && *of == number)
            .map(|((_, _, row), held)| (row, held))
    }
}
