//! The raw id of a job that a request names, and the topic that `?job=` or `?node=` names.

use super::caller::Charge;
use super::everything::{everything, picture};
use super::problem::Problem;
use crate::WebState;
use crate::status::SlurmStatus;
use axum::http::StatusCode;
use nodeglass_actions::NoNewerJobs;
use nodeglass_api::{JobSelector, NotOneJob};
use nodeglass_protocol::live::Topic;
use nodeglass_protocol::picture::JobsHealth;
use nodeglass_protocol::share::Scope;
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

/// Refuses to list jobs before SLURM has listed any: an empty list would say that there are none.
pub(super) async fn require_list(web: &WebState) -> Result<(), Problem> {
    let detail = match web.hub.jobs_health().await.ok_or_else(Problem::shutting_down)? {
        JobsHealth::NotYet => "SLURM has not listed the jobs yet; try again in a moment",
        JobsHealth::Stale { last_ms: None, .. } => {
            "SLURM has not responded since the relay started, so that no list of jobs is known; try again later"
        }
        JobsHealth::Stale { last_ms: Some(_), .. } | JobsHealth::NoSlurm | JobsHealth::Fresh { .. } => {
            return Ok(());
        }
    };
    Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail))
}

/// Waits for a newer job list if the last one does not have a job that the owner or a token names: it may have been
/// submitted since.
pub(super) async fn await_listed(web: &WebState, named: &JobSelector) -> Result<(), Problem> {
    if is_listed(web, named).await? { Ok(()) } else { newer_jobs(web, named).await }
}

/// Waits once for a newer job list if the last one does not have all jobs of a scope.
pub(super) async fn await_all_listed(web: &WebState, scope: &Scope) -> Result<(), Problem> {
    let (jobs, arrays) = scope.jobs_and_arrays();
    for job in jobs {
        if web.hub.job(*job).await.is_none() {
            return newer_jobs(web, &(*job).into()).await;
        }
    }
    for array in arrays {
        let array = JobSelector::from(*array);
        if !is_listed(web, &array).await? {
            return newer_jobs(web, &array).await;
        }
    }
    Ok(())
}

async fn is_listed(web: &WebState, named: &JobSelector) -> Result<bool, Problem> {
    Ok(match named {
        JobSelector::Id(id) if web.hub.job(JobId(*id)).await.is_some() => true,
        _ => !named.select(&picture(web, Viewer::Owner).await?.0.jobs).is_empty(),
    })
}

/// Waits for a job list that is newer than the request.
async fn newer_jobs(web: &WebState, named: &JobSelector) -> Result<(), Problem> {
    let Err(why) = web.actions.newer_jobs().await else { return Ok(()) };
    let health = picture(web, Viewer::Owner).await?.0.relay.jobs;
    let (age, reason) = match SlurmStatus::of(&health, web.about.clock.now_ms()) {
        SlurmStatus::Stale { age_s, reason, .. } => (age_s, reason.to_string()),
        SlurmStatus::Fresh { age_s } => (Some(age_s), "SLURM has not responded since".to_owned()),
        SlurmStatus::NotYet | SlurmStatus::NoSlurm => (None, "SLURM has not responded yet".to_owned()),
    };
    let age = age.map_or(String::new(), |age_s| format!(", which is {age_s} s old"));
    let status = match why {
        NoNewerJobs::Failing => StatusCode::SERVICE_UNAVAILABLE,
        NoNewerJobs::Late => StatusCode::GATEWAY_TIMEOUT,
    };
    Err(Problem::new(status, format!("job {named} is not in the list of jobs{age}: {reason}")))
}

/// Returns the id of a named job, also of an ended one if its label was stored.
///
/// A raw id is not looked up: reading the job finds out whether it exists.
pub(super) async fn id(
    web: &WebState,
    viewer: &Viewer,
    charge: &mut Charge,
    named: &JobSelector,
) -> Result<JobId, Problem> {
    if let JobSelector::Id(id) = named {
        return Ok(JobId(*id));
    }
    let find = async |charge: &mut Charge| -> Result<Option<JobId>, Problem> {
        match named.one(&everything(web, viewer.clone(), charge).await?.jobs) {
            Ok(job) => Ok(Some(job.id)),
            Err(error @ (NotOneJob::Several { .. } | NotOneJob::Clusters { .. })) => {
                Err(Problem::bad_request(error.to_string()))
            }
            Err(NotOneJob::None(_)) if viewer.is_restricted() => Ok(None),
            Err(NotOneJob::None(_)) => Ok(web.store.id_of(named.to_string()).await),
        }
    };
    if let Some(id) = find(charge).await? {
        return Ok(id);
    }
    let unknown = || Problem::not_found(NotOneJob::None(named.clone()).to_string());
    if viewer.is_restricted() {
        return Err(unknown());
    }
    newer_jobs(web, named).await?;
    find(charge).await?.ok_or_else(unknown)
}
