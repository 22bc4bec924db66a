//! A GPU is told in three parts by how often they change: facts, health, readings.

use crate::{GpuUuid, Reading, Text};
use serde::{Deserialize, Serialize};

/// What does not change of a GPU or MIG instance while the driver is loaded, but for its modes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GpuFacts {
    /// `nvmlDeviceGetUUID`. A GPU that never told its UUID is `LOST-<index>` if it is lost,
    /// `FORBIDDEN-<index>` if this user may not use it, and `UNKNOWN-<index>` otherwise.
    pub uuid: GpuUuid,
    /// NVML index; changes between boots and inside a container.
    pub index: u32,
    /// N of `/dev/nvidiaN` (`nvmlDeviceGetMinorNumber`): what SLURM's GRES indices mean.
    #[serde(default)]
    pub minor: Reading<u32>,
    /// `nvmlDeviceGetPciInfo_v3`, `00000000:07:00.0`.
    #[serde(default)]
    pub pci: Reading<Text>,
    /// `nvmlDeviceGetName`.
    #[serde(default)]
    pub name: Reading<Text>,
    /// Largest SM clock in MHz (`nvmlDeviceGetMaxClockInfo`).
    #[serde(default)]
    pub sm_clock_max_mhz: Reading<u32>,
    /// Largest memory clock in MHz.
    #[serde(default)]
    pub mem_clock_max_mhz: Reading<u32>,
    /// Temperature at which the card slows down, in °C (`nvmlDeviceGetTemperatureThreshold`).
    #[serde(default)]
    pub temp_slowdown_c: Reading<u32>,
    /// Temperature at which it shuts down, in °C.
    #[serde(default)]
    pub temp_shutdown_c: Reading<u32>,
    /// Largest temperature of its memory in normal operation, in °C.
    #[serde(default)]
    pub temp_mem_max_c: Reading<u32>,
    /// Largest temperature of its core in normal operation, in °C.
    #[serde(default)]
    pub temp_gpu_max_c: Reading<u32>,
    /// Largest graphics clock in MHz.
    #[serde(default)]
    pub graphics_clock_max_mhz: Reading<u32>,
    /// Largest video clock in MHz.
    #[serde(default)]
    pub video_clock_max_mhz: Reading<u32>,
    /// Power limit as delivered, in mW (`nvmlDeviceGetPowerManagementDefaultLimit`).
    #[serde(default)]
    pub power_default_mw: Reading<u32>,
    /// Smallest power limit that can be set, in mW (`nvmlDeviceGetPowerManagementLimitConstraints`).
    #[serde(default)]
    pub power_min_mw: Reading<u32>,
    /// Largest power limit that can be set, in mW.
    #[serde(default)]
    pub power_max_mw: Reading<u32>,
    /// Fastest PCIe generation that card and slot can do (`nvmlDeviceGetMaxPcieLinkGeneration`).
    #[serde(default)]
    pub pcie_gen_max: Reading<u32>,
    /// Widest PCIe link that card and slot can do, in lanes (`nvmlDeviceGetMaxPcieLinkWidth`).
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
    /// NUMA node that it is nearest to (`nvmlDeviceGetNumaNodeId`, or `/sys/bus/pci/devices/…/numa_node`).
    #[serde(default)]
    pub numa_node: Reading<u32>,
    /// CPUs that it is nearest to, as a list of ranges: `0-15,32-47` (`nvmlDeviceGetCpuAffinity`).
    #[serde(default)]
    pub cpu_affinity: Reading<Text>,
    /// `nvmlDeviceGetComputeMode`: `default`, `exclusive process`, `prohibited`.
    #[serde(default)]
    pub compute_mode: Reading<Text>,
    /// `nvmlDeviceGetPersistenceMode`.
    #[serde(default)]
    pub persistence: Reading<bool>,
    /// Whether ECC is on (`nvmlDeviceGetEccMode`).
    #[serde(default)]
    pub ecc_mode: Reading<bool>,
    /// Whether it is divided into MIG instances (`nvmlDeviceGetMigMode`).
    #[serde(default)]
    pub mig_mode: Reading<bool>,
    /// Whether confidential computing is on (`nvmlSystemGetConfComputeState`).
    #[serde(default)]
    pub confidential: Reading<bool>,
    /// Its memory is the host's (GB10, Jetson) or coherent with it (GH200): what is used of it is used of the host's.
    #[serde(default)]
    pub unified_memory: bool,
    /// For a MIG instance: UUID of its GPU.
    #[serde(default)]
    pub mig_parent: Option<GpuUuid>,
    /// For a MIG instance: which part of its GPU it is.
    #[serde(default)]
    pub mig: Option<MigFacts>,
}

impl GpuFacts {
    /// A GPU of which only the identity is known.
    pub fn new(uuid: GpuUuid, index: u32) -> Self {
        Self {
            uuid,
            index,
            minor: Reading::NotYet,
            pci: Reading::NotYet,
            name: Reading::NotYet,
            sm_clock_max_mhz: Reading::NotYet,
            mem_clock_max_mhz: Reading::NotYet,
            temp_slowdown_c: Reading::NotYet,
            temp_shutdown_c: Reading::NotYet,
            temp_mem_max_c: Reading::NotYet,
            temp_gpu_max_c: Reading::NotYet,
            graphics_clock_max_mhz: Reading::NotYet,
            video_clock_max_mhz: Reading::NotYet,
            power_default_mw: Reading::NotYet,
            power_min_mw: Reading::NotYet,
            power_max_mw: Reading::NotYet,
            pcie_gen_max: Reading::NotYet,
            pcie_width_max: Reading::NotYet,
            serial: Reading::NotYet,
            vbios: Reading::NotYet,
            architecture: Reading::NotYet,
            compute_capability: Reading::NotYet,
            cores: Reading::NotYet,
            numa_node: Reading::NotYet,
            cpu_affinity: Reading::NotYet,
            compute_mode: Reading::NotYet,
            persistence: Reading::NotYet,
            ecc_mode: Reading::NotYet,
            mig_mode: Reading::NotYet,
            confidential: Reading::NotYet,
            unified_memory: false,
            mig_parent: None,
            mig: None,
        }
    }

    /// The facts of a summary: identity, device number and model.
    pub fn summary(&self) -> Self {
        Self {
            minor: self.minor.clone(),
            name: self.name.clone(),
            unified_memory: self.unified_memory,
            mig_parent: self.mig_parent.clone(),
            mig: self.mig.clone(),
            ..Self::new(self.uuid.clone(), self.index)
        }
    }
}

impl Default for GpuFacts {
    fn default() -> Self {
        Self::new(GpuUuid::new(""), 0)
    }
}

/// Which part of a GPU a MIG instance is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MigFacts {
    /// GPU instance id (`nvmlDeviceGetGpuInstanceId`).
    pub gpu_instance: u32,
    /// Compute instance id (`nvmlDeviceGetComputeInstanceId`).
    pub compute_instance: u32,
    /// Its profile, `3g.40gb`, if the driver's name for it tells.
    pub profile: Option<Text>,
    /// Multiprocessors (`nvmlDeviceGetAttributes_v2`).
    pub multiprocessors: Option<u32>,
}

/// What changes seldom of a GPU and says how well it is; asked every few seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GpuHealth {
    /// Corrected ECC errors over its whole life (`nvmlDeviceGetTotalEccErrors(corrected, aggregate)`).
    #[serde(default)]
    pub ecc_life_corrected: Reading<u64>,
    /// Uncorrected ECC errors over its whole life.
    #[serde(default)]
    pub ecc_life_uncorrected: Reading<u64>,
    /// Pages retired for many corrected errors (`nvmlDeviceGetRetiredPages`).
    #[serde(default)]
    pub retired_corrected: Reading<u64>,
    /// Pages retired for an uncorrected error.
    #[serde(default)]
    pub retired_uncorrected: Reading<u64>,
    /// Whether pages wait for a reboot to be retired (`nvmlDeviceGetRetiredPagesPendingStatus`).
    #[serde(default)]
    pub retired_pending: Reading<bool>,
    /// Rows remapped for corrected errors (`nvmlDeviceGetRemappedRows`).
    #[serde(default)]
    pub remapped_corrected: Reading<u64>,
    /// Rows remapped for uncorrected errors.
    #[serde(default)]
    pub remapped_uncorrected: Reading<u64>,
    /// Whether a row waits for a reset to be remapped.
    #[serde(default)]
    pub remap_pending: Reading<bool>,
    /// Whether a remapping failed: the card is to be replaced.
    #[serde(default)]
    pub remap_failed: Reading<bool>,
    /// PCIe generation of the link now (`nvmlDeviceGetCurrPcieLinkGeneration`); lower when idle.
    #[serde(default)]
    pub pcie_gen: Reading<u64>,
    /// Lanes of the link now (`nvmlDeviceGetCurrPcieLinkWidth`).
    #[serde(default)]
    pub pcie_width: Reading<u64>,
    /// PCIe replays since the driver was loaded (`nvmlDeviceGetPcieReplayCounter`).
    #[serde(default)]
    pub pcie_replays: Reading<u64>,
    /// BAR1 memory in use, in bytes (`nvmlDeviceGetBAR1MemoryInfo`).
    #[serde(default)]
    pub bar1_used_bytes: Reading<u64>,
    /// BAR1 memory in all, in bytes.
    #[serde(default)]
    pub bar1_total_bytes: Reading<u64>,
    /// Its NVLinks by number; empty where the card has none.
    #[serde(default)]
    pub nvlinks: Vec<NvLink>,
}

impl GpuHealth {
    /// All but its NVLinks.
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
        }
    }
}

/// One NVLink of a GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NvLink {
    /// Its number on this GPU.
    pub link: u32,
    /// Whether it is up (`nvmlDeviceGetNvLinkState`).
    pub up: Reading<bool>,
    /// Version of NVLink (`nvmlDeviceGetNvLinkVersion`).
    pub version: Reading<u64>,
    /// What is at the other end: `GPU 00000000:0A:00.0`, `switch`, `CPU` (`nvmlDeviceGetNvLinkRemotePciInfo_v2`).
    pub remote: Reading<Text>,
    /// Data received, in MiB/s (field 139 of this link).
    pub rx_mib_s: Reading<u64>,
    /// Data sent, in MiB/s (field 138).
    pub tx_mib_s: Reading<u64>,
    /// Flit and data CRC errors, replays and recoveries since the driver was loaded (`nvmlDeviceGetNvLinkErrorCounter`).
    pub errors: Reading<u64>,
}

impl NvLink {
    /// Whether it is the same link in the same state, whatever it carries.
    pub fn is_as(&self, other: &Self) -> bool {
        self.link == other.link
            && self.up == other.up
            && self.version == other.version
            && self.remote == other.remote
            && self.errors == other.errors
    }
}

/// How two GPUs of a node reach each other, nearest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GpuPath {
    /// It is the same GPU.
    Same,
    /// So many NVLinks, directly or through switches.
    NvLink(u32),
    /// On one board (`NVML_TOPOLOGY_INTERNAL`).
    Internal,
    /// Through one PCIe switch (`PIX`).
    PciSwitch,
    /// Through several PCIe switches (`PXB`).
    PciSwitches,
    /// Through a PCIe host bridge (`PHB`).
    HostBridge,
    /// Within one NUMA node, between host bridges (`NODE`).
    NumaNode,
    /// Between NUMA nodes (`SYS`).
    System,
    /// NVML does not say.
    Unknown,
}
