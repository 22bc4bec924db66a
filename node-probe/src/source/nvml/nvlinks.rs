//! The NVLinks of a GPU: which there are, and what is at their other ends.

use super::{
    error,
    ffi::{self, RemoteKind},
};
use nodeglass_protocol::{Reading, Text};
use nvml_wrapper::{Device, error::NvmlError, struct_wrappers::device::PciInfo};
use nvml_wrapper_sys::bindings as sys;

/// The most links that a GPU has (`NVML_NVLINK_MAX_LINKS`).
pub const MOST: u32 = sys::NVML_NVLINK_MAX_LINKS;

/// What an NVLink leads to.
#[derive(Clone, Debug, PartialEq)]
pub enum Remote {
    /// A GPU, if NVML said so, or some device at this PCI address.
    Device {
        /// Whether NVML said that it is a GPU.
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
    /// In words.
    pub fn text(&self) -> Text {
        match self {
            Self::Device { gpu: true, name, .. } => format!("GPU {name}").into(),
            Self::Device { name, .. } => format!("device {name}").into(),
            Self::Switch => "switch".into(),
            Self::Cpu => "CPU".into(),
        }
    }
}

/// Whether each link is up, as many as there are; a link that fails to say so is one too.
pub fn states(device: &Device<'_>) -> Result<Vec<Result<bool, NvmlError>>, NvmlError> {
    let mut states = Vec::new();
    for link in 0..MOST {
        match device.link_wrapper_for(link).is_active() {
            // A card with fewer links than there can be says so one way or the other.
            Err(error) if error::unsupported(&error) || matches!(error, NvmlError::InvalidArg) => break,
            Err(error) if error::fault(&error).is_some() => return Err(error),
            state => states.push(state),
        }
    }
    Ok(states)
}

/// Version of a link: 4 of NVLink 4.0. Unsupported of a link that is down.
pub fn version(device: &Device<'_>, link: u32) -> Reading<u64> {
    match error::reading(device.link_wrapper_for(link).version()) {
        Reading::Value(number) => version_of(number),
        reading => reading.map(u64::from),
    }
}

/// The version that a number of `nvmlNvlinkVersion_t` stands for.
fn version_of(number: u32) -> Reading<u64> {
    /// `NVML_NVLINK_VERSION_6_0`, which is newer than the bindings.
    const VERSION_6_0: u32 = 8;
    match number {
        sys::nvmlNvlinkVersion_enum_NVML_NVLINK_VERSION_INVALID => Reading::Unsupported,
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

/// What a link leads to.
///
/// # Errors
/// NVML's; not supported if NVML does not know it.
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
        // The address is all that drivers before 450 know.
        Err(error) if error::missing(&error) => at(false)?,
        Err(error) => return Err(error),
    };
    match &end {
        // Of a link that is down, some drivers write nothing into the address.
        Remote::Device { name, .. } if name.is_empty() => Err(NvmlError::NotSupported),
        _ => Ok(end),
    }
}

/// What tells one PCI device from another, however its address is written.
pub fn address(pci: &PciInfo) -> (u32, u32, u32) {
    (pci.domain, pci.bus, pci.device)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_of_nvml_is_its_version_and_none_is_no_version() {
        let versions = (0..=9).map(version_of).map(|version| version.value().copied());
        let wanted = [None, Some(1), Some(2), Some(2), Some(3), Some(3), Some(4), Some(5), Some(6), None];
        assert_eq!(versions.collect::<Vec<_>>(), wanted);
        assert_eq!(version_of(0), Reading::Unsupported);
        assert!(matches!(version_of(9), Reading::Failed(_)));
    }
}
