//! A Unix socket serves like a port, for its owner only, and ends with the relay.

use crate::harness::TestRelay;
use std::fs;
use std::os::unix::fs::MetadataExt as _;

#[tokio::test]
async fn a_unix_socket_is_for_its_owner_and_does_not_outlive_the_relay() {
    use nodeglass_web::{BindError, bind};
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("relay.sock");
    let addr = format!("unix:{}", path.display()).parse().unwrap();
    let listeners = bind(std::slice::from_ref(&addr), None).await.unwrap();
    assert_eq!(path.symlink_metadata().unwrap().mode() & 0o777, 0o600);
    assert_eq!(listeners.addresses(), std::slice::from_ref(&addr));
    assert!(matches!(bind(std::slice::from_ref(&addr), None).await, Err(BindError::InUse { .. })));
    drop(listeners);
    assert!(!path.exists());
    // A file left by a killed relay gives way; a file of another kind does not.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    drop(bind(std::slice::from_ref(&addr), None).await.unwrap());
    fs::write(&path, "mine").unwrap();
    assert!(matches!(bind(std::slice::from_ref(&addr), None).await, Err(BindError::NotASocket(_))));
    assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
}

#[tokio::test]
async fn a_unix_socket_is_served_like_a_port() {
    use axum::{Router, routing::get};
    use nodeglass_access::peer::Peer;
    use nodeglass_web::{Connection, bind};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("relay.sock");
    let listeners = bind(&[format!("unix:{}", path.display()).parse().unwrap()], None).await.unwrap();
    let router = Router::new().route("/", get(|who: Connection| async move { format!("{:?}", who.peer) }));
    let (end, ending) = tokio::sync::watch::channel(false);
    let serving = tokio::spawn(nodeglass_web::serve(listeners, router, Default::default(), ending));
    let mut stream = tokio::net::UnixStream::connect(&path).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).await.unwrap();
    assert!(reply.ends_with(&format!("{:?}", Peer::owner())), "{reply}");
    end.send(true).unwrap();
    serving.await.unwrap();
    assert!(!path.exists());
}

/// A hub, whose server for this user runs as the user and has authenticated the browser.
const HUB: (&str, &str) = ("Host", "hub.example.org");

#[tokio::test]
async fn t02_the_owner_behind_a_proxy_of_their_own_needs_no_key() {
    let relay = TestRelay::start().await;
    let get = async |path: &str, more: &[(&str, &str)]| {
        let headers = [&[HUB], more].concat();
        relay.request_by_owners_proxy(&format!("GET {path}"), &headers).await
    };
    // Also beside the credentials that the proxy itself uses.
    for more in [&[][..], &[("Authorization", "token jupyter")], &[("Origin", "https://hub.example.org")]] {
        assert_eq!(get("/api/v1/shares", more).await.status, 200, "{more:?}");
    }
    let page = get("/", &[]).await.body;
    assert!(page.contains("<meta name=\"nodeglass-keyless\" content=\"yes\">"), "{page}");
    // No other way into the relay is open.
    assert_eq!(relay.request("GET /api/v1/shares", &[]).await.status, 401);
}

#[tokio::test]
async fn t04_a_page_of_another_origin_acts_for_no_owner_behind_a_proxy() {
    let relay = TestRelay::start().await;
    let upgrade = [
        HUB,
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("Sec-WebSocket-Protocol", "nodeglass.json"),
    ];
    for (origin, is_own) in [
        (Some("https://hub.example.org"), true),
        (Some("https://hub.example.org:8443"), false),
        (Some("https://evil.example"), false),
        (Some("https://hub.example.org.evil.example"), false),
        (Some("null"), false),
        (None, false),
    ] {
        let origin: Vec<_> = origin.map(|origin| ("Origin", origin)).into_iter().collect();
        if let Some(one) = origin.first() {
            let status = relay.request_by_owners_proxy("POST /api/v1/shares", &[HUB, *one]).await.status;
            assert_eq!(status == 403, !is_own, "{origin:?}: {status}");
        }
        let status =
            relay.request_by_owners_proxy("GET /live", &[&upgrade[..], &origin].concat()).await.status;
        assert_eq!(status == 403, !is_own, "{origin:?}: {status}");
    }
    // Another one may end TLS before the proxy, but a page without TLS is none of a proxy that has it.
    for (origin, is_own) in [("https://hub.example.org", true), ("http://hub.example.org", false)] {
        let headers = [HUB, ("X-Forwarded-Proto", "https"), ("Origin", origin)];
        let status = relay.request_by_owners_proxy("POST /api/v1/shares", &headers).await.status;
        assert_eq!(status == 403, !is_own, "{origin}: {status}");
    }
    let foreign = [HUB, ("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "no-cors")];
    assert_eq!(relay.request_by_owners_proxy("GET /api/v1/jobs", &foreign).await.status, 403);
}
