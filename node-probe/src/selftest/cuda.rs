//! A kernel on one GPU through the CUDA driver API, which the driver's own library has: no toolkit is needed.
#![expect(unsafe_code, reason = "the driver API has a C ABI, and is loaded at run time")]

use libloading::Library;
use std::{
    ffi::{CStr, CString, c_char, c_int, c_uint, c_void},
    path::Path,
    ptr,
};

/// The kernel as text, which the driver compiles for its GPU; for compute capability 5.0 and later.
const KERNEL: &str = concat!(include_str!("load.ptx"), "\0");
/// Name of the kernel.
const ENTRY: &CStr = c"load";
/// Size of the buffer in bytes, a power of two.
const BUFFER_BYTES: usize = 32 << 20;
/// Threads of a block, and blocks for each multiprocessor.
const SHAPE: (c_uint, c_uint) = (256, 8);
/// `CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT`.
const MULTIPROCESSORS: c_int = 16;

type Handle = *mut c_void;

/// A failure of the library.
#[derive(Debug, thiserror::Error)]
pub enum CudaError {
    /// The library or a function of it is missing.
    #[error("{0}")]
    Library(#[from] libloading::Error),
    /// A call failed.
    #[error("{call} failed: {name}")]
    Call {
        /// The function.
        call: &'static str,
        /// `CUDA_ERROR_OUT_OF_MEMORY`.
        name: String,
    },
}

/// Calls a function of the library by its name, and checks its result.
macro_rules! call {
    ($cuda:expr, $name:ident($($value:expr => $type:ty),*)) => {{
        let cuda: &Cuda = $cuda;
        // SAFETY: the type is that of the function in cuda.h; pointers are valid for the call.
        let code = unsafe {
            let function = cuda.library.get::<unsafe extern "C" fn($($type),*) -> c_int>(stringify!($name).as_bytes())?;
            function($($value),*)
        };
        cuda.check(stringify!($name), code)
    }};
}

/// The library.
struct Cuda {
    library: Library,
}

impl Cuda {
    fn check(&self, call: &'static str, code: c_int) -> Result<(), CudaError> {
        if code == 0 {
            return Ok(());
        }
        let mut name: *const c_char = ptr::null();
        // SAFETY: the type is that of the function in cuda.h, whose result is a static text or null.
        let known = unsafe {
            let by_code = self
                .library
                .get::<unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int>(b"cuGetErrorName")?;
            (by_code(code, &mut name) == 0 && !name.is_null())
                .then(|| CStr::from_ptr(name).to_string_lossy().into_owned())
        };
        Err(CudaError::Call { call, name: known.unwrap_or_else(|| format!("error {code}")) })
    }
}

/// The kernel and its buffer on one GPU. Both end with the process, also if it is killed.
pub struct Kernel {
    cuda: Cuda,
    function: Handle,
    buffer: u64,
    blocks: c_uint,
}

impl Kernel {
    /// Prepares the kernel on the GPU at a PCI address.
    ///
    /// # Errors
    /// If there is no library, or the driver refuses a call.
    pub fn on(library: &Path, pci: &str) -> Result<Self, CudaError> {
        // SAFETY: loading runs the initialisers of the driver's library, in a process that does nothing else.
        let cuda = Cuda { library: unsafe { Library::new(library) }? };
        call!(&cuda, cuInit(0 => c_uint))?;
        let address = CString::new(pci).unwrap_or_default();
        let (mut device, mut multiprocessors): (c_int, c_int) = (0, 0);
        call!(&cuda, cuDeviceGetByPCIBusId(&mut device => *mut c_int, address.as_ptr() => *const c_char))?;
        call!(&cuda, cuDeviceGetAttribute(&mut multiprocessors => *mut c_int, MULTIPROCESSORS => c_int, device => c_int))?;
        let (mut context, mut module, mut function) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        let mut buffer = 0;
        call!(&cuda, cuDevicePrimaryCtxRetain(&mut context => *mut Handle, device => c_int))?;
        call!(&cuda, cuCtxSetCurrent(context => Handle))?;
        call!(&cuda, cuModuleLoadData(&mut module => *mut Handle, KERNEL.as_ptr().cast() => *const c_void))?;
        call!(&cuda, cuModuleGetFunction(&mut function => *mut Handle, module => Handle, ENTRY.as_ptr() => *const c_char))?;
        call!(&cuda, cuMemAlloc_v2(&mut buffer => *mut u64, BUFFER_BYTES => usize))?;
        call!(&cuda, cuMemsetD32_v2(buffer => u64, 0 => c_uint, BUFFER_BYTES / 4 => usize))?;
        let blocks = c_uint::try_from(multiprocessors).unwrap_or(1).max(1) * SHAPE.1;
        Ok(Self { cuda, function, buffer, blocks })
    }

    /// Runs the kernel once, with a number of rounds in each thread, and waits for its end.
    ///
    /// # Errors
    /// If the driver refuses it.
    pub fn run(&self, mut rounds: u32) -> Result<(), CudaError> {
        let (mut buffer, mut mask) = (self.buffer, (BUFFER_BYTES / 4 - 1) as u32);
        let mut parameters: [*mut c_void; 3] =
            [(&raw mut buffer).cast(), (&raw mut mask).cast(), (&raw mut rounds).cast()];
        let none = ptr::null_mut();
        call!(&self.cuda, cuLaunchKernel(
            self.function => Handle,
            self.blocks => c_uint, 1 => c_uint, 1 => c_uint,
            SHAPE.0 => c_uint, 1 => c_uint, 1 => c_uint,
            0 => c_uint, none => Handle,
            parameters.as_mut_ptr() => *mut *mut c_void, none.cast() => *mut *mut c_void
        ))?;
        call!(&self.cuda, cuCtxSynchronize())
    }
}
