//! The audit log over HTTP.

use super::{Problem, Reader, respond};
use crate::WebState;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::Response;
use nodeglass_protocol::audit::AuditLog;
use nodeglass_protocol::request::Request;
use serde::Deserialize;
use utoipa::IntoParams;

/// Number of days of the audit log without a choice.
const AUDIT_DAYS: u32 = 30;

/// The days of a query for the audit log.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct AuditQuery {
    /// Number of days, up to now; 30 by default.
    #[param(minimum = 1, maximum = 366)]
    days: Option<u32>,
}

/// Returns the audit log: views of guests, and actions; for the owner and tokens.
#[utoipa::path(get, path = "/api/v1/audit", tag = "owner", operation_id = "audit", params(AuditQuery),
    responses((status = 200, body = AuditLog)))]
pub async fn audit(
    State(web): State<WebState>,
    _: Reader,
    query: Result<Query<AuditQuery>, QueryRejection>,
) -> Result<Response, Problem> {
    let Query(AuditQuery { days }) = query.map_err(|error| Problem::query(&error, "days"))?;
    let days = days.unwrap_or(AUDIT_DAYS);
    if !(1..=AuditLog::MAX_DAYS).contains(&days) {
        return Err(Problem::bad_request(format!("days must be from 1 to {}", AuditLog::MAX_DAYS)));
    }
    Ok(respond(web.actions.request(Request::Audit { days }).await))
}
