//! What changes of a GPU, each reading asked by itself, so that one that fails takes no other with it.

use super::asker::{Ask, Asker};
use super::device::{NoHandle, Seat};
use super::fields::{self, Field};
use super::gpm::{Metric, Metrics};
use super::pcie::{Both, Measure};
use super::{beyond, facts, legacy, lists, past::Past, plausible, word};
use crate::{clock, host};
use nodeglass_protocol::Reading;
use nodeglass_protocol::probe::GpuSample;
use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::{Clock, EccCounter, MemoryError, TemperatureSensor};
use nvml_wrapper::error::NvmlError;

/// Bytes in a KiB, the unit of NVLink's counters.
const KIB: u64 = 1_024;

/// What there is to read a row of the inventory with, beside itself.
pub struct Means<'a, 'nvml> {
    /// The GPU that an instance is on, or the GPU itself.
    pub gpu: Option<&'a Device<'nvml>>,
    /// Whether its PCIe may be measured at this look, which takes 40 ms.
    pub measure_pcie: Measure,
}

/// The readings of one row of the inventory, or the fault of the whole GPU.
pub fn of<'nvml>(seat: &Seat<'nvml>, past: &mut Past<'nvml>, means: &Means<'_, 'nvml>) -> GpuSample {
    past.asker.begin(None);
    let device = match &seat.device {
        Ok(device) => device,
        Err(NoHandle::Faulty(why) | NoHandle::Avoided(why)) => {
            return GpuSample { fault: Some(why.clone()), ..GpuSample::default() };
        }
        Err(NoHandle::Forbidden) => return forbidden(),
    };
    let mut sample = asked(device, &mut past.asker);
    memory(seat, device, &mut past.asker, &mut sample);
    let counted = counted(device, past, &mut sample);
    // Any call says that a GPU is lost; the first one that did spared the others.
    if let Some(fault) = past.asker.fault() {
        past.pcie.forget();
        return GpuSample { fault: Some(fault.clone()), ..GpuSample::default() };
    }
    let instance = seat.mig.as_ref().and_then(|mig| mig.ids).map(|(gpu_instance, _)| gpu_instance);
    let mut over_pcie = Both { tx: Reading::Unsupported, rx: Reading::Unsupported };
    if let Some(on) = means.gpu {
        over_pcie = monitored(&mut sample, past.gpm.look(on.nvml(), on, instance));
    }
    let rates = pcie(over_pcie, counted, seat, past, means.measure_pcie);
    (sample.pcie_tx_bytes_s, sample.pcie_rx_bytes_s) = (rates.tx, rates.rx);
    plausible::sample(&mut sample);
    past.mem_total_bytes = sample.mem_total_bytes.value().copied();
    sample
}

/// A GPU of somebody else: it is there, and nothing of it may be read.
fn forbidden() -> GpuSample {
    let mut sample = GpuSample::default();
    sample.readings_mut().for_each(|reading| *reading = Reading::Failed(word::FORBIDDEN.into()));
    sample
}

fn asked(device: &Device<'_>, asker: &mut Asker) -> GpuSample {
    let rates = asker.ask(Ask::Utilization, || device.utilization_rates());
    let mut clock = |ask, clock| asker.number(ask, || device.clock_info(clock));
    let (sm, mem) = (clock(Ask::SmClock, Clock::SM), clock(Ask::MemClock, Clock::Memory));
    let (graphics, video) =
        (clock(Ask::GraphicsClock, Clock::Graphics), clock(Ask::VideoClock, Clock::Video));
    let mut ecc = |ask, kind| asker.number(ask, || device.total_ecc_errors(kind, EccCounter::Volatile));
    GpuSample {
        util_pct: rates.clone().map(|rates| rates.gpu.into()),
        mem_util_pct: rates.map(|rates| rates.memory.into()),
        sm_clock_mhz: sm,
        mem_clock_mhz: mem,
        graphics_clock_mhz: graphics,
        video_clock_mhz: video,
        ecc_uncorrected: ecc(Ask::EccUncorrected, MemoryError::Uncorrected),
        ecc_corrected: ecc(Ask::EccCorrected, MemoryError::Corrected),
        temp_c: temperature(device, asker),
        power_mw: asker.number(Ask::Power, || device.power_usage()),
        power_limit_mw: asker.number(Ask::PowerLimit, || device.enforced_power_limit()),
        energy_mj: asker.number(Ask::Energy, || device.total_energy_consumption()),
        throttle_reasons: asker.number(Ask::Throttle, || throttle_reasons(device)),
        p_state: asker.number(Ask::PState, || beyond::performance_state(device)),
        fan_pct: fastest_fan(device, asker),
        enc_pct: asker.number(Ask::Encoder, || device.encoder_utilization().map(|info| info.utilization)),
        dec_pct: asker.number(Ask::Decoder, || device.decoder_utilization().map(|info| info.utilization)),
        jpg_pct: asker.number(Ask::Jpg, || beyond::jpg_utilization(device)),
        ofa_pct: asker.number(Ask::Ofa, || beyond::ofa_utilization(device)),
        ..GpuSample::default()
    }
}

/// By the old name, which drivers of today still have; the new one if it is gone.
fn throttle_reasons(device: &Device<'_>) -> Result<u64, NvmlError> {
    match device.current_throttle_reasons() {
        Err(NvmlError::FailedToLoadSymbol(_)) => beyond::clocks_event_reasons(device),
        result => result.map(|reasons| reasons.bits()),
    }
}

/// In °C by the call that knows temperatures below zero, or by the older one, which hands them on as
/// numbers without a sign. What is below zero is no plausible value, and the message names it.
fn temperature(device: &Device<'_>, asker: &mut Asker) -> Reading<u64> {
    let bits = |celsius: i32| u64::from(celsius.cast_unsigned());
    match asker.ask(Ask::Temperature, || beyond::temperature(device)) {
        Reading::Unsupported => {
            asker.number(Ask::TemperatureUnsigned, || device.temperature(TemperatureSensor::Gpu))
        }
        reading => reading.map(bits),
    }
}

/// The fan that turns fastest; drivers before 450 know only one.
fn fastest_fan(device: &Device<'_>, asker: &mut Asker) -> Reading<u64> {
    let count = match asker.ask(Ask::FanCount, || device.num_fans()) {
        Reading::Value(0) => return Reading::Unsupported,
        // A driver that cannot count them has a first one, or says that it has none.
        Reading::Unsupported => 1,
        reading @ (Reading::Failed(_) | Reading::NotYet) => return reading.map(u64::from),
        Reading::Value(count) if count > plausible::MOST_FANS => {
            return Reading::Failed(format!("NVML reported {count} fans").into());
        }
        Reading::Value(count) => count,
    };
    let speeds = || (0..count).map(|fan| fan_speed(device, fan)).reduce(|a, b| Ok(a?.max(b?)));
    asker.number(Ask::Fan, || speeds().unwrap_or(Err(NvmlError::NotSupported)))
}

fn fan_speed(device: &Device<'_>, fan: u32) -> Result<u32, NvmlError> {
    match device.fan_speed(fan) {
        Err(NvmlError::FailedToLoadSymbol(_)) => legacy::fan_speed(device),
        // A card without fans may say that there is no such fan.
        Err(NvmlError::InvalidArg) => Err(NvmlError::NotSupported),
        result => result,
    }
}

/// Drivers before 510 have no version 2, and count what is reserved as used. An integrated GPU has neither and
/// uses the host's memory: what is used of it is what its processes use.
fn memory(seat: &Seat<'_>, device: &Device<'_>, asker: &mut Asker, sample: &mut GpuSample) {
    let v2 = asker.ask(Ask::MemoryV2, || device.memory_info());
    // A driver that offered version 2 a moment ago is asked for it again, not for other numbers.
    if !matches!(v2, Reading::Unsupported) || asker.offers(Ask::MemoryV2) {
        sample.mem_used_bytes = v2.clone().map(|memory| memory.used);
        sample.mem_total_bytes = v2.clone().map(|memory| memory.total);
        sample.mem_reserved_bytes = v2.map(|memory| memory.reserved);
        return;
    }
    sample.mem_reserved_bytes = Reading::Unsupported;
    let v1 = asker.ask(Ask::MemoryV1, || legacy::memory(device));
    if matches!(v1, Reading::Unsupported) && seat.mig.is_none() && facts::is_integrated(device) {
        sample.mem_used_bytes = lists::memory_of_all(seat);
        sample.mem_total_bytes = match host::mem_total_bytes() {
            0 => Reading::Failed("no MemTotal".into()),
            bytes => Reading::Value(bytes),
        };
        return;
    }
    sample.mem_used_bytes = v1.clone().map(|memory| memory.used);
    sample.mem_total_bytes = v1.map(|memory| memory.total);
}

/// The fields of a sample: all that the card offers of them in one call.
const FIELDS: [(Ask, u32, u32); 6] = [
    (Ask::MemTemperature, fields::MEM_TEMPERATURE, 0),
    (Ask::PowerInstant, fields::POWER_INSTANT, 0),
    (Ask::PcieTx, fields::PCIE_TX_BYTES, 0),
    (Ask::PcieRx, fields::PCIE_RX_BYTES, 0),
    (Ask::NvLinkTx, fields::NVLINK_TX_KIB, fields::ALL_LINKS),
    (Ask::NvLinkRx, fields::NVLINK_RX_KIB, fields::ALL_LINKS),
];

/// Returns what the PCIe counters say, in bytes, and when.
fn counted(device: &Device<'_>, past: &mut Past<'_>, sample: &mut GpuSample) -> (Both<Reading<u64>>, u64) {
    let mut request = FIELDS.map(|(_, id, scope)| Field::new(id, scope));
    let mut asked = 0;
    for (ask, id, scope) in FIELDS {
        if past.asker.offers(ask) {
            request[asked] = Field::new(id, scope);
            asked += 1;
        }
    }
    let whole =
        if past.asker.fault().is_none() { fields::ask(device, &mut request[..asked]) } else { Ok(()) };
    let whole = whole.err().map(word::code);
    let mono_ns = clock::mono_ns();
    let mut answers = request[..asked].iter();
    let [mem_temp, instant, pcie_tx, pcie_rx, nvlink_tx, nvlink_rx] = FIELDS.map(|(ask, ..)| {
        let answer = if past.asker.offers(ask) { answers.next() } else { None };
        past.asker.ask(ask, || match (&whole, answer) {
            (Some(code), _) => Err(NvmlError::from(*code)),
            (None, Some(field)) => field.answer(),
            (None, None) => Err(NvmlError::NotSupported),
        })
    });
    let bytes = |kib: u64| kib.saturating_mul(KIB);
    sample.mem_temp_c = mem_temp;
    sample.power_instant_mw = instant;
    sample.nvlink_tx_bytes_s = past.nvlink_tx.rate(nvlink_tx, mono_ns).map(bytes);
    sample.nvlink_rx_bytes_s = past.nvlink_rx.rate(nvlink_rx, mono_ns).map(bytes);
    (Both { tx: pcie_tx, rx: pcie_rx }, mono_ns)
}

/// Chooses among the monitor, the counters and a measurement; see [`super::pcie`]. Of an instance, only the
/// monitor tells what goes over PCIe.
fn pcie(
    monitored: Both<Reading<u64>>,
    counted: (Both<Reading<u64>>, u64),
    seat: &Seat<'_>,
    past: &mut Past<'_>,
    measure: Measure,
) -> Both<Reading<u64>> {
    let by_counter = past.pcie.count(counted);
    match (&monitored.tx, &monitored.rx, &seat.device) {
        (Reading::Value(_), Reading::Value(_), _) => {
            past.pcie.forget();
            monitored
        }
        (Reading::Value(_) | Reading::NotYet, Reading::Value(_) | Reading::NotYet, _) => {
            past.pcie.forget();
            let either = |monitored: Reading<u64>, counter: Option<Reading<u64>>| match (&monitored, counter)
            {
                (Reading::NotYet, Some(counter @ Reading::Value(_))) => counter,
                _ => monitored,
            };
            Both { tx: either(monitored.tx, by_counter.tx), rx: either(monitored.rx, by_counter.rx) }
        }
        (.., Ok(device)) if seat.mig.is_none() => {
            past.pcie.rates(by_counter, device, &mut past.asker, measure)
        }
        _ => Both { tx: Reading::Unsupported, rx: Reading::Unsupported },
    }
}

/// What only GPM tells, and NVLink's traffic where nothing else tells it. Returns what it says of PCIe.
fn monitored(sample: &mut GpuSample, mut metrics: Metrics) -> Both<Reading<u64>> {
    sample.graphics_active_pct = metrics.take(Metric::GraphicsUtil);
    sample.sm_active_pct = metrics.take(Metric::SmUtil);
    sample.sm_occupancy_pct = metrics.take(Metric::SmOccupancy);
    sample.tensor_active_pct = metrics.take(Metric::AnyTensorUtil);
    sample.dram_active_pct = metrics.take(Metric::DramBwUtil);
    sample.fp64_active_pct = metrics.take(Metric::Fp64Util);
    sample.fp32_active_pct = metrics.take(Metric::Fp32Util);
    sample.fp16_active_pct = metrics.take(Metric::Fp16Util);
    for (reading, metric) in [
        (&mut sample.nvlink_tx_bytes_s, Metric::NvLinkTxPerSec),
        (&mut sample.nvlink_rx_bytes_s, Metric::NvLinkRxPerSec),
    ] {
        let told = metrics.take(metric);
        if matches!(reading, Reading::Unsupported) && !matches!(told, Reading::Failed(_)) {
            *reading = told;
        }
    }
    Both { tx: metrics.take(Metric::PcieTxPerSec), rx: metrics.take(Metric::PcieRxPerSec) }
}
