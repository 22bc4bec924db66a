//! MIG: instances of a GPU, their ids, and their parent.

use super::{Answer, DeviceContext, NOT_FOUND, exports::getters, handle};
use crate::state::{Mig, Profile};
use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlDeviceAttributes_t};

/// Maximum number of instances of any GPU.
const MAX_INSTANCES: u32 = 7;

fn attributes(ctx: &DeviceContext<'_>) -> Answer<nvmlDeviceAttributes_t> {
    let mig = ctx.instance()?;
    let shape = mig.shape();
    let [copy, decoders, encoders, jpeg, ofa] = shape.engines(ctx.gpu);
    Ok(nvmlDeviceAttributes_t {
        multiprocessorCount: Profile::multiprocessors(ctx.gpu, shape.compute_slices),
        sharedCopyEngineCount: copy,
        sharedDecoderCount: decoders,
        sharedEncoderCount: encoders,
        sharedJpegCount: jpeg,
        sharedOfaCount: ofa,
        gpuInstanceSliceCount: shape.slices,
        computeInstanceSliceCount: shape.compute_slices,
        memorySizeMB: mig.memory_mib(ctx.gpu).0,
    })
}

getters! {
    nvmlDeviceGetMaxMigDeviceCount() -> u32 = |ctx| {
        Ok(if ctx.board()?.board.mig_capable || ctx.gpu.mig_mode() { MAX_INSTANCES } else { 0 })
    };
    nvmlDeviceGetMigDeviceHandleByIndex(position: u32) -> nvmlDevice_t = |ctx| {
        let instances = &ctx.board()?.mig;
        // A driver that reports a huge count has an instance for each number.
        let is_endless = ctx.gpu.numbers.contains_key("nvmlDeviceGetMaxMigDeviceCount");
        let position = if is_endless { position % instances.len().max(1) as u32 } else { position };
        let is_there = |(at, mig): &(usize, &Mig)| mig.position.unwrap_or(*at as u32) == position;
        let found = instances.iter().enumerate().find(is_there);
        found.map(|(at, _)| handle(ctx.index, Some(at))).ok_or(NOT_FOUND)
    };
    nvmlDeviceGetDeviceHandleFromMigDeviceHandle() -> nvmlDevice_t = |ctx| Ok(handle(ctx.index, None));
    nvmlDeviceIsMigDeviceHandle() -> u32 = |ctx| Ok(u32::from(ctx.mig.is_some()));
    nvmlDeviceGetGpuInstanceId() -> u32 = |ctx| ctx.instance().map(|mig| mig.gi);
    nvmlDeviceGetComputeInstanceId() -> u32 = |ctx| ctx.instance().map(|mig| mig.ci);
    nvmlDeviceGetAttributes() -> nvmlDeviceAttributes_t = |ctx| attributes(&ctx);
    nvmlDeviceGetAttributes_v2() -> nvmlDeviceAttributes_t = |ctx| attributes(&ctx);
}
