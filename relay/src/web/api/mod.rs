//! The HTTP API: the overview as JSON for bearers of a key, and share management for the owner.

use super::pacing::CpuBudget;
use super::status::StatusReport;
use super::{Connection, WebState, reports};
use crate::auth::authenticator::{AuthError, FAILURE_DELAY_MS, RateLimited};
use crate::share::{AccessGrant, Viewer};
use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{FromRequestParts, Path, Query, State};
use axum::http::header::{AUTHORIZATION, CONNECTION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::live::{CloseReason, ServerMessage, Topic};
use nodeglass_protocol::request::{self, Request, RetryTarget};
use nodeglass_protocol::share::{ShareId, ShareRequest};
use nodeglass_protocol::{JobId, Text};
use serde::Deserialize;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Time limit for a picture from the hub; it normally takes less than a tick.
const PICTURE_TIMEOUT: Duration = Duration::from_secs(5);

/// What a request of a guest costs at least, also one that is refused: authentication, and the question to the event
/// loop and the database.
const MIN_COST: Duration = Duration::from_micros(300);

/// Number of days of the audit log without a choice.
const AUDIT_DAYS: u32 = 30;

/// Authenticated by `Authorization: Bearer KEY`, or `Bearer ID.KEY` of a share.
pub struct Bearer(pub(super) AccessGrant, pub(super) CpuBudget);

/// Authenticated by the owner's key.
pub struct OwnerBearer;

impl FromRequestParts<WebState> for Bearer {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, web: &WebState) -> Result<Self, Response> {
        let Ok(connection) = Connection::from_request_parts(parts, web).await;
        let authorization = only_authorization(&parts.headers);
        let result = web.authenticator.bearer(authorization, connection.origin(), web.about.clock.now_ms());
        match result {
            Ok(grant) => {
                // A single response does not need an authenticated permit, so the result is ignored.
                connection.mark_authenticated();
                if let AccessGrant::Guest(share) = &grant {
                    web.audit.api_request(share, connection.identity());
                }
                Ok(Self(grant, connection.budget()))
            }
            Err(AuthError::RateLimited(why)) => Err(rate_limited(why).await),
            Err(AuthError::WrongKey) => Err(wrong_key()),
            Err(AuthError::Forbidden(close_reason)) => Err(forbidden(close_reason)),
        }
    }
}

impl FromRequestParts<WebState> for OwnerBearer {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, web: &WebState) -> Result<Self, Response> {
        let Bearer(grant, budget) = Bearer::from_request_parts(parts, web).await?;
        let is_guest = matches!(grant, AccessGrant::Guest(_));
        if is_guest && budget.next_at(Instant::now()) > Instant::now() {
            return Err(rate_limited(RateLimited::TooOften { after_ms: 1_000 }).await);
        }
        match grant {
            AccessGrant::Owner => Ok(Self),
            AccessGrant::Guest(_) => {
                budget.charge(2 * MIN_COST, 0);
                Err((StatusCode::FORBIDDEN, "a share is read-only\n").into_response())
            }
        }
    }
}

fn only_authorization(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

fn wrong_key() -> Response {
    let challenge = [(WWW_AUTHENTICATE, "Bearer realm=\"nodeglass\"")];
    let why = "send the key of the relay's link: `Authorization: Bearer KEY`\n";
    (StatusCode::UNAUTHORIZED, challenge, why).into_response()
}

fn forbidden(close_reason: CloseReason) -> Response {
    let why = match close_reason {
        CloseReason::Revoked => "the owner revoked this share\n".to_owned(),
        CloseReason::Expired => "this share has expired\n".to_owned(),
        CloseReason::NotForYou { to } => {
            format!("this share is for {to}, but the kernel identifies you as another user\n")
        }
        CloseReason::NotByProxy { other_user: true } => {
            "the proxy names another user than the one who runs this relay\n".to_owned()
        }
        CloseReason::NotByProxy { other_user: false } => {
            "the proxy does not identify its visitor: set --proxy-user-header, or use a link of `relay link --tab`\n"
                .to_owned()
        }
        _ => "the owner's key is accepted on the owner's own connections only; ask for a share\n".to_owned(),
    };
    (StatusCode::FORBIDDEN, why).into_response()
}

/// The overview's [`nodeglass_protocol::Picture`] as JSON, filtered for the bearer.
pub async fn picture(State(web): State<WebState>, Bearer(grant, budget): Bearer) -> Response {
    let viewer = web.shares.viewer(&grant);
    let budget = match within_budget(&viewer, budget) {
        Ok(budget) => budget,
        Err(limit) => return rate_limited(limit).await,
    };
    let Some(frame) = overview(&web, viewer, Form::Json).await else { return shutting_down() };
    let began = Instant::now();
    match Form::Json.decode(&frame) {
        Ok(ServerMessage::Snapshot(snapshot)) => {
            let mut body = Form::Json.encode(&snapshot.picture);
            body.push(b'\n');
            if let Some(budget) = budget {
                // The hub spent as much on encoding it.
                budget.charge(2 * began.elapsed(), body.len());
            }
            ([(CONTENT_TYPE, "application/json")], body).into_response()
        }
        _ => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// The budget that a guest's request is charged to; none for the owner.
pub(super) fn within_budget(viewer: &Viewer, budget: CpuBudget) -> Result<Option<CpuBudget>, RateLimited> {
    let (now, budget) = (Instant::now(), viewer.is_guest().then_some(budget));
    match budget.as_ref().map(|budget| budget.next_at(now)).filter(|due| *due > now) {
        None => Ok(budget),
        Some(due) => {
            let after_ms = u64::try_from((due - now).as_millis()).unwrap_or(u64::MAX);
            Err(RateLimited::TooOften { after_ms })
        }
    }
}

/// What a job used ([`Report`]), filtered for the bearer.
pub async fn report(
    State(web): State<WebState>,
    Bearer(grant, budget): Bearer,
    Path(id): Path<String>,
) -> Response {
    let viewer = web.shares.viewer(&grant);
    let budget = match within_budget(&viewer, budget) {
        Ok(budget) => budget,
        Err(limit) => return rate_limited(limit).await,
    };
    let mut cost = MIN_COST;
    let (status, body) = match id.parse::<JobId>() {
        Err(_) => (StatusCode::BAD_REQUEST, b"expected the number of a job\n".to_vec()),
        Ok(id) => match reports::job(&web, id, &viewer).await {
            None => (StatusCode::NOT_FOUND, format!("there is no report of job {id}\n").into_bytes()),
            Some(report) => {
                let began = Instant::now();
                let mut body = serde_json::to_vec(&report).unwrap_or_default();
                body.push(b'\n');
                cost += began.elapsed();
                (StatusCode::OK, body)
            }
        },
    };
    if let Some(budget) = budget {
        budget.charge(2 * cost, body.len());
    }
    match status {
        StatusCode::OK => ([(CONTENT_TYPE, "application/json")], body).into_response(),
        status => (status, body).into_response(),
    }
}

/// The relay's own status ([`super::status::StatusReport`]), for the owner.
pub async fn status(State(web): State<WebState>, _: OwnerBearer) -> Response {
    let viewer = web.shares.viewer(&AccessGrant::Owner);
    let Some(frame) = overview(&web, viewer, Form::Binary).await else { return shutting_down() };
    match Form::Binary.decode(&frame) {
        Ok(ServerMessage::Snapshot(snapshot)) => {
            let now_ms = web.about.clock.now_ms();
            Json(StatusReport::new(web.about.build.clone(), &snapshot.picture, now_ms)).into_response()
        }
        _ => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// The encoded snapshot of the overview; `None` if the relay is shutting down.
async fn overview(web: &WebState, viewer: Viewer, form: Form) -> Option<Bytes> {
    tokio::time::timeout(PICTURE_TIMEOUT, web.hub.picture(Topic::Overview, viewer, form)).await.ok().flatten()
}

pub(super) fn shutting_down() -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, "the relay is shutting down\n").into_response()
}

/// The days of a query for the audit log.
#[derive(Debug, Deserialize)]
pub struct AuditQuery {
    days: Option<u32>,
}

/// Who viewed and which actions were performed ([`nodeglass_protocol::audit::AuditLog`]), for the owner.
pub async fn audit(
    State(web): State<WebState>,
    _: OwnerBearer,
    query: Result<Query<AuditQuery>, QueryRejection>,
) -> Response {
    let Ok(Query(AuditQuery { days })) = query else {
        return (StatusCode::BAD_REQUEST, "expected the number of days: ?days=30\n").into_response();
    };
    respond(web.actions.request(Request::Audit { days: days.unwrap_or(AUDIT_DAYS) }).await)
}

/// The open shares and current viewers ([`nodeglass_protocol::share::Sharing`]).
pub async fn shares(State(web): State<WebState>, _: OwnerBearer) -> Response {
    Json(web.actions.sharing()).into_response()
}

/// Creates a share from a [`ShareRequest`]; responds with its [`nodeglass_protocol::share::ShareLink`].
pub async fn share(
    State(web): State<WebState>,
    _: OwnerBearer,
    request: Result<Json<ShareRequest>, JsonRejection>,
) -> Response {
    match request {
        Ok(Json(request)) => respond(web.actions.request(Request::Share(Box::new(request))).await),
        Err(error) => {
            let form = "expected a share request in JSON, such as {\"scope\":{\"jobs\":[17]}}";
            let why = Text::new(error.body_text());
            (StatusCode::BAD_REQUEST, format!("{form}\n{why}\n")).into_response()
        }
    }
}

/// The link of an open share.
pub async fn share_link(State(web): State<WebState>, _: OwnerBearer, Path(id): Path<String>) -> Response {
    match ShareId::new(id) {
        Ok(id) => respond(web.actions.request(Request::ShareLink(id)).await),
        Err(error) => (StatusCode::BAD_REQUEST, format!("failed to {error}\n")).into_response(),
    }
}

/// Revokes a share.
pub async fn revoke(State(web): State<WebState>, _: OwnerBearer, Path(id): Path<String>) -> Response {
    match ShareId::new(id) {
        Ok(id) => respond(web.actions.request(Request::Revoke(id)).await),
        Err(error) => (StatusCode::BAD_REQUEST, format!("failed to {error}\n")).into_response(),
    }
}

/// Retries a [`RetryTarget`] now; responds with what is retried.
pub async fn retry(
    State(web): State<WebState>,
    _: OwnerBearer,
    target: Result<Json<RetryTarget>, JsonRejection>,
) -> Response {
    let Ok(Json(target)) = target else {
        let why = "expected what to retry in JSON: {\"node\":\"gpu-01\"}, \"jobs\" or \"everything\"\n";
        return (StatusCode::BAD_REQUEST, why).into_response();
    };
    respond(web.actions.request(Request::Retry(target)).await)
}

pub(super) fn respond(response: request::Response) -> Response {
    match response {
        request::Response::Share(link) => Json(link).into_response(),
        request::Response::Audit(log) => Json(log).into_response(),
        request::Response::Done(done) => format!("{done}\n").into_response(),
        request::Response::Refused(why) => {
            (StatusCode::UNPROCESSABLE_ENTITY, format!("{why}\n")).into_response()
        }
        request::Response::Note(saved) => Json(saved).into_response(),
        request::Response::Process(_) | request::Response::Tail(_) => {
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

/// Creates a link for one tab, for `relay link --tab`: what follows `#t=` in it, as text.
pub async fn tab_link(State(web): State<WebState>, _: OwnerBearer) -> Response {
    match web.authenticator.open_tab_link(web.about.clock.now_ms()) {
        Ok(ticket) => ticket.reveal().into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

/// Delay of responses to rate-limited requests.
const REJECT_DELAY: Duration = Duration::from_millis(FAILURE_DELAY_MS);

/// Responds that a limit was exceeded, after a delay during which the connection stays counted, so that
/// no client can make the relay respond thousands of times a second.
pub(super) async fn rate_limited(why: RateLimited) -> Response {
    let (status, after_s) = match why {
        RateLimited::TooMany => (StatusCode::SERVICE_UNAVAILABLE, 5),
        RateLimited::Refused { after_ms } | RateLimited::TooOften { after_ms } => {
            (StatusCode::TOO_MANY_REQUESTS, after_ms.div_ceil(1000))
        }
    };
    sleep(REJECT_DELAY).await;
    let headers = [(RETRY_AFTER, after_s.to_string()), (CONNECTION, "close".to_owned())];
    (status, headers, format!("{why}\n")).into_response()
}
