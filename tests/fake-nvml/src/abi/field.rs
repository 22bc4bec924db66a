//! Field values: many readings in one call, each with its own return code.

use super::{Answer, DeviceContext, INVALID_ARGUMENT, SUCCESS, fields, on_device};
use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlFieldValue_t, nvmlReturn_t, nvmlValue_t};
use std::time::{SystemTime, UNIX_EPOCH};

/// A value in the type that NVML gives it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value {
    Unsigned(u32),
    Signed(i32),
    Long(u64),
}

/// What the driver leaves in the upper half of the union when a value has only 32 bits: anything. Who
/// reads more than the value's type says gets nonsense, as from an A100.
const LEFT_OVER: u64 = 0x4544_4f4e << 32;

impl Value {
    /// `nvmlValueType_t` and the union.
    fn parts(self) -> (u32, nvmlValue_t) {
        let short = |value: u32| nvmlValue_t { ullVal: LEFT_OVER | u64::from(value) };
        match self {
            Self::Unsigned(value) => (1, short(value)),
            Self::Long(value) => (3, nvmlValue_t { ullVal: value }),
            Self::Signed(value) => (5, short(value.cast_unsigned())),
        }
    }
}

/// One field of one device; it can be told to hang and to fail as a call can.
fn value(ctx: &DeviceContext<'_>, id: u32, scope: u32) -> Answer<Value> {
    ctx.obeys_for_part(&format!("field:{id}"))?;
    let id = fields::numbered_as_in_12_9(id, ctx.state.driver_version())?;
    fields::value(ctx, id, scope)
}

fn answer(ctx: &DeviceContext<'_>, field: &mut nvmlFieldValue_t) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (field.timestamp, field.latencyUsec) = (now.as_micros() as i64, 1);
    match value(ctx, field.fieldId, field.scopeId) {
        Ok(value) => {
            (field.valueType, field.value) = value.parts();
            field.nvmlReturn = SUCCESS;
        }
        Err(code) => field.nvmlReturn = code,
    }
}

/// Calls a function with each of the caller's fields.
///
/// # Safety
/// `fields` is null or has `count` elements.
unsafe fn each(
    symbol: &str,
    device: nvmlDevice_t,
    (count, fields): (i32, *mut nvmlFieldValue_t),
    what: impl Fn(&DeviceContext<'_>, &mut nvmlFieldValue_t),
) -> nvmlReturn_t {
    let done = on_device(symbol, device, |ctx| {
        let count = usize::try_from(count).map_err(|_| INVALID_ARGUMENT)?;
        if fields.is_null() || count == 0 {
            return Err(INVALID_ARGUMENT);
        }
        // SAFETY: not null, and as many as the caller says.
        let fields = unsafe { std::slice::from_raw_parts_mut(fields, count) };
        fields.iter_mut().for_each(|field| what(&ctx, field));
        Ok(())
    });
    done.map_or_else(|code| code, |()| SUCCESS)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetFieldValues(
    device: nvmlDevice_t,
    count: i32,
    fields: *mut nvmlFieldValue_t,
) -> nvmlReturn_t {
    // SAFETY: by NVML's contract there are `count` fields.
    unsafe { each("nvmlDeviceGetFieldValues", device, (count, fields), answer) }
}

/// Only root may clear; everybody else is told so field by field.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceClearFieldValues(
    device: nvmlDevice_t,
    count: i32,
    fields: *mut nvmlFieldValue_t,
) -> nvmlReturn_t {
    const NO_PERMISSION: nvmlReturn_t = 4;
    let refuse = |_: &DeviceContext<'_>, field: &mut nvmlFieldValue_t| field.nvmlReturn = NO_PERMISSION;
    // SAFETY: by NVML's contract there are `count` fields.
    unsafe { each("nvmlDeviceClearFieldValues", device, (count, fields), refuse) }
}
