//! Modes of a device, and who may change them.

use super::{
    NOT_SUPPORTED,
    exports::{getters, getters_by_version, getters_of_each},
    offered,
};
use nvml_wrapper_sys::bindings::{
    nvmlC2cModeInfo_v1_t, nvmlDeviceAddressingMode_v1_t, nvmlRepairStatus_v1_t,
};

/// `nvmlDeviceAddressingModeType_t`: the GPU shares the CPU's page tables.
const ADDRESSING_ATS: u32 = 2;

/// `nvmlGpuVirtualizationMode_t`: the host of vGPUs.
const HOST_VGPU: u32 = 3;

getters! {
    nvmlDeviceGetComputeMode() -> u32 = |ctx| Ok(ctx.gpu.board.compute_mode);
    nvmlDeviceGetPersistenceMode() -> u32 = |ctx| offered(ctx.gpu.board.persistence).map(u32::from);
    nvmlDeviceGetDisplayMode() -> u32 = |ctx| Ok(ctx.gpu.board.display_connected.into());
    nvmlDeviceGetDisplayActive() -> u32 = |ctx| Ok(ctx.gpu.board.display_active.into());
    nvmlDeviceGetVirtualizationMode() -> u32 = |ctx| {
        let gpu = ctx.board()?;
        Ok(if gpu.vgpus.is_empty() { gpu.board.virtualization } else { HOST_VGPU })
    };
    nvmlDeviceGetC2cModeInfoV() -> nvmlC2cModeInfo_v1_t =
        |ctx| Ok(nvmlC2cModeInfo_v1_t { isC2cEnabled: u32::from(ctx.board()?.board.c2c[0] > 0) });
}

getters_of_each! {
    nvmlDeviceGetMigMode(current, pending) -> u32 = |ctx| {
        let gpu = ctx.board()?;
        let current = gpu.mig_mode();
        let pending = gpu.board.mig_pending.or(Some(current)).unwrap_or(current);
        if gpu.board.mig_capable || current { Ok([current, pending].map(u32::from)) } else { Err(NOT_SUPPORTED) }
    };
}

getters_by_version! {
    nvmlDeviceGetAddressingMode(nvmlDeviceAddressingMode_v1_t, 1) = |ctx, asked| {
        let value = if ctx.board()?.board.c2c[0] > 0 { ADDRESSING_ATS } else { 0 };
        Ok(nvmlDeviceAddressingMode_v1_t { value, ..asked })
    };
    nvmlDeviceGetRepairStatus(nvmlRepairStatus_v1_t, 1) = |ctx, asked| {
        ctx.board()?.remapped.as_ref().ok_or(NOT_SUPPORTED)?;
        Ok(nvmlRepairStatus_v1_t { bChannelRepairPending: 0, bTpcRepairPending: 0, ..asked })
    };
}
