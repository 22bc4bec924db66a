//! The C ABI of NVML: every exported symbol, and the common path of all calls.
#![expect(unsafe_code, reason = "exported C functions write through their callers' pointers")]
#![allow(non_snake_case, reason = "the names are NVML's")]

mod accounting;
mod affinity;
mod call;
mod clocks;
mod cuda;
mod ecc;
mod engines;
mod events;
mod exports;
mod fabric;
mod fans;
mod field_ids;
mod field_values;
mod find;
mod gpm;
mod gpu_instance;
mod identity;
mod memory;
mod mig;
mod modes;
mod nvlink;
mod pcie;
mod power;
mod process;
mod process_load;
mod put;
mod refused;
mod rows;
mod samples;
mod system;
mod thermal;
mod topology;
mod vgpu;

use call::{
    Answer, DeviceContext, WithOverride, called, called_with_override, offered, on_device,
    on_device_with_override,
};
use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlReturn_t};

pub(crate) const SUCCESS: nvmlReturn_t = 0;
pub(crate) const UNINITIALIZED: nvmlReturn_t = 1;
pub(crate) const INVALID_ARGUMENT: nvmlReturn_t = 2;
pub(crate) const NOT_SUPPORTED: nvmlReturn_t = 3;
pub(crate) const NOT_FOUND: nvmlReturn_t = 6;
pub(crate) const INSUFFICIENT_SIZE: nvmlReturn_t = 7;
pub(crate) const DRIVER_NOT_LOADED: nvmlReturn_t = 9;
pub(crate) const TIMEOUT: nvmlReturn_t = 10;
pub(crate) const GPU_IS_LOST: nvmlReturn_t = 15;
pub(crate) const LIB_RM_VERSION_MISMATCH: nvmlReturn_t = 18;
pub(crate) const VERSION_MISMATCH: nvmlReturn_t = 25;

/// A handle is a number and never dereferenced.
fn handle(index: usize, mig: Option<usize>) -> nvmlDevice_t {
    (((index + 1) << 8) | mig.map_or(0, |mig| mig + 1)) as nvmlDevice_t
}
