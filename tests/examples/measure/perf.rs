//! Profiles a program with Linux's `perf`: samples of its stacks, unwound with frame information.

use crate::flame::Frame;
use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::process::Command;

/// Samples per second.
const RATE: u32 = 1_999;
/// Bytes of stack that each sample keeps.
const STACK: u32 = 16_384;

/// The profiled program.
pub enum Target<'a> {
    /// A running process, for this many seconds.
    Running(u32, u32),
    /// A command, until it exits.
    Command(&'a Command),
}

/// Profiles a program; `None`, with a notice, if `perf` is missing.
pub fn record(target: &Target<'_>) -> Result<Option<Frame>> {
    if Command::new("perf").arg("--version").output().is_err() {
        println!("there is no perf here (Debian: apt install linux-perf), so that nothing is drawn");
        return Ok(None);
    }
    let folder = tempfile::tempdir()?;
    let data = folder.path().join("perf.data");
    let mut perf = Command::new("perf");
    perf.args([
        "record",
        "--quiet",
        "--call-graph",
        &format!("dwarf,{STACK}"),
        "-F",
        &RATE.to_string(),
        "-o",
    ]);
    perf.arg(&data);
    match target {
        Target::Running(pid, seconds) => {
            perf.args(["-p", &pid.to_string(), "--", "sleep", &seconds.to_string()]);
        }
        Target::Command(command) => {
            perf.arg("--").arg(command.get_program()).args(command.get_args());
            perf.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        }
    }
    let output = perf.output().context("start perf")?;
    ensure!(output.status.success(), "perf record: {}", String::from_utf8_lossy(&output.stderr));
    stacks(&data).map(Some)
}

fn stacks(data: &Path) -> Result<Frame> {
    let output = Command::new("perf")
        .args(["script", "--no-inline", "-F", "ip,sym", "-i"])
        .arg(data)
        .output()
        .context("start perf")?;
    ensure!(output.status.success(), "perf script: {}", String::from_utf8_lossy(&output.stderr));
    let output_text = String::from_utf8_lossy(&output.stdout);
    let mut root = Frame::default();
    // A block for each sample, the innermost function first: `  55d0c0de main`.
    for sample in output_text.split("\n\n") {
        let names = sample.lines().filter_map(|line| Some(line.trim().split_once(' ')?.1.trim()));
        let names: Vec<_> = names.filter(|name| !name.is_empty() && *name != "[unknown]").collect();
        if !names.is_empty() {
            root.add(names.into_iter().rev(), 1e3 / f64::from(RATE));
        }
    }
    Ok(root)
}
