//! Everything that the probe's one loop can be woken by.

use crate::source::Report;
use nodeglass_protocol::probe::{Control, ProbeAnswer, ProcessList};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::{
    io::{self, Read},
    os::unix::net::UnixStream,
    sync::mpsc::Sender,
    thread,
};

/// One thing that happened.
#[derive(Debug)]
pub enum LoopEvent {
    /// The relay said something.
    Control(Control),
    /// The relay said something that is no control line; the text says what is wrong.
    InvalidControl(String),
    /// Stdin ended: the relay is gone.
    InputEnded,
    /// Stdout broke (EPIPE): nobody reads any more.
    OutputClosed,
    /// SIGTERM, SIGINT or SIGHUP.
    Signal,
    /// What the source said, and the number of the thread that asked it.
    Report(u32, Report),
    /// The processes on the GPUs, as they were looked up.
    Processes(ProcessList),
    /// A thread of the probe ended that must not: it panicked, say. One sentence.
    ThreadFailed(String),
    /// What came of a question.
    Answer(Box<ProbeAnswer>),
    /// A newer probe of the same relay wants to go on in our place.
    Successor(UnixStream),
}

/// Turns SIGTERM, SIGINT and SIGHUP into [`LoopEvent::Signal`].
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
