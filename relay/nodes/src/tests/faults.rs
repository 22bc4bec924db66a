//! Nodes and probes that misbehave: what is reported, logged and tried again.

use super::*;

#[tokio::test(start_paused = true)]
async fn t18_a_flooding_node_is_cut_off_and_retried_rarely() {
    let line = |text: &str| format!("{text}\n");
    let unknown = line(&format!("{{\"unknown\":\"{}\"}}", "x".repeat(200_000)));
    let hello = serde_json::to_string(&ProbeLine::<Sample>::Hello(Box::new(hello(1)))).unwrap();
    let sample: ProbeLine = ProbeLine::Sample(Box::default());
    let sample = serde_json::to_string(&sample).unwrap();
    for endless in
        ["\0".repeat(64 * 1024), unknown, line(&hello), line(&sample).repeat(20), "\n".repeat(9_000)]
    {
        let mut harness = Harness::empty();
        let probe = harness.launcher.probe();
        harness.set_targets();
        probe.hello(1).await;
        let mut sent = 0;
        while probe.stdout.send(Bytes::from(endless.clone())).await.is_ok() {
            sent += endless.len();
            assert!(sent < 64 << 20, "it is never cut: {:?}", &endless[..20]);
            while harness.events.try_recv().is_ok() {}
        }
        let (why, retry_at_ms) = harness.down().await;
        assert!(why.contains("far more than a probe does"), "{why}");
        let wait_ms = retry_at_ms.saturating_sub(harness.clock.now_ms());
        assert!(wait_ms >= 29_000, "the next try is in {wait_ms} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn a_retry_names_the_nodes() {
    let mut harness = Harness::empty();
    let probe = harness.launcher.probe();
    harness.supervisor.set_targets(&wanted(&["good"], 1_000));
    probe.hello(1).await;
    sleep(Duration::from_millis(1)).await;
    (0..9).for_each(|_| harness.launcher.fails(no_key()));
    let names: Vec<String> =
        ["good".to_owned()].into_iter().chain((1..8).map(|n| format!("bad{n}"))).collect();
    harness.supervisor.set_targets(&wanted(&names.iter().map(String::as_str).collect::<Vec<_>>(), 1_000));
    sleep(Duration::from_millis(1)).await;
    let sent_interval = |name: Option<&str>| harness.supervisor.retry(name.map(node).as_ref());
    let refused = |name| match sent_interval(Some(name)) {
        Response::Refused(why) => why.to_string(),
        other => panic!("{other:?}"),
    };
    assert_eq!(sent_interval(Some("bad1")), Response::Done("trying bad1 again".into()));
    assert!(refused("good").contains("is already connected"));
    assert!(refused("elsewhere").contains("does not watch elsewhere"));
    sleep(Duration::from_millis(1)).await;
    assert_eq!(sent_interval(None), Response::Done("trying bad1, bad2, bad3, bad4, 3 more again".into()));
    // Those that were not tried because others had refused are retried on request, too.
    assert_eq!(harness.launcher.tries(), 1 + 3 + 1);
}

#[tokio::test(start_paused = true)]
async fn each_fault_of_a_node_is_logged_once_with_its_name_and_reason() {
    // Beside a single subscriber, a message is off that a test in another thread was the first to write.
    let _another = tracing::Dispatch::new(tracing_subscriber::registry());
    let shown = Shown::default();
    let log = nodeglass_log::Log::new(tracing::Level::INFO, None, Box::new(shown.clone()), false);
    let _log = tracing::subscriber::set_default(tracing_subscriber::registry().with(log));
    let mut harness = Harness::empty();
    harness.launcher.fails(LaunchError::Probe { why: "the disk is full".into() });
    harness.launcher.fails(LaunchError::Probe { why: "the disk is full".into() });
    // At once, and after 10 and 20 min.
    let hangs = || LaunchError::Hangs { why: "it hangs".into(), advice: "mend it".into() };
    (0..4).for_each(|_| harness.launcher.fails(hangs()));
    harness.launcher.fails(no_key());
    harness.set_targets();
    assert_eq!(harness.refused().await, "no key");
    let probe = harness.launcher.probe();
    harness.supervisor.retry(None);
    probe.print("Welcome\n").await;
    probe.hello(1).await;
    probe.print("rubbish\n").await;
    drop(probe.stdout);
    harness.down().await;
    let text = shown.text();
    for (level, message) in [
        ("WARN", "no connection to the node node.name=n1 reason=“the disk is full”"),
        ("WARN", "no connection to the node node.name=n1 reason=“it hangs; mend it”"),
        ("WARN", "no connection to the node node.name=n1 reason=“no key”"),
        ("INFO", "skipped output of the login shell node.name=n1 noise=Welcome"),
        ("WARN", "the node is connected again node.name=n1"),
        ("WARN", "skipped an unreadable line node.name=n1 lines=1 sample=rubbish"),
        ("WARN", "no connection to the node node.name=n1 reason=“the link to the probe ended”"),
    ] {
        let of_it = |line: &&str| line.contains(message) && line.contains(level);
        assert_eq!(text.lines().filter(of_it).count(), 1, "{message}: {text}");
    }
}

/// What a log shows.
#[derive(Clone, Default)]
struct Shown(Arc<Mutex<Vec<u8>>>);

impl Shown {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }
}

impl std::io::Write for Shown {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn f01_an_unreachable_node_is_tried_again_and_later_and_at_once_on_request() {
    let mut harness = Harness::empty();
    harness.set_targets();
    for failures in 0..4 {
        assert_eq!(harness.next().await, SessionEvent::Connecting { failures });
        let (why, retry_at_ms) = harness.down().await;
        assert_eq!(why, "nothing is prepared");
        assert!(retry_at_ms > 0);
    }
    let now = Instant::now();
    harness.supervisor.retry(None);
    assert!(matches!(harness.next().await, SessionEvent::Connecting { failures: 4 }));
    assert_eq!(now.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn f36_a_limit_of_logins_slows_the_attempts_of_all_nodes_down_and_ends() {
    let mut harness = Harness::empty();
    let limited = || LaunchError::Throttled { why: "it said: Exceeded MaxStartups".into() };
    (0..1_000).for_each(|_| harness.launcher.fails(limited()));
    let names: Vec<String> = (0..50).map(|number| format!("n{number:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let drain = async |harness: &mut Harness, seconds| {
        for _ in 0..10 * seconds {
            sleep(Duration::from_millis(100)).await;
            while harness.events.try_recv().is_ok() {}
        }
        harness.launcher.tries()
    };
    harness.supervisor.set_targets(&wanted(&names, 1_000));
    assert_eq!(drain(&mut harness, 9).await, 50, "each once, and none again before 10 s");
    let tries = drain(&mut harness, 50).await;
    assert!((60..=200).contains(&tries), "{tries} attempts of 50 nodes in a minute");
}

#[tokio::test(start_paused = true)]
async fn f04_a_probe_that_keeps_exiting_is_reported_broken_with_its_stderr() {
    let exited = StreamEnd { exit: Some(134), stderr: "assertion failed".into(), ..StreamEnd::default() };
    // As when it takes more memory than the node has.
    let killed = StreamEnd { signal: Some("signal KILL".into()), ..StreamEnd::default() };
    for (end, expected) in [(exited, "with status 134: assertion failed"), (killed, "by signal KILL")] {
        let mut harness = Harness::empty();
        harness.set_targets();
        for round in 1..=4 {
            let probe = harness.launcher.probe();
            // The first attempt may precede the prepared probe.
            while !matches!(harness.next().await, SessionEvent::Connecting { .. }) {}
            probe.hello(round).await;
            let Probe { stdout, stdin, end: ended } = probe;
            drop((stdout, stdin));
            let _ = ended.send(end.clone());
            let (why, retry_at_ms) = harness.down().await;
            assert!(why.contains(expected), "{why}");
            assert_eq!(why.contains("keeps ending"), round == 4, "{why}");
            let wait_ms = retry_at_ms.saturating_sub(harness.clock.now_ms());
            assert_eq!(wait_ms >= 29_000, round == 4, "{wait_ms} ms");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_probes_own_reason_for_exiting_is_reported() {
    let mut harness = Harness::empty();
    let probe = harness.launcher.probe();
    harness.set_targets();
    probe.hello(1).await;
    probe.line(&ProbeLine::Bye(Bye { reason: "another relay took over".into() })).await;
    drop(probe.stdout);
    let _ = probe.end.send(StreamEnd { exit: Some(0), ..StreamEnd::default() });
    assert_eq!(harness.down().await.0, "the probe ended: another relay took over");
}

#[tokio::test(start_paused = true)]
async fn f22_a_probe_of_another_version_is_not_restarted_over_and_over() {
    let mut harness = Harness::empty();
    let probe = harness.launcher.probe();
    harness.set_targets();
    probe.print("\u{1e}NODEGLASS2 {}\n").await;
    assert_eq!(harness.next().await, SessionEvent::Connecting { failures: 0 });
    assert!(
        matches!(harness.next().await, SessionEvent::Refused { why, .. } if why.as_str().contains("version"))
    );
}
