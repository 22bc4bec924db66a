//! Notes over HTTP and the live wire: the owner changes them, guests read those of their share.

use crate::harness::{Page, Reply, TestRelay};
use nodeglass_actions::JobControl;
use nodeglass_fleet::{Event, Fleet};
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::job::{Job, JobState};
use nodeglass_protocol::live::{Change, ClientMessage, ServerMessage, Topic};
use nodeglass_protocol::note::{NewNote, Note, NoteRequest, NoteSource, SavedNote};
use nodeglass_protocol::request::{Request, Response};
use nodeglass_protocol::{JobId, NodeName};

/// Two running jobs on one node.
fn fleet() -> Fleet {
    let job = |id| Job {
        start: Some(1_000),
        nodes: vec![NodeName::new("n1").unwrap()],
        node_count: 1,
        ..Job::new(JobId(id), "alice".into(), JobState::Running)
    };
    let mut fleet = Fleet::new();
    fleet.handle(Event::Jobs { jobs: vec![job(17), job(18)], wall_ahead_ms: 4_600_000 }, 0);
    fleet
}

/// Sends a body with the key of the owner or the ticket of a guest.
async fn send(relay: &TestRelay, way: &str, bearer: &str, body: &str) -> Reply {
    let (host, length) = (relay.host(), body.len());
    let head =
        format!("{way} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {bearer}\r\nConnection: close\r\n");
    let content = format!("Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}");
    relay.send_raw(&format!("{head}{content}")).await
}

async fn texts(relay: &TestRelay, bearer: &str, query: &str) -> Vec<String> {
    let reply = send(relay, &format!("GET /api/v1/notes{query}"), bearer, "").await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    let notes: Vec<Note> = serde_json::from_str(&reply.body).unwrap();
    notes.into_iter().map(|note| note.text.to_string()).collect()
}

fn saved(reply: &Reply) -> SavedNote {
    assert_eq!(reply.status, 200, "{}", reply.body);
    serde_json::from_str(&reply.body).unwrap()
}

/// A share's ticket.
async fn shared(relay: &TestRelay, request: &str) -> String {
    let made = send(relay, "POST /api/v1/shares", &relay.key.reveal(), request).await;
    let made: serde_json::Value = serde_json::from_str(&made.body).unwrap();
    made["link"].as_str().unwrap().split_once("#s=").unwrap().1.to_owned()
}

#[tokio::test]
async fn a_note_is_added_stored_changed_listed_and_deleted_over_http() {
    let relay = TestRelay::start_with(fleet()).await;
    let owner = relay.key.reveal();
    let made =
        send(&relay, "POST /api/v1/notes", &owner, r#"{"job":17,"text":"epoch 3","at_ms":1700000000000}"#);
    let SavedNote { note, is_stored } = saved(&made.await);
    assert!(!is_stored, "this relay stores nothing beyond its process");
    assert_eq!((note.job, note.at_ms, note.source), (Some(JobId(17)), 1_700_000_000_000, NoteSource::Api));
    saved(&send(&relay, "POST /api/v1/notes", &owner, r#"{"text":"file server moved"}"#).await);
    assert_eq!(texts(&relay, &owner, "").await, ["epoch 3", "file server moved"]);
    assert_eq!(texts(&relay, &owner, "?job=17").await, ["epoch 3"]);
    let path = format!("/api/v1/notes/{}", note.id);
    let changed = saved(&send(&relay, &format!("PATCH {path}"), &owner, r#"{"text":"epoch 4"}"#).await);
    assert_eq!(changed.note, Note { text: "epoch 4".into(), ..note });
    let stale =
        send(&relay, &format!("PATCH {path}"), &owner, r#"{"text":"epoch 5","if_text":"epoch 3"}"#).await;
    assert_eq!((stale.status, stale.detail().contains("changed in the meantime")), (409, true));
    let report = send(&relay, "GET /api/v1/jobs/17/report", &owner, "").await;
    assert!(report.body.contains("\"text\":\"epoch 4\""), "{}", report.body);
    assert_eq!(send(&relay, &format!("DELETE {path}"), &owner, "").await.body, "the note was deleted\n");
    assert_eq!(texts(&relay, &owner, "?job=17").await, [""; 0]);
    let again = send(&relay, &format!("DELETE {path}"), &owner, "").await;
    assert_eq!((again.status, again.detail().starts_with("there is no note")), (404, true));
}

#[tokio::test]
async fn what_is_no_note_is_refused_with_a_sentence() {
    let relay = TestRelay::start_with(fleet()).await;
    let owner = relay.key.reveal();
    for (body, status, why) in [
        (r#"{"job":17}"#, 422, "enter the text of the note"),
        (r#"{"job":19,"text":"x"}"#, 404, "this relay does not watch job 19"),
        (r#"{"node":"n9","text":"x"}"#, 404, "this relay does not watch node n9"),
        (r#"{"text":"x","at_ms":9007199254740991}"#, 422, "more than a day ahead"),
        (r#"{"text":"x","source":"job"}"#, 400, "cannot be \"job\""),
        (r#"{"text":"x","jobs":17}"#, 400, "such as {\"job\":17"),
        ("epoch 3", 400, "expected JSON such as"),
    ] {
        let reply = send(&relay, "POST /api/v1/notes", &owner, body).await;
        assert!(reply.status == status && reply.detail().contains(why), "{body}: {reply:?}");
    }
    for way in ["PATCH /api/v1/notes/x", "DELETE /api/v1/notes/9007199254740992", "GET /api/v1/notes?jobs=1"]
    {
        assert_eq!(send(&relay, way, &owner, "{}").await.status, 400, "{way}");
    }
}

#[tokio::test]
async fn t09_a_guest_reads_the_notes_of_the_share_and_writes_none() {
    let relay = TestRelay::start_with(fleet()).await;
    let owner = relay.key.reveal();
    let mut id = None;
    for body in [
        r#"{"job":17,"text":"mine","at_ms":1700000000001}"#,
        r#"{"job":18,"text":"other","at_ms":1700000000002}"#,
        r#"{"text":"all","at_ms":1700000000003}"#,
    ] {
        id = Some(saved(&send(&relay, "POST /api/v1/notes", &owner, body).await).note.id);
    }
    let guest = shared(&relay, r#"{"scope":{"jobs":[17]}}"#).await;
    assert_eq!(texts(&relay, &guest, "").await, ["mine"]);
    assert_eq!(texts(&relay, &guest, "?job=18").await, [""; 0]);
    let report = send(&relay, "GET /api/v1/jobs/17/report", &guest, "").await.body;
    assert!(report.contains("mine") && !report.contains("other") && !report.contains("\"all\""), "{report}");
    let blind = shared(&relay, r#"{"scope":{"jobs":[17]},"hidden":{"notes":true}}"#).await;
    assert_eq!(texts(&relay, &blind, "").await, [""; 0]);
    assert!(!send(&relay, "GET /api/v1/jobs/17/report", &blind, "").await.body.contains("mine"));
    let everything = shared(&relay, r#"{"scope":"all"}"#).await;
    assert_eq!(texts(&relay, &everything, "").await, ["mine", "other", "all"]);
    let path = format!("/api/v1/notes/{}", id.unwrap());
    for (way, body) in [
        ("POST /api/v1/notes", r#"{"job":17,"text":"forged"}"#),
        (&format!("PATCH {path}"), r#"{"text":"forged"}"#),
        (&format!("DELETE {path}"), ""),
    ] {
        for bearer in [&guest, &everything] {
            assert_eq!(send(&relay, way, bearer, body).await.status, 403, "{way}");
        }
        assert_eq!(send(&relay, way, &"A".repeat(43), body).await.status, 401, "{way}");
    }
    assert_eq!(texts(&relay, &owner, "").await, ["mine", "other", "all"]);
}

/// The changes of notes that a page receives next.
async fn changes(page: &mut Page) -> (usize, Vec<String>) {
    loop {
        let ServerMessage::Delta(delta) = page.receive().await.expect("a delta") else { continue };
        for change in delta.changes {
            if let Change::Notes { removed, changed } = change {
                return (removed.len(), changed.iter().map(|note| note.text.to_string()).collect());
            }
        }
    }
}

#[tokio::test]
async fn a_read_only_relay_takes_notes_of_its_owner_and_every_page_sees_them() {
    let relay = TestRelay::start_as(fleet(), true, JobControl::Disabled("no")).await;
    let mut pages = Vec::new();
    for _ in 0..2 {
        let mut page = relay.page(Form::Binary).await;
        assert!(matches!(page.prove(&relay.key).await, Some(ServerMessage::Welcome(_))));
        page.send(&ClientMessage::Subscribe(vec![Topic::Job(JobId(17))])).await;
        let Some(ServerMessage::Snapshot(snapshot)) = page.receive().await else { panic!("no snapshot") };
        assert_eq!(snapshot.picture.notes, []);
        pages.push(page);
    }
    let note = NewNote { job: Some(JobId(17)), text: "epoch 3".into(), ..NewNote::default() };
    let request = Request::Note(NoteRequest::Add(NewNote { source: NoteSource::Page, ..note }));
    pages[0].send(&ClientMessage::Request { number: 3, request }).await;
    assert_eq!(changes(&mut pages[1]).await, (0, vec!["epoch 3".to_owned()]));
    let saved = loop {
        match pages[0].receive().await.expect("a response") {
            ServerMessage::Response { number: 3, response: Response::Note(saved) } => break saved,
            ServerMessage::Response { response, .. } => panic!("{response:?}"),
            _ => {}
        }
    };
    assert_eq!((saved.note.source, saved.is_stored), (NoteSource::Page, false));
    let request = Request::Note(NoteRequest::Delete(saved.note.id));
    pages[0].send(&ClientMessage::Request { number: 4, request }).await;
    assert_eq!(changes(&mut pages[1]).await, (1, Vec::new()));
}
