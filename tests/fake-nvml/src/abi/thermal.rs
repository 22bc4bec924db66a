//! Temperatures of the GPU and its memory, and their thresholds.

use super::{
    Answer, DeviceContext, INVALID_ARGUMENT,
    exports::{getters, getters_by_version},
    offered,
};
use crate::state::Gpu;
use nvml_wrapper_sys::bindings::{
    nvmlGpuThermalSettings_t, nvmlGpuThermalSettings_t__bindgen_ty_1, nvmlMarginTemperature_v1_t,
    nvmlTemperature_v1_t,
};

/// `nvmlThermalController_t` and `nvmlThermalTarget_t`: the GPU's own sensor, on the GPU.
const GPU_INTERNAL: i32 = 1;
/// The index of all sensors.
const ALL_SENSORS: u32 = 15;
/// Difference between the memory's and the GPU's temperature, in °C.
const MEM_ABOVE_GPU: u32 = 6;

/// The memory's temperature in °C.
pub(super) fn mem_temperature(gpu: &Gpu) -> Option<u32> {
    gpu.thermal.mem.or(gpu.temp.map(|temp| temp + MEM_ABOVE_GPU))
}

fn temperature(ctx: &DeviceContext<'_>, sensor: u32) -> Answer<u32> {
    if sensor == 0 { offered(ctx.board()?.temp) } else { Err(INVALID_ARGUMENT) }
}

/// Margin to the slow-down threshold in °C, on cards that report thresholds as T.Limits.
fn margin(gpu: &Gpu) -> Option<i32> {
    let [_, slowdown, ..] = gpu.thermal.tlimit?;
    Some(gpu.temp_slowdown? as i32 + slowdown - gpu.temp? as i32)
}

fn threshold(ctx: &DeviceContext<'_>, kind: u32) -> Answer<u32> {
    let gpu = ctx.board()?;
    let thermal = &gpu.thermal;
    offered(match kind {
        0 => thermal.shutdown,
        1 => gpu.temp_slowdown,
        2 => thermal.mem_max,
        3 => thermal.gpu_max,
        4..=6 => thermal.acoustic.map(|acoustic| acoustic[kind as usize - 4]),
        7 => None,
        _ => return Err(INVALID_ARGUMENT),
    })
}

fn sensors(ctx: &DeviceContext<'_>, index: u32) -> Answer<nvmlGpuThermalSettings_t> {
    if index != 0 && index != ALL_SENSORS {
        return Err(INVALID_ARGUMENT);
    }
    let gpu = ctx.board()?;
    let sensor = |current: u32| nvmlGpuThermalSettings_t__bindgen_ty_1 {
        controller: GPU_INTERNAL,
        defaultMinTemp: 0,
        defaultMaxTemp: 127,
        currentTemp: current as i32,
        target: GPU_INTERNAL,
    };
    Ok(nvmlGpuThermalSettings_t { count: 1, sensor: [sensor(offered(gpu.temp)?), sensor(0), sensor(0)] })
}

getters! {
    nvmlDeviceGetTemperature(sensor: u32) -> u32 = |ctx| temperature(&ctx, sensor);
    nvmlDeviceGetTemperatureThreshold(kind: u32) -> u32 = |ctx| threshold(&ctx, kind);
    nvmlDeviceGetThermalSettings(index: u32) -> nvmlGpuThermalSettings_t = |ctx| sensors(&ctx, index);
}

getters_by_version! {
    nvmlDeviceGetTemperatureV(nvmlTemperature_v1_t, 1) = |ctx, asked| {
        Ok(nvmlTemperature_v1_t { temperature: temperature(&ctx, asked.sensorType)? as i32, ..asked })
    };
    nvmlDeviceGetMarginTemperature(nvmlMarginTemperature_v1_t, 1) = |ctx, asked| {
        Ok(nvmlMarginTemperature_v1_t { marginTemperature: offered(margin(ctx.board()?))?, ..asked })
    };
}
