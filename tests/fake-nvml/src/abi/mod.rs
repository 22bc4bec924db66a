//! The C ABI of NVML: every exported symbol, and the one way that each of them goes.
#![expect(unsafe_code, reason = "exported C functions write through their callers' pointers")]
#![allow(non_snake_case, reason = "the names are NVML's")]

mod device;
mod events;
mod mig;
mod process;
mod refused;
mod system;

use crate::{
    current,
    state::{Gpu, Mig, State},
};
use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlReturn_t};
use std::{
    ffi::c_char,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::Duration,
};

pub(crate) const SUCCESS: nvmlReturn_t = 0;
pub(crate) const UNINITIALIZED: nvmlReturn_t = 1;
pub(crate) const INVALID_ARGUMENT: nvmlReturn_t = 2;
pub(crate) const NOT_SUPPORTED: nvmlReturn_t = 3;
pub(crate) const NOT_FOUND: nvmlReturn_t = 6;
pub(crate) const INSUFFICIENT_SIZE: nvmlReturn_t = 7;
pub(crate) const DRIVER_NOT_LOADED: nvmlReturn_t = 9;
pub(crate) const TIMEOUT: nvmlReturn_t = 10;
pub(crate) const GPU_IS_LOST: nvmlReturn_t = 15;

/// How often `nvmlInit` was called more than `nvmlShutdown`.
static INITS: AtomicUsize = AtomicUsize::new(0);

type Answer<T> = Result<T, nvmlReturn_t>;

/// What a device handle means: the GPU, and the instance if it is one's.
struct Seat<'a> {
    index: usize,
    gpu: &'a Gpu,
    mig: Option<(usize, &'a Mig)>,
}

impl Seat<'_> {
    /// Refuses what MIG instances and their GPUs do not offer.
    fn whole(&self) -> Answer<&Gpu> {
        if self.mig.is_some() || !self.gpu.mig.is_empty() { Err(NOT_SUPPORTED) } else { Ok(self.gpu) }
    }
}

/// A handle is a number: nothing is ever behind it.
fn handle(index: usize, mig: Option<usize>) -> nvmlDevice_t {
    (((index + 1) << 8) | mig.map_or(0, |mig| mig + 1)) as nvmlDevice_t
}

/// What every call goes through: hanging, being initialised, failing on order.
fn called<T>(symbol: &str, answer: impl FnOnce(&State) -> Answer<T>) -> Answer<T> {
    let state = current::state().ok_or(DRIVER_NOT_LOADED)?;
    if let Some(ms) = state.hang_ms.get(symbol) {
        thread::sleep(Duration::from_millis(*ms));
    }
    match state.errors.get(symbol) {
        Some(code) => Err(*code),
        None if INITS.load(Ordering::SeqCst) == 0 => Err(UNINITIALIZED),
        None if state.init != 0 => Err(state.init),
        None => answer(&state),
    }
}

/// A call on a device handle.
fn on_device<T>(symbol: &str, device: nvmlDevice_t, answer: impl FnOnce(Seat<'_>) -> Answer<T>) -> Answer<T> {
    called(symbol, |state| {
        let number = device as usize;
        let index = (number >> 8).checked_sub(1).ok_or(INVALID_ARGUMENT)?;
        let gpu = state.gpus.get(index).ok_or(INVALID_ARGUMENT)?;
        let mig = match (number & 0xff).checked_sub(1) {
            Some(position) => Some((position, gpu.mig.get(position).ok_or(INVALID_ARGUMENT)?)),
            None => None,
        };
        match gpu.errors.get(symbol) {
            _ if gpu.lost || gpu.lost_at_enumeration => Err(GPU_IS_LOST),
            Some(code) => Err(*code),
            None => answer(Seat { index, gpu, mig }),
        }
    })
}

/// Writes an answer where the caller wants it, and turns it into a return code.
///
/// # Safety
/// `out` is null or valid for writing.
unsafe fn put<T>(out: *mut T, answer: Answer<T>) -> nvmlReturn_t {
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

/// Writes two answers at once.
///
/// # Safety
/// Both pointers are null or valid for writing.
unsafe fn put_pair(first: *mut u32, second: *mut u32, answer: Answer<(u32, u32)>) -> nvmlReturn_t {
    match answer {
        Err(code) => code,
        // SAFETY: the caller vouches for both.
        Ok((one, two)) => match unsafe { put(first, Ok(one)) } {
            // SAFETY: as above.
            SUCCESS => unsafe { put(second, Ok(two)) },
            code => code,
        },
    }
}

/// Writes a text with its NUL.
///
/// # Safety
/// `out` is null or valid for writing `length` bytes.
unsafe fn put_text(out: *mut c_char, length: u32, answer: Answer<String>) -> nvmlReturn_t {
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

/// A text in a fixed field of a struct, cut if it must be.
fn chars<const N: usize>(text: &str) -> [c_char; N] {
    let mut field = [0; N];
    for (to, from) in field[..N - 1].iter_mut().zip(text.bytes()) {
        *to = from as c_char;
    }
    field
}

/// A UUID for what the state file gave none: it follows from the host's name, so nodes differ.
fn made_up_uuid(kind: &str, index: usize, mig: usize) -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let seed = host
        .trim()
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    let (high, low) = (seed >> 32, seed & 0xffff_ffff);
    format!("{kind}-{high:08x}-{:04x}-{:04x}-{index:04x}-{mig:04x}{low:08x}", low >> 16, low & 0xffff)
}

/// The UUID of a GPU.
fn gpu_uuid(index: usize, gpu: &Gpu) -> String {
    gpu.uuid.clone().unwrap_or_else(|| made_up_uuid("GPU", index, 0))
}

/// The UUID of an instance.
fn mig_uuid(index: usize, position: usize, mig: &Mig) -> String {
    mig.uuid.clone().unwrap_or_else(|| made_up_uuid("MIG", index, position + 1))
}

/// Defines getters: each writes one value of the device it is asked about.
macro_rules! getters {
    ($($symbol:ident($($arg:ident: $ty:ty),*) -> $out:ty = |$seat:ident| $answer:expr;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $symbol(
            device: ::nvml_wrapper_sys::bindings::nvmlDevice_t,
            $($arg: $ty,)*
            out: *mut $out,
        ) -> ::nvml_wrapper_sys::bindings::nvmlReturn_t {
            let answer = $crate::abi::on_device(stringify!($symbol), device, |$seat| $answer);
            // SAFETY: by NVML's contract the last argument is null or points to the result.
            unsafe { $crate::abi::put(out, answer) }
        }
    )*};
}
use getters;

/// Defines getters of texts into a buffer of the caller's.
macro_rules! text_getters {
    ($($symbol:ident = |$seat:ident| $answer:expr;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $symbol(
            device: ::nvml_wrapper_sys::bindings::nvmlDevice_t,
            out: *mut ::std::ffi::c_char,
            length: u32,
        ) -> ::nvml_wrapper_sys::bindings::nvmlReturn_t {
            let answer = $crate::abi::on_device(stringify!($symbol), device, |$seat| $answer);
            // SAFETY: by NVML's contract the buffer is null or has `length` bytes.
            unsafe { $crate::abi::put_text(out, length, answer) }
        }
    )*};
}
use text_getters;
