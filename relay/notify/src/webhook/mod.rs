//! Posts JSON or a message to a webhook, a few times if that may help.

mod retry;

use bytes::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use nodeglass_http_client::{Client, Host, HttpError, HttpUrl};
use nodeglass_report::Chat;
use retry::{Decision, Retries};
use serde::Serialize;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::time::{Instant, sleep};

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
    url: HttpUrl,
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
    pub fn new(url: HttpUrl, format: WebhookFormat) -> Self {
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
        if is_slack(&self.url) { Chat::Slack } else { Chat::Mattermost }
    }

    /// Resolves the host and checks whether each of its addresses may be contacted, without contacting any.
    ///
    /// # Errors
    /// [`HttpError`].
    pub async fn resolve(&self) -> Result<Vec<IpAddr>, HttpError> {
        let addresses = nodeglass_http_client::resolve(&self.url).await?;
        Ok(addresses.iter().map(SocketAddr::ip).collect())
    }

    /// Posts, a few times if that may help.
    ///
    /// # Errors
    /// [`HttpError`] of the last attempt.
    pub async fn post(&self, payload: &Payload) -> Result<(), HttpError> {
        self.post_by(&Client::default(), Retries::default(), payload).await
    }

    async fn post_by(
        &self,
        client: &Client,
        mut retries: Retries,
        payload: &Payload,
    ) -> Result<(), HttpError> {
        let body = serde_json::to_vec(payload).map_err(|error| HttpError::Encode(error.to_string()))?;
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

/// Returns whether Slack itself receives what is posted.
fn is_slack(url: &HttpUrl) -> bool {
    let Host::Name(name) = url.host() else { return false };
    ["slack.com", "slack-gov.com"]
        .iter()
        .any(|domain| name.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.')))
}

#[cfg(test)]
mod tests;
