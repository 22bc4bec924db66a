//! The raw id of a job that a request names, and the topic that `?job=` or `?node=` names.

use super::caller::Charge;
use super::problem::Problem;
use super::resources::everything;
use crate::WebState;
use nodeglass_api::{JobSelector, NotOneJob};
use nodeglass_protocol::live::Topic;
use nodeglass_protocol::{JobId, NodeName};
use nodeglass_share::Viewer;

/// The topic of a job or of a node; everything without either.
pub(super) async fn topic(
    web: &WebState,
    viewer: &Viewer,
    charge: &mut Charge,
    job: Option<JobSelector>,
    node: Option<NodeName>,
) -> Result<Topic, Problem> {
    match (job, node) {
        (None, None) => Ok(Topic::Overview),
        (Some(named), None) => Ok(Topic::Job(id(web, viewer, charge, &named).await?)),
        (None, Some(node)) => Ok(Topic::Node(node)),
        (Some(_), Some(_)) => Err(Problem::bad_request("choose a job or a node, not both")),
    }
}

/// The job that is named, also one that has ended, if its label was stored.
///
/// A raw id is not looked up: what reads of the job finds out whether it exists.
pub(super) async fn id(
    web: &WebState,
    viewer: &Viewer,
    charge: &mut Charge,
    named: &JobSelector,
) -> Result<JobId, Problem> {
    if let JobSelector::Id(id) = named {
        return Ok(JobId(*id));
    }
    let picture = everything(web, viewer.clone(), charge).await?;
    match named.one(&picture.jobs) {
        Ok(job) => Ok(job.id),
        Err(error @ NotOneJob::Several { .. }) => Err(Problem::bad_request(error.to_string())),
        Err(error @ NotOneJob::None(_)) => {
            let stored = if viewer.is_guest() { None } else { web.store.id_of(named.to_string()).await };
            stored.ok_or_else(|| Problem::not_found(error.to_string()))
        }
    }
}
