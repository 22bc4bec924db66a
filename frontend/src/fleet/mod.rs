//! The page's state of the fleet: a summary of everything, the selected topic in full, and the relay's clock.

mod clock;
mod logs;
pub mod long_history;
mod signals;
mod topic_store;

pub use clock::Clock;
pub use logs::{Log, LogSignals};
pub use signals::{GpuSignals, NodeSignals};
pub use topic_store::{Phase, TopicStore};

use leptos::prelude::*;
use logs::Logs;
use nodeglass_protocol::live::{Change, ClientMessage, Delta, ServerMessage, Topic, Welcome};
use nodeglass_protocol::request::LogRef;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// The state of the fleet. Clones share the same state.
#[derive(Clone)]
pub struct FleetStore(Arc<Inner>);

struct Inner {
    overview: TopicStore,
    detail: ArcRwSignal<Option<TopicStore>>,
    logs: Logs,
    welcome: ArcRwSignal<Option<Arc<Welcome>>>,
    clock: Mutex<Clock>,
    second: ArcRwSignal<u64>,
    shown_ms: AtomicU64,
    last_tick_ms: Mutex<f64>,
    /// Whether a structural change arrived since the last tick; sums and states must reflect it soon.
    has_structural_change: AtomicBool,
    suspended_ms: Mutex<Option<f64>>,
    is_notifying: AtomicBool,
    frame_is_due: AtomicBool,
}

/// Grace period after the page becomes visible, in ms: until the new snapshot arrives, values are shown as
/// they were instead of as stale.
const CATCH_UP_MS: f64 = 2_000.0;
/// A frame at least this long after the last tick causes the next one, in ms, so that what updates once a
/// second updates together with new data.
const EARLY_MS: f64 = 700.0;
/// The delay for a frame with a structural change, such as a link or other GPUs: lists show it at once, and a sum
/// beside them must agree.
const STRUCTURAL_MS: f64 = 200.0;

impl Default for FleetStore {
    fn default() -> Self {
        Self(Arc::new(Inner {
            overview: TopicStore::new(Topic::Overview),
            detail: ArcRwSignal::new(None),
            logs: Logs::default(),
            welcome: ArcRwSignal::new(None),
            clock: Mutex::new(Clock::default()),
            second: ArcRwSignal::new(0),
            shown_ms: AtomicU64::new(0),
            last_tick_ms: Mutex::new(0.0),
            has_structural_change: AtomicBool::new(false),
            suspended_ms: Mutex::new(None),
            is_notifying: AtomicBool::new(false),
            frame_is_due: AtomicBool::new(false),
        }))
    }
}

impl FleetStore {
    /// Jobs, the relay, and a summary of every node.
    pub fn overview(&self) -> &TopicStore {
        &self.0.overview
    }

    /// The topic shown in full, if any.
    pub fn detail(&self) -> Option<TopicStore> {
        self.0.detail.get()
    }

    /// Returns the welcome message, once connected.
    pub fn welcome(&self) -> Option<Arc<Welcome>> {
        self.0.welcome.get()
    }

    /// Like [`Self::welcome`], without subscribing the caller.
    pub fn welcome_untracked(&self) -> Option<Arc<Welcome>> {
        self.0.welcome.get_untracked()
    }

    /// Returns the relay's clock at `page_ms` of the page's clock, in ms.
    pub fn relay_ms(&self, page_ms: f64) -> u64 {
        self.clock().relay_ms(page_ms)
    }

    /// Returns Unix time by the login node's clock at `page_ms`, in s.
    pub fn wall_s(&self, page_ms: f64) -> i64 {
        self.clock().wall_s(page_ms)
    }

    /// Returns how far Unix time by the login node's clock is ahead of the relay's clock, in ms.
    pub fn wall_ahead_ms(&self) -> i64 {
        self.clock().wall_ahead_ms()
    }

    /// Selects the topic to show in full and drops the previous one.
    pub fn show_detail(&self, topic: Option<Topic>) {
        let same =
            self.0.detail.with_untracked(|store| store.as_ref().map(TopicStore::topic) == topic.as_ref());
        if !same {
            self.0.detail.set(topic.map(TopicStore::new));
        }
    }

    /// Unsubscribes from the full topic while the page is hidden. Its data stays.
    pub fn suspend(&self) {
        *self.suspended() = Some(f64::INFINITY);
    }

    /// Returns whether the subscription is suspended because the page is hidden.
    pub fn is_suspended(&self) -> bool {
        self.suspended().is_some_and(f64::is_infinite)
    }

    /// Sets whether a hidden page notifies of events; returns whether the topics to subscribe to changed.
    pub fn set_notifying(&self, is_notifying: bool) -> bool {
        self.0.is_notifying.swap(is_notifying, Relaxed) != is_notifying && self.is_suspended()
    }

    /// Resumes the subscription; returns whether it was suspended.
    pub fn resume(&self, page_ms: f64) -> bool {
        let mut suspended = self.suspended();
        let was_suspended = suspended.is_some_and(f64::is_infinite);
        if was_suspended {
            *suspended = Some(page_ms);
        }
        was_suspended
    }

    /// Returns the topics to subscribe to.
    pub fn topics(&self) -> Vec<Topic> {
        if self.is_suspended() {
            let is_notifying = self.0.is_notifying.load(Relaxed);
            return is_notifying.then_some(Topic::Overview).into_iter().collect();
        }
        let detail = self.0.detail.with_untracked(|store| store.as_ref().map(|store| store.topic().clone()));
        std::iter::once(Topic::Overview).chain(detail).collect()
    }

    /// Follows these logs from now on.
    pub fn follow(&self, wanted: &[LogRef]) -> Vec<LogSignals> {
        self.0.logs.follow(wanted)
    }

    /// Returns the logs to follow.
    pub fn followed(&self) -> Vec<LogRef> {
        self.0.logs.followed()
    }

    /// Starts a connection. If the relay was restarted, the pictures of its previous run are dropped.
    pub fn on_welcome(&self, welcome: Welcome, page_ms: f64) {
        let known = self.0.welcome.get_untracked();
        if known.as_ref().is_some_and(|known| known.epoch != welcome.epoch) {
            self.stores().iter().for_each(TopicStore::forget);
        }
        self.0.logs.expect_restart();
        self.clock().set(&welcome, page_ms);
        // The last picture is not stale before the new snapshot is here.
        let mut suspended = self.suspended();
        if known.is_some() && !suspended.is_some_and(f64::is_infinite) {
            *suspended = Some(page_ms);
        }
        drop(suspended);
        self.0.welcome.set(Some(Arc::new(welcome)));
    }

    /// Stops the clock at the last message, because the connection is lost: what is shown is as of then. Does
    /// nothing before the first message (0), or once it has stopped.
    pub fn stop_clock(&self, last_message_ms: f64) {
        if last_message_ms > 0.0 {
            self.clock().stop(last_message_ms);
        }
    }

    /// Drops all state, because the next viewer may be another user.
    pub fn forget(&self) {
        self.stores().iter().for_each(TopicStore::forget);
        self.0.logs.clear();
        self.0.welcome.set(None);
    }

    /// Applies a message and returns the reply, if any.
    pub fn receive(&self, message: ServerMessage, page_ms: f64) -> Option<ClientMessage> {
        match message {
            ServerMessage::Snapshot(snapshot) => {
                let store = self.stores().into_iter().find(|store| *store.topic() == snapshot.topic)?;
                let at_ms = snapshot.picture.at_ms;
                let is_overview_only = self.0.detail.with_untracked(Option::is_none);
                if (snapshot.topic != Topic::Overview || is_overview_only) && !self.is_suspended() {
                    *self.suspended() = None;
                }
                store.replace(*snapshot);
                self.observe_clock(at_ms, page_ms);
                // Sums and states update together with the picture.
                *self.last_tick() = f64::NEG_INFINITY;
                None
            }
            ServerMessage::Delta(delta) => self.apply_delta(&delta, page_ms),
            ServerMessage::Histories(histories) => {
                let store =
                    self.stores().into_iter().find(|store| store.number() == Some(histories.topic))?;
                store.apply_histories(histories).err().map(|_| ClientMessage::Resync(store.topic().clone()))
            }
            ServerMessage::Gone(topic) => {
                self.stores()
                    .into_iter()
                    .filter(|store| *store.topic() == topic)
                    .for_each(|store| store.set_gone());
                None
            }
            ServerMessage::Log { of, tail } => {
                self.0.logs.append(of, tail);
                None
            }
            // After `Lagged`, the relay sends snapshots unasked; the connection handles the other messages.
            ServerMessage::Response { .. }
            | ServerMessage::Range { .. }
            | ServerMessage::Report { .. }
            | ServerMessage::Lagged { .. }
            | ServerMessage::Challenge { .. }
            | ServerMessage::Welcome(_)
            | ServerMessage::Bye(_) => None,
        }
    }

    /// Returns whether the caller must schedule [`Self::flush`] for the next frame.
    pub fn request_frame(&self) -> bool {
        !self.0.frame_is_due.swap(true, Relaxed)
    }

    /// Notifies the views of what changed since the last frame.
    pub fn flush(&self) {
        self.0.frame_is_due.store(false, Relaxed);
        self.stores().iter().for_each(TopicStore::flush);
        self.0.logs.flush();
    }

    /// Flushes within an animation frame, and ticks if a second is about to pass. If a structural change still
    /// waits for the tick, returns in how many ms to schedule another frame, as no message may arrive by then.
    pub fn frame(&self, page_ms: f64) -> Option<u32> {
        if !self.is_catching_up(page_ms) {
            self.0.shown_ms.store(self.relay_ms(page_ms), Relaxed);
        }
        self.flush();
        let min_interval_ms =
            if self.0.has_structural_change.load(Relaxed) { STRUCTURAL_MS } else { EARLY_MS };
        let delay_ms = min_interval_ms - self.since_tick_ms(page_ms);
        if delay_ms <= 0.0 {
            self.tick(page_ms);
            return None;
        }
        self.0.has_structural_change.load(Relaxed).then_some(delay_ms.ceil() as u32)
    }

    /// Updates the comparisons that views read to the newest step of the charts.
    pub fn update_comparisons(&self) {
        self.stores().iter().for_each(TopicStore::update_comparison);
    }

    /// Changes once a second while the page is visible.
    pub fn second(&self) -> &ArcRwSignal<u64> {
        &self.0.second
    }

    /// The relay's clock in ms as of the last frame or tick: shown values are as of then, and lists need not
    /// read a clock per row.
    pub fn shown_ms(&self) -> u64 {
        self.0.shown_ms.load(Relaxed)
    }

    /// Returns the time since the last tick, in ms.
    pub fn since_tick_ms(&self, page_ms: f64) -> f64 {
        page_ms - *self.last_tick()
    }

    /// Ticks: notifies the views that time has passed, and of what became stale.
    pub fn tick(&self, page_ms: f64) {
        if self.is_catching_up(page_ms) {
            return;
        }
        *self.last_tick() = page_ms;
        self.0.has_structural_change.store(false, Relaxed);
        let now_ms = self.relay_ms(page_ms);
        self.0.shown_ms.store(now_ms, Relaxed);
        self.stores().iter().for_each(|store| store.update_freshness(now_ms));
        self.0.second.update(|second| *second += 1);
    }

    fn last_tick(&self) -> std::sync::MutexGuard<'_, f64> {
        self.0.last_tick_ms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether values are old because the page was hidden, and not because the node is stale.
    fn is_catching_up(&self, page_ms: f64) -> bool {
        self.suspended().is_some_and(|since_ms| page_ms - since_ms < CATCH_UP_MS)
    }

    /// Start of the grace period after a suspension, by the page's clock in ms: infinite while suspended, and `None`
    /// once the new snapshot has arrived.
    fn suspended(&self) -> std::sync::MutexGuard<'_, Option<f64>> {
        self.0.suspended_ms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn apply_delta(&self, delta: &Delta, page_ms: f64) -> Option<ClientMessage> {
        // A delta of a topic that was just left is ignored.
        let store = self.stores().into_iter().find(|store| store.number() == Some(delta.topic))?;
        match store.change(delta) {
            Ok(at_ms) => {
                self.observe_clock(at_ms, page_ms);
                self.0.has_structural_change.fetch_or(delta.changes.iter().any(is_structural), Relaxed);
                None
            }
            Err(_) => Some(ClientMessage::Resync(store.topic().clone())),
        }
    }

    /// Corrects the clock with a message that was applied.
    fn observe_clock(&self, at_ms: u64, page_ms: f64) {
        let speed_pct =
            self.0.overview.read(|picture| picture.relay.replay.as_ref().map(|replay| replay.speed_pct));
        match speed_pct {
            Some(speed_pct) => self.clock().follow_recording(at_ms, page_ms, speed_pct),
            None => self.clock().observe(at_ms, page_ms),
        }
    }

    fn stores(&self) -> Vec<TopicStore> {
        let detail = self.0.detail.get_untracked();
        std::iter::once(self.0.overview.clone()).chain(detail).collect()
    }

    fn clock(&self) -> std::sync::MutexGuard<'_, Clock> {
        self.0.clock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns whether a change is more than a new reading.
fn is_structural(change: &Change) -> bool {
    matches!(change, Change::Jobs(_) | Change::Nodes(_) | Change::Head { .. } | Change::Gpus { .. })
}

#[cfg(test)]
mod tests;
