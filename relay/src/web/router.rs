//! Every way into the relay, on one screen.

use super::{WebState, api, assets, gate, headers, live};
use crate::config::BasePath;
use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::Uri;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{get, post};
use nodeglass_protocol::live::MAX_CLIENT_MESSAGE;
use tower::ServiceExt;

/// The routes that are not files of the page; all else is looked up in [`assets`] or is 404.
pub const ROUTES: [&str; 8] = [
    "/live",
    "/api/v1/picture",
    "/api/v1/shares",
    "/api/v1/shares/{id}",
    "/api/v1/tab",
    "/api/v1/retry",
    "/healthz",
    "/clear-cache",
];

/// The whole service.
pub fn router(state: WebState) -> Router {
    let ([live, picture, shares, share, tab, retry, healthz, clear_cache], base) =
        (ROUTES, state.base.clone());
    let routes = Router::new()
        // The WebSocket: from our own page only, and with a proof of the key in its first messages.
        .route(live, get(live::enter).layer(from_fn(gate::own_origin)))
        // For scripts: the overview once, as JSON, with the key as Bearer.
        .route(picture, get(api::picture))
        // For `relay share`: with the owner's key, on the owner's own connections.
        .route(shares, get(api::shares).post(api::share))
        .route(share, get(api::share_link).delete(api::revoke))
        // For `relay link --tab`: likewise.
        .route(tab, post(api::tab_link))
        // For `relay retry`, likewise.
        .route(retry, post(api::retry))
        // For whoever wonders whether it runs: it says "ok" and nothing else.
        .route(healthz, get(|| async { "ok\n" }))
        // For the page, after it was opened by a link.
        .route(clear_cache, get(assets::clear_cache))
        // What is asked of a share is short.
        .layer(DefaultBodyLimit::max(MAX_CLIENT_MESSAGE))
        // The page and its files, out of the binary.
        .fallback(assets::serve)
        // Before all of them: the names under which the relay may be reached.
        .layer(from_fn_with_state(state.clone(), gate::known_host))
        // Around all of them: what a browser may do with the answer.
        .layer(from_fn(headers::dress))
        .with_state(state);
    // Before everything: what a proxy shows below a path is the same as at the root.
    Router::new().fallback_service(routes.map_request(move |request| at_root(&base, request)))
}

/// The request without the base path, if it came with it.
fn at_root(base: &BasePath, mut request: Request) -> Request {
    let uri = request.uri();
    let Some(path) = base.below(uri.path()).filter(|path| path.len() < uri.path().len()) else {
        return request;
    };
    let query = uri.query().map_or(String::new(), |query| format!("?{query}"));
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = format!("{path}{query}").parse().ok();
    if let Ok(uri) = Uri::from_parts(parts) {
        *request.uri_mut() = uri;
    }
    request
}
