//! Macros for the forms of NVML's functions, so that each function is one line.

/// Getters of a single value of a device.
macro_rules! getters {
    ($($symbol:ident($($arg:ident: $ty:ty),*) -> $out:ty = |$ctx:ident| $answer:expr;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $symbol(
            device: ::nvml_wrapper_sys::bindings::nvmlDevice_t,
            $($arg: $ty,)*
            out: *mut $out,
        ) -> ::nvml_wrapper_sys::bindings::nvmlReturn_t {
            let answer = $crate::abi::on_device_with_override(stringify!($symbol), device, |$ctx| $answer);
            // SAFETY: by NVML's contract the last argument is null or points to the result.
            unsafe { $crate::abi::put::put_with_override(out, answer) }
        }
    )*};
}
pub(super) use getters;

/// Getters of several values of one type at once.
macro_rules! getters_of_each {
    ($($symbol:ident($($out:ident),*) -> $ty:ty = |$ctx:ident| $answer:expr;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $symbol(
            device: ::nvml_wrapper_sys::bindings::nvmlDevice_t,
            $($out: *mut $ty,)*
        ) -> ::nvml_wrapper_sys::bindings::nvmlReturn_t {
            let answer = $crate::abi::on_device_with_override(stringify!($symbol), device, |$ctx| $answer);
            let injected = answer.as_ref().map_or(None, |(_, injected)| *injected);
            // SAFETY: by NVML's contract each argument is null or points to a result.
            let code = unsafe { $crate::abi::put::put_each([$($out),*], answer.map(|(answer, _)| answer)) };
            // SAFETY: as above; the first result is what the others only explain.
            unsafe { $crate::abi::put::overwrite([$($out),*][0], injected) };
            code
        }
    )*};
}
pub(super) use getters_of_each;

/// Getters of strings into the caller's buffer.
macro_rules! getters_of_text {
    ($($symbol:ident($($arg:ident: $ty:ty),*) = |$ctx:ident| $answer:expr;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $symbol(
            device: ::nvml_wrapper_sys::bindings::nvmlDevice_t,
            $($arg: $ty,)*
            out: *mut ::std::ffi::c_char,
            length: u32,
        ) -> ::nvml_wrapper_sys::bindings::nvmlReturn_t {
            let answer = $crate::abi::on_device(stringify!($symbol), device, |$ctx| $answer);
            // SAFETY: by NVML's contract the buffer is null or has `length` bytes.
            unsafe { $crate::abi::put::put_text(out, length, answer) }
        }
    )*};
}
pub(super) use getters_of_text;

/// Getters of lists into the caller's buffer, whose size is an in-out argument.
macro_rules! getters_of_list {
    ($($symbol:ident($($arg:ident: $ty:ty),*) -> $item:ty = |$ctx:ident| $answer:expr;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $symbol(
            device: ::nvml_wrapper_sys::bindings::nvmlDevice_t,
            $($arg: $ty,)*
            count: *mut u32,
            items: *mut $item,
        ) -> ::nvml_wrapper_sys::bindings::nvmlReturn_t {
            let answer = $crate::abi::on_device_with_override(stringify!($symbol), device, |$ctx| $answer);
            // SAFETY: by NVML's contract the buffer has as many elements as `count` says.
            unsafe { $crate::abi::put::put_list_with_override(count, items, answer) }
        }
    )*};
}
pub(super) use getters_of_list;

/// Getters with a versioned struct that may hold arguments.
macro_rules! getters_by_version {
    ($($symbol:ident($ty:ty, $version:expr) = |$ctx:ident, $asked:ident| $answer:expr;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $symbol(
            device: ::nvml_wrapper_sys::bindings::nvmlDevice_t,
            out: *mut $ty,
        ) -> ::nvml_wrapper_sys::bindings::nvmlReturn_t {
            let version = $crate::abi::put::version::<$ty>($version);
            let call = (stringify!($symbol), version);
            // SAFETY: by NVML's contract the struct is null or begins with its version.
            unsafe { $crate::abi::put::put_versioned(call, device, out, |$ctx, $asked| $answer) }
        }
    )*};
}
pub(super) use getters_by_version;

/// Getters of values of the whole machine.
macro_rules! getters_of_system {
    ($($symbol:ident -> $out:ty = |$state:ident| $answer:expr;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $symbol(out: *mut $out) -> ::nvml_wrapper_sys::bindings::nvmlReturn_t {
            let answer = $crate::abi::called_with_override(stringify!($symbol), |$state| $answer);
            // SAFETY: by NVML's contract the argument is null or points to the result.
            unsafe { $crate::abi::put::put_with_override(out, answer) }
        }
    )*};
}
pub(super) use getters_of_system;
