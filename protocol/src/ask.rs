//! What is asked and done once: details of a process, signals, orders to SLURM, the tail of a log.

use crate::process::ProcessDetail;
use crate::share::{ShareId, ShareLink, ShareRequest};
use crate::{JobId, LongText, NodeName, Text};
use serde::{Deserialize, Serialize};

/// A process, so that another one that got its pid is not meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProcessRef {
    /// Pid on the node.
    pub pid: u32,
    /// [`crate::process::ProcessFacts::started_ms`].
    pub started_ms: u64,
}

/// What a page may ask for; owner only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Ask {
    /// Everything about a process.
    Process {
        /// Its node.
        node: NodeName,
        /// The process.
        process: ProcessRef,
        /// Whether its environment is wanted too.
        environment: bool,
    },
    /// Send a signal to a process: an action.
    Signal {
        /// Its node.
        node: NodeName,
        /// The process.
        process: ProcessRef,
        /// Which one.
        signal: Signal,
    },
    /// Give an order about a job to SLURM: an action.
    Job {
        /// The job.
        job: JobId,
        /// What to do.
        order: JobOrder,
    },
    /// Make a share.
    Share(Box<ShareRequest>),
    /// The link of a share once more.
    ShareLink(ShareId),
    /// Take a share back: whoever looks through it is sent away at once.
    Revoke(ShareId),
    /// Try something again now that waits for its time or for the user.
    Retry(RetryTarget),
}

/// What is tried again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RetryTarget {
    /// The link to this node.
    Node(NodeName),
    /// The question for the job list.
    Jobs,
    /// The links to all nodes that wait, and the job list.
    Everything,
}

impl Ask {
    /// Whether it changes something on the cluster: such are refused by a read-only relay.
    pub fn is_action(&self) -> bool {
        matches!(self, Self::Signal { .. } | Self::Job { .. })
    }
}

/// A signal that a page may have sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Signal {
    /// `SIGINT`: as Ctrl-C does.
    Interrupt,
    /// `SIGTERM`: please end.
    Terminate,
    /// `SIGKILL`: end now.
    Kill,
}

impl Signal {
    /// Its name in the system's manual.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Interrupt => "SIGINT",
            Self::Terminate => "SIGTERM",
            Self::Kill => "SIGKILL",
        }
    }
}

/// What SLURM can be told to do with a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobOrder {
    /// `scancel`.
    Cancel,
    /// `scontrol hold`: a pending job waits until it is released.
    Hold,
    /// `scontrol release`.
    Release,
    /// `scontrol requeue`: start again from the beginning.
    Requeue,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// What was asked for.
    Process(Box<ProcessDetail>),
    /// It was done; one sentence.
    Done(Text),
    /// It was not; one sentence why.
    Refused(Text),
    /// The end of a file, from a probe only.
    Tail(Tail),
    /// A share and its link.
    Share(Box<ShareLink>),
}

/// What a relay asks a probe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProbeAsk {
    /// See [`Ask::Process`].
    Process {
        /// The process.
        process: ProcessRef,
        /// Whether its environment is wanted too.
        environment: bool,
    },
    /// See [`Ask::Signal`].
    Signal {
        /// The process.
        process: ProcessRef,
        /// Which one.
        signal: Signal,
    },
    /// The end of a file of this user's.
    Tail {
        /// Its absolute path, as it is: not cleaned.
        path: String,
        /// Where the last answer ended ([`Tail::end`]), 0 at first.
        after: u64,
        /// Who reads it in the end.
        audience: Audience,
    },
}

/// For whom the owner's rights are used to read a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Audience {
    /// The owner: whatever their rights allow.
    Owner,
    /// The holder of a share: only a file that nobody else can have put in the place of the job's log.
    Guest {
        /// When the job started, in s since 1970; a file that was last written before is not its log.
        since_s: i64,
    },
}

/// One of a job's two logs.
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
    /// Which of its logs.
    pub stream: LogStream,
}

/// What came to the end of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tail {
    /// Where this ends in the file, in bytes: what the next question names.
    pub end: u64,
    /// The file was shorter than before, or is another one: forget what was there.
    pub restarted: bool,
    /// Bytes of the file before the first line that are not told.
    pub skipped: u64,
    /// Whole lines; colours and other escapes are gone, and of a line that was written over only what was seen last.
    pub lines: Vec<LongText>,
    /// The last line if it has no end yet (a progress bar); it is told again when it changes.
    pub partial: Option<LongText>,
    /// Why nothing can be told (`no such file on login1 or gpu-01`), if so.
    pub trouble: Option<Text>,
}

impl Tail {
    /// At most this many bytes at the end of a file are told at once.
    pub const MAX_BYTES: u64 = 64 * 1024;
    /// A page keeps this many lines.
    pub const MAX_LINES: usize = 2_000;
}

/// Something that was done for the owner, and what came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    /// When, in ms since 1970 by the login node's clock.
    pub wall_ms: u64,
    /// What: `cancel job 17`, `SIGTERM to 4711 on gpu-01`.
    pub what: Text,
    /// What came of it, one sentence.
    pub outcome: Text,
    /// Whether it was done.
    pub done: bool,
}
