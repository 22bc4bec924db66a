//! Output thread with a bounded queue: a blocked pipe neither stops the probe nor lets its memory
//! grow.
//!
//! Lines that describe the current state (inventory, processes, health) replace queued older ones;
//! samples that do not fit the queue remain available in the ring.

use crate::{clock, loop_event::LoopEvent, stdout};
use nodeglass_protocol::probe::{Event, MAGIC, MAX_LINE, MAX_WHOLE, Piece, ProbeLine, ProbeResponse};
use nodeglass_protocol::request::Response;
use serde::Serialize;
use std::{
    collections::VecDeque,
    fs::File,
    io::{self, Write},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::Duration,
};

/// Maximum number of queued lines before samples are dropped.
const MAX_QUEUED_LINES: usize = 64;
/// Maximum number of queued bytes before samples are dropped.
const MAX_QUEUED_BYTES: usize = 1 << 20;
/// Maximum number of queued events; further ones are only counted. The relay has the same limit.
const MAX_EVENTS: usize = 32;
/// Maximum size of queued responses in bytes; older ones are dropped.
const MAX_RESPONSE_BYTES: usize = MAX_WHOLE;
/// Stack size of the output thread.
const STACK: usize = 64 << 10;

/// Handle of the output thread.
#[derive(Debug)]
pub struct Output {
    shared: Arc<Shared>,
    finished: Receiver<()>,
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<OutputQueue>,
    changed: Condvar,
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, OutputQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Kind of a queued line, which determines how it is handled while the pipe is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Hello,
    /// Only valid after the preceding [`Kind::Hello`], because GPUs are identified by position.
    Sample,
    Health,
    LinkRates,
    Processes,
    Readings,
    Heartbeat,
    Event,
    /// Placeholder for dropped events.
    EventsLost,
    Response,
    Notes,
    Usage,
    Bye,
}

impl Kind {
    fn of<S, V>(line: &ProbeLine<S, V>) -> Self {
        match line {
            ProbeLine::Hello(_) => Self::Hello,
            ProbeLine::Sample(_) => Self::Sample,
            ProbeLine::Health(_) => Self::Health,
            ProbeLine::LinkRates(_) => Self::LinkRates,
            ProbeLine::Processes(_) => Self::Processes,
            ProbeLine::ProcessReadings(_) => Self::Readings,
            // Lines are split into pieces only when they are written.
            ProbeLine::Heartbeat(_) | ProbeLine::Piece(_) => Self::Heartbeat,
            ProbeLine::Event(_) => Self::Event,
            ProbeLine::Response(_) => Self::Response,
            ProbeLine::Notes(_) => Self::Notes,
            ProbeLine::Usage(_) => Self::Usage,
            ProbeLine::Bye(_) => Self::Bye,
        }
    }

    /// Returns whether a newer line of kind `newer` makes one of this kind obsolete.
    fn is_superseded_by(self, newer: Self) -> bool {
        match newer {
            Self::Hello => matches!(self, Self::Sample | Self::Health | Self::LinkRates),
            Self::Health => matches!(self, Self::Health | Self::LinkRates),
            Self::Processes => matches!(self, Self::Processes | Self::Readings),
            Self::LinkRates | Self::Readings | Self::Heartbeat | Self::Usage => self == newer,
            _ => false,
        }
    }
}

/// Lines waiting for the pipe, oldest first.
#[derive(Debug, Default)]
pub struct OutputQueue {
    lines: VecDeque<(Kind, Vec<u8>)>,
    events_lost: u64,
    closed: bool,
}

impl OutputQueue {
    /// Queues a line at a time in ns of `CLOCK_BOOTTIME`; it may be superseded by a newer one while
    /// the pipe is full.
    pub fn print(&mut self, line: &ProbeLine, mono_ns: u64) {
        let mut bytes = Vec::new();
        encode(line, &mut bytes);
        self.push(Kind::of(line), bytes, mono_ns);
    }

    /// Queues an encoded sample if there is room. Otherwise it remains in the ring, and the gap in
    /// sequence numbers shows the relay what to request.
    pub fn offer_sample(&mut self, sample: Vec<u8>) -> bool {
        self.offer_as(Kind::Sample, sample)
    }

    /// Queues encoded process readings if there is room; otherwise the next ones supersede them.
    pub fn offer_readings(&mut self, readings: Vec<u8>) -> bool {
        self.offer_as(Kind::Readings, readings)
    }

    /// Queues a line other than an event if there is room.
    pub fn offer(&mut self, line: &ProbeLine) -> bool {
        let mut bytes = Vec::new();
        encode(line, &mut bytes);
        self.offer_as(Kind::of(line), bytes)
    }

    fn offer_as(&mut self, kind: Kind, bytes: Vec<u8>) -> bool {
        let has_room = self.has_room();
        if has_room {
            // Only an event needs the time.
            self.push(kind, bytes, 0);
        }
        has_room
    }

    /// Returns whether no line waits.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    fn bytes(&self) -> usize {
        self.lines.iter().map(|(_, line)| line.len()).sum()
    }

    fn has_room(&self) -> bool {
        self.lines.len() < MAX_QUEUED_LINES && self.bytes() < MAX_QUEUED_BYTES
    }

    /// Adds a line and removes the lines that it supersedes.
    fn push(&mut self, kind: Kind, line: Vec<u8>, mono_ns: u64) {
        let unsent_hello = self.lines.iter().position(|(waiting, _)| *waiting == Kind::Hello);
        match (kind, unsent_hello) {
            // An inventory that was never sent is dropped together with the lines that depend on
            // it. The newer one takes its position, because the first line must be a hello.
            (Kind::Hello, Some(place)) => {
                self.lines[place].1 = line;
                let mut at = 0;
                self.lines.retain(|(waiting, _)| {
                    at += 1;
                    at <= place || !waiting.is_superseded_by(kind)
                });
                return;
            }
            (Kind::Hello, None) => {}
            _ => self.lines.retain(|(waiting, _)| !waiting.is_superseded_by(kind)),
        }
        self.lines.push_back((kind, line));
        match kind {
            Kind::Event => self.bound_events(mono_ns),
            Kind::Response => self.bound_responses(),
            _ => {}
        }
    }

    fn bound_events(&mut self, mono_ns: u64) {
        if self.lines.iter().filter(|(kind, _)| *kind == Kind::Event).count() <= MAX_EVENTS {
            return;
        }
        self.events_lost += 1;
        let text =
            format!("{} events before this one were not reported: the link was blocked", self.events_lost);
        let notice = Event { mono_ns, gpu: None, xid: None, text: text.into() };
        let mut line = Vec::new();
        encode(&ProbeLine::Event(notice), &mut line);
        self.lines.retain(|(kind, _)| *kind != Kind::EventsLost);
        if let Some(oldest) = self.lines.iter_mut().find(|(kind, _)| *kind == Kind::Event) {
            *oldest = (Kind::EventsLost, line);
        }
    }

    fn bound_responses(&mut self) {
        let mut bytes: usize =
            self.lines.iter().filter(|(kind, _)| *kind == Kind::Response).map(|(_, line)| line.len()).sum();
        self.lines.retain(|(kind, line)| {
            let drop = *kind == Kind::Response && bytes > MAX_RESPONSE_BYTES;
            bytes -= if drop { line.len() } else { 0 };
            !drop
        });
    }

    /// Removes the next line to be written.
    pub fn pop(&mut self) -> Option<Vec<u8>> {
        let (kind, line) = self.lines.pop_front()?;
        if kind == Kind::EventsLost {
            self.events_lost = 0;
        }
        Some(line)
    }
}

impl Output {
    /// Starts writing to stdout.
    ///
    /// # Errors
    /// If stdout is closed or no thread can be started.
    pub fn start(events: Sender<LoopEvent>) -> io::Result<Self> {
        let stdout = stdout::take()?;
        let shared = Arc::new(Shared::default());
        let (done, finished) = channel();
        let queue = Arc::clone(&shared);
        let write = move || {
            if write_all(stdout, &queue).is_err() {
                // The error is irrelevant if the probe is already ending.
                let _ = events.send(LoopEvent::OutputClosed);
            }
            drop(done);
        };
        thread::Builder::new().name("output".into()).stack_size(STACK).spawn(write)?;
        Ok(Self { shared, finished })
    }

    /// Queues a line; see [`OutputQueue::print`].
    pub fn print(&self, line: &ProbeLine) {
        self.shared.queue().print(line, clock::mono_ns());
        self.shared.changed.notify_one();
    }

    /// Queues an encoded sample; see [`OutputQueue::offer_sample`].
    pub fn offer_sample(&self, sample: Vec<u8>) -> bool {
        self.notify(self.shared.queue().offer_sample(sample))
    }

    /// Queues encoded process readings; see [`OutputQueue::offer_readings`].
    pub fn offer_readings(&self, readings: Vec<u8>) -> bool {
        self.notify(self.shared.queue().offer_readings(readings))
    }

    /// Queues a line; see [`OutputQueue::offer`].
    pub fn offer(&self, line: &ProbeLine) -> bool {
        self.notify(self.shared.queue().offer(line))
    }

    /// Wakes the output thread if a line was queued.
    fn notify(&self, was_queued: bool) -> bool {
        if was_queued {
            self.shared.changed.notify_one();
        }
        was_queued
    }

    /// Waits until everything is written, up to a timeout.
    pub fn close(self, timeout: Duration) {
        self.shared.queue().closed = true;
        self.shared.changed.notify_one();
        // Either the writer finished, or the pipe is blocked and the rest is lost.
        let _ = self.finished.recv_timeout(timeout);
    }
}

/// Writes queued lines until the queue is closed and empty.
fn write_all(mut stdout: File, shared: &Shared) -> io::Result<()> {
    let mut writer = LineWriter::default();
    loop {
        let line = {
            let mut queue = shared.queue();
            loop {
                match queue.pop() {
                    Some(line) => break line,
                    None if queue.closed => return Ok(()),
                    None => queue = shared.changed.wait(queue).unwrap_or_else(PoisonError::into_inner),
                }
            }
        };
        writer.write(&line, |bytes| stdout.write_all(bytes))?;
    }
}

/// Writes lines as they go through the pipe: the first one is prefixed with the magic, long ones are
/// split into pieces.
#[derive(Debug, Default)]
pub struct LineWriter {
    has_begun: bool,
    split_lines: u32,
}

impl LineWriter {
    /// Writes a line.
    ///
    /// # Errors
    /// Errors of `write`.
    pub fn write(&mut self, line: &[u8], mut write: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        if !std::mem::replace(&mut self.has_begun, true) {
            write(MAGIC.as_bytes())?;
        }
        if line.len() <= MAX_LINE {
            return write(line);
        }
        self.split_lines += 1;
        pieces(line, self.split_lines, write)
    }
}

/// Maximum size of a piece's JSON without its text.
const PIECE_OVERHEAD: usize = 128;

/// Splits a line longer than [`MAX_LINE`] bytes into the lines of its pieces.
///
/// # Errors
/// Errors of `write`.
pub fn pieces(line: &[u8], number: u32, mut write: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
    let text = String::from_utf8_lossy(line.strip_suffix(b"\n").unwrap_or(line));
    let (mut ends, mut room) = (Vec::new(), 0);
    for (at, character) in text.char_indices() {
        // Quoting JSON again: only these characters need an escape.
        let bytes = if matches!(character, '"' | '\\') { 2 } else { character.len_utf8() };
        if room + bytes > MAX_LINE - PIECE_OVERHEAD {
            ends.push(at);
            room = 0;
        }
        room += bytes;
    }
    ends.push(text.len());
    let parts = u32::try_from(ends.len()).unwrap_or(u32::MAX);
    let (mut start, mut bytes) = (0, Vec::new());
    for (part, end) in (0..).zip(ends) {
        let piece = Piece { line: number, part, parts, text: text[start..end].to_owned() };
        bytes.clear();
        write_line(&ProbeLine::<()>::Piece(piece), &mut bytes);
        write(&bytes)?;
        start = end;
    }
    Ok(())
}

/// Appends a line of at most [`MAX_WHOLE`] bytes with its newline and returns whether it fit;
/// otherwise appends a substitute that reports the omission.
pub fn encode(line: &ProbeLine, bytes: &mut Vec<u8>) -> bool {
    let fits = write(line, bytes);
    if !fits {
        write(&substitute(line), bytes);
    }
    fits
}

/// Appends a line with its newline if it has at most [`MAX_WHOLE`] bytes; returns whether it was appended.
pub fn write<S: Serialize, V: Serialize>(line: &ProbeLine<S, V>, bytes: &mut Vec<u8>) -> bool {
    let start = bytes.len();
    write_line(line, bytes);
    let fits = bytes.len() - start <= MAX_WHOLE;
    if !fits {
        bytes.truncate(start);
    }
    fits
}

fn write_line<S: Serialize, V: Serialize>(line: &ProbeLine<S, V>, bytes: &mut Vec<u8>) {
    serde_json::to_writer(&mut *bytes, line)
        .expect("line types have string keys, and a Vec takes every write");
    bytes.push(b'\n');
}

/// Substitute for a line that is too long even for pieces, which no list of this crate is.
fn substitute(line: &ProbeLine) -> ProbeLine {
    if let ProbeLine::Response(response) = line {
        let why = format!("the response has more than {} MiB", MAX_WHOLE >> 20);
        let response = ProbeResponse { number: response.number, response: Response::Refused(why.into()) };
        return ProbeLine::Response(Box::new(response));
    }
    let text = format!(
        "a report of this node's probe ({:?}) was left out: it has more than {} MiB",
        Kind::of(line),
        MAX_WHOLE >> 20
    );
    ProbeLine::Event(Event { mono_ns: clock::mono_ns(), gpu: None, xid: None, text: text.into() })
}

/// Marks a sample line from the ring as replayed.
pub fn replayed(line: &[u8]) -> Vec<u8> {
    const START: &[u8] = br#"{"sample":{"#;
    match line.strip_prefix(START) {
        Some(rest) => [START, br#""replay":true,"#, rest].concat(),
        None => line.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::probe::{
        Bye, GpuSample, HealthReport, Heartbeat, ProcessFacts, ProcessKind, ProcessList, ProcessReadings,
        ProcessSample, Sample,
    };
    use nodeglass_protocol::{GpuUuid, Reading, Text};
    use proptest::prelude::*;

    fn encoded(line: &ProbeLine) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode(line, &mut bytes);
        bytes
    }

    /// Joins the pieces of a line.
    fn joined(line: &[u8]) -> Vec<u8> {
        let (mut whole, mut next) = (String::new(), 0);
        pieces(line, 7, |bytes| {
            assert!(bytes.len() <= MAX_LINE && bytes.ends_with(b"\n"));
            let ProbeLine::Piece(piece) = serde_json::from_slice::<ProbeLine>(bytes).unwrap() else {
                panic!("not a piece")
            };
            assert_eq!((piece.line, piece.part), (7, next));
            next += 1;
            whole += &piece.text;
            assert_eq!(piece.parts == next, whole.len() + 1 == line.len());
            Ok(())
        })
        .unwrap();
        whole.push('\n');
        whole.into_bytes()
    }

    #[test]
    fn a_replayed_line_differs_only_in_its_flag() {
        let sample = Sample { seq: 7, gpus: vec![GpuSample::default()], ..Sample::default() };
        let replayed = replayed(&encoded(&ProbeLine::Sample(Box::new(sample.clone()))));
        let wanted = ProbeLine::Sample(Box::new(Sample { replay: true, ..sample }));
        assert_eq!(serde_json::from_slice::<ProbeLine>(&replayed).unwrap(), wanted);
    }

    #[test]
    fn a_very_long_process_list_is_split_into_pieces() {
        let facts = |pid| ProcessFacts {
            user: Reading::Value("alice".into()),
            args: Reading::Value(Text::new("\"ü".repeat(80))),
            ..ProcessFacts::new(GpuUuid::new("GPU-1"), pid, ProcessKind::default())
        };
        let process = |pid| ProcessSample { facts: facts(pid), now: ProcessReadings::default() };
        let list = ProcessList { processes: (1..4_000).map(process).collect(), ..ProcessList::default() };
        let line = encoded(&ProbeLine::Processes(list));
        assert!(line.len() > 4 * MAX_LINE);
        assert_eq!(joined(&line), line);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(12))]

        #[test]
        fn pieces_concatenate_to_the_line(word in "[\"\\\\ü€𝄞a]{1,9}", count in 30_000usize..90_000) {
            let mut line = word.repeat(count).into_bytes();
            line.push(b'\n');
            prop_assert_eq!(joined(&line), line);
        }
    }

    #[test]
    fn lines_too_long_for_pieces_are_replaced_by_an_event() {
        let gpus = vec![GpuSample { fault: Some("x".repeat(200).into()), ..GpuSample::default() }; 30_000];
        let line = encoded(&ProbeLine::Sample(Box::new(Sample { gpus, ..Sample::default() })));
        let ProbeLine::Event(event) = serde_json::from_slice::<ProbeLine>(&line).unwrap() else {
            panic!("not an event")
        };
        assert!(event.text.as_str().contains("was left out"), "{}", event.text);
    }

    fn kinds(queue: &OutputQueue) -> Vec<Kind> {
        queue.lines.iter().map(|(kind, _)| *kind).collect()
    }

    #[test]
    fn the_newest_state_line_supersedes_queued_ones() {
        const STATES: [Kind; 6] =
            [Kind::Processes, Kind::Readings, Kind::Health, Kind::LinkRates, Kind::Heartbeat, Kind::Usage];
        let mut queue = OutputQueue::default();
        for round in 0..1_000u32 {
            for kind in STATES {
                queue.push(kind, round.to_le_bytes().to_vec(), 0);
            }
        }
        assert_eq!(kinds(&queue), STATES);
        assert!(queue.lines.iter().all(|(_, line)| *line == 999u32.to_le_bytes()));
    }

    #[test]
    fn an_unsent_inventory_is_dropped_with_its_dependent_lines() {
        let mut queue = OutputQueue::default();
        for kind in [Kind::Event, Kind::Hello, Kind::Sample, Kind::Event, Kind::Processes, Kind::Health] {
            queue.push(kind, b"old".to_vec(), 0);
        }
        queue.push(Kind::Hello, b"new".to_vec(), 0);
        assert_eq!(kinds(&queue), [Kind::Event, Kind::Hello, Kind::Event, Kind::Processes]);
        assert_eq!(queue.lines[1].1, b"new");
        // An inventory that was already written stays valid for what follows it.
        (0..2).for_each(|_| drop(queue.pop()));
        queue.push(Kind::Sample, Vec::new(), 0);
        queue.push(Kind::Hello, Vec::new(), 0);
        assert_eq!(kinds(&queue), [Kind::Event, Kind::Processes, Kind::Sample, Kind::Hello]);
    }

    #[test]
    fn a_blocked_queue_is_bounded_and_counts_lost_events() {
        let mut queue = OutputQueue::default();
        queue.push(Kind::Bye, encoded(&ProbeLine::Bye(Bye { reason: "first".into() })), 0);
        for number in 0..1_000u64 {
            let event = Event { mono_ns: number, gpu: None, xid: None, text: format!("{number}").into() };
            queue.push(Kind::Event, encoded(&ProbeLine::Event(event)), 0);
            queue.push(Kind::Response, vec![b'x'; 100 << 10], 0);
            if queue.has_room() {
                queue.push(Kind::Sample, vec![b'x'; 4 << 10], 0);
            }
        }
        assert!(queue.bytes() <= MAX_RESPONSE_BYTES + MAX_QUEUED_BYTES + (64 << 10), "{}", queue.bytes());
        assert!(queue.lines.len() <= MAX_EVENTS + 1 + 64 + MAX_QUEUED_LINES, "{}", queue.lines.len());
        let text = |line: &[u8]| match serde_json::from_slice::<ProbeLine>(line) {
            Ok(ProbeLine::Event(event)) => event.text.to_string(),
            other => panic!("{other:?}"),
        };
        let (_, notice) = queue.lines.iter().find(|(kind, _)| *kind == Kind::EventsLost).unwrap();
        assert!(text(notice).starts_with("968 events before this one"), "{}", text(notice));
        let (_, oldest) = queue.lines.iter().find(|(kind, _)| *kind == Kind::Event).unwrap();
        assert_eq!(text(oldest), "968");
    }

    #[test]
    fn lines_are_queued_by_kind() {
        let health: ProbeLine = ProbeLine::Health(HealthReport::default());
        assert_eq!(Kind::of(&health), Kind::Health);
        assert_eq!(Kind::of::<Sample, ()>(&ProbeLine::Heartbeat(Heartbeat::default())), Kind::Heartbeat);
    }
}
