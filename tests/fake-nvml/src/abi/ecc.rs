//! ECC: mode, and error counts by location.

use super::{
    Answer, DeviceContext, INVALID_ARGUMENT, NOT_SUPPORTED,
    exports::{getters, getters_by_version, getters_of_each},
    offered,
};
use crate::state::Gpu;
use nvml_wrapper_sys::bindings::{nvmlEccErrorCounts_t, nvmlEccSramErrorStatus_v1_t};

/// `nvmlMemoryLocation_t`.
const DRAM: u32 = 2;
const SRAM: u32 = 7;
const LOCATIONS: u32 = 8;

/// Whether ECC is enabled now, and after a reset.
pub(super) fn mode(gpu: &Gpu) -> Answer<[u32; 2]> {
    let current = offered(gpu.ecc.mode.or(gpu.ecc_corrected.map(|_| true)))?;
    let pending = gpu.ecc.pending.or(Some(current)).unwrap_or(current);
    Ok([current, pending].map(u32::from))
}

/// Errors of a kind (0 corrected, 1 uncorrected) over a time (0 volatile, 1 aggregate).
pub(super) fn total(gpu: &Gpu, kind: u32, time: u32) -> Answer<u64> {
    let volatile = match kind {
        0 => gpu.ecc_corrected,
        1 => gpu.ecc_uncorrected,
        _ => return Err(INVALID_ARGUMENT),
    };
    let aggregate = if kind == 0 { &gpu.ecc.aggregate_corrected } else { &gpu.ecc.aggregate_uncorrected };
    match time {
        0 => offered(volatile),
        1 => offered(aggregate.or(volatile)),
        _ => Err(INVALID_ARGUMENT),
    }
}

/// The errors in SRAM.
fn in_sram(gpu: &Gpu, kind: u32, time: u32) -> u64 {
    let at = time as usize & 1;
    let ecc = &gpu.ecc;
    if kind == 0 { ecc.sram_corrected[at] } else { ecc.sram_parity[at] + ecc.sram_secded[at] }
}

/// Errors of one location. GPUs from Ampere on distinguish DRAM and SRAM, older ones the units of the chip.
pub(super) fn at_location(gpu: &Gpu, kind: u32, time: u32, location: u32) -> Answer<u64> {
    let total = total(gpu, kind, time)?;
    let sram = in_sram(gpu, kind, time);
    match location {
        DRAM => Ok(total.saturating_sub(sram)),
        SRAM => Ok(sram),
        _ if location >= LOCATIONS => Err(INVALID_ARGUMENT),
        _ if gpu.board.architecture >= 7 => Err(NOT_SUPPORTED),
        _ => Ok(0),
    }
}

getters_of_each! {
    nvmlDeviceGetEccMode(current, pending) -> u32 = |ctx| mode(ctx.gpu);
}

getters! {
    nvmlDeviceGetDefaultEccMode() -> u32 = |ctx| mode(ctx.board()?).map(|_| 1);
    nvmlDeviceGetTotalEccErrors(kind: u32, time: u32) -> u64 = |ctx| total(ctx.gpu, kind, time);
    nvmlDeviceGetMemoryErrorCounter(kind: u32, time: u32, location: u32) -> u64 =
        |ctx| at_location(ctx.gpu, kind, time, location);
    nvmlDeviceGetDetailedEccErrors(kind: u32, time: u32) -> nvmlEccErrorCounts_t = |ctx| {
        let memory = at_location(ctx.gpu, kind, time, DRAM)?;
        Ok(nvmlEccErrorCounts_t { l1Cache: 0, l2Cache: 0, deviceMemory: memory, registerFile: 0 })
    };
}

fn sram(ctx: &DeviceContext<'_>, asked: nvmlEccSramErrorStatus_v1_t) -> Answer<nvmlEccSramErrorStatus_v1_t> {
    let gpu = ctx.board()?;
    gpu.remapped.as_ref().ok_or(NOT_SUPPORTED)?;
    mode(gpu)?;
    let ecc = &gpu.ecc;
    let [l2, sm, pcie, mcu, other] = ecc.sram_buckets;
    Ok(nvmlEccSramErrorStatus_v1_t {
        aggregateUncParity: ecc.sram_parity[1],
        aggregateUncSecDed: ecc.sram_secded[1],
        aggregateCor: ecc.sram_corrected[1],
        volatileUncParity: ecc.sram_parity[0],
        volatileUncSecDed: ecc.sram_secded[0],
        volatileCor: ecc.sram_corrected[0],
        aggregateUncBucketL2: l2,
        aggregateUncBucketSm: sm,
        aggregateUncBucketPcie: pcie,
        aggregateUncBucketMcu: mcu,
        aggregateUncBucketOther: other,
        bThresholdExceeded: ecc.sram_threshold_exceeded.into(),
        ..asked
    })
}

getters_by_version! {
    nvmlDeviceGetSramEccErrorStatus(nvmlEccSramErrorStatus_v1_t, 1) = |ctx, asked| sram(&ctx, asked);
}
