//! The WebSocket endpoint: authenticates the client, then serves its topics until either side closes.

mod connection;
mod pending_requests;
mod socket;

use super::api::long_term::{self, Storage};
use super::api::{Caller, token_ended};
use super::origin_check::Authority;
use super::pacing::RequestPacer;
use super::site::Site;
use super::{Connection, WebState, api, reports};
use axum::Extension;
use axum::extract::{FromRequestParts, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use connection::{ConnectionEnd, MessageQuota, WsConnection, close};
use nodeglass_access::peer::Peer;
use nodeglass_auth::authenticator::{AuthAttempt, Authenticated, HANDSHAKE_TIMEOUT_MS, close_reason};
use nodeglass_live::Subscriber;
use nodeglass_protocol::live::{ClientMessage, CloseReason, KeyId, MAX_HISTORY_DAYS, ServerMessage, Welcome};
use nodeglass_protocol::range::{RangeHistory, RangeQuery};
use nodeglass_protocol::version::{LIVE_WIRE, VersionRange};
use nodeglass_share::{AccessGrant, Viewer};
use pending_requests::{PendingRequests, Permissions, VisibleLogs};
use socket::Upgrade;
use std::convert::Infallible;
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout};
use tokio_tungstenite::tungstenite::protocol::Message;

/// Ping interval; a client that sent nothing for three intervals is considered gone.
const PING_EVERY: Duration = Duration::from_secs(20);

/// The way in which a client is admitted.
enum Entry {
    /// It proves its key by the first messages.
    Handshake { attempt: AuthAttempt, authority: String },
    /// Its request carried a key as bearer token.
    Bearer(AccessGrant),
}

/// Upgrades a request to a WebSocket, unless its user has too many pending or failed attempts. A program may send its
/// key as bearer token, as for the API; then there is no handshake.
pub(super) async fn connect(
    State(web): State<WebState>,
    Extension(Authority(authority)): Extension<Authority>,
    connection: Connection,
    caller: Option<Caller>,
    upgrade: Result<Upgrade, <Upgrade as FromRequestParts<WebState>>::Rejection>,
) -> Response {
    let upgrade = match upgrade {
        Ok(upgrade) => upgrade,
        Err(why) => return why.into_response(),
    };
    let entry = match caller {
        Some(caller) => {
            let grant = caller.grant();
            match caller.begin(&web).await {
                Ok(_) => Entry::Bearer(grant),
                Err(limited) => return limited,
            }
        }
        None => match web.authenticator.begin(connection.origin()) {
            Ok(attempt) => Entry::Handshake { attempt, authority },
            Err(why) => return api::rate_limited(why).await,
        },
    };
    upgrade.on_upgrade(move |socket| async move {
        let mut ws = WsConnection::new(socket);
        let reason = tokio::select! {
            reason = serve(&mut ws, &web, entry, &connection) => reason,
            // Evicted in favour of users with fewer connections.
            () = connection.evicted() => ConnectionEnd::Close(close::RATE_LIMIT, "others need this connection"),
        };
        tracing::debug!(?reason, "WebSocket closed");
        ws.close(reason).await;
        // Release the permit only after the connection is closed.
        drop(connection);
    })
}

/// Authenticates the client, unless a bearer token did, and serves it until either side closes.
async fn serve(
    ws: &mut WsConnection,
    web: &WebState,
    entry: Entry,
    connection: &Connection,
) -> ConnectionEnd {
    let (authenticated, peer) = match entry {
        Entry::Bearer(grant) => (Authenticated { grant, proto: LIVE_WIRE, tab: None }, connection.peer),
        Entry::Handshake { attempt, authority } => {
            match authenticate_in_time(ws, web, connection, &attempt, &authority).await {
                Ok(authenticated) => authenticated,
                Err(reason) => return reason,
            }
        }
    };
    if !connection.mark_authenticated() {
        return ConnectionEnd::Close(close::RATE_LIMIT, "too many connections");
    }
    let _tab = authenticated.tab.map(|id| web.authenticator.connect_tab(id, web.about.clock));
    let (_view, token) = match &authenticated.grant {
        AccessGrant::Owner => (None, None),
        AccessGrant::Token(id) => (None, Some(id.clone())),
        AccessGrant::Guest(share) => (web.audit.view(share, connection.identity()), None),
        AccessGrant::Person(_) => (None, None),
    };
    let grant = authenticated.grant;
    let outdated = Site::outdated(web.site.as_ref(), &grant);
    let mut session = web.shares.session(grant.clone(), peer);
    let viewer = session.viewer();
    let mut pacer = RequestPacer::new(viewer.is_restricted().then(|| connection.budget()));
    let may_view_only = token.is_some() || grant.person().is_some();
    let mut requests = PendingRequests::new(permissions(web, &viewer, may_view_only));
    let Some(mut subscriber) = web.hub.join(ws.form(), viewer.clone()).await else {
        return ConnectionEnd::Bye(CloseReason::ShuttingDown);
    };
    if matches!(requests.permissions(), Permissions::Owner(_)) {
        web.actions.refresh_jobs();
    }
    let mut welcome = web.about.welcome(authenticated.proto, &session);
    welcome.may_act &= token.is_none();
    welcome.history_days = Storage::of(web, &viewer).map_or(0, |_| MAX_HISTORY_DAYS);
    tokio::select! {
        // First: a guest whose share has ended receives no further data.
        biased;
        // The share ends; nothing more is written, however slowly the client reads.
        ending = session.ended() => ConnectionEnd::Bye(close_reason(ending)),
        // The page reconnects by itself, and is identified again.
        () = outdated => ConnectionEnd::Close(close::GOING_AWAY, "connect again"),
        () = token_ended(&web.authenticator, token.as_ref()) => ConnectionEnd::Bye(CloseReason::Revoked),
        // Serves the client until either side closes.
        reason = message_loop(ws, (web, viewer), &mut subscriber, &mut requests, &mut pacer, welcome) => match reason {
            Ok(never) => match never {},
            Err(reason) => reason,
        },
    }
}

/// The permissions of a viewer.
fn permissions(web: &WebState, viewer: &Viewer, may_view_only: bool) -> Permissions {
    match viewer {
        // A token is read-only, although it sees what its owner sees. The relay reads no files on behalf of a person.
        _ if may_view_only => Permissions::ReadOnly(None),
        Viewer::Owner => Permissions::Owner(web.actions.clone()),
        Viewer::Restricted(visibility) if visibility.shows_logs() => {
            Permissions::ReadOnly(Some(VisibleLogs {
                logs: web.actions.logs().clone(),
                hub: web.hub.clone(),
                visibility: visibility.clone(),
            }))
        }
        Viewer::Restricted(_) => Permissions::ReadOnly(None),
    }
}

/// Performs the handshake within its time limit. A refusal is delayed after several of them.
async fn authenticate_in_time(
    ws: &mut WsConnection,
    web: &WebState,
    connection: &Connection,
    attempt: &AuthAttempt,
    authority: &str,
) -> Result<(Authenticated, Peer), ConnectionEnd> {
    let time_limit = Duration::from_millis(HANDSHAKE_TIMEOUT_MS);
    match timeout(time_limit, authenticate(ws, web, connection, attempt, authority)).await {
        Ok(Ok(authenticated)) => Ok(authenticated),
        Ok(Err(reason)) => {
            sleep(Duration::from_millis(attempt.failure_delay_ms(web.about.clock.now_ms()))).await;
            Err(reason)
        }
        Err(_) => Err(ConnectionEnd::Close(close::TOO_SLOW, "the proof of the key did not come in time")),
    }
}

/// Performs the handshake: hello, challenge, proof; see [`nodeglass_protocol::handshake`].
async fn authenticate(
    ws: &mut WsConnection,
    web: &WebState,
    connection: &Connection,
    attempt: &AuthAttempt,
    authority: &str,
) -> Result<(Authenticated, Peer), ConnectionEnd> {
    let ClientMessage::Hello { proto, key, nonce } = ws.recv_first().await? else {
        return Err(ConnectionEnd::Bye(CloseReason::Unreadable));
    };
    if key == KeyId::Person {
        return Ok((identify(web, connection, proto).await.map_err(ConnectionEnd::Bye)?, attempt.peer()));
    }
    let fresh = nodeglass_access::new_nonce().map_err(|error| {
        tracing::error!(%error, "failed to generate a nonce for a client");
        ConnectionEnd::Close(close::GOING_AWAY, "the relay has no random numbers")
    })?;
    let now_ms = web.about.clock.now_ms();
    let challenge =
        attempt.hello(proto, &key, nonce, fresh, authority, now_ms).map_err(ConnectionEnd::Bye)?;
    ws.send(&attempt.challenge(&challenge)).await?;
    let ClientMessage::Proof { code } = ws.recv_first().await? else {
        return Err(ConnectionEnd::Bye(CloseReason::Unreadable));
    };
    let (now_ms, peer) = (web.about.clock.now_ms(), attempt.peer());
    Ok((attempt.prove(challenge, &code, now_ms).map_err(ConnectionEnd::Bye)?, peer))
}

/// Identifies a person on the relay of a site, or the owner behind a proxy of their own: their page has no key to prove.
async fn identify(
    web: &WebState,
    connection: &Connection,
    proto: VersionRange,
) -> Result<Authenticated, CloseReason> {
    let ours = VersionRange::only(LIVE_WIRE);
    let proto = ours.common(proto).ok_or(CloseReason::Version { relay: ours })?;
    let grant = web.keyless_grant(connection).await.ok_or(CloseReason::NotIdentified)?;
    Ok(Authenticated { grant, proto, tab: None })
}

/// Serves a client until either side closes.
async fn message_loop(
    ws: &mut WsConnection,
    (web, viewer): (&WebState, Viewer),
    subscriber: &mut Subscriber,
    requests: &mut PendingRequests,
    pacer: &mut RequestPacer,
    welcome: Welcome,
) -> Result<Infallible, ConnectionEnd> {
    ws.send(&ServerMessage::Welcome(Box::new(welcome))).await?;
    let mut quota = MessageQuota::new(Instant::now());
    let mut last_recv = Instant::now();
    let mut ping = interval(PING_EVERY);
    ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        // A due request is answered before the next message is read: a client that sends requests without
        // reading the responses is held back by its own connection, and neither queue grows.
        while pacer.next_due().is_some_and(|due| due <= Instant::now()) {
            run_next_request(ws, (web, &viewer), subscriber, requests, pacer).await?;
        }
        tokio::select! {
            // The client sent a message, or a pong.
            message = ws.recv() => {
                last_recv = Instant::now();
                quota.spend(last_recv)?;
                handle_message(requests, pacer, message?);
            }
            // A rate-limited request is due.
            () = sleep_until_some(pacer.next_due()) => {}
            // The hub has a frame for this client.
            frame = subscriber.next() => send_frame(ws, subscriber, pacer, frame.ok_or(ConnectionEnd::ShuttingDown)?).await?,
            // A request was answered, or a followed log grew.
            message = requests.next() => send_message(ws, pacer, &message).await?,
            // Detects a dead connection: a tunnel can break silently.
            _ = ping.tick() => {
                if last_recv.elapsed() > 3 * PING_EVERY {
                    return Err(ConnectionEnd::Disconnected);
                }
                ws.send_raw(Message::Ping(Bytes::new())).await?;
            }
        }
    }
}

/// Answers the next request.
async fn run_next_request(
    ws: &mut WsConnection,
    (web, viewer): (&WebState, &Viewer),
    subscriber: &mut Subscriber,
    requests: &mut PendingRequests,
    pacer: &mut RequestPacer,
) -> Result<(), ConnectionEnd> {
    let cost = match pacer.next() {
        Some(ClientMessage::Subscribe(topics)) => subscriber.set_topics(topics).await,
        Some(ClientMessage::Resync(topic)) => subscriber.resync(topic).await,
        Some(ClientMessage::Follow(logs)) => {
            requests.follow(logs).await;
            return Ok(());
        }
        Some(ClientMessage::Range { number, query }) => {
            let clock = web.about.clock;
            let needs_storage = RangeQuery::needs_storage(query.from_ms, clock.now_ms());
            let Some(storage) = Storage::of(web, viewer).filter(|_| needs_storage) else {
                return send_range(ws, subscriber, pacer, number, query).await;
            };
            // The storage may hang, and must not delay anything else.
            let wall_ahead_ms = clock.displayed_wall_ahead_ms();
            requests
                .read_range(number, async move { long_term::range(&storage, &query, wall_ahead_ms).await });
            return Ok(());
        }
        Some(ClientMessage::Report { number, query }) => {
            let (began, form) = (Instant::now(), ws.form());
            let answer = reports::answer(web, viewer, query).await;
            let frame = form.encode(&ServerMessage::Report { number, answer });
            pacer.charge(began.elapsed(), frame.len());
            return ws.send_frame(frame.into(), || None).await;
        }
        _ => Duration::ZERO,
    };
    pacer.charge(cost, 0);
    match subscriber.try_next() {
        Some(frame) => send_frame(ws, subscriber, pacer, frame).await,
        None => Ok(()),
    }
}

/// Answers a query for long-term history.
async fn send_range(
    ws: &mut WsConnection,
    subscriber: &Subscriber,
    pacer: &RequestPacer,
    number: u32,
    query: RangeQuery,
) -> Result<(), ConnectionEnd> {
    let (began, form) = (Instant::now(), ws.form());
    let frame = match subscriber.range(query).await {
        Some(source) => tokio::task::spawn_blocking(move || {
            form.encode(&ServerMessage::Range { number, range: source.read() })
        })
        .await
        .unwrap_or_default(),
        None => form.encode(&ServerMessage::Range { number, range: RangeHistory::default() }),
    };
    pacer.charge(began.elapsed(), frame.len());
    ws.send_frame(frame.into(), || None).await
}

/// Sleeps until `due`, or forever.
async fn sleep_until_some(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => std::future::pending().await,
    }
}

/// Sends a frame and all others that are queued by then.
async fn send_frame(
    ws: &mut WsConnection,
    subscriber: &mut Subscriber,
    pacer: &RequestPacer,
    first: Bytes,
) -> Result<(), ConnectionEnd> {
    let mut bytes = first.len();
    let more = || subscriber.try_next().inspect(|frame| bytes += frame.len());
    let sent = ws.send_frame(first, more).await;
    pacer.charge(Duration::ZERO, bytes);
    sent
}

/// Sends a response, or new lines of a log.
async fn send_message(
    ws: &mut WsConnection,
    pacer: &RequestPacer,
    message: &ServerMessage,
) -> Result<(), ConnectionEnd> {
    let (began, frame) = (Instant::now(), ws.form().encode(message));
    pacer.charge(began.elapsed(), frame.len());
    ws.send_frame(frame.into(), || None).await
}

/// Handles a message, or queues it for its turn. Pings and repeated proofs are ignored.
fn handle_message(requests: &mut PendingRequests, pacer: &mut RequestPacer, message: Option<ClientMessage>) {
    match message {
        Some(ClientMessage::Subscribe(topics)) => pacer.queue_topics(topics),
        Some(ClientMessage::Resync(topic)) => pacer.queue_resync(topic),
        Some(ClientMessage::Range { number, query }) => pacer.queue_range(number, query),
        Some(ClientMessage::Report { number, query }) => pacer.queue_report(number, query),
        Some(ClientMessage::Request { number, request }) => requests.start(number, request),
        Some(ClientMessage::Follow(logs)) => pacer.queue_logs(logs),
        Some(ClientMessage::Hello { .. } | ClientMessage::Proof { .. }) | None => {}
    }
}
