//! The event loop: one task owns the fleet, applies events, and publishes deltas to subscribers.
//!
//! [`EventLoop`] is that task. The [`capturer`] is a second one: when a finding begins, it requests captures of the job's
//! processes from their probes. [`own_load`] keeps the relay within its limits.

pub mod capturer;
mod captures;
mod cpu_pace;
mod memory_pace;
mod notes;
pub mod own_load;
mod plan;
mod sample_groups;
mod scope;
mod subscribers;
mod trim;

use bytes::Bytes;
use capturer::Capturer;
use nodeglass_api::{ConnectionLosses, Losses, ProbeStatus, UnstoredRecords};
use nodeglass_fleet::{Event, Fleet, SessionEvent, Until};
use nodeglass_history::{RangeSource, RecentSource};
use nodeglass_live::{Hub, HubRequest, OVERVIEW_INTERVAL_MS, TopicFeed, UsageInputs};
use nodeglass_nodes::{FromNode, JobListVersion, Plan};
use nodeglass_notify::Notifier;
use nodeglass_platform::clock::Clock;
use nodeglass_platform::{cpu_time, memory};
use nodeglass_protocol::live::detail::DetailLevel;
use nodeglass_protocol::live::{CloseReason, ServerMessage, Topic};
use nodeglass_protocol::picture::JobsHealth;
use nodeglass_protocol::probe::ProbeLine;
use nodeglass_protocol::range::RangeQuery;
use nodeglass_protocol::share::Sharing;
use nodeglass_protocol::{JobId, Picture, Text};
use nodeglass_recording::Recorder;
use nodeglass_share::{NodeView, Viewer};
use nodeglass_store::JobStore;
use nodeglass_store::archive::{Archive, EndedJob};
use notes::NoteSync;
use own_load::OwnState;
use sample_groups::SampleGroups;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use subscribers::{FeedKey, SubscriberState};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
use trim::TrimSchedule;

/// Time without a line after which changes are flushed, unless the last node of a group has reported before (see
/// [`SampleGroups`]). Lines of many nodes arrive together and share a frame.
const FLUSH_QUIET: Duration = Duration::from_millis(5);
/// Maximum time between a change and its flush, however many lines arrive.
const FLUSH_MAX_DELAY: Duration = Duration::from_millis(30);
/// Time for which lagging subscribers are collected before they are resynchronised: they lag together when the
/// machine is busy, and one encoding serves them all.
const CATCH_UP_DELAY: Duration = Duration::from_millis(250);
/// Maximum number of lines per batch.
const BATCH: usize = 512;
/// Sampling interval without subscribers, unless another is set.
const IDLE_INTERVAL_MS: u32 = 10_000;
/// Interval of storing the sums of running jobs.
const CHECKPOINT_MS: u64 = 60_000;
/// Time between two ticks, in ms, from which the relay counts as stalled.
const MAX_TICK_MS: u64 = 3_000;

/// Sampling intervals and frame sizes.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Sampling interval of nodes whose node or job topic is subscribed to.
    pub detail_interval_ms: u32,
    /// Sampling interval of other nodes while there are subscribers.
    pub overview_interval_ms: u32,
    /// Sampling interval without subscribers. If it is longer than by default, it does not apply while samples are
    /// recorded or notices are sent.
    pub idle_interval_ms: u32,
    /// Approximate number of history bytes per frame; further history is sent in separate frames, each
    /// after the subscriber has read the one before.
    pub history_budget: usize,
    /// Interval of checks whether another relay that uses the same state directory changed notes.
    pub sync_notes_ms: u64,
    /// Whether no nodes are watched while nobody uses this relay: other relays would send their lines in vain.
    pub pauses: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            detail_interval_ms: 1_000,
            overview_interval_ms: OVERVIEW_INTERVAL_MS,
            idle_interval_ms: IDLE_INTERVAL_MS,
            history_budget: 96 * 1024,
            sync_notes_ms: 5_000,
            pauses: false,
        }
    }
}

impl Options {
    /// One sampling interval for all nodes while there are subscribers.
    pub fn sampling_every(interval: Duration) -> Self {
        let interval_ms = u32::try_from(interval.as_millis()).unwrap_or(u32::MAX);
        Self { detail_interval_ms: interval_ms, overview_interval_ms: interval_ms, ..Self::default() }
    }

    /// Sets the sampling interval without subscribers.
    #[must_use]
    pub fn idling(self, interval: Duration) -> Self {
        Self { idle_interval_ms: u32::try_from(interval.as_millis()).unwrap_or(u32::MAX), ..self }
    }

    /// Sets whether no nodes are watched while nobody uses this relay.
    #[must_use]
    pub fn pausing(self, pauses: bool) -> Self {
        Self { pauses, ..self }
    }
}

/// The inputs of the event loop.
#[derive(Debug)]
pub struct Inputs {
    /// Events of the node sessions.
    pub nodes: mpsc::Receiver<FromNode>,
    /// Job lists and other events for the fleet.
    pub events: mpsc::Receiver<Event>,
    /// Open shares and current visitors.
    pub sharing: watch::Receiver<Sharing>,
}

/// Receivers of events other than subscribers, each optional.
#[derive(Debug, Default)]
pub struct Sinks {
    /// Records every event of the fleet.
    pub recorder: Option<Recorder>,
    /// Stores the long-term history, once its directory is usable.
    pub archive: Arc<OnceLock<Archive>>,
    /// Stores what jobs use.
    pub store: Option<JobStore>,
    /// Sends notices of findings and jobs.
    pub notifier: Option<Notifier>,
    /// Captures what the processes of jobs do when a finding begins.
    pub capturer: Option<Capturer>,
}

/// The task that owns the fleet and the feed of every topic that is subscribed to.
#[derive(Debug)]
pub struct EventLoop {
    fleet: Fleet,
    clock: Clock,
    options: Options,
    inputs: Inputs,
    requests: mpsc::Receiver<HubRequest>,
    departures: mpsc::UnboundedReceiver<u64>,
    plan: watch::Sender<Plan>,
    groups: SampleGroups,
    feeds: HashMap<FeedKey, TopicFeed>,
    subscribers: HashMap<u64, SubscriberState>,
    /// Subscribers that lag and await a snapshot.
    lagging: Vec<u64>,
    next_subscriber_id: u64,
    next_feed: u32,
    last_subscriber_ms: u64,
    trim: TrimSchedule,
    coalesced: u64,
    sinks: Sinks,
    stored_ms: u64,
    /// When the last tick was; 0 before the first one.
    ticked_ms: u64,
    note_sync: NoteSync,
    /// State of the relay's limits; `None` if it has none.
    own: Option<OwnState>,
    /// Notice that some nodes are not watched because there are too many.
    unwatched: Option<Text>,
}

/// Times at which collected work is due; `None` if there is none.
#[derive(Default)]
struct Due {
    /// Time at which changes are sent, unless further lines arrive.
    flush_at: Option<Instant>,
    /// Latest time at which changes are sent.
    flush_by: Option<Instant>,
    /// Time at which lagging subscribers receive snapshots.
    catch_up_at: Option<Instant>,
}

impl EventLoop {
    /// Creates the event loop, its handle, and the plan for the supervisor.
    pub fn new(
        fleet: Fleet,
        clock: Clock,
        options: Options,
        inputs: Inputs,
        mut sinks: Sinks,
    ) -> (Self, Hub, watch::Receiver<Plan>) {
        let (hub, requests, departures) = Hub::channel();
        let (plan, plan_rx) = watch::channel(Plan::default());
        if let Some(notifier) = &mut sinks.notifier {
            notifier.restore_ended(fleet.jobs());
        }
        let event_loop = Self {
            fleet,
            clock,
            options,
            inputs,
            requests,
            departures,
            plan,
            groups: SampleGroups::default(),
            feeds: HashMap::new(),
            subscribers: HashMap::new(),
            lagging: Vec::new(),
            next_subscriber_id: 0,
            next_feed: 0,
            last_subscriber_ms: if options.pauses { 0 } else { clock.now_ms() },
            trim: TrimSchedule::new(clock.now_ms()),
            coalesced: 0,
            sinks,
            stored_ms: clock.now_ms(),
            ticked_ms: 0,
            note_sync: NoteSync::default(),
            own: None,
            unwatched: None,
        };
        (event_loop, hub, plan_rx)
    }

    /// Runs until `shutdown` becomes true, then notifies every subscriber.
    pub async fn run(mut self, mut shutdown: watch::Receiver<bool>) {
        let mut tick = interval(Duration::from_secs(1));
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut lines = Vec::with_capacity(BATCH);
        let mut due = Due::default();
        self.update_plan();
        loop {
            tokio::select! {
                // Lines of probes.
                1.. = self.inputs.nodes.recv_many(&mut lines, BATCH) => {
                    let now = Instant::now();
                    due.flush_at = match self.handle_lines(&mut lines) {
                        // Nothing to wait for.
                        true if !self.subscribers.is_empty() => Some(now),
                        _ => due.flush_by.map(|by| by.min(now + FLUSH_QUIET)),
                    };
                }
                // A job list or an action.
                Some(event) = self.inputs.events.recv() => self.handle_event(event),
                // Shares or visitors changed.
                Ok(()) = self.inputs.sharing.changed() => self.handle_sharing(),
                // A subscriber's request.
                Some(request) = self.requests.recv() => self.handle_request(request),
                // A subscriber left.
                Some(subscriber) = self.departures.recv() => self.leave(subscriber),
                // Accumulated changes are due.
                () = sleep_until(due.flush_at.unwrap_or_else(Instant::now)), if due.flush_at.is_some() => {
                    (due.flush_at, due.flush_by) = (None, None);
                    self.flush_changes();
                }
                // Lagging subscribers are resynchronised.
                () = sleep_until(due.catch_up_at.unwrap_or_else(Instant::now)), if due.catch_up_at.is_some() => {
                    due.catch_up_at = None;
                    self.catch_up();
                }
                // Timeouts are checked once a second.
                _ = tick.tick() => self.tick(),
                _ = shutdown.wait_for(|down| *down) => break,
            }
            self.schedule(&mut due);
        }
        self.store_history(self.clock.now_ms(), true);
        self.store_jobs(true);
        drop(self.store_notes());
        self.shut_down();
    }

    /// Decides when what has accumulated is sent.
    fn schedule(&self, due: &mut Due) {
        // Without subscribers, changes wait for the next tick, which avoids wake-ups.
        if due.flush_by.is_none() && self.fleet.has_changes() && !self.subscribers.is_empty() {
            let now = Instant::now();
            due.flush_at = due.flush_at.or(Some(now + FLUSH_QUIET));
            due.flush_by = Some(now + FLUSH_MAX_DELAY);
        }
        if due.catch_up_at.is_none() && !self.lagging.is_empty() {
            due.catch_up_at = Some(Instant::now() + CATCH_UP_DELAY);
        }
    }

    fn store_history(&mut self, now_ms: u64, is_last: bool) {
        let Some(archive) = self.sinks.archive.get() else { return };
        self.fleet
            .history_mut()
            .take_excerpts(now_ms, is_last)
            .into_iter()
            .for_each(|excerpt| archive.store(excerpt));
        let ended = self.fleet.take_ended().into_iter();
        archive.store_jobs(ended.map(|(job, nodes)| EndedJob { job, nodes }).collect());
    }

    /// Returns whether a group of nodes has reported completely.
    fn handle_lines(&mut self, lines: &mut Vec<FromNode>) -> bool {
        let mut is_complete = false;
        for FromNode { node, job, at_ms, event } in lines.drain(..) {
            if let Some(job) = job {
                self.apply(Event::JobProbe(node, job, event), at_ms);
                continue;
            }
            if let SessionEvent::Line(line) = &event
                && let ProbeLine::Sample(sample) = &**line
                && !sample.replay
            {
                is_complete |= self.groups.report(&node, at_ms, sample.interval_ms);
            }
            self.apply(Event::Node(node, event), at_ms);
        }
        is_complete
    }

    fn apply(&mut self, event: Event, at_ms: u64) {
        if let Some(recorder) = &mut self.sinks.recorder {
            recorder.record(at_ms, &event);
        }
        self.fleet.handle(event, at_ms);
    }

    fn handle_event(&mut self, event: Event) {
        let is_fresh_list = match &event {
            Event::Jobs { .. } => Some(true),
            Event::JobsFailed { .. } => Some(false),
            _ => None,
        };
        self.apply(event, self.clock.now_ms());
        self.update_plan();
        // After updating the plan, so that a task that waits for this list sees its effect.
        if let Some(is_fresh) = is_fresh_list {
            self.plan.send_modify(|plan| {
                plan.list = JobListVersion { number: plan.list.number + 1, is_fresh };
            });
        }
    }

    fn handle_sharing(&mut self) {
        let sharing = self.inputs.sharing.borrow_and_update().clone();
        self.fleet.handle(Event::Sharing(sharing), self.clock.now_ms());
    }

    fn tick(&mut self) {
        let now_ms = self.clock.now_ms();
        let stalled_ms = now_ms.saturating_sub(self.ticked_ms);
        // The time of a recording passes faster, and waits for its events.
        let is_recording = self.fleet.status().replay.is_some();
        if self.ticked_ms > 0 && stalled_ms > MAX_TICK_MS && !is_recording {
            tracing::warn!(
                "the relay did not run for {} s; the login node may be overloaded",
                stalled_ms / 1_000
            );
            self.fleet.handle(Event::Stalled { ms: stalled_ms }, now_ms);
        }
        self.ticked_ms = now_ms;
        self.fleet.set_time_of_day(self.clock.displayed_wall_ms(), now_ms);
        self.fleet.handle(Event::Tick, now_ms);
        // Jobs that run when the first list arrives have not just started.
        let has_jobs =
            !matches!(self.fleet.status().jobs, JobsHealth::NotYet | JobsHealth::Stale { last_ms: None, .. });
        if let Some(notifier) = self.sinks.notifier.as_mut().filter(|_| has_jobs) {
            notifier.observe(self.fleet.jobs(), self.fleet.findings());
        }
        self.request_captures(now_ms);
        self.observe_own_load(now_ms);
        self.store_history(now_ms, false);
        let (viewers, coalesced) = (self.subscribers.len() as u32, self.coalesced);
        // CPU time is reported in whole seconds, so that it is not itself a change every second.
        let cpu_ms = cpu_time::process_ms() / 1_000 * 1_000;
        self.fleet.handle(Event::Status { viewers, cpu_ms, coalesced }, now_ms);
        self.store_jobs(now_ms.saturating_sub(self.stored_ms) >= CHECKPOINT_MS);
        drop(self.store_notes());
        self.sync_notes(now_ms);
        self.update_plan();
        if self.subscribers.is_empty() {
            self.flush_changes();
        }
        if self.trim.is_due(now_ms, memory::private_bytes) {
            drop(tokio::task::spawn_blocking(memory::trim));
        }
    }

    fn handle_request(&mut self, request: HubRequest) {
        self.resume(&request);
        if let Some(own) = &mut self.own
            && matches!(
                request,
                HubRequest::Everything { .. } | HubRequest::Picture { .. } | HubRequest::VisibleRange { .. }
            )
        {
            own.last_used_ms = self.clock.now_ms();
        }
        match request {
            HubRequest::Join { form, viewer, mailbox, id } => self.join(form, viewer, mailbox, id),
            HubRequest::SetTopics { subscriber, topics, done } => {
                _ = done.send(self.set_topics(subscriber, topics));
            }
            HubRequest::Resync { subscriber, topic, done } => _ = done.send(self.resync(subscriber, &topic)),
            HubRequest::CatchUp { subscriber } => self.lagging.push(subscriber),
            HubRequest::More { subscriber } => self.send_history(subscriber),
            HubRequest::Range { subscriber, query, reply } => {
                let viewer = self.subscribers.get(&subscriber).map(|state| &state.viewer);
                _ = reply.send(viewer.and_then(|viewer| self.range(viewer, &query)));
            }
            HubRequest::VisibleRange { viewer, query, reply } => _ = reply.send(self.range(&viewer, &query)),
            HubRequest::Everything { viewer, reply } => {
                let began = Instant::now();
                let picture = self.everything(&viewer);
                _ = reply.send((Box::new(picture), began.elapsed()));
            }
            HubRequest::Picture { topic, viewer, form, reply } => {
                _ = reply.send(self.picture((topic, viewer), form));
            }
            HubRequest::Jobs { viewer, reply } => _ = reply.send(viewer.jobs(&self.fleet)),
            HubRequest::JobsOf { user, reply } => {
                let jobs = self.fleet.jobs().iter().filter(|job| job.user == user);
                _ = reply.send(jobs.cloned().collect());
            }
            HubRequest::Job { id, reply } => {
                _ = reply.send(self.fleet.jobs().iter().find(|job| job.id == id).cloned());
            }
            HubRequest::Usage { id, viewer, reply } => _ = reply.send(self.usage(id, &viewer)),
            HubRequest::ProbeUsages { reply } => _ = reply.send(ProbeStatus::all(&self.fleet)),
            HubRequest::Losses { reply } => _ = reply.send(self.losses()),
            HubRequest::OwnLoad { reply } => {
                let own = self.own.as_ref().map(|own| own.status(self.clock.now_ms()));
                _ = reply.send(own.unwrap_or_default());
            }
            HubRequest::JobsHealth { reply } => _ = reply.send(self.fleet.status().jobs.clone()),
            HubRequest::Notes { job, viewer, reply } => _ = reply.send(self.notes(job, &viewer)),
            HubRequest::Note { request, stored, reply } => _ = reply.send(self.change_note(request, stored)),
            HubRequest::Unwatched { scope, reply } => _ = reply.send(scope::unwatched(&self.fleet, &scope)),
            HubRequest::HasEnded { scope, reply } => _ = reply.send(scope::has_ended(&self.fleet, &scope)),
            HubRequest::IsOver { share, reply } => _ = reply.send(scope::is_over(&self.fleet, &share)),
            HubRequest::Replace { fleet, done } => {
                self.replace_fleet(*fleet);
                _ = done.send(());
            }
            HubRequest::Restoring => self.fleet.set_restoring(),
            HubRequest::Restored { history } => {
                self.fleet.restore_history(history.map(|history| *history), self.clock.now_ms());
                // Half of what both histories held is free now.
                drop(tokio::task::spawn_blocking(memory::trim));
            }
        }
    }

    /// Returns what was lost on connections and disks.
    fn losses(&self) -> Losses {
        let Sinks { recorder, archive, store, .. } = &self.sinks;
        let unstored = UnstoredRecords {
            history: archive.get().map_or(0, Archive::lost),
            jobs: store.as_ref().map_or(0, JobStore::lost) + self.fleet.lost_records() as u64,
            audit: store.as_ref().map_or(0, |store| store.audit().lost()),
            recording: recorder.as_ref().map_or(0, Recorder::lost),
        };
        Losses { connections: ConnectionLosses::all(&self.fleet), unstored }
    }

    /// Returns the visible long-term history of a topic.
    fn range(&self, viewer: &Viewer, query: &RangeQuery) -> Option<RangeSource> {
        let mut nodes = viewer.nodes(&self.fleet, &query.topic)?;
        nodes.extend(viewer.nodes_before_requeue(&self.fleet, &query.topic));
        let recent = nodes.iter().map(|node| (node.long_history(), node.history()));
        if let Some(recent) = RecentSource::new(query, self.clock.now_ms(), recent) {
            return Some(RangeSource::Recent(recent));
        }
        let visible: Vec<_> = nodes.iter().map(NodeView::long_history).collect();
        Some(RangeSource::Stored(self.fleet.history().select(query, &visible)))
    }

    /// All that a viewer may see, without history.
    fn everything(&self, viewer: &Viewer) -> Picture {
        let nodes = viewer.nodes(&self.fleet, &Topic::Overview).unwrap_or_default();
        Picture {
            at_ms: self.clock.now_ms(),
            relay: viewer.status(&self.fleet),
            jobs: viewer.jobs(&self.fleet),
            nodes: nodes.iter().map(|node| DetailLevel::Expanded.view(node.now())).collect(),
            findings: viewer.findings(&self.fleet, &Topic::Overview),
            insights: viewer.insights(&self.fleet).to_vec(),
            ..Picture::default()
        }
    }

    /// Passes on the sums of ended jobs, and if `with_running` the sums of running ones, so that a restart continues
    /// them.
    fn store_jobs(&mut self, with_running: bool) {
        let mut records = self.fleet.take_finished_records();
        let Some(store) = &self.sinks.store else { return };
        if with_running {
            self.stored_ms = self.clock.now_ms();
            records.extend(self.fleet.running_records(self.stored_ms));
        }
        if !records.is_empty()
            && let Some(mut refused) = store.save(records)
        {
            refused.retain(|record| record.is_final);
            self.fleet.put_back_records(refused);
        }
    }

    /// Returns the visible usage of a job.
    fn usage(&self, id: JobId, viewer: &Viewer) -> Option<UsageInputs> {
        // First, so that the time to an answer does not tell a guest whether a hidden job runs.
        let (visible, until) = match viewer.is_restricted() {
            true => (Some(viewer.jobs(&self.fleet).into_iter().find(|job| job.id == id)?), Until::Listed),
            false => (None, Until::Now),
        };
        let running = self.fleet.job_record(id, until, self.clock.now_ms());
        let notes = viewer.all_notes(&self.fleet, Some(id));
        Some(UsageInputs { running, visible, notes })
    }

    fn shut_down(&self) {
        for state in self.subscribers.values() {
            state
                .mailbox
                .push(Bytes::from(state.form.encode(&ServerMessage::Bye(CloseReason::ShuttingDown))));
            state.mailbox.close();
        }
    }
}

#[cfg(test)]
mod tests;
