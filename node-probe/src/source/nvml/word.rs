//! NVML's return codes as the words people know them by, and results as readings.

use nodeglass_protocol::{Reading, Text};
use nvml_wrapper::error::NvmlError;

/// A short fragment for an error, as `nvidia-smi` says it where it has a word.
pub fn of(error: &NvmlError) -> Text {
    match error {
        NvmlError::GpuLost => "GPU is lost".into(),
        NvmlError::ResetRequired => "GPU requires a reset".into(),
        NvmlError::NoPermission => "insufficient permissions".into(),
        NvmlError::OperatingSystem => "blocked by the operating system or a cgroup".into(),
        NvmlError::Timeout => "timed out".into(),
        NvmlError::Unknown => "unknown error".into(),
        NvmlError::UnexpectedVariant(code) => format!("NVML return code {code}").into(),
        error => error.to_string().into(),
    }
}

/// An error of a call as that of each question that the call was to answer.
pub fn again(error: &NvmlError) -> NvmlError {
    match error {
        NvmlError::NotSupported | NvmlError::FunctionNotFound | NvmlError::FailedToLoadSymbol(_) => {
            NvmlError::NotSupported
        }
        NvmlError::GpuLost => NvmlError::GpuLost,
        NvmlError::ResetRequired => NvmlError::ResetRequired,
        NvmlError::NoPermission => NvmlError::NoPermission,
        NvmlError::InvalidArg => NvmlError::InvalidArg,
        NvmlError::UnexpectedVariant(code) => NvmlError::UnexpectedVariant(*code),
        _ => NvmlError::Unknown,
    }
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
    matches!(error, NvmlError::NotSupported | NvmlError::FunctionNotFound | NvmlError::FailedToLoadSymbol(_))
}

/// Why the whole GPU cannot be read, if that is what an error means.
pub fn fault(error: &NvmlError) -> Option<Text> {
    matches!(error, NvmlError::GpuLost | NvmlError::ResetRequired).then(|| of(error))
}
