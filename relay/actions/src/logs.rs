//! Logs of jobs: a followed one is read once a second, shared by all followers, locally or by the node's probe.

mod log_watch;

use super::log_buffer::{LogBuffer, LogCursor};
use super::log_reader::{LogRead, LogReadError, LogReader};
pub use log_watch::LogWatch;
use nodeglass_access::user;
use nodeglass_live::Hub;
use nodeglass_logfile::FileId;
use nodeglass_nodes::{Probes, unwatched};
use nodeglass_protocol::Text;
use nodeglass_protocol::job::{Job, JobState};
use nodeglass_protocol::request::{Audience, LogRef, LogStream, ProbeRequest, Response, Tail};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

/// Polling interval of a followed log.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// A file last written this long before its job started belongs to another job.
const MAX_AGE_BEFORE_START_S: i64 = 120;

/// The followed logs. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Logs(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    hub: Hub,
    probes: Probes,
    files: LogFiles,
    /// The owner's login name.
    owner: Text,
    reader: LogReader,
    /// For logs that nobody looks at: a file system that hangs must not use up what followers need.
    background_reader: LogReader,
    shared: Mutex<HashMap<(LogRef, Recipient), Arc<SharedLog>>>,
}

/// Locations of logs besides the nodes of their jobs.
#[derive(Clone, Debug)]
pub enum LogFiles {
    /// Nowhere.
    OnNodes,
    /// Also on this machine, whose hostname it is: shared file systems, and jobs that run here.
    Here(Text),
    /// On the shared file system of a simulated cluster.
    Simulated(Arc<dyn SimulatedFiles>),
}

/// The shared file system of a simulated cluster.
pub trait SimulatedFiles: fmt::Debug + Send + Sync {
    /// Returns what is new in the log of an ended job after an offset; `None` if there is no such file.
    fn tail(&self, job: &Job, path: &str, after: u64) -> Option<Tail>;
}

/// The reader of a log. Others may not read everything that the owner may, so each kind of recipient has its own
/// reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Recipient {
    /// The owner of the relay.
    Owner,
    /// Others: the holders of shares that show the log, and the recipients of notices.
    Guest,
}

/// State shared by all followers of a log.
#[derive(Debug)]
struct SharedLog {
    buffer: Mutex<LogBuffer>,
    changed: watch::Sender<()>,
}

/// A followed log; dropping it unfollows.
#[derive(Debug)]
pub struct FollowedLog {
    of: LogRef,
    shared: Arc<SharedLog>,
    changed: watch::Receiver<()>,
    cursor: LogCursor,
}

impl FollowedLog {
    /// Returns the log.
    pub fn of(&self) -> LogRef {
        self.of
    }

    /// The next lines. Cancel safe.
    pub async fn next(&mut self) -> Tail {
        loop {
            let tail = lock(&self.shared.buffer).read(&mut self.cursor);
            if let Some(tail) = tail {
                return tail;
            }
            if self.changed.changed().await.is_err() {
                // `shared`, which is held here, owns the sender.
                std::future::pending::<()>().await;
            }
        }
    }
}

impl Logs {
    /// No logs yet; `owner` is the owner's login name.
    pub fn new(hub: Hub, probes: Probes, files: LogFiles, owner: Text) -> Self {
        let (reader, background_reader) = (LogReader::default(), LogReader::default());
        let shared = Mutex::default();
        Self(Arc::new(Inner { hub, probes, files, owner, reader, background_reader, shared }))
    }

    /// Follows a log. The caller checks that a guest may see its job.
    pub fn follow(&self, of: LogRef, recipient: Recipient) -> FollowedLog {
        let mut all = lock(&self.0.shared);
        let shared = all.entry((of, recipient)).or_insert_with(|| {
            let shared = Arc::new(SharedLog { buffer: Mutex::default(), changed: watch::channel(()).0 });
            tokio::spawn(TailTask::new(self.clone(), of, recipient, shared.clone()).run());
            shared
        });
        FollowedLog {
            of,
            shared: shared.clone(),
            changed: shared.changed.subscribe(),
            cursor: LogCursor::default(),
        }
    }

    /// Removes a log without followers.
    fn remove_if_unused(&self, of: LogRef, recipient: Recipient, shared: &SharedLog) -> bool {
        let mut all = lock(&self.0.shared);
        let left = shared.changed.receiver_count() == 0;
        if left {
            all.remove(&(of, recipient));
        }
        left
    }

    /// Number of followed logs.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        lock(&self.0.shared).len()
    }
}

impl Inner {
    /// Returns whether a job belongs to the owner; `None` if the lookup fails. Compares uids, as the
    /// owner's name comes from the environment; scripted jobs only have names.
    async fn is_owners(&self, job: &Job) -> Option<bool> {
        if !matches!(self.files, LogFiles::Here(_)) {
            return Some(job.user == self.owner);
        }
        let user = job.user.clone();
        let looked_up = tokio::task::spawn_blocking(move || user::look_up(user.as_str())).await;
        let uid = looked_up.ok()?.ok()?;
        Some(uid == Some(rustix::process::geteuid().as_raw()))
    }
}

// Every change is a single step, so a panic cannot leave the state inconsistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The place where the log was last read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Location {
    Unknown,
    Local(FileId),
    Node,
}

/// The task that polls one log.
struct TailTask {
    of: LogRef,
    recipient: Recipient,
    shared: Arc<SharedLog>,
    reader: TailReader,
    /// Reason for last refusing guests, to log each reason once.
    refused: Option<Text>,
}

/// Reads what is new in a log.
#[derive(Debug)]
struct TailReader {
    logs: Logs,
    of: LogRef,
    recipient: Recipient,
    location: Location,
    /// Offset at which the last read ended.
    after: u64,
    /// When the file was last written, in s since 1970, if this machine has it.
    written_s: Option<i64>,
    /// Whether the job belongs to the owner, once known.
    is_owners: Option<bool>,
    /// Whether nobody looks at it.
    is_background: bool,
}

impl TailTask {
    fn new(logs: Logs, of: LogRef, recipient: Recipient, shared: Arc<SharedLog>) -> Self {
        Self { of, recipient, shared, reader: TailReader::new(logs, of, recipient), refused: None }
    }

    /// Polls until the log has no followers.
    async fn run(mut self) {
        let mut ticks = interval(POLL_INTERVAL);
        // Missed ticks are not made up for.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if self.reader.logs.remove_if_unused(self.of, self.recipient, &self.shared) {
                return;
            }
            let read = match self.reader.logs.0.hub.job(self.of.job).await {
                Some(job) => self.reader.read(&job).await,
                None => Err(format!("there is no job {} in the list", self.of.job).into()),
            };
            let tail = match read {
                Ok(tail) => tail,
                Err(why) => {
                    self.log_refusal(&why);
                    Tail { error: Some(why), end: self.reader.after, ..Tail::default() }
                }
            };
            if lock(&self.shared.buffer).push(tail) {
                self.shared.changed.send_replace(());
            }
        }
    }

    /// Logs for the owner why guests do not see a log.
    fn log_refusal(&mut self, why: &Text) {
        if self.recipient == Recipient::Guest && self.refused.as_ref() != Some(why) {
            tracing::info!(job.id = %self.of.job, %why, "log hidden from guests");
            self.refused = Some(why.clone());
        }
    }
}

impl TailReader {
    fn new(logs: Logs, of: LogRef, recipient: Recipient) -> Self {
        Self {
            logs,
            of,
            recipient,
            location: Location::Unknown,
            after: 0,
            written_s: None,
            is_owners: None,
            is_background: false,
        }
    }

    /// One for a log of the owner that nobody looks at. What an older job left is not read.
    fn in_background(logs: Logs, of: LogRef, recipient: Recipient) -> Self {
        Self { is_background: true, ..Self::new(logs, of, recipient) }
    }

    /// Reads once, locally or by the probe of the node that runs the script.
    async fn read(&mut self, job: &Job) -> Result<Tail, Text> {
        let inner = self.logs.0.clone();
        let stream = match self.of.stream {
            LogStream::Stdout => &job.stdout,
            LogStream::Stderr => &job.stderr,
        };
        let path = stream.as_ref().ok_or_else(|| unknown(job))?.to_string();
        if path == "/dev/null" {
            return Err("the job discards this output: SLURM writes it to /dev/null".into());
        }
        let audience = self.audience(&inner, job).await?;
        let local_miss = match self.read_local(&inner, &path, job, audience).await {
            Ok(tail) => return Ok(tail),
            Err(why) => why,
        };
        self.read_remote(&inner, path, job, local_miss, audience).await
    }

    /// The rules for this read. With the owner's permissions guests are shown logs of the owner's own
    /// jobs only.
    async fn audience(&mut self, inner: &Inner, job: &Job) -> Result<Audience, Text> {
        if self.recipient == Recipient::Owner {
            return Ok(Audience::Owner);
        }
        if self.is_owners.is_none() {
            self.is_owners = inner.is_owners(job).await;
        }
        match self.is_owners {
            Some(true) => {}
            Some(false) => return Err("guests are not shown the logs of other users' jobs".into()),
            None => return Err("the owner of the job cannot be looked up".into()),
        }
        // The start of a pending job is only an estimate.
        let since_s = job.start.filter(|_| job.state != JobState::Pending).ok_or_else(|| unknown(job))?;
        Ok(Audience::Guest { since_s })
    }

    async fn read_local(
        &mut self,
        inner: &Inner,
        path: &str,
        job: &Job,
        audience: Audience,
    ) -> Result<Tail, LocalMiss> {
        let local_host = match &inner.files {
            LogFiles::OnNodes => return Err(LocalMiss::default()),
            LogFiles::Here(host) => host,
            LogFiles::Simulated(files) => {
                return self.read_simulated(files.as_ref(), path, job).ok_or_else(LocalMiss::default);
            }
        };
        // Once its node has served the log, a local file of the same name is ignored.
        if self.location == Location::Node && job.is_active() {
            return Err(LocalMiss::default());
        }
        let (after, before) = match self.location {
            Location::Local(file) => (self.after, Some(file)),
            Location::Unknown | Location::Node => (0, None),
        };
        let reader = if self.is_background { &inner.background_reader } else { &inner.reader };
        match reader.read(path.to_owned(), after, before, audience).await {
            // A file that replaced the previous one may belong to another job as well.
            Ok(read) if before != Some(read.file) && self.belongs_to_other_job(&read, job) => {
                Err(LocalMiss { older: (!self.is_background).then_some(read), why: None })
            }
            Ok(read) => Ok(self.found(read)),
            Err(LogReadError::Missing) => {
                Err(LocalMiss { older: None, why: Some(format!("no such file on {local_host}")) })
            }
            Err(LogReadError::Failed(why)) => {
                Err(LocalMiss { older: None, why: Some(format!("on {local_host} {why}")) })
            }
        }
    }

    /// Reads the log of an ended job; while it runs, its node serves the same bytes.
    fn read_simulated(&mut self, files: &dyn SimulatedFiles, path: &str, job: &Job) -> Option<Tail> {
        job.ended?;
        let tail = files.tail(job, path, self.after)?;
        (self.location, self.after) = (Location::Node, tail.end);
        Some(tail)
    }

    async fn read_remote(
        &mut self,
        inner: &Inner,
        path: String,
        job: &Job,
        local_miss: LocalMiss,
        audience: Audience,
    ) -> Result<Tail, Text> {
        let why_not = local_miss.why.unwrap_or_default();
        // A node may still be watched after the job, and have a file that this machine lacks.
        let asks_node = job.is_active() || local_miss.older.is_none();
        let Some(node) = job.batch_host.as_ref().or(job.nodes.first()).filter(|_| asks_node) else {
            return match local_miss.older {
                Some(read) => Ok(self.found(read)),
                None => Err(sentence(&path, &[&why_not])),
            };
        };
        let after = if self.location == Location::Node { self.after } else { 0 };
        let request = ProbeRequest::Tail { path: path.clone(), after, audience };
        let why = match inner.probes.request(node, request).await {
            Response::Tail(Tail { error: Some(why), .. }) | Response::Refused(why) => why.to_string(),
            Response::Tail(mut tail) => {
                tail.restarted |= matches!(self.location, Location::Local(_));
                (self.location, self.after, self.written_s) = (Location::Node, tail.end, None);
                return Ok(tail);
            }
            Response::Done(_)
            | Response::Process(_)
            | Response::Share(_)
            | Response::Audit(_)
            | Response::Note(_)
            | Response::Capture(_)
            | Response::Processes(_) => "its probe sent a response of another kind".to_owned(),
        };
        match local_miss.older {
            Some(read) => Ok(self.found(read)),
            None if !job.is_active() && why == unwatched(node) => Err(sentence(
                &path,
                &[
                    &why_not,
                    &format!(
                        "{node} is not watched any more, because the job has ended: read it there, or let jobs write \
                         to a shared file system"
                    ),
                ],
            )),
            None => Err(sentence(&path, &[&why_not, &format!("on {node}: {why}")])),
        }
    }

    /// Returns whether a file was last written long before the job that should write it started. A reader is shown even
    /// such a file of a job that ended; what is read in the background is sent to webhooks, too.
    fn belongs_to_other_job(&self, read: &LogRead, job: &Job) -> bool {
        let is_older = |start: i64| read.written_s < start - MAX_AGE_BEFORE_START_S;
        (job.is_active() || self.is_background) && job.start.is_some_and(is_older)
    }

    /// Continues with a local file.
    fn found(&mut self, mut read: LogRead) -> Tail {
        read.tail.restarted |= self.location == Location::Node;
        (self.location, self.after) = (Location::Local(read.file), read.tail.end);
        self.written_s = Some(read.written_s);
        read.tail
    }
}

/// Reason for not reading a log locally.
#[derive(Default)]
struct LocalMiss {
    why: Option<String>,
    /// A file of that name which is older than the job, as a last resort.
    older: Option<LogRead>,
}

fn unknown(job: &Job) -> Text {
    match job.state {
        JobState::Pending => "it has written nothing yet: it is pending".into(),
        _ => "SLURM does not report where it writes".into(),
    }
}

/// `/path: no such file on login1; on gpu-01: …`
fn sentence(path: &str, reasons: &[&str]) -> Text {
    let reasons: Vec<&str> = reasons.iter().copied().filter(|why| !why.is_empty()).collect();
    let reasons =
        if reasons.is_empty() { "it cannot be read from here".to_owned() } else { reasons.join("; ") };
    // Keep the reason: a path may be longer than a text.
    let path: String = path.chars().rev().take(100).collect::<Vec<_>>().into_iter().rev().collect();
    format!("{path}: {reasons}").into()
}

#[cfg(test)]
mod tests;
