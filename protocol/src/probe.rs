//! Wire one: lines that a probe prints, and control lines that a relay sends.
//!
//! The probe writes NDJSON to stdout. Its first line starts with [`MAGIC`]; anything that a login
//! shell printed before is skipped. The relay writes NDJSON to the probe's stdin.

pub mod delta;

pub use crate::gpu::{GpuFacts, GpuHealth, GpuPath};
pub use crate::host::{HostSample, JobReadings, JobUsage};
pub use crate::process::{ProcessFacts, ProcessGap, ProcessKind, ProcessReadings};

use crate::ask::{Answer, ProbeAsk};
use crate::{GpuUuid, Reading, Text, version::VersionRange};
use serde::{Deserialize, Serialize};

/// Prefix of the probe's first line, which distinguishes it from a login banner.
pub const MAGIC: &str = "\u{1e}NODEGLASS1 ";
/// Maximum length of a line in either direction, in bytes.
pub const MAX_LINE: usize = 256 * 1024;
/// Maximum length of a line that is split into [`Piece`]s, in bytes, including its newline.
pub const MAX_WHOLE: usize = 4 * 1024 * 1024;
/// Maximum number of entries in a [`ProcessList`]: 512 ranks, each with a context on all of 8 GPUs.
pub const MAX_PROCESSES: usize = 4_096;
/// Maximum number of bytes before [`MAGIC`].
pub const MAX_NOISE: usize = 64 * 1024;
/// The probe exits if it receives no [`Control`] line for this long.
pub const PING_TIMEOUT_MS: u64 = 30_000;
/// Maximum time between two lines, even while NVML hangs, of a probe that samples every
/// `interval_ms`.
///
/// A sample on schedule is a sign of life by itself. Nodes that nobody views sample slowly; a line
/// every 2 s would dominate their cost.
pub fn heartbeat_ms(interval_ms: u32) -> u64 {
    (u64::from(interval_ms) * 5 / 4).clamp(2_000, 6_000)
}

/// One line from the probe, generic over the representation of samples and process readings, which
/// differs between sender and receiver.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProbeLine<S = Sample, V = ProcessListReadings> {
    /// First line; repeated when the inventory changed (driver reloaded, MIG reconfigured).
    Hello(Box<Hello>),
    /// Changing readings of every GPU and of the host.
    Sample(Box<S>),
    /// All processes on GPUs; sent when their facts changed, and at least every 10 s.
    Processes(ProcessList),
    /// Current readings of those processes; every 2 s while the list is unchanged.
    #[serde(rename = "process_vitals")]
    ProcessReadings(V),
    /// Health of every GPU; sent when it changed, and at least every 60 s.
    Health(HealthReport),
    /// Current NVLink rates; sent when nothing else of the health changed.
    LinkRates(LinkRates),
    /// Sign of life without a sample; reports a hanging NVML call.
    Heartbeat(Heartbeat),
    /// One-time notification for the user.
    Event(Event),
    /// Response to a request.
    Answer(Box<ProbeAnswer>),
    /// Last line: the probe exits, with the reason.
    Bye(Bye),
    /// Fragment of a line longer than [`MAX_LINE`].
    Piece(Piece),
}

/// Fragment of a line longer than [`MAX_LINE`]. The concatenated texts of all pieces are that line
/// without its newline. Other lines may be interleaved, but not pieces of another line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    /// Identifies the line: increases by one per split line (wrapping).
    pub line: u32,
    /// Index of this piece, from 0.
    pub part: u32,
    /// Number of pieces, at least 2.
    pub parts: u32,
    /// Fragment of the line's JSON.
    pub text: String,
}

/// Identity of the probe and static facts of its node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hello {
    /// Supported versions of wire one.
    pub proto: VersionRange,
    /// Build id of the probe; the relay uploads its own build if they differ.
    pub build: Text,
    /// Identifies a contiguous sequence of sample numbers; kept by a probe that takes over from
    /// another.
    pub stream: u64,
    /// `uname -n`.
    pub host: Text,
    /// `/proc/sys/kernel/random/boot_id`.
    pub boot_id: Text,
    /// `uname -r`.
    pub kernel: Text,
    /// Number of online CPUs.
    pub cpus: u32,
    /// `MemTotal` of `/proc/meminfo`, in bytes.
    pub mem_total_bytes: u64,
    /// Login name that it runs as.
    pub user: Text,
    /// Process id of the probe.
    pub pid: u32,
    /// State of NVML.
    pub nvml: NvmlState,
    /// Every GPU and MIG instance, in NVML's order; `Sample::gpus` has the same order.
    #[serde(default)]
    pub gpus: Vec<GpuFacts>,
    /// Connection between each pair of GPUs (no instances), in the order of `gpus`
    /// (`nvmlDeviceGetTopologyCommonAncestor`, NVLink remotes); empty if unknown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub topology: Vec<Vec<GpuPath>>,
    /// `model name` of `/proc/cpuinfo`.
    #[serde(default)]
    pub cpu_model: Text,
    /// Mount point of the node's scratch disk, if any.
    #[serde(default)]
    pub scratch: Option<Text>,
}

/// Whether NVML is available.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NvmlState {
    /// Available.
    Ready {
        /// `nvmlSystemGetDriverVersion`.
        #[serde(default)]
        driver: Reading<Text>,
        /// `nvmlSystemGetNVMLVersion`.
        #[serde(default)]
        nvml: Reading<Text>,
        /// `nvmlSystemGetCudaDriverVersion_v2`, as `12.4`.
        #[serde(default)]
        cuda: Reading<Text>,
    },
    /// Unavailable, with a message for the user (`no NVIDIA driver: …`).
    Absent {
        /// The message.
        why: Text,
    },
}

/// One sample of all changing readings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Sequence number within the stream.
    pub seq: u64,
    /// `CLOCK_BOOTTIME` at the start of the sample, in ns.
    pub mono_ns: u64,
    /// `CLOCK_REALTIME` at the same time, in ms since 1970; only for displaying clock skew.
    pub wall_ms: u64,
    /// Time until the next sample, in ms.
    pub interval_ms: u32,
    /// Whether the sample is sent again on request (back-fill).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replay: bool,
    /// Sequence number of the previous sample that omitted readings are unchanged from; without it,
    /// omitted readings are not yet taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<u64>,
    /// One entry per GPU, in inventory order.
    #[serde(default)]
    pub gpus: Vec<GpuSample>,
    /// The host.
    #[serde(default)]
    pub host: HostSample,
    /// Utilization of each CPU since the last sample, in %; empty if unknown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cores: Vec<u8>,
    /// Resource usage of each job on this node, ordered by job.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<JobUsage>,
}

readings! {
    /// Changing readings of one GPU.
    GpuSample of GpuField {
        /// Reason why the GPU as a whole cannot be read (`GPU is lost`), if so.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fault: Option<Text>,
    } and {
        /// `nvmlDeviceGetUtilizationRates.gpu`, %.
        util_pct => Util,
        /// `nvmlDeviceGetUtilizationRates.memory`, %.
        mem_util_pct => MemUtil,
        /// `nvmlDeviceGetMemoryInfo_v2.used`: excludes memory reserved by driver and firmware. For
        /// a unified-memory GPU that does not report it, the sum over its processes.
        mem_used_bytes => MemUsed,
        /// `nvmlDeviceGetMemoryInfo_v2.total`; for a unified-memory GPU that does not report it,
        /// the host's.
        mem_total_bytes => MemTotal,
        /// `nvmlDeviceGetMemoryInfo_v2.reserved`; unsupported before driver 510.
        mem_reserved_bytes => MemReserved,
        /// `nvmlDeviceGetTemperature(GPU)`, °C.
        temp_c => Temp,
        /// Temperature of the memory, °C (field 82).
        mem_temp_c => MemTemp,
        /// `nvmlDeviceGetPowerUsage`, mW: a one-second average since Ampere.
        power_mw / 1_000 => Power,
        /// Instantaneous power, mW (field 186).
        power_instant_mw / 1_000 => PowerInstant,
        /// `nvmlDeviceGetEnforcedPowerLimit`, mW.
        power_limit_mw / 1_000 => PowerLimit,
        /// `nvmlDeviceGetTotalEnergyConsumption`, mJ since the driver was loaded.
        energy_mj / 3_600_000 => Energy,
        /// `nvmlDeviceGetClockInfo(SM)`, MHz.
        sm_clock_mhz => SmClock,
        /// `nvmlDeviceGetClockInfo(MEM)`, MHz.
        mem_clock_mhz => MemClock,
        /// `nvmlDeviceGetClockInfo(GRAPHICS)`, MHz.
        graphics_clock_mhz => GraphicsClock,
        /// `nvmlDeviceGetClockInfo(VIDEO)`, MHz.
        video_clock_mhz => VideoClock,
        /// `nvmlDeviceGetCurrentClocksEventReasons` (formerly `…ThrottleReasons`), the bit mask.
        throttle_reasons => Throttle,
        /// `nvmlDeviceGetTotalEccErrors(uncorrected, volatile)`.
        ecc_uncorrected => EccUncorrected,
        /// `nvmlDeviceGetTotalEccErrors(corrected, volatile)`.
        ecc_corrected => EccCorrected,
        /// `nvmlDeviceGetPerformanceState`, 0–15.
        p_state => PState,
        /// `nvmlDeviceGetFanSpeed_v2`, %, the fastest fan.
        fan_pct => Fan,
        /// `nvmlDeviceGetEncoderUtilization`, %.
        enc_pct => Encoder,
        /// `nvmlDeviceGetDecoderUtilization`, %.
        dec_pct => Decoder,
        /// `nvmlDeviceGetJpgUtilization`, %.
        jpg_pct => Jpeg,
        /// `nvmlDeviceGetOfaUtilization`, %.
        ofa_pct => Ofa,
        /// Received over PCIe, bytes a second (GPM, or field 198: byte counter).
        pcie_rx_bytes_s => PcieRx,
        /// Sent over PCIe, bytes a second (GPM, or field 197).
        pcie_tx_bytes_s => PcieTx,
        /// Received over all NVLinks, bytes a second (field 139, all links).
        nvlink_rx_bytes_s => NvlinkRx,
        /// Sent over all NVLinks, bytes a second (field 138, all links).
        nvlink_tx_bytes_s => NvlinkTx,
        /// GPM: share of time in which the graphics or compute engine was active, % (`GRAPHICS_UTIL`).
        graphics_active_pct => GraphicsActive,
        /// GPM: share of SM-cycles with a warp resident, % (`SM_UTIL`).
        sm_active_pct => SmActive,
        /// GPM: warps resident of those that could be, % (`SM_OCCUPANCY`).
        sm_occupancy_pct => SmOccupancy,
        /// GPM: share of cycles in which the tensor cores worked, % (`ANY_TENSOR_UTIL`).
        tensor_active_pct => TensorActive,
        /// GPM: share of the memory bandwidth used, % (`DRAM_BW_UTIL`).
        dram_active_pct => DramActive,
        /// GPM: share of cycles in which FP64 units worked, %.
        fp64_active_pct => Fp64Active,
        /// GPM: FP32.
        fp32_active_pct => Fp32Active,
        /// GPM: FP16.
        fp16_active_pct => Fp16Active,
    }
}

/// Slowly changing state of every GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HealthReport {
    /// One entry per GPU, in inventory order.
    pub gpus: Vec<GpuHealth>,
}

/// NVLink rates of all GPUs, which change constantly, unlike the rest of [`GpuHealth`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkRates {
    /// One entry per GPU, in inventory order.
    pub gpus: Vec<GpuLinkRates>,
}

/// NVLink rates of one GPU, in the order of [`GpuHealth::nvlinks`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GpuLinkRates {
    /// [`crate::gpu::NvLink::rx_mib_s`] of each.
    pub rx_mib_s: Vec<Reading<u64>>,
    /// [`crate::gpu::NvLink::tx_mib_s`] of each.
    pub tx_mib_s: Vec<Reading<u64>>,
}

impl GpuLinkRates {
    /// Extracts the rates of a GPU.
    pub fn of(health: &GpuHealth) -> Self {
        Self {
            rx_mib_s: health.nvlinks.iter().map(|link| link.rx_mib_s.clone()).collect(),
            tx_mib_s: health.nvlinks.iter().map(|link| link.tx_mib_s.clone()).collect(),
        }
    }

    /// Stores the rates in `health`; returns whether any changed.
    pub fn apply(self, health: &mut GpuHealth) -> bool {
        let mut changed = false;
        let rates = self.rx_mib_s.into_iter().zip(self.tx_mib_s);
        for (link, (rx, tx)) in health.nvlinks.iter_mut().zip(rates) {
            changed |= (&link.rx_mib_s, &link.tx_mib_s) != (&rx, &tx);
            (link.rx_mib_s, link.tx_mib_s) = (rx, tx);
        }
        changed
    }
}

/// All processes that NVML lists: one entry per process and GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessList {
    /// `CLOCK_BOOTTIME` when NVML was queried, in ns; identifies the list in
    /// [`ProcessListReadings`].
    #[serde(default)]
    pub mono_ns: u64,
    /// The entries, ordered by GPU index, then by pid; at most [`MAX_PROCESSES`].
    pub processes: Vec<ProcessSample>,
    /// GPUs with missing processes. A GPU in MIG mode includes its instances.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<GpuGap>,
}

/// A gap in the list of a GPU's processes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuGap {
    /// The GPU.
    pub gpu: GpuUuid,
    /// What is missing, or why.
    pub gap: ProcessGap,
}

/// One process on one GPU with its readings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcessSample {
    /// Static facts.
    pub facts: ProcessFacts,
    /// Current readings.
    pub now: ProcessReadings,
}

/// Current readings of the processes in the last [`ProcessList`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessListReadings {
    /// [`ProcessList::mono_ns`] of that list; a receiver with another list ignores this line.
    #[serde(default)]
    pub list_ns: u64,
    /// Whether omitted readings are unchanged from the list; otherwise they are not yet taken.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sparse: bool,
    /// One entry per entry of the list, in its order.
    pub now: Vec<ProcessReadings>,
}

/// Response to a [`Control::Ask`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProbeAnswer {
    /// Number of the request.
    pub number: u32,
    /// The response.
    pub answer: Answer,
}

/// Sign of life without a sample.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// `CLOCK_BOOTTIME` in ns.
    pub mono_ns: u64,
    /// Duration of the current NVML call in ms, if it hangs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nvml_stuck_ms: Option<u64>,
}

/// A notification about the node or one of its GPUs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// `CLOCK_BOOTTIME` in ns.
    pub mono_ns: u64,
    /// The GPU concerned, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<GpuUuid>,
    /// Xid number, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub xid: Option<u64>,
    /// Message for the user.
    pub text: Text,
}

/// Last line of a probe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bye {
    /// Why it exits.
    pub why: Text,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// A control line to the probe. Every line counts as a ping.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Control {
    /// Keep-alive.
    Ping,
    /// Sets the interval; samples are aligned to its multiples by `CLOCK_REALTIME`, plus the phase.
    Interval {
        /// Interval in ms, 500 to 60,000.
        ms: u32,
        /// Phase in ms, less than `ms`.
        #[serde(default, skip_serializing_if = "is_zero")]
        phase_ms: u32,
    },
    /// Requests all samples after a number of a stream as `replay` samples, oldest first.
    Backfill {
        /// [`Hello::stream`] of the samples.
        stream: u64,
        /// Last sequence number received.
        after_seq: u64,
    },
    /// A request; answered by [`ProbeLine::Answer`] with the same number.
    Ask {
        /// Number of the request.
        number: u32,
        /// The request.
        ask: ProbeAsk,
    },
    /// Exit now.
    Stop,
}
