//! The publishing side: answers requests for nodes on which this relay runs probes, and announces them.

use super::connection::Bus;
use super::lease::Standing;
use super::message::{self, Announcement, END, Interest, Jobs, MAX_NODES, NodeRequest, PART, RELAY, RelayId};
use super::tap::{Command, INTEREST_LIMIT, MAX_VIEWERS, Pipes, Tap, header_text};
use async_nats::{HeaderMap, Message};
use futures_util::StreamExt;
use nodeglass_launch::{NodeStream, PIPE_DEPTH};
use nodeglass_protocol::job::Job;
use nodeglass_protocol::version::PROBE_WIRE;
use nodeglass_protocol::{NodeName, Text};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

/// Time between two announcements.
const ANNOUNCE: Duration = Duration::from_secs(2);
/// Time for which changes are collected before they are announced.
pub(crate) const ANNOUNCE_DELAY: Duration = Duration::from_millis(200);
/// Capacity of the channel of a tap.
const COMMANDS: usize = 64;
/// Maximum number of nodes whose failure is remembered; the oldest is forgotten first.
const MAX_FAILURES: usize = MAX_NODES;

/// Publishes the probes and jobs of this relay. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Publisher {
    bus: Bus,
    user: Text,
    /// The first controller of this relay's SLURM.
    controller: Option<Text>,
    standing: watch::Receiver<Standing>,
    /// Wakes the announcement of a change.
    changed: Arc<Notify>,
    shared: Arc<Mutex<Shared>>,
}

#[derive(Default)]
struct Shared {
    /// Running taps.
    taps: BTreeMap<NodeName, mpsc::Sender<Command>>,
    /// Nodes on which a probe is being started, by the number of attempts.
    starting: BTreeMap<NodeName, usize>,
    /// Reasons for which other nodes have none.
    failures: Failures,
    /// Relays that need the jobs.
    job_viewers: HashMap<RelayId, Instant>,
    /// Whether this relay lists jobs.
    lists_jobs: bool,
    /// The newest list.
    jobs: Option<Result<Vec<Job>, Text>>,
}

/// Reasons for which nodes have no probe, with the number of the failure.
#[derive(Default)]
struct Failures {
    by_node: HashMap<NodeName, (u64, Text)>,
    count: u64,
}

impl Failures {
    fn insert(&mut self, node: &NodeName, why: &Text) {
        self.count += 1;
        self.by_node.insert(node.clone(), (self.count, why.clone()));
        if self.by_node.len() > MAX_FAILURES
            && let Some(oldest) = self.by_node.values().map(|(number, _)| *number).min()
        {
            self.by_node.retain(|_, (number, _)| *number != oldest);
        }
    }

    fn get(&self, node: &NodeName) -> Option<&Text> {
        self.by_node.get(node).map(|(_, why)| why)
    }

    fn forget(&mut self, node: &NodeName) {
        self.by_node.remove(node);
    }
}

/// Announces that a probe is being started until it is dropped.
pub(crate) struct Starting {
    publisher: Publisher,
    node: NodeName,
}

impl Drop for Starting {
    fn drop(&mut self) {
        let mut shared = self.publisher.shared();
        if let Some(attempts) = shared.starting.get_mut(&self.node) {
            *attempts -= 1;
        }
        shared.starting.retain(|_, attempts| *attempts > 0);
        drop(shared);
        self.publisher.changed.notify_one();
    }
}

impl Publisher {
    /// Starts to answer and to announce.
    pub(crate) fn start(
        bus: Bus,
        user: Text,
        controller: Option<Text>,
        standing: watch::Receiver<Standing>,
    ) -> Self {
        let (changed, shared) = Default::default();
        let publisher = Self { bus, user, controller, standing, changed, shared };
        tokio::spawn(publisher.clone().serve_requests());
        tokio::spawn(publisher.clone().serve_interest());
        tokio::spawn(publisher.clone().announce());
        publisher
    }

    /// Publishes the output of a probe that was just started.
    pub(crate) fn tap(
        &self,
        node: &NodeName,
        inner: NodeStream,
        ended: impl FnOnce() + Send + 'static,
    ) -> NodeStream {
        let (stdout, session_stdout) = mpsc::channel(PIPE_DEPTH);
        let (session_stdin, stdin) = mpsc::channel(PIPE_DEPTH);
        let (end, session_end) = oneshot::channel();
        let (commands, received) = mpsc::channel(COMMANDS);
        let tap = Tap::new(self.bus.clone(), node.clone(), inner.stdin.clone());
        {
            let mut shared = self.shared();
            shared.failures.forget(node);
            shared.taps.insert(node.clone(), commands.clone());
        }
        self.changed.notify_one();
        let (publisher, node) = (self.clone(), node.clone());
        tokio::spawn(async move {
            tap.run(inner, Pipes { stdout, stdin, end }, received).await;
            let mut shared = publisher.shared();
            // A newer one may have taken its place.
            if shared.taps.get(&node).is_some_and(|current| current.same_channel(&commands)) {
                shared.taps.remove(&node);
            }
            drop(shared);
            publisher.changed.notify_one();
            ended();
        });
        NodeStream { stdout: session_stdout, stdin: session_stdin, end: session_end }
    }

    /// Announces a node whose probe is about to be started.
    pub(crate) fn announce_start(&self, node: &NodeName) -> Starting {
        *self.shared().starting.entry(node.clone()).or_default() += 1;
        self.changed.notify_one();
        Starting { publisher: self.clone(), node: node.clone() }
    }

    /// Notes why a node has no probe.
    pub(crate) fn failed(&self, node: &NodeName, why: &Text) {
        self.shared().failures.insert(node, why);
    }

    /// Forgets why a node has no probe here: another relay runs one.
    pub(crate) fn forget_failure(&self, node: &NodeName) {
        self.shared().failures.forget(node);
    }

    /// Announces that this relay lists jobs.
    pub(crate) fn announce_jobs(&self) {
        self.shared().lists_jobs = true;
    }

    /// Ends probes that this relay may no longer run.
    pub(crate) fn end_probes(&self, why: &Text, is_ended: impl Fn(&NodeName) -> bool) {
        let shared = self.shared();
        for (_, tap) in shared.taps.iter().filter(|(node, _)| is_ended(node)) {
            // A tap with a full queue is stalled: its session waits for nothing else.
            let (tap, why) = (tap.clone(), why.clone());
            tokio::spawn(async move { drop(tap.send(Command::Yield(why)).await) });
        }
    }

    /// The nodes on which this relay runs probes.
    pub(crate) fn nodes(&self) -> Vec<NodeName> {
        self.shared().taps.keys().take(MAX_NODES).cloned().collect()
    }

    /// Publishes a list of jobs, or the reason for having none, if a relay needs it.
    pub(crate) fn set_jobs(&self, jobs: Result<Vec<Job>, Text>) {
        self.shared().jobs = Some(jobs);
        self.send_jobs();
    }

    fn shared(&self) -> std::sync::MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send_jobs(&self) {
        let mut shared = self.shared();
        shared.job_viewers.retain(|_, at| at.elapsed() < INTEREST_LIMIT);
        let is_shown = !shared.job_viewers.is_empty() && !self.is_foreign();
        let Some(jobs) = shared.jobs.as_ref().filter(|_| is_shown) else { return };
        let parts = match jobs {
            Ok(jobs) => parts(self.bus.id, jobs),
            Err(why) => vec![Jobs { relay: self.bus.id, jobs: Vec::new(), failed: Some(why.clone()) }],
        };
        let count = parts.len();
        for (number, part) in parts.iter().enumerate() {
            let mut headers = HeaderMap::new();
            headers.insert(RELAY, self.bus.id.to_string());
            headers.insert(PART, format!("{}/{count}", number + 1));
            self.bus.send(self.bus.subjects.jobs(), headers, message::encode(part));
        }
    }

    /// Returns whether another cluster has this one's name.
    fn is_foreign(&self) -> bool {
        *self.standing.borrow() == Standing::Foreign
    }

    async fn serve_requests(self) {
        let mut requests = self.bus.subscribed(self.bus.subjects.all_requests()).await;
        while let Some(message) = requests.next().await {
            self.handle_request(&message);
        }
    }

    fn handle_request(&self, message: &Message) {
        let node = self.bus.subjects.node(&message.subject);
        let (Some(node), Some(request)) = (node, message::parse::<NodeRequest>(&message.payload)) else {
            return;
        };
        if request.relay == self.bus.id || self.is_foreign() {
            return;
        }
        let reply = message.reply.as_ref().filter(|reply| is_inbox(reply)).map(ToString::to_string);
        let shared = self.shared();
        if let Some(tap) = shared.taps.get(&node) {
            // A full queue: the relay asks again.
            let _ = tap.try_send(Command::Request(request, reply));
        } else if let (Some(why), Some(reply)) = (shared.failures.get(&node), reply) {
            let mut headers = HeaderMap::new();
            headers.insert(RELAY, self.bus.id.to_string());
            headers.insert(END, header_text(why));
            self.bus.send(reply, headers, bytes::Bytes::new());
        }
    }

    async fn serve_interest(self) {
        let mut interest = self.bus.subscribed(self.bus.subjects.interest()).await;
        while let Some(message) = interest.next().await {
            let Some(interest) = message::parse::<Interest>(&message.payload) else { continue };
            if interest.relay != self.bus.id && !self.is_foreign() {
                self.handle_interest(interest);
            }
        }
    }

    fn handle_interest(&self, Interest { relay, jobs, nodes }: Interest) {
        let mut shared = self.shared();
        for (node, sampling) in nodes {
            if let Some(tap) = shared.taps.get(&node) {
                let _ = tap.try_send(Command::Interest(relay, sampling));
            }
        }
        let is_known = shared.job_viewers.contains_key(&relay);
        if jobs && (is_known || shared.job_viewers.len() < MAX_VIEWERS) {
            shared.job_viewers.insert(relay, Instant::now());
            drop(shared);
            if !is_known {
                self.send_jobs();
            }
        }
    }

    async fn announce(self) {
        let mut tick = interval(ANNOUNCE);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut standing = self.standing.clone();
        loop {
            tokio::select! {
                _ = tick.tick() => {}
                // Another relay must not start a probe on a node that has one now.
                () = self.changed.notified() => sleep(ANNOUNCE_DELAY).await,
                // What this relay shares begins or ends.
                Ok(()) = standing.changed() => {}
            }
            let standing = *standing.borrow_and_update();
            if standing != Standing::Starting {
                let subject = self.bus.subjects.announce(self.bus.id);
                self.bus.send(subject, HeaderMap::new(), message::encode(&self.announcement(standing)));
            }
            // Viewers that left are forgotten, so that one that returns receives the list at once.
            self.shared().job_viewers.retain(|_, at| at.elapsed() < INTEREST_LIMIT);
        }
    }

    /// A relay whose name another cluster has shares neither jobs nor nodes, and is announced so that viewers can name it.
    fn announcement(&self, standing: Standing) -> Announcement {
        let is_shared = standing != Standing::Foreign;
        let shared = self.shared();
        let nodes: BTreeSet<_> =
            shared.taps.keys().chain(shared.starting.keys()).filter(|_| is_shared).cloned().collect();
        Announcement {
            relay: self.bus.id,
            user: self.user.clone(),
            version: env!("CARGO_PKG_VERSION").into(),
            wire: PROBE_WIRE,
            has_jobs: shared.lists_jobs && is_shared,
            has_leases: standing == Standing::Member,
            controller: self.controller.clone(),
            nodes: nodes.into_iter().take(MAX_NODES).collect(),
        }
    }
}

/// Returns whether a subject is for answers. Others are not answered to: this relay may publish where the sender of a request may
/// not, such as to the bucket of leases.
fn is_inbox(subject: &str) -> bool {
    subject.starts_with("_INBOX.")
}

/// Splits a list of jobs into messages. Jobs beyond the maximum number of parts are left out.
fn parts(relay: RelayId, jobs: &[Job]) -> Vec<Jobs> {
    let (mut parts, mut part, mut bytes) = (Vec::new(), Vec::new(), 0);
    for job in jobs {
        let size = serde_json::to_vec(job).map_or(0, |json| json.len() + 1);
        if bytes + size > message::MAX_SENT {
            parts.push(Jobs { relay, jobs: std::mem::take(&mut part), failed: None });
            bytes = 0;
        }
        bytes += size;
        part.push(job.clone());
    }
    parts.push(Jobs { relay, jobs: part, failed: None });
    parts.truncate(message::MAX_PARTS as usize);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_failures_are_remembered() {
        let node = |number: usize| NodeName::new(format!("n{number}")).unwrap();
        let mut failures = Failures::default();
        for number in 0..=MAX_FAILURES {
            failures.insert(&node(number), &"down".into());
        }
        failures.insert(&node(1), &"refused".into());
        failures.insert(&node(MAX_FAILURES + 1), &"down".into());
        let known = |number| failures.get(&node(number)).map(Text::as_str);
        assert_eq!([known(0), known(1), known(2)], [None, Some("refused"), None]);
        assert_eq!((known(MAX_FAILURES + 1), failures.by_node.len()), (Some("down"), MAX_FAILURES));
    }
}
