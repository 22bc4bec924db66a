//! Reads control lines from stdin and turns them into events; invalid lines are reported and
//! ignored.

use crate::loop_event::LoopEvent;
use nodeglass_protocol::probe::{Control, MAX_LINE};
use std::{
    io::{self, Read},
    sync::mpsc::Sender,
    thread,
};

/// Stack size of the input thread.
const STACK: usize = 64 << 10;
/// Permitted range of the interval, in ms.
pub const INTERVAL_MS: std::ops::RangeInclusive<u32> = 500..=60_000;

/// Size of a read from stdin in bytes.
const READ_BYTES: usize = 4 << 10;

/// Starts reading stdin until it ends.
///
/// # Errors
/// If no thread can be started.
pub fn listen(events: Sender<LoopEvent>) -> io::Result<()> {
    let read = move || {
        read_lines(io::stdin(), |event| events.send(event).is_ok());
        let _ = events.send(LoopEvent::InputEnded);
    };
    thread::Builder::new().name("input".into()).stack_size(STACK).spawn(read).map(drop)
}

/// Reads lines until the input ends or `emit` returns false.
fn read_lines(mut input: impl Read, mut emit: impl FnMut(LoopEvent) -> bool) {
    let mut lines = ControlLines::default();
    let mut chunk = [0; READ_BYTES];
    loop {
        let count = match input.read(&mut chunk) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Ok(0) | Err(_) => break,
            Ok(count) => count,
        };
        let events = lines.push(&chunk[..count]).map(|line| match line {
            Ok(control) => LoopEvent::Control(control),
            Err(why) => LoopEvent::InvalidControl(why),
        });
        for event in events {
            if !emit(event) {
                return;
            }
        }
    }
    if let Some(why) = lines.truncated() {
        emit(LoopEvent::InvalidControl(why));
    }
}

/// Splits input into control lines, with bounded memory.
#[derive(Debug, Default)]
pub struct ControlLines {
    /// The line whose end has not arrived.
    line: Vec<u8>,
}

impl ControlLines {
    /// Takes input of any size, and returns the lines that it completes: their contents, or why they
    /// are invalid.
    pub fn push<'a>(&'a mut self, bytes: &'a [u8]) -> impl Iterator<Item = Result<Control, String>> + 'a {
        let mut rest = bytes;
        std::iter::from_fn(move || {
            loop {
                let room = MAX_LINE - self.line.len();
                let end = rest.iter().take(room).position(|byte| *byte == b'\n').map(|at| at + 1);
                let (taken, after) = rest.split_at(end.unwrap_or(room.min(rest.len())));
                self.line.extend_from_slice(taken);
                rest = after;
                let parsed = match end {
                    Some(_) => parse(&self.line),
                    // Too long; its rest is parsed as further lines.
                    None if self.line.len() == MAX_LINE => self.truncated().map(Err),
                    None => return None,
                };
                self.line.clear();
                if parsed.is_some() {
                    return parsed;
                }
            }
        })
    }

    /// Describes the line whose end is missing, if there is one.
    pub fn truncated(&self) -> Option<String> {
        let bytes = self.line.len();
        (bytes > 0).then(|| format!("a control line without an end ({bytes} bytes)"))
    }
}

fn parse(line: &[u8]) -> Option<Result<Control, String>> {
    if line.trim_ascii().is_empty() {
        return None;
    }
    Some(serde_json::from_slice(line).map_err(|error| error.to_string()))
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

        #[test]
        fn lines_do_not_depend_on_how_the_input_is_cut(
            cuts in prop::collection::vec(0usize..60, 0..6),
        ) {
            let input = b"\"ping\"\nrubbish\n\n{\"interval\":{\"ms\":500}}\n\"stop\"\n";
            let (mut lines, mut found, mut at) = (ControlLines::default(), Vec::new(), 0);
            for cut in cuts.into_iter().chain([input.len()]) {
                let end = (at + cut).min(input.len());
                found.extend(lines.push(&input[at..end]).collect::<Vec<_>>());
                at = end;
            }
            let whole: Vec<_> = ControlLines::default().push(input).collect();
            prop_assert_eq!(found, whole);
        }
    }

    #[test]
    fn an_endless_line_uses_bounded_memory() {
        let events = parsed(&vec![b'x'; 3 * MAX_LINE]);
        assert_eq!(events.len(), 3);
    }
}
