//! The notes of all jobs: bounded, each once, however often a probe sends it.

use nodeglass_protocol::job::Job;
use nodeglass_protocol::note::{
    self, MAX_NOTES, MAX_PER_JOB, NewNote, Note, NoteEdit, NoteId, NoteRequest, NoteSource,
};
use nodeglass_protocol::probe::SpoolNote;
use nodeglass_protocol::{JobId, NodeName, Text};
use nodeglass_rules::run::Run;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, UNIX_EPOCH};

/// Number of notes whose changes wait to be stored from which new notes are refused: none that was accepted is lost.
const MAX_UNSAVED: usize = 2 * MAX_NOTES;
/// Maximum number of deleted notes that are remembered; the oldest deletions are forgotten first.
const MAX_DELETED: usize = 4 * MAX_NOTES;
/// Times up to this far in the future are accepted: clocks differ.
const MAX_AHEAD_MS: u64 = 24 * 3_600_000;

/// A change of a note, as it is applied, stored and recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoteChange {
    /// The note is new, or is like this now.
    Put(Note),
    /// The note is new, unless another relay has it, which may have changed it since.
    Add(Note),
    /// The note was deleted. A line of a spool that became this note is not added again.
    Delete(NoteId),
}

/// Error of adding, changing or deleting a note. Messages are complete sentences for the user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoteError {
    /// There is nothing in its text.
    #[error("enter the text of the note")]
    Empty,
    /// The job is not watched.
    #[error("this relay does not watch job {0}")]
    NoSuchJob(JobId),
    /// The node is not watched.
    #[error("this relay does not watch node {0}")]
    NoSuchNode(NodeName),
    /// The time is far in the future.
    #[error("the time of the note is more than a day ahead; enter an earlier one")]
    Future,
    /// The time is before the job's start, or after its end.
    #[error("job {job} {run}; enter a time from an hour before its start to an hour after its end")]
    OutsideOfRun {
        /// The job.
        job: JobId,
        /// When it ran.
        run: String,
    },
    /// The note does not exist.
    #[error("there is no note {0}; it was probably deleted")]
    NoSuchNote(NoteId),
    /// Somebody has changed the note meanwhile.
    #[error("note {0} was changed in the meantime; read it again before you change it")]
    Changed(NoteId),
    /// The job has too many.
    #[error("job {0} has {MAX_PER_JOB} notes, the most that a job can have; delete some first")]
    JobIsFull(JobId),
    /// There are too many in all.
    #[error("there are {MAX_NOTES} notes, the most that are kept; delete some first")]
    Full,
    /// Too many wait to be stored.
    #[error("earlier notes could not be stored yet; check the disk of the state directory, then try again")]
    Unstored,
}

/// All notes.
#[derive(Debug, Default)]
pub struct Notes {
    by_id: BTreeMap<NoteId, Note>,
    /// The notes of each job, by time.
    by_job: BTreeMap<JobId, BTreeSet<(u64, NoteId)>>,
    /// The jobs that are listed.
    listed: BTreeSet<JobId>,
    /// The notes of all other jobs, by time.
    unlisted: BTreeSet<(u64, NoteId)>,
    deleted: BTreeSet<NoteId>,
    /// The ids in the order of their deletion.
    deletions: Vec<NoteId>,
    /// The last change of each note that is to be stored.
    unsaved: BTreeMap<NoteId, NoteChange>,
}

impl NoteChange {
    /// The note that changes.
    pub fn id(&self) -> NoteId {
        match self {
            Self::Put(note) | Self::Add(note) => note.id,
            Self::Delete(id) => *id,
        }
    }
}

impl Notes {
    /// All notes, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &Note> {
        self.by_id.values()
    }

    /// A note.
    pub fn get(&self, id: NoteId) -> Option<&Note> {
        self.by_id.get(&id)
    }

    /// Notes of a job from `since_ms` on, in ms since 1970, by time.
    pub fn of_job(&self, job: JobId, since_ms: u64) -> Vec<Note> {
        let ids = self.by_job.get(&job).into_iter().flatten().filter(|(at_ms, _)| *at_ms >= since_ms);
        ids.filter_map(|(_, id)| self.by_id.get(id).cloned()).collect()
    }

    /// The change that a request of the owner stands for, which gives a new note the id `new_id`.
    ///
    /// # Errors
    /// [`NoteError`].
    pub fn requested(
        &self,
        request: NoteRequest,
        new_id: NoteId,
        wall_ms: u64,
        jobs: &[Job],
        is_node: impl Fn(&NodeName) -> bool,
    ) -> Result<NoteChange, NoteError> {
        let known = |id| self.get(id).ok_or(NoteError::NoSuchNote(id));
        let note = match request {
            NoteRequest::Delete(id) => return known(id).map(|note| NoteChange::Delete(note.id)),
            NoteRequest::Edit { id, edit: NoteEdit { text, at_ms, if_text, if_at_ms } } => {
                let note = known(id)?.clone();
                if if_text.is_some_and(|text| text != note.text)
                    || if_at_ms.is_some_and(|at_ms| at_ms != note.at_ms)
                {
                    return Err(NoteError::Changed(id));
                }
                Note { text: text.unwrap_or(note.text), at_ms: at_ms.unwrap_or(note.at_ms), ..note }
            }
            NoteRequest::Add(NewNote { job, node, at_ms, text, source }) => {
                if let Some(job) = job.filter(|id| !jobs.iter().any(|job| job.id == *id)) {
                    return Err(NoteError::NoSuchJob(job));
                }
                let of_job = |name: &NodeName| jobs.iter().any(|job| job.nodes.contains(name));
                if let Some(node) = node.as_ref().filter(|name| !is_node(name) && !of_job(name)) {
                    return Err(NoteError::NoSuchNode(node.clone()));
                }
                let note =
                    Note { id: new_id, job, node, rank: None, at_ms: at_ms.unwrap_or(wall_ms), text, source };
                self.check_room(&note)?;
                note
            }
        };
        if note.text.is_empty() {
            return Err(NoteError::Empty);
        }
        if note.at_ms > wall_ms.saturating_add(MAX_AHEAD_MS) {
            return Err(NoteError::Future);
        }
        if let Some(job) = jobs.iter().find(|job| Some(job.id) == note.job) {
            check_time(note.at_ms, job)?;
        }
        Ok(NoteChange::Put(note))
    }

    /// Sets which jobs are listed.
    pub(super) fn set_listed(&mut self, jobs: &[Job]) {
        self.listed = jobs.iter().map(|job| job.id).collect();
        let unlisted = self.by_job.iter().filter(|(job, _)| !self.listed.contains(job));
        self.unlisted = unlisted.flat_map(|(_, notes)| notes).copied().collect();
    }

    /// Applies a change that is to be stored; returns whether it changed anything.
    pub(super) fn apply(&mut self, change: NoteChange) -> bool {
        let changed = self.enter(change.clone());
        if changed {
            self.unsaved.insert(change.id(), change);
        }
        changed
    }

    /// Enters a change that is stored already; returns whether it changed anything.
    pub(super) fn enter(&mut self, change: NoteChange) -> bool {
        match change {
            NoteChange::Add(note) if self.by_id.contains_key(&note.id) => false,
            NoteChange::Put(note) | NoteChange::Add(note) => {
                if self.deleted.contains(&note.id) || self.by_id.get(&note.id) == Some(&note) {
                    return false;
                }
                if !self.by_id.contains_key(&note.id) {
                    let Ok(oldest) = self.evicted_by(&note) else { return false };
                    oldest.into_iter().for_each(|oldest| self.remove(oldest));
                }
                self.insert(note);
                true
            }
            NoteChange::Delete(id) => {
                if !self.deleted.insert(id) {
                    return false;
                }
                self.deletions.push(id);
                if self.deletions.len() > MAX_DELETED {
                    self.deleted.remove(&self.deletions.remove(0));
                }
                self.remove(id);
                true
            }
        }
    }

    /// Selects what is new of the notes as they are stored. If they `lack_recent` changes of this relay, only notes are
    /// new that it does not know.
    pub(super) fn news(&self, mut stored: Vec<NoteChange>, lack_recent: bool) -> Vec<NoteChange> {
        stored.retain(|change| {
            let id = change.id();
            if matches!(self.unsaved.get(&id), Some(NoteChange::Put(_) | NoteChange::Delete(_))) {
                return false;
            }
            let known = self.by_id.get(&id);
            match change {
                _ if self.deleted.contains(&id) || known.is_some() && lack_recent => false,
                NoteChange::Put(note) => known != Some(note),
                NoteChange::Add(_) => known.is_none(),
                NoteChange::Delete(_) => true,
            }
        });
        stored
    }

    /// Adds a line of a job's spool; returns whether it is new.
    ///
    /// # Errors
    /// [`NoteError`] if a limit is reached.
    pub(super) fn add_line(&mut self, line: SpoolNote, at_ms: u64, jobs: &[Job]) -> Result<bool, NoteError> {
        let id = id_of_line(&line);
        if line.text.is_empty() || self.deleted.contains(&id) || self.by_id.contains_key(&id) {
            return Ok(false);
        }
        let rank = line.suffix.as_str().parse().ok();
        let node = NodeName::new(line.suffix.as_str()).ok().filter(|name| {
            let is_of = |job: &&Job| job.id == line.job && job.nodes.contains(name);
            rank.is_none() && jobs.iter().any(|job| is_of(&job))
        });
        let note =
            Note { id, job: Some(line.job), node, rank, at_ms, text: line.text, source: NoteSource::Job };
        self.check_room(&note)?;
        Ok(self.apply(NoteChange::Add(note)))
    }

    /// Takes the changes that are to be stored.
    pub(super) fn take_unsaved(&mut self) -> Vec<NoteChange> {
        std::mem::take(&mut self.unsaved).into_values().collect()
    }

    /// Returns changes that were not stored, to be taken again.
    pub(super) fn put_back(&mut self, changes: Vec<NoteChange>) {
        for change in changes {
            // What changed since is newer.
            self.unsaved.entry(change.id()).or_insert(change);
        }
    }

    /// Returns an error if a new note would be refused.
    fn check_room(&self, note: &Note) -> Result<(), NoteError> {
        if self.unsaved.len() >= MAX_UNSAVED {
            return Err(NoteError::Unstored);
        }
        self.evicted_by(note).map(drop)
    }

    /// The note that makes room for a new one, if one must: the oldest of the jobs that are no longer listed, as no probe
    /// sends it again, and it remains stored. Refuses notes rather than dropping others: a probe would send these again.
    fn evicted_by(&self, note: &Note) -> Result<Option<NoteId>, NoteError> {
        if let Some(job) = note.job
            && self.by_job.get(&job).is_some_and(|notes| notes.len() >= MAX_PER_JOB)
        {
            return Err(NoteError::JobIsFull(job));
        }
        if self.by_id.len() < MAX_NOTES {
            return Ok(None);
        }
        self.unlisted.first().map(|(_, id)| Some(*id)).ok_or(NoteError::Full)
    }

    fn insert(&mut self, note: Note) {
        // Its time may have changed.
        self.remove(note.id);
        if let Some(job) = note.job {
            self.by_job.entry(job).or_default().insert(note::order(&note));
            if !self.listed.contains(&job) {
                self.unlisted.insert(note::order(&note));
            }
        }
        self.by_id.insert(note.id, note);
    }

    fn remove(&mut self, id: NoteId) {
        let Some(note) = self.by_id.remove(&id) else { return };
        self.unlisted.remove(&note::order(&note));
        if let Some(job) = note.job
            && let Some(notes) = self.by_job.get_mut(&job)
        {
            notes.remove(&note::order(&note));
            if notes.is_empty() {
                self.by_job.remove(&job);
            }
        }
    }
}

/// Refuses a time in ms since 1970 at which the job did not run.
fn check_time(at_ms: u64, job: &Job) -> Result<(), NoteError> {
    let run = Run::of(job);
    if run.includes(at_ms) {
        return Ok(());
    }
    let utc = |ms| humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_millis(ms)).to_string();
    Err(NoteError::OutsideOfRun { job: job.id, run: run.text(utc) })
}

/// Sorts notes by time.
pub fn sorted(notes: impl Iterator<Item = Note>) -> Vec<Note> {
    let mut notes: Vec<_> = notes.collect();
    notes.sort_unstable_by_key(note::order);
    notes
}

/// Returns the id of a line of a spool file, which is independent of the probe and of the time. It includes the text,
/// because a rewritten file has new notes.
fn id_of_line(line: &SpoolNote) -> NoteId {
    let parts = [
        &line.job.0.to_le_bytes()[..],
        line.suffix.as_str().as_bytes(),
        &[0xff],
        &line.offset.to_le_bytes(),
        line.text.as_str().as_bytes(),
    ];
    // FNV-1a, whose upper bits are mixed into the lower ones, of which the id is made.
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = parts.into_iter().flatten().fold(0xcbf2_9ce4_8422_2325, step);
    NoteId::from_bits(hash ^ (hash >> 40))
}

/// Formats the errors of several lines, with the number of lines of each.
pub(super) fn refused(errors: &BTreeMap<String, usize>) -> Option<Text> {
    let each: Vec<_> = errors.iter().map(|(why, count)| format!("{count} because {why}")).collect();
    (!each.is_empty()).then(|| format!("notes of spool files were not accepted: {}", each.join("; ")).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scene;
    use nodeglass_protocol::job::JobState;
    use nodeglass_rules::run::TOLERANCE_MS;

    const NOW_MS: u64 = 1_700_000_000_000;

    fn line(job: u32, suffix: &str, offset: u64, text: &str) -> SpoolNote {
        SpoolNote { job: JobId(job), suffix: suffix.into(), offset, mono_ns: 0, text: text.into() }
    }

    fn new(job: Option<u32>, text: &str) -> NoteRequest {
        NoteRequest::Add(NewNote { job: job.map(JobId), text: text.into(), ..NewNote::default() })
    }

    fn request(notes: &mut Notes, id: u64, request: NoteRequest, jobs: &[Job]) -> Result<(), NoteError> {
        let change = notes.requested(request, NoteId::from_bits(id), NOW_MS, jobs, |_| false)?;
        assert!(notes.apply(change));
        Ok(())
    }

    fn texts(notes: &Notes, job: u32) -> Vec<String> {
        notes.of_job(JobId(job), 0).iter().map(|note| note.text.to_string()).collect()
    }

    #[test]
    fn a_line_that_is_sent_again_stays_one_note_also_if_it_was_edited_or_deleted() {
        let (mut notes, jobs) = (Notes::default(), [scene::job(17, &[("gpu-01", &[0])])]);
        for (at_ms, is_new) in [(NOW_MS, true), (NOW_MS + 5_000, false)] {
            assert_eq!(notes.add_line(line(17, "3", 0, "epoch 1"), at_ms, &jobs), Ok(is_new));
        }
        let id = notes.iter().next().unwrap().id;
        assert_eq!(notes.get(id).unwrap().at_ms, NOW_MS);
        assert_eq!((notes.get(id).unwrap().rank, notes.get(id).unwrap().node.clone()), (Some(3), None));
        let edit = NoteEdit { text: Some("first epoch".into()), ..NoteEdit::default() };
        request(&mut notes, 0, NoteRequest::Edit { id, edit }, &jobs).unwrap();
        assert_eq!(notes.add_line(line(17, "3", 0, "epoch 1"), NOW_MS, &jobs), Ok(false));
        assert_eq!(texts(&notes, 17), ["first epoch"]);
        request(&mut notes, 0, NoteRequest::Delete(id), &jobs).unwrap();
        assert_eq!(notes.add_line(line(17, "3", 0, "epoch 1"), NOW_MS, &jobs), Ok(false));
        assert_eq!(texts(&notes, 17), [""; 0]);
        assert_eq!(notes.take_unsaved(), [NoteChange::Delete(id)]);
    }

    #[test]
    fn another_offset_file_job_or_text_is_another_note() {
        let (mut notes, jobs) = (Notes::default(), [scene::job(17, &[("gpu-01", &[0])])]);
        let lines = [line(17, "", 0, "a"), line(17, "", 2, "a"), line(17, "1", 0, "a"), line(17, "", 0, "b")];
        lines.into_iter().for_each(|line| assert_eq!(notes.add_line(line, NOW_MS, &jobs), Ok(true)));
        assert_eq!(notes.add_line(line(17, "gpu-01", 0, "a"), NOW_MS, &jobs), Ok(true));
        let of_node = |note: &&Note| note.node.as_ref().is_some_and(|name| name.as_str() == "gpu-01");
        assert_eq!(notes.iter().filter(of_node).count(), 1);
    }

    #[test]
    fn a_job_that_is_full_refuses_further_notes_and_keeps_the_earlier_ones() {
        let (mut notes, jobs) = (Notes::default(), [scene::job(17, &[]), scene::job(18, &[])]);
        for offset in 0..MAX_PER_JOB as u64 {
            assert_eq!(notes.add_line(line(17, "", offset, "x"), NOW_MS, &jobs), Ok(true));
        }
        let full = Err(NoteError::JobIsFull(JobId(17)));
        assert_eq!(notes.add_line(line(17, "", 9_999, "x"), NOW_MS, &jobs), full);
        assert_eq!(request(&mut notes, 1, new(Some(17), "y"), &jobs), Err(NoteError::JobIsFull(JobId(17))));
        assert_eq!(request(&mut notes, 1, new(Some(18), "y"), &jobs), Ok(()));
        assert_eq!(texts(&notes, 17).len(), MAX_PER_JOB);
    }

    #[test]
    fn an_edited_time_counts_and_a_deleted_note_makes_room() {
        let (mut notes, jobs) = (Notes::default(), [scene::job(17, &[])]);
        for id in 0..MAX_PER_JOB as u64 {
            request(&mut notes, id, new(Some(17), &id.to_string()), &jobs).unwrap();
        }
        let edit = NoteEdit { at_ms: Some(NOW_MS + 1), ..NoteEdit::default() };
        request(&mut notes, 0, NoteRequest::Edit { id: NoteId::from_bits(0), edit }, &jobs).unwrap();
        assert_eq!(texts(&notes, 17).len(), MAX_PER_JOB);
        assert_eq!(texts(&notes, 17).last().unwrap(), "0");
        assert_eq!(notes.of_job(JobId(17), NOW_MS + 1).len(), 1);
        request(&mut notes, 0, NoteRequest::Delete(NoteId::from_bits(7)), &jobs).unwrap();
        assert_eq!(request(&mut notes, 9_999, new(Some(17), "y"), &jobs), Ok(()));
    }

    #[test]
    fn an_edit_of_a_note_that_somebody_changed_meanwhile_is_refused() {
        let mut notes = Notes::default();
        request(&mut notes, 1, new(None, "first"), &[]).unwrap();
        let id = NoteId::from_bits(1);
        let mut edit = |text: &str, if_text: &str, if_at_ms| {
            let (text, if_text) = (Some(text.into()), Some(if_text.into()));
            let edit = NoteEdit { text, at_ms: None, if_text, if_at_ms: Some(if_at_ms) };
            request(&mut notes, 0, NoteRequest::Edit { id, edit }, &[])
        };
        assert_eq!(edit("second", "first", NOW_MS), Ok(()));
        assert_eq!(edit("third", "first", NOW_MS), Err(NoteError::Changed(id)));
        assert_eq!(edit("third", "second", NOW_MS + 1), Err(NoteError::Changed(id)));
        assert_eq!(notes.get(id).unwrap().text.as_str(), "second");
    }

    #[test]
    fn no_change_is_dropped_while_nothing_can_be_stored() {
        let mut notes = Notes::default();
        for id in 0..MAX_UNSAVED as u64 {
            request(&mut notes, id, new(None, "x"), &[]).unwrap();
            request(&mut notes, 0, NoteRequest::Delete(NoteId::from_bits(id)), &[]).unwrap();
        }
        assert_eq!(request(&mut notes, 99_999, new(None, "x"), &[]), Err(NoteError::Unstored));
        let changes = notes.take_unsaved();
        assert_eq!(changes.len(), MAX_UNSAVED);
        request(&mut notes, 99_999, new(None, "x"), &[]).unwrap();
        notes.put_back(changes);
        let changes = notes.take_unsaved();
        assert_eq!(changes.len(), MAX_UNSAVED + 1);
        let is_delete = |change: &&NoteChange| matches!(change, NoteChange::Delete(_));
        assert_eq!(changes.iter().filter(is_delete).count(), MAX_UNSAVED, "the last change of each");
    }

    #[test]
    fn each_kind_of_error_is_stated_with_its_count() {
        assert_eq!(refused(&BTreeMap::new()), None);
        let errors = BTreeMap::from([("a".to_owned(), 2), ("b".to_owned(), 1)]);
        let text = refused(&errors).unwrap();
        assert_eq!(text.as_str(), "notes of spool files were not accepted: 2 because a; 1 because b");
    }

    #[test]
    fn in_all_notes_of_jobs_that_are_no_longer_listed_make_room() {
        let mut notes = Notes::default();
        let old: Vec<_> = (0..5).map(|job| scene::job(job, &[])).collect();
        notes.set_listed(&old);
        for offset in 0..MAX_NOTES as u64 {
            let job = (offset % 5) as u32;
            assert_eq!(notes.add_line(line(job, "", offset, "x"), offset, &old), Ok(true));
        }
        assert_eq!(request(&mut notes, 1, new(None, "y"), &old), Err(NoteError::Full));
        notes.set_listed(&old[1..]);
        assert_eq!(request(&mut notes, 1, new(None, "y"), &[]), Ok(()));
        assert_eq!(notes.iter().count(), MAX_NOTES);
        assert!(notes.iter().all(|note| note.at_ms != 0), "the oldest is dropped");
        notes.set_listed(&old);
        assert_eq!(request(&mut notes, 2, new(None, "z"), &[]), Err(NoteError::Full));
    }

    #[test]
    fn a_note_of_a_job_is_of_the_time_of_its_run_give_or_take_an_hour() {
        let (start_ms, hour_ms) = (NOW_MS - 10 * TOLERANCE_MS, TOLERANCE_MS);
        let start = Some((start_ms / 1_000).cast_signed());
        let ended = start.map(|start| start + 3_600);
        let job = Job { start, ended, ..scene::job(17, &[("gpu-01", &[0])]) };
        let mut notes = Notes::default();
        let mut add = |job: Option<u32>, at_ms, jobs: &[Job]| {
            let note =
                NewNote { job: job.map(JobId), at_ms: Some(at_ms), text: "x".into(), ..NewNote::default() };
            request(&mut notes, at_ms, NoteRequest::Add(note), jobs).map_err(|error| error.to_string())
        };
        let jobs = [job.clone()];
        for (at_ms, is_ok) in [
            (start_ms - hour_ms - 1, false),
            (start_ms - hour_ms, true),
            (start_ms + 2 * hour_ms, true),
            (start_ms + 2 * hour_ms + 1, false),
        ] {
            assert_eq!(add(Some(17), at_ms, &jobs).is_ok(), is_ok, "{at_ms}");
        }
        let why = add(Some(17), 0, &jobs).unwrap_err();
        assert!(why.contains("job 17 started at 2023-11-14T12:13:20Z and ended at"), "{why}");
        assert_eq!(add(None, 0, &jobs), Ok(()));
        assert_eq!(add(Some(17), NOW_MS + 1, &[Job { ended: None, ..job.clone() }]), Ok(()), "it runs still");
        let tomorrow = start.map(|start| start + 86_400);
        let waiting = Job { state: JobState::Pending, start: tomorrow, ended: None, ..job };
        assert_eq!(add(Some(17), NOW_MS, &[waiting]), Ok(()), "its start is only expected");
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_a_sentence() {
        let (mut notes, jobs) = (Notes::default(), [scene::job(17, &[("gpu-01", &[0])])]);
        let mut refused = |wanted| request(&mut notes, 1, wanted, &jobs).unwrap_err().to_string();
        assert_eq!(refused(new(Some(17), " \u{202e}")), "enter the text of the note");
        assert!(refused(new(Some(4), "x")).starts_with("this relay does not watch job 4"));
        let id = NoteId::from_bits(7);
        assert!(refused(NoteRequest::Delete(id)).starts_with("there is no note 7"));
        assert!(refused(NoteRequest::Edit { id, edit: NoteEdit::default() }).contains("no note 7"));
        let at_ms = Some(NOW_MS + 2 * MAX_AHEAD_MS);
        let late = NewNote { at_ms, text: "x".into(), ..NewNote::default() };
        assert!(refused(NoteRequest::Add(late)).contains("a day ahead"));
        let elsewhere = NewNote { node: Some(scene::name("gpu-09")), text: "x".into(), ..NewNote::default() };
        assert!(refused(NoteRequest::Add(elsewhere)).contains("does not watch node gpu-09"));
    }
}
