//! Whoever connects gets a bounded part of the relay: a seat, little time for a request, little memory for its head.

use super::headers;
use super::listen::Listener;
use super::seats::{Connection, Door, Seats};
use super::throttle::Throttled;
use crate::access::peer::Peer;
use crate::access::proxies::Proxies;
use axum::Router;
use axum::body::Body;
use axum::http::header::{CONNECTION, RETRY_AFTER};
use axum::http::{HeaderValue, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
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
/// Largest head of a request in bytes; a browser's is below 2 KiB.
const MAX_HEAD: usize = 16 * 1024;
/// Most headers of a request.
const MAX_HEADERS: usize = 64;
/// How many connections beyond the last seat are told so; more are closed without a word.
const STANDING: usize = 32;

/// Serves every listener until `shutdown` turns true, then gives everybody a moment to leave.
pub(super) async fn serve(
    listeners: Vec<Listener>,
    router: Router,
    proxies: Arc<Proxies>,
    shutdown: watch::Receiver<bool>,
) {
    let (seats, standing) = (Arc::new(Seats::new(proxies)), Arc::new(Semaphore::new(STANDING)));
    let house = House { router, seats, standing, shutdown };
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
        if let Err(error) = accepted {
            // No descriptor is free, most likely; trying again at once would only burn a core.
            tracing::warn!(%error, "a connection could not be accepted");
            sleep(Duration::from_millis(200)).await;
        }
    }
}

async fn accept(listener: &Listener, house: &House) -> io::Result<()> {
    match listener {
        Listener::Tcp(tcp) => {
            let (stream, far) = tcp.accept().await?;
            stream.set_nodelay(true)?;
            let peer = Peer::of_tcp(stream.local_addr()?, far);
            house.seat(async { Some(stream) }, peer, Door::Plain);
        }
        Listener::Tls(tcp, tls) => {
            let (stream, far) = tcp.accept().await?;
            stream.set_nodelay(true)?;
            let (near, tls) = (stream.local_addr()?, tls.clone());
            let greeted = async move { timeout(HEAD_PATIENCE, tls.greet(stream)).await.ok().flatten() };
            house.seat(greeted, Peer::of_any_tcp(near, far), Door::Tls(near.ip().to_canonical()));
        }
        Listener::Unix(unix, _) => {
            let (stream, _) = unix.accept().await?;
            let peer = Peer::of_unix(&stream);
            house.seat(async { Some(stream) }, peer, Door::Plain);
        }
    }
    Ok(())
}

impl House {
    /// Gives somebody a seat. Whoever is still being greeted sits there already.
    fn seat<S>(&self, greeted: impl Future<Output = Option<S>> + Send + 'static, peer: Peer, door: Door)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        if let Some(seat) = self.seats.take(peer) {
            let (house, connection) = (self.clone(), Connection::new(peer, door, seat));
            tokio::spawn(async move {
                if let Some(stream) = greeted.await {
                    attend(Throttled::new(stream), connection, house).await;
                }
            });
        } else if let Ok(place) = self.standing.clone().try_acquire_owned() {
            tokio::spawn(async move {
                if let Some(stream) = greeted.await {
                    turn_away(stream).await;
                }
                drop(place);
            });
        }
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

/// Tells somebody that there is no seat.
async fn turn_away(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
    let service = service_fn(|_: Request<Incoming>| async {
        let mut response = Response::new(Body::from("this relay has as many connections as it can serve\n"));
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("10"));
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        headers::put_on(&mut response);
        Ok::<_, Infallible>(response)
    });
    let _ = timeout(FAREWELL, http().serve_connection(TokioIo::new(stream), service)).await;
}
