//! Answers about the scope of a share: what of it is watched, and whether its jobs have ended.

use nodeglass_fleet::Fleet;
use nodeglass_protocol::job::{Job, JobState, Parent};
use nodeglass_protocol::live::Topic;
use nodeglass_protocol::picture::JobsHealth;
use nodeglass_protocol::share::{Scope, Share};
use nodeglass_protocol::{JobId, NodeName, Text};

/// Describes the first item of a scope that is not watched.
pub(super) fn unwatched(fleet: &Fleet, scope: &Scope) -> Option<Text> {
    match scope {
        Scope::All => None,
        Scope::Jobs(_) | Scope::JobsAndArrays { .. } => {
            let (jobs, arrays) = scope.jobs_and_arrays();
            let is_array = |id: JobId| fleet.jobs().iter().any(|job| array_of(job) == Some(id));
            // Tasks that have not started are one job, with the raw id that the last of them keeps.
            let is_known = |id: JobId| fleet.jobs().iter().any(|job| job.id == id && !is_rest(job));
            match jobs.iter().find(|id| !is_known(**id)) {
                Some(id) if is_array(*id) => Some(instead_of_array(fleet.jobs(), *id)),
                Some(id) => Some(format!("this relay does not watch job {id}").into()),
                None => {
                    let array = arrays.iter().find(|id| !is_array(**id))?;
                    Some(format!("this relay does not watch an array {array}").into())
                }
            }
        }
        Scope::Nodes(nodes) => {
            let known = |name: &NodeName| {
                fleet.nodes_of(&Topic::Node(name.clone())).is_some()
                    || fleet.jobs().iter().any(|job| job.nodes.contains(name))
            };
            let name = nodes.iter().find(|name| !known(name))?;
            Some(format!("this relay does not watch node {name}").into())
        }
    }
}

fn array_of(job: &Job) -> Option<JobId> {
    match job.part_of {
        Some(Parent::Array { job, .. }) => Some(job),
        Some(Parent::Het { .. }) | None => None,
    }
}

fn is_rest(job: &Job) -> bool {
    matches!(job.part_of, Some(Parent::Array { task: None, .. }))
}

/// Says what to share where a job's id is that of an array, and of no task that has started.
fn instead_of_array(jobs: &[Job], array: JobId) -> Text {
    let is_task = |job: &&Job| array_of(job) == Some(array) && !is_rest(job);
    let example = jobs.iter().filter(is_task).find(|job| job.is_active());
    let example = example.map_or(String::new(), |job| format!(", such as {}", job.label));
    format!("job {array} is an array; share all of its tasks, or one that has started{example}").into()
}

/// Returns whether a share of jobs is over: it ends with them and all have ended, or SLURM uses the number of one for another
/// job. `None` if that is unknown, because the job list is not fresh.
pub(super) fn is_over(fleet: &Fleet, share: &Share) -> Option<bool> {
    let scope = &share.terms.scope;
    let is_other = |job: &Job| scope.names_job(job) && fleet.has_reused_number(job.id, share.created_ms);
    match share.terms.ends_with_job {
        _ if fleet.jobs().iter().any(is_other) => Some(true),
        true => has_ended(fleet, scope),
        false => Some(false),
    }
}

/// Returns whether all jobs of a scope have ended; `None` if that is unknown, because the job list is not fresh.
pub(super) fn has_ended(fleet: &Fleet, scope: &Scope) -> Option<bool> {
    if !scope.is_of_jobs() {
        return Some(false);
    }
    let listed: Vec<&Job> = fleet.jobs().iter().filter(|job| scope.names_job(job)).collect();
    let have_ended = listed.iter().all(|job| matches!(job.state, JobState::Ended(_)));
    let (jobs, arrays) = scope.jobs_and_arrays();
    let are_listed = jobs.iter().all(|id| listed.iter().any(|job| job.id == *id))
        && arrays.iter().all(|id| listed.iter().any(|job| array_of(job) == Some(*id)));
    let is_fresh = matches!(fleet.status().jobs, JobsHealth::Fresh { .. });
    (is_fresh || have_ended && are_listed).then_some(have_ended)
}
