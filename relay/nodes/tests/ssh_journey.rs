//! A supervisor keeps a probe running over a real sshd that freezes, thaws and is stopped.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking, and so do its parts")]

#[path = "../../launch/tests/ssh/config.rs"]
#[allow(dead_code, reason = "the tests of the launchers use the rest")]
mod config;
#[path = "../../launch/tests/ssh/sshd.rs"]
#[allow(dead_code, reason = "the tests of the launchers use the rest")]
mod sshd;

use config::{User, until};
use nodeglass_fleet::SessionEvent;
use nodeglass_nodes::{FromNode, NodePlan, Plan, Supervisor};
use nodeglass_platform::clock::Clock;
use nodeglass_protocol::NodeName;
use nodeglass_protocol::probe::ProbeLine;
use nodeglass_slurm::PollTrigger;
use sshd::Sshd;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// Speaks the probe wire: a hello, a heartbeat each second; exits on `stop` and when its stdin closes.
const PROBE: &str = r#"printf '\036NODEGLASS1 {"hello":{"proto":{"min":2,"max":2},"build":"b","stream":1,"host":"h",'
printf '"boot_id":"i","kernel":"k","cpus":1,"mem_total_bytes":1,"user":"u","pid":1,"sources":[]}}\n'
while :; do echo '{"heartbeat":{"mono_ns":1}}'; sleep 1; done & beat=$!
while read -r line; do case "$line" in *stop*) break;; esac; done
kill $beat"#;

async fn next(events: &mut mpsc::Receiver<FromNode>, is: impl Fn(&SessionEvent) -> bool) -> SessionEvent {
    let wait = async {
        loop {
            let event = events.recv().await.expect("a supervisor").event;
            if is(&event) {
                return event;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(40), wait).await.expect("it happens within 40 s")
}

fn is_hello(event: &SessionEvent) -> bool {
    matches!(event, SessionEvent::Line(line) if matches!(**line, ProbeLine::Hello(_)))
}

#[tokio::test]
async fn f03_a_frozen_node_is_reported_and_recovers_without_leftovers() {
    let Some(sshd) = Sshd::start() else { return };
    let probe = sshd.script(PROBE);
    let launcher = Arc::new(User::of(&sshd).launcher(&probe));
    let (sender, mut events) = mpsc::channel(64);
    let mut supervisor = Supervisor::new(launcher, Clock::start(), sender, PollTrigger::default());
    let node = NodeName::new("node-1").unwrap();
    let orders = NodePlan { interval_ms: 1_000, ..NodePlan::default() };
    supervisor.follow(&Plan { nodes: BTreeMap::from([(node, orders)]), ..Plan::default() });
    next(&mut events, is_hello).await;
    next(
        &mut events,
        |event| matches!(event, SessionEvent::Line(line) if matches!(**line, ProbeLine::Heartbeat(_))),
    )
    .await;
    sshd.signal(libc::SIGSTOP);
    let down = next(&mut events, |event| matches!(event, SessionEvent::Down { .. })).await;
    assert!(matches!(&down, SessionEvent::Down { why, .. } if why.as_str().contains("15 s")), "{down:?}");
    sshd.signal(libc::SIGCONT);
    next(&mut events, is_hello).await;
    let name = probe.display().to_string();
    assert!(!sshd.session_processes(&name).is_empty());
    supervisor.stop_all(Duration::from_secs(5)).await;
    until("no probe is left", || sshd.session_processes(&name).is_empty()).await;
}
