//! Wire one: what a probe prints, line by line, and what a relay may tell it.
//!
//! The probe writes NDJSON on stdout; its first line begins with [`MAGIC`], and whatever a login
//! shell printed before that is skipped. The relay writes NDJSON on the probe's stdin.

pub mod delta;

pub use crate::gpu::{GpuFacts, GpuHealth, GpuPath};
pub use crate::host::{HostSample, JobReadings, JobUsage};
pub use crate::process::{ProcessFacts, ProcessGap, ProcessKind, ProcessReadings};

use crate::ask::{Answer, ProbeAsk};
use crate::{GpuUuid, Reading, Text, version::VersionRange};
use serde::{Deserialize, Serialize};

/// What the probe's first line begins with, so that a message of the day is not taken for it.
pub const MAGIC: &str = "\u{1e}NODEGLASS1 ";
/// Longest line either side accepts, in bytes.
pub const MAX_LINE: usize = 256 * 1024;
/// Longest line that may come in pieces ([`Piece`]), in bytes, its newline included.
pub const MAX_WHOLE: usize = 4 * 1024 * 1024;
/// Most entries of a [`ProcessList`]: 512 ranks, each with a context on all of 8 GPUs.
pub const MAX_PROCESSES: usize = 4_096;
/// How long a relay waits for [`MAGIC`], in bytes of anything else.
pub const MAX_NOISE: usize = 64 * 1024;
/// The probe ends when no [`Control`] line came for this long.
pub const PING_TIMEOUT_MS: u64 = 30_000;
/// A line of some kind is printed at least this often, even when NVML hangs, by a probe that samples each `interval_ms`.
///
/// A sample that comes in time is a sign of life itself, and who samples slowly is looked at by nobody: there a line
/// each 2 s would be most of what a node costs.
pub fn heartbeat_ms(interval_ms: u32) -> u64 {
    (u64::from(interval_ms) * 5 / 4).clamp(2_000, 6_000)
}

/// One line from the probe; by what is told of a sample and of processes, which differs between who prints and who hears it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProbeLine<S = Sample, V = ProcessListReadings> {
    /// First line, and again whenever the inventory changed (a driver came back, MIG was set up).
    Hello(Box<Hello>),
    /// Changing readings of every GPU and of the host.
    Sample(Box<S>),
    /// Every process on a GPU; sent when who they are changed, and at least every 10 s.
    Processes(ProcessList),
    /// What those processes do now; every 2 s, while the list is the same.
    #[serde(rename = "process_vitals")]
    ProcessReadings(V),
    /// Health of every GPU; sent when it changed, and at least every 60 s.
    Health(HealthReport),
    /// What the NVLinks carry now; when it changed, and the rest of health did not.
    LinkRates(LinkRates),
    /// Nothing new, but alive; says if NVML hangs.
    Heartbeat(Heartbeat),
    /// Something to tell the user once.
    Event(Event),
    /// What came of a question.
    Answer(Box<ProbeAnswer>),
    /// The probe ends by itself and says why.
    Bye(Bye),
    /// A piece of a line that is longer than [`MAX_LINE`].
    Piece(Piece),
}

/// A piece of a line of any other kind that is longer than [`MAX_LINE`]. The texts of all pieces, in order, are that line
/// without its newline. Other lines may come between two pieces, but none of another line's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    /// Tells the pieces of one line from those of another: one more for each such line (wrapping).
    pub line: u32,
    /// Position of this piece, from 0.
    pub part: u32,
    /// Number of pieces, at least 2.
    pub parts: u32,
    /// This piece of the line's JSON.
    pub text: String,
}

/// Who the probe is, where it runs, and what does not change while it runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hello {
    /// Versions of wire one that it speaks.
    pub proto: VersionRange,
    /// Build id of the probe; the relay uploads its own when they differ.
    pub build: Text,
    /// Names one unbroken row of sample numbers; a probe that took over from another keeps it.
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
    /// The user it runs as.
    pub user: Text,
    /// Its own pid on the node.
    pub pid: u32,
    /// NVML, or why there is none.
    pub nvml: NvmlState,
    /// Every GPU and MIG instance, in NVML's order; `Sample::gpus` has the same order.
    #[serde(default)]
    pub gpus: Vec<GpuFacts>,
    /// How each GPU (no instance) reaches each other one, in the order of `gpus`
    /// (`nvmlDeviceGetTopologyCommonAncestor`, NVLink remotes); empty if NVML does not say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub topology: Vec<Vec<GpuPath>>,
    /// `model name` of `/proc/cpuinfo`.
    #[serde(default)]
    pub cpu_model: Text,
    /// Where the node's scratch disk is mounted, if it has one.
    #[serde(default)]
    pub scratch: Option<Text>,
}

/// Whether NVML answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NvmlState {
    /// It does.
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
    /// It does not; one clear sentence (`no NVIDIA driver: …`).
    Absent {
        /// The sentence.
        why: Text,
    },
}

/// Changing readings, taken together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Number within the stream, one more each time.
    pub seq: u64,
    /// `CLOCK_BOOTTIME` when the sample was begun, in ns.
    pub mono_ns: u64,
    /// `CLOCK_REALTIME` at the same moment, in ms since 1970. For showing skew only.
    pub wall_ms: u64,
    /// Time until the next sample, in ms.
    pub interval_ms: u32,
    /// Sent again on request (back-fill), not live.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replay: bool,
    /// The number of the sample before, if what is left out is as it was in that one; otherwise it is not yet taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<u64>,
    /// One entry per GPU of the inventory, in its order.
    #[serde(default)]
    pub gpus: Vec<GpuSample>,
    /// The host.
    #[serde(default)]
    pub host: HostSample,
    /// Busy share of each CPU since the last sample, in %; empty if not known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cores: Vec<u8>,
    /// What each job on this node uses of it, ordered by job.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<JobUsage>,
}

readings! {
    /// Changing readings of one GPU.
    GpuSample of GpuField {
        /// Why this GPU as a whole cannot be read (`GPU is lost`), if so.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fault: Option<Text>,
    } and {
        /// `nvmlDeviceGetUtilizationRates.gpu`, %.
        util_pct => Util,
        /// `nvmlDeviceGetUtilizationRates.memory`, %.
        mem_util_pct => MemUtil,
        /// `nvmlDeviceGetMemoryInfo_v2.used`: without what driver and firmware reserve. Of a unified-memory GPU that
        /// does not tell, what its processes use.
        mem_used_bytes => MemUsed,
        /// `nvmlDeviceGetMemoryInfo_v2.total`; of a unified-memory GPU that does not tell, the host's.
        mem_total_bytes => MemTotal,
        /// `nvmlDeviceGetMemoryInfo_v2.reserved`; unsupported before driver 510.
        mem_reserved_bytes => MemReserved,
        /// `nvmlDeviceGetTemperature(GPU)`, °C.
        temp_c => Temp,
        /// Temperature of the memory, °C (field 82).
        mem_temp_c => MemTemp,
        /// `nvmlDeviceGetPowerUsage`, mW: since Ampere the average of a second.
        power_mw / 1_000 => Power,
        /// Power of this moment, mW (field 186).
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

/// What is seldom asked of every GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HealthReport {
    /// One entry per GPU of the inventory, in its order.
    pub gpus: Vec<GpuHealth>,
}

/// What the NVLinks of each GPU carry, which always changes; the rest of [`GpuHealth`] hardly ever does.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkRates {
    /// One entry per GPU of the inventory, in its order.
    pub gpus: Vec<GpuLinkRates>,
}

/// What the NVLinks of a GPU carry, each in the order of [`GpuHealth::nvlinks`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GpuLinkRates {
    /// [`crate::gpu::NvLink::rx_mib_s`] of each.
    pub rx_mib_s: Vec<Reading<u64>>,
    /// [`crate::gpu::NvLink::tx_mib_s`] of each.
    pub tx_mib_s: Vec<Reading<u64>>,
}

impl GpuLinkRates {
    /// The rates of a GPU.
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

/// Every process that NVML lists, one entry per process and GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessList {
    /// `CLOCK_BOOTTIME` when NVML was asked, in ns; by this [`ProcessListReadings`] name the list.
    #[serde(default)]
    pub mono_ns: u64,
    /// The entries, ordered by GPU index, then by pid; at most [`MAX_PROCESSES`].
    pub processes: Vec<ProcessSample>,
    /// GPUs of which processes may be missing here, and why. A divided GPU stands for its instances too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<GpuGap>,
}

/// A gap in the list of a GPU's processes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuGap {
    /// The GPU.
    pub gpu: GpuUuid,
    /// What is missing.
    pub gap: ProcessGap,
}

/// One process on one GPU, and what it does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcessSample {
    /// Who it is.
    pub facts: ProcessFacts,
    /// What it does now.
    pub now: ProcessReadings,
}

/// What the processes of the last [`ProcessList`] do now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessListReadings {
    /// [`ProcessList::mono_ns`] of that list; a receiver that has another one ignores this line.
    #[serde(default)]
    pub list_ns: u64,
    /// Whether what is left out is as the list said; otherwise it is not yet taken.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sparse: bool,
    /// One entry per entry of the list, in its order.
    pub now: Vec<ProcessReadings>,
}

/// The answer to a [`Control::Ask`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProbeAnswer {
    /// Its number.
    pub number: u32,
    /// What came of it.
    pub answer: Answer,
}

/// The probe is alive though it has no sample.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// `CLOCK_BOOTTIME` in ns.
    pub mono_ns: u64,
    /// For how long the current NVML call has not returned, in ms, if it hangs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nvml_stuck_ms: Option<u64>,
}

/// Something that happened on the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// `CLOCK_BOOTTIME` in ns.
    pub mono_ns: u64,
    /// The GPU it concerns, if one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<GpuUuid>,
    /// Xid number, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub xid: Option<u64>,
    /// One sentence.
    pub text: Text,
}

/// Last words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bye {
    /// Why it ends.
    pub why: Text,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// One line to the probe. Any line counts as a ping.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Control {
    /// The relay is still there.
    Ping,
    /// Sample this often from now on; samples fall on whole multiples of it by `CLOCK_REALTIME`, or so long after.
    Interval {
        /// 500 to 60,000.
        ms: u32,
        /// How long after: less than `ms`.
        #[serde(default, skip_serializing_if = "is_zero")]
        phase_ms: u32,
    },
    /// Send again what came after this number of this stream, as `replay` samples, oldest first.
    Backfill {
        /// [`Hello::stream`] of the samples.
        stream: u64,
        /// Last number that was received.
        after_seq: u64,
    },
    /// A question; answered by [`ProbeLine::Answer`] of the same number.
    Ask {
        /// The relay's number of it.
        number: u32,
        /// What is asked.
        ask: ProbeAsk,
    },
    /// End now.
    Stop,
}
