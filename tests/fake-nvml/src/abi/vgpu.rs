//! vGPUs of a host, one type per vGPU, and the license of a guest.

use super::{
    Answer, DeviceContext, INVALID_ARGUMENT, NOT_FOUND, NOT_SUPPORTED, called,
    exports::{getters, getters_of_list},
    handle,
    put::{put, put_each, put_text},
};
use crate::state::{License, State, Vgpu};
use nvml_wrapper_sys::bindings::{
    NVML_GRID_LICENSE_EXPIRY_PERMANENT, NVML_GRID_LICENSE_EXPIRY_VALID, nvmlGridLicensableFeature_t,
    nvmlGridLicensableFeatures_t, nvmlReturn_t, nvmlVgpuLicenseInfo_t,
};
use std::ffi::c_char;

/// Type of a VM id: a UUID.
const VM_UUID: u32 = 1;

/// The id of a vGPU, and of its type: never 0.
fn id(gpu: usize, position: usize) -> u32 {
    ((gpu + 1) << 8 | position) as u32
}

/// The vGPU with an id.
fn find(state: &State, id: u32) -> Answer<Vgpu> {
    let gpu = (id >> 8).checked_sub(1).ok_or(INVALID_ARGUMENT)?;
    let ctx = DeviceContext::find(state, handle(gpu as usize, None))?;
    ctx.gpu.vgpus.get((id & 0xff) as usize).cloned().ok_or(NOT_FOUND)
}

getters_of_list! {
    nvmlDeviceGetActiveVgpus() -> u32 = |ctx| {
        let count = ctx.board()?.vgpus.len();
        if count == 0 { Err(NOT_SUPPORTED) } else { Ok((0..count).map(|position| id(ctx.index, position)).collect()) }
    };
}

getters! {
    nvmlDeviceGetGridLicensableFeatures_v4() -> nvmlGridLicensableFeatures_t =
        |ctx| Ok(features(ctx.board()?.license.as_ref()));
}

/// Two features, of which the second is in use; none on a driver without licenses.
fn features(license: Option<&License>) -> nvmlGridLicensableFeatures_t {
    // SAFETY: the struct consists of integers.
    let mut features = unsafe { std::mem::zeroed::<nvmlGridLicensableFeatures_t>() };
    let Some(license) = license else { return features };
    (features.isGridLicenseSupported, features.licensableFeaturesCount) = (1, 2);
    set_product(&mut features.gridLicensableFeatures[0], "NVIDIA RTX Virtual Workstation");
    let feature = &mut features.gridLicensableFeatures[1];
    set_product(feature, &license.product);
    (feature.featureEnabled, feature.featureState) = (1, license.licensed.into());
    let expiry = &mut feature.licenseExpiry;
    expiry.status = match license.expires {
        Some([year, month, day, hour, min, sec]) => {
            (expiry.year, expiry.month, expiry.day) = (year.into(), month, day);
            (expiry.hour, expiry.min, expiry.sec) = (hour, min, sec);
            NVML_GRID_LICENSE_EXPIRY_VALID as u8
        }
        None => NVML_GRID_LICENSE_EXPIRY_PERMANENT as u8,
    };
    features
}

fn set_product(feature: &mut nvmlGridLicensableFeature_t, name: &str) {
    for (out, byte) in feature.productName.iter_mut().zip(name.bytes()) {
        *out = byte.cast_signed();
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlVgpuInstanceGetVmID(
    vgpu: u32,
    out: *mut c_char,
    length: u32,
    kind: *mut u32,
) -> nvmlReturn_t {
    let answer = called("nvmlVgpuInstanceGetVmID", |state| find(state, vgpu));
    // SAFETY: by NVML's contract the argument is null or points to the result.
    unsafe { put(kind, answer.as_ref().map(|_| VM_UUID).map_err(|code| *code)) };
    // SAFETY: by NVML's contract the buffer is null or has `length` bytes.
    unsafe { put_text(out, length, answer.map(|vgpu| vgpu.vm)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlVgpuInstanceGetType(vgpu: u32, out: *mut u32) -> nvmlReturn_t {
    let answer = called("nvmlVgpuInstanceGetType", |state| find(state, vgpu));
    // SAFETY: by NVML's contract the last argument is null or points to the result.
    unsafe { put(out, answer.map(|_| vgpu)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlVgpuTypeGetName(kind: u32, out: *mut c_char, length: *mut u32) -> nvmlReturn_t {
    let answer = called("nvmlVgpuTypeGetName", |state| find(state, kind));
    // SAFETY: by NVML's contract the length is null or valid.
    let Some(length) = (unsafe { length.as_ref() }) else { return INVALID_ARGUMENT };
    // SAFETY: by NVML's contract the buffer is null or has `length` bytes.
    unsafe { put_text(out, *length, answer.map(|vgpu| vgpu.profile)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlVgpuTypeGetFramebufferSize(kind: u32, out: *mut u64) -> nvmlReturn_t {
    let answer = called("nvmlVgpuTypeGetFramebufferSize", |state| find(state, kind));
    // SAFETY: by NVML's contract the last argument is null or points to the result.
    unsafe { put_each([out], answer.map(|vgpu| [vgpu.mem_total_mib << 20])) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlVgpuInstanceGetFbUsage(vgpu: u32, out: *mut u64) -> nvmlReturn_t {
    let answer = called("nvmlVgpuInstanceGetFbUsage", |state| find(state, vgpu));
    // SAFETY: as above.
    unsafe { put_each([out], answer.map(|vgpu| [vgpu.mem_used_mib << 20])) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlVgpuInstanceGetLicenseInfo_v2(
    vgpu: u32,
    out: *mut nvmlVgpuLicenseInfo_t,
) -> nvmlReturn_t {
    let answer = called("nvmlVgpuInstanceGetLicenseInfo_v2", |state| find(state, vgpu)).map(|vgpu| {
        // SAFETY: the struct consists of integers.
        let blank = unsafe { std::mem::zeroed::<nvmlVgpuLicenseInfo_t>() };
        nvmlVgpuLicenseInfo_t {
            isLicensed: vgpu.licensed.into(),
            currentState: if vgpu.licensed { 4 } else { 1 },
            ..blank
        }
    });
    // SAFETY: as above.
    unsafe { put(out, answer) }
}
