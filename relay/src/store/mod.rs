//! Stores the sums of jobs, notes and the audit log in SQLite, on a thread of its own: nothing else waits for a disk.

mod audit;
mod database;
mod filesystem;

pub use audit::{AuditRecorder, OpenView};
pub use database::{Database, Origin, Run, StoreError};

use crate::clock::Clock;
use crate::fleet::NoteChange;
use crate::report::{JobRecord, Report};
use crate::state_dir::StateDir;
use audit::AuditQueue;
use nodeglass_protocol::audit::AuditLog;
use nodeglass_protocol::note::Note;
use nodeglass_protocol::{JobId, Text};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TrySendError};
use std::thread;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Capacity of the channel of requests.
const REQUESTS: usize = 64;
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

/// Handle to the thread that owns the database. Cheap to clone; no method waits for a disk.
#[derive(Clone, Debug)]
pub struct JobStore {
    requests: SyncSender<Request>,
    audit: Arc<AuditQueue>,
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
        stored: oneshot::Sender<()>,
    },
    Notes {
        job: JobId,
        reply: oneshot::Sender<Vec<Note>>,
    },
    Job {
        id: JobId,
        reply: oneshot::Sender<Option<JobRecord>>,
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
        let worker = Worker {
            place,
            run: Run::of_this_process(origin.host.clone()),
            origin,
            database: None,
            waiting: VecDeque::new(),
            unaccounted: None,
            audit: audit.clone(),
            waiting_notes: Vec::new(),
            acknowledgements: Vec::new(),
            failure: None,
        };
        thread::Builder::new().name("job-store".to_owned()).spawn(move || worker.run(&receiver, restored))?;
        Ok(Self { requests, audit })
    }

    /// A store that lasts as long as the process.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn in_memory() -> std::io::Result<Self> {
        Self::start(Place::Memory, Origin { cluster: String::new(), host: String::new() }, drop)
    }

    /// Stores records; returns them if the thread is busy, to be passed again.
    pub fn save(&self, records: Vec<JobRecord>) -> Option<Vec<JobRecord>> {
        match self.requests.try_send(Request::Save(records)) {
            Err(TrySendError::Full(Request::Save(records))) => Some(records),
            _ => None,
        }
    }

    /// Stores changes of notes; the receiver resolves once they outlive a crash, or with an error if they cannot be
    /// stored now. Returns them if the thread is busy, to be passed again.
    ///
    /// # Errors
    /// The changes.
    pub fn save_notes(&self, changes: Vec<NoteChange>) -> Result<oneshot::Receiver<()>, Vec<NoteChange>> {
        let (stored, receiver) = oneshot::channel();
        match self.requests.try_send(Request::SaveNotes { changes, stored }) {
            Err(TrySendError::Full(Request::SaveNotes { changes, .. })) => Err(changes),
            // Without the thread nothing is stored, which its message has said.
            _ => Ok(receiver),
        }
    }

    /// The stored notes of a job, in no particular order; empty if they cannot be read.
    pub async fn notes(&self, job: JobId) -> Vec<Note> {
        let (reply, response) = oneshot::channel();
        if self.requests.try_send(Request::Notes { job, reply }).is_err() {
            return Vec::new();
        }
        response.await.unwrap_or_default()
    }

    /// The stored record of a job's latest run.
    pub async fn job(&self, id: JobId) -> Option<JobRecord> {
        let (reply, response) = oneshot::channel();
        self.requests.try_send(Request::Job { id, reply }).ok()?;
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
    /// since. None if the thread is busy; they are taken with the next call.
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
        if self.requests.try_send(Request::Flush { reply }).is_ok() {
            let _ = response.await;
        }
    }
}

/// The thread's state.
struct Worker {
    place: Place,
    origin: Origin,
    run: Run,
    database: Option<Database>,
    waiting: VecDeque<JobRecord>,
    /// Jobs that ended since they were last taken, once somebody has taken any.
    unaccounted: Option<VecDeque<JobRecord>>,
    audit: Arc<AuditQueue>,
    waiting_notes: Vec<NoteChange>,
    /// Those who wait for these notes.
    acknowledgements: Vec<oneshot::Sender<()>>,
    /// What was last reported, and when to try again.
    failure: Option<(Text, Instant)>,
}

impl Worker {
    fn run(mut self, requests: &Receiver<Request>, restored: impl FnOnce(Restored)) {
        let mut restored = Some(restored);
        loop {
            if self.is_due() && self.database.is_none() {
                match self.open() {
                    Ok(mut database) => {
                        if let Err(error) = database.end_lost_views(&self.run, Clock::wall_ms()) {
                            tracing::warn!("{error}");
                        }
                        self.database = Some(database);
                    }
                    Err(error @ StoreError::Newer { .. }) => {
                        tracing::error!("{error}");
                        return;
                    }
                    Err(error) => self.failed(&error),
                }
            }
            if let Some(database) = &self.database
                && let Some(restored) = restored.take()
            {
                let jobs = database.unfinished(&self.origin).unwrap_or_default();
                restored(Restored { jobs, notes: database.notes(&self.origin).unwrap_or_default() });
            }
            self.write();
            self.write_audit();
            match requests.recv_timeout(RETRY) {
                // It is written with the next turn.
                Ok(Request::Audit) => {}
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
                Ok(Request::SaveNotes { changes, stored }) => {
                    self.waiting_notes.extend(changes);
                    let over = self.waiting_notes.len().saturating_sub(MAX_WAITING_NOTES);
                    self.waiting_notes.drain(..over);
                    self.acknowledgements.push(stored);
                }
                Ok(Request::Notes { job, reply }) => {
                    self.write();
                    let read = self.database.as_ref().map(|database| database.notes_of(job));
                    let read = read.transpose().inspect_err(|error| tracing::warn!("{error}"));
                    let _ = reply.send(read.ok().flatten().unwrap_or_default());
                }
                Ok(Request::Job { id, reply }) => {
                    let _ = reply.send(self.job(id));
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
            tracing::error!(kept = %aside.display(), "the database of jobs was damaged; a new one was begun");
        }
        Ok(database)
    }

    /// Writes what waits, if the last failure is long enough ago.
    fn write(&mut self) {
        if self.waiting.is_empty() && self.waiting_notes.is_empty() {
            return;
        }
        // Dropped, they say that the notes are not stored yet.
        let acknowledgements = std::mem::take(&mut self.acknowledgements);
        if !self.is_due() {
            return;
        }
        let Some(database) = &mut self.database else { return };
        match save(database, &self.origin, self.waiting.make_contiguous(), &self.waiting_notes) {
            Ok(()) => {
                self.waiting.clear();
                self.waiting_notes.clear();
                acknowledgements.into_iter().for_each(|stored| _ = stored.send(()));
                self.succeeded();
            }
            Err(error) => self.write_failed(&error),
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
                self.write_failed(&error);
            }
        }
    }

    fn take_unaccounted(&mut self) -> Vec<JobRecord> {
        if let Some(unaccounted) = &mut self.unaccounted {
            return std::mem::take(unaccounted).into();
        }
        // Until the database can be read, there is nothing to begin with.
        let Some(database) = &self.database else { return Vec::new() };
        let read = database.unaccounted(&self.origin, MAX_UNACCOUNTED);
        let read = read.inspect_err(|error| tracing::warn!("{error}")).unwrap_or_default();
        self.unaccounted = Some(VecDeque::new());
        read
    }

    fn audit_log(&self, since_ms: u64) -> Option<AuditLog> {
        let database = self.database.as_ref()?;
        let log = database.audit_log(&self.run, since_ms, Clock::wall_ms(), AuditLog::MAX_RECORDS);
        log.inspect_err(|error| tracing::warn!("{error}")).ok()
    }

    fn succeeded(&mut self) {
        if self.failure.take().is_some() {
            tracing::info!("jobs, notes and the audit log are stored again");
        }
    }

    fn write_failed(&mut self, error: &StoreError) {
        if error.is_damage() {
            // It is set aside when it is opened.
            self.database = None;
        }
        self.failed(error);
    }

    /// The newest record of a job, stored or not.
    fn job(&self, id: JobId) -> Option<JobRecord> {
        let waiting = self.waiting.iter().rev().find(|record| record.job.id == id);
        waiting.cloned().or_else(|| self.database.as_ref()?.job(id).ok()?)
    }

    fn is_due(&self) -> bool {
        self.failure.as_ref().is_none_or(|(_, at)| Instant::now() >= *at)
    }

    /// Reports a failure once, however often it recurs.
    fn failed(&mut self, error: &StoreError) {
        let message = Text::new(error.to_string());
        if self.failure.as_ref().is_none_or(|(reported, _)| *reported != message) {
            tracing::warn!("{message}; trying again every {} s", RETRY.as_secs());
        }
        self.failure = Some((message, Instant::now() + RETRY));
    }
}

fn lacks_accounting(record: &JobRecord) -> bool {
    record.is_final && record.accounting.is_none()
}

/// Saves what waits.
fn save(
    database: &mut Database,
    origin: &Origin,
    jobs: &[JobRecord],
    notes: &[NoteChange],
) -> Result<(), StoreError> {
    if !jobs.is_empty() {
        database.save(origin, jobs)?;
    }
    if !notes.is_empty() {
        database.save_notes(origin, notes)?;
    }
    Ok(())
}

/// The reports of a user's jobs without their GPUs, of which there may be very many.
fn totals_since(database: &Database, since_s: i64, user: &Text) -> Result<Vec<Report>, StoreError> {
    let mut reports = Vec::new();
    let without_gpus = |report| Report { gpus: Vec::new(), advice: Vec::new(), ..report };
    database.each_report(since_s, Some(user), |report| reports.push(without_gpus(report)))?;
    Ok(reports)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::job::{Job, JobState};
    use nodeglass_protocol::note::{NoteId, NoteSource};

    fn record(job: u32, is_final: bool) -> JobRecord {
        let job = Job { start: Some(100), ..Job::new(JobId(job), "alice".into(), JobState::Running) };
        let at_s = i64::try_from(Clock::wall_ms() / 1_000).unwrap();
        JobRecord { is_final, ..JobRecord::of(job, at_s) }
    }

    /// A store in this directory, and what it passes on.
    fn start(dir: &StateDir) -> (JobStore, oneshot::Receiver<Restored>) {
        let (restored, receiver) = oneshot::channel();
        let origin = Origin { cluster: "hpc".into(), host: "login1".into() };
        let pass_on = |stored| restored.send(stored).unwrap();
        (JobStore::start(Place::Dir(dir.clone()), origin, pass_on).unwrap(), receiver)
    }

    #[tokio::test]
    async fn a_restarted_relay_gets_the_jobs_that_had_not_ended() {
        let folder = tempfile::tempdir().unwrap();
        let dir = StateDir::at(folder.path().join("nodeglass")).unwrap();
        let (store, restored) = start(&dir);
        assert_eq!(restored.await.unwrap().jobs, []);
        let (running, ended) = (record(7, false), record(8, true));
        assert_eq!(store.save(vec![running.clone(), ended.clone()]), None);
        store.flush().await;
        let (again, restored) = start(&dir);
        assert_eq!(restored.await.unwrap().jobs, [running]);
        assert_eq!(again.job(JobId(8)).await, Some(ended));
        assert_eq!(again.job(JobId(9)).await, None);
    }

    #[tokio::test]
    async fn ended_jobs_are_taken_for_accounting_once_and_again_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let dir = StateDir::at(folder.path().join("nodeglass")).unwrap();
        let (store, _restored) = start(&dir);
        store.save(vec![record(7, false), record(8, true)]);
        assert_eq!(store.take_unaccounted().await, [record(8, true)]);
        assert_eq!(store.take_unaccounted().await, []);
        store.save(vec![record(7, true)]);
        assert_eq!(store.take_unaccounted().await, [record(7, true)]);
        let accounting = crate::report::Accounting {
            state: "FAILED".into(),
            exit_code: 3,
            signal: None,
            step_exit_code: None,
            max_rss_bytes: None,
            ended_s: 200,
            elapsed_s: None,
            reason: None,
        };
        let joined = JobRecord { accounting: Some(accounting), ..record(8, true) };
        store.save(vec![joined.clone()]);
        assert_eq!(store.take_unaccounted().await, []);
        store.flush().await;
        let (again, _restored) = start(&dir);
        assert_eq!(again.take_unaccounted().await, [record(7, true)]);
        assert_eq!(again.job(JobId(8)).await, Some(joined));
    }

    #[tokio::test]
    async fn a_note_is_acknowledged_once_it_is_stored_and_restored_later() {
        let folder = tempfile::tempdir().unwrap();
        let dir = StateDir::at(folder.path().join("nodeglass")).unwrap();
        let (store, restored) = start(&dir);
        assert_eq!(restored.await.unwrap().notes, []);
        let note = Note {
            id: NoteId::from_bits(1),
            job: Some(JobId(7)),
            node: None,
            rank: None,
            at_ms: 5,
            text: "epoch 3".into(),
            source: NoteSource::Api,
        };
        let change = NoteChange::Put(note.clone());
        store.save_notes(vec![change.clone()]).unwrap().await.unwrap();
        assert_eq!(store.notes(JobId(7)).await, [note]);
        drop(store);
        assert_eq!(start(&dir).1.await.unwrap().notes, [change]);
    }

    #[tokio::test]
    async fn a_newer_database_turns_the_store_off_and_nothing_waits_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let dir = StateDir::at(folder.path().join("nodeglass")).unwrap();
        let (store, restored) = start(&dir);
        restored.await.unwrap();
        store.flush().await;
        drop(store);
        Database::open(&dir).unwrap().0.set_version(99);
        let (off, restored) = start(&dir);
        assert!(restored.await.is_err());
        for job in 0..200 {
            off.save(vec![record(job, true)]);
        }
        off.flush().await;
        assert_eq!(off.job(JobId(7)).await, None);
    }
}
