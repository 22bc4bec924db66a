//! A topic tells everything of its nodes, or a glance at each of their GPUs.

use crate::GpuField;
use crate::cell::{Field as _, Row};
use crate::live::Topic;
use crate::picture::{GpuPicture, NodePicture};

/// How much of its nodes a topic tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Of each GPU only [`GpuField::Util`]; no processes, no past.
    Glance,
    /// Everything.
    Full,
}

impl Detail {
    /// What a topic tells.
    pub fn of(topic: &Topic) -> Self {
        match topic {
            Topic::Overview => Self::Glance,
            Topic::Job(_) | Topic::Node(_) => Self::Full,
        }
    }

    /// The fields of a row that are told, as a mask.
    pub fn mask(self, row: usize, gpus: usize) -> u64 {
        match self {
            Self::Full => u64::MAX,
            Self::Glance if row < gpus => 1 << GpuField::Util.index(),
            Self::Glance => 0,
        }
    }

    /// A node as a topic of this detail tells it.
    pub fn view(self, node: &NodePicture) -> NodePicture {
        if self == Self::Full {
            return node.clone();
        }
        NodePicture {
            name: node.name.clone(),
            head: node.head.clone(),
            sampled_at_ms: node.sampled_at_ms,
            gpus: self.gpus(&node.gpus),
            host: Row::default(),
            processes: Vec::new(),
            past: None,
        }
    }

    /// GPUs as a topic of this detail tells them.
    pub fn gpus(self, gpus: &[GpuPicture]) -> Vec<GpuPicture> {
        let mut gpus = gpus.to_vec();
        if self == Self::Glance {
            for gpu in &mut gpus {
                let util = gpu.row.get(GpuField::Util);
                gpu.row = Row::default();
                gpu.row.set(GpuField::Util, util);
            }
        }
        gpus
    }
}
