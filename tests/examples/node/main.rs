//! A simulated node: prints the lines of a probe on eight busy cards.
//!
//! Measurements start a thousand of them as the relay's probe (`--probe`), so that the relay's own
//! work is what they measure. It follows the requested interval and exits with its pipe.

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

/// First second of the scenario that is repeated: from here on it has no faults.
const FROM: i64 = 20;
const SECONDS: i64 = 140;
/// Maximum time between encoding and writing a line. Real nodes encode on their own CPU: here all lines of a
/// group would otherwise be encoded during the measurement.
const MAX_LEAD: Duration = Duration::from_millis(500);

/// Time stamps have ten digits, so that one can overwrite another.
const STAMPS_FROM: u64 = 1_000_000_000;
/// Lowers the priority: real nodes would take no CPU time from the relay and its viewers.
const NICE: i32 = 15;

fn main() -> Result<()> {
    let _ = rustix::process::nice(NICE);
    let (schedule_sender, schedules) = mpsc::channel();
    std::thread::spawn(move || read_control_lines(&schedule_sender));
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
                    // A counter is sent without rounding: here it holds the time of writing.
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
            let make_at = due - MAX_LEAD.min(pause / 2);
            match wait_with_heartbeats(&schedules, &mut spoke, interval_ms, make_at) {
                Some((ms, phase)) => (interval_ms, phase_ms) = (fixed_ms.unwrap_or(ms), phase),
                None => break,
            }
        }
    }
    Ok(())
}

/// Waits until the next line is encoded and prints heartbeats; returns early with a
/// new schedule.
fn wait_with_heartbeats(
    schedules: &Receiver<(u32, u32)>,
    spoke: &mut Instant,
    interval_ms: u32,
    until: Instant,
) -> Option<(u32, u32)> {
    let beat_every = Duration::from_millis(heartbeat_ms(interval_ms) * 9 / 10);
    loop {
        let wake = until.min(*spoke + beat_every);
        if let Ok(schedule) = schedules.recv_timeout(wake.saturating_duration_since(Instant::now())) {
            return Some(schedule);
        }
        if Instant::now() >= until {
            return None;
        }
        let mut bytes = Vec::new();
        let beat = Heartbeat { mono_ns: mono_ns(), driver_stuck_ms: None };
        output::encode(&ProbeLine::Heartbeat(beat), &mut bytes);
        print(&bytes);
        *spoke = Instant::now();
    }
}

/// Prints, and exits with the pipe.
fn print(bytes: &[u8]) {
    if std::io::stdout().write_all(bytes).is_err() {
        exit(0);
    }
}

/// Overwrites a number in an encoded line with the time in µs.
fn stamp(bytes: &mut [u8], number: u64) {
    let number = number.to_string();
    if let Some(at) = bytes.windows(number.len()).position(|window| window == number.as_bytes()) {
        let now = (STAMPS_FROM + mono_ns() / 1_000 % STAMPS_FROM).to_string();
        bytes[at..at + now.len()].copy_from_slice(now.as_bytes());
    }
}

/// Forwards schedules from stdin, and exits when it closes.
fn read_control_lines(schedule_sender: &Sender<(u32, u32)>) {
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        match serde_json::from_str(&line) {
            Ok(Control::Interval { ms, phase_ms }) if schedule_sender.send((ms, phase_ms)).is_err() => break,
            Ok(Control::Stop) => break,
            _ => {}
        }
    }
    exit(0);
}
