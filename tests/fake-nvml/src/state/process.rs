//! Who uses a card: processes of now, and those that accounting remembers.

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
    /// Utilisation of the SMs in %; follows an equal share of the GPU's, `null` is a process that idles.
    pub sm: Overridable<u32>,
    /// Utilisation of the memory in %; follows likewise.
    pub mem: Overridable<u32>,
    /// Encoder in %.
    pub enc: u32,
    /// Decoder in %.
    pub dec: u32,
    /// JPEG decoder in %.
    pub jpg: u32,
    /// Optical flow in %.
    pub ofa: u32,
    /// How old its utilisation sample is, in ms; below zero, its stamp lies ahead.
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

/// Accounting of a GPU. Processes of now are accounted by themselves.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Accounting {
    /// Whether it is on; only root can switch it.
    pub on: bool,
    /// Processes that have ended.
    pub ended: Vec<Account>,
}

/// What accounting remembers of a process.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Account {
    /// Its pid.
    pub pid: u32,
    /// Its utilisation of the GPU in %, over its life.
    pub util: u32,
    /// Its utilisation of the memory in %.
    pub mem_util: u32,
    /// The most memory it had, in MiB.
    pub most_mib: u64,
    /// How long it ran, in ms.
    pub time_ms: u64,
    /// When it began, in µs since 1970.
    pub started_us: u64,
}
