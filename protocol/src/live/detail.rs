//! Level of detail of a topic: everything about its nodes, or a summary of each of their GPUs.

use super::topic::Topic;
use crate::field::{Field, Row};
use crate::gpu::NvLink;
use crate::picture::{GpuHealth, GpuPicture, History, NodePicture};
use crate::{GpuField, HostField, Reading};

/// Maximum number of NVLinks per GPU; current GPUs have up to 18.
pub const MAX_LINKS: usize = 256;

/// The level of detail of the nodes in a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DetailLevel {
    /// [`Field::SUMMARY`] and [`Field::SUMMARY_HISTORY`] of each GPU and of the host, and
    /// [`GpuHealth::summary`]; no processes.
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
            health: self.health(&gpu.health),
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

    /// Returns a GPU's health reduced to this level of detail: [`GpuHealth::summary`] of a summary.
    /// NVLink rates, which change with every report, are included only when expanded and have two
    /// significant digits.
    pub fn health(self, health: &GpuHealth) -> GpuHealth {
        if self == Self::Summary {
            let mut summary = health.summary();
            summary.nvlinks.truncate(MAX_LINKS);
            return summary;
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
    use crate::gpu::VgpuLicense;
    use crate::live::HealthChange;

    /// A GPU's health with every problem and every reading, and of some links the state.
    fn health(links: &[Reading<bool>]) -> GpuHealth {
        let (flag, count) = (Reading::Value(true), Reading::Value(7));
        let link = |(link, up): (u32, &Reading<bool>)| NvLink {
            link,
            up: up.clone(),
            version: count.clone(),
            remote: Reading::Value("switch".into()),
            rx_mib_s: count.clone(),
            tx_mib_s: count.clone(),
            errors: count.clone(),
        };
        GpuHealth {
            ecc_life_corrected: count.clone(),
            ecc_life_uncorrected: count.clone(),
            retired_corrected: count.clone(),
            retired_uncorrected: count.clone(),
            retired_pending: flag.clone(),
            remapped_corrected: count.clone(),
            remapped_uncorrected: count.clone(),
            remap_pending: flag.clone(),
            remap_failed: flag.clone(),
            pcie_gen: count.clone(),
            pcie_width: count.clone(),
            pcie_replays: count.clone(),
            bar1_used_bytes: count.clone(),
            bar1_total_bytes: count.clone(),
            nvlinks: (0..).zip(links).map(link).collect(),
            vgpus: Vec::new(),
            license: VgpuLicense { is_licensed: flag, ..VgpuLicense::default() },
        }
    }

    #[test]
    fn a_summary_has_exactly_the_problem_part_of_the_health() {
        let up = Reading::Value(true);
        let down = Reading::Value(false);
        let whole = health(&[up, Reading::NotYet, Reading::Unsupported, down.clone()]);
        let flag = Reading::Value(true);
        let problems = GpuHealth {
            license: whole.license.clone(),
            retired_pending: flag.clone(),
            remap_pending: flag.clone(),
            remap_failed: flag,
            pcie_width: Reading::Value(7),
            nvlinks: vec![NvLink { link: 3, up: down, ..NvLink::default() }],
            ..GpuHealth::default()
        };
        assert_eq!(DetailLevel::Summary.health(&whole), problems);
        let mut gpu = GpuPicture { health: whole, ..GpuPicture::default() };
        gpu.facts.pcie_width_max = Reading::Value(16);
        gpu.facts.pcie_gen_max = Reading::Value(5);
        let summary = DetailLevel::Summary.gpus(&[gpu]).remove(0);
        assert_eq!(summary.health, problems);
        assert_eq!(summary.facts.pcie_width_max, Reading::Value(16));
        assert_eq!(summary.facts.pcie_gen_max, Reading::NotYet);
    }

    #[test]
    fn a_summary_changes_with_problems_only() {
        let states = |downs: &[usize]| {
            let mut states = vec![Reading::Value(true); 4];
            downs.iter().for_each(|link| states[*link] = Reading::Value(false));
            health(&states)
        };
        let between =
            |old: &GpuHealth, new: &GpuHealth| HealthChange::between(0, old, new, DetailLevel::Summary);
        let well = states(&[]);
        let mut busy = well.clone();
        busy.pcie_replays = Reading::Value(9);
        busy.ecc_life_corrected = Reading::Failed("timeout".into());
        busy.bar1_used_bytes = Reading::Value(9);
        for link in &mut busy.nvlinks {
            (link.rx_mib_s, link.errors) = (Reading::Value(900), Reading::Value(3));
        }
        assert_eq!(between(&well, &busy), None);
        let mut pending = well.clone();
        pending.remap_pending = Reading::Value(false);
        let mut steps = vec![well.clone(), busy, states(&[3]), states(&[1, 3]), states(&[1]), pending];
        steps.extend([states(&[0, 1, 2, 3]), well]);
        let mut known = DetailLevel::Summary.health(&steps[0]);
        for pair in steps.windows(2) {
            let change = between(&pair[0], &pair[1]);
            change.iter().for_each(|change| change.apply(&mut known).unwrap());
            assert_eq!(known, DetailLevel::Summary.health(&pair[1]));
            assert!(change.is_none_or(|change| change.rates.is_empty()));
        }
    }

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
