//! A request is heard only if it was meant for this relay and does not come from another site's page.

use super::WebState;
use super::connection_limit::Connection;
use super::forwarded::Forwarded;
use crate::access::peer::Peer;
use axum::Extension;
use axum::extract::{Request, State};
use axum::http::header::{HOST, HeaderName, ORIGIN, RETRY_AFTER};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

/// The `Host` a request came to, once it is known to be allowed.
#[derive(Clone, Debug)]
pub struct Authority(pub String);

/// The origin of this relay's own page, as the browser that asks calls it.
#[derive(Clone, Debug)]
pub struct Origin(String);

/// Lets only requests through that name an allowed host (421) and were not made by another site's page (403).
///
/// The first stops DNS rebinding: a page of evil.example whose name was moved to 127.0.0.1 still says so.
pub async fn known_host(
    State(web): State<WebState>,
    connection: Connection,
    mut request: Request,
    next: Next,
) -> Response {
    let Some(host) = only(request.headers(), HOST).map(str::to_owned) else { return misdirected() };
    // A target in absolute form overrides `Host` for whoever reads it, so the two must agree.
    let elsewhere = request.uri().authority().is_some_and(|authority| *authority != *host);
    let forwarded = match web.proxies.include(connection.peer) {
        true => match Forwarded::read(request.headers(), web.proxies.user_header()) {
            Ok(forwarded) => forwarded,
            Err(unclear) => return (StatusCode::BAD_REQUEST, unclear.sentence()).into_response(),
        },
        // What anybody else forwards is not even read.
        false => Forwarded::default(),
    };
    let scheme = forwarded.scheme.unwrap_or(connection.listener.scheme());
    let host = forwarded.host.clone().unwrap_or(host);
    if elsewhere || !(web.hosts.allows(&host) || connection.listener.is_at(&host)) {
        return misdirected();
    }
    if SEC_FETCH.iter().any(|name| request.headers().get_all(*name).iter().count() > 1) {
        return (StatusCode::BAD_REQUEST, "a browser sends each Sec-Fetch header once\n").into_response();
    }
    if from_another_site(&request) {
        return (StatusCode::FORBIDDEN, "another site's page may not ask this relay for anything\n")
            .into_response();
    }
    if web.proxies.include(connection.peer) && (connection.peer != Peer::owner() || forwarded.is_by_proxy) {
        let visitor = web.proxies.visitor(forwarded.user.as_deref());
        let Some(guest) = connection.for_proxied(forwarded.client(), visitor) else { return too_many() };
        request.extensions_mut().insert(guest);
    }
    request.extensions_mut().insert(Origin(format!("{scheme}://{host}")));
    request.extensions_mut().insert(Authority(host));
    next.run(request).await
}

/// Lets only pages of this very origin through (403): browsers send `Origin` with each WebSocket.
pub async fn own_origin(Extension(Origin(own)): Extension<Origin>, request: Request, next: Next) -> Response {
    if only(request.headers(), ORIGIN) != Some(&own) {
        let why = format!("a WebSocket must come from this relay's own page: send `Origin: {own}`\n");
        return (StatusCode::FORBIDDEN, why).into_response();
    }
    next.run(request).await
}

fn too_many() -> Response {
    let why = "too many connections from this address through the proxy\n";
    (StatusCode::SERVICE_UNAVAILABLE, [(RETRY_AFTER, "10")], why).into_response()
}

fn misdirected() -> Response {
    let why = "this relay answers to 127.0.0.1, localhost, the address that it listens on and the names given with --allowed-host\n";
    (StatusCode::MISDIRECTED_REQUEST, why).into_response()
}

/// What browsers say of where a request comes from. Two values would leave open which one is true.
const SEC_FETCH: [&str; 3] = ["sec-fetch-site", "sec-fetch-mode", "sec-fetch-dest"];

/// Whether a browser says that another site made this request. Following a link to the page is no such thing.
fn from_another_site(request: &Request) -> bool {
    let said = |name| only(request.headers(), HeaderName::from_static(name));
    let foreign = matches!(said("sec-fetch-site"), Some("cross-site" | "same-site"));
    let link = request.method() == Method::GET
        && said("sec-fetch-mode") == Some("navigate")
        && said("sec-fetch-dest") == Some("document");
    foreign && !link
}

/// A header that is there exactly once.
fn only(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}
