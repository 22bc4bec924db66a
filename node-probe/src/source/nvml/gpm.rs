//! GPM, the performance monitor of Hopper and later: metrics between two samples.
#![expect(unsafe_code, reason = "the wrapper allocates a sample each time; these are kept and used again")]

use super::{
    error,
    ffi_compat::{checked, missing},
};
use crate::source::calls::CallTracker;
use nodeglass_protocol::probe::GpuSample;
use nodeglass_protocol::{Reading, Text};
use nvml_wrapper::{Device, Nvml, error::NvmlError};
use nvml_wrapper_sys::bindings as sys;
use std::mem;

/// Maximum plausible utilization in %.
const MAX_PERCENT: f64 = 110.0;
/// Bytes per MiB, the unit of GPM's rates.
const MIB: f64 = 1_048_576.0;

/// The queried metrics, and the readings that they fill. A new row needs no other change of the probe.
const METRICS: &[GpmReading] = &[
    share(sys::nvmlGpmMetricId_t_NVML_GPM_METRIC_GRAPHICS_UTIL, |sample| &mut sample.graphics_active_pct),
    share(sys::nvmlGpmMetricId_t_NVML_GPM_METRIC_SM_UTIL, |sample| &mut sample.sm_active_pct),
    share(sys::nvmlGpmMetricId_t_NVML_GPM_METRIC_SM_OCCUPANCY, |sample| &mut sample.sm_occupancy_pct),
    share(sys::nvmlGpmMetricId_t_NVML_GPM_METRIC_ANY_TENSOR_UTIL, |sample| &mut sample.tensor_active_pct),
    share(sys::nvmlGpmMetricId_t_NVML_GPM_METRIC_DRAM_BW_UTIL, |sample| &mut sample.dram_active_pct),
    share(sys::nvmlGpmMetricId_t_NVML_GPM_METRIC_FP64_UTIL, |sample| &mut sample.fp64_active_pct),
    share(sys::nvmlGpmMetricId_t_NVML_GPM_METRIC_FP32_UTIL, |sample| &mut sample.fp32_active_pct),
    share(sys::nvmlGpmMetricId_t_NVML_GPM_METRIC_FP16_UTIL, |sample| &mut sample.fp16_active_pct),
    rate(sys::nvmlGpmMetricId_t_NVML_GPM_METRIC_PCIE_TX_PER_SEC, |sample| &mut sample.pcie_tx_bytes_s),
    rate(sys::nvmlGpmMetricId_t_NVML_GPM_METRIC_PCIE_RX_PER_SEC, |sample| &mut sample.pcie_rx_bytes_s),
    fallback(sys::nvmlGpmMetricId_t_NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC, |sample| {
        &mut sample.nvlink_tx_bytes_s
    }),
    fallback(sys::nvmlGpmMetricId_t_NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC, |sample| {
        &mut sample.nvlink_rx_bytes_s
    }),
];

/// A metric that fills a reading.
#[derive(Clone, Copy)]
struct GpmReading {
    /// NVML's number of it.
    id: u32,
    kind: MetricKind,
    /// The reading that it fills.
    reading: fn(&mut GpuSample) -> &mut Reading<u64>,
}

/// Kind of a metric.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MetricKind {
    /// A share in %.
    Share,
    /// A rate in MiB/s; the reading is in bytes/s.
    Rate,
    /// A rate, for GPUs on which a field value does not fill the reading.
    FallbackRate,
}

const fn share(id: u32, reading: fn(&mut GpuSample) -> &mut Reading<u64>) -> GpmReading {
    GpmReading { id, kind: MetricKind::Share, reading }
}

const fn rate(id: u32, reading: fn(&mut GpuSample) -> &mut Reading<u64>) -> GpmReading {
    GpmReading { id, kind: MetricKind::Rate, reading }
}

const fn fallback(id: u32, reading: fn(&mut GpuSample) -> &mut Reading<u64>) -> GpmReading {
    GpmReading { id, kind: MetricKind::FallbackRate, reading }
}

/// Metrics between two samples, in the order of the table: utilization in %, rates in bytes/s.
#[derive(Clone, Debug, PartialEq)]
pub struct Metrics([Reading<u64>; METRICS.len()]);

impl Metrics {
    fn all(reading: &Reading<u64>) -> Self {
        Self(std::array::from_fn(|_| reading.clone()))
    }

    /// Stores them in a sample that has the field values already.
    pub fn fill(self, sample: &mut GpuSample) {
        let Self(values) = self;
        for (metric, value) in METRICS.iter().zip(values) {
            let reading = (metric.reading)(sample);
            let is_missing = matches!(reading, Reading::Unsupported) && !matches!(value, Reading::Failed(_));
            if metric.kind != MetricKind::FallbackRate || is_missing {
                *reading = value;
            }
        }
    }
}

/// GPM state of one GPU or instance.
#[derive(Debug, Default)]
pub enum Gpm<'nvml> {
    /// Support has not been queried yet.
    #[default]
    Unasked,
    /// Not supported.
    Unsupported,
    /// Supported, with two alternating buffers.
    Ready {
        /// The last sample, if `primed`.
        last: Buffer<'nvml>,
        /// The buffer for the next sample.
        next: Buffer<'nvml>,
        /// Whether there is a last sample.
        primed: bool,
    },
}

impl<'nvml> Gpm<'nvml> {
    /// Returns the metrics since the last call. `instance` is the GPU instance of `gpu`, if any.
    pub fn look(
        &mut self,
        nvml: &'nvml Nvml,
        gpu: &Device<'nvml>,
        instance: Option<u32>,
        calls: &CallTracker,
    ) -> Metrics {
        if matches!(self, Self::Unasked) {
            match Self::prepared(nvml, gpu) {
                Ok(gpm) => *self = gpm,
                Err(why) => return Metrics::all(&Reading::Failed(why.into())),
            }
        }
        match self {
            Self::Ready { last, next, primed } => {
                if let Err(error) = next.fill(gpu, instance) {
                    *primed = false;
                    if error::unsupported(&error) {
                        *self = Self::Unsupported;
                    }
                    return Metrics::all(&error::reading(Err(error)));
                }
                mem::swap(last, next);
                if !mem::replace(primed, true) {
                    return Metrics::all(&Reading::NotYet);
                }
                calls.begin_next_call();
                // `next` now contains the older sample and is overwritten next time.
                between(next, last).unwrap_or_else(|error| Metrics::all(&error::reading(Err(error))))
            }
            Self::Unasked | Self::Unsupported => Metrics::all(&Reading::Unsupported),
        }
    }

    fn prepared(nvml: &'nvml Nvml, gpu: &Device<'nvml>) -> Result<Self, Text> {
        let buffers = || Ok((Buffer::new(nvml)?, Buffer::new(nvml)?));
        match gpu.gpm_support().and_then(|offered| if offered { buffers().map(Some) } else { Ok(None) }) {
            Ok(Some((last, next))) => Ok(Self::Ready { last, next, primed: false }),
            Ok(None) => Ok(Self::Unsupported),
            Err(error) if error::unsupported(&error) => Ok(Self::Unsupported),
            Err(error) => Err(error::of(&error)),
        }
    }

    /// Queries support again, if it was denied.
    pub fn reconsider(&mut self) {
        if matches!(self, Self::Unsupported) {
            *self = Self::Unasked;
        }
    }
}

/// A sample buffer allocated by the library, freed on drop.
#[derive(Debug)]
pub struct Buffer<'nvml> {
    sample: sys::nvmlGpmSample_t,
    nvml: &'nvml Nvml,
}

impl<'nvml> Buffer<'nvml> {
    fn new(nvml: &'nvml Nvml) -> Result<Self, NvmlError> {
        let call = nvml.lib().nvmlGpmSampleAlloc.as_ref().map_err(missing)?;
        let mut sample = std::ptr::null_mut();
        // SAFETY: the library is initialised as long as `nvml` lives; it writes one pointer.
        checked(unsafe { call(&mut sample) })?;
        Ok(Self { sample, nvml })
    }

    fn fill(&mut self, gpu: &Device<'_>, instance: Option<u32>) -> Result<(), NvmlError> {
        let lib = self.nvml.lib();
        match instance {
            None => {
                let call = lib.nvmlGpmSampleGet.as_ref().map_err(missing)?;
                // SAFETY: the handle is live as long as `gpu`, the sample was allocated by this library.
                checked(unsafe { call(gpu.handle(), self.sample) })
            }
            Some(instance) => {
                let call = lib.nvmlGpmMigSampleGet.as_ref().map_err(missing)?;
                // SAFETY: as above.
                checked(unsafe { call(gpu.handle(), instance, self.sample) })
            }
        }
    }
}

impl Drop for Buffer<'_> {
    fn drop(&mut self) {
        if let Ok(call) = self.nvml.lib().nvmlGpmSampleFree.as_ref() {
            // SAFETY: allocated by this library, which is still initialised, and freed only here.
            unsafe { call(self.sample) };
        }
    }
}

/// Computes the metrics between an older and a newer sample.
fn between(older: &Buffer<'_>, newer: &Buffer<'_>) -> Result<Metrics, NvmlError> {
    let call = newer.nvml.lib().nvmlGpmMetricsGet.as_ref().map_err(missing)?;
    // SAFETY: numbers, floats and pointers, for all of which zeroes are valid.
    let mut request: sys::nvmlGpmMetricsGet_t = unsafe { mem::zeroed() };
    request.version = sys::NVML_GPM_METRICS_GET_VERSION;
    request.numMetrics = METRICS.len() as u32;
    (request.sample1, request.sample2) = (older.sample, newer.sample);
    for (requested, metric) in request.metrics.iter_mut().zip(METRICS) {
        requested.metricId = metric.id;
    }
    // SAFETY: the struct is ours, says its version, and both samples were filled by this library.
    checked(unsafe { call(&mut request) })?;
    Ok(Metrics(std::array::from_fn(|at| {
        let metric = &request.metrics[at];
        let is_rate = METRICS[at].kind != MetricKind::Share;
        whole(error::reading(checked(metric.nvmlReturn)).map(|()| metric.value), is_rate)
    })))
}

/// Rounds a metric; GPM returns NaN if there was nothing to count.
fn whole(reading: Reading<f64>, is_rate: bool) -> Reading<u64> {
    match reading {
        Reading::Value(value) if !value.is_finite() || value < 0.0 => Reading::NotYet,
        Reading::Value(value) if is_rate => Reading::Value((value * MIB).round() as u64),
        // Slightly above 100 % is a rounding error, far above is implausible.
        Reading::Value(share) if share > MAX_PERCENT => {
            Reading::Failed(format!("NVML reported {share:.0} %").into())
        }
        reading => reading.map(|share| share.round().min(100.0) as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn utilization_is_in_percent_and_rates_are_in_bytes() {
        assert_eq!(whole(Reading::Value(41.6), false), Reading::Value(42));
        assert_eq!(whole(Reading::Value(100.4), false), Reading::Value(100));
        assert_eq!(whole(Reading::Value(255.0), false), Reading::Failed("NVML reported 255 %".into()));
        assert_eq!(whole(Reading::Value(1.5), true), Reading::Value(1_572_864));
        assert_eq!(whole(Reading::Value(f64::NAN), false), Reading::NotYet);
        assert_eq!(whole(Reading::Unsupported, true), Reading::Unsupported);
    }

    #[test]
    fn a_field_value_takes_precedence_over_gpm() {
        let filled = |counted: Reading<u64>, metric: Reading<u64>| {
            let mut sample = GpuSample { nvlink_tx_bytes_s: counted, ..GpuSample::default() };
            Metrics::all(&metric).fill(&mut sample);
            assert_eq!((&sample.sm_active_pct, &sample.pcie_rx_bytes_s), (&metric, &metric));
            sample.nvlink_tx_bytes_s
        };
        assert_eq!(filled(Reading::Value(7), Reading::Value(9)), Reading::Value(7));
        assert_eq!(filled(Reading::NotYet, Reading::Value(9)), Reading::NotYet);
        assert_eq!(filled(Reading::Unsupported, Reading::Value(9)), Reading::Value(9));
        assert_eq!(filled(Reading::Unsupported, Reading::Failed("no".into())), Reading::Unsupported);
    }
}
