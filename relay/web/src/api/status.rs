//! Status and readiness of the relay itself.

use super::{Problem, Reader, picture};
use crate::WebState;
use crate::status::{ProcessStatus, Readiness, StatusReport};
use axum::Json;
use axum::extract::State;
use axum::http::header::{ACCEPT, AUTHORIZATION};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Redirect, Response};
use nodeglass_api::Losses;
use nodeglass_protocol::Picture;
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::live::ServerMessage;
use nodeglass_remote_write::Counts as RemoteWriteCounts;
use nodeglass_share::Viewer;
use std::time::Duration;
use tokio::time::timeout;

/// Time limit for an answer of the event loop.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Returns the status of the relay itself: connections, the age of SLURM's data, what was lost, CPU and memory of relay
/// and probes; for the owner and tokens.
#[utoipa::path(get, path = "/status", tag = "relay", operation_id = "status",
    responses((status = 200, body = StatusReport)))]
pub async fn status(
    State(web): State<WebState>,
    headers: HeaderMap,
    reader: Result<Reader, Response>,
) -> Response {
    match reader {
        Ok(Reader) => report(&web).await.map(Json).into_response(),
        // An address that was typed carries no key: the page logs in, and shows how the relay is doing.
        Err(_) if is_typed(&headers) => Redirect::to("./").into_response(),
        Err(refused) => refused,
    }
}

/// Returns whether a browser opens the address itself, rather than a program that sends a key.
fn is_typed(headers: &HeaderMap) -> bool {
    let accepted = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    accepted.contains("text/html") && !headers.contains_key(AUTHORIZATION)
}

async fn report(web: &WebState) -> Result<StatusReport, Problem> {
    let picture = owners_overview(web).await?;
    let now_ms = web.about.clock.now_ms();
    let probes = web.hub.probe_usages().await.ok_or_else(Problem::shutting_down)?;
    let Losses { connections, unstored } = web.hub.losses().await.ok_or_else(Problem::shutting_down)?;
    let own_load = web.hub.own_load().await.ok_or_else(Problem::shutting_down)?;
    let report = StatusReport::new(web.about.build.clone(), &picture, ProcessStatus::read(), probes, now_ms);
    let slow_sampling = own_load.slower_sampling.clone().or(report.slow_sampling);
    let notifications = web.notifications.list();
    let remote_write = web.remote_write.as_ref().map(RemoteWriteCounts::status);
    Ok(StatusReport { notifications, remote_write, slow_sampling, own_load, connections, unstored, ..report })
}

/// Whether the relay is ready: its list of jobs is known, and not older than it should be. Without authentication, so
/// it says nothing else.
#[utoipa::path(get, path = "/readyz", tag = "relay", operation_id = "readyz", security(()),
    responses((status = 200, body = String, content_type = "text/plain"),
              (status = 503, description = "It is not; the body says why", body = String, content_type = "text/plain")))]
pub async fn ready(State(web): State<WebState>) -> Response {
    // Anyone may ask, so that the answer must cost little.
    let health = timeout(TIMEOUT, web.hub.jobs_health()).await.ok().flatten();
    let unknown = Readiness::NotReady("the relay is shutting down, or is overloaded");
    match health.as_ref().map_or(unknown, Readiness::of) {
        Readiness::Ready => "ready\n".into_response(),
        Readiness::NotReady(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response(),
    }
}

async fn owners_overview(web: &WebState) -> Result<Picture, Problem> {
    let frame =
        picture::overview(web, Viewer::Owner, Form::Binary).await.ok_or_else(Problem::shutting_down)?;
    match Form::Binary.decode(&frame) {
        Ok(ServerMessage::Snapshot(snapshot)) => Ok(snapshot.picture),
        _ => Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the picture is invalid")),
    }
}
