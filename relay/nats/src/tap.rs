//! Passes the output of one probe to its session, and publishes it while other relays are interested.

use super::connection::Bus;
use super::lines::{Lines, payloads};
use super::message::{END, LINK, NodeRequest, Position, RELAY, RelayId, SEQ, Sampling};
use async_nats::HeaderMap;
use bytes::Bytes;
use nodeglass_launch::{NodeStream, StreamEnd};
use nodeglass_platform::random::random_u64;
use nodeglass_protocol::probe::Control;
use nodeglass_protocol::{NodeName, Text};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

/// Interest ends this long after it was last stated.
pub(crate) const INTEREST_LIMIT: Duration = Duration::from_secs(10);
/// Maximum number of relays that view a node.
pub(crate) const MAX_VIEWERS: usize = 64;
/// Minimum sampling interval that another relay can request, in ms.
const MIN_INTERVAL_MS: u32 = 1_000;
/// Minimum time between two replays, and between two complete samples on request.
const REPLAY_GAP: Duration = Duration::from_secs(2);
const SAMPLE_GAP: Duration = Duration::from_millis(200);
/// Time limit for a probe to exit when this relay may no longer run it.
const STOP_LIMIT: Duration = Duration::from_secs(1);

/// A message for the tap of a node.
#[derive(Debug)]
pub(crate) enum Command {
    /// A relay views the node, or no longer does.
    Interest(RelayId, Option<Sampling>),
    /// A request, with the subject for its answer.
    Request(NodeRequest, Option<String>),
    /// This relay may no longer run the probe, with the reason.
    Yield(Text),
}

/// The pipes between a tap and the session.
pub(crate) struct Pipes {
    pub(crate) stdout: mpsc::Sender<Bytes>,
    pub(crate) stdin: mpsc::Receiver<Bytes>,
    pub(crate) end: oneshot::Sender<StreamEnd>,
}

/// The link to one probe that this relay runs.
pub(crate) struct Tap {
    bus: Bus,
    node: NodeName,
    /// Identifies this run of the probe.
    link: String,
    /// Number of the next message.
    seq: u64,
    lines: Lines,
    viewers: BTreeMap<RelayId, (Sampling, Instant)>,
    /// The schedule that the session wants, and the one that the probe has.
    wanted: Option<Sampling>,
    current: Option<Sampling>,
    requested_at: Option<Instant>,
    /// The replay in progress: the samples after `0` up to `1` are on their way.
    replay: Option<(u64, u64)>,
    replay_at: Option<Instant>,
    /// A replay that is due later.
    pending: Option<Position>,
    stdin: mpsc::Sender<Bytes>,
}

impl Tap {
    pub(crate) fn new(bus: Bus, node: NodeName, stdin: mpsc::Sender<Bytes>) -> Self {
        let link = format!("{}-{:016x}", bus.id, random_u64());
        Self {
            bus,
            node,
            link,
            seq: 0,
            lines: Lines::default(),
            viewers: BTreeMap::new(),
            wanted: None,
            current: None,
            requested_at: None,
            replay: None,
            replay_at: None,
            pending: None,
            stdin,
        }
    }

    /// Runs until the probe ends, its session drops it, or this relay may no longer run it. Dropping `inner` ends the probe.
    pub(crate) async fn run(
        mut self,
        mut inner: NodeStream,
        mut pipes: Pipes,
        mut commands: mpsc::Receiver<Command>,
    ) {
        let mut tick = interval(Duration::from_secs(1));
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let end = loop {
            tokio::select! {
                // A request of another relay, or the loss of the lease.
                Some(command) = commands.recv() => match command {
                    Command::Yield(why) => {
                        self.stop(&mut inner).await;
                        break StreamEnd { broken: Some(why), ..StreamEnd::default() };
                    }
                    Command::Interest(relay, sampling) => self.interest(relay, sampling),
                    Command::Request(request, reply) => self.request(&request, reply),
                },
                // The session needs it no longer.
                () = pipes.stdout.closed() => break StreamEnd::default(),
                // A control line of the session.
                line = pipes.stdin.recv() => match line {
                    Some(line) => self.control(line),
                    None => break StreamEnd::default(),
                },
                // Output of the probe, or its end.
                chunk = inner.stdout.recv() => match chunk {
                    Some(chunk) => {
                        self.publish(&chunk);
                        if pipes.stdout.send(chunk).await.is_err() {
                            break StreamEnd::default();
                        }
                    }
                    None => break inner.end.await.unwrap_or_default(),
                },
                _ = tick.tick() => self.expire(),
            }
        };
        let why = end.interruption().unwrap_or_else(|| "the probe ended".into());
        self.finish(&why);
        // The session may have gone first.
        let _ = pipes.end.send(end);
    }

    /// Lets the probe exit by itself, which is faster than the loss of its pipe.
    async fn stop(&self, inner: &mut NodeStream) {
        self.write_control(&Control::Stop);
        let drained = async { while inner.stdout.recv().await.is_some() {} };
        let _ = timeout(STOP_LIMIT, drained).await;
    }

    fn headers(&self, seq: u64) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(RELAY, self.bus.id.to_string());
        headers.insert(LINK, self.link.as_str());
        headers.insert(SEQ, seq.to_string());
        headers
    }

    /// Publishes output, if there is interest.
    fn publish(&mut self, chunk: &[u8]) {
        let mut lines = Vec::new();
        self.lines.feed(chunk, &mut lines);
        if self.viewers.is_empty() {
            return;
        }
        for payload in payloads(&lines) {
            let (subject, headers) = (self.bus.subjects.lines(&self.node), self.headers(self.seq));
            self.seq += 1;
            self.bus.send(subject, headers, Bytes::copy_from_slice(payload));
        }
    }

    /// Publishes the end of this link.
    fn finish(&self, why: &Text) {
        if !self.viewers.is_empty() {
            let mut headers = self.headers(self.seq);
            headers.insert(END, header_text(why));
            self.bus.send(self.bus.subjects.lines(&self.node), headers, Bytes::new());
        }
    }

    /// Passes on a control line of the session; the schedule serves all viewers, and one replay does.
    fn control(&mut self, line: Bytes) {
        match serde_json::from_slice(&line) {
            Ok(Control::Interval { ms, phase_ms }) => {
                self.wanted = Some(Sampling { interval_ms: ms, phase_ms });
                self.set_interval();
            }
            Ok(Control::Backfill { stream, after_seq }) => {
                self.backfill(Position { stream, after_seq });
                self.start_replay();
            }
            _ => self.write(line),
        }
    }

    fn interest(&mut self, relay: RelayId, sampling: Option<Sampling>) {
        match sampling {
            Some(sampling) if self.viewers.len() < MAX_VIEWERS || self.viewers.contains_key(&relay) => {
                let interval_ms = sampling.interval_ms.max(MIN_INTERVAL_MS);
                self.viewers.insert(relay, (Sampling { interval_ms, ..sampling }, Instant::now()));
            }
            Some(_) => {}
            None => drop(self.viewers.remove(&relay)),
        }
        self.update_interval();
    }

    /// Answers a request with the current lines; a complete sample follows among the live lines.
    fn request(&mut self, request: &NodeRequest, reply: Option<String>) {
        self.interest(request.relay, Some(request.sampling));
        if let Some(position) = request.backfill {
            self.backfill(position);
            self.expire();
        }
        if let Some(reply) = reply {
            let mut headers = self.headers(self.seq);
            let snapshot = self.lines.snapshot();
            if !self.lines.has_hello() {
                headers.insert(END, "its probe has not said hello yet");
            }
            self.bus.send(reply, headers, snapshot.into());
        }
        let now = Instant::now();
        if self.requested_at.is_none_or(|at| now - at >= SAMPLE_GAP) {
            self.requested_at = Some(now);
            self.set_interval();
        }
    }

    /// Notes that samples are wanted again; one replay serves all who want one.
    fn backfill(&mut self, position: Position) {
        if Some(position.stream) == self.lines.stream {
            let before = self.pending.map_or(u64::MAX, |pending| pending.after_seq);
            self.pending = Some(Position { after_seq: position.after_seq.min(before), ..position });
        }
    }

    /// Ends old interest, and starts a replay that is due.
    fn expire(&mut self) {
        let now = Instant::now();
        self.viewers.retain(|_, (_, at)| now - *at < INTEREST_LIMIT);
        self.update_interval();
        if self.replay_at.is_none_or(|at| now - at >= REPLAY_GAP) {
            self.start_replay();
        }
    }

    fn start_replay(&mut self) {
        let Some(Position { stream, after_seq }) = self.pending.take() else { return };
        // A new replay replaces the one in progress, and so includes the rest of it.
        let rest = self.replay.filter(|(_, until)| self.lines.replayed_seq < *until);
        let after_seq =
            rest.map_or(after_seq, |(after, _)| after_seq.min(after.max(self.lines.replayed_seq)));
        self.replay = Some((after_seq, self.lines.seq));
        self.lines.replayed_seq = 0;
        self.replay_at = Some(Instant::now());
        self.write_control(&Control::Backfill { stream, after_seq });
    }

    /// The schedule with the shortest interval that is wanted.
    fn schedule(&self) -> Option<Sampling> {
        let wanted = self.wanted?;
        let all = self.viewers.values().map(|(sampling, _)| *sampling);
        let shortest_ms = all.map(|sampling| sampling.interval_ms).min().unwrap_or(u32::MAX);
        let interval_ms = wanted.interval_ms.min(shortest_ms);
        Some(Sampling { interval_ms, phase_ms: wanted.phase_ms.min(interval_ms.saturating_sub(1)) })
    }

    /// Sends the schedule if it differs from the probe's.
    fn update_interval(&mut self) {
        if self.schedule() != self.current {
            self.set_interval();
        }
    }

    /// Sends the schedule, which a complete sample follows.
    fn set_interval(&mut self) {
        self.current = self.schedule();
        if let Some(Sampling { interval_ms, phase_ms }) = self.current {
            self.write_control(&Control::Interval { ms: interval_ms, phase_ms });
        }
    }

    fn write_control(&self, control: &Control) {
        let mut line = serde_json::to_vec(control).expect("control lines have string keys");
        line.push(b'\n');
        self.write(line.into());
    }

    /// A full pipe belongs to a dying link.
    fn write(&self, line: Bytes) {
        let _ = self.stdin.try_send(line);
    }
}

/// A text as the value of a header, which cannot have line breaks.
pub(crate) fn header_text(text: &Text) -> String {
    text.as_str().chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
