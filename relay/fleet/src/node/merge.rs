//! Merges the GPUs that several probes of one node report into one list.

use nodeglass_protocol::JobId;
use nodeglass_protocol::picture::{GpuFacts, GpuPath};

/// Beginning of the UUID of a GPU that a probe may not open ([`GpuFacts::uuid`]).
const DENIED: &str = "FORBIDDEN-";

/// The probe that reports a GPU of a merged list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Provider {
    /// The job that the probe runs in; `None` for the node's own probe.
    pub job: Option<JobId>,
    /// Position in the probe's list.
    pub row: usize,
    /// Position among the GPUs of that list; `None` for a MIG instance.
    pub gpu: Option<usize>,
}

/// Merges lists of GPUs: each GPU once, from the first list that has it.
///
/// The order of `own` is kept. GPUs of other lists are inserted by their minor number, and MIG instances behind their
/// GPU. If there are other lists, GPUs that a driver lists although it may not open them are left out: without a
/// UUID, they cannot be distinguished from the GPUs of other lists.
pub(super) fn gpus(own: &[GpuFacts], jobs: &[(JobId, Vec<&GpuFacts>)]) -> (Vec<GpuFacts>, Vec<Provider>) {
    let is_kept = |gpu: &GpuFacts| jobs.is_empty() || !gpu.uuid.as_str().starts_with(DENIED);
    let kept = own.iter().zip(providers(None, own.iter())).filter(|(gpu, _)| is_kept(gpu));
    let mut merged: Vec<_> = kept.map(|(gpu, by)| (gpu.clone(), minor(gpu, own.iter()), by)).collect();
    for (job, list) in jobs {
        for (gpu, provider) in list.iter().zip(providers_of(*job, list)) {
            if !is_kept(gpu) || merged.iter().any(|(known, ..)| known.uuid == gpu.uuid) {
                continue;
            }
            let minor = minor(gpu, list.iter().copied());
            let is_behind = |other: Option<u32>| other.zip(minor).is_some_and(|(other, minor)| other > minor);
            let at = merged.iter().position(|(_, other, _)| is_behind(*other)).unwrap_or(merged.len());
            merged.insert(at, ((*gpu).clone(), minor, provider));
        }
    }
    merged.into_iter().map(|(gpu, _, provider)| (gpu, provider)).unzip()
}

fn providers_of(job: JobId, list: &[&GpuFacts]) -> Vec<Provider> {
    providers(Some(job), list.iter().copied())
}

fn providers<'a>(job: Option<JobId>, list: impl Iterator<Item = &'a GpuFacts>) -> Vec<Provider> {
    let mut gpus = 0..;
    let provider = |(row, gpu): (usize, &GpuFacts)| {
        let gpu = if gpu.mig_parent.is_some() { None } else { gpus.next() };
        Provider { job, row, gpu }
    };
    list.enumerate().map(provider).collect()
}

/// The minor number of a GPU, or of the GPU of an instance.
fn minor<'a>(gpu: &GpuFacts, mut list: impl Iterator<Item = &'a GpuFacts>) -> Option<u32> {
    match &gpu.mig_parent {
        Some(parent) => list.find(|other| other.uuid == *parent)?.minor.value().copied(),
        None => gpu.minor.value().copied(),
    }
}

/// Numbers GPUs by minor number: a confined driver counts from 0 what its process may open.
pub(super) fn number(gpus: &mut [GpuFacts]) {
    let minors: Vec<_> = gpus.iter().map(|gpu| minor(gpu, gpus.iter())).collect();
    for (gpu, minor) in gpus.iter_mut().zip(minors) {
        gpu.index = minor.unwrap_or(gpu.index);
    }
}

/// Merges topologies; connections between GPUs of different probes are unknown. Empty if all are.
pub(super) fn topology<'a>(
    providers: &[Provider],
    of_probe: impl Fn(Option<JobId>) -> &'a [Vec<GpuPath>],
) -> Vec<Vec<GpuPath>> {
    let gpus: Vec<_> = providers.iter().filter_map(|by| Some((by.job, by.gpu?))).collect();
    if gpus.iter().all(|(job, _)| of_probe(*job).is_empty()) {
        return Vec::new();
    }
    let path = |(job, gpu): (Option<JobId>, usize), (other_job, other): (Option<JobId>, usize)| {
        let known = || of_probe(job).get(gpu)?.get(other).copied();
        match job == other_job {
            true if gpu == other => GpuPath::Same,
            true => known().unwrap_or(GpuPath::Unknown),
            false => GpuPath::Unknown,
        }
    };
    gpus.iter().map(|gpu| gpus.iter().map(|other| path(*gpu, *other)).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::{GpuUuid, Reading};

    fn gpu(minor: u32) -> GpuFacts {
        let minor_reading = Reading::Value(minor);
        GpuFacts { minor: minor_reading, ..GpuFacts::new(GpuUuid::new(format!("GPU-{minor}")), 0) }
    }

    fn instance(name: &str, of: u32) -> GpuFacts {
        let mig_parent = Some(gpu(of).uuid);
        GpuFacts { mig_parent, ..GpuFacts::new(GpuUuid::new(name), 0) }
    }

    /// The merged UUIDs with who reports them, and their numbers.
    fn merged(own: &[GpuFacts], jobs: &[(u32, &[GpuFacts])]) -> (Vec<String>, Vec<u32>) {
        let jobs: Vec<_> = jobs.iter().map(|(job, list)| (JobId(*job), list.iter().collect())).collect();
        let (mut merged, providers) = gpus(own, &jobs);
        number(&mut merged);
        let by = |by: &Provider| by.job.map_or_else(|| "own".to_owned(), |job| job.to_string());
        let words = merged.iter().zip(&providers).map(|(gpu, from)| format!("{} {}", gpu.uuid, by(from)));
        (words.collect(), merged.iter().map(|gpu| gpu.index).collect())
    }

    #[test]
    fn each_gpu_appears_once_in_the_order_of_the_node() {
        let (gpus, numbers) = merged(&[gpu(2)], &[(7, &[gpu(0), gpu(2)]), (8, &[gpu(3), gpu(0), gpu(1)])]);
        assert_eq!(gpus, ["GPU-0 7", "GPU-1 8", "GPU-2 own", "GPU-3 8"]);
        assert_eq!(numbers, [0, 1, 2, 3]);
    }

    #[test]
    fn a_gpu_that_a_driver_lists_without_access_is_not_listed_twice() {
        let denied = |index| GpuFacts::new(GpuUuid::new(format!("FORBIDDEN-{index}")), index);
        let own = [denied(0), gpu(1), denied(2)];
        assert_eq!(merged(&own, &[]).0, ["FORBIDDEN-0 own", "GPU-1 own", "FORBIDDEN-2 own"]);
        let (gpus, numbers) = merged(&own, &[(7, &[gpu(0), denied(1), denied(2)])]);
        assert_eq!((gpus, numbers), (vec!["GPU-0 7".to_owned(), "GPU-1 own".to_owned()], vec![0, 1]));
    }

    #[test]
    fn instances_follow_their_gpu_whoever_reports_it() {
        let (gpus, numbers) = merged(
            &[gpu(0), instance("MIG-a", 0), gpu(1)],
            &[(7, &[gpu(0), instance("MIG-b", 0)]), (8, &[gpu(2), instance("MIG-c", 2)])],
        );
        assert_eq!(gpus, ["GPU-0 own", "MIG-a own", "MIG-b 7", "GPU-1 own", "GPU-2 8", "MIG-c 8"]);
        assert_eq!(numbers, [0, 0, 0, 1, 2, 2]);
    }

    #[test]
    fn gpus_without_minor_numbers_follow_in_the_order_of_their_probes() {
        let unknown = |name: &str| GpuFacts::new(GpuUuid::new(name), 5);
        let (gpus, numbers) = merged(&[unknown("a")], &[(7, &[unknown("b")]), (8, &[gpu(1)])]);
        assert_eq!(gpus, ["a own", "b 7", "GPU-1 8"]);
        assert_eq!(numbers, [5, 5, 1]);
    }

    #[test]
    fn connections_between_gpus_of_two_probes_are_unknown() {
        let own = [gpu(0), instance("MIG-a", 0), gpu(2)];
        let of_job = [gpu(2), gpu(1), gpu(3)];
        let jobs = [(JobId(7), of_job.iter().collect())];
        let (_, providers) = gpus(&own, &jobs);
        let (same, link, far, unknown) =
            (GpuPath::Same, GpuPath::NvLink(4), GpuPath::System, GpuPath::Unknown);
        let own_paths = vec![vec![same, far], vec![far, same]];
        let job_paths = vec![vec![same, far, far], vec![far, same, link], vec![far, link, same]];
        let paths = topology(&providers, |job| if job.is_some() { &job_paths } else { &own_paths });
        assert_eq!(
            paths,
            [
                [same, unknown, far, unknown],
                [unknown, same, unknown, link],
                [far, unknown, same, unknown],
                [unknown, link, unknown, same]
            ]
        );
        assert!(topology(&providers, |_| &[]).is_empty());
    }
}
