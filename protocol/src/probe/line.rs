//! Lines that a probe prints.

use crate::confinement::Confinement;
use crate::field::catalogue::GpuSample;
use crate::gpu::{GpuFacts, GpuHealth, GpuPath};
use crate::host::{HostSample, JobCgroupUsage};
use crate::job_devices::JobDevices;
use crate::process::{ProcessFacts, ProcessGap, ProcessReadings};
use crate::request::Response;
use crate::source::SourceState;
use crate::{GpuUuid, JobId, Reading, Text, version::VersionRange};
use serde::{Deserialize, Serialize};

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
    ProcessReadings(V),
    /// Health of every GPU; sent when it changed, and at least every 60 s.
    Health(HealthReport),
    /// Current NVLink rates; sent when nothing else of the health changed.
    LinkRates(LinkRates),
    /// Sign of life without a sample; reports a hanging driver call.
    Heartbeat(Heartbeat),
    /// One-time notification for the user.
    Event(Event),
    /// Response to a request.
    Response(Box<ProbeResponse>),
    /// Last line: the probe exits, with the reason.
    Bye(Bye),
    /// Fragment of a line longer than [`super::MAX_LINE`].
    Piece(Piece),
    /// Notes that jobs wrote.
    Notes(SpoolNotes),
    /// Resource usage of the probe itself; once a minute, first with the first samples.
    Usage(ProbeUsage),
}

impl<S, V> ProbeLine<S, V> {
    /// Returns the line with another representation of samples and process readings.
    pub fn map_into<T: From<S>, W: From<V>>(self) -> ProbeLine<T, W> {
        match self {
            Self::Sample(sample) => ProbeLine::Sample(Box::new((*sample).into())),
            Self::ProcessReadings(readings) => ProbeLine::ProcessReadings(readings.into()),
            Self::Hello(hello) => ProbeLine::Hello(hello),
            Self::Processes(list) => ProbeLine::Processes(list),
            Self::Health(report) => ProbeLine::Health(report),
            Self::LinkRates(rates) => ProbeLine::LinkRates(rates),
            Self::Heartbeat(heartbeat) => ProbeLine::Heartbeat(heartbeat),
            Self::Event(event) => ProbeLine::Event(event),
            Self::Response(response) => ProbeLine::Response(response),
            Self::Bye(bye) => ProbeLine::Bye(bye),
            Self::Piece(piece) => ProbeLine::Piece(piece),
            Self::Notes(notes) => ProbeLine::Notes(notes),
            Self::Usage(usage) => ProbeLine::Usage(usage),
        }
    }
}

/// Fragment of a line longer than [`super::MAX_LINE`]. The concatenated texts of all pieces are that line
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
    /// Supported versions of the probe wire.
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
    /// State of each source, in a fixed order.
    pub sources: Vec<SourceState>,
    /// Every GPU and MIG instance, source by source, in the order of its driver; `Sample::gpus` has
    /// the same order.
    #[serde(default)]
    pub gpus: Vec<GpuFacts>,
    /// Connection between each pair of GPUs (no instances), in the order of `gpus`; empty if
    /// unknown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub topology: Vec<Vec<GpuPath>>,
    /// `model name` of `/proc/cpuinfo`.
    #[serde(default)]
    pub cpu_model: Text,
    /// Mount point of the node's scratch disk, if any.
    #[serde(default)]
    pub scratch: Option<Text>,
    /// GPUs of the node that are denied to this probe, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confinement: Option<Confinement>,
}

/// One sample of all changing readings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Sequence number within the stream.
    pub seq: u64,
    /// `CLOCK_BOOTTIME` at the start of the sample, in ns.
    pub mono_ns: u64,
    /// `CLOCK_REALTIME` at the same time, in ms since 1970; it only shows by how much the node's clock is
    /// wrong.
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
    pub jobs: Vec<JobCgroupUsage>,
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

/// All processes that drivers list: one entry per process and GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessList {
    /// `CLOCK_BOOTTIME` when the driver was queried, in ns; identifies the list in
    /// [`ProcessListReadings`].
    #[serde(default)]
    pub mono_ns: u64,
    /// The entries, ordered by GPU index, then by pid; at most [`super::MAX_PROCESSES`].
    pub processes: Vec<ProcessSample>,
    /// GPUs with missing processes. A GPU in MIG mode includes its instances.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<GpuGap>,
    /// Devices that the user's own jobs here may see, including devices without a process; ordered by job, at most
    /// [`super::MAX_JOB_DEVICES`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub job_devices: Vec<JobDevices>,
}

/// A gap in the list of a GPU's processes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuGap {
    /// The GPU.
    pub gpu: GpuUuid,
    /// The gap, with its reason.
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

/// Response to a [`super::Control::Request`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProbeResponse {
    /// Number of the request.
    pub number: u32,
    /// The response.
    pub response: Response,
}

/// Sign of life without a sample.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// `CLOCK_BOOTTIME` in ns.
    pub mono_ns: u64,
    /// Duration of the current driver call in ms, if no source responds. If only one of several sources hangs, each
    /// of its GPUs has a fault instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver_stuck_ms: Option<u64>,
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

/// New lines of the spool files of jobs, at most [`crate::note::MAX_PER_LINE`].
///
/// A probe sends each line of a file at least once, and all of them again after its start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpoolNotes {
    /// The lines, in the order of each file.
    pub notes: Vec<SpoolNote>,
    /// Parts of the spool that are not read, with their reasons, as complete sentences; at most
    /// [`crate::note::MAX_PROBLEMS`]. Empty once everything is read, `None` if unchanged since the last such line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problems: Option<Vec<Text>>,
}

/// One line of a spool file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpoolNote {
    /// The job that the file is named after.
    pub job: JobId,
    /// Text after the job and a dot in the file's name, such as the rank; empty for the job's own file.
    #[serde(default)]
    pub suffix: Text,
    /// Offset of the line in its file, in bytes.
    pub offset: u64,
    /// `CLOCK_BOOTTIME` when the file was last written before the line was read, in ns.
    pub mono_ns: u64,
    /// The line.
    pub text: Text,
}

/// CPU time and memory of the probe's process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeUsage {
    /// CPU time since its start in user and kernel mode, in ms.
    pub cpu_ms: u64,
    /// Memory in RAM, in bytes.
    pub rss_bytes: u64,
}

/// Last line of a probe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bye {
    /// Reason for the exit.
    pub reason: Text,
}

impl Bye {
    /// The reason of a probe whose ring and sequence went to a newer probe of the same relay, or of relays that share nodes.
    pub const REPLACED: &str = "a newer probe took over";
}
