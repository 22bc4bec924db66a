//! One POST request on one connection: limited in time, and in what it reads.

use super::destination;
use super::error::WebhookError;
use super::tls::{self, Trust};
use super::url::WebhookUrl;
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1;
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, HOST, RETRY_AFTER, USER_AGENT};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use nodeglass_protocol::Text;
use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Time limit of an attempt, from the name to the status.
const TIME_LIMIT: Duration = Duration::from_secs(10);
/// Time limit of connecting to one address.
const CONNECT_LIMIT: Duration = Duration::from_secs(3);
/// Maximum size of the head of an answer, in bytes.
const MAX_HEAD: usize = 16 * 1024;
/// Maximum length of the text of a refusal that is read, in bytes, and time limit of reading it.
const MAX_TEXT: usize = 4 * 1024;
const TEXT_LIMIT: Duration = Duration::from_secs(1);
/// Maximum length of the shown text, in characters.
const SHOWN: usize = 200;

/// Posts.
#[derive(Debug)]
pub(super) struct Client {
    time_limit: Duration,
    trust: Trust,
}

impl Client {
    pub(super) fn new() -> Self {
        Self { time_limit: TIME_LIMIT, trust: Trust::Machine }
    }

    /// One with another time limit.
    #[cfg(test)]
    pub(super) fn within(time_limit: Duration) -> Self {
        Self { time_limit, ..Self::new() }
    }

    /// One that trusts only this certificate.
    #[cfg(test)]
    pub(super) fn trusting(certificate: tls::Certificate) -> Self {
        Self { trust: Trust::Only(certificate), ..Self::new() }
    }

    /// Makes one attempt. Success is a status 2xx; the rest of the answer is not read.
    ///
    /// # Errors
    /// [`WebhookError`].
    pub(super) async fn post(
        &self,
        url: &WebhookUrl,
        body: Vec<u8>,
        remaining: Duration,
    ) -> Result<(), WebhookError> {
        let limit = self.time_limit.min(remaining);
        let attempt = async {
            let stream = connect(url, &destination::resolve(url).await?).await?;
            if url.is_tls() {
                exchange(tls::connect(url.host(), &self.trust, stream).await?, url, body).await
            } else {
                exchange(stream, url, body).await
            }
        };
        let late = || WebhookError::TimedOut(url.host().to_string(), limit.as_secs());
        timeout(limit, attempt).await.unwrap_or_else(|_| Err(late()))
    }
}

/// Connects to the first address that responds.
async fn connect(url: &WebhookUrl, addresses: &[SocketAddr]) -> Result<TcpStream, WebhookError> {
    let mut why = "it has no address".to_owned();
    for address in addresses {
        match timeout(CONNECT_LIMIT, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => why = error.to_string(),
            Err(_) => why = format!("{address} does not respond"),
        }
    }
    Err(WebhookError::Connect(url.host().to_string(), why))
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    url: &WebhookUrl,
    body: Vec<u8>,
) -> Result<(), WebhookError> {
    let unreadable = |error: hyper::Error| WebhookError::Answer(url.host().to_string(), error.to_string());
    let mut builder = http1::Builder::new();
    builder.max_buf_size(MAX_HEAD);
    let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(unreadable)?;
    let request = Request::post(url.target())
        .header(HOST, url.authority())
        .header(USER_AGENT, concat!("nodeglass/", env!("CARGO_PKG_VERSION")))
        .header(CONTENT_TYPE, "application/json")
        .header(CONTENT_LENGTH, body.len())
        .body(String::from_utf8(body).map_err(|error| WebhookError::Encode(error.to_string()))?)
        .map_err(|error| WebhookError::Encode(error.to_string()))?;
    let answer = async {
        let response = sender.send_request(request).await.map_err(unreadable)?;
        check_status(url, response).await
    };
    // The connection ends with this function, even if the server sends more.
    tokio::pin!(connection);
    tokio::pin!(answer);
    tokio::select! {
        biased;
        // The answer, for which the connection must be polled.
        judged = &mut answer => judged,
        // The connection is over, perhaps with an error after the answer: some servers close without close_notify.
        ended = &mut connection => match (answer.await, ended) {
            (Err(WebhookError::Answer(..)), Err(error)) => Err(unreadable(error)),
            (judged, _) => judged,
        },
    }
}

/// Converts the status to a result.
async fn check_status(url: &WebhookUrl, response: Response<Incoming>) -> Result<(), WebhookError> {
    let (host, status) = (url.host().to_string(), response.status());
    if status.is_success() {
        return Ok(());
    }
    if status.is_redirection() {
        return Err(WebhookError::Redirect(host, status.as_u16()));
    }
    let after =
        response.headers().get(RETRY_AFTER).and_then(|after| after.to_str().ok()?.trim().parse().ok());
    let text = timeout(TEXT_LIMIT, read_prefix(response.into_body())).await.unwrap_or_default();
    Err(WebhookError::Status {
        host,
        status: status.as_u16(),
        text,
        retry_after: after.map(Duration::from_secs),
    })
}

/// The beginning of a text, without what a terminal would interpret.
async fn read_prefix(mut body: Incoming) -> String {
    let mut bytes = Vec::new();
    while bytes.len() < MAX_TEXT {
        match std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    let room = MAX_TEXT - bytes.len();
                    bytes.extend_from_slice(&data[..data.len().min(room)]);
                }
            }
            Some(Err(_)) | None => break,
        }
    }
    Text::from_bytes(&bytes).as_str().chars().take(SHOWN).collect()
}
