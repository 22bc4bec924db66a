//! Captures what processes of this user do, for the owner of the relay: where they wait, their threads, connections and
//! Python stacks.
//!
//! Everything is read from `/proc`, and stacks by py-spy without stopping the process. A file system or a process that
//! does not respond costs the part that waits for it, not the others.

mod files;
mod limit;
mod py_spy;
mod sockets;
mod stack;
mod threads;

pub(super) use limit::CaptureLimit;

use super::{GONE, ProcReader};
use crate::proc::{environ::Environ, job::CgroupJob};
use crate::process::stat::{self, Stat};
use nodeglass_protocol::capture::{
    Capture, CaptureRequest, Frame, MAX_PROCESSES, MAX_STACKS, ProcessCapture, StackReader, ThreadState,
};
use nodeglass_protocol::request::{ProcessRef, Response};
use nodeglass_protocol::{JobId, Reading, Text};
use nodeglass_redact::mask;
use std::{
    cmp::Reverse,
    fs,
    io::{self, Read},
    path::Path,
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

/// Maximum number of captured processes if the request names none.
const MAX_SELECTED: usize = 16;
/// Maximum size of a command line that is read.
const MAX_ARGS: u64 = 64 << 10;
/// Time limit for starting to read a stack. The relay waits 30 s for a capture.
const STACKS_LIMIT: Duration = Duration::from_secs(18);
/// Time after which the thread that reads them counts as stuck: the last py-spy was ended long before.
const STUCK_LIMIT: Duration = Duration::from_secs(26);
/// Time limit for looking at files, which may be on a file system that does not respond.
const FILES_LIMIT: Duration = Duration::from_secs(2);
/// Stack size of a thread that runs py-spy or looks at files.
const STACK: usize = 256 << 10;
/// Reason for a missing stack that might have been read.
const NO_TIME: &str = "py-spy did not read all stacks in time";

impl ProcReader {
    /// Captures processes; one capture at a time.
    pub(super) fn capture(&self, limit: &Arc<CaptureLimit>, request: CaptureRequest) -> Response {
        let permit = match limit.acquire(Instant::now()) {
            Ok(permit) => permit,
            Err(why) => return Response::Refused(why.into()),
        };
        let (wanted, omitted) = match request.processes {
            wanted if wanted.is_empty() => self.of_job(request.job),
            mut wanted => {
                let omitted = wanted.len().saturating_sub(MAX_PROCESSES);
                wanted.truncate(MAX_PROCESSES);
                (wanted, omitted)
            }
        };
        // First all that is quick, so that it is of one moment.
        let mut processes: Vec<ProcessCapture> =
            wanted.iter().map(|process| self.process(*process)).collect();
        self.add_files(&mut processes);
        self.add_stacks(&mut processes, request.stacks, limit);
        // A process whose pid was reused meanwhile may have got another one's stack.
        for capture in &mut processes {
            let process = ProcessRef { pid: capture.pid, started_ms: capture.started_ms };
            if capture.refused.is_none() && self.find(process).is_none() {
                *capture = refused(process, "it ended while it was captured");
            }
        }
        drop(permit);
        let omitted = u32::try_from(omitted).unwrap_or(u32::MAX);
        Response::Capture(Box::new(Capture { processes, omitted }))
    }

    /// The processes of a job that used most CPU time, and the number of others.
    fn of_job(&self, job: JobId) -> (Vec<ProcessRef>, usize) {
        let Some(boot_ms) = self.boot_ms else { return (Vec::new(), 0) };
        let entries = fs::read_dir(&self.proc).into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let mut found: Vec<(u64, ProcessRef)> = pids
            .filter(|pid| *pid != std::process::id() && self.is_of_job(*pid, job))
            .filter_map(|pid| {
                let stat = Stat::of(&self.proc, pid)?;
                let started_ms = stat::started_ms(boot_ms, stat.started_ticks);
                Some((stat.cpu_ticks, ProcessRef { pid, started_ms }))
            })
            .collect();
        found.sort_by_key(|(cpu_ticks, process)| (Reverse(*cpu_ticks), process.pid));
        let omitted = found.len().saturating_sub(MAX_SELECTED);
        (found.into_iter().take(MAX_SELECTED).map(|(_, process)| process).collect(), omitted)
    }

    fn is_of_job(&self, pid: u32, job: JobId) -> bool {
        let folder = self.folder(pid);
        if !stat::runs_as(&folder, self.own_uid) {
            return false;
        }
        let cgroup = fs::read(folder.join("cgroup")).unwrap_or_default();
        let found = CgroupJob::of(&String::from_utf8_lossy(&cgroup));
        found.job.or_else(|| Environ::read(&folder).job()) == Some(job)
    }

    /// Reads the state of a process in `/proc`.
    fn process(&self, process: ProcessRef) -> ProcessCapture {
        let Some(stat) = self.find(process) else { return refused(process, GONE) };
        let folder = self.folder(process.pid);
        if !stat::runs_as(&folder, self.own_uid) {
            return refused(process, "it belongs to another user");
        }
        let status = threads::Status::read(&folder);
        let (connections, peers) = sockets::connections(&folder);
        let may_wait = may_wait(status.state);
        ProcessCapture {
            command: Text::from_bytes(&stat.comm),
            // Both take a lock of the process's memory, which a process in uninterruptible sleep may hold.
            args: if may_wait { Reading::NotYet } else { args(&folder) },
            rank: if may_wait { None } else { rank(&folder) },
            state: status.state,
            wait_channel: threads::wait_channel(&folder),
            system_call: threads::system_call(&folder),
            voluntary_switches: status.voluntary_switches,
            involuntary_switches: status.involuntary_switches,
            threads: threads::count(&folder),
            connections,
            peers,
            pid: process.pid,
            started_ms: process.started_ms,
            ..ProcessCapture::default()
        }
    }

    /// Adds the files that may explain more, unless their file system does not respond.
    fn add_files(&self, processes: &mut [ProcessCapture]) {
        let own_uid = self.own_uid;
        let readable =
            processes.iter().filter(|capture| capture.refused.is_none() && !may_wait(capture.state));
        let subjects: Vec<_> =
            readable.map(|capture| (capture.pid, capture.rank, self.folder(capture.pid))).collect();
        let look = move |found: &mpsc::Sender<_>| {
            for (pid, rank, folder) in subjects {
                let files = files::of_process(&folder, pid, rank, own_uid);
                if found.send((pid, files)).is_err() {
                    return;
                }
            }
        };
        for (pid, files) in within(FILES_LIMIT, "capture-files", look) {
            if let Some(capture) = processes.iter_mut().find(|capture| capture.pid == pid) {
                capture.files = files;
            }
        }
    }

    /// The Python processes whose stacks are to be read; each states why it has none, until it has.
    fn with_stacks(&self, processes: &mut [ProcessCapture]) -> Vec<ProcessRef> {
        let is_python = |capture: &&mut ProcessCapture| {
            capture.refused.is_none() && is_python(&self.folder(capture.pid), capture.command.as_str())
        };
        let mut subjects = Vec::new();
        for capture in processes.iter_mut().filter(is_python) {
            let why = match capture.state {
                ThreadState::Uninterruptible | ThreadState::Zombie => {
                    "no Python stack of a process that is a zombie or cannot be interrupted"
                }
                _ if subjects.len() == MAX_STACKS => "no more Python stacks are read at once",
                _ => {
                    subjects.push(ProcessRef { pid: capture.pid, started_ms: capture.started_ms });
                    NO_TIME
                }
            };
            capture.stack = Reading::Failed(why.into());
        }
        subjects
    }

    /// Adds the stacks of Python processes.
    fn add_stacks(&self, processes: &mut [ProcessCapture], reader: StackReader, limit: &Arc<CaptureLimit>) {
        if reader == StackReader::Off {
            return;
        }
        let subjects = self.with_stacks(processes);
        if subjects.is_empty() {
            return;
        }
        let (count, limit, of_thread) = (subjects.len(), Arc::clone(limit), self.clone());
        let limit_of_thread = Arc::clone(&limit);
        let read = move |found: &mpsc::Sender<_>| {
            let until = Instant::now() + STACKS_LIMIT;
            let py_spy = py_spy::find(&reader);
            for process in subjects {
                let stack = py_spy
                    .clone()
                    .and_then(|py_spy| of_thread.stack(&py_spy, process, until, &limit_of_thread));
                if found.send((process.pid, stack)).is_err() {
                    return;
                }
            }
        };
        let found = within(STUCK_LIMIT, "capture-stacks", read);
        if found.len() < count {
            limit.stop_stacks();
        }
        for (pid, stack) in found {
            if let Some(capture) = processes.iter_mut().find(|capture| capture.pid == pid) {
                capture.stack = match stack {
                    Ok(frames) => Reading::Value(frames),
                    Err(why) => Reading::Failed(why.into()),
                };
            }
        }
    }

    fn stack(
        &self,
        py_spy: &Path,
        process: ProcessRef,
        until: Instant,
        limit: &CaptureLimit,
    ) -> Result<Vec<Frame>, String> {
        limit.may_read_stacks()?;
        let left = until.saturating_duration_since(Instant::now());
        if left < py_spy::MIN_TIME {
            return Err(NO_TIME.to_owned());
        }
        // py-spy would read the process that has this pid now.
        if self.find(process).is_none() || !stat::runs_as(&self.folder(process.pid), self.own_uid) {
            return Err(GONE.to_owned());
        }
        let output = py_spy::dump(py_spy, process.pid, left).map_err(|error| {
            if error.is_left_behind() {
                limit.stop_stacks();
            }
            error.to_string()
        })?;
        stack::main_thread(&output, process.pid)
    }
}

/// Runs `work` on a thread of its own, and returns what it sent until it ended or the time was over.
fn within<T: Send + 'static>(
    limit: Duration,
    name: &str,
    work: impl FnOnce(&mpsc::Sender<T>) + Send + 'static,
) -> Vec<T> {
    let (sender, receiver) = mpsc::channel();
    let spawned = thread::Builder::new().name(name.into()).stack_size(STACK).spawn(move || work(&sender));
    if spawned.is_err() {
        return Vec::new();
    }
    let until = Instant::now() + limit;
    let mut found = Vec::new();
    while let Ok(one) = receiver.recv_timeout(until.saturating_duration_since(Instant::now())) {
        found.push(one);
    }
    found
}

fn refused(process: ProcessRef, why: &str) -> ProcessCapture {
    ProcessCapture {
        pid: process.pid,
        started_ms: process.started_ms,
        refused: Some(why.into()),
        ..ProcessCapture::default()
    }
}

/// Returns whether reading a process's memory may wait as long as the process does.
fn may_wait(state: ThreadState) -> bool {
    matches!(state, ThreadState::Uninterruptible | ThreadState::Zombie)
}

/// A batch script has the variables of task 0, but no rank.
fn rank(folder: &Path) -> Option<u32> {
    let environ = Environ::read(folder);
    let step = environ.step();
    environ.rank(step.as_ref().map(Text::as_str)).map(|rank| rank.global)
}

fn args(folder: &Path) -> Reading<Text> {
    match read_start(&folder.join("cmdline"), MAX_ARGS) {
        Ok(line) if line.is_empty() => Reading::Unsupported,
        Ok(line) => Reading::Value(mask::command_line(&line).into()),
        Err(error) => Reading::Failed(error.to_string().into()),
    }
}

/// py-spy reads Python only. A process that cannot be examined is judged by its name.
fn is_python(folder: &Path, command: &str) -> bool {
    let exe = fs::read_link(folder.join("exe"));
    let name = exe.ok().and_then(|exe| Some(exe.file_name()?.to_string_lossy().into_owned()));
    name.as_deref().unwrap_or(command).contains("python")
}

/// Reads at most the first bytes of a file.
fn read_start(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    fs::File::open(path)?.take(most).read_to_end(&mut content)?;
    Ok(content)
}

#[cfg(test)]
mod tests;
