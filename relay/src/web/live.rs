//! One subscriber's WebSocket: a proof first, then its topics, and an end that says why.

use super::errands::{Errands, GuestLogs, Rights};
use super::gate::Authority;
use super::line::{End, Line, Quota, close};
use super::pace::Pace;
use super::socket::Upgrade;
use super::{Connection, WebState, api};
use crate::access;
use crate::access::doorkeeper::{Caller, PATIENCE_MS, Proved, farewell};
use crate::access::peer::Peer;
use crate::hub::Subscriber;
use crate::share::Viewer;
use axum::Extension;
use axum::extract::{FromRequestParts, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use nodeglass_protocol::live::{ClientMessage, Farewell, ServerMessage, Welcome};
use std::convert::Infallible;
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout};
use tokio_tungstenite::tungstenite::protocol::Message;

/// How often the page is asked for a sign of life; a page that gave none for three such times is gone.
const PING_EVERY: Duration = Duration::from_secs(20);

/// Turns a request into a WebSocket, unless its user has too many tries open or failed.
pub(super) async fn enter(
    State(web): State<WebState>,
    Extension(Authority(authority)): Extension<Authority>,
    connection: Connection,
    upgrade: Result<Upgrade, <Upgrade as FromRequestParts<WebState>>::Rejection>,
) -> Response {
    let upgrade = match upgrade {
        Ok(upgrade) => upgrade,
        Err(why) => return why.into_response(),
    };
    let caller = match web.door.knock(connection.origin()) {
        Ok(caller) => caller,
        Err(why) => return api::turned_away(why).await,
    };
    upgrade.then(move |socket| async move {
        let mut line = Line::new(socket);
        let end = tokio::select! {
            end = attend(&mut line, &web, caller, &authority, &connection) => end,
            // Others have fewer connections and get none.
            () = connection.evicted() => End::Close(close::TOO_MUCH, "others need this connection"),
        };
        tracing::debug!(?end, "a subscriber left");
        line.hang_up(end).await;
        // The seat is free only now.
        drop(connection);
    })
}

/// The whole visit.
async fn attend(
    line: &mut Line,
    web: &WebState,
    caller: Caller,
    authority: &str,
    connection: &Connection,
) -> End {
    let patience = Duration::from_millis(PATIENCE_MS);
    let (proved, peer) = match timeout(patience, prove(line, web, &caller, authority)).await {
        Ok(Ok(admitted)) => admitted,
        Ok(Err(end)) => {
            sleep(Duration::from_millis(caller.pause_ms(web.about.clock.now_ms()))).await;
            return end;
        }
        Err(_) => return End::Close(close::TOO_SLOW, "the proof of the key did not come in time"),
    };
    drop(caller);
    if !connection.mark_authenticated() {
        return End::Close(close::TOO_MUCH, "too many connections");
    }
    let _tab = proved.tab.map(|id| web.door.connect_tab(id, web.about.clock));
    let mut visit = web.shares.visit(proved.admission, peer);
    let viewer = visit.viewer();
    let mut pace = Pace::new(viewer.is_guest().then(|| connection.budget()));
    let mut errands = Errands::new(rights(web, &viewer));
    let Some(mut subscriber) = web.hub.join(line.form(), viewer).await else {
        return End::Bye(Farewell::ShuttingDown);
    };
    if matches!(errands.rights(), Rights::Owner(_)) {
        web.desk.page_opened();
    }
    let welcome = web.about.welcome(proved.proto, &visit);
    tokio::select! {
        // First, so that a guest whose share has ended is never brought anything more.
        biased;
        // The share ends; however slowly the page reads, nothing more is written to it.
        ending = visit.ended() => End::Bye(farewell(ending)),
        // The page is served until either side ends.
        end = converse(line, &mut subscriber, &mut errands, &mut pace, welcome) => match end {
            Ok(never) => match never {},
            Err(end) => end,
        },
    }
}

/// What the owner of these eyes may do besides looking.
fn rights(web: &WebState, viewer: &Viewer) -> Rights {
    match viewer {
        Viewer::Owner => Rights::Owner(web.desk.clone()),
        Viewer::Guest(visibility) if visibility.shows_logs() => Rights::Guest(Some(GuestLogs {
            logs: web.desk.logs().clone(),
            hub: web.hub.clone(),
            visibility: visibility.clone(),
        })),
        Viewer::Guest(_) => Rights::Guest(None),
    }
}

/// Hello, challenge, proof: see [`nodeglass_protocol::handshake`].
async fn prove(
    line: &mut Line,
    web: &WebState,
    caller: &Caller,
    authority: &str,
) -> Result<(Proved, Peer), End> {
    let ClientMessage::Hello { proto, key, nonce } = line.first_message().await? else {
        return Err(End::Bye(Farewell::Unreadable));
    };
    let fresh = access::new_nonce().map_err(|error| {
        tracing::error!(%error, "a subscriber could not be let in");
        End::Close(close::GOING_AWAY, "the relay has no random numbers")
    })?;
    let now_ms = web.about.clock.now_ms();
    let challenge = caller.hello(proto, &key, nonce, fresh, authority, now_ms).map_err(End::Bye)?;
    line.say(&caller.challenge(&challenge)).await?;
    let ClientMessage::Proof { code } = line.first_message().await? else {
        return Err(End::Bye(Farewell::Unreadable));
    };
    let (now_ms, peer) = (web.about.clock.now_ms(), caller.peer());
    Ok((caller.prove(challenge, &code, now_ms).map_err(End::Bye)?, peer))
}

/// Brings the subscriber what it looks at, until either side ends.
async fn converse(
    line: &mut Line,
    subscriber: &mut Subscriber,
    errands: &mut Errands,
    pace: &mut Pace,
    welcome: Welcome,
) -> Result<Infallible, End> {
    line.say(&ServerMessage::Welcome(Box::new(welcome))).await?;
    let mut quota = Quota::new(Instant::now());
    let mut heard_at = Instant::now();
    let mut ping = interval(PING_EVERY);
    ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        // A request that is due is answered before the next message is read: a page that asks without reading the
        // answers is held back by its own connection, and neither its messages nor the answers pile up.
        while pace.due().is_some_and(|due| due <= Instant::now()) {
            answer(line, subscriber, pace).await?;
        }
        tokio::select! {
            // The page says something, if only that it is there.
            said = line.hear() => {
                heard_at = Instant::now();
                quota.spend(heard_at)?;
                obey(errands, pace, said?).await;
            }
            // The turn comes of something that it asked for.
            () = until(pace.due()) => {}
            // There is something new to see.
            frame = subscriber.next() => show(line, subscriber, pace, frame.ok_or(End::Ending)?).await?,
            // A question was answered, or a log that it follows went on.
            message = errands.next() => line.say(&message).await?,
            // Is anybody there? A tunnel can be down without a word.
            _ = ping.tick() => {
                if heard_at.elapsed() > 3 * PING_EVERY {
                    return Err(End::Gone);
                }
                line.send(Message::Ping(Bytes::new())).await?;
            }
        }
    }
}

/// Computes the snapshots of the next request, and sends them.
async fn answer(line: &mut Line, subscriber: &mut Subscriber, pace: &mut Pace) -> Result<(), End> {
    let cost = match pace.next() {
        Some(ClientMessage::Look(topics)) => subscriber.set_topics(topics).await,
        Some(ClientMessage::Resync(topic)) => subscriber.resync(topic).await,
        _ => Duration::ZERO,
    };
    pace.charge(cost, 0);
    match subscriber.waiting() {
        Some(frame) => show(line, subscriber, pace, frame).await,
        None => Ok(()),
    }
}

/// Waits until then, or for ever.
async fn until(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => std::future::pending().await,
    }
}

/// Sends a frame and what else lies there by then.
async fn show(line: &mut Line, subscriber: &mut Subscriber, pace: &Pace, first: Bytes) -> Result<(), End> {
    let mut bytes = first.len();
    let more = || subscriber.waiting().inspect(|frame| bytes += frame.len());
    let shown = line.show(first, more).await;
    pace.charge(Duration::ZERO, bytes);
    shown
}

/// Does what the page asked for, or has it wait for its turn; a sign of life asks for nothing, and a second proof
/// proves nothing.
async fn obey(errands: &mut Errands, pace: &mut Pace, said: Option<ClientMessage>) {
    match said {
        Some(ClientMessage::Look(topics)) => pace.look(topics),
        Some(ClientMessage::Resync(topic)) => pace.resync(topic),
        Some(ClientMessage::Ask { number, ask }) => errands.ask(number, ask),
        Some(ClientMessage::Follow(logs)) => errands.follow(logs).await,
        Some(ClientMessage::Hello { .. } | ClientMessage::Proof { .. }) | None => {}
    }
}
