//! Calls that must exist, because clients reject a library without them, and that no GPU here supports.

use super::{Answer, NOT_SUPPORTED, on_device};
use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlReturn_t};

// They take no further arguments here: the caller of a C function owns its arguments, read or not.
macro_rules! refused {
    ($($symbol:ident)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $symbol(device: nvmlDevice_t) -> nvmlReturn_t {
            let refusal: Answer<()> = on_device(stringify!($symbol), device, |_| Err(NOT_SUPPORTED));
            refusal.err().unwrap_or(NOT_SUPPORTED)
        }
    )*};
}

refused! {
    nvmlDeviceGetDriverModel
    nvmlDeviceGetDriverModel_v2
    nvmlDeviceGetNvLinkUtilizationCounter
    nvmlDeviceGetNvLinkUtilizationControl
    nvmlDeviceGetSupportedMemoryClocks
    nvmlDeviceGetSupportedGraphicsClocks
    nvmlDeviceGetAutoBoostedClocksEnabled
    nvmlDeviceGetGpuOperationMode
    nvmlDeviceGetBridgeChipInfo
    nvmlDeviceGetHostVgpuMode
    nvmlDeviceGetConfComputeProtectedMemoryUsage
}
