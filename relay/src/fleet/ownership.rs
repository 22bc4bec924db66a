//! Whose a GPU is follows from SLURM's indices and from the processes on it, never from the NVML index.

use nodeglass_protocol::job::{GpuSet, Job};
use nodeglass_protocol::picture::{Evidence, GpuPicture, Owner, ProcessPicture};
use nodeglass_protocol::{NodeName, Reading};

/// The owners of each GPU of a node, in the order of `gpus`; for each job the surest evidence only.
pub fn owners(
    node: &NodeName,
    gpus: &[GpuPicture],
    processes: &[ProcessPicture],
    jobs: &[Job],
) -> Vec<Vec<Owner>> {
    let here: Vec<&Job> = jobs.iter().filter(|job| job.is_active() && job.nodes.contains(node)).collect();
    gpus.iter()
        .map(|gpu| {
            here.iter()
                .filter_map(|job| Some(Owner { job: job.id, by: evidence(node, gpu, gpus, processes, job)? }))
                .collect()
        })
        .collect()
}

fn evidence(
    node: &NodeName,
    gpu: &GpuPicture,
    gpus: &[GpuPicture],
    processes: &[ProcessPicture],
    job: &Job,
) -> Option<Evidence> {
    let set = job.gpus_on(node);
    let physical = gpus.iter().filter(|gpu| gpu.facts.mig_parent.is_none()).count();
    // On a node with MIG instances a GRES index counts instances, in an order that only SLURM knows.
    let has_mig = physical != gpus.len();
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
    (physical > 0 && count >= physical).then_some(Evidence::WholeNode)
}
