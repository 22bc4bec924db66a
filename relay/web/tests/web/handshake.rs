//! Only a client that proves the key receives data; any other learns only that it was refused.

use crate::harness::{LONG, NONCE, Page, TestRelay, is_bye};
use futures_util::{SinkExt, StreamExt};
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::handshake::{Exchange, Key, LEN};
use nodeglass_protocol::live::{ClientMessage, CloseReason, KeyId, ServerMessage, Topic};
use nodeglass_protocol::version::{LIVE_WIRE, VersionRange};
use tokio_tungstenite::tungstenite::{Error, Message};

#[tokio::test]
async fn a_page_with_the_key_gets_the_picture_in_either_form() {
    let relay = TestRelay::start().await;
    for form in [Form::Binary, Form::Json] {
        let mut page = relay.page(form).await;
        let Some(ServerMessage::Welcome(welcome)) = page.prove(&relay.key).await else {
            panic!("not let in")
        };
        assert_eq!((welcome.proto, welcome.epoch, welcome.user.as_str()), (LIVE_WIRE, 17, "alice"));
        assert_eq!(welcome.build.as_str(), relay.build);
        page.send(&ClientMessage::Subscribe(vec![Topic::Overview])).await;
        let Some(ServerMessage::Snapshot(snapshot)) = page.receive().await else { panic!("no snapshot") };
        assert_eq!(snapshot.topic, Topic::Overview);
    }
}

#[tokio::test]
async fn t03_the_relay_proves_itself_before_the_page_does() {
    let relay = TestRelay::start().await;
    let mut page = relay.page(Form::Json).await;
    let ServerMessage::Challenge { nonce, code } = page.hello().await else { panic!("no challenge") };
    let exchange = Exchange { client: NONCE, server: nonce, authority: &relay.host() };
    assert!(exchange.accepts_server(&relay.key, &code));
    assert!(!exchange.accepts_server(&Key::new([8; LEN]), &code));
}

#[tokio::test]
async fn a_wrong_key_is_refused() {
    let relay = TestRelay::start().await;
    let mut page = relay.page(Form::Binary).await;
    assert!(is_bye(page.prove(&Key::new([8; LEN])).await, &CloseReason::Refused));
    assert_eq!(page.close_code().await, Some(1008));
}

#[tokio::test]
async fn an_intercepted_proof_cannot_be_replayed() {
    let relay = TestRelay::start().await;
    let mut first = relay.page(Form::Binary).await;
    let ServerMessage::Challenge { nonce, .. } = first.hello().await else { panic!("no challenge") };
    let code = Exchange { client: NONCE, server: nonce, authority: &relay.host() }.client_code(&relay.key);
    first.send(&ClientMessage::Proof { code }).await;
    assert!(matches!(first.receive().await, Some(ServerMessage::Welcome(_))));

    let mut second = relay.page(Form::Binary).await;
    let ServerMessage::Challenge { nonce: other, .. } = second.hello().await else { panic!("no challenge") };
    assert_ne!(nonce, other);
    second.send(&ClientMessage::Proof { code }).await;
    assert!(is_bye(second.receive().await, &CloseReason::Refused));
}

#[tokio::test]
async fn a_proof_for_another_place_is_worth_nothing() {
    let relay = TestRelay::start().await;
    let mut page = relay.page(Form::Binary).await;
    page.host = "evil.example:8080".to_owned();
    assert!(is_bye(page.prove(&relay.key).await, &CloseReason::Refused));
}

#[tokio::test]
async fn subscribing_before_the_proof_shows_nothing() {
    let relay = TestRelay::start().await;
    let subscribe = ClientMessage::Subscribe(vec![Topic::Overview]);
    let mut page = relay.page(Form::Json).await;
    page.send(&subscribe).await;
    assert!(is_bye(page.receive().await, &CloseReason::Unreadable));
    let mut page = relay.page(Form::Json).await;
    page.hello().await;
    page.send(&subscribe).await;
    assert!(is_bye(page.receive().await, &CloseReason::Unreadable));
    assert!(page.receive().await.is_none());
}

#[tokio::test]
async fn another_version_is_refused_with_the_relays_versions() {
    let relay = TestRelay::start().await;
    let mut page = relay.page(Form::Json).await;
    let proto = VersionRange { min: LIVE_WIRE + 1, max: LIVE_WIRE + 3 };
    page.send(&ClientMessage::Hello { proto, key: KeyId::Owner, nonce: NONCE }).await;
    assert!(is_bye(page.receive().await, &CloseReason::Version { relay: VersionRange::only(LIVE_WIRE) }));
}

#[tokio::test]
async fn t11_a_share_or_tab_that_does_not_exist_is_challenged_and_refused() {
    let relay = TestRelay::start().await;
    let id = || nodeglass_protocol::share::ShareId::new("s1").unwrap();
    for key in [KeyId::Share(id()), KeyId::Tab(id())] {
        let mut page = relay.page(Form::Json).await;
        let proto = VersionRange::only(LIVE_WIRE);
        page.send(&ClientMessage::Hello { proto, key, nonce: NONCE }).await;
        let Some(ServerMessage::Challenge { nonce, .. }) = page.receive().await else {
            panic!("no challenge")
        };
        let host = page.host.clone();
        let exchange = Exchange { client: NONCE, server: nonce, authority: &host };
        // Not even the owner's key is accepted.
        page.send(&ClientMessage::Proof { code: exchange.client_code(&relay.key) }).await;
        assert!(is_bye(page.receive().await, &CloseReason::Refused));
    }
}

#[tokio::test]
async fn garbage_instead_of_a_hello_is_rejected() {
    let relay = TestRelay::start().await;
    for rubbish in [
        Message::Binary(vec![0xff; 40].into()),
        Message::Binary(Vec::new().into()),
        Message::Text("{}".into()),
        Message::Text("[".repeat(900).into()),
        Message::Text(format!("{{\"subscribe\":[{}]}}", "\"overview\",".repeat(90)).into()),
        // A valid message, but larger than any first message.
        Message::Text(format!("{{\"hello\":{{\"proto\":{}}}}}", " ".repeat(2000)).into()),
    ] {
        for form in [Form::Binary, Form::Json] {
            let mut page = relay.page(form).await;
            page.socket.send(rubbish.clone()).await.unwrap();
            assert!(is_bye(page.receive().await, &CloseReason::Unreadable), "{form:?} {rubbish:?}");
            assert_eq!(page.close_code().await, Some(1008));
        }
    }
}

#[tokio::test]
async fn a_message_too_large_ends_the_connection() {
    let relay = TestRelay::start().await;
    let mut page = relay.page(Form::Binary).await;
    // The relay may disconnect before all of it is sent.
    let _ = page.socket.send(Message::Binary(vec![0; 1 << 20].into())).await;
    assert!(page.receive().await.is_none());

    let mut page = relay.page(Form::Binary).await;
    assert!(matches!(page.prove(&relay.key).await, Some(ServerMessage::Welcome(_))));
    let _ = page.socket.send(Message::Binary(vec![0; 17 * 1024].into())).await;
    assert!(page.receive().await.is_none());
}

#[tokio::test]
async fn t04_t06_only_the_relays_own_page_may_open_a_websocket() {
    let relay = TestRelay::start().await;
    let port = relay.addr.port();
    for origin in [
        None,
        Some("null".to_owned()),
        Some("http://evil.example".to_owned()),
        Some(format!("https://127.0.0.1:{port}")),
        Some(format!("http://127.0.0.1:{}", port ^ 1)),
        Some(format!("http://localhost:{port}")),
        Some("http://127.0.0.1".to_owned()),
        Some(format!("http://127.0.0.1:{port}.evil.example")),
    ] {
        let headers: Vec<_> = origin.iter().map(|origin| ("Origin", origin.as_str())).collect();
        match relay.page_with(Form::Binary, &headers).await {
            Err(Error::Http(reply)) => assert_eq!(reply.status(), 403, "{origin:?}"),
            other => panic!("{origin:?}: {:?}", other.map(|_| "let in")),
        }
    }
    // Not a WebSocket at all: no different without the right origin, and no data with it.
    assert_eq!(relay.request("GET /live", &[]).await.status, 403);
    let own = format!("http://{}", relay.host());
    assert_eq!(relay.request("GET /live", &[("Origin", &own)]).await.status, 400);
}

#[tokio::test]
async fn an_unknown_subprotocol_is_refused_with_the_known_ones() {
    let relay = TestRelay::start().await;
    let own = format!("http://{}", relay.host());
    let mut headers = vec![
        ("Origin", own.as_str()),
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA=="),
    ];
    for subprotocol in [None, Some("nodeglass.v9"), Some("graphql-ws")] {
        headers.truncate(4);
        headers.extend(subprotocol.map(|name| ("Sec-WebSocket-Protocol", name)));
        let head: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let request =
            format!("GET /live HTTP/1.1\r\nHost: {}\r\nConnection: upgrade\r\n{head}\r\n", relay.host());
        // The connection stays open after a 400, so only its first bytes are read.
        let reply = first_bytes(&relay, &request).await;
        assert!(reply.starts_with("HTTP/1.1 400 ") && reply.contains("nodeglass.v1.json"), "{reply}");
    }
}

async fn first_bytes(relay: &TestRelay, request: &str) -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(relay.addr).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut bytes = vec![0; 4096];
    let len = tokio::time::timeout(LONG, stream.read(&mut bytes)).await.unwrap().unwrap();
    String::from_utf8_lossy(&bytes[..len]).into_owned()
}

#[tokio::test]
async fn shutdown_is_announced_and_not_delayed_by_clients() {
    let relay = TestRelay::start().await;
    let mut pages: Vec<Page> = Vec::new();
    for form in [Form::Binary, Form::Json] {
        let mut page = relay.page(form).await;
        assert!(matches!(page.prove(&relay.key).await, Some(ServerMessage::Welcome(_))));
        pages.push(page);
    }
    // One more that never reads again.
    let deaf = relay.page(Form::Binary).await;
    let ended = tokio::spawn(relay.stop());
    for mut page in pages {
        assert!(is_bye(page.receive().await, &CloseReason::ShuttingDown));
        let close = tokio::time::timeout(LONG, page.socket.next()).await.unwrap();
        let Some(Ok(Message::Close(Some(frame)))) = close else { panic!("{close:?}") };
        assert_eq!(u16::from(frame.code), 1001);
        assert!(frame.reason.contains("the next one has a new link"), "{}", frame.reason);
    }
    ended.await.unwrap();
    drop(deaf);
}
