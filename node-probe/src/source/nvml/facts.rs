//! Facts of a GPU that do not change while the driver is loaded, except for its modes.

use super::device::{DeviceHandle, HandleError};
use super::{REPORTER, affinity, error, ffi};
use crate::source::plausible;
use nodeglass_protocol::gpu::{MigFacts, Virtualization};
use nodeglass_protocol::probe::GpuFacts;
use nodeglass_protocol::{Reading, Text, Vendor};
use nvml_wrapper::enum_wrappers::device::{Clock, ComputeMode, GpuVirtualizationMode, TemperatureThreshold};
use nvml_wrapper::enums::device::DeviceArchitecture;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};

/// Product name fragments of GPUs whose memory is coherent with a Grace CPU.
const COHERENT: [&str; 3] = ["GH200", "GB200", "GB300"];
/// Compute capabilities of integrated GPUs only, by the CUDA programming guide: TX1, TX2, Xavier,
/// Orin, Thor (10.1 before CUDA 13, 11.0 since), GB10.
const INTEGRATED: [(i32, i32); 7] = [(5, 3), (6, 2), (7, 2), (8, 7), (10, 1), (11, 0), (12, 1)];
/// Product name fragments of integrated GPUs, for drivers that do not report the compute
/// capability.
const INTEGRATED_NAMES: [&str; 4] = ["GB10", "nvgpu", "Jetson", "Tegra"];

/// Queries the facts of one inventory entry; of a lost GPU only its identity.
pub fn of(nvml: &Nvml, handle: &DeviceHandle<'_>) -> GpuFacts {
    let blank = GpuFacts {
        vendor: Vendor::Nvidia,
        mig_parent: handle.mig.as_ref().map(|mig| mig.parent.clone()),
        ..GpuFacts::new(handle.uuid.clone(), handle.index)
    };
    match &handle.device {
        Ok(device) => {
            let facts = with_limits(
                device,
                handle,
                with_modes(nvml, device, handle, with_identity(device, handle, blank)),
            );
            let mut facts = GpuFacts {
                unified_memory: unified(device, handle, &facts),
                mig: instance(device, handle, &facts),
                ..facts
            };
            plausible::facts(&mut facts, REPORTER);
            facts
        }
        Err(HandleError::Forbidden) => GpuFacts { name: Reading::Failed(error::FORBIDDEN.into()), ..blank },
        Err(HandleError::Faulty(_) | HandleError::Avoided(_)) => blank,
    }
}

/// Some drivers report an invalid argument for board-level queries of an instance.
fn reported_value<T>(handle: &DeviceHandle<'_>, result: Result<T, NvmlError>) -> Reading<T> {
    handle.calls.begin_next_call();
    match result {
        Err(NvmlError::InvalidArg) if handle.mig.is_some() => Reading::Unsupported,
        result => error::reading(result),
    }
}

fn with_identity(device: &Device<'_>, handle: &DeviceHandle<'_>, blank: GpuFacts) -> GpuFacts {
    let pci = reported_value(handle, device.pci_info().map(|pci| pci.bus_id));
    GpuFacts {
        minor: reported_value(handle, device.minor_number()),
        name: reported_value(handle, device.name()).map(Text::from),
        serial: reported_value(handle, device.serial()).map(Text::from),
        vbios: reported_value(handle, device.vbios_version()).map(Text::from),
        architecture: reported_value(handle, architecture(device)),
        compute_capability: reported_value(handle, device.cuda_compute_capability())
            .map(|version| format!("{}.{}", version.major, version.minor).into()),
        cores: reported_value(handle, device.num_cores()),
        numa_node: affinity::numa_node(device, pci.value().map(String::as_str)),
        cpu_affinity: affinity::cpu_affinity(device),
        pci: pci.map(Text::from),
        ..blank
    }
}

fn with_modes(nvml: &Nvml, device: &Device<'_>, handle: &DeviceHandle<'_>, facts: GpuFacts) -> GpuFacts {
    GpuFacts {
        compute_mode: reported_value(handle, device.compute_mode()).map(|mode| compute_mode(&mode).into()),
        persistence: reported_value(handle, device.is_in_persistent_mode()),
        ecc_mode: reported_value(handle, device.is_ecc_enabled()).map(|mode| mode.currently_enabled),
        mig_mode: match &handle.instances {
            Reading::Failed(why) => Reading::Failed(why.clone()),
            _ => handle.divided.map_or(Reading::Unsupported, Reading::Value),
        },
        confidential: error::reading(ffi::confidential(nvml)),
        virtualization: reported_value(handle, device.virtualization_mode())
            .map(|mode| virtualization(&mode)),
        ..facts
    }
}

fn with_limits(device: &Device<'_>, handle: &DeviceHandle<'_>, facts: GpuFacts) -> GpuFacts {
    let clock = |kind| reported_value(handle, device.max_clock_info(kind));
    let temperature = |kind| reported_value(handle, device.temperature_threshold(kind));
    let power = reported_value(handle, device.power_management_limit_constraints());
    GpuFacts {
        sm_clock_max_mhz: clock(Clock::SM),
        mem_clock_max_mhz: clock(Clock::Memory),
        graphics_clock_max_mhz: clock(Clock::Graphics),
        video_clock_max_mhz: clock(Clock::Video),
        temp_slowdown_c: temperature(TemperatureThreshold::Slowdown),
        temp_shutdown_c: temperature(TemperatureThreshold::Shutdown),
        temp_mem_max_c: temperature(TemperatureThreshold::MemoryMax),
        temp_gpu_max_c: temperature(TemperatureThreshold::GpuMax),
        power_default_mw: reported_value(handle, device.power_management_limit_default()),
        power_min_mw: power.clone().map(|limits| limits.min_limit),
        power_max_mw: power.map(|limits| limits.max_limit),
        pcie_gen_max: reported_value(handle, device.max_pcie_link_gen()),
        pcie_width_max: reported_value(handle, device.max_pcie_link_width()),
        ..facts
    }
}

/// Architectures by NVML's number; unknown ones keep their number.
fn architecture(device: &Device<'_>) -> Result<Text, NvmlError> {
    match device.architecture() {
        Ok(DeviceArchitecture::Unknown) => Err(NvmlError::NotSupported),
        Ok(known) => Ok(known.to_string().into()),
        Err(NvmlError::UnexpectedVariant(number)) => Ok(format!("architecture {number}").into()),
        Err(error) => Err(error),
    }
}

fn virtualization(mode: &GpuVirtualizationMode) -> Virtualization {
    match mode {
        GpuVirtualizationMode::Bare => Virtualization::None,
        GpuVirtualizationMode::PassThrough => Virtualization::PassThrough,
        GpuVirtualizationMode::Vgpu => Virtualization::VgpuGuest,
        GpuVirtualizationMode::HostVgpu => Virtualization::VgpuHost,
        GpuVirtualizationMode::HostVsga => Virtualization::VsgaHost,
    }
}

fn compute_mode(mode: &ComputeMode) -> &'static str {
    match mode {
        ComputeMode::Default => "default",
        ComputeMode::ExclusiveThread => "exclusive thread",
        ComputeMode::Prohibited => "prohibited",
        ComputeMode::ExclusiveProcess => "exclusive process",
    }
}

/// An integrated GPU uses the host's memory; one on a Grace CPU has its own in a shared address
/// space.
fn unified(device: &Device<'_>, handle: &DeviceHandle<'_>, facts: &GpuFacts) -> bool {
    if handle.mig.is_some() {
        return false;
    }
    let named =
        facts.name.value().is_some_and(|name| COHERENT.iter().any(|part| name.as_str().contains(part)));
    named || ffi::shares_page_tables(device).unwrap_or(false) || is_integrated(device)
}

/// Returns whether a GPU is integrated and has no memory of its own: GB10 (DGX Spark) and the Jetsons.
///
/// A missing memory size does not show that, because a failing driver does not report an H100's either.
pub fn is_integrated(device: &Device<'_>) -> bool {
    let version = device.cuda_compute_capability().ok().map(|version| (version.major, version.minor));
    version.is_some_and(|version| INTEGRATED.contains(&version))
        || device.name().is_ok_and(|name| INTEGRATED_NAMES.iter().any(|part| name.contains(part)))
}

/// Identity of an instance within its GPU.
fn instance(device: &Device<'_>, handle: &DeviceHandle<'_>, facts: &GpuFacts) -> Option<MigFacts> {
    let (gpu_instance, compute_instance) = handle.mig.as_ref()?.ids?;
    let name = facts.name.value().map(Text::as_str);
    Some(MigFacts {
        gpu_instance,
        compute_instance,
        profile: name.and_then(profile).map(Text::from),
        multiprocessors: device.attributes().ok().map(|attributes| attributes.multiprocessor_count),
    })
}

/// Extracts `3g.40gb` from `NVIDIA A100-SXM4-80GB MIG 3g.40gb`; a compute instance may precede it:
/// `1c.3g.40gb`.
fn profile(name: &str) -> Option<&str> {
    let (_, profile) = name.rsplit_once("MIG ")?;
    (!profile.trim().is_empty()).then_some(profile.trim())
}

/// Formats `12040` as `12.4`.
pub fn cuda_version(number: i32) -> Text {
    let (major, minor) =
        (nvml_wrapper::cuda_driver_version_major(number), nvml_wrapper::cuda_driver_version_minor(number));
    format!("{major}.{minor}").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_profile_is_the_suffix_of_an_instances_name() {
        assert_eq!(profile("NVIDIA A100-SXM4-80GB MIG 3g.40gb"), Some("3g.40gb"));
        assert_eq!(profile("NVIDIA H100 80GB HBM3 MIG 1c.3g.40gb"), Some("1c.3g.40gb"));
        assert_eq!(profile("NVIDIA H100 80GB HBM3"), None);
        assert_eq!(profile("MIG "), None);
    }
}
