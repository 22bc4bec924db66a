//! A relay in the simulation: its real parts, without sockets, and its disk.

use crate::slurm::Squeue;
use crate::wire::{Action, Wire, WireLauncher};
use anyhow::Result;
use nodeglass_app::polling::poll;
use nodeglass_event_loop::{EventLoop, Inputs, Options, Sinks};
use nodeglass_fleet::{Event, Fleet, StoredPart};
use nodeglass_history::LongHistory;
use nodeglass_live::Hub;
use nodeglass_nodes::{Plan, Probes, Supervisor};
use nodeglass_platform::clock::Clock;
use nodeglass_platform::state_dir::StateDir;
use nodeglass_protocol::share::Sharing;
use nodeglass_slurm::{PollSchedule, PollTrigger};
use nodeglass_store::archive::{self, Archive};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Capacities, as in a real relay.
const NODE_EVENTS: usize = 4_096;
const EVENTS: usize = 8;
/// Memory of the history, and its space on disk, in bytes.
const HISTORY_BUDGET: usize = 4 << 20;
const DISK_CAP: u64 = 16 << 20;
/// Time limit for probes to exit at shutdown.
const PROBES_LEAVE: Duration = Duration::from_secs(5);

/// A running relay.
pub struct Relay {
    pub hub: Hub,
    pub clock: Clock,
    pub plan: watch::Receiver<Plan>,
    pub probes: Probes,
    /// When it was started.
    pub started: Instant,
    shutdown: watch::Sender<bool>,
    is_gone: Arc<AtomicBool>,
    /// The event loop, the supervisor, and others.
    core: JoinHandle<()>,
    nodes: JoinHandle<()>,
    others: Vec<JoinHandle<()>>,
}

impl Relay {
    /// Starts a relay that stores its history in `disk`.
    pub async fn start(wire: &Arc<Wire>, squeue: Squeue, disk: &StateDir) -> Result<Self> {
        let clock = Clock::start();
        let (shutdown, ending) = watch::channel(false);
        let (node_events, nodes) = mpsc::channel(NODE_EVENTS);
        let (events, event_rx) = mpsc::channel(EVENTS);
        let (probes, requests) = Probes::new();
        let wall_ahead_ms = Clock::wall_ms().saturating_sub(clock.now_ms());
        let archive = Archive::inline(disk.clone(), DISK_CAP, wall_ahead_ms);
        let storing = tokio::spawn(report(archive.state(), events.clone()));
        let sinks = Sinks { archive: Arc::new(archive.into()), ..Sinks::default() };
        let inputs = Inputs { nodes, events: event_rx, sharing: watch::channel(Sharing::default()).1 };
        let fleet = Fleet::with_history_budget(HISTORY_BUDGET);
        let (core, hub, plan) = EventLoop::new(fleet, clock, Options::default(), inputs, sinks);
        let (launcher, is_gone) = WireLauncher::new(wire);
        let poll_trigger = PollTrigger::default();
        let supervisor = Supervisor::new(launcher, clock, node_events, poll_trigger.clone());
        let schedule = PollSchedule::new(Duration::from_secs(5));
        let found = (events, watch::channel(Arc::default()).0);
        let polling = tokio::spawn(poll(Box::new(squeue), schedule, clock, found, |_| (), poll_trigger));
        let nodes = tokio::spawn(supervisor.run(plan.clone(), requests, ending.clone(), PROBES_LEAVE));
        let core = tokio::spawn(core.run(ending));
        let mut history = LongHistory::new(HISTORY_BUDGET);
        archive::load(disk, &mut history, clock.now_ms(), Clock::wall_ms());
        hub.restore_history(Some(history)).await;
        let others = vec![polling, storing];
        Ok(Self { hub, clock, plan, probes, started: Instant::now(), shutdown, is_gone, core, nodes, others })
    }

    /// Ends it as a signal does; returns whether its parts have ended in time.
    pub async fn stop(self) -> bool {
        let _ = self.shutdown.send(true);
        let ended = tokio::time::timeout(PROBES_LEAVE + Duration::from_secs(1), async {
            let _ = tokio::join!(self.core, self.nodes);
        });
        let is_in_time = ended.await.is_ok();
        self.others.iter().for_each(JoinHandle::abort);
        self.is_gone.store(true, Ordering::Relaxed);
        is_in_time
    }

    /// Kills it; `action` says what its nodes notice of that.
    pub fn kill(self, wire: &Wire, action: Action) {
        self.is_gone.store(true, Ordering::Relaxed);
        wire.names().for_each(|node| wire.act(node, action));
        [&self.core, &self.nodes].into_iter().chain(&self.others).for_each(JoinHandle::abort);
    }
}

/// Passes on whether the history is stored, as the relay's program does.
async fn report(mut state: watch::Receiver<archive::Storing>, events: mpsc::Sender<Event>) {
    while state.changed().await.is_ok() {
        let why = state.borrow_and_update().clone().err();
        if events.send(Event::Storage(StoredPart::History, why)).await.is_err() {
            return;
        }
    }
}
