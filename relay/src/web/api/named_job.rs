//! The raw id of a job that a request names, for resources of a single job.

use super::caller::Charge;
use super::problem::Problem;
use super::resources::everything;
use crate::api::{JobSelector, NotOneJob};
use crate::share::Viewer;
use crate::web::WebState;
use nodeglass_protocol::JobId;

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
