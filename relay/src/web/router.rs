//! All routes of the relay.

use super::{WebState, api, assets, headers, notes, origin_check, ws};
use crate::access::base_path::BasePath;
use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::Uri;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{get, patch, post};
use nodeglass_protocol::live::MAX_CLIENT_MESSAGE;
use tower::ServiceExt;

/// Routes that are not files of the page; other paths are looked up in [`assets`].
pub const ROUTES: [&str; 13] = [
    "/live",
    "/api/v1/picture",
    "/api/v1/shares",
    "/api/v1/shares/{id}",
    "/api/v1/tab",
    "/api/v1/retry",
    "/api/v1/jobs/{id}/report",
    "/api/v1/audit",
    "/api/v1/notes",
    "/api/v1/notes/{id}",
    "/status",
    "/healthz",
    "/clear-cache",
];

/// Builds the router.
pub fn router(state: WebState) -> Router {
    let [
        live,
        picture,
        shares,
        share,
        tab,
        retry,
        report,
        audit,
        all_notes,
        note,
        status,
        healthz,
        clear_cache,
    ] = ROUTES;
    let base = state.base.clone();
    let routes = Router::new()
        // The WebSocket: from the relay's own page only, authenticated by its first messages.
        .route(live, get(ws::connect).layer(from_fn(origin_check::check_origin)))
        // For scripts: the overview as JSON, with the key as bearer token.
        .route(picture, get(api::picture))
        // For `relay share`: with the owner's key, on the owner's own connections.
        .route(shares, get(api::shares).post(api::share))
        .route(share, get(api::share_link).delete(api::revoke))
        // For `relay link --tab`: likewise.
        .route(tab, post(api::tab_link))
        // For `relay retry`: likewise.
        .route(retry, post(api::retry))
        // For `relay report` and for scripts, with the key of anyone who may see the job.
        .route(report, get(api::report))
        // For scripts: who viewed and which actions were performed, with the owner's key.
        .route(audit, get(api::audit))
        // Notes: read with the key of anyone who may see them, changed with the owner's.
        .route(all_notes, get(notes::list).post(notes::add))
        .route(note, patch(notes::edit).delete(notes::delete))
        // For monitoring: launcher, connections and age of SLURM's data, with the owner's key.
        .route(status, get(api::status))
        // Health check without authentication: returns "ok".
        .route(healthz, get(|| async { "ok\n" }))
        // For the page, after it was opened from a link.
        .route(clear_cache, get(assets::clear_cache))
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
