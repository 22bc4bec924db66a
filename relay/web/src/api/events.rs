//! Server-sent events: the messages of the live wire in JSON, a snapshot of a topic and then its deltas.

use super::caller::Caller;
use super::{Problem, named_job};
use crate::site::Site;
use crate::{Connection, WebState};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, Stream};
use nodeglass_api::JobSelector;
use nodeglass_auth::authenticator::Authenticator;
use nodeglass_live::Subscriber;
use nodeglass_platform::clock::Clock;
use nodeglass_protocol::NodeName;
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::share::ShareId;
use nodeglass_share::{AccessGrant, ViewerSession};
use serde::Deserialize;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;
use utoipa::IntoParams;

/// Interval of comments while there are no events: proxies close idle connections.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Interval of checks whether a token is still valid.
const TOKEN_CHECK: Duration = Duration::from_secs(1);

/// The topic: the overview by default.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct TopicQuery {
    /// Id of a job, as `48461`, `48440_16` or `48511+0`, for everything about its GPUs and processes.
    #[param(value_type = Option<String>, example = "48440_16")]
    job: Option<JobSelector>,
    /// Name of a node, for everything about it.
    #[param(value_type = Option<String>)]
    node: Option<NodeName>,
}

/// A stream of one subscriber. The session ends with it, and it with the connection: its last chunk is sent then.
struct Events {
    subscriber: Subscriber,
    /// The first snapshot, until it is sent.
    first: Option<Bytes>,
    session: ViewerSession,
    authenticator: Arc<Authenticator>,
    /// Resolves when a person has to be identified again.
    outdated: BoxFuture<'static, ()>,
    /// The id of the token, if it is one.
    token: Option<ShareId>,
    connection: Connection,
}

/// A snapshot of a topic and then its deltas, as server-sent events. The name of an event is the kind of message
/// (`snapshot`, `delta`, `gone`, `lagged`, `bye`), its data the message in the JSON form of PROTOCOL.md.
#[utoipa::path(get, path = "/api/v1/events", tag = "state", operation_id = "events", params(TopicQuery),
    responses((status = 200, body = String, content_type = "text/event-stream")))]
pub async fn events(
    State(web): State<WebState>,
    caller: Caller,
    connection: Connection,
    query: Result<Query<TopicQuery>, QueryRejection>,
) -> Result<Response, Response> {
    let Query(query) = query.map_err(|error| Problem::query(&error, "job, node"))?;
    let grant = caller.grant();
    let token = match &grant {
        AccessGrant::Token(id) => Some(id.clone()),
        AccessGrant::Owner | AccessGrant::Guest(_) | AccessGrant::Person(_) => None,
    };
    let (viewer, mut charge) = caller.begin(&web).await?;
    let topic = named_job::topic(&web, &viewer, &mut charge, query.job, query.node).await?;
    let (site, of) = (web.site.clone(), grant.clone());
    let outdated = async move { Site::outdated(site.as_ref(), &of).await }.boxed();
    let session = web.shares.session(grant, connection.peer);
    let joined = web.hub.join(Form::Json, viewer).await;
    let mut subscriber = joined.ok_or_else(Problem::shutting_down)?;
    charge.restart();
    charge.add(subscriber.set_topics(vec![topic]).await);
    // The snapshot, or the statement that the topic does not exist, is queued.
    let first = subscriber.try_next();
    if first.as_ref().is_some_and(|frame| kind(&String::from_utf8_lossy(frame)) == "gone") {
        return Err(Problem::not_found("no such job or node is visible to you").into());
    }
    let authenticator = web.authenticator.clone();
    let state = Events { subscriber, first, session, authenticator, outdated, token, connection };
    Ok(Sse::new(stream_of(state)).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response())
}

fn stream_of(events: Events) -> impl Stream<Item = Result<Event, Infallible>> {
    stream::unfold(events, |mut events| async move {
        let frame = tokio::select! {
            // First: a guest whose share has ended receives no further data.
            biased;
            _ = events.session.ended() => None,
            () = &mut events.outdated => None,
            () = token_ended(&events.authenticator, events.token.as_ref()) => None,
            () = events.connection.drains() => None,
            frame = next(&mut events.first, &mut events.subscriber) => frame,
        };
        Some((Ok(event(&frame?)), events))
    })
}

/// The first frame, and then each next one; `None` on shutdown. Cancel safe.
async fn next(first: &mut Option<Bytes>, subscriber: &mut Subscriber) -> Option<Bytes> {
    match first.take() {
        Some(frame) => Some(frame),
        None => subscriber.next().await,
    }
}

/// Waits until a token is revoked or expires; forever if there is none. Cancel safe.
pub(crate) async fn token_ended(authenticator: &Authenticator, token: Option<&ShareId>) {
    let Some(id) = token else { return std::future::pending().await };
    while authenticator.tokens().is_valid(id, Clock::wall_ms()) {
        sleep(TOKEN_CHECK).await;
    }
}

/// The kind of a message, from its JSON.
fn kind(text: &str) -> &str {
    text.trim_start_matches(['{', '"']).split('"').next().unwrap_or_default()
}

/// A message as an event. Its JSON has no newline, and one key: the kind of message.
fn event(frame: &Bytes) -> Event {
    let text = String::from_utf8_lossy(frame);
    let kind = kind(&text);
    let is_name = !kind.is_empty() && kind.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    Event::default().event(if is_name { kind } else { "message" }).data(text)
}
