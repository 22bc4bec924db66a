//! GPM, from Hopper on: metrics from two samples of one device.

use super::{
    Answer, DeviceContext, INVALID_ARGUMENT, NOT_FOUND, NOT_SUPPORTED, SUCCESS, VERSION_MISMATCH, called,
    exports::getters,
    on_device,
    put::{begins_with, put},
};
use crate::state::{Gpm, Gpu, METRICS, Mig, State};
use nvml_wrapper_sys::bindings::{
    nvmlDevice_t, nvmlGpmMetric_t, nvmlGpmMetric_t__bindgen_ty_1, nvmlGpmMetricsGet_t, nvmlGpmSample_t,
    nvmlGpmSupport_t, nvmlReturn_t,
};
use std::{
    collections::HashMap,
    sync::{LazyLock, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// `NVML_GPM_SUPPORT_VERSION` and `NVML_GPM_METRICS_GET_VERSION`: plain numbers, unlike other versions.
const VERSION: u32 = 1;
/// Maximum number of metrics per call.
const MAX_METRICS: usize = 210;
/// Refresh interval of the driver's counters.
const REFRESH: Duration = Duration::from_millis(100);

/// Allocated samples; a handle is a number here as well.
static SAMPLES: LazyLock<Mutex<Samples>> = LazyLock::new(Mutex::default);

#[derive(Default)]
struct Samples {
    last: usize,
    taken: HashMap<usize, Option<Sample>>,
}

/// Readings at one time.
#[derive(Clone)]
struct Sample {
    at: Instant,
    /// GPU, and GPU instance.
    of: (usize, Option<u32>),
    readings: [Option<f64>; METRICS],
    /// Decoder, JPEG decoder, optical flow; `None` for an instance.
    engines: [Option<f64>; 3],
    /// Bytes over PCIe, sent and received.
    pcie: Option<[f64; 2]>,
    /// The NVLinks that are up, and KiB over each of them, sent and received.
    nvlink: Option<(Vec<bool>, [f64; 2])>,
}

fn samples() -> MutexGuard<'static, Samples> {
    SAMPLES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn monitor(gpu: &Gpu) -> Answer<&Gpm> {
    gpu.gpm.as_ref().ok_or(NOT_SUPPORTED)
}

/// A sample of a whole GPU.
fn whole(ctx: &DeviceContext<'_>) -> Answer<Sample> {
    let gpu = ctx.board()?;
    let at = Instant::now();
    let percent = |load: Option<u32>| load.map(f64::from);
    let engines = &gpu.engines;
    Ok(Sample {
        at,
        of: (ctx.index, None),
        readings: monitor(gpu)?.readings(percent(gpu.util)),
        engines: [engines.decoder, engines.jpeg, engines.ofa].map(percent),
        pcie: gpu
            .pcie
            .tx_kib_s
            .and(gpu.pcie.rx_kib_s)
            .map(|_| gpu.counters.pcie.map(|counter| counter.at(at))),
        nvlink: gpu.nvlink.as_ref().map(|nvlink| {
            let up = (0..nvlink.links).map(|link| nvlink.up(link)).collect();
            (up, gpu.counters.nvlink.map(|counter| counter.at(at)))
        }),
    })
}

/// A sample of a GPU instance: traffic is not attributed to instances.
fn instance(ctx: &DeviceContext<'_>, gi: u32) -> Answer<Sample> {
    monitor(ctx.board()?)?;
    let parts: Vec<&Mig> = ctx.gpu.mig.iter().filter(|mig| mig.gi == gi).collect();
    let first = parts.first().ok_or(NOT_FOUND)?;
    let util = parts.iter().map(|mig| f64::from(mig.util)).sum::<f64>() / parts.len() as f64;
    Ok(Sample {
        at: Instant::now(),
        of: (ctx.index, Some(gi)),
        readings: first.gpm.readings(Some(util)),
        engines: [None; 3],
        pcie: None,
        nvlink: None,
    })
}

/// Fills an allocated sample.
fn fill(handle: nvmlGpmSample_t, sample: Answer<Sample>) -> Answer<()> {
    *samples().taken.get_mut(&(handle as usize)).ok_or(INVALID_ARGUMENT)? = Some(sample?);
    Ok(())
}

/// Two samples, the earlier one first.
struct Pair {
    first: Sample,
    second: Sample,
}

impl Pair {
    /// Both must be filled, from the same device, and different.
    fn of(request: &nvmlGpmMetricsGet_t) -> Answer<Self> {
        if request.sample1 == request.sample2 {
            return Err(INVALID_ARGUMENT);
        }
        let samples = samples();
        let taken = |handle: nvmlGpmSample_t| {
            samples.taken.get(&(handle as usize)).cloned().flatten().ok_or(INVALID_ARGUMENT)
        };
        let (first, second) = (taken(request.sample1)?, taken(request.sample2)?);
        if first.of == second.of { Ok(Self { first, second }) } else { Err(INVALID_ARGUMENT) }
    }

    /// Two samples of the same refresh are equal, and their quotients are 0/0.
    fn seconds(&self) -> f64 {
        let apart = self.second.at.saturating_duration_since(self.first.at);
        if apart < REFRESH { 0.0 } else { apart.as_secs_f64() }
    }

    fn mean(&self, of: impl Fn(&Sample) -> Option<f64>) -> Answer<f64> {
        let (Some(first), Some(second)) = (of(&self.first), of(&self.second)) else {
            return Err(NOT_SUPPORTED);
        };
        if self.seconds() > 0.0 { Ok((first + second) / 2.0) } else { Ok(f64::NAN) }
    }

    fn per_second(&self, of: impl Fn(&Sample) -> Option<f64>) -> Answer<f64> {
        let (Some(first), Some(second)) = (of(&self.first), of(&self.second)) else {
            return Err(NOT_SUPPORTED);
        };
        let seconds = self.seconds();
        if seconds > 0.0 { Ok((second - first) / seconds) } else { Ok(f64::NAN) }
    }

    /// MiB/s over a link, or all of them. Unlike elsewhere, received is numbered before sent.
    fn nvlink(&self, link: Option<usize>, receiving: bool) -> Answer<f64> {
        let kib = |sample: &Sample| {
            let (up, counted) = sample.nvlink.as_ref()?;
            let links = match link {
                Some(link) => up.get(link).map(|up| usize::from(*up))?,
                None => up.iter().filter(|up| **up).count(),
            };
            Some(counted[usize::from(receiving)] * links as f64)
        };
        self.per_second(kib).map(|kib| kib / 1_024.0)
    }

    fn metric(&self, id: u32) -> Answer<f64> {
        let at = id as usize;
        match at {
            1..=13 => self.mean(|sample| sample.readings[at]),
            20 | 21 => self.per_second(|sample| sample.pcie.map(|pcie| pcie[at - 20] / f64::from(1 << 20))),
            30 | 40 | 50 => self.mean(|sample| sample.engines[at / 10 - 3]),
            60 | 61 => self.nvlink(None, at == 60),
            62..=97 => self.nvlink(Some((at - 62) / 2), at.is_multiple_of(2)),
            _ if (1..MAX_METRICS).contains(&at) => Err(NOT_SUPPORTED),
            _ => Err(INVALID_ARGUMENT),
        }
    }
}

/// Names and unit of a metric, as strings that live as long as the library.
fn described(id: u32) -> nvmlGpmMetric_t__bindgen_ty_1 {
    let (name, unit) = match id {
        1 => (c"GRAPHICS_UTIL", c"%"),
        2 => (c"SM_UTIL", c"%"),
        3 => (c"SM_OCCUPANCY", c"%"),
        10 => (c"DRAM_BW_UTIL", c"%"),
        4..=9 | 11..=13 => (c"PIPE_UTIL", c"%"),
        20 | 21 => (c"PCIE_PER_SEC", c"MiB/s"),
        60..=97 => (c"NVLINK_PER_SEC", c"MiB/s"),
        _ => (c"ENGINE_UTIL", c"%"),
    };
    let [name, unit] = [name, unit].map(|text| text.as_ptr().cast_mut());
    nvmlGpmMetric_t__bindgen_ty_1 { shortName: name, longName: name, unit }
}

/// Computes each metric; hangs and errors can be injected as for a call.
fn answer(state: &State, pair: &Pair, metric: &mut nvmlGpmMetric_t) {
    let ctx = DeviceContext::find(state, super::handle(pair.first.of.0, None));
    let checked = ctx.and_then(|ctx| ctx.inject_faults_for_part(&format!("gpm:{}", metric.metricId)));
    match checked.and_then(|()| pair.metric(metric.metricId)) {
        Ok(value) => {
            (metric.nvmlReturn, metric.value) = (SUCCESS, value);
            metric.metricInfo = described(metric.metricId);
        }
        Err(code) => metric.nvmlReturn = code,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlGpmMetricsGet(request: *mut nvmlGpmMetricsGet_t) -> nvmlReturn_t {
    // SAFETY: by NVML's contract it is null or points to a request.
    let Some(request) = (unsafe { request.as_mut() }) else { return INVALID_ARGUMENT };
    let done = called("nvmlGpmMetricsGet", |state| {
        if request.version != VERSION {
            return Err(VERSION_MISMATCH);
        }
        let pair = Pair::of(request)?;
        let metrics = request.metrics.get_mut(..request.numMetrics as usize).ok_or(INVALID_ARGUMENT)?;
        metrics.iter_mut().for_each(|metric| answer(state, &pair, metric));
        Ok(())
    });
    done.map_or_else(|code| code, |()| SUCCESS)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlGpmQueryDeviceSupport(
    device: nvmlDevice_t,
    support: *mut nvmlGpmSupport_t,
) -> nvmlReturn_t {
    let answer = on_device("nvmlGpmQueryDeviceSupport", device, |ctx| {
        // SAFETY: by NVML's contract a struct that is not null begins with its version.
        unsafe { begins_with(VERSION, support) }?;
        let isSupportedDevice = u32::from(ctx.board()?.gpm.is_some());
        Ok(nvmlGpmSupport_t { version: VERSION, isSupportedDevice })
    });
    // SAFETY: by NVML's contract the argument is null or points to the result.
    unsafe { put(support, answer) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlGpmSampleAlloc(out: *mut nvmlGpmSample_t) -> nvmlReturn_t {
    let answer = called("nvmlGpmSampleAlloc", |_| {
        let mut samples = samples();
        samples.last += 1;
        let number = samples.last;
        samples.taken.insert(number, None);
        Ok(number as nvmlGpmSample_t)
    });
    // SAFETY: by NVML's contract the argument is null or points to the result.
    unsafe { put(out, answer) }
}

#[unsafe(no_mangle)]
extern "C" fn nvmlGpmSampleFree(sample: nvmlGpmSample_t) -> nvmlReturn_t {
    let freed =
        called("nvmlGpmSampleFree", |_| samples().taken.remove(&(sample as usize)).ok_or(INVALID_ARGUMENT));
    freed.map_or_else(|code| code, |_| SUCCESS)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlGpmSampleGet(device: nvmlDevice_t, sample: nvmlGpmSample_t) -> nvmlReturn_t {
    let filled = on_device("nvmlGpmSampleGet", device, |ctx| fill(sample, whole(&ctx)));
    filled.map_or_else(|code| code, |()| SUCCESS)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlGpmMigSampleGet(device: nvmlDevice_t, gi: u32, sample: nvmlGpmSample_t) -> nvmlReturn_t {
    let filled = on_device("nvmlGpmMigSampleGet", device, |ctx| fill(sample, instance(&ctx, gi)));
    filled.map_or_else(|code| code, |()| SUCCESS)
}

getters! {
    nvmlGpmQueryIfStreamingEnabled() -> u32 = |ctx| Ok(monitor(ctx.board()?)?.streaming.into());
}

/// Only root may switch streaming.
#[unsafe(no_mangle)]
extern "C" fn nvmlGpmSetStreamingEnabled(device: nvmlDevice_t, _on: u32) -> nvmlReturn_t {
    const NO_PERMISSION: nvmlReturn_t = 4;
    on_device("nvmlGpmSetStreamingEnabled", device, |ctx| monitor(ctx.board()?).map(|_| ()))
        .map_or_else(|code| code, |()| NO_PERMISSION)
}
