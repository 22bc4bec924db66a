//! GPU ownership: derived from SLURM's indices, device cgroups, processes and their environments, never from the NVML
//! index.

use super::visible_devices::{self, GpuLayout};
use nodeglass_protocol::job::{GpuSet, Job};
use nodeglass_protocol::picture::{Evidence, GpuPicture, Owner, ProcessPicture};
use nodeglass_protocol::probe::{Confinement, JobDevices};
use nodeglass_protocol::{GpuUuid, JobId, NodeName, Reading};
use nodeglass_rules::ownership::{has_gpus_on, is_by_slurm};
use std::collections::HashSet;

/// A node whose GPUs are attributed.
#[derive(Debug)]
pub struct AttributedNode<'a> {
    /// Its name.
    pub name: &'a NodeName,
    /// If not all of its GPUs are visible.
    pub confinement: Option<&'a Confinement>,
    /// The job whose probe sees the GPU at each position, if probes are confined to the GPUs of one job.
    pub seen_by: Vec<Option<JobId>>,
    /// Devices that the processes of jobs may see by their environments.
    pub job_devices: &'a [JobDevices],
}

impl AttributedNode<'_> {
    /// Returns whether some GPUs are divided into MIG instances, and the minimum number of devices, counting
    /// invisible ones.
    fn invisible(&self) -> (bool, usize) {
        let Some(Confinement { gpus, instances, .. }) = self.confinement else { return (false, 0) };
        (instances.devices > 0, gpus.devices as usize + instances.devices as usize)
    }
}

/// The owners of each GPU of a node, in the order of `gpus`; for each job the strongest evidence only. A GPU that a job
/// uses, although SLURM states others as all of its own, or this one as another job's, is not one of its GPUs.
pub fn owners(
    view: &AttributedNode<'_>,
    gpus: &[GpuPicture],
    processes: &[ProcessPicture],
    jobs: &[Job],
) -> Vec<Vec<Owner>> {
    let is_here = |job: &&Job| job.is_active() && job.nodes.contains(view.name);
    let here: Vec<&Job> = jobs.iter().filter(is_here).collect();
    let (has_invisible_mig, invisible) = view.invisible();
    // On a node with MIG instances a GRES index counts instances, in an order that only SLURM knows.
    let has_mig = has_invisible_mig || gpus.iter().any(|gpu| gpu.facts.mig_parent.is_some());
    let divided = visible_devices::divided(gpus);
    let is_partial = view.confinement.is_some();
    let node = GpuLayout { name: view.name, gpus, divided: &divided, has_mig, is_partial };

    let of_slurm = |position: usize, job: &Job| allocation(view, node, position, job);
    let is_owner = |position: usize| {
        let owners = here.iter().filter(move |job| of_slurm(position, job).is_some());
        owners.map(|job| job.id).collect()
    };
    let allocated: Vec<Vec<JobId>> = (0..gpus.len()).map(is_owner).collect();
    // SLURM has stated all GPUs of these jobs on the node. What else their processes use is not theirs.
    let has_stated_all = |job: &&&Job| {
        let known = allocated.iter().filter(|owners| owners.contains(&job.id)).count();
        let stated = count(view.name, job);
        stated > 0 && known >= stated
    };
    let stated: HashSet<JobId> = here.iter().filter(has_stated_all).map(|job| job.id).collect();
    let claims = visible_devices::claims(node, view.job_devices, &here, &allocated);

    // What SLURM can allocate: MIG instances, and GPUs without MIG.
    let devices = (0..gpus.len()).filter(|position| !node.is_divided(*position)).count().max(invisible);
    // Once, as a hostile node may list as many GPUs and processes as it is allowed to, and change them all the time.
    let uses: HashSet<(&GpuUuid, JobId)> =
        processes.iter().filter_map(|process| Some((&process.facts.gpu, process.facts.job?))).collect();
    let evidence = |position: usize, job: &Job| {
        let is_used = || uses.contains(&(&gpus[position].facts.uuid, job.id));
        if stated.contains(&job.id) {
            return of_slurm(position, job);
        }
        let has_all = || devices > 0 && count(view.name, job) >= devices;
        let is_claimed = || claims.get(&job.id).is_some_and(|claim| claim.contains(&position));
        of_slurm(position, job)
            .or_else(|| is_used().then_some(Evidence::Process))
            .or_else(|| has_all().then_some(Evidence::WholeNode))
            .or_else(|| is_claimed().then_some(Evidence::VisibleDevices))
    };
    let owner = |position, job: &Job| Some(Owner { job: job.id, by: evidence(position, job)? });
    let without_own: HashSet<JobId> =
        here.iter().filter(|job| !has_gpus_on(job, view.name)).map(|job| job.id).collect();
    let owners_of = |position| {
        let mut owners: Vec<Owner> = here.iter().filter_map(|job| owner(position, job)).collect();
        let rank = |owner: &Owner| (is_by_slurm(owner.by), !without_own.contains(&owner.job));
        let best = owners.iter().map(rank).max();
        owners.retain(|owner| is_by_slurm(owner.by) || Some(rank(owner)) == best);
        owners
    };
    (0..gpus.len()).map(owners_of).collect()
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

/// The evidence that SLURM allocated a GPU to a job.
fn allocation(
    view: &AttributedNode<'_>,
    node: GpuLayout<'_>,
    position: usize,
    job: &Job,
) -> Option<Evidence> {
    let minor = &node.gpus[position].facts.minor;
    if let (Some(GpuSet::Indices(indices)), Reading::Value(minor), false) =
        (job.gpus_on(node.name), minor, node.has_mig)
        && indices.contains(minor)
    {
        return Some(Evidence::GresIndex);
    }
    let is_seen = view.seen_by.get(position) == Some(&Some(job.id)) && !node.is_divided(position);
    is_seen.then_some(Evidence::DeviceCgroup)
}

/// Returns the minimum number of GPUs and MIG instances of a job on a node.
fn count(node: &NodeName, job: &Job) -> usize {
    match job.gpus_on(node) {
        Some(GpuSet::Indices(indices)) => indices.len(),
        Some(GpuSet::Count(count)) => *count as usize,
        Some(GpuSet::Unknown) | None => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scene::{job, name, uuid};
    use nodeglass_protocol::JobId;
    use nodeglass_protocol::job::NodeGpus;
    use nodeglass_protocol::picture::ProcessFacts;
    use nodeglass_protocol::probe::Visible;
    use nodeglass_protocol::process::ProcessKind;
    use std::sync::LazyLock;

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

    /// A node of which all GPUs are visible.
    fn view(job_devices: &[JobDevices]) -> AttributedNode<'_> {
        static NAME: LazyLock<NodeName> = LazyLock::new(|| name("n1"));
        AttributedNode { name: &NAME, confinement: None, seen_by: Vec::new(), job_devices }
    }

    fn evidence_of(gpus: &[GpuPicture], processes: &[ProcessPicture], job: Job) -> Vec<Option<Evidence>> {
        let view = view(&[]);
        let owners = owners(&view, gpus, processes, &[job]);
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

    /// The evidence for one job on a confined node: `total` numbers of GPUs and instances, and for each of `gpus`
    /// the job whose probe sees it.
    fn confined(gpus: &[GpuPicture], total: [u32; 2], seen_by: &[u32], job: Job) -> Vec<Option<Evidence>> {
        let [gpu_count, instances] = total.map(|devices| Visible { devices, visible: 0 });
        let by = Confinement { gpus: gpu_count, instances, ..Confinement::default() };
        let seen_by = seen_by.iter().map(|job| Some(JobId(*job))).collect();
        let view = AttributedNode { confinement: Some(&by), seen_by, ..view(&[]) };
        let owners = owners(&view, gpus, &[], &[job]);
        owners.iter().map(|owners| owners.first().map(|owner| owner.by)).collect()
    }

    #[test]
    fn the_visible_gpus_of_a_confined_node_are_not_the_whole_node() {
        let gpus = &divided()[4..];
        assert_eq!(confined(gpus, [1, 0], &[], job(1, &[("n1", &[0])])), [Some(Evidence::WholeNode)]);
        assert_eq!(confined(gpus, [4, 0], &[], job(1, &[("n1", &[0])])), [None]);
        // The index of an instance elsewhere on the node is not that of this GPU.
        assert_eq!(confined(gpus, [4, 7], &[], job(1, &[("n1", &[1])])), [None]);
    }

    #[test]
    fn instances_belong_to_the_job_whose_probe_may_open_them() {
        let found = confined(&divided(), [2, 5], &[1, 1, 1, 2, 1], job(1, &[("n1", &[0])]));
        let by = Some(Evidence::DeviceCgroup);
        assert_eq!(found, [None, by, by, None, by], "not the GPU of the instances itself");
    }

    #[test]
    fn a_job_of_which_nothing_is_known_owns_nothing() {
        let mut unknown = job(1, &[("n1", &[])]);
        unknown.gpus[0].set = GpuSet::Unknown;
        assert_eq!(evidence_of(&divided()[4..], &[], unknown), [None]);
    }

    #[test]
    fn a_gpu_that_slurm_has_not_allocated_to_a_job_is_not_one_of_its_gpus() {
        let gpus: Vec<_> = divided().into_iter().filter(|gpu| gpu.facts.mig_parent.is_none()).collect();
        let kind = ProcessKind { compute: true, ..Default::default() };
        let facts = ProcessFacts { job: Some(JobId(1)), ..ProcessFacts::new(uuid("n1", 0), 7, kind) };
        let process = [ProcessPicture { facts, row: Default::default() }];
        let found = evidence_of(&gpus, &process, job(1, &[("n1", &[1])]));
        assert_eq!(found, [None, Some(Evidence::GresIndex)]);
        // Of two GPUs one is known: the process may be on the other.
        let mut partly = job(1, &[("n1", &[1, 9])]);
        let found = evidence_of(&gpus, &process, partly.clone());
        assert_eq!(found, [Some(Evidence::Process), Some(Evidence::GresIndex)]);
        // SLURM does not manage GPUs here.
        partly.gpus[0].set = GpuSet::Indices(Vec::new());
        assert_eq!(evidence_of(&gpus, &process, partly), [Some(Evidence::Process), None]);
    }

    #[test]
    fn t09_a_process_on_a_gpu_of_another_job_makes_it_none_of_its_own() {
        let gpus = &divided()[4..];
        let on_gpu = |id| {
            let kind = ProcessKind { compute: true, ..Default::default() };
            let facts = ProcessFacts { job: Some(JobId(id)), ..ProcessFacts::new(uuid("n1", 1), id, kind) };
            ProcessPicture { facts, row: Default::default() }
        };
        let with = |id, set: GpuSet| {
            let mut job = job(id, &[("n1", &[])]);
            job.gpus[0].set = set;
            job
        };
        let owners = |jobs: &[Job]| {
            let found = owners(&view(&[]), gpus, &[on_gpu(1), on_gpu(2)], jobs);
            found[0].iter().map(|owner| (owner.job.0, owner.by)).collect::<Vec<_>>()
        };
        let (none, unknown) = (with(2, GpuSet::Indices(Vec::new())), with(2, GpuSet::Unknown));
        let (located, counted) = (with(1, GpuSet::Indices(vec![1])), with(1, GpuSet::Count(1)));
        for other in [&none, &unknown, &with(2, GpuSet::Count(1))] {
            assert_eq!(owners(&[located.clone(), other.clone()])[0], (1, Evidence::GresIndex));
        }
        assert_eq!(owners(&[located, none.clone()]), [(1, Evidence::GresIndex)]);
        assert_eq!(owners(&[counted, none.clone()])[0].0, 1);
        // SLURM does not manage GPUs here.
        let both = [(1, Evidence::Process), (2, Evidence::Process)];
        assert_eq!(owners(&[with(1, GpuSet::Unknown), unknown]), both);
        assert_eq!(owners(&[none]), [(2, Evidence::Process)]);
    }

    #[test]
    fn what_processes_may_see_is_weaker_than_all_other_evidence() {
        let gpus = divided();
        let kind = ProcessKind { compute: true, ..Default::default() };
        let facts = ProcessFacts { job: Some(JobId(1)), ..ProcessFacts::new(uuid("n1", 11), 7, kind) };
        let process = ProcessPicture { facts, row: Default::default() };
        let uuids = vec![uuid("n1", 11), uuid("n1", 12)];
        let lists = [JobDevices { job: JobId(1), gres_indices: Vec::new(), uuids }];
        let job = job(1, &[("n1", &[0, 1])]);
        let owners = owners(&view(&lists), &gpus, &[process], &[job]);
        let by: Vec<_> = owners.iter().map(|owners| owners.first().map(|owner| owner.by)).collect();
        let expected = [None, None, Some(Evidence::Process), Some(Evidence::VisibleDevices), None];
        assert_eq!(by, expected);
    }
}
