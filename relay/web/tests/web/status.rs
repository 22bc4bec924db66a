//! `GET /status` states how the relay is doing, to its owner only.

use crate::harness::TestRelay;
use nodeglass_fleet::{Event, Fleet, Host, RefusalCause, SessionEvent};
use nodeglass_protocol::NodeName;
use nodeglass_protocol::live::CLOCK_STARTS_AT_MS;
use nodeglass_protocol::picture::LauncherStatus;
use nodeglass_protocol::probe::{ProbeLine, ProbeUsage, Sample};

fn fleet() -> Fleet {
    let [n1, n2, n3, n4] = ["n1", "n2", "n3", "n4"].map(|name| NodeName::new(name).unwrap());
    let hosts = [&n1, &n2, &n3, &n4].map(|name| (name.clone(), Host::default())).into();
    let mut fleet = Fleet::new();
    let launcher = LauncherStatus { name: "openssh".into(), reason: Some("n1 is behind a jump host".into()) };
    let refused = SessionEvent::Refused {
        cause: RefusalCause::Node,
        why: "the host key of n2 has changed".into(),
        advice: "ask the administrators".into(),
    };
    let down = SessionEvent::Down { why: "n3 timed out".into(), retry_at_ms: u64::MAX };
    let sample = Sample { interval_ms: 60_000, ..Sample::default() };
    let usage = ProbeUsage { cpu_ms: 5_210, rss_bytes: 9 << 20 };
    for event in [
        Event::Launcher(launcher),
        Event::Hosts { hosts, notices: vec!["hosts.txt:4: gpu1 is listed in hosts.txt:1 already".into()] },
        Event::Node(n1, SessionEvent::Connecting { failures: 0 }),
        Event::Node(n4.clone(), SessionEvent::Line(Box::new(ProbeLine::Sample(Box::new(sample)).into()))),
        Event::Node(n4.clone(), SessionEvent::Line(Box::new(ProbeLine::<Sample>::Usage(usage).into()))),
        Event::Node(n4, SessionEvent::Lost { lines: 2, sample: "{".into() }),
        Event::Node(n2, refused),
        Event::Node(n3, down),
        Event::JobsFailed { why: "squeue did not respond within 10 s".into(), retry_at_ms: 0 },
    ] {
        // An hour ahead of the relay's clock, so that no tick finds the line of n4 old.
        fleet.handle(event, CLOCK_STARTS_AT_MS + 3_600_000);
    }
    fleet
}

#[tokio::test]
async fn the_status_states_launcher_connections_and_slurm_with_reasons() {
    let relay = TestRelay::start_with(fleet()).await;
    let bearer = format!("Bearer {}", relay.key.reveal());
    let reply = relay.request("GET /status", &[("Authorization", &bearer)]).await;
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("application/json")));
    let status: serde_json::Value = serde_json::from_str(&reply.body).unwrap();
    assert_eq!(status["build"], relay.build.as_str());
    assert_eq!(status["launcher"]["name"], "openssh");
    assert_eq!(status["launcher"]["reason"], "n1 is behind a jump host");
    assert_eq!(status["nodes"], serde_json::json!({ "connecting": 1, "down": 1, "live": 1, "refused": 1 }));
    let unreachable = status["unreachable"].as_array().unwrap();
    assert_eq!(unreachable.len(), 2);
    assert_eq!(unreachable[0]["node"], "n2");
    assert_eq!(unreachable[0]["reason"], "the host key of n2 has changed");
    assert_eq!(unreachable[0]["advice"], "ask the administrators");
    assert_eq!(
        (&unreachable[1]["state"], &unreachable[1]["reason"]),
        (&"down".into(), &"n3 timed out".into())
    );
    assert!(unreachable[1]["retry_in_s"].is_u64());
    assert_eq!(status["late"], serde_json::json!([]));
    assert_eq!(status["sample_interval_ms"], 60_000);
    let slow = status["slow_sampling"].as_str().unwrap();
    assert!(slow.starts_with("Nodes are sampled every 60 s, because nobody watches them"), "{slow}");
    assert!(status["frames"]["coalesced"].is_u64() && status["frames"]["viewers"].is_u64(), "{status}");
    assert!(status["process"]["rss_bytes"].as_u64().is_some_and(|bytes| bytes > 1_000_000), "{status}");
    let probe = serde_json::json!({ "node": "n4", "cpu_ms": 5_210, "rss_bytes": 9 << 20 });
    let probes = serde_json::json!({ "cpu_ms": 5_210, "rss_bytes": 9 << 20, "each": [probe] });
    assert_eq!(status["probes"], probes);
    let connections = status["connections"].as_array().unwrap();
    let nodes: Vec<_> = connections.iter().map(|of| (&of["node"], &of["attempts"])).collect();
    assert_eq!(nodes.len(), 4);
    assert_eq!(nodes[0], (&"n1".into(), &0.into()), "its attempt has not ended");
    assert_eq!(connections[3]["unreadable_lines"], 2, "{status}");
    assert_eq!(connections[3]["lost_samples"], 0);
    let unstored = serde_json::json!({ "history": 0, "jobs": 0, "audit": 0, "recording": 0 });
    assert_eq!(status["unstored"], unstored);
    assert_eq!(status["slurm"]["state"], "stale");
    assert_eq!(status["slurm"]["reason"], "squeue did not respond within 10 s");
    assert_eq!(status["slurm"]["age_s"], serde_json::Value::Null);
    assert!(status["notices"][0].as_str().unwrap().contains("hosts.txt:4"));
}

#[tokio::test]
async fn the_status_reveals_nothing_without_the_owners_key() {
    let relay = TestRelay::start_with(fleet()).await;
    for headers in [&[][..], &[("Authorization", "Bearer wrong")]] {
        let reply = relay.request("GET /status", headers).await;
        assert_eq!(reply.status, 401);
        assert!(!reply.body.contains("n2"), "{}", reply.body);
    }
}

#[tokio::test]
async fn a_browser_that_opens_the_status_is_led_to_the_page() {
    let relay = TestRelay::start_with(fleet()).await;
    let typed = ("Accept", "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8");
    let reply = relay.request("GET /status", &[typed]).await;
    assert_eq!((reply.status, reply.header("location")), (303, Some("./")), "{reply:?}");
    let reply = relay.request("GET /status", &[typed, ("Authorization", "Bearer wrong")]).await;
    assert_eq!(reply.status, 401, "a program that sends a key learns that it is wrong");
}
