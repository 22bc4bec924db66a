//! A source of accelerator readings: the vendor's driver of a node, and its state.

use crate::{Reading, Text};
use serde::{Deserialize, Serialize};

/// Vendor of an accelerator and of its driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Vendor {
    /// Not reported.
    #[default]
    Unknown,
    /// NVIDIA, read through NVML.
    Nvidia,
    /// AMD, read through the attributes of the kernel driver.
    Amd,
    /// Intel, read through the attributes of the kernel driver.
    Intel,
    /// Google TPU, read through libtpuinfo.
    Tpu,
}

impl Vendor {
    /// Name before a noun: `NVIDIA`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "GPU",
            Self::Nvidia => "NVIDIA",
            Self::Amd => "AMD",
            Self::Intel => "Intel",
            Self::Tpu => "TPU",
        }
    }

    /// Label of its device with an index: `GPU 0` for NVIDIA and unknown vendors, otherwise the vendor's name
    /// and the index, so that labels are unique on nodes with devices of several vendors.
    pub fn device_label(self, index: u32) -> String {
        match self {
            Self::Unknown | Self::Nvidia => format!("GPU {index}"),
            Self::Amd | Self::Intel | Self::Tpu => format!("{} {index}", self.name()),
        }
    }

    /// Name of its compute platform, whose version the driver states: `CUDA`.
    pub const fn platform(self) -> &'static str {
        match self {
            Self::Unknown => "Compute platform",
            Self::Nvidia => "CUDA",
            Self::Amd => "ROCm",
            Self::Intel => "Level Zero",
            Self::Tpu => "libtpu",
        }
    }

    /// Name of what readings come from: `NVML`.
    pub const fn library(self) -> &'static str {
        match self {
            Self::Unknown => "GPU driver",
            Self::Nvidia => "NVML",
            Self::Amd => "AMD driver",
            Self::Intel => "Intel driver",
            Self::Tpu => "libtpuinfo",
        }
    }
}

/// One source of a probe: a vendor's driver on this node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SourceState {
    /// Vendor of its accelerators.
    pub vendor: Vendor,
    /// Whether it is available.
    pub status: SourceStatus,
}

/// Availability of a source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SourceStatus {
    /// The driver responds.
    Ready(SourceVersions),
    /// There are no accelerators at present.
    Absent {
        /// Message for the user (`the NVIDIA driver is not loaded: …`).
        reason: Text,
    },
    /// The device cgroup of the probe withholds some accelerators. It belongs to no source: admitted ones are read as
    /// usual.
    Confined {
        /// Message for the user (`1 of 4 GPUs visible: this probe was adopted into job 17`).
        reason: Text,
    },
}

/// Versions of a source.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SourceVersions {
    /// Version of the kernel driver (`nvmlSystemGetDriverVersion`).
    #[serde(default)]
    pub driver: Reading<Text>,
    /// Version of the library that readings come from (`nvmlSystemGetNVMLVersion`).
    #[serde(default)]
    pub library: Reading<Text>,
    /// Newest version of [`Vendor::platform`] that the driver supports, as `12.4`
    /// (`nvmlSystemGetCudaDriverVersion_v2`).
    #[serde(default)]
    pub platform: Reading<Text>,
}

impl SourceState {
    /// An unavailable source.
    pub fn absent(vendor: Vendor, reason: impl Into<Text>) -> Self {
        Self { vendor, status: SourceStatus::Absent { reason: reason.into() } }
    }

    /// A probe that some accelerators are withheld from.
    pub const fn confined(reason: Text) -> Self {
        Self { vendor: Vendor::Unknown, status: SourceStatus::Confined { reason } }
    }

    /// An available source.
    pub const fn ready(vendor: Vendor, versions: SourceVersions) -> Self {
        Self { vendor, status: SourceStatus::Ready(versions) }
    }

    /// Returns the versions of an available source.
    pub const fn versions(&self) -> Option<&SourceVersions> {
        match &self.status {
            SourceStatus::Ready(versions) => Some(versions),
            SourceStatus::Absent { .. } | SourceStatus::Confined { .. } => None,
        }
    }

    /// Returns the reason why it is unavailable, if so.
    pub const fn absent_reason(&self) -> Option<&Text> {
        match &self.status {
            SourceStatus::Ready(_) | SourceStatus::Confined { .. } => None,
            SourceStatus::Absent { reason } => Some(reason),
        }
    }

    /// Returns which accelerators are withheld from the probe and why, if any.
    pub const fn confinement(&self) -> Option<&Text> {
        match &self.status {
            SourceStatus::Confined { reason } => Some(reason),
            SourceStatus::Ready(_) | SourceStatus::Absent { .. } => None,
        }
    }
}
