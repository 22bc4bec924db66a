//! Wire two: messages between relay and page; one enum per direction, identical in binary and JSON.

mod snapshot_writer;

pub use snapshot_writer::SnapshotWriter;

use crate::ask::{Answer, Ask, AuditEntry, LogRef, Tail};
use crate::cell::{Field, NamedCells, ROW_WIDTH};
use crate::detail::DetailLevel;
use crate::gpu::NvLink;
use crate::handshake::{Code, Nonce};
use crate::job::Job;
use crate::picture::{
    ApplyError, GpuHealth, GpuPicture, History, JobUsagePicture, NodeHead, NodePicture, Picture,
    ProcessPicture, RelayStatus, Touched,
};
use crate::share::{ShareId, ShareTerms, Sharing};
use crate::version::VersionRange;
use crate::{Cell, GpuField, HostField, JobField, JobId, NodeName, ProcessField, Reading, Text};
use serde::{Deserialize, Serialize};

/// Initial value of the relay's clock. It exceeds the length of any history, so that samples taken
/// before the relay started have a valid time.
pub const CLOCK_STARTS_AT_MS: u64 = 3_600_000;
/// Largest message a page may send, in bytes.
pub const MAX_CLIENT_MESSAGE: usize = 16 * 1024;
/// Maximum number of topics that a page may subscribe to.
pub const MAX_TOPICS: usize = 8;
/// Maximum number of logs that a page may follow.
pub const MAX_LOGS: usize = 4;
/// Maximum number of NVLinks per GPU; current GPUs have up to 18.
pub const MAX_LINKS: usize = 256;

/// Messages from the page.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClientMessage {
    /// First message, within 5 s.
    Hello {
        /// Versions of wire two that the page supports.
        proto: VersionRange,
        /// Identifies the key that it holds.
        key: KeyId,
        /// A fresh nonce.
        nonce: Nonce,
    },
    /// Second message: proves possession of the key.
    Proof {
        /// See [`crate::handshake`].
        code: Code,
    },
    /// Replaces the set of subscribed topics.
    Look(Vec<Topic>),
    /// Requests a new snapshot of a topic, because a delta could not be applied.
    Resync(Topic),
    /// A request, answered by [`ServerMessage::Answer`] with the same number; owner only.
    Ask {
        /// Number chosen by the page.
        number: u32,
        /// The request.
        ask: Ask,
    },
    /// Replaces the set of followed logs; owner only.
    Follow(Vec<LogRef>),
}

/// Identifies a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyId {
    /// The key of the owner, who started the relay.
    Owner,
    /// The key of a share, by its id.
    Share(ShareId),
    /// The owner's key for a single tab, by the id of the link that opened it: first the link's
    /// key, then the session key that both ends derive from it.
    Tab(ShareId),
}

/// A topic that viewers subscribe to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Topic {
    /// Jobs, relay status, audit log, and the connection state and a summary of every node.
    Overview,
    /// All details of the nodes of a job.
    Job(JobId),
    /// All details of one node.
    Node(NodeName),
}

/// Messages from the relay.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerMessage {
    /// Response to `Hello`: proves that the relay can verify the key.
    Challenge {
        /// A fresh nonce.
        nonce: Nonce,
        /// See [`crate::handshake`].
        code: Code,
    },
    /// Response to `Proof`: the page is authenticated.
    Welcome(Box<Welcome>),
    /// Complete state of a topic.
    Snapshot(Box<Snapshot>),
    /// Changes of a topic since the previous message.
    Delta(Delta),
    /// The topic does not exist or was removed.
    Gone(Topic),
    /// The viewer was too slow and missed this many deltas; a snapshot follows.
    Lagged {
        /// Number of missed deltas.
        missed: u32,
    },
    /// Last message: the reason for closing the connection.
    Bye(Farewell),
    /// Response to a request.
    Answer {
        /// Number chosen by the page.
        number: u32,
        /// The response.
        answer: Answer,
    },
    /// New content of a followed log.
    Log {
        /// The log.
        of: LogRef,
        /// The new content.
        tail: Tail,
    },
    /// Histories that exceeded the size budget of a topic's snapshot or delta.
    #[serde(rename = "pasts")]
    Histories(Histories),
}

/// Parameters of the connection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Welcome {
    /// Negotiated version of wire two.
    pub proto: u16,
    /// Build id of the relay; a page of another build offers to reload.
    pub build: Text,
    /// Random number of this run of the relay; when it changes, all cached state is invalid.
    pub epoch: u32,
    /// The relay's clock now, in ms; it read [`CLOCK_STARTS_AT_MS`] when the relay started.
    pub at_ms: u64,
    /// The same moment in ms since 1970, by the login node's clock.
    pub wall_ms: u64,
    /// Login name of the owner.
    pub user: Text,
    /// Host name of the relay.
    pub host: Text,
    /// SLURM cluster name, if configured.
    pub cluster: Option<Text>,
    /// Operating mode of the relay.
    pub mode: Mode,
    /// Role of the viewer.
    pub role: Role,
    /// Whether actions (signals, job control) are permitted: for the owner, unless the relay is
    /// read-only.
    pub may_act: bool,
    /// The `ssh -L` command that re-establishes the tunnel.
    pub tunnel: Text,
    /// Terms of the share, for guests.
    pub share: Option<Box<ShareTerms>>,
}

/// Operating mode of a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Monitors the jobs of a SLURM user.
    Slurm,
    /// Monitors this machine only, without SLURM.
    Local,
    /// Simulates a scripted cluster.
    Demo,
}

/// What a viewer may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Unrestricted.
    Owner,
    /// Read-only.
    Guest,
}

/// Reason for closing a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Farewell {
    /// Wrong key or invalid proof.
    Refused,
    /// No version in common.
    Version {
        /// Versions that the relay supports.
        relay: VersionRange,
    },
    /// The page sent an invalid message.
    Unreadable,
    /// The page read nothing for 30 s.
    TooSlow,
    /// The relay is shutting down.
    ShuttingDown,
    /// The owner's key is valid, but according to the kernel the peer is another user.
    NotTheOwner {
        /// Login name of the peer, if known.
        user: Option<Text>,
    },
    /// The share is restricted to another user.
    NotForYou {
        /// The permitted user.
        to: Text,
    },
    /// The owner revoked the share.
    Revoked,
    /// The share expired, or its jobs ended.
    Expired,
    /// The owner's key is valid, but the connection comes from a proxy that did not authenticate
    /// the owner.
    NotByProxy {
        /// Whether it authenticated another user; otherwise it does not report users.
        other_user: bool,
    },
}

/// Complete state of a topic.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The topic.
    pub topic: Topic,
    /// Identifies the topic in deltas of this connection.
    pub number: u32,
    /// Sequence number of the last delta included.
    pub seq: u32,
    /// Unrestricted.
    pub picture: Picture,
}

/// Changes of a topic. Idempotent: decoded values are absolute.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Delta {
    /// The topic's number.
    pub topic: u32,
    /// Sequence number, one more than the previous (wrapping); a gap means that deltas were missed.
    pub seq: u32,
    /// Time since the topic's last delta or the snapshot's `at_ms`, by the relay's clock.
    pub elapsed_ms: u32,
    /// The changes, in order.
    pub changes: Vec<Change>,
}

/// Complete histories of some nodes of a topic. They change nothing else, have no sequence number
/// and may be interleaved with deltas.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Histories {
    /// The topic's number.
    pub topic: u32,
    /// Histories by node position.
    pub nodes: Vec<(u32, History)>,
}

/// One change. `node` is a position in [`Picture::nodes`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// Changed cells, or nodes sampled without change.
    #[serde(rename = "vitals")]
    Readings(Readings),
    /// The relay's status.
    Relay(RelayStatus),
    /// The whole job list.
    Jobs(Vec<Job>),
    /// The whole audit log.
    #[serde(rename = "deeds")]
    AuditLog(Vec<AuditEntry>),
    /// The names of all nodes in their new order; existing nodes keep their state.
    Nodes(Vec<NodeName>),
    /// Connection state or facts of a node.
    Head {
        /// Position of the node.
        node: u32,
        /// Connection state and facts.
        head: Box<NodeHead>,
    },
    /// A node's GPUs, with their current cells.
    Gpus {
        /// Position of the node.
        node: u32,
        /// All of them.
        gpus: Vec<GpuPicture>,
    },
    /// Changed health of a node's GPUs.
    Health {
        /// Position of the node.
        node: u32,
        /// One entry per GPU whose health or link rates changed.
        changed: Vec<HealthChange>,
    },
    /// A node's processes, with their current cells.
    Processes {
        /// Position of the node.
        node: u32,
        /// All of them.
        processes: Vec<ProcessPicture>,
    },
    /// Resource usage of all jobs on a node, with their current cells.
    #[serde(rename = "uses")]
    JobUsage {
        /// Position of the node.
        node: u32,
        /// All of them.
        #[serde(rename = "uses")]
        job_usage: Vec<JobUsagePicture>,
    },
    /// Utilization of each of a node's CPUs in %.
    Cores {
        /// Position of the node.
        node: u32,
        /// All of them.
        cores: Vec<u8>,
    },
    /// Complete history of a node, after back-fill.
    #[serde(rename = "past")]
    History {
        /// Position of the node.
        node: u32,
        /// The history.
        #[serde(rename = "past")]
        history: Option<History>,
    },
    /// Active shares and connected viewers; owner only.
    Sharing(Sharing),
}

/// Changed health of one GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HealthChange {
    /// Position of the GPU.
    pub gpu: u32,
    /// Health without links, if it changed; the list of links is empty here.
    pub card: Option<Box<GpuHealth>>,
    /// Number of links, if it changed; new links are included in `links`.
    pub link_count: Option<u32>,
    /// Links with changes other than their rates, by position.
    pub links: Vec<(u32, NvLink)>,
    /// Rates of otherwise unchanged links, by position: received and sent, in MiB/s.
    pub rates: Vec<(u32, Reading<u64>, Reading<u64>)>,
}

impl HealthChange {
    /// Computes the changes from `old` to `new` at a level of detail; `None` if there are none.
    pub fn between(gpu: u32, old: &GpuHealth, new: &GpuHealth, detail: DetailLevel) -> Option<Self> {
        let mut change = Self { gpu, ..Self::default() };
        let card = new.without_links();
        if old.without_links() != card {
            change.card = Some(Box::new(card));
        }
        let count = |health: &GpuHealth| health.nvlinks.len().min(MAX_LINKS);
        if count(old) != count(new) {
            change.link_count = u32::try_from(count(new)).ok();
        }
        let rates = |link: &NvLink| (detail.rate(&link.rx_mib_s), detail.rate(&link.tx_mib_s));
        for (position, link) in (0..).zip(&new.nvlinks).take(MAX_LINKS) {
            match old.nvlinks.get(position as usize) {
                Some(known) if known.equals_except_rates(link) => {
                    let (rx, tx) = rates(link);
                    if rates(known) != (rx.clone(), tx.clone()) {
                        change.rates.push((position, rx, tx));
                    }
                }
                _ => change.links.push((position, detail.link(link))),
            }
        }
        (change != Self { gpu, ..Self::default() }).then_some(change)
    }

    /// Applies the change.
    pub(crate) fn apply(&self, health: &mut GpuHealth) -> Result<(), ApplyError> {
        if let Some(card) = &self.card {
            *health = GpuHealth { nvlinks: std::mem::take(&mut health.nvlinks), ..(**card).clone() };
        }
        if let Some(count) = self.link_count {
            // Bounds the allocation: no GPU has more links.
            let count = usize::try_from(count).ok().filter(|count| *count <= MAX_LINKS);
            health.nvlinks.resize(count.ok_or(ApplyError::Broken)?, NvLink::default());
        }
        let links = &mut health.nvlinks;
        for (position, link) in &self.links {
            links.get_mut(*position as usize).ok_or(ApplyError::Unknown("a link"))?.clone_from(link);
        }
        for (position, rx, tx) in &self.rates {
            let link = links.get_mut(*position as usize).ok_or(ApplyError::Unknown("a link"))?;
            (link.rx_mib_s, link.tx_mib_s) = (rx.clone(), tx.clone());
        }
        Ok(())
    }
}

/// Changed cells.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Readings {
    /// Entropy-coded differences, see [`crate::packed`]; binary form.
    Packed(Vec<u8>),
    /// Absolute values; JSON form.
    Plain(Vec<NodeReadings>),
}

/// Changed cells of one node, absolute.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeReadings {
    /// Position of the node.
    pub node: u32,
    /// Age of the sample at the delta's time, in ms.
    pub age_ms: u32,
    /// The rows that changed.
    pub rows: Vec<RowReadings>,
}

/// Changed cells of one row, absolute, by field name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RowReadings {
    /// Of a GPU.
    Gpu {
        /// Position of the GPU.
        gpu: u32,
        /// The changed cells.
        cells: NamedCells<GpuField>,
    },
    /// Of the host.
    Host {
        /// The changed cells.
        cells: NamedCells<HostField>,
    },
    /// Of a process.
    Process {
        /// Position of the process.
        process: u32,
        /// The changed cells.
        cells: NamedCells<ProcessField>,
    },
    /// Of a job's resource usage.
    #[serde(rename = "use")]
    JobUsage {
        /// Position in the node's job usage.
        usage: u32,
        /// The changed cells.
        cells: NamedCells<JobField>,
    },
}

impl RowReadings {
    /// Creates the change of the row at `index` of a node from a mask of changed fields.
    pub(crate) fn of(index: usize, node: &NodePicture, mask: u64, cells: &[Cell; ROW_WIDTH]) -> Self {
        fn named<F: Field>(mask: u64, cells: &[Cell; ROW_WIDTH]) -> NamedCells<F> {
            let changed = F::ALL.iter().filter(|field| mask >> field.index() & 1 == 1);
            NamedCells(changed.map(|field| (*field, cells[field.index()])).collect())
        }
        let (gpus, processes) = (node.gpus.len(), node.processes.len());
        match index {
            i if i < gpus => Self::Gpu { gpu: i as u32, cells: named(mask, cells) },
            i if i == gpus => Self::Host { cells: named(mask, cells) },
            i if i <= gpus + processes => {
                Self::Process { process: (i - gpus - 1) as u32, cells: named(mask, cells) }
            }
            i => Self::JobUsage { usage: (i - gpus - processes - 1) as u32, cells: named(mask, cells) },
        }
    }

    /// Applies the change and returns the position of the row.
    fn apply(&self, node: &mut NodePicture) -> Result<usize, ApplyError> {
        let gpus = node.gpus.len();
        Ok(match self {
            Self::Gpu { gpu, cells } => {
                cells.apply(&mut node.gpus.get_mut(*gpu as usize).ok_or(ApplyError::Unknown("a GPU"))?.row);
                *gpu as usize
            }
            Self::Host { cells } => {
                cells.apply(&mut node.host);
                gpus
            }
            Self::Process { process, cells } => {
                let known = node.processes.get_mut(*process as usize);
                cells.apply(&mut known.ok_or(ApplyError::Unknown("a process"))?.row);
                gpus + 1 + *process as usize
            }
            Self::JobUsage { usage, cells } => {
                let known = node.job_usage.get_mut(*usage as usize);
                cells.apply(&mut known.ok_or(ApplyError::Unknown("what a job uses"))?.row);
                gpus + 1 + node.processes.len() + *usage as usize
            }
        })
    }
}

impl NodeReadings {
    pub(crate) fn apply(
        &self,
        picture: &mut Picture,
        touched: &mut impl FnMut(Touched),
    ) -> Result<(), ApplyError> {
        let at_ms = picture.at_ms.saturating_sub(u64::from(self.age_ms));
        let node = picture.node_mut(self.node)?;
        for row in &self.rows {
            touched(Touched::Row(self.node as usize, row.apply(node)?));
        }
        node.sampled(at_ms);
        touched(Touched::Sampled(self.node as usize));
        Ok(())
    }
}
