//! Finding devices: by index, UUID, PCI bus id and serial number.

use super::{
    Answer, GPU_IS_LOST, INVALID_ARGUMENT, NOT_FOUND, called, exports::getters_of_system, handle,
    identity::bus_id, put::put,
};
use crate::state::State;
use crate::state::identity::{gpu_uuid, mig_uuid, serial};
use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlReturn_t};
use std::ffi::{CStr, c_char};

getters_of_system! {
    nvmlDeviceGetCount -> u32 = |state| Ok(state.gpus.len() as u32);
    nvmlDeviceGetCount_v2 -> u32 = |state| Ok(state.gpus.len() as u32);
}

fn by_index(state: &State, index: u32) -> Answer<nvmlDevice_t> {
    let gpu = state.gpus.get(index as usize).ok_or(INVALID_ARGUMENT)?;
    if gpu.lost_at_enumeration {
        return Err(GPU_IS_LOST);
    }
    gpu.errors
        .get("nvmlDeviceGetHandleByIndex_v2")
        .map_or(Ok(handle(index as usize, None)), |code| Err(*code))
}

macro_rules! handles_by_index {
    ($($symbol:ident)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $symbol(index: u32, out: *mut nvmlDevice_t) -> nvmlReturn_t {
            // SAFETY: by NVML's contract the last argument is null or points to the result.
            unsafe { put(out, called(stringify!($symbol), |state| by_index(state, index))) }
        }
    )*};
}

handles_by_index! { nvmlDeviceGetHandleByIndex nvmlDeviceGetHandleByIndex_v2 }

fn by_uuid(state: &State, uuid: &str) -> Answer<nvmlDevice_t> {
    for (index, gpu) in state.gpus.iter().enumerate() {
        if gpu_uuid(index, gpu) == uuid {
            return by_index(state, index as u32);
        }
        let mut instances = gpu.mig.iter().enumerate();
        if let Some((position, _)) = instances.find(|(at, mig)| mig_uuid(index, *at, mig) == uuid) {
            return Ok(handle(index, Some(position)));
        }
    }
    Err(NOT_FOUND)
}

/// Index of the GPU at a PCI address.
pub(super) fn index_of_bus_id(state: &State, wanted: &str) -> Option<usize> {
    let wanted = wanted.to_ascii_uppercase();
    (0..state.gpus.len()).find(|index| {
        let own = bus_id(*index, &state.gpus[*index]);
        own == wanted || own.ends_with(&format!(":{}", wanted.trim_start_matches("0000:")))
    })
}

fn by_bus_id(state: &State, wanted: &str) -> Answer<nvmlDevice_t> {
    by_index(state, index_of_bus_id(state, wanted).ok_or(NOT_FOUND)? as u32)
}

fn by_serial(state: &State, wanted: &str) -> Answer<nvmlDevice_t> {
    let found =
        (0..state.gpus.len()).find(|index| serial(*index, &state.gpus[*index]).as_deref() == Some(wanted));
    by_index(state, found.ok_or(NOT_FOUND)? as u32)
}

macro_rules! handles_by_text {
    ($($symbol:ident = $find:path;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $symbol(text: *const c_char, out: *mut nvmlDevice_t) -> nvmlReturn_t {
            if text.is_null() {
                return INVALID_ARGUMENT;
            }
            // SAFETY: not null, and by NVML's contract a C string.
            let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
            // SAFETY: by NVML's contract the last argument is null or points to the result.
            unsafe { put(out, called(stringify!($symbol), |state| $find(state, &text))) }
        }
    )*};
}

handles_by_text! {
    nvmlDeviceGetHandleByUUID = by_uuid;
    nvmlDeviceGetHandleByPciBusId = by_bus_id;
    nvmlDeviceGetHandleByPciBusId_v2 = by_bus_id;
    nvmlDeviceGetHandleBySerial = by_serial;
}
