//! Shares over HTTP, for the owner.

use super::{Owner, Problem, Reader, named_job, respond};
use crate::WebState;
use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use nodeglass_api::ShareList;
use nodeglass_protocol::request::Request;
use nodeglass_protocol::share::{Scope, ShareId, ShareLink, ShareRequest, Sharing};
use nodeglass_share::ShareError;

/// Open shares, current viewers, and stored shares that stay closed here, for the owner.
#[utoipa::path(get, path = "/api/v1/shares", tag = "owner", operation_id = "shares",
    responses((status = 200, body = ShareList)))]
pub async fn shares(State(web): State<WebState>, _: Reader) -> Json<ShareList> {
    let Sharing { shares, visitors, .. } = web.actions.sharing();
    Json(ShareList { shares, visitors, closed: web.shares.closed() })
}

/// Responds that there is no such job or node if the relay does not watch all of a scope.
pub(super) async fn watched(web: &WebState, scope: Scope) -> Result<(), Problem> {
    match web.hub.unwatched(scope).await {
        None => Ok(()),
        Some(what) => Err(Problem::not_found(ShareError::NotWatched(what).to_string())),
    }
}

/// Creates a share.
#[utoipa::path(post, path = "/api/v1/shares", tag = "owner", operation_id = "create_share", request_body = ShareRequest,
    responses((status = 200, body = ShareLink)))]
pub async fn share(
    State(web): State<WebState>,
    _: Owner,
    request: Result<Json<ShareRequest>, JsonRejection>,
) -> Result<Response, Problem> {
    let Json(request) = request.map_err(|error| Problem::body(&error, "{\"scope\":{\"jobs\":[17]}}"))?;
    named_job::await_all_listed(&web, &request.scope).await?;
    watched(&web, request.scope.clone()).await?;
    Ok(respond(web.actions.request(Request::Share(Box::new(request))).await))
}

/// The link of an open share, which contains its key.
#[utoipa::path(get, path = "/api/v1/shares/{id}", tag = "owner", operation_id = "share_link",
    params(("id" = inline(ShareId), Path, description = "Id of the share")),
    responses((status = 200, body = ShareLink)))]
pub async fn share_link(
    State(web): State<WebState>,
    _: Owner,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    Ok(respond(web.actions.request(Request::ShareLink(existing_share(&web, id, false)?)).await))
}

/// Revokes a share.
#[utoipa::path(delete, path = "/api/v1/shares/{id}", tag = "owner", operation_id = "revoke_share",
    params(("id" = inline(ShareId), Path, description = "Id of the share")),
    responses((status = 200, body = String, content_type = "text/plain")))]
pub async fn revoke(
    State(web): State<WebState>,
    _: Owner,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    Ok(respond(web.actions.request(Request::Revoke(existing_share(&web, id, true)?)).await))
}

/// The id of a share that is open, or `or_closed`.
fn existing_share(web: &WebState, id: String, or_closed: bool) -> Result<ShareId, Problem> {
    let id = ShareId::new(id).map_err(|error| Problem::bad_request(format!("failed to {error}")))?;
    let is_open = web.actions.sharing().shares.iter().any(|share| share.id == id);
    match is_open || or_closed && web.shares.closed().iter().any(|closed| closed.share.id == id) {
        true => Ok(id),
        false => Err(Problem::not_found(ShareError::Unknown(id).to_string())),
    }
}
