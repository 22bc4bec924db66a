//! The overview as the live wire sends it.

use super::caller::Caller;
use super::{Problem, reply};
use crate::WebState;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use bytes::Bytes;
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::live::{ServerMessage, Topic};
use nodeglass_share::Viewer;
use std::time::Duration;
use tokio::time::timeout;

/// Time limit for a picture from the hub; it normally takes less than a tick.
const PICTURE_TIMEOUT: Duration = Duration::from_secs(5);

/// The overview as the page receives it, described in PROTOCOL.md. Programs rather read `/api/v1/snapshot`.
#[utoipa::path(get, path = "/api/v1/picture", tag = "state", operation_id = "picture",
    responses((status = 200, body = Object)))]
pub async fn picture(
    State(web): State<WebState>,
    caller: Caller,
    headers: HeaderMap,
) -> Result<Response, Response> {
    let (viewer, mut charge) = caller.begin(&web).await?;
    let frame = overview(&web, viewer, Form::Json).await.ok_or_else(Problem::shutting_down)?;
    charge.restart();
    let Ok(ServerMessage::Snapshot(snapshot)) = Form::Json.decode(&frame) else {
        return Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the picture is invalid").into());
    };
    let body = reply::body(&snapshot.picture);
    charge.sends(body.len());
    Ok(reply::json(&headers, body))
}

/// The encoded snapshot of the overview; `None` if the relay is shutting down.
pub(super) async fn overview(web: &WebState, viewer: Viewer, form: Form) -> Option<Bytes> {
    timeout(PICTURE_TIMEOUT, web.hub.picture(Topic::Overview, viewer, form)).await.ok().flatten()
}
