//! The core is the one task that owns the fleet: events go in, deltas go out, and nobody else waits for anybody.

use super::feed::{Encoded, TopicFeed};
use super::mailbox::Mailbox;
use super::{Hub, REQUESTS, Request};
use crate::clock::Clock;
use crate::fleet::{Event, Fleet};
use crate::memory;
use crate::nodes::{FromNode, JobList, Orders, Plan};
use crate::share::Viewer;
use bytes::Bytes;
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::job::{Job, JobState, Parent};
use nodeglass_protocol::live::{Farewell, ServerMessage, Topic};
use nodeglass_protocol::picture::JobsHealth;
use nodeglass_protocol::share::{Scope, Sharing};
use nodeglass_protocol::{JobId, NodeName, Text};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

/// Lines of many nodes arrive together, and one frame serves them all: changes are told when nothing came for so long,
const QUIET: Duration = Duration::from_millis(5);
/// or so long after the first.
const GATHER: Duration = Duration::from_millis(30);
/// How long those who fell behind are gathered before they are sent the newest state: they fall behind together when the
/// machine is busy, and one encoding serves all.
const CATCH_UP: Duration = Duration::from_millis(250);
/// So many nodes, about, sample in the same moment, and are told in one frame.
const GROUP: usize = 128;
/// How long one group comes after another: long enough that the lines of the one are read and told.
const GROUP_EVERY_MS: usize = 60;
/// They are all to have come within this.
const WITHIN_MS: usize = 960;
/// How many events are taken at once before changes are told.
const BATCH: usize = 512;
/// Without any subscriber, nodes are sampled slowly only after this long: a reload must not slow them down.
const GRACE_MS: u64 = 60_000;
/// After a subscriber left, free memory is given back to the system when nobody else did for so long.
const GIVE_BACK_MS: u64 = 5_000;

/// How often nodes are sampled.
#[derive(Clone, Copy, Debug)]
pub struct CoreOptions {
    /// While somebody looks at the node or its job.
    pub watched_ms: u32,
    /// While somebody looks, but elsewhere.
    pub glanced_ms: u32,
    /// While nobody looks at all.
    pub unwatched_ms: u32,
    /// How many bytes of pasts go into one frame, about: what is more comes in frames of its own, each when the subscriber
    /// has read the one before.
    pub room: usize,
}

impl Default for CoreOptions {
    fn default() -> Self {
        Self { watched_ms: 1_000, glanced_ms: 2_000, unwatched_ms: 10_000, room: 96 * 1024 }
    }
}

/// What flows into the core.
#[derive(Debug)]
pub struct Inputs {
    /// From the nodes' sessions.
    pub nodes: mpsc::Receiver<FromNode>,
    /// Job lists, and whatever else the fleet should hear.
    pub news: mpsc::Receiver<Event>,
    /// Who may look, and who does.
    pub sharing: watch::Receiver<Sharing>,
}

/// The task that owns the fleet.
#[derive(Debug)]
pub struct Core {
    fleet: Fleet,
    clock: Clock,
    options: CoreOptions,
    inputs: Inputs,
    requests: mpsc::Receiver<Request>,
    departures: mpsc::UnboundedReceiver<u64>,
    plan: watch::Sender<Plan>,
    feeds: HashMap<FeedKey, TopicFeed>,
    subscribers: HashMap<u64, SubscriberState>,
    /// Viewers that fell behind.
    behind: Vec<u64>,
    next_subscriber_id: u64,
    next_feed: u32,
    last_subscriber_ms: u64,
    /// Whether subscribers left whose memory the allocator keeps.
    holds_free_memory: bool,
    coalesced: u64,
}

/// A topic as certain eyes see it.
type FeedKey = (Topic, Viewer);

#[derive(Debug)]
struct SubscriberState {
    form: Form,
    viewer: Viewer,
    mailbox: Arc<Mailbox>,
    topics: Vec<Topic>,
    /// Pasts that had no room in a frame yet.
    owed: Vec<(Topic, VecDeque<NodeName>)>,
}

impl Core {
    /// A core over a fleet, the way in for subscribers, and what it orders of the wanted nodes.
    pub fn new(
        fleet: Fleet,
        clock: Clock,
        options: CoreOptions,
        inputs: Inputs,
    ) -> (Self, Hub, watch::Receiver<Plan>) {
        let (request_tx, requests) = mpsc::channel(REQUESTS);
        let (departure_tx, departures) = mpsc::unbounded_channel();
        let (plan, planned) = watch::channel(Plan::default());
        let core = Self {
            fleet,
            clock,
            options,
            inputs,
            requests,
            departures,
            plan,
            feeds: HashMap::new(),
            subscribers: HashMap::new(),
            behind: Vec::new(),
            next_subscriber_id: 0,
            next_feed: 0,
            last_subscriber_ms: clock.now_ms(),
            holds_free_memory: false,
            coalesced: 0,
        };
        (core, Hub { requests: request_tx, departures: departure_tx }, planned)
    }

    /// Runs until `shutdown` turns true, then tells every subscriber that it ends.
    pub async fn run(mut self, mut shutdown: watch::Receiver<bool>) {
        let mut tick = interval(Duration::from_secs(1));
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut lines = Vec::with_capacity(BATCH);
        let (mut tell_at, mut tell_by): (Option<Instant>, Option<Instant>) = (None, None);
        let mut catch_up_at: Option<Instant> = None;
        self.order();
        loop {
            tokio::select! {
                // A probe's line, or many of them.
                1.. = self.inputs.nodes.recv_many(&mut lines, BATCH) => {
                    self.take_lines(&mut lines);
                    tell_at = tell_by.map(|by| by.min(Instant::now() + QUIET));
                }
                // SLURM's answer.
                Some(event) = self.inputs.news.recv() => self.take_news(event),
                // A share was made or ended, or somebody came or went.
                Ok(()) = self.inputs.sharing.changed() => self.take_sharing(),
                // A subscriber comes, or wants something.
                Some(request) = self.requests.recv() => self.take_request(request),
                // A subscriber is gone.
                Some(subscriber) = self.departures.recv() => self.leave(subscriber),
                // What was gathered is told.
                () = sleep_until(tell_at.unwrap_or_else(Instant::now)), if tell_at.is_some() => {
                    (tell_at, tell_by) = (None, None);
                    self.tell();
                }
                // Those who fell behind get the newest state.
                () = sleep_until(catch_up_at.unwrap_or_else(Instant::now)), if catch_up_at.is_some() => {
                    catch_up_at = None;
                    self.catch_up();
                }
                // What did not happen is noticed once a second.
                _ = tick.tick() => self.tick(),
                _ = shutdown.wait_for(|down| *down) => break,
            }
            // While nobody looks, what changed waits for the next second: nothing is woken for it.
            if tell_by.is_none() && self.fleet.has_changes() && !self.subscribers.is_empty() {
                let now = Instant::now();
                (tell_at, tell_by) = (Some(now + QUIET), Some(now + GATHER));
            }
            if catch_up_at.is_none() && !self.behind.is_empty() {
                catch_up_at = Some(Instant::now() + CATCH_UP);
            }
        }
        self.say_goodbye();
    }

    fn take_lines(&mut self, lines: &mut Vec<FromNode>) {
        for FromNode { node, at_ms, event } in lines.drain(..) {
            self.fleet.handle(Event::Node(node, event), at_ms);
        }
    }

    fn take_news(&mut self, event: Event) {
        let asked = match &event {
            Event::Jobs { .. } => Some(true),
            Event::JobsFailed { .. } => Some(false),
            _ => None,
        };
        self.fleet.handle(event, self.clock.now_ms());
        self.order();
        // After the orders that come of it, so that whoever waits for the list finds them.
        if let Some(is_fresh) = asked {
            self.plan.send_modify(|plan| {
                plan.list = JobList { number: plan.list.number + 1, is_fresh };
            });
        }
    }

    fn take_sharing(&mut self) {
        let sharing = self.inputs.sharing.borrow_and_update().clone();
        self.fleet.handle(Event::Sharing(sharing), self.clock.now_ms());
    }

    fn tick(&mut self) {
        let now_ms = self.clock.now_ms();
        self.fleet.handle(Event::Tick, now_ms);
        let (viewers, coalesced) = (self.subscribers.len() as u32, self.coalesced);
        // The relay's own cost is shown in whole seconds, so that it is not itself a change each second.
        let cpu_ms = cpu_time_ms() / 1_000 * 1_000;
        self.fleet.handle(Event::Status { viewers, cpu_ms, coalesced }, now_ms);
        self.order();
        if self.subscribers.is_empty() {
            self.tell();
        }
        // Not for each page that is loaded again: it walks over all that is free.
        if self.holds_free_memory && now_ms.saturating_sub(self.last_subscriber_ms) > GIVE_BACK_MS {
            self.holds_free_memory = false;
            memory::give_back();
        }
    }

    fn take_request(&mut self, request: Request) {
        match request {
            Request::Join { form, viewer, mailbox, id } => {
                self.next_subscriber_id += 1;
                let state = SubscriberState { form, viewer, mailbox, topics: Vec::new(), owed: Vec::new() };
                self.subscribers.insert(self.next_subscriber_id, state);
                if id.send(self.next_subscriber_id).is_err() {
                    self.subscribers.remove(&self.next_subscriber_id);
                }
            }
            Request::SetTopics { subscriber, topics, done } => {
                let cost = self.set_topics(subscriber, topics);
                let _ = done.send(cost);
            }
            Request::Resync { subscriber, topic, done } => {
                self.tell();
                let began = Instant::now();
                if self.subscribers.get(&subscriber).is_some_and(|state| state.topics.contains(&topic)) {
                    self.send_snapshot(subscriber, &topic);
                }
                let _ = done.send(began.elapsed());
            }
            Request::CatchUp { subscriber } => self.behind.push(subscriber),
            Request::More { subscriber } => self.send_pasts(subscriber),
            Request::Picture { topic, viewer, form, reply } => {
                self.tell();
                let now_ms = self.clock.now_ms();
                let key = (topic, viewer);
                let known = self.feeds.get_mut(&key).and_then(|feed| feed.whole(&self.fleet, form));
                let frame = known.or_else(|| {
                    TopicFeed::open(key.0, key.1, 0, self.options.room, &self.fleet, now_ms)?
                        .whole(&self.fleet, form)
                });
                let _ = reply.send(frame);
            }
            Request::Job { id, reply } => {
                let job = self.fleet.jobs().iter().find(|job| job.id == id);
                let _ = reply.send(job.cloned());
            }
            Request::Unwatched { scope, reply } => {
                let _ = reply.send(unwatched(&self.fleet, &scope));
            }
            Request::HasEnded { scope, reply } => {
                let _ = reply.send(has_ended(&self.fleet, &scope));
            }
        }
    }

    /// Returns how long the snapshots took. What changed before is told to everybody, and is not this subscriber's cost.
    fn set_topics(&mut self, subscriber: u64, topics: Vec<Topic>) -> Duration {
        self.tell();
        let began = Instant::now();
        let Some(state) = self.subscribers.get_mut(&subscriber) else { return Duration::ZERO };
        let before = std::mem::replace(&mut state.topics, topics.clone());
        state.owed.retain(|(topic, _)| topics.contains(topic));
        for topic in topics.iter().filter(|topic| !before.contains(topic)) {
            self.send_snapshot(subscriber, topic);
        }
        let cost = began.elapsed();
        self.close_unwatched_feeds();
        self.order();
        cost
    }

    fn leave(&mut self, subscriber: u64) {
        self.subscribers.remove(&subscriber);
        self.last_subscriber_ms = self.clock.now_ms();
        self.close_unwatched_feeds();
        self.order();
        self.holds_free_memory = true;
    }

    fn close_unwatched_feeds(&mut self) {
        let subscribers = &self.subscribers;
        self.feeds.retain(|(topic, viewer), _| {
            subscribers.values().any(|state| state.viewer == *viewer && state.topics.contains(topic))
        });
    }

    /// Sends a topic's snapshot; everything that changed was told before, so that it fits the next delta.
    fn send_snapshot(&mut self, subscriber: u64, topic: &Topic) {
        let Some(state) = self.subscribers.get_mut(&subscriber) else { return };
        let key = (topic.clone(), state.viewer.clone());
        if !self.feeds.contains_key(&key) {
            self.next_feed += 1;
            let (number, room) = (self.next_feed, self.options.room);
            let ((topic, viewer), now_ms) = (key.clone(), self.clock.now_ms());
            if let Some(feed) = TopicFeed::open(topic, viewer, number, room, &self.fleet, now_ms) {
                self.feeds.insert(key.clone(), feed);
            }
        }
        state.owed.retain(|(owed, _)| owed != topic);
        match self.feeds.get_mut(&key).and_then(|feed| feed.entrance(&self.fleet, state.form)) {
            Some((frame, owed)) => {
                state.mailbox.put(frame);
                state.owe(topic, &owed);
            }
            None => state.mailbox.put(Bytes::from(state.form.encode(&ServerMessage::Gone(topic.clone())))),
        }
    }

    /// Sends the newest state to those who fell behind.
    fn catch_up(&mut self) {
        self.tell();
        for subscriber in std::mem::take(&mut self.behind) {
            let Some(state) = self.subscribers.get(&subscriber) else { continue };
            let (topics, missed) = (state.topics.clone(), state.mailbox.catch_up());
            state.mailbox.put(Bytes::from(state.form.encode(&ServerMessage::Lagged { missed })));
            topics.iter().for_each(|topic| self.send_snapshot(subscriber, topic));
        }
    }

    /// Sends some of the pasts that a subscriber is owed.
    fn send_pasts(&mut self, subscriber: u64) {
        let Some(state) = self.subscribers.get_mut(&subscriber) else { return };
        // Who fell behind does not know the nodes that they are of, and is owed anew with the snapshots.
        if state.mailbox.is_behind() {
            return;
        }
        while let Some((topic, owed)) = state.owed.first_mut() {
            let feed = self.feeds.get(&(topic.clone(), state.viewer.clone()));
            let frame = feed.and_then(|feed| feed.pasts(&self.fleet, state.form, owed));
            if owed.is_empty() || frame.is_none() {
                state.owed.remove(0);
            }
            if let Some(frame) = frame {
                state.mailbox.put(frame);
                break;
            }
        }
        if !state.owed.is_empty() {
            state.mailbox.owe();
        }
    }

    /// Tells every topic's subscribers what changed, encoded once for all of them.
    fn tell(&mut self) {
        if !self.fleet.has_changes() {
            return;
        }
        let changes = self.fleet.take_changes();
        let now_ms = self.clock.now_ms();
        let mut gone = Vec::new();
        for (key, feed) in &mut self.feeds {
            let with_json = self
                .subscribers
                .values()
                .any(|state| state.form == Form::Json && state.is_subscribed_to(key));
            if let Some(encoded) = feed.advance(&self.fleet, &changes, now_ms, with_json) {
                self.coalesced += deliver(&mut self.subscribers, key, &encoded, now_ms);
            } else if (changes.jobs || changes.membership) && feed.is_gone(&self.fleet) {
                gone.push(key.clone());
            }
        }
        // One waking for all topics, so that their frames go out in one piece.
        self.subscribers.values().for_each(|state| state.mailbox.ring());
        for key in gone {
            self.feeds.remove(&key);
            for state in self.subscribers.values_mut().filter(|state| state.is_subscribed_to(&key)) {
                state.mailbox.put(Bytes::from(state.form.encode(&ServerMessage::Gone(key.0.clone()))));
            }
        }
        // A job that appears while its page is already open, or comes back, is shown without being asked for again.
        let waiting: Vec<_> = self
            .subscribers
            .iter()
            .flat_map(|(subscriber, state)| {
                state.topics.iter().map(|topic| (*subscriber, (topic.clone(), state.viewer.clone())))
            })
            .filter(|(_, key)| !self.feeds.contains_key(key) && key.1.has_topic(&self.fleet, &key.0))
            .collect();
        waiting.iter().for_each(|(subscriber, (topic, _))| self.send_snapshot(*subscriber, topic));
    }

    /// Orders a probe on each wanted node, as quick as somebody looks.
    fn order(&mut self) {
        let now_ms = self.clock.now_ms();
        if !self.subscribers.is_empty() {
            self.last_subscriber_ms = now_ms;
        }
        let idle = now_ms.saturating_sub(self.last_subscriber_ms) > GRACE_MS;
        let slow = if idle { self.options.unwatched_ms } else { self.options.glanced_ms };
        let wanted = self.fleet.wanted();
        let groups = wanted.len().div_ceil(GROUP).next_power_of_two();
        let on_nodes = self.fleet.jobs_on_nodes();
        let ordered = |name: NodeName| {
            let phase_ms = phase_ms(&name, groups);
            let active = on_nodes.get(&name).map(Vec::as_slice).unwrap_or_default();
            let completes = |job: &&&Job| job.state == JobState::Completing;
            let jobs: Vec<JobId> = active.iter().filter(|job| !completes(job)).map(|job| job.id).collect();
            let is_ending = jobs.is_empty() && !active.is_empty() && !self.fleet.is_watched_host(&name);
            (name, Orders { interval_ms: slow, phase_ms, jobs, is_ending })
        };
        let mut orders: BTreeMap<_, _> = wanted.into_iter().map(ordered).collect();
        // Each topic that somebody looks at has a feed, however many look.
        for (topic, viewer) in self.feeds.keys().filter(|(topic, _)| *topic != Topic::Overview) {
            for node in viewer.nodes(&self.fleet, topic).unwrap_or_default() {
                if let Some(orders) = orders.get_mut(node.name()) {
                    orders.interval_ms = self.options.watched_ms;
                }
            }
        }
        self.plan.send_if_modified(|plan| {
            let changed = plan.nodes != orders;
            plan.nodes = orders;
            changed
        });
    }

    fn say_goodbye(&self) {
        for state in self.subscribers.values() {
            state.mailbox.put(Bytes::from(state.form.encode(&ServerMessage::Bye(Farewell::ShuttingDown))));
            state.mailbox.close();
        }
    }
}

impl SubscriberState {
    /// Notes that the pasts of these nodes are still to be sent.
    fn owe(&mut self, topic: &Topic, names: &[NodeName]) {
        if names.is_empty() {
            return;
        }
        match self.owed.iter_mut().find(|(owed, _)| owed == topic) {
            Some((_, owed)) => {
                // They come as they are when they are sent, so that once is enough.
                let again: HashSet<_> = names.iter().collect();
                owed.retain(|name| !again.contains(name));
                owed.extend(names.iter().cloned());
            }
            None => self.owed.push((topic.clone(), names.iter().cloned().collect())),
        }
        self.mailbox.owe();
    }

    fn is_subscribed_to(&self, (topic, viewer): &FeedKey) -> bool {
        self.viewer == *viewer && self.topics.contains(topic)
    }
}

/// How long after the whole second a node samples, of so many groups of nodes. A node stays in its group, and what is
/// in no hurry is in order: groups are doubled, so that few nodes change when some come or go.
fn phase_ms(name: &NodeName, groups: usize) -> u32 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    let group = hasher.finish() as usize % groups;
    (group * GROUP_EVERY_MS.min(WITHIN_MS / groups)) as u32
}

/// One sentence about what of a scope nobody watches.
fn unwatched(fleet: &Fleet, scope: &Scope) -> Option<Text> {
    match scope {
        Scope::All => None,
        Scope::Jobs(jobs) => {
            let known = |id: &JobId| fleet.jobs().iter().any(|job| job.id == *id);
            let id = jobs.iter().find(|id| !known(id))?;
            Some(match tasks(fleet.jobs(), *id).as_slice() {
                [] => format!("there is no job {id} among those that this relay watches").into(),
                tasks => format!("job {id} is an array; name those of its tasks: {}", tasks.join(",")).into(),
            })
        }
        Scope::Nodes(nodes) => {
            let known = |name: &NodeName| {
                fleet.nodes_of(&Topic::Node(name.clone())).is_some()
                    || fleet.jobs().iter().any(|job| job.nodes.contains(name))
            };
            let name = nodes.iter().find(|name| !known(name))?;
            Some(format!("there is no node {name} among those that this relay watches").into())
        }
    }
}

/// The numbers of the tasks of an array that hold nodes.
fn tasks(jobs: &[Job], array: JobId) -> Vec<String> {
    let of_it = |job: &&Job| matches!(job.part_of, Some(Parent::Array { job, .. }) if job == array);
    jobs.iter().filter(of_it).filter(|job| job.is_active()).map(|job| job.id.to_string()).collect()
}

/// Whether every job of a scope has ended, which only a fresh job list can say.
fn has_ended(fleet: &Fleet, scope: &Scope) -> Option<bool> {
    let Scope::Jobs(jobs) = scope else { return Some(false) };
    if !matches!(fleet.status().jobs, JobsHealth::Fresh { .. }) {
        return None;
    }
    let goes_on = |job: &Job| jobs.contains(&job.id) && !matches!(job.state, JobState::Ended(_));
    Some(!fleet.jobs().iter().any(goes_on))
}

/// Puts a delta into the mailbox of everyone who looks at the topic; returns how many were too slow.
fn deliver(
    subscribers: &mut HashMap<u64, SubscriberState>,
    key: &FeedKey,
    encoded: &Encoded,
    now_ms: u64,
) -> u64 {
    let mut dropped = 0;
    for state in subscribers.values_mut().filter(|state| state.is_subscribed_to(key)) {
        let frame = match state.form {
            Form::Binary => encoded.binary.clone(),
            Form::Json => encoded.json.clone().unwrap_or_default(),
        };
        dropped += u64::from(state.mailbox.put_delta(frame, now_ms));
        state.owe(&key.0, &encoded.owed);
    }
    dropped
}

/// CPU time of this process, user and system, in ms (`CLOCK_PROCESS_CPUTIME_ID`).
fn cpu_time_ms() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000 + time.tv_nsec as u64 / 1_000_000
}
