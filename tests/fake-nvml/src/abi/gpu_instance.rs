//! GPU instances and their compute instances, as seen by tools that partition a GPU.

use super::{
    Answer, DeviceContext, INVALID_ARGUMENT, NOT_FOUND, NOT_SUPPORTED, SUCCESS, called,
    exports::getters,
    handle, on_device,
    put::{begins_with, chars, put, version},
};
use crate::state::{Gpu, Mig, Profile, State};
use nvml_wrapper_sys::bindings::{
    nvmlComputeInstance_t, nvmlComputeInstanceInfo_t, nvmlComputeInstancePlacement_t, nvmlDevice_t,
    nvmlGpuInstance_t, nvmlGpuInstanceInfo_t, nvmlGpuInstancePlacement_t, nvmlGpuInstanceProfileInfo_t,
    nvmlGpuInstanceProfileInfo_v2_t, nvmlReturn_t,
};

/// Distinguishes these handles from handles of devices, which are smaller.
const GPU_INSTANCE: usize = 1 << 24;
const COMPUTE_INSTANCE: usize = 1 << 25;
/// The profiles of a GPU with seven slices, by NVML's number, as eighths of its memory.
const PROFILES: [(u32, u32, u32); 7] =
    [(0, 1, 1), (1, 2, 2), (2, 3, 4), (3, 4, 4), (4, 7, 8), (7, 1, 1), (9, 1, 2)];

fn gpu_instance(index: usize, gi: u32) -> nvmlGpuInstance_t {
    (GPU_INSTANCE | (index + 1) << 8 | gi as usize & 0xff) as nvmlGpuInstance_t
}

/// The GPU and the id of a handle.
fn of_gpu_instance(state: &State, handle: nvmlGpuInstance_t) -> Answer<(DeviceContext<'_>, u32)> {
    let number = (handle as usize).checked_sub(GPU_INSTANCE).ok_or(INVALID_ARGUMENT)?;
    let ctx = DeviceContext::find(state, (number & !0xff) as nvmlDevice_t)?;
    ctx.gpu.mig.iter().find(|mig| mig.gi as usize == number & 0xff).ok_or(INVALID_ARGUMENT)?;
    Ok((ctx, (number & 0xff) as u32))
}

/// The instances of a GPU instance, with their positions.
fn parts(gpu: &Gpu, gi: u32) -> impl Iterator<Item = (usize, &Mig)> {
    gpu.mig.iter().enumerate().filter(move |(_, mig)| mig.gi == gi)
}

/// GPU instances of a profile, each once.
fn of_profile(ctx: &DeviceContext<'_>, profile: u32) -> Answer<Vec<nvmlGpuInstance_t>> {
    let gpu = ctx.board()?;
    if !gpu.mig_mode() {
        return Err(NOT_SUPPORTED);
    }
    let mut ids: Vec<u32> =
        gpu.mig.iter().filter(|mig| mig.shape().id(gpu) == profile).map(|mig| mig.gi).collect();
    ids.sort_unstable();
    ids.dedup();
    Ok(ids.into_iter().map(|gi| gpu_instance(ctx.index, gi)).collect())
}

/// A profile by NVML's number.
fn profile_info(ctx: &DeviceContext<'_>, number: u32) -> Answer<nvmlGpuInstanceProfileInfo_v2_t> {
    let gpu = ctx.board()?;
    if !gpu.board.mig_capable {
        return Err(NOT_SUPPORTED);
    }
    let known = PROFILES.iter().find(|(known, ..)| *known == number);
    let (_, slices, eighths) = *known.ok_or(if number < 17 { NOT_SUPPORTED } else { INVALID_ARGUMENT })?;
    let gigabytes = (offered_mib(gpu) * u64::from(eighths) / 8).div_ceil(1_024);
    let profile = Profile { slices, compute_slices: slices, gigabytes, media: number == 7 };
    let [copy, decoder, encoder, jpeg, ofa] = profile.engines(gpu);
    let media = if profile.media { "+me" } else { "" };
    Ok(nvmlGpuInstanceProfileInfo_v2_t {
        version: version::<nvmlGpuInstanceProfileInfo_v2_t>(2),
        id: profile.id(gpu),
        isP2pSupported: 0,
        sliceCount: slices,
        instanceCount: if profile.media { 1 } else { (8 / eighths).min(7 / slices) },
        multiprocessorCount: Profile::multiprocessors(gpu, slices),
        copyEngineCount: copy,
        decoderCount: decoder,
        encoderCount: encoder,
        jpegCount: jpeg,
        ofaCount: ofa,
        memorySizeMB: profile.memory_mib(gpu),
        name: chars(&format!("MIG {slices}g.{gigabytes}gb{media}")),
    })
}

fn offered_mib(gpu: &Gpu) -> u64 {
    gpu.mem_total_mib.unwrap_or(0)
}

getters! {
    nvmlDeviceGetGpuInstanceById(gi: u32) -> nvmlGpuInstance_t = |ctx| {
        let found = ctx.board()?.mig.iter().any(|mig| mig.gi == gi);
        if found { Ok(gpu_instance(ctx.index, gi)) } else { Err(NOT_FOUND) }
    };
    nvmlDeviceGetGpuInstanceProfileInfo(number: u32) -> nvmlGpuInstanceProfileInfo_t = |ctx| {
        let info = profile_info(&ctx, number)?;
        Ok(nvmlGpuInstanceProfileInfo_t {
            id: info.id,
            isP2pSupported: info.isP2pSupported,
            sliceCount: info.sliceCount,
            instanceCount: info.instanceCount,
            multiprocessorCount: info.multiprocessorCount,
            copyEngineCount: info.copyEngineCount,
            decoderCount: info.decoderCount,
            encoderCount: info.encoderCount,
            jpegCount: info.jpegCount,
            ofaCount: info.ofaCount,
            memorySizeMB: info.memorySizeMB,
        })
    };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetGpuInstanceProfileInfoV(
    device: nvmlDevice_t,
    number: u32,
    out: *mut nvmlGpuInstanceProfileInfo_v2_t,
) -> nvmlReturn_t {
    let answer = on_device("nvmlDeviceGetGpuInstanceProfileInfoV", device, |ctx| {
        // SAFETY: by NVML's contract a struct that is not null begins with its version.
        unsafe { begins_with(version::<nvmlGpuInstanceProfileInfo_v2_t>(2), out) }?;
        profile_info(&ctx, number)
    });
    // SAFETY: by NVML's contract the last argument is null or points to the result.
    unsafe { put(out, answer) }
}

/// Fills a list whose capacity follows from the profile, and writes its length.
///
/// # Safety
/// `count` is null or valid; `list` is null or has room for all.
unsafe fn put_all<T>(list: *mut T, count: *mut u32, answer: Answer<Vec<T>>) -> nvmlReturn_t {
    let items = match answer {
        Ok(_) if list.is_null() || count.is_null() => return INVALID_ARGUMENT,
        Ok(items) => items,
        Err(code) => return code,
    };
    // SAFETY: not null, and valid by the caller's word.
    unsafe { *count = items.len() as u32 };
    for (at, item) in items.into_iter().enumerate() {
        // SAFETY: there is room for all.
        unsafe { list.add(at).write(item) };
    }
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetGpuInstances(
    device: nvmlDevice_t,
    profile: u32,
    list: *mut nvmlGpuInstance_t,
    count: *mut u32,
) -> nvmlReturn_t {
    let answer = on_device("nvmlDeviceGetGpuInstances", device, |ctx| of_profile(&ctx, profile));
    // SAFETY: by NVML's contract the list has room for as many as the profile allows.
    unsafe { put_all(list, count, answer) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlGpuInstanceGetInfo(
    instance: nvmlGpuInstance_t,
    out: *mut nvmlGpuInstanceInfo_t,
) -> nvmlReturn_t {
    let answer = called("nvmlGpuInstanceGetInfo", |state| {
        let (ctx, gi) = of_gpu_instance(state, instance)?;
        let (position, mig) = parts(ctx.gpu, gi).next().ok_or(NOT_FOUND)?;
        let size = mig.shape().memory_slices(ctx.gpu) as u32;
        Ok(nvmlGpuInstanceInfo_t {
            device: handle(ctx.index, None),
            id: gi,
            profileId: mig.shape().id(ctx.gpu),
            placement: nvmlGpuInstancePlacement_t { start: position as u32 * size % 8, size },
        })
    });
    // SAFETY: by NVML's contract the last argument is null or points to the result.
    unsafe { put(out, answer) }
}

/// Returns the compute instances of a GPU instance; the profile's number is the number of its slices.
fn compute_instances(
    state: &State,
    instance: nvmlGpuInstance_t,
    profile: u32,
) -> Answer<Vec<nvmlComputeInstance_t>> {
    let (ctx, gi) = of_gpu_instance(state, instance)?;
    let of_profile = parts(ctx.gpu, gi).filter(|(_, mig)| compute_profile(mig) == profile);
    let handle = |(position, _)| COMPUTE_INSTANCE | (ctx.index + 1) << 8 | position;
    Ok(of_profile.map(|part| handle(part) as nvmlComputeInstance_t).collect())
}

fn compute_profile(mig: &Mig) -> u32 {
    match mig.shape().compute_slices {
        slices @ 1..=4 => slices - 1,
        _ => 4,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlGpuInstanceGetComputeInstances(
    instance: nvmlGpuInstance_t,
    profile: u32,
    list: *mut nvmlComputeInstance_t,
    count: *mut u32,
) -> nvmlReturn_t {
    let symbol = "nvmlGpuInstanceGetComputeInstances";
    let answer = called(symbol, |state| compute_instances(state, instance, profile));
    // SAFETY: by NVML's contract the list has room for as many as the profile allows.
    unsafe { put_all(list, count, answer) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlComputeInstanceGetInfo_v2(
    instance: nvmlComputeInstance_t,
    out: *mut nvmlComputeInstanceInfo_t,
) -> nvmlReturn_t {
    let answer = called("nvmlComputeInstanceGetInfo_v2", |state| {
        let number = (instance as usize).checked_sub(COMPUTE_INSTANCE).ok_or(INVALID_ARGUMENT)?;
        let ctx = DeviceContext::find(state, (number & !0xff) as nvmlDevice_t)?;
        let position = number & 0xff;
        let mig = ctx.gpu.mig.get(position).ok_or(INVALID_ARGUMENT)?;
        let size = mig.shape().compute_slices;
        Ok(nvmlComputeInstanceInfo_t {
            device: handle(ctx.index, Some(position)),
            gpuInstance: gpu_instance(ctx.index, mig.gi),
            id: mig.ci,
            profileId: compute_profile(mig),
            placement: nvmlComputeInstancePlacement_t { start: mig.ci * size, size },
        })
    });
    // SAFETY: by NVML's contract the last argument is null or points to the result.
    unsafe { put(out, answer) }
}
