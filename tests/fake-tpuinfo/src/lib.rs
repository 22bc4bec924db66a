//! A stand-in for `libtpuinfo.so` with the functions of its header. `$FAKE_TPUINFO` names a JSON file with a
//! [`State`], which is read again by each call; without one, the library counts no chips.
//!
//! Like the real one, it leaves the arrays untouched on error, can end its process, and its destructor hangs.
#![expect(unsafe_code, reason = "the library has a C ABI")]

use serde::{Deserialize, Serialize};
use std::ffi::c_int;
use std::path::PathBuf;
use std::time::Duration;
use std::{env, fs, io, process, thread};

/// Report of the library.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct State {
    /// Devices of the runtime.
    pub devices: Vec<Device>,
    /// Result of `tpu_chip_count`, if it is not the number of devices.
    pub count: Option<c_int>,
    /// Status of `tpu_metrics`.
    pub status: c_int,
    /// Whether `tpu_metrics` never returns.
    pub hangs: bool,
    /// Whether `tpu_chip_count` ends the process, as Go's runtime does on a panic.
    pub panics: bool,
    /// Text that `tpu_chip_count` prints to stdout.
    pub prints: String,
}

/// A device of the runtime.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// Its number.
    pub id: i64,
    /// HBM in use, in bytes.
    pub used: i64,
    /// HBM in total, in bytes.
    pub total: i64,
    /// Duty cycle in %; null is not a number.
    pub duty: Option<f64>,
}

/// The library that cargo built for this process's executable.
///
/// # Errors
/// If there is none beside the executable: the crate of the test must depend on `fake-tpuinfo`.
pub fn library() -> io::Result<PathBuf> {
    let executable = env::current_exe()?;
    let folders = executable.ancestors().skip(1).take(2);
    let places = folders
        .flat_map(|folder| [folder.join("libfake_tpuinfo.so"), folder.join("deps/libfake_tpuinfo.so")]);
    let newest = places.filter_map(|path| Some((fs::metadata(&path).ok()?.modified().ok()?, path))).max();
    newest.map(|(_, path)| path).ok_or_else(|| io::Error::other("libfake_tpuinfo.so is not beside the test"))
}

fn state() -> State {
    let text = env::var_os("FAKE_TPUINFO").and_then(|path| fs::read_to_string(path).ok());
    text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
}

/// `int tpu_chip_count(void)`.
#[unsafe(no_mangle)]
pub extern "C" fn tpu_chip_count() -> c_int {
    let state = state();
    if !state.prints.is_empty() {
        println!("{}", state.prints);
    }
    if state.panics {
        eprintln!("panic: two types of chips\n\ngoroutine 17 [running]:\nmain.chips()");
        process::abort();
    }
    state.count.unwrap_or_else(|| c_int::try_from(state.devices.len()).unwrap_or(c_int::MAX))
}

/// `int tpu_metrics(int, long long*, long long*, long long*, double*, int)`.
///
/// # Safety
/// Each array has `n` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpu_metrics(
    _port: c_int,
    ids: *mut i64,
    used: *mut i64,
    total: *mut i64,
    duty: *mut f64,
    n: c_int,
) -> c_int {
    let state = state();
    if state.hangs {
        thread::sleep(Duration::MAX);
    }
    if state.status != 0 {
        return state.status;
    }
    let count = state.count.unwrap_or_else(|| c_int::try_from(state.devices.len()).unwrap_or(c_int::MAX));
    if n != count {
        return 1;
    }
    for (at, device) in state.devices.iter().enumerate().take(usize::try_from(n).unwrap_or(0)) {
        // SAFETY: the caller promises `n` elements, and `at` is below `n`.
        unsafe {
            *ids.add(at) = device.id;
            *used.add(at) = device.used;
            *total.add(at) = device.total;
            *duty.add(at) = device.duty.unwrap_or(f64::NAN);
        }
    }
    0
}

/// The loader runs it when the process ends in order.
extern "C" fn destructor() {
    // Tests are linked with this crate as well, and end in order.
    while env::var_os("FAKE_TPUINFO").is_some() {
        thread::sleep(Duration::from_secs(3_600));
    }
}

#[used]
#[unsafe(link_section = ".fini_array")]
static DESTRUCTOR: extern "C" fn() = destructor;
