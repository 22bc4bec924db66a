//! Jobs that are newer than the relay's list: the question brings a poll forward, and waits for it.

use crate::harness::{Reply, TestRelay};
use nodeglass_fleet::{Event, Fleet};
use nodeglass_protocol::JobId;
use nodeglass_protocol::job::{Job, JobState};
use nodeglass_slurm::PollReason;

fn list(ids: &[u32]) -> Event {
    let job = |id: &u32| Job::new(JobId(*id), "alice".into(), JobState::Running);
    Event::Jobs { jobs: ids.iter().map(job).collect(), wall_ahead_ms: 4_600_000 }
}

fn failed() -> Event {
    Event::JobsFailed { why: "squeue did not respond within 10 s".into(), retry_at_ms: 1 << 40 }
}

/// A relay whose job list is polled by the test, and has job 17.
async fn polled() -> TestRelay {
    let relay = TestRelay::start_with(Fleet::new()).await;
    relay.polls.begin();
    relay.events.send(list(&[17])).await.unwrap();
    while ask(&relay, "GET /readyz", "").await.status != 200 {}
    relay
}

async fn ask(relay: &TestRelay, way: &str, body: &str) -> Reply {
    let head = format!(
        "{way} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nConnection: close\r\nContent-Type: \
         application/json\r\nContent-Length: {}\r\n\r\n{body}",
        relay.host(),
        relay.key.reveal(),
        body.len()
    );
    relay.send_raw(&head).await
}

/// The reply to a request during which these events of polls arrive, once the request has brought one forward.
async fn during(relay: &TestRelay, way: &str, body: &str, events: Vec<Event>) -> Reply {
    let polls = async {
        assert_eq!(relay.polls.next().await, PollReason::Question);
        for event in events {
            relay.polls.begin();
            relay.events.send(event).await.unwrap();
        }
    };
    tokio::join!(ask(relay, way, body), polls).0
}

#[tokio::test]
async fn a_job_that_was_just_submitted_is_found_in_the_next_list() {
    for (way, body) in [
        ("GET /api/v1/jobs/39", ""),
        ("GET /api/v1/jobs/39/report", ""),
        ("POST /api/v1/notes", r#"{"job":39,"text":"x"}"#),
    ] {
        let relay = polled().await;
        let reply = during(&relay, way, body, vec![list(&[17, 39])]).await;
        assert_eq!((reply.status, reply.body.contains("39")), (200, true), "{way}: {reply:?}");
        let reply =
            during(&relay, &way.replace("39", "40"), &body.replace("39", "40"), vec![list(&[17])]).await;
        assert_eq!(reply.status, 404, "{way}: {reply:?}");
    }
}

#[tokio::test]
async fn a_list_that_was_begun_before_the_question_denies_nothing() {
    let relay = polled().await;
    // This poll has begun when the question arrives.
    relay.polls.begin();
    let late = async {
        assert_eq!(relay.polls.next().await, PollReason::Question);
        relay.events.send(list(&[17])).await.unwrap();
        relay.polls.begin();
        relay.events.send(list(&[17, 39])).await.unwrap();
    };
    let (reply, ()) = tokio::join!(ask(&relay, "GET /api/v1/jobs/39", ""), late);
    assert_eq!(reply.status, 200, "{reply:?}");
}

#[tokio::test]
async fn jobs_that_slurm_has_never_listed_are_no_empty_list() {
    let relay = TestRelay::start_with(Fleet::new()).await;
    relay.polls.begin();
    let reply = ask(&relay, "GET /api/v1/jobs", "").await;
    assert_eq!(reply.status, 503, "{reply:?}");
    assert_eq!(reply.detail(), "SLURM has not listed the jobs yet; try again in a moment");
    relay.events.send(failed()).await.unwrap();
    while !ask(&relay, "GET /readyz", "").await.body.contains("never") {}
    let reply = ask(&relay, "GET /api/v1/jobs?state=running", "").await;
    assert_eq!(reply.status, 503, "{reply:?}");
    relay.polls.begin();
    relay.events.send(list(&[])).await.unwrap();
    while ask(&relay, "GET /readyz", "").await.status != 200 {}
    let reply = ask(&relay, "GET /api/v1/jobs", "").await;
    assert_eq!((reply.status, reply.json()["total"].as_u64()), (200, Some(0)), "{reply:?}");
}

#[tokio::test]
async fn what_slurm_does_not_answer_is_neither_there_nor_not() {
    let relay = polled().await;
    let reply = during(&relay, "GET /api/v1/jobs/39", "", vec![failed()]).await;
    let why = reply.detail();
    assert!(reply.status == 503 && why.contains("squeue did not respond within 10 s"), "{reply:?}");
    assert!(why.starts_with("job 39 is not in the list of jobs, which is 0 s old"), "{why}");
    // While it fails, a question does not wait.
    assert_eq!(ask(&relay, "GET /api/v1/jobs/39", "").await.status, 503);
    assert_eq!(ask(&relay, "GET /api/v1/jobs/17", "").await.status, 200);
}
