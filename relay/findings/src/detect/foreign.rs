//! Processes of a job on GPUs that SLURM has not allocated to it.

use super::outside::{computes, detection, users};
use crate::input::DetectorInput;
use crate::tracker::{Detection, Detections};
use nodeglass_protocol::JobId;
use nodeglass_protocol::finding::FindingKind;
use nodeglass_protocol::job::{Job, Parent};
use nodeglass_protocol::picture::{GpuPicture, NodePicture};
use nodeglass_rules::ownership::is_by_slurm;

pub(super) fn detect(input: &DetectorInput<'_>, found: &mut Detections) {
    for node in input.nodes.values() {
        for job in input.jobs_on(node) {
            match input.is_current(node) {
                true => found.seen.extend(of_job(input, node, job)),
                false => found.unknown(&[FindingKind::OutsideJob], &subject(node, job)),
            }
        }
    }
}

/// The processes of a job on GPUs of a node that are not its own, where SLURM states which these are.
fn of_job(input: &DetectorInput<'_>, node: &NodePicture, job: &Job) -> Option<Detection> {
    let mut own = node.gpus.iter().flat_map(|gpu| &gpu.owners).filter(|owner| owner.job == job.id);
    own.find(|owner| is_by_slurm(owner.by))?;
    let is_of_job =
        |id: JobId| id == job.id || input.jobs.iter().any(|other| other.id == id && is_same(other, job));
    let is_foreign = |gpu: &GpuPicture| !gpu.owners.iter().any(|owner| is_of_job(owner.job));
    let users = users(node, is_foreign, |process| process.facts.job == Some(job.id) && computes(process));
    let detection = detection(input, node, &users, "which SLURM has not allocated to it")?;
    Some(Detection {
        subject: subject(node, job),
        jobs: vec![job.id],
        reason: "process on a GPU that is not the job's".to_owned(),
        advice: Some(
            "Use the GPUs that SLURM names in CUDA_VISIBLE_DEVICES, and do not change it".to_owned(),
        ),
        ..detection
    })
}

/// Returns whether two jobs are components of one heterogeneous job, whose processes may be counted as the leader's.
fn is_same(one: &Job, other: &Job) -> bool {
    let leader = |job: &Job| match job.part_of {
        Some(Parent::Het { job, .. }) => Some(job),
        Some(Parent::Array { .. }) | None => None,
    };
    leader(one).is_some() && leader(one) == leader(other)
}

fn subject(node: &NodePicture, job: &Job) -> String {
    format!("foreign/{}/{}", job.id, node.name)
}
