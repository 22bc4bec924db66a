//! The connection to the servers: settings, state, and messages to send.

use super::message::{ClusterName, RelayId, Subjects};
use async_nats::connection::State;
use async_nats::{Client, ConnectOptions, Event, HeaderMap, ServerAddr, Subscriber};
use bytes::Bytes;
use nodeglass_platform::private_file;
use nodeglass_protocol::Text;
use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};

/// Capacity of a subscription, in messages. Further messages are dropped; their sequence numbers reveal the gap.
const SUBSCRIPTION: usize = 256;
/// Capacity of the queue of messages to send; further messages are dropped.
const QUEUE: usize = 4_096;
/// Capacity of that queue, in bytes.
const QUEUE_BYTES: usize = 16 << 20;
/// Maximum size of the file of credentials, in bytes.
const MAX_CREDENTIALS: u64 = 16 * 1024;
/// Time limit for handing a message to the connection.
const SEND_LIMIT: Duration = Duration::from_secs(2);
/// Maximum number of subjects that are named as not permitted, and of their tokens.
const MAX_DENIED: usize = 4;
const MAX_TOKENS: usize = 8;
/// Time between two attempts to connect.
const RETRY: Duration = Duration::from_secs(2);
/// Time between two attempts after the server refused the credentials: servers log such attempts, and sites act on them.
const REFUSED_RETRY: Duration = Duration::from_secs(60);

/// The URL of a server: `nats://HOST:PORT` or `tls://HOST:PORT`.
#[derive(Clone, PartialEq, Eq)]
pub struct NatsUrl(ServerAddr);

/// Error of [`NatsUrl`]; a fragment that follows the setting's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "not the URL of a NATS server: use nats://HOST:PORT or tls://HOST:PORT, and --nats-credentials for a password"
)]
pub struct NatsUrlError;

impl FromStr for NatsUrl {
    type Err = NatsUrlError;
    fn from_str(raw: &str) -> Result<Self, NatsUrlError> {
        let address: ServerAddr = raw.parse().map_err(|_| NatsUrlError)?;
        let is_known = matches!(address.scheme(), "nats" | "tls") && !address.host().is_empty();
        // Other users see command lines.
        let is_known = is_known && !address.has_user_pass();
        if is_known { Ok(Self(address)) } else { Err(NatsUrlError) }
    }
}

impl NatsUrl {
    /// Its host and port.
    pub fn address(&self) -> (&str, u16) {
        (self.0.host(), self.0.port())
    }
}

impl fmt::Display for NatsUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}:{}", self.0.scheme(), self.0.host(), self.0.port())
    }
}

impl fmt::Debug for NatsUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// How the servers are reached.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The servers of one NATS cluster.
    pub servers: Vec<NatsUrl>,
    /// A file with the user's credentials that only the user can read: as `nsc` writes it, or `USER:PASSWORD`.
    pub credentials: Option<PathBuf>,
    /// Certificate authorities in PEM form, instead of this machine's.
    pub ca: Option<PathBuf>,
}

/// Error of the start; a complete sentence for the user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct StartError(String);

/// State of the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Connection {
    /// There was none yet.
    Starting,
    /// Connected.
    Up,
    /// Not connected; a complete sentence states why, and what to do.
    Down(Text),
    /// Not connected because the server refused the credentials; a complete sentence for the user.
    Refused(Text),
}

/// A message to send.
struct Outgoing {
    subject: String,
    headers: HeaderMap,
    payload: Bytes,
}

/// The connection of this relay. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Bus {
    pub(crate) client: Client,
    pub(crate) id: RelayId,
    pub(crate) subjects: Subjects,
    pub(crate) state: watch::Receiver<Connection>,
    /// Subjects that the servers did not permit since the last connection.
    pub(crate) denied: watch::Receiver<Denied>,
    queue: mpsc::Sender<Outgoing>,
    queued_bytes: Arc<AtomicUsize>,
}

impl Bus {
    /// Connects in the background, and again whenever the connection is lost.
    ///
    /// # Errors
    /// If the credentials or certificates cannot be read.
    pub(crate) async fn start(settings: &Settings) -> Result<Self, StartError> {
        let (state, current) = watch::channel(Connection::Starting);
        let (denials, denied) = watch::channel(Denied::default());
        let options = options(settings, state, denials).await?;
        let servers: Vec<ServerAddr> = settings.servers.iter().map(|url| url.0.clone()).collect();
        let client = options.connect(servers).await;
        let client = client.map_err(|error| StartError(format!("--nats: {error}")))?;
        let (queue, messages) = mpsc::channel(QUEUE);
        let queued_bytes = Arc::new(AtomicUsize::new(0));
        tokio::spawn(send_all(client.clone(), messages, Arc::clone(&queued_bytes)));
        Ok(Self {
            client,
            id: RelayId::random(),
            subjects: Subjects::of_all(),
            state: current,
            denied,
            queue,
            queued_bytes,
        })
    }

    /// The same connection for one cluster.
    pub(crate) fn of(&self, cluster: &ClusterName) -> Self {
        Self { subjects: Subjects::of(cluster), ..self.clone() }
    }

    /// Returns whether the connection is up.
    pub(crate) fn is_up(&self) -> bool {
        // The client's own state stays what it was if its task ends.
        self.state.has_changed().is_ok() && self.client.connection_state() == State::Connected
    }

    /// The reason for having no connection now, a complete sentence; `None` if there is one.
    pub(crate) fn lost(&self) -> Option<Text> {
        match &*self.state.borrow() {
            Connection::Up => None,
            Connection::Starting => Some("there is no connection to NATS yet".into()),
            Connection::Down(why) | Connection::Refused(why) => Some(why.clone()),
        }
    }

    /// States what is not permitted, whenever it changes; a complete sentence.
    pub(crate) fn denied(&self) -> watch::Receiver<Option<Text>> {
        let (stated, sentence) = watch::channel(None);
        let mut denied = self.denied.clone();
        tokio::spawn(async move {
            loop {
                let now = denied.borrow_and_update().sentence();
                stated.send_if_modified(|before| std::mem::replace(before, now.clone()) != now);
                if denied.changed().await.is_err() {
                    return;
                }
            }
        });
        sentence
    }

    /// Waits for a connection.
    pub(crate) async fn connected(&self) {
        let mut state = self.state.clone();
        // It ends with the client, which does not return.
        if state.wait_for(|state| *state == Connection::Up).await.is_err() {
            std::future::pending().await
        }
    }

    /// Subscribes, as soon as the connection accepts it.
    pub(crate) async fn subscribed(&self, subject: String) -> Subscriber {
        loop {
            match self.client.subscribe(subject.clone()).await {
                Ok(subscriber) => return subscriber,
                Err(error) => {
                    tracing::warn!(%error, subject, "cannot subscribe over NATS; it is tried again")
                }
            }
            sleep(RETRY).await;
        }
    }

    /// Sends a message, unless the connection is down or too slow. Never waits.
    pub(crate) fn send(&self, subject: impl Into<String>, headers: HeaderMap, payload: Bytes) {
        let bytes = payload.len();
        if !self.is_up() {
            return;
        }
        let message = Outgoing { subject: subject.into(), headers, payload };
        let fits = self.queued_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes <= QUEUE_BYTES;
        if !fits || self.queue.try_send(message).is_err() {
            self.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}

/// Sends queued messages.
async fn send_all(client: Client, mut messages: mpsc::Receiver<Outgoing>, queued_bytes: Arc<AtomicUsize>) {
    while let Some(Outgoing { subject, headers, payload }) = messages.recv().await {
        queued_bytes.fetch_sub(payload.len(), Ordering::Relaxed);
        if client.connection_state() == State::Connected {
            let sent = timeout(SEND_LIMIT, client.publish_with_headers(subject, headers, payload)).await;
            if let Ok(Err(error)) = sent {
                tracing::debug!(%error, "a message was not sent over NATS");
            }
        }
    }
}

/// The options of the client.
async fn options(
    settings: &Settings,
    state: watch::Sender<Connection>,
    denied: watch::Sender<Denied>,
) -> Result<ConnectOptions, StartError> {
    let servers: Vec<_> = settings.servers.iter().map(ToString::to_string).collect();
    let servers = servers.join(", ");
    // Servers of a NATS cluster announce the addresses of others, without a scheme.
    let is_encrypted = settings.servers.iter().all(|url| url.0.tls_required());
    let is_refused = Arc::new(AtomicBool::new(false));
    let refused = Arc::clone(&is_refused);
    let state = Published(state);
    let mut options = ConnectOptions::new()
        .name("nodeglass")
        .require_tls(is_encrypted)
        .retry_on_initial_connect()
        .subscription_capacity(SUBSCRIPTION)
        .request_timeout(Some(Duration::from_secs(3)))
        .ping_interval(Duration::from_secs(2))
        .connection_timeout(Duration::from_secs(5))
        .reconnect_delay_callback(move |attempts| match attempts {
            0 | 1 => Duration::ZERO,
            _ if refused.load(Ordering::Relaxed) => REFUSED_RETRY,
            _ => RETRY,
        })
        .event_callback(move |event| {
            denied.send_if_modified(|denied| denied.take(&event));
            if let Some(connection) = connection(&event, &servers) {
                is_refused.store(matches!(connection, Connection::Refused(_)), Ordering::Relaxed);
                state.publish(connection);
            }
            std::future::ready(())
        });
    if let Some(path) = &settings.credentials {
        options = with_credentials(options, path)?;
    }
    if let Some(path) = &settings.ca {
        if let Err(error) = std::fs::metadata(path) {
            return Err(StartError(format!("--nats-ca: cannot read {}: {error}", path.display())));
        }
        options = options.add_root_certificates(path.clone());
    }
    Ok(options)
}

/// Reads a file of credentials.
fn with_credentials(options: ConnectOptions, path: &Path) -> Result<ConnectOptions, StartError> {
    let fail = |why: String| StartError(format!("--nats-credentials: {} {why}", path.display()));
    let text = private_file::read_text(path, MAX_CREDENTIALS)
        .map_err(|error| StartError(format!("--nats-credentials: {error}")))?;
    if text.contains("BEGIN NATS USER JWT") {
        return options.credentials(&text).map_err(|error| fail(format!("cannot be used: {error}")));
    }
    let (user, password) = text
        .trim()
        .split_once(':')
        .filter(|(user, _)| !user.is_empty() && !user.contains(char::is_whitespace))
        .ok_or_else(|| fail("has neither credentials of nsc nor USER:PASSWORD".to_owned()))?;
    Ok(options.user_and_password(user.to_owned(), password.to_owned()))
}

/// Returns the state that an event leads to; `None` if it changes nothing.
fn connection(event: &Event, servers: &str) -> Option<Connection> {
    let down = |why: String| Some(Connection::Down(Text::new(why)));
    match event {
        Event::Connected => Some(Connection::Up),
        Event::Disconnected | Event::Closed => {
            down(format!("the connection to NATS at {servers} was lost; it is retried"))
        }
        Event::ClientError(error) if is_refusal(&error.to_string()) => {
            Some(Connection::Refused(Text::new(format!(
                "NATS at {servers} refuses these credentials: check --nats-credentials; it is retried once a minute"
            ))))
        }
        Event::ClientError(error) => {
            down(format!("no connection to NATS at {servers} ({error}); it is retried"))
        }
        Event::SlowConsumer(_) | Event::ServerError(_) | Event::LameDuckMode | Event::Draining => None,
    }
}

/// Returns whether the server refused the credentials; the client has no other sign of it than the text of its error.
fn is_refusal(error: &str) -> bool {
    let error = error.to_ascii_lowercase();
    error.contains("authorization") || error.contains("authentication")
}

/// Subjects that the servers did not permit: they drop such messages and subscriptions, and go on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Denied(BTreeSet<String>);

impl Denied {
    /// Takes an event; returns whether it changes anything.
    fn take(&mut self, event: &Event) -> bool {
        match event {
            // Permissions may be others now.
            Event::Connected => !std::mem::take(&mut self.0).is_empty(),
            Event::ServerError(error) => {
                let subject = denied(&error.to_string());
                subject.is_some_and(|subject| self.0.len() < MAX_DENIED && self.0.insert(subject))
            }
            _ => false,
        }
    }

    /// The first one that begins with one of these, after `publish to` or `subscribe to`.
    pub(crate) fn find(&self, subjects: &[&str]) -> Option<&str> {
        let is_one = |denied: &&String| {
            denied
                .split_once(" to ")
                .is_some_and(|(_, of)| subjects.iter().any(|subject| of.starts_with(subject)))
        };
        self.0.iter().find(is_one).map(String::as_str)
    }

    /// States all of them, a complete sentence.
    pub(crate) fn sentence(&self) -> Option<Text> {
        let all: Vec<_> = self.0.iter().map(String::as_str).collect();
        (!all.is_empty()).then(|| {
            let all = all.join(", ");
            Text::new(format!("NATS does not permit these credentials to {all}: other relays may miss nodes and jobs of this one, or it theirs"))
        })
    }
}

/// The action that a server's error says is not permitted, as `publish to SUBJECT`, without ids that differ between runs.
fn denied(error: &str) -> Option<String> {
    // permissions violation for publish to "nodeglass.v1.hpc.jobs"
    let at = error.to_ascii_lowercase().find("permissions violation for ")?;
    let what = error.get(at + "permissions violation for ".len()..)?;
    let (action, subject) = what.split_once(' ')?;
    let subject = subject.split('"').nth(1)?;
    let is_id = |token: &&str| token.parse::<RelayId>().is_ok();
    let tokens: Vec<_> = subject.split('.').take(MAX_TOKENS).collect();
    let is_inbox = tokens.first() == Some(&"_INBOX");
    let tokens = tokens.iter().map(|token| if is_id(token) { "*" } else { token });
    let subject = if is_inbox { "_INBOX.>".to_owned() } else { tokens.collect::<Vec<_>>().join(".") };
    Some(
        Text::new(format!(
            "{} to {subject}",
            action.to_ascii_lowercase().replace("subscription", "subscribe")
        ))
        .to_string(),
    )
}

/// The state that the client's task publishes.
struct Published(watch::Sender<Connection>);

impl Published {
    /// Publishes a new state. A failed attempt to connect again says less than the reason for it.
    fn publish(&self, connection: Connection) {
        self.0.send_if_modified(|now| {
            let is_again = matches!(
                (&*now, &connection),
                (Connection::Down(_) | Connection::Refused(_), Connection::Down(_))
            );
            let is_new = !is_again && *now != connection;
            if is_new {
                now.clone_from(&connection);
            }
            is_new
        });
    }
}

impl Drop for Published {
    /// The task ends with the relay, or because the client cannot handle what a server sent.
    fn drop(&mut self) {
        let why = "the client of NATS has stopped because of what a server sent; start the relay again";
        self.0.send_replace(Connection::Down(why.into()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    #[test]
    fn urls_have_a_known_scheme_and_no_password() {
        assert_eq!("tls://broker".parse::<NatsUrl>().unwrap().to_string(), "tls://broker:4222");
        let invalid = ["http://broker", "ws://broker", "nats://", "nats://bob:secret@broker"];
        assert!(invalid.iter().all(|raw| raw.parse::<NatsUrl>().is_err()));
    }

    #[tokio::test]
    async fn servers_that_others_announce_need_tls_if_the_configured_ones_do() {
        let needs_tls = async |urls: &[&str]| {
            let servers = urls.iter().map(|url| url.parse().unwrap()).collect();
            let settings = Settings { servers, credentials: None, ca: None };
            let options = options(
                &settings,
                watch::channel(Connection::Starting).0,
                watch::channel(Denied::default()).0,
            )
            .await
            .unwrap();
            format!("{options:?}").contains("\"tls_required\": true")
        };
        assert!(needs_tls(&["tls://a", "tls://b"]).await);
        assert!(!needs_tls(&["nats://a"]).await && !needs_tls(&["tls://a", "nats://b"]).await);
    }

    #[tokio::test]
    async fn a_client_that_a_server_stops_is_not_up() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("nats://{}", server.local_addr().unwrap()).parse().unwrap();
        let settings = Settings { servers: vec![url], credentials: None, ca: None };
        let bus = Bus::start(&settings).await.unwrap();
        let (mut stream, _) = server.accept().await.unwrap();
        let info = concat!(
            r#"INFO {"server_id":"x","server_name":"x","host":"h","port":1,"version":"2.9.0","go":"x","#,
            r#""max_payload":1048576,"proto":1,"client_id":1}"#,
            "\r\n"
        );
        stream.write_all(info.as_bytes()).await.unwrap();
        let mut received = Vec::new();
        while !received.ends_with(b"PING\r\n") {
            assert!(stream.read_buf(&mut received).await.unwrap() > 0);
        }
        stream.write_all(b"PONG\r\n").await.unwrap();
        let mut state = bus.state.clone();
        state.wait_for(|state| *state == Connection::Up).await.unwrap();
        assert!(bus.is_up());
        // An error without a text ends the client's task by a panic.
        stream.write_all(b"-ERR\r\n").await.unwrap();
        let is_stopped = |state: &Connection| matches!(state, Connection::Down(why) if why.as_str().contains("start the relay again"));
        state.wait_for(is_stopped).await.unwrap();
        assert!(!bus.is_up());
    }

    #[test]
    fn wrong_credentials_say_what_to_do() {
        let error = async_nats::ClientError::Other("authorization violation".to_owned());
        let Some(Connection::Refused(why)) = connection(&Event::ClientError(error), "nats://b:1") else {
            panic!()
        };
        assert!(why.as_str().contains("check --nats-credentials"), "{why}");
    }

    #[test]
    fn what_a_server_does_not_permit_is_stated_until_the_next_connection() {
        let error = |text: &str| Event::ServerError(async_nats::ServerError::Other(text.to_owned()));
        let mut denied = Denied::default();
        let announce =
            r#"Permissions Violation for Publish to "nodeglass.v1.hpc.relay.00000000000000ab.announce""#;
        assert!(denied.take(&error(announce)));
        assert!(!denied.take(&error(&announce.replace("ab", "cd"))), "another run");
        assert!(denied.take(&error(r#"Permissions Violation for Subscription to "_INBOX.xyz.*""#)));
        assert!(!denied.take(&error("Stale Connection")) && !denied.take(&Event::LameDuckMode));
        let all = denied.sentence().unwrap();
        let said = "these credentials to publish to nodeglass.v1.hpc.relay.*.announce, subscribe to _INBOX.>";
        assert!(all.as_str().contains(said), "{all}");
        assert_eq!(denied.find(&["_INBOX", "$JS"]), Some("subscribe to _INBOX.>"));
        assert!(denied.take(&Event::Connected));
        assert_eq!((denied.sentence(), denied.find(&["_INBOX"])), (None, None));
        (0..9).for_each(|number| {
            denied.take(&error(&format!(r#"permissions violation for publish to "a.{number}""#)));
        });
        assert_eq!(denied.0.len(), MAX_DENIED);
    }

    #[test]
    fn the_name_of_a_server_refuses_no_credentials() {
        let servers = "nats://authentication.example.org:4222";
        for event in
            [Event::Disconnected, Event::ClientError(async_nats::ClientError::Other("refused".into()))]
        {
            assert!(matches!(connection(&event, servers), Some(Connection::Down(_))));
        }
    }
}
