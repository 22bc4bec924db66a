//! Samples of the last two seconds that the driver takes in the background.

use super::{
    Answer, DeviceContext, INSUFFICIENT_SIZE, INVALID_ARGUMENT, NOT_FOUND, SUCCESS, offered, on_device,
};
use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlReturn_t, nvmlSample_t, nvmlValue_t};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Sampling interval of the driver, and number of samples that it keeps.
const PERIOD: Duration = Duration::from_millis(100);
const KEPT: u64 = 20;
/// `nvmlValueType_t`: all are unsigned ints.
const UNSIGNED: u32 = 1;

/// The reading of an `nvmlSamplingType_t`, used for all its samples.
fn reading(ctx: &DeviceContext<'_>, kind: u32) -> Answer<u32> {
    let gpu = ctx.physical_gpu()?;
    offered(match kind {
        0 => gpu.power_mw,
        1 => gpu.util,
        2 => gpu.mem_util,
        3 => gpu.engines.encoder,
        4 => gpu.engines.decoder,
        5 => gpu.sm_clock,
        6 => gpu.mem_clock,
        7 => gpu.power.module,
        8 => gpu.engines.jpeg,
        9 => gpu.engines.ofa,
        _ => return Err(INVALID_ARGUMENT),
    })
}

/// The samples that are new to the caller, oldest first.
fn unseen(ctx: &DeviceContext<'_>, kind: u32, seen_us: u64) -> Answer<Vec<nvmlSample_t>> {
    let value = reading(ctx, kind)?;
    let period = PERIOD.as_micros() as u64;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as u64 / period;
    let times = (now.saturating_sub(KEPT - 1)..=now).map(|at| at * period).filter(|at| *at > seen_us);
    let sample = |timeStamp| nvmlSample_t { timeStamp, sampleValue: nvmlValue_t { uiVal: value } };
    let list: Vec<_> = times.map(sample).collect();
    if list.is_empty() { Err(NOT_FOUND) } else { Ok(list) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetSamples(
    device: nvmlDevice_t,
    kind: u32,
    seen_us: u64,
    value_type: *mut u32,
    count: *mut u32,
    out: *mut nvmlSample_t,
) -> nvmlReturn_t {
    if value_type.is_null() || count.is_null() {
        return INVALID_ARGUMENT;
    }
    let list = match on_device("nvmlDeviceGetSamples", device, |ctx| unseen(&ctx, kind, seen_us)) {
        Ok(list) => list,
        Err(code) => return code,
    };
    // SAFETY: neither is null, and by NVML's contract both are valid.
    unsafe { *value_type = UNSIGNED };
    if out.is_null() {
        // Without a buffer it returns the largest size that may be needed.
        // SAFETY: as above.
        unsafe { *count = KEPT as u32 };
        return SUCCESS;
    }
    // SAFETY: by NVML's contract the buffer has as many elements as `count` says.
    match unsafe { super::put::put_list(count, out, Ok(list)) } {
        INSUFFICIENT_SIZE => INVALID_ARGUMENT,
        code => code,
    }
}
