//! Changing readings of a GPU; each is queried individually, so that failures are independent.

use super::device::{DeviceHandle, HandleError};
use super::fields::{self, Conversion, FIELD_READINGS, FIELDS, FieldQuery};
use super::gpm::Metrics;
use super::pcie::{Measure, PerDirection};
use super::query_cache::{Query, QueryCache};
use super::{REPORTER, device_state::DeviceState, error, facts, ffi, ffi_compat, processes};
use crate::source::plausible;
use crate::{clock, host};
use nodeglass_protocol::Reading;
use nodeglass_protocol::probe::GpuSample;
use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::{Clock, ClockId, EccCounter, MemoryError, TemperatureSensor};
use nvml_wrapper::error::NvmlError;

/// Context for reading an inventory entry.
pub struct ReadContext<'a, 'nvml> {
    /// The GPU of an instance, or the GPU itself.
    pub gpu: Option<&'a Device<'nvml>>,
    /// Whether PCIe may be measured in this cycle, which takes 40 ms.
    pub measure_pcie: Measure,
}

/// Reads one inventory entry, or returns the fault of the GPU as a whole.
pub fn of<'nvml>(
    handle: &DeviceHandle<'nvml>,
    device_state: &mut DeviceState<'nvml>,
    context: &ReadContext<'_, 'nvml>,
) -> GpuSample {
    device_state.queries.begin(None);
    let device = match &handle.device {
        Ok(device) => device,
        Err(HandleError::Faulty(why) | HandleError::Avoided(why)) => {
            return GpuSample { fault: Some(why.clone()), ..GpuSample::default() };
        }
        Err(HandleError::Forbidden) => return forbidden(),
    };
    let mut sample = query_all(device, &mut device_state.queries);
    memory(handle, device, &mut device_state.queries, &mut sample);
    let counted = counted(device, device_state, &mut sample);
    // Any query detects a lost GPU, and the remaining ones are skipped.
    if let Some(fault) = device_state.queries.fault() {
        device_state.pcie.forget();
        return GpuSample { fault: Some(fault.clone()), ..GpuSample::default() };
    }
    let instance = handle.mig.as_ref().and_then(|mig| mig.ids).map(|(gpu_instance, _)| gpu_instance);
    let mut over_pcie = PerDirection { tx: Reading::Unsupported, rx: Reading::Unsupported };
    if let Some(on) = context.gpu {
        device_state.queries.begin_next_call();
        over_pcie = monitored(&mut sample, device_state.gpm.look(on.nvml(), on, instance, &handle.calls));
    }
    let rates = pcie(over_pcie, counted, handle, device_state, context.measure_pcie);
    (sample.pcie_tx_bytes_s, sample.pcie_rx_bytes_s) = (rates.tx, rates.rx);
    plausible::sample(&mut sample, REPORTER);
    device_state.limits.check(&mut sample, REPORTER);
    device_state.mem_total_bytes = sample.mem_total_bytes.value().copied();
    sample
}

/// Readings of a GPU that this user has no access to.
fn forbidden() -> GpuSample {
    let mut sample = GpuSample::default();
    sample.readings_mut().for_each(|reading| *reading = Reading::Failed(error::FORBIDDEN.into()));
    sample
}

fn query_all(device: &Device<'_>, queries: &mut QueryCache) -> GpuSample {
    let rates = queries.query(Query::Utilization, || device.utilization_rates());
    let mut clock = |query, kind| {
        let of_now = || device.clock(kind, ClockId::Current);
        queries.number(query, || error::first_offered(device.clock_info(kind), of_now))
    };
    let (sm, mem) = (clock(Query::SmClock, Clock::SM), clock(Query::MemClock, Clock::Memory));
    let (graphics, video) =
        (clock(Query::GraphicsClock, Clock::Graphics), clock(Query::VideoClock, Clock::Video));
    let mut ecc = |query, kind| queries.number(query, || device.total_ecc_errors(kind, EccCounter::Volatile));
    GpuSample {
        util_pct: rates.clone().map(|rates| rates.gpu.into()),
        mem_util_pct: rates.map(|rates| rates.memory.into()),
        sm_clock_mhz: sm,
        mem_clock_mhz: mem,
        graphics_clock_mhz: graphics,
        video_clock_mhz: video,
        ecc_uncorrected: ecc(Query::EccUncorrected, MemoryError::Uncorrected),
        ecc_corrected: ecc(Query::EccCorrected, MemoryError::Corrected),
        temp_c: temperature(device, queries),
        power_mw: queries.number(Query::Power, || device.power_usage()),
        power_limit_mw: queries.number(Query::PowerLimit, || {
            error::first_offered(device.enforced_power_limit(), || device.power_management_limit())
        }),
        energy_mj: queries.number(Query::Energy, || {
            error::first_offered(device.total_energy_consumption(), || fields::single(device, fields::ENERGY))
        }),
        throttle_reasons: queries.number(Query::Throttle, || throttle_reasons(device)),
        p_state: queries.number(Query::PState, || ffi::performance_state(device)),
        fan_pct: fastest_fan(device, queries),
        enc_pct: queries.number(Query::Encoder, || device.encoder_utilization().map(|info| info.utilization)),
        dec_pct: queries.number(Query::Decoder, || device.decoder_utilization().map(|info| info.utilization)),
        jpg_pct: queries.number(Query::Jpg, || ffi::jpg_utilization(device)),
        ofa_pct: queries.number(Query::Ofa, || ffi::ofa_utilization(device)),
        // NVML has neither hotspot nor host memory, and states the speed of fans in %.
        hotspot_temp_c: Reading::Unsupported,
        host_mem_used_bytes: Reading::Unsupported,
        fan_rpm: Reading::Unsupported,
        ..GpuSample::default()
    }
}

/// Uses the old symbol, which current drivers still have, or else the new one.
fn throttle_reasons(device: &Device<'_>) -> Result<u64, NvmlError> {
    let by_old_name = device.current_throttle_reasons().map(|reasons| reasons.bits());
    error::first_offered(by_old_name, || ffi::clocks_event_reasons(device))
}

/// Temperature in °C from the call that supports negative values, or from the older one, which
/// returns them as unsigned numbers. Negative values are implausible, and the message contains
/// them.
fn temperature(device: &Device<'_>, queries: &mut QueryCache) -> Reading<u64> {
    let bits = |celsius: i32| u64::from(celsius.cast_unsigned());
    match queries.query(Query::Temperature, || ffi::temperature(device)) {
        Reading::Unsupported => {
            queries.number(Query::TemperatureUnsigned, || device.temperature(TemperatureSensor::Gpu))
        }
        reading => reading.map(bits),
    }
}

/// Speed of the fastest fan; drivers before 450 support only one.
fn fastest_fan(device: &Device<'_>, queries: &mut QueryCache) -> Reading<u64> {
    let count = match queries.query(Query::FanCount, || device.num_fans()) {
        Reading::Value(0) => return Reading::Unsupported,
        // A driver that cannot count fans has one or reports none.
        Reading::Unsupported => 1,
        reading @ (Reading::Failed(_) | Reading::NotYet) => return reading.map(u64::from),
        Reading::Value(count) if count > plausible::MAX_FANS => {
            return Reading::Failed(format!("NVML reported {count} fans").into());
        }
        Reading::Value(count) => count,
    };
    let speeds = || (0..count).map(|fan| fan_speed(device, fan)).reduce(|a, b| Ok(a?.max(b?)));
    queries.number(Query::Fan, || speeds().unwrap_or(Err(NvmlError::NotSupported)))
}

fn fan_speed(device: &Device<'_>, fan: u32) -> Result<u32, NvmlError> {
    match device.fan_speed(fan) {
        // A GPU without fans may report an invalid fan index.
        Err(NvmlError::InvalidArg) => Err(NvmlError::NotSupported),
        result => error::first_offered(result, || ffi_compat::fan_speed(device)),
    }
}

/// Drivers before 510 lack version 2 and count reserved memory as used. An integrated GPU supports
/// neither and uses the host's memory, so the usage is the sum over its processes.
fn memory(handle: &DeviceHandle<'_>, device: &Device<'_>, queries: &mut QueryCache, sample: &mut GpuSample) {
    let v2 = queries.query(Query::MemoryV2, || device.memory_info());
    // A driver that supported version 2 before keeps being queried for it, to avoid mixing
    // definitions.
    if !matches!(v2, Reading::Unsupported) || queries.offers(Query::MemoryV2) {
        sample.mem_used_bytes = v2.clone().map(|memory| memory.used);
        sample.mem_total_bytes = v2.clone().map(|memory| memory.total);
        sample.mem_reserved_bytes = v2.map(|memory| memory.reserved);
        return;
    }
    sample.mem_reserved_bytes = Reading::Unsupported;
    let v1 = queries.query(Query::MemoryV1, || ffi_compat::memory(device));
    if matches!(v1, Reading::Unsupported) && handle.mig.is_none() && facts::is_integrated(device) {
        sample.mem_used_bytes = processes::memory_of_all(handle);
        sample.mem_total_bytes = match host::mem_total_bytes() {
            0 => Reading::Failed("no MemTotal".into()),
            bytes => Reading::Value(bytes),
        };
        return;
    }
    sample.mem_used_bytes = v1.clone().map(|memory| memory.used);
    sample.mem_total_bytes = v1.map(|memory| memory.total);
}

/// ns per second in 1 % of the time.
const NS_PER_PERCENT: u64 = 10_000_000;
/// Share of time, in %, that differing clocks of driver and probe explain; more is implausible.
const MAX_SHARE: u64 = 110;

/// Reads all field values; returns the PCIe byte counters and their time.
fn counted(
    device: &Device<'_>,
    device_state: &mut DeviceState<'_>,
    sample: &mut GpuSample,
) -> (PerDirection<Reading<u64>>, u64) {
    let mut request: [FieldQuery; FIELD_READINGS] =
        std::array::from_fn(|index| FieldQuery::new(FIELDS[index].id, FIELDS[index].scope));
    let mut requested = 0;
    for (index, field) in FIELDS.iter().enumerate() {
        if device_state.queries.offers(Query::field(index)) {
            request[requested] = FieldQuery::new(field.id, field.scope);
            requested += 1;
        }
    }
    device_state.queries.begin_next_call();
    let whole = if device_state.queries.fault().is_none() {
        fields::query(device, &mut request[..requested])
    } else {
        Ok(())
    };
    let whole = whole.err().map(error::code);
    let mono_ns = clock::mono_ns();
    let mut answers = request[..requested].iter();
    for (index, field) in FIELDS.iter().enumerate() {
        let answer = if device_state.queries.offers(Query::field(index)) { answers.next() } else { None };
        let value = device_state.queries.query(Query::field(index), || match (&whole, answer) {
            (Some(code), _) => Err(NvmlError::from(*code)),
            (None, Some(field)) => field.answer(),
            (None, None) => Err(NvmlError::NotSupported),
        });
        let mut rate = |value| device_state.field_rates[index].rate(value, mono_ns);
        *(field.reading)(sample) = match field.conversion {
            Conversion::Value | Conversion::Pcie => value,
            Conversion::Rate(factor) => rate(value).map(|rate| rate.saturating_mul(factor)),
            Conversion::ShareOfTime => rate(value).map(share_of_time),
        };
    }
    // Drivers may state the power of this moment only.
    if let (Reading::Unsupported, instant @ Reading::Value(_)) = (&sample.power_mw, &sample.power_instant_mw)
    {
        sample.power_mw = instant.clone();
    }
    let [tx, rx] = [&mut sample.pcie_tx_bytes_s, &mut sample.pcie_rx_bytes_s].map(std::mem::take);
    (PerDirection { tx, rx }, mono_ns)
}

/// Converts ns per second to % of the time.
fn share_of_time(ns_per_s: u64) -> u64 {
    match (ns_per_s + NS_PER_PERCENT / 2) / NS_PER_PERCENT {
        100..=MAX_SHARE => 100,
        share => share,
    }
}

/// Selects between GPM, the counters and a measurement; see [`super::pcie`]. An instance has only
/// GPM.
fn pcie(
    monitored: PerDirection<Reading<u64>>,
    counted: (PerDirection<Reading<u64>>, u64),
    handle: &DeviceHandle<'_>,
    device_state: &mut DeviceState<'_>,
    measure: Measure,
) -> PerDirection<Reading<u64>> {
    let by_counter = device_state.pcie.count(counted);
    match (&monitored.tx, &monitored.rx, &handle.device) {
        (Reading::Value(_), Reading::Value(_), _) => {
            device_state.pcie.forget();
            monitored
        }
        (Reading::Value(_) | Reading::NotYet, Reading::Value(_) | Reading::NotYet, _) => {
            device_state.pcie.forget();
            let either = |monitored: Reading<u64>, counter: Option<Reading<u64>>| match (&monitored, counter)
            {
                (Reading::NotYet, Some(counter @ Reading::Value(_))) => counter,
                _ => monitored,
            };
            PerDirection { tx: either(monitored.tx, by_counter.tx), rx: either(monitored.rx, by_counter.rx) }
        }
        (.., Ok(device)) if handle.mig.is_none() => {
            device_state.pcie.rates(by_counter, device, &mut device_state.queries, measure)
        }
        _ => PerDirection { tx: Reading::Unsupported, rx: Reading::Unsupported },
    }
}

/// Stores the GPM metrics, and returns the PCIe rates.
fn monitored(sample: &mut GpuSample, metrics: Metrics) -> PerDirection<Reading<u64>> {
    metrics.fill(sample);
    let [tx, rx] = [&mut sample.pcie_tx_bytes_s, &mut sample.pcie_rx_bytes_s].map(std::mem::take);
    PerDirection { tx, rx }
}
