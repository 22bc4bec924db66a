//! Utilisation per process: time-stamped samples of active processes.

use super::{
    Answer, DeviceContext, INVALID_ARGUMENT, NOT_FOUND, SUCCESS, VERSION_MISMATCH, on_device,
    on_device_with_override,
    put::{put_list, put_list_with_override, version},
};
use crate::state::{Overridable, Process};
use nvml_wrapper_sys::bindings::{
    nvmlDevice_t, nvmlProcessUtilizationInfo_v1_t, nvmlProcessUtilizationSample_t,
    nvmlProcessesUtilizationInfo_v1_t, nvmlReturn_t,
};
use std::time::{SystemTime, UNIX_EPOCH};

/// Sampling interval of the driver, in µs.
const PERIOD_US: u64 = 200_000;

/// Time of the latest sample, in µs since 1970.
fn latest_us() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as u64;
    now / PERIOD_US * PERIOD_US
}

/// One sample of each active process that is newer than the caller's last one, or NOT_FOUND, NVML's
/// code for "none".
fn samples(ctx: &DeviceContext<'_>, seen_us: u64) -> Answer<Vec<nvmlProcessUtilizationInfo_v1_t>> {
    let gpu = ctx.physical_gpu()?;
    let mut processes: Vec<&Process> = gpu.processes.iter().collect();
    processes.sort_by_key(|process| process.pid);
    processes.dedup_by_key(|process| process.pid);
    let among = processes.len().max(1) as u32;
    let share =
        |own: &Overridable<u32>, whole: Option<u32>| own.or(whole.map(|whole| whole / among)).unwrap_or(0);
    let latest = latest_us();
    let sample = |process: &Process| nvmlProcessUtilizationInfo_v1_t {
        timeStamp: latest.saturating_add_signed(-process.age_ms * 1_000),
        pid: process.pid,
        smUtil: share(&process.sm, gpu.util),
        memUtil: share(&process.mem, gpu.mem_util),
        encUtil: process.enc,
        decUtil: process.dec,
        jpgUtil: process.jpg,
        ofaUtil: process.ofa,
    };
    let samples: Vec<_> =
        processes.into_iter().map(sample).filter(|one| busy(one) && one.timeStamp > seen_us).collect();
    if samples.is_empty() { Err(NOT_FOUND) } else { Ok(samples) }
}

fn busy(sample: &nvmlProcessUtilizationInfo_v1_t) -> bool {
    let all = [sample.smUtil, sample.memUtil, sample.encUtil, sample.decUtil, sample.jpgUtil, sample.ofaUtil];
    all.iter().any(|percent| *percent > 0)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetProcessUtilization(
    device: nvmlDevice_t,
    out: *mut nvmlProcessUtilizationSample_t,
    count: *mut u32,
    seen_us: u64,
) -> nvmlReturn_t {
    let short = |sample: nvmlProcessUtilizationInfo_v1_t| nvmlProcessUtilizationSample_t {
        pid: sample.pid,
        timeStamp: sample.timeStamp,
        smUtil: sample.smUtil,
        memUtil: sample.memUtil,
        encUtil: sample.encUtil,
        decUtil: sample.decUtil,
    };
    let answer =
        on_device_with_override("nvmlDeviceGetProcessUtilization", device, |ctx| samples(&ctx, seen_us));
    let answer = answer.map(|(samples, injected)| (samples.into_iter().map(short).collect(), injected));
    // SAFETY: by NVML's contract the buffer has as many elements as `count` says.
    unsafe { put_list_with_override(count, out, answer) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetProcessesUtilizationInfo(
    device: nvmlDevice_t,
    request: *mut nvmlProcessesUtilizationInfo_v1_t,
) -> nvmlReturn_t {
    // SAFETY: by NVML's contract it is null or points to a request.
    let Some(request) = (unsafe { request.as_mut() }) else { return INVALID_ARGUMENT };
    let answer = on_device("nvmlDeviceGetProcessesUtilizationInfo", device, |ctx| {
        if request.version != version::<nvmlProcessesUtilizationInfo_v1_t>(1) {
            return Err(VERSION_MISMATCH);
        }
        samples(&ctx, request.lastSeenTimeStamp)
    });
    let newest = answer.iter().flatten().map(|sample| sample.timeStamp).max();
    // SAFETY: by NVML's contract the array has as many elements as the request says.
    let code = unsafe { put_list(&raw mut request.processSamplesCount, request.procUtilArray, answer) };
    if let (SUCCESS, Some(newest)) = (code, newest) {
        request.lastSeenTimeStamp = newest;
    }
    code
}
