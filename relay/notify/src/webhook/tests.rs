//! A real listener on loopback that accepts, refuses, redirects, hangs, and never ends its answer.

use super::*;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

/// Longer than any step takes on a slow machine.
const LONG: Duration = Duration::from_secs(30);

/// How a server answers its connections, one after the other; the last way is used for all further ones.
#[derive(Clone, Copy)]
enum Way {
    /// With this text.
    Answer(&'static str),
    /// With this text, and then without an end.
    Endless(&'static str),
    /// Not at all.
    Hang,
    /// By closing.
    Close,
}

struct Server {
    port: u16,
    requests: mpsc::UnboundedReceiver<String>,
    accepted: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    async fn start(ways: &'static [Way]) -> Self {
        Self::start_with(ways, None).await
    }

    async fn start_with(ways: &'static [Way], tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (sender, requests) = mpsc::unbounded_channel();
        let accepted = Arc::<AtomicUsize>::default();
        let count = accepted.clone();
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let way = ways[count.fetch_add(1, Ordering::SeqCst).min(ways.len() - 1)];
                let (sender, tls) = (sender.clone(), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => serve(stream, way, &sender).await,
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                serve(stream, way, &sender).await;
                            }
                        }
                    }
                });
            }
        });
        Self { port, requests, accepted, task }
    }

    fn url(&self) -> WebhookUrl {
        format!("http://127.0.0.1:{}/hooks/s3cret", self.port).parse().unwrap()
    }

    fn connections(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }
}

async fn serve(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    way: Way,
    requests: &mpsc::UnboundedSender<String>,
) {
    if matches!(way, Way::Close) {
        return;
    }
    let mut request = Vec::new();
    let mut buffer = [0; 4_096];
    while !is_whole(&request) {
        match stream.read(&mut buffer).await {
            Ok(read @ 1..) => request.extend_from_slice(&buffer[..read]),
            _ => return,
        }
    }
    let _ = requests.send(String::from_utf8_lossy(&request).into_owned());
    match way {
        Way::Answer(text) => drop(stream.write_all(text.as_bytes()).await),
        Way::Endless(text) => {
            let _ = stream.write_all(text.as_bytes()).await;
            while stream.write_all(&[b'x'; 1_024]).await.is_ok() {
                tokio::task::yield_now().await;
            }
        }
        Way::Hang => std::future::pending().await,
        Way::Close => {}
    }
}

/// Returns whether the request has arrived with its body.
fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head
        .lines()
        .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    length.is_none_or(|length: usize| body.len() >= length)
}

fn payload() -> Payload {
    Payload::Json(serde_json::json!({ "job": 17, "name": "träin" }))
}

/// One attempt.
async fn post(url: &WebhookUrl, client: &Client) -> Result<(), WebhookError> {
    let body = serde_json::to_vec(&payload()).unwrap();
    let attempt = client.post(url, json_headers(), body.into(), 0, LONG);
    tokio::time::timeout(LONG, attempt).await.expect("the time limit of the client").map(drop)
}

const OK: Way = Way::Answer("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
const FAILED: Way = Way::Answer("HTTP/1.1 500 Oops\r\nContent-Length: 6\r\n\r\n\x1b[1mno");

#[tokio::test]
async fn the_data_are_posted_once_as_json() {
    let mut server = Server::start(&[OK]).await;
    let webhook = Webhook::new(server.url(), WebhookFormat::Json);
    webhook.post(&payload()).await.unwrap();
    let request = server.requests.recv().await.unwrap();
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("POST /hooks/s3cret HTTP/1.1\r\n"), "{head}");
    let head = head.to_ascii_lowercase();
    assert!(head.contains(&format!("host: 127.0.0.1:{}", server.port)), "{head}");
    assert!(head.contains("content-type: application/json"), "{head}");
    assert_eq!(body, "{\"job\":17,\"name\":\"träin\"}");
    let message = Payload::Message { text: "hello".to_owned() };
    webhook.post(&message).await.unwrap();
    assert!(server.requests.recv().await.unwrap().ends_with("{\"text\":\"hello\"}"));
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn a_failure_that_may_pass_is_repeated_and_then_reported_without_the_secret() {
    let server = Server::start(&[FAILED, Way::Close, OK]).await;
    let webhook = Webhook::new(server.url(), WebhookFormat::Json);
    let (client, retries) = (Client::within(LONG), || Retries::pausing(Duration::from_millis(1)));
    webhook.post_by(&client, retries(), &payload()).await.unwrap();
    assert_eq!(server.connections(), 3);
    let server = Server::start(&[FAILED]).await;
    let webhook = Webhook::new(server.url(), WebhookFormat::Json);
    let error = webhook.post_by(&client, retries(), &payload()).await.unwrap_err().to_string();
    assert_eq!(
        (error.as_str(), server.connections()),
        ("post to 127.0.0.1: it responded with status 500: [1mno", 3)
    );
}

#[tokio::test]
async fn an_attempt_that_would_be_too_late_for_who_waits_is_not_made() {
    let server = Server::start(&[FAILED]).await;
    let webhook = Webhook::new(server.url(), WebhookFormat::Json);
    let began = Instant::now();
    let retries = Retries::pausing(TOTAL_LIMIT);
    let error = webhook.post_by(&Client::within(LONG), retries, &payload()).await.unwrap_err();
    assert!(matches!(error, WebhookError::Status { status: 500, .. }), "{error}");
    assert_eq!(server.connections(), 1);
    assert!(began.elapsed() < TOTAL_LIMIT, "it does not wait for nothing");
}

#[tokio::test]
async fn a_refusal_is_not_repeated_and_shows_what_the_server_says() {
    const REFUSED: Way = Way::Answer("HTTP/1.1 404 Not Found\r\nContent-Length: 15\r\n\r\nno such webhook");
    let server = Server::start(&[REFUSED]).await;
    let webhook = Webhook::new(server.url(), WebhookFormat::Json);
    let error = webhook.post(&payload()).await.unwrap_err().to_string();
    assert_eq!(error, "post to 127.0.0.1: it responded with status 404: no such webhook");
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn t35_a_redirect_is_not_followed() {
    let target = Server::start(&[OK]).await;
    let location = format!("HTTP/1.1 307 Moved\r\nLocation: {}\r\nContent-Length: 0\r\n\r\n", target.port);
    let ways = Box::leak(Box::new([Way::Answer(Box::leak(location.into_boxed_str()))]));
    let server = Server::start(ways).await;
    let error = post(&server.url(), &Client::new()).await.unwrap_err();
    assert_eq!(error, WebhookError::Redirect("127.0.0.1".into(), 307));
    assert_eq!(target.connections(), 0);
}

#[tokio::test]
async fn t35_a_server_that_hangs_costs_the_time_limit_and_no_more() {
    let server = Server::start(&[Way::Hang]).await;
    let client = Client::within(Duration::from_secs(1));
    let began = Instant::now();
    assert_eq!(post(&server.url(), &client).await, Err(WebhookError::TimedOut("127.0.0.1".into(), 1)));
    assert!(began.elapsed() < LONG);
}

#[tokio::test]
async fn t35_an_endless_answer_is_not_read() {
    let endless = Way::Endless("HTTP/1.1 200 OK\r\n\r\n");
    let server = Server::start(Box::leak(Box::new([endless]))).await;
    assert_eq!(post(&server.url(), &Client::new()).await, Ok(()));
    let endless = Way::Endless("HTTP/1.1 500 No\r\n\r\n");
    let server = Server::start(Box::leak(Box::new([endless]))).await;
    let Err(WebhookError::Status { status: 500, text, .. }) = post(&server.url(), &Client::new()).await
    else {
        panic!("a refusal")
    };
    assert_eq!(text, "x".repeat(200));
    // Nor a head that does not end.
    let endless = Way::Endless("HTTP/1.1 200 OK\r\nX: ");
    let server = Server::start(Box::leak(Box::new([endless]))).await;
    let error = post(&server.url(), &Client::new()).await.unwrap_err();
    assert!(matches!(error, WebhookError::Answer(..)), "{error}");
}

#[tokio::test]
async fn what_is_no_http_and_a_closed_port_are_errors() {
    let server = Server::start(&[Way::Answer("SSH-2.0-OpenSSH_9.2\r\n")]).await;
    assert!(matches!(post(&server.url(), &Client::new()).await, Err(WebhookError::Answer(..))));
    let server = Server::start(&[Way::Close]).await;
    assert!(matches!(post(&server.url(), &Client::new()).await, Err(WebhookError::Answer(..))));
    // A port that was just free.
    let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let url = format!("http://127.0.0.1:{port}/").parse().unwrap();
    assert!(matches!(post(&url, &Client::new()).await, Err(WebhookError::Connect(..))));
}

#[tokio::test]
async fn t35_a_certificate_must_be_trusted_and_that_of_the_host() {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(signing_key.serialize_der()));
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let config = config.with_single_cert(vec![cert.der().clone()], key).unwrap();
    let server = Server::start_with(&[OK], Some(TlsAcceptor::from(Arc::new(config)))).await;
    let url = |host: &str| format!("https://{host}:{}/hooks", server.port).parse::<WebhookUrl>().unwrap();
    let trusting = Client::trusting(cert.der().clone());
    assert_eq!(post(&url("localhost"), &trusting).await, Ok(()));
    let error = post(&url("127.0.0.1"), &trusting).await.unwrap_err();
    assert!(matches!(error, WebhookError::Tls(..)), "{error}");
    let error = post(&url("localhost"), &Client::new()).await.unwrap_err();
    assert!(matches!(error, WebhookError::Tls(..)), "{error}");
}

#[tokio::test]
async fn t35_neither_a_metadata_service_nor_a_public_host_without_tls_is_contacted() {
    for url in
        ["http://169.254.169.254/latest/", "http://[fe80::1]/", "http://8.8.8.8/", "http://0.0.0.0:80/"]
    {
        let error = post(&url.parse().unwrap(), &Client::new()).await.unwrap_err();
        assert!(matches!(error, WebhookError::Destination(..)), "{url}: {error}");
    }
}
