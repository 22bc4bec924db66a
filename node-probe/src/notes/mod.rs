//! Thread that reads what jobs write into their spool files: a home directory that hangs blocks nothing else.

mod spool;

use crate::{clock, loop_event::LoopEvent};
use nodeglass_protocol::JobId;
use nodeglass_protocol::note::SPOOL_FOLDER;
use nodeglass_protocol::probe::SpoolNotes;
use spool::{ScanTime, Spool};
use std::{
    io,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Sender, SyncSender, sync_channel},
    },
    thread,
};

/// Stack size of the thread.
const STACK: usize = 128 << 10;

/// Reads spool files on request and reports new lines as [`LoopEvent::Notes`]. The thread ends when this guard is
/// dropped.
#[derive(Debug)]
pub struct NoteReader {
    requests: SyncSender<Vec<JobId>>,
    is_busy: Arc<AtomicBool>,
}

impl NoteReader {
    /// Starts the thread.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(events: Sender<LoopEvent>) -> io::Result<Self> {
        let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
        let (requests, inbox) = sync_channel::<Vec<JobId>>(1);
        let is_busy = Arc::new(AtomicBool::new(false));
        let busy = Arc::clone(&is_busy);
        let read = move || {
            let mut spool = home.map(|home| Spool::new(home.join(SPOOL_FOLDER)));
            for jobs in inbox {
                let now = ScanTime { mono_ns: clock::mono_ns(), wall_ns: clock::wall_ns() };
                let notes = spool.as_mut().map(|spool| spool.scan(&jobs, now)).unwrap_or_default();
                // Before the flag, so that no line is read before the ones before it are on their way.
                if notes != SpoolNotes::default() && events.send(LoopEvent::Notes(notes)).is_err() {
                    return;
                }
                busy.store(false, Ordering::Release);
            }
        };
        thread::Builder::new().name("notes".into()).stack_size(STACK).spawn(read)?;
        Ok(Self { requests, is_busy })
    }

    /// Requests the new lines of these jobs, unless a request is in progress.
    pub fn request(&self, jobs: &[JobId]) {
        if !self.is_busy.swap(true, Ordering::AcqRel) && self.requests.try_send(jobs.to_vec()).is_err() {
            self.is_busy.store(false, Ordering::Release);
        }
    }
}
