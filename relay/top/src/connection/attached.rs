//! Attaches to the owner's running relay through its private socket.

use super::{Order, SourceError, Update};
use futures_util::{SinkExt, StreamExt};
use nodeglass_app::remote::Remote;
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::handshake::{Exchange, Nonce};
use nodeglass_protocol::live::{ClientMessage, CloseReason, KeyId, ServerMessage, Topic};
use nodeglass_protocol::version::{LIVE_WIRE, VersionRange};
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::http::header::{ORIGIN, SEC_WEBSOCKET_PROTOCOL};
use tokio_tungstenite::tungstenite::protocol::{Message, WebSocketConfig};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};

/// The name by which the private socket is addressed.
const AUTHORITY: &str = "localhost";
const FORM: Form = Form::Binary;
/// Time limit for connecting and authenticating.
const CONNECT: Duration = Duration::from_secs(10);
/// Maximum length of a message, in bytes. The snapshot of a thousand nodes is larger than the library's default.
const MAX_MESSAGE: usize = 256 << 20;
/// The relay pings every 20 s, so that a longer silence is a dead connection.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// Pause between attempts to connect again. A start of the relay takes about as long.
const RETRY: Duration = Duration::from_secs(1);

type Socket = WebSocketStream<UnixStream>;

/// A source that stays attached to a relay, also after its restart.
pub struct Attached {
    relay: Remote,
    /// Subscribed again after each connect.
    topics: Vec<Topic>,
}

/// Reason for the end of a connection.
enum End {
    /// It can be restored, perhaps by another run of the relay.
    Lost(String),
    /// It cannot.
    Final(SourceError),
    /// The terminal no longer needs it.
    Unneeded,
}

impl Attached {
    /// A source for this relay.
    pub fn new(relay: Remote) -> Self {
        Self { relay, topics: Vec::new() }
    }

    /// Connects, and again whenever the connection is lost, until the terminal ends or the relay cannot be used.
    pub async fn run(mut self, mut orders: mpsc::Receiver<Order>, updates: mpsc::Sender<Update>) {
        loop {
            let update = match self.connection(&mut orders, &updates).await {
                End::Lost(why) => Update::Lost(why),
                End::Final(error) => Update::Ended(error),
                End::Unneeded => return,
            };
            let is_final = matches!(update, Update::Ended(_));
            if updates.send(update).await.is_err() || is_final || self.pause(&mut orders).await.is_none() {
                return;
            }
            self.find_again();
        }
    }

    /// Waits for the next attempt, and notes what is subscribed to meanwhile; `None` if the terminal ended.
    async fn pause(&mut self, orders: &mut mpsc::Receiver<Order>) -> Option<()> {
        let mut due = std::pin::pin!(sleep(RETRY));
        loop {
            tokio::select! {
                () = &mut due => return Some(()),
                order = orders.recv() => if let Order::Subscribe(topics) = order? {
                    self.topics = topics;
                },
            }
        }
    }

    /// A restarted relay has another process id; it is found if it is the only one.
    fn find_again(&mut self) {
        let same = Remote::find(Some(self.relay.pid()));
        if let Ok(relay) = same.or_else(|_| Remote::find(None)) {
            self.relay = relay;
        }
    }

    /// One connection: authenticates, then passes messages on until it ends.
    async fn connection(
        &mut self,
        orders: &mut mpsc::Receiver<Order>,
        updates: &mpsc::Sender<Update>,
    ) -> End {
        let mut socket = match timeout(CONNECT, self.connect(updates)).await {
            Ok(Ok(socket)) => socket,
            Ok(Err(end)) => return end,
            Err(_) => return End::Lost("the relay does not respond".to_owned()),
        };
        let served = self.serve(&mut socket, orders, updates).await;
        // The relay learns at once that nobody watches any more.
        let _ = timeout(RETRY, socket.close(None)).await;
        served.unwrap_or_else(|end| end)
    }

    async fn connect(&self, updates: &mpsc::Sender<Update>) -> Result<Socket, End> {
        let stream = self.relay.connect().await.map_err(|error| self.unreachable(&error))?;
        let refused = |why: String| End::Final(SourceError::Refused { pid: self.relay.pid(), why });
        let mut request = format!("ws://{AUTHORITY}/live").into_client_request().map_err(lost)?;
        let headers = request.headers_mut();
        headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(FORM.subprotocol()));
        headers.insert(ORIGIN, HeaderValue::from_static("http://localhost"));
        let limit = Some(MAX_MESSAGE);
        let config = WebSocketConfig::default().max_message_size(limit).max_frame_size(limit);
        let (mut socket, _) =
            client_async_with_config(request, stream, Some(config)).await.map_err(|error| match error {
                // An older relay has another endpoint or another subprotocol.
                tokio_tungstenite::tungstenite::Error::Http(_) => self.other_version(None),
                error => lost(error),
            })?;
        let key = self.relay.owner_key().map_err(|error| refused(format!("{error:#}")))?;
        let client: Nonce = nodeglass_access::new_nonce().map_err(lost)?;
        let proto = VersionRange::only(LIVE_WIRE);
        send(&mut socket, &ClientMessage::Hello { proto, key: KeyId::Owner, nonce: client }).await?;
        let (nonce, code) = match self.receive(&mut socket).await? {
            ServerMessage::Challenge { nonce, code } => (nonce, code),
            other => return Err(self.unexpected(other)),
        };
        let exchange = Exchange { client, server: nonce, authority: AUTHORITY };
        if !exchange.accepts_server(&key, &code) {
            return Err(refused("it does not have the key that it stored".to_owned()));
        }
        send(&mut socket, &ClientMessage::Proof { code: exchange.client_code(&key) }).await?;
        let welcome = match self.receive(&mut socket).await? {
            ServerMessage::Welcome(welcome) => welcome,
            other => return Err(self.unexpected(other)),
        };
        updates.send(Update::Connected(welcome)).await.map_err(|_| End::Unneeded)?;
        if !self.topics.is_empty() {
            send(&mut socket, &ClientMessage::Subscribe(self.topics.clone())).await?;
        }
        Ok(socket)
    }

    async fn serve(
        &mut self,
        socket: &mut Socket,
        orders: &mut mpsc::Receiver<Order>,
        updates: &mpsc::Sender<Update>,
    ) -> Result<End, End> {
        loop {
            tokio::select! {
                // The relay sent a message.
                message = self.receive(socket) => match message? {
                    bye @ ServerMessage::Bye(_) => return Err(self.unexpected(bye)),
                    message => {
                        let sent = updates.send(Update::Message(Box::new(message))).await;
                        sent.map_err(|_| End::Unneeded)?;
                    }
                },
                // The terminal wants something.
                order = orders.recv() => match order {
                    Some(order) => send(socket, &self.message(order)).await?,
                    None => return Ok(End::Unneeded),
                },
            }
        }
    }

    fn message(&mut self, order: Order) -> ClientMessage {
        match order {
            Order::Subscribe(topics) => {
                self.topics.clone_from(&topics);
                ClientMessage::Subscribe(topics)
            }
            Order::Resync(topic) => ClientMessage::Resync(topic),
            Order::Request { number, request } => ClientMessage::Request { number, request },
        }
    }

    /// Receives the next message. Cancel safe.
    async fn receive(&self, socket: &mut Socket) -> Result<ServerMessage, End> {
        loop {
            match timeout(IDLE_TIMEOUT, socket.next()).await {
                Ok(Some(Ok(Message::Binary(bytes)))) => {
                    return FORM.decode(&bytes).map_err(|_| self.other_version(None));
                }
                Ok(Some(Ok(Message::Close(_)))) | Ok(None) => return Err(self.stopped()),
                // Pings are answered by the library.
                Ok(Some(Ok(_))) => {}
                Ok(Some(Err(error))) => return Err(lost(error)),
                Err(_) => return Err(End::Lost("the relay sent nothing for 60 s".to_owned())),
            }
        }
    }

    /// Returns why its socket cannot be connected to: mostly because the relay has ended.
    fn unreachable(&self, error: &std::io::Error) -> End {
        let pid = self.relay.pid();
        match Remote::find(Some(pid)) {
            Ok(_) => End::Lost(format!("the relay (pid {pid}) cannot be reached: {error}")),
            Err(_) => self.stopped(),
        }
    }

    fn stopped(&self) -> End {
        End::Lost(format!("the relay (pid {}) was stopped", self.relay.pid()))
    }

    fn other_version(&self, wire: Option<VersionRange>) -> End {
        let running = self.relay.running();
        End::Final(SourceError::OtherVersion { pid: running.pid, version: running.version.clone(), wire })
    }

    /// Returns the end of the connection for a message: the relay's close message, or a message that does not belong
    /// there.
    fn unexpected(&self, message: ServerMessage) -> End {
        match message {
            ServerMessage::Bye(CloseReason::Version { relay }) => self.other_version(Some(relay)),
            ServerMessage::Bye(CloseReason::ShuttingDown) => self.stopped(),
            ServerMessage::Bye(CloseReason::TooSlow) => End::Lost("this terminal was too slow".to_owned()),
            ServerMessage::Bye(reason) => {
                End::Final(SourceError::Refused { pid: self.relay.pid(), why: reason.to_string() })
            }
            _ => self.other_version(None),
        }
    }
}

async fn send(socket: &mut Socket, message: &ClientMessage) -> Result<(), End> {
    socket.send(Message::Binary(FORM.encode(message).into())).await.map_err(lost)
}

fn lost(error: impl std::fmt::Display) -> End {
    End::Lost(error.to_string())
}
