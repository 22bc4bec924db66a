//! Sessions are tried against probes made of channels, in a time that is given and not slept.

mod faults;
mod job_probes;
mod retries;
mod sessions;
mod supervisor;

use super::*;
use async_trait::async_trait;
use bytes::Bytes;
use nodeglass_launch::{JobLauncher, LaunchError, Launcher, LoginState, NodeStream, StreamEnd};
use nodeglass_platform::clock::Clock;
use nodeglass_protocol::Vendor;
use nodeglass_protocol::probe::{Bye, Control, Hello, MAGIC, ProbeLine, ProbeResponse, Sample, SourceState};
use nodeglass_protocol::request::{Audience, ProbeRequest, Response};
use nodeglass_protocol::version::{PROBE_WIRE, VersionRange};
use nodeglass_slurm::{PollReason, PollTrigger};
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
    /// Hash of the login files; 0 if unknown.
    credentials: AtomicU64,
    /// What they become during the next launch.
    changes_to: Mutex<Option<u64>>,
    /// Starts probes in jobs, if it can.
    in_jobs: Option<Arc<FakeJobLauncher>>,
}

/// Hands out what the test prepared for probes of jobs.
#[derive(Default)]
struct FakeJobLauncher {
    launcher: FakeLauncher,
    jobs: Mutex<Vec<JobId>>,
}

#[async_trait]
impl JobLauncher for FakeJobLauncher {
    async fn launch_in(&self, job: JobId, node: &NodeName) -> Result<NodeStream, LaunchError> {
        self.jobs.lock().unwrap().push(job);
        self.launcher.launch(node).await
    }
}

#[async_trait]
impl Launcher for FakeLauncher {
    fn name(&self) -> &'static str {
        "prepared"
    }

    async fn launch(&self, _: &NodeName) -> Result<NodeStream, LaunchError> {
        self.tries.lock().unwrap().push(Instant::now());
        if let Some(credentials) = self.changes_to.lock().unwrap().take() {
            self.credentials.store(credentials, Ordering::Relaxed);
        }
        let next = self.launches.lock().unwrap().pop_front();
        next.unwrap_or_else(|| Err(LaunchError::Unreachable { why: "nothing is prepared".into() }))
    }

    fn job_launcher(&self) -> Option<Arc<dyn JobLauncher>> {
        self.in_jobs.clone().map(|jobs| jobs as Arc<dyn JobLauncher>)
    }

    async fn login_state(&self) -> Option<LoginState> {
        let hash = Some(self.credentials.load(Ordering::Relaxed)).filter(|hash| *hash != 0)?;
        Some(LoginState::from_iter([("~/.ssh".into(), hash)]))
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
        confinement: None,
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

fn wanted(names: &[&str], interval_ms: u32) -> BTreeMap<NodeName, NodePlan> {
    names.iter().map(|name| (node(name), NodePlan { interval_ms, ..NodePlan::default() })).collect()
}

impl Harness {
    fn empty() -> Self {
        Self::with(FakeLauncher::default())
    }

    fn with(launcher: FakeLauncher) -> Self {
        let launcher = Arc::new(launcher);
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
            if let SessionEvent::Refused { why, .. } = self.next().await {
                return why.to_string();
            }
        }
    }

    async fn next(&mut self) -> SessionEvent {
        timeout(Duration::from_secs(6 * 3_600), self.events.recv())
            .await
            .expect("an event")
            .expect("a supervisor")
            .event
    }

    async fn down(&mut self) -> (String, u64) {
        loop {
            match self.next().await {
                SessionEvent::Down { why, retry_at_ms } => return (why.to_string(), retry_at_ms),
                SessionEvent::Refused { why, .. } => panic!("refused: {why}"),
                _ => {}
            }
        }
    }
}

fn no_key() -> LaunchError {
    LaunchError::Auth { why: "no key".into(), advice: "ssh-add".into() }
}
