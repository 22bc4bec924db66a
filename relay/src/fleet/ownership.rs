//! GPU ownership: derived from SLURM's indices and from processes, never from the NVML index.

use nodeglass_protocol::job::{GpuSet, Job};
use nodeglass_protocol::picture::{Evidence, GpuPicture, Owner, ProcessPicture};
use nodeglass_protocol::{JobId, NodeName, Reading};

/// The owners of each GPU of a node, in the order of `gpus`; for each job the strongest evidence only. The node has
/// at least `devices` GPUs, some of which may not be visible.
pub fn owners(
    (node, devices): (&NodeName, usize),
    gpus: &[GpuPicture],
    processes: &[ProcessPicture],
    jobs: &[Job],
) -> Vec<Vec<Owner>> {
    let here: Vec<&Job> = jobs.iter().filter(|job| job.is_active() && job.nodes.contains(node)).collect();
    gpus.iter()
        .map(|gpu| {
            here.iter()
                .filter_map(|job| {
                    Some(Owner { job: job.id, by: evidence((node, devices), gpu, gpus, processes, job)? })
                })
                .collect()
        })
        .collect()
}

/// The active jobs on a node without any of its GPUs, if SLURM states the GPUs of the job per node, or
/// that it has none at all.
pub fn without_gpus(node: &NodeName, jobs: &[Job]) -> Vec<JobId> {
    let has_none = |job: &&Job| match job.gpus_on(node) {
        Some(GpuSet::Indices(indices)) => indices.is_empty(),
        Some(GpuSet::Count(count)) => *count == 0,
        Some(GpuSet::Unknown) | None => job.gpu_count == Some(0),
    };
    let here = jobs.iter().filter(|job| job.is_active() && job.nodes.contains(node));
    let mut without: Vec<JobId> = here.filter(has_none).map(|job| job.id).collect();
    without.sort_unstable();
    without
}

fn evidence(
    (node, devices): (&NodeName, usize),
    gpu: &GpuPicture,
    gpus: &[GpuPicture],
    processes: &[ProcessPicture],
    job: &Job,
) -> Option<Evidence> {
    let set = job.gpus_on(node);
    // What SLURM can allocate: MIG instances, and GPUs without MIG.
    let is_divided =
        |gpu: &GpuPicture| gpus.iter().any(|other| other.facts.mig_parent.as_ref() == Some(&gpu.facts.uuid));
    let devices = devices.max(gpus.iter().filter(|gpu| !is_divided(gpu)).count());
    // On a node with MIG instances a GRES index counts instances, in an order that only SLURM knows.
    let has_mig = gpus.iter().any(|gpu| gpu.facts.mig_parent.is_some());
    if let (Some(GpuSet::Indices(indices)), Reading::Value(minor), false) = (set, &gpu.facts.minor, has_mig)
        && indices.contains(minor)
    {
        return Some(Evidence::GresIndex);
    }
    if processes
        .iter()
        .any(|process| process.facts.gpu == gpu.facts.uuid && process.facts.job == Some(job.id))
    {
        return Some(Evidence::Process);
    }
    let count = match set {
        Some(GpuSet::Indices(indices)) => indices.len(),
        Some(GpuSet::Count(count)) => *count as usize,
        Some(GpuSet::Unknown) | None => 0,
    };
    (devices > 0 && count >= devices).then_some(Evidence::WholeNode)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::scene::{job, name, uuid};
    use nodeglass_protocol::JobId;
    use nodeglass_protocol::job::NodeGpus;
    use nodeglass_protocol::picture::ProcessFacts;
    use nodeglass_protocol::process::ProcessKind;

    #[test]
    fn a_job_without_gpus_differs_from_one_with_unknown_gpus() {
        let with = |id, set: Option<GpuSet>, gpu_count| {
            let mut job = job(id, &[("n1", &[])]);
            job.gpus = set.map(|set| NodeGpus { node: name("n1"), set }).into_iter().collect();
            Job { gpu_count, ..job }
        };
        let jobs = [
            with(7, Some(GpuSet::Indices(vec![])), Some(4)),
            with(6, Some(GpuSet::Count(0)), None),
            with(5, Some(GpuSet::Unknown), Some(0)),
            with(4, Some(GpuSet::Unknown), Some(2)),
            with(3, None, None),
            with(2, Some(GpuSet::Indices(vec![1])), Some(1)),
        ];
        assert_eq!(without_gpus(&name("n1"), &jobs), [JobId(5), JobId(6), JobId(7)]);
        assert!(without_gpus(&name("n2"), &jobs).is_empty());
    }

    /// Two GPUs, of which the first is divided into three instances.
    fn divided() -> Vec<GpuPicture> {
        let card = |index, parent: Option<u32>| {
            let mut gpu = GpuPicture::default();
            gpu.facts.uuid = uuid("n1", index);
            gpu.facts.minor = parent.map_or(Reading::Value(index), |_| Reading::Unsupported);
            gpu.facts.mig_parent = parent.map(|parent| uuid("n1", parent));
            gpu
        };
        vec![card(0, None), card(10, Some(0)), card(11, Some(0)), card(12, Some(0)), card(1, None)]
    }

    fn evidence_of(gpus: &[GpuPicture], processes: &[ProcessPicture], job: Job) -> Vec<Option<Evidence>> {
        let owners = owners((&name("n1"), 0), gpus, processes, &[job]);
        owners.iter().map(|owners| owners.first().map(|owner| owner.by)).collect()
    }

    #[test]
    fn as_many_instances_as_there_are_cards_are_not_the_whole_node() {
        let gpus = divided();
        assert_eq!(evidence_of(&gpus, &[], job(1, &[("n1", &[0, 1])])), [None; 5]);
        let all = evidence_of(&gpus, &[], job(1, &[("n1", &[0, 1, 2, 3])]));
        assert_eq!(all, [Some(Evidence::WholeNode); 5]);
    }

    #[test]
    fn an_instance_belongs_to_the_job_whose_process_is_on_it() {
        let kind = ProcessKind { compute: true, ..Default::default() };
        let facts = ProcessFacts { job: Some(JobId(1)), ..ProcessFacts::new(uuid("n1", 11), 7, kind) };
        let process = ProcessPicture { facts, row: Default::default() };
        let found = evidence_of(&divided(), &[process], job(1, &[("n1", &[0])]));
        assert_eq!(found, [None, None, Some(Evidence::Process), None, None]);
    }

    #[test]
    fn the_visible_gpus_of_a_confined_node_are_not_the_whole_node() {
        let gpus = &divided()[4..];
        let count = |devices| {
            let owners = owners((&name("n1"), devices), gpus, &[], &[job(1, &[("n1", &[0])])]);
            owners[0].len()
        };
        assert_eq!((count(0), count(4)), (1, 0));
    }

    #[test]
    fn a_job_of_which_nothing_is_known_owns_nothing() {
        let mut unknown = job(1, &[("n1", &[])]);
        unknown.gpus[0].set = GpuSet::Unknown;
        assert_eq!(evidence_of(&divided()[4..], &[], unknown), [None]);
    }
}
