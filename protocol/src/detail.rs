//! A topic tells everything of its nodes, or a glance at each of their GPUs.

use crate::cell::{Field, Row};
use crate::gpu::NvLink;
use crate::live::{MAX_LINKS, Topic};
use crate::picture::{GpuHealth, GpuPicture, NodePicture, Past};
use crate::{GpuField, HostField, Reading};

/// How much of its nodes a topic tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Of each GPU [`Detail::GPU_GLANCE`] and the past of its utilisation, of the host
    /// [`Detail::HOST_GLANCE`]; no processes, no health.
    Glance,
    /// Everything but the host's CPUs one by one and the flow over each single NVLink.
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

    /// A node as a topic of this detail tells it, without its past (see [`Detail::past`]).
    pub fn view(self, node: &NodePicture) -> NodePicture {
        let is_glance = self == Self::Glance;
        NodePicture {
            name: node.name.clone(),
            head: node.head.clone(),
            sampled_at_ms: node.sampled_at_ms,
            gpus: self.gpus(&node.gpus),
            host: if is_glance { glance(&node.host, &Self::HOST_GLANCE) } else { node.host.clone() },
            processes: if is_glance { Vec::new() } else { node.processes.clone() },
            uses: if is_glance { Vec::new() } else { node.uses.clone() },
            cores: if self == Self::Close { node.cores.clone() } else { Vec::new() },
            past: None,
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
            gaps: Vec::new(),
        };
        let whole = |gpu: &GpuPicture| GpuPicture {
            facts: gpu.facts.clone(),
            owners: gpu.owners.clone(),
            fault: gpu.fault.clone(),
            health: self.health(&gpu.health),
            row: gpu.row.clone(),
            gaps: gpu.gaps.clone(),
        };
        if self == Self::Glance {
            gpus.iter().map(at_a_glance).collect()
        } else {
            gpus.iter().map(whole).collect()
        }
    }

    /// The health of a GPU as a topic of this detail tells it: flows over links, which never rest, to who looks closely,
    /// and with two digits; a glance tells nothing of it.
    pub fn health(self, health: &GpuHealth) -> GpuHealth {
        if self == Self::Glance {
            return GpuHealth::default();
        }
        let links = health.nvlinks.iter().take(MAX_LINKS).map(|link| self.link(link));
        GpuHealth { nvlinks: links.collect(), ..health.without_links() }
    }

    /// An NVLink as a topic of this detail tells it.
    pub fn link(self, link: &NvLink) -> NvLink {
        NvLink { rx_mib_s: self.flow(&link.rx_mib_s), tx_mib_s: self.flow(&link.tx_mib_s), ..link.clone() }
    }

    /// What an NVLink carries in one direction, as a topic of this detail tells it.
    pub fn flow(self, flow: &Reading<u64>) -> Reading<u64> {
        match flow {
            _ if self != Self::Close => Reading::NotYet,
            Reading::Value(mib) => Reading::Value(two_digits(*mib)),
            other => other.clone(),
        }
    }

    /// A past as a topic of this detail tells it.
    pub fn past(self, past: Option<&Past>) -> Option<Past> {
        if self == Self::Glance { past.map(Past::at_a_glance) } else { past.cloned() }
    }
}

/// A number to its two highest digits.
fn two_digits(number: u64) -> u64 {
    let unit = 10u64.pow(number.checked_ilog10().unwrap_or(0).saturating_sub(1));
    (number / unit + u64::from(number % unit >= unit.div_ceil(2) && unit > 1)).saturating_mul(unit)
}

/// Some cells of a row.
fn glance<F: Field>(row: &Row<F>, fields: &[F]) -> Row<F> {
    let mut glance = Row::default();
    fields.iter().for_each(|field| glance.set(*field, row.get(*field)));
    glance
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_has_two_digits() {
        let pairs =
            [(0, 0), (7, 7), (99, 99), (104, 100), (105, 110), (994, 990), (995, 1_000), (123_456, 120_000)];
        for (number, told) in pairs {
            assert_eq!(two_digits(number), told, "{number}");
            assert_eq!(two_digits(told), told, "{number}");
        }
        assert!(two_digits(u64::MAX) >= u64::MAX / 2);
    }
}
