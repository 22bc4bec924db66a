//! All types that cross a pipe or a socket, in one crate, so that probe, relay and page cannot
//! disagree.
//!
//! * [`probe`] — wire one, probe → relay: NDJSON over the SSH channel.
//! * [`live`] — wire two, relay ⇄ page: WebSocket, binary or JSON from the same enums.
//! * [`picture`] — the state of one viewer's topic, and how deltas update it.
//!
//! * [`gpu`], [`process`], [`host`], [`job`] — the entities that both wires describe.
//! * [`ask`] — requests with a single response: process details, signals, job control, log tails.
//! * [`share`] — what a teammate may view, and until when.
//!
//! The crate does no I/O and builds for `wasm32-unknown-unknown`. `PROTOCOL.md` documents both
//! wires.

#[macro_use]
pub mod reading;
mod apply;
pub mod ask;
pub mod cell;
pub mod detail;
pub mod frame;
pub mod gpu;
pub mod handshake;
pub mod host;
pub mod id;
pub mod job;
pub mod live;
pub mod packed;
pub mod picture;
pub mod probe;
pub mod process;
pub mod share;
pub mod text;
pub mod trace;
pub mod version;

pub use cell::{Cell, GpuField, HostField, JobField, ProcessField, Row};
pub use id::{GpuUuid, JobId, NodeName};
pub use picture::Picture;
pub use reading::{Reading, Why};
pub use text::{LongText, Text};
