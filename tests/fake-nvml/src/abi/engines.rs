//! Utilisation of the engines, and encoder sessions.

use super::{
    Answer, DeviceContext,
    exports::{getters, getters_of_each, getters_of_list},
    offered, on_device,
};
use crate::state::{Engines, Session};
use nvml_wrapper_sys::bindings::{
    nvmlDevice_t, nvmlEncoderSessionInfo_t, nvmlFBCSessionInfo_t, nvmlFBCStats_t,
    nvmlGpuDynamicPstatesInfo_st__bindgen_ty_1, nvmlGpuDynamicPstatesInfo_t, nvmlReturn_t, nvmlUtilization_t,
};

/// Averaging period of the engines' utilisation, in µs.
const PERIOD_US: u32 = 167_000;

fn load(ctx: &DeviceContext<'_>, of: impl Fn(&Engines) -> Option<u32>) -> Answer<[u32; 2]> {
    Ok([offered(of(&ctx.physical_gpu()?.engines))?, PERIOD_US])
}

/// Number, mean frames per second and mean latency of the encoder's sessions.
fn encoding(ctx: &DeviceContext<'_>) -> Answer<[u32; 3]> {
    let engines = &ctx.physical_gpu()?.engines;
    offered(engines.encoder)?;
    let count = engines.sessions.len() as u32;
    let mean = |of: fn(&Session) -> u32| engines.sessions.iter().map(of).sum::<u32>() / count.max(1);
    Ok([count, mean(|session| session.fps), mean(|session| session.latency_us)])
}

fn sessions(ctx: &DeviceContext<'_>) -> Answer<Vec<nvmlEncoderSessionInfo_t>> {
    let engines = &ctx.physical_gpu()?.engines;
    offered(engines.encoder)?;
    let info = |(id, session): (usize, &Session)| nvmlEncoderSessionInfo_t {
        sessionId: id as u32 + 1,
        pid: session.pid,
        vgpuInstance: 0,
        codecType: 0,
        hResolution: session.size[0],
        vResolution: session.size[1],
        averageFps: session.fps,
        averageLatency: session.latency_us,
    };
    Ok(engines.sessions.iter().enumerate().map(info).collect())
}

/// Utilisation of GPU, memory, video and bus, as it determines the performance state.
fn dynamic_pstates(ctx: &DeviceContext<'_>) -> Answer<nvmlGpuDynamicPstatesInfo_t> {
    let gpu = ctx.physical_gpu()?;
    let domain = |percent: Option<u32>| nvmlGpuDynamicPstatesInfo_st__bindgen_ty_1 {
        bIsPresent: percent.is_some().into(),
        percentage: percent.unwrap_or(0),
        incThreshold: 0,
        decThreshold: 0,
    };
    let none = domain(None);
    let [core, memory, video] = [gpu.util, gpu.mem_util, gpu.engines.decoder].map(domain);
    let utilization = [core, memory, video, domain(Some(0)), none, none, none, none];
    Ok(nvmlGpuDynamicPstatesInfo_t { flags: 0, utilization })
}

getters! {
    nvmlDeviceGetUtilizationRates() -> nvmlUtilization_t = |ctx| {
        let gpu = ctx.physical_gpu()?;
        Ok(nvmlUtilization_t { gpu: offered(gpu.util)?, memory: gpu.mem_util.unwrap_or(0) })
    };
    nvmlDeviceGetDynamicPstatesInfo() -> nvmlGpuDynamicPstatesInfo_t = |ctx| dynamic_pstates(&ctx);
    nvmlDeviceGetEncoderCapacity(_codec: u32) -> u32 = |ctx| {
        offered(ctx.physical_gpu()?.engines.encoder).map(|busy| 100_u32.saturating_sub(busy))
    };
    nvmlDeviceGetFBCStats() -> nvmlFBCStats_t = |ctx| {
        ctx.physical_gpu()?;
        Ok(nvmlFBCStats_t { sessionsCount: 0, averageFPS: 0, averageLatency: 0 })
    };
}

getters_of_each! {
    nvmlDeviceGetEncoderUtilization(percent, period) -> u32 = |ctx| load(&ctx, |engines| engines.encoder);
    nvmlDeviceGetDecoderUtilization(percent, period) -> u32 = |ctx| load(&ctx, |engines| engines.decoder);
    nvmlDeviceGetJpgUtilization(percent, period) -> u32 = |ctx| load(&ctx, |engines| engines.jpeg);
    nvmlDeviceGetOfaUtilization(percent, period) -> u32 = |ctx| load(&ctx, |engines| engines.ofa);
    nvmlDeviceGetEncoderStats(count, fps, latency) -> u32 = |ctx| encoding(&ctx);
}

getters_of_list! {
    nvmlDeviceGetFBCSessions() -> nvmlFBCSessionInfo_t = |ctx| ctx.physical_gpu().map(|_| Vec::new());
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetEncoderSessions(
    device: nvmlDevice_t,
    count: *mut u32,
    infos: *mut nvmlEncoderSessionInfo_t,
) -> nvmlReturn_t {
    let answer = on_device("nvmlDeviceGetEncoderSessions", device, |ctx| sessions(&ctx));
    // Other lists return an error if the buffer is too small; this one returns its length for a count
    // of zero. SAFETY: by NVML's contract `count` is null or valid.
    if let (Ok(list), false) = (&answer, count.is_null())
        && unsafe { *count } == 0
    {
        // SAFETY: not null, as above.
        unsafe { *count = list.len() as u32 };
        return super::SUCCESS;
    }
    // SAFETY: by NVML's contract the buffer has as many elements as `count` says.
    unsafe { super::put::put_list(count, infos, answer) }
}
