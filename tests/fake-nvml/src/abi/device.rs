//! Readings of a device, each as the state file has it.

use super::{
    Answer, INVALID_ARGUMENT, NOT_SUPPORTED, Seat, chars, getters, gpu_uuid, mig_uuid, text_getters,
};
use crate::state::Gpu;
use nvml_wrapper_sys::bindings::{
    nvmlBAR1Memory_t, nvmlDevice_t, nvmlMemory_t, nvmlMemory_v2_t, nvmlPciInfo_t, nvmlReturn_t,
    nvmlUtilization_t,
};

const MIB: u64 = 1 << 20;

/// `nvmlClockType_t`: the video clock, which the state file does not have.
const CLOCK_VIDEO: u32 = 3;
/// `nvmlClockType_t`: the memory clock.
const CLOCK_MEM: u32 = 2;

fn offered<T>(reading: Option<T>) -> Answer<T> {
    reading.ok_or(NOT_SUPPORTED)
}

/// `00000000:07:00.0`, as NVML writes it.
pub(super) fn bus_id(index: usize, gpu: &Gpu) -> String {
    format!("{:08X}:{:02X}:00.0", 0, bus(index, gpu))
}

fn bus(index: usize, gpu: &Gpu) -> u32 {
    gpu.bus.unwrap_or(index as u32 + 7)
}

fn pci(seat: &Seat<'_>) -> nvmlPciInfo_t {
    let id = bus_id(seat.index, seat.gpu);
    nvmlPciInfo_t {
        busIdLegacy: chars(&id[4..]),
        domain: 0,
        bus: bus(seat.index, seat.gpu),
        device: 0,
        pciDeviceId: 0x20b2_10de,
        pciSubSystemId: 0x1463_10de,
        busId: chars(&id),
    }
}

/// Total, reserved and used bytes; used is without what is reserved, as in version 2.
fn memory(seat: &Seat<'_>) -> Answer<(u64, u64, u64)> {
    if let Some((_, mig)) = seat.mig {
        return Ok((mig.mem_total_mib * MIB, 0, mig.mem_used_mib * MIB));
    }
    let total = offered(seat.gpu.mem_total_mib)?;
    let used = seat.gpu.mem_used_mib.unwrap_or(0);
    Ok((total * MIB, seat.gpu.mem_reserved_mib * MIB, used * MIB))
}

/// Version 1 counts what is reserved as used.
fn memory_v1(seat: &Seat<'_>) -> Answer<nvmlMemory_t> {
    let (total, reserved, used) = memory(seat)?;
    let used = used + reserved;
    Ok(nvmlMemory_t { total, free: total.saturating_sub(used), used })
}

fn memory_v2(seat: &Seat<'_>) -> Answer<nvmlMemory_v2_t> {
    let (total, reserved, used) = memory(seat)?;
    let free = total.saturating_sub(used + reserved);
    Ok(nvmlMemory_v2_t { version: MEMORY_V2, total, reserved, free, used })
}

const MEMORY_V2: u32 = size_of::<nvmlMemory_v2_t>() as u32 | 2 << 24;

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMemoryInfo_v2(
    device: nvmlDevice_t,
    out: *mut nvmlMemory_v2_t,
) -> nvmlReturn_t {
    // SAFETY: by NVML's contract a pointer that is not null points to the struct.
    if !out.is_null() && unsafe { (*out).version } != MEMORY_V2 {
        return INVALID_ARGUMENT;
    }
    let answer = super::on_device("nvmlDeviceGetMemoryInfo_v2", device, |seat| memory_v2(&seat));
    // SAFETY: as above.
    unsafe { super::put(out, answer) }
}

fn clock(seat: &Seat<'_>, kind: u32, sm: Option<u32>, mem: Option<u32>) -> Answer<u32> {
    seat.mig.is_none().then_some(()).ok_or(NOT_SUPPORTED)?;
    match kind {
        CLOCK_MEM => offered(mem),
        0 | 1 => offered(sm),
        CLOCK_VIDEO => offered(sm.map(|mhz| mhz / 15 * 13)),
        _ => Err(INVALID_ARGUMENT),
    }
}

fn ecc(gpu: &Gpu, kind: u32) -> Answer<u64> {
    match kind {
        0 => offered(gpu.ecc_corrected),
        1 => offered(gpu.ecc_uncorrected),
        _ => Err(INVALID_ARGUMENT),
    }
}

fn threshold(gpu: &Gpu, kind: u32) -> Answer<u32> {
    let slowdown = offered(gpu.temp_slowdown)?;
    match kind {
        0 => Ok(slowdown + 3),
        1 => Ok(slowdown),
        3 => Ok(slowdown - 7),
        _ => Err(NOT_SUPPORTED),
    }
}

/// Refuses an instance, which has no board of its own.
fn board<T>(seat: &Seat<'_>, reading: Option<T>) -> Answer<T> {
    if seat.mig.is_some() { Err(NOT_SUPPORTED) } else { offered(reading) }
}

text_getters! {
    nvmlDeviceGetName = |seat| Ok(seat.mig.map_or(&seat.gpu.name, |(_, mig)| &mig.name).clone());
    nvmlDeviceGetUUID = |seat| Ok(match seat.mig {
        Some((position, mig)) => mig_uuid(seat.index, position, mig),
        None => gpu_uuid(seat.index, seat.gpu),
    });
    nvmlDeviceGetSerial = |seat| Ok(format!("132052100{:04}", seat.index));
    nvmlDeviceGetVbiosVersion = |_seat| Ok("92.00.45.00.03".into());
    nvmlDeviceGetBoardPartNumber = |_seat| Ok("692-2G506-0200-003".into());
}

getters! {
    nvmlDeviceGetIndex() -> u32 = |seat| Ok(seat.mig.map_or(seat.index, |(position, _)| position) as u32);
    nvmlDeviceGetMinorNumber() -> u32 = |seat| board(&seat, Some(seat.gpu.minor.unwrap_or(seat.index as u32)));
    nvmlDeviceGetPciInfo() -> nvmlPciInfo_t = |seat| Ok(pci(&seat));
    nvmlDeviceGetPciInfo_v2() -> nvmlPciInfo_t = |seat| Ok(pci(&seat));
    nvmlDeviceGetPciInfo_v3() -> nvmlPciInfo_t = |seat| Ok(pci(&seat));
    nvmlDeviceGetUtilizationRates() -> nvmlUtilization_t = |seat| {
        let gpu = seat.whole()?;
        Ok(nvmlUtilization_t { gpu: offered(gpu.util)?, memory: gpu.mem_util.unwrap_or(0) })
    };
    nvmlDeviceGetMemoryInfo() -> nvmlMemory_t = |seat| memory_v1(&seat);
    nvmlDeviceGetBAR1MemoryInfo() -> nvmlBAR1Memory_t = |_seat| {
        Ok(nvmlBAR1Memory_t { bar1Total: 128 << 30, bar1Free: (128 << 30) - (4 << 20), bar1Used: 4 << 20 })
    };
    nvmlDeviceGetTemperature(_sensor: u32) -> u32 = |seat| board(&seat, seat.gpu.temp);
    nvmlDeviceGetTemperatureThreshold(kind: u32) -> u32 = |seat| threshold(seat.gpu, kind);
    nvmlDeviceGetPowerUsage() -> u32 = |seat| board(&seat, seat.gpu.power_mw);
    nvmlDeviceGetEnforcedPowerLimit() -> u32 = |seat| board(&seat, seat.gpu.power_limit_mw);
    nvmlDeviceGetPowerManagementLimit() -> u32 = |seat| board(&seat, seat.gpu.power_limit_mw);
    nvmlDeviceGetPowerManagementDefaultLimit() -> u32 = |seat| board(&seat, seat.gpu.power_limit_mw);
    nvmlDeviceGetClockInfo(kind: u32) -> u32 = |seat| clock(&seat, kind, seat.gpu.sm_clock, seat.gpu.mem_clock);
    nvmlDeviceGetMaxClockInfo(kind: u32) -> u32 =
        |seat| clock(&seat, kind, seat.gpu.sm_clock_max, seat.gpu.mem_clock_max);
    nvmlDeviceGetCurrentClocksThrottleReasons() -> u64 = |seat| board(&seat, seat.gpu.throttle);
    nvmlDeviceGetCurrentClocksEventReasons() -> u64 = |seat| board(&seat, seat.gpu.throttle);
    nvmlDeviceGetTotalEccErrors(kind: u32, _counter: u32) -> u64 = |seat| ecc(seat.gpu, kind);
    nvmlDeviceGetPerformanceState() -> u32 = |seat| board(&seat, seat.gpu.p_state);
    nvmlDeviceGetFanSpeed() -> u32 = |seat| board(&seat, seat.gpu.fan);
    nvmlDeviceGetFanSpeed_v2(_fan: u32) -> u32 = |seat| board(&seat, seat.gpu.fan);
    nvmlDeviceGetNumFans() -> u32 = |seat| board(&seat, Some(u32::from(seat.gpu.fan.is_some())));
    nvmlDeviceGetComputeMode() -> u32 = |_seat| Ok(0);
    nvmlDeviceGetPersistenceMode() -> u32 = |_seat| Ok(1);
    nvmlDeviceGetDisplayMode() -> u32 = |_seat| Ok(0);
    nvmlDeviceGetDisplayActive() -> u32 = |_seat| Ok(0);
    nvmlDeviceGetBrand() -> u32 = |_seat| Ok(2);
    nvmlDeviceGetArchitecture() -> u32 = |_seat| Ok(7);
    nvmlDeviceGetCurrPcieLinkGeneration() -> u32 = |_seat| Ok(4);
    nvmlDeviceGetCurrPcieLinkWidth() -> u32 = |_seat| Ok(16);
    nvmlDeviceGetMaxPcieLinkGeneration() -> u32 = |_seat| Ok(4);
    nvmlDeviceGetMaxPcieLinkWidth() -> u32 = |_seat| Ok(16);
    nvmlDeviceGetPcieThroughput(_counter: u32) -> u32 = |seat| seat.whole().map(|_| 1_250);
    nvmlDeviceGetTotalEnergyConsumption() -> u64 = |seat| board(&seat, Some(1_234_567_890));
    nvmlDeviceGetNumGpuCores() -> u32 = |_seat| Ok(6_912);
}

/// Defines getters of two numbers at once.
macro_rules! pairs {
    ($($symbol:ident = |$seat:ident| $answer:expr;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $symbol(device: nvmlDevice_t, first: *mut u32, second: *mut u32) -> nvmlReturn_t {
            let answer = super::on_device(stringify!($symbol), device, |$seat| $answer);
            // SAFETY: by NVML's contract both are null or point to results.
            unsafe { super::put_pair(first, second, answer) }
        }
    )*};
}

pairs! {
    nvmlDeviceGetCudaComputeCapability = |_seat| Ok((8, 0));
    nvmlDeviceGetEccMode = |seat| offered(seat.gpu.ecc_corrected).map(|_| (1, 1));
    nvmlDeviceGetEncoderUtilization = |seat| seat.whole().map(|_| (0, 167_000));
    nvmlDeviceGetDecoderUtilization = |seat| seat.whole().map(|_| (0, 167_000));
    nvmlDeviceGetPowerManagementLimitConstraints = |seat| board(&seat, seat.gpu.power_limit_mw).map(|most| (100_000, most));
    nvmlDeviceGetMigMode = |seat| {
        let on = u32::from(!seat.gpu.mig.is_empty());
        board(&seat, Some((on, on)))
    };
}
