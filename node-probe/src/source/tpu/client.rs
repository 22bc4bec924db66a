//! The worker process as seen by the source: started again if it ends, killed if it hangs.

use super::library::Report;
use super::worker::Reply;
use nodeglass_protocol::Text;
use nodeglass_rules::backoff;
use std::{
    io::{BufRead, BufReader, Read, Write},
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, RecvTimeoutError, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

/// Time limit of a call of the library: it waits a second for each of three responses of the runtime.
const CALL_LIMIT: Duration = Duration::from_secs(5);
/// Time for which the source waits for a response before it uses the last one.
const PATIENCE: Duration = Duration::from_millis(200);
/// Age up to which the last response is current.
const CURRENT: Duration = Duration::from_secs(3);
/// Pauses before a worker that failed is started again.
const FIRST_PAUSE: Duration = Duration::from_secs(2);
const MAX_PAUSE: Duration = Duration::from_secs(60);
/// Maximum length of a response: some 100 bytes per device.
const MAX_LINE: u64 = 64 * 1024;
/// Maximum length of the worker's stderr that is kept.
const MAX_STDERR: usize = 4_096;
/// Prefix of the message of a panic.
const PANIC: &[u8] = b"panic";
/// Time for a worker that closed its pipe to end.
const END_LIMIT: Duration = Duration::from_millis(500);

/// Queries libtpuinfo through a worker process.
pub struct Client {
    program: PathBuf,
    library: PathBuf,
    worker: Option<Worker>,
    /// A worker that was killed and has not ended: it hangs in the driver.
    stuck: Option<Child>,
    failures: u32,
    /// Reason for the lack of a worker, and its time.
    failed: Option<(Text, Instant)>,
}

impl Client {
    /// Creates a client whose worker is `program` with `library`; it is started by the first query.
    pub fn new(program: PathBuf, library: PathBuf) -> Self {
        Self { program, library, worker: None, stuck: None, failures: 0, failed: None }
    }

    /// Returns the newest report.
    ///
    /// # Errors
    /// The reason, for the user, if the library does not respond.
    pub fn report(&mut self) -> Result<Report, Missing> {
        if let Some((why, at)) = &self.failed
            && at.elapsed() < backoff::exponential(FIRST_PAUSE, self.failures, MAX_PAUSE)
        {
            return Err(Missing::Failed(why.clone()));
        }
        match self.ask() {
            Ok(report) => {
                (self.failures, self.failed) = (0, None);
                Ok(report)
            }
            Err(Missing::Pending) => Err(Missing::Pending),
            Err(Missing::Failed(why)) => {
                if let Some(worker) = self.worker.take() {
                    self.stuck = worker.child.end();
                }
                self.failures = self.failures.saturating_add(1);
                self.failed = Some((why.clone(), Instant::now()));
                Err(Missing::Failed(why))
            }
        }
    }

    fn ask(&mut self) -> Result<Report, Missing> {
        // One process that cannot be killed is enough.
        if let Some(child) = &mut self.stuck {
            if let Ok(None) = child.try_wait() {
                let why =
                    format!("libtpuinfo's process {} hangs in the driver and cannot be ended", child.id());
                return Err(Missing::Failed(why.into()));
            }
            self.stuck = None;
        }
        let worker = match self.worker.take() {
            Some(worker) => worker,
            None => Worker::start(&self.program, &self.library).map_err(|error| {
                Missing::Failed(format!("libtpuinfo's process cannot be started: {error}").into())
            })?,
        };
        self.worker.insert(worker).report()
    }
}

/// Reason for a missing report.
#[derive(Debug)]
pub enum Missing {
    /// The first response is still to come.
    Pending,
    /// The worker has failed, with the reason.
    Failed(Text),
}

impl Missing {
    /// Returns the reason for the user.
    pub fn why(&self) -> Text {
        match self {
            Self::Pending => "libtpuinfo has not responded yet".into(),
            Self::Failed(why) => why.clone(),
        }
    }
}

/// A running worker.
struct Worker {
    child: Running,
    stdin: ChildStdin,
    replies: Receiver<Reply>,
    stderr: Arc<Mutex<Vec<u8>>>,
    /// When the response that is still to come was requested.
    asked: Option<Instant>,
    last: Option<(Report, Instant)>,
}

impl Worker {
    fn start(program: &PathBuf, library: &PathBuf) -> std::io::Result<Self> {
        let child = Command::new(program)
            .arg0("node-probe")
            .arg("--tpu-worker")
            .arg("--libtpuinfo")
            .arg(library)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        // From here on, an error ends it.
        let mut running = Running(Some(child));
        let child = running.get();
        let pipes = child.stdin.take().zip(child.stdout.take()).zip(child.stderr.take());
        let ((stdin, stdout), stderr) = pipes.ok_or_else(|| std::io::Error::other("it has no pipes"))?;
        let (sender, replies) = sync_channel(1);
        thread::Builder::new().name("tpu-replies".into()).spawn(move || {
            read_replies(stdout, |reply| sender.send(reply).is_ok());
        })?;
        let kept = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&kept);
        thread::Builder::new().name("tpu-stderr".into()).spawn(move || keep_tail(stderr, &log))?;
        Ok(Self { child: running, stdin, replies, stderr: kept, asked: None, last: None })
    }

    fn report(&mut self) -> Result<Report, Missing> {
        if self.asked.is_none() {
            if self.stdin.write_all(b"\n").is_err() {
                // Its last line says why, if it could not load the library.
                return Err(match self.replies.recv_timeout(PATIENCE) {
                    Ok(Reply::Unavailable(why)) => Missing::Failed(unavailable(&why)),
                    _ => self.ended(),
                });
            }
            self.asked = Some(Instant::now());
        }
        match self.replies.recv_timeout(PATIENCE) {
            Ok(Reply::Report(report)) => {
                (self.asked, self.last) = (None, Some((report.clone(), Instant::now())));
                return Ok(report);
            }
            Ok(Reply::Unavailable(why)) => {
                return Err(Missing::Failed(unavailable(&why)));
            }
            Err(RecvTimeoutError::Disconnected) => return Err(self.ended()),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if self.asked.is_some_and(|at| at.elapsed() > CALL_LIMIT) {
            let limit_s = CALL_LIMIT.as_secs();
            return Err(Missing::Failed(format!("libtpuinfo did not respond within {limit_s} s").into()));
        }
        match &self.last {
            Some((report, at)) if at.elapsed() < CURRENT => Ok(report.clone()),
            _ => Err(Missing::Pending),
        }
    }

    /// Describes how the worker ended, with the last line that it printed.
    fn ended(&mut self) -> Missing {
        let start = Instant::now();
        let status = loop {
            match self.child.get().try_wait() {
                Ok(Some(status)) => break status.to_string(),
                Ok(None) if start.elapsed() < END_LIMIT => thread::sleep(Duration::from_millis(5)),
                _ => break "its pipe is closed".to_owned(),
            }
        };
        // The message precedes the end, but another thread reads it.
        thread::sleep(Duration::from_millis(5));
        let log = self.stderr.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let log = String::from_utf8_lossy(&log);
        let message = log.lines().map(str::trim).find(|line| line.contains("panic"));
        let message = message.or_else(|| log.lines().map(str::trim).rfind(|line| !line.is_empty()));
        let message = message.map(|line| format!(": {line}")).unwrap_or_default();
        Missing::Failed(format!("libtpuinfo ended its process ({status}){message}").into())
    }
}

/// A child process, killed and waited for on drop.
struct Running(Option<Child>);

impl Running {
    fn get(&mut self) -> &mut Child {
        self.0.as_mut().expect("only `end` and `drop` take it")
    }

    /// Kills it and waits for its end; returns it if it does not end, because it hangs in the driver.
    fn end(mut self) -> Option<Child> {
        self.0.take().and_then(killed)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.take().and_then(killed);
    }
}

fn killed(mut child: Child) -> Option<Child> {
    let _ = child.kill();
    let start = Instant::now();
    while matches!(child.try_wait(), Ok(None)) {
        if start.elapsed() >= END_LIMIT {
            return Some(child);
        }
        thread::sleep(Duration::from_millis(5));
    }
    None
}

/// Explains why the library cannot be loaded.
fn unavailable(why: &str) -> Text {
    if why.is_empty() {
        return "libtpuinfo.so is not installed: copy it from github.com/rdyro/libtpuinfo to /usr/local/lib"
            .into();
    }
    format!("libtpuinfo.so cannot be loaded: {why}").into()
}

/// Passes each reply on, until one is invalid or the pipe ends.
fn read_replies(stdout: ChildStdout, mut pass_on: impl FnMut(Reply) -> bool) {
    let mut stdout = BufReader::new(stdout);
    loop {
        let mut line = Vec::new();
        let length = stdout.by_ref().take(MAX_LINE).read_until(b'\n', &mut line);
        let reply = length.ok().and_then(|_| serde_json::from_slice(&line).ok());
        let Some(reply) = reply else { return };
        if !pass_on(reply) {
            return;
        }
    }
}

/// Keeps the end of the worker's stderr.
fn keep_tail(mut stderr: ChildStderr, kept: &Mutex<Vec<u8>>) {
    let mut buffer = [0; 512];
    while let Ok(length @ 1..) = stderr.read(&mut buffer) {
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend_from_slice(&buffer[..length]);
        // The message of a panic precedes its stacks.
        if kept.windows(PANIC.len()).any(|text| text == PANIC) {
            kept.truncate(MAX_STDERR);
        } else {
            let over = kept.len().saturating_sub(MAX_STDERR);
            kept.drain(..over);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn sleeping() -> Child {
        Command::new("sleep").arg("1000").spawn().unwrap()
    }

    fn exists(pid: u32) -> bool {
        Path::new(&format!("/proc/{pid}")).exists()
    }

    #[test]
    fn an_ended_worker_leaves_no_process_behind() {
        let child = sleeping();
        let pid = child.id();
        assert!(exists(pid));
        assert!(Running(Some(child)).end().is_none());
        assert!(!exists(pid), "neither running nor a zombie");
        let child = sleeping();
        let pid = child.id();
        drop(Running(Some(child)));
        assert!(!exists(pid));
    }

    #[test]
    fn no_worker_is_started_beside_one_that_does_not_end() {
        let mut client = Client::new("/nonexistent/node-probe".into(), "libtpuinfo.so".into());
        client.stuck = Some(sleeping());
        let why = |client: &mut Client| {
            client.failed = None;
            client.report().unwrap_err().why().to_string()
        };
        let hangs = why(&mut client);
        assert!(hangs.contains("hangs in the driver"), "{hangs}");
        let child = client.stuck.as_mut().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(why(&mut client).contains("cannot be started"), "the next one is tried");
    }
}
