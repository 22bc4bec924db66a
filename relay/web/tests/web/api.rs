//! The HTTP API: resources, selections, entity tags, problems and what guests see.

use crate::harness::{Reply, TestRelay};
use nodeglass_fleet::{Event, Fleet};
use nodeglass_protocol::job::{Job, JobState, Parent};
use nodeglass_protocol::{JobId, NodeName};
use nodeglass_remote_write::promql::PromQl;
use nodeglass_web::api::openapi;
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::TcpListener;

/// A running job on two nodes, and a pending one.
pub fn fleet() -> Fleet {
    let running = Job {
        name: "train".into(),
        partition: "gpu".into(),
        start: Some(1_700_000_000),
        nodes: ["n1", "n2"].map(|name| NodeName::new(name).unwrap()).to_vec(),
        node_count: 2,
        stdout: Some("/home/alice/train.out".into()),
        ..Job::new(JobId(17), "alice".into(), JobState::Running)
    };
    let pending =
        Job { reason: Some("Priority".into()), ..Job::new(JobId(18), "bob".into(), JobState::Pending) };
    let mut fleet = Fleet::new();
    fleet.handle(Event::Jobs { jobs: vec![running, pending], wall_ahead_ms: 4_600_000 }, 1);
    fleet
}

/// Sends a body with the owner's key.
async fn send(relay: &TestRelay, way: &str, bearer: &str, body: &str) -> Reply {
    let head = format!(
        "{way} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {bearer}\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        relay.host(),
        body.len()
    );
    relay.send_raw(&head).await
}

async fn get(relay: &TestRelay, path: &str, bearer: &str) -> Reply {
    relay.request(&format!("GET {path}"), &[("Authorization", &format!("Bearer {bearer}"))]).await
}

async fn owner(relay: &TestRelay, path: &str) -> Reply {
    get(relay, path, &relay.key.reveal()).await
}

/// The ticket of a new share.
pub async fn share(relay: &TestRelay, request: &str) -> String {
    let made = send(relay, "POST /api/v1/shares", &relay.key.reveal(), request).await.json();
    made["link"].as_str().expect("a link").split_once("#s=").unwrap().1.to_owned()
}

#[tokio::test]
async fn jobs_are_listed_filtered_and_selected() {
    let relay = TestRelay::start_with(fleet()).await;
    let all = owner(&relay, "/api/v1/jobs").await.json();
    assert_eq!(
        (&all["total"], &all["jobs"][0]["id"], &all["jobs"][1]["id"]),
        (&2.into(), &17.into(), &18.into())
    );
    let train = &all["jobs"][0];
    assert_eq!((&train["state"], &train["started_at"]), (&"RUNNING".into(), &"2023-11-14T22:13:20Z".into()));
    assert_eq!((&train["nodes"][1], &train["totals"]["power_w"]), (&"n2".into(), &serde_json::Value::Null));
    for (query, ids) in [
        ("?state=running", &[17][..]),
        ("?user=bob", &[18]),
        ("?node=n2&user=alice", &[17]),
        ("?node=n2&user=bob", &[]),
        ("?limit=1", &[17]),
        ("?offset=1", &[18]),
        ("?offset=5", &[]),
    ] {
        let found = owner(&relay, &format!("/api/v1/jobs{query}")).await.json();
        let found: Vec<_> =
            found["jobs"].as_array().unwrap().iter().map(|job| job["id"].as_i64().unwrap()).collect();
        assert_eq!(found, ids, "{query}");
    }
    let few = owner(&relay, "/api/v1/jobs?fields=id,totals.gpus&limit=1").await;
    assert_eq!(few.body, "{\"jobs\":[{\"id\":17,\"totals\":{\"gpus\":0}}],\"total\":2}\n");
    assert_eq!(owner(&relay, "/api/v1/jobs/18?fields=reason").await.body, "{\"reason\":\"Priority\"}\n");
    assert_eq!(owner(&relay, "/api/v1/nodes/n1").await.json()["connection"], "waiting");
    let nodes = owner(&relay, "/api/v1/nodes?job=17&fields=name").await;
    assert_eq!(nodes.body, "{\"nodes\":[{\"name\":\"n1\"},{\"name\":\"n2\"}],\"total\":2}\n");
}

#[tokio::test]
async fn jobs_are_named_as_slurm_prints_them() {
    let part = |id, label: &str, part_of| Job {
        label: label.into(),
        part_of: Some(part_of),
        nodes: vec![NodeName::new("n1").unwrap()],
        ..Job::new(JobId(id), "alice".into(), JobState::Running)
    };
    let task = |task| Parent::Array { job: JobId(40), task: Some(task) };
    let component = |offset| Parent::Het { job: JobId(50), offset };
    let jobs = vec![
        part(41, "40_1", task(1)),
        part(42, "40_2", task(2)),
        part(50, "50+0", component(0)),
        part(51, "50+1", component(1)),
    ];
    let mut fleet = Fleet::new();
    fleet.handle(Event::Jobs { jobs, wall_ahead_ms: 4_600_000 }, 1);
    let relay = TestRelay::start_with(fleet).await;
    for (name, id) in [("40_2", 42), ("50+1", 51), ("50%2B1", 51), ("41", 41), ("50", 50)] {
        assert_eq!(owner(&relay, &format!("/api/v1/jobs/{name}")).await.json()["id"], id, "{name}");
        let nodes = owner(&relay, &format!("/api/v1/nodes?job={name}&fields=name")).await.json();
        assert_eq!(nodes["total"], 1, "{name}: {nodes}");
        let report = owner(&relay, &format!("/api/v1/jobs/{name}/report")).await.json();
        assert_eq!(report["job"], id, "{name}");
        assert_eq!(owner(&relay, &format!("/api/v1/notes?job={name}")).await.status, 200, "{name}");
        assert_eq!(owner(&relay, &format!("/api/v1/history?job={name}")).await.status, 200, "{name}");
    }
    let several = owner(&relay, "/api/v1/jobs/40").await;
    assert_eq!(several.status, 400);
    assert!(several.detail().contains("choose one, such as 40_1"), "{}", several.body);
    assert_eq!(owner(&relay, "/api/v1/nodes?job=40_3").await.json()["total"], 0);
}

#[tokio::test]
async fn a_wrong_request_is_answered_with_a_problem_that_says_what_is_possible() {
    let relay = TestRelay::start_with(fleet()).await;
    for (path, status, why) in [
        ("/api/v1/jobs?fields=uid", 400, "there are: account, array"),
        ("/api/v1/jobs?field=id", 400, "the parameters are: user, state"),
        ("/api/v1/jobs?limit=0", 400, "from 1 to"),
        ("/api/v1/jobs?limit=-1", 400, "a whole number that is not negative"),
        ("/api/v1/jobs?fields=name.x", 400, "only an object has fields"),
        ("/api/v1/jobs?state=RUNING", 400, "there is no state \"RUNING\"; there are: BOOT_FAIL, CANCELLED"),
        ("/api/v1/jobs?state=pending", 200, ""),
        ("/api/v1/nodes?connection=alive", 400, "there are: waiting, connecting, live, late"),
        ("/api/v1/nodes?connection=silent", 200, ""),
        ("/api/v1/jobs?limit=1&limit=2", 400, "limit"),
        ("/api/v1/jobs/train", 400, "48440_16"),
        ("/api/v1/gpus?job=train", 400, "48440_16"),
        ("/api/v1/jobs/99_3", 404, "no job 99_3"),
        ("/api/v1/history?job=99_3", 404, "no job 99_3"),
        ("/api/v1/jobs/99+0/report", 404, "no job 99+0"),
        ("/api/v1/jobs/99", 404, "no job 99"),
        ("/api/v1/jobs/99/report", 404, "no report of job 99"),
        ("/api/v1/nodes/n9", 404, "no such node"),
        ("/api/v1/gpus/GPU-9", 404, "no such GPU"),
        ("/api/v1/history?from=tomorrow", 400, "is not a time"),
        ("/api/v1/history?from=30d", 400, "at most 8 days"),
        ("/api/v1/history?to=2h", 200, ""),
        ("/api/v1/history?from=1h&to=2h", 400, "end after its start"),
        ("/api/v1/history?metric=serial", 400, "util_pct"),
        ("/api/v1/history?job=17&node=n1", 400, "not both"),
        ("/api/v1/history?job=99", 404, "no such job"),
        ("/api/v1/history?node=../n1", 400, "node name"),
        ("/api/v1/events?job=x", 400, "job"),
        ("/api/v1/events?job=99", 404, "no such job or node"),
        ("/api/v1/events?node=n9", 404, "no such job or node"),
        ("/api/v1/shares/abc", 404, "no open share abc"),
        ("/api/v1/usage?days=0", 400, "from 1 to 366"),
        ("/api/v1/usage?days=99999999999", 400, "days"),
        ("/api/v1/faults", 200, ""),
        ("/api/v1/faults?days=367", 400, "from 1 to 366"),
        ("/api/v1/faults?job=17", 400, "the parameters are: node, days"),
        ("/api/v1/faults?node=../n1", 400, "node name"),
        ("/api/v1/audit?day=3", 400, "the parameters are: days"),
        ("/api/v2/jobs", 404, "openapi.json"),
    ] {
        let reply = owner(&relay, path).await;
        assert_eq!(reply.status, status, "{path}: {reply:?}");
        assert!(status == 200 || reply.detail().contains(why), "{path}: {}", reply.body);
    }
}

#[tokio::test]
async fn what_is_not_watched_is_neither_shared_nor_retried() {
    let relay = TestRelay::start_with(fleet()).await;
    let owner = relay.key.reveal();
    for (path, body, why) in [
        ("/api/v1/shares", r#"{"scope":{"jobs":[17,99]}}"#, "does not watch job 99"),
        ("/api/v1/shares", r#"{"scope":{"nodes":["n9"]}}"#, "does not watch node n9"),
        ("/api/v1/retry", r#"{"node":"n9"}"#, "does not watch node n9"),
    ] {
        let reply = send(&relay, &format!("POST {path}"), &owner, body).await;
        assert!(reply.status == 404 && reply.detail().contains(why), "{body}: {reply:?}");
    }
}

#[tokio::test]
async fn parameters_of_what_takes_none_are_refused() {
    let relay = TestRelay::start_with(fleet()).await;
    for path in ["/api/v1/snapshot", "/api/v1/jobs/17/report", "/api/v1/shares", "/status"] {
        let refused = owner(&relay, &format!("{path}?job=17")).await;
        assert_eq!(refused.status, 400, "{path}: {refused:?}");
        let detail = refused.json()["detail"].as_str().unwrap_or_default().to_owned();
        assert!(detail.contains("\"job\""), "{path}: {detail}");
        assert_ne!(owner(&relay, &format!("{path}?")).await.status, 400, "{path}");
    }
    let refused = send(&relay, "POST /api/v1/notes?job=17", &relay.key.reveal(), r#"{"text":"x"}"#).await;
    assert_eq!(refused.status, 400);
    assert_eq!(owner(&relay, "/api/v1/notes?job=17").await.status, 200);
    assert_eq!(send(&relay, "PUT /status?x=1", &relay.key.reveal(), "").await.status, 405);
}

#[tokio::test]
async fn parts_of_the_metrics_are_selected() {
    let relay = TestRelay::start_with(fleet()).await;
    for path in ["/metrics?collect[]=job", "/metrics?collect%5B%5D=job"] {
        let reply = owner(&relay, path).await;
        assert_eq!(reply.status, 200, "{path}: {reply:?}");
        assert!(reply.body.contains("nodeglass_job_") && !reply.body.contains("nodeglass_node_"), "{path}");
    }
    assert_eq!(owner(&relay, "/metrics?collect[]=gpus").await.status, 400);
}

#[tokio::test]
async fn a_method_that_a_path_does_not_have_is_a_problem_too() {
    let relay = TestRelay::start_with(fleet()).await;
    for way in ["DELETE /api/v1/jobs", "POST /api/v1/gpus", "PUT /api/v1/notes", "POST /healthz"] {
        let reply = send(&relay, way, &relay.key.reveal(), "").await;
        assert_eq!(reply.status, 405, "{way}");
        assert!(reply.header("allow").is_some_and(|allow| allow.contains("GET")), "{way}: {reply:?}");
        assert!(reply.detail().contains("header Allow"), "{way}: {}", reply.body);
    }
}

#[tokio::test]
async fn an_unchanged_response_is_not_sent_again() {
    let relay = TestRelay::start_with(fleet()).await;
    let key = format!("Bearer {}", relay.key.reveal());
    let first = owner(&relay, "/api/v1/jobs").await;
    let tag = first.header("etag").expect("an entity tag").to_owned();
    let headers = [("Authorization", key.as_str()), ("If-None-Match", &tag)];
    let again = relay.request("GET /api/v1/jobs", &headers).await;
    assert_eq!((again.status, again.body.as_str(), again.header("etag")), (304, "", Some(tag.as_str())));
    assert_eq!(relay.request("GET /api/v1/nodes", &headers).await.status, 200);
}

#[tokio::test]
async fn t09_a_guest_sees_in_the_api_what_the_share_shows() {
    let relay = TestRelay::start_with(fleet()).await;
    let guest = share(&relay, r#"{"scope":{"jobs":[17]}}"#).await;
    let jobs = get(&relay, "/api/v1/jobs", &guest).await.json();
    assert_eq!((&jobs["total"], &jobs["jobs"][0]["id"]), (&1.into(), &17.into()));
    // Paths are hidden by default.
    assert_eq!(jobs["jobs"][0]["stdout"], serde_json::Value::Null);
    for hidden in ["/api/v1/jobs/18", "/api/v1/jobs/18/report", "/api/v1/history?job=18"] {
        assert_eq!(get(&relay, hidden, &guest).await.status, 404, "{hidden}");
    }
    for hidden in ["/api/v1/usage", "/api/v1/faults", "/api/v1/shares", "/api/v1/audit", "/status"] {
        assert_eq!(get(&relay, hidden, &guest).await.detail(), "a share does not show this", "{hidden}");
    }
    let snapshot = get(&relay, "/api/v1/snapshot", &guest).await;
    assert!(snapshot.status == 200 && !snapshot.body.contains("bob"), "{}", snapshot.body);
}

#[tokio::test]
async fn t09_a_guest_never_reads_the_storage_of_a_site() {
    let storage = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", storage.local_addr().unwrap()).parse().unwrap();
    let relay = TestRelay::start_with_storage(fleet(), PromQl::new(&url, None)).await;
    let guest = share(&relay, r#"{"scope":{"jobs":[17]}}"#).await;
    let ranges = [
        ("from=30d", 400),
        ("job=17&from=30d", 400),
        ("job=18&from=30d", 400),
        ("node=n1&metric=power_w&from=9d", 400),
        ("job=17&from=30d&to=29d", 200),
        ("job=18&from=30d&to=29d", 404),
        ("job=17&from=7d&to=1h", 200),
    ];
    for (range, status) in ranges {
        let reply = get(&relay, &format!("/api/v1/history?{range}"), &guest).await;
        assert_eq!(reply.status, status, "{range}: {}", reply.body);
    }
    storage.set_nonblocking(true).unwrap();
    assert_eq!(storage.accept().unwrap_err().kind(), ErrorKind::WouldBlock, "a guest's request reached it");

    // The owner's does.
    storage.set_nonblocking(false).unwrap();
    let accepted = tokio::task::spawn_blocking(move || storage.accept().map(drop));
    let reply = owner(&relay, "/api/v1/history?job=17&from=30d&to=29d").await;
    accepted.await.unwrap().unwrap();
    assert_eq!(reply.status, 502, "{}", reply.body);
}

#[tokio::test]
async fn t09_a_token_reads_what_the_owner_sees_and_changes_nothing() {
    let relay = TestRelay::start_with(fleet()).await;
    let key = relay.key.reveal();
    let made = send(&relay, "POST /api/v1/tokens", &key, r#"{"name":"grafana","days":90}"#).await.json();
    let secret = made["secret"].as_str().expect("a secret").to_owned();
    assert!(made["token"]["expires_at"].is_string() && made["token"]["last_used_at"].is_null(), "{made}");
    assert!(made["token"]["user"].is_string(), "{made}");
    let anyones = send(&relay, "POST /api/v1/tokens", &key, r#"{"name":"all","any_user":true}"#).await.json();
    assert!(anyones["token"]["user"].is_null() && anyones["token"]["expires_at"].is_string(), "{anyones}");
    let state = ["/api/v1/jobs", "/api/v1/shares", "/status"];
    for readable in state.into_iter().chain(["/api/v1/usage", "/api/v1/faults", "/api/v1/audit"]) {
        assert_eq!(get(&relay, readable, &secret).await.status, 200, "{readable}");
    }
    // Paths are hidden from guests only.
    assert_eq!(get(&relay, "/api/v1/jobs/17", &secret).await.json()["stdout"], "/home/alice/train.out");
    for (way, body) in [
        ("POST /api/v1/notes", r#"{"job":17,"text":"forged"}"#),
        ("POST /api/v1/shares", r#"{"scope":"all"}"#),
        ("POST /api/v1/tokens", r#"{"name":"more"}"#),
        ("DELETE /api/v1/tokens/grafana", ""),
        ("GET /api/v1/tokens", ""),
        ("GET /api/v1/shares/abc", ""),
        ("POST /api/v1/retry", "\"everything\""),
        ("POST /api/v1/tab", ""),
    ] {
        let reply = send(&relay, way, &secret, body).await;
        assert!(reply.status == 403 && reply.detail().contains("read-only"), "{way}: {reply:?}");
    }
    let listed = get(&relay, "/api/v1/tokens", &key).await.json();
    assert!(listed[0]["name"] == "all" && listed[0]["last_used_at"].is_null(), "{listed}");
    assert!(listed[1]["name"] == "grafana" && listed[1]["last_used_at"].is_string(), "{listed}");
    for (body, status) in [
        (r#"{"name":"grafana"}"#, 409),
        (r#"{"name":"a b"}"#, 400),
        (r#"{"name":"x","days":0}"#, 400),
        (r#"{"name":"x","user":"no-such-user-here"}"#, 400),
        (r#"{"name":"x","user":"root","any_user":true}"#, 400),
        (r#"{"name":"x","hours":1}"#, 400),
    ] {
        assert_eq!(send(&relay, "POST /api/v1/tokens", &key, body).await.status, status, "{body}");
    }
    assert_eq!(send(&relay, "DELETE /api/v1/tokens/grafana", &key, "").await.status, 200);
    assert_eq!(get(&relay, "/api/v1/jobs", &secret).await.status, 401);
    assert_eq!(send(&relay, "DELETE /api/v1/tokens/grafana", &key, "").await.status, 404);
}

#[tokio::test]
async fn nothing_of_the_api_is_for_those_without_a_key_but_its_description() {
    let relay = TestRelay::start_with(fleet()).await;
    let description = relay.request("GET /api/v1/openapi.json", &[]).await;
    assert_eq!((description.status, &description.json()["openapi"]), (200, &"3.1.0".into()));
    for (path, item) in description.json()["paths"].as_object().unwrap() {
        for way in item.as_object().unwrap().keys() {
            let path = path.replace("{id}", "17").replace("{name}", "n1").replace("{uuid}", "GPU-1");
            let reply = relay.request(&format!("{} {path}", way.to_uppercase()), &[]).await;
            let expected = if path == "/readyz" { 200 } else { 401 };
            assert_eq!(reply.status, expected, "{way} {path}: {reply:?}");
        }
    }
}

#[tokio::test]
async fn a_relay_is_ready_once_its_list_of_jobs_is_known() {
    let unknown = TestRelay::start_with(Fleet::new()).await;
    let reply = unknown.request("GET /readyz", &[]).await;
    assert_eq!((reply.status, reply.body.as_str()), (503, "the list of jobs is not known yet\n"));
    let mut stale = fleet();
    stale.handle(Event::JobsFailed { why: "squeue: secret".into(), retry_at_ms: 9 }, 2);
    let reply = TestRelay::start_with(stale).await.request("GET /readyz", &[]).await;
    assert_eq!((reply.status, reply.body.as_str()), (503, "the list of jobs is out of date\n"));
    let reply = TestRelay::start_with(fleet()).await.request("GET /readyz", &[]).await;
    assert_eq!((reply.status, reply.body.as_str()), (200, "ready\n"));
}

/// What OpenAPI 3.1 requires of the parts that are generated: a description of each response, unique operations, every
/// parameter of a path, and schemas that exist.
#[tokio::test]
async fn the_served_description_is_valid() {
    let relay = TestRelay::start_with(fleet()).await;
    let description = relay.request("GET /api/v1/openapi.json", &[]).await.json();
    let mut operations = BTreeSet::new();
    for (path, item) in description["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let id = operation["operationId"].as_str().unwrap_or_default();
            assert!(!id.is_empty() && operations.insert(id), "{method} {path}: {id:?}");
            let responses = operation["responses"].as_object().unwrap();
            assert!(responses.len() > 1, "{method} {path} has a success and a problem");
            for (status, response) in responses {
                let text = response["description"].as_str().unwrap_or_default();
                assert!(!text.trim().is_empty(), "{method} {path}: {status} has no description");
            }
            let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
            let declared: BTreeSet<&str> = parameters
                .iter()
                .filter(|one| one["in"] == "path")
                .filter_map(|one| one["name"].as_str())
                .collect();
            let in_path: BTreeSet<&str> =
                path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')).collect();
            assert_eq!(declared, in_path, "{method} {path}");
        }
    }
    let text = description.to_string();
    let references = text.split("\"$ref\":\"#").skip(1).filter_map(|rest| rest.split('"').next());
    for reference in references {
        assert!(description.pointer(reference).is_some(), "{reference} does not exist");
    }
}

/// The committed description is that of the code; `cargo xtask generate` writes it.
#[test]
fn the_committed_description_is_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
    if std::env::var_os("NODEGLASS_FREEZE").is_some() {
        std::fs::write(path, openapi::text()).unwrap();
    }
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    assert!(committed == openapi::text(), "docs/openapi.json is out of date: run `cargo xtask generate`");
}
