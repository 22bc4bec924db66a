//! A script gets the overview as JSON for the owner key as Bearer.

use super::{Connection, WebState};
use crate::access::doorkeeper::{NotLetIn, TurnedAway};
use axum::extract::State;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::live::{ServerMessage, Topic};
use std::time::Duration;

/// How long the hub may take for a picture; it normally takes less than a tick.
const PATIENCE: Duration = Duration::from_secs(5);

/// The overview's [`nodeglass_protocol::Picture`] as JSON.
pub async fn picture(State(web): State<WebState>, connection: Connection, headers: HeaderMap) -> Response {
    let authorization = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    match web.door.bearer(authorization, connection.peer, web.about.clock.now_ms()) {
        Ok(_role) => overview(&web).await,
        Err(NotLetIn::WrongKey) => {
            let challenge = [(WWW_AUTHENTICATE, "Bearer realm=\"nodeglass\"")];
            let why = "send the key of the relay's link: `Authorization: Bearer KEY`\n";
            (StatusCode::UNAUTHORIZED, challenge, why).into_response()
        }
        Err(NotLetIn::TurnedAway(why)) => turned_away(why),
    }
}

async fn overview(web: &WebState) -> Response {
    let asked = tokio::time::timeout(PATIENCE, web.hub.picture(Topic::Overview, Form::Json)).await;
    let Some(frame) = asked.ok().flatten() else {
        return (StatusCode::SERVICE_UNAVAILABLE, "the relay is ending\n").into_response();
    };
    match Form::Json.decode(&frame) {
        Ok(ServerMessage::Snapshot(snapshot)) => {
            let mut body = Form::Json.encode(&snapshot.picture);
            body.push(b'\n');
            ([(CONTENT_TYPE, "application/json")], body).into_response()
        }
        _ => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// The answer to somebody who tried too often: come again later.
pub(super) fn turned_away(why: TurnedAway) -> Response {
    let (status, after_s) = match why {
        TurnedAway::TooMany => (StatusCode::SERVICE_UNAVAILABLE, 5),
        TurnedAway::Refused { after_ms } => (StatusCode::TOO_MANY_REQUESTS, after_ms.div_ceil(1000)),
    };
    (status, [(RETRY_AFTER, after_s.to_string())], format!("{why}\n")).into_response()
}
