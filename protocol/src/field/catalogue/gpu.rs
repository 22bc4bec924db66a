//! The metrics of a GPU or MIG instance.

use super::{catalogue, select};
use crate::Text;
use crate::field::metric::{FullScale, Group, Limit, Metric, Retention, Unit, ValueKind};
use crate::field::wording::{AMD, INTEL, SEVERAL, TPU, VendorWording, Wording, words};
use crate::field::{Field, ROW_WIDTH, ReadingSet};
use Group::{Activity, Clocks, Engines, Errors, Links, Memory, Power, Temperature};

const MIB_64: u64 = 64 << 20;
const GIB: u64 = 1 << 30;

const UTILIZATION: &[VendorWording] = &[
    (
        AMD,
        words(
            "Utilisation",
            "Utilisation",
            "Utilisation",
            "share of time in which the graphics or compute engine was busy",
        ),
    ),
    (
        INTEL,
        words(
            "Utilisation",
            "Utilisation",
            "Utilisation",
            "share of time in which the graphics processor was awake and busy",
        ),
    ),
    (
        TPU,
        words(
            "Duty cycle",
            "Duty cycle",
            "Duty cycle",
            "share of time in which the TensorCores were processing",
        ),
    ),
    (
        SEVERAL,
        words(
            "Utilisation",
            "Utilisation",
            "Utilisation",
            "share of time in which the device was busy; on TPUs the duty cycle",
        ),
    ),
];
const CORE_CLOCK: &[VendorWording] = &[
    (AMD, words("Shader clock", "Shader", "Shader", "clock frequency of the shader cores (SCLK)")),
    (INTEL, words("GT clock", "GT", "GT", "clock frequency of the fastest graphics tile (GT)")),
    (TPU, words("Core clock", "Core", "Core", "clock frequency of the cores")),
    (SEVERAL, words("Core clock", "Core", "Core", "clock frequency of the cores that compute")),
];
const MEMORY: &[VendorWording] = &[
    (AMD, words("VRAM", "Used", "VRAM", "device memory in use")),
    (TPU, words("HBM", "Used", "HBM", "high-bandwidth memory in use")),
];
const HOTSPOT: &[VendorWording] = &[(
    AMD,
    words("Junction temperature", "Junction", "Junct. °C", "temperature of the hottest spot of the chip"),
)];
const HOST_MEMORY: &[VendorWording] =
    &[(AMD, words("GTT memory", "GTT", "GTT", "memory of the host that is mapped to the GPU (GTT)"))];
const LINKS_RECEIVED: &[VendorWording] = &[
    (AMD, words("XGMI received", "XGMI received", "XGMI in", "data received over all XGMI links")),
    (INTEL, words("Xe Link received", "Xe Link received", "Xe Link in", "data received over all Xe Links")),
    (TPU, words("ICI received", "ICI received", "ICI in", "data received over all links between chips")),
    (
        SEVERAL,
        words(
            "Links received",
            "GPU links received",
            "Links in",
            "data received from other devices over their own links",
        ),
    ),
];
const LINKS_SENT: &[VendorWording] = &[
    (AMD, words("XGMI sent", "XGMI sent", "XGMI out", "data sent over all XGMI links")),
    (INTEL, words("Xe Link sent", "Xe Link sent", "Xe Link out", "data sent over all Xe Links")),
    (TPU, words("ICI sent", "ICI sent", "ICI out", "data sent over all links between chips")),
    (
        SEVERAL,
        words("Links sent", "GPU links sent", "Links out", "data sent to other devices over their own links"),
    ),
];
const GRAPHICS: &[VendorWording] = &[
    (AMD, GRAPHICS_OF_OTHERS),
    (INTEL, GRAPHICS_OF_OTHERS),
    (TPU, GRAPHICS_OF_OTHERS),
    (SEVERAL, GRAPHICS_OF_OTHERS),
];
const GRAPHICS_OF_OTHERS: Wording = words(
    "Graphics",
    "Graphics",
    "Engine",
    "share of time in which the graphics or compute engine was active",
);

catalogue! {
    /// Metrics of a GPU.
    fields GpuField = "gpu";

    /// Changing readings of one GPU. The doc comments name NVML's source.
    readings GpuSample {
        /// Reason why the GPU as a whole cannot be read (`GPU is lost`), if so.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fault: Option<Text>,
    }

    /// `nvmlDeviceGetUtilizationRates.gpu`, %.
    Util: util_pct = Metric::percent("util_pct", Activity, "Utilisation",
        "share of the last sample window in which a kernel was running").variants(UTILIZATION).with_summary_history().in_summary();
    /// `nvmlDeviceGetPowerUsage`, mW: a one-second average since Ampere.
    Power: power_mw / 1_000 = Metric::gauge("power_w", Unit::Watt, Power, "Power",
        "power draw, averaged over one second").label("Draw").sum()
        .part_of(GpuField::PowerLimit).with_history().in_summary();
    /// `nvmlDeviceGetTemperature(GPU)`, °C.
    Temp: temp_c = Metric::gauge("temp_c", Unit::Celsius, Temperature, "Temperature",
        "GPU core temperature").label("Core").short("°C").max()
        .full_scale(FullScale::Limit(Limit::SlowdownTemperature)).with_history().in_summary();
    /// `nvmlDeviceGetMemoryInfo_v2.used`: excludes memory reserved by driver and firmware. For a
    /// unified-memory GPU that does not report it, the sum over its processes.
    MemUsed: mem_used_bytes = Metric::bytes("mem_used_bytes", MIB_64, Memory, "Memory",
        "device memory in use").label("Used").variants(MEMORY).column("mem").part_of(GpuField::MemTotal)
        .with_history().in_summary();
    /// `nvmlDeviceGetClockInfo(SM)`, MHz. The steps are the GPU's own.
    SmClock: sm_clock_mhz = Metric::clock("sm_clock_mhz", 15, "SM clock",
        "clock frequency of the SMs")
        .label("SM").short("SM").variants(CORE_CLOCK).column("clock").full_scale(FullScale::Limit(Limit::SmClock))
        .with_summary_history().in_summary();
    /// `nvmlDeviceGetClockInfo(MEM)`, MHz.
    MemClock: mem_clock_mhz = Metric::clock("mem_clock_mhz", 1, "Memory clock",
        "memory clock frequency")
        .label("Memory").short("Mem").full_scale(FullScale::Limit(Limit::MemoryClock));
    /// `nvmlDeviceGetUtilizationRates.memory`, %.
    MemUtil: mem_util_pct = Metric::percent("mem_util_pct", Activity, "Memory utilisation",
        "share of the last sample window in which memory was being read or written").short("Mem bus");
    /// `nvmlDeviceGetCurrentClocksEventReasons` (formerly `…ThrottleReasons`), NVML's bit mask.
    Throttle: throttle_reasons = Metric::gauge("throttle_reasons", Unit::One, Clocks,
        "Clocks held down", "active throttle reasons, as a bit mask").short("Clocks held by")
        .column("throttle").kind(ValueKind::BitMask).with_history().in_summary();
    /// `nvmlDeviceGetFanSpeed_v2`, % of its maximum, the fastest fan.
    Fan: fan_pct = Metric::percent("fan_pct", Temperature, "Fan",
        "speed of the fastest fan, relative to its maximum")
        .max().stable();
    /// `nvmlDeviceGetPerformanceState`, 0 (fastest) to 15.
    PState: p_state = Metric::gauge("p_state", Unit::One, Clocks, "Performance state",
        "performance state, from 0 (fastest) to 15").short("P").column("pstate").kind(ValueKind::State);
    /// `nvmlDeviceGetTotalEccErrors(uncorrected, volatile)`.
    EccUncorrected: ecc_uncorrected = Metric::counter("ecc_uncorrected", Unit::One, Errors,
        "Uncorrected ECC errors", "uncorrected memory errors since the driver was loaded")
        .short("ECC bad").column("ecc_bad").in_summary();
    /// `nvmlDeviceGetTotalEccErrors(corrected, volatile)`.
    EccCorrected: ecc_corrected = Metric::counter("ecc_corrected", Unit::One, Errors,
        "Corrected ECC errors", "corrected memory errors since the driver was loaded")
        .short("ECC corr.").column("ecc_mended");
    /// `nvmlDeviceGetEnforcedPowerLimit`, mW.
    PowerLimit: power_limit_mw / 1_000 = Metric::gauge("power_limit_w", Unit::Watt, Power,
        "Power limit", "enforced power limit").label("Limit in force").sum().stable().in_summary();
    /// `nvmlDeviceGetMemoryInfo_v2.reserved`; unsupported before driver 510.
    MemReserved: mem_reserved_bytes = Metric::bytes("mem_reserved_bytes", MIB_64, Memory,
        "Reserved memory", "device memory reserved by driver and firmware").label("Reserved").short("Reserved")
        .part_of(GpuField::MemTotal).stable();
    /// `nvmlDeviceGetMemoryInfo_v2.total`; for a unified-memory GPU that does not report it, the
    /// host's.
    MemTotal: mem_total_bytes = Metric::bytes("mem_total_bytes", MIB_64, Memory, "Total memory",
        "total device memory").label("Total").short("Total").stable().in_summary();
    /// GPM (`SM_UTIL`): share of SM-cycles with a warp resident, %.
    SmActive: sm_active_pct = Metric::percent("sm_active_pct", Activity, "SM active",
        "share of SM cycles in which a warp was resident (GPM)").short("SM act.").column("sm")
        .with_history().in_summary();
    /// GPM (`SM_OCCUPANCY`): resident warps, relative to the maximum, %.
    SmOccupancy: sm_occupancy_pct = Metric::percent("sm_occupancy_pct", Activity, "SM occupancy",
        "resident warps, relative to the maximum (GPM)").short("Occup.").column("occupancy");
    /// GPM (`ANY_TENSOR_UTIL`): share of cycles in which the tensor cores were active, %.
    TensorActive: tensor_active_pct = Metric::percent("tensor_active_pct", Activity, "Tensor cores",
        "share of cycles in which the tensor cores were active (GPM)").short("Tensor").column("tensor");
    /// GPM (`DRAM_BW_UTIL`): share of the memory bandwidth used, %.
    DramActive: dram_active_pct = Metric::percent("dram_active_pct", Activity, "DRAM bandwidth",
        "share of the memory bandwidth in use (GPM)").short("DRAM").column("dram");
    /// GPM: share of cycles in which the FP64 units were active, %.
    Fp64Active: fp64_active_pct = Metric::percent("fp64_active_pct", Activity, "FP64",
        "share of cycles in which the FP64 units were active (GPM)").column("fp_double");
    /// GPM: share of cycles in which the FP32 units were active, %.
    Fp32Active: fp32_active_pct = Metric::percent("fp32_active_pct", Activity, "FP32",
        "share of cycles in which the FP32 units were active (GPM)").column("fp_single");
    /// GPM: share of cycles in which the FP16 units were active, %.
    Fp16Active: fp16_active_pct = Metric::percent("fp16_active_pct", Activity, "FP16",
        "share of cycles in which the FP16 units were active (GPM)").column("fp_half");
    /// GPM (`GRAPHICS_UTIL`): share of time in which the graphics or compute engine was active, %.
    GraphicsActive: graphics_active_pct = Metric::percent("graphics_active_pct", Activity, "Graphics",
        "share of time in which the graphics or compute engine was active (GPM)").short("Engine")
        .variants(GRAPHICS);
    /// Received over PCIe, bytes a second (GPM, or field 198: byte counter).
    PcieRx: pcie_rx_bytes_s = Metric::rate("pcie_rx_bytes_s", Links, "PCIe received",
        "data received over PCIe").short("PCIe in");
    /// Sent over PCIe, bytes a second (GPM, or field 197).
    PcieTx: pcie_tx_bytes_s = Metric::rate("pcie_tx_bytes_s", Links, "PCIe sent",
        "data sent over PCIe")
        .short("PCIe out");
    /// Received over all NVLinks, bytes a second (field 139, all links).
    NvlinkRx: nvlink_rx_bytes_s = Metric::rate("nvlink_rx_bytes_s", Links, "NVLink received",
        "data received over all NVLinks").short("NVLink in").variants(LINKS_RECEIVED);
    /// Sent over all NVLinks, bytes a second (field 138, all links).
    NvlinkTx: nvlink_tx_bytes_s = Metric::rate("nvlink_tx_bytes_s", Links, "NVLink sent",
        "data sent over all NVLinks").short("NVLink out").variants(LINKS_SENT);
    /// Temperature of the memory, °C (field 82).
    MemTemp: mem_temp_c = Metric::gauge("mem_temp_c", Unit::Celsius, Temperature,
        "Memory temperature", "memory temperature").label("Memory").short("Mem °C").max()
        .full_scale(FullScale::Limit(Limit::MemoryTemperature));
    /// Instantaneous power, mW (field 186).
    PowerInstant: power_instant_mw / 1_000 = Metric::gauge("power_instant_w", Unit::Watt, Power,
        "Instantaneous power", "instantaneous power draw").label("At this moment")
        .short("Now").column("power_now").sum().part_of(GpuField::PowerLimit);
    /// `nvmlDeviceGetTotalEnergyConsumption`, mJ since the driver was loaded.
    Energy: energy_mj / 3_600_000 = Metric::counter("energy_wh", Unit::WattHour, Power, "Energy",
        "energy consumed since the driver was loaded");
    /// `nvmlDeviceGetClockInfo(GRAPHICS)`, MHz.
    GraphicsClock: graphics_clock_mhz = Metric::clock("graphics_clock_mhz", 15, "Graphics clock",
        "graphics clock frequency").label("Graphics").short("Graphics")
        .full_scale(FullScale::Limit(Limit::GraphicsClock));
    /// `nvmlDeviceGetClockInfo(VIDEO)`, MHz.
    VideoClock: video_clock_mhz = Metric::clock("video_clock_mhz", 15, "Video clock",
        "video clock frequency").label("Video").short("Video")
        .full_scale(FullScale::Limit(Limit::VideoClock));
    /// `nvmlDeviceGetEncoderUtilization`, %.
    Encoder: enc_pct = Metric::percent("enc_pct", Engines, "Encoder",
        "share of time in which the video encoder was active")
        .short("Enc.");
    /// `nvmlDeviceGetDecoderUtilization`, %.
    Decoder: dec_pct = Metric::percent("dec_pct", Engines, "Decoder",
        "share of time in which the video decoder was active")
        .short("Dec.");
    /// `nvmlDeviceGetJpgUtilization`, %.
    Jpeg: jpg_pct = Metric::percent("jpg_pct", Engines, "JPEG",
        "share of time in which the JPEG decoder was active")
        .column("jpeg");
    /// `nvmlDeviceGetOfaUtilization`, %.
    Ofa: ofa_pct = Metric::percent("ofa_pct", Engines, "Optical flow",
        "share of time in which the optical-flow accelerator was active").short("Flow");
    /// Rate of `NVML_FI_DEV_PERF_POLICY_POWER` (field 74): share of time, %.
    PowerCapped: power_capped_pct = Metric::percent("power_capped_pct", Clocks, "Held by power limit",
        "share of time in which the power limit reduced the clocks").short("Capped")
        .with_history();
    /// The part of `mem_used_bytes` that no listed process has held for 12 s, rounded down. Unsupported where the
    /// memory of processes is unsupported, for a GPU that is divided into MIG instances, and for unified memory.
    MemUnattributed: mem_unattributed_bytes = Metric::bytes("mem_unattributed_bytes", GIB, Memory,
        "Unattributed memory", "memory in use that none of the listed processes holds")
        .label("Unattributed").short("Unattr.").part_of(GpuField::MemTotal).derived().in_summary();
    /// Temperature of the hottest spot of the chip, °C (AMD: `junction`).
    HotspotTemp: hotspot_temp_c = Metric::gauge("hotspot_temp_c", Unit::Celsius, Temperature,
        "Hotspot temperature", "temperature of the hottest spot of the chip").label("Hotspot")
        .short("Hot °C").variants(HOTSPOT).max();
    /// Memory of the host that the GPU uses, in bytes (AMD: `mem_info_gtt_used`).
    HostMemUsed: host_mem_used_bytes = Metric::bytes("host_mem_used_bytes", MIB_64, Memory,
        "Host memory used by the GPU", "memory of the host that is mapped to the GPU").label("Of the host")
        .short("Host mem").variants(HOST_MEMORY).column("hostmem");
    /// Speed of the fastest fan, in revolutions a minute (AMD and Intel: `fan1_input`, …).
    FanRpm: fan_rpm = Metric::gauge("fan_rpm", Unit::One, Temperature, "Fan speed",
        "speed of the fastest fan, in revolutions a minute").label("Fan, rpm").short("Fan rpm").column("fanrpm")
        .max();
    /// Rate of `NVML_FI_DEV_PERF_POLICY_THERMAL` (field 75), or of AMD's thermal residencies: share of time, %.
    ThermalCapped: thermal_capped_pct = Metric::percent("thermal_capped_pct", Clocks, "Held by temperature",
        "share of time in which the temperature reduced the clocks").short("Hot")
        .with_history();
}
