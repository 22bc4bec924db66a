//! Raw ids of the jobs that a command line names by their labels, from the running relay.

use super::owner_commands::Remote;
use crate::api::{Job, JobSelector, NotOneJob};
use hyper::Method;
use nodeglass_protocol::JobId;
use serde::Deserialize;

#[derive(Deserialize)]
struct Jobs {
    jobs: Vec<Job>,
}

/// The job that is named. A plain number is its raw id, also of a job that is no longer in the list, unless only parts of
/// the job with this number are.
///
/// # Errors
/// A complete sentence for the user.
pub(super) async fn id(relay: &Remote, named: &JobSelector) -> anyhow::Result<JobId> {
    let jobs = listed(relay).await?;
    match (named.one(&jobs), named) {
        (Ok(job), _) => Ok(JobId(job.id)),
        (Err(NotOneJob::None(_)), JobSelector::Id(id)) => Ok(JobId(*id)),
        (Err(error), _) => Err(error.into()),
    }
}

/// All jobs that are named: of an array, the tasks that are in the list.
///
/// # Errors
/// A complete sentence for the user.
pub(super) async fn ids(relay: &Remote, named: &[JobSelector]) -> anyhow::Result<Vec<JobId>> {
    let jobs = if named.is_empty() { Vec::new() } else { listed(relay).await? };
    let mut ids = Vec::new();
    for selector in named {
        let selected = selector.select(&jobs);
        match selector {
            _ if !selected.is_empty() => ids.extend(selected.into_iter().map(|job| JobId(job.id))),
            // The relay says what it thinks of a job that it does not list.
            JobSelector::Id(id) => ids.push(JobId(*id)),
            _ => return Err(NotOneJob::None(*selector).into()),
        }
    }
    Ok(ids)
}

/// The jobs that the relay lists.
///
/// # Errors
/// A complete sentence for the user.
pub(super) async fn listed(relay: &Remote) -> anyhow::Result<Vec<Job>> {
    Ok(relay.json::<Jobs>(Method::GET, "/api/v1/jobs", String::new()).await?.jobs)
}
