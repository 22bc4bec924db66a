//! Properties that do not change while a GPU runs: manufacturer data, capabilities, location, and modes.

use super::Overridable;
use serde::{Deserialize, Serialize};

/// Identity, location and modes of a GPU.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Board {
    /// `nvmlDeviceGetSerial`; a `*` is replaced by the GPU's index in four digits.
    pub serial: Option<String>,
    /// `nvmlDeviceGetBoardPartNumber`.
    pub part_number: Option<String>,
    /// `nvmlDeviceGetVbiosVersion`.
    pub vbios: Option<String>,
    /// `nvmlDeviceGetInforomImageVersion`.
    pub inforom_image: Option<String>,
    /// `nvmlDeviceGetInforomVersion` of the OEM, ECC and power objects.
    pub inforom: [Option<String>; 3],
    /// `nvmlBrandType_t`: 5 GeForce, 13 NVIDIA RTX, 14 NVIDIA.
    pub brand: u32,
    /// `nvmlDeviceArchitecture_t`: 6 Turing, 7 Ampere, 9 Hopper, 10 Blackwell.
    pub architecture: u32,
    /// CUDA compute capability, major and minor.
    pub compute_capability: [u32; 2],
    /// CUDA cores.
    pub cores: Option<u32>,
    /// Streaming multiprocessors that a MIG profile has for each of its slices.
    pub slice_multiprocessors: u32,
    /// PCI vendor and device, as `10de:20b2`.
    pub pci_device: String,
    /// PCI subsystem, vendor first likewise.
    pub pci_subsystem: String,
    /// `nvmlDeviceGetModuleId`; follows the position from 1.
    pub module: Overridable<u32>,
    /// The NUMA node whose CPUs are near; GPUs are spread over two nodes in order if it follows.
    pub socket: Overridable<u32>,
    /// CPUs that are near, as `0-31,64-95`; the NUMA node's by default.
    pub cpus: Overridable<String>,
    /// The NUMA node that the GPU's own memory is, on Grace machines.
    pub numa_node: Option<u32>,
    /// `nvmlDeviceGetGspFirmwareVersion`; follows the driver's version.
    pub gsp: Overridable<String>,
    /// Persistence mode.
    pub persistence: Option<bool>,
    /// `nvmlComputeMode_t`: 0 default, 2 prohibited, 3 exclusive process.
    pub compute_mode: u32,
    /// Whether a display is connected.
    pub display_connected: bool,
    /// Whether a display shows something.
    pub display_active: bool,
    /// `nvmlGpuVirtualizationMode_t`: 0 none, 1 pass-through, 2 a vGPU of this machine.
    pub virtualization: u32,
    /// C2C links to the CPU and the speed of each in MB/s: (0, 0) off Grace.
    pub c2c: [u32; 2],
    /// Whether the GPU supports MIG.
    pub mig_capable: bool,
    /// Whether MIG mode is on; by default if there are instances.
    pub mig_mode: Overridable<bool>,
    /// MIG mode after a reset; by default the current mode.
    pub mig_pending: Overridable<bool>,
}

impl Default for Board {
    fn default() -> Self {
        Self {
            serial: Some("132052100*".into()),
            part_number: Some("692-2G506-0200-003".into()),
            vbios: Some("92.00.45.00.03".into()),
            inforom_image: Some("G506.0200.00.04".into()),
            inforom: [Some("2.0".into()), Some("6.16".into()), None],
            brand: 14,
            architecture: 7,
            compute_capability: [8, 0],
            cores: Some(6_912),
            slice_multiprocessors: 14,
            pci_device: "10de:20b2".into(),
            pci_subsystem: "10de:1463".into(),
            module: Overridable::Follows,
            socket: Overridable::Follows,
            cpus: Overridable::Follows,
            numa_node: None,
            gsp: Overridable::Follows,
            persistence: Some(true),
            compute_mode: 0,
            display_connected: false,
            display_active: false,
            virtualization: 0,
            c2c: [0, 0],
            mig_capable: true,
            mig_mode: Overridable::Follows,
            mig_pending: Overridable::Follows,
        }
    }
}
