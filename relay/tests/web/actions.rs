//! A page asks, acts and follows logs over the wire: counted, refused where it must be, and written down.

use crate::harness::{LONG, Page, TestRelay};
use async_trait::async_trait;
use nodeglass_protocol::ask::{
    Answer, Ask, AuditEntry, JobOrder, LogRef, LogStream, ProcessRef, Signal, Tail,
};
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::job::{Job, JobState};
use nodeglass_protocol::live::{Change, ClientMessage, MAX_LOGS, ServerMessage, Topic};
use nodeglass_protocol::{JobId, LongText, NodeName, Text};
use nodeglass_relay::actions::JobControl;
use nodeglass_relay::fleet::{Event, Fleet};
use nodeglass_relay::slurm::JobController;
use std::io::Write;
use std::sync::{Arc, Mutex};
use tokio::time::timeout;

/// Writes down the orders it is given, and refuses all but one kind.
#[derive(Clone, Default)]
struct FakeController(Arc<Mutex<Vec<String>>>);

#[async_trait]
impl JobController for FakeController {
    async fn execute(&self, job: &Job, order: JobOrder) -> Result<Text, Text> {
        self.0.lock().unwrap().push(format!("{order:?} {}", job.id));
        match order {
            JobOrder::Cancel => Ok("SLURM was told".into()),
            _ => Err("scontrol said: Job is not pending".into()),
        }
    }
}

/// Two running jobs: alice's own, which writes to `log`, and one that is bob's.
fn fleet(log: &str) -> Fleet {
    let node = NodeName::new("n1").unwrap();
    let job = |id, user: &str| Job {
        nodes: vec![node.clone()],
        stdout: Some(log.into()),
        ..Job::new(JobId(id), user.into(), JobState::Running)
    };
    let mut fleet = Fleet::new();
    fleet.handle(Event::Jobs { jobs: vec![job(1, "alice"), job(2, "bob")], wall_s: 1 }, 0);
    fleet
}

async fn enter(relay: &TestRelay) -> Page {
    let mut page = relay.page(Form::Binary).await;
    assert!(matches!(page.prove(&relay.key).await, Some(ServerMessage::Welcome(_))));
    page
}

async fn answer(page: &mut Page, number: u32) -> Answer {
    timeout(LONG, async {
        loop {
            match page.hear().await.expect("an answer") {
                ServerMessage::Answer { number: said, answer } if said == number => return answer,
                _ => {}
            }
        }
    })
    .await
    .expect("an answer in time")
}

async fn refusal(page: &mut Page, number: u32) -> String {
    match answer(page, number).await {
        Answer::Refused(why) => why.to_string(),
        other => panic!("not refused: {other:?}"),
    }
}

/// The deeds as they are told to a page that looks at the overview.
async fn deeds(page: &mut Page) -> Vec<AuditEntry> {
    loop {
        let ServerMessage::Delta(delta) = page.hear().await.expect("a delta") else { continue };
        if let Some(deeds) = delta.changes.into_iter().find_map(|change| match change {
            Change::AuditLog(deeds) => Some(deeds),
            _ => None,
        }) {
            return deeds;
        }
    }
}

fn order(number: u32, job: u32, order: JobOrder) -> ClientMessage {
    ClientMessage::Ask { number, ask: Ask::Job { job: JobId(job), order } }
}

fn signal(number: u32) -> ClientMessage {
    let (node, process) = (NodeName::new("n1").unwrap(), ProcessRef { pid: 4711, started_ms: 1 });
    ClientMessage::Ask { number, ask: Ask::Signal { node, process, signal: Signal::Terminate } }
}

#[tokio::test]
async fn an_order_on_an_own_job_is_executed_and_audited_on_every_page() {
    let clerk = FakeController::default();
    let relay = TestRelay::start_as(fleet("/x"), false, JobControl::Enabled(Arc::new(clerk.clone()))).await;
    let (mut page, mut other) = (enter(&relay).await, enter(&relay).await);
    other.say(&ClientMessage::Look(vec![Topic::Overview])).await;
    assert!(matches!(other.hear().await, Some(ServerMessage::Snapshot(_))));
    page.say(&order(7, 1, JobOrder::Cancel)).await;
    assert_eq!(answer(&mut page, 7).await, Answer::Done("SLURM was told".into()));
    let told = deeds(&mut other).await;
    assert_eq!((told.len(), told[0].what.as_str(), told[0].done), (1, "cancel job 1", true));
    page.say(&order(8, 1, JobOrder::Hold)).await;
    assert_eq!(refusal(&mut page, 8).await, "scontrol said: Job is not pending");
    let told = deeds(&mut other).await;
    assert_eq!((told[1].what.as_str(), told[1].done), ("hold job 1", false));
    assert_eq!(told[1].outcome.as_str(), "scontrol said: Job is not pending");
    assert_eq!(*clerk.0.lock().unwrap(), ["Cancel 1", "Hold 1"]);
}

#[tokio::test]
async fn an_order_about_another_job_never_reaches_slurm() {
    let clerk = FakeController::default();
    let relay = TestRelay::start_as(fleet("/x"), false, JobControl::Enabled(Arc::new(clerk.clone()))).await;
    let mut page = enter(&relay).await;
    page.say(&order(1, 2, JobOrder::Cancel)).await;
    assert_eq!(refusal(&mut page, 1).await, "job 2 is bob's, not yours");
    page.say(&order(2, 99, JobOrder::Cancel)).await;
    assert_eq!(refusal(&mut page, 2).await, "there is no job 99 in the list");
    assert!(clerk.0.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_read_only_relay_refuses_every_action_and_announces_it() {
    let clerk = FakeController::default();
    let relay = TestRelay::start_as(fleet("/x"), true, JobControl::Enabled(Arc::new(clerk.clone()))).await;
    let mut page = relay.page(Form::Json).await;
    let Some(ServerMessage::Welcome(welcome)) = page.prove(&relay.key).await else { panic!("not let in") };
    assert!(!welcome.may_act);
    for (number, say) in [(1, order(1, 1, JobOrder::Cancel)), (2, signal(2))] {
        page.say(&say).await;
        assert!(refusal(&mut page, number).await.contains("--read-only"));
    }
    assert!(clerk.0.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_relay_that_allows_actions_says_so() {
    let relay = TestRelay::start().await;
    let mut page = relay.page(Form::Json).await;
    let Some(ServerMessage::Welcome(welcome)) = page.prove(&relay.key).await else { panic!("not let in") };
    assert!(welcome.may_act);
}

#[tokio::test]
async fn only_five_questions_are_open_at_once() {
    // No node ever answers here, so every question stays open until its time is up.
    let relay = TestRelay::start_with(fleet("/x")).await;
    let mut page = enter(&relay).await;
    let process = ProcessRef { pid: 1, started_ms: 1 };
    for number in 0..8 {
        let node = NodeName::new("n1").unwrap();
        page.say(&ClientMessage::Ask { number, ask: Ask::Process { node, process, environment: false } })
            .await;
    }
    for number in 5..8 {
        assert!(refusal(&mut page, number).await.contains("too many questions"));
    }
    // The others are told when nobody answers.
    let mut timed_out = Vec::new();
    for _ in 0..5 {
        let Some(ServerMessage::Answer { number, answer: Answer::Refused(why) }) = page.hear().await else {
            panic!("no refusal")
        };
        assert!(why.as_str().contains("did not answer within 10 s"), "{why}");
        timed_out.push(number);
    }
    timed_out.sort_unstable();
    assert_eq!(timed_out, [0, 1, 2, 3, 4]);
}

async fn tail(page: &mut Page, of: LogRef) -> Tail {
    loop {
        match page.hear().await.expect("a log") {
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
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"epoch 1\n").unwrap();
    let relay = TestRelay::start_with(fleet(file.path().to_str().unwrap())).await;
    let mut page = enter(&relay).await;
    let log = LogRef { job: JobId(1), stream: LogStream::Stdout };
    page.say(&ClientMessage::Follow(vec![log])).await;
    assert_eq!(lines(&tail(&mut page, log).await), ["epoch 1"]);
    file.write_all(b"epoch 2\n").unwrap();
    assert_eq!(lines(&tail(&mut page, log).await), ["epoch 2"]);
    // Saying it again changes nothing; leaving it out ends it.
    page.say(&ClientMessage::Follow(vec![log])).await;
    page.say(&ClientMessage::Follow(vec![])).await;
    file.write_all(b"epoch 3\n").unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(2_500)).await;
    page.say(&order(1, 99, JobOrder::Cancel)).await;
    assert!(matches!(page.hear().await, Some(ServerMessage::Answer { number: 1, .. })), "no log came before");
}

#[tokio::test]
async fn a_page_follows_only_so_many_logs() {
    let relay = TestRelay::start_with(Fleet::new()).await;
    let mut page = enter(&relay).await;
    let logs = (1..=20).map(|id| LogRef { job: JobId(id), stream: LogStream::Stderr }).collect();
    page.say(&ClientMessage::Follow(logs)).await;
    for _ in 0..MAX_LOGS {
        assert!(matches!(page.hear().await, Some(ServerMessage::Log { .. })));
    }
    let more = timeout(std::time::Duration::from_millis(2_500), page.hear()).await;
    assert!(more.is_err(), "{more:?}");
}
