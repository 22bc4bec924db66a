//! Ends the probe with a reason if a vendor's library ends the process.
#![expect(unsafe_code, reason = "atexit and _exit, which std does not offer")]

use crate::loop_event::LoopEvent;
use nix::libc;
use std::{
    process,
    sync::{
        Mutex, MutexGuard, Once, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::Sender,
    },
    thread,
};

/// Receives the event while a [`Guard`] exists.
static EVENTS: Mutex<Option<Sender<LoopEvent>>> = Mutex::new(None);
/// Whether a thread is held within `exit`.
static IS_HELD: AtomicBool = AtomicBool::new(false);

fn events() -> MutexGuard<'static, Option<Sender<LoopEvent>>> {
    EVENTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Until it is dropped, nothing else ends this process.
#[must_use]
pub struct Guard(());

impl Drop for Guard {
    fn drop(&mut self) {
        *events() = None;
    }
}

/// Reports it as [`LoopEvent::ThreadFailed`] if a thread calls `exit` while the guard exists.
pub fn report_to(sender: Sender<LoopEvent>) -> Guard {
    static REGISTERED: Once = Once::new();
    *events() = Some(sender);
    REGISTERED.call_once(|| {
        // SAFETY: the function lives as long as the process, and does not unwind.
        unsafe { libc::atexit(hold) };
    });
    Guard(())
}

/// Holds the thread that called `exit`, so that the main thread can print the reason and end the
/// process.
extern "C" fn hold() {
    let Some(sender) = events().take() else { return };
    IS_HELD.store(true, Ordering::SeqCst);
    let _ = sender.send(LoopEvent::ThreadFailed("a vendor's library ended the process".into()));
    loop {
        thread::park();
    }
}

/// Ends this process.
pub fn end(status: u8) -> ! {
    if IS_HELD.load(Ordering::SeqCst) {
        // The other thread is within `exit`, which must not run twice.
        // SAFETY: nothing of this process is used afterwards.
        unsafe { libc::_exit(status.into()) };
    }
    process::exit(status.into())
}
