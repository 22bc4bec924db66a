//! One crate holds every type that crosses a pipe or a socket, so probe, relay and page cannot disagree.
//!
//! * [`probe`] — wire one, probe → relay: NDJSON over the SSH channel.
//! * [`live`] — wire two, relay ⇄ page: WebSocket, binary or JSON from the same enums.
//! * [`picture`] — what one viewer knows now, and how a delta changes it.
//!
//! * [`gpu`], [`process`], [`host`], [`job`] — what there is to tell of each, on both wires.
//! * [`ask`] — what is asked and done once: details, signals, orders, logs.
//! * [`share`] — what a teammate may see, and for how long.
//! * [`log`] — the bytes at the end of a log become lines.
//! * [`mask`] — command lines lose their secrets before anything is sent.
//!
//! Nothing here does I/O; it builds for `wasm32-unknown-unknown`. The wires are described for
//! readers in `PROTOCOL.md`.

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
pub mod log;
pub mod mask;
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
