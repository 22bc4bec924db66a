//! Wire two: what relay and page say to each other; one enum a direction, the same in binary and in JSON.

mod written;

pub use written::WrittenSnapshot;

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

/// What the relay's clock reads when the relay starts. Not zero, so that what a node sampled before that
/// has its place in the past; longer than any past that is kept.
pub const CLOCK_STARTS_AT_MS: u64 = 3_600_000;
/// Largest message a page may send, in bytes.
pub const MAX_CLIENT_MESSAGE: usize = 16 * 1024;
/// How many topics a page may look at.
pub const MAX_TOPICS: usize = 8;
/// How many logs a page may follow.
pub const MAX_LOGS: usize = 4;
/// How many NVLinks of a GPU are told; the largest have 18.
pub const MAX_LINKS: usize = 256;

/// From the page.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClientMessage {
    /// First message, within 5 s.
    Hello {
        /// Versions of wire two that the page speaks.
        proto: VersionRange,
        /// Whose key it holds.
        key: KeyId,
        /// A fresh random number.
        nonce: Nonce,
    },
    /// Second message: it does hold the key.
    Proof {
        /// See [`crate::handshake`].
        code: Code,
    },
    /// What it looks at from now on; topics left out are no longer sent.
    Look(Vec<Topic>),
    /// A delta did not fit: send the topic's snapshot again.
    Resync(Topic),
    /// A question or an action, answered by [`ServerMessage::Answer`] of the same number; owner only.
    Ask {
        /// The page's number of it.
        number: u32,
        /// What is asked.
        ask: Ask,
    },
    /// The logs it follows from now on; those left out are no longer sent; owner only.
    Follow(Vec<LogRef>),
}

/// Whose key it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyId {
    /// The owner's: whoever started the relay.
    Owner,
    /// A share's, by its id.
    Share(ShareId),
    /// The owner's for a single tab, by the id of the link that opened it: that link's key at first, then
    /// the session key that both ends derive from it.
    Tab(ShareId),
}

/// Something a viewer can look at.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Topic {
    /// Jobs, the relay, deeds, and of every node its link and a glance at each GPU and the host.
    Overview,
    /// Everything of the nodes of a job.
    Job(JobId),
    /// Everything of one node.
    Node(NodeName),
}

/// From the relay.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerMessage {
    /// Answer to `Hello`: the relay holds the key.
    Challenge {
        /// A fresh random number.
        nonce: Nonce,
        /// See [`crate::handshake`].
        code: Code,
    },
    /// Answer to `Proof`: come in.
    Welcome(Box<Welcome>),
    /// A topic as a whole; replaces what was known of it.
    Snapshot(Box<Snapshot>),
    /// A topic's next change.
    Delta(Delta),
    /// The topic does not exist (any more).
    Gone(Topic),
    /// The viewer was too slow and missed this many deltas; a snapshot follows.
    Lagged {
        /// How many.
        missed: u32,
    },
    /// Last message: why the relay closes.
    Bye(Farewell),
    /// What came of a question.
    Answer {
        /// The page's number of it.
        number: u32,
        /// What came of it.
        answer: Answer,
    },
    /// More of a log that the page follows.
    Log {
        /// The log.
        of: LogRef,
        /// What came to its end.
        tail: Tail,
    },
    /// Pasts that had no room in a topic's snapshot or delta.
    #[serde(rename = "pasts")]
    Histories(Histories),
}

/// What holds for the whole connection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Welcome {
    /// Version of wire two from now on.
    pub proto: u16,
    /// Build id of the relay; a page of another build offers to reload.
    pub build: Text,
    /// Random number of this run of the relay; a new one means: forget everything.
    pub epoch: u32,
    /// The relay's clock now, in ms; it read [`CLOCK_STARTS_AT_MS`] when the relay started.
    pub at_ms: u64,
    /// The same moment in ms since 1970, by the login node's clock.
    pub wall_ms: u64,
    /// Who started the relay.
    pub user: Text,
    /// Where it runs.
    pub host: Text,
    /// Name of the cluster, if SLURM has one.
    pub cluster: Option<Text>,
    /// What it watches.
    pub mode: Mode,
    /// What the viewer may do.
    pub role: Role,
    /// Whether it may act (signals, orders to SLURM): an owner, unless the relay is read-only.
    pub may_act: bool,
    /// How to reach the relay when the tunnel is down: the `ssh -L` line.
    pub tunnel: Text,
    /// What holds for a guest.
    pub share: Option<Box<ShareTerms>>,
}

/// What a relay watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Jobs of a SLURM user.
    Slurm,
    /// Only this machine: no SLURM here.
    Local,
    /// A scripted cluster.
    Demo,
}

/// What a viewer may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Everything.
    Owner,
    /// Look.
    Guest,
}

/// Why the relay closes a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Farewell {
    /// The key is not the right one, or the proof was wrong.
    Refused,
    /// No version in common.
    Version {
        /// What the relay speaks.
        relay: VersionRange,
    },
    /// The page sent something that is no message.
    Unreadable,
    /// The page did not read for 30 s.
    TooSlow,
    /// The relay ends.
    ShuttingDown,
    /// The owner's key is right, but this connection is not the owner's, as the kernel says.
    NotTheOwner {
        /// Whose it is, as far as that is known.
        user: Option<Text>,
    },
    /// The share is for somebody else.
    NotForYou {
        /// For whom.
        to: Text,
    },
    /// The owner revoked the share.
    Revoked,
    /// The share's time is over, or its job's.
    Expired,
    /// The owner's key is right, but it came through a proxy that did not name the owner as its visitor.
    NotByProxy {
        /// Whether it named somebody else; otherwise it does not say who its visitors are.
        other_user: bool,
    },
}

/// A topic as a whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The topic.
    pub topic: Topic,
    /// Its number in deltas, for as long as the connection lasts.
    pub number: u32,
    /// Number of the last delta this contains.
    pub seq: u32,
    /// Everything.
    pub picture: Picture,
}

/// The next change of a topic. Idempotent: values are absolute once decoded against the picture.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Delta {
    /// The topic's number.
    pub topic: u32,
    /// One more than the last one's (wrapping); otherwise something was missed.
    pub seq: u32,
    /// Time since the topic's last delta or the snapshot's `at_ms`, by the relay's clock.
    pub elapsed_ms: u32,
    /// What changed, in this order.
    pub changes: Vec<Change>,
}

/// The pasts of some nodes of a topic, each replaced as a whole. They change nothing else, and have no number: what is
/// told of a topic goes on between them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Histories {
    /// The topic's number.
    pub topic: u32,
    /// By the positions of their nodes.
    pub nodes: Vec<(u32, History)>,
}

/// One change. `node` is a position in [`Picture::nodes`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// Cells changed, or nodes were sampled without change.
    #[serde(rename = "vitals")]
    Readings(Readings),
    /// The relay's status.
    Relay(RelayStatus),
    /// The whole job list.
    Jobs(Vec<Job>),
    /// What was done for the owner: all of it.
    #[serde(rename = "deeds")]
    AuditLog(Vec<AuditEntry>),
    /// The names of all nodes in their new order; known ones keep what is known of them.
    Nodes(Vec<NodeName>),
    /// A node's link or facts.
    Head {
        /// Position of the node.
        node: u32,
        /// Link and facts.
        head: Box<NodeHead>,
    },
    /// A node's GPUs, with their current cells.
    Gpus {
        /// Position of the node.
        node: u32,
        /// All of them.
        gpus: Vec<GpuPicture>,
    },
    /// What changed in the health of a node's GPUs.
    Health {
        /// Position of the node.
        node: u32,
        /// Of each GPU that is not as well, or as busy on its links, as it was.
        changed: Vec<HealthChange>,
    },
    /// A node's processes, with their current cells.
    Processes {
        /// Position of the node.
        node: u32,
        /// All of them.
        processes: Vec<ProcessPicture>,
    },
    /// What each job uses of a node, with its current cells.
    #[serde(rename = "uses")]
    JobUsage {
        /// Position of the node.
        node: u32,
        /// All of them.
        #[serde(rename = "uses")]
        job_usage: Vec<JobUsagePicture>,
    },
    /// Busy share of each of a node's CPUs in %.
    Cores {
        /// Position of the node.
        node: u32,
        /// All of them.
        cores: Vec<u8>,
    },
    /// A node's past as a whole, after back-fill.
    #[serde(rename = "past")]
    History {
        /// Position of the node.
        node: u32,
        /// All of it.
        #[serde(rename = "past")]
        history: Option<History>,
    },
    /// Who may look, and who does: all of it; owner only.
    Sharing(Sharing),
}

/// What changed in the health of one GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HealthChange {
    /// Position of the GPU.
    pub gpu: u32,
    /// All but its links, if that changed; their list is empty here.
    pub card: Option<Box<GpuHealth>>,
    /// How many links it has, if that changed; new ones are told as a whole.
    pub link_count: Option<u32>,
    /// Links that changed in more than their rates, by their positions.
    pub links: Vec<(u32, NvLink)>,
    /// Rates of links of which nothing else changed, by their positions: received and sent, in MiB/s.
    pub rates: Vec<(u32, Reading<u64>, Reading<u64>)>,
}

impl HealthChange {
    /// What changed from `old` to `new`, as a topic of this detail tells it; `None` when nothing did.
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
                Some(known) if known.is_as(link) => {
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

    /// Enters the change.
    pub(crate) fn apply(&self, health: &mut GpuHealth) -> Result<(), ApplyError> {
        if let Some(card) = &self.card {
            *health = GpuHealth { nvlinks: std::mem::take(&mut health.nvlinks), ..(**card).clone() };
        }
        if let Some(count) = self.link_count {
            // No card has more; a number from elsewhere must not become memory.
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
    /// Positional differences, see [`crate::packed`]: the binary form.
    Packed(Vec<u8>),
    /// Absolute values: the JSON form.
    Plain(Vec<NodeReadings>),
}

/// Changed cells of one node, absolute.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeReadings {
    /// Position of the node.
    pub node: u32,
    /// How long before the delta's moment the sample was taken, in ms.
    pub age_ms: u32,
    /// The rows that changed.
    pub rows: Vec<RowReadings>,
}

/// Changed cells of one row, absolute, by the names of their fields.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RowReadings {
    /// Of a GPU.
    Gpu {
        /// Position of the GPU.
        gpu: u32,
        /// What changed.
        cells: NamedCells<GpuField>,
    },
    /// Of the host.
    Host {
        /// What changed.
        cells: NamedCells<HostField>,
    },
    /// Of a process.
    Process {
        /// Position of the process.
        process: u32,
        /// What changed.
        cells: NamedCells<ProcessField>,
    },
    /// Of what a job uses.
    #[serde(rename = "use")]
    JobUsage {
        /// Position among the node's uses.
        usage: u32,
        /// What changed.
        cells: NamedCells<JobField>,
    },
}

impl RowReadings {
    /// The change of the row at `index` of a node, given the changed fields as a mask.
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

    /// Enters the change; returns the position of the row.
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
