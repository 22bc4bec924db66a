//! Runs many seeds, each in a process of its own, on all cores, and makes failing histories smaller.

use crate::Options;
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::io::Read;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Time limit of one history; it takes a second.
const LIMIT: Duration = Duration::from_secs(120);
/// Maximum number of failing seeds that are made smaller.
const SHRUNK: usize = 8;

/// Runs the seeds.
///
/// # Errors
/// A process cannot be started.
pub fn run(options: &Options) -> Result<ExitCode> {
    let began = Instant::now();
    let (next, failed) = (AtomicU64::new(options.first), Mutex::new(BTreeMap::new()));
    let end = options.first + options.seeds;
    let workers = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        let work = || -> Result<()> {
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= end {
                    return Ok(());
                }
                if let Some(output) = failure(options, seed, None)? {
                    failed.lock().map_err(|_| anyhow::anyhow!("a worker panicked"))?.insert(seed, output);
                }
            }
        };
        let threads: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().unwrap_or_else(|_| anyhow::bail!("a worker panicked")))
    })?;
    let failed = failed.into_inner().unwrap_or_default();
    println!(
        "{} histories in {:.1} s, {} failed",
        options.seeds,
        began.elapsed().as_secs_f64(),
        failed.len()
    );
    if options.broken.is_some() {
        return Ok(if failed.len() as u64 == options.seeds { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    for (number, (seed, output)) in failed.iter().enumerate() {
        println!("{output}");
        if number < SHRUNK {
            shrink(options, *seed)?;
        }
    }
    Ok(if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Removes faults from the history of a seed as long as it fails, and prints what remains.
fn shrink(options: &Options, seed: u64) -> Result<()> {
    let mut kept: Vec<usize> = options.history(seed).into_iter().map(|(index, _)| index).collect();
    let mut smallest = None;
    let mut position = kept.len();
    while position > 0 {
        position -= 1;
        let fewer: Vec<usize> = kept.iter().copied().filter(|index| *index != kept[position]).collect();
        if let Some(output) = failure(options, seed, Some(&fewer))? {
            kept = fewer;
            smallest = Some(output);
            position = kept.len().min(position + 1);
        }
    }
    let indices: Vec<String> = kept.iter().map(ToString::to_string).collect();
    println!("smaller, replayed by --seed {seed} --only {}:", indices.join(","));
    println!("{}", smallest.unwrap_or_else(|| "  (every fault is needed)\n".to_owned()));
    Ok(())
}

/// Runs one history in a process of its own; returns its output if it fails.
fn failure(options: &Options, seed: u64, only: Option<&[usize]>) -> Result<Option<String>> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--seed", &seed.to_string()]);
    if let Some(only) = only {
        command.args(["--only", &only.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")]);
    }
    if let Some((name, _)) = options.broken {
        command.args(["--break", name]);
    }
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let (mut stdout, mut stderr) =
        (child.stdout.take().context("it has stdout")?, child.stderr.take().context("it has stderr")?);
    let errors = std::thread::spawn(move || {
        let mut text = String::new();
        let _ = stderr.read_to_string(&mut text);
        text
    });
    let printed = std::thread::spawn(move || {
        let mut text = String::new();
        let _ = stdout.read_to_string(&mut text);
        text
    });
    let began = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        if began.elapsed() > LIMIT {
            child.kill()?;
            child.wait()?;
            break None;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let mut output = printed.join().unwrap_or_default();
    output.push_str(&errors.join().unwrap_or_default());
    Ok(match status {
        Some(status) if status.success() => None,
        Some(_) => Some(output),
        None => Some(format!("{output}  ✗ it did not end within {} s\n", LIMIT.as_secs())),
    })
}
