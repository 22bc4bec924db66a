//! NVLinks of a GPU: existing links and their remote ends.

use super::{
    error,
    ffi::{self, RemoteKind},
};
use crate::source::calls::CallTracker;
use nodeglass_protocol::{Reading, Text};
use nvml_wrapper::{Device, error::NvmlError, struct_wrappers::device::PciInfo};
use nvml_wrapper_sys::bindings as sys;

/// Maximum number of links per GPU (`NVML_NVLINK_MAX_LINKS`).
pub const MAX_LINKS: u32 = sys::NVML_NVLINK_MAX_LINKS;

/// Remote end of an NVLink.
#[derive(Clone, Debug, PartialEq)]
pub enum Remote {
    /// A GPU, or another device with this PCI address.
    Device {
        /// Whether NVML reported it as a GPU.
        gpu: bool,
        /// Domain, bus and device number.
        address: (u32, u32, u32),
        /// The address as NVML writes it.
        name: String,
    },
    /// A switch.
    Switch,
    /// A CPU.
    Cpu,
}

impl Remote {
    /// Text for display.
    pub fn text(&self) -> Text {
        match self {
            Self::Device { gpu: true, name, .. } => format!("GPU {name}").into(),
            Self::Device { name, .. } => format!("device {name}").into(),
            Self::Switch => "switch".into(),
            Self::Cpu => "CPU".into(),
        }
    }
}

/// Returns whether each existing link is up; a link whose state cannot be read exists too.
pub fn states(device: &Device<'_>, calls: &CallTracker) -> Result<Vec<Result<bool, NvmlError>>, NvmlError> {
    let mut states = Vec::new();
    for link in 0..MAX_LINKS {
        calls.begin_next_call();
        match device.link_wrapper_for(link).is_active() {
            // GPUs with fewer links report the end in one of two ways.
            Err(error) if error::unsupported(&error) || matches!(error, NvmlError::InvalidArg) => break,
            Err(error) if error::fault(&error).is_some() => return Err(error),
            state => states.push(state),
        }
    }
    Ok(states)
}

/// Returns the version of a link, 4 for NVLink 4.0; unsupported for a link that is down.
pub fn version(device: &Device<'_>, link: u32) -> Reading<u64> {
    match error::reading(device.link_wrapper_for(link).version()) {
        Reading::Value(number) => version_of(number),
        reading => reading.map(u64::from),
    }
}

/// Converts a value of `nvmlNvlinkVersion_t`.
fn version_of(number: u32) -> Reading<u64> {
    /// `NVML_NVLINK_VERSION_6_0`, which is newer than the bindings.
    const VERSION_6_0: u32 = 8;
    /// Values that drivers write for unknown.
    const UNKNOWN_8: u32 = 0xff;
    const UNKNOWN_32: u32 = u32::MAX;
    match number {
        sys::nvmlNvlinkVersion_enum_NVML_NVLINK_VERSION_INVALID | UNKNOWN_8 | UNKNOWN_32 => {
            Reading::Unsupported
        }
        sys::nvmlNvlinkVersion_enum_NVML_NVLINK_VERSION_1_0 => Reading::Value(1),
        sys::nvmlNvlinkVersion_enum_NVML_NVLINK_VERSION_2_0
        | sys::nvmlNvlinkVersion_enum_NVML_NVLINK_VERSION_2_2 => Reading::Value(2),
        sys::nvmlNvlinkVersion_enum_NVML_NVLINK_VERSION_3_0
        | sys::nvmlNvlinkVersion_enum_NVML_NVLINK_VERSION_3_1 => Reading::Value(3),
        sys::nvmlNvlinkVersion_enum_NVML_NVLINK_VERSION_4_0 => Reading::Value(4),
        sys::nvmlNvlinkVersion_enum_NVML_NVLINK_VERSION_5_0 => Reading::Value(5),
        VERSION_6_0 => Reading::Value(6),
        newer => Reading::Failed(
            format!("newer than NVLink 6.0, by NVML's number {newer}: update nodeglass to see which").into(),
        ),
    }
}

/// Returns the data rate in bytes/s of a link in one direction, by version; unknown for later ones.
pub fn max_bytes_s(version: u64) -> Option<u64> {
    const GB: u64 = 1_000_000_000;
    match version {
        1 => Some(20 * GB),
        2..=4 => Some(27 * GB),
        5 => Some(54 * GB),
        6 => Some(108 * GB),
        _ => None,
    }
}

/// Returns the remote end of a link.
///
/// # Errors
/// Errors of NVML; not supported if NVML does not know it.
pub fn remote(device: &Device<'_>, link: u32) -> Result<Remote, NvmlError> {
    let at = |gpu: bool| {
        device.link_wrapper_for(link).remote_pci_info().map(|pci| {
            let address = address(&pci);
            Remote::Device { gpu, address, name: pci.bus_id }
        })
    };
    let end = match ffi::remote_kind(device, link) {
        Ok(Some(RemoteKind::Switch)) => Remote::Switch,
        Ok(Some(RemoteKind::Cpu)) => Remote::Cpu,
        Ok(Some(RemoteKind::Gpu)) => at(true)?,
        Ok(None) => return Err(NvmlError::NotSupported),
        // Drivers before 450 report only the address.
        Err(error) if error::missing(&error) => at(false)?,
        Err(error) => return Err(error),
    };
    match &end {
        // Some drivers leave the address of a link that is down empty.
        Remote::Device { name, .. } if name.is_empty() => Err(NvmlError::NotSupported),
        _ => Ok(end),
    }
}

/// Normalized PCI address, for comparing different notations.
pub fn address(pci: &PciInfo) -> (u32, u32, u32) {
    (pci.domain, pci.bus, pci.device)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nvlink_version_numbers_are_decoded() {
        let versions = (0..=9).map(version_of).map(|version| version.value().copied());
        let wanted = [None, Some(1), Some(2), Some(2), Some(3), Some(3), Some(4), Some(5), Some(6), None];
        assert_eq!(versions.collect::<Vec<_>>(), wanted);
        assert_eq!([0, 255, u32::MAX].map(version_of), [(); 3].map(|()| Reading::Unsupported));
        assert!(matches!(version_of(9), Reading::Failed(_)));
    }
}
