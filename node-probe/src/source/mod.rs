//! A source tells what accelerators a node has and what they do; NVML is one, a script is another.

pub mod calls;
pub mod nvml;
pub mod scripted;

use nodeglass_protocol::probe::{
    GpuFacts, GpuHealth, GpuPath, GpuSample, NvmlState, ProcessKind, ProcessReadings, ProcessSample,
};
use nodeglass_protocol::{GpuUuid, Text};

/// Something that can be asked for accelerators, again and again until it has some.
pub trait Source: Send {
    /// Looks for the accelerators. May hang: it is called on a thread of its own.
    ///
    /// # Errors
    /// [`Absent`] if there are none to be had now.
    fn open(&mut self) -> Result<Box<dyn Session + '_>, Absent>;
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

    /// Every process on every GPU, one entry per process and GPU, ordered by GPU, then pid.
    fn occupants(&mut self) -> Vec<Occupant>;

    /// How well each GPU is, in the order of the inventory; slow, so asked seldom.
    fn health(&mut self) -> Vec<GpuHealth>;

    /// What happened since the last call.
    fn news(&mut self) -> Vec<News>;
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
pub struct Occupant {
    /// The GPU or MIG instance.
    pub gpu: GpuUuid,
    /// Pid on the node.
    pub pid: u32,
    /// What it does on the GPU; what `/proc` tells is not yet in it.
    pub now: ProcessReadings,
    /// Which lists it is in.
    pub kind: ProcessKind,
}

/// Something that happened to a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct News {
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
    /// The answer to a request for readings.
    Read {
        /// One entry per GPU.
        gpus: Vec<GpuSample>,
        /// Processes, if they were asked for.
        processes: Option<Vec<ProcessSample>>,
        /// What happened since the last request.
        news: Vec<News>,
    },
    /// How well each GPU is; comes by itself, after a request was answered.
    Health(Vec<GpuHealth>),
}
