//! Validation of a scenario: no two jobs use the same GPU at the same time or the same job id at
//! any time.

use crate::scenario::error::ScenarioFault;
use crate::scenario::{JobScript, Scenario};

/// Increment of the job id of a repeated job.
pub(crate) const NUMBER_STEP: u32 = 1_000;

/// Checks that a job's times are consistent.
pub(crate) fn times(job: &JobScript) -> Result<(), ScenarioFault> {
    let wrong = |what| Err(ScenarioFault::Times { job: job.id, what });
    if !job.nodes.is_empty() && job.start_ms.is_none() {
        return wrong("has nodes but no start");
    }
    if job.start_ms.is_some_and(|start| start < job.submitted_ms) {
        return wrong("starts before it is submitted");
    }
    if job.end_ms.zip(job.start_ms).is_some_and(|(end, start)| end <= start) {
        return wrong("ends before it starts");
    }
    if let Some(array) = job.array
        && (array.tasks == 0 || array.tasks >= NUMBER_STEP || array.task_ms <= 0 || job.locations.is_empty())
    {
        return wrong("is an array; that takes GPUs, 1 to 999 tasks, and a task_time");
    }
    let Some(every) = job.every_ms else { return Ok(()) };
    match (job.start_ms, job.end_ms) {
        (Some(start), Some(end)) if end - start - shared_ms(job) <= every => Ok(()),
        (Some(_), Some(_)) => wrong("repeats before it has ended"),
        _ => wrong("repeats, which requires a start and an end"),
    }
}

/// The last tasks of an array may overlap with the first ones of its repetition, on other GPUs.
fn shared_ms(job: &JobScript) -> i64 {
    job.array.map_or(0, |array| array.task_ms)
}

/// Checks that a job's ids are unique.
pub(crate) fn numbers(others: &[JobScript], job: &JobScript) -> Result<(), ScenarioFault> {
    let taken = |job: &JobScript| job.array.map_or(1, |array| array.tasks);
    let apart = |a: &JobScript, b: &JobScript| {
        let (mut first, mut second) = (a.id, b.id);
        if a.every_ms.is_some() || b.every_ms.is_some() {
            (first, second) = (first % NUMBER_STEP, second % NUMBER_STEP);
        }
        first.saturating_add(taken(a)) <= second || second.saturating_add(taken(b)) <= first
    };
    match others.iter().all(|other| apart(other, job)) {
        true => Ok(()),
        false => Err(ScenarioFault::DuplicateJob(job.id)),
    }
}

/// Checks that no other job uses a GPU of this job while it runs, and that no GPU is listed twice.
pub(crate) fn gpus(scenario: &Scenario, job: &JobScript) -> Result<(), ScenarioFault> {
    let overlap = |first: u32, slot: usize| {
        let location = job.locations[slot];
        let node = scenario.nodes[location.node].name.clone();
        ScenarioFault::Overlap { first, second: job.id, gpu: location.gpu, node }
    };
    for (slot, location) in job.locations.iter().enumerate() {
        if job.locations[..slot].contains(location) {
            return Err(overlap(job.id, slot));
        }
        let assignments = &scenario.nodes[location.node].assignments[location.gpu as usize];
        let rival = assignments
            .iter()
            .map(|assignment| &scenario.jobs[assignment.job])
            .find(|other| meet(other, job));
        if let Some(rival) = rival {
            return Err(overlap(rival.id, slot));
        }
    }
    Ok(())
}

/// Returns whether two jobs overlap in time; a repeated job counts as always running.
fn meet(a: &JobScript, b: &JobScript) -> bool {
    let from = |job: &JobScript| job.every_ms.map_or(job.start_ms.unwrap_or(i64::MAX), |_| i64::MIN);
    let to = |job: &JobScript| job.every_ms.map_or(job.end_ms.unwrap_or(i64::MAX), |_| i64::MAX);
    from(a) < to(b) && from(b) < to(a)
}
