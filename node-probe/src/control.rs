//! Reads control lines from stdin and turns them into events; invalid lines are reported and
//! ignored.

use crate::loop_event::LoopEvent;
use nodeglass_protocol::probe::{Control, MAX_LINE};
use std::{
    io::{self, BufRead, BufReader, Read},
    sync::mpsc::Sender,
    thread,
};

/// Stack size of the input thread.
const STACK: usize = 64 << 10;
/// Permitted range of the interval, in ms.
pub const INTERVAL_MS: std::ops::RangeInclusive<u32> = 500..=60_000;

/// Starts reading stdin until it ends.
///
/// # Errors
/// If no thread can be started.
pub fn listen(events: Sender<LoopEvent>) -> io::Result<()> {
    let read = move || {
        read_lines(BufReader::with_capacity(4 << 10, io::stdin()), |event| events.send(event).is_ok());
        let _ = events.send(LoopEvent::InputEnded);
    };
    thread::Builder::new().name("input".into()).stack_size(STACK).spawn(read).map(drop)
}

/// Reads lines until the input ends or `emit` returns false.
fn read_lines(mut input: impl BufRead, mut emit: impl FnMut(LoopEvent) -> bool) {
    let mut line = Vec::new();
    loop {
        line.clear();
        match input.by_ref().take(MAX_LINE as u64).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let event = match line.last() {
            Some(b'\n') => parse(&line),
            // A truncated last line, or one that is too long, whose rest is parsed as further
            // lines.
            _ => Some(LoopEvent::InvalidControl(format!(
                "a control line without an end ({} bytes)",
                line.len()
            ))),
        };
        if event.is_some_and(|event| !emit(event)) {
            return;
        }
    }
}

fn parse(line: &[u8]) -> Option<LoopEvent> {
    if line.trim_ascii().is_empty() {
        return None;
    }
    Some(match serde_json::from_slice::<Control>(line) {
        Ok(control) => LoopEvent::Control(control),
        Err(error) => LoopEvent::InvalidControl(error.to_string()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parsed(input: &[u8]) -> Vec<LoopEvent> {
        let mut events = Vec::new();
        read_lines(input, |event| {
            events.push(event);
            true
        });
        events
    }

    #[test]
    fn control_lines_are_parsed_between_invalid_ones() {
        let events = parsed(b"\"ping\"\nrubbish\n\n{\"interval\":{\"ms\":500}}\n{\"stop");
        assert!(matches!(events[0], LoopEvent::Control(Control::Ping)));
        assert!(matches!(events[1], LoopEvent::InvalidControl(_)));
        assert!(matches!(events[2], LoopEvent::Control(Control::Interval { ms: 500, phase_ms: 0 })));
        assert!(matches!(events[3], LoopEvent::InvalidControl(_)));
        assert_eq!(events.len(), 4);
    }

    proptest! {
        #[test]
        fn no_input_is_too_strange(input in prop::collection::vec(any::<u8>(), 0..600)) {
            parsed(&input);
        }
    }

    #[test]
    fn an_endless_line_uses_bounded_memory() {
        let events = parsed(&vec![b'x'; 3 * MAX_LINE]);
        assert_eq!(events.len(), 3);
    }
}
