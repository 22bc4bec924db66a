//! Bounds how much one call of libssh2 reads from the socket.
//!
//! libssh2 reads packets for as long as there are any, and lines before the banner likewise. A host that
//! never stops sending ignorable data would occupy the calling thread forever, and there are few of them.

use libssh2_sys::LIBSSH2_SESSION;
use ssh2::Session;
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::io;

/// Cost of a read besides its bytes: byte-by-byte sending causes work too.
const CALL: usize = 32;
/// `LIBSSH2_CALLBACK_RECV`.
const RECV: c_int = 6;

/// Budget of the current call, and the part that it has used.
#[derive(Clone, Copy)]
struct Budget {
    left: usize,
    spent: usize,
    /// The error returned once the budget is used up.
    beyond: c_int,
    was_hit: bool,
}

/// Bytes that a call has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spent {
    /// Bytes, plus a cost per read.
    pub(super) cost: usize,
    /// Whether it was limited.
    pub(super) was_hit: bool,
}

/// Result for libssh2 once the budget is used up.
#[derive(Clone, Copy)]
pub(super) enum Beyond {
    /// "Again", as for an empty socket.
    Again,
    /// Connection closed: a call that waits for the socket itself would only retry.
    Gone,
}

const UNBOUNDED: Budget = Budget { left: usize::MAX, spent: 0, beyond: libc::EAGAIN, was_hit: false };

thread_local! {
    /// The budget of the call that this thread is in.
    static BUDGET: Cell<Budget> = const { Cell::new(UNBOUNDED) };
}

/// Calls into libssh2 with a read limit of `most`.
pub(super) fn within<T>(most: usize, beyond: Beyond, call: impl FnOnce() -> T) -> (T, Spent) {
    let beyond = match beyond {
        Beyond::Again => libc::EAGAIN,
        Beyond::Gone => libc::ECONNABORTED,
    };
    BUDGET.set(Budget { left: most, beyond, ..UNBOUNDED });
    let outcome = call();
    let budget = BUDGET.replace(UNBOUNDED);
    (outcome, Spent { cost: budget.spent, was_hit: budget.was_hit })
}

/// Makes a session read within budgets.
pub(super) fn watch(session: &Session) {
    let mut raw = session.raw();
    #[expect(unsafe_code, reason = "the ssh2 crate does not know this function of libssh2")]
    // SAFETY: the session is alive and locked; the callback has the type of `LIBSSH2_RECV_FUNC` and lives for ever.
    unsafe {
        let _ = libssh2_session_callback_set(&mut *raw, RECV, receive as *mut c_void);
    }
}

#[expect(unsafe_code, reason = "the ssh2 crate does not know this function of libssh2")]
unsafe extern "C" {
    fn libssh2_session_callback_set(
        session: *mut LIBSSH2_SESSION,
        kind: c_int,
        callback: *mut c_void,
    ) -> *mut c_void;
}

/// `recv`, as libssh2 would call it, within this thread's budget; a negative error number if it fails.
#[expect(unsafe_code, reason = "libssh2 calls it with a pointer to its buffer")]
extern "C" fn receive(
    socket: c_int,
    buffer: *mut c_void,
    length: usize,
    flags: c_int,
    _: *mut *mut c_void,
) -> isize {
    let mut budget = BUDGET.get();
    if budget.left <= CALL {
        BUDGET.set(Budget { was_hit: true, ..budget });
        return -(budget.beyond as isize);
    }
    let allowed = length.min(budget.left - CALL);
    // SAFETY: libssh2 gives a buffer of `length` bytes, and no more than that are written to it.
    let read = unsafe { libc::recv(socket, buffer, allowed, flags) };
    let Ok(bytes) = usize::try_from(read) else {
        let error = io::Error::last_os_error();
        return match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted | io::ErrorKind::NotFound => {
                -(libc::EAGAIN as isize)
            }
            _ => -(error.raw_os_error().unwrap_or(libc::EIO) as isize),
        };
    };
    budget.left -= bytes + CALL;
    budget.spent += bytes + CALL;
    BUDGET.set(budget);
    read
}
