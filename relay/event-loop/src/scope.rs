//! Answers about the scope of a share: what of it is watched, and whether its jobs have ended.

use nodeglass_fleet::Fleet;
use nodeglass_protocol::job::{Job, JobState, Parent};
use nodeglass_protocol::live::Topic;
use nodeglass_protocol::picture::JobsHealth;
use nodeglass_protocol::share::Scope;
use nodeglass_protocol::{JobId, NodeName, Text};

/// Describes the first item of a scope that is not watched.
pub(super) fn unwatched(fleet: &Fleet, scope: &Scope) -> Option<Text> {
    match scope {
        Scope::All => None,
        Scope::Jobs(jobs) => {
            let known = |id: &JobId| fleet.jobs().iter().any(|job| job.id == *id);
            let id = jobs.iter().find(|id| !known(id))?;
            Some(match tasks(fleet.jobs(), *id).as_slice() {
                [] => format!("this relay does not watch job {id}").into(),
                tasks => format!("job {id} is an array; name some of its tasks: {}", tasks.join(",")).into(),
            })
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

/// Ids of the active tasks of an array.
fn tasks(jobs: &[Job], array: JobId) -> Vec<String> {
    let of_it = |job: &&Job| matches!(job.part_of, Some(Parent::Array { job, .. }) if job == array);
    jobs.iter().filter(of_it).filter(|job| job.is_active()).map(|job| job.id.to_string()).collect()
}

/// Returns whether all jobs of a scope have ended; `None` if that is unknown, because the job list is not fresh.
pub(super) fn has_ended(fleet: &Fleet, scope: &Scope) -> Option<bool> {
    let Scope::Jobs(jobs) = scope else { return Some(false) };
    let has_ended =
        |id| fleet.jobs().iter().any(|job| job.id == id && matches!(job.state, JobState::Ended(_)));
    if jobs.iter().copied().all(has_ended) {
        return Some(true);
    }
    if !matches!(fleet.status().jobs, JobsHealth::Fresh { .. }) {
        return None;
    }
    let is_active = |job: &Job| jobs.contains(&job.id) && !matches!(job.state, JobState::Ended(_));
    Some(!fleet.jobs().iter().any(is_active))
}
