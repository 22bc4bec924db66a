//! The functions of the CUDA driver API that run a kernel; a context and a launch show in the state file.

use super::find::index_of_bus_id;
use crate::{
    current, install,
    state::{Gpu, Process, State},
};
use std::{
    ffi::{CStr, c_char, c_int, c_uint, c_void},
    fs, ptr,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::Duration,
};

const INVALID_VALUE: c_int = 1;
const OUT_OF_MEMORY: c_int = 2;
const NO_DEVICE: c_int = 100;
const INVALID_DEVICE: c_int = 101;
const INVALID_CONTEXT: c_int = 201;
const INVALID_PTX: c_int = 218;
const NOT_FOUND: c_int = 500;
/// Multiprocessors of each GPU.
const MULTIPROCESSORS: c_int = 132;
/// Memory that may be allocated.
const MAX_BYTES: usize = 64 << 20;
/// Duration of a kernel.
const KERNEL: Duration = Duration::from_millis(5);

/// The GPU with the context of this process, plus 1.
static CONTEXT: AtomicUsize = AtomicUsize::new(0);

/// A handle, or an address in device memory; never dereferenced.
const ADDRESS: usize = 0x7000_0000;

fn file() -> Result<State, c_int> {
    let bytes = fs::read(current::path()).map_err(|_| NO_DEVICE)?;
    serde_json::from_slice(&bytes).map_err(|_| NO_DEVICE)
}

/// Runs a call, unless the state file has an error for it.
fn called(symbol: &str, call: impl FnOnce(State) -> Result<(), c_int>) -> c_int {
    let result = file().and_then(|state| match state.errors.get(symbol) {
        Some(code) => Err(*code as c_int),
        None => call(state),
    });
    result.err().unwrap_or(0)
}

/// Changes the GPU with the context in the state file.
fn change(mut state: State, change: impl FnOnce(&mut Gpu)) -> Result<(), c_int> {
    let index = CONTEXT.load(Ordering::SeqCst).checked_sub(1).ok_or(INVALID_CONTEXT)?;
    change(state.gpus.get_mut(index).ok_or(INVALID_CONTEXT)?);
    install::write_state(&current::path(), &state).map_err(|_| NO_DEVICE)
}

/// Writes a result.
///
/// # Safety
/// `out` is null or points to a `T`.
unsafe fn put<T>(out: *mut T, value: T) -> Result<(), c_int> {
    if out.is_null() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: not null, and by the caller's contract a place for the value.
    unsafe { out.write(value) };
    Ok(())
}

/// A text of the caller.
///
/// # Safety
/// `text` is null or a C string.
unsafe fn text<'a>(text: *const c_char) -> Result<&'a str, c_int> {
    if text.is_null() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: not null, and by the caller's contract a C string.
    unsafe { CStr::from_ptr(text) }.to_str().map_err(|_| INVALID_VALUE)
}

#[unsafe(no_mangle)]
extern "C" fn cuInit(_flags: c_uint) -> c_int {
    called("cuInit", |_| Ok(()))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetErrorName(code: c_int, name: *mut *const c_char) -> c_int {
    let known = match code {
        INVALID_VALUE => c"CUDA_ERROR_INVALID_VALUE",
        OUT_OF_MEMORY => c"CUDA_ERROR_OUT_OF_MEMORY",
        INVALID_DEVICE => c"CUDA_ERROR_INVALID_DEVICE",
        INVALID_PTX => c"CUDA_ERROR_INVALID_PTX",
        NOT_FOUND => c"CUDA_ERROR_NOT_FOUND",
        _ => return INVALID_VALUE,
    };
    // SAFETY: by the contract of the API the last argument is null or points to the result.
    unsafe { put(name, known.as_ptr()) }.err().unwrap_or(0)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetByPCIBusId(device: *mut c_int, address: *const c_char) -> c_int {
    called("cuDeviceGetByPCIBusId", |state| {
        // SAFETY: by the contract of the API, a C string and a place for the result.
        unsafe {
            let index = index_of_bus_id(&state, text(address)?).ok_or(INVALID_DEVICE)?;
            put(device, index as c_int)
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetAttribute(value: *mut c_int, _attribute: c_int, _device: c_int) -> c_int {
    // SAFETY: by the contract of the API the first argument is null or points to the result.
    called("cuDeviceGetAttribute", |_| unsafe { put(value, MULTIPROCESSORS) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDevicePrimaryCtxRetain(context: *mut *mut c_void, device: c_int) -> c_int {
    called("cuDevicePrimaryCtxRetain", |state| {
        let index = usize::try_from(device).map_err(|_| INVALID_DEVICE)?;
        CONTEXT.store(index + 1, Ordering::SeqCst);
        let process = Process { pid: std::process::id(), mem_mib: Some(600), ..Process::default() };
        change(state, |gpu| gpu.processes.push(process))?;
        // SAFETY: by the contract of the API the first argument is null or points to the result.
        unsafe { put(context, ptr::without_provenance_mut(ADDRESS)) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSetCurrent(context: *mut c_void) -> c_int {
    called("cuCtxSetCurrent", |_| if context.is_null() { Err(INVALID_CONTEXT) } else { Ok(()) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleLoadData(module: *mut *mut c_void, image: *const c_void) -> c_int {
    called("cuModuleLoadData", |_| {
        // SAFETY: by the contract of the API, a text that ends with a zero and a place for the result.
        unsafe {
            let kernel = text(image.cast())?;
            let is_ptx = kernel.starts_with(".version") && kernel.contains(".visible .entry load(");
            if is_ptx { put(module, ptr::without_provenance_mut(ADDRESS)) } else { Err(INVALID_PTX) }
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleGetFunction(
    function: *mut *mut c_void,
    _module: *mut c_void,
    name: *const c_char,
) -> c_int {
    called("cuModuleGetFunction", |_| {
        // SAFETY: by the contract of the API, a C string and a place for the result.
        unsafe {
            if text(name)? == "load" {
                put(function, ptr::without_provenance_mut(ADDRESS))
            } else {
                Err(NOT_FOUND)
            }
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAlloc_v2(address: *mut u64, bytes: usize) -> c_int {
    called("cuMemAlloc_v2", |_| {
        if bytes > MAX_BYTES {
            return Err(OUT_OF_MEMORY);
        }
        // SAFETY: by the contract of the API the first argument is null or points to the result.
        unsafe { put(address, ADDRESS as u64) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemsetD32_v2(address: u64, _value: c_uint, words: usize) -> c_int {
    let fits = address == ADDRESS as u64 && words <= MAX_BYTES / 4;
    called("cuMemsetD32_v2", |_| if fits { Ok(()) } else { Err(INVALID_VALUE) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuLaunchKernel(
    function: *mut c_void,
    blocks: c_uint,
    _blocks_y: c_uint,
    _blocks_z: c_uint,
    threads: c_uint,
    _threads_y: c_uint,
    _threads_z: c_uint,
    _shared_bytes: c_uint,
    _stream: *mut c_void,
    parameters: *mut *mut c_void,
    _extra: *mut *mut c_void,
) -> c_int {
    called("cuLaunchKernel", |state| {
        if function.is_null() || parameters.is_null() || blocks == 0 || !(1..=1_024).contains(&threads) {
            return Err(INVALID_VALUE);
        }
        // SAFETY: the kernel has three parameters: an address and two numbers.
        let (buffer, mask, rounds) = unsafe {
            (
                (*parameters).cast::<u64>().read(),
                (*parameters.add(1)).cast::<u32>().read(),
                (*parameters.add(2)).cast::<u32>().read(),
            )
        };
        if buffer != ADDRESS as u64 || !(mask + 1).is_power_of_two() || rounds == 0 {
            return Err(INVALID_VALUE);
        }
        let is_loaded = |gpu: &Gpu| gpu.util == Some(100);
        if CONTEXT
            .load(Ordering::SeqCst)
            .checked_sub(1)
            .and_then(|at| state.gpus.get(at))
            .is_some_and(is_loaded)
        {
            return Ok(());
        }
        change(state, |gpu| {
            (gpu.util, gpu.sm_clock, gpu.power_mw) = (Some(100), gpu.sm_clock_max, gpu.power_limit_mw);
        })
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSynchronize() -> c_int {
    thread::sleep(KERNEL);
    called("cuCtxSynchronize", |_| Ok(()))
}
