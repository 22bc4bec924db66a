//! Findings: what readings, processes and SLURM's facts mean for the jobs. Pure: time comes from the caller.
//!
//! [`Findings::record`] sums up samples in steps of ten seconds; with each new step, [`Findings::evaluate`] runs all
//! detectors on them, and the tracker confirms, keeps and resolves what they see. A reading that is missing is never
//! evidence: it neither confirms nor resolves anything.

pub mod catalogue;
mod detect;
mod scene;
mod series;
mod tracker;

use nodeglass_protocol::NodeName;
use nodeglass_protocol::finding::Finding;
use nodeglass_protocol::job::Job;
use nodeglass_protocol::picture::NodePicture;
use scene::{Now, Scene};
use series::NodeSeries;
use std::collections::BTreeMap;
use tracker::Tracker;

/// How long after the end of a step it is examined, in ms: samples of slow nodes arrive late.
const SETTLE_MS: u64 = 2_000;

/// The findings of a fleet.
#[derive(Debug, Default)]
pub struct Findings {
    series: BTreeMap<NodeName, NodeSeries>,
    tracker: Tracker,
    /// Number of the newest step that was examined.
    examined: u64,
    list: Vec<Finding>,
}

impl Findings {
    /// Adds the newest sample of a node.
    pub fn record(&mut self, node: &NodePicture) {
        if !self.series.contains_key(&node.name) {
            self.series.insert(node.name.clone(), NodeSeries::default());
        }
        if let Some(series) = self.series.get_mut(&node.name) {
            series.record(node);
        }
    }

    /// Examines the newest step, if it was not examined yet, and returns whether the list changed.
    pub fn evaluate<'a>(
        &mut self,
        jobs: &[Job],
        nodes: impl Iterator<Item = &'a NodePicture>,
        now_ms: u64,
        wall_ahead_ms: i64,
    ) -> bool {
        let step = now_ms.saturating_sub(SETTLE_MS) / series::STEP_MS;
        if step <= self.examined {
            return false;
        }
        self.examined = step;
        let nodes: BTreeMap<&NodeName, &NodePicture> = nodes.map(|node| (&node.name, node)).collect();
        self.series.retain(|name, _| nodes.contains_key(name));
        let now = Now { relay_ms: now_ms, wall_ahead_ms };
        let scene = Scene::new(jobs, &nodes, &self.series, now);
        let changed = self.tracker.update(detect::all(&scene), now);
        if changed {
            self.list = self.tracker.list();
        }
        changed
    }

    /// Active findings, the worst first, then those that ended within the last hour.
    pub fn list(&self) -> &[Finding] {
        &self.list
    }
}

#[cfg(test)]
mod tests;
