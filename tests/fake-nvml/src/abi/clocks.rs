//! Clocks, and the reasons for throttling.

use super::{Answer, DeviceContext, INVALID_ARGUMENT, exports::getters, offered};
use crate::state::Gpu;
use nvml_wrapper_sys::bindings::nvmlViolationTime_t;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Graphics, SM, memory and video clock, as `nvmlClockType_t` numbers them.
type ByKind = [Option<u32>; 4];

fn video(sm: Option<u32>) -> Option<u32> {
    sm.map(|mhz| mhz / 15 * 13)
}

fn now(gpu: &Gpu) -> ByKind {
    let (sm, clocks) = (gpu.sm_clock, &gpu.clocks);
    [clocks.graphics.or(sm), sm, gpu.mem_clock, clocks.video.or(video(sm))]
}

fn most(gpu: &Gpu) -> ByKind {
    let (sm, clocks) = (gpu.sm_clock_max, &gpu.clocks);
    [clocks.graphics_max.or(sm), sm, gpu.mem_clock_max, clocks.video_max.or(video(sm))]
}

fn applications(gpu: &Gpu) -> ByKind {
    let [graphics, mem] = gpu.clocks.applications.map_or([None; 2], |clocks| clocks.map(Some));
    [graphics, graphics, mem, None]
}

fn clock(ctx: &DeviceContext<'_>, kind: u32, clocks: impl Fn(&Gpu) -> ByKind) -> Answer<u32> {
    let gpu = ctx.board()?;
    offered(*clocks(gpu).get(kind as usize).ok_or(INVALID_ARGUMENT)?)
}

/// A clock by `nvmlClockId_t`: current, application, default application, maximum.
fn clock_by_id(ctx: &DeviceContext<'_>, kind: u32, id: u32) -> Answer<u32> {
    match id {
        0 => clock(ctx, kind, now),
        1 | 2 => clock(ctx, kind, applications),
        3 => clock(ctx, kind, most),
        _ => Err(INVALID_ARGUMENT),
    }
}

/// Time for which a reason of [`crate::state::COUNTED_REASONS`] throttled the clocks, in ns.
pub(super) fn throttled_ns(gpu: &Gpu, reason: usize) -> u64 {
    gpu.clocks.throttled_ns[reason] + gpu.counters.throttled_ns[reason].at(Instant::now()) as u64
}

/// Throttled time of an `nvmlPerfPolicyType_t`, in ns.
pub(super) fn violation_ns(gpu: &Gpu, policy: u32) -> Answer<u64> {
    const POWER: usize = 0;
    const SYNC_BOOST: usize = 1;
    const THERMAL: [usize; 2] = [2, 3];
    const BRAKE: usize = 4;
    let all = |reasons: &[usize]| reasons.iter().map(|reason| throttled_ns(gpu, *reason)).sum();
    match policy {
        0 => Ok(all(&[POWER])),
        1 => Ok(all(&THERMAL)),
        2 => Ok(all(&[SYNC_BOOST])),
        3 => Ok(all(&[BRAKE])),
        4 | 5 => Ok(0),
        10 | 11 => Ok(all(&[POWER, SYNC_BOOST, THERMAL[0], THERMAL[1], BRAKE])),
        _ => Err(INVALID_ARGUMENT),
    }
}

/// Violation times are in ns, their reference in µs since 1970.
fn violation(ctx: &DeviceContext<'_>, policy: u32) -> Answer<nvmlViolationTime_t> {
    let time = violation_ns(ctx.board()?, policy)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(nvmlViolationTime_t { referenceTime: now.as_micros() as u64, violationTime: time })
}

getters! {
    nvmlDeviceGetClockInfo(kind: u32) -> u32 = |ctx| clock(&ctx, kind, now);
    nvmlDeviceGetMaxClockInfo(kind: u32) -> u32 = |ctx| clock(&ctx, kind, most);
    nvmlDeviceGetClock(kind: u32, id: u32) -> u32 = |ctx| clock_by_id(&ctx, kind, id);
    nvmlDeviceGetApplicationsClock(kind: u32) -> u32 = |ctx| clock(&ctx, kind, applications);
    nvmlDeviceGetDefaultApplicationsClock(kind: u32) -> u32 = |ctx| clock(&ctx, kind, applications);
    nvmlDeviceGetMaxCustomerBoostClock(kind: u32) -> u32 = |ctx| clock(&ctx, kind, most);
    nvmlDeviceGetPerformanceState() -> u32 = |ctx| offered(ctx.board()?.p_state);
    nvmlDeviceGetPowerState() -> u32 = |ctx| offered(ctx.board()?.p_state);
    nvmlDeviceGetCurrentClocksThrottleReasons() -> u64 = |ctx| offered(ctx.board()?.throttle);
    nvmlDeviceGetCurrentClocksEventReasons() -> u64 = |ctx| offered(ctx.board()?.throttle);
    nvmlDeviceGetSupportedClocksThrottleReasons() -> u64 = |ctx| Ok(ctx.board()?.clocks.reasons);
    nvmlDeviceGetSupportedClocksEventReasons() -> u64 = |ctx| Ok(ctx.board()?.clocks.reasons);
    nvmlDeviceGetViolationStatus(policy: u32) -> nvmlViolationTime_t = |ctx| violation(&ctx, policy);
}
