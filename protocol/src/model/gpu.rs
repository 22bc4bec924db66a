//! A GPU, split into facts, health and readings by how often they change.

mod described;
mod facts;
mod health;

use crate::{Reading, Text};
pub use described::{Absent, Described, FactKind, FactReading, Problem, Section, TableColumn};
pub use facts::GpuFacts;
pub use health::GpuHealth;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

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
