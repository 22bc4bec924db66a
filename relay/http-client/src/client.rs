//! One POST request on one connection: limited in time, and in what it reads.

use crate::destination;
use crate::error::HttpError;
use crate::tls::{self, Trust};
use crate::url::HttpUrl;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::header::{CONTENT_LENGTH, DATE, HOST, HeaderMap, HeaderName, RETRY_AFTER, USER_AGENT};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use nodeglass_protocol::Text;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime};
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

/// Posts, each time on a connection of its own.
#[derive(Debug)]
pub struct Client {
    time_limit: Duration,
    trust: Trust,
}

impl Default for Client {
    fn default() -> Self {
        Self { time_limit: TIME_LIMIT, trust: Trust::Machine }
    }
}

impl Client {
    /// One with another time limit.
    #[cfg(any(test, feature = "test-support"))]
    pub fn within(time_limit: Duration) -> Self {
        Self { time_limit, ..Self::default() }
    }

    /// One that trusts only this certificate.
    #[cfg(test)]
    pub(crate) fn trusting(certificate: tls::Certificate) -> Self {
        Self { trust: Trust::Only(certificate), ..Self::default() }
    }

    /// Makes one attempt, of at most 10 s and at most `remaining`. Success is a status 2xx. Returns the beginning of the answer, at most `max_answer` bytes.
    ///
    /// # Errors
    /// [`HttpError`].
    pub async fn post(
        &self,
        url: &HttpUrl,
        headers: HeaderMap,
        body: Bytes,
        max_answer: usize,
        remaining: Duration,
    ) -> Result<Vec<u8>, HttpError> {
        let limit = self.time_limit.min(remaining);
        let attempt = async {
            let stream = connect(url, &destination::resolve(url).await?).await?;
            let request = request(url, headers, body)?;
            if url.is_tls() {
                let stream = tls::connect(url.host(), &self.trust, stream).await?;
                exchange(stream, url, request, max_answer).await
            } else {
                exchange(stream, url, request, max_answer).await
            }
        };
        let late = || HttpError::TimedOut(url.host().to_string(), limit.as_secs());
        timeout(limit, attempt).await.unwrap_or_else(|_| Err(late()))
    }
}

/// Connects to the first address that responds.
async fn connect(url: &HttpUrl, addresses: &[SocketAddr]) -> Result<TcpStream, HttpError> {
    let mut why = "it has no address".to_owned();
    for address in addresses {
        match timeout(CONNECT_LIMIT, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => why = error.to_string(),
            Err(_) => why = format!("{address} does not respond"),
        }
    }
    Err(HttpError::Connect(url.host().to_string(), why))
}

fn request(url: &HttpUrl, headers: HeaderMap, body: Bytes) -> Result<Request<Full<Bytes>>, HttpError> {
    let mut request = Request::post(url.target())
        .header(HOST, url.authority())
        .header(USER_AGENT, concat!("nodeglass/", env!("CARGO_PKG_VERSION")))
        .header(CONTENT_LENGTH, body.len())
        .body(Full::new(body))
        .map_err(|error| HttpError::Encode(error.to_string()))?;
    request.headers_mut().extend(headers);
    Ok(request)
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    url: &HttpUrl,
    request: Request<Full<Bytes>>,
    max_answer: usize,
) -> Result<Vec<u8>, HttpError> {
    let unreadable = |error: hyper::Error| HttpError::Answer(url.host().to_string(), error.to_string());
    let mut builder = http1::Builder::new();
    builder.max_buf_size(MAX_HEAD);
    let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(unreadable)?;
    let answer = async {
        let response = sender.send_request(request).await.map_err(unreadable)?;
        let body = check_status(url, response).await?;
        let mut answer = Vec::new();
        if max_answer > 0 {
            read_up_to(body, max_answer, &mut answer).await.map_err(unreadable)?;
        }
        Ok(answer)
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
            (Err(HttpError::Answer(..)), Err(error)) => Err(unreadable(error)),
            (judged, _) => judged,
        },
    }
}

/// Converts the status to a result, with the body of a success.
async fn check_status(url: &HttpUrl, response: Response<Incoming>) -> Result<Incoming, HttpError> {
    let (host, status) = (url.host().to_string(), response.status());
    if status.is_success() {
        return Ok(response.into_body());
    }
    if status.is_redirection() {
        return Err(HttpError::Redirect(host, status.as_u16()));
    }
    let retry_after = retry_after(response.headers(), SystemTime::now());
    let mut text = Vec::new();
    // What has arrived until then, or until it fails, is shown.
    let _ = timeout(TEXT_LIMIT, read_up_to(response.into_body(), MAX_TEXT, &mut text)).await;
    let text = Text::from_bytes(&text).as_str().chars().take(SHOWN).collect();
    Err(HttpError::Status { host, status: status.as_u16(), text, retry_after })
}

/// The pause that a response requests: a number of seconds, or a date, which is compared with the response's own where it has one,
/// because clocks differ.
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = |name: HeaderName| headers.get(name)?.to_str().ok().map(str::trim);
    let date = |text: &str| httpdate::parse_http_date(text).ok();
    let after = text(RETRY_AFTER)?;
    if let Ok(seconds) = after.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let sent = text(DATE).and_then(date).unwrap_or(now);
    // A time that is over asks for no pause.
    Some(date(after)?.duration_since(sent).unwrap_or_default())
}

/// Reads the beginning of a body.
async fn read_up_to(mut body: Incoming, max: usize, bytes: &mut Vec<u8>) -> Result<(), hyper::Error> {
    while bytes.len() < max {
        let Some(frame) = body.frame().await else { break };
        if let Ok(data) = frame?.into_data() {
            let room = max - bytes.len();
            bytes.extend_from_slice(&data[..data.len().min(room)]);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;

    #[test]
    fn a_pause_is_a_number_of_seconds_or_lasts_until_a_date() {
        let (at, later) = ("Sun, 06 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 08:51:07 GMT");
        let now = httpdate::parse_http_date(at).unwrap();
        let pause = |after: &'static str, date: Option<&'static str>| {
            let date = date.map(|date| (DATE, HeaderValue::from_static(date)));
            let after = Some((RETRY_AFTER, HeaderValue::from_static(after)));
            let headers = HeaderMap::from_iter([after, date].into_iter().flatten());
            retry_after(&headers, now).map(|pause| pause.as_secs())
        };
        assert_eq!(
            (pause("90", None), pause(" 0 ", None), pause(later, None)),
            (Some(90), Some(0), Some(90))
        );
        assert_eq!(pause(later, Some("Sun, 06 Nov 1994 08:51:00 GMT")), Some(7), "by the server's clock");
        assert_eq!(pause(at, Some(later)), Some(0), "it is over");
        assert_eq!(pause(later, Some("yesterday")), Some(90));
        for invalid in ["", "soon", "-5", "1e3", "Sun, 06 Nov 0994 08:49:37 GMT", "99999999999999999999"] {
            assert_eq!(pause(invalid, None), None, "{invalid}");
        }
    }
}
