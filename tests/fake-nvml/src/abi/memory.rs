//! Memory of the GPU and of an instance, and BAR1.

use super::{
    Answer, DeviceContext, INVALID_ARGUMENT,
    exports::getters,
    offered, on_device,
    put::{begins_with, put, version},
};
use nvml_wrapper_sys::bindings::{
    nvmlBAR1Memory_t, nvmlConfComputeMemSizeInfo_t, nvmlDevice_t, nvmlMemory_t, nvmlMemory_v2_t, nvmlReturn_t,
};

const MIB: u64 = 1 << 20;

/// Total, reserved and used bytes; used excludes reserved, as in version 2.
fn memory(ctx: &DeviceContext<'_>) -> Answer<(u64, u64, u64)> {
    let total = offered(ctx.gpu.mem_total_mib)?;
    if let Some((_, mig)) = ctx.mig {
        let (total, used) = mig.memory_mib(ctx.gpu);
        return Ok((total * MIB, 0, used * MIB));
    }
    let used = ctx.gpu.mem_used_mib.unwrap_or(0);
    Ok((total * MIB, ctx.gpu.mem_reserved_mib * MIB, used * MIB))
}

/// Version 1 counts reserved memory as used.
fn memory_v1(ctx: &DeviceContext<'_>) -> Answer<nvmlMemory_t> {
    let (total, reserved, used) = memory(ctx)?;
    let used = used + reserved;
    Ok(nvmlMemory_t { total, free: total.saturating_sub(used), used })
}

fn memory_v2(ctx: &DeviceContext<'_>) -> Answer<nvmlMemory_v2_t> {
    let (total, reserved, used) = memory(ctx)?;
    let free = total.saturating_sub(used + reserved);
    Ok(nvmlMemory_v2_t { version: version::<nvmlMemory_v2_t>(2), total, reserved, free, used })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMemoryInfo_v2(
    device: nvmlDevice_t,
    out: *mut nvmlMemory_v2_t,
) -> nvmlReturn_t {
    let answer = on_device("nvmlDeviceGetMemoryInfo_v2", device, |ctx| {
        // This call is older than the error code for a wrong version.
        // SAFETY: by NVML's contract a struct that is not null begins with its version.
        unsafe { begins_with(version::<nvmlMemory_v2_t>(2), out) }.map_err(|_| INVALID_ARGUMENT)?;
        memory_v2(&ctx)
    });
    // SAFETY: by NVML's contract the last argument is null or points to the result.
    unsafe { put(out, answer) }
}

/// BAR1; an instance has a proportional part.
fn bar1(ctx: &DeviceContext<'_>) -> Answer<nvmlBAR1Memory_t> {
    let [mut total, mut used] = offered(ctx.gpu.pcie.bar1_mib)?;
    if let Some((_, mig)) = ctx.mig {
        (total, used) = (total / 8 * mig.shape().memory_slices(ctx.gpu), 0);
    }
    let free = total.saturating_sub(used);
    Ok(nvmlBAR1Memory_t { bar1Total: total * MIB, bar1Free: free * MIB, bar1Used: used * MIB })
}

getters! {
    nvmlDeviceGetMemoryInfo() -> nvmlMemory_t = |ctx| memory_v1(&ctx);
    nvmlDeviceGetBAR1MemoryInfo() -> nvmlBAR1Memory_t = |ctx| bar1(&ctx);
    nvmlDeviceGetMemoryBusWidth() -> u32 = |ctx| offered(ctx.board()?.mem_bus_bits);
    nvmlDeviceGetConfComputeMemSizeInfo() -> nvmlConfComputeMemSizeInfo_t = |ctx| {
        let protected = offered(ctx.board()?.mem_protected_mib)? * 1_024;
        let total = offered(ctx.gpu.mem_total_mib)? * 1_024;
        Ok(nvmlConfComputeMemSizeInfo_t {
            protectedMemSizeKib: protected,
            unprotectedMemSizeKib: total.saturating_sub(protected),
        })
    };
}
