//! Lines leave through a thread of their own, one write each: a pipe that nobody empties cannot stop the probe.

use crate::wake::Wake;
use nodeglass_protocol::Reading;
use nodeglass_protocol::ask::Answer;
use nodeglass_protocol::probe::{MAGIC, MAX_LINE, ProbeLine};
use nodeglass_protocol::process::ProcessDetail;
use serde::Serialize;
use std::{
    collections::VecDeque,
    fs::File,
    io::{self, Write},
    os::fd::AsFd,
    sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, channel, sync_channel},
    thread,
    time::Duration,
};

/// Lines that may wait for the pipe.
const DEPTH: usize = 64;
/// Stack of the writing thread.
const STACK: usize = 64 << 10;

/// Stdout.
#[derive(Debug)]
pub struct Output {
    lines: SyncSender<Vec<u8>>,
    /// Lines that must not be lost, in their order, for which there was no room yet.
    held: VecDeque<Vec<u8>>,
    finished: Receiver<()>,
    magic_due: bool,
}

impl Output {
    /// Starts writing to this process's stdout.
    ///
    /// # Errors
    /// If stdout is closed or no thread can be started.
    pub fn start(wakes: Sender<Wake>) -> io::Result<Self> {
        let stdout = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        let (lines, inbox) = sync_channel(DEPTH);
        let (done, finished) = channel();
        let write = move || {
            if write_all(stdout, &inbox).is_err() {
                // If the probe is already ending, nobody needs to know.
                let _ = wakes.send(Wake::OutputClosed);
            }
            drop(done);
        };
        thread::Builder::new().name("output".into()).stack_size(STACK).spawn(write)?;
        Ok(Self { lines, held: VecDeque::new(), finished, magic_due: true })
    }

    /// Prints a line that must not be lost; the very first one gets the magic.
    pub fn print(&mut self, line: &ProbeLine) {
        let mut bytes =
            if std::mem::take(&mut self.magic_due) { MAGIC.as_bytes().to_vec() } else { Vec::new() };
        encode(line, &mut bytes);
        self.held.push_back(bytes);
        self.flush();
    }

    /// Prints a line if there is room. Otherwise it is lost to the pipe, but not to the ring, and its
    /// missing number tells the relay what to ask for.
    pub fn offer(&mut self, bytes: Vec<u8>) -> bool {
        self.flush();
        self.held.is_empty() && self.lines.try_send(bytes).is_ok()
    }

    /// Gives held lines to the writer as far as there is room.
    pub fn flush(&mut self) {
        while let Some(line) = self.held.pop_front() {
            if let Err(TrySendError::Full(line)) = self.lines.try_send(line) {
                self.held.push_front(line);
                return;
            }
        }
    }

    /// Waits until everything is written, but not for long.
    pub fn close(mut self, patience: Duration) {
        self.flush();
        drop(self.lines);
        // Either the writer finished, or the pipe is stuck and the last words are lost.
        let _ = self.finished.recv_timeout(patience);
    }
}

fn write_all(mut stdout: File, inbox: &Receiver<Vec<u8>>) -> io::Result<()> {
    inbox.iter().try_for_each(|line| stdout.write_all(&line))
}

/// Appends a line with its newline, at most [`MAX_LINE`] bytes; says whether all of it found room.
pub fn encode(line: &ProbeLine, bytes: &mut Vec<u8>) -> bool {
    if write(line, bytes) {
        return true;
    }
    encode(&shortened(line), bytes);
    false
}

/// Appends a line with its newline, unless it is longer than [`MAX_LINE`]; says whether it did.
pub fn write<S: Serialize, V: Serialize>(line: &ProbeLine<S, V>, bytes: &mut Vec<u8>) -> bool {
    let start = bytes.len();
    serde_json::to_writer(&mut *bytes, line)
        .expect("line types have string keys, and a Vec takes every write");
    bytes.push(b'\n');
    let fits = bytes.len() - start <= MAX_LINE;
    if !fits {
        bytes.truncate(start);
    }
    fits
}

/// Half of a line that is too long. Only lists grow: the rest of a line has fixed bounds.
fn shortened(line: &ProbeLine) -> ProbeLine {
    let mut line = line.clone();
    match &mut line {
        ProbeLine::Processes(list)
            if list.processes.iter().any(|process| process.facts.args != Reading::NotYet) =>
        {
            list.processes.iter_mut().for_each(|process| process.facts.args = Reading::NotYet);
        }
        ProbeLine::Processes(list) => list.processes.truncate(list.processes.len() / 2),
        ProbeLine::ProcessVitals(vitals) => halve(&mut vitals.now),
        ProbeLine::Health(report) => halve(&mut report.gpus),
        ProbeLine::LinkRates(rates) => halve(&mut rates.gpus),
        ProbeLine::Hello(hello) => halve(&mut hello.gpus),
        ProbeLine::Sample(sample) if !sample.jobs.is_empty() => sample.jobs.clear(),
        ProbeLine::Sample(sample) => halve(&mut sample.gpus),
        ProbeLine::Answer(answer) => match &mut answer.answer {
            // The newest lines are the ones that are wanted.
            Answer::Tail(tail) => drop(tail.lines.drain(..tail.lines.len().div_ceil(2))),
            Answer::Process(detail) => shorten_detail(detail),
            Answer::Done(_) | Answer::Refused(_) | Answer::Share(_) => {}
        },
        ProbeLine::Heartbeat(_) | ProbeLine::Event(_) | ProbeLine::Bye(_) => {}
    }
    line
}

/// Lets go of the farthest kin first.
fn shorten_detail(detail: &mut ProcessDetail) {
    let variables = detail.environment.value().map_or(0, Vec::len);
    if detail.descendants.is_empty() && variables == 0 {
        drop(detail.ancestors.drain(..detail.ancestors.len().div_ceil(2)));
    }
    halve(&mut detail.descendants);
    detail.environment = std::mem::take(&mut detail.environment).map(|mut variables| {
        halve(&mut variables);
        variables
    });
}

fn halve<T>(list: &mut Vec<T>) {
    list.truncate(list.len() / 2);
}

/// A kept sample's line as a replayed one.
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
    use nodeglass_protocol::ask::Tail;
    use nodeglass_protocol::probe::{
        GpuSample, ProbeAnswer, ProcessFacts, ProcessKind, ProcessList, ProcessReadings, ProcessSample,
        Sample,
    };
    use nodeglass_protocol::process::Kin;
    use nodeglass_protocol::{GpuUuid, LongText, Text};

    fn encoded(line: &ProbeLine) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode(line, &mut bytes);
        bytes
    }

    #[test]
    fn a_replayed_line_differs_in_nothing_but_that() {
        let sample = Sample { seq: 7, gpus: vec![GpuSample::default()], ..Sample::default() };
        let replayed = replayed(&encoded(&ProbeLine::Sample(Box::new(sample.clone()))));
        let wanted = ProbeLine::Sample(Box::new(Sample { replay: true, ..sample }));
        assert_eq!(serde_json::from_slice::<ProbeLine>(&replayed).unwrap(), wanted);
    }

    #[test]
    fn a_list_of_very_many_processes_still_fits_a_line() {
        let facts = ProcessFacts {
            user: Reading::Value("alice".into()),
            args: Reading::Value(Text::new("x".repeat(200))),
            ..ProcessFacts::new(GpuUuid::new("GPU-1"), 1, ProcessKind::default())
        };
        let process = ProcessSample { facts, now: ProcessReadings::default() };
        let line = ProbeLine::Processes(ProcessList { processes: vec![process; 5_000] });
        let bytes = encoded(&line);
        assert!(bytes.len() <= MAX_LINE && bytes.ends_with(b"\n"));
        assert!(serde_json::from_slice::<ProbeLine>(&bytes).is_ok());
    }

    #[test]
    fn a_family_of_long_command_lines_still_fits_a_line() {
        let command = LongText::new("\"".repeat(9_000));
        let kin = Kin { pid: 1, parent: 1, user: "me".into(), command, state: 0 };
        let detail = ProcessDetail {
            ancestors: vec![kin.clone(); 99],
            descendants: vec![kin; 99],
            ..Default::default()
        };
        let answer = Answer::Process(Box::new(detail));
        let bytes = encoded(&ProbeLine::Answer(Box::new(ProbeAnswer { number: 1, answer })));
        assert!(bytes.len() <= MAX_LINE);
        assert!(serde_json::from_slice::<ProbeLine>(&bytes).is_ok());
    }

    #[test]
    fn of_a_log_that_does_not_fit_a_line_the_end_is_told() {
        let lines: Vec<LongText> = (0..2_000).map(|n| format!("{n} {}", "\"".repeat(300)).into()).collect();
        let answer = Answer::Tail(Tail { lines, ..Tail::default() });
        let bytes = encoded(&ProbeLine::Answer(Box::new(ProbeAnswer { number: 1, answer })));
        assert!(bytes.len() <= MAX_LINE);
        let ProbeLine::Answer(told) = serde_json::from_slice::<ProbeLine>(&bytes).unwrap() else {
            unreachable!("it is one")
        };
        let Answer::Tail(tail) = told.answer else { unreachable!("it is one") };
        assert!(tail.lines.len() > 100 && tail.lines.last().unwrap().as_str().starts_with("1999 "));
    }
}
