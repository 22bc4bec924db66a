//! Ranges beyond a week, which the relay reads from a long-term storage for its owner's page.

use crate::api::{fleet, share};
use crate::bearer_socket::open;
use crate::harness::{Page, TestRelay};
use nodeglass_protocol::JobId;
use nodeglass_protocol::live::{ClientMessage, MAX_HISTORY_DAYS, ServerMessage, Topic};
use nodeglass_protocol::range::{RangeHistory, RangeQuery};
use nodeglass_remote_write::promql::PromQl;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpListener;

const HOUR_MS: u64 = 3_600_000;

/// A relay with a storage that accepts connections, and responds when the test does.
async fn start() -> (TestRelay, TcpListener) {
    let storage = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", storage.local_addr().unwrap()).parse().unwrap();
    (TestRelay::start_with_storage(fleet(), PromQl::new(&url, None)).await, storage)
}

/// Queries the last hours.
async fn send(page: &mut Page, number: u32, now_ms: u64, hours: u64) {
    let query = RangeQuery {
        topic: Topic::Job(JobId(17)),
        from_ms: now_ms - hours * HOUR_MS,
        to_ms: now_ms,
        step_ms: HOUR_MS,
        gpu_fields: vec!["util_pct".into()],
        host_fields: Vec::new(),
    };
    page.send(&ClientMessage::Range { number, query }).await;
}

async fn receive(page: &mut Page) -> (u32, RangeHistory) {
    loop {
        match page.receive().await {
            Some(ServerMessage::Range { number, range }) => return (number, range),
            Some(_) => {}
            None => panic!("the relay closed the connection"),
        }
    }
}

#[tokio::test]
async fn a_storage_that_hangs_delays_nothing_and_its_nonsense_is_a_sentence() {
    let (relay, storage) = start().await;
    let (mut page, welcome) = open(&relay, &relay.key.reveal()).await;
    assert_eq!(welcome.history_days, MAX_HISTORY_DAYS);
    send(&mut page, 1, welcome.at_ms, 30 * 24).await;
    send(&mut page, 2, welcome.at_ms, 7 * 24).await;
    let (number, week) = receive(&mut page).await;
    assert_eq!((number, week.problem), (2, None));
    page.send(&ClientMessage::Subscribe(vec![Topic::Overview])).await;
    let Some(ServerMessage::Snapshot(_)) = page.receive().await else { panic!("no snapshot") };

    let responds = tokio::task::spawn_blocking(move || {
        let (mut socket, _) = storage.accept().unwrap();
        let (mut request, mut chunk) = (Vec::new(), [0; 4096]);
        while !request.windows(5).any(|bytes| bytes == b"step=") {
            let length = socket.read(&mut chunk).unwrap();
            assert!(length > 0, "the request ends early");
            request.extend_from_slice(&chunk[..length]);
        }
        socket.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]").unwrap();
    });
    let (number, RangeHistory { nodes, problem, .. }) = receive(&mut page).await;
    responds.await.unwrap();
    let why = problem.expect("a problem");
    assert!(number == 1 && nodes.is_empty(), "{number} {nodes:?}");
    assert!(why.as_str().starts_with("The long-term storage cannot be read: failed to "), "{why}");
}

#[tokio::test]
async fn the_api_answers_from_the_relays_own_history_for_as_long_as_the_page_does() {
    let (relay, storage) = start().await;
    storage.set_nonblocking(true).unwrap();
    let bearer = format!("Bearer {}", relay.key.reveal());
    let query = "GET /api/v1/history?job=17&from=169h&step=1h";
    let reply = relay.request(query, &[("Authorization", &bearer)]).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    assert_eq!(storage.accept().unwrap_err().kind(), ErrorKind::WouldBlock, "the request reached it");
}

#[tokio::test]
async fn t09_a_guests_page_never_reads_the_storage_of_a_site() {
    let (relay, storage) = start().await;
    let guest = share(&relay, r#"{"scope":{"jobs":[17]}}"#).await;
    let (mut page, welcome) = open(&relay, &guest).await;
    assert_eq!(welcome.history_days, 0);
    send(&mut page, 1, welcome.at_ms, 30 * 24).await;
    let (number, range) = receive(&mut page).await;
    assert_eq!((number, range.problem), (1, None));
    storage.set_nonblocking(true).unwrap();
    assert_eq!(storage.accept().unwrap_err().kind(), ErrorKind::WouldBlock, "the request reached it");
}
