//! Panic hook: a panic on any thread ends the probe, which must not appear alive without that
//! thread.

use crate::loop_event::LoopEvent;
use std::{
    panic::{self, PanicHookInfo},
    sync::mpsc::Sender,
    thread,
};

/// Reports all further panics of this process, in addition to printing them to stderr.
pub fn report_to(events: Sender<LoopEvent>) {
    let print = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        print(info);
        // The event is irrelevant if the probe is already ending.
        let _ = events.send(LoopEvent::ThreadFailed(sentence(info)));
    }));
}

fn sentence(info: &PanicHookInfo<'_>) -> String {
    let thread = thread::current();
    let name = thread.name().unwrap_or("unnamed");
    let payload = info.payload();
    let message = payload.downcast_ref::<&str>().copied();
    let message =
        message.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
    match info.location() {
        Some(at) => format!("its {name} thread panicked at {}:{}: {message}", at.file(), at.line()),
        None => format!("its {name} thread panicked: {message}"),
    }
}
