//! Detectors: each states what it sees at a moment, or that readings are missing.

mod activity;
pub mod bottleneck;
mod foreign;
mod growth;
mod health;
pub mod jobs;
mod logs;
mod memory;
mod models;
mod mostly_idle;
mod nodes;
mod outside;
mod peers;
mod rules;

use super::input::{DetectorInput, JobGpu, JobGpus};
use super::series;
use super::tracker::{Detection, Detections};
use nodeglass_protocol::GpuField;
use nodeglass_protocol::finding::{FindingGpu, FindingKind, FindingTrait};
use nodeglass_protocol::job::JobState;

/// Runs all detectors.
pub fn all(input: &DetectorInput<'_>) -> Detections {
    let not_running = input.jobs.iter().filter(|job| !job.is_active()).map(|job| job.id).collect();
    let mut found = Detections { has_jobs: !input.jobs.is_empty(), not_running, ..Detections::default() };
    for node in input.nodes.values() {
        let nodes = if input.is_current(node) { &mut found.read } else { &mut found.unread };
        nodes.insert(node.name.clone());
    }
    let jobs = input.job_gpus();
    for job in &jobs {
        activity::detect(input, job, &mut found);
        peers::detect(input, job, &mut found);
        memory::detect(input, job, &mut found);
    }
    health::detect(input, &mut found);
    models::detect(input, &mut found);
    outside::detect(input, &mut found);
    foreign::detect(input, &mut found);
    nodes::detect(input, &mut found);
    jobs::detect(input, &mut found);
    logs::detect(input, &jobs, &mut found);
    rules::detect(input, &mut found);
    suspended(input, &mut found);
    found
}

/// Marks the activity of suspended jobs as unknown.
fn suspended(input: &DetectorInput<'_>, found: &mut Detections) {
    let of_work: Vec<FindingKind> =
        FindingKind::ALL.iter().copied().filter(|kind| kind.is(FindingTrait::OfWork)).collect();
    for job in input.jobs.iter().filter(|job| job.state == JobState::Suspended) {
        found.unknown(&of_work, &job.id.to_string());
    }
}

/// The detection of something that concerns a job as a whole or some of its GPUs.
fn of_job(
    kind: FindingKind,
    job: &JobGpus<'_>,
    units: &[JobGpu<'_>],
    field: GpuField,
    title: String,
) -> Detection {
    let gpus = units.iter().map(|unit| FindingGpu::new(&unit.node.name, &unit.gpu.facts.uuid, Some(field)));
    let mut nodes: Vec<_> = units.iter().map(|unit| unit.node.name.clone()).collect();
    nodes.dedup();
    Detection {
        jobs: vec![job.job.id],
        nodes,
        gpus: gpus.collect(),
        ..Detection::new(kind, job.job.id.to_string(), title)
    }
}

/// The subject of a sentence about some GPUs of a job: `All 8 GPUs are`.
fn whose(count: usize, all: usize) -> String {
    match (count, all) {
        (1, 1) => "The GPU is".to_owned(),
        (2, 2) => "Both GPUs are".to_owned(),
        _ if count == all => format!("All {all} GPUs are"),
        (1, _) => format!("1 of {all} GPUs is"),
        _ => format!("{count} of {all} GPUs are"),
    }
}

/// Describes the GPU memory in use, if it is at least 1 GiB.
fn held(units: &[JobGpu<'_>]) -> Option<String> {
    let bytes = units.iter().filter_map(|unit| unit.value(GpuField::MemUsed)).fold(0, u64::saturating_add);
    (bytes >= 1 << 30).then(|| format!("{} GiB of GPU memory held", nodeglass_rules::text::gib(bytes)))
}

/// The name of the reading that shows whether a GPU is in use.
fn activity_name(unit: &JobGpu<'_>) -> &'static str {
    if series::activity(unit.gpu) == GpuField::Util { "utilisation" } else { "SM activity" }
}
