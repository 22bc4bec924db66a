//! All types that cross a pipe or a socket, in one crate, so that probe, relay and page cannot
//! disagree.
//!
//! * [`probe`] — the probe wire, probe → relay: NDJSON over the SSH channel.
//! * [`live`] — the live wire, relay ⇄ page: WebSocket, binary or JSON from the same enums.
//! * [`picture`] — the state of one viewer's topic, and how deltas update it.
//!
//! * [`gpu`], [`process`], [`host`], [`job`] — the entities that both wires describe.
//! * [`source`] — a vendor's driver on a node, and its state.
//! * [`finding`] — what the relay concludes from readings.
//! * [`insight`] — what else it concludes about running jobs: their progress, and what limits their GPUs.
//! * [`note`] — remarks at a moment of a job, shown in its graphs.
//! * [`request`] — requests with a single response: process details, signals, job control, log tails.
//! * [`range`] — long-term history of a topic.
//! * [`replay`] — playing a recording.
//! * [`report`] — what a job did with what it was given.
//! * [`audit`] — who viewed through which share, and which actions were performed.
//! * [`share`] — what a teammate may view, and until when.
//!
//! The crate does no I/O and builds for `wasm32-unknown-unknown`. `PROTOCOL.md` documents both
//! wires.

pub mod field;
mod id;
pub mod live;
mod model;
#[cfg(feature = "openapi")]
mod openapi;
pub mod probe;
mod reading;
mod text;
pub mod version;

pub use field::catalogue::{GpuField, HostField, JobField, ProcessField};
pub use field::{Cell, Field, Row};
pub use id::{GpuUuid, IdError, JobId, NodeName};
pub use live::{frame, handshake};
pub use model::{
    audit, capture, cluster, confinement, finding, gpu, history, host, insight, job, job_devices, note,
    picture, process, range, replay, report, request, share, source, trace, unattributed,
};
pub use picture::Picture;
pub use reading::{FailureReason, Reading};
pub use source::Vendor;
pub use text::{LongText, Text};
