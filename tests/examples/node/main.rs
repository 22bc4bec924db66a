//! A node of which only the lines are real: it prints through its pipe what a probe on eight busy cards prints.
//!
//! Measurements give it to a relay as its probe (`--probe`), a thousand at once, so that the relay's own
//! reading, parsing and telling is what costs. It obeys intervals and ends with its pipe.

use anyhow::{Context, Result};
use node_probe::clock::{mono_ns, until_next, wall_ms, wall_ns};
use node_probe::output;
use nodeglass_protocol::Reading;
use nodeglass_protocol::probe::{Control, Heartbeat, MAGIC, ProbeLine, heartbeat_ms};
use nodeglass_tests::pipeline::{Nodes, ProbeEncoder};
use std::io::{BufRead, Write};
use std::process::exit;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Seconds of the scenario that are played again and again, from this one on: then nothing is broken there.
const FROM: i64 = 20;
const SECONDS: i64 = 140;
/// A line is made so long before it leaves, at most. Another machine would make it at its own cost: here all lines of a
/// group would be made in the very moment that is measured.
const AHEAD: Duration = Duration::from_millis(500);

/// Stamps have ten digits, so that one can be written over another.
const STAMPS_FROM: u64 = 1_000_000_000;
/// A real node is another machine: here a thousand of them get what the relay and its viewers leave.
const NICE: i32 = 15;

fn main() -> Result<()> {
    let _ = rustix::process::nice(NICE);
    let (ordered, orders) = mpsc::channel();
    std::thread::spawn(move || obey(&ordered));
    let nodes = Nodes::single()?;
    let name = nodes.names(1).pop().context("the scenario has a node")?;
    let fixed_ms: Option<u32> = std::env::var("NODEGLASS_NODE_MS").ok().and_then(|ms| ms.parse().ok());
    let stamped = std::env::var_os("NODEGLASS_NODE_STAMPED").is_some();
    let mut first = MAGIC.as_bytes().to_vec();
    output::encode(&nodes.hello(&name).context("the node is described")?, &mut first);
    let mut bytes = first;
    let mut encoder = ProbeEncoder::default();
    let (mut interval_ms, mut phase_ms) = (fixed_ms.unwrap_or(1_000), 0);
    let mut due = Instant::now();
    for seq in 1_u32.. {
        let ahead = due.saturating_duration_since(Instant::now());
        let mut lines = nodes.lines(&name, FROM + i64::from(seq) % SECONDS);
        for line in &mut lines {
            if let ProbeLine::Sample(sample) = line {
                sample.seq = u64::from(seq);
                sample.mono_ns = mono_ns() + ahead.as_nanos() as u64;
                sample.wall_ms = wall_ms() + ahead.as_millis() as u64;
                sample.interval_ms = interval_ms;
                if stamped {
                    // A counter travels exactly: here it tells when this line left.
                    sample.gpus[0].ecc_corrected = Reading::Value(STAMPS_FROM + u64::from(seq));
                }
            }
        }
        encoder.encode(lines, &mut bytes);
        sleep(due.saturating_duration_since(Instant::now()));
        if stamped {
            stamp(&mut bytes, STAMPS_FROM + u64::from(seq));
        }
        print(&bytes);
        bytes.clear();
        let mut spoke = Instant::now();
        loop {
            let pause = until_next(wall_ns(), interval_ms, phase_ms);
            due = Instant::now() + pause;
            let make_at = due - AHEAD.min(pause / 2);
            match beating(&orders, &mut spoke, interval_ms, make_at) {
                Some((ms, phase)) => (interval_ms, phase_ms) = (fixed_ms.unwrap_or(ms), phase),
                None => break,
            }
        }
    }
    Ok(())
}

/// Waits for the moment in which the next line is made, and says now and then that it is alive; ends early with an
/// order.
fn beating(
    orders: &Receiver<(u32, u32)>,
    spoke: &mut Instant,
    interval_ms: u32,
    until: Instant,
) -> Option<(u32, u32)> {
    let beat_every = Duration::from_millis(heartbeat_ms(interval_ms) * 9 / 10);
    loop {
        let wake = until.min(*spoke + beat_every);
        if let Ok(order) = orders.recv_timeout(wake.saturating_duration_since(Instant::now())) {
            return Some(order);
        }
        if Instant::now() >= until {
            return None;
        }
        let mut bytes = Vec::new();
        let beat = Heartbeat { mono_ns: mono_ns(), nvml_stuck_ms: None };
        output::encode(&ProbeLine::Heartbeat(beat), &mut bytes);
        print(&bytes);
        *spoke = Instant::now();
    }
}

/// Prints, and ends with the pipe.
fn print(bytes: &[u8]) {
    if std::io::stdout().write_all(bytes).is_err() {
        exit(0);
    }
}

/// Writes the time in µs over a number in a line that is ready to leave.
fn stamp(bytes: &mut [u8], number: u64) {
    let number = number.to_string();
    if let Some(at) = bytes.windows(number.len()).position(|window| window == number.as_bytes()) {
        let now = (STAMPS_FROM + mono_ns() / 1_000 % STAMPS_FROM).to_string();
        bytes[at..at + now.len()].copy_from_slice(now.as_bytes());
    }
}

/// Passes on what the relay says, and ends when it says nothing any more.
fn obey(ordered: &Sender<(u32, u32)>) {
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        match serde_json::from_str(&line) {
            Ok(Control::Interval { ms, phase_ms }) if ordered.send((ms, phase_ms)).is_err() => break,
            Ok(Control::Stop) => break,
            _ => {}
        }
    }
    exit(0);
}
