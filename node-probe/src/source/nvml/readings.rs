//! What changes of a GPU, each reading asked by itself, so that one that fails takes no other with it.

use super::{device::Seat, legacy, word};
use nodeglass_protocol::Reading;
use nodeglass_protocol::probe::GpuSample;
use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::{
    Clock, EccCounter, MemoryError, PerformanceState, TemperatureSensor,
};
use nvml_wrapper::error::NvmlError;

/// The readings of one row of the inventory, or the fault of the whole GPU.
pub fn of(seat: &Seat<'_>) -> GpuSample {
    let device = match &seat.device {
        Ok(device) => device,
        Err(why) => return GpuSample { fault: Some(why.clone()), ..GpuSample::default() },
    };
    // Any call says that a GPU is lost; the first one spares the others.
    let rates = device.utilization_rates();
    if let Some(fault) = rates.as_ref().err().and_then(word::fault) {
        return GpuSample { fault: Some(fault), ..GpuSample::default() };
    }
    let mut sample = asked(device);
    let rates = word::reading(rates);
    sample.util_pct = rates.clone().map(|rates| rates.gpu.into());
    sample.mem_util_pct = rates.map(|rates| rates.memory.into());
    memory(device, &mut sample);
    if seat.mig.is_some() { of_instance(sample) } else { sample }
}

fn asked(device: &Device<'_>) -> GpuSample {
    let ecc = |kind| word::number(device.total_ecc_errors(kind, EccCounter::Volatile));
    GpuSample {
        temp_c: word::number(device.temperature(TemperatureSensor::Gpu)),
        power_mw: word::number(device.power_usage()),
        power_limit_mw: word::number(device.enforced_power_limit()),
        sm_clock_mhz: word::number(device.clock_info(Clock::SM)),
        mem_clock_mhz: word::number(device.clock_info(Clock::Memory)),
        throttle_reasons: word::number(device.current_throttle_reasons().map(|reasons| reasons.bits())),
        ecc_uncorrected: ecc(MemoryError::Uncorrected),
        ecc_corrected: ecc(MemoryError::Corrected),
        p_state: p_state(device.performance_state()),
        fan_pct: word::number(fan(device)),
        ..GpuSample::default()
    }
}

fn p_state(result: Result<PerformanceState, NvmlError>) -> Reading<u64> {
    match word::reading(result.map(|state| state.as_c())) {
        // NVML's "unknown" is 32.
        Reading::Value(number) if number > 15 => Reading::Unsupported,
        reading => reading.map(u64::from),
    }
}

/// Fan 0; drivers before 450 know only one fan.
fn fan(device: &Device<'_>) -> Result<u32, NvmlError> {
    match device.fan_speed(0) {
        Err(NvmlError::FailedToLoadSymbol(_)) => legacy::fan_speed(device),
        // A card without fans may say that there is no fan 0.
        Err(NvmlError::InvalidArg) => Err(NvmlError::NotSupported),
        result => result,
    }
}

/// Drivers before 510 have no version 2, and count what is reserved as used.
fn memory(device: &Device<'_>, sample: &mut GpuSample) {
    match device.memory_info() {
        Err(NvmlError::FailedToLoadSymbol(_)) => {
            let memory = word::reading(legacy::memory(device));
            sample.mem_used_bytes = memory.clone().map(|memory| memory.used);
            sample.mem_total_bytes = memory.map(|memory| memory.total);
            sample.mem_reserved_bytes = Reading::Unsupported;
        }
        result => {
            let memory = word::reading(result);
            sample.mem_used_bytes = memory.clone().map(|memory| memory.used);
            sample.mem_total_bytes = memory.clone().map(|memory| memory.total);
            sample.mem_reserved_bytes = memory.map(|memory| memory.reserved);
        }
    }
}

/// Of what belongs to the board, NVML says "invalid argument" for an instance on some drivers.
fn of_instance(mut sample: GpuSample) -> GpuSample {
    let invalid = word::of(&NvmlError::InvalidArg);
    let readings = [
        &mut sample.util_pct,
        &mut sample.mem_util_pct,
        &mut sample.temp_c,
        &mut sample.power_mw,
        &mut sample.power_limit_mw,
        &mut sample.sm_clock_mhz,
        &mut sample.mem_clock_mhz,
        &mut sample.throttle_reasons,
        &mut sample.ecc_uncorrected,
        &mut sample.ecc_corrected,
        &mut sample.p_state,
        &mut sample.fan_pct,
    ];
    for reading in readings {
        if matches!(reading, Reading::Failed(why) if *why == invalid) {
            *reading = Reading::Unsupported;
        }
    }
    sample
}
