//! Notes over HTTP: listing visible ones, and for the owner adding, changing and deleting them.

use super::{Caller, Owner, Problem, named_job, respond};
use crate::WebState;
use axum::Json;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use nodeglass_api::JobSelector;
use nodeglass_fleet::NoteError;
use nodeglass_protocol::note::{NewNote, Note, NoteEdit, NoteId, NoteRequest, NoteSource, SavedNote};
use nodeglass_protocol::request::{self, Request};
use serde::Deserialize;
use std::time::Duration;
use tokio::time::timeout;
use utoipa::IntoParams;

/// Time limit for a query; the database may wait for a disk.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Filter of notes.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct NotesQuery {
    /// Id of a job, as `48461`, `48440_16` or `48511+0`.
    #[param(value_type = Option<String>, example = "48440_16")]
    job: Option<JobSelector>,
}

/// Returns the notes that the caller may see, by time; with `?job=17` the notes of one job, for the owner also of one
/// that ended long ago.
#[utoipa::path(get, path = "/api/v1/notes", tag = "notes", operation_id = "notes", params(NotesQuery),
    responses((status = 200, body = Vec<Note>)))]
pub async fn list(
    State(web): State<WebState>,
    caller: Caller,
    query: Result<Query<NotesQuery>, QueryRejection>,
) -> Result<Response, Response> {
    let Query(NotesQuery { job }) = query.map_err(|error| Problem::query(&error, "job"))?;
    let (viewer, mut charge) = caller.begin(&web).await?;
    let job = match job {
        Some(named) => Some(named_job::id(&web, &viewer, &mut charge, &named).await?),
        None => None,
    };
    // The list would lack notes of earlier relays before they are read.
    timeout(TIMEOUT, web.store.restored()).await.map_err(|_| Problem::late("the database of notes"))?;
    let Ok(Some(mut notes)) = timeout(TIMEOUT, web.hub.notes(job, viewer.clone())).await else {
        return Err(Problem::shutting_down().into());
    };
    if let Some(job) = job.filter(|_| !viewer.is_restricted()) {
        let all = timeout(TIMEOUT, web.store.with_stored_notes(job, &notes)).await;
        notes = all.ok().flatten().ok_or_else(|| Problem::late("the database of notes"))?;
    }
    charge.sends(notes.len() * 128);
    Ok(Json(&notes).into_response())
}

/// Adds a note; responds with it.
#[utoipa::path(post, path = "/api/v1/notes", tag = "notes", operation_id = "add_note", request_body = NewNote,
    responses((status = 200, body = SavedNote)))]
pub async fn add(
    State(web): State<WebState>,
    _: Owner,
    note: Result<Json<NewNote>, JsonRejection>,
) -> Result<Response, Problem> {
    let Json(note) = note.map_err(|error| Problem::body(&error, "{\"job\":17,\"text\":\"epoch 3\"}"))?;
    // Only a probe knows what a job wrote.
    if note.source == NoteSource::Job {
        return Err(Problem::bad_request("the source of a note cannot be \"job\""));
    }
    if let Some(job) = note.job {
        named_job::await_listed(&web, &job.into()).await?;
    }
    Ok(send(&web, NoteRequest::Add(note)).await)
}

/// Changes the text or the time of a note; responds with the note. With `if_text` or `if_at_ms`, an edit of a note that
/// is not so is refused with 409.
#[utoipa::path(patch, path = "/api/v1/notes/{id}", tag = "notes", operation_id = "edit_note", request_body = NoteEdit,
    params(("id" = inline(NoteId), Path, description = "Id of the note")), responses((status = 200, body = SavedNote)))]
pub async fn edit(
    State(web): State<WebState>,
    _: Owner,
    Path(id): Path<String>,
    edit: Result<Json<NoteEdit>, JsonRejection>,
) -> Result<Response, Problem> {
    let id = note_id(&id)?;
    let Json(edit) = edit.map_err(|error| Problem::body(&error, "{\"text\":\"epoch 4\"}"))?;
    Ok(send(&web, NoteRequest::Edit { id, edit }).await)
}

/// Deletes a note.
#[utoipa::path(delete, path = "/api/v1/notes/{id}", tag = "notes", operation_id = "delete_note",
    params(("id" = inline(NoteId), Path, description = "Id of the note")),
    responses((status = 200, body = String, content_type = "text/plain")))]
pub async fn delete(
    State(web): State<WebState>,
    _: Owner,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    Ok(send(&web, NoteRequest::Delete(note_id(&id)?)).await)
}

fn note_id(id: &str) -> Result<NoteId, Problem> {
    id.parse().map_err(|error| Problem::bad_request(format!("failed to {error}")))
}

async fn send(web: &WebState, request: NoteRequest) -> Response {
    let changed = match &request {
        NoteRequest::Edit { id, .. } => Some(NoteError::Changed(*id).to_string()),
        NoteRequest::Add(_) | NoteRequest::Delete(_) => None,
    };
    let missing = match &request {
        NoteRequest::Edit { id, .. } | NoteRequest::Delete(id) => {
            vec![NoteError::NoSuchNote(*id).to_string()]
        }
        NoteRequest::Add(NewNote { job, node, .. }) => {
            let job = job.map(NoteError::NoSuchJob);
            let node = node.clone().map(NoteError::NoSuchNode);
            job.into_iter().chain(node).map(|error| error.to_string()).collect()
        }
    };
    match web.actions.request(Request::Note(request)).await {
        request::Response::Refused(why) if missing.iter().any(|missing| missing == why.as_str()) => {
            Problem::not_found(why.to_string()).into_response()
        }
        request::Response::Refused(why) if changed.is_some_and(|changed| changed == why.as_str()) => {
            Problem::new(StatusCode::CONFLICT, why.to_string()).into_response()
        }
        response => respond(response),
    }
}
