//! Process lists in all their versions, with NVML's manner of asking for a larger buffer.

use super::{Answer, INSUFFICIENT_SIZE, INVALID_ARGUMENT, NOT_FOUND, SUCCESS, Seat, on_device};
use crate::state::Process;
use nvml_wrapper_sys::bindings::{
    nvmlDevice_t, nvmlProcessInfo_v1_t, nvmlProcessInfo_v2_t, nvmlProcessUtilizationSample_t, nvmlReturn_t,
};

/// What NVML says for an id off MIG.
const NO_INSTANCE: u32 = u32::MAX;
/// What NVML says when memory is not known.
const NOT_AVAILABLE: u64 = u64::MAX;

/// The processes of one list, with their instances.
fn listed(seat: &Seat<'_>, kind: char) -> Vec<nvmlProcessInfo_v2_t> {
    let entry = |process: &Process, gi, ci| nvmlProcessInfo_v2_t {
        pid: process.pid,
        usedGpuMemory: process.mem_mib.map_or(NOT_AVAILABLE, |mib| mib << 20),
        gpuInstanceId: gi,
        computeInstanceId: ci,
    };
    let whole = seat.mig.is_none().then_some(&seat.gpu.processes).into_iter().flatten();
    let whole = whole.map(|process| (process, NO_INSTANCE, NO_INSTANCE));
    let instances =
        seat.gpu.mig.iter().enumerate().filter(|(at, _)| seat.mig.is_none_or(|(own, _)| own == *at));
    let instances =
        instances.flat_map(|(_, mig)| mig.processes.iter().map(|process| (process, mig.gi, mig.ci)));
    let wanted = whole.chain(instances).filter(|(process, ..)| process.kind.contains(kind));
    wanted.map(|(process, gi, ci)| entry(process, gi, ci)).collect()
}

/// Copies a list into the caller's buffer, or says how large it must be.
///
/// # Safety
/// `count` is null or valid; `infos` is null or has `*count` elements.
unsafe fn put_list<T>(count: *mut u32, infos: *mut T, answer: Answer<Vec<T>>) -> nvmlReturn_t {
    let list = match answer {
        Ok(_) if count.is_null() => return INVALID_ARGUMENT,
        Ok(list) => list,
        Err(code) => return code,
    };
    // SAFETY: not null, and valid by the caller's word.
    let room = unsafe { count.replace(list.len() as u32) } as usize;
    if list.len() > room || (infos.is_null() && !list.is_empty()) {
        return INSUFFICIENT_SIZE;
    }
    for (at, info) in list.into_iter().enumerate() {
        // SAFETY: `at` is less than the number of elements that the caller has room for.
        unsafe { infos.add(at).write(info) };
    }
    SUCCESS
}

fn oldest(list: Vec<nvmlProcessInfo_v2_t>) -> Vec<nvmlProcessInfo_v1_t> {
    let short = |info: nvmlProcessInfo_v2_t| nvmlProcessInfo_v1_t {
        pid: info.pid,
        usedGpuMemory: info.usedGpuMemory,
    };
    list.into_iter().map(short).collect()
}

macro_rules! lists {
    ($($symbol:ident($entry:ty) = $kind:literal $(, $convert:path)?;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $symbol(device: nvmlDevice_t, count: *mut u32, infos: *mut $entry) -> nvmlReturn_t {
            let answer = on_device(stringify!($symbol), device, |seat| Ok(listed(&seat, $kind)));
            $(let answer = answer.map($convert);)?
            // SAFETY: by NVML's contract the buffer has as many elements as `count` says.
            unsafe { put_list(count, infos, answer) }
        }
    )*};
}

lists! {
    nvmlDeviceGetComputeRunningProcesses(nvmlProcessInfo_v1_t) = 'C', oldest;
    nvmlDeviceGetGraphicsRunningProcesses(nvmlProcessInfo_v1_t) = 'G', oldest;
    nvmlDeviceGetMPSComputeRunningProcesses(nvmlProcessInfo_v1_t) = 'M', oldest;
    nvmlDeviceGetComputeRunningProcesses_v2(nvmlProcessInfo_v2_t) = 'C';
    nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlProcessInfo_v2_t) = 'G';
    nvmlDeviceGetMPSComputeRunningProcesses_v2(nvmlProcessInfo_v2_t) = 'M';
    nvmlDeviceGetComputeRunningProcesses_v3(nvmlProcessInfo_v2_t) = 'C';
    nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlProcessInfo_v2_t) = 'G';
    nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlProcessInfo_v2_t) = 'M';
}

/// One sample per process, or NOT_FOUND when nothing ran: NVML's way to say that a list is empty.
fn utilisation(seat: &Seat<'_>) -> Answer<Vec<nvmlProcessUtilizationSample_t>> {
    let gpu = seat.whole()?;
    let share = gpu.util.unwrap_or(0) / (gpu.processes.len().max(1) as u32);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let sample = |process: &Process| nvmlProcessUtilizationSample_t {
        pid: process.pid,
        timeStamp: now.as_micros() as u64,
        smUtil: share,
        memUtil: share / 2,
        encUtil: 0,
        decUtil: 0,
    };
    if share == 0 || gpu.processes.is_empty() {
        Err(NOT_FOUND)
    } else {
        Ok(gpu.processes.iter().map(sample).collect())
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetProcessUtilization(
    device: nvmlDevice_t,
    samples: *mut nvmlProcessUtilizationSample_t,
    count: *mut u32,
    _last_seen: u64,
) -> nvmlReturn_t {
    let answer = on_device("nvmlDeviceGetProcessUtilization", device, |seat| utilisation(&seat));
    // SAFETY: by NVML's contract the buffer has as many elements as `count` says.
    unsafe { put_list(count, samples, answer) }
}
