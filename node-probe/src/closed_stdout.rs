//! Refuses a stdout that was closed when the process began. In its place std opens `/dev/null`, on
//! which every write succeeds, before `main`.
#![expect(unsafe_code, reason = "a constructor, which runs before std opens files")]

use rustix::io::Errno;
use std::{
    io,
    os::fd::BorrowedFd,
    sync::atomic::{AtomicBool, Ordering},
};

static WAS_CLOSED: AtomicBool = AtomicBool::new(false);

// SAFETY: the loader calls the functions of this section, none of which needs std to be set up.
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = look;

extern "C" fn look() {
    // SAFETY: the number is only looked up; whether it is open is the question.
    let stdout = unsafe { BorrowedFd::borrow_raw(1) };
    WAS_CLOSED.store(rustix::io::fcntl_getfd(stdout) == Err(Errno::BADF), Ordering::Relaxed);
}

/// Checks that stdout was open.
///
/// # Errors
/// If it was closed.
pub fn check() -> io::Result<()> {
    if WAS_CLOSED.load(Ordering::Relaxed) { Err(io::Error::other("stdout is closed")) } else { Ok(()) }
}
