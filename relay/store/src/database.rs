//! The SQLite database of jobs and notes: schema, migrations, and the queries of all commands.

mod audit;
mod ended;
mod notes;
mod salvage;

use super::filesystem::Journal;
pub use audit::{AuditChange, RelayRun};
use nodeglass_platform::clock::Clock;
use nodeglass_platform::regular_file::identity;
use nodeglass_platform::state_dir::{StateDir, StateDirError};
use nodeglass_protocol::{JobId, Text};
use nodeglass_report::{JobRecord, Report};
use rusqlite::{Connection, ErrorCode, OpenFlags, Row, params};
pub use salvage::Damaged;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// File name in the state directory.
const FILE: &str = "jobs.db";
/// Time for which a statement waits for another process.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of jobs; the oldest are deleted first.
const MAX_JOBS: i64 = 20_000;

/// Migrations of the schema, each from the version before. Entries are appended and never changed: `user_version` is
/// the number of applied ones.
const MIGRATIONS: [&str; 4] = [JOBS, audit::SCHEMA, notes::SCHEMA, JOBS_BY_USER];

const JOBS: &str = "CREATE TABLE jobs (
    cluster TEXT NOT NULL,
    host TEXT NOT NULL,
    job INTEGER NOT NULL,
    start_s INTEGER NOT NULL,
    is_final INTEGER NOT NULL,
    at_s INTEGER NOT NULL,
    record TEXT NOT NULL,
    PRIMARY KEY (cluster, host, job, start_s)
) STRICT;
CREATE INDEX jobs_by_start ON jobs (start_s);";

/// The user of a record; none of a damaged one.
const USER: &str = "CASE WHEN json_valid(record) THEN json_extract(record, '$.job.user') END";

/// Finds the jobs of a user without reading those of others: the time that this takes would tell who has which job.
const JOBS_BY_USER: &str = "CREATE INDEX jobs_by_user ON jobs \
    (CASE WHEN json_valid(record) THEN json_extract(record, '$.job.user') END, job);";

/// Error of using the database. Messages are complete sentences for the user.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The state directory cannot be used.
    #[error("jobs cannot be stored: {0}")]
    StateDir(#[from] StateDirError),
    /// SQLite failed.
    #[error("jobs cannot be stored: {}", without_sql(.0))]
    Database(#[from] rusqlite::Error),
    /// A later build has written it.
    #[error(
        "{} was written by a newer nodeglass (schema {found}, this build knows {known}); jobs are not stored until \
         you update",
        path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// The newest version of this build.
        known: i64,
    },
}

impl StoreError {
    /// Returns whether the file is not a readable database, so that retrying is futile.
    pub(super) fn is_damage(&self) -> bool {
        let Self::Database(error) = self else { return false };
        matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
    }
}

/// Returns the error of a statement without the statement: tables that it needs may be missing.
fn without_sql(error: &rusqlite::Error) -> String {
    match error {
        rusqlite::Error::SqlInputError { msg, .. } => {
            format!("{FILE} has other tables than nodeglass creates ({msg})")
        }
        error => error.to_string(),
    }
}

/// The rows of one relay's jobs (`?1` is its cluster, `?2` its host). A relay that never learnt the name of its cluster
/// left its rows without one; they count unless the run is stored under the name as well.
const OF_RELAY: &str = "host = ?2 AND (cluster = ?1 OR cluster = '' AND NOT EXISTS \
    (SELECT 1 FROM jobs AS named WHERE named.cluster = ?1 AND named.host = ?2 \
    AND named.job = jobs.job AND named.start_s = jobs.start_s))";

/// Age in s of the row of a running job after which no relay on its host observes the job: one that does stores it each minute.
const LEFT_S: i64 = 300;

/// The relay whose rows are written; all rows are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Name of the cluster; empty if it has none, or SLURM did not state it while the relay ran.
    pub cluster: String,
    /// Name of the machine that the relay runs on.
    pub host: String,
}

/// An open database.
#[derive(Debug)]
pub struct Database {
    connection: Connection,
    /// Its path and identity; `None` in memory.
    file: Option<(PathBuf, (u64, u64))>,
}

impl Database {
    /// Opens `jobs.db` in the state directory, creating it if missing, with access for the owner only. A file that
    /// is damaged is set aside, and what can be read of it is copied.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn open(dir: &StateDir) -> Result<(Self, Option<Damaged>), StoreError> {
        match Self::try_open(dir) {
            Err(error) if error.is_damage() => {
                let aside = dir.set_aside(FILE)?;
                let mut new = Self::try_open(dir)?;
                let damaged = Damaged::copy(aside, &mut new.connection);
                Ok((new, Some(damaged)))
            }
            opened => Ok((opened?, None)),
        }
    }

    /// Opens the database for reading, if there is one.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn open_existing(dir: &StateDir) -> Result<Option<Self>, StoreError> {
        match dir.path().join(FILE).exists() {
            true => Self::try_open(dir).map(Some),
            false => Ok(None),
        }
    }

    /// A database in memory, for a simulated cluster.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub fn in_memory() -> Result<Self, StoreError> {
        let mut connection = Connection::open_in_memory()?;
        migrate(&mut connection, &MIGRATIONS, PathBuf::from(":memory:"))?;
        Ok(Self { connection, file: None })
    }

    fn try_open(dir: &StateDir) -> Result<Self, StoreError> {
        let path = dir.private_file(FILE)?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NOFOLLOW;
        let mut connection = Connection::open_with_flags(&path, flags)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        connection.pragma_update(None, "journal_mode", Journal::of(dir.path()).name())?;
        // What was acknowledged also survives a power failure.
        connection.pragma_update(None, "synchronous", "FULL")?;
        let health: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
        if health != "ok" {
            let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT);
            return Err(rusqlite::Error::SqliteFailure(code, Some(health)).into());
        }
        migrate(&mut connection, &MIGRATIONS, path.clone())?;
        let file = identity(&path).map(|identity| (path, identity));
        Ok(Self { connection, file })
    }

    /// Returns whether the file is still the opened one: a user may have deleted it to forget its content, and later
    /// writes are lost then.
    pub fn is_in_place(&self) -> bool {
        self.file.as_ref().is_none_or(|(path, opened)| identity(path).as_ref() == Some(opened))
    }

    /// Inserts or replaces the records of one relay, all or none; when it returns, they outlive any crash.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub fn save(&mut self, origin: &Origin, records: &[JobRecord]) -> Result<(), StoreError> {
        let transaction = self.connection.transaction()?;
        {
            // The record of a job that ended is never replaced by one of its run, unless SLURM listed the job as running again,
            // which voids the record; nor a record with sums by one of a relay that has not observed the run.
            let mut insert = transaction.prepare_cached(
                "INSERT INTO jobs (cluster, host, job, start_s, is_final, at_s, record) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) \
                 ON CONFLICT DO UPDATE SET is_final = excluded.is_final, at_s = excluded.at_s, record = excluded.record \
                 WHERE (excluded.is_final >= is_final OR json_extract(excluded.record, '$.false_end_s') >= at_s) \
                 AND excluded.at_s > ifnull(json_extract(record, '$.false_end_s'), excluded.at_s - 1) \
                 AND (json_array_length(excluded.record, '$.nodes') > 0 OR json_array_length(record, '$.nodes') = 0)",
            )?;
            for record in records {
                let text = serde_json::to_string(record).unwrap_or_default();
                let (job, start_s) = (record.job.id.0, record.job.start.unwrap_or(0));
                let Origin { cluster, host } = origin;
                insert.execute(params![cluster, host, job, start_s, record.is_final, record.at_s, text])?;
            }
        }
        transaction.execute(
            "DELETE FROM jobs WHERE rowid IN (SELECT rowid FROM jobs ORDER BY start_s DESC LIMIT -1 OFFSET ?1)",
            [MAX_JOBS],
        )?;
        transaction.commit()?;
        Ok(())
    }

    /// Returns the records of one relay's jobs that had not ended, at most those of the last 30 days. Where a relay on
    /// another login node of the cluster observed a run last, and does not any more, its record of the run is returned.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub fn unfinished(&self, origin: &Origin) -> Result<Vec<JobRecord>, StoreError> {
        let now_s = i64::try_from(Clock::wall_ms() / 1_000).unwrap_or(i64::MAX);
        let (since_s, left_s) = (now_s - 30 * 86_400, now_s - LEFT_S);
        // Of the rows of a run, the last one remains.
        let mut query = self.connection.prepare(&format!(
            "SELECT record FROM jobs WHERE ({OF_RELAY} OR cluster = ?1 AND cluster != '' AND at_s < ?4) \
             AND is_final = 0 AND at_s >= ?3 ORDER BY at_s",
        ))?;
        let mut runs = BTreeMap::new();
        for record in query.query_map(params![origin.cluster, origin.host, since_s, left_s], parsed)? {
            runs.extend(record?.map(|record| ((record.job.id, record.job.start), record)));
        }
        Ok(runs.into_values().collect())
    }

    /// The records of one relay's jobs that ended in the last day and have no accounting, at most `limit`, oldest
    /// first.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub fn unaccounted(&self, origin: &Origin, limit: usize) -> Result<Vec<JobRecord>, StoreError> {
        let since_s = i64::try_from(Clock::wall_ms() / 1_000).unwrap_or(i64::MAX) - 86_400;
        let mut query = self.connection.prepare(&format!(
            "SELECT record FROM jobs WHERE {OF_RELAY} AND is_final = 1 AND at_s >= ?3 \
             AND json_extract(record, '$.accounting') IS NULL ORDER BY at_s LIMIT ?4",
        ))?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let rows = query.query_map(params![origin.cluster, origin.host, since_s, limit], parsed)?;
        Ok(rows.filter_map(Result::transpose).collect::<Result<_, _>>()?)
    }

    /// Returns the latest run of a job: of several relays' records, the one that [states most](rank).
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub fn job(&self, id: JobId) -> Result<Option<JobRecord>, StoreError> {
        Ok(self.job_with_origin(id)?.map(|(record, _)| record))
    }

    /// Returns the latest run of a job, with the relay that stored it.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub fn job_with_origin(&self, id: JobId) -> Result<Option<(JobRecord, Origin)>, StoreError> {
        let mut query = self
            .connection
            .prepare("SELECT record, cluster, host FROM jobs WHERE job = ?1 ORDER BY start_s DESC")?;
        let rows = query.query_map([id.0], |row| {
            let origin = Origin { cluster: row.get(1)?, host: row.get(2)? };
            Ok(parsed(row)?.map(|record| (record, origin)))
        })?;
        latest(rows)
    }

    /// Returns the runs of a job, each once, the first one first: those that have its latest run's user and name, of the
    /// same cluster.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub fn runs(&self, id: JobId) -> Result<Vec<JobRecord>, StoreError> {
        let mut query = self.connection.prepare(
            "SELECT record, cluster, CASE cluster WHEN '' THEN host END FROM jobs WHERE job = ?1 \
             ORDER BY start_s, at_s",
        )?;
        let stored = query.query_map([id.0], |row| {
            let cluster: (String, Option<String>) = (row.get(1)?, row.get(2)?);
            Ok(parsed(row)?.map(|record| (record, cluster)))
        })?;
        let stored: Vec<_> = stored.filter_map(Result::transpose).collect::<Result<_, _>>()?;
        let Some((latest, cluster)) = stored.last().cloned() else { return Ok(Vec::new()) };
        let is_same =
            |record: &JobRecord| (&record.job.user, &record.job.name) == (&latest.job.user, &latest.job.name);
        let mut runs: Vec<JobRecord> = Vec::new();
        for (record, _) in stored.into_iter().filter(|(record, of)| is_same(record) && *of == cluster) {
            let same = runs.pop_if(|last| last.job.start == record.job.start);
            runs.extend(same.into_iter().chain([record]).max_by_key(rank));
        }
        Ok(runs)
    }

    /// Returns the latest run of a job of this user.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub fn job_of(&self, id: JobId, user: &Text) -> Result<Option<JobRecord>, StoreError> {
        let mut query = self.connection.prepare(&Self::query_of_user())?;
        let rows = query
            .query_map(params![user.as_str(), id.0], |row| Ok(parsed(row)?.map(|record| (record, ()))))?;
        Ok(latest(rows)?.map(|(record, ())| record))
    }

    fn query_of_user() -> String {
        format!(
            "SELECT record FROM jobs INDEXED BY jobs_by_user WHERE {USER} = ?1 AND job = ?2 \
             ORDER BY start_s DESC"
        )
    }

    /// The raw id of the newest job with this label, such as `48440_16`.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub fn id_of(&self, label: &str) -> Result<Option<JobId>, StoreError> {
        let mut query = self.connection.prepare(
            "SELECT job FROM jobs WHERE json_extract(record, '$.job.label') = ?1 \
             ORDER BY start_s DESC, at_s DESC LIMIT 1",
        )?;
        let mut rows = query.query_map([label], |row| row.get(0).map(JobId))?;
        Ok(rows.next().transpose()?)
    }

    /// The reports of all jobs, or of one user's, that started at `since_s` or later, in s since 1970, newest
    /// first; one for each run.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub fn reports_since(&self, since_s: i64, user: Option<&Text>) -> Result<Vec<Report>, StoreError> {
        let mut reports = Vec::new();
        self.each_report(since_s, user, |report| reports.push(report))?;
        Ok(reports)
    }

    /// Passes the same reports on, one by one.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub fn each_report(
        &self,
        since_s: i64,
        user: Option<&Text>,
        mut pass: impl FnMut(Report),
    ) -> Result<(), StoreError> {
        let mut query = self.connection.prepare(
            "SELECT record FROM jobs WHERE start_s >= ?1 \
             ORDER BY start_s DESC, job DESC, cluster = '', cluster, at_s DESC",
        )?;
        let mut rows = query.query([since_s])?;
        let mut pass = |record: JobRecord| {
            if user.is_none_or(|user| record.job.user == *user) {
                pass(record.report());
            }
        };
        let mut last: Option<JobRecord> = None;
        while let Some(row) = rows.next()? {
            let Some(record) = parsed(row)? else { continue };
            // The same run follows as another relay saw it, which may not have known the name of the cluster.
            let run = (record.job.id, record.job.start);
            let same = last.take_if(|last| (last.job.id, last.job.start) == run);
            last.take().into_iter().for_each(&mut pass);
            last = same.into_iter().chain([record]).max_by_key(rank);
        }
        last.into_iter().for_each(pass);
        Ok(())
    }
}

/// Returns how much a record states of its run: that of its end the most, then the one that observed more, then the newer one.
/// A relay on another login node may have found the job when it had ended.
fn rank(record: &JobRecord) -> (bool, u64, i64) {
    (record.is_final, record.observed_ms(), record.at_s)
}

/// Returns the record of the latest run that [states most](rank) of it, from rows with the latest run first.
fn latest<T>(
    rows: impl Iterator<Item = rusqlite::Result<Option<(JobRecord, T)>>>,
) -> Result<Option<(JobRecord, T)>, StoreError> {
    let rows: Vec<_> = rows.filter_map(Result::transpose).collect::<Result<_, _>>()?;
    let start = rows.first().map(|(record, _)| record.job.start);
    let of_latest = rows.into_iter().take_while(|(record, _)| Some(record.job.start) == start);
    Ok(of_latest.max_by_key(|(record, _)| rank(record)))
}

#[cfg(test)]
impl Database {
    /// Executes statements, to cause what no caller does.
    pub(super) fn execute(&self, statements: &str) {
        self.connection.execute_batch(statements).unwrap();
    }

    /// Makes the file one of another build.
    pub(super) fn set_version(&self, version: i64) {
        self.connection.pragma_update(None, "user_version", version).unwrap();
    }
}

/// Parses a row; `None`, with a message, if its record is not one of this build.
fn parsed(row: &Row<'_>) -> rusqlite::Result<Option<JobRecord>> {
    let record = serde_json::from_str(&row.get::<_, String>(0)?);
    Ok(record.inspect_err(|error| tracing::warn!(%error, "a stored job cannot be read")).ok())
}

/// SQLite's integers are signed.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Brings the schema up to date, in one transaction: of two relays, one waits for the other.
fn migrate(connection: &mut Connection, migrations: &[&str], path: PathBuf) -> Result<(), StoreError> {
    let version = |connection: &Connection| -> rusqlite::Result<i64> {
        connection.pragma_query_value(None, "user_version", |row| row.get(0))
    };
    let known = i64::try_from(migrations.len()).unwrap_or(i64::MAX);
    let found = version(connection)?;
    if found > known {
        return Err(StoreError::Newer { path, found, known });
    }
    if found == known {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    let found = usize::try_from(version(&transaction)?).unwrap_or(0);
    for migration in migrations.iter().skip(found) {
        transaction.execute_batch(migration)?;
    }
    transaction.pragma_update(None, "user_version", known)?;
    transaction.commit()?;
    Ok(())
}

#[cfg(test)]
mod tests;
