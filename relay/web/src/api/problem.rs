//! Errors of the HTTP API as problem details (RFC 9457).

use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::http::header::{CONNECTION, CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use nodeglass_api::JobSelectorError;
use nodeglass_auth::authenticator::{FAILURE_DELAY_MS, RateLimited};
use nodeglass_protocol::{LongText, Text};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use tokio::time::sleep;
use utoipa::ToSchema;

/// Delay of responses to rate-limited requests.
const REJECT_DELAY: Duration = Duration::from_millis(FAILURE_DELAY_MS);

/// Problem details (RFC 9457). The type is always `about:blank`: the status says what kind of problem it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// Always `about:blank`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The phrase of the status code.
    pub title: String,
    /// The status code.
    pub status: u16,
    /// The problem, and a remedy.
    pub detail: String,
}

impl Problem {
    /// A problem with a complete sentence for the user.
    pub fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self {
            kind: "about:blank".to_owned(),
            title: status.canonical_reason().unwrap_or_default().to_owned(),
            status: status.as_u16(),
            detail: detail.into(),
        }
    }

    /// The request is invalid.
    pub fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    /// The resource does not exist, or the viewer may not see it.
    pub fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, detail)
    }

    /// The relay does not respond to its own request.
    pub fn shutting_down() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "the relay is shutting down, or is overloaded")
    }

    /// A part of the relay, or its disk, does not respond in time: that says nothing about the resource.
    pub fn late(what: &str) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, format!("{what} does not respond; try again later"))
    }

    /// A query string that cannot be read; `known` are its parameters.
    pub fn query(error: &QueryRejection, known: &str) -> Self {
        let why = Text::new(error.body_text().replace("Failed to deserialize query string: ", ""));
        let why = why
            .as_str()
            .replace("invalid digit found in string", "expected a whole number that is not negative");
        Self::bad_request(format!("invalid query: {why}; the parameters are: {known}"))
    }

    /// A body that cannot be read.
    pub fn body(error: &JsonRejection, example: &str) -> Self {
        let status = match error.status() {
            status @ StatusCode::PAYLOAD_TOO_LARGE => {
                return Self::new(status, "the body is larger than the relay accepts");
            }
            StatusCode::UNSUPPORTED_MEDIA_TYPE => {
                return Self::new(
                    StatusCode::UNSUPPORTED_MEDIA_TYPE,
                    "the request needs the header Content-Type: application/json",
                );
            }
            _ => StatusCode::BAD_REQUEST,
        };
        // axum's words are about types of the relay; what follows them is about the body.
        let text = error.body_text();
        let why = DESERIALIZE.iter().find_map(|words| text.strip_prefix(words)).unwrap_or(&text);
        let why = LongText::new(why);
        Self::new(status, format!("expected JSON such as {example}: {}", words(why.as_str())))
    }
}

/// Prefixes of axum's messages about a JSON body.
const DESERIALIZE: [&str; 2] = [
    "Failed to deserialize the JSON body into the target type: ",
    "Failed to parse the request body as JSON: ",
];
/// Length in bytes after which the reason for a refused body is shortened: serde lists everything that it knows.
const MAX_REASON: usize = 200;

/// A text shortened at the end of a word.
fn words(text: &str) -> String {
    if text.len() <= MAX_REASON {
        return text.to_owned();
    }
    let ends = text.match_indices(' ').map(|(at, _)| at).take_while(|at| *at <= MAX_REASON);
    let end = ends.last().unwrap_or_default();
    format!("{} …", text[..end].trim_end_matches(','))
}

/// Responds to a method that a path does not have; the header `Allow` lists its methods.
pub async fn method_not_allowed(method: Method) -> Problem {
    let detail =
        format!("{} is not possible here; the header Allow lists the methods", Text::new(method.as_str()));
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, detail)
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut body = serde_json::to_vec(&self).unwrap_or_default();
        body.push(b'\n');
        let content_type = HeaderValue::from_static("application/problem+json");
        (status, [(CONTENT_TYPE, content_type)], body).into_response()
    }
}

impl From<JobSelectorError> for Problem {
    fn from(error: JobSelectorError) -> Self {
        Self::bad_request(error.to_string())
    }
}

impl From<Problem> for Response {
    fn from(problem: Problem) -> Self {
        problem.into_response()
    }
}

/// Responds that a limit was exceeded, after a delay during which the connection stays counted, so that
/// no client can make the relay respond thousands of times a second.
pub async fn rate_limited(why: RateLimited) -> Response {
    let (status, after_s) = match why {
        RateLimited::TooMany => (StatusCode::SERVICE_UNAVAILABLE, 5),
        RateLimited::Refused { after_ms } | RateLimited::TooOften { after_ms } => {
            (StatusCode::TOO_MANY_REQUESTS, after_ms.div_ceil(1000))
        }
    };
    sleep(REJECT_DELAY).await;
    let headers = [(RETRY_AFTER, after_s.to_string()), (CONNECTION, "close".to_owned())];
    (headers, Problem::new(status, why.to_string()).into_response()).into_response()
}
