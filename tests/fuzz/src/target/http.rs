//! Any request gets a response that keeps the rules: an allowed host, a correct key, no cookie, no
//! CORS permission.

use hyper::header::HeaderValue;
use hyper::{Method, Request, Response, StatusCode};
use nodeglass_access::base_path::BasePath;
use nodeglass_access::cache_buster::CacheBuster;
use nodeglass_access::hosts::AllowedHosts;
use nodeglass_access::peer::Peer;
use nodeglass_access::proxies::{Proxies, Proxy};
use nodeglass_access::trust::Trust;
use nodeglass_actions::{ActionService, Deps, JobControl, Silences};
use nodeglass_auth::authenticator::Authenticator;
use nodeglass_auth::tokens::Tokens;
use nodeglass_event_loop::{EventLoop, Inputs, Options, Sinks};
use nodeglass_fleet::Fleet;
use nodeglass_live::Hub;
use nodeglass_nodes::Probes;
use nodeglass_platform::clock::Clock;
use nodeglass_protocol::handshake::{Key, LEN};
use nodeglass_protocol::live::Mode;
use nodeglass_share::{ShareEndpoint, Shares};
use nodeglass_store::JobStore;
use nodeglass_web::about::About;
use nodeglass_web::assets::{Assets, PageFile};
use nodeglass_web::{Connection, WebState};
use std::sync::Arc;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, watch};
use tower::ServiceExt;

static PAGE: [PageFile; 1] =
    [PageFile { path: "index.html", plain: Some(b"<head></head>page"), brotli: None, gzip: None }];
/// The base path behind a proxy.
const BASE: &str = "/rnode/n1/8080";
/// A user of this machine who runs a proxy.
const PROXY: u32 = 33;
/// Headers of every response.
const ALWAYS: [&str; 3] = ["content-security-policy", "x-content-type-options", "referrer-policy"];
/// Headers of no response.
const NEVER: [&str; 2] = ["set-cookie", "access-control-allow-origin"];

thread_local! {
    static RELAY: Relay = Relay::start();
}

/// The kinds of peers.
#[derive(Clone, Copy, PartialEq)]
enum Who {
    Stranger,
    Owner,
    Proxy,
}

/// The head of a request, line by line; what follows an empty line is its body.
pub(crate) fn request(bytes: &[u8]) {
    for who in [Who::Stranger, Who::Owner, Who::Proxy] {
        let Some(request) = read(bytes) else { return };
        let key = request.headers().get("authorization").cloned();
        let right_host = request.headers().get("host").is_some_and(|host| is_here(host.as_bytes()));
        let path = request.uri().path();
        let is_api = path.strip_prefix(BASE).unwrap_or(path).starts_with("/api/");
        let response = RELAY.with(|relay| relay.respond(request, who));
        let (status, headers) = (response.status(), response.headers());
        assert!(ALWAYS.iter().all(|name| headers.contains_key(*name)), "{headers:?}");
        assert!(NEVER.iter().all(|name| !headers.contains_key(*name)), "{headers:?}");
        assert!(status != StatusCode::INTERNAL_SERVER_ERROR);
        if !right_host && who != Who::Proxy {
            assert!(status == StatusCode::MISDIRECTED_REQUEST, "{status} under another name");
        }
        if is_api && status.is_success() {
            assert!(who != Who::Stranger, "another user was admitted");
            let key = key.as_ref().map(HeaderValue::as_bytes).unwrap_or_default();
            let right = Key::new([7; LEN]).reveal();
            assert!(key.windows(right.len()).any(|part| part == right.as_bytes()), "without the key");
        }
    }
}

/// The request in these lines, if they form one.
fn read(bytes: &[u8]) -> Option<Request<String>> {
    let text = std::str::from_utf8(bytes).ok()?;
    let (head, body) = text.split_once("\n\n").unwrap_or((text, ""));
    let mut lines = head.lines();
    let (method, target) = lines.next()?.split_once(' ')?;
    let mut request = Request::builder().method(Method::from_bytes(method.as_bytes()).ok()?).uri(target);
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        request = request.header(name, value.trim());
    }
    request.body(body.to_owned()).ok()
}

/// Returns whether a host name means this machine; simpler than the relay's own check.
fn is_here(host: &[u8]) -> bool {
    let host = host.to_ascii_lowercase();
    [&b"localhost"[..], b"127.", b"[", b"portal.example.org"].iter().any(|start| host.starts_with(start))
}

/// A relay without sockets.
struct Relay {
    runtime: Runtime,
    hub: Hub,
    store: JobStore,
    actions: ActionService,
    shares: Arc<Shares>,
    // The relay exits once an input is closed.
    _inputs: Box<dyn std::any::Any>,
}

impl Relay {
    fn start() -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let ((nodes_tx, nodes), (events_tx, events)) = (mpsc::channel(8), mpsc::channel(8));
        let (shutdown, ending) = watch::channel(false);
        let place = ShareEndpoint { address: None, tunnel: "ssh -L …".into() };
        let shares = Arc::new(Shares::new(Key::new([7; LEN]), "alice".into(), place, None));
        let inputs = Inputs { nodes, events, sharing: shares.watch() };
        let (fleet, clock, options) = (Fleet::new(), Clock::start(), Options::default());
        let (core, hub, wanted) = EventLoop::new(fleet, clock, options, inputs, Sinks::default());
        runtime.spawn(core.run(ending));
        let (probes, questions) = Probes::new();
        let store = JobStore::in_memory().expect("a thread");
        let actions = runtime.block_on(async {
            ActionService::new(Deps {
                hub: hub.clone(),
                probes,
                job_control: JobControl::Disabled("there is no SLURM here"),
                events: events_tx.clone(),
                poll_trigger: Default::default(),
                plan: wanted.clone(),
                user: "alice".into(),
                log_files: nodeglass_actions::LogFiles::OnNodes,
                read_only: false,
                shares: shares.clone(),
                audit: store.audit(),
                report_webhook: None,
                silences: Silences::open(None, 0),
                player: None,
                store: store.clone(),
            })
        });
        Self {
            runtime,
            hub,
            store,
            actions,
            shares,
            _inputs: Box::new((nodes_tx, events_tx, shutdown, wanted, questions)),
        }
    }

    /// Every request meets fresh rate limits and no open share.
    fn respond(&self, mut request: Request<String>, who: Who) -> Response<()> {
        let base: BasePath = BASE.parse().expect("a path");
        let mut connection = Connection::default();
        connection.peer = match who {
            Who::Stranger => Peer::Unknown,
            Who::Owner => Peer::owner(),
            Who::Proxy => Peer::User(PROXY),
        };
        request.extensions_mut().insert(connection);
        let cache_buster = CacheBuster::random().expect("random bytes");
        let state = WebState {
            about: Arc::new(About {
                cache_buster: cache_buster.clone(),
                build: "0".into(),
                epoch: 1,
                clock: Clock::start(),
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
            }),
            hub: self.hub.clone(),
            store: self.store.clone(),
            audit: self.store.audit(),
            actions: self.actions.clone(),
            authenticator: Arc::new(Authenticator::new(
                Key::new([7; LEN]),
                Trust::new(Vec::new()),
                self.shares.clone(),
                Tokens::new(None),
            )),
            shares: self.shares.clone(),
            hosts: Arc::new(AllowedHosts::new(vec!["portal.example.org".to_owned()])),
            assets: Arc::new(Assets::of(&PAGE, &base, &cache_buster)),
            base,
            proxies: Arc::new(Proxies::new(vec![Proxy::User(PROXY)])),
            site: None,
            notifications: Default::default(),
            remote_write: None,
            long_term: None,
            nats: None,
        };
        let answer = self.runtime.block_on(nodeglass_web::router(state).oneshot(request));
        let open: Vec<_> = self.shares.watch().borrow().shares.iter().map(|share| share.id.clone()).collect();
        for share in open {
            self.shares.revoke(&share).expect("an open share can be taken back");
        }
        answer.unwrap_or_else(|never| match never {}).map(drop)
    }
}
