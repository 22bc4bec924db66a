//! Events that wake the probe's event loop.

use crate::source::{Report, WorkerId};
use nodeglass_protocol::probe::{Control, ProbeResponse, ProcessList, SpoolNotes};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::{
    io::{self, Read},
    os::unix::net::UnixStream,
    sync::mpsc::Sender,
    thread,
};

/// An event.
#[derive(Debug)]
pub enum LoopEvent {
    /// A control line from the relay.
    Control(Control),
    /// An invalid control line; the text describes the error.
    InvalidControl(String),
    /// Stdin was closed: the relay is gone.
    InputEnded,
    /// Stdout was closed (EPIPE): the reader is gone.
    OutputClosed,
    /// SIGTERM, SIGINT or SIGHUP.
    Signal,
    /// A report of a source, with the worker thread that it comes from.
    Report(WorkerId, Report),
    /// A resolved process list.
    Processes(ProcessList),
    /// An essential thread ended unexpectedly, for example by a panic; with a message.
    ThreadFailed(String),
    /// Response to a request.
    Response(Box<ProbeResponse>),
    /// New lines of spool files.
    Notes(SpoolNotes),
    /// A newer probe of the same relay requests the handover.
    Successor(UnixStream),
}

/// Delivers SIGTERM, SIGINT and SIGHUP as [`LoopEvent::Signal`].
///
/// # Errors
/// If the handlers cannot be installed.
pub fn on_signals(events: Sender<LoopEvent>) -> io::Result<()> {
    let (mut here, there) = UnixStream::pair()?;
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        signal_hook::low_level::pipe::register(signal, there.try_clone()?)?;
    }
    let wait = move || {
        if here.read(&mut [0]).is_ok() {
            let _ = events.send(LoopEvent::Signal);
        }
    };
    thread::Builder::new().name("signals".into()).stack_size(64 << 10).spawn(wait).map(drop)
}
