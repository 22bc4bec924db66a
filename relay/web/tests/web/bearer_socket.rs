//! A program opens the WebSocket with its key as bearer token, and sees what that key shows.

use crate::harness::{Page, TestRelay, is_bye};
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::live::{ClientMessage, CloseReason, Role, ServerMessage, Topic, Welcome};
use nodeglass_protocol::request::{Request, Response, RetryTarget};
use tokio_tungstenite::tungstenite::Error;

/// Opens the WebSocket with a key; returns its first message.
pub async fn open(relay: &TestRelay, secret: &str) -> (Page, Box<Welcome>) {
    let bearer = format!("Bearer {secret}");
    let mut page = relay.page_with(Form::Json, &[("Authorization", &bearer)]).await.expect("a WebSocket");
    let Some(ServerMessage::Welcome(welcome)) = page.receive().await else { panic!("no welcome") };
    (page, welcome)
}

/// Sends a request with a body as the owner.
async fn send(relay: &TestRelay, request: &str, body: &str) -> serde_json::Value {
    let head = format!(
        "{request} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        relay.host(),
        relay.key.reveal(),
        body.len()
    );
    let reply = relay.send_raw(&head).await;
    assert!(reply.status < 300, "{reply:?}");
    serde_json::from_str(&reply.body).unwrap_or_default()
}

#[tokio::test]
async fn a_program_sends_its_key_with_the_request_and_needs_no_handshake() {
    let relay = TestRelay::start().await;
    let (mut page, welcome) = open(&relay, &relay.key.reveal()).await;
    assert_eq!((welcome.role, welcome.may_act), (Role::Owner, true));
    page.send(&ClientMessage::Subscribe(vec![Topic::Overview])).await;
    let Some(ServerMessage::Snapshot(snapshot)) = page.receive().await else { panic!("no snapshot") };
    assert_eq!(snapshot.topic, Topic::Overview);
}

#[tokio::test]
async fn t09_a_token_watches_but_does_not_act_and_is_disconnected_when_revoked() {
    let relay = TestRelay::start().await;
    let made = send(&relay, "POST /api/v1/tokens", r#"{"name":"script"}"#).await;
    let (mut page, welcome) = open(&relay, made["secret"].as_str().unwrap()).await;
    assert!(!welcome.may_act);
    let request = Request::Retry(RetryTarget::Everything);
    page.send(&ClientMessage::Request { number: 1, request }).await;
    let answer = page.receive().await;
    let is_refused = |response: &Response| !matches!(response, Response::Done(_));
    assert!(
        matches!(&answer, Some(ServerMessage::Response { response, .. }) if is_refused(response)),
        "{answer:?}"
    );
    send(&relay, "DELETE /api/v1/tokens/script", "").await;
    assert!(is_bye(page.receive().await, &CloseReason::Revoked));
}

#[tokio::test]
async fn t09_the_key_of_a_share_shows_what_the_share_shows() {
    let relay = TestRelay::start().await;
    let made = send(&relay, "POST /api/v1/shares", r#"{"scope":"all","label":"bob"}"#).await;
    let secret = made["link"].as_str().unwrap().split_once("#s=").unwrap().1.to_owned();
    let (mut page, welcome) = open(&relay, &secret).await;
    assert_eq!((welcome.role, welcome.may_act), (Role::Guest, false));
    let id = made["share"]["id"].as_str().unwrap();
    send(&relay, &format!("DELETE /api/v1/shares/{id}"), "").await;
    assert!(is_bye(page.receive().await, &CloseReason::Revoked));
}

#[tokio::test]
async fn a_wrong_key_is_refused_with_problem_details_before_the_upgrade() {
    let relay = TestRelay::start().await;
    let refused = relay.page_with(Form::Json, &[("Authorization", "Bearer wrong")]).await;
    let Err(Error::Http(reply)) = refused else { panic!("let in") };
    assert_eq!(
        (reply.status().as_u16(), &reply.headers()["content-type"]),
        (401, &"application/problem+json".parse().unwrap())
    );
    // A page of another site is refused whatever it sends.
    let bearer = format!("Bearer {}", relay.key.reveal());
    let headers = [("Authorization", bearer.as_str()), ("Origin", "http://evil.example")];
    let Err(Error::Http(reply)) = relay.page_with(Form::Json, &headers).await else { panic!("let in") };
    assert_eq!(reply.status(), 403);
}
