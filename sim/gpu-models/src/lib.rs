//! Specifications of GPU models, for every crate that imitates them: the simulated cluster and the
//! stand-in for NVIDIA's library.
//!
//! What the driver reports is copied from data sheets and from the output of `nvidia-smi -q`. The powers of
//! a loaded and of a waiting GPU come from recorded traces of H100, A100 and RTX 4090; for the other
//! models they are estimates in proportion to the power limit.

/// Specifications of a model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GpuModel {
    /// Name in scenarios, such as `h100`.
    pub id: &'static str,
    /// As reported by the driver (`nvmlDeviceGetName`).
    pub name: &'static str,
    /// Device memory, in MiB.
    pub mem_mib: u64,
    /// Memory reserved by driver and firmware, in MiB.
    pub reserved_mib: u64,
    /// Width of the memory bus, in bits; zero if the memory is the host's.
    pub mem_bus_bits: u32,
    /// Memory type.
    pub memory: Memory,
    /// Default power limit, in W.
    pub cap_w: f64,
    /// Minimum configurable power limit, in W.
    pub cap_min_w: f64,
    /// Maximum configurable power limit, in W.
    pub cap_max_w: f64,
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
    /// Memory clock without a process, in MHz; zero if it has none.
    pub mem_idle_mhz: u64,
    /// Maximum memory clock, in MHz; zero if it has none.
    pub mem_mhz: u64,
    /// Maximum video clock, in MHz.
    pub video_mhz: u64,
    /// Temperature thresholds, if it reports them.
    pub limits: Option<TempLimits>,
    /// Temperature rise over the inlet at the power limit, in °C.
    pub rise_c: f64,
    /// Whether it has a fan.
    pub fan: bool,
    /// Whether it has ECC counters.
    pub ecc: bool,
    /// Architecture.
    pub architecture: Architecture,
    /// CUDA compute capability, major and minor.
    pub compute_capability: (u32, u32),
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// CUDA cores per multiprocessor.
    pub cores_each: u32,
    /// Multiprocessors per slice of a MIG instance; zero without MIG.
    pub slice_multiprocessors: u32,
    /// Whether it supports GPM and confidential computing: data centre GPUs since Hopper.
    pub gpm: bool,
    /// Whether it reports the memory temperature.
    pub mem_temp: bool,
    /// NVLinks, if it has any.
    pub nvlink: Option<NvLinks>,
    /// PCIe generation, without a process and at most.
    pub pcie_gen: (u32, u32),
    /// PCIe lanes.
    pub pcie_width: u32,
    /// As reported by `nvmlDeviceGetVbiosVersion`.
    pub vbios: &'static str,
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

/// Temperature thresholds in °C.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TempLimits {
    /// The hardware lowers clocks.
    pub slowdown_c: u32,
    /// The GPU is switched off.
    pub shutdown_c: u32,
    /// The driver lowers clocks.
    pub gpu_max_c: u32,
    /// The driver lowers clocks because of the memory, if it reports that.
    pub mem_max_c: Option<u32>,
}

/// NVLinks of a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NvLinks {
    /// Number of links.
    pub count: u32,
    /// Generation, such as 4 on Hopper.
    pub generation: u32,
    /// Data rate of one link in each direction, in MB/s.
    pub speed_mb_s: u32,
}

/// GPU architectures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Architecture {
    /// 2018.
    Turing,
    /// 2020.
    Ampere,
    /// 2022, without MIG.
    Ada,
    /// 2022, data centre.
    Hopper,
    /// 2024.
    Blackwell,
    /// AMD, 2023.
    Cdna3,
    /// Intel, 2022, data centre.
    XeHpc,
    /// Google, 2023.
    TpuV5e,
}

impl Architecture {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Turing => "Turing",
            Self::Ampere => "Ampere",
            Self::Ada => "Ada",
            Self::Hopper => "Hopper",
            Self::Blackwell => "Blackwell",
            Self::Cdna3 => "gfx942",
            Self::XeHpc => "Xe-HPC",
            Self::TpuV5e => "TPU v5e",
        }
    }

    /// `nvmlDeviceArchitecture_t`; `NVML_DEVICE_ARCH_UNKNOWN` of other vendors.
    pub fn nvml(self) -> u32 {
        match self {
            Self::Turing => 6,
            Self::Ampere => 7,
            Self::Ada => 8,
            Self::Hopper => 9,
            Self::Blackwell => 10,
            Self::Cdna3 | Self::XeHpc | Self::TpuV5e => u32::MAX,
        }
    }
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
            multiprocessors: self.slice_multiprocessors * slices,
            nvlink: None,
            ..*self
        }
    }

    /// Returns the model of this name.
    pub fn by_id(id: &str) -> Option<&'static Self> {
        MODELS.iter().find(|model| model.id == id)
    }

    /// CUDA cores.
    pub fn cores(&self) -> u32 {
        self.multiprocessors * self.cores_each
    }

    /// Number of NVLinks.
    pub fn nvlinks(&self) -> u32 {
        self.nvlink.map_or(0, |links| links.count)
    }

    /// Data rate of one NVLink in each direction, in MiB/s.
    pub fn nvlink_mib_s(&self) -> u64 {
        self.nvlink.map_or(0, |links| u64::from(links.speed_mb_s) * 1_000_000 / (1 << 20))
    }
}

/// All models.
pub const MODELS: [GpuModel; 13] =
    [H100, H200, GH200, B200, A100, L40S, T4, RTX_3090, RTX_4090, GB10, MI300X, MAX_1550, TPU_V5E];

/// Thresholds of Hopper and data centre Blackwell.
const HOPPER_LIMITS: TempLimits =
    TempLimits { slowdown_c: 87, shutdown_c: 92, gpu_max_c: 83, mem_max_c: Some(95) };

/// H100 SXM, 80 GB HBM3.
pub const H100: GpuModel = GpuModel {
    id: "h100",
    name: "NVIDIA H100 80GB HBM3",
    mem_mib: 81_559,
    reserved_mib: 551,
    mem_bus_bits: 5_120,
    memory: Memory::Own,
    cap_w: 700.0,
    cap_min_w: 200.0,
    cap_max_w: 700.0,
    bare_w: 70.0,
    loaded_w: 120.0,
    waiting_w: 149.0,
    sm_idle_mhz: 345,
    sm_max_mhz: 1_980,
    sm_hot_mhz: 1_095,
    mem_idle_mhz: 2_619,
    mem_mhz: 2_619,
    video_mhz: 1_545,
    limits: Some(HOPPER_LIMITS),
    rise_c: 41.0,
    fan: false,
    ecc: true,
    architecture: Architecture::Hopper,
    compute_capability: (9, 0),
    multiprocessors: 132,
    cores_each: 128,
    slice_multiprocessors: 16,
    gpm: true,
    mem_temp: true,
    nvlink: Some(NvLinks { count: 18, generation: 4, speed_mb_s: 26_562 }),
    pcie_gen: (5, 5),
    pcie_width: 16,
    vbios: "96.00.99.00.01",
};

/// H200 SXM, 141 GB HBM3e.
pub const H200: GpuModel = GpuModel {
    id: "h200",
    name: "NVIDIA H200",
    mem_mib: 143_771,
    reserved_mib: 629,
    mem_bus_bits: 6_144,
    mem_idle_mhz: 3_201,
    mem_mhz: 3_201,
    ..H100
};

/// GH200: a Hopper with its own memory, coherent with the memory of its Grace CPU.
pub const GH200: GpuModel = GpuModel {
    id: "gh200",
    name: "NVIDIA GH200 480GB",
    mem_mib: 97_871,
    reserved_mib: 559,
    mem_bus_bits: 6_144,
    memory: Memory::Coherent,
    cap_w: 900.0,
    cap_min_w: 100.0,
    cap_max_w: 900.0,
    bare_w: 82.0,
    loaded_w: 132.0,
    waiting_w: 168.0,
    nvlink: None,
    ..H100
};

/// B200 SXM, 180 GB HBM3e.
pub const B200: GpuModel = GpuModel {
    id: "b200",
    name: "NVIDIA B200",
    mem_mib: 183_359,
    reserved_mib: 719,
    mem_bus_bits: 8_192,
    cap_w: 1_000.0,
    cap_max_w: 1_000.0,
    bare_w: 140.0,
    loaded_w: 190.0,
    waiting_w: 235.0,
    sm_idle_mhz: 120,
    sm_max_mhz: 1_965,
    mem_idle_mhz: 3_996,
    mem_mhz: 3_996,
    architecture: Architecture::Blackwell,
    compute_capability: (10, 0),
    multiprocessors: 148,
    slice_multiprocessors: 18,
    nvlink: Some(NvLinks { count: 18, generation: 5, speed_mb_s: 50_000 }),
    vbios: "97.00.88.00.0F",
    ..H100
};

/// A100 SXM4, 80 GB.
pub const A100: GpuModel = GpuModel {
    id: "a100",
    name: "NVIDIA A100-SXM4-80GB",
    mem_mib: 81_920,
    reserved_mib: 638,
    cap_w: 400.0,
    cap_min_w: 100.0,
    cap_max_w: 400.0,
    bare_w: 61.0,
    loaded_w: 64.0,
    waiting_w: 97.0,
    sm_idle_mhz: 210,
    sm_max_mhz: 1_410,
    sm_hot_mhz: 885,
    mem_idle_mhz: 1_593,
    mem_mhz: 1_593,
    video_mhz: 1_275,
    limits: Some(TempLimits { slowdown_c: 92, shutdown_c: 95, gpu_max_c: 85, mem_max_c: Some(95) }),
    rise_c: 38.0,
    architecture: Architecture::Ampere,
    compute_capability: (8, 0),
    multiprocessors: 108,
    cores_each: 64,
    slice_multiprocessors: 14,
    gpm: false,
    nvlink: Some(NvLinks { count: 12, generation: 3, speed_mb_s: 25_000 }),
    pcie_gen: (4, 4),
    vbios: "92.00.45.00.03",
    ..H100
};

/// L40S, 48 GB.
pub const L40S: GpuModel = GpuModel {
    id: "l40s",
    name: "NVIDIA L40S",
    mem_mib: 46_068,
    reserved_mib: 600,
    mem_bus_bits: 384,
    cap_w: 350.0,
    cap_min_w: 100.0,
    cap_max_w: 350.0,
    bare_w: 34.0,
    loaded_w: 82.0,
    waiting_w: 112.0,
    sm_idle_mhz: 210,
    sm_max_mhz: 2_520,
    sm_hot_mhz: 1_350,
    mem_idle_mhz: 405,
    mem_mhz: 9_001,
    video_mhz: 2_115,
    limits: Some(TempLimits { slowdown_c: 88, shutdown_c: 93, gpu_max_c: 85, mem_max_c: None }),
    rise_c: 43.0,
    architecture: Architecture::Ada,
    compute_capability: (8, 9),
    multiprocessors: 142,
    slice_multiprocessors: 0,
    gpm: false,
    mem_temp: false,
    nvlink: None,
    pcie_gen: (4, 4),
    vbios: "95.02.66.00.02",
    ..H100
};

/// Tesla T4, 16 GB.
pub const T4: GpuModel = GpuModel {
    id: "t4",
    name: "Tesla T4",
    mem_mib: 15_360,
    reserved_mib: 445,
    mem_bus_bits: 256,
    cap_w: 70.0,
    cap_min_w: 60.0,
    cap_max_w: 70.0,
    bare_w: 9.5,
    loaded_w: 26.0,
    waiting_w: 32.0,
    sm_idle_mhz: 300,
    sm_max_mhz: 1_590,
    sm_hot_mhz: 585,
    mem_mhz: 5_001,
    video_mhz: 1_470,
    limits: Some(TempLimits { slowdown_c: 93, shutdown_c: 96, gpu_max_c: 85, mem_max_c: None }),
    architecture: Architecture::Turing,
    compute_capability: (7, 5),
    multiprocessors: 40,
    cores_each: 64,
    pcie_gen: (1, 3),
    vbios: "90.04.38.00.03",
    ..L40S
};

/// GeForce RTX 3090: with fans and without ECC counters.
pub const RTX_3090: GpuModel = GpuModel {
    id: "rtx3090",
    name: "NVIDIA GeForce RTX 3090",
    mem_mib: 24_576,
    reserved_mib: 316,
    cap_w: 350.0,
    cap_max_w: 366.0,
    bare_w: 28.0,
    loaded_w: 105.0,
    waiting_w: 140.0,
    sm_max_mhz: 2_100,
    sm_hot_mhz: 1_200,
    mem_mhz: 9_751,
    video_mhz: 1_950,
    limits: Some(TempLimits { slowdown_c: 95, shutdown_c: 98, gpu_max_c: 93, mem_max_c: None }),
    rise_c: 42.0,
    fan: true,
    ecc: false,
    architecture: Architecture::Ampere,
    compute_capability: (8, 6),
    multiprocessors: 82,
    pcie_gen: (1, 4),
    vbios: "94.02.42.00.A9",
    ..L40S
};

/// GeForce RTX 4090: with fans and without ECC counters.
pub const RTX_4090: GpuModel = GpuModel {
    id: "rtx4090",
    name: "NVIDIA GeForce RTX 4090",
    mem_mib: 24_564,
    reserved_mib: 346,
    cap_w: 450.0,
    cap_min_w: 150.0,
    cap_max_w: 600.0,
    bare_w: 18.0,
    loaded_w: 58.0,
    waiting_w: 110.0,
    sm_max_mhz: 3_120,
    sm_hot_mhz: 1_800,
    mem_mhz: 10_501,
    limits: Some(TempLimits { slowdown_c: 90, shutdown_c: 95, gpu_max_c: 87, mem_max_c: None }),
    rise_c: 42.0,
    fan: true,
    ecc: false,
    multiprocessors: 128,
    pcie_gen: (1, 4),
    vbios: "95.02.3C.40.B8",
    ..L40S
};

/// GB10 (DGX Spark): a Blackwell whose memory is the host's.
pub const GB10: GpuModel = GpuModel {
    id: "gb10",
    name: "NVIDIA GB10",
    mem_mib: 122_502,
    reserved_mib: 0,
    mem_bus_bits: 0,
    memory: Memory::Host,
    cap_w: 100.0,
    cap_min_w: 100.0,
    cap_max_w: 100.0,
    bare_w: 4.5,
    loaded_w: 11.0,
    waiting_w: 24.0,
    sm_idle_mhz: 208,
    sm_max_mhz: 3_003,
    sm_hot_mhz: 1_600,
    mem_idle_mhz: 0,
    mem_mhz: 0,
    video_mhz: 2_600,
    limits: None,
    rise_c: 46.0,
    ecc: false,
    architecture: Architecture::Blackwell,
    compute_capability: (12, 1),
    multiprocessors: 48,
    slice_multiprocessors: 0,
    gpm: false,
    mem_temp: false,
    nvlink: None,
    pcie_gen: (1, 1),
    pcie_width: 1,
    vbios: "9A.0B.15.00.00",
    ..H100
};

/// AMD Instinct MI300X, 192 GB HBM3, one partition.
pub const MI300X: GpuModel = GpuModel {
    id: "mi300x",
    name: "AMD Instinct MI300X",
    mem_mib: 196_592,
    reserved_mib: 284,
    mem_bus_bits: 8_192,
    cap_w: 750.0,
    cap_min_w: 0.0,
    cap_max_w: 750.0,
    bare_w: 140.0,
    loaded_w: 165.0,
    waiting_w: 210.0,
    sm_idle_mhz: 132,
    sm_max_mhz: 2_100,
    mem_idle_mhz: 900,
    mem_mhz: 1_300,
    limits: Some(TempLimits { slowdown_c: 100, shutdown_c: 110, gpu_max_c: 100, mem_max_c: Some(105) }),
    architecture: Architecture::Cdna3,
    compute_capability: (9, 4),
    multiprocessors: 304,
    cores_each: 64,
    slice_multiprocessors: 0,
    gpm: false,
    nvlink: Some(NvLinks { count: 7, generation: 4, speed_mb_s: 64_000 }),
    vbios: "113-M3000100-103",
    ..H100
};

/// Intel Data Center GPU Max 1550, 128 GB HBM2e.
pub const MAX_1550: GpuModel = GpuModel {
    id: "max1550",
    name: "Intel Data Center GPU Max 1550",
    mem_mib: 131_072,
    reserved_mib: 512,
    mem_bus_bits: 8_192,
    cap_w: 600.0,
    cap_max_w: 600.0,
    bare_w: 110.0,
    loaded_w: 135.0,
    waiting_w: 170.0,
    sm_idle_mhz: 900,
    sm_max_mhz: 1_600,
    architecture: Architecture::XeHpc,
    nvlink: None,
    limits: Some(TempLimits { slowdown_c: 105, shutdown_c: 125, gpu_max_c: 105, mem_max_c: Some(95) }),
    ..MI300X
};

/// TPU v5e, 16 GB HBM2. Its library states neither power nor clocks; they only set the simulated load.
pub const TPU_V5E: GpuModel = GpuModel {
    id: "tpu-v5e",
    name: "TPU v5e",
    mem_mib: 16_384,
    reserved_mib: 64,
    mem_bus_bits: 0,
    architecture: Architecture::TpuV5e,
    ..MAX_1550
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_model_is_found_by_its_own_id() {
        for model in &MODELS {
            assert_eq!(GpuModel::by_id(model.id), Some(model));
        }
        assert_eq!(GpuModel::by_id("voodoo2"), None);
    }

    #[test]
    fn powers_and_clocks_of_each_model_are_ordered() {
        for model in &MODELS {
            let powers = [model.bare_w, model.loaded_w, model.waiting_w, model.cap_w, model.cap_max_w];
            assert!(powers.is_sorted() && model.cap_min_w <= model.cap_w, "{}", model.id);
            assert!([model.sm_idle_mhz, model.sm_hot_mhz, model.sm_max_mhz].is_sorted(), "{}", model.id);
            assert!(model.mem_idle_mhz <= model.mem_mhz && model.pcie_gen.0 <= model.pcie_gen.1);
            let ordered =
                |limits: TempLimits| [limits.gpu_max_c, limits.slowdown_c, limits.shutdown_c].is_sorted();
            assert!(model.limits.is_none_or(ordered), "{}", model.id);
        }
    }

    #[test]
    fn an_instance_has_a_share_of_its_gpu() {
        let part = H100.part(3, 40);
        assert_eq!((part.multiprocessors, part.nvlinks()), (48, 0));
        assert!(part.mem_mib < H100.mem_mib / 2 && part.cap_w < H100.cap_w / 2.0);
    }
}
