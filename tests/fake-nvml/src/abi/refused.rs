//! Calls that must exist, because clients refuse a library without them, and that no card here supports.

use super::NOT_SUPPORTED;
use nvml_wrapper_sys::bindings::nvmlReturn_t;

// They take no arguments here: the caller of a C function owns its arguments, read or not.
macro_rules! refused {
    ($($symbol:ident)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $symbol() -> nvmlReturn_t {
            NOT_SUPPORTED
        }
    )*};
}

refused! {
    nvmlDeviceGetDriverModel
    nvmlDeviceGetDriverModel_v2
    nvmlDeviceGetApplicationsClock
    nvmlDeviceGetClock
    nvmlDeviceGetMaxCustomerBoostClock
    nvmlDeviceGetDetailedEccErrors
    nvmlDeviceGetMemoryErrorCounter
    nvmlDeviceGetRetiredPages
    nvmlDeviceGetRetiredPages_v2
    nvmlDeviceGetRetiredPagesPendingStatus
    nvmlDeviceGetRemappedRows
    nvmlDeviceGetSamples
    nvmlDeviceGetFieldValues
    nvmlDeviceGetViolationStatus
    nvmlDeviceGetPcieReplayCounter
    nvmlDeviceGetNvLinkState
    nvmlDeviceGetNvLinkVersion
    nvmlDeviceGetNvLinkCapability
    nvmlDeviceGetNvLinkUtilizationCounter
    nvmlDeviceGetNvLinkRemotePciInfo_v2
    nvmlDeviceGetTopologyCommonAncestor
    nvmlDeviceGetTopologyNearestGpus
    nvmlDeviceGetP2PStatus
    nvmlDeviceGetCpuAffinity
    nvmlDeviceGetMemoryAffinity
    nvmlDeviceGetGpuInstances
    nvmlDeviceGetGpuInstanceById
    nvmlDeviceGetGpuInstanceProfileInfo
    nvmlDeviceGetEncoderStats
    nvmlDeviceGetEncoderSessions
    nvmlDeviceGetFBCStats
    nvmlDeviceGetJpgUtilization
    nvmlDeviceGetOfaUtilization
    nvmlDeviceGetAccountingMode
    nvmlDeviceGetAccountingPids
    nvmlDeviceGetAccountingBufferSize
    nvmlDeviceGetAccountingStats
    nvmlDeviceGetInforomVersion
    nvmlDeviceGetGspFirmwareVersion
    nvmlDeviceGetVirtualizationMode
    nvmlDeviceGetConfComputeMemSizeInfo
    nvmlDeviceGetRunningProcessDetailList
    nvmlSystemGetConfComputeState
    nvmlGpmQueryDeviceSupport
}
