//! A topic tells everything of its nodes, or a glance at each of their GPUs.

use crate::cell::{Field, Row};
use crate::live::Topic;
use crate::picture::{GpuHealth, GpuPicture, NodePicture, Past};
use crate::{GpuField, HostField};

/// How much of its nodes a topic tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Of each GPU [`Detail::GPU_GLANCE`] and the past of its utilisation, of the host
    /// [`Detail::HOST_GLANCE`]; no processes, no health.
    Glance,
    /// Everything but the host's CPUs one by one.
    Full,
    /// Everything.
    Close,
}

impl Detail {
    /// The fields of a GPU that a glance tells: those of a row in an overview.
    pub const GPU_GLANCE: [GpuField; 8] = [
        GpuField::Util,
        GpuField::Power,
        GpuField::Temp,
        GpuField::MemUsed,
        GpuField::Throttle,
        GpuField::PowerLimit,
        GpuField::MemTotal,
        GpuField::SmActive,
    ];
    /// The fields of a host that a glance tells.
    pub const HOST_GLANCE: [HostField; 3] = [HostField::Cpu, HostField::MemUsed, HostField::MemTotal];

    /// What a topic tells.
    pub fn of(topic: &Topic) -> Self {
        match topic {
            Topic::Overview => Self::Glance,
            Topic::Job(_) => Self::Full,
            Topic::Node(_) => Self::Close,
        }
    }

    /// The fields of a row that are told, as a mask.
    pub fn mask(self, row: usize, gpus: usize) -> u64 {
        fn of<F: Field>(fields: &[F]) -> u64 {
            fields.iter().fold(0, |mask, field| mask | 1 << field.index())
        }
        match self {
            Self::Full | Self::Close => u64::MAX,
            Self::Glance if row < gpus => of(&Self::GPU_GLANCE),
            Self::Glance if row == gpus => of(&Self::HOST_GLANCE),
            Self::Glance => 0,
        }
    }

    /// A node as a topic of this detail tells it.
    pub fn view(self, node: &NodePicture) -> NodePicture {
        if self != Self::Glance {
            let cores = if self == Self::Close { node.cores.clone() } else { Vec::new() };
            return NodePicture { cores, ..node.clone() };
        }
        NodePicture {
            name: node.name.clone(),
            head: node.head.clone(),
            sampled_at_ms: node.sampled_at_ms,
            gpus: self.gpus(&node.gpus),
            host: glance(&node.host, &Self::HOST_GLANCE),
            processes: Vec::new(),
            uses: Vec::new(),
            cores: Vec::new(),
            past: self.past(node.past.as_ref()),
        }
    }

    /// GPUs as a topic of this detail tells them.
    pub fn gpus(self, gpus: &[GpuPicture]) -> Vec<GpuPicture> {
        let at_a_glance = |gpu: &GpuPicture| GpuPicture {
            facts: gpu.facts.glance(),
            owners: gpu.owners.clone(),
            fault: gpu.fault.clone(),
            health: GpuHealth::default(),
            row: glance(&gpu.row, &Self::GPU_GLANCE),
        };
        if self == Self::Glance { gpus.iter().map(at_a_glance).collect() } else { gpus.to_vec() }
    }

    /// A past as a topic of this detail tells it.
    pub fn past(self, past: Option<&Past>) -> Option<Past> {
        if self == Self::Glance { past.map(Past::at_a_glance) } else { past.cloned() }
    }
}

/// Some cells of a row.
fn glance<F: Field>(row: &Row<F>, fields: &[F]) -> Row<F> {
    let mut glance = Row::default();
    fields.iter().for_each(|field| glance.set(*field, row.get(*field)));
    glance
}
