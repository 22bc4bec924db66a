//! Which GPUs of a node belong to a job is answered once, and doubt is never taken for a no.

use crate::health::{Freshness, freshness};
use crate::totals::Totals;
use nodeglass_protocol::job::Job;
use nodeglass_protocol::picture::{Evidence, GpuPicture, NodePicture};
use nodeglass_protocol::{GpuUuid, JobId, NodeName, Picture};
use std::collections::HashSet;

/// Whether a GPU counts as the job's. On a node where it is not known which GPUs are the job's, every GPU does; where it is
/// known that none is, none does.
pub fn is_of_job(node: &NodePicture, gpu: &GpuPicture, job: Option<JobId>) -> bool {
    let Some(job) = job else { return true };
    let has_none = || node.head.without_gpus.binary_search(&job).is_ok();
    owns(gpu, job) || (!has_none() && !node.gpus.iter().any(|gpu| owns(gpu, job)))
}

fn owns(gpu: &GpuPicture, job: JobId) -> bool {
    gpu.owners.iter().any(|owner| owner.job == job)
}

/// Whether a GPU of a node counts for a job: what a part (a MIG instance) uses is used by its GPU, so that a part counts
/// only where the job does not have the whole.
pub fn counts(node: &NodePicture, gpu: &GpuPicture, job: Option<JobId>) -> bool {
    let has =
        |uuid: &GpuUuid| node.gpus.iter().any(|gpu| gpu.facts.uuid == *uuid && is_of_job(node, gpu, job));
    is_of_job(node, gpu, job) && !gpu.facts.mig_parent.as_ref().is_some_and(has)
}

/// The GPUs of a node that count for a job, each once.
pub fn counted(node: &NodePicture, job: Option<JobId>) -> impl Iterator<Item = &GpuPicture> {
    node.gpus.iter().filter(move |gpu| counts(node, gpu, job))
}

/// The GPUs of a node with those of the job first, each group in NVML's order.
pub fn job_first(node: &NodePicture, job: Option<JobId>) -> Vec<usize> {
    let theirs = |index: &usize| is_of_job(node, &node.gpus[*index], job);
    let (mut order, others): (Vec<usize>, Vec<usize>) = (0..node.gpus.len()).partition(theirs);
    order.extend(others);
    order
}

/// Positions of a job's nodes in a picture, in SLURM's order.
pub fn nodes_of(job: &Job, picture: &Picture) -> Vec<usize> {
    let mut next = 0;
    let position = |name: &NodeName| {
        let is = |at: &usize| picture.nodes.get(*at).is_some_and(|node| node.name == *name);
        // They mostly stand in the same order, which saves looking through all of them for each.
        let at = Some(next).filter(is).or_else(|| (0..picture.nodes.len()).find(is))?;
        next = at + 1;
        Some(at)
    };
    job.nodes.iter().filter_map(position).collect()
}

/// What the GPUs of some jobs come to, each once however many of the jobs may have it; those whose values are old are counted
/// and left out.
pub fn together(picture: &Picture, jobs: &HashSet<JobId>, now_ms: u64) -> Totals {
    let mut totals = Totals::default();
    for node in &picture.nodes {
        let here = |job: &&Job| jobs.contains(&job.id) && job.nodes.contains(&node.name);
        let here: Vec<JobId> = picture.jobs.iter().filter(here).map(|job| job.id).collect();
        let old = matches!(freshness(node, now_ms), Freshness::Stale(_) | Freshness::Never);
        for gpu in &node.gpus {
            if here.iter().any(|job| counts(node, gpu, Some(*job))) {
                if old { totals.leave_out() } else { totals.add(gpu) }
            }
        }
    }
    totals
}

/// The model of a job's GPUs, if its nodes told: `A100-SXM4-80GB`; of several models the first, and `…`.
pub fn model_of(job: &Job, picture: &Picture) -> Option<String> {
    let nodes = nodes_of(job, picture);
    let gpus = nodes.iter().flat_map(|node| {
        let node = &picture.nodes[*node];
        node.gpus.iter().filter(|gpu| is_of_job(node, gpu, Some(job.id)))
    });
    let mut names = gpus.filter_map(|gpu| gpu.facts.name.value());
    let first = names.next()?;
    let more = if names.any(|name| name != first) { " …" } else { "" };
    Some(format!("{}{more}", crate::text::model(first.as_str())))
}

/// How it is known that a GPU is a job's, as a sentence.
pub fn evidence(by: Evidence) -> &'static str {
    match by {
        Evidence::GresIndex => "SLURM gave it to the job",
        Evidence::Process => "a process of the job runs on it",
        Evidence::WholeNode => "the job has every GPU of the node",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::picture::Owner;

    fn node(owners: &[Option<u32>]) -> NodePicture {
        let mut node = NodePicture::new(NodeName::new("n1").unwrap());
        node.gpus = owners
            .iter()
            .map(|job| GpuPicture {
                owners: job
                    .map(|job| Owner { job: JobId(job), by: Evidence::GresIndex })
                    .into_iter()
                    .collect(),
                ..GpuPicture::default()
            })
            .collect();
        node
    }

    #[test]
    fn the_jobs_own_gpus_come_first_on_a_shared_node() {
        let node = node(&[Some(8), Some(7), None, Some(7)]);
        assert_eq!(job_first(&node, Some(JobId(7))), [1, 3, 0, 2]);
        assert!(!is_of_job(&node, &node.gpus[0], Some(JobId(7))));
    }

    #[test]
    fn where_nothing_is_known_every_gpu_counts() {
        let node = node(&[None, None]);
        assert!(is_of_job(&node, &node.gpus[1], Some(JobId(7))));
        assert_eq!(job_first(&node, Some(JobId(7))), [0, 1]);
    }

    #[test]
    fn a_job_that_is_known_to_have_no_gpu_counts_none_unless_it_uses_one() {
        let mut node = node(&[None, Some(8)]);
        node.head.without_gpus = vec![JobId(7), JobId(8)];
        assert_eq!(counted(&node, Some(JobId(7))).count(), 0);
        assert!(!is_of_job(&node, &node.gpus[0], Some(JobId(7))));
        // A process of the job on a GPU is seen, whatever SLURM gave it.
        assert_eq!(counted(&node, Some(JobId(8))).count(), 1);
        assert_eq!(counted(&node, Some(JobId(9))).count(), 2, "of another nothing is known");
    }

    #[test]
    fn jobs_that_may_have_the_same_gpus_add_each_of_them_once() {
        use nodeglass_protocol::job::JobState;
        use nodeglass_protocol::picture::Link;
        use nodeglass_protocol::{Cell, GpuField};
        let mut node = node(&[None, None, Some(9)]);
        node.head.link = Link::Live;
        node.head.without_gpus = vec![JobId(8)];
        node.sampled_at_ms = Some(1_000);
        for gpu in &mut node.gpus {
            gpu.row.set(GpuField::Util, Cell::steps(50));
        }
        let job = |id| Job {
            nodes: vec![node.name.clone()],
            ..Job::new(JobId(id), "alice".into(), JobState::Running)
        };
        let jobs = vec![job(6), job(7), job(8), job(9)];
        let picture = Picture { jobs, nodes: vec![node.clone()], ..Picture::default() };
        let of = |ids: &[u32]| together(&picture, &ids.iter().copied().map(JobId).collect(), 1_500).gpus;
        assert_eq!([of(&[9]), of(&[8]), of(&[8, 9]), of(&[6, 7]), of(&[6, 7, 8, 9])], [1, 0, 1, 3, 3]);
        assert_eq!(together(&picture, &HashSet::from([JobId(9)]), 1_500).util_pct(), Some(50));
        assert_eq!(together(&picture, &HashSet::from([JobId(9)]), 90_000).old, 1);
    }

    #[test]
    fn a_part_counts_where_the_job_has_not_the_whole() {
        let mut node = node(&[None, Some(7), Some(8)]);
        node.gpus[0].facts.uuid = GpuUuid::new("whole");
        for part in [1, 2] {
            node.gpus[part].facts.uuid = GpuUuid::new(format!("part-{part}"));
            node.gpus[part].facts.mig_parent = Some(GpuUuid::new("whole"));
        }
        let counted = |job| counted(&node, job).map(|gpu| gpu.facts.uuid.as_str()).collect::<Vec<_>>();
        assert_eq!(counted(None), ["whole"]);
        assert_eq!(counted(Some(JobId(7))), ["part-1"]);
    }

    #[test]
    fn without_a_job_nothing_is_foreign() {
        let node = node(&[Some(8), None]);
        assert!(node.gpus.iter().all(|gpu| is_of_job(&node, gpu, None)));
    }
}
