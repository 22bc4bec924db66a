//! A GPU, split into facts, health and readings by how often they change.

use crate::field::Limit;
use crate::{GpuUuid, Reading, Text, Vendor};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Facts of a GPU or MIG instance that do not change while the driver is loaded, except for its
/// modes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
        Self {
            uuid,
            index,
            vendor: Vendor::Unknown,
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
            virtualization: Reading::NotYet,
        }
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

impl Default for GpuFacts {
    fn default() -> Self {
        Self::new(GpuUuid::new(""), 0)
    }
}

/// The way in which a GPU is shared with virtual machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Virtualization {
    /// Not at all: this system has the whole GPU.
    None,
    /// This system is a virtual machine that the whole GPU is passed to.
    PassThrough,
    /// This system is a virtual machine, and the device is a vGPU.
    VgpuGuest,
    /// Virtual machines have vGPUs of it, whose processes this system does not see.
    VgpuHost,
    /// Virtual machines share it for graphics (vSGA).
    VsgaHost,
}

/// A vGPU of a GPU, which a virtual machine uses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Vgpu {
    /// The virtual machine: its domain id or UUID (`nvmlVgpuInstanceGetVmID`).
    pub vm: Reading<Text>,
    /// Type, `GRID A100-10C` (`nvmlVgpuTypeGetName`).
    pub profile: Reading<Text>,
    /// Memory in use, in bytes (`nvmlVgpuInstanceGetFbUsage`).
    pub mem_used_bytes: Reading<u64>,
    /// Total memory in bytes (`nvmlVgpuTypeGetFramebufferSize`).
    pub mem_total_bytes: Reading<u64>,
    /// Whether it is licensed; without a license it is slow (`nvmlVgpuInstanceGetLicenseInfo_v2`).
    pub is_licensed: Reading<bool>,
}

/// The license of this virtual machine for NVIDIA's vGPU software (`nvmlDeviceGetGridLicensableFeatures_v4`);
/// *unsupported* where the driver has no licensable features.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct VgpuLicense {
    /// Whether there is a license at present.
    pub is_licensed: Reading<bool>,
    /// The product in use, `NVIDIA Virtual Compute Server`.
    pub product: Reading<Text>,
    /// When the license expires, in GMT: `2026-12-31 13:05:00`; *unsupported* if it does not.
    pub expires: Reading<Text>,
}

impl VgpuLicense {
    /// Returns the license of a GPU without licensable features.
    pub fn unsupported() -> Self {
        Self {
            is_licensed: Reading::Unsupported,
            product: Reading::Unsupported,
            expires: Reading::Unsupported,
        }
    }
}

/// Identity of a MIG instance within its GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MigFacts {
    /// GPU instance id (`nvmlDeviceGetGpuInstanceId`).
    pub gpu_instance: u32,
    /// Compute instance id (`nvmlDeviceGetComputeInstanceId`).
    pub compute_instance: u32,
    /// Profile, `3g.40gb`, if the device name contains it.
    pub profile: Option<Text>,
    /// Multiprocessors (`nvmlDeviceGetAttributes_v2`).
    pub multiprocessors: Option<u32>,
}

/// Slowly changing state of a GPU that describes its health; queried every few seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GpuHealth {
    /// Lifetime corrected ECC errors (`nvmlDeviceGetTotalEccErrors(corrected, aggregate)`).
    #[serde(default)]
    pub ecc_life_corrected: Reading<u64>,
    /// Lifetime uncorrected ECC errors.
    #[serde(default)]
    pub ecc_life_uncorrected: Reading<u64>,
    /// Pages retired for multiple corrected errors (`nvmlDeviceGetRetiredPages`).
    #[serde(default)]
    pub retired_corrected: Reading<u64>,
    /// Pages retired for an uncorrected error.
    #[serde(default)]
    pub retired_uncorrected: Reading<u64>,
    /// Whether page retirements are pending a reboot (`nvmlDeviceGetRetiredPagesPendingStatus`).
    #[serde(default)]
    pub retired_pending: Reading<bool>,
    /// Rows remapped for corrected errors (`nvmlDeviceGetRemappedRows`).
    #[serde(default)]
    pub remapped_corrected: Reading<u64>,
    /// Rows remapped for uncorrected errors.
    #[serde(default)]
    pub remapped_uncorrected: Reading<u64>,
    /// Whether a row remapping is pending a reset.
    #[serde(default)]
    pub remap_pending: Reading<bool>,
    /// Whether a row remapping failed; the GPU should be replaced.
    #[serde(default)]
    pub remap_failed: Reading<bool>,
    /// Current PCIe generation (`nvmlDeviceGetCurrPcieLinkGeneration`); lower when idle.
    #[serde(default)]
    pub pcie_gen: Reading<u64>,
    /// Current PCIe link width in lanes (`nvmlDeviceGetCurrPcieLinkWidth`).
    #[serde(default)]
    pub pcie_width: Reading<u64>,
    /// PCIe replays since the driver was loaded (`nvmlDeviceGetPcieReplayCounter`).
    #[serde(default)]
    pub pcie_replays: Reading<u64>,
    /// BAR1 memory in use, in bytes (`nvmlDeviceGetBAR1MemoryInfo`).
    #[serde(default)]
    pub bar1_used_bytes: Reading<u64>,
    /// Total BAR1 memory in bytes.
    #[serde(default)]
    pub bar1_total_bytes: Reading<u64>,
    /// NVLinks by number; empty if the GPU has none.
    #[serde(default)]
    pub nvlinks: Vec<NvLink>,
    /// Its vGPUs, if this system is their host (`nvmlDeviceGetActiveVgpus`).
    #[serde(default)]
    pub vgpus: Vec<Vgpu>,
    /// The license of this system for the vGPU software.
    #[serde(default)]
    pub license: VgpuLicense,
}

impl GpuHealth {
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

/// One NVLink of a GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NvLink {
    /// Link number on this GPU.
    pub link: u32,
    /// Whether it is up (`nvmlDeviceGetNvLinkState`).
    pub up: Reading<bool>,
    /// NVLink version (`nvmlDeviceGetNvLinkVersion`).
    pub version: Reading<u64>,
    /// Remote end: `GPU 00000000:0A:00.0`, `switch`, `CPU` (`nvmlDeviceGetNvLinkRemotePciInfo_v2`).
    pub remote: Reading<Text>,
    /// Data received, in MiB/s (field 139 of this link).
    pub rx_mib_s: Reading<u64>,
    /// Data sent, in MiB/s (field 138).
    pub tx_mib_s: Reading<u64>,
    /// Flit and data CRC errors, replays and recoveries since the driver was loaded (`nvmlDeviceGetNvLinkErrorCounter`).
    pub errors: Reading<u64>,
}

impl NvLink {
    /// Returns whether both are equal except for their rates.
    pub fn equals_except_rates(&self, other: &Self) -> bool {
        self.link == other.link
            && self.up == other.up
            && self.version == other.version
            && self.remote == other.remote
            && self.errors == other.errors
    }
}

/// Connection between two GPUs of a node, nearest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GpuPath {
    /// Both are the same GPU.
    Same,
    /// Number of NVLinks, direct or through switches.
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
    /// Not reported by NVML.
    Unknown,
}

impl GpuPath {
    /// Its name as `nvidia-smi topo -m` prints it; `None` if it is not reported.
    pub fn name(self) -> Option<Cow<'static, str>> {
        Some(match self {
            Self::Same => "X".into(),
            Self::NvLink(links) => format!("NV{links}").into(),
            Self::Internal => "INT".into(),
            Self::PciSwitch => "PIX".into(),
            Self::PciSwitches => "PXB".into(),
            Self::HostBridge => "PHB".into(),
            Self::NumaNode => "NODE".into(),
            Self::System => "SYS".into(),
            Self::Unknown => return None,
        })
    }
}
