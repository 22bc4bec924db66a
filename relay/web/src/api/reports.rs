//! Reports over HTTP: of a job, and of what all of the owner's jobs used.

use super::caller::Caller;
use super::{Problem, Reader, named_job, reply};
use crate::{WebState, reports};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use nodeglass_api::JobSelector;
use nodeglass_protocol::job::JobState;
use nodeglass_protocol::report::{MAX_DAYS, Report, Usage};
use nodeglass_protocol::{JobId, NodeName};
use nodeglass_report::NodeFault;
use nodeglass_share::Viewer;
use serde::{Deserialize, Serialize};
use tokio::time::error::Elapsed;
use utoipa::{IntoParams, ToSchema};

/// Number of days without a choice.
const USAGE_DAYS: u32 = 30;

/// The days of a summary.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct UsageQuery {
    /// Number of days, up to now; 30 by default.
    #[param(minimum = 1, maximum = 366)]
    days: Option<u32>,
}

/// Filter of faults of nodes.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct FaultsQuery {
    /// Name of the node.
    #[param(value_type = Option<String>)]
    node: Option<NodeName>,
    /// Number of days in which the jobs started, up to now; 30 by default.
    #[param(minimum = 1, maximum = 366)]
    days: Option<u32>,
}

/// Faults of nodes and their GPUs.
#[derive(Debug, Serialize, ToSchema)]
pub struct Faults {
    /// The faults, the worst first, then the latest.
    pub faults: Vec<NodeFault>,
}

/// Returns the report of a job's resource usage, also after the job has ended.
#[utoipa::path(get, path = "/api/v1/jobs/{id}/report", tag = "reports", operation_id = "report",
    params(("id" = String, Path, description = "Job id, as 48461, 48440_16 or 48511+0")),
    responses((status = 200, body = Report)))]
pub async fn report(
    State(web): State<WebState>,
    caller: Caller,
    headers: HeaderMap,
    Path(id): Path<String>,
) -> Result<Response, Response> {
    let (viewer, mut charge) = caller.begin(&web).await?;
    let named: JobSelector = id.parse().map_err(Problem::from)?;
    let id = named_job::id(&web, &viewer, &mut charge, &named).await?;
    let late = |_| Problem::late("the database of jobs");
    let mut report = reports::job(&web, id, &viewer).await.map_err(late)?;
    if report.is_none() && !viewer.is_restricted() {
        named_job::await_listed(&web, &named).await?;
        report = reports::job(&web, id, &viewer).await.map_err(late)?;
    }
    charge.restart();
    let report = match report {
        Some(report) => report,
        None => return Err(no_report(&web, &viewer, id, &named).await.into()),
    };
    let body = reply::body(&report);
    charge.sends(body.len());
    Ok(reply::json(&headers, body))
}

/// Says that there is no report of a job, and that it has not started if a viewer may know that.
async fn no_report(web: &WebState, viewer: &Viewer, id: JobId, named: &JobSelector) -> Problem {
    let job = if viewer.is_restricted() { None } else { web.hub.job(id).await };
    Problem::not_found(match job {
        Some(job) if job.state == JobState::Pending => format!("job {named} has not started"),
        _ => format!("there is no report of job {named}"),
    })
}

/// Returns the usage of the owner's jobs of the last days: by week and project, and the most wasteful ones. On the relay of
/// a site, a person receives that of their own.
#[utoipa::path(get, path = "/api/v1/usage", tag = "reports", operation_id = "usage", params(UsageQuery),
    responses((status = 200, body = Usage)))]
pub async fn usage(
    State(web): State<WebState>,
    caller: Caller,
    headers: HeaderMap,
    query: Result<Query<UsageQuery>, QueryRejection>,
) -> Result<Response, Response> {
    let Query(UsageQuery { days }) = query.map_err(|error| Problem::query(&error, "days"))?;
    let (viewer, mut charge) = caller.begin(&web).await?;
    let Some(user) = reports::user(&web, &viewer) else {
        return Err(Problem::new(StatusCode::FORBIDDEN, "a share does not show this").into());
    };
    let days = checked(days)?;
    let usage = read(reports::usage(&web, &viewer, user, days).await)?;
    charge.restart();
    let body = reply::body(&usage);
    charge.sends(body.len());
    Ok(reply::json(&headers, body))
}

/// Returns the findings about nodes and their GPUs during the jobs of the last days: number, first occurrence and
/// duration.
#[utoipa::path(get, path = "/api/v1/faults", tag = "reports", operation_id = "faults", params(FaultsQuery),
    responses((status = 200, body = Faults)))]
pub async fn faults(
    State(web): State<WebState>,
    _: Reader,
    headers: HeaderMap,
    query: Result<Query<FaultsQuery>, QueryRejection>,
) -> Result<Response, Problem> {
    let Query(FaultsQuery { node, days }) = query.map_err(|error| Problem::query(&error, "node, days"))?;
    let faults = read(reports::faults(&web, checked(days)?).await)?.list(node.as_ref());
    Ok(reply::json(&headers, reply::body(&Faults { faults })))
}

/// Returns the content that was read from the database of jobs.
fn read<T>(found: Result<Option<T>, Elapsed>) -> Result<T, Problem> {
    let unreadable = || Problem::new(StatusCode::SERVICE_UNAVAILABLE, "the database of jobs cannot be read");
    found.map_err(|_| Problem::late("the database of jobs"))?.ok_or_else(unreadable)
}

/// A number of days that is permitted.
fn checked(days: Option<u32>) -> Result<u32, Problem> {
    let days = days.unwrap_or(USAGE_DAYS);
    match (1..=MAX_DAYS).contains(&days) {
        true => Ok(days),
        false => Err(Problem::bad_request(format!("days must be from 1 to {MAX_DAYS}"))),
    }
}
