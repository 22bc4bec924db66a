//! A stranger can take only so much: connections, tries, time and words are counted.

use crate::harness::{LONG, TestRelay, is_bye};
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::handshake::{Key, LEN};
use nodeglass_protocol::job::{Job, JobState};
use nodeglass_protocol::live::{ClientMessage, Farewell, ServerMessage, Topic};
use nodeglass_protocol::{JobId, NodeName};
use nodeglass_relay::access::doorkeeper::{MAX_FAILURES, MAX_WAITING, PATIENCE_MS};
use nodeglass_relay::fleet::{Event, Fleet};
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
async fn who_does_not_prove_the_key_in_time_is_shown_out() {
    let relay = TestRelay::start().await;
    let mut silent = relay.page(Form::Binary).await;
    let mut halfway = relay.page(Form::Json).await;
    let started = Instant::now();
    halfway.hello().await;
    assert_eq!(silent.close_code().await, Some(4408));
    assert_eq!(halfway.close_code().await, Some(4408));
    assert!(started.elapsed() >= Duration::from_millis(PATIENCE_MS - 1_000));
}

#[tokio::test]
async fn only_so_many_may_wait_to_be_let_in() {
    let relay = TestRelay::start().await;
    let origin = format!("http://{}", relay.host());
    let own = [("Origin", origin.as_str())];
    let mut waiting = Vec::new();
    for _ in 0..MAX_WAITING {
        waiting.push(relay.page(Form::Binary).await);
    }
    assert_eq!(status(relay.page_with(Form::Binary, &own).await), 503);
    // Those who prove the key wait no longer, and make room.
    assert!(matches!(waiting[0].prove(&relay.key).await, Some(ServerMessage::Welcome(_))));
    assert!(relay.page_with(Form::Binary, &own).await.is_ok());
}

#[tokio::test]
async fn guessing_closes_the_door_but_not_on_those_inside() {
    let relay = TestRelay::start().await;
    let mut inside = relay.page(Form::Binary).await;
    assert!(matches!(inside.prove(&relay.key).await, Some(ServerMessage::Welcome(_))));
    for guess in 0..MAX_FAILURES {
        let mut page = relay.page(Form::Binary).await;
        assert!(is_bye(page.prove(&Key::new([guess as u8 + 100; LEN])).await, &Farewell::Refused));
    }
    let origin = format!("http://{}", relay.host());
    assert_eq!(status(relay.page_with(Form::Binary, &[("Origin", &origin)]).await), 429);
    inside.say(&ClientMessage::Look(vec![Topic::Overview])).await;
    assert!(matches!(inside.hear().await, Some(ServerMessage::Snapshot(_))));
}

#[tokio::test]
async fn who_talks_without_end_is_cut_off() {
    let relay = TestRelay::start().await;
    let mut page = relay.page(Form::Binary).await;
    assert!(matches!(page.prove(&relay.key).await, Some(ServerMessage::Welcome(_))));
    for _ in 0..200 {
        use futures_util::SinkExt;
        let look = page.form.encode(&ClientMessage::Look(Vec::new()));
        if page.socket.send(tokio_tungstenite::tungstenite::Message::Binary(look.into())).await.is_err() {
            break;
        }
    }
    let code = page.close_code().await;
    assert!(matches!(code, Some(4429) | None), "{code:?}");
    assert!(page.hear().await.is_none());
}

#[tokio::test]
async fn a_message_that_is_none_ends_the_visit() {
    let relay = TestRelay::start().await;
    let mut page = relay.page(Form::Json).await;
    assert!(matches!(page.prove(&relay.key).await, Some(ServerMessage::Welcome(_))));
    use futures_util::SinkExt;
    page.socket.send("{\"launch\":\"missiles\"}".into()).await.unwrap();
    assert!(is_bye(page.hear().await, &Farewell::Unreadable));
}

/// A fleet whose snapshot is larger than what the sockets between relay and page hold.
fn large_fleet() -> Fleet {
    let job = Job {
        nodes: (0..20_000).map(|i| NodeName::new(format!("node-{i}")).unwrap()).collect(),
        node_count: 20_000,
        ..Job::new(JobId(17), "alice".into(), JobState::Running)
    };
    let mut fleet = Fleet::new();
    fleet.handle(Event::Jobs { jobs: vec![job], wall_s: 0 }, 0);
    fleet
}

#[tokio::test]
async fn who_does_not_read_is_left_behind() {
    let relay = TestRelay::start_with(large_fleet()).await;
    let mut page = relay.page(Form::Json).await;
    assert!(matches!(page.prove(&relay.key).await, Some(ServerMessage::Welcome(_))));
    page.say(&ClientMessage::Look(vec![Topic::Overview])).await;
    // Long enough for the relay to have begun to send far more than the sockets between hold.
    tokio::time::sleep(Duration::from_secs(2)).await;
    // From here on the clock jumps whenever everybody waits, so thirty seconds cost nothing.
    tokio::time::pause();
    let before = Instant::now();
    tokio::time::sleep(Duration::from_secs(40)).await;
    tokio::time::resume();
    assert!(before.elapsed() >= Duration::from_secs(40));
    // What was on its way still comes, but not the whole of the first snapshot.
    let mut rest = Vec::new();
    let _ = timeout(LONG, page.socket.get_mut().read_to_end(&mut rest)).await.expect("the relay has hung up");
    assert!(!rest.is_empty() && rest.len() < 8 << 20, "{}", rest.len());
}

#[tokio::test]
async fn a_request_that_never_ends_is_not_waited_for() {
    let relay = TestRelay::start().await;
    let mut slow = TcpStream::connect(relay.addr).await.unwrap();
    slow.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ").await.unwrap();
    let mut out = Vec::new();
    // The relay's own clock ends it; this only bounds a failing test.
    let ended = timeout(LONG, slow.read_to_end(&mut out)).await;
    assert!(ended.is_ok(), "the relay still waits");
}

#[tokio::test]
async fn a_head_without_end_is_cut_off() {
    let relay = TestRelay::start().await;
    for head in [format!("X: {}\r\n", "y".repeat(64 * 1024)), "X: y\r\n".repeat(100)] {
        let mut stream = TcpStream::connect(relay.addr).await.unwrap();
        let _ = stream
            .write_all(format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\n{head}\r\n").as_bytes())
            .await;
        let mut out = Vec::new();
        let _ = timeout(LONG, stream.read_to_end(&mut out)).await.expect("an end");
        assert!(!String::from_utf8_lossy(&out).contains(" 200 "), "{}", String::from_utf8_lossy(&out));
    }
}

#[tokio::test]
async fn beyond_the_last_seat_a_connection_is_told_to_come_again() {
    let relay = TestRelay::start().await;
    let mut seated = Vec::new();
    for _ in 0..256 {
        let mut stream = TcpStream::connect(relay.addr).await.unwrap();
        // A whole answer shows that the seat is taken.
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        let mut some = [0; 12];
        timeout(LONG, stream.read_exact(&mut some)).await.unwrap().unwrap();
        assert_eq!(&some, b"HTTP/1.1 200");
        seated.push(stream);
    }
    let reply = relay.ask("GET /healthz", &[]).await;
    assert_eq!((reply.status, reply.header("retry-after")), (503, Some("10")));
    assert!(reply.header("content-security-policy").is_some());
    drop(seated.pop());
    // Leaving is noticed by the relay a moment later.
    let served = async {
        while relay.ask("GET /healthz", &[]).await.status != 200 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(LONG, served).await.expect("the seat is free again");
}
