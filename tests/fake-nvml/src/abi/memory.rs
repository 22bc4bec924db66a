//! Memory: of the card, of an instance, and the window that the CPU sees it through.

use super::{
    Answer, INVALID_ARGUMENT, Seat,
    exports::getters,
    offered, on_device,
    put::{begins_with, put, version},
};
use nvml_wrapper_sys::bindings::{
    nvmlBAR1Memory_t, nvmlConfComputeMemSizeInfo_t, nvmlDevice_t, nvmlMemory_t, nvmlMemory_v2_t, nvmlReturn_t,
};

const MIB: u64 = 1 << 20;

/// Total, reserved and used bytes; used is without what is reserved, as in version 2.
fn memory(seat: &Seat<'_>) -> Answer<(u64, u64, u64)> {
    let total = offered(seat.gpu.mem_total_mib)?;
    if let Some((_, mig)) = seat.mig {
        let (total, used) = mig.memory_mib(seat.gpu);
        return Ok((total * MIB, 0, used * MIB));
    }
    let used = seat.gpu.mem_used_mib.unwrap_or(0);
    Ok((total * MIB, seat.gpu.mem_reserved_mib * MIB, used * MIB))
}

/// Version 1 counts what is reserved as used.
fn memory_v1(seat: &Seat<'_>) -> Answer<nvmlMemory_t> {
    let (total, reserved, used) = memory(seat)?;
    let used = used + reserved;
    Ok(nvmlMemory_t { total, free: total.saturating_sub(used), used })
}

fn memory_v2(seat: &Seat<'_>) -> Answer<nvmlMemory_v2_t> {
    let (total, reserved, used) = memory(seat)?;
    let free = total.saturating_sub(used + reserved);
    Ok(nvmlMemory_v2_t { version: version::<nvmlMemory_v2_t>(2), total, reserved, free, used })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMemoryInfo_v2(
    device: nvmlDevice_t,
    out: *mut nvmlMemory_v2_t,
) -> nvmlReturn_t {
    let answer = on_device("nvmlDeviceGetMemoryInfo_v2", device, |seat| {
        // This call is older than the code for a wrong version.
        // SAFETY: by NVML's contract a struct that is not null begins with its version.
        unsafe { begins_with(version::<nvmlMemory_v2_t>(2), out) }.map_err(|_| INVALID_ARGUMENT)?;
        memory_v2(&seat)
    });
    // SAFETY: by NVML's contract the last argument is null or points to the result.
    unsafe { put(out, answer) }
}

/// The window on the card's memory; an instance has its eighths of it.
fn bar1(seat: &Seat<'_>) -> Answer<nvmlBAR1Memory_t> {
    let [mut total, mut used] = offered(seat.gpu.pcie.bar1_mib)?;
    if let Some((_, mig)) = seat.mig {
        (total, used) = (total / 8 * mig.shape().memory_slices(seat.gpu), 0);
    }
    let free = total.saturating_sub(used);
    Ok(nvmlBAR1Memory_t { bar1Total: total * MIB, bar1Free: free * MIB, bar1Used: used * MIB })
}

getters! {
    nvmlDeviceGetMemoryInfo() -> nvmlMemory_t = |seat| memory_v1(&seat);
    nvmlDeviceGetBAR1MemoryInfo() -> nvmlBAR1Memory_t = |seat| bar1(&seat);
    nvmlDeviceGetMemoryBusWidth() -> u32 = |seat| offered(seat.board()?.mem_bus_bits);
    nvmlDeviceGetConfComputeMemSizeInfo() -> nvmlConfComputeMemSizeInfo_t = |seat| {
        let protected = offered(seat.board()?.mem_protected_mib)? * 1_024;
        let total = offered(seat.gpu.mem_total_mib)? * 1_024;
        Ok(nvmlConfComputeMemSizeInfo_t {
            protectedMemSizeKib: protected,
            unprotectedMemSizeKib: total.saturating_sub(protected),
        })
    };
}
