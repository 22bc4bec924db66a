//! The event set: each Xid of the state file is delivered once.

use super::{
    Answer, SUCCESS, TIMEOUT, VERSION_MISMATCH, called, handle, on_device,
    put::{put, version},
};
use crate::state::State;
use nvml_wrapper_sys::bindings::{
    nvmlDevice_t, nvmlEventData_t, nvmlEventSet_t, nvmlReturn_t, nvmlSystemEventSetCreateRequest_v1_t,
    nvmlSystemEventSetFreeRequest_v1_t, nvmlSystemEventSetWaitRequest_v1_t,
    nvmlSystemRegisterEventRequest_v1_t,
};
use std::{
    collections::HashMap,
    sync::{LazyLock, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

/// `nvmlEventTypeXidCriticalError`.
const XID_CRITICAL: u64 = 8;
/// Polling interval of a waiting call.
const POLL_INTERVAL: Duration = Duration::from_millis(25);

/// Number of delivered Xids of each GPU; every known client uses a single set.
static DELIVERED: LazyLock<Mutex<HashMap<usize, usize>>> = LazyLock::new(Mutex::default);

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlEventSetCreate(out: *mut nvmlEventSet_t) -> nvmlReturn_t {
    // SAFETY: by NVML's contract the argument is null or points to the result.
    unsafe { put(out, called("nvmlEventSetCreate", |_| Ok(0x5e7 as nvmlEventSet_t))) }
}

#[unsafe(no_mangle)]
extern "C" fn nvmlEventSetFree(_set: nvmlEventSet_t) -> nvmlReturn_t {
    called("nvmlEventSetFree", |_| Ok(())).map_or_else(|code| code, |()| SUCCESS)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceRegisterEvents(
    device: nvmlDevice_t,
    _types: u64,
    _set: nvmlEventSet_t,
) -> nvmlReturn_t {
    on_device("nvmlDeviceRegisterEvents", device, |_| Ok(())).map_or_else(|code| code, |()| SUCCESS)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetSupportedEventTypes(device: nvmlDevice_t, out: *mut u64) -> nvmlReturn_t {
    let answer = on_device("nvmlDeviceGetSupportedEventTypes", device, |_| Ok(XID_CRITICAL));
    // SAFETY: by NVML's contract the argument is null or points to the result.
    unsafe { put(out, answer) }
}

/// The next Xid that was not yet delivered.
fn next(state: &State) -> Option<nvmlEventData_t> {
    let mut delivered = DELIVERED.lock().unwrap_or_else(PoisonError::into_inner);
    state.gpus.iter().enumerate().find_map(|(index, gpu)| {
        let count = delivered.entry(index).or_default();
        let xid = *gpu.xids.get(*count)?;
        *count += 1;
        Some(nvmlEventData_t {
            device: handle(index, None),
            eventType: XID_CRITICAL,
            eventData: xid,
            gpuInstanceId: u32::MAX,
            computeInstanceId: u32::MAX,
        })
    })
}

fn wait(symbol: &str, timeout_ms: u32) -> Answer<nvmlEventData_t> {
    let deadline = Instant::now() + Duration::from_millis(u64::from(timeout_ms));
    loop {
        if let Some(event) = called(symbol, |state| Ok(next(state)))? {
            return Ok(event);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(TIMEOUT);
        }
        thread::sleep(left.min(POLL_INTERVAL));
    }
}

macro_rules! waits {
    ($($symbol:ident)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $symbol(_set: nvmlEventSet_t, out: *mut nvmlEventData_t, timeout_ms: u32) -> nvmlReturn_t {
            // SAFETY: by NVML's contract the argument is null or points to the result.
            unsafe { put(out, wait(stringify!($symbol), timeout_ms)) }
        }
    )*};
}

waits! { nvmlEventSetWait nvmlEventSetWait_v2 }

/// Events of the machine: drivers that are loaded and unloaded. None occur here, so a wait times out.
macro_rules! system_events {
    ($($symbol:ident($ty:ty) = |$request:ident| $answer:expr;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $symbol(request: *mut $ty) -> nvmlReturn_t {
            // SAFETY: by NVML's contract it is null or points to a request.
            let Some($request) = (unsafe { request.as_mut() }) else { return super::INVALID_ARGUMENT };
            let answer: Answer<()> = called(stringify!($symbol), |_| {
                if $request.version != version::<$ty>(1) {
                    return Err(VERSION_MISMATCH);
                }
                $answer
            });
            answer.map_or_else(|code| code, |()| SUCCESS)
        }
    )*};
}

system_events! {
    nvmlSystemEventSetCreate(nvmlSystemEventSetCreateRequest_v1_t) = |request| {
        request.set = 0x5e8 as _;
        Ok(())
    };
    nvmlSystemEventSetFree(nvmlSystemEventSetFreeRequest_v1_t) = |request| {
        request.set = std::ptr::null_mut();
        Ok(())
    };
    nvmlSystemRegisterEvents(nvmlSystemRegisterEventRequest_v1_t) = |_request| Ok(());
    nvmlSystemEventSetWait(nvmlSystemEventSetWaitRequest_v1_t) = |request| {
        request.numEvent = 0;
        thread::sleep(Duration::from_millis(request.timeoutms.into()));
        Err(TIMEOUT)
    };
}
