//! A program that a test started is gone when the test is, and what it printed can be read meanwhile.

use crate::TIMEOUT;
use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A running program of a test's.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    output: Output,
}

/// What a program printed so far, on stdout and stderr, line by line.
#[derive(Clone, Debug, Default)]
pub struct Output(Arc<Mutex<Vec<String>>>);

impl Output {
    /// The lines so far.
    pub fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Everything so far.
    pub fn text(&self) -> String {
        self.lines().join("\n")
    }

    fn follow(&self, source: impl Read + Send + 'static) {
        let lines = self.0.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(source).split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line).into_owned();
                lines.lock().unwrap_or_else(PoisonError::into_inner).push(line);
            }
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

    /// What it printed so far.
    pub fn output(&self) -> &Output {
        &self.output
    }

    /// Waits for a line in which `find` finds something.
    ///
    /// # Errors
    /// When it ends before, or says nothing such for [`TIMEOUT`]; with everything that it did say.
    pub fn wait_for<T>(&mut self, what: &str, find: impl Fn(&str) -> Option<T>) -> Result<T> {
        let start = Instant::now();
        loop {
            let ended = self.child.try_wait()?;
            if let Some(found) = self.output.lines().iter().find_map(|line| find(line)) {
                return Ok(found);
            }
            if let Some(status) = ended {
                // Its last words may still be in the pipe.
                std::thread::sleep(Duration::from_millis(100));
                if let Some(found) = self.output.lines().iter().find_map(|line| find(line)) {
                    return Ok(found);
                }
                bail!("{} ended with {status} without {what}; it said:\n{}", self.name, self.output.text());
            }
            if start.elapsed() > TIMEOUT {
                bail!("{} did not give {what} in time; it said:\n{}", self.name, self.output.text());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// When it is gone.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        kill_process(self.id()?, signal).with_context(|| format!("send {signal:?} to {}", self.name))
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// When it does not end within [`TIMEOUT`].
    pub fn wait(&mut self) -> Result<ExitStatus> {
        let start = Instant::now();
        while start.elapsed() < TIMEOUT {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        bail!("{} does not end; it said:\n{}", self.name, self.output.text())
    }

    fn id(&self) -> Result<Pid> {
        pid(self.child.id()).context("a pid is a positive number")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A browser's children outlive it when it is killed, and are in process groups of their own.
        // The family is looked up while its head is still there: its number can mean no one else.
        if matches!(self.child.try_wait(), Ok(None)) {
            for member in family(self.child.id()).into_iter().filter_map(pid) {
                let _ = kill_process(member, Signal::KILL);
            }
        }
        let _ = self.child.wait();
    }
}

/// A process and everything that descends from it, ancestors first.
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

/// Field 4 of `/proc/PID/stat`; the command before it may hold anything, so its last `)` is looked for.
fn parent(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
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
        let child: i32 = process
            .wait_for("a child", |line| line.strip_prefix("child ").and_then(|pid| pid.parse().ok()))
            .unwrap();
        drop(process);
        // Its new parent reaps it in its own time; a zombie is dead enough.
        let state = || std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        let start = Instant::now();
        while !state().is_empty() && !state().contains(") Z ") {
            assert!(start.elapsed() < TIMEOUT, "process {child} lives on");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn a_program_that_ends_early_is_quoted() {
        let error = shell("echo no luck; exit 3").wait_for("a link", |_| None::<()>).unwrap_err();
        let text = format!("{error:#}");
        assert!(text.contains("without a link") && text.contains("no luck"), "{text}");
    }
}
