//! A node of which only the lines are real: it prints through its pipe what a probe on eight busy cards prints.
//!
//! Measurements give it to a relay as its probe (`--probe`), a thousand at once, so that the relay's own
//! reading, parsing and telling is what costs. It obeys intervals and ends with its pipe.

use anyhow::{Context, Result};
use node_probe::clock::{mono_ns, until_next, wall_ms, wall_ns};
use node_probe::output;
use nodeglass_protocol::Reading;
use nodeglass_protocol::probe::{Control, MAGIC, ProbeLine};
use nodeglass_tests::stage::{Nodes, Printer};
use std::io::{BufRead, Write};
use std::process::exit;
use std::sync::atomic::{AtomicU32, Ordering};

/// Seconds of the scenario that are played again and again, from this one on: then nothing is broken there.
const FROM: i64 = 20;
const SECONDS: i64 = 140;

/// Time between two samples, in ms.
static INTERVAL_MS: AtomicU32 = AtomicU32::new(1_000);
/// How long after the whole interval, in ms.
static PHASE_MS: AtomicU32 = AtomicU32::new(0);

/// Stamps have ten digits, so that one can be written over another.
const STAMPS_FROM: u64 = 1_000_000_000;
/// A real node is another machine: here a thousand of them get what the relay and its viewers leave.
const NICE: i32 = 15;

fn main() -> Result<()> {
    let _ = rustix::process::nice(NICE);
    std::thread::spawn(obey);
    let nodes = Nodes::alone()?;
    let name = nodes.names(1).pop().context("the scenario has a node")?;
    let fixed_ms: Option<u32> = std::env::var("NODEGLASS_NODE_MS").ok().and_then(|ms| ms.parse().ok());
    let stamped = std::env::var_os("NODEGLASS_NODE_STAMPED").is_some();
    let mut first = MAGIC.as_bytes().to_vec();
    output::encode(&nodes.hello(&name).context("the node is described")?, &mut first);
    let mut bytes = first;
    let mut printer = Printer::default();
    let mut seq = 0;
    loop {
        seq += 1;
        let second = FROM + seq % SECONDS;
        let mut lines = nodes.lines(&name, second);
        for line in &mut lines {
            if let ProbeLine::Sample(sample) = line {
                (sample.seq, sample.mono_ns, sample.wall_ms) = (seq.unsigned_abs(), mono_ns(), wall_ms());
                sample.interval_ms = fixed_ms.unwrap_or(INTERVAL_MS.load(Ordering::Relaxed));
                if stamped {
                    // A counter travels exactly: here it tells when this line left.
                    sample.gpus[0].ecc_corrected = Reading::Value(STAMPS_FROM + seq.unsigned_abs());
                }
            }
        }
        printer.print(lines, &mut bytes);
        if stamped {
            stamp(&mut bytes, STAMPS_FROM + seq.unsigned_abs());
        }
        if std::io::stdout().write_all(&bytes).is_err() {
            return Ok(());
        }
        bytes.clear();
        let interval_ms = fixed_ms.unwrap_or(INTERVAL_MS.load(Ordering::Relaxed));
        std::thread::sleep(until_next(wall_ns(), interval_ms, PHASE_MS.load(Ordering::Relaxed)));
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

/// Does what the relay says, and ends when it says nothing any more.
fn obey() {
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        match serde_json::from_str(&line) {
            Ok(Control::Interval { ms, phase_ms }) => {
                INTERVAL_MS.store(ms, Ordering::Relaxed);
                PHASE_MS.store(phase_ms, Ordering::Relaxed);
            }
            Ok(Control::Stop) => break,
            _ => {}
        }
    }
    exit(0);
}
