//! NVML's return codes in words for the user, and results as readings.
//!
//! The words say what happened and, where there is something to do about it, what. They never name a
//! function or an argument: whoever reads them did not write the call.

use nodeglass_protocol::{Reading, Text};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper_sys::bindings::{nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED as NOT_SUPPORTED, nvmlReturn_t};

/// Why a GPU cannot be read that only somebody else may use: device cgroups hide it from this user.
pub const FORBIDDEN: &str = "not permitted to this user";
/// Why nothing can be read after the driver was replaced under a running library.
const REPLACED: &str =
    "the NVIDIA driver was updated but not reloaded: library and kernel module differ in version";

/// Return codes that `nvml-wrapper` has no name for (`nvmlReturn_t` 23 to 30).
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
/// `NVML_ERROR_ARGUMENT_VERSION_MISMATCH` and `NVML_ERROR_DEPRECATED`: this driver does not offer the call.
const NOT_OFFERED: [u32; 2] = [25, 26];

/// A short fragment for an error, as `nvidia-smi` says it where it has a word.
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
            // Either a return code or a value of an enumeration; the wrapper does not tell which.
            None => return format!("NVML answered {number}, whose meaning is not known").into(),
        },
        error => return error.to_string().into(),
    };
    fragment.into()
}

/// The return code of an error, by which each question of one call gets the error of the whole call:
/// `NvmlError::from` is the way back. What the library lacks, it does not support.
pub fn code(error: NvmlError) -> nvmlReturn_t {
    if unsupported(&error) { NOT_SUPPORTED } else { error.into() }
}

/// A reading: what this card or this driver does not offer is not a failure.
pub fn reading<T>(result: Result<T, NvmlError>) -> Reading<T> {
    match result {
        Ok(value) => Reading::Value(value),
        Err(error) if unsupported(&error) => Reading::Unsupported,
        Err(error) => Reading::Failed(of(&error).into()),
    }
}

/// A reading of a text.
pub fn text(result: Result<String, NvmlError>) -> Reading<Text> {
    reading(result).map(Text::from)
}

/// Whether an error means that there is no such reading, now or later.
pub fn unsupported(error: &NvmlError) -> bool {
    match error {
        NvmlError::NotSupported => true,
        NvmlError::UnexpectedVariant(code) => NOT_OFFERED.contains(code),
        error => missing(error),
    }
}

/// Whether the library lacks the function, which only another driver can change.
pub fn missing(error: &NvmlError) -> bool {
    matches!(error, NvmlError::FunctionNotFound | NvmlError::FailedToLoadSymbol(_))
}

/// Why the whole GPU cannot be read, if that is what an error means.
pub fn fault(error: &NvmlError) -> Option<Text> {
    matches!(error, NvmlError::GpuLost | NvmlError::ResetRequired).then(|| of(error))
}

/// Whether an error means that the driver as a whole is gone, or is another one than this library's.
pub fn ends_session(error: &NvmlError) -> bool {
    matches!(error, NvmlError::Uninitialized | NvmlError::DriverNotLoaded | NvmlError::LibRmVersionMismatch)
}

/// The sentence for an error that concerns the whole driver.
pub fn of_driver(error: &NvmlError) -> Text {
    match error {
        NvmlError::DriverNotLoaded => "no NVIDIA driver: its kernel module is not loaded".into(),
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

/// The sentence for a library that cannot be loaded, with the dynamic linker's `reason`.
///
/// A library that is not there is the ordinary case of a node without GPUs. Everything else (not a
/// library, built for another libc, no permission) is a broken installation, and the reason says which.
pub fn of_library(library: &str, reason: &str) -> Text {
    if reason.contains("No such file") {
        return format!("no NVIDIA driver: {library} cannot be loaded on this machine").into();
    }
    format!("the NVIDIA driver's library cannot be loaded: {reason}").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_failure_has_one_text_whether_asked_alone_or_with_others() {
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
    fn no_text_is_written_for_developers() {
        for number in (1..=30).chain([999]) {
            let text = of(&NvmlError::from(number)).to_string();
            for word in ["argument", "Nvml::", "nvmlInit", "query", "symbol", "variant", "return code"] {
                assert!(!text.contains(word), "{number}: {text}");
            }
        }
    }

    #[test]
    fn only_a_library_that_is_not_there_means_that_there_is_no_driver() {
        let absent = of_library(
            "libnvidia-ml.so.1",
            "libnvidia-ml.so.1: cannot open shared object file: No such file or directory",
        );
        assert_eq!(absent.as_str(), "no NVIDIA driver: libnvidia-ml.so.1 cannot be loaded on this machine");
        let broken = of_library("libnvidia-ml.so.1", "/usr/lib/libnvidia-ml.so.1: invalid ELF header");
        assert_eq!(
            broken.as_str(),
            "the NVIDIA driver's library cannot be loaded: /usr/lib/libnvidia-ml.so.1: invalid ELF header"
        );
    }
}
