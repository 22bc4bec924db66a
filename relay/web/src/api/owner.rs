//! Further requests of the owner: retries, and links for one tab.

use super::{Owner, Problem, respond, shares};
use crate::WebState;
use axum::Json;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::http::StatusCode;
use axum::response::Response;
use nodeglass_protocol::request::{Request, RetryTarget};
use nodeglass_protocol::share::Scope;

/// Retries a node, the job list, or everything that waits, now. Responds with what is retried.
#[utoipa::path(post, path = "/api/v1/retry", tag = "owner", operation_id = "retry", request_body = RetryTarget,
    responses((status = 200, body = String, content_type = "text/plain")))]
pub async fn retry(
    State(web): State<WebState>,
    _: Owner,
    target: Result<Json<RetryTarget>, JsonRejection>,
) -> Result<Response, Problem> {
    let example = "{\"node\":\"gpu-01\"}, \"jobs\" or \"everything\"";
    let Json(target) = target.map_err(|error| Problem::body(&error, example))?;
    if let RetryTarget::Node(node) = &target {
        shares::watched(&web, Scope::Nodes(vec![node.clone()])).await?;
    }
    Ok(respond(web.actions.request(Request::Retry(target)).await))
}

/// Creates a link for one tab: what follows `#t=` in it, as text.
#[utoipa::path(post, path = "/api/v1/tab", tag = "owner", operation_id = "tab_link",
    responses((status = 200, body = String, content_type = "text/plain")))]
pub async fn tab_link(State(web): State<WebState>, _: Owner) -> Result<String, Problem> {
    let ticket = web.authenticator.open_tab_link(web.about.clock.now_ms());
    let ticket =
        ticket.map_err(|error| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    Ok(ticket.reveal())
}
