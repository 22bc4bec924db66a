//! Silences of findings: listed, set and ended by the owner.

use super::{Owner, Problem, respond};
use crate::web::WebState;
use axum::Json;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::response::Response;
use nodeglass_protocol::finding::{Silence, SilenceRequest};
use nodeglass_protocol::request::Request;

/// What is silenced; some may have ended.
#[utoipa::path(get, path = "/api/v1/silences", tag = "owner", operation_id = "silences",
    responses((status = 200, body = Vec<Silence>)))]
pub async fn list(State(web): State<WebState>, _: Owner) -> Json<Vec<Silence>> {
    Json(web.actions.silences())
}

/// Silences findings of a kind, of a job, or of a kind of a job, for some seconds; with 0 seconds ends that.
#[utoipa::path(post, path = "/api/v1/silences", tag = "owner", operation_id = "silence", request_body = SilenceRequest,
    responses((status = 200, body = String, content_type = "text/plain")))]
pub async fn silence(
    State(web): State<WebState>,
    _: Owner,
    request: Result<Json<SilenceRequest>, JsonRejection>,
) -> Result<Response, Problem> {
    let Json(request) = request
        .map_err(|error| Problem::body(&error, "{\"kind\":\"idle_gpus\",\"job\":17,\"for_s\":3600}"))?;
    Ok(respond(web.actions.request(Request::Silence(request)).await))
}
