//! The probe samples a node's GPUs, their processes and the host once a second, and exits when its
//! pipe closes.
//!
//! `source → sampler → output`: a [`source`] is read on a worker thread ([`driver_thread`]), the
//! [`sampler`] numbers and encodes the readings, and [`output`] prints them as NDJSON. [`probe`]
//! contains the event loop; everything that can hang or block runs elsewhere.

pub mod build;
pub mod clock;
pub mod control;
mod counter_rate;
pub mod driver_thread;
pub mod hello;
pub mod host;
pub mod library_exit;
pub mod loop_event;
pub mod notes;
pub mod once;
pub mod output;
pub mod panics;
pub mod probe;
pub(crate) mod proc;
pub mod process;
pub mod requests;
pub mod ring;
pub mod sampler;
pub mod selftest;
pub mod source;
pub mod stdout;
pub mod takeover;
