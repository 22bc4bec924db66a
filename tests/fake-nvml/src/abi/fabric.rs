//! The NVLink fabric behind a switch, which a manager on the node configures.

use super::{Answer, DeviceContext, NOT_SUPPORTED, SUCCESS, exports::getters, on_device, put};
use crate::state::{NvLink, Remote};
use nvml_wrapper_sys::bindings::{
    nvmlDevice_t, nvmlGpuFabricInfo_t, nvmlGpuFabricInfo_v2_t, nvmlGpuFabricInfo_v3_t, nvmlReturn_t,
};

/// `NVML_GPU_FABRIC_STATE_COMPLETED`.
const COMPLETED: u8 = 3;
/// Every part of `NVML_GPU_FABRIC_HEALTH_MASK_*` reports no fault (2), the last "none" (1).
const HEALTHY_MASK: u32 = 2 | 2 << 2 | 2 << 4 | 2 << 6 | 1 << 8;
/// `NVML_GPU_FABRIC_HEALTH_SUMMARY_HEALTHY`.
const HEALTHY: u8 = 1;

/// Refuses a GPU that is not part of a fabric: before Hopper, without a switch, without an active link.
fn in_fabric(ctx: &DeviceContext<'_>) -> Answer<()> {
    let gpu = ctx.board()?;
    let switched = |nvlink: &NvLink| nvlink.remote == Remote::Switch && nvlink.active() > 0;
    let part = gpu.board.architecture >= 9 && gpu.nvlink.as_ref().is_some_and(switched);
    if part { Ok(()) } else { Err(NOT_SUPPORTED) }
}

getters! {
    nvmlDeviceGetGpuFabricInfo() -> nvmlGpuFabricInfo_t = |ctx| {
        in_fabric(&ctx)?;
        Ok(nvmlGpuFabricInfo_t { clusterUuid: [0; 16], status: SUCCESS, cliqueId: 0, state: COMPLETED })
    };
}

/// One call handles both versions of the struct; the shorter is a prefix of the longer.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetGpuFabricInfoV(
    device: nvmlDevice_t,
    out: *mut nvmlGpuFabricInfo_v3_t,
) -> nvmlReturn_t {
    let shorter = put::version::<nvmlGpuFabricInfo_v2_t>(2);
    let longer = put::version::<nvmlGpuFabricInfo_v3_t>(3);
    let mut long = false;
    let answer = on_device("nvmlDeviceGetGpuFabricInfoV", device, |ctx| {
        // SAFETY: by NVML's contract a struct that is not null begins with its version.
        long = unsafe { put::begins_with(longer, out) }.is_ok();
        if !long {
            // SAFETY: as above.
            unsafe { put::begins_with(shorter, out) }?;
        }
        in_fabric(&ctx)?;
        Ok(nvmlGpuFabricInfo_v2_t {
            version: if long { longer } else { shorter },
            clusterUuid: [0; 16],
            status: SUCCESS,
            cliqueId: 0,
            state: COMPLETED,
            healthMask: HEALTHY_MASK,
        })
    });
    // SAFETY: both versions have room for the shorter one.
    let code = unsafe { put::put(out.cast::<nvmlGpuFabricInfo_v2_t>(), answer) };
    if code == SUCCESS && long {
        // SAFETY: as the version says, it is the longer one.
        unsafe { (*out).healthSummary = HEALTHY };
    }
    code
}
