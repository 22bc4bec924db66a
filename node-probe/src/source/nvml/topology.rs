//! Connections between the GPUs of a node: NVLinks if there are any, otherwise PCIe.

use super::device::DeviceHandle;
use super::nvlinks::{self, Remote};
use crate::source::calls::CallTracker;
use nodeglass_protocol::probe::GpuPath;
use nvml_wrapper::enum_wrappers::device::TopologyLevel;
use nvml_wrapper::{Device, Nvml};

/// Returns one row per GPU (no instances) with its connection to each GPU; empty if NVML reports
/// nothing.
pub fn of(nvml: &Nvml, handles: &[DeviceHandle<'_>], calls: &CallTracker) -> Vec<Vec<GpuPath>> {
    let gpus: Vec<_> = handles
        .iter()
        .filter(|handle| handle.mig.is_none())
        .map(|handle| {
            calls.begin_gpu_call(handle.index);
            Gpu::of(handle, calls)
        })
        .collect();
    let rows: Vec<Vec<_>> = (0..gpus.len())
        .map(|from| {
            let path = |to: usize| {
                calls.begin_gpu_call(gpus[from].index);
                if from == to { GpuPath::Same } else { path(nvml, &gpus[from], &gpus[to]) }
            };
            (0..gpus.len()).map(path).collect()
        })
        .collect();
    let reported_value = rows.iter().flatten().any(|path| !matches!(path, GpuPath::Same | GpuPath::Unknown));
    if reported_value { rows } else { Vec::new() }
}

/// A GPU with the remote ends of its NVLinks.
struct Gpu<'a, 'nvml> {
    /// NVML index.
    index: u32,
    device: Option<&'a Device<'nvml>>,
    ends: Ends,
}

/// Remote ends of a GPU's NVLinks.
#[derive(Clone, Debug, Default, PartialEq)]
struct Ends {
    /// PCI address of the GPU.
    address: Option<(u32, u32, u32)>,
    /// PCI addresses of the remote ends, one per link.
    devices: Vec<(u32, u32, u32)>,
    /// Number of links to switches.
    switches: u32,
}

impl<'a, 'nvml> Gpu<'a, 'nvml> {
    fn of(handle: &'a DeviceHandle<'nvml>, calls: &CallTracker) -> Self {
        let device = handle.device.as_ref().ok();
        let ends = device.map(|device| ends(device, calls)).unwrap_or_default();
        Self { index: handle.index, device, ends }
    }
}

fn ends(device: &Device<'_>, calls: &CallTracker) -> Ends {
    let address = device.pci_info().ok().map(|pci| nvlinks::address(&pci));
    let mut ends = Ends { address, ..Ends::default() };
    let states = nvlinks::states(device, calls).unwrap_or_default();
    for (link, state) in (0..).zip(states) {
        if !matches!(state, Ok(true)) {
            continue;
        }
        calls.begin_next_call();
        match nvlinks::remote(device, link) {
            Ok(Remote::Device { address, .. }) => ends.devices.push(address),
            Ok(Remote::Switch) => ends.switches += 1,
            Ok(Remote::Cpu) | Err(_) => {}
        }
    }
    ends
}

fn path(nvml: &Nvml, from: &Gpu<'_, '_>, to: &Gpu<'_, '_>) -> GpuPath {
    match (links(&from.ends, &to.ends), from.device, to.device) {
        // The wrapper requires a separate handle.
        (0, Some(from), Some(_)) => {
            nvml.device_by_index(to.index).map_or(GpuPath::Unknown, |to| ancestor(from, to))
        }
        (0, ..) => GpuPath::Unknown,
        (links, ..) => GpuPath::NvLink(links),
    }
}

/// Returns the number of NVLinks between two GPUs. Switches connect all GPUs of a machine.
fn links(from: &Ends, to: &Ends) -> u32 {
    let direct = to.address.map_or(0, |to| from.devices.iter().filter(|end| **end == to).count());
    u32::try_from(direct).unwrap_or(u32::MAX) + from.switches.min(to.switches)
}

fn ancestor(from: &Device<'_>, to: Device<'_>) -> GpuPath {
    match from.topology_common_ancestor(to) {
        Ok(TopologyLevel::Internal) => GpuPath::Internal,
        Ok(TopologyLevel::Single) => GpuPath::PciSwitch,
        Ok(TopologyLevel::Multiple) => GpuPath::PciSwitches,
        Ok(TopologyLevel::HostBridge) => GpuPath::HostBridge,
        Ok(TopologyLevel::Node) => GpuPath::NumaNode,
        Ok(TopologyLevel::System) => GpuPath::System,
        Err(_) => GpuPath::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(bus: u32, devices: &[u32], switches: u32) -> Ends {
        let address = |bus: &u32| (0, *bus, 0);
        Ends { address: Some(address(&bus)), devices: devices.iter().map(address).collect(), switches }
    }

    #[test]
    fn links_are_counted_directly_and_through_switches() {
        assert_eq!(links(&ends(1, &[2, 2, 3], 0), &ends(2, &[1, 1], 0)), 2);
        assert_eq!(links(&ends(1, &[2, 2, 3], 0), &ends(4, &[], 0)), 0);
        assert_eq!(links(&ends(1, &[], 18), &ends(2, &[], 17)), 17);
        assert_eq!(links(&ends(1, &[], 18), &ends(2, &[], 0)), 0);
    }
}
