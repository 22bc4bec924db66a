//! Requests with a single response: process details, signals, job control, log tails.

use crate::audit::AuditLog;
use crate::capture::{Capture, CaptureRequest};
use crate::finding::SilenceRequest;
use crate::note::{NoteRequest, SavedNote};
use crate::process::{ProcessDetail, ProcessFacts};
use crate::replay::ReplayCommand;
use crate::share::{ShareId, ShareLink, ShareRequest};
use crate::{JobId, LongText, NodeName, Text};
use serde::{Deserialize, Serialize};

/// Identifies a process by pid and start time, which protects against pid reuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProcessRef {
    /// Pid on the node.
    pub pid: u32,
    /// [`crate::process::ProcessFacts::started_ms`].
    pub started_ms: u64,
}

/// A request of a page; owner only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// Details of a process.
    Process {
        /// Its node.
        node: NodeName,
        /// The process.
        process: ProcessRef,
        /// Whether to include its environment.
        environment: bool,
    },
    /// Sends a signal to a process; an action.
    Signal {
        /// Its node.
        node: NodeName,
        /// The process.
        process: ProcessRef,
        /// The signal.
        signal: Signal,
    },
    /// Controls a job through SLURM; an action.
    Job {
        /// The job.
        job: JobId,
        /// The operation.
        action: JobAction,
    },
    /// Creates a share.
    Share(Box<ShareRequest>),
    /// Returns the link of an existing share.
    ShareLink(ShareId),
    /// Revokes a share and disconnects its viewers.
    Revoke(ShareId),
    /// Retries immediately what is in back-off or waiting for the user.
    Retry(RetryTarget),
    /// Changes how a recording is played.
    Replay(ReplayCommand),
    /// Returns the audit log.
    Audit {
        /// Number of days, up to now; at most [`AuditLog::MAX_DAYS`].
        days: u32,
    },
    /// Posts the report of a job to the webhook that the relay's settings name.
    SendReport(JobId),
    /// Adds, changes or deletes a note. Not an action: it changes nothing on the cluster.
    Note(NoteRequest),
    /// Silences findings for a time, or ends that. Not an action.
    Silence(SilenceRequest),
    /// Searches all nodes for the processes with a pid, which have at most [`FoundProcess::MAX`] entries in the response.
    FindProcesses {
        /// Pid on the node.
        pid: u32,
    },
}

/// A process that was found on a node: one entry for each GPU that it uses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FoundProcess {
    /// Its node.
    pub node: NodeName,
    /// Its facts.
    pub facts: ProcessFacts,
}

impl FoundProcess {
    /// Maximum number of entries of a response.
    pub const MAX: usize = 64;
}

/// Target of a retry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum RetryTarget {
    /// The connection to this node.
    Node(NodeName),
    /// The job list query.
    Jobs,
    /// The connections to all waiting nodes, and the job list query.
    Everything,
}

impl Request {
    /// Returns whether it modifies something on the cluster; a read-only relay rejects such requests.
    pub fn is_action(&self) -> bool {
        matches!(self, Self::Signal { .. } | Self::Job { .. })
    }
}

/// A signal that a page may request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Signal {
    /// `SIGINT`, as sent by Ctrl-C.
    Interrupt,
    /// `SIGTERM`.
    Terminate,
    /// `SIGKILL`.
    Kill,
}

impl Signal {
    /// Returns its POSIX name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Interrupt => "SIGINT",
            Self::Terminate => "SIGTERM",
            Self::Kill => "SIGKILL",
        }
    }
}

/// Job control operations of SLURM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobAction {
    /// `scancel`.
    Cancel,
    /// `scontrol hold`: keeps a pending job from starting.
    Hold,
    /// `scontrol release`.
    Release,
    /// `scontrol requeue`: restarts the job.
    Requeue,
}

/// Response to a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Response {
    /// Process details.
    Process(Box<ProcessDetail>),
    /// Success, with a message.
    Done(Text),
    /// Failure or rejection, with the reason.
    Refused(Text),
    /// Tail of a file; sent by probes only.
    Tail(Tail),
    /// A share with its link.
    Share(Box<ShareLink>),
    /// The audit log.
    Audit(Box<AuditLog>),
    /// A note that was added or changed.
    Note(Box<SavedNote>),
    /// Captured processes; sent by probes only.
    Capture(Box<Capture>),
    /// The processes that were found.
    Processes(Vec<FoundProcess>),
}

/// A request of a relay to a probe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProbeRequest {
    /// See [`Request::Process`].
    Process {
        /// The process.
        process: ProcessRef,
        /// Whether to include its environment.
        environment: bool,
    },
    /// See [`Request::Signal`].
    Signal {
        /// The process.
        process: ProcessRef,
        /// The signal.
        signal: Signal,
    },
    /// Reads the tail of a file of this user.
    Tail {
        /// Absolute path, not sanitized.
        path: String,
        /// Offset of the last response ([`Tail::end`]), 0 at first.
        after: u64,
        /// Audience of the content.
        audience: Audience,
    },
    /// Captures what processes of this user do.
    Capture(CaptureRequest),
}

/// Audience on whose behalf a log is read with the owner's permissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Audience {
    /// The owner: any file that they can read.
    Owner,
    /// The holder of a share: only a file that no other user can have substituted for the job's
    /// log.
    Guest {
        /// Start time of the job, in s since 1970; a file last modified earlier is not its log.
        since_s: i64,
    },
}

/// Log streams of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogStream {
    /// `StdOut` of the batch script.
    Stdout,
    /// `StdErr`.
    Stderr,
}

/// A log that a page follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LogRef {
    /// The job.
    pub job: JobId,
    /// The stream.
    pub stream: LogStream,
}

/// New content at the end of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tail {
    /// Offset of the end of this content, in bytes; passed to the next request.
    pub end: u64,
    /// The file was truncated or replaced, so earlier content is void.
    pub restarted: bool,
    /// Number of bytes skipped before the first line.
    pub skipped: u64,
    /// Complete lines as a terminal would display them: escape sequences and overwritten text are
    /// removed.
    pub lines: Vec<LongText>,
    /// The last line if it is incomplete (a progress bar); sent again when it changes.
    pub partial: Option<LongText>,
    /// Reason why the file cannot be read (`no such file on login1 or gpu-01`), if so.
    pub error: Option<Text>,
    /// When the file was last written, in s since 1970, by the clock of its file system.
    pub written_s: Option<i64>,
}

impl Tail {
    /// Maximum number of bytes per response.
    pub const MAX_BYTES: u64 = 64 * 1024;
    /// Maximum number of lines that a page keeps.
    pub const MAX_LINES: usize = 2_000;
}

/// An action performed on behalf of the owner, with its result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AuditEntry {
    /// Time in ms since 1970 by the login node's clock.
    pub wall_ms: u64,
    /// The action: `cancel job 17`, `SIGTERM to 4711 on gpu-01`.
    pub action: Text,
    /// The result as a sentence.
    pub outcome: Text,
    /// Whether it succeeded.
    pub succeeded: bool,
}
