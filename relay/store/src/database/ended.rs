//! Jobs that ended while no relay ran, as SLURM's accounting states them.

use super::{Database, Origin, StoreError, parsed};
use nodeglass_report::JobRecord;
use rusqlite::params;

impl Database {
    /// Adds final records without an observation. A run that is stored as ended stays as it is; a run that a relay
    /// observed, but whose end it did not see, ends as accounting states, and keeps its sums. Returns the number of
    /// changed rows.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub fn add_ended(&mut self, origin: &Origin, records: Vec<JobRecord>) -> Result<usize, StoreError> {
        let mut changed = Vec::new();
        for record in records {
            let stored = self.run(origin, &record)?;
            if stored.iter().any(|(_, is_final, _)| *is_final) {
                continue;
            }
            // The run as a relay of another login node observed it stays that relay's.
            let best = stored.into_iter().max_by_key(|(_, _, stored)| stored.at_s);
            changed.push(match best {
                Some((host, _, observed)) => {
                    let origin = Origin { host, ..origin.clone() };
                    (origin, observed.ended_as(&record))
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

    /// The records of a run of a job, with the host of their relay, and whether they are final.
    fn run(&self, origin: &Origin, record: &JobRecord) -> Result<Vec<(String, bool, JobRecord)>, StoreError> {
        let mut query = self.connection.prepare_cached(
            // A relay of this machine may not have known the name of the cluster.
            "SELECT record, host, is_final FROM jobs WHERE (cluster = ?1 OR cluster = '' AND host = ?4) AND job = ?2 \
             AND start_s BETWEEN ?3 - 1 AND ?3 + 1",
        )?;
        let start_s = record.job.start.unwrap_or(0);
        let rows =
            query.query_map(params![origin.cluster, record.job.id.0, start_s, origin.host], |row| {
                let (host, is_final) = (row.get(1)?, row.get(2)?);
                Ok(parsed(row)?.map(|record| (host, is_final, record)))
            })?;
        Ok(rows.filter_map(Result::transpose).collect::<Result<_, _>>()?)
    }
}
