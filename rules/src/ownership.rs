//! Ownership of a node's GPUs by jobs. Unknown ownership never counts as not owned.

use crate::health::is_stale;
use crate::totals::Totals;
use nodeglass_protocol::job::{GpuSet, Job};
use nodeglass_protocol::picture::{Evidence, GpuPicture, NodePicture, ProcessPicture};
use nodeglass_protocol::{GpuUuid, JobId, NodeName, Picture, ProcessField};
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

/// Returns whether a GPU counts as the job's. If it is unknown which GPUs of the node the job has, every GPU
/// counts that SLURM has not allocated to another job; if it is known that the job has none, none does.
pub fn belongs_to_job(node: &NodePicture, gpu: &GpuPicture, job: Option<JobId>) -> bool {
    let Some(job) = job else { return true };
    let has_none = || node.head.without_gpus.binary_search(&job).is_ok();
    let is_of_other = || gpu.owners.iter().any(|owner| owner.by == Evidence::GresIndex);
    gpu.is_owned_by(job)
        || (!has_none() && !node.gpus.iter().any(|gpu| gpu.is_owned_by(job)) && !is_of_other())
}

/// Returns whether evidence is a statement of SLURM, which no program of a user can bring about.
pub fn is_by_slurm(by: Evidence) -> bool {
    matches!(by, Evidence::GresIndex | Evidence::DeviceCgroup | Evidence::WholeNode)
}

/// Returns whether a job has all CPUs of all its nodes, whose numbers of CPUs the probes state: readings of these hosts tell
/// nothing about other jobs.
pub fn has_every_cpu(job: &Job, cpus_of_nodes: impl Iterator<Item = Option<u32>>) -> bool {
    let there: Option<u64> = cpus_of_nodes.map(|cpus| cpus.filter(|cpus| *cpus > 0).map(u64::from)).sum();
    there.zip(job.cpus).is_some_and(|(there, has)| u64::from(has) >= there)
}

/// Returns whether a job has a GPU or one of its MIG instances, whose work it slows down as well.
pub fn has_part(node: &NodePicture, gpu: &GpuPicture, job: JobId) -> bool {
    let is_part = |part: &&GpuPicture| part.facts.mig_parent.as_ref() == Some(&gpu.facts.uuid);
    let mut parts = node.gpus.iter().filter(is_part).peekable();
    match parts.peek() {
        Some(_) => parts.any(|part| belongs_to_job(node, part, Some(job))),
        None => belongs_to_job(node, gpu, Some(job)),
    }
}

/// Returns whether SLURM states that a job has GPUs on a node. Those of a job of a single node are there; of a job of
/// several nodes, of which only the number of all GPUs is known, every node counts.
pub fn has_gpus_on(job: &Job, node: &NodeName) -> bool {
    match job.gpus_on(node) {
        Some(GpuSet::Indices(indices)) => !indices.is_empty(),
        Some(GpuSet::Count(count)) => *count > 0,
        Some(GpuSet::Unknown) | None => {
            let is_certain = job.gpus.is_empty() || job.nodes.len() == 1;
            is_certain && job.gpu_count.is_some_and(|count| count > 0)
        }
    }
}

/// Returns whether it is an instance of a GPU that cannot be read, which is one problem, not several.
pub fn is_part_of_lost(node: &NodePicture, gpu: &GpuPicture) -> bool {
    let parent = |whole: &&GpuPicture| gpu.facts.mig_parent.as_ref() == Some(&whole.facts.uuid);
    node.gpus.iter().find(parent).is_some_and(|whole| whole.fault.is_some())
}

/// Returns whether a GPU counts in the job's sums. A MIG instance counts only if the job does not have the whole GPU,
/// whose readings include its instances.
pub fn counts(node: &NodePicture, gpu: &GpuPicture, job: Option<JobId>) -> bool {
    let has = |uuid: &GpuUuid| {
        node.gpus.iter().any(|gpu| gpu.facts.uuid == *uuid && belongs_to_job(node, gpu, job))
    };
    belongs_to_job(node, gpu, job) && !gpu.facts.mig_parent.as_ref().is_some_and(has)
}

/// Returns whether it is a whole GPU of at most one job: an instance, a GPU that is divided, and a shared one do not show what
/// one job does.
pub fn is_whole(node: &NodePicture, gpu: &GpuPicture) -> bool {
    let is_part = |part: &GpuPicture| part.facts.mig_parent.as_ref() == Some(&gpu.facts.uuid);
    let is_divided =
        gpu.facts.mig.is_some() || gpu.facts.mig_parent.is_some() || node.gpus.iter().any(is_part);
    !is_divided && gpu.owners.len() <= 1
}

/// Returns the GPUs of a node that count for a job, each once.
pub fn counting_gpus(node: &NodePicture, job: Option<JobId>) -> impl Iterator<Item = &GpuPicture> {
    node.gpus.iter().filter(move |gpu| counts(node, gpu, job))
}

/// Adds the GPUs of a node that count for a job to totals; if the node's values are stale, they are left out.
pub fn add_to_totals(totals: &mut Totals, node: &NodePicture, job: Option<JobId>, is_stale: bool) {
    let gpus = counting_gpus(node, job);
    if is_stale { totals.leave_out(gpus.count()) } else { gpus.for_each(|gpu| totals.add(gpu)) }
}

/// Returns the indices of a node's GPUs, the job's first, each group in NVML's order.
pub fn job_gpus_first(node: &NodePicture, job: Option<JobId>) -> Vec<usize> {
    let theirs = |index: &usize| belongs_to_job(node, &node.gpus[*index], job);
    let (mut order, others): (Vec<usize>, Vec<usize>) = (0..node.gpus.len()).partition(theirs);
    order.extend(others);
    order
}

/// Returns the positions of a job's nodes in a picture, in SLURM's order.
pub fn job_nodes(job: &Job, picture: &Picture) -> Vec<usize> {
    let mut next = 0;
    let position = |name: &NodeName| {
        let is = |at: &usize| picture.nodes.get(*at).is_some_and(|node| node.name == *name);
        // The order is mostly equal, which avoids a search for each node.
        let at = Some(next).filter(is).or_else(|| (0..picture.nodes.len()).find(is))?;
        next = at + 1;
        Some(at)
    };
    job.nodes.iter().filter_map(position).collect()
}

/// Returns the totals over the GPUs of some jobs, counting a GPU that several jobs share once. GPUs with stale
/// values, and GPUs of nodes without a sample, are counted but excluded from the sums.
pub fn combined_totals(picture: &Picture, jobs: &HashSet<JobId>, now_ms: u64) -> Totals {
    let listed = || picture.jobs.iter().filter(|job| jobs.contains(&job.id));
    let mut by_node: HashMap<&NodeName, Vec<JobId>> = HashMap::new();
    for job in listed() {
        job.nodes.iter().for_each(|name| by_node.entry(name).or_default().push(job.id));
    }
    let mut totals = Totals::default();
    for node in &picture.nodes {
        let Some(here) = by_node.get(&node.name) else { continue };
        let is_stale = is_stale(node, now_ms);
        for gpu in &node.gpus {
            if here.iter().any(|job| counts(node, gpu, Some(*job))) {
                if is_stale { totals.leave_out(1) } else { totals.add(gpu) }
            }
        }
    }
    for job in listed() {
        let mut read = ReadNodes::default();
        job_nodes(job, picture).into_iter().for_each(|at| read.add(&picture.nodes[at], job.id));
        totals.leave_out(read.unread_gpus(job));
    }
    totals
}

/// Returns the totals over the GPUs of a job, given its nodes. GPUs with stale values, and GPUs of nodes without a sample,
/// are counted but excluded from the sums.
pub fn job_totals<'a>(job: &Job, nodes: impl Iterator<Item = &'a NodePicture>, now_ms: u64) -> Totals {
    let (mut totals, mut read) = (Totals::default(), ReadNodes::default());
    for node in nodes {
        add_to_totals(&mut totals, node, Some(job.id), is_stale(node, now_ms));
        read.add(node, job.id);
    }
    totals.leave_out(read.unread_gpus(job));
    totals
}

/// The nodes of a job that were read.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadNodes {
    nodes: usize,
    gpus: usize,
}

impl ReadNodes {
    /// Adds a node of a job, if it was read.
    pub fn add(&mut self, node: &NodePicture, job: JobId) {
        if node.head.facts.is_some() || !node.gpus.is_empty() {
            self.nodes += 1;
            self.gpus += counting_gpus(node, Some(job)).count();
        }
    }

    /// Returns how many GPUs of the job, as SLURM states their number, are on nodes that were not read yet.
    pub fn unread_gpus(&self, job: &Job) -> usize {
        match job.gpu_count {
            Some(all) if self.nodes < job.nodes.len() => (all as usize).saturating_sub(self.gpus),
            _ => 0,
        }
    }
}

/// Maximum number of models that are listed.
const LISTED_MODELS: usize = 4;

/// Returns the models of a job's GPUs behind their number, if known: ` × A100-SXM4-80GB`, or the number of each
/// model: `: 2 × H100, 4 × TPU v5e`.
pub fn gpu_models(job: &Job, picture: &Picture) -> Option<String> {
    let nodes = job_nodes(job, picture);
    let gpus = nodes.iter().flat_map(|node| {
        let node = &picture.nodes[*node];
        node.gpus.iter().filter(|gpu| belongs_to_job(node, gpu, Some(job.id)))
    });
    let mut models: Vec<(&str, usize)> = Vec::new();
    for name in gpus.filter_map(|gpu| gpu.facts.name.value()) {
        match models.iter_mut().find(|(model, _)| *model == name.as_str()) {
            Some((_, count)) => *count += 1,
            None => models.push((name.as_str(), 1)),
        }
    }
    match &models[..] {
        [] => None,
        [(model, _)] => Some(format!(" × {}", crate::text::model(model))),
        several => {
            let listed = several.iter().take(LISTED_MODELS);
            let listed = listed.map(|(model, count)| format!("{count} × {}", crate::text::model(model)));
            let more = if several.len() > LISTED_MODELS { ", …" } else { "" };
            Some(format!(": {}{more}", listed.collect::<Vec<_>>().join(", ")))
        }
    }
}

/// Returns the global ranks of the programs on a GPU, each once, the lowest first. Processes of jobs that do not own the GPU are
/// left out.
pub fn ranks(node: &NodePicture, gpu: &GpuUuid) -> Vec<u32> {
    let owners =
        node.gpus.iter().find(|known| known.facts.uuid == *gpu).map_or(&[][..], |known| &known.owners);
    let is_owner = |job: JobId| owners.is_empty() || owners.iter().any(|owner| owner.job == job);
    let is_own = |process: &&ProcessPicture| process.facts.job.is_none_or(is_owner);
    let mut ranks: Vec<u32> = Vec::new();
    for process in node.processes.iter().filter(|process| process.facts.gpu == *gpu).filter(is_own) {
        if let Some(rank) = process.facts.rank
            && let Err(at) = ranks.binary_search(&rank.global)
        {
            ranks.insert(at, rank.global);
        }
    }
    ranks
}

/// Returns the process that holds the most memory of a GPU; of several without a reading, the first.
pub fn main_process<'a>(node: &'a NodePicture, gpu: &GpuUuid) -> Option<&'a ProcessPicture> {
    let held = |process: &&ProcessPicture| Reverse(process.row.value(ProcessField::GpuMem).unwrap_or(0));
    node.processes.iter().filter(|process| process.facts.gpu == *gpu).min_by_key(held)
}

/// Returns how the ownership of a GPU is known, as a sentence.
pub fn evidence_text(by: Evidence) -> &'static str {
    match by {
        Evidence::GresIndex => "allocated by SLURM",
        Evidence::Process => "a process of the job runs on it",
        Evidence::DeviceCgroup => "the job's processes may open it",
        Evidence::VisibleDevices => "the environment of the job's processes names it",
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
        assert_eq!(job_gpus_first(&node, Some(JobId(7))), [1, 3, 0, 2]);
        assert!(!belongs_to_job(&node, &node.gpus[0], Some(JobId(7))));
    }

    #[test]
    fn every_gpu_counts_where_ownership_is_unknown() {
        let node = node(&[None, None]);
        assert!(belongs_to_job(&node, &node.gpus[1], Some(JobId(7))));
        assert_eq!(job_gpus_first(&node, Some(JobId(7))), [0, 1]);
        let shared = self::node(&[None, Some(8)]);
        assert_eq!(counting_gpus(&shared, Some(JobId(7))).count(), 1, "SLURM allocated one to another job");
    }

    #[test]
    fn a_job_known_to_have_no_gpu_counts_none_unless_it_uses_one() {
        let mut node = node(&[None, Some(8)]);
        node.head.without_gpus = vec![JobId(7), JobId(8)];
        assert_eq!(counting_gpus(&node, Some(JobId(7))).count(), 0);
        assert!(!belongs_to_job(&node, &node.gpus[0], Some(JobId(7))));
        // A process of the job on a GPU is evidence, whatever SLURM allocated.
        assert_eq!(counting_gpus(&node, Some(JobId(8))).count(), 1);
        assert_eq!(counting_gpus(&node, Some(JobId(9))).count(), 1, "nothing is known of the other job");
    }

    #[test]
    fn gpus_shared_by_several_jobs_count_once() {
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
        let of =
            |ids: &[u32]| combined_totals(&picture, &ids.iter().copied().map(JobId).collect(), 1_500).gpus;
        assert_eq!([of(&[9]), of(&[8]), of(&[8, 9]), of(&[6, 7]), of(&[6, 7, 8, 9])], [1, 0, 1, 2, 3]);
        assert_eq!(combined_totals(&picture, &HashSet::from([JobId(9)]), 1_500).util_pct(), Some(50));
        assert_eq!(combined_totals(&picture, &HashSet::from([JobId(9)]), 90_000).excluded, 1);
    }

    #[test]
    fn gpus_of_nodes_that_were_not_read_yet_count_as_slurm_states_them() {
        use nodeglass_protocol::job::JobState;
        use nodeglass_protocol::picture::NodeFacts;
        let mut read = node(&[Some(7), Some(7)]);
        read.head.facts = Some(NodeFacts::default());
        let mut unread = NodePicture::new(NodeName::new("n2").unwrap());
        let mut job = Job::new(JobId(7), "alice".into(), JobState::Running);
        job.nodes = ["n1", "n2", "n3"].map(|name| NodeName::new(name).unwrap()).to_vec();
        let totals = |job: &Job, nodes: Vec<NodePicture>| {
            let picture = Picture { jobs: vec![job.clone()], nodes, ..Picture::default() };
            let totals = combined_totals(&picture, &HashSet::from([JobId(7)]), 1_500);
            totals.gpus
        };
        let nodes = vec![read.clone(), unread.clone()];
        assert_eq!(totals(&job, nodes.clone()), 2, "SLURM does not state how many it has");
        job.gpu_count = Some(6);
        assert_eq!(totals(&job, nodes), 6);
        let sampled = NodePicture { head: unread.head.clone(), ..read.clone() };
        assert_eq!(totals(&job, vec![sampled, unread.clone()]), 6, "samples may precede facts");
        unread.head.facts = Some(NodeFacts::default());
        job.nodes.pop();
        assert_eq!(totals(&job, vec![read, unread]), 2, "what was read is known better");
    }

    #[test]
    fn an_absurd_number_of_gpus_is_not_counted_one_by_one() {
        use nodeglass_protocol::job::JobState;
        let job = |id| {
            let mut job = Job::new(JobId(id), "alice".into(), JobState::Running);
            (job.nodes, job.gpu_count) = (vec![NodeName::new("n1").unwrap()], Some(u32::MAX));
            job
        };
        let picture = Picture { jobs: (0..4_000).map(job).collect(), ..Picture::default() };
        let totals = combined_totals(&picture, &(0..4_000).map(JobId).collect(), 1_500);
        assert_eq!(totals.gpus, (u32::MAX as usize).saturating_mul(4_000));
    }

    #[test]
    fn an_instance_counts_where_the_job_does_not_have_the_whole_gpu() {
        let mut node = node(&[None, Some(7), Some(8)]);
        node.gpus[0].facts.uuid = GpuUuid::new("whole");
        for part in [1, 2] {
            node.gpus[part].facts.uuid = GpuUuid::new(format!("part-{part}"));
            node.gpus[part].facts.mig_parent = Some(GpuUuid::new("whole"));
        }
        let counting_gpus =
            |job| counting_gpus(&node, job).map(|gpu| gpu.facts.uuid.as_str()).collect::<Vec<_>>();
        assert_eq!(counting_gpus(None), ["whole"]);
        assert_eq!(counting_gpus(Some(JobId(7))), ["part-1"]);
    }

    #[test]
    fn without_a_job_no_gpu_is_foreign() {
        let node = node(&[Some(8), None]);
        assert!(node.gpus.iter().all(|gpu| belongs_to_job(&node, gpu, None)));
    }
}
