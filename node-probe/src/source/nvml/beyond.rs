//! Calls that the wrapper has no method for, or one that does not hand on what NVML wrote.
#![expect(unsafe_code, reason = "NVML through its C ABI, where the wrapper has no method")]

use super::legacy::{checked, missing};
use nvml_wrapper::{Device, Nvml, error::NvmlError};
use nvml_wrapper_sys::bindings as sys;

/// Utilisation of the JPEG engine in %.
///
/// # Errors
/// NVML's, or a missing symbol.
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
/// NVML's, or a missing symbol.
pub fn ofa_utilization(device: &Device<'_>) -> Result<u32, NvmlError> {
    let call = device.nvml().lib().nvmlDeviceGetOfaUtilization.as_ref().map_err(missing)?;
    let (mut percent, mut period_us) = (0, 0);
    // SAFETY: as above.
    checked(unsafe { call(device.handle(), &mut percent, &mut period_us) })?;
    Ok(percent)
}

/// Why clocks are low, by the name that newer drivers have for it.
///
/// # Errors
/// NVML's, or a missing symbol.
pub fn clocks_event_reasons(device: &Device<'_>) -> Result<u64, NvmlError> {
    let call = device.nvml().lib().nvmlDeviceGetCurrentClocksEventReasons.as_ref().map_err(missing)?;
    let mut reasons = 0;
    // SAFETY: as above, with one number.
    checked(unsafe { call(device.handle(), &mut reasons) })?;
    Ok(reasons)
}

/// What the row remapper has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemappedRows {
    /// Rows remapped for corrected errors.
    pub corrected: u32,
    /// Rows remapped for uncorrected errors.
    pub uncorrected: u32,
    /// Whether one waits for a reset.
    pub pending: bool,
    /// Whether one failed.
    pub failed: bool,
}

/// Rows that were remapped.
///
/// # Errors
/// NVML's, or a missing symbol.
pub fn remapped_rows(device: &Device<'_>) -> Result<RemappedRows, NvmlError> {
    let call = device.nvml().lib().nvmlDeviceGetRemappedRows.as_ref().map_err(missing)?;
    let [mut corrected, mut uncorrected, mut pending, mut failed] = [0; 4];
    // SAFETY: as above, with four numbers.
    checked(unsafe { call(device.handle(), &mut corrected, &mut uncorrected, &mut pending, &mut failed) })?;
    Ok(RemappedRows { corrected, uncorrected, pending: pending != 0, failed: failed != 0 })
}

/// What an NVLink leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemoteKind {
    /// Another GPU.
    Gpu,
    /// A CPU's unit.
    Cpu,
    /// A switch.
    Switch,
}

/// What is at the other end of an NVLink. The wrapper's method says "unknown" whatever NVML wrote.
///
/// # Errors
/// NVML's, or a missing symbol; not supported if NVML itself does not know.
pub fn remote_kind(device: &Device<'_>, link: u32) -> Result<RemoteKind, NvmlError> {
    let call = device.nvml().lib().nvmlDeviceGetNvLinkRemoteDeviceType.as_ref().map_err(missing)?;
    let mut kind = sys::nvmlIntNvLinkDeviceType_enum_NVML_NVLINK_DEVICE_TYPE_UNKNOWN;
    // SAFETY: as above, with one number.
    checked(unsafe { call(device.handle(), link, &mut kind) })?;
    match kind {
        sys::nvmlIntNvLinkDeviceType_enum_NVML_NVLINK_DEVICE_TYPE_GPU => Ok(RemoteKind::Gpu),
        sys::nvmlIntNvLinkDeviceType_enum_NVML_NVLINK_DEVICE_TYPE_IBMNPU => Ok(RemoteKind::Cpu),
        sys::nvmlIntNvLinkDeviceType_enum_NVML_NVLINK_DEVICE_TYPE_SWITCH => Ok(RemoteKind::Switch),
        _ => Err(NvmlError::NotSupported),
    }
}

/// Whether the machine computes confidentially.
///
/// # Errors
/// NVML's, or a missing symbol.
pub fn confidential(nvml: &Nvml) -> Result<bool, NvmlError> {
    let call = nvml.lib().nvmlSystemGetConfComputeState.as_ref().map_err(missing)?;
    let mut state = sys::nvmlConfComputeSystemState_t { environment: 0, ccFeature: 0, devToolsMode: 0 };
    // SAFETY: the library is initialised as long as `nvml` lives; the struct is ours and of the call's type.
    checked(unsafe { call(&mut state) })?;
    Ok(state.ccFeature == sys::NVML_CC_SYSTEM_FEATURE_ENABLED)
}

/// Whether the GPU reaches the host's memory through the host's own page tables (ATS): a Grace CPU.
///
/// # Errors
/// NVML's, or a missing symbol.
pub fn shares_page_tables(device: &Device<'_>) -> Result<bool, NvmlError> {
    const VERSION: u32 = size_of::<sys::nvmlDeviceAddressingMode_t>() as u32 | 1 << 24;
    let call = device.nvml().lib().nvmlDeviceGetAddressingMode.as_ref().map_err(missing)?;
    let mut mode = sys::nvmlDeviceAddressingMode_t { version: VERSION, value: 0 };
    // SAFETY: the handle is live as long as `device`; the struct is ours and says its version.
    checked(unsafe { call(device.handle(), &mut mode) })?;
    Ok(mode.value == sys::nvmlDeviceAddressingModeType_t_NVML_DEVICE_ADDRESSING_MODE_ATS)
}
