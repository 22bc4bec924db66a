//! On the relay of a site people have no key: each sees what is theirs, whatever they request, and others see nothing.

use crate::harness::{Page, Reply, TestRelay, is_bye};
use nodeglass_fleet::{Event, Fleet, Host, scene};
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::job::{Job, JobState};
use nodeglass_protocol::live::{ClientMessage, CloseReason, Role, ServerMessage, Topic};
use nodeglass_protocol::probe::{ProbeLine, ProcessList};
use nodeglass_protocol::range::RangeQuery;
use nodeglass_protocol::report::{ReportAnswer, ReportQuery};
use nodeglass_protocol::request::{JobAction, LogRef, LogStream, Request, Response};
use nodeglass_protocol::{JobId, NodeName, Reading, Text};
use nodeglass_web::site::Members;
use std::sync::Arc;
use tokio::sync::watch;

const USERS: [&str; 3] = ["alice", "bob", "carol"];
const ACCOUNTS: [&str; 3] = ["acct-ml", "acct-bio", "acct-geo"];
const NODES: [&str; 4] = ["node-a", "node-b", "node-c", "node-d"];
/// A node on which no job runs.
const IDLE: &str = "node-idle";

/// A job of a random fleet.
#[derive(Clone, Debug)]
struct Theirs {
    id: u32,
    user: &'static str,
    account: &'static str,
    node: &'static str,
    gpu: u32,
}

/// Numbers of a linear congruential generator.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }
}

impl Theirs {
    fn word(&self, what: &str) -> String {
        format!("canary-{what}-{}-end", self.id)
    }

    fn job(&self) -> Job {
        Job {
            user: self.user.into(),
            account: Some(self.account.into()),
            name: self.word("name").as_str().into(),
            workdir: Some(format!("/home/{}", self.word("path")).as_str().into()),
            command: Some(self.word("command").as_str().into()),
            ..scene::job(self.id, &[(self.node, &[self.gpu])])
        }
    }

    fn is_of(&self, user: &str) -> bool {
        self.user == user
    }

    fn is_shown_to(&self, user: &str, members: &Members) -> bool {
        let is_member = members
            .get(&Text::from(user))
            .is_some_and(|accounts| accounts.contains(&Text::from(self.account)));
        self.is_of(user) || is_member || user == "dave"
    }
}

/// Jobs of random users and accounts on random GPUs, each with a process.
fn random_jobs(random: &mut Random) -> Vec<Theirs> {
    let mut places: Vec<(&str, u32)> = NODES.into_iter().flat_map(|node| [(node, 0), (node, 1)]).collect();
    let one = |number: u32| {
        let (node, gpu) = places.remove(random.below(places.len()));
        let (user, account) = (USERS[random.below(USERS.len())], ACCOUNTS[random.below(ACCOUNTS.len())]);
        Theirs { id: 770_001 + number, user, account, node, gpu }
    };
    (0..6).map(one).collect()
}

fn fleet(jobs: &[Theirs]) -> Fleet {
    let mut fleet = Fleet::new();
    scene::jobs(&mut fleet, jobs.iter().map(Theirs::job).collect(), 0);
    let idle = (scene::name(IDLE), Host::default());
    fleet.handle(Event::Hosts { hosts: [idle].into(), notices: Vec::new() }, 0);
    for node in NODES.into_iter().chain([IDLE]) {
        scene::line(&mut fleet, node, scene::hello(node, &[0, 1]), 0);
        scene::line(&mut fleet, node, scene::sample(1, &[10, 90]), 1_000);
        let here = jobs.iter().filter(|job| job.node == node);
        let processes = here.map(|job| {
            let ProbeLine::Processes(mut list) = scene::process(node, job.gpu, job.id, Some(job.id)) else {
                panic!("a list of processes")
            };
            let mut process = list.processes.remove(0);
            process.facts.user = Reading::Value(job.user.into());
            process.facts.command = Reading::Value(job.word("process").as_str().into());
            process.facts.args = Reading::Value(job.word("args").as_str().into());
            process
        });
        let processes = processes.collect();
        let list = ProcessList { processes, ..ProcessList::default() };
        scene::line(&mut fleet, node, ProbeLine::Processes(list), 1_500);
    }
    fleet
}

/// Random members of accounts, besides dave, who is an administrator.
fn random_members(random: &mut Random) -> Members {
    let mut members = Members::new();
    for user in USERS {
        for account in ACCOUNTS {
            if random.below(4) == 0 {
                members.entry(user.into()).or_default().insert(account.into());
            }
        }
    }
    members
}

/// What a user must not receive, and what they must.
fn words(user: &str, jobs: &[Theirs], members: &Members) -> (Vec<String>, Vec<String>) {
    let (mut hidden, mut shown) = (Vec::new(), Vec::new());
    let shown_jobs: Vec<_> = jobs.iter().filter(|job| job.is_shown_to(user, members)).collect();
    for job in jobs {
        let is_shown = job.is_shown_to(user, members);
        let details = ["path", "command", "args"].map(|what| job.word(what));
        if is_shown {
            shown.push(job.word("name"));
        } else {
            hidden.extend([job.word("name"), job.word("process")]);
            hidden.push(format!("GPU-{}-{}", job.node, job.gpu));
        }
        if !job.is_of(user) {
            hidden.extend(details);
        }
        if shown_jobs.iter().all(|shown| shown.user != job.user) {
            hidden.push(format!("\"{}\"", job.user));
        }
        if shown_jobs.iter().all(|shown| shown.account != job.account) {
            hidden.push(job.account.to_owned());
        }
    }
    if user != "dave" {
        hidden.extend(["0", "1"].map(|gpu| format!("GPU-{IDLE}-{gpu}")));
    }
    (hidden, shown)
}

fn assert_hidden(hidden: &[String], bytes: &[u8], of: &str) {
    let text = String::from_utf8_lossy(bytes);
    for word in hidden {
        assert!(!text.contains(word.as_str()), "{of}: {word} in {text}");
    }
}

/// Sends a request as a person; one that has to wait is repeated.
async fn get(relay: &TestRelay, user: &str, path: &str) -> Reply {
    loop {
        let reply = relay.request(&format!("GET {path}"), &[("X-Forwarded-User", user)]).await;
        if reply.status != 429 {
            return reply;
        }
    }
}

async fn page_of(relay: &TestRelay, user: &str, form: Form) -> Page {
    let origin = format!("http://{}", relay.host());
    relay.page_with(form, &[("Origin", &origin), ("X-Forwarded-User", user)]).await.expect("a WebSocket")
}

fn no_members() -> watch::Receiver<Arc<Members>> {
    watch::channel(Arc::default()).1
}

/// Every path of the API, with the names of all jobs, nodes and GPUs.
fn paths(jobs: &[Theirs]) -> Vec<String> {
    let fixed = [
        "snapshot",
        "jobs",
        "nodes",
        "gpus",
        "processes",
        "findings",
        "picture",
        "notes",
        "usage",
        "faults",
        "silences",
        "shares",
        "tokens",
        "audit",
        "openapi.json",
        "history",
        "jobs?user=bob",
        "processes?user=bob",
    ];
    let mut paths: Vec<_> = fixed.iter().map(|path| format!("/api/v1/{path}")).collect();
    paths.extend(["/status", "/metrics", "/readyz", "/healthz", "/"].map(str::to_owned));
    for job in jobs {
        let id = job.id;
        paths.extend(["", "/report"].map(|rest| format!("/api/v1/jobs/{id}{rest}")));
        paths.extend(
            ["picture", "notes", "history", "nodes", "gpus", "processes", "findings"]
                .map(|of| format!("/api/v1/{of}?job={id}")),
        );
        paths.push(format!("/api/v1/gpus/GPU-{}-{}", job.node, job.gpu));
    }
    for node in NODES.into_iter().chain([IDLE]) {
        paths.push(format!("/api/v1/nodes/{node}"));
        paths.extend(
            ["picture", "gpus", "processes", "history"].map(|of| format!("/api/v1/{of}?node={node}")),
        );
    }
    paths
}

#[tokio::test]
async fn t09_a_person_receives_no_byte_about_another_ones_job_over_http() {
    for seed in 0..5 {
        let mut random = Random(seed);
        let jobs = random_jobs(&mut random);
        let members = random_members(&mut random);
        let (_sender, followed) = watch::channel(Arc::new(members.clone()));
        let relay = TestRelay::start_site(fleet(&jobs), followed).await;
        for user in USERS.into_iter().chain(["dave"]) {
            let (hidden, shown) = words(user, &jobs, &members);
            for path in paths(&jobs) {
                let reply = get(&relay, user, &path).await;
                let of = format!("seed {seed}, {user}, {path}, status {}", reply.status);
                assert!([200, 400, 403, 404].contains(&reply.status), "{of}: {reply:?}");
                // An error repeats what was requested.
                let hidden: Vec<_> =
                    hidden.iter().filter(|word| !path.contains(word.as_str())).cloned().collect();
                assert_hidden(&hidden, reply.body.as_bytes(), &of);
            }
            let list = get(&relay, user, "/api/v1/jobs").await.body;
            assert!(shown.iter().all(|word| list.contains(word.as_str())), "{user}: {shown:?} in {list}");
        }
    }
}

#[tokio::test]
async fn t09_a_person_receives_no_byte_about_another_ones_job_on_the_live_wire() {
    for (seed, form) in (10..).zip([Form::Json, Form::Binary]) {
        let mut random = Random(seed);
        let jobs = random_jobs(&mut random);
        let members = random_members(&mut random);
        let (_sender, followed) = watch::channel(Arc::new(members.clone()));
        let relay = TestRelay::start_site(fleet(&jobs), followed).await;
        let one = async |user: &'static str| {
            let (hidden, shown) = words(user, &jobs, &members);
            let mut page = page_of(&relay, user, form).await;
            let Some(ServerMessage::Welcome(welcome)) = page.hello_as_person().await else {
                panic!("no welcome")
            };
            assert_eq!((welcome.role, welcome.may_act), (Role::Guest, false));
            assert_eq!(welcome.person, Some(user.into()));
            let received = everything(&mut page, &relay, &jobs).await;
            assert_hidden(&hidden, &received, &format!("seed {seed}, {user}, {form:?}"));
            let text = String::from_utf8_lossy(&received);
            assert!(shown.iter().all(|word| text.contains(word.as_str())), "{user}: {shown:?}");
        };
        // Each has a budget of their own.
        tokio::join!(one("alice"), one("bob"), one("carol"), one("dave"));
    }
}

/// Subscribes to everything that exists, requests all that can be requested, and returns what arrives, also when a job ends.
async fn everything(page: &mut Page, relay: &TestRelay, jobs: &[Theirs]) -> Vec<u8> {
    let ids: Vec<_> = jobs.iter().map(|job| JobId(job.id)).collect();
    let nodes = NODES.into_iter().chain([IDLE]).map(|node| NodeName::new(node).unwrap());
    let topics: Vec<_> = [Topic::Overview]
        .into_iter()
        .chain(ids.iter().map(|id| Topic::Job(*id)))
        .chain(nodes.map(Topic::Node))
        .collect();
    page.send(&ClientMessage::Subscribe(topics[..6].to_vec())).await;
    let mut bytes = until_report(page, 1, ids.clone()).await;
    page.send(&ClientMessage::Follow(
        ids.iter().take(4).map(|job| LogRef { job: *job, stream: LogStream::Stdout }).collect(),
    ))
    .await;
    for (number, topic) in (10..).zip(topics.iter().step_by(3)) {
        let query = RangeQuery {
            topic: topic.clone(),
            from_ms: 0,
            to_ms: u64::MAX,
            step_ms: 10_000,
            gpu_fields: vec!["util_pct".into()],
            host_fields: vec!["cpu_pct".into()],
        };
        page.send(&ClientMessage::Range { number, query }).await;
        bytes.extend(until_report(page, number, Vec::new()).await);
    }
    page.send(&ClientMessage::Subscribe([&topics[..1], &topics[6..]].concat())).await;
    bytes.extend(until_report(page, 2, ids.clone()).await);
    let mut later: Vec<_> = jobs.iter().map(Theirs::job).collect();
    later[0].state = JobState::Ended("FAILED".into());
    later[0].ended = Some(100);
    relay.events.send(Event::Jobs { jobs: later, wall_ahead_ms: 1_000_000 }).await.unwrap();
    page.send(&ClientMessage::Resync(Topic::Overview)).await;
    bytes.extend(until_report(page, 3, ids).await);
    bytes
}

/// Requests reports, and returns all messages up to the answer.
async fn until_report(page: &mut Page, number: u32, jobs: Vec<JobId>) -> Vec<u8> {
    page.send(&ClientMessage::Report { number, query: ReportQuery::Jobs(jobs) }).await;
    let mut bytes = Vec::new();
    loop {
        let message = page.receive_raw().await.expect("an answer");
        bytes.extend(&message);
        if matches!(page.form.decode(&message), Ok(ServerMessage::Report { number: of, .. }) if of == number)
        {
            return bytes;
        }
    }
}

/// One job of alice's, and a relay that watches it.
async fn alices() -> TestRelay {
    let job = Theirs { id: 770_001, user: "alice", account: "acct-ml", node: "node-a", gpu: 0 };
    TestRelay::start_site(fleet(&[job]), no_members()).await
}

#[tokio::test]
async fn t02_nobody_is_a_person_but_a_user_whom_the_proxy_or_the_kernel_names() {
    let relay = alices().await;
    assert_eq!(get(&relay, "alice", "/api/v1/jobs").await.status, 200);
    // Neither root, nor the relay's own account, nor unknown names, nor without a name.
    for user in ["root", "svc", "nobody-here", "alice ", "ALICE", ""] {
        let reply = get(&relay, user, "/api/v1/jobs").await;
        let is_trimmed = user.trim() == "alice";
        assert_eq!(reply.status, if is_trimmed { 200 } else { 403 }, "{user:?}: {reply:?}");
    }
    let unnamed: [&[(&str, &str)]; 3] =
        [&[], &[("X-Forwarded-For", "203.0.113.9")], &[("Via", "1.1 portal")]];
    for headers in unnamed {
        let reply = relay.request("GET /api/v1/jobs", headers).await;
        assert!(reply.status == 403 && reply.detail().contains("cannot identify you"), "{reply:?}");
    }
    for twice in [("X-Forwarded-User", "alice, bob")] {
        assert_eq!(relay.request("GET /api/v1/jobs", &[twice]).await.status, 400);
    }
    // A key that is wrong is not replaced by the identity of the connection.
    let headers = [("X-Forwarded-User", "alice"), ("Authorization", "Bearer wrong")];
    assert_eq!(relay.request("GET /api/v1/jobs", &headers).await.status, 401);
    // A password is for the proxy, which may forward it.
    let password = ("Authorization", "Basic YWxpY2U6c2VjcmV0");
    let reply = relay.request("GET /api/v1/jobs", &[("X-Forwarded-User", "alice"), password]).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    assert_eq!(relay.request("GET /api/v1/jobs", &[password]).await.status, 403);
    let mut page = page_of(&relay, "root", Form::Json).await;
    assert!(is_bye(page.hello_as_person().await, &CloseReason::NotIdentified));
}

#[tokio::test]
async fn t02_a_users_relay_lets_nobody_in_without_a_key() {
    let relay = TestRelay::start_behind_us().await;
    for user in ["alice", "bob"] {
        assert_eq!(get(&relay, user, "/api/v1/jobs").await.status, 401, "{user}");
        let mut page = page_of(&relay, user, Form::Json).await;
        assert!(is_bye(page.hello_as_person().await, &CloseReason::NotIdentified));
    }
    let index = relay.request("GET /", &[]).await.body;
    assert!(!index.contains("nodeglass-keyless"), "{index}");
    let index = alices().await.request("GET /", &[]).await.body;
    assert!(index.contains("<meta name=\"nodeglass-keyless\" content=\"yes\">"), "{index}");
}

/// The browser of a person sends what identifies them with every request, also with those of other sites' pages.
#[tokio::test]
async fn t04_a_page_of_another_site_acts_for_no_person() {
    let relay = alices().await;
    let user = ("X-Forwarded-User", "alice");
    for foreign in [
        ("Origin", "https://evil.example"),
        ("Origin", "null"),
        ("Sec-Fetch-Site", "cross-site"),
        ("Sec-Fetch-Site", "same-site"),
    ] {
        let reply = relay.request("GET /api/v1/jobs", &[user, foreign]).await;
        assert!(reply.status == 403 && !reply.body.contains("canary"), "{foreign:?}: {reply:?}");
        assert!(relay.page_with(Form::Json, &[user, foreign]).await.is_err(), "{foreign:?}");
    }
    assert!(relay.page_with(Form::Json, &[user]).await.is_err(), "a WebSocket without Origin");
    let reply = get(&relay, "alice", "/api/v1/jobs").await;
    assert_eq!(reply.header("cache-control"), Some("no-store"), "no proxy keeps it for another person");
}

#[tokio::test]
async fn t09_a_person_changes_nothing_and_sees_nothing_of_the_operators() {
    let relay = alices().await;
    for user in ["alice", "dave"] {
        for path in [
            "/api/v1/faults",
            "/api/v1/silences",
            "/api/v1/shares",
            "/api/v1/tokens",
            "/api/v1/audit",
            "/status",
        ] {
            let reply = get(&relay, user, path).await;
            assert!(reply.status == 403 && reply.detail().contains("operators"), "{user} {path}: {reply:?}");
        }
        let posts =
            ["notes", "silences", "shares", "tokens", "retry", "tab"].map(|of| format!("POST /api/v1/{of}"));
        for way in posts.into_iter().chain(["PATCH /api/v1/notes/1".into(), "DELETE /api/v1/shares/x".into()])
        {
            let reply = relay.request(&way, &[("X-Forwarded-User", user)]).await;
            assert_eq!(reply.status, 403, "{user} {way}: {reply:?}");
        }
        let metrics = get(&relay, user, "/metrics").await.body;
        assert!(metrics.contains("770001") && !metrics.contains("nodeglass_relay_"), "{metrics}");
        let mut page = page_of(&relay, user, Form::Json).await;
        page.hello_as_person().await.expect("a welcome");
        let cancel = Request::Job { job: JobId(770_001), action: JobAction::Cancel };
        page.send(&ClientMessage::Request { number: 1, request: cancel }).await;
        let answer = page.receive().await;
        assert!(
            matches!(&answer, Some(ServerMessage::Response { response: Response::Refused(_), .. })),
            "{answer:?}"
        );
        let faults = ReportQuery::Faults { node: scene::name("node-a"), days: 30 };
        page.send(&ClientMessage::Report { number: 2, query: faults }).await;
        let answer = page.receive().await;
        assert!(
            matches!(&answer, Some(ServerMessage::Report { answer: ReportAnswer::Refused(_), .. })),
            "{answer:?}"
        );
    }
}

#[tokio::test]
async fn t09_usage_sums_the_jobs_of_the_person_alone() {
    let job = |id, user, gpu| Theirs { id, user, account: "acct-ml", node: "node-a", gpu };
    let members = Members::from([("alice".into(), ["acct-ml".into()].into())]);
    let (_sender, followed) = watch::channel(Arc::new(members));
    let jobs = [job(770_001, "alice", 0), job(770_002, "bob", 1)];
    let relay = TestRelay::start_site(fleet(&jobs), followed).await;
    for (user, own) in [("alice", Some("770001")), ("bob", Some("770002")), ("carol", None), ("dave", None)] {
        let usage = get(&relay, user, "/api/v1/usage").await.json();
        let jobs = usage["jobs"].as_array().unwrap();
        let ids: Vec<_> = jobs.iter().map(|job| job["job"].to_string()).collect();
        assert_eq!(ids, own.into_iter().collect::<Vec<_>>(), "{user}: {usage:#}");
        assert_eq!(usage["total"]["jobs"], u32::from(own.is_some()), "{user}");
    }
}

#[tokio::test]
async fn t10_a_person_who_is_no_member_any_more_is_disconnected() {
    let job = Theirs { id: 770_001, user: "alice", account: "acct-ml", node: "node-a", gpu: 0 };
    let members = Members::from([("bob".into(), ["acct-ml".into()].into())]);
    let (sender, followed) = watch::channel(Arc::new(members));
    let relay = TestRelay::start_site(fleet(&[job]), followed).await;
    let has_job = async || get(&relay, "bob", "/api/v1/jobs").await.body.contains("canary-name");
    let mut bob = page_of(&relay, "bob", Form::Json).await;
    let mut alice = page_of(&relay, "alice", Form::Json).await;
    for page in [&mut bob, &mut alice] {
        assert!(matches!(page.hello_as_person().await, Some(ServerMessage::Welcome(_))));
    }
    assert!(has_job().await);
    sender.send_replace(Arc::default());
    assert_eq!(bob.close_code().await, Some(1001), "the page connects again");
    assert!(!has_job().await);
    // What alice sees has not changed.
    let bytes = until_report(&mut alice, 1, vec![JobId(770_001)]).await;
    assert!(String::from_utf8_lossy(&bytes).contains("canary-name"));
    // Without anyone who follows the accounts, nobody is a member.
    sender.send_replace(Arc::new(Members::from([("bob".into(), ["acct-ml".into()].into())])));
    let mut bob = page_of(&relay, "bob", Form::Json).await;
    assert!(matches!(bob.hello_as_person().await, Some(ServerMessage::Welcome(_))));
    drop(sender);
    assert_eq!(bob.close_code().await, Some(1001));
    assert!(!has_job().await);
}

#[tokio::test]
async fn t09_the_report_of_a_job_that_left_the_list_is_its_users_and_the_administrators() {
    let job = |id, user, gpu| Theirs { id, user, account: "acct-ml", node: "node-a", gpu };
    let jobs = [job(770_001, "alice", 0), job(770_002, "bob", 1)];
    let mut earlier = fleet(&jobs);
    let ended = jobs.iter().map(|job| Job {
        state: JobState::Ended("COMPLETED".into()),
        ended: Some(3_600),
        ..job.job()
    });
    scene::jobs(&mut earlier, ended.collect(), 4_600_000);
    let records = earlier.take_finished_records();
    assert_eq!(records.len(), 2);
    // The accounts of a stored row may be those of another cluster.
    let members = Members::from([("alice".into(), ["acct-ml".into()].into())]);
    let (_sender, followed) = watch::channel(Arc::new(members));
    let relay = TestRelay::start_site(Fleet::new(), followed).await;
    assert!(relay.store.save(records).is_none_or(|refused| refused.is_empty()));
    relay.store.flush().await;
    for (user, seen) in
        [("alice", [true, false]), ("bob", [false, true]), ("carol", [false; 2]), ("dave", [true; 2])]
    {
        for (job, is_seen) in jobs.iter().zip(seen) {
            let reply = get(&relay, user, &format!("/api/v1/jobs/{}/report", job.id)).await;
            assert_eq!(reply.status, if is_seen { 200 } else { 404 }, "{user}: {reply:?}");
            assert_eq!(reply.body.contains(&job.word("name")), is_seen, "{user}: {reply:?}");
        }
        let mut page = page_of(&relay, user, Form::Json).await;
        page.hello_as_person().await.expect("a welcome");
        let ids = jobs.iter().map(|job| JobId(job.id)).collect();
        let bytes = until_report(&mut page, 1, ids).await;
        let text = String::from_utf8_lossy(&bytes);
        assert_eq!(jobs.each_ref().map(|job| text.contains(&job.word("name"))), seen, "{user}: {text}");
    }
}

/// Requests of one person do not take the time of others.
#[tokio::test]
async fn t19_a_person_has_a_budget_and_does_not_use_up_that_of_another() {
    let relay = alices().await;
    let mut limited = false;
    for _ in 0..2_000 {
        let reply = relay.request("GET /api/v1/snapshot", &[("X-Forwarded-User", "alice")]).await;
        limited = reply.status == 429;
        if limited {
            break;
        }
    }
    assert!(limited, "requests without limit");
    let reply = relay.request("GET /api/v1/snapshot", &[("X-Forwarded-User", "bob")]).await;
    assert_eq!(reply.status, 200);
}
