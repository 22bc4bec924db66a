//! Calls of old drivers, instance ids, and raw process lists, which the wrapper does not support.
#![expect(unsafe_code, reason = "NVML through its C ABI, where the wrapper has no method")]

use super::error;
use crate::source::plausible::MAX_LIST_ENTRIES;
use nvml_wrapper::{Device, error::NvmlError};
use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlMemory_t, nvmlReturn_t};

const SUCCESS: nvmlReturn_t = 0;
const INSUFFICIENT_SIZE: nvmlReturn_t = 7;

/// Initial capacity of a process buffer in entries.
const ROOM: usize = 64;
/// Buffer size per entry in 8-byte words: the largest known layout has 32 bytes.
const WIDEST: usize = 4;
/// Maximum number of attempts if a list outgrows its buffer.
const TRIES: usize = 4;
/// Fill pattern of a buffer, which shows how far NVML wrote.
pub const POISON: u64 = 0xa5a5_5a5a_a5a5_5a5a;

/// Memory of drivers before 510 (`nvmlDeviceGetMemoryInfo`), in bytes.
///
/// # Errors
/// Errors of NVML, or a missing symbol.
pub fn memory(device: &Device<'_>) -> Result<nvmlMemory_t, NvmlError> {
    let call = device.nvml().lib().nvmlDeviceGetMemoryInfo.as_ref().map_err(missing)?;
    let mut memory = nvmlMemory_t { total: 0, free: 0, used: 0 };
    // SAFETY: the handle is live as long as `device`, the struct is ours and of the call's type.
    checked(unsafe { call(device.handle(), &mut memory) })?;
    Ok(memory)
}

/// Fan speed in % of drivers before 450 (`nvmlDeviceGetFanSpeed`).
///
/// # Errors
/// Errors of NVML, or a missing symbol.
pub fn fan_speed(device: &Device<'_>) -> Result<u32, NvmlError> {
    let call = device.nvml().lib().nvmlDeviceGetFanSpeed.as_ref().map_err(missing)?;
    let mut percent = 0;
    // SAFETY: as above.
    checked(unsafe { call(device.handle(), &mut percent) })?;
    Ok(percent)
}

/// GPU instance id and compute instance id of a MIG instance.
pub fn instance_ids(device: &Device<'_>) -> Option<(u32, u32)> {
    let lib = device.nvml().lib();
    let (gi, ci) =
        (lib.nvmlDeviceGetGpuInstanceId.as_ref().ok()?, lib.nvmlDeviceGetComputeInstanceId.as_ref().ok()?);
    let mut ids = (0, 0);
    // SAFETY: the handle is live as long as `device`, both numbers are ours.
    let codes = unsafe { (gi(device.handle(), &mut ids.0), ci(device.handle(), &mut ids.1)) };
    (codes == (SUCCESS, SUCCESS)).then_some(ids)
}

/// One of NVML's three process lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum List {
    /// Compute contexts.
    Compute,
    /// Graphics contexts.
    Graphics,
    /// Clients of the Multi-Process Service.
    Mps,
}

/// A process list as written by NVML, in an unknown layout.
///
/// Reused for all lists, to avoid allocations in every cycle.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RawList {
    /// Number of entries reported by NVML.
    pub count: usize,
    /// The buffer, [`POISON`] in unwritten places.
    pub words: Vec<u64>,
}

/// Reads a process list into `raw` with the newest version of the call that the driver offers.
///
/// # Errors
/// Errors of NVML, or a missing symbol if there is no version.
pub fn processes(device: &Device<'_>, list: List, raw: &mut RawList) -> Result<(), NvmlError> {
    let lib = device.nvml().lib();
    // The versions differ in the entry type, for which the buffer is large enough.
    macro_rules! newest {
        ($($symbol:ident),*) => {{
            let mut result = Err(NvmlError::FunctionNotFound);
            $(if let Ok(call) = &lib.$symbol {
                // SAFETY: `fill` hands over a live handle, a count, and that many of the widest entries.
                result = fill(device, raw, |handle, count, words| unsafe { call(handle, count, words.cast()) });
                if !result.as_ref().is_err_and(error::unsupported) {
                    return result;
                }
            })*
            result
        }};
    }
    match list {
        List::Compute => newest!(
            nvmlDeviceGetComputeRunningProcesses_v3,
            nvmlDeviceGetComputeRunningProcesses_v2,
            nvmlDeviceGetComputeRunningProcesses
        ),
        List::Graphics => newest!(
            nvmlDeviceGetGraphicsRunningProcesses_v3,
            nvmlDeviceGetGraphicsRunningProcesses_v2,
            nvmlDeviceGetGraphicsRunningProcesses
        ),
        List::Mps => newest!(
            nvmlDeviceGetMPSComputeRunningProcesses_v3,
            nvmlDeviceGetMPSComputeRunningProcesses_v2,
            nvmlDeviceGetMPSComputeRunningProcesses
        ),
    }
}

/// Repeats the call until the buffer is large enough.
fn fill(
    device: &Device<'_>,
    raw: &mut RawList,
    call: impl Fn(nvmlDevice_t, *mut u32, *mut u64) -> nvmlReturn_t,
) -> Result<(), NvmlError> {
    // SAFETY: the handle does not outlive this call, and `device` does.
    let handle = unsafe { device.handle() };
    let mut room = ROOM;
    for _ in 0..TRIES {
        raw.words.clear();
        raw.words.resize(room * WIDEST, POISON);
        let mut count = room as u32;
        match call(handle, &mut count, raw.words.as_mut_ptr()) {
            // Processes may start between two calls, so some room is spare.
            INSUFFICIENT_SIZE if count as usize > MAX_LIST_ENTRIES => {
                return Err(NvmlError::InsufficientSize(Some(count as usize)));
            }
            INSUFFICIENT_SIZE => room = room.max(count as usize) + ROOM,
            code => {
                checked(code)?;
                if count as usize > room {
                    return Err(NvmlError::InsufficientSize(Some(count as usize)));
                }
                raw.count = count as usize;
                return Ok(());
            }
        }
    }
    Err(NvmlError::InsufficientSize(None))
}

/// Converts a return code to a result.
pub(super) fn checked(code: nvmlReturn_t) -> Result<(), NvmlError> {
    nvml_wrapper::error::nvml_try(code)
}

/// Converts a missing symbol to an error.
pub(super) fn missing<E>(_: E) -> NvmlError {
    NvmlError::FunctionNotFound
}
