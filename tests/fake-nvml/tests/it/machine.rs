//! A machine with a driver of its own: each test loads another copy of the library.
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

/// The library looks for news this often, and a little more.
const FRESH: Duration = Duration::from_millis(30);
/// Held from naming the state file until the library has looked where it is.
static NAMING: Mutex<()> = Mutex::new(());

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

    /// A machine whose driver is as old as that.
    pub fn with_driver(driver: (u32, u32), state: &Value) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let library = install::install_driver(&folder.path().join("lib"), driver).unwrap();
        Self::load(folder, library, state)
    }

    fn load(folder: TempDir, library: PathBuf, state: &Value) -> Self {
        let path = folder.path().join("state.json");
        install::write_state(&path, &serde_json::from_value(state.clone()).unwrap()).unwrap();
        let naming = NAMING.lock().unwrap_or_else(PoisonError::into_inner);
        #[expect(unsafe_code, reason = "nobody else here reads or writes the environment meanwhile")]
        // SAFETY: only this function changes it, under a lock, and std guards its own readers.
        unsafe {
            std::env::set_var("FAKE_NVML_STATE", &path);
        }
        let nvml = Nvml::builder().lib_path(library.as_os_str()).init().unwrap();
        drop(naming);
        Self { nvml: ManuallyDrop::new(nvml), library, folder }
    }

    /// Moves the GPUs, and waits until the library has seen it.
    pub fn set(&self, state: &Value) {
        let state = serde_json::from_value(state.clone()).unwrap();
        install::write_state(&self.folder.path().join("state.json"), &state).unwrap();
        thread::sleep(FRESH);
    }

    /// Where the library was loaded from.
    pub fn library(&self) -> &Path {
        &self.library
    }

    /// A GPU.
    pub fn gpu(&self, index: u32) -> Device<'_> {
        self.nvml.device_by_index(index).unwrap()
    }

    /// One field value, with the scope that nvml-wrapper cannot give.
    pub fn field(&self, device: &Device<'_>, id: u32, scope: u32) -> Result<u64, nvmlReturn_t> {
        self.typed_field(device, id, scope).map(|(_, value)| value)
    }

    /// One field value and its `nvmlValueType_t`.
    pub fn typed_field(&self, device: &Device<'_>, id: u32, scope: u32) -> Result<(u32, u64), nvmlReturn_t> {
        let mut field = blank(id, scope);
        let call = self.nvml.lib().nvmlDeviceGetFieldValues.as_ref().unwrap();
        #[expect(unsafe_code, reason = "nvml-wrapper always asks for scope 0")]
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

/// A field to be asked for.
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

/// A value's bits: the lower 32 of those types that have no more.
fn bits(field: &nvmlFieldValue_t) -> u64 {
    #[expect(unsafe_code, reason = "a C union")]
    // SAFETY: every variant is made of plain bits.
    let bits = unsafe { field.value.ullVal };
    if field.valueType == 3 { bits } else { bits & u64::from(u32::MAX) }
}

/// A call of NVML's by a struct alone.
pub type ByStruct<T> = unsafe extern "C" fn(nvmlDevice_t, *mut T) -> nvmlReturn_t;

/// A call by a struct, which is `begun` except for the version in its first field.
pub fn versioned<T>(
    device: &Device<'_>,
    call: &Result<ByStruct<T>, impl Sized>,
    number: u32,
    begun: T,
) -> Result<T, nvmlReturn_t> {
    let call = call.as_ref().ok().expect("the driver has this call");
    let mut asked = begun;
    #[expect(unsafe_code, reason = "nvml-wrapper does not make this call")]
    // SAFETY: such a struct begins with its version, a u32, and the call takes a pointer to it.
    let code = unsafe {
        (&raw mut asked).cast::<u32>().write(size_of::<T>() as u32 | number << 24);
        call(raw(device), &raw mut asked)
    };
    if code == 0 { Ok(asked) } else { Err(code) }
}

/// A struct of zeros.
pub fn zeros<T: Copy>() -> T {
    #[expect(unsafe_code, reason = "C structs are begun so")]
    // SAFETY: used for NVML's structs only, which are numbers and pointers.
    unsafe {
        std::mem::zeroed()
    }
}
