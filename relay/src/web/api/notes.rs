//! Notes over HTTP: those that the bearer may see, and for the owner adding, changing and deleting them.

use super::WebState;
use super::api::{self, Bearer, OwnerBearer, respond};
use axum::Json;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use nodeglass_protocol::note::{NewNote, NoteEdit, NoteId, NoteRequest, NoteSource};
use nodeglass_protocol::request::Request;
use nodeglass_protocol::{JobId, Text};
use serde::Deserialize;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// Time limit for a query; the database may wait for a disk.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Which notes are listed.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NotesQuery {
    job: Option<JobId>,
}

/// The notes that the bearer may see, by time; with `?job=17` those of one job, for the owner also of one that ended
/// long ago.
pub async fn list(
    State(web): State<WebState>,
    Bearer(grant, budget): Bearer,
    query: Result<Query<NotesQuery>, QueryRejection>,
) -> Response {
    let Ok(Query(NotesQuery { job })) = query else {
        return bad_request("expected no query, or ?job=JOBID");
    };
    let viewer = web.shares.viewer(&grant);
    let budget = match api::within_budget(&viewer, budget) {
        Ok(budget) => budget,
        Err(limit) => return api::rate_limited(limit).await,
    };
    let began = Instant::now();
    let Ok(Some(mut notes)) = timeout(TIMEOUT, web.hub.notes(job, viewer.clone())).await else {
        return api::shutting_down();
    };
    if let Some(job) = job.filter(|_| !viewer.is_guest()) {
        notes = timeout(TIMEOUT, web.store.with_stored_notes(job, notes.clone())).await.unwrap_or(notes);
    }
    let response = Json(&notes).into_response();
    if let Some(budget) = budget {
        budget.charge(2 * began.elapsed(), notes.len() * 128);
    }
    response
}

/// Adds a [`NewNote`]; responds with the [`nodeglass_protocol::note::SavedNote`].
pub async fn add(
    State(web): State<WebState>,
    _: OwnerBearer,
    note: Result<Json<NewNote>, JsonRejection>,
) -> Response {
    match note {
        // Only a probe knows what a job wrote.
        Ok(Json(note)) if note.source == NoteSource::Job => {
            bad_request("the source of a note cannot be \"job\"")
        }
        Ok(Json(note)) => send(&web, NoteRequest::Add(note)).await,
        Err(error) => unreadable("{\"job\":17,\"text\":\"epoch 3\"}", &error),
    }
}

/// Changes a note by a [`NoteEdit`]; responds like [`add`].
pub async fn edit(
    State(web): State<WebState>,
    _: OwnerBearer,
    Path(id): Path<String>,
    edit: Result<Json<NoteEdit>, JsonRejection>,
) -> Response {
    match (id.parse::<NoteId>(), edit) {
        (Ok(id), Ok(Json(edit))) => send(&web, NoteRequest::Edit { id, edit }).await,
        (Err(error), _) => bad_request(&format!("failed to {error}")),
        (_, Err(error)) => unreadable("{\"text\":\"epoch 4\"}", &error),
    }
}

/// Deletes a note.
pub async fn delete(State(web): State<WebState>, _: OwnerBearer, Path(id): Path<String>) -> Response {
    match id.parse::<NoteId>() {
        Ok(id) => send(&web, NoteRequest::Delete(id)).await,
        Err(error) => bad_request(&format!("failed to {error}")),
    }
}

async fn send(web: &WebState, request: NoteRequest) -> Response {
    respond(web.actions.request(Request::Note(request)).await)
}

fn unreadable(example: &str, error: &JsonRejection) -> Response {
    bad_request(&format!("expected a note in JSON, such as {example}\n{}", Text::new(error.body_text())))
}

fn bad_request(why: &str) -> Response {
    (StatusCode::BAD_REQUEST, format!("{why}\n")).into_response()
}
