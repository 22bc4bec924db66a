//! Connections between relays and simulated probes, which faults refuse, delay, cut and disturb.

use crate::broken::Broken;
use async_trait::async_trait;
use bytes::Bytes;
use nodeglass_launch::scripted::{Scripted, ScriptedCluster};
use nodeglass_launch::{LaunchError, Launcher, LoginState, NodeStream, PIPE_DEPTH, StreamEnd};
use nodeglass_protocol::NodeName;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until};

/// Time limit of an SSH connection and of its login, as launchers apply it.
const CONNECT_LIMIT: Duration = Duration::from_secs(8);
/// A line of this length is longer than any that is accepted.
const HUGE: usize = 600 * 1024;

/// What happens to the next connection to a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Launches {
    #[default]
    Work,
    /// The port is closed.
    Refused,
    /// Nothing answers.
    NoAnswer,
    /// The login works, and then nothing is printed.
    NoHello,
    /// The key is accepted, and the user denied.
    Denied,
    /// The key is not accepted.
    KeyRejected,
}

/// The state of the way to a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    pub launches: Launches,
    /// Packets are lost in both directions.
    pub is_mute: bool,
    /// Delay of the node's output.
    pub delay_ms: u64,
}

/// What happens once to all connections of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The connection breaks within a line.
    Cut,
    /// The probe is killed.
    Kill,
    /// Unreadable lines arrive.
    Garbage(u64),
    /// A line of 600 KiB arrives.
    HugeLine,
    /// Samples from this number on are requested again.
    Backfill(u64),
    /// The relay's process is gone, and its end of the connection is closed.
    RelayKilled,
    /// The relay's machine is gone, and the node receives nothing more.
    RelayLost,
}

/// What is known of the connections of a node.
#[derive(Debug, Default)]
pub struct Traffic {
    /// Times at which connections were started.
    pub starts: Vec<Instant>,
    /// When the last output was delivered.
    pub delivered: Option<Instant>,
    /// Unreadable lines that the current connection delivered.
    pub unreadable: u64,
    /// Running probes, each with the time since which no relay uses it.
    pub probes: BTreeMap<u64, Option<Instant>>,
    next_probe: u64,
}

/// The way to one node.
#[derive(Debug, Default)]
struct Way {
    condition: watch::Sender<Condition>,
    links: Mutex<Vec<mpsc::UnboundedSender<Action>>>,
    traffic: Mutex<Traffic>,
}

/// The ways to all nodes of a simulated cluster. They outlive relays.
#[derive(Debug)]
pub struct Wire {
    cluster: ScriptedCluster,
    ways: BTreeMap<NodeName, Arc<Way>>,
    /// Changes with the login files.
    login_state: AtomicU64,
    broken: Option<Broken>,
}

impl Wire {
    /// The ways to the nodes of a cluster.
    pub fn new(cluster: ScriptedCluster, broken: Option<Broken>) -> Arc<Self> {
        let names = cluster.scenario().node_names().cloned();
        let ways = names.map(|name| (name, Arc::default())).collect();
        Arc::new(Self { cluster, ways, login_state: AtomicU64::new(1), broken })
    }

    /// Names of the nodes.
    pub fn names(&self) -> impl Iterator<Item = &NodeName> {
        self.ways.keys()
    }

    /// Sets the state of the way to a node.
    pub fn set(&self, node: &NodeName, condition: Condition) {
        if let Some(way) = self.ways.get(node) {
            let was_rejected = way.condition.borrow().launches == Launches::KeyRejected;
            if was_rejected && condition.launches != Launches::KeyRejected {
                // The user repaired it.
                self.login_state.fetch_add(1, Ordering::Relaxed);
            }
            way.condition.send_if_modified(|before| std::mem::replace(before, condition) != condition);
        }
    }

    /// Lets something happen to the connections of a node.
    pub fn act(&self, node: &NodeName, action: Action) {
        if let Some(way) = self.ways.get(node) {
            lock(&way.links).retain(|link| link.send(action).is_ok());
        }
    }

    /// What is known of the connections of a node.
    pub fn traffic(&self, node: &NodeName) -> Option<MutexGuard<'_, Traffic>> {
        self.ways.get(node).map(|way| lock(&way.traffic))
    }
}

/// Starts the probes of one relay.
pub struct WireLauncher {
    pub wire: Arc<Wire>,
    pub scripted: Scripted,
    /// Set when the relay is gone: what is left of it starts nothing.
    pub is_gone: Arc<AtomicBool>,
}

impl WireLauncher {
    /// The launcher of a relay, and what is set when that is gone.
    pub fn new(wire: &Arc<Wire>) -> (Arc<Self>, Arc<AtomicBool>) {
        let is_gone = Arc::<AtomicBool>::default();
        let scripted = wire.cluster.launcher();
        (Arc::new(Self { wire: wire.clone(), scripted, is_gone: is_gone.clone() }), is_gone)
    }
}

#[async_trait]
impl Launcher for WireLauncher {
    fn name(&self) -> &'static str {
        "simulated"
    }

    async fn launch(&self, node: &NodeName) -> Result<NodeStream, LaunchError> {
        let unreachable = |why: &str| LaunchError::Unreachable {
            why: format!("could not connect to {node} port 22: {why}").into(),
        };
        let way = self.wire.ways.get(node).ok_or_else(|| unreachable("unknown"))?;
        if self.is_gone.load(Ordering::Relaxed) {
            return Err(unreachable("the relay is gone"));
        }
        lock(&way.traffic).starts.push(Instant::now());
        let condition = *way.condition.borrow();
        match condition.launches {
            Launches::Refused => return Err(unreachable("Connection refused")),
            Launches::Denied => {
                return Err(LaunchError::Denied { why: "Access denied: no active jobs".into() });
            }
            Launches::KeyRejected => {
                return Err(LaunchError::Auth { why: "no key is accepted".into(), advice: "ssh-add".into() });
            }
            _ if condition.is_mute || condition.launches == Launches::NoAnswer => {
                sleep(CONNECT_LIMIT).await;
                return Err(unreachable("no response within 8 s"));
            }
            Launches::NoHello | Launches::NoAnswer | Launches::Work => {}
        }
        let inner = self.scripted.launch(node).await?;
        Ok(Link::start(way.clone(), inner, condition.launches == Launches::NoHello, self.wire.broken))
    }

    async fn login_state(&self) -> Option<LoginState> {
        let state = self.wire.login_state.load(Ordering::Relaxed);
        Some(LoginState::from_iter([("~/.ssh".into(), state)]))
    }
}

/// A connection.
struct Link {
    way: Arc<Way>,
    /// The probe's end; `None` once it is closed.
    inner: NodeStream,
    /// The relay's end; `None` once it is closed.
    relay: Option<RelayEnd>,
    condition: watch::Receiver<Condition>,
    actions: mpsc::UnboundedReceiver<Action>,
    /// Output on its way, when it arrives, and whether it is a line of [`Self::insert`].
    output: VecDeque<(Instant, Bytes, bool)>,
    /// The probe's stream of samples, once it has said hello.
    stream: Option<u64>,
    /// Whether the probe's output has ended.
    has_ended: bool,
    /// Whether the relay's machine is gone.
    is_lost: bool,
    /// Whether the next output breaks off.
    is_cut: bool,
    /// Whether output is discarded.
    is_silent: bool,
    number: u64,
    broken: Option<Broken>,
}

struct RelayEnd {
    stdout: mpsc::Sender<Bytes>,
    stdin: mpsc::Receiver<Bytes>,
    end: oneshot::Sender<StreamEnd>,
}

/// What happens next on a connection.
enum Happening {
    Action(Option<Action>),
    Condition,
    RelayLeft,
    Control(Option<Bytes>),
    Output(Option<Bytes>),
    Arrival,
}

impl Link {
    /// Connects the ends.
    fn start(way: Arc<Way>, inner: NodeStream, is_silent: bool, broken: Option<Broken>) -> NodeStream {
        let (stdout, out) = mpsc::channel(PIPE_DEPTH);
        let (input, stdin) = mpsc::channel(PIPE_DEPTH);
        let (end, ended) = oneshot::channel();
        let (sender, actions) = mpsc::unbounded_channel();
        lock(&way.links).push(sender);
        let condition = way.condition.subscribe();
        let number = {
            let mut traffic = lock(&way.traffic);
            traffic.unreadable = 0;
            traffic.next_probe += 1;
            let number = traffic.next_probe;
            traffic.probes.insert(number, None);
            number
        };
        let link = Self {
            way,
            inner,
            relay: Some(RelayEnd { stdout, stdin, end }),
            condition,
            actions,
            output: VecDeque::new(),
            stream: None,
            has_ended: false,
            is_lost: false,
            is_cut: false,
            is_silent,
            number,
            broken,
        };
        tokio::spawn(link.run());
        NodeStream { stdout: out, stdin: input, end: ended }
    }

    async fn run(mut self) {
        let end = self.serve().await;
        lock(&self.way.traffic).probes.remove(&self.number);
        if let Some(relay) = self.relay {
            drop(relay.stdout);
            let _ = relay.end.send(end);
        }
    }

    /// Passes bytes on until the probe has ended.
    async fn serve(&mut self) -> StreamEnd {
        loop {
            match self.next().await {
                Happening::Action(action) => {
                    if let Some(end) = action.and_then(|action| self.act(action)) {
                        return end;
                    }
                }
                Happening::Condition => {
                    if self.relay.is_none() && !self.is_mute() {
                        self.close_stdin();
                    }
                }
                Happening::RelayLeft => self.relay_left(),
                Happening::Control(Some(line)) => drop(self.inner.stdin.try_send(line)),
                Happening::Control(None) => {
                    // The end of the relay's side arrives: the probe reads the end of its input.
                    self.relay_left();
                    self.close_stdin();
                }
                Happening::Output(Some(mut bytes)) => {
                    if self.broken == Some(Broken::History) {
                        bytes = without_replays(&bytes);
                    }
                    if self.broken == Some(Broken::Orphans) && self.is_lost {
                        let _ = self.inner.stdin.try_send(Bytes::from_static(b"\"ping\"\n"));
                    }
                    if self.relay.is_some() && !self.is_silent {
                        self.stream = self.stream.or_else(|| stream(&bytes));
                        self.send(bytes, false);
                    }
                }
                Happening::Output(None) => self.has_ended = true,
                Happening::Arrival => {
                    if let Some(end) = self.deliver().await {
                        return end;
                    }
                }
            }
            if self.has_ended && self.output.is_empty() {
                return (&mut self.inner.end).await.unwrap_or_default();
            }
        }
    }

    async fn next(&mut self) -> Happening {
        self.condition.mark_unchanged();
        let is_mute = self.is_mute();
        let arrival = self.output.front().map(|(at, ..)| *at);
        let reads = !self.has_ended && self.output.len() < PIPE_DEPTH && (!is_mute || self.relay.is_none());
        let (closed, control) = match &mut self.relay {
            Some(RelayEnd { stdout, stdin, .. }) => (Some(stdout.closed()), Some(stdin.recv())),
            None => (None, None),
        };
        tokio::select! {
            biased;
            action = self.actions.recv() => Happening::Action(action),
            _ = self.condition.changed() => Happening::Condition,
            () = if_some(closed), if is_mute => Happening::RelayLeft,
            line = if_some(control), if !is_mute => Happening::Control(line),
            () = sleep_until(arrival.unwrap_or_else(Instant::now)), if arrival.is_some() && !is_mute => {
                Happening::Arrival
            }
            bytes = self.inner.stdout.recv(), if reads => Happening::Output(bytes),
        }
    }

    /// The relay no longer uses the probe, which may not know.
    fn relay_left(&mut self) {
        self.relay = None;
        self.output.clear();
        if let Some(since) = lock(&self.way.traffic).probes.get_mut(&self.number) {
            since.get_or_insert_with(Instant::now);
        }
    }

    /// Performs an action; returns the end of the connection, if that is one.
    fn act(&mut self, action: Action) -> Option<StreamEnd> {
        match action {
            Action::Cut => self.is_cut = true,
            Action::Kill => {
                return Some(StreamEnd { exit: Some(137), stderr: "Killed".into(), ..StreamEnd::default() });
            }
            Action::Garbage(lines) => {
                (0..lines).for_each(|_| self.insert(Bytes::from_static(b"\x00\xff{\"sample\":[[[NaN\n")));
            }
            Action::HugeLine => {
                let mut line = vec![b'x'; HUGE];
                line.push(b'\n');
                self.insert(line.into());
            }
            Action::Backfill(after_seq) => {
                if let Some(stream) = self.stream.filter(|_| self.relay.is_some()) {
                    let line =
                        format!("{{\"backfill\":{{\"stream\":{stream},\"after_seq\":{after_seq}}}}}\n");
                    let _ = self.inner.stdin.try_send(line.into());
                }
            }
            Action::RelayKilled => {
                self.relay_left();
                if !self.is_mute() {
                    self.close_stdin();
                }
            }
            Action::RelayLost => {
                self.relay_left();
                self.is_lost = true;
            }
        }
        None
    }

    /// Returns whether nothing passes in either direction.
    fn is_mute(&self) -> bool {
        self.condition.borrow().is_mute || self.is_lost
    }

    /// Lets the probe read the end of its input.
    fn close_stdin(&mut self) {
        self.inner.stdin = mpsc::channel(1).0;
    }

    /// Inserts a line that cannot be read, once the probe has said hello: before, it would be output of the login.
    fn insert(&mut self, line: Bytes) {
        if self.stream.is_some() && self.relay.is_some() {
            self.send(line, true);
        }
    }

    /// Sends output on its way, behind what is on its way already.
    fn send(&mut self, bytes: Bytes, is_unreadable: bool) {
        let due = Instant::now() + Duration::from_millis(self.condition.borrow().delay_ms);
        let after = self.output.back().map_or(due, |(at, ..)| *at);
        self.output.push_back((due.max(after), bytes, is_unreadable));
    }

    /// Delivers the next output; returns the end of the connection, if it breaks.
    async fn deliver(&mut self) -> Option<StreamEnd> {
        let (_, mut bytes, is_unreadable) = self.output.pop_front()?;
        let relay = self.relay.as_ref()?;
        if self.is_cut {
            bytes.truncate(bytes.len() / 2);
        }
        let is_delivered = relay.stdout.send(bytes).await.is_ok();
        let mut traffic = lock(&self.way.traffic);
        traffic.unreadable += u64::from(is_delivered && is_unreadable);
        if is_delivered && !is_unreadable {
            traffic.delivered = Some(Instant::now());
        }
        let broken = Some("the connection was reset".into());
        self.is_cut.then(|| StreamEnd { broken, ..StreamEnd::default() })
    }
}

/// The stream of samples that a hello names.
fn stream(bytes: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(bytes).ok()?;
    let (_, rest) = text.split_once("\"stream\":")?;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// The lines that are not samples of the past.
fn without_replays(bytes: &[u8]) -> Bytes {
    let lines = bytes.split_inclusive(|byte| *byte == b'\n');
    let is_past = |line: &[u8]| String::from_utf8_lossy(line).contains("\"replay\":true");
    lines.filter(|line| !is_past(line)).flatten().copied().collect()
}

/// Completes with a future, if there is one.
async fn if_some<T>(future: Option<impl Future<Output = T>>) -> T {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
