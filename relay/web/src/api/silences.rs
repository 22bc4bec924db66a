//! Silences of findings: listed, set and ended by the owner.

use super::{Owner, Problem, respond};
use crate::WebState;
use axum::Json;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::response::{IntoResponse, Response};
use nodeglass_api::{Silence, SilenceChange};
use nodeglass_platform::clock::Clock;
use nodeglass_protocol::finding::{self, SilenceRequest};
use nodeglass_protocol::request::{self, Request};
use nodeglass_share::Viewer;

/// Returns the silences.
#[utoipa::path(get, path = "/api/v1/silences", tag = "owner", operation_id = "silences",
    responses((status = 200, body = Vec<Silence>)))]
pub async fn list(State(web): State<WebState>, _: Owner) -> Result<Json<Vec<Silence>>, Problem> {
    let now_ms = Clock::wall_ms();
    let silences = web.actions.silences().into_iter().filter(|silence| silence.until_ms > now_ms);
    Ok(Json(resources(&web, silences).await?))
}

/// Silences findings of a kind, of a job, or of a kind of a job, for some seconds; 0 seconds end a silence. The job
/// need not be listed: a job that is submitted later is silenced from its start.
#[utoipa::path(post, path = "/api/v1/silences", tag = "owner", operation_id = "silence", request_body = SilenceRequest,
    responses((status = 200, body = SilenceChange)))]
pub async fn silence(
    State(web): State<WebState>,
    _: Owner,
    request: Result<Json<SilenceRequest>, JsonRejection>,
) -> Result<Response, Problem> {
    let Json(request) = request
        .map_err(|error| Problem::body(&error, "{\"kind\":\"idle_gpus\",\"job\":17,\"for_s\":3600}"))?;
    let asked = (request.kind, request.job);
    let find = || {
        let now_ms = Clock::wall_ms();
        let is_asked = |one: &finding::Silence| one.until_ms > now_ms && (one.kind, one.job) == asked;
        web.actions.silences().into_iter().find(is_asked)
    };
    let existed = find().is_some();
    let message = match web.actions.request(Request::Silence(request)).await {
        request::Response::Done(message) => message.to_string(),
        other => return Ok(respond(other)),
    };
    let silence = resources(&web, find().into_iter()).await?.pop();
    let is_changed = existed || silence.is_some();
    Ok(Json(SilenceChange { message, is_changed, silence }).into_response())
}

async fn resources(
    web: &WebState,
    silences: impl Iterator<Item = finding::Silence>,
) -> Result<Vec<Silence>, Problem> {
    let jobs = web.hub.jobs(Viewer::Owner).await.ok_or_else(Problem::shutting_down)?;
    Ok(silences.map(|silence| Silence::new(&silence, &jobs)).collect())
}
