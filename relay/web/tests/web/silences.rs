//! Silences of findings over HTTP.

use crate::harness::{Reply, TestRelay};
use nodeglass_fleet::{Event, Fleet};
use nodeglass_protocol::JobId;
use nodeglass_protocol::job::{Job, JobState};
use serde_json::Value;
use std::time::Duration;

/// Two jobs that SLURM will not start.
fn fleet() -> Fleet {
    let job = |id| Job {
        reason: Some("DependencyNeverSatisfied".into()),
        ..Job::new(JobId(id), "alice".into(), JobState::Pending)
    };
    let mut fleet = Fleet::new();
    fleet.handle(Event::Jobs { jobs: vec![job(17), job(18)], wall_ahead_ms: 4_600_000 }, 0);
    fleet
}

async fn send(relay: &TestRelay, way: &str, body: &str) -> Reply {
    let (host, length, owner) = (relay.host(), body.len(), relay.key.reveal());
    let head =
        format!("{way} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {owner}\r\nConnection: close\r\n");
    let content = format!("Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}");
    relay.send_raw(&format!("{head}{content}")).await
}

/// The jobs whose finding is silenced and is not, once `is_done` holds for them.
async fn jobs(relay: &TestRelay, is_done: impl Fn(&[u64], &[u64]) -> bool) -> (Vec<u64>, Vec<u64>) {
    for _ in 0..300 {
        let reply = send(relay, "GET /api/v1/findings", "").await;
        let body: Value = serde_json::from_str(&reply.body).unwrap();
        let (mut silenced, mut listed) = (Vec::new(), Vec::new());
        for finding in body["findings"].as_array().unwrap() {
            let jobs = if finding["silenced_until"].is_null() { &mut listed } else { &mut silenced };
            jobs.push(finding["jobs"][0].as_u64().unwrap());
        }
        if is_done(&silenced, &listed) {
            return (silenced, listed);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("the findings do not change");
}

#[tokio::test]
async fn findings_of_a_job_are_silenced_until_that_is_ended() {
    let relay = TestRelay::start_with(fleet()).await;
    jobs(&relay, |silenced, listed| silenced.is_empty() && listed.len() == 2).await;
    let silenced = send(&relay, "POST /api/v1/silences", r#"{"job":17,"for_s":3600}"#).await;
    let answer: Value = serde_json::from_str(&silenced.body).unwrap();
    assert_eq!(
        (silenced.status, answer["message"].as_str()),
        (200, Some("silenced for 1 h: all findings of job 17; it is forgotten when the relay stops"))
    );
    assert!(answer["silence"]["until"].as_str().unwrap().ends_with('Z'), "{answer}");
    let (silenced, listed) = jobs(&relay, |silenced, _| !silenced.is_empty()).await;
    assert_eq!((silenced, listed), (vec![17], vec![18]));
    let list = send(&relay, "GET /api/v1/silences", "").await;
    let list: Value = serde_json::from_str(&list.body).unwrap();
    assert_eq!((&list[0]["job"], &list[0]["kind"]), (&Value::from(17), &Value::Null));
    assert_eq!(list[0]["job_label"], "17");
    for is_changed in [true, false] {
        let ended = send(&relay, "POST /api/v1/silences", r#"{"job":17,"for_s":0}"#).await;
        let ended: Value = serde_json::from_str(&ended.body).unwrap();
        assert_eq!((&ended["is_changed"], &ended["silence"]), (&Value::from(is_changed), &Value::Null));
    }
    jobs(&relay, |silenced, listed| silenced.is_empty() && listed.len() == 2).await;
}

#[tokio::test]
async fn silences_of_everything_or_of_unknown_kinds_are_refused() {
    let relay = TestRelay::start_with(fleet()).await;
    for (body, status, word) in [
        (r#"{"for_s":60}"#, 422, "name a kind"),
        (r#"{"job":17,"for_s":99999999}"#, 422, "at most 30 days"),
        (r#"{"kind":"idle","for_s":60}"#, 400, "idle_gpus"),
        (r#"{"job":17,"for_s":60,"until":1}"#, 400, "until"),
        ("{", 400, "JSON"),
    ] {
        let reply = send(&relay, "POST /api/v1/silences", body).await;
        assert_eq!(reply.status, status, "{body}: {}", reply.body);
        assert!(reply.body.contains(word), "{body}: {}", reply.body);
    }
}
