//! The thread that owns the database: it writes what waits, and tries again after a failure.

use super::audit::AuditQueue;
use super::database::{Database, Origin, RelayRun, StoreError};
use super::{JobStore, Location, Request, Restored, StoredNotes};
use nodeglass_fleet::NoteChange;
use nodeglass_platform::clock::Clock;
use nodeglass_platform::loss_count::LossCount;
use nodeglass_platform::state_dir::StateDir;
use nodeglass_protocol::audit::AuditLog;
use nodeglass_protocol::note::NoteId;
use nodeglass_protocol::{JobId, Text};
use nodeglass_report::{JobRecord, NodeFaults, Report};
use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};
use tokio::sync::{oneshot, watch};

/// Pause of the thread after a failure.
const RETRY: Duration = Duration::from_secs(10);
/// Maximum number of records that wait for the disk; the oldest is dropped first.
const MAX_WAITING: usize = 4_096;
/// Maximum number of ended jobs that wait for their accounting; the oldest is dropped first.
const MAX_UNACCOUNTED: usize = 1_024;

/// Receives what earlier runs stored.
type PassOn = Box<dyn FnOnce(Restored) + Send>;

/// The thread's state.
pub(super) struct Worker {
    place: Location,
    /// The cluster and host of the relay; the cluster is empty until its name is known.
    origin: Origin,
    cluster: Arc<OnceLock<String>>,
    run: RelayRun,
    database: Option<Database>,
    /// Receives the records of earlier runs; `None` once it has. The thread writes nothing before, because that would
    /// replace them.
    restored: Option<PassOn>,
    waiting: VecDeque<JobRecord>,
    lost: LossCount,
    /// Jobs that ended since they were last taken, once somebody has taken any.
    unaccounted: Option<VecDeque<JobRecord>>,
    audit: Arc<AuditQueue>,
    waiting_notes: Vec<NoteChange>,
    /// Their number, including those in the channel.
    note_count: Arc<AtomicUsize>,
    /// Resolved once these notes are stored.
    acknowledgements: Vec<oneshot::Sender<Vec<NoteId>>>,
    /// Number of batches of notes that were received.
    note_batches: u64,
    /// [`Database::version`] when the notes were last read.
    read_version: Option<i64>,
    /// The failure that was last reported, and the time of the next attempt.
    failure: Option<(Text, Instant)>,
    /// Publishes the failure.
    problem: watch::Sender<Option<Text>>,
    damage: Arc<watch::Sender<Option<Text>>>,
}

impl Worker {
    /// The thread of a `store`, which has not opened its database; why nothing can be stored is sent to `problem`.
    pub(super) fn new(
        place: Location,
        host: String,
        restored: impl FnOnce(Restored) + Send + 'static,
        store: &JobStore,
        problem: watch::Sender<Option<Text>>,
    ) -> Self {
        Self {
            place,
            run: RelayRun::of_this_process(host.clone()),
            origin: Origin { cluster: String::new(), host },
            cluster: store.cluster.clone(),
            database: None,
            restored: Some(Box::new(restored)),
            waiting: VecDeque::new(),
            lost: store.lost.clone(),
            unaccounted: None,
            audit: store.audit.clone(),
            waiting_notes: Vec::new(),
            note_count: store.waiting_notes.clone(),
            acknowledgements: Vec::new(),
            note_batches: 0,
            read_version: None,
            failure: None,
            problem,
            damage: store.damage.clone(),
        }
    }

    /// Answers requests and writes what waits, until no handle is left.
    pub(super) fn run(mut self, requests: &Receiver<Request>) {
        loop {
            if let Err(error) = self.open_if_due() {
                tracing::error!("{error}");
                self.problem.send_replace(Some(Text::new(error.to_string())));
                return;
            }
            self.restore();
            self.write();
            self.write_audit();
            match requests.recv_timeout(RETRY) {
                Ok(request) => self.answer(request),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    self.name_for_good();
                    self.write();
                    return self.write_audit();
                }
            }
        }
    }

    /// Opens the database, if it is not, and the last failure is long enough ago.
    ///
    /// # Errors
    /// A newer version wrote it: it never can be opened.
    fn open_if_due(&mut self) -> Result<(), StoreError> {
        if self.database.as_ref().is_some_and(|database| !database.is_in_place()) {
            tracing::warn!("the database of jobs was deleted or replaced; it is opened again");
            self.database = None;
        }
        if self.database.is_some() || !self.is_due() {
            return Ok(());
        }
        match self.open() {
            Ok(mut database) => {
                if let Err(error) = database.end_lost_views(&self.run, Clock::wall_ms()) {
                    tracing::warn!("{error}");
                }
                // The numbers of another connection mean nothing here.
                self.read_version = None;
                self.database = Some(database);
            }
            Err(error @ StoreError::Newer { .. }) => return Err(error),
            Err(error) => self.failed(&error),
        }
        Ok(())
    }

    /// Answers a request. What waits is written first, where the answer may contain it.
    fn answer(&mut self, request: Request) {
        match request {
            // It is written with the next turn.
            Request::Audit => self.audit.wake_received(),
            // It is read with the next turn.
            Request::Named => {}
            Request::AuditLog { since_ms, reply } => {
                self.write_audit();
                let _ = reply.send(self.audit_log(since_ms));
            }
            Request::Save(records) => self.add(records),
            Request::AddEnded(records) => {
                self.write();
                self.add_ended(records);
            }
            Request::Unaccounted { reply } => {
                self.write();
                let _ = reply.send(self.take_unaccounted());
            }
            Request::ChangedNotes { in_any_case, reply } => {
                self.write();
                if reply.send(self.changed_notes(in_any_case)).is_err() {
                    // Nobody knows of the change.
                    self.read_version = None;
                }
            }
            Request::SaveNotes { changes, stored } => {
                self.note_batches += 1;
                self.waiting_notes.extend(changes);
                self.acknowledgements.push(stored);
            }
            Request::Notes { job, reply } => {
                _ = reply.send(self.read(|database, origin| database.notes_of(origin, job)));
            }
            Request::Job { id, user, reply } => _ = reply.send(self.job(id, user.as_ref())),
            Request::IdOf { label, reply } => {
                _ = reply.send(self.read(|database, _| database.id_of(&label)).flatten());
            }
            Request::Reports { since_s, user, reply } => {
                _ = reply.send(self.read(|database, _| totals_since(database, since_s, &user)));
            }
            Request::Faults { since_s, reply } => {
                _ = reply.send(self.read(|database, _| faults_since(database, since_s)));
            }
            Request::Flush { reply } => {
                self.name_for_good();
                self.write();
                self.write_audit();
                let _ = reply.send(());
            }
        }
    }

    /// Reads from the database, after what waits is written; `None` if that fails.
    fn read<T>(&mut self, read: impl FnOnce(&Database, &Origin) -> Result<T, StoreError>) -> Option<T> {
        self.write();
        let read = read(self.database.as_ref()?, &self.origin);
        read.inspect_err(|error| tracing::warn!("{error}")).ok()
    }

    /// Keeps records until they are written, and ended jobs until they are accounted for.
    fn add(&mut self, records: Vec<JobRecord>) {
        if let Some(unaccounted) = &mut self.unaccounted {
            unaccounted.extend(records.iter().filter(|record| lacks_accounting(record)).cloned());
            let over = unaccounted.len().saturating_sub(MAX_UNACCOUNTED);
            unaccounted.drain(..over);
        }
        // The sums of running jobs are passed each minute, and must not displace those of ended ones.
        let run = |record: &JobRecord| (record.job.id, record.job.start);
        let newer: HashSet<_> = records.iter().map(run).collect();
        self.waiting.retain(|record| record.is_final || !newer.contains(&run(record)));
        self.waiting.extend(records);
        let over = self.waiting.len().saturating_sub(MAX_WAITING);
        self.lost.add(self.waiting.drain(..over).filter(|record| record.is_final).count());
    }

    fn open(&self) -> Result<Database, StoreError> {
        let dir = match &self.place {
            Location::Memory => return Database::in_memory(),
            Location::Dir(dir) => dir.clone(),
            Location::StateDir => StateDir::open()?,
        };
        let (database, damaged) = Database::open(&dir)?;
        if let Some(damaged) = damaged {
            let why = damaged.text();
            tracing::error!("{why}");
            self.damage.send_replace(Some(why.into()));
        }
        Ok(database)
    }

    /// Returns whether the name of the cluster is known.
    fn is_named(&mut self) -> bool {
        let Some(name) = self.cluster.get() else { return false };
        self.origin.cluster.clone_from(name);
        true
    }

    /// Stores without a name of the cluster what waits for it, because the relay ends.
    fn name_for_good(&self) {
        let _ = self.cluster.set(String::new());
    }

    /// Passes on what earlier runs stored, unless that is done; after a failure again with a later turn.
    fn restore(&mut self) {
        if self.restored.is_none() || !self.is_named() || !self.is_due() {
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
        // Dropping them tells the callers that the notes are not stored yet.
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

    /// Adds jobs that ended while no relay ran; if that fails, a later query of `sacct` lists them again.
    fn add_ended(&mut self, records: Vec<JobRecord>) {
        let Some(database) = &mut self.database else { return };
        match database.add_ended(&self.origin, records) {
            Ok(count) => tracing::info!(count, "added jobs that ended while no relay ran"),
            Err(error) => self.access_failed(&error),
        }
    }

    fn take_unaccounted(&mut self) -> Vec<JobRecord> {
        if let Some(unaccounted) = &mut self.unaccounted {
            return std::mem::take(unaccounted).into();
        }
        // Until the database can be read, there is nothing to begin with.
        let can_read = self.is_named() && self.is_due();
        let Some(database) = self.database.as_ref().filter(|_| can_read) else { return Vec::new() };
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

    /// The newest record of a job, stored or not; of this user's, if one is given.
    fn job(&self, id: JobId, user: Option<&Text>) -> Option<JobRecord> {
        let is_it =
            |record: &JobRecord| record.job.id == id && user.is_none_or(|user| record.job.user == *user);
        let waiting = self.waiting.iter().rev().find(|record| is_it(record));
        let stored = || {
            let database = self.database.as_ref()?;
            let read = match user {
                Some(user) => database.job_of(id, user),
                None => database.job(id),
            };
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

impl Drop for Worker {
    /// After a panic, nothing is stored any more.
    fn drop(&mut self) {
        if thread::panicking() {
            let why = "jobs are not stored because of an internal error: see the relay's log, and start the relay again";
            self.problem.send_replace(Some(why.into()));
        }
    }
}

fn lacks_accounting(record: &JobRecord) -> bool {
    record.is_final && record.accounting.is_none()
}

/// Returns the content that earlier runs stored.
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

/// The reports of a user's jobs without their lists, which may be very long together.
fn totals_since(database: &Database, since_s: i64, user: &Text) -> Result<Vec<Report>, StoreError> {
    let mut reports = Vec::new();
    let totals = |report| Report { gpus: Vec::new(), advice: Vec::new(), findings: Vec::new(), ..report };
    database.each_report(since_s, Some(user), |report| reports.push(totals(report)))?;
    Ok(reports)
}

/// Returns the findings about nodes during all jobs.
fn faults_since(database: &Database, since_s: i64) -> Result<NodeFaults, StoreError> {
    let mut faults = NodeFaults::default();
    database.each_report(since_s, None, |report| faults.add(&report))?;
    Ok(faults)
}

#[cfg(test)]
mod tests;
