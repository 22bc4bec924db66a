//! Sessions are tried against probes made of channels, in a time that is given and not slept.

use super::*;
use crate::clock::Clock;
use crate::launch::{LaunchError, Launcher, NodeStream, StreamEnd};
use crate::slurm::{PollReason, PollTrigger};
use async_trait::async_trait;
use bytes::Bytes;
use nodeglass_protocol::Vendor;
use nodeglass_protocol::probe::{Bye, Control, Hello, MAGIC, ProbeLine, ProbeResponse, Sample, SourceState};
use nodeglass_protocol::request::{Audience, ProbeRequest, Response};
use nodeglass_protocol::version::{PROBE_WIRE, VersionRange};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout};
use tracing_subscriber::layer::SubscriberExt;

/// The far ends of a stream.
struct Probe {
    stdout: mpsc::Sender<Bytes>,
    stdin: mpsc::Receiver<Bytes>,
    end: oneshot::Sender<StreamEnd>,
}

/// Hands out what the test prepared, and counts.
#[derive(Default)]
struct FakeLauncher {
    launches: Mutex<VecDeque<Result<NodeStream, LaunchError>>>,
    tries: Mutex<Vec<Instant>>,
    /// Fingerprint of the login files; 0 if unknown.
    credentials: AtomicU64,
}

#[async_trait]
impl Launcher for FakeLauncher {
    fn name(&self) -> &'static str {
        "prepared"
    }

    async fn launch(&self, _: &NodeName) -> Result<NodeStream, LaunchError> {
        self.tries.lock().unwrap().push(Instant::now());
        let next = self.launches.lock().unwrap().pop_front();
        next.unwrap_or_else(|| Err(LaunchError::Unreachable { why: "nothing is prepared".into() }))
    }

    async fn login_fingerprint(&self) -> Option<u64> {
        Some(self.credentials.load(Ordering::Relaxed)).filter(|credentials| *credentials != 0)
    }
}

impl FakeLauncher {
    fn fails(&self, error: LaunchError) {
        self.launches.lock().unwrap().push_back(Err(error));
    }

    fn probe(&self) -> Probe {
        let (stdout, out) = mpsc::channel(16);
        let (input, stdin) = mpsc::channel(16);
        let (ended, end) = oneshot::channel();
        self.launches.lock().unwrap().push_back(Ok(NodeStream { stdout: out, stdin: input, end }));
        Probe { stdout, stdin, end: ended }
    }

    fn tries(&self) -> usize {
        self.tries.lock().unwrap().len()
    }
}

impl Probe {
    async fn print(&self, text: impl Into<String>) {
        self.stdout.send(Bytes::from(text.into())).await.unwrap();
    }

    async fn line(&self, line: &ProbeLine) {
        self.print(format!("{}\n", serde_json::to_string(line).unwrap())).await;
    }

    async fn hello(&self, stream: u64) {
        let hello = ProbeLine::<Sample>::Hello(Box::new(hello(stream)));
        self.print(format!("{MAGIC}{}\n", serde_json::to_string(&hello).unwrap())).await;
    }

    async fn sample(&self, seq: u64) {
        self.line(&ProbeLine::Sample(Box::new(Sample { seq, ..Sample::default() }))).await;
    }

    /// The next control line that is no ping.
    async fn control(&mut self) -> Option<Control> {
        loop {
            let line = self.stdin.recv().await?;
            match serde_json::from_slice(&line).unwrap() {
                Control::Ping => {}
                control => return Some(control),
            }
        }
    }

    fn ends(self, end: StreamEnd) {
        let _ = self.end.send(end);
    }
}

fn hello(stream: u64) -> Hello {
    Hello {
        proto: VersionRange::only(PROBE_WIRE),
        build: "build".into(),
        stream,
        host: "h".into(),
        boot_id: "b".into(),
        kernel: "k".into(),
        cpus: 1,
        mem_total_bytes: 1,
        user: "u".into(),
        pid: 1,
        sources: vec![SourceState::absent(Vendor::Nvidia, "none")],
        gpus: Vec::new(),
        topology: Vec::new(),
        cpu_model: "c".into(),
        scratch: None,
    }
}

/// A supervisor that wants one node.
struct Harness {
    launcher: Arc<FakeLauncher>,
    supervisor: Supervisor,
    events: mpsc::Receiver<FromNode>,
    poll_trigger: PollTrigger,
    clock: Clock,
}

fn node(name: &str) -> NodeName {
    NodeName::new(name).unwrap()
}

fn wanted(names: &[&str], interval_ms: u32) -> BTreeMap<NodeName, SampleSchedule> {
    names
        .iter()
        .map(|name| (node(name), SampleSchedule { interval_ms, ..SampleSchedule::default() }))
        .collect()
}

impl Harness {
    fn empty() -> Self {
        let launcher = Arc::new(FakeLauncher::default());
        let ((sender, events), poll_trigger, clock) =
            (mpsc::channel(64), PollTrigger::default(), Clock::start());
        let supervisor =
            Supervisor::new(Arc::clone(&launcher) as Arc<dyn Launcher>, clock, sender, poll_trigger.clone());
        Self { launcher, supervisor, events, poll_trigger, clock }
    }

    fn set_targets(&mut self) {
        self.supervisor.set_targets(&wanted(&["n1"], 1_000));
    }

    /// Why a node refuses, as soon as one does.
    async fn refused(&mut self) -> String {
        loop {
            if let NodeEvent::Refused { why, .. } = self.next().await {
                return why.to_string();
            }
        }
    }

    async fn next(&mut self) -> NodeEvent {
        timeout(Duration::from_secs(300), self.events.recv())
            .await
            .expect("an event")
            .expect("a supervisor")
            .event
    }

    async fn down(&mut self) -> (String, u64) {
        loop {
            match self.next().await {
                NodeEvent::Down { why, retry_at_ms } => return (why.to_string(), retry_at_ms),
                NodeEvent::Refused { why, .. } => panic!("refused: {why}"),
                _ => {}
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_probe_receives_its_interval_and_pings() {
    let mut harness = Harness::empty();
    let mut probe = harness.launcher.probe();
    harness.set_targets();
    assert_eq!(harness.next().await, NodeEvent::Connecting { failures: 0 });
    probe.print("motd\n").await;
    probe.hello(1).await;
    assert_eq!(harness.next().await, NodeEvent::Noise("motd".into()));
    assert!(matches!(harness.next().await, NodeEvent::Line(line) if matches!(*line, ProbeLine::Hello(_))));
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
async fn a_silent_node_is_disconnected_after_15_s_and_backfilled() {
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
        if let NodeEvent::Line(line) = harness.next().await
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

#[tokio::test(start_paused = true)]
async fn t34_a_refused_login_is_never_retried_without_the_user() {
    let mut harness = Harness::empty();
    harness.launcher.fails(LaunchError::Auth { why: "no key".into(), advice: "ssh-add".into() });
    harness.launcher.fails(LaunchError::HostKey { why: "changed".into(), advice: "ask".into() });
    harness.launcher.fails(LaunchError::Capability { why: "gssapi".into(), advice: "openssh".into() });
    harness.set_targets();
    for (tries, why) in ["no key", "changed", "gssapi"].into_iter().enumerate() {
        assert_eq!(harness.next().await, NodeEvent::Connecting { failures: 0 });
        assert!(
            matches!(harness.next().await, NodeEvent::Refused { why: sent_interval, .. } if sent_interval.as_str() == why)
        );
        sleep(Duration::from_secs(7_200)).await;
        // A new target or interval is no request of the user.
        harness.supervisor.set_targets(&wanted(&["n1"], 2_000 + tries as u32));
        sleep(Duration::from_secs(3_600)).await;
        assert_eq!(harness.launcher.tries(), tries + 1);
        harness.supervisor.retry(Some(&node("n1")));
    }
}

/// A plan for `n1` with these jobs that run there; without any the jobs there are completing.
fn plan(number: u64, jobs: &[u32]) -> Plan {
    let (jobs, is_ending) = (jobs.iter().copied().map(JobId).collect(), jobs.is_empty());
    let schedule = SampleSchedule { interval_ms: 1_000, jobs, is_ending, ..SampleSchedule::default() };
    let list = JobList { number, is_fresh: true };
    Plan { nodes: BTreeMap::from([(node("n1"), schedule)]), list }
}

/// No node is wanted.
fn nowhere(number: u64) -> Plan {
    Plan { nodes: BTreeMap::new(), list: JobList { number, is_fresh: true } }
}

fn no_key() -> LaunchError {
    LaunchError::Auth { why: "no key".into(), advice: "ssh-add".into() }
}

#[tokio::test(start_paused = true)]
async fn t34_changing_jobs_do_not_repeat_a_refused_login() {
    let mut harness = Harness::empty();
    (0..99).for_each(|_| harness.launcher.fails(no_key()));
    harness.supervisor.follow(&plan(1, &[1]));
    assert_eq!(harness.refused().await, "no key");
    // The same job, listed or missing for a moment, is no reason to offer the key again.
    for round in 0..9 {
        harness.supervisor.follow(&nowhere(10 * round + 2));
        sleep(Duration::from_secs(7)).await;
        harness.supervisor.follow(&plan(10 * round + 3, &[1]));
        assert_eq!(harness.refused().await, "no key");
    }
    assert_eq!(harness.launcher.tries(), 1);
    // A new job is one, but jobs without end do not make a flood of logins.
    for job in 2..32 {
        harness.supervisor.follow(&nowhere(1_000 + u64::from(job)));
        sleep(Duration::from_secs(7)).await;
        harness.supervisor.follow(&plan(2_000 + u64::from(job), &[job]));
        assert_eq!(harness.refused().await, "no key");
        sleep(Duration::from_secs(7)).await;
    }
    assert_eq!(harness.launcher.tries(), 1 + auth_failures::MAX_LOGIN_RETRIES);
    // The limit ends: after a time it may be retried.
    sleep(auth_failures::REMEMBER_FOR).await;
    assert!(harness.launcher.tries() > 1 + auth_failures::MAX_LOGIN_RETRIES);
}

#[tokio::test(start_paused = true)]
async fn t34_changed_files_do_not_flood_a_node_with_connections() {
    let mut harness = Harness::empty();
    let credentials = |harness: &Harness, value| harness.launcher.credentials.store(value, Ordering::Relaxed);
    let unknown = || LaunchError::HostKey { why: "unknown".into(), advice: "ssh".into() };
    (0..999).for_each(|_| harness.launcher.fails(unknown()));
    credentials(&harness, 1);
    harness.set_targets();
    assert_eq!(harness.refused().await, "unknown");
    // The files are checked while n1 waits; they change while nothing waits.
    sleep(Duration::from_secs(6)).await;
    harness.supervisor.set_targets(&BTreeMap::new());
    sleep(Duration::from_secs(6)).await;
    credentials(&harness, 2);
    harness.supervisor.set_targets(&wanted(&["n2"], 1_000));
    let tries_after = async |harness: &mut Harness, s| {
        for _ in 0..s {
            sleep(Duration::from_secs(1)).await;
            while harness.events.try_recv().is_ok() {}
        }
        harness.launcher.tries() - 1
    };
    assert_eq!(tries_after(&mut harness, 3_600).await, 1, "nothing changed since n2 refused");
    credentials(&harness, 3);
    assert_eq!(tries_after(&mut harness, 3_600).await, 2, "one try after a change");
    // Files that change all the time.
    for value in 4..16 {
        credentials(&harness, value);
        tries_after(&mut harness, 10).await;
    }
    let tries = tries_after(&mut harness, 0).await;
    assert!((3..=6).contains(&tries), "{tries} tries, of which at most four in two minutes");
    // Not so the user.
    for more in 1..=5 {
        harness.supervisor.retry(None);
        assert_eq!(tries_after(&mut harness, 1).await, tries + more);
    }
}

#[tokio::test(start_paused = true)]
async fn a_retry_requested_twice_is_one_attempt() {
    let mut harness = Harness::empty();
    for refuses in [false, true] {
        let before = harness.launcher.tries();
        if refuses {
            harness.launcher.fails(no_key());
        }
        harness.set_targets();
        sleep(Duration::from_millis(1)).await;
        assert_eq!(harness.launcher.tries(), before + 1);
        // The second one finds the session about to try.
        harness.supervisor.retry(None);
        harness.supervisor.retry(None);
        sleep(Duration::from_millis(1)).await;
        assert_eq!(harness.launcher.tries(), before + 2);
        harness.supervisor.set_targets(&BTreeMap::new());
        sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_job_is_a_reason_to_try_a_node_that_refused() {
    let mut harness = Harness::empty();
    harness.launcher.fails(LaunchError::HostKey { why: "unknown".into(), advice: "ssh".into() });
    harness.supervisor.follow(&plan(1, &[1]));
    assert_eq!(harness.refused().await, "unknown");
    sleep(Duration::from_secs(3_600)).await;
    assert_eq!(harness.launcher.tries(), 1);
    let mut probe = harness.launcher.probe();
    harness.supervisor.follow(&plan(2, &[1, 2]));
    probe.hello(1).await;
    assert!(matches!(probe.control().await, Some(Control::Interval { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_fix_is_noticed_and_all_nodes_reconnect() {
    let mut harness = Harness::empty();
    harness.launcher.credentials.store(1, Ordering::Relaxed);
    let names: Vec<String> = (0..20).map(|number| format!("n{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    names.iter().for_each(|_| harness.launcher.fails(no_key()));
    harness.supervisor.set_targets(&wanted(&names, 1_000));
    for _ in &names {
        harness.refused().await;
    }
    sleep(Duration::from_secs(3_600)).await;
    assert_eq!(harness.launcher.tries(), 20, "nothing changed");
    // The key is loaded. Some nodes retry; the first success shows that all may.
    let probes: Vec<Probe> = names.iter().map(|_| harness.launcher.probe()).collect();
    harness.launcher.credentials.store(2, Ordering::Relaxed);
    sleep(Duration::from_secs(6)).await;
    assert_eq!(harness.launcher.tries(), 20 + auth_failures::MAX_LOGIN_RETRIES);
    for probe in &probes[..auth_failures::MAX_LOGIN_RETRIES] {
        probe.hello(1).await;
    }
    sleep(Duration::from_secs(6)).await;
    assert_eq!(harness.launcher.tries(), 40, "each once more");
}

#[tokio::test(start_paused = true)]
async fn t34_a_change_that_does_not_help_costs_few_logins() {
    let mut harness = Harness::empty();
    harness.launcher.credentials.store(1, Ordering::Relaxed);
    let names: Vec<String> = (0..20).map(|number| format!("n{number}")).collect();
    (0..99).for_each(|_| harness.launcher.fails(no_key()));
    harness.supervisor.set_targets(&wanted(&names.iter().map(String::as_str).collect::<Vec<_>>(), 1_000));
    for _ in &names {
        harness.refused().await;
    }
    for change in 2..40 {
        harness.launcher.credentials.store(change, Ordering::Relaxed);
        sleep(Duration::from_secs(15)).await;
        while harness.events.try_recv().is_ok() {}
    }
    assert_eq!(harness.launcher.tries(), 20 + auth_failures::MAX_LOGIN_RETRIES);
}

#[tokio::test(start_paused = true)]
async fn a_closed_link_waits_for_the_job_list_and_an_ended_job_is_not_retried() {
    let mut harness = Harness::empty();
    let probe = harness.launcher.probe();
    harness.supervisor.follow(&plan(1, &[1]));
    probe.hello(1).await;
    sleep(Duration::from_secs(1)).await;
    let closed = Instant::now();
    drop(probe.stdout);
    let _ = probe.end.send(StreamEnd::default());
    harness.down().await;
    assert_eq!(harness.poll_trigger.next().await, PollReason::Doubt);
    assert_eq!(closed.elapsed(), Duration::ZERO, "SLURM is polled at once");
    sleep(Duration::from_secs(6)).await;
    assert_eq!(harness.launcher.tries(), 1, "and not the node");
    // The job is completing: a login now would keep it from ending.
    harness.supervisor.follow(&plan(2, &[]));
    assert_eq!(harness.next().await, NodeEvent::Ending);
    sleep(Duration::from_secs(3_600)).await;
    assert_eq!(harness.launcher.tries(), 1);
    // The next job there is connected at once.
    let next = harness.launcher.probe();
    harness.supervisor.follow(&plan(3, &[2]));
    assert!(matches!(harness.next().await, NodeEvent::Connecting { .. }));
    next.hello(2).await;
}

#[tokio::test(start_paused = true)]
async fn a_link_that_broke_under_a_running_job_is_back_with_the_list_or_without_slurm_soon() {
    for answers in [true, false] {
        let mut harness = Harness::empty();
        let (probe, again) = (harness.launcher.probe(), harness.launcher.probe());
        harness.supervisor.follow(&plan(1, &[1]));
        probe.hello(1).await;
        sleep(Duration::from_secs(2)).await;
        let began = Instant::now();
        drop(probe.stdout);
        let _ = probe.end.send(StreamEnd::default());
        harness.down().await;
        if answers {
            harness.supervisor.follow(&plan(2, &[1]));
        }
        while harness.launcher.tries() < 2 {
            sleep(Duration::from_millis(100)).await;
        }
        let limit = if answers { 2 } else { 11 };
        assert!(began.elapsed() <= Duration::from_secs(limit), "{answers}: {:?}", began.elapsed());
        again.hello(1).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_connection_does_not_wait_for_slurm() {
    let mut harness = Harness::empty();
    let (probe, _again) = (harness.launcher.probe(), harness.launcher.probe());
    harness.supervisor.follow(&plan(1, &[1]));
    probe.hello(1).await;
    let (_, _) = harness.down().await;
    let began = Instant::now();
    while harness.launcher.tries() < 2 {
        sleep(Duration::from_millis(10)).await;
    }
    assert!(began.elapsed() <= Duration::from_secs(1), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_host_that_closes_each_login_is_retried_with_back_off() {
    let mut harness = Harness::empty();
    harness.supervisor.follow(&plan(1, &[1]));
    for round in 0..6 {
        let probe = harness.launcher.probe();
        while !matches!(harness.next().await, NodeEvent::Connecting { .. }) {}
        probe.hello(round).await;
        sleep(Duration::from_millis(500)).await;
        drop(probe.stdout);
        harness.down().await;
        harness.supervisor.follow(&plan(2 + round, &[1]));
    }
    assert!(
        matches!(harness.next().await, NodeEvent::Connecting { failures: 6 }),
        "a hello forgets no failure"
    );
}

#[tokio::test(start_paused = true)]
async fn a_denial_before_the_job_is_set_up_is_retried_soon() {
    let denied = || LaunchError::Denied { why: "denied".into() };
    let mut harness = Harness::empty();
    harness.launcher.fails(denied());
    let mut probe = harness.launcher.probe();
    harness.supervisor.follow(&plan(1, &[1]));
    assert_eq!(harness.down().await.0, "denied");
    assert_eq!(harness.poll_trigger.next().await, PollReason::Doubt);
    harness.supervisor.follow(&plan(2, &[1]));
    let began = Instant::now();
    probe.hello(1).await;
    assert!(matches!(probe.control().await, Some(Control::Interval { .. })));
    assert!(began.elapsed() <= Duration::from_secs(5));
}

#[tokio::test(start_paused = true)]
async fn a_permanent_denial_is_reported_and_retried_for_the_next_job() {
    let denied = || LaunchError::Denied { why: "denied".into() };
    let mut harness = Harness::empty();
    (0..5).for_each(|_| harness.launcher.fails(denied()));
    harness.supervisor.follow(&plan(1, &[1]));
    assert_eq!(harness.refused().await, "denied");
    sleep(Duration::from_secs(7_200)).await;
    assert_eq!(harness.launcher.tries(), 5);
    // It does not affect a later job.
    harness.supervisor.follow(&nowhere(2));
    sleep(Duration::from_secs(1)).await;
    let _probe = harness.launcher.probe();
    harness.supervisor.follow(&plan(3, &[2]));
    while !matches!(harness.next().await, NodeEvent::Connecting { .. }) {}
    assert_eq!(harness.launcher.tries(), 6);
}

#[tokio::test(start_paused = true)]
async fn a_hanging_login_script_is_run_twice_only() {
    let hangs =
        || LaunchError::Hangs { why: "the login script did not end".into(), advice: "mend it".into() };
    let mut harness = Harness::empty();
    (0..9).for_each(|_| harness.launcher.fails(hangs()));
    harness.set_targets();
    let (why, _) = harness.down().await;
    assert!(why.contains("did not end; mend it"), "{why}");
    assert_eq!(harness.refused().await, "the login script did not end");
    sleep(Duration::from_secs(7_200)).await;
    assert_eq!(harness.launcher.tries(), 2, "each try leaves a process there");
}

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
    assert_eq!(harness.launcher.tries(), 1 + 7 + 1);
}

#[tokio::test(start_paused = true)]
async fn each_fault_of_a_node_is_logged_once_with_its_name_and_reason() {
    let shown = Shown::default();
    let log = crate::log::Log::new(tracing::Level::INFO, None, Box::new(shown.clone()), false);
    let _log = tracing::subscriber::set_default(tracing_subscriber::registry().with(log));
    let mut harness = Harness::empty();
    harness.launcher.fails(LaunchError::Probe { why: "the disk is full".into() });
    harness.launcher.fails(LaunchError::Probe { why: "the disk is full".into() });
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
        ("WARN", "no link to the node node.name=n1 reason=“the disk is full”"),
        ("WARN", "no link to the node node.name=n1 reason=“no key”"),
        ("INFO", "skipped what the login shell printed node.name=n1 noise=Welcome"),
        ("WARN", "the node is linked again node.name=n1"),
        ("WARN", "skipped an unreadable line node.name=n1 lines=1 sample=rubbish"),
        ("WARN", "no link to the node node.name=n1 reason=“the link to the probe ended”"),
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
async fn an_unreachable_node_is_tried_again_and_later_and_at_once_on_request() {
    let mut harness = Harness::empty();
    harness.set_targets();
    for failures in 0..4 {
        assert_eq!(harness.next().await, NodeEvent::Connecting { failures });
        let (why, retry_at_ms) = harness.down().await;
        assert_eq!(why, "nothing is prepared");
        assert!(retry_at_ms > 0);
    }
    let now = Instant::now();
    harness.supervisor.retry(None);
    assert!(matches!(harness.next().await, NodeEvent::Connecting { failures: 4 }));
    assert_eq!(now.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_keeps_exiting_is_reported_broken_with_its_stderr() {
    let mut harness = Harness::empty();
    harness.set_targets();
    for round in 1..=4 {
        let probe = harness.launcher.probe();
        // The first attempt may precede the prepared probe.
        loop {
            match harness.next().await {
                NodeEvent::Connecting { .. } => break,
                _ => continue,
            }
        }
        probe.hello(round).await;
        let end = StreamEnd { exit: Some(134), stderr: "assertion failed".into(), broken: None };
        let Probe { stdout, stdin, end: ended } = probe;
        drop((stdout, stdin));
        let _ = ended.send(end);
        let (why, _) = harness.down().await;
        assert!(why.contains("status 134: assertion failed"), "{why}");
        assert_eq!(why.contains("keeps ending"), round == 4, "{why}");
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
async fn a_probe_of_another_version_is_not_restarted_over_and_over() {
    let mut harness = Harness::empty();
    let probe = harness.launcher.probe();
    harness.set_targets();
    probe.print("\u{1e}NODEGLASS2 {}\n").await;
    assert_eq!(harness.next().await, NodeEvent::Connecting { failures: 0 });
    assert!(
        matches!(harness.next().await, NodeEvent::Refused { why, .. } if why.as_str().contains("version"))
    );
}

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
        assert!(!matches!(event, NodeEvent::Line(line) if matches!(*line, ProbeLine::Response(_))));
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
    assert!(refused(response).contains("did not answer within 10 s"));
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
    assert!(why.contains("no probe on n9"), "{why}");
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
        if matches!(event.event, NodeEvent::Connecting { .. }) {
            break event.node;
        }
    };
    assert_eq!(connecting, node("n1"));
    let closed: Vec<_> = probes.iter().filter(|probe| probe.stdout.is_closed()).collect();
    assert_eq!(closed.len(), 1, "the probe of n2 goes on");
}
