//! Posts JSON to a URL that the owner configured: bounded in time and size, without redirects and proxies.
//!
//! The client is hyper on a connection of its own, because the checked address must be the used one: [`destination`]
//! resolves the name once and decides which addresses may be contacted.

mod client;
mod destination;
mod error;
mod retry;
mod tls;
mod url;

use bytes::Bytes;
use client::Client;
pub use error::WebhookError;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use nodeglass_report::Chat;
use retry::{Decision, Retries};
use serde::Serialize;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::time::{Instant, sleep};
pub use url::WebhookUrl;

/// Time limit for all attempts together: a page waits 20 s for the outcome.
const TOTAL_LIMIT: Duration = Duration::from_secs(16);
/// An attempt that has less time than this is not begun.
const SHORTEST_ATTEMPT: Duration = Duration::from_secs(2);

/// The format of what is posted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum WebhookFormat {
    /// The data as they are.
    #[default]
    Json,
    /// A message in Markdown for Slack, Mattermost and what accepts their incoming webhooks.
    Message,
}

/// A URL with the format that it expects.
#[derive(Clone, Debug, PartialEq)]
pub struct Webhook {
    url: WebhookUrl,
    format: WebhookFormat,
}

/// The body of a post.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Payload {
    /// Data.
    Json(serde_json::Value),
    /// A message, as incoming webhooks of chats expect it.
    Message {
        /// The text.
        text: String,
    },
}

impl Webhook {
    /// Posts to this URL, which the owner of the relay configured: its host may be in a private network.
    pub fn new(url: WebhookUrl, format: WebhookFormat) -> Self {
        Self { url, format }
    }

    /// The URL without its path, which may be secret.
    pub fn display_url(&self) -> String {
        self.url.to_string()
    }

    /// The format that it expects.
    pub fn format(&self) -> WebhookFormat {
        self.format
    }

    /// The chat that receives messages.
    pub fn chat(&self) -> Chat {
        if self.url.is_slack() { Chat::Slack } else { Chat::Mattermost }
    }

    /// Resolves the host and checks whether each of its addresses may be contacted, without contacting any.
    ///
    /// # Errors
    /// [`WebhookError`].
    pub async fn resolve(&self) -> Result<Vec<IpAddr>, WebhookError> {
        let addresses = destination::resolve(&self.url).await?;
        Ok(addresses.iter().map(SocketAddr::ip).collect())
    }

    /// Posts, a few times if that may help.
    ///
    /// # Errors
    /// [`WebhookError`] of the last attempt.
    pub async fn post(&self, payload: &Payload) -> Result<(), WebhookError> {
        self.post_by(&Client::new(), Retries::default(), payload).await
    }

    async fn post_by(
        &self,
        client: &Client,
        mut retries: Retries,
        payload: &Payload,
    ) -> Result<(), WebhookError> {
        let body = serde_json::to_vec(payload).map_err(|error| WebhookError::Encode(error.to_string()))?;
        let (body, headers) = (Bytes::from(body), json_headers());
        let deadline = Instant::now() + TOTAL_LIMIT;
        let remaining = || deadline.saturating_duration_since(Instant::now());
        loop {
            let attempt = client.post(&self.url, headers.clone(), body.clone(), 0, remaining());
            let Err(error) = attempt.await else { return Ok(()) };
            match retries.decide(&error) {
                Decision::GiveUp => return Err(error),
                Decision::RetryAfter(pause) if pause + SHORTEST_ATTEMPT > remaining() => return Err(error),
                Decision::RetryAfter(pause) => {
                    tracing::info!(url = %self.url, %error, retry_s = pause.as_secs(), "a webhook failed");
                    sleep(pause).await;
                }
            }
        }
    }
}

fn json_headers() -> HeaderMap {
    HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))])
}

/// Posts once to a URL of the owner. Returns the beginning of the answer, at most `max_answer` bytes.
///
/// # Errors
/// [`WebhookError`].
pub async fn post_once(
    url: &WebhookUrl,
    headers: HeaderMap,
    body: Bytes,
    max_answer: usize,
) -> Result<Vec<u8>, WebhookError> {
    Client::new().post(url, headers, body, max_answer, TOTAL_LIMIT).await
}

#[cfg(test)]
mod tests;
