//! Events: the only inputs of the fleet.

use crate::NoteChange;
use nodeglass_findings::job_log::JobLogs;
use nodeglass_protocol::capture::FindingCapture;
use nodeglass_protocol::cluster::ClusterSummary;
use nodeglass_protocol::finding::Silence;
use nodeglass_protocol::job::Job;
use nodeglass_protocol::picture::LauncherStatus;
use nodeglass_protocol::probe::delta::ParsedLine;
use nodeglass_protocol::probe::{ProbeLine, SpoolNotes};
use nodeglass_protocol::replay::ReplayStatus;
use nodeglass_protocol::request::AuditEntry;
use nodeglass_protocol::share::Sharing;
use nodeglass_protocol::{JobId, NodeName, Text};
use nodeglass_report::JobRecord;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// State that outlives the relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StoredPart {
    /// The history.
    History,
    /// Jobs, notes and the audit log.
    Jobs,
    /// Those in a file that was damaged.
    DamagedJobs,
    /// The owner's tokens.
    Tokens,
    /// Shares.
    Shares,
    /// Silences of findings.
    Silences,
    /// The recording.
    Recording,
    /// The remote storage.
    RemoteWrite,
}

/// A limit of the relay itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Limit {
    /// CPU time.
    Cpu,
    /// Memory.
    Memory,
    /// Number of watched nodes.
    Nodes,
    /// The name of the cluster on NATS, which only one can have.
    ClusterName,
    /// The connection to NATS.
    Nats,
    /// The permissions of the credentials for NATS.
    NatsPermissions,
    /// The leases of nodes over NATS.
    Leases,
    /// Number of ended jobs in the list.
    EndedJobs,
}

/// An event for the fleet.
#[derive(Clone, Debug)]
pub enum Event {
    /// A job list.
    Jobs {
        /// All jobs in SLURM's list.
        jobs: Vec<Job>,
        /// Difference between the login node's clock, in ms since 1970, and the relay's. Measured when the list was
        /// read, because it is handled later.
        wall_ahead_ms: i64,
    },
    /// An action of the owner.
    Audit(AuditEntry),
    /// Shares or visitors changed.
    Sharing(Sharing),
    /// The poll failed.
    JobsFailed {
        /// The reason, a complete sentence.
        why: Text,
        /// When it is polled again, by the relay's clock.
        retry_at_ms: u64,
    },
    /// The machine has no SLURM: only listed hosts are watched.
    NoSlurm,
    /// The list of hosts that are watched whether or not a job runs there.
    Hosts {
        /// All of them.
        hosts: BTreeMap<NodeName, Host>,
        /// Problems of the list, for the owner; complete sentences.
        notices: Vec<Text>,
    },
    /// An event of a node's session.
    Node(NodeName, SessionEvent),
    /// An event of the session of a probe in one job on a node.
    JobProbe(NodeName, JobId, SessionEvent),
    /// Records that an earlier run of the relay stored about jobs that had not ended.
    Restored(Vec<JobRecord>),
    /// Content of the logs of the owner's jobs.
    JobLogs(JobLogs),
    /// The silences of findings.
    Silences(Vec<Silence>),
    /// The owner added, changed or deleted a note.
    Note(NoteChange),
    /// Notes that earlier runs of relays stored, or another relay that uses the same state directory.
    RestoredNotes(Vec<NoteChange>),
    /// State of a job's processes when a finding began.
    Capture {
        /// [`nodeglass_protocol::finding::Finding::key`].
        key: Text,
        /// The capture.
        capture: Box<FindingCapture>,
    },
    /// The relay itself did not run for some time, as on a login node that is overloaded: no line could be read.
    Stalled {
        /// For how long, in ms.
        ms: u64,
    },
    /// A second passed.
    Tick,
    /// The nodes of the cluster were queried.
    Cluster(ClusterSummary),
    /// Names of the clusters that were found over NATS, sorted.
    Clusters(Vec<Text>),
    /// The launcher of probes, and the reason for it.
    Launcher(LauncherStatus),
    /// Something that outlives the relay cannot be used, with the reason as a complete sentence, or can be again.
    Storage(StoredPart, Option<Text>),
    /// The relay reached a limit, with what it does about it as a complete sentence, or is below it again.
    Limited(Limit, Option<Text>),
    /// The recording that is played started, stopped, or continues elsewhere.
    Replay(ReplayStatus),
    /// The relay's own status.
    Status {
        /// Connected pages.
        viewers: u32,
        /// CPU time used, in ms.
        cpu_ms: u64,
        /// Deltas that lagging subscribers missed.
        coalesced: u64,
    },
}

/// A listed host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// Its group, if it has one.
    pub group: Option<Text>,
    /// Identifies how it is reached.
    pub target: u64,
}

/// Events of a session for the fleet.
#[derive(Clone, Debug, PartialEq)]
pub enum SessionEvent {
    /// A probe is being started.
    Connecting {
        /// Failed attempts before this one.
        failures: u32,
    },
    /// A line was received.
    Line(Box<ParsedLine>),
    /// Unreadable lines were skipped.
    Lost {
        /// Number since the link was established.
        lines: u64,
        /// The beginning of one of them.
        sample: Text,
    },
    /// Output of a login shell before the probe's first line, which was skipped.
    Noise(Text),
    /// The link is down and will be retried.
    Down {
        /// The cause, a complete sentence.
        why: Text,
        /// When it is retried, by the relay's clock.
        retry_at_ms: u64,
    },
    /// The link is down until the user acts.
    Refused {
        /// Extent of the cause.
        cause: RefusalCause,
        /// The cause, a complete sentence.
        why: Text,
        /// Remedy, a complete sentence.
        advice: Text,
    },
    /// The link is down and not retried: the user's jobs on the node are completing.
    Ending,
}

/// Extent of the cause of a refusal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalCause {
    /// This node alone: its host key, the account there, or its probe.
    #[default]
    Node,
    /// The user's keys or ticket, which other nodes refuse as well.
    Login,
    /// As [`Self::Login`], of other nodes: this one was not tried.
    OtherNodes,
}

impl SessionEvent {
    /// The notes that jobs wrote on the node, if it has some.
    pub(super) fn spool_notes(&self) -> Option<&SpoolNotes> {
        match self {
            Self::Line(line) => match &**line {
                ProbeLine::Notes(notes) => Some(notes),
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns whether it lists the processes on the GPUs.
    pub(super) fn lists_processes(&self) -> bool {
        matches!(self, Self::Line(line) if matches!(**line, ProbeLine::Processes(_)))
    }

    /// Returns whether no earlier probe of the session is connected any more.
    pub(super) fn ends_probe(&self) -> bool {
        match self {
            Self::Connecting { .. } | Self::Down { .. } | Self::Refused { .. } | Self::Ending => true,
            Self::Line(_) | Self::Lost { .. } | Self::Noise(_) => false,
        }
    }
}
