//! Subscribers of topics: snapshots when they join or lag, deltas in between, and pending history.

use super::EventLoop;
use bytes::Bytes;
use nodeglass_fleet::{Event, Fleet};
use nodeglass_live::{Encoded, Mailbox, TopicFeed};
use nodeglass_protocol::NodeName;
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::live::{ServerMessage, Topic};
use nodeglass_share::Viewer;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// A topic as filtered for a viewer.
pub(super) type FeedKey = (Topic, Viewer);

#[derive(Debug)]
pub(super) struct SubscriberState {
    pub(super) form: Form,
    pub(super) viewer: Viewer,
    pub(super) mailbox: Arc<Mailbox>,
    pub(super) topics: Vec<Topic>,
    /// Nodes whose history is still to be sent.
    pub(super) pending_history: Vec<(Topic, VecDeque<NodeName>)>,
}

impl EventLoop {
    /// Adds a subscriber without topics, and sends its id.
    pub(super) fn join(
        &mut self,
        form: Form,
        viewer: Viewer,
        mailbox: Arc<Mailbox>,
        id: oneshot::Sender<u64>,
    ) {
        self.next_subscriber_id += 1;
        let state =
            SubscriberState { form, viewer, mailbox, topics: Vec::new(), pending_history: Vec::new() };
        self.subscribers.insert(self.next_subscriber_id, state);
        if id.send(self.next_subscriber_id).is_err() {
            self.subscribers.remove(&self.next_subscriber_id);
        }
    }

    /// Sends a snapshot of a topic again. Returns the time spent on it, without flushing earlier changes.
    pub(super) fn resync(&mut self, subscriber: u64, topic: &Topic) -> Duration {
        self.flush_changes();
        let began = Instant::now();
        if self.subscribers.get(&subscriber).is_some_and(|state| state.topics.contains(topic)) {
            self.send_snapshot(subscriber, topic);
        }
        began.elapsed()
    }

    /// A complete snapshot of a topic, whether or not somebody subscribes to it.
    pub(super) fn picture(&mut self, key: FeedKey, form: Form) -> Option<Bytes> {
        self.flush_changes();
        let known = self.feeds.get_mut(&key).and_then(|feed| feed.full_snapshot(&self.fleet, form));
        known.or_else(|| {
            let (budget, now_ms) = (self.options.history_budget, self.clock.now_ms());
            TopicFeed::open(key.0, key.1, 0, budget, &self.fleet, now_ms)?.full_snapshot(&self.fleet, form)
        })
    }

    /// Changes the topics of a subscriber. Returns the time spent on snapshots, without flushing earlier
    /// changes.
    pub(super) fn set_topics(&mut self, subscriber: u64, topics: Vec<Topic>) -> Duration {
        self.flush_changes();
        let began = Instant::now();
        let Some(state) = self.subscribers.get_mut(&subscriber) else { return Duration::ZERO };
        let before = std::mem::replace(&mut state.topics, topics.clone());
        state.pending_history.retain(|(topic, _)| topics.contains(topic));
        for topic in topics.iter().filter(|topic| !before.contains(topic)) {
            self.send_snapshot(subscriber, topic);
        }
        let cost = began.elapsed();
        self.close_unwatched_feeds();
        self.update_plan();
        cost
    }

    /// Continues with the fleet of another time in a recording; every subscriber receives new snapshots.
    pub(super) fn replace_fleet(&mut self, mut fleet: Fleet) {
        // These states are the relay's own, not the recording's.
        fleet.handle(Event::Sharing(self.fleet.sharing().clone()), self.clock.now_ms());
        if let Some(replay) = self.fleet.status().replay.clone() {
            fleet.handle(Event::Replay(replay), self.clock.now_ms());
        }
        fleet.handle(Event::Silences(self.fleet.silences().to_vec()), self.clock.now_ms());
        self.fleet = fleet;
        drop(self.fleet.take_changes());
        self.feeds.clear();
        let subscribed =
            self.subscribers.iter().map(|(subscriber, state)| (*subscriber, state.topics.clone()));
        for (subscriber, topics) in subscribed.collect::<Vec<_>>() {
            topics.iter().for_each(|topic| self.send_snapshot(subscriber, topic));
        }
        self.subscribers.values().for_each(|state| state.mailbox.wake());
        self.update_plan();
    }

    pub(super) fn leave(&mut self, subscriber: u64) {
        self.subscribers.remove(&subscriber);
        self.last_subscriber_ms = self.clock.now_ms();
        self.trim.departed(self.last_subscriber_ms);
        self.close_unwatched_feeds();
        self.update_plan();
    }

    pub(super) fn close_unwatched_feeds(&mut self) {
        let subscribers = &self.subscribers;
        self.feeds.retain(|(topic, viewer), _| {
            subscribers.values().any(|state| state.viewer == *viewer && state.topics.contains(topic))
        });
    }

    /// Sends a topic's snapshot. Changes have been flushed before, so that the next delta applies to it.
    pub(super) fn send_snapshot(&mut self, subscriber: u64, topic: &Topic) {
        let Some(state) = self.subscribers.get_mut(&subscriber) else { return };
        let key = (topic.clone(), state.viewer.clone());
        if !self.feeds.contains_key(&key) {
            self.next_feed += 1;
            let (number, history_budget) = (self.next_feed, self.options.history_budget);
            let ((topic, viewer), now_ms) = (key.clone(), self.clock.now_ms());
            if let Some(feed) = TopicFeed::open(topic, viewer, number, history_budget, &self.fleet, now_ms) {
                self.feeds.insert(key.clone(), feed);
            }
        }
        state.pending_history.retain(|(pending_history, _)| pending_history != topic);
        match self.feeds.get_mut(&key).and_then(|feed| feed.initial_snapshot(&self.fleet, state.form)) {
            Some((frame, pending_history)) => {
                state.mailbox.push(frame);
                state.add_pending_history(topic, &pending_history);
            }
            None => state.mailbox.push(Bytes::from(state.form.encode(&ServerMessage::Gone(topic.clone())))),
        }
    }

    /// Sends snapshots to lagging subscribers.
    pub(super) fn catch_up(&mut self) {
        self.flush_changes();
        for subscriber in std::mem::take(&mut self.lagging) {
            let Some(state) = self.subscribers.get(&subscriber) else { continue };
            let (topics, missed) = (state.topics.clone(), state.mailbox.catch_up());
            state.mailbox.push(Bytes::from(state.form.encode(&ServerMessage::Lagged { missed })));
            topics.iter().for_each(|topic| self.send_snapshot(subscriber, topic));
        }
    }

    /// Sends the next part of the pending history.
    pub(super) fn send_history(&mut self, subscriber: u64) {
        let Some(state) = self.subscribers.get_mut(&subscriber) else { return };
        // A lagging subscriber does not know these nodes; snapshots will queue their history again.
        if state.mailbox.is_lagging() {
            return;
        }
        while let Some((topic, pending_history)) = state.pending_history.first_mut() {
            let feed = self.feeds.get_mut(&(topic.clone(), state.viewer.clone()));
            let frame = feed.and_then(|feed| feed.history(&self.fleet, state.form, pending_history));
            if pending_history.is_empty() || frame.is_none() {
                state.pending_history.remove(0);
            }
            if let Some(frame) = frame {
                state.mailbox.push(frame);
                break;
            }
        }
        if !state.pending_history.is_empty() {
            state.mailbox.signal_more();
        }
    }

    /// Publishes accumulated changes, encoded once per topic and viewer.
    pub(super) fn flush_changes(&mut self) {
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
        // One wake-up for all topics, so that their frames are sent together.
        self.subscribers.values().for_each(|state| state.mailbox.wake());
        for key in gone {
            self.feeds.remove(&key);
            for state in self.subscribers.values_mut().filter(|state| state.is_subscribed_to(&key)) {
                state.mailbox.push(Bytes::from(state.form.encode(&ServerMessage::Gone(key.0.clone()))));
            }
        }
        // A job that appears, or reappears, while its topic is subscribed to is sent without another
        // request.
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
}

impl SubscriberState {
    /// Adds nodes whose history is still to be sent.
    pub(super) fn add_pending_history(&mut self, topic: &Topic, names: &[NodeName]) {
        if names.is_empty() {
            return;
        }
        match self.pending_history.iter_mut().find(|(pending_history, _)| pending_history == topic) {
            Some((_, pending_history)) => {
                // History is encoded when it is sent, so sending it once is enough.
                let again: HashSet<_> = names.iter().collect();
                pending_history.retain(|name| !again.contains(name));
                pending_history.extend(names.iter().cloned());
            }
            None => self.pending_history.push((topic.clone(), names.iter().cloned().collect())),
        }
        self.mailbox.signal_more();
    }

    pub(super) fn is_subscribed_to(&self, (topic, viewer): &FeedKey) -> bool {
        self.viewer == *viewer && self.topics.contains(topic)
    }
}

/// Pushes a delta to all subscribers of the topic; returns how many dropped it.
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
        dropped += u64::from(state.mailbox.push_delta(frame, now_ms));
        state.add_pending_history(&key.0, &encoded.pending_history);
    }
    dropped
}
