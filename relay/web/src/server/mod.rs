//! Accepts connections and serves HTTP on them, with bounded time and memory for unauthenticated clients.

mod connection_limit;
mod listen;
mod throttle;
pub mod tls;

use crate::headers;
use axum::Router;
use axum::body::Body;
use axum::http::header::{CONNECTION, RETRY_AFTER};
use axum::http::{HeaderValue, Request, Response, StatusCode};
pub use connection_limit::Connection;
use connection_limit::{ConnectionLimiter, ListenerKind};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use listen::Listener;
pub use listen::{BindError, Listeners, bind};
use nodeglass_access::peer::{Peer, SockDiag};
use nodeglass_access::proxies::Proxies;
use nodeglass_access::subordinate_uids::SubordinateUids;
use rustix::io::Errno;
use std::convert::Infallible;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use throttle::Throttled;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet, spawn_blocking};
use tokio::time::{sleep, timeout};
use tower::ServiceExt;

/// Time limit for reading a request head, and for idle connections.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum age of a connection without WebSocket; it closes after the response in flight.
const MAX_LIFETIME: Duration = Duration::from_secs(120);
/// Time limit for that response.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(60);
/// Time limit for closing connections at shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);
/// Largest request head in bytes. Browsers send less than 2 KiB, except for cookies: cookies that programs on other
/// ports of `localhost` set are sent to all of its ports.
const MAX_HEADER_BYTES: usize = 64 * 1024;
/// Maximum number of request headers.
const MAX_HEADERS: usize = 64;
/// Maximum number of connections that receive a 503 at once; further ones are closed without a response.
const MAX_REJECTING: usize = 32;
/// Minimum time that a rejected connection counts against it, which bounds the rate of rejections.
const REJECT_HOLD: Duration = Duration::from_millis(250);
/// Interval of checks whether the files of Unix sockets are still there.
const FILE_CHECK: Duration = Duration::from_secs(5);
/// Pause after a failed `accept`.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Serves every listener until `shutdown` becomes true, then drains connections briefly. Proxied clients
/// are limited separately.
pub async fn serve(
    listeners: Listeners,
    router: Router,
    proxies: Arc<Proxies>,
    shutdown: watch::Receiver<bool>,
) {
    let limiter = Arc::new(ConnectionLimiter::new(proxies, SubordinateUids::of_this_machine()));
    let rejecting = Arc::new(Semaphore::new(MAX_REJECTING));
    let kernel = Arc::new(SockDiag::default());
    if let Err(error) = kernel.prepare() {
        tracing::warn!(%error, "sock_diag is not available, so peers cannot be identified");
    }
    let acceptor = Acceptor { router, limiter, rejecting, kernel, spare_fd: Arc::default(), shutdown };
    acceptor.reserve_fd();
    let mut accept_loops = JoinSet::new();
    for listener in listeners.into_all() {
        accept_loops.spawn(accept_loop(listener, acceptor.clone()));
    }
    accept_loops.join_all().await;
    let _ = timeout(SHUTDOWN_TIMEOUT, acceptor.limiter.wait_idle()).await;
}

/// State shared by all connections.
#[derive(Clone)]
struct Acceptor {
    router: Router,
    limiter: Arc<ConnectionLimiter>,
    rejecting: Arc<Semaphore>,
    kernel: Arc<SockDiag>,
    /// A reserved file descriptor, released to accept and reject a connection when none is left.
    spare_fd: Arc<Mutex<Option<File>>>,
    shutdown: watch::Receiver<bool>,
}

/// Accepts connections of one listener until shutdown.
async fn accept_loop(mut listener: Listener, acceptor: Acceptor) {
    let mut shutdown = acceptor.shutdown.clone();
    let deleted = Arc::new(Notify::new());
    let watching = listener.file().map(|file| watch_file(file, &deleted));
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &acceptor) => accepted,
            () = deleted.notified() => {
                listener.restore_file();
                continue;
            }
            _ = shutdown.wait_for(|down| *down) => return watching.iter().for_each(JoinHandle::abort),
        };
        match accepted {
            Ok(()) => {}
            Err(error) if is_out_of_files(&error) => {
                tracing::warn!(
                    %error,
                    "no file descriptor is left, so a connection was rejected; raise the limit (`ulimit -n`)"
                );
                acceptor.reject_with_spare_fd(&listener).await;
            }
            Err(error) => {
                // Retrying at once would busy-loop.
                tracing::warn!(%error, "a connection could not be accepted");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Notifies when the file of a socket was deleted, as by a program that cleans `/tmp`. No connection waits for its file system.
fn watch_file(file: &Path, deleted: &Arc<Notify>) -> JoinHandle<()> {
    let (file, deleted) = (file.to_owned(), Arc::clone(deleted));
    tokio::spawn(async move {
        loop {
            sleep(FILE_CHECK).await;
            let checked = file.clone();
            match spawn_blocking(move || listen::is_deleted(&checked)).await {
                Ok(true) => deleted.notify_one(),
                Ok(false) => {}
                Err(_) => return,
            }
        }
    })
}

fn is_out_of_files(error: &io::Error) -> bool {
    let code = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(code, Some(Errno::MFILE | Errno::NFILE))
}

async fn accept(listener: &Listener, acceptor: &Acceptor) -> io::Result<()> {
    match listener {
        Listener::Tcp(tcp) => {
            let (stream, far) = tcp.accept().await?;
            let near = set_nodelay(&stream)?;
            acceptor.admit(
                async { Some(stream) },
                Peer::of_tcp(&acceptor.kernel, near, far),
                ListenerKind::Plain,
            );
        }
        Listener::Tls(tcp, tls) => {
            let (stream, far) = tcp.accept().await?;
            let (near, tls) = (set_nodelay(&stream)?, tls.clone());
            let handshake =
                async move { timeout(HEADER_TIMEOUT, tls.handshake(stream)).await.ok().flatten() };
            let peer = Peer::of_any_tcp(&acceptor.kernel, near, far);
            acceptor.admit(handshake, peer, ListenerKind::Tls(near.ip().to_canonical()));
        }
        Listener::Unix(unix, _) => {
            let (stream, _) = unix.accept().await?;
            let peer = Peer::of_unix(&stream);
            acceptor.admit_peer(async { Some(stream) }, peer, ListenerKind::Private);
        }
        Listener::Owner(unix, _) => {
            let (stream, _) = unix.accept().await?;
            let peer = Peer::of_unix(&stream);
            acceptor.admit_peer(async { Some(stream) }, peer, ListenerKind::Owner);
        }
    }
    Ok(())
}

/// Disables Nagle's algorithm; returns the local address.
fn set_nodelay(stream: &TcpStream) -> io::Result<SocketAddr> {
    stream.set_nodelay(true)?;
    stream.local_addr()
}

impl Acceptor {
    /// Acquires a permit and serves the connection. The TLS handshake counts against the permit.
    fn admit_peer<S>(
        &self,
        handshake: impl Future<Output = Option<S>> + Send + 'static,
        peer: Peer,
        listener_kind: ListenerKind,
    ) where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        if let Some(permit) = self.limiter.acquire(peer, listener_kind.is_private()) {
            let (acceptor, connection) = (self.clone(), Connection::new(peer, listener_kind, permit));
            tokio::spawn(async move {
                let serving = async {
                    if let Some(stream) = handshake.await {
                        serve_connection(Throttled::new(stream), connection.clone(), acceptor).await;
                    }
                };
                tokio::select! {
                    () = serving => {}
                    () = connection.evicted() => {}
                }
            });
        } else {
            self.reject(handshake, "this relay has as many connections as it can serve\n");
        }
    }

    /// Admits a connection if the kernel identified its peer, otherwise rejects it: an
    /// unidentified peer must not be reported as another user who has the key.
    fn admit<S>(
        &self,
        handshake: impl Future<Output = Option<S>> + Send + 'static,
        peer: rustix::io::Result<Peer>,
        listener_kind: ListenerKind,
    ) where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        match peer {
            Ok(peer) => self.admit_peer(handshake, peer, listener_kind),
            Err(error) => {
                tracing::warn!(%error, "the kernel did not identify the peer, so a connection was rejected");
                self.reject(handshake, "the relay cannot identify the peer; try again in a moment\n");
            }
        }
    }

    fn reject<S>(&self, handshake: impl Future<Output = Option<S>> + Send + 'static, why: &'static str)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Ok(place) = self.rejecting.clone().try_acquire_owned() else { return };
        tokio::spawn(async move {
            if let Some(stream) = handshake.await {
                reject(stream, why).await;
            }
            sleep(REJECT_HOLD).await;
            drop(place);
        });
    }

    /// Reserves a file descriptor.
    fn reserve_fd(&self) {
        let mut spare_fd = self.spare_fd.lock().unwrap_or_else(PoisonError::into_inner);
        if spare_fd.is_none() {
            *spare_fd = File::open("/dev/null").ok();
        }
    }

    /// Accepts one connection with the reserved descriptor and rejects it.
    async fn reject_with_spare_fd(&self, listener: &Listener) {
        const MESSAGE: &str = "the relay has no file descriptor left; close a page or raise `ulimit -n`\n";
        let spare_fd = self.spare_fd.lock().unwrap_or_else(PoisonError::into_inner).take();
        if spare_fd.is_none() {
            sleep(ACCEPT_PAUSE).await;
        }
        drop(spare_fd);
        let respond = async {
            match listener {
                Listener::Tcp(tcp) => reject(tcp.accept().await?.0, MESSAGE).await,
                Listener::Unix(unix, _) | Listener::Owner(unix, _) => {
                    reject(unix.accept().await?.0, MESSAGE).await
                }
                // No resources for a TLS handshake.
                Listener::Tls(tcp, _) => drop(tcp.accept().await?),
            }
            io::Result::Ok(())
        };
        let _ = timeout(ACCEPT_PAUSE, respond).await;
        self.reserve_fd();
    }
}

fn http() -> http1::Builder {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
    http.max_buf_size(MAX_HEADER_BYTES).max_headers(MAX_HEADERS);
    http
}

/// Serves the requests of a connection; a WebSocket outlives this and keeps the permit.
async fn serve_connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    connection: Connection,
    acceptor: Acceptor,
) {
    let (router, mut shutdown) = (acceptor.router, acceptor.shutdown);
    let of_request = connection.clone();
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(of_request.clone());
        router.clone().oneshot(request)
    });
    let serving = http().serve_connection(TokioIo::new(stream), service).with_upgrades();
    tokio::pin!(serving);
    let grace = tokio::select! {
        // hyper has already responded to a malformed request.
        _ = serving.as_mut() => return,
        _ = shutdown.wait_for(|down| *down) => SHUTDOWN_TIMEOUT,
        () = connection.drains() => DRAIN_TIMEOUT,
    };
    serving.as_mut().graceful_shutdown();
    let _ = timeout(grace, serving).await;
}

/// Responds with 503 and the reason.
async fn reject(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, why: &'static str) {
    let service = service_fn(move |_: Request<Incoming>| async move {
        let mut response = Response::new(Body::from(why));
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("10"));
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        headers::insert_security_headers(&mut response);
        Ok::<_, Infallible>(response)
    });
    let _ = timeout(SHUTDOWN_TIMEOUT, http().serve_connection(TokioIo::new(stream), service)).await;
}
