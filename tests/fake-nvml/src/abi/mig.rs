//! MIG: instances of a GPU, their ids, and the way back to it.

use super::{NOT_FOUND, NOT_SUPPORTED, getters, handle};
use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlDeviceAttributes_t};

/// The most instances that any card has.
const MOST: u32 = 7;

getters! {
    nvmlDeviceGetMaxMigDeviceCount() -> u32 = |seat| Ok(if seat.gpu.mig.is_empty() { 0 } else { MOST });
    nvmlDeviceGetMigDeviceHandleByIndex(position: u32) -> nvmlDevice_t = |seat| {
        let position = position as usize;
        seat.gpu.mig.get(position).map(|_| handle(seat.index, Some(position))).ok_or(NOT_FOUND)
    };
    nvmlDeviceGetDeviceHandleFromMigDeviceHandle() -> nvmlDevice_t = |seat| Ok(handle(seat.index, None));
    nvmlDeviceIsMigDeviceHandle() -> u32 = |seat| Ok(u32::from(seat.mig.is_some()));
    nvmlDeviceGetGpuInstanceId() -> u32 = |seat| seat.mig.map(|(_, mig)| mig.gi).ok_or(NOT_SUPPORTED);
    nvmlDeviceGetComputeInstanceId() -> u32 = |seat| seat.mig.map(|(_, mig)| mig.ci).ok_or(NOT_SUPPORTED);
    nvmlDeviceGetAttributes_v2() -> nvmlDeviceAttributes_t = |seat| {
        let (_, mig) = seat.mig.ok_or(NOT_SUPPORTED)?;
        Ok(nvmlDeviceAttributes_t {
            multiprocessorCount: 14,
            sharedCopyEngineCount: 1,
            sharedDecoderCount: 0,
            sharedEncoderCount: 0,
            sharedJpegCount: 0,
            sharedOfaCount: 0,
            gpuInstanceSliceCount: 1,
            computeInstanceSliceCount: 1,
            memorySizeMB: mig.mem_total_mib,
        })
    };
}
