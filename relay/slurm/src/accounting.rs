//! Joins what SLURM's accounting states to the records of ended jobs: rarely, many at once, and a few times each; and lists
//! the jobs that ended while no relay ran: a minute after the start, and once a day.
//!
//! slurmdbd serves the whole cluster. It is asked at most once a minute, about ended jobs only, and ever more rarely
//! while it does not respond. Where it does not exist, that is stated once.

use super::command::{Client, CommandError, Program};
use super::sacct::{self, Entry};
use super::squeue::Delimiter;
use nodeglass_protocol::JobId;
use nodeglass_report::JobRecord;
use nodeglass_rules::text;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Minimum time between two queries, in ms.
pub const INTERVAL_MS: u64 = 60_000;
/// Maximum time between two queries while they fail, in ms.
const LONGEST_MS: u64 = 3_600_000;
/// Time from a job's end to the first query about it, in ms: slurmctld sends its record a little later.
const SETTLING_MS: u64 = 15_000;
/// Maximum number of queries about a job; each after twice the time, from a minute on.
const ATTEMPTS: u32 = 5;
/// Maximum number of jobs of one query.
const BATCH: usize = 64;
/// Maximum number of jobs that wait; the oldest is dropped first.
const MAX_WAITING: usize = 1_024;

/// Days of which ended jobs are listed at first; fewer if sacct prints too much or takes too long.
const FIRST_DAYS: u32 = 30;
/// Days of which they are listed later, to leave no gap between two days.
const LATER_DAYS: u32 = 2;
/// Time between two lists, in ms.
const LIST_INTERVAL_MS: u64 = 86_400_000;

/// Joins accounting to records.
#[derive(Debug)]
pub struct AccountingQueries<C> {
    client: C,
    queue: Queue,
    list: ListSchedule,
}

/// When ended jobs are listed next, and of how many days.
#[derive(Debug)]
struct ListSchedule {
    due_ms: Option<u64>,
    days: u32,
}

impl<C: Client> AccountingQueries<C> {
    /// Queries by this client.
    pub fn new(client: C) -> Self {
        let list = ListSchedule { due_ms: None, days: FIRST_DAYS };
        Self { client, queue: Queue::default(), list }
    }

    /// Lists a user's ended jobs as records without an observation, if it is time; `None` if it is not.
    ///
    /// # Errors
    /// The reason why jobs may be missing, a complete sentence for the user.
    pub async fn ended(&mut self, user: &str, now_ms: u64) -> Option<Result<Vec<JobRecord>, String>> {
        let due_ms = *self.list.due_ms.get_or_insert(now_ms + INTERVAL_MS);
        if now_ms < due_ms.max(self.queue.next_ms) || self.queue.is_off {
            return None;
        }
        let delimiter = Delimiter::random();
        let args = sacct::ended::args(user, self.list.days, &delimiter);
        self.queue.next_ms = now_ms + INTERVAL_MS;
        let result = self.client.run(Program::Sacct, &args).await;
        let is_off = matches!(result, Err(CommandError::Missing(_)));
        self.queue.is_off |= is_off;
        Some(match result {
            Ok(output) => {
                self.list = ListSchedule { due_ms: Some(now_ms + LIST_INTERVAL_MS), days: LATER_DAYS };
                Ok(sacct::ended::read(&output.out, &delimiter))
            }
            Err(error) => {
                self.list.due_ms = Some(now_ms + LONGEST_MS);
                let is_too_much =
                    matches!(error, CommandError::OutputTooLarge(..) | CommandError::TimedOut(..));
                if is_too_much {
                    self.list.days = (self.list.days / 4).max(1);
                }
                Err(text::sentence(&format!("jobs that ended while no relay ran may be missing: {error}")))
            }
        })
    }

    /// Adds records of ended jobs.
    pub fn add(&mut self, records: impl IntoIterator<Item = JobRecord>, now_ms: u64) {
        self.queue.add(records, now_ms);
    }

    /// Asks about the jobs that are due, if it is time; returns the records that are complete now.
    pub async fn join(&mut self, now_ms: u64) -> Vec<JobRecord> {
        let jobs = self.queue.due(now_ms);
        if jobs.is_empty() {
            return Vec::new();
        }
        let delimiter = Delimiter::random();
        let args = sacct::args(&jobs, &delimiter, self.queue.has_reason);
        match self.client.run(Program::Sacct, &args).await {
            Ok(output) => self.queue.answered(&jobs, &sacct::read(&output.out, &delimiter), now_ms),
            Err(error) => {
                self.queue.failed(&jobs, error, now_ms);
                Vec::new()
            }
        }
    }

    /// Returns whether there is nothing to ask, now and later.
    pub fn is_off(&self) -> bool {
        self.queue.is_off
    }

    /// Maximum pause of a caller before the next [`AccountingQueries::join`].
    pub const PAUSE: Duration = Duration::from_secs(5);
}

/// Queue of the jobs to query, with their times. Pure: the caller passes the time.
#[derive(Debug)]
struct Queue {
    waiting: VecDeque<Waiting>,
    next_ms: u64,
    pause_ms: u64,
    batch: usize,
    has_reason: bool,
    is_off: bool,
    /// The failure that was last reported.
    failure: Option<String>,
}

/// A job that is not joined yet.
#[derive(Debug)]
struct Waiting {
    record: JobRecord,
    attempts: u32,
    due_ms: u64,
}

impl Default for Queue {
    fn default() -> Self {
        Self {
            waiting: VecDeque::new(),
            next_ms: 0,
            pause_ms: INTERVAL_MS,
            batch: BATCH,
            has_reason: true,
            is_off: false,
            failure: None,
        }
    }
}

impl Queue {
    fn add(&mut self, records: impl IntoIterator<Item = JobRecord>, now_ms: u64) {
        let records = records.into_iter().filter(|record| record.is_final && record.accounting.is_none());
        let due_ms = now_ms + SETTLING_MS;
        self.waiting.extend(records.map(|record| Waiting { record, attempts: 0, due_ms }));
        let over = self.waiting.len().saturating_sub(MAX_WAITING);
        self.waiting.drain(..over);
        if self.is_off {
            self.waiting.clear();
        }
    }

    /// The jobs to ask about now.
    fn due(&self, now_ms: u64) -> Vec<JobId> {
        if now_ms < self.next_ms {
            return Vec::new();
        }
        let due = self.waiting.iter().filter(|waiting| waiting.due_ms <= now_ms);
        due.take(self.batch).map(|waiting| waiting.record.job.id).collect()
    }

    /// Takes the complete records; drops the others that have been queried often enough.
    fn answered(
        &mut self,
        asked: &[JobId],
        entries: &BTreeMap<JobId, Vec<Entry>>,
        now_ms: u64,
    ) -> Vec<JobRecord> {
        if self.failure.take().is_some() {
            tracing::info!("sacct responds again");
        }
        (self.pause_ms, self.batch) = (INTERVAL_MS, BATCH);
        self.next_ms = now_ms + INTERVAL_MS;
        let mut complete = Vec::new();
        for mut waiting in std::mem::take(&mut self.waiting) {
            let is_asked = asked.contains(&waiting.record.job.id) && waiting.due_ms <= now_ms;
            let entry = entries.get(&waiting.record.job.id).filter(|_| is_asked);
            match entry.and_then(|runs| of_run(runs, &waiting.record)) {
                Some(accounting) => {
                    waiting.record.accounting = Some(accounting);
                    complete.push(waiting.record);
                }
                None if is_asked => self.waiting.extend(waiting.later(now_ms)),
                None => self.waiting.push_back(waiting),
            }
        }
        complete
    }

    fn failed(&mut self, asked: &[JobId], error: CommandError, now_ms: u64) {
        let message = error.to_string();
        self.next_ms = now_ms + self.pause_ms;
        match error {
            CommandError::Missing(_) => {
                self.is_off = true;
                self.waiting.clear();
            }
            CommandError::Failed(..) if self.has_reason && sacct::lacks_reason(&message) => {
                self.has_reason = false;
                return;
            }
            // A job with very many steps: it is asked about alone, and dropped in the end.
            CommandError::OutputTooLarge(..) => {
                self.batch = 1;
                let is_asked = |waiting: &Waiting| asked.contains(&waiting.record.job.id);
                let (again, others) = std::mem::take(&mut self.waiting).into_iter().partition(is_asked);
                let again: VecDeque<Waiting> = again;
                self.waiting = others;
                self.waiting.extend(again.into_iter().filter_map(|waiting| waiting.later(now_ms)));
            }
            _ => self.pause_ms = (2 * self.pause_ms).min(LONGEST_MS),
        }
        if self.failure.as_ref() != Some(&message) {
            tracing::info!("{message}; reports have no exit code, memory and reason of SLURM's accounting");
            self.failure = Some(message);
        }
    }
}

impl Waiting {
    /// Returns the entry with one more attempt, unless that was the last.
    fn later(self, now_ms: u64) -> Option<Self> {
        let attempts = self.attempts + 1;
        let due_ms = now_ms + (INTERVAL_MS << attempts.min(ATTEMPTS));
        (attempts < ATTEMPTS).then_some(Self { attempts, due_ms, ..self })
    }
}

/// Returns the statement about the run of a record: a requeued job has several under one number.
fn of_run(runs: &[Entry], record: &JobRecord) -> Option<nodeglass_protocol::report::Accounting> {
    let is_same = |run: &&Entry| match (run.start_s, record.job.start) {
        (Some(stated), Some(known)) => stated.abs_diff(known) <= 1,
        _ => runs.len() == 1,
    };
    runs.iter().find(is_same)?.accounting.clone()
}

#[cfg(test)]
mod tests;
