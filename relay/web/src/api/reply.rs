//! JSON responses with an entity tag, and the page of a list.

use super::problem::Problem;
use axum::http::header::{CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use nodeglass_api::Fields;
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::fmt::Write as _;

/// Maximum of `limit` and `offset`.
const MAX_ITEMS: usize = 100_000;
/// Number of bytes of a digest in an entity tag.
const TAG_BYTES: usize = 12;

/// The part of a list that a client asks for.
#[derive(Debug)]
pub struct Page {
    /// The fields of each item.
    pub fields: Fields,
    /// Maximum number of items.
    pub limit: usize,
    /// Number of items to skip.
    pub offset: usize,
}

impl Page {
    /// # Errors
    /// A limit or offset out of range.
    pub fn new(fields: Fields, limit: Option<usize>, offset: Option<usize>) -> Result<Self, Problem> {
        let (limit, offset) = (limit.unwrap_or(MAX_ITEMS), offset.unwrap_or(0));
        if limit == 0 || limit > MAX_ITEMS || offset > MAX_ITEMS {
            return Err(Problem::bad_request(format!(
                "limit must be from 1 to {MAX_ITEMS}, offset at most {MAX_ITEMS}"
            )));
        }
        Ok(Self { fields, limit, offset })
    }
}

/// Encodes a response, with a newline at its end for terminals.
pub fn body<T: Serialize>(value: &T) -> Vec<u8> {
    let mut body = serde_json::to_vec(value).unwrap_or_default();
    body.push(b'\n');
    body
}

/// A response with an entity tag, or `304 Not Modified` if the client has it already.
pub fn json(headers: &HeaderMap, body: Vec<u8>) -> Response {
    let tag = entity_tag(&body);
    let is_known =
        headers.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok()).any(|list| {
            list.split(',').map(str::trim).any(|known| known == "*" || known.trim_start_matches("W/") == tag)
        });
    match is_known {
        true => (StatusCode::NOT_MODIFIED, [(ETAG, tag)]).into_response(),
        false => ([(CONTENT_TYPE, "application/json".to_owned()), (ETAG, tag)], body).into_response(),
    }
}

fn entity_tag(body: &[u8]) -> String {
    let digest = Sha256::digest(body);
    let mut tag = String::from("\"");
    for byte in digest.iter().take(TAG_BYTES) {
        let _ = write!(tag, "{byte:02x}");
    }
    tag.push('"');
    tag
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    #[test]
    fn an_unchanged_body_is_not_sent_again() {
        let first = json(&HeaderMap::new(), b"{}\n".to_vec());
        let tag = first.headers()[ETAG].clone();
        let status = |known: HeaderValue, body: &[u8]| {
            let headers = HeaderMap::from_iter([(IF_NONE_MATCH, known)]);
            json(&headers, body.to_vec()).status()
        };
        assert_eq!(status(tag.clone(), b"{}\n"), StatusCode::NOT_MODIFIED);
        assert_eq!(status(tag.clone(), b"[]\n"), StatusCode::OK);
        let weak = format!("\"x\", W/{}", tag.to_str().unwrap());
        assert_eq!(status(HeaderValue::from_str(&weak).unwrap(), b"{}\n"), StatusCode::NOT_MODIFIED);
        assert_eq!(status(HeaderValue::from_static("*"), b"{}\n"), StatusCode::NOT_MODIFIED);
    }
}
