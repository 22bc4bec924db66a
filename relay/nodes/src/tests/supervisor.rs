//! The supervisor: one probe per planned node, requests to it, and the end of all probes.

use super::*;

#[tokio::test(start_paused = true)]
async fn one_probe_serves_a_node_until_the_plan_drops_it() {
    let mut harness = Harness::empty();
    let mut probe = harness.launcher.probe();
    for _ in 0..5 {
        harness.set_targets();
        sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(harness.launcher.tries(), 1);
    probe.hello(1).await;
    assert_eq!(probe.control().await, Some(Control::Interval { ms: 1_000, phase_ms: 0 }));
    harness.supervisor.set_targets(&BTreeMap::new());
    assert_eq!(probe.control().await, Some(Control::Stop));
    // It does not obey; its pipes are closed all the same.
    assert_eq!(probe.control().await, None);
    probe.stdout.closed().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_planned_again_waits_for_the_end_of_its_old_probe() {
    let mut harness = Harness::empty();
    let mut old = harness.launcher.probe();
    let _new = harness.launcher.probe();
    harness.set_targets();
    old.hello(1).await;
    assert_eq!(old.control().await, Some(Control::Interval { ms: 1_000, phase_ms: 0 }));
    harness.supervisor.set_targets(&BTreeMap::new());
    harness.set_targets();
    assert_eq!(old.control().await, Some(Control::Stop));
    sleep(Duration::from_millis(500)).await;
    assert_eq!(harness.launcher.tries(), 1);
    drop(old.stdout);
    let _ = old.end.send(StreamEnd::default());
    sleep(Duration::from_millis(1)).await;
    assert_eq!(harness.launcher.tries(), 2);
}

#[tokio::test(start_paused = true)]
async fn stopping_waits_for_the_probes_for_a_bounded_time() {
    let mut harness = Harness::empty();
    let (mut good, bad) = (harness.launcher.probe(), harness.launcher.probe());
    harness.supervisor.set_targets(&wanted(&["n1"], 1_000));
    sleep(Duration::from_millis(1)).await;
    harness.supervisor.set_targets(&wanted(&["n1", "n2"], 1_000));
    sleep(Duration::from_millis(1)).await;
    let obeying = tokio::spawn(async move {
        assert_eq!(good.control().await, Some(Control::Stop));
        sleep(Duration::from_millis(300)).await;
        good.ends(StreamEnd::default());
        Instant::now()
    });
    let began = Instant::now();
    harness.supervisor.stop_all(Duration::from_secs(5)).await;
    assert!(began.elapsed() <= Duration::from_secs(3), "{:?}", began.elapsed());
    assert!(obeying.await.unwrap() <= Instant::now());
    assert!(bad.stdout.is_closed());
}

#[tokio::test(start_paused = true)]
async fn dropping_the_supervisor_ends_every_probe() {
    let mut harness = Harness::empty();
    let probe = harness.launcher.probe();
    harness.set_targets();
    sleep(Duration::from_millis(1)).await;
    drop(harness.supervisor);
    timeout(Duration::from_secs(5), probe.stdout.closed()).await.expect("its pipes are closed");
}

fn tail_request() -> ProbeRequest {
    ProbeRequest::Tail { path: "/home/alice/slurm-1.out".into(), after: 0, audience: Audience::Owner }
}

/// A supervisor that also serves requests, as in the relay.
fn serve_requests(harness: Harness) -> (Probes, mpsc::Receiver<FromNode>, Arc<FakeLauncher>) {
    let (probes, mut requests) = Probes::new();
    let Harness { supervisor, events, launcher, .. } = harness;
    tokio::spawn(async move {
        while let Some(request) = requests.recv().await {
            supervisor.serve(request);
        }
    });
    (probes, events, launcher)
}

fn refused(response: Response) -> String {
    match response {
        Response::Refused(why) => why.to_string(),
        other => panic!("answered: {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_reaches_the_probe_and_its_response_the_caller() {
    let mut harness = Harness::empty();
    let mut probe = harness.launcher.probe();
    harness.set_targets();
    let (probes, mut events, _launcher) = serve_requests(harness);
    probe.hello(1).await;
    assert_eq!(probe.control().await, Some(Control::Interval { ms: 1_000, phase_ms: 0 }));
    let pending = tokio::spawn({
        let probes = probes.clone();
        async move { probes.request(&node("n1"), tail_request()).await }
    });
    let Some(Control::Request { number, request }) = probe.control().await else { panic!("no request") };
    assert_eq!(request, tail_request());
    let response = Response::Tail(nodeglass_protocol::request::Tail { end: 5, ..Default::default() });
    probe.line(&ProbeLine::Response(Box::new(ProbeResponse { number, response: response.clone() }))).await;
    assert_eq!(pending.await.unwrap(), response);
    probe.sample(1).await;
    sleep(Duration::from_millis(10)).await;
    while let Ok(FromNode { event, .. }) = events.try_recv() {
        assert!(!matches!(event, SessionEvent::Line(line) if matches!(*line, ProbeLine::Response(_))));
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_times_out_and_fails_at_once_if_the_probe_exits() {
    let mut harness = Harness::empty();
    let probe = harness.launcher.probe();
    harness.set_targets();
    let (probes, _events, _launcher) = serve_requests(harness);
    probe.hello(1).await;
    sleep(Duration::from_millis(10)).await;
    let n1 = node("n1");
    let (response, ()) = tokio::join!(probes.request(&n1, tail_request()), async {
        for seq in 0..6 {
            probe.sample(seq).await;
            sleep(Duration::from_secs(2)).await;
        }
    });
    assert!(refused(response).contains("did not respond within 10 s"));
    let (response, ()) = tokio::join!(probes.request(&n1, tail_request()), async {
        sleep(Duration::from_secs(1)).await;
        drop(probe.stdout);
    });
    assert!(refused(response).contains("ended before its probe answered"));
}

#[tokio::test(start_paused = true)]
async fn an_unlinked_node_refuses_requests_with_its_state() {
    let mut harness = Harness::empty();
    harness.set_targets();
    harness.down().await;
    let (probes, _events, launcher) = serve_requests(harness);
    let why = refused(probes.request(&node("n1"), tail_request()).await);
    assert!(why.contains("n1 cannot be reached: nothing is prepared"), "{why}");
    let why = refused(probes.request(&node("n9"), tail_request()).await);
    assert!(why.contains("does not watch node n9"), "{why}");
    let _probe = launcher.probe();
    sleep(Duration::from_secs(4)).await;
    let why = refused(probes.request(&node("n1"), tail_request()).await);
    assert!(why.contains("not said hello"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_reached_in_another_way_starts_anew_and_others_continue() {
    let mut harness = Harness::empty();
    let mut probes = [harness.launcher.probe(), harness.launcher.probe()];
    let mut nodes = wanted(&["n1", "n2"], 1_000);
    harness.supervisor.set_targets(&nodes);
    for probe in &mut probes {
        probe.hello(1).await;
        assert_eq!(probe.control().await, Some(Control::Interval { ms: 1_000, phase_ms: 0 }));
    }
    while harness.events.try_recv().is_ok() {}
    let _again = harness.launcher.probe();
    nodes.get_mut("n1").unwrap().target = 7;
    harness.supervisor.set_targets(&nodes);
    let connecting = loop {
        let event = harness.events.recv().await.unwrap();
        if matches!(event.event, SessionEvent::Connecting { .. }) {
            break event.node;
        }
    };
    assert_eq!(connecting, node("n1"));
    let closed: Vec<_> = probes.iter().filter(|probe| probe.stdout.is_closed()).collect();
    assert_eq!(closed.len(), 1, "the probe of n2 goes on");
}
