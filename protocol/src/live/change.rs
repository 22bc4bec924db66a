//! Changes of a picture, as deltas carry them.

use super::detail::{DetailLevel, MAX_LINKS};
use crate::field::{Cell, Field, NamedCells, ROW_WIDTH};
use crate::finding::Finding;
use crate::gpu::NvLink;
use crate::insight::JobInsight;
use crate::job::Job;
use crate::note::{Note, NoteId};
use crate::picture::{
    ApplyError, ChangedPart, GpuHealth, GpuPicture, History, JobUsagePicture, NodeHead, NodePicture, Picture,
    ProcessPicture, RelayStatus,
};
use crate::request::AuditEntry;
use crate::share::Sharing;
use crate::{GpuField, HostField, JobField, NodeName, ProcessField, Reading, Text};
use serde::{Deserialize, Serialize};

/// One change. `node` is a position in [`Picture::nodes`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// Changed cells, or nodes sampled without change.
    Readings(Readings),
    /// The relay's status.
    Relay(Box<RelayStatus>),
    /// The whole job list.
    Jobs(Vec<Job>),
    /// The whole audit log.
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
    JobUsage {
        /// Position of the node.
        node: u32,
        /// All of them.
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
    History {
        /// Position of the node.
        node: u32,
        /// The history.
        history: Option<History>,
    },
    /// Active shares and connected viewers; owner only.
    Sharing(Sharing),
    /// Changed notes.
    Notes {
        /// Notes that are no longer in the picture.
        removed: Vec<NoteId>,
        /// Notes that are new or have changed.
        changed: Vec<Note>,
    },
    /// Changed findings.
    Findings {
        /// Keys of findings that are no longer in the picture.
        removed: Vec<Text>,
        /// Findings that are new or have changed.
        changed: Vec<Finding>,
    },
    /// All that is known of running jobs besides; owner only.
    Insights(Vec<JobInsight>),
}

/// Changed health of one GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HealthChange {
    /// Position of the GPU.
    pub gpu: u32,
    /// Health without links, if it changed; the list of links is empty here.
    pub health: Option<Box<GpuHealth>>,
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
        if detail == DetailLevel::Summary {
            return Self::between_parts(gpu, &detail.health(old), &detail.health(new), detail);
        }
        Self::between_parts(gpu, old, new, detail)
    }

    /// Computes the changes between the parts that this level of detail includes; rates may still be
    /// exact.
    fn between_parts(gpu: u32, old: &GpuHealth, new: &GpuHealth, detail: DetailLevel) -> Option<Self> {
        let mut change = Self { gpu, ..Self::default() };
        let card = new.without_links();
        if old.without_links() != card {
            change.health = Some(Box::new(card));
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
        if let Some(card) = &self.health {
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
    /// Entropy-coded differences, see [`super::codec`]; binary form.
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
    /// A GPU.
    Gpu {
        /// Position of the GPU.
        gpu: u32,
        /// The changed cells.
        cells: NamedCells<GpuField>,
    },
    /// The host.
    Host {
        /// The changed cells.
        cells: NamedCells<HostField>,
    },
    /// A process.
    Process {
        /// Position of the process.
        process: u32,
        /// The changed cells.
        cells: NamedCells<ProcessField>,
    },
    /// A job's resource usage.
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
        changed: &mut impl FnMut(ChangedPart),
    ) -> Result<(), ApplyError> {
        let at_ms = picture.at_ms.saturating_sub(u64::from(self.age_ms));
        let node = picture.node_mut(self.node)?;
        for row in &self.rows {
            changed(ChangedPart::Row(self.node as usize, row.apply(node)?));
        }
        node.sampled(at_ms);
        changed(ChangedPart::Sampled(self.node as usize));
        Ok(())
    }
}
