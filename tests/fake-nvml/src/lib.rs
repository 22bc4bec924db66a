//! A library that any NVML client accepts as the driver's, with GPUs that a JSON file describes.
//!
//! Built as `libfake_nvml.so` (SONAME `libnvidia-ml.so.1`); [`install`] copies it to where clients look
//! for `libnvidia-ml.so.1`. The state file is described in [`state`] and in `README.md`.
//!
//! Only `abi` has unsafe code: a C ABI consists of raw pointers.

mod abi;
mod confine;
mod counters;
mod current;
pub mod install;
mod motion;
mod procfs;
pub mod state;
pub mod symbol_versions;
