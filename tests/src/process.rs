//! Runs a program for a test: its output can be read while it runs, and it is killed on drop.

use crate::TIMEOUT;
use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A running program.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    output: Output,
}

/// The output so far, on stdout and stderr, line by line.
#[derive(Clone, Debug, Default)]
pub struct Output {
    lines: Arc<Mutex<Vec<String>>>,
    /// Number of its open streams.
    open: Arc<AtomicUsize>,
}

impl Output {
    /// The lines so far.
    pub fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until everything was read that a process wrote before it exited. Others may still hold its streams, so that
    /// they are not waited for any longer.
    fn settle(&self) {
        let start = Instant::now();
        while self.open.load(Ordering::Acquire) > 0 && start.elapsed() < Duration::from_secs(2) {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Everything so far.
    pub fn text(&self) -> String {
        self.lines().join("\n")
    }

    fn follow(&self, source: impl Read + Send + 'static) {
        let (lines, open) = (self.lines.clone(), self.open.clone());
        open.fetch_add(1, Ordering::AcqRel);
        std::thread::spawn(move || {
            for line in BufReader::new(source).split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line).into_owned();
                lines.lock().unwrap_or_else(PoisonError::into_inner).push(line);
            }
            open.fetch_sub(1, Ordering::AcqRel);
        });
    }
}

impl Process {
    /// Starts a program; its stdin is closed.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(command: &mut Command) -> Result<Self> {
        let name = command.get_program().to_string_lossy().into_owned();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("start {name}"))?;
        let output = Output::default();
        output.follow(child.stdout.take().context("stdout was piped")?);
        output.follow(child.stderr.take().context("stderr was piped")?);
        Ok(Self { name, child, output })
    }

    /// Its pid.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The output so far.
    pub fn output(&self) -> &Output {
        &self.output
    }

    /// Waits for a line for which `find` returns a value.
    ///
    /// # Errors
    /// If it exits before, or prints no such line within [`TIMEOUT`]; includes its output.
    pub fn wait_for<T>(&mut self, what: &str, find: impl Fn(&str) -> Option<T>) -> Result<T> {
        let start = Instant::now();
        loop {
            let ended = self.child.try_wait()?;
            if let Some(found) = self.output.lines().iter().find_map(|line| find(line)) {
                return Ok(found);
            }
            if let Some(status) = ended {
                self.output.settle();
                if let Some(found) = self.output.lines().iter().find_map(|line| find(line)) {
                    return Ok(found);
                }
                bail!(
                    "{} ended with {status} without {what}; it printed:\n{}",
                    self.name,
                    self.output.text()
                );
            }
            if start.elapsed() > TIMEOUT {
                bail!("{} did not print {what} in time; it printed:\n{}", self.name, self.output.text());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// If it has exited.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        kill_process(self.id()?, signal).with_context(|| format!("send {signal:?} to {}", self.name))
    }

    /// Waits for it to exit.
    ///
    /// # Errors
    /// If it does not exit within [`TIMEOUT`].
    pub fn wait(&mut self) -> Result<ExitStatus> {
        let start = Instant::now();
        while start.elapsed() < TIMEOUT {
            if let Some(status) = self.child.try_wait()? {
                self.output.settle();
                return Ok(status);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        bail!("{} does not end; it printed:\n{}", self.name, self.output.text())
    }

    fn id(&self) -> Result<Pid> {
        pid(self.child.id()).context("a pid is a positive number")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A killed browser's children survive in their own process groups, so descendants are listed
        // while the process is alive: its pid cannot be reused before.
        if matches!(self.child.try_wait(), Ok(None)) {
            let family = stopped_family(self.child.id());
            for member in family.iter().copied().filter_map(pid) {
                let _ = kill_process(member, Signal::KILL);
            }
            // A descendant holds its locks and ports until the kernel has closed its files.
            let start = Instant::now();
            while !family.iter().copied().all(is_dead) && start.elapsed() < TIMEOUT {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        let _ = self.child.wait();
    }
}

/// A process and its descendants, ancestors first; all of them are stopped, so that none starts another one meanwhile.
fn stopped_family(head: u32) -> Vec<u32> {
    let mut stopped = Vec::new();
    loop {
        let family = family(head);
        let running: Vec<_> = family.iter().copied().filter(|member| !stopped.contains(member)).collect();
        if running.is_empty() {
            return family;
        }
        for member in running.iter().copied().filter_map(pid) {
            let _ = kill_process(member, Signal::STOP);
        }
        stopped.extend(running);
    }
}

/// A process and its descendants, ancestors first.
fn family(head: u32) -> Vec<u32> {
    let parents: Vec<(u32, u32)> = std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(|pid| Some((pid, parent(pid)?)))
        .collect();
    let mut family = vec![head];
    let mut next = 0;
    while let Some(&member) = family.get(next) {
        family.extend(parents.iter().filter(|(_, parent)| *parent == member).map(|(pid, _)| *pid));
        next += 1;
    }
    family
}

/// Field 4 of `/proc/PID/stat`; the command before it may contain anything, so the last `)` is searched.
fn parent(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// Returns whether a process has ended with all of its threads, which share its files, even if its parent has not reaped it yet.
fn is_dead(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let Some((_, fields)) = stat.rsplit_once(") ") else { return true };
    // Fields 3 and 20.
    let threads: Option<u32> = fields.split_whitespace().nth(17).and_then(|count| count.parse().ok());
    fields.starts_with(['Z', 'X']) && threads.is_none_or(|threads| threads <= 1)
}

fn pid(raw: u32) -> Option<Pid> {
    i32::try_from(raw).ok().and_then(Pid::from_raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Process {
        Process::start(Command::new("sh").args(["-c", script])).unwrap()
    }

    #[test]
    fn a_dropped_program_is_gone_with_its_children() {
        let mut process = shell("sleep 600 & echo child $!; wait");
        let child = process
            .wait_for("a child", |line| line.strip_prefix("child ").and_then(|pid| pid.parse().ok()))
            .unwrap();
        assert!(!is_dead(child));
        drop(process);
        assert!(is_dead(child), "process {child} lives on");
    }

    #[test]
    fn a_program_that_ends_early_is_quoted() {
        let error = shell("echo no luck; exit 3").wait_for("a link", |_| None::<()>).unwrap_err();
        let text = format!("{error:#}");
        assert!(text.contains("without a link") && text.contains("no luck"), "{text}");
    }
}
