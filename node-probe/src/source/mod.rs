//! Sources of accelerator readings: NVML, the kernel's attributes of AMD and Intel GPUs, libtpuinfo, and
//! a script for tests.

pub mod amd;
pub(crate) mod bound;
pub mod calls;
pub mod confinement;
mod drm;
pub mod intel;
mod limits;
pub mod multi;
pub mod nvml;
mod plausible;
mod proc_files;
pub mod scripted;
pub mod tpu;
pub mod unread;

use nodeglass_protocol::probe::{
    GpuFacts, GpuGap, GpuHealth, GpuPath, GpuSample, ProcessGap, ProcessKind, ProcessReadings, SourceVersions,
};
use nodeglass_protocol::{GpuUuid, Text};
use std::sync::Arc;

/// Number of attempts to open a source per scan of the PCI devices, which are many.
const PCI_EVERY: u32 = 20;
/// Reason for an incomplete list of processes.
const HIDDEN_PROCESSES: &str = "processes of other users are not visible to this user";
/// Fault of a device that the kernel no longer lists.
const LOST_DEVICE: &str = "GPU is lost: the kernel no longer lists it";

/// A source of accelerators that can be opened repeatedly.
pub trait Source: Send {
    /// Opens the source. May hang, so it runs on a worker thread.
    ///
    /// # Errors
    /// [`Absent`] if there are no accelerators at present.
    fn open(&mut self) -> Result<Box<dyn Session + '_>, Absent>;

    /// Returns whether only a new process can open it, because the library of a replaced driver cannot be unloaded.
    fn needs_new_process(&self) -> bool {
        false
    }
}

/// An open source. Every call may hang.
pub trait Session {
    /// Enumerates the accelerators with their static facts.
    fn inventory(&mut self) -> Inventory;

    /// Returns changing readings, one entry per GPU of the last [`Session::inventory`], in its
    /// order.
    ///
    /// # Errors
    /// [`Absent`] if the driver became unavailable, which ends the session.
    fn readings(&mut self) -> Result<Vec<GpuSample>, Absent>;

    /// Returns all processes on all GPUs.
    fn gpu_processes(&mut self) -> GpuProcessList;

    /// Returns the health of each GPU in inventory order; slow, so called seldom.
    fn health(&mut self) -> Vec<GpuHealth>;

    /// Returns the events since the last call.
    fn driver_events(&mut self) -> Vec<DriverEvent>;

    /// Returns whether the last readings contradict the inventory, so that it must be queried again.
    fn is_stale(&self) -> bool {
        false
    }
}

/// Reason for the absence of accelerators, for the user.
#[derive(Clone, Debug, Default, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Absent {
    /// The reason; empty if the node has no hardware of this vendor.
    pub reason: Text,
    /// Sentence that states how many accelerators the device cgroup of this probe admits; `None` if it admits all.
    pub confinement: Option<Text>,
}

impl Absent {
    /// Creates a reason.
    pub fn new(reason: impl Into<Text>) -> Self {
        Self { reason: reason.into(), confinement: None }
    }

    /// The node has no hardware of this vendor, so that its source is not mentioned at all.
    pub fn no_device() -> Self {
        Self::default()
    }

    /// Returns whether there is nothing to mention.
    pub fn is_no_device(&self) -> bool {
        *self == Self::default()
    }
}

/// Accelerators of a source.
#[derive(Clone, Debug, PartialEq)]
pub struct Inventory {
    /// Versions of driver and library.
    pub versions: SourceVersions,
    /// GPUs and MIG instances.
    pub gpus: Vec<GpuFacts>,
    /// Connection between each pair of GPUs (no instances), in the order of `gpus`; empty if
    /// unknown.
    pub topology: Vec<Vec<GpuPath>>,
}

/// A process as reported by the source.
#[derive(Clone, Debug, PartialEq)]
pub struct GpuProcess {
    /// The GPU or MIG instance.
    pub gpu: GpuUuid,
    /// Process id on the node.
    pub pid: u32,
    /// Its readings on the GPU, without those from `/proc`.
    pub now: ProcessReadings,
    /// Lists that contain it.
    pub kind: ProcessKind,
}

/// Processes of all GPUs, with gaps.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GpuProcessList {
    /// `CLOCK_BOOTTIME` of the query, in ns.
    pub mono_ns: u64,
    /// GPUs and instances in inventory order. Shared, because they rarely change.
    pub gpus: Arc<[GpuUuid]>,
    /// One entry per process and GPU, ordered by GPU, then pid.
    pub processes: Vec<GpuProcess>,
    /// Lists that could not be read or are not supported.
    pub unread: Vec<UnreadList>,
    /// GPUs with missing processes, and the reason.
    pub gaps: Vec<GpuGap>,
}

/// A process list of a GPU that could not be read.
#[derive(Clone, Debug, PartialEq)]
pub struct UnreadList {
    /// The GPU and its instances.
    pub gpus: Vec<GpuUuid>,
    /// Kind of processes in the list.
    pub kind: ProcessKind,
    /// Error of the source.
    pub why: Text,
}

impl GpuProcessList {
    /// Records that processes of a GPU are missing.
    pub fn gap(&mut self, gpu: &GpuUuid, gap: ProcessGap) {
        bound::note(&mut self.gaps, gpu, gap);
    }

    /// Records that a GPU, the first of `gpus`, does not support a list. Only the list of compute
    /// contexts matters; drivers may lack the others.
    pub fn unsupported(&mut self, gpus: Vec<GpuUuid>, kind: ProcessKind) {
        if let Some(gpu) = gpus.first().cloned().filter(|_| kind.compute) {
            self.gap(&gpu, ProcessGap::Unsupported);
        }
        self.unread.push(UnreadList { gpus, kind, why: "not supported now".into() });
    }

    /// Records that a list of a GPU, the first of `gpus`, could not be read.
    pub fn unread(&mut self, gpus: Vec<GpuUuid>, kind: ProcessKind, why: Text) {
        if let Some(gpu) = gpus.first().cloned() {
            self.gap(&gpu, ProcessGap::Failed(why.clone()));
        }
        self.unread.push(UnreadList { gpus, kind, why });
    }
}

/// A driver event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverEvent {
    /// The GPU.
    pub gpu: Option<GpuUuid>,
    /// Xid number, if it is one.
    pub xid: Option<u64>,
    /// Message for the user.
    pub text: Text,
}

impl DriverEvent {
    /// Describes an Xid error of a GPU, given as UUID and NVML index; of either, what is known.
    pub fn of_xid(xid: Option<u64>, gpu: Option<(GpuUuid, u32)>) -> Self {
        let number = xid.map_or_else(|| "of unknown number".to_owned(), |xid| xid.to_string());
        let place = gpu.as_ref().map_or_else(|| "a GPU".to_owned(), |(_, index)| format!("GPU {index}"));
        let text = match xid.and_then(nodeglass_rules::xid::explanation) {
            Some(text) => format!("Xid {number} on {place}: {text}").into(),
            None => format!("Xid {number} on {place}").into(),
        };
        Self { gpu: gpu.map(|(uuid, _)| uuid), xid, text }
    }
}

/// Identifies a worker thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerId {
    /// Position of its source.
    pub source: usize,
    /// Number of the thread, which distinguishes it from those before it.
    pub number: u32,
}

/// A report of a worker thread.
#[derive(Clone, Debug, PartialEq)]
pub enum Report {
    /// The source was opened, or its inventory changed.
    Opened(Inventory),
    /// The source could not be opened or became unavailable.
    Absent(Absent),
    /// Only a new process can open the source; see [`Source::needs_new_process`].
    NeedsNewProcess,
    /// Response to a request for readings.
    Read {
        /// One entry per GPU.
        gpus: Vec<GpuSample>,
        /// Processes, if requested.
        processes: Option<GpuProcessList>,
        /// Events since the last request.
        driver_events: Vec<DriverEvent>,
    },
    /// Health of each GPU; sent unsolicited after a response.
    Health(Vec<GpuHealth>),
}
