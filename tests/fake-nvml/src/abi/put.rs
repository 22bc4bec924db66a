//! Writes results through the caller's pointers.

use super::{
    Answer, DeviceContext, INSUFFICIENT_SIZE, INVALID_ARGUMENT, SUCCESS, VERSION_MISMATCH, WithOverride,
    on_device,
};
use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlReturn_t};
use std::ffi::c_char;

/// Writes a result to the caller's pointer and returns the return code.
///
/// # Safety
/// `out` is null or valid for writing.
pub(super) unsafe fn put<T>(out: *mut T, answer: Answer<T>) -> nvmlReturn_t {
    match answer {
        Err(code) => code,
        Ok(_) if out.is_null() => INVALID_ARGUMENT,
        Ok(value) => {
            // SAFETY: not null, and the caller vouches for the rest.
            unsafe { out.write(value) };
            SUCCESS
        }
    }
}

/// Writes several results at once.
///
/// # Safety
/// Each pointer is null or valid for writing.
pub(super) unsafe fn put_each<T, const N: usize>(outs: [*mut T; N], answer: Answer<[T; N]>) -> nvmlReturn_t {
    match answer {
        Err(code) => code,
        Ok(_) if outs.iter().any(|out| out.is_null()) => INVALID_ARGUMENT,
        Ok(values) => {
            for (out, value) in outs.into_iter().zip(values) {
                // SAFETY: not null, and the caller vouches for the rest.
                unsafe { out.write(value) };
            }
            SUCCESS
        }
    }
}

/// Writes a string with its NUL.
///
/// # Safety
/// `out` is null or valid for writing `length` bytes.
pub(super) unsafe fn put_text(out: *mut c_char, length: u32, answer: Answer<String>) -> nvmlReturn_t {
    match answer {
        Err(code) => code,
        Ok(_) if out.is_null() => INVALID_ARGUMENT,
        Ok(text) if text.len() >= length as usize => INSUFFICIENT_SIZE,
        Ok(text) => {
            // SAFETY: text and NUL are at most `length` bytes, which the caller vouches for.
            unsafe {
                out.copy_from_nonoverlapping(text.as_ptr().cast(), text.len());
                out.add(text.len()).write(0);
            }
            SUCCESS
        }
    }
}

/// Copies a list into the caller's buffer, or writes the required size.
///
/// # Safety
/// `count` is null or valid; `out` is null or has `*count` elements.
pub(super) unsafe fn put_list<T>(count: *mut u32, out: *mut T, answer: Answer<Vec<T>>) -> nvmlReturn_t {
    let list = match answer {
        Ok(_) if count.is_null() => return INVALID_ARGUMENT,
        Ok(list) => list,
        Err(code) => return code,
    };
    // SAFETY: not null, and valid by the caller's word.
    let room = unsafe { count.replace(list.len() as u32) } as usize;
    if list.len() > room || (out.is_null() && !list.is_empty()) {
        return INSUFFICIENT_SIZE;
    }
    for (at, item) in list.into_iter().enumerate() {
        // SAFETY: `at` is less than the number of elements that the caller has room for.
        unsafe { out.add(at).write(item) };
    }
    SUCCESS
}

/// The same, unless another length is injected: then that one is written, with an error.
///
/// # Safety
/// As for [`put_list`].
pub(super) unsafe fn put_list_with_override<T>(
    count: *mut u32,
    out: *mut T,
    answer: Answer<WithOverride<Vec<T>>>,
) -> nvmlReturn_t {
    match answer {
        Ok((_, Some(number))) if !count.is_null() => {
            // SAFETY: not null, and valid by the caller's word.
            unsafe { count.write(number as u32) };
            INSUFFICIENT_SIZE
        }
        // SAFETY: by the caller's word.
        answer => unsafe { put_list(count, out, answer.map(|(list, _)| list)) },
    }
}

/// Writes a result, or the injected number that replaces it.
///
/// # Safety
/// `out` is null or valid for writing a `T`, which may have any bytes: numbers and structs of them.
pub(super) unsafe fn put_with_override<T>(out: *mut T, answer: Answer<WithOverride<T>>) -> nvmlReturn_t {
    let injected = answer.as_ref().map_or(None, |(_, injected)| *injected);
    // SAFETY: by the caller's word.
    let code = unsafe { put(out, answer.map(|(answer, _)| answer)) };
    // SAFETY: as above.
    unsafe { overwrite(out, injected) };
    code
}

/// Overwrites a result with as many bytes of a number as fit.
///
/// # Safety
/// As for [`put_with_override`].
pub(super) unsafe fn overwrite<T>(out: *mut T, number: Option<u64>) {
    if let (Some(number), false) = (number, out.is_null()) {
        let bytes = number.to_ne_bytes();
        // SAFETY: as many bytes as fit into the `T` that is there by the caller's word.
        unsafe { out.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), size_of::<T>().min(bytes.len())) };
    }
}

/// Copies a list of fixed length into the caller's buffer; excess elements are omitted.
///
/// # Safety
/// `out` is null or has `room` elements.
pub(super) unsafe fn put_some<T>(room: u32, out: *mut T, answer: Answer<Vec<T>>) -> nvmlReturn_t {
    match answer {
        Err(code) => code,
        Ok(_) if out.is_null() || room == 0 => INVALID_ARGUMENT,
        Ok(list) => {
            for (at, item) in list.into_iter().take(room as usize).enumerate() {
                // SAFETY: `at` is less than `room`.
                unsafe { out.add(at).write(item) };
            }
            SUCCESS
        }
    }
}

/// The version that NVML writes into the first field of a struct: its size and a number.
pub(super) const fn version<T>(number: u32) -> u32 {
    size_of::<T>() as u32 | number << 24
}

/// Returns a struct that begins with its version and may contain arguments.
///
/// # Safety
/// `out` is null or points to a struct whose first field is its version; if that is `version`, to a `T`.
pub(super) unsafe fn put_versioned<T: Copy>(
    (symbol, version): (&str, u32),
    device: nvmlDevice_t,
    out: *mut T,
    answer: impl FnOnce(DeviceContext<'_>, T) -> Answer<T>,
) -> nvmlReturn_t {
    let answer = on_device(symbol, device, |ctx| {
        // SAFETY: by the caller's word.
        unsafe { begins_with(version, out) }?;
        // SAFETY: as the version says, it is a `T`.
        answer(ctx, unsafe { out.read() })
    });
    // SAFETY: as above.
    unsafe { put(out, answer) }
}

/// Refuses a struct that does not begin with a version.
///
/// # Safety
/// `asked` is null or points to a struct whose first field is its version.
pub(super) unsafe fn begins_with<T>(version: u32, asked: *const T) -> Answer<()> {
    if asked.is_null() {
        return Err(INVALID_ARGUMENT);
    }
    // SAFETY: not null, and by the caller's word it begins with a version.
    if unsafe { asked.cast::<u32>().read() } == version { Ok(()) } else { Err(VERSION_MISMATCH) }
}

/// A string in a fixed field of a struct, truncated if necessary.
pub(super) fn chars<const N: usize>(text: &str) -> [c_char; N] {
    let mut field = [0; N];
    for (to, from) in field[..N - 1].iter_mut().zip(text.bytes()) {
        *to = from as c_char;
    }
    field
}
