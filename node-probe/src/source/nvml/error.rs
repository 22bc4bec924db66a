//! NVML errors as messages for the user, and results as readings.
//!
//! Messages describe what happened and a remedy if there is one. They never mention functions or
//! arguments, which mean nothing to users.

use nodeglass_protocol::{Reading, Text};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper_sys::bindings::{nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED as NOT_SUPPORTED, nvmlReturn_t};

/// Reason for a GPU that only other users may access, for example by a device cgroup.
pub const FORBIDDEN: &str = "not permitted to this user";
/// Reason after the driver was replaced while the library was loaded.
const REPLACED: &str =
    "the NVIDIA driver was updated but not reloaded: library and kernel module differ in version";

/// Return codes unknown to `nvml-wrapper` (`nvmlReturn_t` 23 to 30).
const UNNAMED: [(u32, &str); 8] = [
    (23, "the driver has run out of resources"),
    (24, "this clock frequency is not supported"),
    (25, "this driver knows the call in another version only"),
    (26, "this driver no longer offers it"),
    (27, "the driver is not ready yet"),
    (28, "no such GPU"),
    (29, "not possible in the state that the GPU is in"),
    (30, "this kind of reset is not supported"),
];
/// `NVML_ERROR_ARGUMENT_VERSION_MISMATCH` and `NVML_ERROR_DEPRECATED`: this driver does not support
/// the call.
const NOT_OFFERED: [u32; 2] = [25, 26];

/// Returns a short message, `nvidia-smi`'s if it has one.
pub fn of(error: &NvmlError) -> Text {
    let fragment = match error {
        NvmlError::GpuLost => "GPU is lost",
        NvmlError::ResetRequired => "GPU requires a reset",
        NvmlError::NoPermission => "insufficient permissions",
        NvmlError::OperatingSystem => "blocked by the operating system or a cgroup",
        NvmlError::Timeout => "timed out",
        NvmlError::Unknown => "unknown error",
        NvmlError::Uninitialized => "the connection to the NVIDIA driver was lost",
        NvmlError::DriverNotLoaded => "the NVIDIA driver's kernel module is not loaded",
        NvmlError::LibRmVersionMismatch => REPLACED,
        NvmlError::InvalidArg => "the driver rejected the request",
        NvmlError::NotSupported => "not supported by this card or driver",
        NvmlError::FunctionNotFound | NvmlError::FailedToLoadSymbol(_) => "this driver is too old for it",
        NvmlError::NotFound => "the driver found nothing of the kind",
        NvmlError::NoData => "the driver has no data for it",
        NvmlError::InsufficientSize(None) => "the list kept growing while it was read",
        NvmlError::InsufficientPower => "the GPU's external power cables are not attached properly",
        NvmlError::IrqIssue => "the kernel met an interrupt problem with the GPU",
        NvmlError::LibraryNotFound => "a library of the driver is missing",
        NvmlError::CorruptedInfoROM => "the GPU's infoROM is corrupted",
        NvmlError::InUse => "the GPU is in use",
        NvmlError::InsufficientMemory => "the driver has run out of memory",
        NvmlError::VgpuEccNotSupported => "not available while ECC is on",
        NvmlError::Utf8Error(_) | NvmlError::NulError(_) => "the driver's text is not valid UTF-8",
        NvmlError::InsufficientSize(Some(count)) => {
            return format!("NVML reported {count} entries, which is implausible").into();
        }
        NvmlError::UnexpectedVariant(number) => match UNNAMED.iter().find(|(code, _)| code == number) {
            Some((_, fragment)) => fragment,
            // Either a return code or an enumeration value; the wrapper does not distinguish them.
            None => return format!("NVML returned the unknown error {number}").into(),
        },
        error => return error.to_string().into(),
    };
    fragment.into()
}

/// Returns the code of an error, from which `NvmlError::from` creates copies for all queries of a
/// batched call. Missing functions count as unsupported.
pub fn code(error: NvmlError) -> nvmlReturn_t {
    if unsupported(&error) { NOT_SUPPORTED } else { error.into() }
}

/// Converts a result to a reading; unsupported is not a failure.
pub fn reading<T>(result: Result<T, NvmlError>) -> Reading<T> {
    match result {
        Ok(value) => Reading::Value(value),
        Err(error) if unsupported(&error) => Reading::Unsupported,
        Err(error) => Reading::Failed(of(&error).into()),
    }
}

/// Converts a text result to a reading.
pub fn text(result: Result<String, NvmlError>) -> Reading<Text> {
    reading(result).map(Text::from)
}

/// Returns whether an error means that the reading is unsupported.
pub fn unsupported(error: &NvmlError) -> bool {
    match error {
        NvmlError::NotSupported => true,
        NvmlError::UnexpectedVariant(code) => NOT_OFFERED.contains(code),
        error => missing(error),
    }
}

/// Returns the result of the first of two calls that the driver offers.
///
/// # Errors
/// Those of that call.
pub fn first_offered<T>(
    preferred: Result<T, NvmlError>,
    other: impl FnOnce() -> Result<T, NvmlError>,
) -> Result<T, NvmlError> {
    match preferred {
        Err(error) if unsupported(&error) => other(),
        result => result,
    }
}

/// Returns whether the library lacks the function, which is final for this driver.
pub fn missing(error: &NvmlError) -> bool {
    matches!(error, NvmlError::FunctionNotFound | NvmlError::FailedToLoadSymbol(_))
}

/// Returns the fault of the GPU as a whole, if the error means one.
pub fn fault(error: &NvmlError) -> Option<Text> {
    matches!(error, NvmlError::GpuLost | NvmlError::ResetRequired).then(|| of(error))
}

/// Returns whether an error means that the driver is gone or does not match the library.
pub fn ends_session(error: &NvmlError) -> bool {
    matches!(error, NvmlError::Uninitialized | NvmlError::DriverNotLoaded | NvmlError::LibRmVersionMismatch)
}

/// Returns the message for an error of the driver as a whole.
pub fn of_driver(error: &NvmlError) -> Text {
    match error {
        NvmlError::DriverNotLoaded => "the NVIDIA driver is not loaded: its kernel module is missing".into(),
        NvmlError::LibRmVersionMismatch => REPLACED.into(),
        NvmlError::NoPermission => "this user has no permission to use the NVIDIA driver".into(),
        NvmlError::FunctionNotFound | NvmlError::FailedToLoadSymbol(_) => {
            "the NVIDIA driver is too old: its library lacks functions that are needed to open it".into()
        }
        NvmlError::InsufficientSize(Some(count)) => {
            format!("the NVIDIA driver does not work: NVML reported {count} GPUs, which is implausible")
                .into()
        }
        error => format!("the NVIDIA driver does not work: {}", of(error)).into(),
    }
}

/// Returns the message for a library that cannot be loaded, given the dynamic linker's `reason`.
///
/// A missing library is the normal case on a node without GPUs. Anything else (invalid file,
/// another libc, no permission) is a broken installation, and the reason is included.
pub fn of_library(library: &str, reason: &str) -> Text {
    if reason.contains("No such file") {
        return format!("the NVIDIA driver is not installed: {library} cannot be loaded").into();
    }
    format!("the NVIDIA driver's library cannot be loaded: {reason}").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batched_and_single_queries_have_the_same_messages() {
        for number in (1..=30).chain([999, 4711]) {
            let alone = NvmlError::from(number);
            let among_others = NvmlError::from(code(NvmlError::from(number)));
            assert_eq!(unsupported(&alone), unsupported(&among_others), "{number}");
            if !unsupported(&alone) {
                assert_eq!(of(&alone), of(&among_others), "{number}");
            }
        }
    }

    #[test]
    fn messages_contain_no_developer_terms() {
        for number in (1..=30).chain([999]) {
            let text = of(&NvmlError::from(number)).to_string();
            for word in ["argument", "Nvml::", "nvmlInit", "query", "symbol", "variant", "return code"] {
                assert!(!text.contains(word), "{number}: {text}");
            }
        }
    }

    #[test]
    fn only_a_missing_library_means_that_there_is_no_driver() {
        let absent = of_library(
            "libnvidia-ml.so.1",
            "libnvidia-ml.so.1: cannot open shared object file: No such file or directory",
        );
        assert_eq!(absent.as_str(), "the NVIDIA driver is not installed: libnvidia-ml.so.1 cannot be loaded");
        let broken = of_library("libnvidia-ml.so.1", "/usr/lib/libnvidia-ml.so.1: invalid ELF header");
        assert_eq!(
            broken.as_str(),
            "the NVIDIA driver's library cannot be loaded: /usr/lib/libnvidia-ml.so.1: invalid ELF header"
        );
    }
}
