//! NVML calls that the wrapper lacks, or whose results it does not pass through.
#![expect(unsafe_code, reason = "NVML through its C ABI, where the wrapper has no method")]

use super::ffi_compat::{checked, missing};
use crate::source::plausible;
use nvml_wrapper::{Device, Nvml, error::NvmlError};
use nvml_wrapper_sys::bindings as sys;
use std::ptr;

/// Maximum number of attempts if a list outgrows its buffer.
const TRIES: usize = 4;

/// Returns a device's handle as a number, which identifies it while NVML is open. Does not call the
/// driver, which cannot answer for a lost GPU.
pub fn handle(device: &Device<'_>) -> usize {
    // SAFETY: the pointer is only compared.
    unsafe { device.handle() }.addr()
}

/// Temperature of the GPU in °C (`nvmlDeviceGetTemperatureV`, drivers from 560 on).
///
/// # Errors
/// Errors of NVML, or a missing symbol.
pub fn temperature(device: &Device<'_>) -> Result<i32, NvmlError> {
    const VERSION: u32 = size_of::<sys::nvmlTemperature_v1_t>() as u32 | 1 << 24;
    let call = device.nvml().lib().nvmlDeviceGetTemperatureV.as_ref().map_err(missing)?;
    let mut reading = sys::nvmlTemperature_v1_t {
        version: VERSION,
        sensorType: sys::nvmlTemperatureSensors_enum_NVML_TEMPERATURE_GPU,
        temperature: 0,
    };
    // SAFETY: the handle is live as long as `device`; the struct is ours and says its version.
    checked(unsafe { call(device.handle(), &mut reading) })?;
    Ok(reading.temperature)
}

/// Performance state as NVML's number, of which the wrapper rejects unknown ones.
///
/// # Errors
/// Errors of NVML, or a missing symbol; not supported if NVML itself does not know it.
pub fn performance_state(device: &Device<'_>) -> Result<u32, NvmlError> {
    let call = device.nvml().lib().nvmlDeviceGetPerformanceState.as_ref().map_err(missing)?;
    let mut state = sys::nvmlPStates_enum_NVML_PSTATE_UNKNOWN;
    // SAFETY: the handle is live as long as `device`, the number is ours.
    checked(unsafe { call(device.handle(), &mut state) })?;
    if state == sys::nvmlPStates_enum_NVML_PSTATE_UNKNOWN { Err(NvmlError::NotSupported) } else { Ok(state) }
}

/// Number of pages retired for a cause (`NVML_PAGE_RETIREMENT_CAUSE_*`). Unlike the wrapper's
/// method, does not allocate as much as the driver reports.
///
/// # Errors
/// Errors of NVML, or a missing symbol; insufficient size if the number is implausible.
pub fn retired_pages(device: &Device<'_>, cause: u32) -> Result<u64, NvmlError> {
    let call = device.nvml().lib().nvmlDeviceGetRetiredPages.as_ref().map_err(missing)?;
    let mut count = 0;
    // SAFETY: the handle is live as long as `device`; with a count of 0 no address is written.
    match unsafe { call(device.handle(), cause, &mut count, ptr::null_mut()) } {
        sys::nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_SIZE => {}
        code => checked(code)?,
    }
    within(count, plausible::MAX_PAGES).map(u64::from)
}

/// Utilization sample of a process (`nvmlProcessUtilizationSample_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Utilization {
    /// Pid on the node.
    pub pid: u32,
    /// Time in µs since 1970 by the driver's clock.
    pub timestamp_us: u64,
    /// Share of the SMs in %.
    pub sm: u32,
    /// Share of the memory's bandwidth in %.
    pub mem: u32,
    /// Share of the encoder in %.
    pub enc: u32,
    /// Share of the decoder in %.
    pub dec: u32,
}

/// Returns utilization samples newer than `since_us`; empty if no process was active.
///
/// # Errors
/// Errors of NVML, or a missing symbol; insufficient size if their number is implausible.
pub fn process_utilization(device: &Device<'_>, since_us: u64) -> Result<Vec<Utilization>, NvmlError> {
    let call = device.nvml().lib().nvmlDeviceGetProcessUtilization.as_ref().map_err(missing)?;
    let mut samples: Vec<sys::nvmlProcessUtilizationSample_t> = Vec::new();
    for _ in 0..TRIES {
        let mut count = samples.len() as u32;
        let buffer = if samples.is_empty() { ptr::null_mut() } else { samples.as_mut_ptr() };
        // SAFETY: the handle is live as long as `device`; the buffer has `count` elements.
        match unsafe { call(device.handle(), buffer, &mut count, since_us) } {
            // The list may have grown since its length was queried.
            sys::nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_SIZE => {
                let empty = sys::nvmlProcessUtilizationSample_t {
                    pid: 0,
                    timeStamp: 0,
                    smUtil: 0,
                    memUtil: 0,
                    encUtil: 0,
                    decUtil: 0,
                };
                let room = within(count, plausible::MAX_SAMPLES)?;
                samples.resize((room as usize).max(samples.len() + 1), empty);
            }
            // NVML's way of reporting that no process was active.
            sys::nvmlReturn_enum_NVML_ERROR_NOT_FOUND => return Ok(Vec::new()),
            code => {
                checked(code)?;
                samples.truncate(count as usize);
                return Ok(samples.iter().map(utilization).collect());
            }
        }
    }
    Err(NvmlError::InsufficientSize(None))
}

fn utilization(sample: &sys::nvmlProcessUtilizationSample_t) -> Utilization {
    Utilization {
        pid: sample.pid,
        timestamp_us: sample.timeStamp,
        sm: sample.smUtil,
        mem: sample.memUtil,
        enc: sample.encUtil,
        dec: sample.decUtil,
    }
}

/// Active vGPUs of a host. Unlike the wrapper's method, does not allocate as much as the driver reports.
///
/// # Errors
/// Errors of NVML, or a missing symbol; insufficient size if their number is implausible.
pub fn active_vgpus(device: &Device<'_>) -> Result<Vec<u32>, NvmlError> {
    let call = device.nvml().lib().nvmlDeviceGetActiveVgpus.as_ref().map_err(missing)?;
    let mut vgpus = vec![0; plausible::MAX_VGPUS as usize];
    let mut count = plausible::MAX_VGPUS;
    // SAFETY: the handle is live as long as `device`; the buffer has `count` elements.
    match unsafe { call(device.handle(), &mut count, vgpus.as_mut_ptr()) } {
        sys::nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_SIZE => Err(NvmlError::InsufficientSize(None)),
        code => {
            checked(code)?;
            vgpus.truncate(within(count, plausible::MAX_VGPUS)? as usize);
            Ok(vgpus)
        }
    }
}

/// The product of the vGPU software that this virtual machine uses, and its license.
///
/// # Errors
/// Errors of NVML, or a missing symbol; not supported if the driver has no licensable feature.
pub fn licensable_feature(device: &Device<'_>) -> Result<sys::nvmlGridLicensableFeature_t, NvmlError> {
    let call = device.nvml().lib().nvmlDeviceGetGridLicensableFeatures_v4.as_ref().map_err(missing)?;
    // SAFETY: the struct consists of integers.
    let mut features = unsafe { std::mem::zeroed::<sys::nvmlGridLicensableFeatures_t>() };
    // SAFETY: the handle is live as long as `device`, the struct is ours.
    checked(unsafe { call(device.handle(), &mut features) })?;
    let count = within(features.licensableFeaturesCount, features.gridLicensableFeatures.len() as u32)?;
    let all = &features.gridLicensableFeatures[..count as usize];
    // One product is in use; the others could be licensed instead.
    let of_use = all.iter().find(|feature| feature.featureEnabled != 0);
    let feature = of_use.or_else(|| all.iter().find(|feature| feature.featureState != 0)).or(all.first());
    feature.filter(|_| features.isGridLicenseSupported != 0).copied().ok_or(NvmlError::NotSupported)
}

/// Validates a count against a plausible maximum.
///
/// # Errors
/// Insufficient size with the count if it is more than `most`.
pub fn within(count: u32, most: u32) -> Result<u32, NvmlError> {
    if count > most { Err(NvmlError::InsufficientSize(Some(count as usize))) } else { Ok(count) }
}

/// Utilisation of the JPEG engine in %.
///
/// # Errors
/// Errors of NVML, or a missing symbol.
pub fn jpg_utilization(device: &Device<'_>) -> Result<u32, NvmlError> {
    let call = device.nvml().lib().nvmlDeviceGetJpgUtilization.as_ref().map_err(missing)?;
    let (mut percent, mut period_us) = (0, 0);
    // SAFETY: the handle is live as long as `device`, both numbers are ours.
    checked(unsafe { call(device.handle(), &mut percent, &mut period_us) })?;
    Ok(percent)
}

/// Utilisation of the optical-flow engine in %.
///
/// # Errors
/// Errors of NVML, or a missing symbol.
pub fn ofa_utilization(device: &Device<'_>) -> Result<u32, NvmlError> {
    let call = device.nvml().lib().nvmlDeviceGetOfaUtilization.as_ref().map_err(missing)?;
    let (mut percent, mut period_us) = (0, 0);
    // SAFETY: as above.
    checked(unsafe { call(device.handle(), &mut percent, &mut period_us) })?;
    Ok(percent)
}

/// Clock event reasons, by the symbol of newer drivers.
///
/// # Errors
/// Errors of NVML, or a missing symbol.
pub fn clocks_event_reasons(device: &Device<'_>) -> Result<u64, NvmlError> {
    let call = device.nvml().lib().nvmlDeviceGetCurrentClocksEventReasons.as_ref().map_err(missing)?;
    let mut reasons = 0;
    // SAFETY: as above, with one number.
    checked(unsafe { call(device.handle(), &mut reasons) })?;
    Ok(reasons)
}

/// State of the row remapper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemappedRows {
    /// Rows remapped for corrected errors.
    pub corrected: u32,
    /// Rows remapped for uncorrected errors.
    pub uncorrected: u32,
    /// Whether a remapping is pending a reset.
    pub pending: bool,
    /// Whether a remapping failed.
    pub failed: bool,
}

/// Returns the state of the row remapper.
///
/// # Errors
/// Errors of NVML, or a missing symbol.
pub fn remapped_rows(device: &Device<'_>) -> Result<RemappedRows, NvmlError> {
    let call = device.nvml().lib().nvmlDeviceGetRemappedRows.as_ref().map_err(missing)?;
    let [mut corrected, mut uncorrected, mut pending, mut failed] = [0; 4];
    // SAFETY: as above, with four numbers.
    checked(unsafe { call(device.handle(), &mut corrected, &mut uncorrected, &mut pending, &mut failed) })?;
    Ok(RemappedRows { corrected, uncorrected, pending: pending != 0, failed: failed != 0 })
}

/// Remote end of an NVLink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemoteKind {
    /// Another GPU.
    Gpu,
    /// A CPU.
    Cpu,
    /// A switch.
    Switch,
}

/// Returns the type of the remote end of an NVLink; `None` if NVML does not know it. The wrapper's
/// method always returns "unknown".
///
/// # Errors
/// Errors of NVML, or a missing symbol: drivers before 450 have no such call.
pub fn remote_kind(device: &Device<'_>, link: u32) -> Result<Option<RemoteKind>, NvmlError> {
    let call = device.nvml().lib().nvmlDeviceGetNvLinkRemoteDeviceType.as_ref().map_err(missing)?;
    let mut kind = sys::nvmlIntNvLinkDeviceType_enum_NVML_NVLINK_DEVICE_TYPE_UNKNOWN;
    // SAFETY: as above, with one number.
    checked(unsafe { call(device.handle(), link, &mut kind) })?;
    match kind {
        sys::nvmlIntNvLinkDeviceType_enum_NVML_NVLINK_DEVICE_TYPE_GPU => Ok(Some(RemoteKind::Gpu)),
        sys::nvmlIntNvLinkDeviceType_enum_NVML_NVLINK_DEVICE_TYPE_IBMNPU => Ok(Some(RemoteKind::Cpu)),
        sys::nvmlIntNvLinkDeviceType_enum_NVML_NVLINK_DEVICE_TYPE_SWITCH => Ok(Some(RemoteKind::Switch)),
        _ => Ok(None),
    }
}

/// Returns whether confidential computing is enabled.
///
/// # Errors
/// Errors of NVML, or a missing symbol.
pub fn confidential(nvml: &Nvml) -> Result<bool, NvmlError> {
    let call = nvml.lib().nvmlSystemGetConfComputeState.as_ref().map_err(missing)?;
    let mut state = sys::nvmlConfComputeSystemState_t { environment: 0, ccFeature: 0, devToolsMode: 0 };
    // SAFETY: the library is initialised as long as `nvml` lives; the struct is ours and of the call's type.
    checked(unsafe { call(&mut state) })?;
    Ok(state.ccFeature == sys::NVML_CC_SYSTEM_FEATURE_ENABLED)
}

/// Returns whether the GPU accesses host memory through the host's page tables (ATS), as with a Grace CPU.
///
/// # Errors
/// Errors of NVML, or a missing symbol.
pub fn shares_page_tables(device: &Device<'_>) -> Result<bool, NvmlError> {
    const VERSION: u32 = size_of::<sys::nvmlDeviceAddressingMode_t>() as u32 | 1 << 24;
    let call = device.nvml().lib().nvmlDeviceGetAddressingMode.as_ref().map_err(missing)?;
    let mut mode = sys::nvmlDeviceAddressingMode_t { version: VERSION, value: 0 };
    // SAFETY: the handle is live as long as `device`; the struct is ours and says its version.
    checked(unsafe { call(device.handle(), &mut mode) })?;
    Ok(mode.value == sys::nvmlDeviceAddressingModeType_t_NVML_DEVICE_ADDRESSING_MODE_ATS)
}
