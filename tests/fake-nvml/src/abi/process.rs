//! Process lists in all their versions, including NVML's protocol for larger buffers.

use super::{
    Answer, DeviceContext, INSUFFICIENT_SIZE, INVALID_ARGUMENT, SUCCESS,
    exports::getters_of_list,
    on_device, on_device_with_override,
    put::{put_list_with_override, version},
};
use crate::state::Process;
use nvml_wrapper_sys::bindings::{
    nvmlDevice_t, nvmlProcessDetail_v1_t, nvmlProcessDetailList_v1_t, nvmlProcessInfo_v1_t,
    nvmlProcessInfo_v2_t, nvmlReturn_t,
};

/// NVML's id outside of MIG.
const NO_INSTANCE: u32 = u32::MAX;
/// NVML's value for unknown memory.
const NOT_AVAILABLE: u64 = u64::MAX;
/// The lists, in the order of `mode` of the detailed one.
const KINDS: [char; 3] = ['C', 'G', 'M'];

/// The processes of one list, with their instances.
fn listed(ctx: &DeviceContext<'_>, kind: char) -> Vec<nvmlProcessInfo_v2_t> {
    let entry = |process: &Process, gi, ci| nvmlProcessInfo_v2_t {
        pid: process.pid,
        usedGpuMemory: process.mem_mib.map_or(NOT_AVAILABLE, |mib| mib << 20),
        gpuInstanceId: gi,
        computeInstanceId: ci,
    };
    let whole = ctx.mig.is_none().then_some(&ctx.gpu.processes).into_iter().flatten();
    let whole = whole.map(|process| (process, NO_INSTANCE, NO_INSTANCE));
    let instances =
        ctx.gpu.mig.iter().enumerate().filter(|(at, _)| ctx.mig.is_none_or(|(own, _)| own == *at));
    let instances =
        instances.flat_map(|(_, mig)| mig.processes.iter().map(|process| (process, mig.gi, mig.ci)));
    let wanted = whole.chain(instances).filter(|(process, ..)| process.kind.contains(kind));
    wanted.map(|(process, gi, ci)| entry(process, gi, ci)).collect()
}

fn oldest(list: Vec<nvmlProcessInfo_v2_t>) -> Vec<nvmlProcessInfo_v1_t> {
    let short = |info: nvmlProcessInfo_v2_t| nvmlProcessInfo_v1_t {
        pid: info.pid,
        usedGpuMemory: info.usedGpuMemory,
    };
    list.into_iter().map(short).collect()
}

getters_of_list! {
    nvmlDeviceGetComputeRunningProcesses() -> nvmlProcessInfo_v1_t = |ctx| Ok(oldest(listed(&ctx, 'C')));
    nvmlDeviceGetGraphicsRunningProcesses() -> nvmlProcessInfo_v1_t = |ctx| Ok(oldest(listed(&ctx, 'G')));
    nvmlDeviceGetMPSComputeRunningProcesses() -> nvmlProcessInfo_v1_t = |ctx| Ok(oldest(listed(&ctx, 'M')));
    nvmlDeviceGetComputeRunningProcesses_v2() -> nvmlProcessInfo_v2_t = |ctx| Ok(listed(&ctx, 'C'));
    nvmlDeviceGetGraphicsRunningProcesses_v2() -> nvmlProcessInfo_v2_t = |ctx| Ok(listed(&ctx, 'G'));
    nvmlDeviceGetMPSComputeRunningProcesses_v2() -> nvmlProcessInfo_v2_t = |ctx| Ok(listed(&ctx, 'M'));
}

/// An entry of the third version in the driver's length: 16, 24 or 32 bytes, the last with protected
/// memory.
fn entry(info: &nvmlProcessInfo_v2_t, stride: usize) -> Vec<u8> {
    let mut bytes = u64::from(info.pid).to_ne_bytes().to_vec();
    bytes.extend(info.usedGpuMemory.to_ne_bytes());
    bytes.extend(info.gpuInstanceId.to_ne_bytes());
    bytes.extend(info.computeInstanceId.to_ne_bytes());
    bytes.resize(stride, 0);
    bytes
}

/// Writes a list of the third version. A driver whose entries are longer than the caller's writes past
/// the end of a buffer of the documented length; this library reproduces it.
///
/// # Safety
/// `count` is null or valid; `out` is null or has `*count` entries of the driver's length.
unsafe fn put_third(
    count: *mut u32,
    out: *mut u8,
    answer: Answer<(Vec<nvmlProcessInfo_v2_t>, usize)>,
) -> nvmlReturn_t {
    let (list, stride) = match answer {
        Ok(_) if count.is_null() => return INVALID_ARGUMENT,
        Ok(found) => found,
        Err(code) => return code,
    };
    // SAFETY: not null, and valid by the caller's word.
    let room = unsafe { count.replace(list.len() as u32) } as usize;
    if list.len() > room || (out.is_null() && !list.is_empty()) {
        return INSUFFICIENT_SIZE;
    }
    for (at, info) in list.iter().enumerate() {
        let bytes = entry(info, stride);
        // SAFETY: `at` is less than the number of entries that the caller has room for.
        unsafe { out.add(at * stride).copy_from_nonoverlapping(bytes.as_ptr(), stride) };
    }
    SUCCESS
}

macro_rules! third_version {
    ($($symbol:ident = $kind:literal;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $symbol(
            device: nvmlDevice_t,
            count: *mut u32,
            infos: *mut nvmlProcessInfo_v2_t,
        ) -> nvmlReturn_t {
            let answer = on_device_with_override(stringify!($symbol), device, |ctx| {
                Ok((listed(&ctx, $kind), ctx.state.v3_stride))
            });
            if let (Ok((_, Some(_))), false) = (&answer, count.is_null()) {
                let no_list = answer.map(|(_, injected)| (Vec::<nvmlProcessInfo_v2_t>::new(), injected));
                // SAFETY: by NVML's contract `count` is valid; the buffer is not written.
                return unsafe { put_list_with_override(count, infos, no_list) };
            }
            let answer = answer.map(|(list, _)| list);
            // SAFETY: by the contract of this driver the buffer has as many of its entries as `count` says.
            unsafe { put_third(count, infos.cast(), answer) }
        }
    )*};
}

third_version! {
    nvmlDeviceGetComputeRunningProcesses_v3 = 'C';
    nvmlDeviceGetGraphicsRunningProcesses_v3 = 'G';
    nvmlDeviceGetMPSComputeRunningProcesses_v3 = 'M';
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetRunningProcessDetailList(
    device: nvmlDevice_t,
    list: *mut nvmlProcessDetailList_v1_t,
) -> nvmlReturn_t {
    // SAFETY: by NVML's contract it is null or points to a list.
    let Some(list) = (unsafe { list.as_mut() }) else { return INVALID_ARGUMENT };
    let answer = on_device("nvmlDeviceGetRunningProcessDetailList", device, |ctx| {
        let kind = KINDS.get(list.mode as usize).ok_or(INVALID_ARGUMENT)?;
        if list.version != version::<nvmlProcessDetailList_v1_t>(1) {
            return Err(INVALID_ARGUMENT);
        }
        let detail = |info: nvmlProcessInfo_v2_t| nvmlProcessDetail_v1_t {
            pid: info.pid,
            usedGpuMemory: info.usedGpuMemory,
            gpuInstanceId: info.gpuInstanceId,
            computeInstanceId: info.computeInstanceId,
            usedGpuCcProtectedMemory: 0,
        };
        Ok(listed(&ctx, *kind).into_iter().map(detail).collect())
    });
    // SAFETY: by NVML's contract the array has as many elements as the list says.
    unsafe { super::put::put_list(&raw mut list.numProcArrayEntries, list.procArray, answer) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_laid_out_as_the_header_has_it() {
        let info =
            nvmlProcessInfo_v2_t { pid: 7, usedGpuMemory: 1 << 40, gpuInstanceId: 3, computeInstanceId: 4 };
        let bytes = entry(&info, size_of::<nvmlProcessInfo_v2_t>());
        // SAFETY: as many bytes as the struct has, and any bytes are one.
        let read: nvmlProcessInfo_v2_t =
            unsafe { bytes.as_ptr().cast::<nvmlProcessInfo_v2_t>().read_unaligned() };
        assert_eq!((read.pid, read.usedGpuMemory), (7, 1 << 40));
        assert_eq!((read.gpuInstanceId, read.computeInstanceId), (3, 4));
        assert_eq!((entry(&info, 32).len(), entry(&info, 16).len()), (32, 16));
    }
}
