//! Google TPUs: chips from sysfs, their holders from `/proc`, and readings of the running workload from
//! `libtpuinfo.so`.
//!
//! The library aborts its process if chips are not as it expects, and its destructor can hang, so only a
//! child process loads it: the [`worker`].

mod chips;
mod client;
mod holders;
mod library;
mod session;
pub mod worker;

pub use chips::is_chip;
pub use session::TpuSource;
