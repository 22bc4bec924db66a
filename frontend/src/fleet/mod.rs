//! The fleet is what this page knows: a picture of everything from afar, one of what is looked at, and a clock.

mod cells;
mod clock;
mod logs;
mod scene;

pub use cells::{GpuCell, NodeCell};
pub use clock::Clock;
pub use logs::{Log, LogCell};
pub use scene::{Phase, Scene};

use leptos::prelude::*;
use logs::Logs;
use nodeglass_protocol::ask::LogRef;
use nodeglass_protocol::live::{Change, ClientMessage, Delta, ServerMessage, Topic, Welcome};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// Everything the page knows. Clones are the same fleet.
#[derive(Clone)]
pub struct Fleet(Arc<Inner>);

struct Inner {
    overview: Scene,
    detail: ArcRwSignal<Option<Scene>>,
    logs: Logs,
    welcome: ArcRwSignal<Option<Arc<Welcome>>>,
    clock: Mutex<Clock>,
    second: ArcRwSignal<u64>,
    shown_ms: AtomicU64,
    beaten_ms: Mutex<f64>,
    /// Whether since then something came that sums and states must not lag behind.
    is_turned: AtomicBool,
    resting_ms: Mutex<Option<f64>>,
    on_watch: AtomicBool,
    frame_is_due: AtomicBool,
}

/// So long a page that is seen again shows what it showed before, until the picture comes that it did not ask for
/// meanwhile, in ms: what it has is not old, it was not looked at.
const CATCH_UP_MS: f64 = 2_000.0;
/// A frame that comes so long after the last second began begins the next one, in ms: what is renewed once a second is
/// then renewed with what is new, and not some time after it.
const EARLY_MS: f64 = 700.0;
/// The same of a frame that tells of a link or of other GPUs: a list shows that at once, and a sum beside it that says
/// otherwise would be wrong.
const TURN_MS: f64 = 200.0;

impl Default for Fleet {
    fn default() -> Self {
        Self(Arc::new(Inner {
            overview: Scene::new(Topic::Overview),
            detail: ArcRwSignal::new(None),
            logs: Logs::default(),
            welcome: ArcRwSignal::new(None),
            clock: Mutex::new(Clock::default()),
            second: ArcRwSignal::new(0),
            shown_ms: AtomicU64::new(0),
            beaten_ms: Mutex::new(0.0),
            is_turned: AtomicBool::new(false),
            resting_ms: Mutex::new(None),
            on_watch: AtomicBool::new(false),
            frame_is_due: AtomicBool::new(false),
        }))
    }
}

impl Fleet {
    /// Jobs, the relay, and every node from afar.
    pub fn overview(&self) -> &Scene {
        &self.0.overview
    }

    /// What is looked at in full, if anything is.
    pub fn detail(&self) -> Option<Scene> {
        self.0.detail.get()
    }

    /// What holds for the connection, once there was one.
    pub fn welcome(&self) -> Option<Arc<Welcome>> {
        self.0.welcome.get()
    }

    /// The same, for who is not to be woken.
    pub fn welcome_untracked(&self) -> Option<Arc<Welcome>> {
        self.0.welcome.get_untracked()
    }

    /// The relay's clock at `page_ms` of the page's, in ms.
    pub fn relay_ms(&self, page_ms: f64) -> u64 {
        self.clock().relay_ms(page_ms)
    }

    /// The cluster's time of day at `page_ms`, in seconds since 1970.
    pub fn wall_s(&self, page_ms: f64) -> i64 {
        self.clock().wall_s(page_ms)
    }

    /// Looks at a topic in full from now on; what was looked at before is forgotten.
    pub fn look_at(&self, topic: Option<Topic>) {
        let same = self.0.detail.with_untracked(|scene| scene.as_ref().map(Scene::topic) == topic.as_ref());
        if !same {
            self.0.detail.set(topic.map(Scene::new));
        }
    }

    /// Asks for nothing in full any more: nobody looks. What was looked at stays as it is.
    pub fn rest(&self) {
        *self.resting() = Some(f64::INFINITY);
    }

    /// Whether it asks for nothing because nobody looks.
    pub fn is_resting(&self) -> bool {
        self.resting().is_some_and(f64::is_infinite)
    }

    /// Says whether what happens is to be noticed where nobody looks; true if it then asks for something else than before.
    pub fn watch(&self, on_watch: bool) -> bool {
        self.0.on_watch.swap(on_watch, Relaxed) != on_watch && self.is_resting()
    }

    /// Asks for everything again; whether it had rested.
    pub fn wake(&self, page_ms: f64) -> bool {
        let mut resting = self.resting();
        let rested = resting.is_some_and(f64::is_infinite);
        if rested {
            *resting = Some(page_ms);
        }
        rested
    }

    /// The topics to ask the relay for.
    pub fn topics(&self) -> Vec<Topic> {
        if self.is_resting() {
            let on_watch = self.0.on_watch.load(Relaxed);
            return on_watch.then_some(Topic::Overview).into_iter().collect();
        }
        let detail = self.0.detail.with_untracked(|scene| scene.as_ref().map(|scene| scene.topic().clone()));
        std::iter::once(Topic::Overview).chain(detail).collect()
    }

    /// Follows these logs from now on.
    pub fn follow(&self, wanted: &[LogRef]) -> Vec<LogCell> {
        self.0.logs.follow(wanted)
    }

    /// The logs to ask the relay for.
    pub fn followed(&self) -> Vec<LogRef> {
        self.0.logs.followed()
    }

    /// Begins a connection. Another run of the relay has other pictures: the old ones are dropped.
    pub fn welcomed(&self, welcome: Welcome, page_ms: f64) {
        let known = self.0.welcome.get_untracked();
        if known.is_some_and(|known| known.epoch != welcome.epoch) {
            self.scenes().iter().for_each(Scene::forget);
        }
        self.0.logs.expect_anew();
        self.clock().set(&welcome, page_ms);
        self.0.welcome.set(Some(Arc::new(welcome)));
    }

    /// Drops everything: who looks from now on, if anybody, may be another one.
    pub fn forget(&self) {
        self.scenes().iter().for_each(Scene::forget);
        self.0.logs.forget();
        self.0.welcome.set(None);
    }

    /// Takes in a message, and says what to answer, if anything.
    pub fn receive(&self, message: ServerMessage, page_ms: f64) -> Option<ClientMessage> {
        match message {
            ServerMessage::Snapshot(snapshot) => {
                let scene = self.scenes().into_iter().find(|scene| *scene.topic() == snapshot.topic)?;
                self.clock().hear(snapshot.picture.at_ms, page_ms);
                let is_all = self.0.detail.with_untracked(Option::is_none);
                if (snapshot.topic != Topic::Overview || is_all) && !self.is_resting() {
                    *self.resting() = None;
                }
                scene.replace(*snapshot);
                // Sums and states come with the picture.
                *self.beaten() = f64::NEG_INFINITY;
                None
            }
            ServerMessage::Delta(delta) => self.change(&delta, page_ms),
            ServerMessage::Histories(pasts) => {
                let scene = self.scenes().into_iter().find(|scene| scene.number() == Some(pasts.topic))?;
                scene.apply_histories(pasts).err().map(|_| ClientMessage::Resync(scene.topic().clone()))
            }
            ServerMessage::Gone(topic) => {
                self.scenes()
                    .into_iter()
                    .filter(|scene| *scene.topic() == topic)
                    .for_each(|scene| scene.gone());
                None
            }
            ServerMessage::Log { of, tail } => {
                self.0.logs.hear(of, tail);
                None
            }
            // A snapshot follows by itself, and the rest belongs to the conversation.
            ServerMessage::Answer { .. }
            | ServerMessage::Lagged { .. }
            | ServerMessage::Challenge { .. }
            | ServerMessage::Welcome(_)
            | ServerMessage::Bye(_) => None,
        }
    }

    /// Whether the caller must see to it that [`Self::flush`] is called in the next frame.
    pub fn ask_for_frame(&self) -> bool {
        !self.0.frame_is_due.swap(true, Relaxed)
    }

    /// Tells the views what changed since the last frame.
    pub fn flush(&self) {
        self.0.frame_is_due.store(false, Relaxed);
        self.scenes().iter().for_each(Scene::flush);
        self.0.logs.flush();
    }

    /// The same in a frame that the browser draws now; a second passes with it, if one is about to. Says in how many ms
    /// another frame is due, if more than a reading changed and that had to wait: nothing else may come by then.
    pub fn frame(&self, page_ms: f64) -> Option<u32> {
        if !self.is_waiting(page_ms) {
            self.0.shown_ms.store(self.relay_ms(page_ms), Relaxed);
        }
        self.flush();
        let enough_ms = if self.0.is_turned.load(Relaxed) { TURN_MS } else { EARLY_MS };
        let waits_ms = enough_ms - self.since_beat_ms(page_ms);
        if waits_ms <= 0.0 {
            self.beat(page_ms);
            return None;
        }
        self.0.is_turned.load(Relaxed).then_some(waits_ms.ceil() as u32)
    }

    /// Changes once a second while someone looks.
    pub fn second(&self) -> &ArcRwSignal<u64> {
        &self.0.second
    }

    /// The relay's clock in ms as of the last frame or second: what is shown is as old as that, and a list need not ask a
    /// clock for each of its rows.
    pub fn shown_ms(&self) -> u64 {
        self.0.shown_ms.load(Relaxed)
    }

    /// How long ago the second began, in ms.
    pub fn since_beat_ms(&self, page_ms: f64) -> f64 {
        page_ms - *self.beaten()
    }

    /// Begins a second: tells the views that time has passed, and what became old.
    pub fn beat(&self, page_ms: f64) {
        if self.is_waiting(page_ms) {
            return;
        }
        *self.beaten() = page_ms;
        self.0.is_turned.store(false, Relaxed);
        let now_ms = self.relay_ms(page_ms);
        self.0.shown_ms.store(now_ms, Relaxed);
        self.scenes().iter().for_each(|scene| scene.age(now_ms));
        self.0.second.update(|second| *second += 1);
    }

    fn beaten(&self) -> std::sync::MutexGuard<'_, f64> {
        self.0.beaten_ms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether what is shown is of before because nobody looked, and not because it is old.
    fn is_waiting(&self, page_ms: f64) -> bool {
        self.resting().is_some_and(|since_ms| page_ms - since_ms < CATCH_UP_MS)
    }

    /// Since when it waits for what it did not look at; for ever while it rests.
    fn resting(&self) -> std::sync::MutexGuard<'_, Option<f64>> {
        self.0.resting_ms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, delta: &Delta, page_ms: f64) -> Option<ClientMessage> {
        // A delta of a topic that was left just now finds nobody, which is right.
        let scene = self.scenes().into_iter().find(|scene| scene.number() == Some(delta.topic))?;
        match scene.change(delta) {
            Ok(at_ms) => {
                self.clock().hear(at_ms, page_ms);
                self.0.is_turned.fetch_or(delta.changes.iter().any(is_turn), Relaxed);
                None
            }
            Err(_) => Some(ClientMessage::Resync(scene.topic().clone())),
        }
    }

    fn scenes(&self) -> Vec<Scene> {
        let detail = self.0.detail.get_untracked();
        std::iter::once(self.0.overview.clone()).chain(detail).collect()
    }

    fn clock(&self) -> std::sync::MutexGuard<'_, Clock> {
        self.0.clock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a change is more than another reading.
fn is_turn(change: &Change) -> bool {
    matches!(change, Change::Jobs(_) | Change::Nodes(_) | Change::Head { .. } | Change::Gpus { .. })
}

#[cfg(test)]
mod tests;
