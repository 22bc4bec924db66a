//! Wire one: what a probe prints, line by line, and what a relay may tell it.
//!
//! The probe writes NDJSON on stdout; its first line begins with [`MAGIC`], and whatever a login
//! shell printed before that is skipped. The relay writes NDJSON on the probe's stdin.

use crate::{GpuUuid, Reading, Text, version::VersionRange};
use serde::{Deserialize, Serialize};

/// What the probe's first line begins with, so that a message of the day is not taken for it.
pub const MAGIC: &str = "\u{1e}NODEGLASS1 ";
/// Longest line either side accepts, in bytes.
pub const MAX_LINE: usize = 256 * 1024;
/// How long a relay waits for [`MAGIC`], in bytes of anything else.
pub const MAX_NOISE: usize = 64 * 1024;
/// The probe ends when no [`Control`] line came for this long.
pub const PING_TIMEOUT_MS: u64 = 30_000;
/// A line of some kind is printed at least this often, even when NVML hangs.
pub const HEARTBEAT_MS: u64 = 2_000;

/// One line from the probe.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProbeLine {
    /// First line, and again whenever the inventory changed (a driver came back, MIG was set up).
    Hello(Box<Hello>),
    /// Changing readings of every GPU and of the host.
    Sample(Box<Sample>),
    /// Every process on a GPU; sent when it changed, and at least every 10 s.
    Processes(ProcessList),
    /// Nothing new, but alive; says if NVML hangs.
    Heartbeat(Heartbeat),
    /// Something to tell the user once.
    Event(Event),
    /// The probe ends by itself and says why.
    Bye(Bye),
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

/// What does not change of a GPU or MIG instance while the driver is loaded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GpuFacts {
    /// `nvmlDeviceGetUUID`; a lost GPU that never told its UUID is `LOST-<index>`.
    pub uuid: GpuUuid,
    /// NVML index; changes between boots and inside a container.
    pub index: u32,
    /// N of `/dev/nvidiaN` (`nvmlDeviceGetMinorNumber`): what SLURM's GRES indices mean.
    #[serde(default)]
    pub minor: Reading<u32>,
    /// `nvmlDeviceGetPciInfo_v3`, `00000000:07:00.0`.
    #[serde(default)]
    pub pci: Reading<Text>,
    /// `nvmlDeviceGetName`.
    #[serde(default)]
    pub name: Reading<Text>,
    /// Largest SM clock in MHz (`nvmlDeviceGetMaxClockInfo`).
    #[serde(default)]
    pub sm_clock_max_mhz: Reading<u32>,
    /// Largest memory clock in MHz.
    #[serde(default)]
    pub mem_clock_max_mhz: Reading<u32>,
    /// Temperature at which the card slows down, in °C (`nvmlDeviceGetTemperatureThreshold`).
    #[serde(default)]
    pub temp_slowdown_c: Reading<u32>,
    /// For a MIG instance: UUID of its GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mig_parent: Option<GpuUuid>,
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
    /// One entry per GPU of the inventory, in its order.
    pub gpus: Vec<GpuSample>,
    /// The host.
    #[serde(default)]
    pub host: HostSample,
}

/// Changing readings of one GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GpuSample {
    /// Why this GPU as a whole cannot be read (`GPU is lost`), if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<Text>,
    /// `nvmlDeviceGetUtilizationRates.gpu`, %.
    #[serde(default, skip_serializing_if = "Reading::is_not_yet")]
    pub util_pct: Reading<u64>,
    /// `nvmlDeviceGetUtilizationRates.memory`, %.
    #[serde(default, skip_serializing_if = "Reading::is_not_yet")]
    pub mem_util_pct: Reading<u64>,
    /// `nvmlDeviceGetMemoryInfo_v2.used`: without what driver and firmware reserve.
    #[serde(default, skip_serializing_if = "Reading::is_not_yet")]
    pub mem_used_bytes: Reading<u64>,
    /// `nvmlDeviceGetMemoryInfo_v2.total`.
    #[serde(default, skip_serializing_if = "Reading::is_not_yet")]
    pub mem_total_bytes: Reading<u64>,
    /// `nvmlDeviceGetMemoryInfo_v2.reserved`; unsupported before driver 510.
    #[serde(default, skip_serializing_if = "Reading::is_not_yet")]
    pub mem_reserved_bytes: Reading<u64>,
    /// `nvmlDeviceGetTemperature(GPU)`, °C.
    #[serde(default, skip_serializing_if = "Reading::is_not_yet")]
    pub temp_c: Reading<u64>,
    /// `nvmlDeviceGetPowerUsage`, mW.
    #[serde(default, skip_serializing_if = "Reading::is_not_yet")]
    pub power_mw: Reading<u64>,
    /// `nvmlDeviceGetEnforcedPowerLimit`, mW.
    #[serde(default, skip_serializing_if = "Reading::is_not_yet")]
    pub power_limit_mw: Reading<u64>,
    /// `nvmlDeviceGetClockInfo(SM)`, MHz.
    #[serde(default, skip_serializing_if = "Reading::is_not_yet")]
    pub sm_clock_mhz: Reading<u64>,
    /// `nvmlDeviceGetClockInfo(MEM)`, MHz.
    #[serde(default, skip_serializing_if = "Reading::is_not_yet")]
    pub mem_clock_mhz: Reading<u64>,
    /// `nvmlDeviceGetCurrentClocksThrottleReasons`, the bit mask.
    #[serde(default, skip_serializing_if = "Reading::is_not_yet")]
    pub throttle_reasons: Reading<u64>,
    /// `nvmlDeviceGetTotalEccErrors(uncorrected, volatile)`.
    #[serde(default, skip_serializing_if = "Reading::is_not_yet")]
    pub ecc_uncorrected: Reading<u64>,
    /// `nvmlDeviceGetTotalEccErrors(corrected, volatile)`.
    #[serde(default, skip_serializing_if = "Reading::is_not_yet")]
    pub ecc_corrected: Reading<u64>,
    /// `nvmlDeviceGetPerformanceState`, 0–15.
    #[serde(default, skip_serializing_if = "Reading::is_not_yet")]
    pub p_state: Reading<u64>,
    /// `nvmlDeviceGetFanSpeed_v2(0)`, %.
    #[serde(default, skip_serializing_if = "Reading::is_not_yet")]
    pub fan_pct: Reading<u64>,
}

/// Changing readings of the host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostSample {
    /// Busy share of all CPUs since the last sample, % (`/proc/stat`).
    #[serde(default, skip_serializing_if = "Reading::is_not_yet")]
    pub cpu_pct: Reading<u64>,
    /// One-minute load in hundredths (`/proc/loadavg`).
    #[serde(default, skip_serializing_if = "Reading::is_not_yet")]
    pub load1_centi: Reading<u64>,
    /// `MemTotal` − `MemAvailable` (`/proc/meminfo`).
    #[serde(default, skip_serializing_if = "Reading::is_not_yet")]
    pub mem_used_bytes: Reading<u64>,
    /// `MemTotal`.
    #[serde(default, skip_serializing_if = "Reading::is_not_yet")]
    pub mem_total_bytes: Reading<u64>,
}

/// Every process that NVML lists, one entry per process and GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessList {
    /// The entries, ordered by GPU index, then by pid.
    pub processes: Vec<ProcessSample>,
}

/// One process on one GPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcessSample {
    /// The GPU or MIG instance.
    pub gpu: GpuUuid,
    /// Pid on the node.
    pub pid: u32,
    /// When it started, in ms since 1970 (`/proc/PID/stat` field 22): with the pid, its identity.
    #[serde(default)]
    pub started_ms: Reading<u64>,
    /// Login name (owner of `/proc/PID`), or the uid in digits.
    #[serde(default)]
    pub user: Reading<Text>,
    /// Name (`/proc/PID/comm`); failed when the pid belongs to another pid namespace.
    #[serde(default)]
    pub command: Reading<Text>,
    /// Whole command line, only for processes of the probe's own user, secrets masked.
    #[serde(default)]
    pub args: Reading<Text>,
    /// Device memory in bytes; unsupported under WDDM and for some graphics contexts.
    #[serde(default)]
    pub gpu_mem_bytes: Reading<u64>,
    /// Which of NVML's lists it is in.
    pub kind: ProcessKind,
    /// SLURM's number of the job whose cgroup it is in (`/proc/PID/cgroup`), or from its environment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<crate::JobId>,
}

/// Which of NVML's process lists an entry comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessKind {
    /// Compute context (`C`).
    #[serde(default)]
    pub compute: bool,
    /// Graphics context (`G`).
    #[serde(default)]
    pub graphics: bool,
    /// Client of the Multi-Process Service (`M`).
    #[serde(default)]
    pub mps: bool,
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

/// One line to the probe. Any line counts as a ping.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Control {
    /// The relay is still there.
    Ping,
    /// Sample this often from now on; samples fall on whole multiples of it by `CLOCK_REALTIME`.
    Interval {
        /// 500 to 60,000.
        ms: u32,
    },
    /// Send again what came after this number of this stream, as `replay` samples, oldest first.
    Backfill {
        /// [`Hello::stream`] of the samples.
        stream: u64,
        /// Last number that was received.
        after_seq: u64,
    },
    /// End now.
    Stop,
}
