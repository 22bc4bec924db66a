//! Jobs that ended while no relay ran, as SLURM's accounting states them.

use super::{Database, Origin, StoreError, USER, parsed};
use nodeglass_protocol::JobId;
use nodeglass_report::JobRecord;
use rusqlite::params;
use std::collections::BTreeSet;

/// A stored record with its key.
struct StoredRun {
    origin: Origin,
    start_s: i64,
    record: JobRecord,
}

impl Database {
    /// Adds final records without an observation. A run that is stored as ended stays as it is; a run that a relay
    /// observed, but whose end it did not see, ends as accounting states, and keeps its sums. Returns the number of
    /// changed rows.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub fn add_ended(&mut self, origin: &Origin, records: Vec<JobRecord>) -> Result<usize, StoreError> {
        let stated: BTreeSet<_> = records.iter().map(|record| (record.job.id, start_s(record))).collect();
        let mut changed = Vec::new();
        for record in records {
            let mut stored = self.run(origin, &record, &stated)?;
            if stored.iter().any(|run| !run.record.nodes.is_empty()) {
                let (observed, empty): (Vec<_>, Vec<_>) =
                    stored.into_iter().partition(|run| !run.record.nodes.is_empty());
                self.delete(&empty)?;
                stored = observed;
            }
            if stored.iter().any(|run| run.record.is_final) {
                continue;
            }
            // The run as a relay of another login node observed it stays that relay's.
            let best = stored.into_iter().max_by_key(|run| run.record.at_s);
            changed.push(match best {
                Some(run) => {
                    let origin = Origin { host: run.origin.host, ..origin.clone() };
                    (origin, run.record.ended_as(&record))
                }
                None => (origin.clone(), record),
            });
        }
        let count = changed.len();
        for same in changed.chunk_by(|(one, _), (other, _)| one == other) {
            let records: Vec<JobRecord> = same.iter().map(|(_, record)| record.clone()).collect();
            self.save(&same[0].0, &records)?;
        }
        Ok(count)
    }

    /// The records of a run of a job: those with its start, else those of a time in which it ran, because accounting
    /// counts a job that was resized from then on. Those of other `stated` runs are not its own.
    fn run(
        &self,
        origin: &Origin,
        record: &JobRecord,
        stated: &BTreeSet<(JobId, i64)>,
    ) -> Result<Vec<StoredRun>, StoreError> {
        let mut query = self.connection.prepare_cached(&format!(
            // A relay of this machine may not have known the name of the cluster.
            "SELECT record, cluster, host, start_s FROM jobs INDEXED BY jobs_by_user \
             WHERE {USER} = ?3 AND job = ?4 AND (cluster = ?1 OR cluster = '' AND host = ?2)"
        ))?;
        let key = params![origin.cluster, origin.host, record.job.user.as_str(), record.job.id.0];
        let rows = query.query_map(key, |row| {
            let (origin, start_s) = (Origin { cluster: row.get(1)?, host: row.get(2)? }, row.get(3)?);
            Ok(parsed(row)?.map(|record| StoredRun { origin, start_s, record }))
        })?;
        let runs: Vec<StoredRun> = rows.filter_map(Result::transpose).collect::<Result<_, _>>()?;
        let is_stated = |at_s| stated.contains(&(record.job.id, at_s));
        let is_same = |run: &StoredRun| {
            let is_other = (-1..=1).any(|by_s| is_stated(run.start_s + by_s));
            run.start_s.abs_diff(start_s(record)) <= 1 || !is_other && overlap(&run.record, record)
        };
        Ok(runs.into_iter().filter(is_same).collect())
    }

    fn delete(&self, runs: &[StoredRun]) -> Result<(), StoreError> {
        for StoredRun { origin, start_s, record } in runs {
            self.connection.execute(
                "DELETE FROM jobs WHERE cluster = ?1 AND host = ?2 AND job = ?3 AND start_s = ?4",
                params![origin.cluster, origin.host, record.job.id.0, start_s],
            )?;
        }
        Ok(())
    }
}

fn start_s(record: &JobRecord) -> i64 {
    record.job.start.unwrap_or(0)
}

/// Returns whether a job ran at the same time by two records. One that is not final knows of its run until it was made.
fn overlap(one: &JobRecord, other: &JobRecord) -> bool {
    let end_s = |record: &JobRecord| record.job.ended.filter(|_| record.is_final).unwrap_or(record.at_s);
    start_s(one) < end_s(other) && start_s(other) < end_s(one)
}
