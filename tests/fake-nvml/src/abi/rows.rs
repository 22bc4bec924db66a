//! Memory that a GPU has taken out of use: pages on older GPUs, rows on newer ones.

use super::{
    Answer, DeviceContext, INVALID_ARGUMENT, NOT_SUPPORTED,
    exports::{getters, getters_of_each, getters_of_list},
    on_device,
    put::put_list,
};
use crate::state::{Gpu, Remapped, Retired};
use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlReturn_t, nvmlRowRemapperHistogramValues_t};

/// Time of every page retirement, in s since 1970: NVML requires one, which no client compares.
const RETIRED_AT: u64 = 1_700_000_000;

/// A GPU's retired pages.
pub(super) fn retired(gpu: &Gpu) -> Answer<&Retired> {
    gpu.retired.as_ref().ok_or(NOT_SUPPORTED)
}

/// A GPU's remapped rows; unsupported while it has instances.
pub(super) fn remapped(gpu: &Gpu) -> Answer<&Remapped> {
    if gpu.mig.is_empty() { gpu.remapped.as_ref().ok_or(NOT_SUPPORTED) } else { Err(NOT_SUPPORTED) }
}

/// Addresses, by cause: 0 several single-bit errors, 1 a double-bit error.
fn pages(ctx: &DeviceContext<'_>, cause: u32) -> Answer<Vec<u64>> {
    let retired = retired(ctx.board()?)?;
    match cause {
        0 => Ok(retired.single_bit.clone()),
        1 => Ok(retired.double_bit.clone()),
        _ => Err(INVALID_ARGUMENT),
    }
}

getters_of_list! {
    nvmlDeviceGetRetiredPages(cause: u32) -> u64 = |ctx| pages(&ctx, cause);
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetRetiredPages_v2(
    device: nvmlDevice_t,
    cause: u32,
    count: *mut u32,
    addresses: *mut u64,
    times: *mut u64,
) -> nvmlReturn_t {
    let answer = on_device("nvmlDeviceGetRetiredPages_v2", device, |ctx| pages(&ctx, cause));
    let stamps = answer.as_ref().map(|pages| vec![RETIRED_AT; pages.len()]).map_err(|code| *code);
    // SAFETY: by NVML's contract both lists have as many elements as `count` says.
    match unsafe { put_list(count, addresses, answer) } {
        // SAFETY: as above.
        super::SUCCESS if !times.is_null() => unsafe { put_list(count, times, stamps) },
        code => code,
    }
}

getters! {
    nvmlDeviceGetRetiredPagesPendingStatus() -> u32 =
        |ctx| Ok(retired(ctx.board()?)?.pending.contains(&true).into());
    nvmlDeviceGetRowRemapperHistogram() -> nvmlRowRemapperHistogramValues_t = |ctx| {
        let [max, high, partial, low, none] = remapped(ctx.board()?)?.histogram;
        Ok(nvmlRowRemapperHistogramValues_t { max, high, partial, low, none })
    };
}

getters_of_each! {
    nvmlDeviceGetRemappedRows(corrected, uncorrected, pending, failed) -> u32 = |ctx| {
        let rows = remapped(ctx.board()?)?;
        Ok([rows.corrected, rows.uncorrected, rows.pending.into(), rows.failed.into()])
    };
}
