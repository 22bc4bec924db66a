//! Ownership of GPUs by the environments of a job's processes, for GPUs that SLURM does not name. A list that is
//! wrong or contradicts another list claims no GPU: *unknown* is better than a wrong owner.

use nodeglass_protocol::job::{GpuSet, Job};
use nodeglass_protocol::picture::GpuPicture;
use nodeglass_protocol::probe::JobDevices;
use nodeglass_protocol::{GpuUuid, JobId, NodeName};
use std::collections::{BTreeMap, BTreeSet};

/// Length of the shortest abbreviation of a UUID that counts as unique, also among GPUs that are not visible.
const MIN_UUID: usize = "GPU-8932f937".len();

/// The devices of a node that lists of devices may name.
#[derive(Clone, Copy, Debug)]
pub struct GpuLayout<'a> {
    /// The node.
    pub name: &'a NodeName,
    /// GPUs and MIG instances.
    pub gpus: &'a [GpuPicture],
    /// Those of them that are divided into instances.
    pub divided: &'a BTreeSet<&'a GpuUuid>,
    /// Whether the node has MIG instances, for which a GRES index is not a minor number.
    pub has_mig: bool,
    /// Whether there may be more of them.
    pub is_partial: bool,
}

/// Returns positions of the GPUs that jobs claim by their lists.
///
/// `allocated` are the jobs that each GPU belongs to by stronger evidence. The lists of a job are void if they name a
/// device that the node does not have, more devices than SLURM allocated, or a device that another job has for
/// itself.
pub fn claims(
    node: GpuLayout<'_>,
    lists: &[JobDevices],
    jobs: &[&Job],
    allocated: &[Vec<JobId>],
) -> BTreeMap<JobId, BTreeSet<usize>> {
    let job = |id: JobId| jobs.iter().find(|job| job.id == id).copied();
    // One list for each job: a hostile node may send as many as it is allowed to.
    let claim = |job: &&Job| {
        let devices = lists.iter().find(|devices| devices.job == job.id)?;
        Some((job.id, claim(node, devices, job)?))
    };
    let all: BTreeMap<JobId, BTreeSet<usize>> = jobs.iter().filter_map(claim).collect();
    let is_exclusive = |id: &JobId| job(*id).is_some_and(|job| most(node.name, job).is_some());
    let is_disputed = |id: &JobId, position: &usize| {
        let is_of_other = allocated[*position].iter().any(|other| other != id);
        let mut others = all.iter().filter(|(other, claim)| *other != id && claim.contains(position));
        is_of_other || others.any(|(other, _)| is_exclusive(id) || is_exclusive(other))
    };
    let valid = all.iter().filter(|(id, claim)| !claim.iter().any(|position| is_disputed(id, position)));
    valid.map(|(id, claim)| (*id, claim.clone())).collect()
}

/// The positions that the lists of a job name; `None` if they are wrong, or say nothing that SLURM does not.
fn claim(node: GpuLayout<'_>, devices: &JobDevices, job: &Job) -> Option<BTreeSet<usize>> {
    if !node.has_mig && matches!(job.gpus_on(node.name), Some(GpuSet::Indices(_))) {
        return None;
    }
    let by_uuid = positions(&devices.uuids, node.is_partial, |uuid| node.of_uuid(uuid))?;
    // A GRES index counts instances where there are some, in an order that only SLURM knows.
    let by_index = match node.has_mig {
        true => BTreeSet::new(),
        false => positions(&devices.gres_indices, node.is_partial, |index| node.of_minor(*index))?,
    };
    // Tasks may be bound to some of the GPUs of their step, but not to others.
    if !by_index.is_empty() && !by_uuid.is_subset(&by_index) {
        return None;
    }
    let all: BTreeSet<usize> = by_index.union(&by_uuid).copied().collect();
    let is_whole = |position: &usize| !node.is_divided(*position);
    (all.iter().all(is_whole) && most(node.name, job).is_none_or(|most| all.len() <= most)).then_some(all)
}

/// Finds the devices of a list; a missing device makes the list wrong, unless it may be invisible.
fn positions<T>(list: &[T], is_partial: bool, find: impl Fn(&T) -> Option<usize>) -> Option<BTreeSet<usize>> {
    let found: Vec<Option<usize>> = list.iter().map(find).collect();
    let is_complete = is_partial || found.iter().all(Option::is_some);
    is_complete.then(|| found.into_iter().flatten().collect())
}

/// Returns the maximum number of GPUs of the job on a node, if it has GPUs of its own; shares of GPUs are not
/// counted.
fn most(node: &NodeName, job: &Job) -> Option<usize> {
    match job.gpus_on(node) {
        Some(GpuSet::Indices(indices)) => Some(indices.len()),
        Some(GpuSet::Count(count)) => Some(*count as usize),
        Some(GpuSet::Unknown) | None => job.gpu_count.map(|count| count as usize),
    }
}

impl GpuLayout<'_> {
    fn only(self, is: impl Fn(&GpuPicture) -> bool) -> Option<usize> {
        let mut found = self.gpus.iter().enumerate().filter(|(_, gpu)| is(gpu));
        let (position, _) = found.next()?;
        found.next().is_none().then_some(position)
    }

    fn of_minor(self, index: u32) -> Option<usize> {
        self.only(|gpu| gpu.facts.minor.value() == Some(&index))
    }

    /// The device with this UUID, else the only one whose UUID begins so, else the instance with these ids.
    fn of_uuid(self, uuid: &GpuUuid) -> Option<usize> {
        let text = uuid.as_str();
        self.only(|gpu| gpu.facts.uuid == *uuid)
            .or_else(|| self.only(|gpu| text.len() >= MIN_UUID && gpu.facts.uuid.as_str().starts_with(text)))
            .or_else(|| {
                let (gpu, compute_instance) = text.strip_prefix("MIG-")?.rsplit_once('/')?;
                let (gpu, gpu_instance) = gpu.rsplit_once('/')?;
                let ids: (u32, u32) = (gpu_instance.parse().ok()?, compute_instance.parse().ok()?);
                self.only(|instance| {
                    let mig = instance.facts.mig.as_ref();
                    let is_parent =
                        |parent: &GpuUuid| gpu.len() >= MIN_UUID && parent.as_str().starts_with(gpu);
                    mig.is_some_and(|mig| (mig.gpu_instance, mig.compute_instance) == ids)
                        && instance.facts.mig_parent.as_ref().is_some_and(is_parent)
                })
            })
    }

    /// Returns whether a GPU is divided into instances, so that SLURM allocates those instead.
    pub fn is_divided(self, position: usize) -> bool {
        self.divided.contains(&self.gpus[position].facts.uuid)
    }
}

/// The GPUs that are divided into instances.
pub fn divided(gpus: &[GpuPicture]) -> BTreeSet<&GpuUuid> {
    gpus.iter().filter_map(|gpu| gpu.facts.mig_parent.as_ref()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scene::{job, name};
    use nodeglass_protocol::Reading;
    use nodeglass_protocol::gpu::MigFacts;
    use proptest::prelude::*;

    const GPUS: [&str; 3] = [
        "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6",
        "GPU-4404041a-04cf-1ccf-9e70-f139a9b1e23c",
        "GPU-78d38bfe-61a3-4f12-8b1c-0a5d1e2f3b4c",
    ];
    const INSTANCES: [&str; 2] =
        ["MIG-4f2a7f0e-9c11-5c6e-a3f4-0d5e1d2b7a10", "MIG-91b3c2d4-0a1b-5e6f-8c7d-1234567890ab"];

    /// Three GPUs with minor numbers 0, 1 and 2; with MIG, the first has two instances, at the positions 1 and 2.
    fn gpus(has_mig: bool) -> Vec<GpuPicture> {
        let gpu = |minor: u32| {
            let mut gpu = GpuPicture::default();
            gpu.facts.uuid = GpuUuid::new(GPUS[minor as usize]);
            gpu.facts.minor = Reading::Value(minor);
            gpu
        };
        let instance = |number: u32| {
            let mut instance = GpuPicture::default();
            instance.facts.uuid = GpuUuid::new(INSTANCES[number as usize]);
            instance.facts.mig_parent = Some(GpuUuid::new(GPUS[0]));
            let mig = MigFacts { gpu_instance: number + 1, compute_instance: 0, ..MigFacts::default() };
            instance.facts.mig = Some(mig);
            instance
        };
        let instances = has_mig.then(|| [instance(0), instance(1)]).into_iter().flatten();
        [gpu(0)].into_iter().chain(instances).chain([gpu(1), gpu(2)]).collect()
    }

    fn devices(job: u32, gres_indices: &[u32], uuids: &[&str]) -> JobDevices {
        let uuids = uuids.iter().map(GpuUuid::new).collect();
        JobDevices { job: JobId(job), gres_indices: gres_indices.to_vec(), uuids }
    }

    /// A job of whose GPUs SLURM states this much.
    fn with(id: u32, set: GpuSet) -> Job {
        let mut job = job(id, &[("n1", &[])]);
        job.gpus[0].set = set;
        job
    }

    /// Job and positions of each claim.
    fn claimed(
        has_mig: bool,
        is_partial: bool,
        jobs: &[Job],
        lists: &[JobDevices],
    ) -> Vec<(u32, Vec<usize>)> {
        let (name, gpus) = (name("n1"), gpus(has_mig));
        let node = GpuLayout { name: &name, gpus: &gpus, divided: &divided(&gpus), has_mig, is_partial };
        let jobs: Vec<&Job> = jobs.iter().collect();
        let claims = claims(node, lists, &jobs, &vec![Vec::new(); gpus.len()]);
        claims.into_iter().map(|(job, claim)| (job.0, claim.into_iter().collect())).collect()
    }

    /// What a job with one instance claims by these UUIDs.
    fn mig(uuids: &[&str]) -> Vec<usize> {
        let found = claimed(true, false, &[with(1, GpuSet::Count(1))], &[devices(1, &[], uuids)]);
        found.into_iter().flat_map(|(_, positions)| positions).collect()
    }

    #[test]
    fn an_instance_is_found_by_every_form_of_its_uuid() {
        let old = format!("MIG-{}/2/0", GPUS[0]);
        for uuid in [INSTANCES[1], "MIG-91b3c2d4", &old, "MIG-GPU-8932f937/2/0"] {
            assert_eq!(mig(&[uuid]), [2], "{uuid}");
        }
        assert_eq!(mig(&[GPUS[2]]), [4], "a GPU without instances");
    }

    #[test]
    fn a_wrong_list_claims_nothing() {
        let wrong: [&[&str]; 8] = [
            &["MIG-00000000-0000-0000-0000-000000000000"],
            &[INSTANCES[0], "GPU-00000000"],
            &["MIG-GPU-8932f937/7/0"],
            &["MIG-GPU-4404041a/1/0"],
            // The GPU of the instances is nobody's.
            &[GPUS[0]],
            &["MIG-4f2a"],
            &[""],
            // SLURM allocated one.
            &INSTANCES,
        ];
        for uuids in wrong {
            assert_eq!(mig(uuids), [0; 0], "{uuids:?}");
        }
        let none = claimed(true, false, &[with(1, GpuSet::Count(0))], &[devices(1, &[], &INSTANCES[..1])]);
        assert!(none.is_empty(), "a job without GPUs");
        let of_nobody = claimed(true, false, &[], &[devices(1, &[], &INSTANCES[..1])]);
        assert!(of_nobody.is_empty(), "an unknown job");
    }

    #[test]
    fn a_gres_index_is_no_instance() {
        let list = [devices(1, &[1], &[])];
        assert_eq!(claimed(true, false, &[with(1, GpuSet::Count(1))], &list), [(1, vec![])]);
    }

    #[test]
    fn the_gpus_behind_shards_are_those_of_the_processes() {
        let shards = [with(1, GpuSet::Unknown)];
        assert_eq!(claimed(false, false, &shards, &[devices(1, &[1, 2], &[])]), [(1, vec![1, 2])]);
        let both = [with(1, GpuSet::Unknown), with(2, GpuSet::Unknown)];
        let lists = [devices(1, &[1], &[]), devices(2, &[1], &[])];
        assert_eq!(claimed(false, false, &both, &lists), [(1, vec![1]), (2, vec![1])], "they share it");
        // A task may use fewer than its step has, but no other.
        let bound = [devices(1, &[1, 2], &[GPUS[2]])];
        assert_eq!(claimed(false, false, &shards, &bound), [(1, vec![1, 2])]);
        assert!(claimed(false, false, &shards, &[devices(1, &[1], &[GPUS[2]])]).is_empty());
        assert!(claimed(false, false, &shards, &[devices(1, &[7], &[])]).is_empty());
    }

    #[test]
    fn indices_of_slurm_make_lists_superfluous() {
        let named = with(1, GpuSet::Indices(vec![0]));
        assert!(claimed(false, false, &[named], &[devices(1, &[1], &[])]).is_empty());
    }

    #[test]
    fn a_gpu_that_two_jobs_claim_for_themselves_is_nobodys() {
        let jobs = [with(1, GpuSet::Count(1)), with(2, GpuSet::Count(1))];
        let lists = [devices(1, &[], &INSTANCES[..1]), devices(2, &[], &INSTANCES[..1])];
        assert!(claimed(true, false, &jobs, &lists).is_empty());
        let shared = [with(1, GpuSet::Count(1)), with(2, GpuSet::Unknown)];
        assert!(claimed(true, false, &shared, &lists).is_empty());
        let lists = [devices(1, &[], &INSTANCES[..1]), devices(2, &[], &INSTANCES[1..])];
        assert_eq!(claimed(true, false, &jobs, &lists), [(1, vec![1]), (2, vec![2])]);
    }

    #[test]
    fn a_gpu_that_slurm_allocated_to_another_job_is_not_claimed() {
        let (name, gpus, job) = (name("n1"), gpus(false), with(1, GpuSet::Unknown));
        let divided = divided(&gpus);
        let node =
            GpuLayout { name: &name, gpus: &gpus, divided: &divided, has_mig: false, is_partial: false };
        let claim = |of: u32| {
            let allocated = [vec![JobId(of)], Vec::new(), Vec::new()];
            !claims(node, &[devices(1, &[0, 1], &[])], &[&job], &allocated).is_empty()
        };
        assert_eq!([claim(1), claim(2)], [true, false]);
    }

    #[test]
    fn devices_that_a_confined_probe_does_not_see_are_left_out() {
        let list = [devices(1, &[], &[GPUS[1], "GPU-00000000"])];
        assert_eq!(claimed(false, true, &[with(1, GpuSet::Count(2))], &list), [(1, vec![1])]);
    }

    proptest! {
        #[test]
        fn no_list_is_too_strange(
            uuids in prop::collection::vec("(GPU-|MIG-|MIG-GPU-)?[0-9a-f/-]{0,12}", 0..5),
            indices in prop::collection::vec(any::<u32>(), 0..5),
            has_mig: bool,
            is_partial: bool,
        ) {
            let uuids: Vec<&str> = uuids.iter().map(String::as_str).collect();
            let jobs = [with(1, GpuSet::Unknown)];
            for (_, positions) in claimed(has_mig, is_partial, &jobs, &[devices(1, &indices, &uuids)]) {
                prop_assert!(positions.iter().all(|position| *position < gpus(has_mig).len()));
            }
        }
    }
}
