//! Errors of requests, and whether another attempt may help.

use std::time::Duration;

/// Error of a request. Messages read well after "failed to" and contain no part of the URL but its host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HttpError {
    /// The data cannot be encoded.
    #[error("encode the data: {0}")]
    Encode(String),
    /// The name has no address.
    #[error("find the address of {0}: {1}")]
    Resolve(String, String),
    /// An address that may not be contacted.
    #[error("post to {0}: it {1}")]
    Destination(String, &'static str),
    /// No connection.
    #[error("connect to {0}: {1}")]
    Connect(String, String),
    /// TLS cannot be used, or the certificate belongs to another host.
    #[error("connect to {0} by TLS: {1}")]
    Tls(String, String),
    /// No answer in time.
    #[error("post to {0}: no response within {1} s")]
    TimedOut(String, u64),
    /// The answer is not HTTP.
    #[error("read the response of {0}: {1}")]
    Answer(String, String),
    /// A redirect, which is not followed.
    #[error(
        "post to {0}: it redirects (status {1}), which is not followed; configure the URL that it leads to"
    )]
    Redirect(String, u16),
    /// A refusal.
    #[error("post to {host}: it responded with status {status}{}", response_excerpt(text))]
    Status {
        /// The host.
        host: String,
        /// The status.
        status: u16,
        /// The beginning of the answer.
        text: String,
        /// The pause that it requests (`Retry-After`), if any.
        retry_after: Option<Duration>,
    },
}

impl HttpError {
    /// Returns whether another attempt may succeed.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Resolve(..) | Self::Connect(..) | Self::TimedOut(..) | Self::Answer(..) => true,
            Self::Status { status, .. } => matches!(status, 408 | 425 | 429 | 500..),
            Self::Encode(_) | Self::Destination(..) | Self::Tls(..) | Self::Redirect(..) => false,
        }
    }

    /// When to try again, as the server says.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

fn response_excerpt(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(": {text}") }
}
