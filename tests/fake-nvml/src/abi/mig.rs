//! MIG: instances of a GPU, their ids, and the way back to it.

use super::{Answer, NOT_FOUND, Seat, exports::getters, handle};
use crate::state::Profile;
use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlDeviceAttributes_t};

/// The most instances that any card has.
const MOST: u32 = 7;

fn attributes(seat: &Seat<'_>) -> Answer<nvmlDeviceAttributes_t> {
    let mig = seat.instance()?;
    let shape = mig.shape();
    let [copy, decoders, encoders, jpeg, ofa] = shape.engines(seat.gpu);
    Ok(nvmlDeviceAttributes_t {
        multiprocessorCount: Profile::multiprocessors(seat.gpu, shape.compute_slices),
        sharedCopyEngineCount: copy,
        sharedDecoderCount: decoders,
        sharedEncoderCount: encoders,
        sharedJpegCount: jpeg,
        sharedOfaCount: ofa,
        gpuInstanceSliceCount: shape.slices,
        computeInstanceSliceCount: shape.compute_slices,
        memorySizeMB: mig.memory_mib(seat.gpu).0,
    })
}

getters! {
    nvmlDeviceGetMaxMigDeviceCount() -> u32 = |seat| {
        Ok(if seat.board()?.board.mig_capable || seat.gpu.mig_mode() { MOST } else { 0 })
    };
    nvmlDeviceGetMigDeviceHandleByIndex(position: u32) -> nvmlDevice_t = |seat| {
        let instances = &seat.board()?.mig;
        // A driver that counts instances without end has one of each number.
        let is_endless = seat.gpu.numbers.contains_key("nvmlDeviceGetMaxMigDeviceCount");
        let position = if is_endless { position as usize % instances.len().max(1) } else { position as usize };
        instances.get(position).map(|_| handle(seat.index, Some(position))).ok_or(NOT_FOUND)
    };
    nvmlDeviceGetDeviceHandleFromMigDeviceHandle() -> nvmlDevice_t = |seat| Ok(handle(seat.index, None));
    nvmlDeviceIsMigDeviceHandle() -> u32 = |seat| Ok(u32::from(seat.mig.is_some()));
    nvmlDeviceGetGpuInstanceId() -> u32 = |seat| seat.instance().map(|mig| mig.gi);
    nvmlDeviceGetComputeInstanceId() -> u32 = |seat| seat.instance().map(|mig| mig.ci);
    nvmlDeviceGetAttributes() -> nvmlDeviceAttributes_t = |seat| attributes(&seat);
    nvmlDeviceGetAttributes_v2() -> nvmlDeviceAttributes_t = |seat| attributes(&seat);
}
