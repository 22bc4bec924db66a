//! The driver that introduced each symbol, so that an older one can lack it.
//!
//! From the headers of CUDA 11.7 to 13.0 and from NVIDIA's Python bindings of drivers 418 to 510.

/// The first driver with these symbols. Symbols that are not listed are older than all of them.
const SINCE: [((u32, u32), &[&str]); 17] = [
    (
        (450, 36),
        &[
            "nvmlDeviceGetArchitecture",
            "nvmlDeviceGetAttributes",
            "nvmlDeviceGetAttributes_v2",
            "nvmlDeviceGetComputeInstanceId",
            "nvmlDeviceGetCpuAffinityWithinScope",
            "nvmlDeviceGetDeviceHandleFromMigDeviceHandle",
            "nvmlDeviceGetGpuInstanceById",
            "nvmlDeviceGetGpuInstanceId",
            "nvmlDeviceGetGpuInstanceProfileInfo",
            "nvmlDeviceGetGpuInstances",
            "nvmlDeviceGetHostVgpuMode",
            "nvmlDeviceGetMaxMigDeviceCount",
            "nvmlDeviceGetMemoryAffinity",
            "nvmlDeviceGetMigDeviceHandleByIndex",
            "nvmlDeviceGetMigMode",
            "nvmlDeviceGetRemappedRows",
            "nvmlDeviceGetRowRemapperHistogram",
            "nvmlDeviceIsMigDeviceHandle",
            "nvmlEventSetWait_v2",
            "nvmlGpuInstanceGetComputeInstances",
            "nvmlGpuInstanceGetInfo",
        ],
    ),
    (
        (450, 102),
        &[
            "nvmlComputeInstanceGetInfo_v2",
            "nvmlDeviceGetComputeRunningProcesses_v2",
            "nvmlDeviceGetGraphicsRunningProcesses_v2",
        ],
    ),
    (
        (470, 0),
        &[
            "nvmlDeviceGetMPSComputeRunningProcesses",
            "nvmlDeviceGetMPSComputeRunningProcesses_v2",
            "nvmlDeviceGetNvLinkRemoteDeviceType",
            "nvmlGetExcludedDeviceCount",
        ],
    ),
    ((495, 0), &["nvmlDeviceGetBusType", "nvmlDeviceGetGridLicensableFeatures_v4", "nvmlDeviceGetIrqNum"]),
    (
        (510, 0),
        &[
            "nvmlDeviceGetComputeRunningProcesses_v3",
            "nvmlDeviceGetGpuInstanceProfileInfoV",
            "nvmlDeviceGetGraphicsRunningProcesses_v3",
            "nvmlDeviceGetGspFirmwareMode",
            "nvmlDeviceGetGspFirmwareVersion",
            "nvmlDeviceGetMPSComputeRunningProcesses_v3",
            "nvmlDeviceGetMemoryBusWidth",
            "nvmlDeviceGetMemoryInfo_v2",
            "nvmlDeviceGetNumFans",
            "nvmlDeviceGetNumGpuCores",
            "nvmlDeviceGetPcieLinkMaxSpeed",
            "nvmlDeviceGetPowerSource",
        ],
    ),
    (
        (515, 0),
        &[
            "nvmlDeviceGetDefaultEccMode",
            "nvmlDeviceGetDynamicPstatesInfo",
            "nvmlDeviceGetMinMaxFanSpeed",
            "nvmlDeviceGetPcieSpeed",
            "nvmlDeviceGetThermalSettings",
        ],
    ),
    (
        (520, 0),
        &[
            "nvmlDeviceGetTargetFanSpeed",
            "nvmlGpmMetricsGet",
            "nvmlGpmQueryDeviceSupport",
            "nvmlGpmSampleAlloc",
            "nvmlGpmSampleFree",
            "nvmlGpmSampleGet",
        ],
    ),
    (
        (525, 0),
        &[
            "nvmlDeviceClearFieldValues",
            "nvmlDeviceGetFanControlPolicy_v2",
            "nvmlDeviceGetGpuFabricInfo",
            "nvmlDeviceGetGpuMaxPcieLinkGeneration",
            "nvmlGpmMigSampleGet",
        ],
    ),
    (
        (535, 43),
        &[
            "nvmlDeviceGetConfComputeMemSizeInfo",
            "nvmlDeviceGetConfComputeProtectedMemoryUsage",
            "nvmlDeviceGetCurrentClocksEventReasons",
            "nvmlDeviceGetJpgUtilization",
            "nvmlDeviceGetModuleId",
            "nvmlDeviceGetOfaUtilization",
            "nvmlDeviceGetSupportedClocksEventReasons",
            "nvmlGpmQueryIfStreamingEnabled",
            "nvmlGpmSetStreamingEnabled",
            "nvmlSystemGetConfComputeGpusReadyState",
            "nvmlSystemGetConfComputeState",
        ],
    ),
    ((535, 98), &["nvmlDeviceGetRunningProcessDetailList"]),
    ((545, 0), &["nvmlDeviceGetC2cModeInfoV"]),
    (
        (550, 0),
        &[
            "nvmlDeviceGetGpuFabricInfoV",
            "nvmlDeviceGetNumaNodeId",
            "nvmlDeviceGetPciInfoExt",
            "nvmlDeviceGetProcessesUtilizationInfo",
            "nvmlDeviceGetSramEccErrorStatus",
            "nvmlSystemGetConfComputeSettings",
        ],
    ),
    ((555, 0), &["nvmlDeviceGetDriverModel_v2"]),
    ((560, 0), &["nvmlSystemGetDriverBranch"]),
    (
        (570, 0),
        &[
            "nvmlDeviceGetCoolerInfo",
            "nvmlDeviceGetFanSpeedRPM",
            "nvmlDeviceGetMarginTemperature",
            "nvmlDeviceGetPlatformInfo",
            "nvmlDeviceGetTemperatureV",
        ],
    ),
    (
        (575, 0),
        &[
            "nvmlSystemEventSetCreate",
            "nvmlSystemEventSetFree",
            "nvmlSystemEventSetWait",
            "nvmlSystemRegisterEvents",
        ],
    ),
    ((580, 0), &["nvmlDeviceGetAddressingMode", "nvmlDeviceGetNvLinkInfo", "nvmlDeviceGetRepairStatus"]),
];

/// The symbols that a driver of this version lacks.
pub fn newer_than(driver: (u32, u32)) -> impl Iterator<Item = &'static str> {
    SINCE.iter().filter(move |(since, _)| *since > driver).flat_map(|(_, symbols)| symbols.iter().copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_lacks_later_symbols() {
        let lacks = |driver, symbol| newer_than(driver).any(|newer| newer == symbol);
        assert!(lacks((440, 0), "nvmlDeviceGetMigMode") && !lacks((470, 57), "nvmlDeviceGetMigMode"));
        assert!(
            lacks((470, 57), "nvmlDeviceGetMemoryInfo_v2") && !lacks((510, 39), "nvmlDeviceGetMemoryInfo_v2")
        );
        assert!(lacks((535, 54), "nvmlDeviceGetRunningProcessDetailList"));
        assert!(!lacks((535, 54), "nvmlDeviceGetConfComputeMemSizeInfo"));
        assert_eq!(newer_than((580, 95)).count(), 0);
    }
}
