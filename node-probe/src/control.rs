//! What the relay says on stdin becomes wakes; what it did not mean to say is ignored.

use crate::wake::Wake;
use nodeglass_protocol::probe::{Control, MAX_LINE};
use std::{
    io::{self, BufRead, BufReader, Read},
    sync::mpsc::Sender,
    thread,
};

/// Stack of the reading thread.
const STACK: usize = 64 << 10;
/// Shortest and longest interval that is obeyed, in ms.
pub const INTERVAL_MS: std::ops::RangeInclusive<u32> = 500..=60_000;

/// Starts reading stdin until it ends.
///
/// # Errors
/// If no thread can be started.
pub fn listen(wakes: Sender<Wake>) -> io::Result<()> {
    let read = move || {
        hear(BufReader::with_capacity(4 << 10, io::stdin()), |wake| wakes.send(wake).is_ok());
        let _ = wakes.send(Wake::InputEnded);
    };
    thread::Builder::new().name("input".into()).stack_size(STACK).spawn(read).map(drop)
}

/// Reads lines until the input or the interest ends.
fn hear(mut input: impl BufRead, mut tell: impl FnMut(Wake) -> bool) {
    let mut line = Vec::new();
    loop {
        line.clear();
        match input.by_ref().take(MAX_LINE as u64).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let wake = match line.last() {
            Some(b'\n') => understood(&line),
            // Half a line at the end of the input, or one that is too long: its rest is heard as lines.
            _ => Some(Wake::Garbage(format!("a control line without an end ({} bytes)", line.len()))),
        };
        if wake.is_some_and(|wake| !tell(wake)) {
            return;
        }
    }
}

fn understood(line: &[u8]) -> Option<Wake> {
    if line.trim_ascii().is_empty() {
        return None;
    }
    Some(match serde_json::from_slice::<Control>(line) {
        Ok(control) => Wake::Control(control),
        Err(error) => Wake::Garbage(error.to_string()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn heard(input: &[u8]) -> Vec<Wake> {
        let mut wakes = Vec::new();
        hear(input, |wake| {
            wakes.push(wake);
            true
        });
        wakes
    }

    #[test]
    fn control_lines_are_understood_among_garbage() {
        let wakes = heard(b"\"ping\"\nrubbish\n\n{\"interval\":{\"ms\":500}}\n{\"stop");
        assert!(matches!(wakes[0], Wake::Control(Control::Ping)));
        assert!(matches!(wakes[1], Wake::Garbage(_)));
        assert!(matches!(wakes[2], Wake::Control(Control::Interval { ms: 500, phase_ms: 0 })));
        assert!(matches!(wakes[3], Wake::Garbage(_)));
        assert_eq!(wakes.len(), 4);
    }

    proptest! {
        #[test]
        fn no_input_is_too_strange(input in prop::collection::vec(any::<u8>(), 0..600)) {
            heard(&input);
        }
    }

    #[test]
    fn a_line_without_end_takes_no_memory_without_end() {
        let wakes = heard(&vec![b'x'; 3 * MAX_LINE]);
        assert_eq!(wakes.len(), 3);
    }
}
