//! dcgm-exporter's names of readings with the same meaning.
//!
//! Counters are left out: dcgm-exporter names them without `_total`, against Prometheus' conventions.

use crate::{Absence, Gpu};
use nodeglass_protocol::{Field, GpuField};

const MIB: f64 = (1 << 20) as f64;

/// dcgm-exporter's name of a reading.
#[derive(Clone, Copy, Debug)]
pub struct DcgmMetric {
    /// The name.
    pub name: &'static str,
    divisor: f64,
}

impl DcgmMetric {
    /// Converts a value in the catalogue's unit to dcgm-exporter's.
    pub fn value(self, value: u64) -> f64 {
        value as f64 / self.divisor
    }
}

/// The name of a reading, if its meaning is identical.
pub fn of(field: GpuField) -> Option<DcgmMetric> {
    let (name, divisor) = match field {
        GpuField::Util => ("DCGM_FI_DEV_GPU_UTIL", 1.0),
        GpuField::MemUtil => ("DCGM_FI_DEV_MEM_COPY_UTIL", 1.0),
        GpuField::Power => ("DCGM_FI_DEV_POWER_USAGE", 1.0),
        GpuField::PowerInstant => ("DCGM_FI_DEV_POWER_USAGE_INSTANT", 1.0),
        GpuField::PowerLimit => ("DCGM_FI_DEV_POWER_MGMT_LIMIT", 1.0),
        GpuField::Temp => ("DCGM_FI_DEV_GPU_TEMP", 1.0),
        GpuField::MemTemp => ("DCGM_FI_DEV_MEMORY_TEMP", 1.0),
        GpuField::Fan => ("DCGM_FI_DEV_FAN_SPEED", 1.0),
        GpuField::SmClock => ("DCGM_FI_DEV_SM_CLOCK", 1.0),
        GpuField::MemClock => ("DCGM_FI_DEV_MEM_CLOCK", 1.0),
        GpuField::VideoClock => ("DCGM_FI_DEV_VIDEO_CLOCK", 1.0),
        GpuField::PState => ("DCGM_FI_DEV_PSTATE", 1.0),
        GpuField::Throttle => ("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", 1.0),
        GpuField::Encoder => ("DCGM_FI_DEV_ENC_UTIL", 1.0),
        GpuField::Decoder => ("DCGM_FI_DEV_DEC_UTIL", 1.0),
        GpuField::MemUsed => ("DCGM_FI_DEV_FB_USED", MIB),
        GpuField::MemReserved => ("DCGM_FI_DEV_FB_RESERVED", MIB),
        GpuField::MemTotal => ("DCGM_FI_DEV_FB_TOTAL", MIB),
        GpuField::GraphicsActive => ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 100.0),
        GpuField::SmActive => ("DCGM_FI_PROF_SM_ACTIVE", 100.0),
        GpuField::SmOccupancy => ("DCGM_FI_PROF_SM_OCCUPANCY", 100.0),
        GpuField::TensorActive => ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", 100.0),
        GpuField::DramActive => ("DCGM_FI_PROF_DRAM_ACTIVE", 100.0),
        GpuField::Fp64Active => ("DCGM_FI_PROF_PIPE_FP64_ACTIVE", 100.0),
        GpuField::Fp32Active => ("DCGM_FI_PROF_PIPE_FP32_ACTIVE", 100.0),
        GpuField::Fp16Active => ("DCGM_FI_PROF_PIPE_FP16_ACTIVE", 100.0),
        GpuField::PcieRx => ("DCGM_FI_PROF_PCIE_RX_BYTES", 1.0),
        GpuField::PcieTx => ("DCGM_FI_PROF_PCIE_TX_BYTES", 1.0),
        GpuField::NvlinkRx => ("DCGM_FI_PROF_NVLINK_RX_BYTES", 1.0),
        GpuField::NvlinkTx => ("DCGM_FI_PROF_NVLINK_TX_BYTES", 1.0),
        _ => return None,
    };
    Some(DcgmMetric { name, divisor })
}

/// Free memory as dcgm-exporter has it, in MiB: neither used nor reserved. Unknown if what is reserved is; a driver that
/// does not state it reserves nothing, or counts it as used.
pub fn free_mib(gpu: &Gpu) -> Option<f64> {
    let value = |field| gpu.readings.value(field);
    let is_unsupported = gpu.absent.get(GpuField::MemReserved.name()) == Some(Absence::Unsupported);
    let reserved = value(GpuField::MemReserved).or(is_unsupported.then_some(0))?;
    let used = value(GpuField::MemUsed)?.saturating_add(reserved);
    Some(value(GpuField::MemTotal)?.saturating_sub(used) as f64 / MIB)
}
