//! Connections, attempts, time and message sizes of unauthenticated clients are limited.

use crate::harness::{LONG, TestRelay, is_bye};
use nodeglass_auth::authenticator::{
    FAILURE_DELAY_MS, HANDSHAKE_TIMEOUT_MS, MAX_FAILURES, MAX_PENDING_OWNER,
};
use nodeglass_fleet::{Event, Fleet};
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::handshake::{Key, LEN};
use nodeglass_protocol::job::{Job, JobState};
use nodeglass_protocol::live::{ClientMessage, CloseReason, MAX_CLIENT_MESSAGE, ServerMessage, Topic};
use nodeglass_protocol::{JobId, NodeName};
use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tokio_tungstenite::tungstenite::Error;

fn status(error: Result<crate::harness::Page, Error>) -> u16 {
    match error {
        Err(Error::Http(reply)) => reply.status().as_u16(),
        other => panic!("{:?}", other.map(|_| "let in")),
    }
}

#[tokio::test]
async fn a_client_that_does_not_prove_the_key_in_time_is_closed() {
    let relay = TestRelay::start().await;
    let mut silent = relay.page(Form::Binary).await;
    let mut halfway = relay.page(Form::Json).await;
    let started = Instant::now();
    halfway.hello().await;
    assert_eq!(silent.close_code().await, Some(4408));
    assert_eq!(halfway.close_code().await, Some(4408));
    assert!(started.elapsed() >= Duration::from_millis(HANDSHAKE_TIMEOUT_MS - 1_000));
}

#[tokio::test]
async fn t19_the_number_of_unauthenticated_connections_is_limited() {
    let relay = TestRelay::start().await;
    let origin = format!("http://{}", relay.host());
    let own = [("Origin", origin.as_str())];
    let mut waiting = Vec::new();
    for _ in 0..MAX_PENDING_OWNER {
        waiting.push(relay.page(Form::Binary).await);
    }
    assert_eq!(status(relay.page_with(Form::Binary, &own).await), 503);
    // Clients that prove the key no longer count as pending.
    assert!(matches!(waiting[0].prove(&relay.key).await, Some(ServerMessage::Welcome(_))));
    assert!(relay.page_with(Form::Binary, &own).await.is_ok());
}

#[tokio::test]
async fn wrong_keys_are_throttled_and_the_owner_is_shut_out_by_none_of_them() {
    let relay = TestRelay::start().await;
    let mut inside = relay.page(Form::Binary).await;
    assert!(matches!(inside.prove(&relay.key).await, Some(ServerMessage::Welcome(_))));
    let guess = async |number: usize| {
        let (mut page, began) = (relay.page(Form::Binary).await, Instant::now());
        assert!(is_bye(page.prove(&Key::new([number as u8 + 100; LEN])).await, &CloseReason::Refused));
        began.elapsed()
    };
    for number in 0..MAX_FAILURES {
        guess(number).await;
    }
    assert!(
        guess(MAX_FAILURES).await >= Duration::from_millis(FAILURE_DELAY_MS),
        "one more is answered at once"
    );
    // The correct key is accepted meanwhile, from a page and from a script.
    let mut page = relay.page(Form::Binary).await;
    assert!(matches!(page.prove(&relay.key).await, Some(ServerMessage::Welcome(_))));
    let right = format!("Bearer {}", relay.key.reveal());
    assert_eq!(relay.request("GET /api/v1/shares", &[("Authorization", &right)]).await.status, 200);
    inside.send(&ClientMessage::Subscribe(vec![Topic::Overview])).await;
    assert!(matches!(inside.receive().await, Some(ServerMessage::Snapshot(_))));
}

#[tokio::test]
async fn a_client_that_sends_too_much_is_closed() {
    let relay = TestRelay::start().await;
    let mut page = relay.page(Form::Binary).await;
    assert!(matches!(page.prove(&relay.key).await, Some(ServerMessage::Welcome(_))));
    for _ in 0..200 {
        use futures_util::SinkExt;
        let message = page.form.encode(&ClientMessage::Subscribe(Vec::new()));
        if page.socket.send(tokio_tungstenite::tungstenite::Message::Binary(message.into())).await.is_err() {
            break;
        }
    }
    let code = page.close_code().await;
    assert!(matches!(code, Some(4429) | None), "{code:?}");
    assert!(page.receive().await.is_none());
}

#[tokio::test]
async fn an_invalid_message_closes_the_connection() {
    let relay = TestRelay::start().await;
    let mut page = relay.page(Form::Json).await;
    assert!(matches!(page.prove(&relay.key).await, Some(ServerMessage::Welcome(_))));
    use futures_util::SinkExt;
    page.socket.send("{\"launch\":\"missiles\"}".into()).await.unwrap();
    assert!(is_bye(page.receive().await, &CloseReason::Unreadable));
}

/// A fleet whose snapshot is larger than what the sockets between relay and page hold.
fn large_fleet() -> Fleet {
    let job = Job {
        nodes: (0..20_000).map(|i| NodeName::new(format!("node-{i}")).unwrap()).collect(),
        node_count: 20_000,
        ..Job::new(JobId(17), "alice".into(), JobState::Running)
    };
    let mut fleet = Fleet::new();
    fleet.handle(Event::Jobs { jobs: vec![job], wall_ahead_ms: 0 }, 0);
    fleet
}

/// Every user of this machine can send these requests, as often as they like.
#[tokio::test]
async fn t11_what_is_answered_without_a_key_costs_about_as_much_as_nothing() {
    let relay = TestRelay::start_with(large_fleet()).await;
    // Relay and client run on this thread.
    let cost = async |path: &str| {
        let spent = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap();
        let before = spent();
        for _ in 0..20 {
            relay.request(&format!("HEAD {path}"), &[]).await;
        }
        spent() - before
    };
    // The first answer may be kept.
    for path in ["/healthz", "/readyz", "/api/v1/openapi.json"] {
        relay.request(&format!("HEAD {path}"), &[]).await;
    }
    let nothing = cost("/healthz").await;
    for path in ["/readyz", "/api/v1/openapi.json", "/status", "/metrics", "/api/v1/snapshot"] {
        let spent = cost(path).await;
        assert!(spent < 10 * nothing, "{path}: {spent:?}, nothing: {nothing:?}");
    }
}

#[tokio::test]
async fn f16_t20_a_client_that_does_not_read_is_closed() {
    use futures_util::StreamExt;
    let relay = TestRelay::start_with(large_fleet()).await;
    let subscribed = async || {
        let mut page = relay.page(Form::Json).await;
        assert!(matches!(page.prove(&relay.key).await, Some(ServerMessage::Welcome(_))));
        page.send(&ClientMessage::Subscribe(vec![Topic::Overview])).await;
        page
    };
    let mut reader = subscribed().await;
    let snapshot_len = loop {
        let message = timeout(LONG, reader.socket.next()).await.expect("a snapshot").unwrap().unwrap();
        if message.is_text() {
            break message.len();
        }
    };
    drop(reader);
    let mut page = subscribed().await;
    // Once the first bytes arrive, the relay is sending far more than the sockets in between hold.
    timeout(LONG, page.socket.get_ref().readable()).await.expect("the snapshot begins").unwrap();
    // A paused clock advances whenever every task waits, so these forty seconds cost nothing.
    tokio::time::pause();
    let before = Instant::now();
    tokio::time::sleep(Duration::from_secs(40)).await;
    tokio::time::resume();
    assert!(before.elapsed() >= Duration::from_secs(40));
    // Buffered bytes still arrive, but not the whole snapshot.
    let mut rest = Vec::new();
    let _ = timeout(LONG, page.socket.get_mut().read_to_end(&mut rest))
        .await
        .expect("the relay has closed the connection");
    assert!(!rest.is_empty() && rest.len() < snapshot_len, "{} of {snapshot_len} bytes", rest.len());
}

#[tokio::test]
async fn t19_a_slow_request_head_times_out() {
    let relay = TestRelay::start().await;
    let stream = TcpStream::connect(relay.addr).await.unwrap();
    let (mut from, mut to) = stream.into_split();
    to.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ").await.unwrap();
    // Sent often enough that no idle timeout ends it.
    let trickle = async {
        while to.write_all(b"z").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    let mut out = Vec::new();
    tokio::select! {
        // The relay's own timeout ends it.
        _ = from.read_to_end(&mut out) => {}
        () = trickle => {}
        () = tokio::time::sleep(LONG) => panic!("the relay keeps waiting"),
    }
}

#[tokio::test]
async fn t19_an_idle_connection_is_closed() {
    let relay = TestRelay::start().await;
    let mut idle = TcpStream::connect(relay.addr).await.unwrap();
    idle.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut out = Vec::new();
    timeout(LONG, idle.read_to_end(&mut out)).await.expect("the relay closes").unwrap();
    assert!(out.ends_with(b"ok\n"), "{}", String::from_utf8_lossy(&out));
}

#[tokio::test]
async fn an_event_stream_ends_whole_when_its_connection_is_old() {
    let relay = TestRelay::start().await;
    let mut stream = TcpStream::connect(relay.addr).await.unwrap();
    let head = format!(
        "GET /api/v1/events HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\r\n",
        relay.host(),
        relay.key.reveal()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut out = Vec::new();
    while !String::from_utf8_lossy(&out).contains("event: snapshot") {
        assert_ne!(timeout(LONG, stream.read_buf(&mut out)).await.unwrap().unwrap(), 0, "it is open");
    }
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(120)).await;
    tokio::time::resume();
    timeout(LONG, stream.read_to_end(&mut out)).await.expect("the relay closes").unwrap();
    assert!(out.ends_with(b"\r\n0\r\n\r\n"), "{}", String::from_utf8_lossy(&out));
}

/// The head of a client's frame: opcode, final flag, and length.
fn frame_head(opcode: u8, is_last: bool, len: u64) -> Vec<u8> {
    let mut head =
        vec![opcode | if is_last { 0x80 } else { 0 }, 0x80 | if len < 126 { len as u8 } else { 127 }];
    if len >= 126 {
        head.extend(len.to_be_bytes());
    }
    head.extend([0; 4]);
    head
}

const BINARY: u8 = 2;
const CONTINUED: u8 = 0;

#[tokio::test]
async fn t19_a_frame_with_an_excessive_length_is_refused_at_once() {
    let relay = TestRelay::start().await;
    for len in [MAX_CLIENT_MESSAGE as u64 + 1, 1 << 20, 1 << 30, u64::MAX >> 1] {
        let mut page = relay.page(Form::Binary).await;
        assert!(matches!(page.prove(&relay.key).await, Some(ServerMessage::Welcome(_))));
        let started = Instant::now();
        page.socket.get_mut().write_all(&frame_head(BINARY, true, len)).await.unwrap();
        assert!(page.receive().await.is_none(), "{len}");
        assert!(
            started.elapsed() < Duration::from_secs(20),
            "{len}: closed by the idle timeout and not by its size"
        );
    }
}

#[tokio::test]
async fn t19_a_message_of_a_million_fragments_is_refused() {
    let relay = TestRelay::start().await;
    let mut page = relay.page(Form::Binary).await;
    assert!(matches!(page.prove(&relay.key).await, Some(ServerMessage::Welcome(_))));
    let first = [frame_head(BINARY, false, 1), vec![7]].concat();
    let thousand = [frame_head(CONTINUED, false, 1), vec![7]].concat().repeat(1_000);
    let (mut from, mut to) = tokio::io::split(page.socket.get_mut());
    let send = async {
        to.write_all(&first).await?;
        for _ in 0..1_000 {
            to.write_all(&thousand).await?;
        }
        std::future::pending::<std::io::Result<()>>().await
    };
    let mut rest = Vec::new();
    tokio::select! {
        // The relay closes while the client still sends.
        read = from.read_to_end(&mut rest) => drop(read),
        sent = send => assert!(sent.is_err()),
        () = tokio::time::sleep(LONG) => panic!("the relay keeps reading"),
    }
}

#[tokio::test]
async fn t19_an_endless_request_head_is_refused() {
    let relay = TestRelay::start().await;
    for head in [format!("X: {}\r\n", "y".repeat(256 * 1024)), "X: y\r\n".repeat(100)] {
        let mut stream = TcpStream::connect(relay.addr).await.unwrap();
        let _ = stream
            .write_all(format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\n{head}\r\n").as_bytes())
            .await;
        let mut out = Vec::new();
        let _ = timeout(LONG, stream.read_to_end(&mut out)).await.expect("an end");
        assert!(!String::from_utf8_lossy(&out).contains(" 200 "), "{}", String::from_utf8_lossy(&out));
    }
}

/// Browsers send the cookies of every program on `localhost`, whatever its port.
#[tokio::test]
async fn cookies_of_other_programs_on_localhost_are_accepted() {
    let relay = TestRelay::start().await;
    let cookies = "session=0123456789; ".repeat(2_000);
    assert_eq!(relay.request("GET /healthz", &[("Cookie", cookies.trim_end())]).await.status, 200);
}

#[tokio::test]
async fn f17_t19_beyond_the_limit_a_connection_is_refused_with_retry_after() {
    let relay = TestRelay::start().await;
    let mut open_connections = Vec::new();
    for _ in 0..320 {
        let mut stream = TcpStream::connect(relay.addr).await.unwrap();
        // A response shows that the connection holds a permit.
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        let mut some = [0; 12];
        timeout(LONG, stream.read_exact(&mut some)).await.unwrap().unwrap();
        assert_eq!(&some, b"HTTP/1.1 200");
        open_connections.push(stream);
    }
    let reply = relay.request("GET /healthz", &[]).await;
    assert_eq!((reply.status, reply.header("retry-after")), (503, Some("10")));
    assert!(reply.header("content-security-policy").is_some());
    drop(open_connections.pop());
    // The relay notices a closed connection asynchronously.
    let served = async {
        while relay.request("GET /healthz", &[]).await.status != 200 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(LONG, served).await.expect("a permit is free again");
}
