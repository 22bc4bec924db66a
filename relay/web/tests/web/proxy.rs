//! Forwarded headers count from a trusted proxy only.

use crate::harness::{NONCE, PORTAL, Page, TestRelay, USER_HEADER};
use nodeglass_auth::authenticator::MAX_FAILURES;
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::handshake::{Exchange, Key};
use nodeglass_protocol::live::{ClientMessage, ServerMessage};
use tokio_tungstenite::tungstenite::Error;

type Headers<'a> = &'a [(&'static str, &'a str)];

/// The status of a request to a host with these headers.
async fn status(relay: &TestRelay, host: &str, headers: Headers<'_>) -> u16 {
    let lines: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let request = format!("GET /healthz HTTP/1.1\r\nHost: {host}\r\n{lines}Connection: close\r\n\r\n");
    relay.send_raw(&request).await.status
}

fn refusal(page: Result<Page, Error>) -> u16 {
    match page {
        Err(Error::Http(reply)) => reply.status().as_u16(),
        other => panic!("{:?}", other.map(|_| "let in")),
    }
}

/// Returns whether a page at `authority` is admitted.
async fn is_admitted(mut page: Page, key: &Key, authority: &str) -> bool {
    let ServerMessage::Challenge { nonce, code } = page.hello().await else { panic!("no challenge") };
    let exchange = Exchange { client: NONCE, server: nonce, authority };
    if !exchange.accepts_server(key, &code) {
        return false;
    }
    page.send(&ClientMessage::Proof { code: exchange.client_code(key) }).await;
    matches!(page.receive().await, Some(ServerMessage::Welcome(_)))
}

const SPOOFED: Headers<'static> = &[
    ("X-Forwarded-Host", PORTAL),
    ("X-Forwarded-Proto", "https"),
    ("X-Forwarded-For", "127.0.0.1"),
    ("Forwarded", "for=127.0.0.1;host=portal.example.org;proto=https"),
];

#[tokio::test]
async fn t27_forwarded_headers_of_a_direct_client_are_ignored() {
    let relay = TestRelay::start().await;
    let host = relay.host();
    // Neither for the better …
    assert_eq!(status(&relay, "evil.example", SPOOFED).await, 421);
    let from = |origin: &'static str| [SPOOFED, &[("Origin", origin)]].concat();
    let portal = from("https://portal.example.org");
    assert_eq!(refusal(relay.page_with(Form::Binary, &portal).await), 403);
    // … nor for the worse.
    for name in ["X-Forwarded-Host", "X-Forwarded-Proto"] {
        assert_eq!(status(&relay, &host, &[(name, "evil.example"), (name, "x")]).await, 200);
    }
    let own = format!("http://{host}");
    let headers: Vec<_> = SPOOFED.iter().copied().chain([("Origin", own.as_str())]).collect();
    let page = relay.page_with(Form::Binary, &headers).await.unwrap();
    assert!(is_admitted(page, &relay.key, &host).await);
    // Attempts count for their sender, whatever name the headers contain.
    for guess in 0..MAX_FAILURES {
        let client = format!("203.0.113.{guess}");
        let headers = [("Authorization", "Bearer wrong"), ("X-Forwarded-For", client.as_str())];
        assert_eq!(relay.request("GET /api/v1/picture", &headers).await.status, 401);
    }
    assert_eq!(
        relay.request("GET /api/v1/picture", &[("X-Forwarded-For", "203.0.113.99")]).await.status,
        429
    );
}

#[tokio::test]
async fn t27_a_trusted_proxy_states_the_requested_host_once() {
    let relay = TestRelay::start_behind_us().await;
    let forwarded = "X-Forwarded-Host";
    assert_eq!(status(&relay, "backend:1", &[(forwarded, PORTAL)]).await, 200);
    assert_eq!(status(&relay, &relay.host(), &[(forwarded, "evil.example")]).await, 421);
    assert_eq!(status(&relay, "backend:1", &[]).await, 421);
    for twice in
        [&[(forwarded, PORTAL), (forwarded, PORTAL)][..], &[(forwarded, "portal.example.org, localhost")]]
    {
        assert_eq!(status(&relay, &relay.host(), twice).await, 400, "{twice:?}");
    }
    assert_eq!(status(&relay, &relay.host(), &[("X-Forwarded-Proto", "gopher")]).await, 400);
}

#[tokio::test]
async fn t27_through_a_trusted_proxy_the_page_is_that_of_the_proxys_origin() {
    let relay = TestRelay::start_behind_us().await;
    let by = |origin: &'static str, scheme: &'static str| {
        [
            ("X-Forwarded-Host", PORTAL),
            ("X-Forwarded-Proto", scheme),
            ("Origin", origin),
            ("X-Forwarded-User", "alice"),
        ]
    };
    let page = relay.page_with(Form::Json, &by("https://portal.example.org", "https")).await.unwrap();
    assert!(is_admitted(page, &relay.key, PORTAL).await);
    let page = relay.page_with(Form::Json, &by("https://portal.example.org", "https")).await.unwrap();
    assert!(!is_admitted(page, &relay.key, &relay.host()).await, "the proof is for another place");
    for (origin, scheme) in [
        ("http://portal.example.org", "https"),
        ("https://portal.example.org", "http"),
        ("https://portal.example.org:444", "https"),
        ("https://evil.example", "https"),
        ("null", "https"),
    ] {
        assert_eq!(refusal(relay.page_with(Form::Json, &by(origin, scheme)).await), 403, "{origin} {scheme}");
    }
}

/// Such as nginx with `auth_basic`, and Apache with Kerberos: they forward what the browser sent to them.
#[tokio::test]
async fn t27_what_authenticates_a_visitor_to_the_proxy_is_no_key() {
    let relay = TestRelay::start_behind_us().await;
    for password in ["Basic YWxpY2U6c2VjcmV0", "Negotiate YIIF"] {
        let program =
            [("X-Forwarded-Host", PORTAL), ("X-Forwarded-User", "alice"), ("Authorization", password)];
        let browser = [&program[..], &[("Origin", "http://portal.example.org")]].concat();
        let page = relay.page_with(Form::Json, &browser).await.unwrap();
        assert!(is_admitted(page, &relay.key, PORTAL).await, "{password}");
        assert_eq!(refusal(relay.page_with(Form::Json, &program).await), 403, "{password} without Origin");
        assert_eq!(relay.request("GET /api/v1/jobs", &program).await.status, 401, "{password}");
    }
}

#[tokio::test]
async fn t27_one_behind_a_proxy_cannot_shut_out_another() {
    let relay = TestRelay::start_behind_us().await;
    let right = format!("Bearer {}", relay.key.reveal());
    let request = async |key: &str, from: &str, user: &'static str| {
        // Everything before the last address was sent by the visitor.
        let from = format!("198.51.100.7, {from}");
        let headers =
            [("Authorization", key), ("X-Forwarded-For", from.as_str()), ("X-Forwarded-User", user)];
        relay.request("GET /api/v1/picture", &headers).await.status
    };
    for _ in 0..MAX_FAILURES {
        assert_eq!(request("Bearer wrong", "203.0.113.9", "").await, 401);
    }
    assert_eq!(request("Bearer wrong", "203.0.113.9", "").await, 429);
    assert_eq!(request("Bearer wrong", "203.0.113.10", "").await, 401);
    for from in ["203.0.113.9", "203.0.113.10"] {
        assert_eq!(request(&right, from, "alice").await, 200, "{from}");
        assert_eq!(request(&right, from, "mallory").await, 403, "{from}");
    }
    assert_eq!(relay.request("GET /api/v1/picture", &[("Authorization", &right)]).await.status, 200);
}

#[tokio::test]
async fn t27_an_ambiguous_user_header_is_rejected() {
    let relay = TestRelay::start_behind_us().await;
    let right = format!("Bearer {}", relay.key.reveal());
    let request = async |users: &[&'static str]| {
        let users = users.iter().map(|user| (USER_HEADER, *user));
        let named = [("Authorization", right.as_str()), ("X-Forwarded-For", "203.0.113.9")];
        let headers: Vec<_> = named.into_iter().chain(users).collect();
        relay.request("GET /api/v1/picture", &headers).await.status
    };
    assert_eq!(request(&["alice"]).await, 200);
    for (users, status) in [
        (&[][..], 403),
        (&[""], 403),
        (&["bob"], 403),
        (&["alice", "alice"], 400),
        (&["bob", "alice"], 400),
        (&["bob,alice"], 400),
    ] {
        assert_eq!(request(users).await, status, "{users:?}");
    }
    // Only the proxy is trusted, and only its requests need trust.
    let direct = TestRelay::start().await;
    let key = format!("Bearer {}", direct.key.reveal());
    let headers = [("Authorization", key.as_str()), (USER_HEADER, "bob"), (USER_HEADER, "mallory")];
    assert_eq!(direct.request("GET /api/v1/picture", &headers).await.status, 200);
}
