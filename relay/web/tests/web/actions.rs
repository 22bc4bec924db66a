//! Requests, actions and logs over the wire: limited, refused where necessary, and recorded.

use crate::api::share;
use crate::bearer_socket::open;
use crate::harness::{LONG, Page, TestRelay};
use async_trait::async_trait;
use nodeglass_actions::JobControl;
use nodeglass_fleet::{Event, Fleet};
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::job::{Job, JobState};
use nodeglass_protocol::live::{Change, ClientMessage, MAX_LOGS, ServerMessage, Topic};
use nodeglass_protocol::request::{
    AuditEntry, JobAction, LogRef, LogStream, ProcessRef, Request, Response, Signal, Tail,
};
use nodeglass_protocol::{JobId, LongText, NodeName, Text};
use nodeglass_slurm::JobController;
use std::io::Write;
use std::sync::{Arc, Mutex};
use tokio::time::timeout;

/// Records its actions, and refuses all but one kind.
#[derive(Clone, Default)]
struct FakeController(Arc<Mutex<Vec<String>>>);

#[async_trait]
impl JobController for FakeController {
    async fn execute(&self, job: &Job, action: JobAction) -> Result<Text, Text> {
        self.0.lock().unwrap().push(format!("{action:?} {}", job.id));
        match action {
            JobAction::Cancel => Ok("SLURM accepted it".into()),
            _ => Err("scontrol failed: Job is not pending".into()),
        }
    }
}

/// Two running jobs: alice's own, which writes to `log`, and one that is bob's.
fn fleet(log: &str) -> Fleet {
    fleet_with_logs(log, None)
}

fn fleet_with_logs(stdout: &str, stderr: Option<&str>) -> Fleet {
    let node = NodeName::new("n1").unwrap();
    let job = |id, user: &str| Job {
        nodes: vec![node.clone()],
        stdout: Some(stdout.into()),
        stderr: stderr.map(Into::into),
        ..Job::new(JobId(id), user.into(), JobState::Running)
    };
    let mut fleet = Fleet::new();
    fleet.handle(Event::Jobs { jobs: vec![job(1, "alice"), job(2, "bob")], wall_ahead_ms: 1_000 }, 0);
    fleet
}

async fn enter(relay: &TestRelay) -> Page {
    let mut page = relay.page(Form::Binary).await;
    assert!(matches!(page.prove(&relay.key).await, Some(ServerMessage::Welcome(_))));
    page
}

async fn response(page: &mut Page, number: u32) -> Response {
    timeout(LONG, async {
        loop {
            match page.receive().await.expect("an answer") {
                ServerMessage::Response { number: said, response } if said == number => return response,
                _ => {}
            }
        }
    })
    .await
    .expect("an answer in time")
}

async fn refusal(page: &mut Page, number: u32) -> String {
    match response(page, number).await {
        Response::Refused(why) => why.to_string(),
        other => panic!("not refused: {other:?}"),
    }
}

/// The audit log as a page subscribed to the overview receives it.
async fn audit_log(page: &mut Page) -> Vec<AuditEntry> {
    loop {
        let ServerMessage::Delta(delta) = page.receive().await.expect("a delta") else { continue };
        if let Some(audit_log) = delta.changes.into_iter().find_map(|change| match change {
            Change::AuditLog(audit_log) => Some(audit_log),
            _ => None,
        }) {
            return audit_log;
        }
    }
}

fn control_job(number: u32, job: u32, action: JobAction) -> ClientMessage {
    ClientMessage::Request { number, request: Request::Job { job: JobId(job), action } }
}

fn signal(number: u32) -> ClientMessage {
    let (node, process) = (NodeName::new("n1").unwrap(), ProcessRef { pid: 4711, started_ms: 1 });
    ClientMessage::Request { number, request: Request::Signal { node, process, signal: Signal::Terminate } }
}

#[tokio::test]
async fn an_action_on_an_own_job_is_executed_and_audited_on_every_page() {
    let controller = FakeController::default();
    let relay =
        TestRelay::start_as(fleet("/x"), false, JobControl::Enabled(Arc::new(controller.clone()))).await;
    let (mut page, mut other) = (enter(&relay).await, enter(&relay).await);
    other.send(&ClientMessage::Subscribe(vec![Topic::Overview])).await;
    assert!(matches!(other.receive().await, Some(ServerMessage::Snapshot(_))));
    page.send(&control_job(7, 1, JobAction::Cancel)).await;
    assert_eq!(response(&mut page, 7).await, Response::Done("SLURM accepted it".into()));
    let entries = audit_log(&mut other).await;
    assert_eq!((entries.len(), entries[0].action.as_str(), entries[0].succeeded), (1, "cancel job 1", true));
    page.send(&control_job(8, 1, JobAction::Hold)).await;
    assert_eq!(refusal(&mut page, 8).await, "scontrol failed: Job is not pending");
    let entries = audit_log(&mut other).await;
    assert_eq!((entries[1].action.as_str(), entries[1].succeeded), ("hold job 1", false));
    assert_eq!(entries[1].outcome.as_str(), "scontrol failed: Job is not pending");
    assert_eq!(*controller.0.lock().unwrap(), ["Cancel 1", "Hold 1"]);
}

#[tokio::test]
async fn an_action_on_another_job_never_reaches_slurm() {
    let controller = FakeController::default();
    let relay =
        TestRelay::start_as(fleet("/x"), false, JobControl::Enabled(Arc::new(controller.clone()))).await;
    let mut page = enter(&relay).await;
    page.send(&control_job(1, 2, JobAction::Cancel)).await;
    assert_eq!(refusal(&mut page, 1).await, "job 2 is bob's, not yours");
    page.send(&control_job(2, 99, JobAction::Cancel)).await;
    assert_eq!(refusal(&mut page, 2).await, "there is no job 99 in the list");
    assert!(controller.0.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_read_only_relay_refuses_every_action_and_announces_it() {
    let controller = FakeController::default();
    let relay =
        TestRelay::start_as(fleet("/x"), true, JobControl::Enabled(Arc::new(controller.clone()))).await;
    let mut page = relay.page(Form::Json).await;
    let Some(ServerMessage::Welcome(welcome)) = page.prove(&relay.key).await else { panic!("not let in") };
    assert!(!welcome.may_act);
    for (number, say) in [(1, control_job(1, 1, JobAction::Cancel)), (2, signal(2))] {
        page.send(&say).await;
        assert!(refusal(&mut page, number).await.contains("--read-only"));
    }
    assert!(controller.0.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_relay_that_allows_actions_announces_it() {
    let relay = TestRelay::start().await;
    let mut page = relay.page(Form::Json).await;
    let Some(ServerMessage::Welcome(welcome)) = page.prove(&relay.key).await else { panic!("not let in") };
    assert!(welcome.may_act);
}

#[tokio::test]
async fn only_five_requests_are_pending_at_once() {
    // No node ever answers here, so every request stays pending until it times out.
    let relay = TestRelay::start_with(fleet("/x")).await;
    let mut page = enter(&relay).await;
    let process = ProcessRef { pid: 1, started_ms: 1 };
    for number in 0..8 {
        let node = NodeName::new("n1").unwrap();
        page.send(&ClientMessage::Request {
            number,
            request: Request::Process { node, process, environment: false },
        })
        .await;
    }
    for number in 5..8 {
        assert!(refusal(&mut page, number).await.contains("too many requests"));
    }
    // The others are refused when no response arrives.
    let mut timed_out = Vec::new();
    for _ in 0..5 {
        let Some(ServerMessage::Response { number, response: Response::Refused(why) }) = page.receive().await
        else {
            panic!("no refusal")
        };
        assert!(why.as_str().contains("did not respond within 10 s"), "{why}");
        timed_out.push(number);
    }
    timed_out.sort_unstable();
    assert_eq!(timed_out, [0, 1, 2, 3, 4]);
}

async fn tail(page: &mut Page, of: LogRef) -> Tail {
    loop {
        match page.receive().await.expect("a log") {
            ServerMessage::Log { of: said, tail } if said == of => return tail,
            _ => {}
        }
    }
}

fn lines(tail: &Tail) -> Vec<&str> {
    tail.lines.iter().map(LongText::as_str).collect()
}

#[tokio::test]
async fn a_log_is_followed_from_its_end_on_until_the_page_follows_others() {
    let (mut file, mut other_file) =
        (tempfile::NamedTempFile::new().unwrap(), tempfile::NamedTempFile::new().unwrap());
    file.write_all(b"epoch 1\n").unwrap();
    let [stdout, stderr] = [&file, &other_file].map(|file| file.path().to_str().unwrap());
    let relay = TestRelay::start_with(fleet_with_logs(stdout, Some(stderr))).await;
    let mut page = enter(&relay).await;
    let log = LogRef { job: JobId(1), stream: LogStream::Stdout };
    page.send(&ClientMessage::Follow(vec![log])).await;
    assert_eq!(lines(&tail(&mut page, log).await), ["epoch 1"]);
    file.write_all(b"epoch 2\n").unwrap();
    assert_eq!(lines(&tail(&mut page, log).await), ["epoch 2"]);
    // Repeating it changes nothing; omitting a log unfollows it.
    let other = LogRef { stream: LogStream::Stderr, ..log };
    page.send(&ClientMessage::Follow(vec![log])).await;
    page.send(&ClientMessage::Follow(vec![other])).await;
    file.write_all(b"epoch 3\n").unwrap();
    // All logs have the same polling interval: the first would arrive before two polls of the other.
    for line in ["warning 1", "warning 2"] {
        writeln!(other_file, "{line}").unwrap();
        loop {
            let Some(ServerMessage::Log { of, tail }) = page.receive().await else { panic!("not a log") };
            assert_eq!(of, other, "the unfollowed log was sent");
            if lines(&tail) == [line] {
                break;
            }
        }
    }
}

#[tokio::test]
async fn t09_a_guest_does_not_follow_a_log_out_of_the_scope_of_the_share() {
    // Others may not write to the folder.
    let folder = tempfile::tempdir().unwrap();
    let mut file = tempfile::NamedTempFile::new_in(&folder).unwrap();
    file.write_all(b"epoch 1\n").unwrap();
    let user =
        nodeglass_access::user::name_of(rustix::process::geteuid().as_raw()).expect("a user with a name");
    let now_s = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs().cast_signed();
    let on = |node: &str| Job {
        nodes: vec![NodeName::new(node).unwrap()],
        start: Some(now_s - 10),
        stdout: Some(file.path().to_str().unwrap().into()),
        ..Job::new(JobId(1), user.clone(), JobState::Running)
    };
    let listed = |job| Event::Jobs { jobs: vec![job], wall_ahead_ms: 1_000 };
    let (shared, elsewhere) = (listed(on("n1")), listed(on("n2")));
    let mut fleet = Fleet::new();
    fleet.handle(shared, 0);
    let relay = TestRelay::start_with(fleet).await;
    let ticket = share(&relay, r#"{"scope":{"nodes":["n1"]},"hidden":{"logs":false}}"#).await;
    let (mut page, _) = open(&relay, &ticket).await;
    let log = LogRef { job: JobId(1), stream: LogStream::Stdout };
    page.send(&ClientMessage::Follow(vec![log])).await;
    assert_eq!(lines(&tail(&mut page, log).await), ["epoch 1"]);
    // The job is requeued, and runs on a node that is not shared.
    relay.events.send(elsewhere).await.unwrap();
    while relay.request("GET /api/v1/jobs/1", &[("Authorization", &format!("Bearer {ticket}"))]).await.status
        != 404
    {}
    file.write_all(b"secret\n").unwrap();
    let tail = tail(&mut page, log).await;
    assert!(tail.lines.is_empty() && tail.error.is_some_and(|why| why.as_str().contains("not shared")));
}

#[tokio::test]
async fn a_page_follows_only_so_many_logs() {
    let relay = TestRelay::start_with(Fleet::new()).await;
    let mut page = enter(&relay).await;
    let log = |id| LogRef { job: JobId(id), stream: LogStream::Stderr };
    page.send(&ClientMessage::Follow((1..=20).map(log).collect())).await;
    for _ in 0..MAX_LOGS {
        assert!(matches!(page.receive().await, Some(ServerMessage::Log { .. })));
    }
    // The next log is the one followed after these, and none of the excess ones.
    page.send(&ClientMessage::Follow(vec![log(21)])).await;
    let next = page.receive().await;
    assert!(matches!(&next, Some(ServerMessage::Log { of, .. }) if *of == log(21)), "{next:?}");
}
