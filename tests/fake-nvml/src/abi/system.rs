//! Initialising, versions, and finding devices.

use super::{
    Answer, GPU_IS_LOST, INITS, INVALID_ARGUMENT, NOT_FOUND, SUCCESS, UNINITIALIZED, called, gpu_uuid,
    handle, mig_uuid, put, put_text,
};
use crate::{current, state::State};
use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlReturn_t};
use std::{
    ffi::{CStr, c_char},
    sync::atomic::Ordering,
    thread,
    time::Duration,
};

fn init(symbol: &str) -> nvmlReturn_t {
    let Some(state) = current::state() else { return super::DRIVER_NOT_LOADED };
    if let Some(ms) = state.hang_ms.get(symbol) {
        thread::sleep(Duration::from_millis(*ms));
    }
    if state.init == 0 {
        INITS.fetch_add(1, Ordering::SeqCst);
    }
    state.init
}

#[unsafe(no_mangle)]
extern "C" fn nvmlInit_v2() -> nvmlReturn_t {
    init("nvmlInit_v2")
}

#[unsafe(no_mangle)]
extern "C" fn nvmlInit() -> nvmlReturn_t {
    init("nvmlInit")
}

#[unsafe(no_mangle)]
extern "C" fn nvmlInitWithFlags(_flags: u32) -> nvmlReturn_t {
    init("nvmlInitWithFlags")
}

#[unsafe(no_mangle)]
extern "C" fn nvmlShutdown() -> nvmlReturn_t {
    let fewer = |inits: usize| inits.checked_sub(1);
    match INITS.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fewer) {
        Ok(_) => SUCCESS,
        Err(_) => UNINITIALIZED,
    }
}

#[unsafe(no_mangle)]
extern "C" fn nvmlErrorString(code: nvmlReturn_t) -> *const c_char {
    let text = match code {
        0 => c"Success",
        1 => c"Uninitialized",
        2 => c"Invalid Argument",
        3 => c"Not Supported",
        4 => c"Insufficient Permissions",
        6 => c"Not Found",
        7 => c"Insufficient Size",
        9 => c"Driver Not Loaded",
        10 => c"Timeout",
        13 => c"Function Not Found",
        15 => c"GPU is lost",
        18 => c"Driver/library version mismatch",
        _ => c"Unknown Error",
    };
    text.as_ptr()
}

macro_rules! system_texts {
    ($($symbol:ident = |$state:ident| $text:expr;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $symbol(out: *mut c_char, length: u32) -> nvmlReturn_t {
            let answer = called(stringify!($symbol), |$state| Ok($text));
            // SAFETY: by NVML's contract the buffer is null or has `length` bytes.
            unsafe { put_text(out, length, answer) }
        }
    )*};
}

system_texts! {
    nvmlSystemGetDriverVersion = |state| state.driver.clone();
    nvmlSystemGetNVMLVersion = |state| state.nvml.clone();
}

macro_rules! system_numbers {
    ($($symbol:ident -> $out:ty = |$state:ident| $answer:expr;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $symbol(out: *mut $out) -> nvmlReturn_t {
            let answer = called(stringify!($symbol), |$state| $answer);
            // SAFETY: by NVML's contract the argument is null or points to the result.
            unsafe { put(out, answer) }
        }
    )*};
}

system_numbers! {
    nvmlSystemGetCudaDriverVersion -> i32 = |state| Ok(state.cuda);
    nvmlSystemGetCudaDriverVersion_v2 -> i32 = |state| Ok(state.cuda);
    nvmlDeviceGetCount -> u32 = |state| Ok(state.gpus.len() as u32);
    nvmlDeviceGetCount_v2 -> u32 = |state| Ok(state.gpus.len() as u32);
    nvmlGetExcludedDeviceCount -> u32 = |_state| Ok(0);
    nvmlUnitGetCount -> u32 = |_state| Ok(0);
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlSystemGetProcessName(pid: u32, out: *mut c_char, length: u32) -> nvmlReturn_t {
    let answer = called("nvmlSystemGetProcessName", |_| {
        std::fs::read_to_string(format!("/proc/{pid}/comm"))
            .map(|name| name.trim_end().to_owned())
            .map_err(|_| NOT_FOUND)
    });
    // SAFETY: by NVML's contract the buffer is null or has `length` bytes.
    unsafe { put_text(out, length, answer) }
}

fn by_index(state: &State, index: u32) -> Answer<nvmlDevice_t> {
    let gpu = state.gpus.get(index as usize).ok_or(INVALID_ARGUMENT)?;
    if gpu.lost_at_enumeration { Err(GPU_IS_LOST) } else { Ok(handle(index as usize, None)) }
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

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetHandleByUUID(uuid: *const c_char, out: *mut nvmlDevice_t) -> nvmlReturn_t {
    if uuid.is_null() {
        return INVALID_ARGUMENT;
    }
    // SAFETY: not null, and by NVML's contract a C string.
    let uuid = unsafe { CStr::from_ptr(uuid) }.to_string_lossy();
    // SAFETY: by NVML's contract the last argument is null or points to the result.
    unsafe { put(out, called("nvmlDeviceGetHandleByUUID", |state| by_uuid(state, &uuid))) }
}

fn by_bus_id(state: &State, bus_id: &str) -> Answer<nvmlDevice_t> {
    let wanted = bus_id.to_ascii_uppercase();
    let found = (0..state.gpus.len()).find(|index| {
        let own = super::device::bus_id(*index, &state.gpus[*index]);
        own == wanted || own.ends_with(&format!(":{}", wanted.trim_start_matches("0000:")))
    });
    by_index(state, found.ok_or(NOT_FOUND)? as u32)
}

macro_rules! handles_by_bus_id {
    ($($symbol:ident)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $symbol(bus_id: *const c_char, out: *mut nvmlDevice_t) -> nvmlReturn_t {
            if bus_id.is_null() {
                return INVALID_ARGUMENT;
            }
            // SAFETY: not null, and by NVML's contract a C string.
            let bus_id = unsafe { CStr::from_ptr(bus_id) }.to_string_lossy();
            // SAFETY: by NVML's contract the last argument is null or points to the result.
            unsafe { put(out, called(stringify!($symbol), |state| by_bus_id(state, &bus_id))) }
        }
    )*};
}

handles_by_bus_id! { nvmlDeviceGetHandleByPciBusId nvmlDeviceGetHandleByPciBusId_v2 }
