//! Every answer tells the browser to trust nothing but this relay, and never sets a cookie.

use super::Connection;
use crate::access::peer::Peer;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderName, HeaderValue, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
    X_FRAME_OPTIONS,
};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

/// Only our own files run, WebAssembly among them; nothing inline, nothing from elsewhere, no frames.
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

/// Sent by browsers, and only by them, with the request for the script of a service worker.
const SERVICE_WORKER: HeaderName = HeaderName::from_static("service-worker");
/// Has the browser remove what earlier answers and scripts left at this origin.
pub(super) const CLEAR_SITE_DATA: HeaderName = HeaderName::from_static("clear-site-data");
/// Service workers, their caches and storage; the HTTP cache.
const EVERYTHING: HeaderValue = HeaderValue::from_static("\"storage\", \"cache\"");

/// Puts the headers on whatever the inner service answers, and unseats service workers.
///
/// The page registers none. One that asks for its script was installed by a program that had this port while
/// no relay listened; it would answer in the relay's place from then on. A 404 by itself would leave it there.
pub async fn dress(request: Request, next: Next) -> Response {
    let mut response = match request.headers().contains_key(SERVICE_WORKER) {
        true => {
            // Anybody can send a header; only what comes from the owner's own browser is of interest to them.
            if request.extensions().get::<Connection>().is_some_and(|from| from.peer == Peer::owner()) {
                tracing::warn!(
                    "your browser holds code that another program left there for this relay's address; it is told to \
                     remove it, but may have shown it your link: start the relay anew and use the new link"
                );
            }
            (StatusCode::NOT_FOUND, [(CLEAR_SITE_DATA, EVERYTHING)], "this relay has no service worker\n")
                .into_response()
        }
        false => next.run(request).await,
    };
    put_on(&mut response);
    response
}

/// Puts the headers on one answer; what says nothing about caching must not be cached.
pub(super) fn put_on<B>(response: &mut axum::http::Response<B>) {
    let headers = response.headers_mut();
    for (name, value) in ALWAYS {
        headers.insert(name, value);
    }
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
}
