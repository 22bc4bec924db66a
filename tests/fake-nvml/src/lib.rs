//! A library that any NVML client takes for the driver's own, and whose GPUs a JSON file decides.
//!
//! Built as `libfake_nvml.so` (SONAME `libnvidia-ml.so.1`); put where a client looks for
//! `libnvidia-ml.so.1` by [`install`]. The state file is described in [`state`] and in `README.md`.
//!
//! Unsafe code lives in `abi` alone: a C ABI is raw pointers by nature.

mod abi;
mod counters;
mod current;
pub mod install;
mod motion;
mod procfs;
pub mod state;
pub mod symbol_versions;
