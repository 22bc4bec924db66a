//! Stores the sums of jobs, notes and the audit log in SQLite, on a thread of its own: nothing else waits for a disk.

mod audit;
mod database;
mod filesystem;

pub use audit::{AuditRecorder, OpenView};
pub use database::{Database, Origin, RelayRun, StoreError};

use crate::clock::Clock;
use crate::fleet::{self, NoteChange};
use crate::report::{JobRecord, Report};
use crate::state_dir::StateDir;
use audit::AuditQueue;
pub(crate) use filesystem::is_shared as is_on_shared_file_system;
use nodeglass_protocol::audit::AuditLog;
use nodeglass_protocol::note::{Note, NoteId};
use nodeglass_protocol::{JobId, Text};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TrySendError};
use std::thread;
use std::time::{Duration, Instant};
use tokio::sync::{oneshot, watch};
use tokio::time::{sleep, timeout};

/// Capacity of the channel of requests.
const REQUESTS: usize = 64;
/// How often a sender that waits for room in it tries again.
const ROOM_INTERVAL: Duration = Duration::from_millis(10);
/// How long a request about a note waits for the notes of other relays.
const CHANGED_NOTES_LIMIT: Duration = Duration::from_secs(2);
/// How long the thread waits after a failure before it tries again.
const RETRY: Duration = Duration::from_secs(10);
/// Maximum number of records that wait for the disk; the oldest is dropped first.
const MAX_WAITING: usize = 4_096;
/// Maximum number of changes of notes that wait for the disk; further ones stay with their sender.
const MAX_WAITING_NOTES: usize = 16_384;

/// Maximum number of ended jobs that wait for their accounting; the oldest is dropped first.
const MAX_UNACCOUNTED: usize = 1_024;

/// Where jobs are stored.
#[derive(Clone, Debug)]
pub enum Place {
    /// `jobs.db` in the user's state directory.
    StateDir,
    /// `jobs.db` in this directory.
    Dir(StateDir),
    /// Nowhere beyond the process.
    Memory,
}

/// What earlier runs of relays stored.
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
    audit: Arc<AuditQueue>,
    /// Number of changes of notes that were passed and are not written yet.
    waiting_notes: Arc<AtomicUsize>,
    /// Why nothing can be stored now.
    problem: watch::Receiver<Option<Text>>,
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
    /// Ended jobs without accounting: at first those of the last day, later those that ended since.
    Unaccounted {
        reply: oneshot::Sender<Vec<JobRecord>>,
    },
    Flush {
        reply: oneshot::Sender<()>,
    },
}

impl JobStore {
    /// Starts the thread. It passes on what earlier runs stored, once.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(
        place: Place,
        origin: Origin,
        restored: impl FnOnce(Restored) + Send + 'static,
    ) -> std::io::Result<Self> {
        let (requests, receiver) = mpsc::sync_channel(REQUESTS);
        let audit = Arc::<AuditQueue>::default();
        let (told, problem) = watch::channel(None);
        let store = Self { requests, audit, waiting_notes: Arc::default(), problem };
        let worker = Worker {
            place,
            run: RelayRun::of_this_process(origin.host.clone()),
            origin,
            database: None,
            restored: Some(Box::new(restored)),
            waiting: VecDeque::new(),
            unaccounted: None,
            audit: store.audit.clone(),
            waiting_notes: Vec::new(),
            note_count: store.waiting_notes.clone(),
            acknowledgements: Vec::new(),
            note_batches: 0,
            read_version: None,
            failure: None,
            problem: told,
        };
        thread::Builder::new().name("job-store".to_owned()).spawn(move || worker.run(&receiver))?;
        Ok(store)
    }

    /// A store that lasts as long as the process.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn in_memory() -> std::io::Result<Self> {
        Self::start(Place::Memory, Origin { cluster: String::new(), host: String::new() }, drop)
    }

    /// Why nothing can be stored now, and each change of that.
    pub fn problem(&self) -> watch::Receiver<Option<Text>> {
        self.problem.clone()
    }

    /// Stores records; returns them if the thread is busy, to be passed again.
    pub fn save(&self, records: Vec<JobRecord>) -> Option<Vec<JobRecord>> {
        match self.requests.try_send(Request::Save(records)) {
            Err(TrySendError::Full(Request::Save(records))) => Some(records),
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
            // Without the thread nothing is stored, which its message has said.
            _ => Ok(receiver),
        }
    }

    /// Reads the notes if another relay changed the database since they were last read, or `in_any_case`. The receiver
    /// yields `None` if it did not, or they cannot be read now; an error if the thread is busy.
    pub fn changed_notes(&self, in_any_case: bool) -> oneshot::Receiver<Option<StoredNotes>> {
        let (reply, response) = oneshot::channel();
        // Refused, it drops the sender.
        let _ = self.requests.try_send(Request::ChangedNotes { in_any_case, reply });
        response
    }

    /// The same for a request about a note, which does not wait long for a slow disk.
    pub async fn changed_notes_now(&self) -> Option<StoredNotes> {
        timeout(CHANGED_NOTES_LIMIT, self.changed_notes(false)).await.ok()?.ok()?
    }

    /// The stored notes of a job, in no particular order; `None` if they cannot be read.
    pub async fn notes(&self, job: JobId) -> Option<Vec<Note>> {
        let (reply, response) = oneshot::channel();
        self.requests.try_send(Request::Notes { job, reply }).ok()?;
        response.await.ok()?
    }

    /// Notes of a job in memory, and those that are only stored, by time; `None` if the latter cannot be read.
    pub async fn with_stored_notes(&self, job: JobId, notes: &[Note]) -> Option<Vec<Note>> {
        let mut stored = self.notes(job).await?;
        stored.retain(|stored| !notes.iter().any(|note| note.id == stored.id));
        Some(fleet::sorted_notes(notes.iter().cloned().chain(stored)))
    }

    /// The stored record of a job's latest run.
    pub async fn job(&self, id: JobId) -> Option<JobRecord> {
        let (reply, response) = oneshot::channel();
        self.requests.try_send(Request::Job { id, reply }).ok()?;
        response.await.ok()?
    }

    /// The raw id of the newest stored job with this label, such as `48440_16`.
    pub async fn id_of(&self, label: String) -> Option<JobId> {
        let (reply, response) = oneshot::channel();
        self.requests.try_send(Request::IdOf { label, reply }).ok()?;
        response.await.ok()?
    }

    /// The reports of a user's jobs that started in the last days, newest first, without their GPUs; `None` if they
    /// cannot be read.
    pub async fn reports(&self, days: u32, user: Text) -> Option<Vec<Report>> {
        let (reply, response) = oneshot::channel();
        let now_s = i64::try_from(Clock::wall_ms() / 1_000).unwrap_or(i64::MAX);
        let since_s = now_s - i64::from(days) * 86_400;
        self.requests.try_send(Request::Reports { since_s, user, reply }).ok()?;
        response.await.ok()?
    }

    /// Takes the ended jobs to which accounting was not joined: at first those of the last day, later those that ended
    /// since. Empty also if the thread is busy or they cannot be read; the next call takes them.
    pub async fn take_unaccounted(&self) -> Vec<JobRecord> {
        let (reply, response) = oneshot::channel();
        match self.requests.try_send(Request::Unaccounted { reply }) {
            Ok(()) => response.await.unwrap_or_default(),
            Err(_) => Vec::new(),
        }
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

/// Receives what earlier runs stored.
type PassOn = Box<dyn FnOnce(Restored) + Send>;

/// The thread's state.
struct Worker {
    place: Place,
    origin: Origin,
    run: RelayRun,
    database: Option<Database>,
    /// Receives what earlier runs stored; `None` once it has. Nothing is written before, because that would replace it.
    restored: Option<PassOn>,
    waiting: VecDeque<JobRecord>,
    /// Jobs that ended since they were last taken, once somebody has taken any.
    unaccounted: Option<VecDeque<JobRecord>>,
    audit: Arc<AuditQueue>,
    waiting_notes: Vec<NoteChange>,
    /// Their number, and that of those in the channel.
    note_count: Arc<AtomicUsize>,
    /// Those who wait for these notes.
    acknowledgements: Vec<oneshot::Sender<Vec<NoteId>>>,
    /// Number of batches of notes that were received.
    note_batches: u64,
    /// [`Database::version`] when the notes were last read.
    read_version: Option<i64>,
    /// What was last reported, and when to try again.
    failure: Option<(Text, Instant)>,
    /// The same for others.
    problem: watch::Sender<Option<Text>>,
}

impl Worker {
    fn run(mut self, requests: &Receiver<Request>) {
        loop {
            if self.database.as_ref().is_some_and(|database| !database.is_in_place()) {
                tracing::warn!("the database of jobs was deleted or replaced; it is opened again");
                self.database = None;
            }
            if self.is_due() && self.database.is_none() {
                match self.open() {
                    Ok(mut database) => {
                        if let Err(error) = database.end_lost_views(&self.run, Clock::wall_ms()) {
                            tracing::warn!("{error}");
                        }
                        // The numbers of another connection mean nothing here.
                        self.read_version = None;
                        self.database = Some(database);
                    }
                    Err(error @ StoreError::Newer { .. }) => {
                        tracing::error!("{error}");
                        return;
                    }
                    Err(error) => self.failed(&error),
                }
            }
            self.restore();
            self.write();
            self.write_audit();
            match requests.recv_timeout(RETRY) {
                // It is written with the next turn.
                Ok(Request::Audit) => self.audit.wake_received(),
                Ok(Request::AuditLog { since_ms, reply }) => {
                    self.write_audit();
                    let _ = reply.send(self.audit_log(since_ms));
                }
                Ok(Request::Save(records)) => {
                    if let Some(unaccounted) = &mut self.unaccounted {
                        unaccounted.extend(records.iter().filter(|record| lacks_accounting(record)).cloned());
                        let over = unaccounted.len().saturating_sub(MAX_UNACCOUNTED);
                        unaccounted.drain(..over);
                    }
                    self.waiting.extend(records);
                    let over = self.waiting.len().saturating_sub(MAX_WAITING);
                    self.waiting.drain(..over);
                }
                Ok(Request::Unaccounted { reply }) => {
                    self.write();
                    let _ = reply.send(self.take_unaccounted());
                }
                Ok(Request::ChangedNotes { in_any_case, reply }) => {
                    self.write();
                    if reply.send(self.changed_notes(in_any_case)).is_err() {
                        // Nobody knows of the change.
                        self.read_version = None;
                    }
                }
                Ok(Request::SaveNotes { changes, stored }) => {
                    self.note_batches += 1;
                    self.waiting_notes.extend(changes);
                    self.acknowledgements.push(stored);
                }
                Ok(Request::Notes { job, reply }) => {
                    self.write();
                    let read = self.database.as_ref().map(|database| database.notes_of(&self.origin, job));
                    let read = read.transpose().inspect_err(|error| tracing::warn!("{error}"));
                    let _ = reply.send(read.ok().flatten());
                }
                Ok(Request::Job { id, reply }) => {
                    let _ = reply.send(self.job(id));
                }
                Ok(Request::IdOf { label, reply }) => {
                    self.write();
                    let read = self.database.as_ref().map(|database| database.id_of(&label)).transpose();
                    let read = read.inspect_err(|error| tracing::warn!("{error}"));
                    let _ = reply.send(read.ok().flatten().flatten());
                }
                Ok(Request::Reports { since_s, user, reply }) => {
                    self.write();
                    let read = self.database.as_ref().map(|database| totals_since(database, since_s, &user));
                    let read = read.transpose().inspect_err(|error| tracing::warn!("{error}"));
                    let _ = reply.send(read.ok().flatten());
                }
                Ok(Request::Flush { reply }) => {
                    self.write();
                    self.write_audit();
                    let _ = reply.send(());
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    self.write();
                    return self.write_audit();
                }
            }
        }
    }

    fn open(&self) -> Result<Database, StoreError> {
        let dir = match &self.place {
            Place::Memory => return Database::in_memory(),
            Place::Dir(dir) => dir.clone(),
            Place::StateDir => StateDir::open()?,
        };
        let (database, aside) = Database::open(&dir)?;
        if let Some(aside) = aside {
            tracing::error!(kept = %aside.display(), "the database of jobs was damaged; a new one was created");
        }
        Ok(database)
    }

    /// Passes on what earlier runs stored, unless that is done; after a failure again with a later turn.
    fn restore(&mut self) {
        if self.restored.is_none() || !self.is_due() {
            return;
        }
        let Some(database) = &self.database else { return };
        // Before the notes: a change between the two is read again.
        let version = database.version();
        match version.and_then(|version| Ok((version, stored(database, &self.origin)?))) {
            Ok((version, stored)) => {
                self.read_version = Some(version);
                if let Some(pass_on) = self.restored.take() {
                    pass_on(stored);
                }
                self.succeeded();
            }
            Err(error) => self.access_failed(&error),
        }
    }

    /// Writes what waits, if the last failure is long enough ago.
    fn write(&mut self) {
        if self.waiting.is_empty() && self.waiting_notes.is_empty() {
            return;
        }
        // Dropped, they say that the notes are not stored yet.
        let acknowledgements = std::mem::take(&mut self.acknowledgements);
        self.restore();
        if self.restored.is_some() || !self.is_due() {
            return;
        }
        let Some(database) = &mut self.database else { return };
        match save(database, &self.origin, self.waiting.make_contiguous(), &self.waiting_notes) {
            Ok(lost) => {
                self.waiting.clear();
                self.note_count.fetch_sub(self.waiting_notes.len(), Ordering::Relaxed);
                self.waiting_notes.clear();
                if !lost.is_empty() {
                    // They are deleted in memory as well.
                    self.read_version = None;
                }
                acknowledgements.into_iter().for_each(|stored| _ = stored.send(lost.clone()));
                self.succeeded();
            }
            Err(error) => self.access_failed(&error),
        }
    }

    /// Writes the changes of the audit log, if the last failure is long enough ago.
    fn write_audit(&mut self) {
        if !self.is_due() {
            return;
        }
        let Some(database) = &mut self.database else { return };
        let now_ms = Clock::wall_ms();
        let changes = self.audit.take(now_ms);
        if changes.is_empty() {
            return;
        }
        match database.audit(&self.run, &changes, now_ms) {
            Ok(()) => self.succeeded(),
            Err(error) => {
                self.audit.put_back(changes);
                self.access_failed(&error);
            }
        }
    }

    /// The notes, if another relay changed the database since they were last read, or `in_any_case`.
    fn changed_notes(&mut self, in_any_case: bool) -> Option<StoredNotes> {
        // What waits is newer than what is stored.
        if self.restored.is_some() || !self.waiting_notes.is_empty() || !self.is_due() {
            return None;
        }
        let database = self.database.as_ref()?;
        let read = || -> Result<_, StoreError> {
            let version = database.version()?;
            let is_same = self.read_version == Some(version) && !in_any_case;
            Ok((version, if is_same { None } else { Some(database.notes(&self.origin)?) }))
        };
        match read() {
            Ok((version, notes)) => {
                self.read_version = Some(version);
                Some(StoredNotes { notes: notes?, batches: self.note_batches })
            }
            Err(error) => {
                self.access_failed(&error);
                None
            }
        }
    }

    fn take_unaccounted(&mut self) -> Vec<JobRecord> {
        if let Some(unaccounted) = &mut self.unaccounted {
            return std::mem::take(unaccounted).into();
        }
        // Until the database can be read, there is nothing to begin with.
        let Some(database) = self.database.as_ref().filter(|_| self.is_due()) else { return Vec::new() };
        match database.unaccounted(&self.origin, MAX_UNACCOUNTED) {
            Ok(records) => {
                self.unaccounted = Some(VecDeque::new());
                records
            }
            Err(error) => {
                self.access_failed(&error);
                Vec::new()
            }
        }
    }

    fn audit_log(&self, since_ms: u64) -> Option<AuditLog> {
        let database = self.database.as_ref()?;
        let log = database.audit_log(&self.run, since_ms, Clock::wall_ms(), AuditLog::MAX_RECORDS);
        log.inspect_err(|error| tracing::warn!("{error}")).ok()
    }

    fn succeeded(&mut self) {
        if self.failure.take().is_some() {
            tracing::info!("jobs, notes and the audit log are stored again");
            let _ = self.problem.send(None);
        }
    }

    fn access_failed(&mut self, error: &StoreError) {
        if error.is_damage() {
            // It is set aside when it is opened.
            self.database = None;
        }
        self.failed(error);
    }

    /// The newest record of a job, stored or not.
    fn job(&self, id: JobId) -> Option<JobRecord> {
        let waiting = self.waiting.iter().rev().find(|record| record.job.id == id);
        let stored = || {
            let read = self.database.as_ref()?.job(id);
            read.inspect_err(|error| tracing::warn!("{error}")).ok()?
        };
        waiting.cloned().or_else(stored)
    }

    fn is_due(&self) -> bool {
        self.failure.as_ref().is_none_or(|(_, at)| Instant::now() >= *at)
    }

    /// Reports a failure once, however often it recurs.
    fn failed(&mut self, error: &StoreError) {
        let message = Text::new(error.to_string());
        if self.failure.as_ref().is_none_or(|(reported, _)| *reported != message) {
            tracing::warn!("{message}; trying again every {} s", RETRY.as_secs());
            let _ = self.problem.send(Some(message.clone()));
        }
        self.failure = Some((message, Instant::now() + RETRY));
    }
}

fn lacks_accounting(record: &JobRecord) -> bool {
    record.is_final && record.accounting.is_none()
}

/// What earlier runs stored.
fn stored(database: &Database, origin: &Origin) -> Result<Restored, StoreError> {
    Ok(Restored { jobs: database.unfinished(origin)?, notes: database.notes(origin)? })
}

/// Saves what waits; returns the notes that another relay deleted.
fn save(
    database: &mut Database,
    origin: &Origin,
    jobs: &[JobRecord],
    notes: &[NoteChange],
) -> Result<Vec<NoteId>, StoreError> {
    if !jobs.is_empty() {
        database.save(origin, jobs)?;
    }
    if notes.is_empty() { Ok(Vec::new()) } else { database.save_notes(origin, notes) }
}

/// The reports of a user's jobs without their GPUs, of which there may be very many.
fn totals_since(database: &Database, since_s: i64, user: &Text) -> Result<Vec<Report>, StoreError> {
    let mut reports = Vec::new();
    let without_gpus = |report| Report { gpus: Vec::new(), advice: Vec::new(), ..report };
    database.each_report(since_s, Some(user), |report| reports.push(without_gpus(report)))?;
    Ok(reports)
}

#[cfg(test)]
mod tests;
