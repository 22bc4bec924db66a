//! Processes on a GPU: running ones, and those in its accounting.

use super::Overridable;
use serde::{Deserialize, Serialize};

/// One process on a GPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Process {
    /// Pid on the node.
    pub pid: u32,
    /// Device memory in MiB; `null` is NVML's "not available".
    pub mem_mib: Option<u64>,
    /// Lists it is in: any of `C`, `G`, `M`.
    pub kind: String,
    /// Utilisation of the SMs in %; by default an equal share of the GPU's; `null` for an idle process.
    pub sm: Overridable<u32>,
    /// Utilisation of the memory in %; by default an equal share of the GPU's.
    pub mem: Overridable<u32>,
    /// Encoder in %.
    pub enc: u32,
    /// Decoder in %.
    pub dec: u32,
    /// JPEG decoder in %.
    pub jpg: u32,
    /// Optical flow in %.
    pub ofa: u32,
    /// Age of its utilisation sample, in ms; negative for a stamp in the future.
    pub age_ms: i64,
}

impl Default for Process {
    fn default() -> Self {
        Self {
            pid: 1,
            mem_mib: Some(1_024),
            kind: "C".into(),
            sm: Overridable::Follows,
            mem: Overridable::Follows,
            enc: 0,
            dec: 0,
            jpg: 0,
            ofa: 0,
            age_ms: 0,
        }
    }
}

/// Accounting of a GPU. Running processes are included automatically.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Accounting {
    /// Whether it is enabled; only root can change it.
    pub on: bool,
    /// Processes that have ended.
    pub ended: Vec<Account>,
}

/// Accounting data of a process.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Account {
    /// Its pid.
    pub pid: u32,
    /// Its utilisation of the GPU in %, over its lifetime.
    pub util: u32,
    /// Its utilisation of the memory in %.
    pub mem_util: u32,
    /// Peak memory, in MiB.
    pub most_mib: u64,
    /// Run time, in ms.
    pub time_ms: u64,
    /// Start time, in µs since 1970.
    pub started_us: u64,
}
