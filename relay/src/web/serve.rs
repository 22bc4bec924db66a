//! Whoever connects gets a bounded part of the relay: a seat, little time for a request, little memory for its head.

use super::headers;
use super::listen::Listener;
use super::seats::{Connection, Door, Seats};
use super::throttle::Throttled;
use crate::access::peer::{Peer, SockDiag};
use crate::access::proxies::Proxies;
use axum::Router;
use axum::body::Body;
use axum::http::header::{CONNECTION, RETRY_AFTER};
use axum::http::{HeaderValue, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::io::Errno;
use std::convert::Infallible;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tower::ServiceExt;

/// How long the head of a request may take, and an idle connection may stay.
const HEAD_PATIENCE: Duration = Duration::from_secs(5);
/// How long a connection without WebSocket lasts; then it ends after the answer in flight.
const LIFETIME: Duration = Duration::from_secs(120);
/// How long that answer may still take.
const LAST_ANSWER: Duration = Duration::from_secs(60);
/// How long viewers have to read the farewell when the relay ends.
const FAREWELL: Duration = Duration::from_secs(2);
/// Largest head of a request in bytes. A browser's is below 2 KiB, but for the cookies that other programs behind ports
/// of `localhost` have set: browsers send those to all of its ports.
const MAX_HEAD: usize = 64 * 1024;
/// Most headers of a request.
const MAX_HEADERS: usize = 64;
/// How many connections beyond the last seat are told so; more are closed without a word.
const STANDING: usize = 32;
/// How long each of them takes up one of those places, at least: who comes again at once is not answered.
const STANDING_PAUSE: Duration = Duration::from_millis(250);
/// How long the relay rests when connections cannot be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Serves every listener until `shutdown` turns true, then gives everybody a moment to leave.
pub(super) async fn serve(
    listeners: Vec<Listener>,
    router: Router,
    proxies: Arc<Proxies>,
    shutdown: watch::Receiver<bool>,
) {
    let (seats, standing) = (Arc::new(Seats::new(proxies)), Arc::new(Semaphore::new(STANDING)));
    let kernel = Arc::new(SockDiag::default());
    if let Err(error) = kernel.prepare() {
        tracing::warn!(%error, "the kernel does not say who connects");
    }
    let house = House { router, seats, standing, kernel, spare: Arc::default(), shutdown };
    house.put_by();
    let mut doors = JoinSet::new();
    for listener in listeners {
        doors.spawn(welcome(listener, house.clone()));
    }
    doors.join_all().await;
    let _ = timeout(FAREWELL, house.seats.empty()).await;
}

/// What every connection shares.
#[derive(Clone)]
struct House {
    router: Router,
    seats: Arc<Seats>,
    standing: Arc<Semaphore>,
    kernel: Arc<SockDiag>,
    /// A descriptor that is put by, to accept and turn away with when no other is left.
    spare: Arc<Mutex<Option<File>>>,
    shutdown: watch::Receiver<bool>,
}

/// Accepts at one listener until the relay ends.
async fn welcome(listener: Listener, house: House) {
    let mut shutdown = house.shutdown.clone();
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &house) => accepted,
            _ = shutdown.wait_for(|down| *down) => return,
        };
        match accepted {
            Ok(()) => {}
            Err(error) if is_out_of_files(&error) => {
                tracing::warn!(
                    %error,
                    "no file descriptor is left, so a connection was turned away; raise the limit (`ulimit -n`)"
                );
                house.turn_away_with_the_spare(&listener).await;
            }
            Err(error) => {
                // Trying again at once would only burn a core.
                tracing::warn!(%error, "a connection could not be accepted");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn is_out_of_files(error: &io::Error) -> bool {
    let code = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(code, Some(Errno::MFILE | Errno::NFILE))
}

async fn accept(listener: &Listener, house: &House) -> io::Result<()> {
    match listener {
        Listener::Tcp(tcp) => {
            let (stream, far) = tcp.accept().await?;
            let near = told_to_hurry(&stream)?;
            house.admit(async { Some(stream) }, Peer::of_tcp(&house.kernel, near, far), Door::Plain);
        }
        Listener::Tls(tcp, tls) => {
            let (stream, far) = tcp.accept().await?;
            let (near, tls) = (told_to_hurry(&stream)?, tls.clone());
            let greeted = async move { timeout(HEAD_PATIENCE, tls.greet(stream)).await.ok().flatten() };
            let peer = Peer::of_any_tcp(&house.kernel, near, far);
            house.admit(greeted, peer, Door::Tls(near.ip().to_canonical()));
        }
        Listener::Unix(unix, _) => {
            let (stream, _) = unix.accept().await?;
            let peer = Peer::of_unix(&stream);
            house.seat(async { Some(stream) }, peer, Door::Private);
        }
    }
    Ok(())
}

/// Has small messages leave at once; returns the near address.
fn told_to_hurry(stream: &TcpStream) -> io::Result<SocketAddr> {
    stream.set_nodelay(true)?;
    stream.local_addr()
}

impl House {
    /// Gives somebody a seat. Whoever is still being greeted sits there already.
    fn seat<S>(&self, greeted: impl Future<Output = Option<S>> + Send + 'static, peer: Peer, door: Door)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        if let Some(seat) = self.seats.take(peer, door == Door::Private) {
            let (house, connection) = (self.clone(), Connection::new(peer, door, seat));
            tokio::spawn(async move {
                let attended = async {
                    if let Some(stream) = greeted.await {
                        attend(Throttled::new(stream), connection.clone(), house).await;
                    }
                };
                tokio::select! {
                    () = attended => {}
                    () = connection.evicted() => {}
                }
            });
        } else {
            self.turn_away(greeted, "this relay has as many connections as it can serve\n");
        }
    }

    /// Gives a seat to somebody of whom the kernel could be asked, or says that it could not: who is unknown for
    /// such a reason is nobody in particular, and above all no thief of a key.
    fn admit<S>(
        &self,
        greeted: impl Future<Output = Option<S>> + Send + 'static,
        peer: rustix::io::Result<Peer>,
        door: Door,
    ) where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        match peer {
            Ok(peer) => self.seat(greeted, peer, door),
            Err(error) => {
                tracing::warn!(%error, "the kernel could not be asked who connects, so a connection was turned away");
                self.turn_away(greeted, "the relay cannot find out who connects; try again in a moment\n");
            }
        }
    }

    fn turn_away<S>(&self, greeted: impl Future<Output = Option<S>> + Send + 'static, why: &'static str)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Ok(place) = self.standing.clone().try_acquire_owned() else { return };
        tokio::spawn(async move {
            if let Some(stream) = greeted.await {
                turn_away(stream, why).await;
            }
            sleep(STANDING_PAUSE).await;
            drop(place);
        });
    }

    /// Puts a descriptor by.
    fn put_by(&self) {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.is_none() {
            *spare = File::open("/dev/null").ok();
        }
    }

    /// Accepts one connection with the descriptor that was put by, and says that there are no more.
    async fn turn_away_with_the_spare(&self, listener: &Listener) {
        const WHY: &str = "the relay has no file descriptor left; close a page or raise `ulimit -n`\n";
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner).take();
        if spare.is_none() {
            sleep(ACCEPT_PAUSE).await;
        }
        drop(spare);
        let answered = async {
            match listener {
                Listener::Tcp(tcp) => turn_away(tcp.accept().await?.0, WHY).await,
                Listener::Unix(unix, _) => turn_away(unix.accept().await?.0, WHY).await,
                // A greeting by TLS is not worth what it costs now.
                Listener::Tls(tcp, _) => drop(tcp.accept().await?),
            }
            io::Result::Ok(())
        };
        let _ = timeout(ACCEPT_PAUSE, answered).await;
        self.put_by();
    }
}

fn http() -> http1::Builder {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_PATIENCE);
    http.max_buf_size(MAX_HEAD).max_headers(MAX_HEADERS);
    http
}

/// Serves one connection's requests; a WebSocket goes on by itself and keeps the seat.
async fn attend(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    connection: Connection,
    house: House,
) {
    let (router, mut shutdown) = (house.router, house.shutdown);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(connection.clone());
        router.clone().oneshot(request)
    });
    let serving = http().serve_connection(TokioIo::new(stream), service).with_upgrades();
    tokio::pin!(serving);
    let grace = tokio::select! {
        // A broken request has had its answer from hyper; there is nobody else to tell.
        _ = serving.as_mut() => return,
        _ = shutdown.wait_for(|down| *down) => FAREWELL,
        () = sleep(LIFETIME) => LAST_ANSWER,
    };
    serving.as_mut().graceful_shutdown();
    let _ = timeout(grace, serving).await;
}

/// Tells somebody why they cannot stay.
async fn turn_away(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, why: &'static str) {
    let service = service_fn(move |_: Request<Incoming>| async move {
        let mut response = Response::new(Body::from(why));
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("10"));
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        headers::put_on(&mut response);
        Ok::<_, Infallible>(response)
    });
    let _ = timeout(FAREWELL, http().serve_connection(TokioIo::new(stream), service)).await;
}
