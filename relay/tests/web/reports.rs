//! The report of a job is for whoever may see the job.

use crate::harness::TestRelay;
use nodeglass_protocol::job::{Job, JobState};
use nodeglass_protocol::{JobId, NodeName};
use nodeglass_relay::fleet::{Event, Fleet};

/// Two running jobs on one node.
fn fleet() -> Fleet {
    let job = |id| Job {
        name: format!("job-{id}").as_str().into(),
        start: Some(1_000),
        nodes: vec![NodeName::new("n1").unwrap()],
        node_count: 1,
        command: Some("/secret/train.sh".into()),
        ..Job::new(JobId(id), "alice".into(), JobState::Running)
    };
    let mut fleet = Fleet::new();
    fleet.handle(Event::Jobs { jobs: vec![job(17), job(18)], wall_ahead_ms: 4_600_000 }, 0);
    fleet
}

#[tokio::test]
async fn t09_a_share_of_a_job_opens_its_report_and_no_other() {
    let relay = TestRelay::start_with(fleet()).await;
    let get = async |path: &str, bearer: &str| {
        relay.request(&format!("GET {path}"), &[("Authorization", &format!("Bearer {bearer}"))]).await
    };
    let owner = relay.key.reveal();
    let report = get("/api/v1/jobs/18/report", &owner).await;
    assert_eq!((report.status, report.header("content-type")), (200, Some("application/json")));
    assert!(report.body.contains("\"name\":\"job-18\"") && report.body.contains("\"is_final\":false"));
    assert_eq!(get("/api/v1/jobs/19/report", &owner).await.status, 404);
    assert_eq!(get("/api/v1/jobs/x/report", &owner).await.status, 400);
    assert_eq!(relay.request("GET /api/v1/jobs/17/report", &[]).await.status, 401);

    let body = r#"{"scope":{"jobs":[17]}}"#;
    let made = relay
        .send_raw(&format!(
            "POST /api/v1/shares HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {owner}\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            relay.host(),
            body.len()
        ))
        .await;
    let made: serde_json::Value = serde_json::from_str(&made.body).unwrap();
    let (_, ticket) = made["link"].as_str().unwrap().split_once("#s=").unwrap();
    assert_eq!(get("/api/v1/jobs/18/report", ticket).await.status, 404);
    let shared = get("/api/v1/jobs/17/report", ticket).await;
    assert!(shared.status == 200 && shared.body.contains("\"name\":\"job-17\""), "{}", shared.body);
    assert!(!shared.body.contains("secret"));
}
