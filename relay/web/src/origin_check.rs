//! `Host` and origin checks: rejects requests that were meant for another host or made by another site's
//! page.

use super::forwarded::Forwarded;
use super::{Connection, WebState};
use axum::Extension;
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, HOST, HeaderName, ORIGIN, RETRY_AFTER};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use nodeglass_access::peer::{Peer, ProxiedUser};

/// The `Host` of a request, once checked.
#[derive(Clone, Debug)]
pub struct Authority(pub String);

/// The origin of the relay's own page, as the requesting browser sees it.
#[derive(Clone, Debug)]
pub struct Origin(String);

/// Rejects requests for a host that is not allowed (421) and those made by another site's page (403).
///
/// The first prevents DNS rebinding: a page of evil.example that rebound its name to 127.0.0.1 still
/// sends `Host: evil.example`.
pub async fn check_host(
    State(web): State<WebState>,
    connection: Connection,
    mut request: Request,
    next: Next,
) -> Response {
    let Some(host) = single(request.headers(), HOST).map(str::to_owned) else { return misdirected() };
    // A target in absolute form overrides `Host` in some readers, so the two must agree.
    let is_other_authority = request.uri().authority().is_some_and(|authority| *authority != *host);
    let forwarded = match web.proxies.include(connection.peer) {
        true => match Forwarded::read(request.headers(), web.proxies.user_header()) {
            Ok(forwarded) => forwarded,
            Err(unclear) => return (StatusCode::BAD_REQUEST, unclear.sentence()).into_response(),
        },
        // Forwarded headers of any other peer are ignored.
        false => Forwarded::default(),
    };
    let is_owners = connection.is_owners();
    let scheme = forwarded.scheme.unwrap_or(connection.listener.scheme());
    let host = forwarded.host.clone().unwrap_or(host);
    if is_other_authority || !(web.hosts.allows(&host) || connection.listener.is_at(&host)) {
        return misdirected();
    }
    if SEC_FETCH.iter().any(|name| request.headers().get_all(*name).iter().count() > 1) {
        return (StatusCode::BAD_REQUEST, "duplicate Sec-Fetch header\n").into_response();
    }
    if is_cross_site(&request) {
        return (StatusCode::FORBIDDEN, "pages of other sites have no access to this relay\n")
            .into_response();
    }
    if web.proxies.include(connection.peer) && (connection.peer != Peer::owner() || forwarded.is_by_proxy) {
        let user = forwarded.user.as_deref();
        let visitor = match (web.proxies.visitor(user), &web.site, user) {
            (ProxiedUser::Other, Some(site), Some(user)) => site.named(user).await,
            (visitor, ..) => visitor,
        };
        let Some(guest) = connection.for_proxied(forwarded.client(), visitor, user) else {
            return too_many();
        };
        request.extensions_mut().insert(guest);
    }
    // The scheme of a proxy of the owner is unknown, as another one may end TLS before it: a page of the same host is the relay's
    // own, but not one without TLS if the proxy states that it has it.
    let stated = single(request.headers(), ORIGIN).filter(|_| is_owners);
    let schemes = request.headers().get_all("x-forwarded-proto").iter().filter_map(|list| list.to_str().ok());
    let has_tls =
        schemes.flat_map(|list| list.split(',')).any(|scheme| scheme.trim().eq_ignore_ascii_case("https"));
    let is_own = |(of_scheme, of_host): (&str, &str)| {
        of_host == host && (of_scheme == "https" || of_scheme == "http" && !has_tls)
    };
    let own = stated.filter(|stated| stated.split_once("://").is_some_and(is_own));
    let scheme = if is_owners && has_tls { "https" } else { scheme };
    let own = own.map_or_else(|| format!("{scheme}://{host}"), str::to_owned);
    request.extensions_mut().insert(Origin(own));
    request.extensions_mut().insert(Authority(host));
    next.run(request).await
}

/// Accepts only requests from the relay's own page (403 otherwise): browsers send `Origin` with every
/// WebSocket. A program without one sends its key in `Authorization`, which no browser does for a WebSocket.
pub async fn check_origin(
    Extension(Origin(own)): Extension<Origin>,
    connection: Connection,
    request: Request,
    next: Next,
) -> Response {
    let headers = request.headers();
    let is_program = !headers.contains_key(ORIGIN) && is_of_program(headers, &connection);
    if !is_program && single(headers, ORIGIN) != Some(&own) {
        let why = format!(
            "a WebSocket must come from this relay's own page: send `Origin: {own}`, or a key as `Authorization: Bearer KEY`\n"
        );
        return (StatusCode::FORBIDDEN, why).into_response();
    }
    next.run(request).await
}

/// Returns whether a request without a key may be that of a person: pages of other origins state theirs.
pub(super) fn is_own_origin(parts: &Parts) -> bool {
    let own = parts.extensions.get::<Origin>().map(|own| own.0.as_str());
    !parts.headers.contains_key(ORIGIN) || (own.is_some() && single(&parts.headers, ORIGIN) == own)
}

/// Returns whether a program sent a request: it has a key, or the program authenticates itself to the owner's proxy. A browser
/// sends neither with a WebSocket, but `Basic` and `Negotiate` to any proxy that demands them.
pub(super) fn is_of_program(headers: &HeaderMap, connection: &Connection) -> bool {
    has_bearer(headers) || (connection.is_owners() && headers.contains_key(AUTHORIZATION))
}

/// Returns whether a request has a key. Other schemes authenticate people to a proxy, which may forward them.
pub(super) fn has_bearer(headers: &HeaderMap) -> bool {
    let scheme = |value: &HeaderValue| value.as_bytes().get(..6).map(<[u8]>::to_ascii_lowercase);
    headers.get_all(AUTHORIZATION).iter().any(|value| scheme(value).as_deref() == Some(b"bearer"))
}

fn too_many() -> Response {
    let why = "too many connections of this client through the proxy\n";
    (StatusCode::SERVICE_UNAVAILABLE, [(RETRY_AFTER, "10")], why).into_response()
}

fn misdirected() -> Response {
    let why = "unknown host name: this relay answers to 127.0.0.1, localhost, its own address and the names given with --allowed-host\n";
    (StatusCode::MISDIRECTED_REQUEST, why).into_response()
}

/// Fetch metadata headers. Repeated ones would be ambiguous.
const SEC_FETCH: [&str; 3] = ["sec-fetch-site", "sec-fetch-mode", "sec-fetch-dest"];

/// Returns whether the browser reports a cross-site request. Following a link to the page is allowed.
fn is_cross_site(request: &Request) -> bool {
    let header = |name| single(request.headers(), HeaderName::from_static(name));
    let foreign = matches!(header("sec-fetch-site"), Some("cross-site" | "same-site"));
    let link = request.method() == Method::GET
        && header("sec-fetch-mode") == Some("navigate")
        && header("sec-fetch-dest") == Some("document");
    foreign && !link
}

/// The value of a header that occurs exactly once.
fn single(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}
