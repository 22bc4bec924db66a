//! A script gets the overview as JSON for a key as Bearer; `relay share` makes and ends shares by the owner's.

use super::pace::Budget;
use super::{Connection, WebState};
use crate::access::doorkeeper::{NotLetIn, PAUSE_MS, TurnedAway};
use crate::share::Admission;
use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{FromRequestParts, Path, State};
use axum::http::header::{AUTHORIZATION, CONNECTION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use nodeglass_protocol::Text;
use nodeglass_protocol::ask::{Answer, Ask, RetryTarget};
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::live::{Farewell, ServerMessage, Topic};
use nodeglass_protocol::share::{ShareId, ShareRequest};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// How long the hub may take for a picture; it normally takes less than a tick.
const PATIENCE: Duration = Duration::from_secs(5);

/// Who shows a key, as `Authorization: Bearer KEY`, or `Bearer ID.KEY` of a share.
pub struct Bearer(Admission, Budget);

/// The owner, by the key.
pub struct OwnerBearer;

impl FromRequestParts<WebState> for Bearer {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, web: &WebState) -> Result<Self, Response> {
        let Ok(connection) = Connection::from_request_parts(parts, web).await;
        let authorization = only_authorization(&parts.headers);
        let let_in = web.door.bearer(authorization, connection.origin(), web.about.clock.now_ms());
        match let_in {
            Ok(admission) => {
                // Should others have proved theirs before, this one still gets its single answer.
                connection.mark_authenticated();
                Ok(Self(admission, connection.budget()))
            }
            Err(NotLetIn::TurnedAway(why)) => Err(turned_away(why).await),
            Err(NotLetIn::WrongKey) => Err(wrong_key()),
            Err(NotLetIn::NoMore(farewell)) => Err(no_more(farewell)),
        }
    }
}

impl FromRequestParts<WebState> for OwnerBearer {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, web: &WebState) -> Result<Self, Response> {
        match Bearer::from_request_parts(parts, web).await?.0 {
            Admission::Owner => Ok(Self),
            Admission::Guest(_) => {
                Err((StatusCode::FORBIDDEN, "a share only lets its holder look\n").into_response())
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

fn no_more(farewell: Farewell) -> Response {
    let why = match farewell {
        Farewell::Revoked => "the owner revoked this share\n".to_owned(),
        Farewell::Expired => "this share's time is over\n".to_owned(),
        Farewell::NotForYou { to } => {
            format!("this share is for {to}, and the kernel says that you are not\n")
        }
        Farewell::NotByProxy { other_user: true } => {
            "the proxy says that its visitor is another user than the one who runs this relay\n".to_owned()
        }
        Farewell::NotByProxy { other_user: false } => {
            "the proxy does not say who its visitor is: set --proxy-user-header, or use a link of `relay link --tab`\n"
                .to_owned()
        }
        _ => "the owner's key works on the owner's own connections only; ask for a share\n".to_owned(),
    };
    (StatusCode::FORBIDDEN, why).into_response()
}

/// The overview's [`nodeglass_protocol::Picture`] as JSON, as far as the key's holder may see it.
pub async fn picture(State(web): State<WebState>, Bearer(admission, budget): Bearer) -> Response {
    let viewer = web.shares.viewer(&admission);
    let budget = viewer.is_guest().then_some(budget);
    let now = Instant::now();
    if let Some(due) = budget.as_ref().map(|budget| budget.is_due_at(now)).filter(|due| *due > now) {
        let after_ms = u64::try_from((due - now).as_millis()).unwrap_or(u64::MAX);
        return turned_away(TurnedAway::TooOften { after_ms }).await;
    }
    let asked = tokio::time::timeout(PATIENCE, web.hub.picture(Topic::Overview, viewer, Form::Json)).await;
    let Some(frame) = asked.ok().flatten() else {
        return (StatusCode::SERVICE_UNAVAILABLE, "the relay is ending\n").into_response();
    };
    let began = Instant::now();
    match Form::Json.decode(&frame) {
        Ok(ServerMessage::Snapshot(snapshot)) => {
            let mut body = Form::Json.encode(&snapshot.picture);
            body.push(b'\n');
            if let Some(budget) = budget {
                // The hub encoded as much before.
                budget.charge(2 * began.elapsed(), body.len());
            }
            ([(CONTENT_TYPE, "application/json")], body).into_response()
        }
        _ => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// The open shares and who looks ([`nodeglass_protocol::share::Sharing`]).
pub async fn shares(State(web): State<WebState>, _: OwnerBearer) -> Response {
    Json(web.desk.sharing()).into_response()
}

/// Makes a share of a [`ShareRequest`]; answers with its [`nodeglass_protocol::share::ShareLink`].
pub async fn share(
    State(web): State<WebState>,
    _: OwnerBearer,
    request: Result<Json<ShareRequest>, JsonRejection>,
) -> Response {
    match request {
        Ok(Json(request)) => answered(web.desk.ask(Ask::Share(Box::new(request))).await),
        Err(error) => {
            let form = "send what is asked of the share as JSON: {\"scope\":{\"jobs\":[17]}}";
            let why = Text::new(error.body_text());
            (StatusCode::BAD_REQUEST, format!("{form}\n{why}\n")).into_response()
        }
    }
}

/// The link of a share once more.
pub async fn share_link(State(web): State<WebState>, _: OwnerBearer, Path(id): Path<String>) -> Response {
    match ShareId::new(id) {
        Ok(id) => answered(web.desk.ask(Ask::ShareLink(id)).await),
        Err(error) => (StatusCode::BAD_REQUEST, format!("failed to {error}\n")).into_response(),
    }
}

/// Revokes a share.
pub async fn revoke(State(web): State<WebState>, _: OwnerBearer, Path(id): Path<String>) -> Response {
    match ShareId::new(id) {
        Ok(id) => answered(web.desk.ask(Ask::Revoke(id)).await),
        Err(error) => (StatusCode::BAD_REQUEST, format!("failed to {error}\n")).into_response(),
    }
}

/// Tries a [`RetryTarget`] again now; answers with what is tried.
pub async fn retry(
    State(web): State<WebState>,
    _: OwnerBearer,
    target: Result<Json<RetryTarget>, JsonRejection>,
) -> Response {
    let Ok(Json(target)) = target else {
        let why = "send what to try again as JSON: {\"node\":\"gpu-01\"}, \"jobs\" or \"everything\"\n";
        return (StatusCode::BAD_REQUEST, why).into_response();
    };
    answered(web.desk.ask(Ask::Retry(target)).await)
}

fn answered(answer: Answer) -> Response {
    match answer {
        Answer::Share(link) => Json(link).into_response(),
        Answer::Done(done) => format!("{done}\n").into_response(),
        Answer::Refused(why) => (StatusCode::UNPROCESSABLE_ENTITY, format!("{why}\n")).into_response(),
        Answer::Process(_) | Answer::Tail(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// A link for one tab, for `relay link --tab`: what follows `#t=` in it, as text.
pub async fn tab_link(State(web): State<WebState>, _: OwnerBearer) -> Response {
    match web.door.open_tab_link(web.about.clock.now_ms()) {
        Ok(ticket) => ticket.reveal().into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

/// How long who tried too often waits for being told so.
const PAUSE: Duration = Duration::from_millis(PAUSE_MS);

/// The answer to somebody who tried too often: come again later. It comes after a pause, in which the connection
/// is counted, so that nobody can make the relay answer thousands of times a second.
pub(super) async fn turned_away(why: TurnedAway) -> Response {
    let (status, after_s) = match why {
        TurnedAway::TooMany => (StatusCode::SERVICE_UNAVAILABLE, 5),
        TurnedAway::Refused { after_ms } | TurnedAway::TooOften { after_ms } => {
            (StatusCode::TOO_MANY_REQUESTS, after_ms.div_ceil(1000))
        }
    };
    sleep(PAUSE).await;
    let headers = [(RETRY_AFTER, after_s.to_string()), (CONNECTION, "close".to_owned())];
    (status, headers, format!("{why}\n")).into_response()
}
