//! Field values: the readings that they fill, and batched queries, including those of single NVLinks, which the wrapper
//! does not support.
#![expect(unsafe_code, reason = "nvmlDeviceGetFieldValues with a scope, which the wrapper leaves at 0")]

use super::ffi_compat::{checked, missing};
use nodeglass_protocol::Reading;
use nodeglass_protocol::probe::GpuSample;
use nvml_wrapper::{Device, error::NvmlError};
use nvml_wrapper_sys::bindings as sys;
use nvml_wrapper_sys::bindings::field_id;

/// The readings that field values fill, queried in one batched call. A new row needs no other change of the probe.
pub const FIELDS: &[FieldReading] = &[
    // °C.
    of_gpu(field_id::NVML_FI_DEV_MEMORY_TEMP, |sample| &mut sample.mem_temp_c, Conversion::Value),
    // mW.
    of_gpu(field_id::NVML_FI_DEV_POWER_INSTANT, |sample| &mut sample.power_instant_mw, Conversion::Value),
    // Bytes; the counters overflow.
    of_gpu(field_id::NVML_FI_DEV_PCIE_COUNT_TX_BYTES, |sample| &mut sample.pcie_tx_bytes_s, Conversion::Pcie),
    of_gpu(field_id::NVML_FI_DEV_PCIE_COUNT_RX_BYTES, |sample| &mut sample.pcie_rx_bytes_s, Conversion::Pcie),
    of_links(NVLINK_TX_KIB, |sample| &mut sample.nvlink_tx_bytes_s, Conversion::Rate(KIB)),
    of_links(NVLINK_RX_KIB, |sample| &mut sample.nvlink_rx_bytes_s, Conversion::Rate(KIB)),
    // Time in ns for which the power limit held the clocks down, since the driver was loaded.
    of_gpu(
        field_id::NVML_FI_DEV_PERF_POLICY_POWER,
        |sample| &mut sample.power_capped_pct,
        Conversion::ShareOfTime,
    ),
    // Likewise for the temperature.
    of_gpu(
        field_id::NVML_FI_DEV_PERF_POLICY_THERMAL,
        |sample| &mut sample.thermal_capped_pct,
        Conversion::ShareOfTime,
    ),
];

/// Number of readings that are filled by field values.
pub const FIELD_READINGS: usize = FIELDS.len();

/// A field value that fills a reading.
#[derive(Clone, Copy)]
pub struct FieldReading {
    /// Id of the field.
    pub id: u32,
    /// Scope: [`ALL_LINKS`], or 0.
    pub scope: u32,
    /// The reading that it fills.
    pub reading: fn(&mut GpuSample) -> &mut Reading<u64>,
    /// How it fills it.
    pub conversion: Conversion,
}

/// Conversion of a field value to a reading.
#[derive(Clone, Copy)]
pub enum Conversion {
    /// It is the reading.
    Value,
    /// A counter: its increments per second, times a factor.
    Rate(u64),
    /// A counter of ns: its increments in % of the time.
    ShareOfTime,
    /// A byte counter of PCIe, which has other sources, too: see [`super::pcie`].
    Pcie,
}

const fn of_gpu(
    id: u32,
    reading: fn(&mut GpuSample) -> &mut Reading<u64>,
    conversion: Conversion,
) -> FieldReading {
    FieldReading { id, scope: 0, reading, conversion }
}

const fn of_links(
    id: u32,
    reading: fn(&mut GpuSample) -> &mut Reading<u64>,
    conversion: Conversion,
) -> FieldReading {
    FieldReading { id, scope: ALL_LINKS, reading, conversion }
}

/// Bytes per KiB, the unit of NVLink counters.
const KIB: u64 = 1_024;
/// KiB of data sent over an NVLink, or over [`ALL_LINKS`].
pub const NVLINK_TX_KIB: u32 = field_id::NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX;
/// KiB of data received.
pub const NVLINK_RX_KIB: u32 = field_id::NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX;
/// Replays, recoveries and CRC errors of an NVLink: Hopper and later, whose per-link counters moved here.
pub const NVLINK_DL_ERRORS: [u32; 3] = [
    field_id::NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY,
    field_id::NVML_FI_DEV_NVLINK_ERROR_DL_RECOVERY,
    field_id::NVML_FI_DEV_NVLINK_ERROR_DL_CRC,
];
/// Energy in mJ since the driver was loaded.
pub const ENERGY: u32 = field_id::NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION;
/// Scope that means all NVLinks together.
const ALL_LINKS: u32 = u32::MAX;

/// A field query with its result.
///
/// None of the ids in use is among 251–273, which newer drivers renumbered.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct FieldQuery(sys::nvmlFieldValue_t);

impl FieldQuery {
    /// Creates a query of field `id`; `scope` is a link or part, or 0.
    pub fn new(id: u32, scope: u32) -> Self {
        Self(sys::nvmlFieldValue_t {
            fieldId: id,
            scopeId: scope,
            timestamp: 0,
            latencyUsec: 0,
            valueType: sys::nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_LONG_LONG,
            nvmlReturn: 0,
            value: sys::nvmlValue_t { ullVal: 0 },
        })
    }

    /// Returns the result.
    ///
    /// # Errors
    /// Errors of NVML for this field. Drivers report an invalid argument for unknown fields, which
    /// means unsupported.
    pub fn answer(&self) -> Result<u64, NvmlError> {
        let Self(field) = self;
        checked(field.nvmlReturn).map_err(|error| match error {
            NvmlError::InvalidArg => NvmlError::NotSupported,
            error => error,
        })?;
        let value = &field.value;
        // SAFETY: all variants are plain bits, and the union was fully initialized before the call;
        // the type states which variant NVML wrote.
        let number = unsafe {
            match field.valueType {
                sys::nvmlValueType_enum_NVML_VALUE_TYPE_DOUBLE => whole(value.dVal),
                sys::nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_INT => Some(value.uiVal.into()),
                sys::nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_LONG => Some(value.ulVal),
                sys::nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_LONG_LONG => Some(value.ullVal),
                sys::nvmlValueType_enum_NVML_VALUE_TYPE_SIGNED_LONG_LONG => value.sllVal.try_into().ok(),
                // Negative values are implausible for all fields in use; the bound reports them.
                sys::nvmlValueType_enum_NVML_VALUE_TYPE_SIGNED_INT => {
                    Some(value.siVal.cast_unsigned().into())
                }
                sys::nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_SHORT => Some(value.usVal.into()),
                _ => None,
            }
        };
        number.ok_or(NvmlError::Unknown)
    }
}

fn whole(value: f64) -> Option<u64> {
    (value.is_finite() && value >= 0.0).then_some(value.round() as u64)
}

/// Queries all fields in one call; each then has its own result.
///
/// # Errors
/// Errors of NVML for the call as a whole, or a missing symbol.
pub fn query(device: &Device<'_>, fields: &mut [FieldQuery]) -> Result<(), NvmlError> {
    let call = device.nvml().lib().nvmlDeviceGetFieldValues.as_ref().map_err(missing)?;
    let count = i32::try_from(fields.len()).map_err(|_| NvmlError::InvalidArg)?;
    if count == 0 {
        return Ok(());
    }
    // SAFETY: the handle is live as long as `device`; `FieldQuery` has the layout of the struct that it
    // wraps, and there are `count` of them.
    checked(unsafe { call(device.handle(), count, fields.as_mut_ptr().cast()) })
}

/// Queries one field that is not about a part of the GPU.
///
/// # Errors
/// As [`query`] and [`FieldQuery::answer`].
pub fn single(device: &Device<'_>, id: u32) -> Result<u64, NvmlError> {
    let mut field = [FieldQuery::new(id, 0)];
    query(device, &mut field)?;
    field[0].answer()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_type_is_decoded_and_non_counts_fail() {
        let mut field = FieldQuery::new(ENERGY, 0);
        let mut read = |kind: u32, value: sys::nvmlValue_t| {
            (field.0.valueType, field.0.value) = (kind, value);
            field.answer().ok()
        };
        assert_eq!(read(0, sys::nvmlValue_t { dVal: 41.6 }), Some(42));
        assert_eq!(read(0, sys::nvmlValue_t { dVal: f64::NAN }), None);
        assert_eq!(read(1, sys::nvmlValue_t { uiVal: 7 }), Some(7));
        assert_eq!(read(3, sys::nvmlValue_t { ullVal: 1 << 40 }), Some(1 << 40));
        assert_eq!(read(4, sys::nvmlValue_t { sllVal: -1 }), None);
        assert_eq!(read(5, sys::nvmlValue_t { siVal: 9 }), Some(9));
        assert_eq!(read(5, sys::nvmlValue_t { siVal: -40 }), Some(4_294_967_256));
        assert_eq!(read(99, sys::nvmlValue_t { ullVal: 1 }), None);
    }

    #[test]
    fn a_field_that_the_driver_does_not_know_is_unsupported() {
        let mut field = FieldQuery::new(ENERGY, 0);
        field.0.nvmlReturn = 2;
        assert!(matches!(field.answer(), Err(NvmlError::NotSupported)));
    }
}
