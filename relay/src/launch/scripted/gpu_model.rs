//! Specifications and power model of the GPU models in scenarios, after data sheets and recorded
//! traces.

use serde::Deserialize;

/// A GPU model that a scenario can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GpuModelName {
    /// H100 SXM, 80 GB HBM3.
    H100,
    /// A100 SXM4, 80 GB.
    A100,
    /// L40S, 48 GB.
    L40s,
    /// GeForce RTX 4090: with a fan and without ECC counters.
    Rtx4090,
    /// GH200: a Hopper with its own memory, coherent with that of its Grace CPU.
    Gh200,
    /// GB10 (DGX Spark): a Blackwell whose memory is the host's.
    Gb10,
}

/// Specifications of a model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GpuModel {
    /// As reported by `nvmlDeviceGetName`.
    pub name: &'static str,
    /// Device memory, in MiB.
    pub mem_mib: u64,
    /// Memory reserved by driver and firmware, in MiB.
    pub reserved_mib: u64,
    /// Power limit, in W.
    pub cap_w: f64,
    /// Idle power without a process, in W.
    pub bare_w: f64,
    /// Idle power with a model loaded, in W.
    pub loaded_w: f64,
    /// Power of a waiting collective, which NVML reports as busy, in W.
    pub waiting_w: f64,
    /// Idle SM clock without a process, in MHz.
    pub sm_idle_mhz: u64,
    /// Maximum SM clock, in MHz.
    pub sm_max_mhz: u64,
    /// SM clock under thermal throttling, in MHz.
    pub sm_hot_mhz: u64,
    /// Memory clock, in MHz.
    pub mem_mhz: u64,
    /// Slowdown temperature, in °C.
    pub slowdown_c: u32,
    /// Temperature rise over the inlet at the power limit, in °C.
    pub rise_c: f64,
    /// Whether it has a fan.
    pub fan: bool,
    /// Whether it has ECC counters.
    pub ecc: bool,
    /// As reported by `nvmlDeviceGetArchitecture`.
    pub architecture: &'static str,
    /// CUDA compute capability.
    pub compute_capability: &'static str,
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// CUDA cores per multiprocessor.
    pub cores_each: u32,
    /// Whether it supports GPM: data centre GPUs since Hopper.
    pub gpm: bool,
    /// Whether it reports the memory temperature.
    pub mem_temp: bool,
    /// Number of NVLinks.
    pub nvlinks: u32,
    /// Data rate of one NVLink in each direction, in MiB/s.
    pub nvlink_mib_s: u64,
    /// Maximum PCIe generation.
    pub pcie_gen: u32,
    /// Minimum configurable power limit, in W.
    pub cap_min_w: f64,
    /// Maximum video clock, in MHz.
    pub video_mhz: u64,
    /// Memory type.
    pub memory: Memory,
}

/// Memory types of GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// Dedicated.
    Own,
    /// Dedicated, and coherent with the host's.
    Coherent,
    /// Shared with the host.
    Host,
}

impl GpuModel {
    /// Returns the specifications of a MIG instance with a number of slices and memory size.
    pub fn part(&self, slices: u32, mem_gb: u64) -> Self {
        let share = f64::from(slices) / 7.0;
        Self {
            mem_mib: (mem_gb * 1_000 * 1_000 * 1_000 / (1 << 20)).min(self.mem_mib) * 98 / 100,
            reserved_mib: 13,
            cap_w: self.cap_w * share,
            bare_w: self.bare_w * share,
            loaded_w: self.loaded_w * share,
            waiting_w: self.waiting_w * share,
            multiprocessors: self.multiprocessors / 33 * 4 * slices,
            nvlinks: 0,
            ..*self
        }
    }
}

impl GpuModelName {
    /// Returns the specifications.
    pub fn spec(self) -> GpuModel {
        match self {
            Self::H100 => H100,
            Self::A100 => A100,
            Self::L40s => L40S,
            Self::Rtx4090 => RTX_4090,
            Self::Gh200 => GH200,
            Self::Gb10 => GB10,
        }
    }
}

const H100: GpuModel = GpuModel {
    name: "NVIDIA H100 80GB HBM3",
    mem_mib: 81_559,
    reserved_mib: 551,
    cap_w: 700.0,
    bare_w: 70.0,
    loaded_w: 120.0,
    waiting_w: 149.0,
    sm_idle_mhz: 345,
    sm_max_mhz: 1_980,
    sm_hot_mhz: 1_095,
    mem_mhz: 2_619,
    slowdown_c: 90,
    rise_c: 41.0,
    fan: false,
    ecc: true,
    architecture: "Hopper",
    compute_capability: "9.0",
    multiprocessors: 132,
    cores_each: 128,
    gpm: true,
    mem_temp: true,
    nvlinks: 18,
    nvlink_mib_s: 25_000,
    pcie_gen: 5,
    cap_min_w: 200.0,
    video_mhz: 1_545,
    memory: Memory::Own,
};

const A100: GpuModel = GpuModel {
    name: "NVIDIA A100-SXM4-80GB",
    mem_mib: 81_920,
    reserved_mib: 617,
    cap_w: 400.0,
    bare_w: 53.0,
    loaded_w: 64.0,
    waiting_w: 97.0,
    sm_idle_mhz: 210,
    sm_max_mhz: 1_410,
    sm_hot_mhz: 885,
    mem_mhz: 1_593,
    slowdown_c: 89,
    rise_c: 38.0,
    architecture: "Ampere",
    compute_capability: "8.0",
    multiprocessors: 108,
    cores_each: 64,
    gpm: false,
    nvlinks: 12,
    pcie_gen: 4,
    cap_min_w: 100.0,
    video_mhz: 1_275,
    ..H100
};

const L40S: GpuModel = GpuModel {
    name: "NVIDIA L40S",
    mem_mib: 46_068,
    reserved_mib: 600,
    cap_w: 350.0,
    bare_w: 34.0,
    loaded_w: 82.0,
    waiting_w: 112.0,
    sm_idle_mhz: 210,
    sm_max_mhz: 2_520,
    sm_hot_mhz: 1_350,
    mem_mhz: 9_001,
    slowdown_c: 88,
    rise_c: 43.0,
    architecture: "Ada",
    compute_capability: "8.9",
    multiprocessors: 142,
    gpm: false,
    mem_temp: false,
    nvlinks: 0,
    pcie_gen: 4,
    cap_min_w: 100.0,
    video_mhz: 2_115,
    ..H100
};

const RTX_4090: GpuModel = GpuModel {
    name: "NVIDIA GeForce RTX 4090",
    mem_mib: 24_564,
    reserved_mib: 346,
    cap_w: 450.0,
    bare_w: 18.0,
    loaded_w: 58.0,
    waiting_w: 110.0,
    sm_idle_mhz: 210,
    sm_max_mhz: 3_120,
    sm_hot_mhz: 1_800,
    mem_mhz: 10_501,
    slowdown_c: 90,
    rise_c: 42.0,
    fan: true,
    ecc: false,
    multiprocessors: 128,
    cap_min_w: 150.0,
    ..L40S
};

const GH200: GpuModel = GpuModel {
    name: "NVIDIA GH200 480GB",
    mem_mib: 97_871,
    reserved_mib: 580,
    cap_w: 900.0,
    bare_w: 76.0,
    loaded_w: 132.0,
    waiting_w: 168.0,
    cap_min_w: 100.0,
    nvlinks: 0,
    memory: Memory::Coherent,
    ..H100
};

const GB10: GpuModel = GpuModel {
    name: "NVIDIA GB10",
    mem_mib: 122_502,
    reserved_mib: 0,
    cap_w: 100.0,
    bare_w: 4.0,
    loaded_w: 11.0,
    waiting_w: 24.0,
    sm_idle_mhz: 208,
    sm_max_mhz: 3_003,
    sm_hot_mhz: 1_600,
    mem_mhz: 0,
    rise_c: 46.0,
    ecc: false,
    architecture: "Blackwell",
    compute_capability: "12.1",
    multiprocessors: 48,
    gpm: false,
    mem_temp: false,
    nvlinks: 0,
    pcie_gen: 5,
    video_mhz: 2_600,
    memory: Memory::Host,
    ..H100
};
