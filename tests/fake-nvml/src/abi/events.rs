//! The event set: each Xid of the state file is delivered once.

use super::{Answer, SUCCESS, TIMEOUT, called, handle, on_device, put};
use crate::state::State;
use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlEventData_t, nvmlEventSet_t, nvmlReturn_t};
use std::{
    collections::HashMap,
    sync::{LazyLock, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

/// `nvmlEventTypeXidCriticalError`.
const XID_CRITICAL: u64 = 8;
/// How often a waiting call looks for news.
const LOOK: Duration = Duration::from_millis(25);

/// How many Xids of each GPU were delivered; one set is enough for any client we know.
static DELIVERED: LazyLock<Mutex<HashMap<usize, usize>>> = LazyLock::new(Mutex::default);

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlEventSetCreate(out: *mut nvmlEventSet_t) -> nvmlReturn_t {
    // SAFETY: by NVML's contract the argument is null or points to the result.
    unsafe { put(out, called("nvmlEventSetCreate", |_| Ok(0x5e7 as nvmlEventSet_t))) }
}

#[unsafe(no_mangle)]
extern "C" fn nvmlEventSetFree(_set: nvmlEventSet_t) -> nvmlReturn_t {
    SUCCESS
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

/// The next Xid that nobody was told yet.
fn next(state: &State) -> Option<nvmlEventData_t> {
    let mut delivered = DELIVERED.lock().unwrap_or_else(PoisonError::into_inner);
    state.gpus.iter().enumerate().find_map(|(index, gpu)| {
        let told = delivered.entry(index).or_default();
        let xid = *gpu.xids.get(*told)?;
        *told += 1;
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
        thread::sleep(left.min(LOOK));
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
