//! The report of a job is for whoever may see the job.

use crate::harness::{LONG, TestRelay};
use nodeglass_fleet::{Event, Fleet, FleetSettings};
use nodeglass_notify::webhook::{Webhook, WebhookFormat};
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::job::{Job, JobState};
use nodeglass_protocol::live::{ClientMessage, ServerMessage};
use nodeglass_protocol::report::{Cost, ReportAnswer, ReportQuery};
use nodeglass_protocol::request::{Request, Response};
use nodeglass_protocol::{JobId, NodeName};
use nodeglass_report::Factors;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::thread::JoinHandle;

/// Two running jobs on one node.
fn fleet() -> Fleet {
    let job = |id| Job {
        name: format!("job-{id}").as_str().into(),
        start: Some(1_000),
        nodes: vec![NodeName::new("n1").unwrap()],
        node_count: 1,
        gpu_count: Some(2),
        command: Some("/secret/train.sh".into()),
        ..Job::new(JobId(id), "alice".into(), JobState::Running)
    };
    let gpu_hour = Some(Cost { amount: 1.2, currency: "EUR".into() });
    let factors = Factors { gpu_hour, co2_g_per_kwh: Some(380.0) };
    let mut fleet = Fleet::with_settings(FleetSettings { factors, ..FleetSettings::default() });
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

    let ticket = share_of_17(&relay).await;
    assert_eq!(get("/api/v1/jobs/18/report", &ticket).await.status, 404);
    let shared = get("/api/v1/jobs/17/report", &ticket).await;
    assert!(shared.status == 200 && shared.body.contains("\"name\":\"job-17\""), "{}", shared.body);
    assert!(!shared.body.contains("secret"));
    // The price is the owner's.
    assert!(
        report.body.contains("\"cost\":{\"amount\":") && shared.body.contains("\"cost\":null"),
        "{}",
        shared.body
    );
}

/// Creates a share of job 17 and returns the secret of its link.
async fn share_of_17(relay: &TestRelay) -> String {
    let (owner, body) = (relay.key.reveal(), r#"{"scope":{"jobs":[17]}}"#);
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
    ticket.to_owned()
}

#[tokio::test]
async fn t09_usage_and_faults_of_nodes_are_the_owners_alone() {
    let relay = TestRelay::start_with(fleet()).await;
    let guest = share_of_17(&relay).await;
    let faults = ReportQuery::Faults { node: NodeName::new("n1").unwrap(), days: u32::MAX };
    for (secret, is_owner) in [(relay.key.reveal(), true), (guest, false)] {
        let bearer = format!("Bearer {secret}");
        let page = relay.page_with(Form::Json, &[("Authorization", &bearer)]).await;
        let mut page = page.expect("a WebSocket");
        for query in [faults.clone(), ReportQuery::Usage { days: 30 }] {
            page.send(&ClientMessage::Report { number: 1, query }).await;
            let answer = loop {
                if let ServerMessage::Report { answer, .. } = page.receive().await.expect("an answer") {
                    break answer;
                }
            };
            let refused = ReportAnswer::Refused("only the owner of this relay may see this".into());
            assert_eq!(answer != refused, is_owner, "{answer:?}");
        }
    }
}

#[tokio::test]
async fn a_share_of_an_ended_job_lasts_as_long_as_it_says() {
    let ended = Job {
        state: JobState::Ended("COMPLETED".into()),
        ..Job::new(JobId(9), "alice".into(), JobState::Running)
    };
    let mut fleet = Fleet::new();
    fleet.handle(Event::Jobs { jobs: vec![ended], wall_ahead_ms: 4_600_000 }, 0);
    let relay = TestRelay::start_with(fleet).await;
    let owner = format!("Authorization: Bearer {}", relay.key.reveal());
    let body = r#"{"scope":{"jobs":[9]}}"#;
    let made = relay
        .send_raw(&format!(
            "POST /api/v1/shares HTTP/1.1\r\nHost: {}\r\n{owner}\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            relay.host(),
            body.len()
        ))
        .await;
    let made: serde_json::Value = serde_json::from_str(&made.body).unwrap();
    // What has ended would end the share at once.
    assert_eq!(made["share"]["terms"]["ends_with_job"], false, "{made}");
}

/// Accepts one request and answers it; returns the URL, and the request once it has come.
fn receiver() -> (String, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hooks/s3cret", listener.local_addr().unwrap());
    let receiving = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        let (mut request, mut buffer) = (Vec::new(), [0; 4_096]);
        while !request.ends_with(b"}") {
            let read = stream.read(&mut buffer).unwrap();
            assert!(read > 0, "{}", String::from_utf8_lossy(&request));
            request.extend_from_slice(&buffer[..read]);
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
        String::from_utf8(request).unwrap()
    });
    (url, receiving)
}

/// Requests that the report of a job be sent; returns the response.
async fn send(relay: &TestRelay, job: u32) -> (Option<String>, Response) {
    let mut page = relay.page(Form::Binary).await;
    let Some(ServerMessage::Welcome(welcome)) = page.prove(&relay.key).await else { panic!("not let in") };
    page.send(&ClientMessage::Request { number: 1, request: Request::SendReport(JobId(job)) }).await;
    loop {
        if let ServerMessage::Response { response, .. } = page.receive().await.expect("a response") {
            return (welcome.report_webhook.map(|url| url.to_string()), response);
        }
    }
}

#[tokio::test]
async fn a_report_is_sent_to_the_configured_webhook_and_recorded() {
    let (url, receiving) = receiver();
    let webhook = Webhook::new(url.parse().unwrap(), WebhookFormat::Json);
    let shown = webhook.display_url();
    let relay = TestRelay::start_with_webhook(fleet(), webhook).await;
    let (named, response) = send(&relay, 17).await;
    assert_eq!(named.as_ref(), Some(&shown));
    assert_eq!(response, Response::Done(format!("the report of job 17 was sent to {shown}").into()));
    let request = tokio::task::spawn_blocking(|| receiving.join().unwrap()).await.unwrap();
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("POST /hooks/s3cret "), "{head}");
    let body: serde_json::Value = serde_json::from_str(body).unwrap();
    assert_eq!((&body["event"], &body["report"]["name"]), (&"job_report".into(), &"job-17".into()));
    let (_, response) = send(&relay, 99).await;
    assert_eq!(response, Response::Refused("there is no report of job 99".into()));
    let bearer = format!("Bearer {}", relay.key.reveal());
    let log = relay.request("GET /api/v1/audit", &[("Authorization", &bearer)]).await.body;
    assert!(log.contains("send report of job 17") && !log.contains("s3cret"), "{log}");
}

#[tokio::test]
async fn without_a_webhook_no_report_is_sent() {
    let relay = TestRelay::start_with(fleet()).await;
    let refused = Response::Refused("no webhook is configured; set report-webhook".into());
    assert_eq!(send(&relay, 17).await, (None, refused));
}
