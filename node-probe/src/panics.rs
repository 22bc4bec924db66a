//! A panic on any thread becomes a wake: a probe that lost one of its threads must end instead of looking alive.

use crate::loop_event::LoopEvent;
use std::{
    panic::{self, PanicHookInfo},
    sync::mpsc::Sender,
    thread,
};

/// Reports every panic of this process from now on, after it was printed to stderr as usual.
pub fn report_to(events: Sender<LoopEvent>) {
    let print = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        print(info);
        // If the probe is already ending, nobody needs to know.
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
