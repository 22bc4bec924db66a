//! Bounds of the jobs and nodes that other relays publish, so that a hostile one takes neither memory nor CPU time without end; pure.

use nodeglass_protocol::NodeName;
use nodeglass_protocol::job::{GpuSet, Job, TimeLimit};
use std::collections::BTreeSet;

/// Maximum number of nodes of a cluster that are shown.
const MAX_SHOWN_NODES: usize = 16_384;
/// Maximum number of GPU indices of a job on a node.
const MAX_INDICES: usize = 512;
/// Maximum number of nodes, CPUs, GPUs or restarts of a job: sums over all jobs fit into 64 bits, and over some into 32.
const MAX_COUNT: u32 = 1 << 20;
/// Maximum amount of memory of a job, in bytes.
const MAX_MEM: u64 = 1 << 53;
/// The last second of the year 9999, and the longest time limit.
const MAX_S: i64 = 253_402_300_799;

/// Returns the job with the closest possible values in place of those that no SLURM reports.
pub(crate) fn clamped(mut job: Job) -> Job {
    for time in [&mut job.submitted, &mut job.start, &mut job.ended].into_iter().flatten() {
        *time = (*time).clamp(0, MAX_S);
    }
    if let TimeLimit::Seconds(seconds) = &mut job.limit {
        *seconds = (*seconds).min(MAX_S as u64);
    }
    job.mem_bytes = job.mem_bytes.map(|bytes| bytes.min(MAX_MEM));
    let counts =
        [Some(&mut job.node_count), job.cpus.as_mut(), job.gpu_count.as_mut(), Some(&mut job.restarts)];
    counts.into_iter().flatten().for_each(|count| *count = (*count).min(MAX_COUNT));
    job.nodes.truncate(MAX_SHOWN_NODES);
    job.gpus.truncate(MAX_SHOWN_NODES);
    for gpus in &mut job.gpus {
        match &mut gpus.set {
            GpuSet::Indices(indices) => indices.truncate(MAX_INDICES),
            GpuSet::Count(count) => *count = (*count).min(MAX_INDICES as u32),
            GpuSet::Unknown => {}
        }
    }
    job
}

/// The memory that a job takes, in bytes, without short texts that are usually empty.
pub(crate) fn weight(job: &Job) -> usize {
    let paths = [&job.workdir, &job.command, &job.stdout, &job.stderr, &job.reason_text];
    let paths: usize = paths.into_iter().flatten().map(|text| text.as_str().len()).sum();
    let names = [&job.label, &job.name, &job.user, &job.partition];
    let names: usize = names.map(|text| text.as_str().len()).iter().sum();
    let nodes = job.nodes.iter().chain(job.gpus.iter().map(|gpus| &gpus.node));
    let nodes: usize = nodes.map(|node| size_of::<NodeName>() + node.as_str().len()).sum();
    size_of::<Job>()
        + paths
        + names
        + nodes
        + job.gpus.iter().map(|gpus| set_weight(&gpus.set)).sum::<usize>()
}

fn set_weight(set: &GpuSet) -> usize {
    match set {
        GpuSet::Indices(indices) => size_of::<GpuSet>() + size_of_val(&indices[..]),
        GpuSet::Count(_) | GpuSet::Unknown => size_of::<GpuSet>(),
    }
}

/// The nodes of a cluster that are shown: the first [`MAX_SHOWN_NODES`].
#[derive(Debug, Default)]
pub(crate) struct ShownNodes(BTreeSet<NodeName>);

impl ShownNodes {
    /// Returns whether a node is shown.
    pub(crate) fn admit(&mut self, node: &NodeName) -> bool {
        self.0.contains(node) || self.0.len() < MAX_SHOWN_NODES && self.0.insert(node.clone())
    }

    pub(crate) fn contains(&self, node: &NodeName) -> bool {
        self.0.contains(node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::JobId;
    use nodeglass_protocol::job::{JobState, NodeGpus};

    #[test]
    fn what_no_slurm_reports_is_clamped() {
        let node = NodeName::new("n1").unwrap();
        let gpus = |set| NodeGpus { node: node.clone(), set };
        let job = clamped(Job {
            submitted: Some(i64::MIN),
            start: Some(-1),
            ended: Some(i64::MAX),
            limit: TimeLimit::Seconds(u64::MAX),
            node_count: u32::MAX,
            cpus: Some(u32::MAX),
            mem_bytes: Some(u64::MAX),
            gpus: vec![gpus(GpuSet::Count(u32::MAX)), gpus(GpuSet::Indices(vec![7; 100_000]))],
            nodes: vec![node.clone(); 100_000],
            ..Job::new(JobId(1), "mallory".into(), JobState::Running)
        });
        assert_eq!((job.submitted, job.start, job.ended), (Some(0), Some(0), Some(MAX_S)));
        assert_eq!(job.limit, TimeLimit::Seconds(MAX_S as u64));
        assert_eq!((job.node_count, job.cpus, job.mem_bytes), (MAX_COUNT, Some(MAX_COUNT), Some(MAX_MEM)));
        assert_eq!(job.gpus[0].set, GpuSet::Count(MAX_INDICES as u32));
        let GpuSet::Indices(indices) = &job.gpus[1].set else { panic!() };
        assert_eq!((indices.len(), job.nodes.len()), (MAX_INDICES, MAX_SHOWN_NODES));
    }

    #[test]
    fn nodes_beyond_the_maximum_are_not_shown() {
        let mut shown = ShownNodes::default();
        let node = |number: usize| NodeName::new(format!("n{number}")).unwrap();
        let admitted = (0..2 * MAX_SHOWN_NODES).filter(|number| shown.admit(&node(*number))).count();
        assert_eq!(admitted, MAX_SHOWN_NODES);
        assert!(shown.admit(&node(0)) && !shown.contains(&node(MAX_SHOWN_NODES)));
    }
}
