//! One connection to the relay: mutual authentication, then messages in both directions.

use super::credential::Credential;
use super::disconnect::DisconnectReason;
use super::feed::{Feed, FeedCommand};
use crate::fleet::FleetStore;
use crate::platform;
use futures_channel::mpsc::UnboundedReceiver;
use futures_util::future::{Either, poll_fn, select};
use futures_util::{FutureExt, SinkExt, StreamExt, pin_mut};
use gloo_net::websocket::{Message, State, futures::WebSocket};
use gloo_timers::callback::Timeout;
use gloo_timers::future::TimeoutFuture;
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::handshake::{Exchange, LEN, Nonce};
use nodeglass_protocol::live::{ClientMessage, ServerMessage, Topic, Welcome};
use nodeglass_protocol::version::{LIVE_WIRE, VersionRange};
use std::convert::Infallible;

/// Time limit for each message of the handshake.
const HANDSHAKE_TIMEOUT_MS: u32 = 8_000;
/// Silence after which the page requests a snapshot; after as much again, it disconnects.
const SILENCE_TIMEOUT_MS: u32 = 10_000;
/// Silence after which a page that becomes visible requests a snapshot at once.
const STALE_MS: f64 = 3_000.0;

/// An authenticated connection.
pub struct Connection {
    socket: WebSocket,
    welcome: Welcome,
}

impl Connection {
    /// Connects and authenticates, verifying the relay first. In `credential`, the session key replaces the key of a
    /// single-tab link.
    ///
    /// # Errors
    /// Returns a [`DisconnectReason`] if the connection fails.
    pub async fn open(credential: &mut Credential) -> Result<Self, DisconnectReason> {
        let mut opened = Self::try_open(credential).await;
        if let (Err(DisconnectReason::Refused | DisconnectReason::Unverified), Some(link)) =
            (&opened, credential.unconfirmed_link())
        {
            *credential = link;
            opened = Self::try_open(credential).await;
        }
        opened.map_err(|reason| reason.for_credential(credential))
    }

    async fn try_open(credential: &mut Credential) -> Result<Self, DisconnectReason> {
        let mut socket = WebSocket::open_with_protocol(&socket_url(), FORM.subprotocol())
            .map_err(|_| DisconnectReason::Broken)?;
        let client = fresh_nonce()?;
        let proto = VersionRange::only(LIVE_WIRE);
        send(&mut socket, &ClientMessage::Hello { proto, key: credential.id(), nonce: client }).await?;
        if let Some(key) = credential.proof_key() {
            let ServerMessage::Challenge { nonce: server, code } = receive_reply(&mut socket).await? else {
                return Err(DisconnectReason::Malformed);
            };
            let authority = platform::authority();
            let exchange = Exchange { client, server, authority: &authority };
            if !exchange.accepts_server(&key, &code) {
                return Err(DisconnectReason::Unverified);
            }
            *credential = credential.after_proof(&exchange);
            send(&mut socket, &ClientMessage::Proof { code: exchange.client_code(&key) }).await?;
        }
        match receive_reply(&mut socket).await? {
            ServerMessage::Welcome(welcome) => {
                *credential = credential.clone().after_accept();
                Ok(Self { socket, welcome: *welcome })
            }
            _ => Err(DisconnectReason::Malformed),
        }
    }

    /// Returns the relay's welcome message.
    pub fn welcome(&self) -> Welcome {
        self.welcome.clone()
    }

    /// Sends the `initial` messages, then receives messages and sends commands until the connection ends.
    ///
    /// # Errors
    /// Always returns the [`DisconnectReason`] that ended it.
    pub async fn run(
        &mut self,
        initial: Vec<ClientMessage>,
        fleet: &FleetStore,
        feed: &Feed,
        inbox: &mut UnboundedReceiver<FeedCommand>,
    ) -> Result<Infallible, DisconnectReason> {
        for message in &initial {
            send(&mut self.socket, message).await?;
        }
        let (mut probing, mut checked_ms) = (false, platform::now_ms());
        loop {
            // A command is not a sign of life: the time since the last message counts, or since the last check of it.
            let silent_ms = (platform::now_ms() - feed.last_message_ms().max(checked_ms)).max(0.0) as u32;
            let wait_ms = SILENCE_TIMEOUT_MS.saturating_sub(silent_ms);
            let event = next_event(&mut self.socket, inbox, wait_ms).await;
            if matches!(event, Event::Silence) {
                checked_ms = platform::now_ms();
            }
            let reply = match event {
                // A message changes the fleet.
                Event::Received(message) => {
                    probing = false;
                    let message = decode(message)?;
                    feed.note_message(platform::now_ms());
                    handle_message(message, fleet, feed)?
                }
                // A command: the user navigated.
                Event::Command(Some(FeedCommand::Send(message))) => Some(message),
                // The tab is visible again; the connection may not have survived the pause.
                Event::Command(Some(FeedCommand::ReconnectNow))
                    if platform::now_ms() - feed.last_message_ms() > STALE_MS =>
                {
                    (probing, checked_ms) = (true, platform::now_ms());
                    Some(ClientMessage::Resync(Topic::Overview))
                }
                // The user leaves the page.
                Event::Command(Some(FeedCommand::Leave)) => return Err(DisconnectReason::Broken),
                // A new key while this one works, or a reconnect request while connected: nothing to do.
                Event::Command(_) => None,
                // A hidden page has no subscription, so silence is expected.
                Event::Silence if fleet.topics().is_empty() => None,
                // The relay did not respond to the request for a snapshot either: it is gone.
                Event::Silence if probing => return Err(DisconnectReason::Silent),
                Event::Silence => {
                    probing = true;
                    Some(ClientMessage::Resync(Topic::Overview))
                }
            };
            if let Some(reply) = reply {
                send(&mut self.socket, &reply).await?;
            }
        }
    }
}

/// Events that wake the connection.
enum Event {
    Received(Option<Message>),
    Command(Option<FeedCommand>),
    Silence,
}

/// Waits for a message or a command, and reports silence after `wait_ms`.
async fn next_event(
    socket: &mut WebSocket,
    inbox: &mut UnboundedReceiver<FeedCommand>,
    wait_ms: u32,
) -> Event {
    let (received, command) = (socket.next(), inbox.next());
    let silence = TimeoutFuture::new(wait_ms).fuse();
    pin_mut!(silence);
    match select(select(received, command), silence).await {
        Either::Left((Either::Left((received, _)), _)) => Event::Received(received.and_then(Result::ok)),
        Either::Left((Either::Right((command, _)), _)) => Event::Command(command),
        Either::Right(_) => Event::Silence,
    }
}

/// The wire form that the page requests.
const FORM: Form = Form::Binary;

fn handle_message(
    message: ServerMessage,
    fleet: &FleetStore,
    feed: &Feed,
) -> Result<Option<ClientMessage>, DisconnectReason> {
    let reply = match message {
        ServerMessage::Bye(close_reason) => return Err(close_reason.into()),
        ServerMessage::Response { number, response } => {
            feed.resolve(number, response);
            return Ok(None);
        }
        ServerMessage::Range { number, range } => {
            feed.resolve_range(number, range);
            return Ok(None);
        }
        ServerMessage::Report { number, answer } => {
            feed.resolve_report(number, answer);
            return Ok(None);
        }
        message => fleet.receive(message, platform::now_ms()),
    };
    redraw(fleet);
    Ok(reply)
}

/// Updates the views in the next animation frame; several messages share one. A hidden page gets no frames.
fn redraw(fleet: &FleetStore) {
    if fleet.request_frame() {
        let fleet = fleet.clone();
        platform::on_next_frame(move || {
            if let Some(delay_ms) = fleet.frame(platform::now_ms()) {
                Timeout::new(delay_ms, move || redraw(&fleet)).forget();
            }
        });
    }
}

async fn send(socket: &mut WebSocket, message: &ClientMessage) -> Result<(), DisconnectReason> {
    // Resolves when the socket is open or closed: writing to a closed one makes the browser log an error.
    poll_fn(|task| socket.poll_ready_unpin(task)).await.map_err(|_| DisconnectReason::Broken)?;
    if !matches!(socket.state(), State::Open) {
        return Err(DisconnectReason::Broken);
    }
    socket.send(Message::Bytes(FORM.encode(message))).await.map_err(|_| DisconnectReason::Broken)
}

async fn receive_reply(socket: &mut WebSocket) -> Result<ServerMessage, DisconnectReason> {
    let timeout = TimeoutFuture::new(HANDSHAKE_TIMEOUT_MS);
    match select(socket.next(), timeout).await {
        Either::Left((Some(Ok(message)), _)) => match decode(Some(message))? {
            ServerMessage::Bye(close_reason) => Err(close_reason.into()),
            message => Ok(message),
        },
        Either::Left(_) => Err(DisconnectReason::Broken),
        Either::Right(_) => Err(DisconnectReason::Silent),
    }
}

fn decode(message: Option<Message>) -> Result<ServerMessage, DisconnectReason> {
    let bytes = match message.ok_or(DisconnectReason::Broken)? {
        Message::Bytes(bytes) => bytes,
        Message::Text(text) => text.into_bytes(),
    };
    FORM.decode(&bytes).map_err(|_| DisconnectReason::Malformed)
}

fn socket_url() -> String {
    let scheme = if platform::is_secure() { "wss" } else { "ws" };
    format!("{scheme}://{}{}/live", platform::authority(), platform::base())
}

fn fresh_nonce() -> Result<Nonce, DisconnectReason> {
    let mut bytes = [0; LEN];
    getrandom::fill(&mut bytes).map_err(|_| DisconnectReason::NoRandom)?;
    Ok(Nonce(bytes))
}
