//! Level of detail of a topic: everything about its nodes, or a summary of each of their GPUs.

use super::topic::Topic;
use crate::field::{Field, Row};
use crate::gpu::NvLink;
use crate::picture::{GpuHealth, GpuPicture, History, NodePicture};
use crate::{GpuField, HostField, Reading};

/// Maximum number of NVLinks per GPU; current GPUs have up to 18.
pub const MAX_LINKS: usize = 256;

/// How much about its nodes a topic carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DetailLevel {
    /// [`Field::SUMMARY`] and [`Field::SUMMARY_HISTORY`] of each GPU and of the host; no processes,
    /// no health.
    Summary,
    /// Everything except per-core CPU load and per-link NVLink rates.
    Full,
    /// Everything.
    Expanded,
}

impl DetailLevel {
    /// The level of detail of a topic.
    pub fn of(topic: &Topic) -> Self {
        match topic {
            Topic::Overview => Self::Summary,
            Topic::Job(_) => Self::Full,
            Topic::Node(_) => Self::Expanded,
        }
    }

    /// The included fields of a row, as a bit mask.
    pub fn mask(self, row: usize, gpus: usize) -> u64 {
        fn of<F: Field>(fields: &[F]) -> u64 {
            fields.iter().fold(0, |mask, field| mask | 1 << field.index())
        }
        match self {
            Self::Full | Self::Expanded => u64::MAX,
            Self::Summary if row < gpus => of(GpuField::SUMMARY),
            Self::Summary if row == gpus => of(HostField::SUMMARY),
            Self::Summary => 0,
        }
    }

    /// Returns a node reduced to this level of detail, without its history (see
    /// [`DetailLevel::history`]).
    pub fn view(self, node: &NodePicture) -> NodePicture {
        let is_summary = self == Self::Summary;
        NodePicture {
            name: node.name.clone(),
            head: node.head.clone(),
            sampled_at_ms: node.sampled_at_ms,
            gpus: self.gpus(&node.gpus),
            host: if is_summary { selected(&node.host, HostField::SUMMARY) } else { node.host.clone() },
            processes: if is_summary { Vec::new() } else { node.processes.clone() },
            job_usage: if is_summary { Vec::new() } else { node.job_usage.clone() },
            cores: if self == Self::Expanded { node.cores.clone() } else { Vec::new() },
            history: None,
        }
    }

    /// Returns GPUs reduced to this level of detail.
    pub fn gpus(self, gpus: &[GpuPicture]) -> Vec<GpuPicture> {
        let summarized = |gpu: &GpuPicture| GpuPicture {
            facts: gpu.facts.summary(),
            owners: gpu.owners.clone(),
            fault: gpu.fault.clone(),
            health: GpuHealth::default(),
            row: selected(&gpu.row, GpuField::SUMMARY),
            gaps: Vec::new(),
        };
        let full = |gpu: &GpuPicture| GpuPicture {
            facts: gpu.facts.clone(),
            owners: gpu.owners.clone(),
            fault: gpu.fault.clone(),
            health: self.health(&gpu.health),
            row: gpu.row.clone(),
            gaps: gpu.gaps.clone(),
        };
        if self == Self::Summary {
            gpus.iter().map(summarized).collect()
        } else {
            gpus.iter().map(full).collect()
        }
    }

    /// Returns a GPU's health reduced to this level of detail: NVLink rates, which change with
    /// every report, are included only when expanded and have two significant digits; a summary has
    /// no health.
    pub fn health(self, health: &GpuHealth) -> GpuHealth {
        if self == Self::Summary {
            return GpuHealth::default();
        }
        let links = health.nvlinks.iter().take(MAX_LINKS).map(|link| self.link(link));
        GpuHealth { nvlinks: links.collect(), ..health.without_links() }
    }

    /// Returns an NVLink reduced to this level of detail.
    pub fn link(self, link: &NvLink) -> NvLink {
        NvLink { rx_mib_s: self.rate(&link.rx_mib_s), tx_mib_s: self.rate(&link.tx_mib_s), ..link.clone() }
    }

    /// Returns an NVLink rate reduced to this level of detail.
    pub fn rate(self, rate: &Reading<u64>) -> Reading<u64> {
        match rate {
            _ if self != Self::Expanded => Reading::NotYet,
            Reading::Value(mib) => Reading::Value(two_digits(*mib)),
            other => other.clone(),
        }
    }

    /// Returns a history reduced to this level of detail.
    pub fn history(self, history: Option<&History>) -> Option<History> {
        if self == Self::Summary { history.map(History::summary) } else { history.cloned() }
    }
}

/// Rounds a number to two significant digits.
fn two_digits(number: u64) -> u64 {
    let unit = 10u64.pow(number.checked_ilog10().unwrap_or(0).saturating_sub(1));
    (number / unit + u64::from(number % unit >= unit.div_ceil(2) && unit > 1)).saturating_mul(unit)
}

/// Copies some cells of a row.
fn selected<F: Field>(row: &Row<F>, fields: &[F]) -> Row<F> {
    let mut selected = Row::default();
    fields.iter().for_each(|field| selected.set(*field, row.get(*field)));
    selected
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_two_significant_digits() {
        let pairs =
            [(0, 0), (7, 7), (99, 99), (104, 100), (105, 110), (994, 990), (995, 1_000), (123_456, 120_000)];
        for (number, rounded) in pairs {
            assert_eq!(two_digits(number), rounded, "{number}");
            assert_eq!(two_digits(rounded), rounded, "{number}");
        }
        assert!(two_digits(u64::MAX) >= u64::MAX / 2);
    }
}
