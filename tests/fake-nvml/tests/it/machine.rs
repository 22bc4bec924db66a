//! A machine with its own driver: each test loads a separate copy of the library.
#![expect(clippy::unwrap_used, reason = "a test's own machinery fails as its test does")]

use fake_nvml::install;
use nvml_wrapper::{Device, Nvml};
use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlFieldValue_t, nvmlReturn_t, nvmlValue_t};
use serde_json::Value;
use std::{
    mem::ManuallyDrop,
    ops::Deref,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    thread,
    time::Duration,
};
use tempfile::TempDir;

/// A little longer than the library caches the state file.
const CACHE_TIME: Duration = Duration::from_millis(30);
/// Held from setting the variable until the library has read it.
static STATE_VARIABLE: Mutex<()> = Mutex::new(());

/// A machine with a loaded, initialised library; it stays loaded, as the process ends soon.
pub struct Machine {
    nvml: ManuallyDrop<Nvml>,
    library: PathBuf,
    folder: TempDir,
}

impl Machine {
    /// A machine whose driver has every symbol.
    pub fn new(state: &Value) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let library = install::install(&folder.path().join("lib")).unwrap();
        Self::load(folder, library, state)
    }

    /// A machine with a driver of this version.
    pub fn with_driver(driver: (u32, u32), state: &Value) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let library = install::install_driver(&folder.path().join("lib"), driver).unwrap();
        Self::load(folder, library, state)
    }

    fn load(folder: TempDir, library: PathBuf, state: &Value) -> Self {
        let path = folder.path().join("state.json");
        install::write_state(&path, &serde_json::from_value(state.clone()).unwrap()).unwrap();
        let guard = STATE_VARIABLE.lock().unwrap_or_else(PoisonError::into_inner);
        #[expect(unsafe_code, reason = "nothing else here reads or writes the environment meanwhile")]
        // SAFETY: only this function changes it, under a lock, and std guards its own readers.
        unsafe {
            std::env::set_var("FAKE_NVML_STATE", &path);
        }
        let nvml = Nvml::builder().lib_path(library.as_os_str()).init().unwrap();
        drop(guard);
        Self { nvml: ManuallyDrop::new(nvml), library, folder }
    }

    /// Replaces the state file, and waits until the library has read it.
    pub fn set(&self, state: &Value) {
        let state = serde_json::from_value(state.clone()).unwrap();
        install::write_state(&self.folder.path().join("state.json"), &state).unwrap();
        thread::sleep(CACHE_TIME);
    }

    /// Path of the loaded library.
    pub fn library(&self) -> &Path {
        &self.library
    }

    /// A GPU.
    pub fn gpu(&self, index: u32) -> Device<'_> {
        self.nvml.device_by_index(index).unwrap()
    }

    /// One field value, with a scope, which nvml-wrapper does not support.
    pub fn field(&self, device: &Device<'_>, id: u32, scope: u32) -> Result<u64, nvmlReturn_t> {
        self.typed_field(device, id, scope).map(|(_, value)| value)
    }

    /// One field value and its `nvmlValueType_t`.
    pub fn typed_field(&self, device: &Device<'_>, id: u32, scope: u32) -> Result<(u32, u64), nvmlReturn_t> {
        let mut field = blank(id, scope);
        let call = self.nvml.lib().nvmlDeviceGetFieldValues.as_ref().unwrap();
        #[expect(unsafe_code, reason = "nvml-wrapper always uses scope 0")]
        // SAFETY: one field, as the count says.
        let code = unsafe { call(raw(device), 1, &raw mut field) };
        match (code, field.nvmlReturn) {
            (0, 0) => Ok((field.valueType, bits(&field))),
            (0, code) | (code, _) => Err(code),
        }
    }
}

impl Deref for Machine {
    type Target = Nvml;

    fn deref(&self) -> &Nvml {
        &self.nvml
    }
}

/// The handle behind a device.
pub fn raw(device: &Device<'_>) -> nvmlDevice_t {
    #[expect(unsafe_code, reason = "calls that nvml-wrapper does not make need the handle")]
    // SAFETY: it is used while the library is loaded, which is until the process ends.
    unsafe {
        device.handle()
    }
}

/// A field before it is queried.
fn blank(id: u32, scope: u32) -> nvmlFieldValue_t {
    nvmlFieldValue_t {
        fieldId: id,
        scopeId: scope,
        timestamp: 0,
        latencyUsec: 0,
        valueType: u32::MAX,
        nvmlReturn: u32::MAX,
        value: nvmlValue_t { ullVal: 0 },
    }
}

/// A value's bits; only the lower 32 for 32-bit types.
fn bits(field: &nvmlFieldValue_t) -> u64 {
    #[expect(unsafe_code, reason = "a C union")]
    // SAFETY: every variant is made of plain bits.
    let bits = unsafe { field.value.ullVal };
    if field.valueType == 3 { bits } else { bits & u64::from(u32::MAX) }
}

/// An NVML function whose only argument is a struct.
pub type ByStruct<T> = unsafe extern "C" fn(nvmlDevice_t, *mut T) -> nvmlReturn_t;

/// A call with a struct `initial`, whose first field is set to its version.
pub fn versioned<T>(
    device: &Device<'_>,
    call: &Result<ByStruct<T>, impl Sized>,
    number: u32,
    initial: T,
) -> Result<T, nvmlReturn_t> {
    let call = call.as_ref().ok().expect("the driver has this call");
    let mut asked = initial;
    #[expect(unsafe_code, reason = "nvml-wrapper does not make this call")]
    // SAFETY: such a struct begins with its version, a u32, and the call takes a pointer to it.
    let code = unsafe {
        (&raw mut asked).cast::<u32>().write(size_of::<T>() as u32 | number << 24);
        call(raw(device), &raw mut asked)
    };
    if code == 0 { Ok(asked) } else { Err(code) }
}

/// A zeroed struct.
pub fn zeros<T: Copy>() -> T {
    #[expect(unsafe_code, reason = "C structs are initialised with zeros")]
    // SAFETY: used for NVML's structs only, which are numbers and pointers.
    unsafe {
        std::mem::zeroed()
    }
}
