//! A hostile local program: another site, or an impostor on the port of a dead relay.

use anyhow::{Context, Result};
use futures_util::{SinkExt, StreamExt};
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::handshake::{Exchange, Key, Nonce};
use nodeglass_protocol::live::{ClientMessage, ServerMessage};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};
use tokio_tungstenite::tungstenite::http::HeaderValue;

/// A running impostor, stopped on drop.
#[derive(Debug)]
pub struct Impostor {
    port: u16,
    received: Arc<Mutex<Received>>,
    task: JoinHandle<()>,
}

const USURPING_PAGE: &str = "<!doctype html><title>evil</title><script>\
    navigator.serviceWorker.register('/worker.js', { scope: 'SCOPE' });</script>";
const USURPING_WORKER: &str = "self.addEventListener('install', () => self.skipWaiting());\
    self.addEventListener('activate', event => event.waitUntil(clients.claim()));\
    self.addEventListener('fetch', event => { if (event.request.mode === 'navigate') event.respondWith(\
        new Response('<!doctype html><title>evil</title>', { headers: { 'Content-Type': 'text/html' } })); });";

/// Data that an impostor received.
#[derive(Clone, Debug, Default)]
pub struct Received {
    /// The request heads.
    pub heads: Vec<String>,
    /// The messages, re-encoded.
    pub messages: Vec<ClientMessage>,
    /// Number of frames that were not a message, or more than one.
    pub odd: usize,
}

impl Impostor {
    /// Starts a site that responds to every request with this page and these headers, each ending in `\r\n`.
    ///
    /// # Errors
    /// If there is no free port.
    pub async fn site(html: &str, headers: &str) -> Result<Self> {
        let reply = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {}\r\nConnection: close\r\n{headers}\r\n{html}",
            html.len()
        );
        Self::start(0, move |mut socket, received| {
            let reply = reply.clone();
            async move {
                let mut head = vec![0; 8 * 1024];
                let length = socket.read(&mut head).await?;
                note_head(&received, &head[..length]);
                socket.write_all(reply.as_bytes()).await?;
                socket.shutdown().await.context("end the reply")
            }
        })
        .await
    }

    /// A program on a relay's port whose page registers a service worker for everything below `scope`:
    /// from then on the browser asks that worker instead of the relay.
    ///
    /// # Errors
    /// If the port is not free.
    pub async fn usurper(port: u16, scope: &'static str) -> Result<Self> {
        Self::start(port, move |mut socket, received| async move {
            let mut head = vec![0; 8 * 1024];
            let length = socket.read(&mut head).await?;
            note_head(&received, &head[..length]);
            let (kind, body) = match head.starts_with(b"GET /worker.js") {
                true => ("text/javascript", USURPING_WORKER.to_owned()),
                false => ("text/html", USURPING_PAGE.replace("SCOPE", scope)),
            };
            let reply = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                body.len()
            );
            socket.write_all(reply.as_bytes()).await?;
            socket.shutdown().await.context("end the reply")
        })
        .await
    }

    /// A program on a dead relay's port that imitates it. It proves to hold `key`, which is the relay's
    /// only in tests that show that it would receive more then.
    ///
    /// # Errors
    /// If the port is not free.
    pub async fn squatter(port: u16, key: Key) -> Result<Self> {
        Self::start(port, move |socket, received| respond_like_a_relay(socket, received, key.clone(), port))
            .await
    }

    async fn start<F>(
        port: u16,
        answer: impl Fn(TcpStream, Arc<Mutex<Received>>) -> F + Send + 'static,
    ) -> Result<Self>
    where
        F: Future<Output = Result<()>> + Send + 'static,
    {
        let listener = TcpListener::bind(("127.0.0.1", port)).await.context("take a port")?;
        let port = listener.local_addr()?.port();
        let received = Arc::new(Mutex::new(Received::default()));
        let shared = received.clone();
        let task = tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                // A client that disconnects early has sent everything.
                tokio::spawn(answer(socket, shared.clone()));
            }
        });
        Ok(Self { port, received, task })
    }

    /// Stops it and frees its port.
    pub async fn end(mut self) {
        self.task.abort();
        let _ = (&mut self.task).await;
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the data that it has received so far.
    pub fn received(&self) -> Received {
        self.received.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Impostor {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn note_head(received: &Mutex<Received>, head: &[u8]) {
    let head = String::from_utf8_lossy(head).into_owned();
    received.lock().unwrap_or_else(PoisonError::into_inner).heads.push(head);
}

async fn respond_like_a_relay(
    socket: TcpStream,
    received: Arc<Mutex<Received>>,
    key: Key,
    port: u16,
) -> Result<()> {
    const FORM: Form = Form::Binary;
    let mut head = vec![0; 8 * 1024];
    let length = socket.peek(&mut head).await?;
    note_head(&received, &head[..length]);
    #[expect(clippy::result_large_err, reason = "tungstenite's own type of a refusal")]
    let agree = |_: &Request, mut response: Response| {
        let form = HeaderValue::from_static(FORM.subprotocol());
        response.headers_mut().insert("sec-websocket-protocol", form);
        Ok(response)
    };
    let mut socket = tokio_tungstenite::accept_hdr_async(socket, agree).await?;
    while let Some(frame) = socket.next().await {
        let Message::Binary(bytes) = frame? else { continue };
        let message: Option<ClientMessage> = FORM.decode(&bytes).ok();
        let decoded = message.filter(|message| FORM.encode(message) == bytes[..]);
        let reply = decoded.as_ref().and_then(|message| challenge(message, &key, port));
        {
            let mut received = received.lock().unwrap_or_else(PoisonError::into_inner);
            received.odd += usize::from(decoded.is_none());
            received.messages.extend(decoded);
        }
        if let Some(reply) = reply {
            socket.send(Message::Binary(FORM.encode(&reply).into())).await?;
        }
    }
    Ok(())
}

/// A relay's response to a hello, with this key.
fn challenge(message: &ClientMessage, key: &Key, port: u16) -> Option<ServerMessage> {
    let ClientMessage::Hello { nonce: client, .. } = message else { return None };
    let server = Nonce([9; 32]);
    let exchange = Exchange { client: *client, server, authority: &format!("127.0.0.1:{port}") };
    Some(ServerMessage::Challenge { nonce: server, code: exchange.server_code(&key.verifier()) })
}
