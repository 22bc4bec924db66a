//! A WebSocket client without a browser: speaks the live wire like the page, and maintains a picture of each
//! topic.

use crate::TIMEOUT;
use crate::relay::Link;
use anyhow::{Context, Result, bail, ensure};
use futures_util::{SinkExt, StreamExt};
use nodeglass_protocol::Picture;
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::handshake::{Exchange, Key, Nonce};
use nodeglass_protocol::live::{ClientMessage, CloseReason, KeyId, ServerMessage, Topic, Welcome};
use nodeglass_protocol::range::{RangeHistory, RangeQuery};
use nodeglass_protocol::request::{LogRef, Request, Response};
use nodeglass_protocol::version::{LIVE_WIRE, VersionRange};
use std::collections::BTreeMap;
use std::fmt::Debug;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::header::{ORIGIN, SEC_WEBSOCKET_PROTOCOL};
use tokio_tungstenite::tungstenite::http::{HeaderName, HeaderValue};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Bytes, protocol::Message};

/// The WebSocket endpoint.
pub const LIVE_PATH: &str = "/live";

/// A connected client.
#[derive(Debug)]
pub struct Client {
    socket: Socket,
    form: Form,
    session_key: Key,
    welcome: Welcome,
    known: BTreeMap<Topic, Known>,
    /// Answers to its questions, by number.
    responses: BTreeMap<u32, Response>,
    ranges: BTreeMap<u32, RangeHistory>,
    questions: u32,
    /// Lines of followed logs.
    logs: BTreeMap<LogRef, Vec<String>>,
    /// Bytes of all messages so far.
    received_bytes: usize,
    missed: u32,
}

/// The state of a topic.
#[derive(Debug)]
pub struct Known {
    /// The current picture.
    pub picture: Picture,
    /// Number of snapshots received.
    pub snapshots: u32,
    /// Number of deltas applied.
    pub deltas: u32,
    number: u32,
    seq: u32,
    /// Deltas were missed, and a snapshot was requested.
    behind: bool,
}

impl Client {
    /// Connects as the owner, with the link's key.
    ///
    /// # Errors
    /// If the relay refuses, or does not prove that it holds the key itself.
    pub async fn connect(link: &Link, form: Form) -> Result<Self> {
        Self::connect_with(link, &link.key, form).await
    }

    /// Connects with the given key.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub async fn connect_with(link: &Link, key: &Key, form: Form) -> Result<Self> {
        let pipe = TcpStream::connect(&link.authority).await.context("connect to the relay")?;
        Self::connect_over(Box::new(pipe), link, key, form).await
    }

    /// Connects over an existing connection to the relay.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub async fn connect_over(pipe: Box<dyn Pipe>, link: &Link, key: &Key, form: Form) -> Result<Self> {
        match Self::handshake(pipe, link, key, form).await? {
            Ok(client) => Ok(client),
            Err(close_reason) => bail!("the relay refused: {close_reason:?}"),
        }
    }

    /// Authenticates over an existing connection to the relay; returns the farewell if it is refused.
    ///
    /// # Errors
    /// If the connection breaks, or the relay does not prove that it holds the key itself.
    pub async fn authenticate(pipe: Box<dyn Pipe>, link: &Link) -> Result<Result<Self, CloseReason>> {
        Self::handshake(pipe, link, &link.key, Form::Binary).await
    }

    /// Connects to the relay of a site without a key, as the user of an existing connection, with these headers; returns the
    /// farewell if that is nobody.
    ///
    /// # Errors
    /// If the connection breaks.
    pub async fn identify(
        pipe: Box<dyn Pipe>,
        link: &Link,
        form: Form,
        headers: &[(&str, &str)],
    ) -> Result<Result<Self, CloseReason>> {
        let mut socket = open(link, form, pipe, headers).await?;
        let (proto, nonce) = (VersionRange::only(LIVE_WIRE), Nonce(random()?));
        send(&mut socket, form, &ClientMessage::Hello { proto, key: KeyId::Person, nonce }).await?;
        match receive(&mut socket, form).await? {
            // It has no session key either.
            ServerMessage::Welcome(welcome) => {
                Ok(Ok(Self::welcomed(socket, form, link.key.clone(), *welcome)))
            }
            ServerMessage::Bye(close_reason) => Ok(Err(close_reason)),
            other => bail!("the relay answered the hello with {other:?}"),
        }
    }

    fn welcomed(socket: Socket, form: Form, session_key: Key, welcome: Welcome) -> Self {
        Self {
            socket,
            form,
            session_key,
            welcome,
            known: BTreeMap::new(),
            responses: BTreeMap::new(),
            ranges: BTreeMap::new(),
            questions: 0,
            logs: BTreeMap::new(),
            received_bytes: 0,
            missed: 0,
        }
    }

    async fn handshake(
        pipe: Box<dyn Pipe>,
        link: &Link,
        key: &Key,
        form: Form,
    ) -> Result<Result<Self, CloseReason>> {
        let mut socket = open(link, form, pipe, &[]).await?;
        let client = Nonce(random()?);
        let whose = match (&link.share, &link.tab) {
            (Some(share), _) => KeyId::Share(share.clone()),
            (None, Some(tab)) => KeyId::Tab(tab.clone()),
            (None, None) => KeyId::Owner,
        };
        let hello =
            ClientMessage::Hello { proto: VersionRange::only(LIVE_WIRE), key: whose.clone(), nonce: client };
        send(&mut socket, form, &hello).await?;
        let (nonce, code) = match receive(&mut socket, form).await? {
            ServerMessage::Challenge { nonce, code } => (nonce, code),
            ServerMessage::Bye(close_reason) => return Ok(Err(close_reason)),
            other => bail!("the relay answered the hello with {other:?}"),
        };
        let exchange = Exchange { client, server: nonce, authority: &link.authority };
        if whose != KeyId::Owner && !exchange.accepts_server(key, &code) {
            // A relay does not reveal which shares and tabs exist, and proves a random key for unknown
            // ones.
            return Ok(Err(CloseReason::Refused));
        }
        ensure!(exchange.accepts_server(key, &code), "the relay does not hold the key");
        send(&mut socket, form, &ClientMessage::Proof { code: exchange.client_code(key) }).await?;
        match receive(&mut socket, form).await? {
            ServerMessage::Welcome(welcome) => {
                Ok(Ok(Self::welcomed(socket, form, exchange.session_key(key), *welcome)))
            }
            ServerMessage::Bye(close_reason) => Ok(Err(close_reason)),
            other => bail!("the relay answered the proof with {other:?}"),
        }
    }

    /// The session key of a link for one tab.
    pub fn session_key(&self) -> &Key {
        &self.session_key
    }

    /// The relay's welcome.
    pub fn welcome(&self) -> &Welcome {
        &self.welcome
    }

    /// Bytes of all messages since the welcome.
    pub fn received_bytes(&self) -> usize {
        self.received_bytes
    }

    /// Number of deltas that were missed because the client read too slowly.
    pub fn missed(&self) -> u32 {
        self.missed
    }

    /// Subscribes to these topics.
    ///
    /// # Errors
    /// If the connection is broken.
    pub async fn subscribe(&mut self, topics: &[Topic]) -> Result<()> {
        self.known.retain(|topic, _| topics.contains(topic));
        send(&mut self.socket, self.form, &ClientMessage::Subscribe(topics.to_vec())).await
    }

    /// Requests a topic's snapshot again.
    ///
    /// # Errors
    /// If the connection is broken.
    pub async fn resync(&mut self, topic: &Topic) -> Result<()> {
        send(&mut self.socket, self.form, &ClientMessage::Resync(topic.clone())).await
    }

    /// Sends a question, and processes messages until it is answered.
    ///
    /// # Errors
    /// If the connection is broken, or no answer arrives within [`TIMEOUT`].
    pub async fn request(&mut self, request: Request) -> Result<Response> {
        self.questions += 1;
        let number = self.questions;
        send(&mut self.socket, self.form, &ClientMessage::Request { number, request }).await?;
        let waited = tokio::time::timeout(TIMEOUT, async {
            loop {
                if let Some(response) = self.responses.remove(&number) {
                    return anyhow::Ok(response);
                }
                self.step().await?;
            }
        });
        waited.await.context("no answer in time")?
    }

    /// Queries long-term history, and processes messages until it arrives.
    ///
    /// # Errors
    /// If the connection is broken, or no answer arrives within [`TIMEOUT`].
    pub async fn range(&mut self, query: RangeQuery) -> Result<RangeHistory> {
        self.questions += 1;
        let number = self.questions;
        send(&mut self.socket, self.form, &ClientMessage::Range { number, query }).await?;
        let waited = tokio::time::timeout(TIMEOUT, async {
            loop {
                if let Some(range) = self.ranges.remove(&number) {
                    return anyhow::Ok(range);
                }
                self.step().await?;
            }
        });
        waited.await.context("no history in time")?
    }

    /// Follows these logs.
    ///
    /// # Errors
    /// If the connection is broken.
    pub async fn follow(&mut self, logs: &[LogRef]) -> Result<()> {
        self.logs.retain(|log, _| logs.contains(log));
        send(&mut self.socket, self.form, &ClientMessage::Follow(logs.to_vec())).await
    }

    /// The received lines of a followed log.
    pub fn log(&self, log: LogRef) -> Option<&[String]> {
        self.logs.get(&log).map(Vec::as_slice)
    }

    /// Processes messages until the lines of a log satisfy `is_expected`.
    ///
    /// # Errors
    /// If they do not within [`TIMEOUT`], or the connection is broken.
    pub async fn log_until(
        &mut self,
        log: LogRef,
        what: &str,
        is_expected: impl Fn(&[String]) -> bool,
    ) -> Result<&[String]> {
        let waited = tokio::time::timeout(TIMEOUT, async {
            while !self.log(log).is_some_and(&is_expected) {
                self.step().await?;
            }
            anyhow::Ok(())
        });
        match waited.await {
            Ok(result) => result.with_context(|| format!("waiting for {what}"))?,
            Err(_) => bail!("no {what} in time; the log is {:#?}", self.log(log)),
        }
        self.log(log).context("the expected log is there")
    }

    /// The state of a topic.
    pub fn known(&self, topic: &Topic) -> Option<&Known> {
        self.known.get(topic)
    }

    /// The picture of a topic, once received.
    pub fn picture(&self, topic: &Topic) -> Option<&Picture> {
        self.known.get(topic).map(|known| &known.picture)
    }

    /// Processes messages until the picture of a topic satisfies `is_expected`.
    ///
    /// # Errors
    /// If it does not within [`TIMEOUT`], the relay closes, or a delta does not apply.
    pub async fn until(
        &mut self,
        topic: &Topic,
        what: &str,
        is_expected: impl Fn(&Known) -> bool,
    ) -> Result<&Picture> {
        let waited = tokio::time::timeout(TIMEOUT, async {
            while !self.known.get(topic).is_some_and(&is_expected) {
                self.step().await?;
            }
            anyhow::Ok(())
        });
        match waited.await {
            Ok(result) => result.with_context(|| format!("waiting for {what}"))?,
            Err(_) => {
                let picture = self.picture(topic);
                bail!(
                    "no {what} in time: {}; the picture is {picture:#?}",
                    picture.map(digest).unwrap_or_default()
                )
            }
        }
        self.picture(topic).context("the expected picture is there")
    }

    /// Processes one message.
    ///
    /// # Errors
    /// If the connection ends, or a message does not apply.
    pub async fn step(&mut self) -> Result<()> {
        let frame = self.frame().await?;
        self.apply(&frame)
    }

    /// Receives a raw frame.
    ///
    /// # Errors
    /// If the connection ends.
    pub async fn frame(&mut self) -> Result<Bytes> {
        let frame = receive_frame(&mut self.socket, self.form).await?;
        self.received_bytes += frame.len();
        Ok(frame)
    }

    /// Applies a message.
    ///
    /// # Errors
    /// If it does not apply, or is a farewell.
    pub fn apply(&mut self, frame: &[u8]) -> Result<()> {
        let message = self.form.decode(frame)?;
        match message {
            ServerMessage::Snapshot(snapshot) => {
                let snapshots = self.known.get(&snapshot.topic).map_or(0, |known| known.snapshots) + 1;
                let (number, seq, picture) = (snapshot.number, snapshot.seq, snapshot.picture);
                let known = Known { picture, snapshots, deltas: 0, number, seq, behind: false };
                self.known.insert(snapshot.topic, known);
            }
            ServerMessage::Delta(delta) => {
                // A delta of an unsubscribed topic may still arrive.
                let Some(known) = self.known.values_mut().find(|known| known.number == delta.topic) else {
                    return Ok(());
                };
                if known.behind {
                    return Ok(());
                }
                ensure!(delta.seq == known.seq.wrapping_add(1), "delta {} after {}", delta.seq, known.seq);
                known.picture.apply(&delta, |_| ())?;
                known.seq = delta.seq;
                known.deltas += 1;
            }
            ServerMessage::Histories(pasts) => {
                if let Some(known) = self.known.values_mut().find(|known| known.number == pasts.topic) {
                    known.picture.apply_histories(pasts, |_| ())?;
                }
            }
            ServerMessage::Gone(topic) => drop(self.known.remove(&topic)),
            ServerMessage::Lagged { missed } => {
                self.missed += missed;
                self.known.values_mut().for_each(|known| known.behind = true);
            }
            ServerMessage::Response { number, response } => drop(self.responses.insert(number, response)),
            ServerMessage::Range { number, range } => drop(self.ranges.insert(number, range)),
            ServerMessage::Log { of, tail } => {
                let lines = self.logs.entry(of).or_default();
                if tail.restarted {
                    lines.clear();
                }
                lines.extend(tail.lines.iter().map(ToString::to_string));
                // The error of a log is shown in place of its lines.
                lines.extend(tail.error.iter().map(|why| format!("trouble: {why}")));
            }
            ServerMessage::Bye(close_reason) => bail!("the relay closed the connection: {close_reason:?}"),
            other => bail!("{other:?} does not belong here"),
        }
        Ok(())
    }

    /// Processes messages until the relay's farewell, and returns it.
    ///
    /// # Errors
    /// If the connection ends without one.
    pub async fn close_reason(mut self) -> Result<CloseReason> {
        let waited = tokio::time::timeout(TIMEOUT, async {
            loop {
                if let ServerMessage::Bye(close_reason) = receive(&mut self.socket, self.form).await? {
                    return Ok(close_reason);
                }
            }
        });
        waited.await.context("no goodbye in time")?
    }
}

/// The transport of a WebSocket.
pub trait Pipe: AsyncRead + AsyncWrite + Unpin + Send + Debug {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send + Debug> Pipe for T {}

type Socket = WebSocketStream<Box<dyn Pipe>>;

async fn open(link: &Link, form: Form, pipe: Box<dyn Pipe>, more: &[(&str, &str)]) -> Result<Socket> {
    let mut request = format!("ws://{}{}{LIVE_PATH}", link.authority, link.base).into_client_request()?;
    let headers = request.headers_mut();
    headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(form.subprotocol()));
    headers.insert(ORIGIN, HeaderValue::from_str(&format!("{}://{}", link.scheme, link.authority))?);
    for (name, value) in more {
        headers.append(HeaderName::from_bytes(name.as_bytes())?, HeaderValue::from_str(value)?);
    }
    // Like a browser, without a limit of message size: the snapshot of a thousand nodes is larger than 16
    // MiB.
    let unbounded = WebSocketConfig::default().max_message_size(None).max_frame_size(None);
    let (socket, response) = tokio_tungstenite::client_async_with_config(request, pipe, Some(unbounded))
        .await
        .context("open the WebSocket")?;
    let chosen = response.headers().get(SEC_WEBSOCKET_PROTOCOL).and_then(|value| value.to_str().ok());
    ensure!(chosen == Some(form.subprotocol()), "the relay chose the subprotocol {chosen:?}");
    Ok(socket)
}

async fn send(socket: &mut Socket, form: Form, message: &ClientMessage) -> Result<()> {
    let bytes = form.encode(message);
    let frame = match form {
        Form::Binary => Message::Binary(bytes.into()),
        Form::Json => Message::Text(String::from_utf8(bytes)?.into()),
    };
    socket.send(frame).await.context("send to the relay")
}

async fn receive(socket: &mut Socket, form: Form) -> Result<ServerMessage> {
    Ok(form.decode(&receive_frame(socket, form).await?)?)
}

/// Receives a raw frame.
async fn receive_frame(socket: &mut Socket, form: Form) -> Result<Bytes> {
    loop {
        let frame =
            tokio::time::timeout(TIMEOUT, socket.next()).await.context("no frame from the relay in time")?;
        match frame.context("the relay closed the connection")?? {
            Message::Binary(bytes) if form == Form::Binary => return Ok(bytes),
            Message::Text(text) if form == Form::Json => return Ok(text.into()),
            Message::Ping(_) | Message::Pong(_) => {}
            other => bail!("the relay sent {other:?}, which is not of the chosen form"),
        }
    }
}

fn random() -> Result<[u8; 32]> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| anyhow::anyhow!("get random bytes: {error}"))?;
    Ok(bytes)
}

/// The state of the jobs and nodes of a picture: the summary of a run has the first lines of an error only.
fn digest(picture: &Picture) -> String {
    let jobs = picture.jobs.iter().map(|job| format!("job {} {:?}", job.id, job.state));
    let nodes = picture.nodes.iter().map(|node| {
        let owners: Vec<_> = node.gpus.iter().map(|gpu| gpu.owners.len()).collect();
        let (name, link, sampled_at_ms) = (&node.name, &node.head.link, node.sampled_at_ms);
        let processes = node.processes.len();
        format!("{name} {link:?}, owners of its GPUs {owners:?}, {processes} processes, sampled at {sampled_at_ms:?}")
    });
    jobs.chain(nodes).collect::<Vec<_>>().join("; ")
}
