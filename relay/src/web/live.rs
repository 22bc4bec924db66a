//! One viewer's WebSocket: a proof first, then its topics, and an end that says why.

use super::gate::Authority;
use super::{Connection, WebState, api};
use crate::access;
use crate::access::doorkeeper::{Caller, MAX_FIRST_MESSAGE, PATIENCE_MS};
use crate::hub::Viewer;
use axum::Extension;
use axum::extract::State;
use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket, WebSocketUpgrade, rejection};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::live::{ClientMessage, Farewell, MAX_CLIENT_MESSAGE, Role, ServerMessage, Welcome};
use std::convert::Infallible;
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

/// How often the page is asked for a sign of life; a page that gave none for three such times is gone.
const PING_EVERY: Duration = Duration::from_secs(20);
/// How long one frame may stay unread before the viewer counts as too slow.
const WRITE_PATIENCE: Duration = Duration::from_secs(30);
/// How long the last words may take.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// How many messages a page may send a second, and at once.
const MESSAGES_PER_S: u32 = 20;
/// Read in pieces of this size; a page says little, and there may be hundreds of them.
const READ_BUFFER: usize = 4 * 1024;
/// Largest frame to a page: a snapshot of a thousand nodes with ten minutes of past stays well below.
const MAX_WRITE_BUFFER: usize = 64 * 1024 * 1024;

/// Close codes of WebSocket that say more than "over".
pub mod close {
    /// The relay ends (RFC 6455).
    pub const GOING_AWAY: u16 = 1001;
    /// Refused, or what was said is no message of this protocol (RFC 6455: policy violation).
    pub const POLICY: u16 = 1008;
    /// The proof did not come in time, or the page stopped reading.
    pub const TOO_SLOW: u16 = 4408;
    /// The page said too much.
    pub const TOO_MUCH: u16 = 4429;
}

/// How a connection ends.
#[derive(Debug)]
enum End {
    /// With a reason the page knows how to show.
    Bye(Farewell),
    /// With a close frame only.
    Close(u16, &'static str),
    /// The relay ends, and the hub has said so.
    Ending,
    /// There is nobody left to tell.
    Gone,
}

/// Turns a request into a WebSocket, unless its user has too many tries open or failed.
pub async fn enter(
    State(web): State<WebState>,
    Extension(Authority(authority)): Extension<Authority>,
    connection: Connection,
    upgrade: Result<WebSocketUpgrade, rejection::WebSocketUpgradeRejection>,
) -> Response {
    let upgrade = match upgrade {
        Ok(upgrade) => upgrade.protocols([Form::Binary, Form::Json].map(Form::subprotocol)),
        Err(rejection) => return rejection.into_response(),
    };
    let chosen = upgrade.selected_protocol().and_then(|name| name.to_str().ok());
    let Some(form) = chosen.and_then(Form::of_subprotocol) else {
        let why = "ask for the WebSocket subprotocol nodeglass.v1 or nodeglass.v1.json\n";
        return (StatusCode::BAD_REQUEST, why).into_response();
    };
    let caller = match web.door.knock(connection.peer, web.about.clock.now_ms()) {
        Ok(caller) => caller,
        Err(why) => return api::turned_away(why),
    };
    upgrade
        .read_buffer_size(READ_BUFFER)
        .max_message_size(MAX_CLIENT_MESSAGE)
        .max_frame_size(MAX_CLIENT_MESSAGE)
        .max_write_buffer_size(MAX_WRITE_BUFFER)
        .on_upgrade(move |socket| async move {
            let mut line = Line { socket, form };
            let end = attend(&mut line, &web, caller, &authority).await;
            tracing::debug!(?end, "a viewer left");
            line.hang_up(end).await;
            // The seat is free only now.
            drop(connection);
        })
}

/// The whole visit.
async fn attend(line: &mut Line, web: &WebState, caller: Caller, authority: &str) -> End {
    let patience = Duration::from_millis(PATIENCE_MS);
    let welcome = match timeout(patience, prove(line, web, caller, authority)).await {
        Ok(Ok(welcome)) => welcome,
        Ok(Err(end)) => return end,
        Err(_) => return End::Close(close::TOO_SLOW, "the proof of the key did not come in time"),
    };
    let Some(mut viewer) = web.hub.enter(line.form).await else { return End::Bye(Farewell::ShuttingDown) };
    match converse(line, &mut viewer, welcome).await {
        Ok(never) => match never {},
        Err(end) => end,
    }
}

/// Hello, challenge, proof: see [`nodeglass_protocol::handshake`].
async fn prove(line: &mut Line, web: &WebState, caller: Caller, authority: &str) -> Result<Welcome, End> {
    let ClientMessage::Hello { proto, key, nonce } = line.first_message().await? else {
        return Err(End::Bye(Farewell::Unreadable));
    };
    let fresh = access::new_nonce().map_err(|error| {
        tracing::error!(%error, "a viewer could not be let in");
        End::Close(close::GOING_AWAY, "the relay has no random numbers")
    })?;
    let challenge = caller.hello(proto, &key, nonce, fresh, authority).map_err(End::Bye)?;
    line.say(&caller.challenge(&challenge)).await?;
    let ClientMessage::Proof { code } = line.first_message().await? else {
        return Err(End::Bye(Farewell::Unreadable));
    };
    let now_ms = web.about.clock.now_ms();
    let (role, proto): (Role, u16) = caller.prove(challenge, &code, now_ms).map_err(End::Bye)?;
    Ok(web.about.welcome(proto, role))
}

/// Brings the viewer what it looks at, until either side ends.
async fn converse(line: &mut Line, viewer: &mut Viewer, welcome: Welcome) -> Result<Infallible, End> {
    line.say(&ServerMessage::Welcome(Box::new(welcome))).await?;
    let mut quota = Quota::new(Instant::now());
    let mut heard_at = Instant::now();
    let mut ping = interval(PING_EVERY);
    ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            // The page says something, if only that it is there.
            said = line.hear() => {
                heard_at = Instant::now();
                quota.spend(heard_at)?;
                obey(viewer, said?).await;
            }
            // There is something new to see.
            frame = viewer.next() => line.show(frame.ok_or(End::Ending)?).await?,
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

/// Does what the page asked for; a sign of life asks for nothing, and a second proof proves nothing.
async fn obey(viewer: &mut Viewer, said: Option<ClientMessage>) {
    match said {
        Some(ClientMessage::Look(topics)) => viewer.look(topics).await,
        Some(ClientMessage::Resync(topic)) => viewer.resync(topic).await,
        Some(ClientMessage::Hello { .. } | ClientMessage::Proof { .. }) | None => {}
    }
}

/// A WebSocket in the form its subprotocol chose.
struct Line {
    socket: WebSocket,
    form: Form,
}

impl Line {
    /// The next message; `None` for a sign of life.
    async fn hear(&mut self) -> Result<Option<ClientMessage>, End> {
        let Some(bytes) = self.receive().await? else { return Ok(None) };
        self.form.decode(&bytes).map(Some).map_err(|_| End::Bye(Farewell::Unreadable))
    }

    /// The next message of somebody who has proved nothing: small, and not preceded by many signs of life.
    async fn first_message(&mut self) -> Result<ClientMessage, End> {
        for _ in 0..MESSAGES_PER_S {
            match self.receive().await? {
                Some(bytes) if bytes.len() <= MAX_FIRST_MESSAGE => {
                    return self.form.decode(&bytes).map_err(|_| End::Bye(Farewell::Unreadable));
                }
                Some(_) => return Err(End::Bye(Farewell::Unreadable)),
                None => {}
            }
        }
        Err(End::Close(close::TOO_MUCH, "too many messages"))
    }

    /// The bytes of the next message, `None` for a ping or pong.
    async fn receive(&mut self) -> Result<Option<Bytes>, End> {
        match (self.socket.recv().await, self.form) {
            (Some(Ok(Message::Binary(bytes))), Form::Binary) => Ok(Some(bytes)),
            (Some(Ok(Message::Text(text))), Form::Json) => Ok(Some(text.into())),
            (Some(Ok(Message::Ping(_) | Message::Pong(_))), _) => Ok(None),
            (Some(Ok(Message::Binary(_) | Message::Text(_))), _) => Err(End::Bye(Farewell::Unreadable)),
            (Some(Ok(Message::Close(_))) | None, _) => Err(End::Gone),
            // Too large, not UTF-8, or no WebSocket frame at all; or the connection broke, and nobody reads this.
            (Some(Err(_)), _) => Err(End::Close(close::POLICY, "this cannot be read")),
        }
    }

    async fn say(&mut self, message: &ServerMessage) -> Result<(), End> {
        self.show(self.form.encode(message).into()).await
    }

    /// Sends a frame that is already encoded.
    async fn show(&mut self, frame: Bytes) -> Result<(), End> {
        let message = match self.form {
            Form::Binary => Message::Binary(frame),
            Form::Json => Message::Text(Utf8Bytes::try_from(frame).map_err(|_| End::Gone)?),
        };
        self.send(message).await
    }

    async fn send(&mut self, message: Message) -> Result<(), End> {
        match timeout(WRITE_PATIENCE, self.socket.send(message)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(End::Gone),
            Err(_) => Err(End::Bye(Farewell::TooSlow)),
        }
    }

    /// Says why, closes, and waits for the page to have read it, but not for long.
    async fn hang_up(mut self, end: End) {
        let _ = timeout(LAST_WORDS, async {
            let (code, reason) = match end {
                End::Gone => return,
                End::Close(code, reason) => (code, reason),
                End::Ending => (close::GOING_AWAY, "the relay ends"),
                End::Bye(farewell) => {
                    let why = close_of(&farewell);
                    if self.say(&ServerMessage::Bye(farewell)).await.is_err() {
                        return;
                    }
                    why
                }
            };
            let frame = CloseFrame { code, reason: reason.into() };
            if self.socket.send(Message::Close(Some(frame))).await.is_ok() {
                // Until the page's own close frame: a socket shut with unread bytes would lose our last words.
                while let Some(Ok(_)) = self.socket.recv().await {}
            }
        })
        .await;
    }
}

fn close_of(farewell: &Farewell) -> (u16, &'static str) {
    match farewell {
        Farewell::Refused => (close::POLICY, "the key is not the right one"),
        Farewell::Version { .. } => (close::POLICY, "no version in common"),
        Farewell::Unreadable => (close::POLICY, "not a message of this protocol"),
        Farewell::TooSlow => (close::TOO_SLOW, "the page did not read"),
        Farewell::ShuttingDown => (close::GOING_AWAY, "the relay ends"),
    }
}

/// How much a page may still say: [`MESSAGES_PER_S`] at once, and as many more each second.
struct Quota {
    left: f64,
    at: Instant,
}

impl Quota {
    fn new(now: Instant) -> Self {
        Self { left: f64::from(MESSAGES_PER_S), at: now }
    }

    fn spend(&mut self, now: Instant) -> Result<(), End> {
        let most = f64::from(MESSAGES_PER_S);
        self.left = most.min(self.left + now.duration_since(self.at).as_secs_f64() * most);
        self.at = now;
        if self.left < 1.0 {
            return Err(End::Close(close::TOO_MUCH, "too many messages"));
        }
        self.left -= 1.0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_may_say_twenty_things_a_second_and_no_more() {
        let start = Instant::now();
        let mut quota = Quota::new(start);
        for _ in 0..MESSAGES_PER_S {
            assert!(quota.spend(start).is_ok());
        }
        assert!(quota.spend(start).is_err());
        assert!(quota.spend(start + Duration::from_millis(60)).is_ok());
        assert!(quota.spend(start + Duration::from_millis(61)).is_err());
    }
}
