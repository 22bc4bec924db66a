//! Stores the sums of jobs, notes and the audit log in SQLite, on a thread of its own: nothing else waits for a disk.
//!
//! [`JobStore`] and [`AuditRecorder`] pass work to that thread, which owns the [`Database`]. [`archive`] stores the history in files.

pub mod archive;
mod audit;
mod database;
mod filesystem;
mod worker;

use audit::AuditQueue;
pub use audit::{AuditRecorder, OpenView};
pub use database::{Database, Origin, RelayRun, StoreError};
pub use filesystem::is_shared as is_on_shared_file_system;
use nodeglass_fleet::NoteChange;
use nodeglass_platform::clock::Clock;
use nodeglass_platform::loss_count::LossCount;
use nodeglass_platform::state_dir::StateDir;
use nodeglass_protocol::audit::AuditLog;
use nodeglass_protocol::note::{Note, NoteId};
use nodeglass_protocol::{JobId, Text};
use nodeglass_report::{JobRecord, NodeFaults, Report, ReportNotes};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, SyncSender, TrySendError};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use tokio::time::{sleep, timeout};
use worker::Worker;

/// Capacity of the channel of requests.
const REQUESTS: usize = 64;
/// Interval of attempts of a sender that waits for room in the channel.
const ROOM_INTERVAL: Duration = Duration::from_millis(10);
/// Maximum time for which a request about a note waits for the notes of other relays.
const CHANGED_NOTES_LIMIT: Duration = Duration::from_secs(2);
/// Maximum number of changes of notes that wait for the disk; further ones stay with their sender.
const MAX_WAITING_NOTES: usize = 16_384;

/// Location of the database of jobs.
#[derive(Clone, Debug)]
pub enum Location {
    /// `jobs.db` in the user's state directory.
    StateDir,
    /// `jobs.db` in this directory.
    Dir(StateDir),
    /// Nowhere beyond the process.
    Memory,
}

/// Content that earlier runs of relays stored.
#[derive(Debug, Default)]
pub struct Restored {
    /// The records of this relay's jobs that had not ended.
    pub jobs: Vec<JobRecord>,
    /// The notes of the cluster.
    pub notes: Vec<NoteChange>,
}

/// The stored notes, which another relay may have changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredNotes {
    /// Each note as it is stored.
    pub notes: Vec<NoteChange>,
    /// Number of batches that had been passed to [`JobStore::save_notes`] and were received: what was passed later is
    /// not in it.
    pub batches: u64,
}

/// Handle to the thread that owns the database. Cheap to clone; no method waits for a disk.
#[derive(Clone, Debug)]
pub struct JobStore {
    requests: SyncSender<Request>,
    /// Name of the cluster, once known; empty if it has none.
    cluster: Arc<OnceLock<String>>,
    audit: Arc<AuditQueue>,
    /// Number of changes of notes that were passed and are not written yet.
    waiting_notes: Arc<AtomicUsize>,
    /// Number of records of ended jobs that were dropped.
    lost: LossCount,
    /// Reason why storing fails now.
    problem: watch::Receiver<Option<Text>>,
    /// Statement that the database was damaged.
    damage: Arc<watch::Sender<Option<Text>>>,
    /// Whether what earlier relays stored has been passed on.
    is_restored: watch::Receiver<bool>,
    /// Reason why jobs that ended while no relay ran may be missing.
    incomplete: Arc<Mutex<Option<Text>>>,
    is_durable: bool,
}

#[derive(Debug)]
enum Request {
    /// The audit log has changes to be written.
    Audit,
    AuditLog {
        since_ms: u64,
        reply: oneshot::Sender<Option<AuditLog>>,
    },
    Save(Vec<JobRecord>),
    SaveNotes {
        changes: Vec<NoteChange>,
        stored: oneshot::Sender<Vec<NoteId>>,
    },
    ChangedNotes {
        in_any_case: bool,
        reply: oneshot::Sender<Option<StoredNotes>>,
    },
    Notes {
        job: JobId,
        reply: oneshot::Sender<Option<Vec<Note>>>,
    },
    Job {
        id: JobId,
        /// Only a job of this user.
        user: Option<Text>,
        reply: oneshot::Sender<Option<JobRecord>>,
    },
    IdOf {
        label: String,
        reply: oneshot::Sender<Option<JobId>>,
    },
    Reports {
        since_s: i64,
        user: Text,
        reply: oneshot::Sender<Option<Vec<Report>>>,
    },
    Faults {
        since_s: i64,
        reply: oneshot::Sender<Option<NodeFaults>>,
    },
    /// Records of ended jobs without an observation.
    AddEnded(Vec<JobRecord>),
    /// Ended jobs without accounting: at first the jobs of the last day, later those that ended since.
    Unaccounted {
        reply: oneshot::Sender<Vec<JobRecord>>,
    },
    /// The name of the cluster is known.
    Named,
    Flush {
        reply: oneshot::Sender<()>,
    },
}

/// The time some days ago, in s since 1970.
fn days_ago_s(days: u32) -> i64 {
    let now_s = i64::try_from(Clock::wall_ms() / 1_000).unwrap_or(i64::MAX);
    now_s - i64::from(days) * 86_400
}

impl JobStore {
    /// Starts the thread. It passes on what earlier runs stored, once.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(
        place: Location,
        origin: Origin,
        restored: impl FnOnce(Restored) + Send + 'static,
    ) -> std::io::Result<Self> {
        Self::start_with(place, origin.host, OnceLock::from(origin.cluster), restored)
    }

    /// Starts the thread of a relay that does not know the name of its cluster yet: it keeps jobs and notes until
    /// [`JobStore::set_cluster`], and stores them without a name if the relay ends before.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start_unnamed(
        place: Location,
        host: String,
        restored: impl FnOnce(Restored) + Send + 'static,
    ) -> std::io::Result<Self> {
        Self::start_with(place, host, OnceLock::new(), restored)
    }

    fn start_with(
        place: Location,
        host: String,
        cluster: OnceLock<String>,
        restored: impl FnOnce(Restored) + Send + 'static,
    ) -> std::io::Result<Self> {
        let cluster = Arc::new(cluster);
        let (requests, receiver) = mpsc::sync_channel(REQUESTS);
        let audit = Arc::<AuditQueue>::default();
        let (problems, problem) = watch::channel(None);
        let is_durable = !matches!(place, Location::Memory);
        let (waiting_notes, lost, incomplete, damage) = Default::default();
        let (passed_on, is_restored) = watch::channel(false);
        let restored = move |stored| {
            restored(stored);
            passed_on.send_replace(true);
        };
        let store = Self {
            requests,
            cluster,
            audit,
            waiting_notes,
            lost,
            problem,
            damage,
            is_restored,
            incomplete,
            is_durable,
        };
        let worker = Worker::new(place, host, restored, &store, problems);
        thread::Builder::new().name("job-store".to_owned()).spawn(move || worker.run(&receiver))?;
        Ok(store)
    }

    /// A store that lasts as long as the process.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn in_memory() -> std::io::Result<Self> {
        Self::start(Location::Memory, Origin { cluster: String::new(), host: String::new() }, drop)
    }

    /// States the name of the cluster, empty if it has none; the first one counts.
    pub fn set_cluster(&self, name: &str) {
        if self.cluster.set(name.to_owned()).is_ok() {
            // If the queue is full, the thread notices the name in its next turn.
            let _ = self.requests.try_send(Request::Named);
        }
    }

    /// Returns the name of the cluster, empty if it has none; `None` while it is not known.
    pub fn cluster(&self) -> Option<&str> {
        self.cluster.get().map(String::as_str)
    }

    /// Returns whether stored data outlives the process, if there is no [`JobStore::problem`].
    pub fn is_durable(&self) -> bool {
        self.is_durable
    }

    /// Returns the reason why storing fails now, and each change of it.
    pub fn problem(&self) -> watch::Receiver<Option<Text>> {
        self.problem.clone()
    }

    /// Returns the statement that the database was damaged and replaced since the relay started, and each change of it.
    pub fn damage(&self) -> watch::Receiver<Option<Text>> {
        let mut damage = self.damage.subscribe();
        damage.mark_changed();
        damage
    }

    /// Waits until what is stored has been passed on after the start; not while it cannot be read, or the name of the
    /// cluster is not known.
    pub async fn restored(&self) {
        if self.cluster.get().is_none() {
            return;
        }
        let (mut is_restored, mut problem) = (self.is_restored.clone(), self.problem.clone());
        // An error means that the thread has ended, so nothing follows.
        tokio::select! {
            _ = is_restored.wait_for(|is_restored| *is_restored) => {}
            _ = problem.wait_for(Option::is_some) => {}
        }
    }

    /// Returns the number of records of ended jobs that were dropped.
    pub fn lost(&self) -> u64 {
        self.lost.get()
    }

    /// Stores records; returns them if the thread is busy, to be passed again.
    pub fn save(&self, records: Vec<JobRecord>) -> Option<Vec<JobRecord>> {
        match self.requests.try_send(Request::Save(records)) {
            Err(TrySendError::Full(Request::Save(records))) => Some(records),
            // Without the thread, storing is off, as its message has said.
            Err(TrySendError::Disconnected(Request::Save(records))) => {
                self.lost.add(records.iter().filter(|record| record.is_final).count());
                None
            }
            _ => None,
        }
    }

    /// Stores changes of notes; the receiver resolves once they outlive a crash, or with an error if they cannot be
    /// stored now. It yields the notes that another relay deleted, whose change has no effect.
    ///
    /// # Errors
    /// The changes, to be passed again, if the thread is busy or too many wait for the disk.
    pub fn save_notes(
        &self,
        changes: Vec<NoteChange>,
    ) -> Result<oneshot::Receiver<Vec<NoteId>>, Vec<NoteChange>> {
        let (stored, receiver) = oneshot::channel();
        let count = changes.len();
        let waiting = self.waiting_notes.fetch_add(count, Ordering::Relaxed);
        let refuse = |changes| {
            self.waiting_notes.fetch_sub(count, Ordering::Relaxed);
            Err(changes)
        };
        // A batch larger than the limit would otherwise be refused forever.
        if waiting > 0 && waiting.saturating_add(count) > MAX_WAITING_NOTES {
            return refuse(changes);
        }
        match self.requests.try_send(Request::SaveNotes { changes, stored }) {
            Err(TrySendError::Full(Request::SaveNotes { changes, .. })) => refuse(changes),
            // Without the thread, storing is off, as its message has said.
            _ => Ok(receiver),
        }
    }

    /// Reads the notes if another relay changed the database since they were last read, or `in_any_case`. The receiver
    /// yields `None` if it did not, or they cannot be read now; an error if the thread is busy.
    pub fn changed_notes(&self, in_any_case: bool) -> oneshot::Receiver<Option<StoredNotes>> {
        let (reply, response) = oneshot::channel();
        // If the queue is full, the sender is dropped.
        let _ = self.requests.try_send(Request::ChangedNotes { in_any_case, reply });
        response
    }

    /// Returns changed notes for a request about a note, which does not wait long for a slow disk.
    pub async fn changed_notes_now(&self) -> Option<StoredNotes> {
        timeout(CHANGED_NOTES_LIMIT, self.changed_notes(false)).await.ok()?.ok()?
    }

    /// Sends a request and waits for its response; `None` if the thread is busy or has ended.
    async fn ask<T>(&self, request: impl FnOnce(oneshot::Sender<T>) -> Request) -> Option<T> {
        let (reply, response) = oneshot::channel();
        self.requests.try_send(request(reply)).ok()?;
        response.await.ok()
    }

    /// The stored notes of a job, in no particular order; `None` if they cannot be read.
    pub async fn notes(&self, job: JobId) -> Option<Vec<Note>> {
        self.ask(|reply| Request::Notes { job, reply }).await?
    }

    /// Returns the notes of a job in memory, and those that are only stored, by time; `None` if the latter cannot be
    /// read.
    pub async fn with_stored_notes(&self, job: JobId, notes: &[Note]) -> Option<Vec<Note>> {
        let mut stored = self.notes(job).await?;
        stored.retain(|stored| !notes.iter().any(|note| note.id == stored.id));
        Some(nodeglass_fleet::sorted_notes(notes.iter().cloned().chain(stored)))
    }

    /// Returns the notes of a job for a report, which states whether the stored ones are missing.
    pub async fn report_notes(&self, job: JobId, notes: Vec<Note>) -> ReportNotes {
        match self.with_stored_notes(job, &notes).await {
            Some(all) => all.into(),
            None => ReportNotes { notes, are_complete: false },
        }
    }

    /// The stored record of a job's latest run.
    pub async fn job(&self, id: JobId) -> Option<JobRecord> {
        self.ask(|reply| Request::Job { id, user: None, reply }).await?
    }

    /// The stored record of the latest run of a user's job. What others have is not read, so that the time to the answer does not
    /// tell whether they have a job of this number.
    pub async fn job_of(&self, id: JobId, user: Text) -> Option<JobRecord> {
        self.ask(|reply| Request::Job { id, user: Some(user), reply }).await?
    }

    /// The raw id of the newest stored job with this label, such as `48440_16`.
    pub async fn id_of(&self, label: String) -> Option<JobId> {
        self.ask(|reply| Request::IdOf { label, reply }).await?
    }

    /// The reports of a user's jobs that started in the last days, newest first, without their GPUs; `None` if they
    /// cannot be read.
    pub async fn reports(&self, days: u32, user: Text) -> Option<Vec<Report>> {
        self.ask(|reply| Request::Reports { since_s: days_ago_s(days), user, reply }).await?
    }

    /// Returns the findings about nodes and their GPUs during all jobs that started in the last days; `None` if they
    /// cannot be read.
    pub async fn faults(&self, days: u32) -> Option<NodeFaults> {
        self.ask(|reply| Request::Faults { since_s: days_ago_s(days), reply }).await?
    }

    /// Takes the ended jobs to which accounting was not joined: at first the jobs of the last day, later those that
    /// ended since. Also empty if the thread is busy or they cannot be read; the next call takes them.
    pub async fn take_unaccounted(&self) -> Vec<JobRecord> {
        self.ask(|reply| Request::Unaccounted { reply }).await.unwrap_or_default()
    }

    /// Adds records of jobs that ended while no relay ran; returns them, to be passed again, if the thread is busy or
    /// the name of the cluster is not known yet.
    pub fn add_ended(&self, records: Vec<JobRecord>) -> Option<Vec<JobRecord>> {
        if self.cluster.get().is_none() {
            return Some(records);
        }
        match self.requests.try_send(Request::AddEnded(records)) {
            Err(TrySendError::Full(Request::AddEnded(records))) => Some(records),
            _ => None,
        }
    }

    /// States why jobs that ended while no relay ran may be missing, a complete sentence; `None` if they were listed.
    pub fn set_incomplete(&self, why: Option<Text>) {
        *self.incomplete.lock().unwrap_or_else(PoisonError::into_inner) = why;
    }

    /// Returns what was last passed to [`JobStore::set_incomplete`].
    pub fn incomplete(&self) -> Option<Text> {
        self.incomplete.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The audit log, which is stored in the same place.
    pub fn audit(&self) -> AuditRecorder {
        AuditRecorder::new(self.audit.clone(), self.requests.clone())
    }

    /// Ends what the audit log has open; for a relay that stops.
    pub fn end_views(&self) {
        self.audit.end_all(Clock::wall_ms());
    }

    /// Waits until everything that was passed before is written or has failed.
    pub async fn flush(&self) {
        let (reply, response) = oneshot::channel();
        let mut request = Request::Flush { reply };
        // A blocking `send` on a thread of the runtime would keep the process from ending if the disk hangs.
        while let Err(TrySendError::Full(refused)) = self.requests.try_send(request) {
            request = refused;
            sleep(ROOM_INTERVAL).await;
        }
        // An error if the thread has ended.
        let _ = response.await;
    }
}

#[cfg(test)]
mod tests;
