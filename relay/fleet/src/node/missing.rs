//! GPUs of jobs that the driver does not list: it lost them before the relay saw the node, or while it was reloaded.

use super::{NOT_LISTED, Node};
use crate::changes::NodeChanges;
use nodeglass_protocol::gpu::GpuFacts;
use nodeglass_protocol::job::{GpuSet, Job, JobState};
use nodeglass_protocol::picture::{GpuPicture, NodePicture};
use nodeglass_protocol::{GpuUuid, Reading, Vendor};
use std::collections::BTreeSet;

/// Maximum number of missing GPUs of a node.
const MAX_MISSING: usize = 64;

impl Node {
    /// Adds the missing GPUs of jobs after the others, each with a fault.
    pub(super) fn add_missing_gpus(&mut self, jobs: &[Job], changes: &mut NodeChanges) {
        // Before the first list, no process can contradict.
        if self.confined.is_some() || self.list_ns == 0 {
            return;
        }
        for minor in missing(&self.picture, jobs).into_iter().take(MAX_MISSING) {
            let gpus = &self.picture.gpus;
            let is_it = |facts: &&GpuFacts| {
                facts.minor.value() == Some(&minor) && gpus.iter().all(|gpu| gpu.facts.uuid != facts.uuid)
            };
            let unknown = || GpuFacts {
                minor: Reading::Value(minor),
                vendor: Vendor::Nvidia,
                ..GpuFacts::new(GpuUuid::new(format!("LOST-{minor}")), minor)
            };
            let facts = self.unloaded.iter().find(is_it).cloned().unwrap_or_else(unknown);
            self.picture.gpus.push(GpuPicture {
                facts,
                fault: Some(NOT_LISTED.into()),
                ..GpuPicture::default()
            });
            if let Some(history) = &mut self.picture.history {
                history.gpus.push(Default::default());
            }
            changes.gpus = true;
            changes.history = true;
        }
    }
}

/// Returns the minor numbers of GPUs that SLURM gave to jobs and the driver does not list, where its indices are certain to
/// be minor numbers: other GPUs of the job are found by them, and no process of a job uses a GPU that is not the job's.
fn missing(node: &NodePicture, jobs: &[Job]) -> BTreeSet<u32> {
    let minor = |gpu: &GpuPicture| match (&gpu.facts.minor, gpu.facts.vendor, &gpu.facts.mig_parent) {
        (Reading::Value(minor), Vendor::Nvidia, None) => Some(*minor),
        _ => None,
    };
    let Some(listed) = node.gpus.iter().map(minor).collect::<Option<BTreeSet<u32>>>() else {
        return BTreeSet::new();
    };
    let indices = |job: &Job| match job.gpus_on(&node.name) {
        Some(GpuSet::Indices(indices)) => indices.clone(),
        _ => Vec::new(),
    };
    let is_running = |job: &&Job| job.state == JobState::Running && job.nodes.contains(&node.name);
    let running: Vec<_> = jobs.iter().filter(is_running).map(|job| (job.id, indices(job))).collect();
    let contradicts = node.processes.iter().any(|process| {
        let gpu = node.gpus.iter().find(|gpu| gpu.facts.uuid == process.facts.gpu);
        let of = running.iter().find(|(job, _)| Some(*job) == process.facts.job);
        gpu.and_then(minor).zip(of).is_some_and(|(minor, (_, indices))| !indices.contains(&minor))
    });
    if contradicts {
        return BTreeSet::new();
    }
    let is_known = |(_, indices): &&(_, Vec<u32>)| indices.iter().any(|index| listed.contains(index));
    let stated = running.iter().filter(is_known).flat_map(|(_, indices)| indices).copied();
    stated.filter(|index| !listed.contains(index)).collect()
}
