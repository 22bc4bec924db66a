//! Changes of notes: requests of the owner, and changes by other relays that use the same state directory.

use super::EventLoop;
use nodeglass_fleet::Event;
use nodeglass_live::ChangedNote;
use nodeglass_platform::clock::Clock;
use nodeglass_platform::random::random_u64;
use nodeglass_protocol::note::{Note, NoteId, NoteRequest};
use nodeglass_protocol::{JobId, Text};
use nodeglass_share::Viewer;
use nodeglass_store::StoredNotes;
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

/// Position up to which the notes of other relays have been read.
#[derive(Debug, Default)]
pub(super) struct NoteSync {
    /// Number of batches of notes that were passed to the store.
    batches: u64,
    asked_ms: u64,
    pending: Option<oneshot::Receiver<Option<StoredNotes>>>,
    /// Whether what was read last lacked changes of this relay, so that it was merged in part.
    lacked_recent: bool,
}

impl EventLoop {
    /// Returns the notes that a viewer may see, by time, or only those of `job`.
    pub(super) fn notes(&mut self, job: Option<JobId>, viewer: &Viewer) -> Vec<Note> {
        // Notes that were read from the disk before the request.
        for _ in 0..self.inputs.events.len() {
            let Ok(event) = self.inputs.events.try_recv() else { break };
            self.handle_event(event);
        }
        viewer.all_notes(&self.fleet, job)
    }

    /// Applies a change of a note that the owner requests, after changes by other relays.
    pub(super) fn change_note(
        &mut self,
        request: NoteRequest,
        stored: Option<StoredNotes>,
    ) -> Result<ChangedNote, Text> {
        self.merge_read_notes();
        stored.into_iter().for_each(|stored| self.merge_notes(stored));
        let new_id = NoteId::from_bits(random_u64());
        let requested = self.fleet.requested_note(request, new_id, Clock::wall_ms());
        let change = requested.map_err(|error| Text::new(error.to_string()))?;
        self.apply(Event::Note(change.clone()), self.clock.now_ms());
        Ok(ChangedNote { change, stored: self.store_notes() })
    }

    /// Passes on the notes that changed; the receiver resolves once they are stored.
    pub(super) fn store_notes(&mut self) -> Option<oneshot::Receiver<Vec<NoteId>>> {
        let changes = self.fleet.take_note_changes();
        let store = self.sinks.store.as_ref().filter(|_| !changes.is_empty())?;
        let passed = store.save_notes(changes).map_err(|refused| self.fleet.put_back_note_changes(refused));
        self.note_sync.batches += u64::from(passed.is_ok());
        passed.ok()
    }

    /// Looks from time to time whether another relay changed notes.
    pub(super) fn sync_notes(&mut self, now_ms: u64) {
        self.merge_read_notes();
        let sync = &mut self.note_sync;
        if let Some(store) = &self.sinks.store
            && sync.pending.is_none()
            && (sync.lacked_recent || now_ms.saturating_sub(sync.asked_ms) >= self.options.sync_notes_ms)
        {
            sync.asked_ms = now_ms;
            sync.pending = Some(store.changed_notes(sync.lacked_recent));
        }
    }

    /// Merges the notes that [`EventLoop::sync_notes`] asked for, if they have been read.
    fn merge_read_notes(&mut self) {
        let Some(pending) = &mut self.note_sync.pending else { return };
        let read = pending.try_recv();
        if !matches!(read, Err(TryRecvError::Empty)) {
            self.note_sync.pending = None;
        }
        if let Ok(Some(stored)) = read {
            self.merge_notes(stored);
        }
    }

    fn merge_notes(&mut self, stored: StoredNotes) {
        // The next tick reads them again.
        self.note_sync.lacked_recent = stored.batches != self.note_sync.batches;
        let news = self.fleet.new_notes(stored.notes, self.note_sync.lacked_recent);
        if !news.is_empty() {
            self.apply(Event::RestoredNotes(news), self.clock.now_ms());
        }
    }
}
