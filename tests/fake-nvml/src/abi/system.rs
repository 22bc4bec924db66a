//! Initialisation, versions, and calls about the whole machine.

use super::{
    SUCCESS, UNINITIALIZED, call, called,
    exports::getters_of_system,
    put::{begins_with, chars, put, put_text, version},
};
use nvml_wrapper_sys::bindings::{
    nvmlConfComputeSystemState_t, nvmlReturn_t, nvmlSystemConfComputeSettings_v1_t,
    nvmlSystemDriverBranchInfo_v1_t,
};
use std::{
    ffi::{c_char, c_uint},
    sync::atomic::Ordering,
};

macro_rules! inits {
    ($($symbol:ident($($arg:ident: $ty:ty),*);)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $symbol($($arg: $ty),*) -> nvmlReturn_t {
            call::init(stringify!($symbol)).map_or_else(|code| code, |()| SUCCESS)
        }
    )*};
}

inits! {
    nvmlInit();
    nvmlInit_v2();
    nvmlInitWithFlags(_flags: c_uint);
}

#[unsafe(no_mangle)]
extern "C" fn nvmlShutdown() -> nvmlReturn_t {
    let fewer = |inits: usize| inits.checked_sub(1);
    match call::INITS.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fewer) {
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
        5 => c"Already Initialized",
        6 => c"Not Found",
        7 => c"Insufficient Size",
        8 => c"Insufficient External Power",
        9 => c"Driver Not Loaded",
        10 => c"Timeout",
        11 => c"Interrupt Request Issue",
        12 => c"NVML Shared Library Not Found",
        13 => c"Function Not Found",
        14 => c"Corrupted infoROM",
        15 => c"GPU is lost",
        16 => c"GPU requires restart",
        17 => c"The operating system has blocked the request.",
        18 => c"Driver/library version mismatch",
        19 => c"In use by another client",
        20 => c"Insufficient Memory",
        21 => c"No data",
        22 => c"The requested vgpu operation is not available on target device, because ECC is enabled",
        23 => c"Insufficient resources",
        24 => c"Frequency not supported",
        25 => c"Argument version mismatch",
        26 => c"Deprecated",
        27 => c"Not ready",
        28 => c"GPU not found",
        29 => c"Invalid state",
        30 => c"Reset type not supported",
        _ => c"Unknown Error",
    };
    text.as_ptr()
}

macro_rules! texts_of_system {
    ($($symbol:ident = |$state:ident| $text:expr;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $symbol(out: *mut c_char, length: u32) -> nvmlReturn_t {
            let answer = called(stringify!($symbol), |$state| Ok($text));
            // SAFETY: by NVML's contract the buffer is null or has `length` bytes.
            unsafe { put_text(out, length, answer) }
        }
    )*};
}

texts_of_system! {
    nvmlSystemGetDriverVersion = |state| state.driver.clone();
    nvmlSystemGetNVMLVersion = |state| state.nvml.clone();
}

getters_of_system! {
    nvmlSystemGetCudaDriverVersion -> i32 = |state| Ok(state.cuda);
    nvmlSystemGetCudaDriverVersion_v2 -> i32 = |state| Ok(state.cuda);
    nvmlGetExcludedDeviceCount -> u32 = |_state| Ok(0);
    nvmlUnitGetCount -> u32 = |_state| Ok(0);
    nvmlSystemGetConfComputeState -> nvmlConfComputeSystemState_t = |state| {
        let [environment, cc_feature, dev_tools] = state.conf_compute;
        Ok(nvmlConfComputeSystemState_t { environment, ccFeature: cc_feature, devToolsMode: dev_tools })
    };
    nvmlSystemGetConfComputeGpusReadyState -> u32 = |state| Ok(state.conf_compute[1]);
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlSystemGetConfComputeSettings(
    out: *mut nvmlSystemConfComputeSettings_v1_t,
) -> nvmlReturn_t {
    let wanted = version::<nvmlSystemConfComputeSettings_v1_t>(1);
    let answer = called("nvmlSystemGetConfComputeSettings", |state| {
        // SAFETY: by NVML's contract a struct that is not null begins with its version.
        unsafe { begins_with(wanted, out) }?;
        let [environment, cc_feature, dev_tools] = state.conf_compute;
        Ok(nvmlSystemConfComputeSettings_v1_t {
            version: wanted,
            environment,
            ccFeature: cc_feature,
            devToolsMode: dev_tools,
            multiGpuMode: 0,
        })
    });
    // SAFETY: by NVML's contract the argument is null or points to the result.
    unsafe { put(out, answer) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlSystemGetDriverBranch(
    out: *mut nvmlSystemDriverBranchInfo_v1_t,
    length: u32,
) -> nvmlReturn_t {
    let wanted = version::<nvmlSystemDriverBranchInfo_v1_t>(1);
    let answer = called("nvmlSystemGetDriverBranch", |state| {
        // SAFETY: by NVML's contract a struct that is not null begins with its version.
        unsafe { begins_with(wanted, out) }?;
        let branch = format!("r{}_00", state.driver_version().0);
        if branch.len() < length as usize {
            Ok(nvmlSystemDriverBranchInfo_v1_t { version: wanted, branch: chars(&branch) })
        } else {
            Err(super::INSUFFICIENT_SIZE)
        }
    });
    // SAFETY: by NVML's contract the first argument is null or points to the result.
    unsafe { put(out, answer) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlSystemGetProcessName(pid: u32, out: *mut c_char, length: u32) -> nvmlReturn_t {
    let answer = called("nvmlSystemGetProcessName", |_| {
        std::fs::read_to_string(format!("/proc/{pid}/comm"))
            .map(|name| name.trim_end().to_owned())
            .map_err(|_| super::NOT_FOUND)
    });
    // SAFETY: by NVML's contract the buffer is null or has `length` bytes.
    unsafe { put_text(out, length, answer) }
}
