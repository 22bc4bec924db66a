//! The state file: what a test or a demonstration wants NVML to say, with a default for everything.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The whole file. `{}` is a machine with a driver and no GPU; without any file, no driver is loaded.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct State {
    /// What `nvmlInit_v2` returns: 0, 4 (no permission), 9 (driver not loaded), 18 (version mismatch), 999.
    pub init: u32,
    /// `nvmlSystemGetDriverVersion`.
    pub driver: String,
    /// `nvmlSystemGetNVMLVersion`.
    pub nvml: String,
    /// `nvmlSystemGetCudaDriverVersion_v2`: 12040 is 12.4.
    pub cuda: i32,
    /// Utilisation, clocks, power and temperature move with time by themselves. A GPU that lists no
    /// process idles if `train_processes` is set; otherwise every GPU is busy.
    pub motion: bool,
    /// Real processes whose arguments hold `--gpus=0,1` (and `--gpu-mem=41G`) are listed on those GPUs.
    pub train_processes: bool,
    /// Calls that hang: symbol → milliseconds.
    pub hang_ms: BTreeMap<String, u64>,
    /// Calls that fail on every device: symbol → return code.
    pub errors: BTreeMap<String, u32>,
    /// The GPUs in NVML's order.
    pub gpus: Vec<Gpu>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            init: 0,
            driver: "550.54.15".into(),
            nvml: "12.550.54.15".into(),
            cuda: 12_040,
            motion: false,
            train_processes: false,
            hang_ms: BTreeMap::new(),
            errors: BTreeMap::new(),
            gpus: Vec::new(),
        }
    }
}

/// One GPU. `null` for a reading means that this card does not offer it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Gpu {
    /// `nvmlDeviceGetName`.
    pub name: String,
    /// `nvmlDeviceGetUUID`; left out, one that follows from host name and index.
    pub uuid: Option<String>,
    /// `nvmlDeviceGetMinorNumber`; left out, the index.
    pub minor: Option<u32>,
    /// PCI bus number; left out, 7 more than the index.
    pub bus: Option<u32>,
    /// Utilisation of the SMs in %.
    pub util: Option<u32>,
    /// Utilisation of the memory in %.
    pub mem_util: Option<u32>,
    /// Total memory in MiB.
    pub mem_total_mib: Option<u64>,
    /// Used memory in MiB; left out, what the processes use.
    pub mem_used_mib: Option<u64>,
    /// Reserved memory in MiB.
    pub mem_reserved_mib: u64,
    /// Temperature in °C.
    pub temp: Option<u32>,
    /// Slow-down threshold in °C.
    pub temp_slowdown: Option<u32>,
    /// Power draw in mW.
    pub power_mw: Option<u32>,
    /// Enforced power limit in mW.
    pub power_limit_mw: Option<u32>,
    /// SM clock in MHz.
    pub sm_clock: Option<u32>,
    /// Memory clock in MHz.
    pub mem_clock: Option<u32>,
    /// Largest SM clock in MHz.
    pub sm_clock_max: Option<u32>,
    /// Largest memory clock in MHz.
    pub mem_clock_max: Option<u32>,
    /// Throttle reasons, NVML's bit mask.
    pub throttle: Option<u64>,
    /// Volatile uncorrected ECC errors.
    pub ecc_uncorrected: Option<u64>,
    /// Volatile corrected ECC errors.
    pub ecc_corrected: Option<u64>,
    /// Performance state.
    pub p_state: Option<u32>,
    /// Fan in %; data-centre cards have none.
    pub fan: Option<u32>,
    /// No handle can be had: GPU_IS_LOST at enumeration.
    pub lost_at_enumeration: bool,
    /// Every call on the handle says GPU_IS_LOST.
    pub lost: bool,
    /// Calls that fail on this GPU: symbol → return code.
    pub errors: BTreeMap<String, u32>,
    /// Xid numbers that the event set delivers, each once, in order; append to send more.
    pub xids: Vec<u64>,
    /// Processes listed on this GPU.
    pub processes: Vec<Process>,
    /// MIG instances; if there is one, the GPU is in MIG mode.
    pub mig: Vec<Mig>,
}

impl Default for Gpu {
    fn default() -> Self {
        Self {
            name: "NVIDIA A100-SXM4-80GB".into(),
            uuid: None,
            minor: None,
            bus: None,
            util: Some(0),
            mem_util: Some(0),
            mem_total_mib: Some(81_920),
            mem_used_mib: None,
            mem_reserved_mib: 638,
            temp: Some(31),
            temp_slowdown: Some(92),
            power_mw: Some(61_000),
            power_limit_mw: Some(400_000),
            sm_clock: Some(210),
            mem_clock: Some(1_593),
            sm_clock_max: Some(1_410),
            mem_clock_max: Some(1_593),
            throttle: Some(1),
            ecc_uncorrected: Some(0),
            ecc_corrected: Some(0),
            p_state: Some(0),
            fan: None,
            lost_at_enumeration: false,
            lost: false,
            errors: BTreeMap::new(),
            xids: Vec::new(),
            processes: Vec::new(),
            mig: Vec::new(),
        }
    }
}

/// One MIG instance.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Mig {
    /// `nvmlDeviceGetName` of the instance.
    pub name: String,
    /// UUID; left out, one that follows from GPU and position.
    pub uuid: Option<String>,
    /// GPU instance id.
    pub gi: u32,
    /// Compute instance id.
    pub ci: u32,
    /// Total memory in MiB.
    pub mem_total_mib: u64,
    /// Used memory in MiB.
    pub mem_used_mib: u64,
    /// Processes of this instance; they are also listed on the GPU, with these ids.
    pub processes: Vec<Process>,
}

impl Default for Mig {
    fn default() -> Self {
        Self {
            name: "NVIDIA A100-SXM4-80GB MIG 1g.10gb".into(),
            uuid: None,
            gi: 1,
            ci: 0,
            mem_total_mib: 9_728,
            mem_used_mib: 12,
            processes: Vec::new(),
        }
    }
}

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
}

impl Default for Process {
    fn default() -> Self {
        Self { pid: 1, mem_mib: Some(1_024), kind: "C".into() }
    }
}
