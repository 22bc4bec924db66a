//! All routes of the relay.

use super::api::{self, notes, silences, tokens, without_parameters as plain};
use super::{WebState, assets, headers, origin_check, ws};
use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::Uri;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{delete, get, patch, post};
use nodeglass_access::base_path::BasePath;
use nodeglass_protocol::live::MAX_CLIENT_MESSAGE;
use tower::ServiceExt;

/// Builds the router. Paths without a route are looked up among the page's files.
pub fn router(state: WebState) -> Router {
    let base = state.base.clone();
    let routes = Router::new()
        // The WebSocket: from the relay's own page only, authenticated by its first messages.
        .route("/live", get(ws::connect).layer(from_fn(origin_check::check_origin)))
        // What the caller may see, with a key as bearer token. Parameters that a route does not know are refused.
        .route("/api/v1/snapshot", plain(get(api::snapshot)))
        .route("/api/v1/jobs", get(api::jobs))
        .route("/api/v1/jobs/{id}", get(api::job))
        .route("/api/v1/nodes", get(api::nodes))
        .route("/api/v1/nodes/{name}", get(api::node))
        .route("/api/v1/gpus", get(api::gpus))
        .route("/api/v1/gpus/{uuid}", get(api::gpu))
        .route("/api/v1/processes", get(api::processes))
        .route("/api/v1/findings", get(api::findings))
        .route("/api/v1/history", get(api::history))
        .route("/api/v1/events", get(api::events))
        .route("/api/v1/picture", plain(get(api::picture)))
        .route("/api/v1/jobs/{id}/report", plain(get(api::report)))
        // Notes: read with the key of anyone who may see them, changed with the owner's.
        .route("/api/v1/notes", get(notes::list).merge(plain(post(notes::add))))
        .route("/api/v1/notes/{id}", plain(patch(notes::edit).delete(notes::delete)))
        // With the owner's key, on the owner's own connections.
        .route("/api/v1/usage", get(api::usage))
        .route("/api/v1/faults", get(api::faults))
        .route("/api/v1/silences", plain(get(silences::list).post(silences::silence)))
        .route("/api/v1/shares", plain(get(api::shares).post(api::share)))
        .route("/api/v1/shares/{id}", plain(get(api::share_link).delete(api::revoke)))
        .route("/api/v1/tokens", plain(get(tokens::tokens).post(tokens::create)))
        .route("/api/v1/tokens/{name}", plain(delete(tokens::revoke)))
        .route("/api/v1/audit", get(api::audit))
        .route("/api/v1/retry", plain(post(api::retry)))
        .route("/api/v1/tab", plain(post(api::tab_link)))
        .route("/status", plain(get(api::status)))
        .route("/metrics", get(api::metrics))
        // Without authentication: the description of the API, and whether the relay runs and is ready.
        .route("/api/v1/openapi.json", get(api::document))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(api::ready))
        // For the page, after it was opened from a link.
        .route("/clear-cache", get(assets::clear_cache))
        .method_not_allowed_fallback(api::method_not_allowed)
        // Request bodies are small.
        .layer(DefaultBodyLimit::max(MAX_CLIENT_MESSAGE))
        // The embedded page and its files.
        .fallback(assets::serve)
        // Before all routes: the allowed host names.
        .layer(from_fn_with_state(state.clone(), origin_check::check_host))
        // Around all routes: security headers.
        .layer(from_fn(headers::add_security_headers))
        .with_state(state);
    // Outermost: a base path is equivalent to the root.
    Router::new().fallback_service(routes.map_request(move |request| at_root(&base, request)))
}

/// Strips the base path, if the request has it.
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
