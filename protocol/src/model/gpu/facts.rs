//! The facts of a GPU, and the description of each.

use super::described::{Described, FactKind, FactReading, Section, TableColumn, described};
use super::{MigFacts, Virtualization};
use crate::field::Limit;
use crate::{GpuUuid, Reading, Text, Vendor};
use serde::{Deserialize, Serialize};

/// Facts of a GPU or MIG instance that do not change while the driver is loaded, except for its
/// modes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GpuFacts {
    /// `nvmlDeviceGetUUID`. A GPU that has not reported its UUID is `LOST-<index>` if it is lost,
    /// `FORBIDDEN-<index>` if this user has no access, and `UNKNOWN-<index>` otherwise.
    pub uuid: GpuUuid,
    /// Index of its driver (`nvmlDeviceGetHandleByIndex`), unique per vendor; differs between boots
    /// and inside containers. On a node that confines jobs, the relay replaces it by `minor`.
    pub index: u32,
    /// Vendor.
    #[serde(default)]
    pub vendor: Vendor,
    /// N of `/dev/nvidiaN` (`nvmlDeviceGetMinorNumber`), which SLURM's GRES indices refer to.
    #[serde(default)]
    pub minor: Reading<u32>,
    /// `nvmlDeviceGetPciInfo_v3`, `00000000:07:00.0`.
    #[serde(default)]
    pub pci: Reading<Text>,
    /// `nvmlDeviceGetName`.
    #[serde(default)]
    pub name: Reading<Text>,
    /// Maximum SM clock in MHz (`nvmlDeviceGetMaxClockInfo`).
    #[serde(default)]
    pub sm_clock_max_mhz: Reading<u32>,
    /// Maximum memory clock in MHz.
    #[serde(default)]
    pub mem_clock_max_mhz: Reading<u32>,
    /// Slowdown temperature in °C (`nvmlDeviceGetTemperatureThreshold`).
    #[serde(default)]
    pub temp_slowdown_c: Reading<u32>,
    /// Shutdown temperature in °C.
    #[serde(default)]
    pub temp_shutdown_c: Reading<u32>,
    /// Maximum operating temperature of the memory, in °C.
    #[serde(default)]
    pub temp_mem_max_c: Reading<u32>,
    /// Maximum operating temperature of the GPU, in °C.
    #[serde(default)]
    pub temp_gpu_max_c: Reading<u32>,
    /// Maximum graphics clock in MHz.
    #[serde(default)]
    pub graphics_clock_max_mhz: Reading<u32>,
    /// Maximum video clock in MHz.
    #[serde(default)]
    pub video_clock_max_mhz: Reading<u32>,
    /// Default power limit in mW (`nvmlDeviceGetPowerManagementDefaultLimit`).
    #[serde(default)]
    pub power_default_mw: Reading<u32>,
    /// Minimum power limit in mW (`nvmlDeviceGetPowerManagementLimitConstraints`).
    #[serde(default)]
    pub power_min_mw: Reading<u32>,
    /// Maximum power limit in mW.
    #[serde(default)]
    pub power_max_mw: Reading<u32>,
    /// Maximum PCIe generation of GPU and slot (`nvmlDeviceGetMaxPcieLinkGeneration`).
    #[serde(default)]
    pub pcie_gen_max: Reading<u32>,
    /// Maximum PCIe link width of GPU and slot, in lanes (`nvmlDeviceGetMaxPcieLinkWidth`).
    #[serde(default)]
    pub pcie_width_max: Reading<u32>,
    /// `nvmlDeviceGetSerial`.
    #[serde(default)]
    pub serial: Reading<Text>,
    /// `nvmlDeviceGetVbiosVersion`.
    #[serde(default)]
    pub vbios: Reading<Text>,
    /// `nvmlDeviceGetArchitecture`: `Hopper`.
    #[serde(default)]
    pub architecture: Reading<Text>,
    /// `nvmlDeviceGetCudaComputeCapability`: `9.0`.
    #[serde(default)]
    pub compute_capability: Reading<Text>,
    /// CUDA cores (`nvmlDeviceGetNumGpuCores`).
    #[serde(default)]
    pub cores: Reading<u32>,
    /// Nearest NUMA node (`nvmlDeviceGetNumaNodeId`, or `/sys/bus/pci/devices/…/numa_node`).
    #[serde(default)]
    pub numa_node: Reading<u32>,
    /// Nearest CPUs as a list of ranges: `0-15,32-47` (`nvmlDeviceGetCpuAffinity`).
    #[serde(default)]
    pub cpu_affinity: Reading<Text>,
    /// `nvmlDeviceGetComputeMode`: `default`, `exclusive process`, `prohibited`.
    #[serde(default)]
    pub compute_mode: Reading<Text>,
    /// `nvmlDeviceGetPersistenceMode`.
    #[serde(default)]
    pub persistence: Reading<bool>,
    /// Whether ECC is enabled (`nvmlDeviceGetEccMode`).
    #[serde(default)]
    pub ecc_mode: Reading<bool>,
    /// Whether MIG mode is enabled (`nvmlDeviceGetMigMode`).
    #[serde(default)]
    pub mig_mode: Reading<bool>,
    /// Whether confidential computing is enabled (`nvmlSystemGetConfComputeState`).
    #[serde(default)]
    pub confidential: Reading<bool>,
    /// Whether its memory is the host's (GB10, Jetson) or coherent with it (GH200), so that usage
    /// counts for both.
    #[serde(default)]
    pub unified_memory: bool,
    /// For a MIG instance: UUID of its GPU.
    #[serde(default)]
    pub mig_parent: Option<GpuUuid>,
    /// For a MIG instance: its ids and profile.
    #[serde(default)]
    pub mig: Option<MigFacts>,
    /// How it is shared with virtual machines (`nvmlDeviceGetVirtualizationMode`).
    #[serde(default)]
    pub virtualization: Reading<Virtualization>,
}

impl GpuFacts {
    /// Creates facts of which only the identity is known.
    pub fn new(uuid: GpuUuid, index: u32) -> Self {
        Self { uuid, index, ..Self::default() }
    }

    /// Returns descriptions of all facts that are readings, in the order in which the page shows them.
    pub fn readings() -> &'static [Described<Self>] {
        READINGS
    }

    /// Returns facts of which none is supported.
    pub fn unsupported() -> Self {
        let mut facts = Self::default();
        READINGS.iter().for_each(|reading| reading.clear(&mut facts, Reading::Unsupported));
        facts
    }

    /// Returns the label of the device on its node: `GPU 0`, `AMD 0`, `TPU 3`. Indices are unique per vendor
    /// only, so that the vendor is a part of the label; NVIDIA's devices are `GPU`. A MIG instance has
    /// the label of its GPU.
    pub fn label(&self) -> String {
        self.vendor.device_label(self.index)
    }

    /// Returns a limit in the unit of the readings that it applies to, if it is known.
    pub fn limit(&self, limit: Limit) -> Option<u64> {
        let reading = match limit {
            Limit::SlowdownTemperature => &self.temp_slowdown_c,
            Limit::MemoryTemperature => &self.temp_mem_max_c,
            Limit::SmClock => &self.sm_clock_max_mhz,
            Limit::MemoryClock => &self.mem_clock_max_mhz,
            Limit::GraphicsClock => &self.graphics_clock_max_mhz,
            Limit::VideoClock => &self.video_clock_max_mhz,
        };
        reading.value().map(|value| u64::from(*value))
    }

    /// Returns the facts of a summary: identity, device number, model, and the maximum PCIe link
    /// width, which [`GpuHealth::pcie_width`] is compared with.
    pub fn summary(&self) -> Self {
        Self {
            vendor: self.vendor,
            minor: self.minor.clone(),
            name: self.name.clone(),
            pcie_width_max: self.pcie_width_max.clone(),
            unified_memory: self.unified_memory,
            mig_parent: self.mig_parent.clone(),
            mig: self.mig.clone(),
            virtualization: self.virtualization.clone(),
            ..Self::new(self.uuid.clone(), self.index)
        }
    }
}

#[rustfmt::skip]
static READINGS: &[Described<GpuFacts>] = &[
    described!(name: Text, Text, Identity, "Model"),
    described!(architecture: Text, Text, Identity, "Architecture",
        column = TableColumn {
            aliases: &["arch"],
            ..TableColumn::new("architecture", "Architecture", 104, "architecture of the chip")
        }),
    described!(compute_capability: Text, Text, Identity, "Compute capability",
        column = TableColumn::new("capability", "CC", 46, "CUDA compute capability")),
    described!(cores: Number, Amount, Identity, "CUDA cores",
        column = TableColumn::new("cores", "Cores", 76, "CUDA cores")),
    described!(numa_node: Number, Id, Identity, "NUMA node",
        column = TableColumn::new("numa", "NUMA", 58, "NUMA node that it is nearest to")),
    described!(cpu_affinity: Text, Text, Identity, "Nearest CPUs",
        column = TableColumn::new("affinity", "CPUs", 120, "CPUs that it is nearest to")),
    described!(compute_mode: Text, Text, Modes, "Compute mode",
        column = TableColumn::new("mode", "Compute mode", 122, "who may use it")),
    described!(persistence: Flag, Mode, Modes, "Persistence",
        column = TableColumn::new("persistence", "Persistence", 96, "whether the driver stays loaded when nobody uses the card")),
    described!(ecc_mode: Flag, Mode, Modes, "ECC",
        column = TableColumn::new("ecc", "ECC", 52, "whether memory errors are corrected")),
    described!(mig_mode: Flag, Mode, Modes, "MIG"),
    described!(confidential: Flag, Mode, Modes, "Confidential computing"),
    described!(virtualization: Virtualization, Text, Modes, "Virtualization"),
    described!(pci: Text, Text, Identity, "PCI address",
        column = TableColumn::new("pci", "PCI", 130, "its place on the PCI bus")),
    described!(serial: Text, Text, Identity, "Serial number",
        column = TableColumn::new("serial", "Serial", 120, "its serial number")),
    described!(vbios: Text, Text, Identity, "VBIOS",
        column = TableColumn::new("vbios", "VBIOS", 120, "version of its firmware")),
    described!(power_default_mw: Number, MilliwattLimit, Power, "Default limit"),
    described!(power_min_mw: Number, MilliwattMinimum, Power, "Minimum limit"),
    described!(power_max_mw: Number, MilliwattLimit, Power, "Maximum limit"),
    described!(temp_slowdown_c: Number, CelsiusLimit, Temperature, "Throttles at"),
    described!(temp_shutdown_c: Number, CelsiusLimit, Temperature, "Shuts down at"),
    described!(temp_gpu_max_c: Number, CelsiusLimit, Temperature, "Core, maximum operating"),
    described!(temp_mem_max_c: Number, CelsiusLimit, Temperature, "Memory, maximum operating"),
    described!(minor: Number, Id, None, "Device file"),
    described!(sm_clock_max_mhz: Number, MegahertzLimit, None, "Maximum SM clock"),
    described!(mem_clock_max_mhz: Number, MegahertzLimit, None, "Maximum memory clock"),
    described!(graphics_clock_max_mhz: Number, MegahertzLimit, None, "Maximum graphics clock"),
    described!(video_clock_max_mhz: Number, MegahertzLimit, None, "Maximum video clock"),
    described!(pcie_gen_max: Number, PcieLimit, None, "Maximum PCIe generation"),
    described!(pcie_width_max: Number, PcieLimit, None, "Maximum PCIe width"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_catalogue_has_every_reading_of_the_facts() {
        let stated = |facts: &GpuFacts| {
            let json = serde_json::to_value(facts).unwrap();
            let count = |is: fn(&serde_json::Value) -> bool| {
                json.as_object().unwrap().values().filter(|value| is(value)).count()
            };
            (count(|value| value == "unsupported"), count(serde_json::Value::is_null))
        };
        let (_, pending) = stated(&GpuFacts::default());
        let (unsupported, rest) = stated(&GpuFacts::unsupported());
        assert_eq!(unsupported, READINGS.len(), "each row is of a field of its own");
        // The GPU and the ids of an instance are optional, and no readings.
        assert_eq!((rest, pending), (2, READINGS.len() + 2));
    }
}
