//! Fans by number, in % and in rpm.

use super::{
    Answer, DeviceContext, INVALID_ARGUMENT,
    exports::{getters, getters_by_version, getters_of_each},
    offered,
};
use nvml_wrapper_sys::bindings::{nvmlCoolerInfo_v1_t, nvmlFanSpeedInfo_v1_t};

/// Minimum and maximum of a fan's speed, in %.
const RANGE: [u32; 2] = [30, 100];
/// `nvmlCoolerControl_t`: its speed can vary.
const VARIABLE: u32 = 2;
/// `nvmlCoolerTarget_t`: GPU, memory and power supply.
const WHOLE_CARD: u32 = 14;

/// The speed of a fan in %.
fn fan(ctx: &DeviceContext<'_>, fan: u32) -> Answer<u32> {
    let gpu = ctx.board()?;
    let speed = offered(gpu.fan)?;
    if fan < gpu.fan_count { Ok(speed) } else { Err(INVALID_ARGUMENT) }
}

getters! {
    nvmlDeviceGetNumFans() -> u32 = |ctx| ctx.board().map(|gpu| gpu.fan.map_or(0, |_| gpu.fan_count));
    nvmlDeviceGetFanSpeed() -> u32 = |ctx| fan(&ctx, 0);
    nvmlDeviceGetFanSpeed_v2(number: u32) -> u32 = |ctx| fan(&ctx, number);
    nvmlDeviceGetTargetFanSpeed(number: u32) -> u32 = |ctx| fan(&ctx, number);
    nvmlDeviceGetFanControlPolicy_v2(number: u32) -> u32 = |ctx| fan(&ctx, number).map(|_| 0);
}

getters_of_each! {
    nvmlDeviceGetMinMaxFanSpeed(least, most) -> u32 = |ctx| fan(&ctx, 0).map(|_| RANGE);
}

getters_by_version! {
    nvmlDeviceGetFanSpeedRPM(nvmlFanSpeedInfo_v1_t, 1) = |ctx, asked| {
        let percent = fan(&ctx, asked.fan)?;
        Ok(nvmlFanSpeedInfo_v1_t { speed: percent * ctx.gpu.fan_rpm_most / 100, ..asked })
    };
    nvmlDeviceGetCoolerInfo(nvmlCoolerInfo_v1_t, 1) = |ctx, asked| {
        fan(&ctx, asked.index)?;
        Ok(nvmlCoolerInfo_v1_t { signalType: VARIABLE, target: WHOLE_CARD, ..asked })
    };
}
