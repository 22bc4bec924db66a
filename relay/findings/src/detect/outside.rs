//! Processes on GPUs that SLURM has allocated to another job, or to none.

use crate::input::DetectorInput;
use crate::tracker::{Detection, Detections};
use nodeglass_protocol::finding::{FindingGpu, FindingKind};
use nodeglass_protocol::job::{Job, Parent};
use nodeglass_protocol::picture::{GpuPicture, NodePicture, ProcessPicture};
use nodeglass_protocol::process::ProcessState;
use nodeglass_protocol::{GpuField, ProcessField};
use nodeglass_rules::ownership::is_by_slurm;
use nodeglass_rules::{job_names, text};
use std::collections::BTreeMap;

/// Users whose processes belong to the node: display servers, monitoring, daemons.
const SYSTEM_USERS: [&str; 6] = ["root", "gdm", "sddm", "lightdm", "nvidia-persistenced", "dcgm"];
/// Memory in bytes below which a process only queries a GPU.
const MIN_BYTES: u64 = 64 << 20;

pub(super) fn detect(input: &DetectorInput<'_>, found: &mut Detections) {
    for node in input.nodes.values() {
        let jobs = input.jobs_on(node);
        if !input.is_current(node) {
            jobs.iter().for_each(|job| found.unknown(&[FindingKind::OutsideJob], &job.id.to_string()));
            continue;
        }
        // Where no process can be assigned to a job, none is known to be outside.
        if !node.processes.iter().any(|process| process.facts.job.is_some()) {
            if !node.processes.is_empty() {
                jobs.iter().for_each(|job| found.unknown(&[FindingKind::OutsideJob], &job.id.to_string()));
            }
            continue;
        }
        for job in jobs {
            found.seen.extend(on_gpus_of(input, node, job));
        }
        found.seen.extend(on_free_gpus(input, node, jobs));
    }
}

/// The processes outside of a job that use its GPUs on a node. Several jobs may share a GPU by shards or MPS, of which
/// SLURM states no index.
fn on_gpus_of(input: &DetectorInput<'_>, node: &NodePicture, job: &Job) -> Option<Detection> {
    let is_allocated = |gpu: &GpuPicture| {
        let mut owners = gpu.owners.iter().filter(|owner| is_by_slurm(owner.by));
        owners.next().is_some_and(|owner| owner.job == job.id) && owners.next().is_none()
    };
    let users = users(node, is_allocated, |process| is_outside(process, job));
    let whose = format!("allocated to {}", job_names::first(job));
    let detection = detection(input, node, &users, &whose)?;
    Some(Detection { subject: format!("{}/{}", job.id, node.name), jobs: vec![job.id], ..detection })
}

/// The processes of no job on GPUs that no job has: SLURM may allocate these at any moment. A GPU of another user's job is
/// used by a process of that job.
fn on_free_gpus(input: &DetectorInput<'_>, node: &NodePicture, jobs: &[&Job]) -> Option<Detection> {
    // Where jobs have no cgroups, the environment of a process names its job, which is readable of own processes only.
    let has_cgroups = !node.job_usage.is_empty();
    let is_of_no_job =
        |process: &ProcessPicture| process.facts.job.is_none() && (has_cgroups || is_own(input, process));
    let is_free = |gpu: &GpuPicture| {
        let mut here = node.processes.iter().filter(|process| process.facts.gpu == gpu.facts.uuid);
        gpu.owners.is_empty() && here.all(is_of_no_job)
    };
    let users = users(node, is_free, |process| is_of_no_job(process) && computes(process));
    let detection = detection(input, node, &users, "which no job has")?;
    let jobs = jobs.iter().map(|job| job.id).collect();
    Some(Detection { subject: format!("free/{}", node.name), jobs, ..detection })
}

/// The GPUs that each process uses, by pid.
type Users<'a> = BTreeMap<u32, (&'a ProcessPicture, Vec<&'a GpuPicture>)>;

pub(super) fn users(
    node: &NodePicture,
    is_examined: impl Fn(&GpuPicture) -> bool,
    is_foreign: impl Fn(&ProcessPicture) -> bool,
) -> Users<'_> {
    let mut users = Users::new();
    for gpu in node.gpus.iter().filter(|gpu| is_examined(gpu)) {
        let here = node.processes.iter().filter(|process| process.facts.gpu == gpu.facts.uuid);
        for process in here.filter(|process| is_foreign(process)) {
            users.entry(process.facts.pid).or_insert((process, Vec::new())).1.push(gpu);
        }
    }
    users
}

/// The detection of processes on GPUs that are not theirs, and `whose` these are; `None` without any.
pub(super) fn detection(
    input: &DetectorInput<'_>,
    node: &NodePicture,
    users: &Users<'_>,
    whose: &str,
) -> Option<Detection> {
    let (first, _) = users.values().next()?;
    let mut all: Vec<&GpuPicture> = users.values().flat_map(|(_, gpus)| gpus).copied().collect();
    all.sort_unstable_by_key(|gpu| gpu.facts.index);
    all.dedup_by_key(|gpu| gpu.facts.index);
    let place = match all.as_slice() {
        [gpu] => format!("{} {}", node.name, gpu.facts.label()),
        gpus => format!("{} of {}", text::count(gpus.len(), "GPU", "GPUs"), node.name),
    };
    let who = describe(input, first);
    let title = match users.len() {
        1 => format!("{who} uses {place}, {whose}"),
        count => format!("{who} and {} use {place}, {whose}", text::count(count - 1, "other", "others")),
    };
    let mut detection = Detection::new(FindingKind::OutsideJob, String::new(), title);
    detection.nodes = vec![node.name.clone()];
    let gpu = |gpu: &&GpuPicture| FindingGpu::new(&node.name, &gpu.facts.uuid, Some(GpuField::MemUsed));
    detection.gpus = all.iter().map(gpu).collect();
    detection.reason = "process from outside the job".to_owned();
    detection.evidence = users.values().map(|(process, gpus)| evidence(input, process, gpus)).collect();
    detection.advice = is_own(input, first).then(|| {
        format!("End it (kill {} on {}), unless it is meant to be there", first.facts.pid, node.name)
    });
    detection.since = Some(input.seen_now(node));
    Some(detection)
}

/// Returns whether a process computes on a GPU and is known not to be the job's.
fn is_outside(process: &ProcessPicture, job: &Job) -> bool {
    // A step over several components of a heterogeneous job may be the leader's.
    let is_parent = match job.part_of {
        Some(Parent::Het { job, .. }) => process.facts.job == Some(job),
        Some(Parent::Array { .. }) | None => false,
    };
    process.facts.job != Some(job.id) && !is_parent && computes(process)
}

/// Returns whether a process computes on a GPU, and its job is visible if it has one.
pub(super) fn computes(process: &ProcessPicture) -> bool {
    let facts = &process.facts;
    let is_large = process.row.value(ProcessField::GpuMem).is_none_or(|bytes| bytes >= MIN_BYTES);
    let Some(user) = facts.user.value() else { return false };
    let is_of_system = SYSTEM_USERS.contains(&user.as_str());
    // Without a command it is of another pid namespace, whose job is not visible.
    let state = process.row.value(ProcessField::State).map(ProcessState::of_number);
    facts.kind.compute
        // That a zombie holds memory is another finding.
        && state != Some(ProcessState::Zombie)
        && is_large
        && !is_of_system
        && facts.command.value().is_some()
        // A daemon starts containers, outside of the cgroup of the job that requested them.
        && (facts.container.is_none() || facts.job.is_some())
}

fn is_own(input: &DetectorInput<'_>, process: &ProcessPicture) -> bool {
    process.facts.user.value().is_some_and(|user| user.as_str() == input.user)
}

/// `python3 (pid 4711) of job 12`.
fn describe(input: &DetectorInput<'_>, process: &ProcessPicture) -> String {
    let facts = &process.facts;
    let name = text::name_of(facts);
    let name = name.as_deref().unwrap_or("a process");
    let whose = match (facts.job, facts.user.value()) {
        (Some(job), _) if input.jobs.iter().any(|known| known.id == job && known.is_active()) => {
            format!(" of job {job}")
        }
        (Some(job), _) => format!(" left over from job {job}"),
        (None, Some(user)) if user.as_str() != input.user => format!(" of {user}"),
        (None, _) => String::new(),
    };
    format!("{name} (pid {}){whose}", facts.pid)
}

fn evidence(input: &DetectorInput<'_>, process: &ProcessPicture, gpus: &[&GpuPicture]) -> String {
    let places: Vec<String> = gpus.iter().map(|gpu| gpu.facts.label()).collect();
    let held = process.row.value(ProcessField::GpuMem);
    let held = held.map_or(String::new(), |bytes| format!(", {} GiB", text::gib(bytes)));
    format!("{} on {}{held}", describe(input, process), places.join(", "))
}
