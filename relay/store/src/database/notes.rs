//! Notes in the database: notes of all relays of a cluster, since a job may be watched from several login nodes.

use super::{Database, Origin, StoreError, signed};
use nodeglass_fleet::NoteChange;
use nodeglass_protocol::JobId;
use nodeglass_protocol::note::{MAX_NOTES, Note, NoteId};
use rusqlite::{Row, params};

/// A deleted note keeps its id, so that a line of a spool that is read again does not become a note again.
pub(super) const SCHEMA: &str = "CREATE TABLE notes (
    id INTEGER PRIMARY KEY,
    cluster TEXT NOT NULL,
    host TEXT NOT NULL,
    job INTEGER,
    at_ms INTEGER NOT NULL,
    note TEXT
) STRICT;
CREATE INDEX notes_by_job ON notes (job);
CREATE INDEX notes_by_time ON notes (at_ms);";

/// The notes of a cluster, `?1`, and those without one of the machine `?2`.
const OF_CLUSTER: &str = "(cluster = ?1 AND cluster <> '' OR cluster = '' AND host = ?2)";

/// Maximum number of notes; the oldest are deleted first.
const MAX_STORED: i64 = 50_000;

impl Database {
    /// Applies changes of notes in their order, all or none; when it returns, they outlive any crash. Returns the notes
    /// whose change has no effect, because another relay deleted them.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub fn save_notes<'a>(
        &mut self,
        origin: &Origin,
        changes: impl IntoIterator<Item = &'a NoteChange>,
    ) -> Result<Vec<NoteId>, StoreError> {
        let mut lost = Vec::new();
        let transaction = self.connection.transaction()?;
        {
            let mut put = transaction.prepare_cached(
                "INSERT INTO notes (id, cluster, host, job, at_ms, note) VALUES (?1, ?2, ?3, ?4, ?5, ?6) \
                 ON CONFLICT DO UPDATE SET at_ms = excluded.at_ms, note = excluded.note WHERE note IS NOT NULL",
            )?;
            let mut add = transaction.prepare_cached(
                "INSERT INTO notes (id, cluster, host, job, at_ms, note) VALUES (?1, ?2, ?3, ?4, ?5, ?6) \
                 ON CONFLICT DO NOTHING",
            )?;
            // It may have been added and deleted by another relay, or before this one could store it.
            let mut delete = transaction.prepare_cached(
                "INSERT INTO notes (id, cluster, host, at_ms) VALUES (?1, ?2, ?3, ?4) \
                 ON CONFLICT DO UPDATE SET note = NULL",
            )?;
            let Origin { cluster, host } = origin;
            for change in changes {
                match change {
                    NoteChange::Put(note) | NoteChange::Add(note) => {
                        let insert = if matches!(change, NoteChange::Put(_)) { &mut put } else { &mut add };
                        let text = serde_json::to_string(note).unwrap_or_default();
                        let (job, at_ms) = (note.job.map(|job| job.0), signed(note.at_ms));
                        let id = signed(note.id.get());
                        let changed = insert.execute(params![id, cluster, host, job, at_ms, text])?;
                        // A line that another relay has added already is not lost.
                        if changed == 0 && matches!(change, NoteChange::Put(_)) {
                            lost.push(note.id);
                        }
                    }
                    NoteChange::Delete(id) => {
                        let now_ms = signed(nodeglass_platform::clock::Clock::wall_ms());
                        delete.execute(params![signed(id.get()), cluster, host, now_ms])?;
                    }
                }
            }
        }
        transaction.execute(
            "DELETE FROM notes WHERE id IN (SELECT id FROM notes ORDER BY at_ms DESC LIMIT -1 OFFSET ?1)",
            [MAX_STORED],
        )?;
        transaction.commit()?;
        Ok(lost)
    }

    /// A number that changes when another connection, of this relay or of another one, has changed the database.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub fn version(&self) -> Result<i64, StoreError> {
        Ok(self.connection.query_row("PRAGMA data_version", [], |row| row.get(0))?)
    }

    /// Returns the newest notes of a cluster, at most [`MAX_NOTES`], and the ids of deleted ones; for a relay without
    /// SLURM, the notes of its machine. Those belong to the cluster, too: SLURM may have been silent while their relay ran.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub fn notes(&self, origin: &Origin) -> Result<Vec<NoteChange>, StoreError> {
        let mut query = self.connection.prepare(&format!(
            "SELECT id, note FROM notes WHERE {OF_CLUSTER} AND (note IS NULL) = ?3 ORDER BY at_ms DESC LIMIT ?4",
        ))?;
        let most = i64::try_from(MAX_NOTES).unwrap_or(i64::MAX);
        let mut changes = Vec::new();
        for is_deleted in [true, false] {
            let rows = query.query_map(params![origin.cluster, origin.host, is_deleted, most], change)?;
            changes.extend(rows.filter_map(Result::transpose).collect::<Result<Vec<_>, _>>()?);
        }
        Ok(changes)
    }

    /// The notes of a job of a cluster, in no particular order; of a relay without SLURM, of its machine.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub fn notes_of(&self, origin: &Origin, job: JobId) -> Result<Vec<Note>, StoreError> {
        let mut query = self.connection.prepare(&format!(
            "SELECT id, note FROM notes WHERE {OF_CLUSTER} AND job = ?3 AND note IS NOT NULL",
        ))?;
        let rows = query.query_map(params![origin.cluster, origin.host, job.0], change)?;
        let changes = rows.filter_map(Result::transpose).collect::<Result<Vec<_>, _>>()?;
        let note = |change| if let NoteChange::Put(note) = change { Some(note) } else { None };
        Ok(changes.into_iter().filter_map(note).collect())
    }
}

/// Parses a row; `None`, with a message, if its note is not one of this build.
fn change(row: &Row<'_>) -> rusqlite::Result<Option<NoteChange>> {
    let Some(text) = row.get::<_, Option<String>>(1)? else {
        return Ok(Some(NoteChange::Delete(NoteId::from_bits(row.get::<_, i64>(0)?.cast_unsigned()))));
    };
    let note = serde_json::from_str(&text);
    Ok(note
        .inspect_err(|error| tracing::warn!(%error, "a stored note cannot be read"))
        .ok()
        .map(NoteChange::Put))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::note::NoteSource;

    fn note(id: u64, job: Option<u32>, at_ms: u64, text: &str) -> Note {
        let (id, job) = (NoteId::from_bits(id), job.map(JobId));
        Note { id, job, node: None, rank: None, at_ms, text: text.into(), source: NoteSource::Api }
    }

    fn origin(cluster: &str, host: &str) -> Origin {
        Origin { cluster: cluster.into(), host: host.into() }
    }

    fn put(note: &Note) -> NoteChange {
        NoteChange::Put(note.clone())
    }

    #[test]
    fn every_relay_of_a_cluster_finds_its_notes_and_one_without_slurm_those_of_its_machine() {
        let mut database = Database::in_memory().unwrap();
        let (a, b, c) = (note(1, Some(17), 5, "a"), note(2, None, 6, "b"), note(3, None, 7, "c"));
        database.save_notes(&origin("hpc", "login1"), &[put(&a)]).unwrap();
        database.save_notes(&origin("hpc", "login2"), &[put(&b)]).unwrap();
        database.save_notes(&origin("", "desk"), &[put(&c)]).unwrap();
        assert_eq!(database.notes(&origin("hpc", "login3")).unwrap(), [put(&b), put(&a)]);
        assert_eq!(database.notes(&origin("", "desk")).unwrap(), [put(&c)]);
        assert_eq!(database.notes(&origin("", "other")).unwrap(), []);
        // Another cluster whose relay uses the same file has other jobs under the same numbers.
        // One that was written while SLURM was silent is of the machine's cluster.
        let silent = note(5, Some(17), 4, "silent");
        database.save_notes(&origin("", "login1"), &[put(&silent)]).unwrap();
        assert_eq!(database.notes(&origin("hpc", "login1")).unwrap(), [put(&b), put(&a), put(&silent)]);
        assert_eq!(database.notes(&origin("hpc", "login3")).unwrap(), [put(&b), put(&a)]);
        let d = note(4, Some(17), 8, "d");
        database.save_notes(&origin("other", "login1"), &[put(&d)]).unwrap();
        assert_eq!(database.notes_of(&origin("hpc", "login3"), JobId(17)).unwrap(), [a]);
        assert_eq!(database.notes_of(&origin("other", "login3"), JobId(17)).unwrap(), [d]);
    }

    #[test]
    fn a_deleted_note_stays_deleted_whatever_another_relay_stores() {
        let mut database = Database::in_memory().unwrap();
        let (origin, one, two) = (origin("hpc", "a"), note(1, Some(17), 5, "a"), note(2, Some(17), 5, "b"));
        let edited = Note { text: "edited".into(), ..one.clone() };
        database.save_notes(&origin, &[put(&one), put(&edited), put(&two)]).unwrap();
        assert_eq!(database.notes_of(&origin, JobId(17)).unwrap(), [edited.clone(), two.clone()]);
        let late = [one.clone(), two.clone()].map(NoteChange::Add);
        database
            .save_notes(&origin, &[&[NoteChange::Delete(two.id), put(&two)], &late[..]].concat())
            .unwrap();
        assert_eq!(database.notes_of(&origin, JobId(17)).unwrap(), std::slice::from_ref(&edited));
        // One that was deleted before it was stored.
        database.save_notes(&origin, &[NoteChange::Delete(NoteId::from_bits(9))]).unwrap();
        let deleted = [9, 2].map(|id| NoteChange::Delete(NoteId::from_bits(id)));
        assert_eq!(database.notes(&origin).unwrap(), [&deleted[..], &[put(&edited)]].concat());
    }

    #[test]
    fn a_change_of_a_note_that_another_relay_deleted_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let dir = nodeglass_platform::state_dir::StateDir::at(folder.path().join("nodeglass")).unwrap();
        let [mut one, mut two] = [(); 2].map(|()| Database::open(&dir).unwrap().0);
        let (origin, note) = (origin("hpc", "a"), note(1, Some(17), 5, "a"));
        assert_eq!(one.save_notes(&origin, &[put(&note)]).unwrap(), []);
        let versions = [one.version().unwrap(), two.version().unwrap()];
        two.save_notes(&origin, &[NoteChange::Delete(note.id)]).unwrap();
        assert_ne!(one.version().unwrap(), versions[0]);
        assert_eq!(two.version().unwrap(), versions[1], "only others count");
        assert_eq!(one.save_notes(&origin, &[put(&note), NoteChange::Add(note.clone())]).unwrap(), [note.id]);
    }

    #[test]
    fn the_oldest_notes_beyond_the_limit_are_deleted() {
        let mut database = Database::in_memory().unwrap();
        let origin = origin("hpc", "a");
        let many: Vec<_> =
            (0..MAX_STORED.cast_unsigned() + 3).map(|id| put(&note(id, Some(17), id, "x"))).collect();
        database.save_notes(&origin, &many).unwrap();
        let kept = database.notes_of(&origin, JobId(17)).unwrap();
        assert_eq!(kept.len(), 50_000);
        assert_eq!(kept.iter().map(|note| note.at_ms).min(), Some(3));
        assert_eq!(database.notes(&origin).unwrap().len(), MAX_NOTES);
    }
}
