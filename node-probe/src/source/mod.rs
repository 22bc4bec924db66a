//! A source tells what accelerators a node has and what they do; NVML is one, a script is another.

pub mod calls;
pub mod nvml;
pub mod scripted;

use crate::process::bound;
use nodeglass_protocol::probe::{
    GpuFacts, GpuGap, GpuHealth, GpuPath, GpuSample, NvmlState, ProcessGap, ProcessKind, ProcessReadings,
};
use nodeglass_protocol::{GpuUuid, Text};
use std::sync::Arc;

/// Something that can be asked for accelerators, again and again until it has some.
pub trait Source: Send {
    /// Looks for the accelerators. May hang: it is called on a thread of its own.
    ///
    /// # Errors
    /// [`Absent`] if there are none to be had now.
    fn open(&mut self) -> Result<Box<dyn Session + '_>, Absent>;

    /// Whether it could not be opened because of something that only another process is free of.
    fn is_stuck(&self) -> bool {
        false
    }
}

/// Accelerators that answer. Any call may hang.
pub trait Session {
    /// Enumerates again; static facts of all accelerators.
    fn inventory(&mut self) -> Inventory;

    /// Changing readings, one entry per GPU of the last [`Session::inventory`], in its order.
    ///
    /// # Errors
    /// [`Absent`] if the whole driver went away; the session is over then.
    fn readings(&mut self) -> Result<Vec<GpuSample>, Absent>;

    /// Every process on every GPU.
    fn gpu_processes(&mut self) -> GpuProcessList;

    /// How well each GPU is, in the order of the inventory; slow, so asked seldom.
    fn health(&mut self) -> Vec<GpuHealth>;

    /// What happened since the last call.
    fn driver_events(&mut self) -> Vec<DriverEvent>;

    /// Whether the last readings contradict the last inventory, so that another one should be taken before
    /// the next readings.
    fn is_stale(&self) -> bool {
        false
    }
}

/// Why there are no accelerators: one sentence for the user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Absent(pub Text);

/// What a source has.
#[derive(Clone, Debug, PartialEq)]
pub struct Inventory {
    /// The source's own versions.
    pub nvml: NvmlState,
    /// Its GPUs and MIG instances.
    pub gpus: Vec<GpuFacts>,
    /// How each GPU (no instance) reaches each other one, in the order of `gpus`; empty if not known.
    pub topology: Vec<Vec<GpuPath>>,
}

/// A process as the source knows it.
#[derive(Clone, Debug, PartialEq)]
pub struct GpuProcess {
    /// The GPU or MIG instance.
    pub gpu: GpuUuid,
    /// Pid on the node.
    pub pid: u32,
    /// What it does on the GPU; what `/proc` tells is not yet in it.
    pub now: ProcessReadings,
    /// Which lists it is in.
    pub kind: ProcessKind,
}

/// The processes on all GPUs, and what is missing of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GpuProcessList {
    /// `CLOCK_BOOTTIME` when the source was asked, in ns.
    pub mono_ns: u64,
    /// The GPUs and instances, in the order of the inventory. Shared, for they are the same at each look.
    pub gpus: Arc<[GpuUuid]>,
    /// One entry per process and GPU, ordered by GPU, then pid.
    pub gpu_processes: Vec<GpuProcess>,
    /// Lists that could not be read, or are not offered.
    pub unread: Vec<UnreadList>,
    /// GPUs of which processes are missing, and why.
    pub gaps: Vec<GpuGap>,
}

/// A list of a GPU's processes that could not be read.
#[derive(Clone, Debug, PartialEq)]
pub struct UnreadList {
    /// The GPU and its instances.
    pub gpus: Vec<GpuUuid>,
    /// The kind of processes that it lists.
    pub kind: ProcessKind,
    /// Why, in the source's own word.
    pub why: Text,
}

impl GpuProcessList {
    /// Notes that processes of a GPU are missing.
    pub fn gap(&mut self, gpu: &GpuUuid, gap: ProcessGap) {
        bound::note(&mut self.gaps, gpu, gap);
    }

    /// Notes that a GPU, the first of `gpus`, does not offer a list. Drivers may lack the others; without that of compute
    /// contexts, processes are missing.
    pub fn unsupported(&mut self, gpus: Vec<GpuUuid>, kind: ProcessKind) {
        if let Some(gpu) = gpus.first().cloned().filter(|_| kind.compute) {
            self.gap(&gpu, ProcessGap::Unsupported);
        }
        self.unread.push(UnreadList { gpus, kind, why: "not supported now".into() });
    }

    /// Notes that a list of a GPU, the first of `gpus`, could not be read.
    pub fn unread(&mut self, gpus: Vec<GpuUuid>, kind: ProcessKind, why: Text) {
        if let Some(gpu) = gpus.first().cloned() {
            self.gap(&gpu, ProcessGap::Failed(why.clone()));
        }
        self.unread.push(UnreadList { gpus, kind, why });
    }
}

/// Something that happened to a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverEvent {
    /// The GPU.
    pub gpu: Option<GpuUuid>,
    /// Xid number, if it is one.
    pub xid: Option<u64>,
    /// One sentence.
    pub text: Text,
}

/// What the thread of a source reports.
#[derive(Clone, Debug, PartialEq)]
pub enum Report {
    /// The source opened, or its inventory changed.
    Opened(Inventory),
    /// The source could not be opened, or went away.
    Absent(Absent),
    /// The source cannot be opened by this process any more, but by another one.
    Stuck,
    /// The answer to a request for readings.
    Read {
        /// One entry per GPU.
        gpus: Vec<GpuSample>,
        /// Processes, if they were asked for.
        processes: Option<GpuProcessList>,
        /// What happened since the last request.
        driver_events: Vec<DriverEvent>,
    },
    /// How well each GPU is; comes by itself, after a request was answered.
    Health(Vec<GpuHealth>),
}
