//! Common steps of every call: injected hangs and errors, initialisation, device lookup.

use super::{
    DRIVER_NOT_LOADED, GPU_IS_LOST, INVALID_ARGUMENT, LIB_RM_VERSION_MISMATCH, NOT_SUPPORTED, UNINITIALIZED,
};
use crate::{
    current,
    state::{Gpu, Mig, State},
};
use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlReturn_t};
use std::{
    collections::BTreeMap,
    fs::{File, OpenOptions},
    io::Write,
    sync::{
        LazyLock, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

/// Number of `nvmlInit` calls minus `nvmlShutdown` calls.
pub(super) static INITS: AtomicUsize = AtomicUsize::new(0);

/// The driver that this library belongs to, by [`State::generation`] at its first call.
static GENERATION: OnceLock<u32> = OnceLock::new();

/// Refuses calls that need the kernel driver, if that was replaced since the library was loaded.
fn of_this_driver(state: &State) -> Answer<()> {
    if *GENERATION.get_or_init(|| state.generation) == state.generation {
        Ok(())
    } else {
        Err(LIB_RM_VERSION_MISMATCH)
    }
}

/// Text that the library prints on stdout.
const PRINTED: &[u8] = b"NVML: a message of the library\n";

/// Names a file to which each call appends its symbol, so that a test can wait for calls.
const CALLS_VARIABLE: &str = "FAKE_NVML_CALLS";

static CALLS: LazyLock<Option<File>> = LazyLock::new(|| {
    let path = std::env::var_os(CALLS_VARIABLE)?;
    OpenOptions::new().create(true).append(true).open(path).ok()
});

fn log(symbol: &str) {
    if let Some(mut file) = CALLS.as_ref() {
        // One write, so that the lines of several threads do not mix.
        let _ = file.write_all(format!("{symbol}\n").as_bytes());
    }
}

pub(super) type Answer<T> = Result<T, nvmlReturn_t>;

/// An answer, and the injected number that replaces it (the length of a list).
pub(super) type WithOverride<T> = (T, Option<u64>);

/// The meaning of a device handle: a GPU, and the instance if it is one.
#[derive(Clone, Copy)]
pub(super) struct DeviceContext<'a> {
    pub state: &'a State,
    pub index: usize,
    pub gpu: &'a Gpu,
    pub mig: Option<(usize, &'a Mig)>,
}

impl<'a> DeviceContext<'a> {
    /// Resolves a handle; also for a lost GPU.
    pub fn find(state: &'a State, device: nvmlDevice_t) -> Answer<Self> {
        let number = device as usize;
        let index = (number >> 8).checked_sub(1).ok_or(INVALID_ARGUMENT)?;
        let gpu = state.gpus.get(index).ok_or(INVALID_ARGUMENT)?;
        let mig = match (number & 0xff).checked_sub(1) {
            Some(position) => Some((position, gpu.mig.get(position).ok_or(INVALID_ARGUMENT)?)),
            None => None,
        };
        Ok(Self { state, index, gpu, mig })
    }

    /// Refuses an instance, which has no board of its own.
    pub fn board(&self) -> Answer<&'a Gpu> {
        if self.mig.is_some() { Err(NOT_SUPPORTED) } else { Ok(self.gpu) }
    }

    /// Refuses calls that MIG instances and their GPUs do not support.
    pub fn physical_gpu(&self) -> Answer<&'a Gpu> {
        if self.gpu.mig_mode() { Err(NOT_SUPPORTED) } else { self.board() }
    }

    /// Refuses everything but an instance.
    pub fn instance(&self) -> Answer<&'a Mig> {
        self.mig.map(|(_, mig)| mig).ok_or(NOT_SUPPORTED)
    }

    /// Injects the hang and the error of this symbol, field or metric.
    pub fn inject_faults(&self, name: &str) -> Answer<()> {
        hang(&self.gpu.hang_ms, name);
        if self.gpu.lost || self.gpu.lost_at_enumeration {
            return Err(GPU_IS_LOST);
        }
        fail(&self.gpu.errors, name)?;
        if self.mig.is_none() { fail(&self.gpu.errors_of_gpu, name) } else { Ok(()) }
    }

    /// Injects faults for a part of a call; faults of the whole machine apply, too.
    pub fn inject_faults_for_part(&self, name: &str) -> Answer<()> {
        hang(&self.state.hang_ms, name);
        fail(&self.state.errors, name)?;
        self.inject_faults(name)
    }
}

fn hang(faults: &BTreeMap<String, u64>, name: &str) {
    if let Some(ms) = faults.get(name) {
        thread::sleep(Duration::from_millis(*ms));
    }
}

fn fail(faults: &BTreeMap<String, u32>, name: &str) -> Answer<()> {
    faults.get(name).map_or(Ok(()), |code| Err(*code))
}

/// Common steps of every call: log, injected hang, initialisation check, injected error.
pub(super) fn called<T>(symbol: &str, answer: impl FnOnce(&State) -> Answer<T>) -> Answer<T> {
    log(symbol);
    let state = current::state().ok_or(DRIVER_NOT_LOADED)?;
    hang(&state.hang_ms, symbol);
    if state.prints.as_deref() == Some(symbol) {
        // On the descriptor, as another language's library does.
        // SAFETY: the bytes are a constant.
        unsafe { libc::write(1, PRINTED.as_ptr().cast(), PRINTED.len()) };
    }
    if state.exits.as_deref() == Some(symbol) {
        std::process::exit(0);
    }
    if INITS.load(Ordering::SeqCst) == 0 {
        return Err(UNINITIALIZED);
    }
    fail(&state.errors, symbol)?;
    if state.init == 0 { answer(&state) } else { Err(state.init) }
}

/// `nvmlInit` and its variants, with injected hangs and errors, before anything is initialised.
pub(super) fn init(symbol: &str) -> Answer<()> {
    let state = current::state().ok_or(DRIVER_NOT_LOADED)?;
    hang(&state.hang_ms, symbol);
    fail(&state.errors, symbol)?;
    of_this_driver(&state)?;
    if state.stays_loaded {
        stay_loaded();
    }
    if state.init != 0 {
        return Err(state.init);
    }
    INITS.fetch_add(1, Ordering::SeqCst);
    Ok(())
}

/// Keeps this library in the process after `dlclose`.
fn stay_loaded() {
    let own: *const AtomicUsize = &raw const INITS;
    // SAFETY: plain pointers, for which zeroes are valid.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: the address is in this library; the struct is ours.
    if unsafe { libc::dladdr(own.cast(), &mut info) } != 0 && !info.dli_fname.is_null() {
        // SAFETY: the name was found just now, and a library that is loaded already runs nothing.
        unsafe { libc::dlopen(info.dli_fname, libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE) };
    }
}

/// A call on a device handle.
pub(super) fn on_device<T>(
    symbol: &str,
    device: nvmlDevice_t,
    answer: impl FnOnce(DeviceContext<'_>) -> Answer<T>,
) -> Answer<T> {
    called(symbol, |state| {
        let ctx = DeviceContext::find(state, device)?;
        of_this_driver(state)?;
        ctx.inject_faults(symbol)?;
        answer(ctx)
    })
}

/// Calls with the injected number that replaces the answer.
pub(super) fn on_device_with_override<T>(
    symbol: &str,
    device: nvmlDevice_t,
    answer: impl FnOnce(DeviceContext<'_>) -> Answer<T>,
) -> Answer<WithOverride<T>> {
    on_device(symbol, device, |ctx| {
        let injected = ctx.gpu.numbers.get(symbol).or_else(|| ctx.state.numbers.get(symbol)).copied();
        Ok((answer(ctx)?, injected))
    })
}

/// Calls the machine with the injected number that replaces the answer.
pub(super) fn called_with_override<T>(
    symbol: &str,
    answer: impl FnOnce(&State) -> Answer<T>,
) -> Answer<WithOverride<T>> {
    called(symbol, |state| Ok((answer(state)?, state.numbers.get(symbol).copied())))
}

/// A reading that the GPU may not support.
pub(super) fn offered<T>(reading: Option<T>) -> Answer<T> {
    reading.ok_or(NOT_SUPPORTED)
}
