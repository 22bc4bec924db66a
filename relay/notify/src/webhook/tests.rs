//! Posts to a real server on loopback.

use super::*;
use nodeglass_http_client::test_server::{Server, Way};
use std::time::{Duration, Instant};

/// Longer than any step takes on a slow machine.
const LONG: Duration = Duration::from_secs(30);

fn payload() -> Payload {
    Payload::Json(serde_json::json!({ "job": 17, "name": "träin" }))
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
    assert!(matches!(error, HttpError::Status { status: 500, .. }), "{error}");
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

#[test]
fn slack_is_recognised_by_its_domain() {
    for (url, expected) in [
        ("https://hooks.slack.com/services/T0/B0/x", true),
        ("https://hooks.slack-gov.com/services/T0/B0/x", true),
        ("https://hooks.notslack.com/x", false),
        ("https://slack.com.example.org/x", false),
        ("https://chat.example.org/slack.com", false),
    ] {
        assert_eq!(is_slack(&url.parse().unwrap()), expected, "{url}");
    }
}
