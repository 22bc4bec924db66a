//! The viewing side: nodes whose probes other relays run.

use super::connection::Bus;
use super::lines::sample_seq;
use super::message::{
    self, Announcement, END, Interest, LINK, MAX_NODES, MAX_READ, NodeRequest, Position, RELAY, RelayId, SEQ,
    Sampling,
};
use super::relays::{GONE, Relays};
use async_nats::{HeaderMap, Message, Subscriber};
use bytes::Bytes;
use futures_util::StreamExt;
use nodeglass_launch::{LaunchError, NodeStream, PIPE_DEPTH, StreamEnd};
use nodeglass_protocol::probe::{Control, MAGIC, ProbeLine, ProbeResponse};
use nodeglass_protocol::request::Response;
use nodeglass_protocol::version::PROBE_WIRE;
use nodeglass_protocol::{NodeName, Text};
use serde::Deserialize;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

/// Time between two statements of interest.
const INTEREST: Duration = Duration::from_secs(3);
/// Time limit for the answer to a request.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);
/// Sampling until the session states what it wants.
const FIRST_SAMPLING: Sampling = Sampling { interval_ms: 2_000, phase_ms: 0 };

/// Receives nodes of other relays. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Viewer {
    bus: Bus,
    shared: Arc<Mutex<Shared>>,
    relays: watch::Receiver<Relays>,
}

#[derive(Default)]
struct Shared {
    /// The nodes that sessions watch.
    wanted: BTreeMap<NodeName, Sampling>,
    /// The streams of which a session has received the samples so far.
    streams: HashMap<NodeName, u64>,
}

impl Viewer {
    /// Starts to state interest; in the lists of jobs as well, if `jobs`. `controller` is that of this relay's cluster.
    pub(crate) fn start(bus: Bus, jobs: bool, controller: Option<Text>) -> Self {
        let (found, relays) = watch::channel(Relays::of(controller));
        tokio::spawn(follow_relays(bus.clone(), found));
        let viewer = Self { bus, shared: Arc::default(), relays };
        tokio::spawn(viewer.clone().state_interest(jobs));
        viewer
    }

    /// The publishing relays.
    pub(crate) fn relays(&self) -> watch::Receiver<Relays> {
        self.relays.clone()
    }

    /// Requests a node from the relay that watches it.
    pub(crate) async fn launch(&self, node: &NodeName) -> Result<NodeStream, LaunchError> {
        // A lost connection says nothing about the node.
        self.bus.connected().await;
        // Before the snapshot, so that nothing between them is missed.
        let live = timeout(ANSWER_LIMIT, self.bus.subscribed(self.bus.subjects.lines(node))).await;
        let live = live.map_err(|_| LaunchError::Unreachable { why: "NATS did not respond".into() })?;
        let answer = self.request(node).await?;
        let (stdout, session_stdout) = mpsc::channel(PIPE_DEPTH);
        let (session_stdin, stdin) = mpsc::channel(PIPE_DEPTH);
        let (end, session_end) = oneshot::channel();
        let link = RemoteLink::new(self.clone(), node.clone(), &answer)?;
        tokio::spawn(async move {
            let ended = link.run(answer.payload, live, stdout, stdin).await;
            // The session may have gone first.
            let _ = end.send(ended);
        });
        Ok(NodeStream { stdout: session_stdout, stdin: session_stdin, end: session_end })
    }

    /// Requests the current lines of a node.
    async fn request(&self, node: &NodeName) -> Result<Message, LaunchError> {
        let unreachable = |why: String| LaunchError::Unreachable { why: why.into() };
        let request = NodeRequest { relay: self.bus.id, sampling: FIRST_SAMPLING, backfill: None };
        let answer = self.bus.client.request(self.bus.subjects.requests(node), message::encode(&request));
        let answer = match timeout(ANSWER_LIMIT, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) | Err(_) => return Err(unreachable(format!("no relay publishes {node} over NATS"))),
        };
        match header(&answer, END) {
            Some(why) => Err(unreachable(format!("{}, says the relay that watches it", Text::new(why)))),
            None if answer.payload.len() > MAX_READ => {
                Err(unreachable(format!("too much was sent for {node}")))
            }
            None => Ok(answer),
        }
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_of_other_cluster(&self, relay: RelayId) -> bool {
        self.relays.borrow().is_of_other_cluster(relay)
    }

    async fn state_interest(self, jobs: bool) {
        let mut tick = interval(INTEREST);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut state = self.bus.state.clone();
        loop {
            tokio::select! {
                _ = tick.tick() => {}
                // As soon as there is a connection.
                Ok(()) = state.changed() => {}
            }
            let wanted: Vec<_> =
                self.shared().wanted.iter().map(|(node, sampling)| (node.clone(), Some(*sampling))).collect();
            let mut parts: Vec<_> = wanted.chunks(MAX_NODES).map(<[_]>::to_vec).collect();
            if parts.is_empty() && jobs {
                parts.push(Vec::new());
            }
            parts.into_iter().for_each(|nodes| self.send_interest(jobs, nodes));
        }
    }

    fn send_interest(&self, jobs: bool, nodes: Vec<(NodeName, Option<Sampling>)>) {
        let interest = Interest { relay: self.bus.id, jobs, nodes };
        self.bus.send(self.bus.subjects.interest(), HeaderMap::new(), message::encode(&interest));
    }
}

/// The link to a node through another relay.
struct RemoteLink {
    viewer: Viewer,
    node: NodeName,
    began: Instant,
    /// The relay that runs the probe, and its id of the link.
    relay: RelayId,
    link: String,
    /// Number of the next message.
    next: u64,
    sampling: Sampling,
    stream: u64,
    /// The newest live sample.
    seq: u64,
    /// Whether the session has not received this stream before, and so does not request what the probe has.
    is_new: bool,
}

#[derive(Deserialize)]
struct HelloLine {
    hello: HelloStream,
}

#[derive(Deserialize)]
struct HelloStream {
    stream: u64,
}

impl RemoteLink {
    fn new(viewer: Viewer, node: NodeName, answer: &Message) -> Result<Self, LaunchError> {
        let invalid = || LaunchError::Unreachable {
            why: format!("the answer over NATS about {node} is not one of nodeglass {PROBE_WIRE}").into(),
        };
        let relay = header(answer, RELAY).and_then(|id| id.parse().ok()).ok_or_else(invalid)?;
        if viewer.is_of_other_cluster(relay) {
            let why = format!("another cluster of this name answered over NATS about {node}");
            return Err(LaunchError::Unreachable { why: why.into() });
        }
        let link = header(answer, LINK).filter(|link| link.len() <= 64).ok_or_else(invalid)?.to_owned();
        let next = header(answer, SEQ).and_then(|seq| seq.parse().ok()).ok_or_else(invalid)?;
        let first = answer.payload.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let hello = first.strip_prefix(MAGIC.as_bytes()).unwrap_or_default();
        let HelloLine { hello } = serde_json::from_slice(hello).map_err(|_| invalid())?;
        let stream = hello.stream;
        let is_new = {
            let mut shared = viewer.shared();
            if shared.streams.len() >= 2 * MAX_NODES {
                shared.streams.clear();
            }
            shared.wanted.insert(node.clone(), FIRST_SAMPLING);
            shared.streams.insert(node.clone(), stream) != Some(stream)
        };
        let began = Instant::now();
        Ok(Self { viewer, node, began, relay, link, next, sampling: FIRST_SAMPLING, stream, seq: 0, is_new })
    }

    /// Passes lines on until the session leaves or the link ends.
    async fn run(
        mut self,
        snapshot: Bytes,
        mut live: Subscriber,
        stdout: mpsc::Sender<Bytes>,
        mut stdin: mpsc::Receiver<Bytes>,
    ) -> StreamEnd {
        let broken = |why: String| StreamEnd { broken: Some(why.into()), ..StreamEnd::default() };
        let mut tick = interval(Duration::from_secs(1));
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut lost_at = None;
        if stdout.send(snapshot).await.is_err() {
            return StreamEnd::default();
        }
        loop {
            tokio::select! {
                () = stdout.closed() => return StreamEnd::default(),
                // A control line of the session.
                line = stdin.recv() => match line.map(|line| serde_json::from_slice(&line)) {
                    Some(Ok(Control::Stop)) => return StreamEnd { exit: Some(0), ..StreamEnd::default() },
                    Some(Ok(control)) => self.control(control, &stdout),
                    Some(Err(_)) => {}
                    None => return StreamEnd::default(),
                },
                // Lines of the probe.
                message = live.next() => match message {
                    None => return broken("the connection to NATS was closed".to_owned()),
                    Some(message) => match self.lines(&message) {
                        Ok(Some(lines)) => {
                            if stdout.send(lines).await.is_err() {
                                return StreamEnd::default();
                            }
                        }
                        Ok(None) => {}
                        Err(why) => return broken(why),
                    },
                },
                // The relay that publishes is checked.
                _ = tick.tick() => {
                    if self.is_gone() {
                        return broken(format!("the relay that watches {} over NATS is gone", self.node));
                    }
                    let lost = self.viewer.bus.lost();
                    lost_at = lost_at.or(Some(Instant::now())).filter(|_| lost.is_some());
                    // Before the node would seem to be silent.
                    if let (Some(why), Some(at)) = (lost, lost_at) && at.elapsed() >= GONE {
                        return broken(why.to_string());
                    }
                }
            }
        }
    }

    /// Returns whether the relay that publishes has not announced itself for a while.
    fn is_gone(&self) -> bool {
        let Viewer { bus, .. } = &self.viewer;
        bus.is_up() && self.began.elapsed() >= GONE && !self.viewer.relays.borrow().is_alive(self.relay)
    }

    /// The lines of a message; `None` if they are known already or not to be read.
    ///
    /// # Errors
    /// The reason for the end of this link.
    fn lines(&mut self, message: &Message) -> Result<Option<Bytes>, String> {
        let seq = header(message, SEQ).and_then(|seq| seq.parse::<u64>().ok());
        let (Some(link), Some(seq)) = (header(message, LINK), seq) else { return Ok(None) };
        if link != self.link {
            let relay = header(message, RELAY).and_then(|id| id.parse().ok());
            if relay.is_some_and(|relay| self.viewer.is_of_other_cluster(relay)) {
                return Ok(None);
            }
            // The probe was started again, by this relay or another one.
            return Err(format!("another link to {} was published over NATS", self.node));
        }
        if seq < self.next || message.payload.len() > MAX_READ {
            return Ok(None);
        }
        if let Some(why) = header(message, END) {
            return Err(Text::new(why).to_string());
        }
        let is_gap = seq > self.next;
        if is_gap {
            tracing::info!(node.name = %self.node, lost = seq - self.next, "messages were lost over NATS");
            self.send(Some(Position { stream: self.stream, after_seq: self.seq }));
        }
        self.next = seq.saturating_add(1);
        let samples = message.payload.split(|byte| *byte == b'\n').filter_map(sample_seq);
        self.seq = samples.max().unwrap_or(0).max(self.seq);
        Ok(Some(message.payload.clone()))
    }

    /// Executes a control line; requests to the probe are for the relay that runs it.
    fn control(&mut self, control: Control, stdout: &mpsc::Sender<Bytes>) {
        match control {
            Control::Interval { ms, phase_ms } => {
                self.sampling = Sampling { interval_ms: ms, phase_ms };
                self.viewer.shared().wanted.insert(self.node.clone(), self.sampling);
                let all = Position { stream: self.stream, after_seq: 0 };
                let backfill = std::mem::take(&mut self.is_new).then_some(all);
                self.send(backfill);
            }
            Control::Backfill { stream, after_seq } => self.send(Some(Position { stream, after_seq })),
            Control::Request { number, .. } => {
                let why = "another relay watches this node, and only that one can ask it";
                let response = ProbeResponse { number, response: Response::Refused(why.into()) };
                let line = ProbeLine::<()>::Response(Box::new(response));
                let mut line = serde_json::to_vec(&line).expect("lines have string keys");
                line.push(b'\n');
                // A full pipe: the request times out.
                let _ = stdout.try_send(line.into());
            }
            Control::Ping | Control::Notes { .. } | Control::Stop => {}
        }
    }

    /// Requests a complete sample, and samples that the probe still has.
    fn send(&self, backfill: Option<Position>) {
        let request = NodeRequest { relay: self.viewer.bus.id, sampling: self.sampling, backfill };
        let subject = self.viewer.bus.subjects.requests(&self.node);
        self.viewer.bus.send(subject, HeaderMap::new(), message::encode(&request));
    }
}

impl Drop for RemoteLink {
    /// Ends the interest.
    fn drop(&mut self) {
        self.viewer.shared().wanted.remove(&self.node);
        self.viewer.send_interest(false, vec![(self.node.clone(), None)]);
    }
}

/// The value of a header.
pub(crate) fn header<'a>(message: &'a Message, name: &'static str) -> Option<&'a str> {
    message.headers.as_ref()?.get_last(name).map(|value| value.as_str())
}

/// Follows the announcements of publishing relays.
async fn follow_relays(bus: Bus, found: watch::Sender<Relays>) {
    let mut announcements = bus.subscribed(bus.subjects.announcements()).await;
    let mut tick = interval(Duration::from_secs(1));
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            message = announcements.next() => match message {
                Some(message) => take_announcement(&bus, &message, &found),
                None => return,
            },
            _ = tick.tick() => drop(found.send_if_modified(Relays::expire)),
        }
    }
}

fn take_announcement(bus: &Bus, message: &Message, found: &watch::Sender<Relays>) {
    let Some(announcement) = message::parse::<Announcement>(&message.payload) else { return };
    let id = announcement.relay;
    if id == bus.id || announcement.wire != PROBE_WIRE || *message.subject != *bus.subjects.announce(id) {
        return;
    }
    found.send_if_modified(|relays| relays.take(announcement, Instant::now()));
}
