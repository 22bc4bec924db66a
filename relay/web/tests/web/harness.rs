//! A relay without nodes behind a real listener, and its clients: requests, pages and processes.

use futures_util::{SinkExt, StreamExt};
use nodeglass_access::cache_buster::CacheBuster;
use nodeglass_access::hosts::AllowedHosts;
use nodeglass_access::peer::Peer;
use nodeglass_access::people::{People, Person, Question};
use nodeglass_access::proxies::{Proxies, Proxy};
use nodeglass_access::trust::Trust;
use nodeglass_actions::{ActionService, Deps, JobControl};
use nodeglass_auth::authenticator::Authenticator;
use nodeglass_auth::tokens::Tokens;
use nodeglass_config::BindAddr;
use nodeglass_event_loop::{EventLoop, Inputs, Options, Sinks};
use nodeglass_fleet::{Event, Fleet};
use nodeglass_nodes::Probes;
use nodeglass_notify::webhook::Webhook;
use nodeglass_platform::clock::Clock;
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::handshake::{Exchange, Key, LEN, Nonce};
use nodeglass_protocol::live::{ClientMessage, CloseReason, KeyId, Mode, ServerMessage};
use nodeglass_protocol::version::{LIVE_WIRE, VersionRange};
use nodeglass_remote_write::promql::PromQl;
use nodeglass_share::{ShareEndpoint, Shares};
use nodeglass_slurm::PollTrigger;
use nodeglass_store::{AuditRecorder, JobStore};
use nodeglass_web::WebState;
use nodeglass_web::about::About;
use nodeglass_web::assets::{Assets, PageFile};
use nodeglass_web::site::{Members, Site};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream, UnixStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::{Error, Message, client::IntoClientRequest, http::HeaderValue};

/// Longer than any step takes on a slow machine; reached only if a test fails.
pub const LONG: Duration = Duration::from_secs(60);
/// The host name that this relay allows.
pub const PORTAL: &str = "portal.example.org";
/// The header in which its proxy names the visitor.
pub const USER_HEADER: &str = "x-forwarded-user";
/// The base path below which a proxy may serve it.
pub const BASE: &str = "/rnode/login1/8080";

/// A page and a document, as a build produces them.
pub static PAGE: [PageFile; 5] = [
    PageFile {
        path: "index.html",
        plain: Some(b"<head><meta name=\"nodeglass-build\" content=\"\"><script src=\"./start-0123456789abcdef.js\"></script></head>page"),
        brotli: Some(b"stale"),
        gzip: Some(b"stale"),
    },
    PageFile {
        path: "app-0123456789abcdef_bg.wasm",
        plain: Some(b"\0asm plain"),
        brotli: Some(b"wasm by brotli"),
        gzip: Some(b"wasm by gzip"),
    },
    PageFile {
        path: "start-0123456789abcdef.js",
        plain: Some(b"start()"),
        brotli: None,
        gzip: Some(b"js by gzip"),
    },
    PageFile { path: "icon.svg", plain: Some(b"<svg/>"), brotli: None, gzip: None },
    PageFile { path: "help/index.html", plain: Some(b"documents"), brotli: None, gzip: None },
];

/// A running relay.
pub struct TestRelay {
    pub addr: SocketAddr,
    pub key: Key,
    pub build: String,
    /// What its event loop receives.
    pub events: mpsc::Sender<Event>,
    /// Its stored jobs.
    pub store: JobStore,
    /// Requests polls of the job list, which the test has to perform.
    pub polls: PollTrigger,
    shutdown: watch::Sender<bool>,
    serving: JoinHandle<()>,
    /// The folder of its socket for a proxy of the owner.
    sockets: tempfile::TempDir,
    // The relay exits once an input is closed.
    _inputs: Box<dyn std::any::Any + Send>,
}

impl TestRelay {
    pub async fn start() -> Self {
        Self::start_with(Fleet::new()).await
    }

    /// One with a fleet whose nodes never respond.
    pub async fn start_with(fleet: Fleet) -> Self {
        Self::start_as(fleet, false, JobControl::Disabled("there is no SLURM here")).await
    }

    /// The same with or without `--read-only`, and with or without job control.
    pub async fn start_as(fleet: Fleet, read_only: bool, job_control: JobControl) -> Self {
        Self::start_behind(Proxies::default(), fleet, read_only, job_control).await
    }

    /// One that trusts the forwarded headers of the user who runs these tests.
    pub async fn start_behind_us() -> Self {
        let Peer::User(us) = Peer::owner() else { panic!("the owner is a user") };
        let proxies =
            Proxies::new(vec![Proxy::User(us)]).naming_visitors(USER_HEADER.to_owned(), Some("alice".into()));
        Self::start_behind(proxies, Fleet::new(), false, JobControl::Disabled("there is no SLURM here")).await
    }

    /// One with `--no-audit`.
    pub async fn start_without_audit() -> Self {
        Self::start_storing(Proxies::default(), Fleet::new(), false, no_slurm(), (AuditRecorder::off, None))
            .await
    }

    /// One whose settings name a webhook.
    pub async fn start_with_webhook(fleet: Fleet, webhook: Webhook) -> Self {
        let stored = (kept as fn(_) -> _, Some(webhook));
        Self::start_storing(Proxies::default(), fleet, false, no_slurm(), stored).await
    }

    async fn start_behind(proxies: Proxies, fleet: Fleet, read_only: bool, job_control: JobControl) -> Self {
        Self::start_storing(proxies, fleet, read_only, job_control, (kept, None)).await
    }

    /// The relay of a site behind a proxy that runs as the user of these tests: its people are alice, bob, carol and
    /// dave, of whom dave is an administrator and `members` have accounts.
    pub async fn start_site(fleet: Fleet, members: watch::Receiver<Arc<Members>>) -> Self {
        let Peer::User(us) = Peer::owner() else { panic!("the owner is a user") };
        let proxies =
            Proxies::new(vec![Proxy::User(us)]).naming_visitors(USER_HEADER.to_owned(), Some("svc".into()));
        let names = ["alice", "bob", "carol", "dave"];
        let people = People::by(move |question| {
            let person = |at: usize| Person { uid: 2_001 + at as u32, name: names[at].into() };
            match question {
                Question::Name(name) if name == "root" => Some(Person { uid: 0, name: "root".into() }),
                Question::Name(name) => names.iter().position(|known| known == name).map(person),
                Question::Uid(0) => Some(Person { uid: 0, name: "root".into() }),
                Question::Uid(uid) => {
                    uid.checked_sub(2_001).filter(|at| *at < 4).map(|at| person(at as usize))
                }
            }
        });
        let site = Site::new(people, Arc::new(proxies.clone()), Trust::new(Vec::new()));
        let site = site.with_admins(["dave".into()].into()).with_members(members);
        Self::start_all(proxies, fleet, false, no_slurm(), (kept, None), Some(Arc::new(site)), None).await
    }

    async fn start_storing(
        proxies: Proxies,
        fleet: Fleet,
        read_only: bool,
        job_control: JobControl,
        stored: (fn(AuditRecorder) -> AuditRecorder, Option<Webhook>),
    ) -> Self {
        Self::start_all(proxies, fleet, read_only, job_control, stored, None, None).await
    }

    /// A relay that reads long ranges from a storage.
    pub async fn start_with_storage(fleet: Fleet, storage: PromQl) -> Self {
        let stored = (kept as fn(AuditRecorder) -> AuditRecorder, None);
        Self::start_all(Proxies::default(), fleet, false, no_slurm(), stored, None, Some(storage)).await
    }

    async fn start_all(
        proxies: Proxies,
        fleet: Fleet,
        read_only: bool,
        job_control: JobControl,
        (audit, webhook): (fn(AuditRecorder) -> AuditRecorder, Option<Webhook>),
        site: Option<Arc<Site>>,
        long_term: Option<PromQl>,
    ) -> Self {
        let sockets = tempfile::tempdir().unwrap();
        let owners = BindAddr::Owner(sockets.path().join("owner.sock"));
        let listeners = nodeglass_web::bind(&["127.0.0.1:0".parse().unwrap(), owners], None).await.unwrap();
        let Some(&BindAddr::Tcp(addr)) = listeners.addresses().first() else { panic!("no address") };
        let (shutdown, ending) = watch::channel(false);
        let (clock, key) = (Clock::start(), Key::new([7; LEN]));
        let ((nodes_tx, nodes), (events_tx, events)) = (mpsc::channel(8), mpsc::channel(8));
        let place = ShareEndpoint { address: Some(format!("http://{addr}/")), tunnel: "ssh".into() };
        let shares = Arc::new(Shares::new(key.clone(), "alice".into(), place, None));
        let inputs = Inputs { nodes, events, sharing: shares.watch() };
        let (trust, guests) = (Trust::new(Vec::new()), shares.clone());
        let store = JobStore::in_memory().unwrap();
        let sinks = Sinks { store: Some(store.clone()), ..Sinks::default() };
        let (core, hub, plan) = EventLoop::new(fleet, clock, Options::default(), inputs, sinks);
        let audit = audit(store.audit());
        let report_webhook = webhook.as_ref().map(|webhook| webhook.display_url().into());
        tokio::spawn(core.run(ending.clone()));
        let (probes, requests) = Probes::new();
        let polls = PollTrigger::default();
        let actions = ActionService::new(Deps {
            hub: hub.clone(),
            probes,
            job_control,
            events: events_tx.clone(),
            poll_trigger: polls.clone(),
            plan: plan.clone(),
            user: "alice".into(),
            log_files: nodeglass_actions::LogFiles::Here("login1".into()),
            read_only,
            shares: shares.clone(),
            audit: audit.clone(),
            store: store.clone(),
            report_webhook: webhook,
            silences: nodeglass_actions::Silences::open(None, 0),
            player: None,
        });
        let buster = CacheBuster::random().unwrap();
        let assets = Assets::of(&PAGE, &BASE.parse().unwrap(), &buster);
        let proxies = Arc::new(proxies);
        let build = assets.build().to_owned();
        let state = WebState {
            about: Arc::new(About { read_only, report_webhook, ..about(clock, &build, buster) }),
            hub,
            audit,
            store: store.clone(),
            actions,
            authenticator: Arc::new(Authenticator::new(key.clone(), trust, shares, Tokens::new(None))),
            shares: guests,
            hosts: Arc::new(AllowedHosts::new(vec![PORTAL.to_owned()])),
            base: BASE.parse().unwrap(),
            proxies: proxies.clone(),
            site,
            assets: Arc::new(assets),
            notifications: Default::default(),
            remote_write: None,
            long_term,
            nats: None,
        };
        let serving =
            tokio::spawn(nodeglass_web::serve(listeners, nodeglass_web::router(state), proxies, ending));
        let _inputs = Box::new((nodes_tx, plan, requests));
        Self { addr, key, build, events: events_tx, store, polls, shutdown, serving, sockets, _inputs }
    }

    /// Ends it and waits until it has.
    pub async fn stop(self) {
        self.shutdown.send(true).unwrap();
        timeout(LONG, self.serving).await.expect("the relay ends").unwrap();
    }

    pub fn host(&self) -> String {
        self.addr.to_string()
    }

    /// Sends a request with the right `Host` and these headers.
    pub async fn request(&self, request: &str, headers: &[(&str, &str)]) -> Reply {
        let mut all = vec![("Host", self.host())];
        all.extend(headers.iter().map(|(name, value)| (*name, (*value).to_owned())));
        let head: String = all.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        self.send_raw(&format!("{request} HTTP/1.1\r\n{head}Connection: close\r\n\r\n")).await
    }

    /// Sends raw bytes and reads until the relay closes.
    pub async fn send_raw(&self, bytes: &str) -> Reply {
        exchange(TcpStream::connect(self.addr).await.unwrap(), bytes).await
    }

    /// Sends a request with these headers through a proxy that runs as the owner.
    pub async fn request_by_owners_proxy(&self, request: &str, headers: &[(&str, &str)]) -> Reply {
        let stream = UnixStream::connect(self.sockets.path().join("owner.sock")).await.unwrap();
        let head: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        exchange(stream, &format!("{request} HTTP/1.1\r\n{head}Connection: close\r\n\r\n")).await
    }

    /// Opens a WebSocket as the relay's own page would.
    pub async fn page(&self, form: Form) -> Page {
        self.page_with(form, &[("Origin", &format!("http://{}", self.host()))]).await.expect("a WebSocket")
    }

    pub async fn page_with(&self, form: Form, headers: &[(&'static str, &str)]) -> Result<Page, Error> {
        let mut request = format!("ws://{}/live", self.addr).into_client_request()?;
        request.headers_mut().insert("Sec-WebSocket-Protocol", HeaderValue::from_static(form.subprotocol()));
        for (name, value) in headers {
            request.headers_mut().insert(*name, HeaderValue::from_str(value).unwrap());
        }
        // A small buffer, so that a page that does not read soon blocks the relay.
        let stream = TcpSocket::new_v4()?;
        stream.set_recv_buffer_size(4096)?;
        let stream = stream.connect(self.addr).await?;
        let (socket, reply) = tokio_tungstenite::client_async(request, stream).await?;
        assert_eq!(reply.headers()["sec-websocket-protocol"], form.subprotocol());
        Ok(Page { socket, form, host: self.host() })
    }
}

async fn exchange(mut stream: impl AsyncRead + AsyncWrite + Unpin, bytes: &str) -> Reply {
    stream.write_all(bytes.as_bytes()).await.unwrap();
    let mut out = Vec::new();
    timeout(LONG, stream.read_to_end(&mut out)).await.expect("an answer").unwrap();
    Reply::read(&out)
}

fn no_slurm() -> JobControl {
    JobControl::Disabled("there is no SLURM here")
}

fn kept(audit: AuditRecorder) -> AuditRecorder {
    audit
}

fn about(clock: Clock, build: &str, cache_buster: CacheBuster) -> About {
    About {
        cache_buster,
        build: build.into(),
        epoch: 17,
        clock,
        user: "alice".into(),
        host: "login1".into(),
        cluster: None,
        metrics_cluster: None,
        mode: Mode::Local,
        tunnel: "ssh -L …".into(),
        guests_tunnel: "ssh -L …".into(),
        read_only: false,
        downtimes: Vec::new(),
        report_webhook: None,
    }
}

/// An HTTP response.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Reply {
    /// The detail of a problem (RFC 9457), of which the other parts agree with the response.
    pub fn detail(&self) -> String {
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        let problem: serde_json::Value = serde_json::from_str(&self.body).expect("a problem in JSON");
        assert_eq!((&problem["status"], &problem["type"]), (&self.status.into(), &"about:blank".into()));
        problem["detail"].as_str().expect("a detail").to_owned()
    }

    /// The body as JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    fn read(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let mut lines = head.lines();
        let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok()).unwrap_or(0);
        let headers = lines.filter_map(|line| line.split_once(": "));
        let headers = headers.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect();
        Self { status, headers, body: body.to_owned() }
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(one, _)| one == name).map(|(_, value)| value.as_str())
    }
}

/// The page's end of a WebSocket.
pub struct Page {
    pub socket: WebSocketStream<TcpStream>,
    pub form: Form,
    pub host: String,
}

/// The page's nonce; a fixed one, because only the relay's must be fresh for these tests.
pub const NONCE: Nonce = Nonce([5; LEN]);

impl Page {
    pub async fn send(&mut self, message: &ClientMessage) {
        let bytes = self.form.encode(message);
        let frame = match self.form {
            Form::Binary => Message::Binary(bytes.into()),
            Form::Json => Message::Text(String::from_utf8(bytes).unwrap().into()),
        };
        self.socket.send(frame).await.unwrap();
    }

    /// Connects without a key; returns the first message.
    pub async fn hello_as_person(&mut self) -> Option<ServerMessage> {
        let proto = VersionRange::only(LIVE_WIRE);
        self.send(&ClientMessage::Hello { proto, key: KeyId::Person, nonce: NONCE }).await;
        self.receive().await
    }

    /// The bytes of the next message; `None` once the relay has closed.
    pub async fn receive_raw(&mut self) -> Option<Vec<u8>> {
        loop {
            match timeout(LONG, self.socket.next()).await.expect("a message")? {
                Ok(Message::Binary(bytes)) => return Some(bytes.to_vec()),
                Ok(Message::Text(text)) => return Some(text.as_bytes().to_vec()),
                Ok(Message::Close(_)) | Err(_) => return None,
                Ok(_) => {}
            }
        }
    }

    /// The next message; `None` once the relay has closed.
    pub async fn receive(&mut self) -> Option<ServerMessage> {
        loop {
            match timeout(LONG, self.socket.next()).await.expect("a message")? {
                Ok(Message::Binary(bytes)) if self.form == Form::Binary => {
                    return Some(self.form.decode(&bytes).unwrap());
                }
                Ok(Message::Text(text)) if self.form == Form::Json => {
                    return Some(self.form.decode(text.as_bytes()).unwrap());
                }
                Ok(Message::Ping(_) | Message::Pong(_)) => {}
                Ok(Message::Close(_)) | Err(_) => return None,
                Ok(other) => panic!("a frame in the wrong form: {other:?}"),
            }
        }
    }

    /// The code of the close frame; messages before it are skipped.
    pub async fn close_code(&mut self) -> Option<u16> {
        loop {
            match timeout(LONG, self.socket.next()).await.expect("an end")? {
                Ok(Message::Close(frame)) => return frame.map(|frame| frame.code.into()),
                Ok(_) => {}
                Err(_) => return None,
            }
        }
    }

    pub async fn hello(&mut self) -> ServerMessage {
        let proto = VersionRange::only(LIVE_WIRE);
        self.send(&ClientMessage::Hello { proto, key: KeyId::Owner, nonce: NONCE }).await;
        self.receive().await.expect("a challenge")
    }

    /// Sends hello and proof with a key; returns the relay's response.
    pub async fn prove(&mut self, key: &Key) -> Option<ServerMessage> {
        let ServerMessage::Challenge { nonce, code } = self.hello().await else { panic!("no challenge") };
        let host = self.host.clone();
        let exchange = Exchange { client: NONCE, server: nonce, authority: &host };
        let _ = code;
        self.send(&ClientMessage::Proof { code: exchange.client_code(key) }).await;
        self.receive().await
    }
}

/// Returns whether a message closes the connection for this reason.
pub fn is_bye(message: Option<ServerMessage>, close_reason: &CloseReason) -> bool {
    matches!(message, Some(ServerMessage::Bye(said)) if said == *close_reason)
}
