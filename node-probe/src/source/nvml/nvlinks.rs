//! The NVLinks of a GPU: which there are, and what is at their other ends.

use super::{
    beyond::{self, RemoteKind},
    word,
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
            Err(error) if word::unsupported(&error) || matches!(error, NvmlError::InvalidArg) => break,
            Err(error) if word::fault(&error).is_some() => return Err(error),
            state => states.push(state),
        }
    }
    Ok(states)
}

/// Version of a link: 4 of NVLink 4.0.
pub fn version(device: &Device<'_>, link: u32) -> Reading<u64> {
    match word::reading(device.link_wrapper_for(link).version()) {
        Reading::Value(sys::nvmlNvlinkVersion_enum_NVML_NVLINK_VERSION_1_0) => Reading::Value(1),
        Reading::Value(
            sys::nvmlNvlinkVersion_enum_NVML_NVLINK_VERSION_2_0
            | sys::nvmlNvlinkVersion_enum_NVML_NVLINK_VERSION_2_2,
        ) => Reading::Value(2),
        Reading::Value(
            sys::nvmlNvlinkVersion_enum_NVML_NVLINK_VERSION_3_0
            | sys::nvmlNvlinkVersion_enum_NVML_NVLINK_VERSION_3_1,
        ) => Reading::Value(3),
        Reading::Value(sys::nvmlNvlinkVersion_enum_NVML_NVLINK_VERSION_4_0) => Reading::Value(4),
        Reading::Value(sys::nvmlNvlinkVersion_enum_NVML_NVLINK_VERSION_5_0) => Reading::Value(5),
        Reading::Value(number) => {
            Reading::Failed(format!("NVLink of unknown version number {number}").into())
        }
        reading => reading.map(u64::from),
    }
}

/// What a link leads to.
///
/// # Errors
/// NVML's.
pub fn remote(device: &Device<'_>, link: u32) -> Result<Remote, NvmlError> {
    let at = |gpu: bool| {
        device.link_wrapper_for(link).remote_pci_info().map(|pci| {
            let address = address(&pci);
            Remote::Device { gpu, address, name: pci.bus_id }
        })
    };
    match beyond::remote_kind(device, link) {
        Ok(RemoteKind::Switch) => Ok(Remote::Switch),
        Ok(RemoteKind::Cpu) => Ok(Remote::Cpu),
        Ok(RemoteKind::Gpu) => at(true),
        // Drivers before 450 have no such call.
        Err(error) if word::unsupported(&error) => at(false),
        Err(error) => Err(error),
    }
}

/// What tells one PCI device from another, however its address is written.
pub fn address(pci: &PciInfo) -> (u32, u32, u32) {
    (pci.domain, pci.bus, pci.device)
}
