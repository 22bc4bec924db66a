//! The health of a GPU, and the description of each of its readings.

use super::described::{Described, FactKind, FactReading, Problem, Section, TableColumn, described};
use super::{NvLink, Vgpu, VgpuLicense};
use crate::Reading;
use serde::{Deserialize, Serialize};

/// Slowly changing state of a GPU that describes its health; queried every few seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GpuHealth {
    /// Lifetime corrected ECC errors (`nvmlDeviceGetTotalEccErrors(corrected, aggregate)`).
    pub ecc_life_corrected: Reading<u64>,
    /// Lifetime uncorrected ECC errors.
    pub ecc_life_uncorrected: Reading<u64>,
    /// Pages retired for multiple corrected errors (`nvmlDeviceGetRetiredPages`).
    pub retired_corrected: Reading<u64>,
    /// Pages retired for an uncorrected error.
    pub retired_uncorrected: Reading<u64>,
    /// Whether page retirements are pending a reboot (`nvmlDeviceGetRetiredPagesPendingStatus`).
    pub retired_pending: Reading<bool>,
    /// Rows remapped for corrected errors (`nvmlDeviceGetRemappedRows`).
    pub remapped_corrected: Reading<u64>,
    /// Rows remapped for uncorrected errors.
    pub remapped_uncorrected: Reading<u64>,
    /// Whether a row remapping is pending a reset.
    pub remap_pending: Reading<bool>,
    /// Whether a row remapping failed; the GPU should be replaced.
    pub remap_failed: Reading<bool>,
    /// Current PCIe generation (`nvmlDeviceGetCurrPcieLinkGeneration`); lower when idle.
    pub pcie_gen: Reading<u64>,
    /// Current PCIe link width in lanes (`nvmlDeviceGetCurrPcieLinkWidth`).
    pub pcie_width: Reading<u64>,
    /// PCIe replays since the driver was loaded (`nvmlDeviceGetPcieReplayCounter`).
    pub pcie_replays: Reading<u64>,
    /// BAR1 memory in use, in bytes (`nvmlDeviceGetBAR1MemoryInfo`).
    pub bar1_used_bytes: Reading<u64>,
    /// Total BAR1 memory in bytes.
    pub bar1_total_bytes: Reading<u64>,
    /// NVLinks by number; empty if the GPU has none.
    pub nvlinks: Vec<NvLink>,
    /// Its vGPUs, if this system is their host (`nvmlDeviceGetActiveVgpus`).
    pub vgpus: Vec<Vgpu>,
    /// The license of this system for the vGPU software.
    pub license: VgpuLicense,
}

impl GpuHealth {
    /// Returns descriptions of all readings, in the order in which the page shows them.
    pub fn readings() -> &'static [Described<Self>] {
        READINGS
    }

    /// Returns health of which nothing is supported.
    pub fn unsupported() -> Self {
        let mut health = Self { license: VgpuLicense::unsupported(), ..Self::default() };
        READINGS.iter().for_each(|reading| reading.clear(&mut health, Reading::Unsupported));
        health
    }

    /// Returns the part from which problems follow: pending or failed repairs of the memory, the
    /// PCIe link width, the NVLinks that are down, of each only its number, and a missing license.
    pub fn summary(&self) -> Self {
        let down = self.nvlinks.iter().filter(|link| link.up.value() == Some(&false));
        Self {
            retired_pending: self.retired_pending.clone(),
            remap_pending: self.remap_pending.clone(),
            remap_failed: self.remap_failed.clone(),
            pcie_width: self.pcie_width.clone(),
            nvlinks: down
                .map(|link| NvLink { link: link.link, up: link.up.clone(), ..NvLink::default() })
                .collect(),
            license: VgpuLicense { is_licensed: self.license.is_licensed.clone(), ..VgpuLicense::default() },
            ..Self::default()
        }
    }

    /// Returns the health without NVLinks.
    pub fn without_links(&self) -> Self {
        Self {
            ecc_life_corrected: self.ecc_life_corrected.clone(),
            ecc_life_uncorrected: self.ecc_life_uncorrected.clone(),
            retired_corrected: self.retired_corrected.clone(),
            retired_uncorrected: self.retired_uncorrected.clone(),
            retired_pending: self.retired_pending.clone(),
            remapped_corrected: self.remapped_corrected.clone(),
            remapped_uncorrected: self.remapped_uncorrected.clone(),
            remap_pending: self.remap_pending.clone(),
            remap_failed: self.remap_failed.clone(),
            pcie_gen: self.pcie_gen.clone(),
            pcie_width: self.pcie_width.clone(),
            pcie_replays: self.pcie_replays.clone(),
            bar1_used_bytes: self.bar1_used_bytes.clone(),
            bar1_total_bytes: self.bar1_total_bytes.clone(),
            nvlinks: Vec::new(),
            vgpus: self.vgpus.clone(),
            license: self.license.clone(),
        }
    }
}

#[rustfmt::skip]
static READINGS: &[Described<GpuHealth>] = &[
    described!(ecc_life_uncorrected: Counter, Count, Errors, "Uncorrected, lifetime",
        column = TableColumn::new("ecc_life_bad", "Life bad", 76, "uncorrected memory errors of its whole life")),
    described!(ecc_life_corrected: Counter, Count, Errors, "Corrected, lifetime",
        column = TableColumn::new("ecc_life_mended", "Life corr.", 76, "corrected memory errors of its whole life")),
    described!(retired_uncorrected: Counter, Count, Errors, "Pages retired, uncorrected",
        column = TableColumn::new("retired", "Retired", 76, "memory pages retired for an uncorrected error")),
    described!(retired_corrected: Counter, Count, Errors, "Pages retired, corrected"),
    described!(retired_pending: Flag, State, Errors, "Page retirement pending",
        problem = Problem::Warning("the node needs a reboot; until then the page is used")),
    described!(remapped_uncorrected: Counter, Count, Errors, "Rows remapped, uncorrected", problem = Problem::Warning(""),
        column = TableColumn::new("remapped", "Remapped", 76, "memory rows remapped for an uncorrected error")),
    described!(remapped_corrected: Counter, Count, Errors, "Rows remapped, corrected"),
    described!(remap_pending: Flag, State, Errors, "Row remap pending",
        problem = Problem::Warning("takes effect at the next reset of the GPU")),
    described!(remap_failed: Flag, State, Errors, "Row remap failed",
        problem = Problem::Error("the GPU must be replaced")),
    described!(pcie_gen: Counter, Pcie, None, "PCIe generation"),
    described!(pcie_width: Counter, Pcie, None, "PCIe width"),
    described!(pcie_replays: Counter, Count, None, "PCIe replays",
        column = TableColumn::new("replays", "Replays", 76, "PCIe replays since the driver was loaded")),
    described!(bar1_used_bytes: Counter, Bytes, None, "BAR1 in use"),
    described!(bar1_total_bytes: Counter, Bytes, None, "BAR1"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reading_is_described() {
        let json = serde_json::to_value(GpuHealth::unsupported()).unwrap();
        let fields = json.as_object().unwrap();
        assert!(fields.values().all(|value| !value.is_null()), "{json}");
        let stated = fields.values().filter(|value| **value == "unsupported").count();
        assert_eq!(stated, READINGS.len(), "each row is of a field of its own");
    }
}
