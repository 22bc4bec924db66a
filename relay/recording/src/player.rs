//! Plays a recording: sends its events to the event loop when they are due, by a clock that pages control.

use super::reader::Span;
use super::{Reader, RecordingError};
use nodeglass_fleet::{Event, Fleet, FleetSettings};
use nodeglass_live::{Hub, SHUTTING_DOWN};
use nodeglass_nodes::FromNode;
use nodeglass_platform::clock::{Clock, Playback};
use nodeglass_protocol::Text;
use nodeglass_protocol::replay::{MAX_SPEED_PCT, REAL_TIME_PCT, ReplayCommand, ReplayStatus};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;

/// Commands that wait.
const COMMANDS: usize = 8;
/// Maximum part of a span without events that is played second by second before the next event, in ms: every node is
/// silent long before.
const MAX_QUIET_MS: u64 = 600_000;

/// Time in ms of the recording by which an event may be late. If the machine is so busy that one is later, the time of the recording
/// waits for it: otherwise nodes would become silent that were not.
const MAX_LATE_MS: u64 = 500;
/// Interval of checks whether the event loop has received everything.
const POLL: Duration = Duration::from_millis(1);
/// Interval at which pages learn where a seek is.
const PROGRESS: Duration = Duration::from_secs(1);
/// Reply to a seek that another command ended.
const SUPERSEDED: &str = "another command ended the seek";

/// Lets pages control a recording. Cheap to clone.
#[derive(Clone, Debug)]
pub struct PlayerControl(mpsc::Sender<Command>);

/// A command, and where its result is sent.
type Command = (ReplayCommand, oneshot::Sender<Result<(), Text>>);

/// A recording that is ready to be played.
#[derive(Debug)]
pub struct Player {
    path: PathBuf,
    settings: FleetSettings,
    playback: &'static Playback,
    reader: Reader,
    /// The next event.
    pending: Option<(u64, Event)>,
    status: ReplayStatus,
    commands: mpsc::Receiver<Command>,
    /// The time at which that of the recording waits for the event loop, in ms.
    limit_ms: u64,
}

/// Receivers of a player's events.
#[derive(Clone, Debug)]
pub struct Outputs {
    /// Events of nodes.
    pub nodes: mpsc::Sender<FromNode>,
    /// Other events for the fleet.
    pub events: mpsc::Sender<Event>,
    /// Replaces the fleet when another time is selected.
    pub hub: Hub,
}

impl PlayerControl {
    /// Changes how the recording is played.
    ///
    /// # Errors
    /// Why not, a complete sentence.
    pub async fn apply(&self, command: ReplayCommand) -> Result<(), Text> {
        let (reply, response) = oneshot::channel();
        let gone = || Text::from(SHUTTING_DOWN);
        self.0.send((command, reply)).await.map_err(|_| gone())?;
        response.await.unwrap_or_else(|_| Err(gone()))
    }
}

impl Player {
    /// Opens a recording, paused at its beginning.
    ///
    /// # Errors
    /// [`RecordingError`].
    pub fn open(path: &Path, settings: FleetSettings) -> Result<(Self, PlayerControl), RecordingError> {
        let Span { from_ms, to_ms, lost_bytes } = Reader::span(path)?;
        if lost_bytes > 0 {
            let (file, readable_s) = (path.display(), to_ms.saturating_sub(from_ms) / 1_000);
            tracing::warn!(%file, readable_s, lost_bytes, "the recording ends in a part that is damaged or incomplete");
        }
        let mut reader = Reader::open(path)?;
        let info = reader.info();
        let playback = Playback::paused_at(from_ms, info.wall_ms.saturating_sub(info.at_ms).cast_signed());
        let (job, is_cut_short) = (info.job, lost_bytes > 0);
        let status = ReplayStatus { from_ms, to_ms, at_ms: from_ms, speed_pct: 0, job, is_cut_short };
        let pending = reader.next_event().map_err(|error| RecordingError::new(path, error))?;
        let (sender, commands) = mpsc::channel(COMMANDS);
        let (path, limit_ms) = (path.to_owned(), from_ms);
        let player = Self { path, settings, playback, reader, pending, status, commands, limit_ms };
        Ok((player, PlayerControl(sender)))
    }

    /// Returns the origin of the recording.
    pub fn info(&self) -> &super::Info {
        self.reader.info()
    }

    /// An empty fleet for its events.
    pub fn fleet(&self) -> Fleet {
        self.info().fleet(self.settings.clone())
    }

    /// The clock of the recording.
    pub fn clock(&self) -> Clock {
        Clock::of(self.playback)
    }

    /// Plays until the event loop ends.
    pub async fn run(mut self, outputs: Outputs) {
        self.pass_to_next();
        self.playback.set_speed(REAL_TIME_PCT);
        if self.report(&outputs).await.is_err() {
            return;
        }
        loop {
            let wait = self.wait();
            let done = tokio::select! {
                // A page changes the speed or the position.
                command = self.commands.recv() => match command {
                    Some(command) => self.perform(command, &outputs).await,
                    None => return,
                },
                // The next event is due.
                () = sleep(wait.unwrap_or_default()), if wait.is_some() => self.deliver(&outputs).await,
            };
            if done.is_err() {
                return;
            }
        }
    }

    /// The time of the next event, or of the end.
    fn due_ms(&self) -> u64 {
        self.pending.as_ref().map_or(self.status.to_ms, |(at_ms, _)| *at_ms)
    }

    /// Time until the next event, or until the end; `None` while paused.
    fn wait(&self) -> Option<Duration> {
        let speed_pct = u64::from(self.playback.speed_pct());
        // Before the time waits, it may turn out that everything was received.
        let until_ms = self.due_ms().min(self.limit_ms.saturating_sub(MAX_LATE_MS / 2));
        let ahead_ms = until_ms.saturating_sub(self.playback.now_ms());
        let wait_ms = || (ahead_ms * u64::from(REAL_TIME_PCT)).div_ceil(speed_pct);
        (speed_pct > 0).then(|| Duration::from_millis(wait_ms()))
    }

    /// Lets the time pass until the next event, and as long as that may be late.
    fn pass_to_next(&mut self) {
        self.limit_ms = self.due_ms().saturating_add(MAX_LATE_MS);
        self.playback.wait_at(self.limit_ms);
    }

    /// Sends the next event, or pauses at the end. An error means that the event loop has ended.
    async fn deliver(&mut self, outputs: &Outputs) -> Result<(), Gone> {
        if self.playback.now_ms() < self.due_ms() {
            // The event loop receives what was sent before the time goes on.
            until_empty(&outputs.nodes).await;
            self.pass_to_next();
            return Ok(());
        }
        let Some((at_ms, event)) = self.pending.take() else {
            self.playback.set_speed(0);
            if self.reader.is_cut_short() {
                // A block before the last one may be damaged: what follows it cannot be read.
                (self.status.to_ms, self.status.is_cut_short) = (self.reader.newest_ms(), true);
            }
            self.playback.set_now_ms(self.status.to_ms);
            return self.report(outputs).await;
        };
        let is_received = is_empty(&outputs.nodes);
        outputs.send(at_ms, event).await?;
        self.pending = self.reader.next_event().unwrap_or_else(|error| {
            tracing::error!(%error, "the recording cannot be read any further");
            None
        });
        if is_received {
            self.pass_to_next();
        }
        Ok(())
    }

    /// Performs a command, and those that arrive during a seek, which the first of them ends.
    async fn perform(&mut self, command: Command, outputs: &Outputs) -> Result<(), Gone> {
        let mut next = Some(command);
        while let Some((command, reply)) = next.take() {
            let result = self.command(command, outputs, &mut next).await;
            let _ = reply.send(result);
            self.report(outputs).await?;
        }
        Ok(())
    }

    async fn command(
        &mut self,
        command: ReplayCommand,
        outputs: &Outputs,
        next: &mut Option<Command>,
    ) -> Result<(), Text> {
        match command {
            ReplayCommand::Speed(speed_pct) if speed_pct > MAX_SPEED_PCT => {
                Err(Text::new(format!("a recording plays at most {} times as fast", MAX_SPEED_PCT / 100)))
            }
            ReplayCommand::Speed(speed_pct) => {
                // At the end, from the beginning.
                if speed_pct > 0 && self.pending.is_none() && self.playback.now_ms() >= self.status.to_ms {
                    self.seek(self.status.from_ms, outputs, next).await?;
                }
                self.playback.set_speed(speed_pct);
                Ok(())
            }
            ReplayCommand::Seek(at_ms) => {
                self.seek(at_ms.clamp(self.status.from_ms, self.status.to_ms), outputs, next).await
            }
        }
    }

    /// Continues at a time: everything up to it is applied to a new fleet. A command that arrives meanwhile ends that, and is
    /// `next`.
    async fn seek(&mut self, at_ms: u64, outputs: &Outputs, next: &mut Option<Command>) -> Result<(), Text> {
        let speed_pct = self.playback.speed_pct();
        self.playback.set_speed(0);
        let seek = Arc::new(Seek { at_ms: self.status.from_ms.into(), is_ended: false.into() });
        let (path, settings, of_thread) = (self.path.clone(), self.settings.clone(), Arc::clone(&seek));
        let mut loading = tokio::task::spawn_blocking(move || load(&path, at_ms, settings, &of_thread));
        let loaded = loop {
            tokio::select! {
                loaded = &mut loading => break loaded,
                Some(command) = self.commands.recv(), if next.is_none() => {
                    *next = Some(command);
                    seek.is_ended.store(true, Ordering::Relaxed);
                }
                () = sleep(PROGRESS) => {
                    let at_ms = seek.at_ms.load(Ordering::Relaxed);
                    let status = ReplayStatus { at_ms, speed_pct, ..self.status.clone() };
                    // An event loop that is busy learns it later.
                    let _ = outputs.events.try_send(Event::Replay(status));
                }
            }
        };
        self.playback.set_speed(speed_pct);
        let failed = |error: &dyn std::fmt::Display| Text::new(format!("cannot seek: {error}"));
        let loaded = loaded.map_err(|error| failed(&error))?.map_err(|error| failed(&error))?;
        let (fleet, reader, pending) = loaded.ok_or_else(|| Text::new(SUPERSEDED))?;
        (self.reader, self.pending) = (reader, pending);
        self.playback.set_now_ms(at_ms);
        self.pass_to_next();
        // What was sent before belongs to the fleet that is replaced.
        until_empty(&outputs.nodes).await;
        until_empty(&outputs.events).await;
        outputs.hub.replace(fleet).await;
        Ok(())
    }

    /// Publishes the speed and position.
    async fn report(&mut self, outputs: &Outputs) -> Result<(), Gone> {
        (self.status.at_ms, self.status.speed_pct) = (self.playback.now_ms(), self.playback.speed_pct());
        outputs.events.send(Event::Replay(self.status.clone())).await.map_err(|_| Gone)
    }
}

/// The event loop has ended.
struct Gone;

impl Outputs {
    async fn send(&self, at_ms: u64, event: Event) -> Result<(), Gone> {
        let from_node = match event {
            Event::Node(node, event) => FromNode { node, job: None, at_ms, event },
            Event::JobProbe(node, job, event) => FromNode { node, job: Some(job), at_ms, event },
            other => {
                self.events.send(other).await.map_err(|_| Gone)?;
                // Received before the lines that follow it: a line of an unknown node is dropped.
                until_empty(&self.events).await;
                return Ok(());
            }
        };
        self.nodes.send(from_node).await.map_err(|_| Gone)
    }
}

/// Waits until the event loop has received everything, or has ended.
async fn until_empty<T>(sender: &mpsc::Sender<T>) {
    while !is_empty(sender) && !sender.is_closed() {
        sleep(POLL).await;
    }
}

fn is_empty<T>(sender: &mpsc::Sender<T>) -> bool {
    sender.capacity() == sender.max_capacity()
}

/// A fleet as of a time, and the event after it.
type Loaded = (Fleet, Reader, Option<(u64, Event)>);

/// A seek, as its thread and the player see it.
struct Seek {
    /// The time up to which the events are applied.
    at_ms: AtomicU64,
    /// Whether another command ended it.
    is_ended: AtomicBool,
}

/// Applies the events up to a time to a new fleet; `None` if the seek was ended.
fn load(
    path: &Path,
    until_ms: u64,
    settings: FleetSettings,
    seek: &Seek,
) -> Result<Option<Loaded>, RecordingError> {
    let mut reader = Reader::open(path)?;
    let mut fleet = reader.info().fleet(settings);
    let mut tick_ms = reader.info().at_ms;
    let failed = |error: io::Error| RecordingError::new(path, error);
    let pending = loop {
        if seek.is_ended.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let Some((at_ms, event)) = reader.next_event().map_err(failed)? else { break None };
        seek.at_ms.store(at_ms.min(until_ms), Ordering::Relaxed);
        advance(&mut fleet, &mut tick_ms, at_ms.min(until_ms));
        if at_ms > until_ms {
            break Some((at_ms, event));
        }
        fleet.handle(event, at_ms);
    };
    advance(&mut fleet, &mut tick_ms, until_ms);
    // Every viewer gets a snapshot.
    drop(fleet.take_changes());
    Ok(Some((fleet, reader, pending)))
}

/// Lets the seconds pass.
fn advance(fleet: &mut Fleet, tick_ms: &mut u64, to_ms: u64) {
    *tick_ms = (*tick_ms).max(to_ms.saturating_sub(MAX_QUIET_MS));
    while *tick_ms + 1_000 <= to_ms {
        *tick_ms += 1_000;
        fleet.handle(Event::Tick, *tick_ms);
    }
}
