//! A session with a probe: hello, pings, samples, and what ends it.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_probe_receives_its_interval_and_pings() {
    let mut harness = Harness::empty();
    let mut probe = harness.launcher.probe();
    harness.set_targets();
    assert_eq!(harness.next().await, SessionEvent::Connecting { failures: 0 });
    probe.print("motd\n").await;
    probe.hello(1).await;
    assert_eq!(harness.next().await, SessionEvent::Noise("motd".into()));
    assert!(matches!(harness.next().await, SessionEvent::Line(line) if matches!(*line, ProbeLine::Hello(_))));
    assert_eq!(probe.control().await, Some(Control::Interval { ms: 1_000, phase_ms: 0 }));
    harness.supervisor.set_targets(&wanted(&["n1"], 5_000));
    assert_eq!(probe.control().await, Some(Control::Interval { ms: 5_000, phase_ms: 0 }));
    let mut pings = 0;
    for seq in 0..30 {
        probe.sample(seq).await;
        sleep(Duration::from_secs(2)).await;
        while let Ok(line) = probe.stdin.try_recv() {
            assert_eq!(serde_json::from_slice::<Control>(&line).unwrap(), Control::Ping);
            pings += 1;
        }
        while harness.events.try_recv().is_ok() {}
    }
    assert!((8..=10).contains(&pings), "{pings} in a minute");
    assert_eq!(harness.launcher.tries(), 1);
}

#[tokio::test(start_paused = true)]
async fn f01_a_silent_node_is_disconnected_after_15_s_and_backfilled() {
    let mut harness = Harness::empty();
    let mut probe = harness.launcher.probe();
    let mut again = harness.launcher.probe();
    harness.set_targets();
    probe.hello(7).await;
    probe.sample(41).await;
    probe.sample(42).await;
    let began = Instant::now();
    // Bytes without an end are no sign of life.
    probe.print("{\"sample\":").await;
    let (why, _) = harness.down().await;
    assert!(why.contains("no line") && began.elapsed() >= Duration::from_secs(15), "{why}");
    assert!(began.elapsed() < Duration::from_secs(16));
    assert!(probe.stdout.is_closed());
    assert_eq!(probe.control().await, Some(Control::Interval { ms: 1_000, phase_ms: 0 }));
    again.hello(7).await;
    assert_eq!(again.control().await, Some(Control::Interval { ms: 1_000, phase_ms: 0 }));
    assert_eq!(again.control().await, Some(Control::Backfill { stream: 7, after_seq: 42 }));
}

#[tokio::test(start_paused = true)]
async fn a_sparse_sample_without_baseline_is_dropped_and_a_full_one_requested() {
    let mut harness = Harness::empty();
    let mut probe = harness.launcher.probe();
    harness.set_targets();
    probe.hello(7).await;
    assert_eq!(probe.control().await, Some(Control::Interval { ms: 1_000, phase_ms: 0 }));
    let since = |seq, since| ProbeLine::Sample(Box::new(Sample { seq, since, ..Sample::default() }));
    for (seq, before) in [(1, None), (2, Some(1)), (4, Some(3)), (5, Some(4)), (6, None), (7, Some(6))] {
        probe.line(&since(seq, before)).await;
    }
    // Number 4 lacks its beginning, and so does what follows it.
    assert_eq!(probe.control().await, Some(Control::Interval { ms: 1_000, phase_ms: 0 }));
    let mut received = Vec::new();
    while received.last() != Some(&7) {
        if let SessionEvent::Line(line) = harness.next().await
            && let ProbeLine::Sample(sample) = *line
        {
            received.push(sample.seq);
        }
    }
    assert_eq!(received, [1, 2, 6, 7]);
}

#[tokio::test(start_paused = true)]
async fn no_samples_of_the_old_stream_are_requested_from_a_new_one() {
    let mut harness = Harness::empty();
    let probe = harness.launcher.probe();
    let mut again = harness.launcher.probe();
    harness.set_targets();
    probe.hello(7).await;
    probe.sample(42).await;
    drop(probe.stdout);
    harness.down().await;
    again.hello(8).await;
    again.sample(1).await;
    assert_eq!(again.control().await, Some(Control::Interval { ms: 1_000, phase_ms: 0 }));
    assert!(timeout(Duration::from_secs(14), again.control()).await.is_err(), "nothing was missed");
}

#[tokio::test(start_paused = true)]
async fn a_program_without_hello_is_disconnected_after_10_s_with_its_output() {
    let mut harness = Harness::empty();
    let probe = harness.launcher.probe();
    harness.set_targets();
    probe.print("This account is currently not available.\n").await;
    let (why, _) = harness.down().await;
    assert!(why.contains("n1") && why.contains("currently not available"), "{why}");
}
