//! A vGPU of the state file, and the license of one.

use serde::{Deserialize, Serialize};

/// A vGPU that a virtual machine uses.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Vgpu {
    /// UUID of the virtual machine.
    pub vm: String,
    /// `nvmlVgpuTypeGetName`.
    pub profile: String,
    /// Memory in use in MiB.
    pub mem_used_mib: u64,
    /// Total memory in MiB.
    pub mem_total_mib: u64,
    /// Whether it is licensed.
    pub licensed: bool,
}

impl Default for Vgpu {
    fn default() -> Self {
        Self {
            vm: "0b5bd1a8-0000-4000-8000-000000000001".into(),
            profile: "GRID A100-10C".into(),
            mem_used_mib: 0,
            mem_total_mib: 10_240,
            licensed: true,
        }
    }
}

/// The license of a virtual machine for the vGPU software.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct License {
    /// Product in use.
    pub product: String,
    /// Whether it is licensed.
    pub licensed: bool,
    /// Expiry in GMT: year, month, day, hour, minute, second; `null` for a permanent license.
    pub expires: Option<[u16; 6]>,
}

impl Default for License {
    fn default() -> Self {
        Self { product: "NVIDIA Virtual Compute Server".into(), licensed: true, expires: None }
    }
}
