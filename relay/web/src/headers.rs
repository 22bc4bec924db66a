//! Security headers: every response restricts the browser to the relay itself, and none sets a cookie.

use super::Connection;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderName, HeaderValue, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
    X_FRAME_OPTIONS,
};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use nodeglass_access::peer::Peer;

/// Allows only the relay's own files, including WebAssembly; nothing inline, no other origin, no frames.
pub const CONTENT_POLICY: &str = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; \
     img-src 'self' data:; font-src 'self'; connect-src 'self'; manifest-src 'self'; base-uri 'none'; \
     form-action 'none'; frame-ancestors 'none'";

const ALWAYS: [(HeaderName, HeaderValue); 6] = [
    (CONTENT_SECURITY_POLICY, HeaderValue::from_static(CONTENT_POLICY)),
    (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    (HeaderName::from_static("cross-origin-opener-policy"), HeaderValue::from_static("same-origin")),
    (HeaderName::from_static("cross-origin-resource-policy"), HeaderValue::from_static("same-origin")),
    (X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
];

/// Request header that browsers send, and scripts cannot, when they fetch a service worker script.
const SERVICE_WORKER: HeaderName = HeaderName::from_static("service-worker");
/// Makes the browser remove what earlier responses and scripts stored for this origin.
pub(super) const CLEAR_SITE_DATA: HeaderName = HeaderName::from_static("clear-site-data");
/// Service workers, their caches and storage, and the HTTP cache.
const EVERYTHING: HeaderValue = HeaderValue::from_static("\"storage\", \"cache\"");

/// Adds the security headers to every response, and removes service workers.
///
/// The page registers none. A request for a worker script comes from a worker that another program
/// installed while it had this port; it would keep answering in the relay's place. A plain 404 would
/// leave it registered.
pub async fn add_security_headers(request: Request, next: Next) -> Response {
    let mut response = match request.headers().contains_key(SERVICE_WORKER) {
        true => {
            // Any client can send this header; only requests from the owner's own browser are worth a
            // warning.
            if request.extensions().get::<Connection>().is_some_and(|from| from.peer == Peer::owner()) {
                tracing::warn!(
                    "your browser runs a service worker that another program installed for this relay's address; this \
                     answer makes the browser remove it, but it may have seen your link: restart the relay and use the new link"
                );
            }
            (StatusCode::NOT_FOUND, [(CLEAR_SITE_DATA, EVERYTHING)], "this relay has no service worker\n")
                .into_response()
        }
        false => next.run(request).await,
    };
    insert_security_headers(&mut response);
    response
}

/// Inserts the headers into a response; without an explicit policy it must not be cached.
pub(super) fn insert_security_headers<B>(response: &mut axum::http::Response<B>) {
    let headers = response.headers_mut();
    for (name, value) in ALWAYS {
        headers.insert(name, value);
    }
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
}
