//! A probe says once a second what its node's GPUs, their processes and the host do, and leaves no trace when its pipe closes.
//!
//! `source → sampler → output`: a [`source`] is read on a thread of its own ([`driver_thread`]), the
//! [`sampler`] numbers what it said, [`output`] prints it as NDJSON. [`probe`] is the one loop
//! that decides when; everything that can hang or block happens elsewhere.

pub mod build;
pub mod clock;
pub mod control;
mod counter_rate;
pub mod driver_thread;
pub mod hello;
pub mod host;
pub mod loop_event;
pub mod once;
pub mod output;
pub mod panics;
pub mod probe;
pub mod process;
pub mod requests;
pub mod ring;
pub mod sampler;
pub mod source;
pub mod takeover;
