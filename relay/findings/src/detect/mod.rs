//! Detectors: each states what it sees at a moment, or that readings are missing.

mod activity;
pub mod bottleneck;
mod foreign;
mod growth;
mod health;
mod jobs;
mod logs;
mod memory;
mod models;
mod mostly_idle;
mod nodes;
mod outside;
mod peers;
mod rules;

use super::input::{DetectorInput, JobGpu, JobGpus};
use super::tracker::{Detection, Detections};
use nodeglass_protocol::GpuField;
use nodeglass_protocol::finding::{FindingGpu, FindingKind, FindingTrait};
use nodeglass_protocol::job::JobState;

/// Runs all detectors.
pub fn all(input: &DetectorInput<'_>) -> Detections {
    let mut found = Detections { has_jobs: !input.jobs.is_empty(), ..Detections::default() };
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
