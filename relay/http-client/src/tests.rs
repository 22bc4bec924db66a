//! Requests to a real server on loopback, and to what may not be contacted.

use crate::test_server::{Server, Way};
use crate::{Client, HttpError, HttpUrl};
use hyper::header::HeaderMap;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

/// Longer than any step takes on a slow machine.
const LONG: Duration = Duration::from_secs(30);

/// One attempt.
async fn post(url: &HttpUrl, client: &Client) -> Result<(), HttpError> {
    let attempt = client.post(url, HeaderMap::new(), "{}".into(), 0, LONG);
    tokio::time::timeout(LONG, attempt).await.expect("the time limit of the client").map(drop)
}

const OK: Way = Way::Answer("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");

#[tokio::test]
async fn t35_a_redirect_is_not_followed() {
    let target = Server::start(&[OK]).await;
    let location = format!("HTTP/1.1 307 Moved\r\nLocation: {}\r\nContent-Length: 0\r\n\r\n", target.port);
    let ways = Box::leak(Box::new([Way::Answer(Box::leak(location.into_boxed_str()))]));
    let server = Server::start(ways).await;
    let error = post(&server.url(), &Client::default()).await.unwrap_err();
    assert_eq!(error, HttpError::Redirect("127.0.0.1".into(), 307));
    assert_eq!(target.connections(), 0);
}

#[tokio::test]
async fn t35_a_server_that_hangs_costs_the_time_limit_and_no_more() {
    let server = Server::start(&[Way::Hang]).await;
    let client = Client::within(Duration::from_secs(1));
    let began = Instant::now();
    assert_eq!(post(&server.url(), &client).await, Err(HttpError::TimedOut("127.0.0.1".into(), 1)));
    assert!(began.elapsed() < LONG);
}

#[tokio::test]
async fn t35_an_endless_answer_is_not_read() {
    let endless = Way::Endless("HTTP/1.1 200 OK\r\n\r\n");
    let server = Server::start(Box::leak(Box::new([endless]))).await;
    assert_eq!(post(&server.url(), &Client::default()).await, Ok(()));
    let endless = Way::Endless("HTTP/1.1 500 No\r\n\r\n");
    let server = Server::start(Box::leak(Box::new([endless]))).await;
    let Err(HttpError::Status { status: 500, text, .. }) = post(&server.url(), &Client::default()).await
    else {
        panic!("a refusal")
    };
    assert_eq!(text, "x".repeat(200));
    // Nor a head that does not end.
    let endless = Way::Endless("HTTP/1.1 200 OK\r\nX: ");
    let server = Server::start(Box::leak(Box::new([endless]))).await;
    let error = post(&server.url(), &Client::default()).await.unwrap_err();
    assert!(matches!(error, HttpError::Answer(..)), "{error}");
}

#[tokio::test]
async fn what_is_no_http_and_a_closed_port_are_errors() {
    let server = Server::start(&[Way::Answer("SSH-2.0-OpenSSH_9.2\r\n")]).await;
    assert!(matches!(post(&server.url(), &Client::default()).await, Err(HttpError::Answer(..))));
    let server = Server::start(&[Way::Close]).await;
    assert!(matches!(post(&server.url(), &Client::default()).await, Err(HttpError::Answer(..))));
    // A port that was just free.
    let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let url = format!("http://127.0.0.1:{port}/").parse().unwrap();
    assert!(matches!(post(&url, &Client::default()).await, Err(HttpError::Connect(..))));
}

#[tokio::test]
async fn t35_a_certificate_must_be_trusted_and_that_of_the_host() {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(signing_key.serialize_der()));
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let config = config.with_single_cert(vec![cert.der().clone()], key).unwrap();
    let server = Server::start_with(&[OK], Some(TlsAcceptor::from(Arc::new(config)))).await;
    let url = |host: &str| format!("https://{host}:{}/hooks", server.port).parse::<HttpUrl>().unwrap();
    let trusting = Client::trusting(cert.der().clone());
    assert_eq!(post(&url("localhost"), &trusting).await, Ok(()));
    let error = post(&url("127.0.0.1"), &trusting).await.unwrap_err();
    assert!(matches!(error, HttpError::Tls(..)), "{error}");
    let error = post(&url("localhost"), &Client::default()).await.unwrap_err();
    assert!(matches!(error, HttpError::Tls(..)), "{error}");
}

#[tokio::test]
async fn t35_neither_a_metadata_service_nor_a_public_host_without_tls_is_contacted() {
    for url in
        ["http://169.254.169.254/latest/", "http://[fe80::1]/", "http://8.8.8.8/", "http://0.0.0.0:80/"]
    {
        let error = post(&url.parse().unwrap(), &Client::default()).await.unwrap_err();
        assert!(matches!(error, HttpError::Destination(..)), "{url}: {error}");
    }
}
