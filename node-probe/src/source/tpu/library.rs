//! `libtpuinfo.so` through its C ABI.
#![expect(unsafe_code, reason = "libtpuinfo has a C ABI and no wrapper")]

use libloading::{Library, Symbol};
use serde::{Deserialize, Serialize};
use std::{ffi::c_int, path::Path};

/// Maximum number of devices that the library is asked for.
const MAX_DEVICES: i32 = 256;
/// Folders to try after the loader's.
const FOLDERS: [&str; 3] = ["/usr/local/lib", "/usr/lib", "/lib"];
/// Lets the library choose: `$LIBTPUINFO_GRPC_PORT`, or 8431.
const DEFAULT_PORT: c_int = 0;

type ChipCount = unsafe extern "C" fn() -> c_int;
type Metrics = unsafe extern "C" fn(c_int, *mut i64, *mut i64, *mut i64, *mut f64, c_int) -> c_int;

/// Report of the library at one time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Number of devices (`tpu_chip_count`).
    pub count: i32,
    /// Status of `tpu_metrics`: 0, or 2 if the runtime of the workload does not respond.
    pub status: i32,
    /// Metrics of each device if the status is 0.
    pub devices: Vec<DeviceMetrics>,
}

/// Metrics of a device (`tpu_metrics`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceMetrics {
    /// Its number.
    pub id: i64,
    /// HBM in use, in bytes.
    pub used: i64,
    /// HBM in total, in bytes.
    pub total: i64,
    /// Share of the time in which the TensorCore was busy, in %; `None` if it is not a number.
    pub duty_pct: Option<f64>,
}

/// The open library.
pub struct TpuInfo {
    library: Library,
}

impl TpuInfo {
    /// Loads the library.
    ///
    /// # Errors
    /// If it or one of its functions cannot be found.
    pub fn open(path: &Path) -> Result<Self, libloading::Error> {
        // SAFETY: loading runs the library's initialisers, in a process that does nothing else.
        let load = |path: &Path| unsafe { Library::new(path) };
        // Its instructions copy it to a folder that the loader finds only after `ldconfig`.
        let mut usual =
            FOLDERS.iter().map(|folder| Path::new(folder).join(path)).filter(|path| path.is_file());
        let library = match (load(path), usual.next()) {
            (Ok(library), _) => library,
            (Err(_), Some(copy)) => load(&copy)?,
            (Err(error), None) => return Err(error),
        };
        let info = Self { library };
        info.chip_count()?;
        info.metrics()?;
        Ok(info)
    }

    fn chip_count(&self) -> Result<Symbol<'_, ChipCount>, libloading::Error> {
        // SAFETY: the type matches the library's header.
        unsafe { self.library.get(b"tpu_chip_count") }
    }

    fn metrics(&self) -> Result<Symbol<'_, Metrics>, libloading::Error> {
        // SAFETY: the type is that of the library's header.
        unsafe { self.library.get(b"tpu_metrics") }
    }

    /// Queries the metrics of all devices. May hang, or end the process.
    ///
    /// # Errors
    /// If a function has disappeared.
    pub fn report(&self) -> Result<Report, libloading::Error> {
        // SAFETY: the function has no arguments.
        let count = unsafe { self.chip_count()?() };
        let most = count.clamp(0, MAX_DEVICES);
        let length = usize::try_from(most).unwrap_or_default();
        // What the library leaves untouched must not pass for a value.
        let (mut ids, mut used, mut total) = (vec![-1; length], vec![-1; length], vec![-1; length]);
        let mut duty = vec![f64::NAN; length];
        let status = if length == 0 {
            0
        } else {
            let metrics = self.metrics()?;
            // SAFETY: each array has `most` elements, which is the length that is passed.
            unsafe {
                metrics(
                    DEFAULT_PORT,
                    ids.as_mut_ptr(),
                    used.as_mut_ptr(),
                    total.as_mut_ptr(),
                    duty.as_mut_ptr(),
                    most,
                )
            }
        };
        let devices = (0..if status == 0 { length } else { 0 }).map(|at| DeviceMetrics {
            id: ids[at],
            used: used[at],
            total: total[at],
            duty_pct: Some(duty[at]).filter(|duty: &f64| duty.is_finite()),
        });
        Ok(Report { count, status, devices: devices.collect() })
    }
}
