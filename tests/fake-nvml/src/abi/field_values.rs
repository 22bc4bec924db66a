//! Field values: many readings in one call, each with its own return code.

use super::{
    Answer, DeviceContext, INVALID_ARGUMENT, SUCCESS,
    field_ids::{self, Value},
    on_device,
};
use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlFieldValue_t, nvmlReturn_t};
use std::time::{SystemTime, UNIX_EPOCH};

/// One field of one device; hangs and errors can be injected as for a call.
fn value(ctx: &DeviceContext<'_>, id: u32, scope: u32) -> Answer<Value> {
    ctx.inject_faults_for_part(&format!("field:{id}"))?;
    let id = field_ids::numbered_as_in_12_9(id, ctx.state.driver_version())?;
    field_ids::value(ctx, id, scope)
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

/// Only root may clear; others get an error for each field.
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
