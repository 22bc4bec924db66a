//! Raw ids of the jobs that a command line names by their labels, among the jobs of the running relay. Pure.

use nodeglass_api::{Job, JobSelector, NotOneJob};
use nodeglass_protocol::JobId;

/// Returns the id of the named job. A raw id may belong to a job that is no longer in the list.
///
/// # Errors
/// [`NotOneJob`].
pub(super) fn id(jobs: &[Job], named: &JobSelector) -> Result<JobId, NotOneJob> {
    named.of_one_cluster(jobs)?;
    match (named.one(jobs), named) {
        (Ok(job), _) => Ok(JobId(job.id)),
        (Err(NotOneJob::None(_)), JobSelector::Id(id)) => Ok(JobId(*id)),
        (Err(error), _) => Err(error),
    }
}

/// All jobs that are named: of an array, the tasks that are in the list.
///
/// # Errors
/// [`NotOneJob`].
pub(super) fn ids(jobs: &[Job], named: &[JobSelector]) -> Result<Vec<JobId>, NotOneJob> {
    let mut ids = Vec::new();
    for selector in named {
        selector.of_one_cluster(jobs)?;
        let selected = selector.select(jobs);
        match selector {
            _ if !selected.is_empty() => ids.extend(selected.into_iter().map(|job| JobId(job.id))),
            // The relay says what it thinks of a job that it does not list.
            JobSelector::Id(id) => ids.push(JobId(*id)),
            _ => return Err(NotOneJob::None(selector.clone())),
        }
    }
    Ok(ids)
}
