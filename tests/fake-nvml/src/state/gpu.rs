//! One GPU of the state file: its properties and current readings.

use super::{
    Accounting, Board, Clocks, Counters, Ecc, Engines, Gpm, License, Mig, NvLink, Pcie, Power, Process,
    Remapped, Retired, Thermal, Vgpu,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The default card.
pub(super) const DEFAULT_CARD: &str = "a100-80g";

/// One GPU. `null` for a reading means that the GPU does not support it. Omitted values are the defaults
/// of the card named by `card`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(remote = "Self", default = "Gpu::bare", deny_unknown_fields)]
pub struct Gpu {
    /// The card with the default values; [`super::card::names`] lists them.
    pub card: String,
    /// `nvmlDeviceGetName`.
    pub name: String,
    /// `nvmlDeviceGetUUID`; by default derived from host name and index.
    pub uuid: Option<String>,
    /// `nvmlDeviceGetMinorNumber`; by default the index.
    pub minor: Option<u32>,
    /// PCI domain.
    pub domain: u32,
    /// PCI bus number; by default the index plus 7.
    pub bus: Option<u32>,
    /// Identity, location and modes.
    pub board: Board,
    /// Utilisation of the SMs in %.
    pub util: Option<u32>,
    /// Utilisation of the memory in %.
    pub mem_util: Option<u32>,
    /// The other engines.
    pub engines: Engines,
    /// GPM; `null` before Hopper.
    pub gpm: Option<Gpm>,
    /// Total memory in MiB; `null` for unified memory.
    pub mem_total_mib: Option<u64>,
    /// Used memory in MiB; by default the memory of the processes.
    pub mem_used_mib: Option<u64>,
    /// Reserved memory in MiB.
    pub mem_reserved_mib: u64,
    /// Memory that confidential computing protects in MiB.
    pub mem_protected_mib: Option<u64>,
    /// Width of the memory bus in bits.
    pub mem_bus_bits: Option<u32>,
    /// Temperature in °C.
    pub temp: Option<u32>,
    /// Slow-down threshold in °C.
    pub temp_slowdown: Option<u32>,
    /// Other temperatures.
    pub thermal: Thermal,
    /// Power draw in mW.
    pub power_mw: Option<u32>,
    /// Enforced power limit in mW.
    pub power_limit_mw: Option<u32>,
    /// Other powers.
    pub power: Power,
    /// SM clock in MHz.
    pub sm_clock: Option<u32>,
    /// Memory clock in MHz.
    pub mem_clock: Option<u32>,
    /// Largest SM clock in MHz.
    pub sm_clock_max: Option<u32>,
    /// Largest memory clock in MHz.
    pub mem_clock_max: Option<u32>,
    /// Other clocks.
    pub clocks: Clocks,
    /// Throttle reasons, NVML's bit mask.
    pub throttle: Option<u64>,
    /// Volatile uncorrected ECC errors.
    pub ecc_uncorrected: Option<u64>,
    /// Volatile corrected ECC errors.
    pub ecc_corrected: Option<u64>,
    /// ECC in detail.
    pub ecc: Ecc,
    /// Retired pages; cards from Ampere on have none.
    pub retired: Option<Retired>,
    /// Remapped rows; cards before Ampere have none.
    pub remapped: Option<Remapped>,
    /// Recovery action (field 230): 0 nothing, 1 a reset, 2 a reboot, 3 and 4 a drain.
    pub recovery_action: Option<u32>,
    /// Performance state.
    pub p_state: Option<u32>,
    /// Fans in %; data-centre cards have none.
    pub fan: Option<u32>,
    /// Number of fans, if any.
    pub fan_count: u32,
    /// Fan speed in rpm at 100 %.
    pub fan_rpm_most: u32,
    /// PCIe.
    pub pcie: Pcie,
    /// NVLink; `null` for a card without.
    pub nvlink: Option<NvLink>,
    /// Accounting; `null` where it is not supported.
    pub accounting: Option<Accounting>,
    /// GPU_IS_LOST at enumeration, so there is no handle.
    pub lost_at_enumeration: bool,
    /// Every call on the handle returns GPU_IS_LOST.
    pub lost: bool,
    /// Calls that fail on this GPU: symbol, `field:186` or `gpm:5` → return code.
    pub errors: BTreeMap<String, u32>,
    /// Errors of calls with the handle of the GPU, not with handles of its instances, as in a container with an
    /// instance alone.
    pub errors_of_gpu: BTreeMap<String, u32>,
    /// Calls that return another number on this GPU, as in [`super::State::numbers`].
    pub numbers: BTreeMap<String, u64>,
    /// Calls that hang on this GPU: symbol, `field:186` or `gpm:5` → milliseconds.
    pub hang_ms: BTreeMap<String, u64>,
    /// Xid numbers that the event set delivers, each once, in order; append to send more.
    pub xids: Vec<u64>,
    /// Processes listed on this GPU.
    pub processes: Vec<Process>,
    /// MIG instances; if there is one, the GPU is in MIG mode.
    pub mig: Vec<Mig>,
    /// vGPUs of virtual machines; if there is one, the GPU is their host.
    pub vgpus: Vec<Vgpu>,
    /// The license of this virtual machine for the vGPU software, if the driver has licensable features.
    pub license: Option<License>,
    /// Counters; the state file gives only their rates and initial values.
    #[serde(skip)]
    pub counters: Counters,
}

impl Gpu {
    /// Base of every card: an idle A100 that supports everything.
    pub(super) fn bare() -> Self {
        Self {
            card: DEFAULT_CARD.into(),
            name: "NVIDIA A100-SXM4-80GB".into(),
            uuid: None,
            minor: None,
            domain: 0,
            bus: None,
            board: Board::default(),
            util: Some(0),
            mem_util: Some(0),
            engines: Engines::default(),
            gpm: Some(Gpm::default()),
            mem_total_mib: Some(81_920),
            mem_used_mib: None,
            mem_reserved_mib: 638,
            mem_protected_mib: Some(0),
            mem_bus_bits: Some(5_120),
            temp: Some(31),
            temp_slowdown: Some(92),
            thermal: Thermal::default(),
            power_mw: Some(61_000),
            power_limit_mw: Some(400_000),
            power: Power::default(),
            sm_clock: Some(210),
            mem_clock: Some(1_593),
            sm_clock_max: Some(1_410),
            mem_clock_max: Some(1_593),
            clocks: Clocks::default(),
            throttle: Some(1),
            ecc_uncorrected: Some(0),
            ecc_corrected: Some(0),
            ecc: Ecc::default(),
            retired: None,
            remapped: Some(Remapped::default()),
            recovery_action: Some(0),
            p_state: Some(0),
            fan: None,
            fan_count: 1,
            fan_rpm_most: 3_000,
            pcie: Pcie::default(),
            nvlink: Some(NvLink::default()),
            accounting: Some(Accounting::default()),
            lost_at_enumeration: false,
            lost: false,
            errors: BTreeMap::new(),
            errors_of_gpu: BTreeMap::new(),
            numbers: BTreeMap::new(),
            hang_ms: BTreeMap::new(),
            xids: Vec::new(),
            processes: Vec::new(),
            mig: Vec::new(),
            vgpus: Vec::new(),
            license: None,
            counters: Counters::default(),
        }
    }

    /// Returns whether MIG mode is on.
    pub fn mig_mode(&self) -> bool {
        self.board.mig_mode.or(Some(!self.mig.is_empty())) == Some(true)
    }
}

/// A GPU from a complete description, without a card's defaults.
pub(super) fn from_value(description: serde_json::Value) -> serde_json::Result<Gpu> {
    Gpu::deserialize(description)
}

/// A GPU's complete description.
pub(super) fn to_value(gpu: &Gpu) -> serde_json::Result<serde_json::Value> {
    Gpu::serialize(gpu, serde_json::value::Serializer)
}
