//! What does not change of a GPU while the driver is loaded.

use super::{device::Seat, word};
use nodeglass_protocol::Text;
use nodeglass_protocol::probe::GpuFacts;
use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureThreshold};

/// The facts of one row of the inventory; of a lost GPU only who it is.
pub fn of(seat: &Seat<'_>) -> GpuFacts {
    let blank = GpuFacts {
        mig_parent: seat.mig.as_ref().map(|mig| mig.parent.clone()),
        ..GpuFacts::new(seat.uuid.clone(), seat.index)
    };
    match &seat.device {
        Ok(device) => asked(device, blank),
        Err(_) => blank,
    }
}

fn asked(device: &Device<'_>, blank: GpuFacts) -> GpuFacts {
    GpuFacts {
        minor: word::reading(device.minor_number()),
        pci: word::text(device.pci_info().map(|pci| pci.bus_id)),
        name: word::text(device.name()),
        sm_clock_max_mhz: word::reading(device.max_clock_info(Clock::SM)),
        mem_clock_max_mhz: word::reading(device.max_clock_info(Clock::Memory)),
        temp_slowdown_c: word::reading(device.temperature_threshold(TemperatureThreshold::Slowdown)),
        ..blank
    }
}

/// `12040` as `12.4`.
pub fn cuda_version(number: i32) -> Text {
    let (major, minor) =
        (nvml_wrapper::cuda_driver_version_major(number), nvml_wrapper::cuda_driver_version_minor(number));
    format!("{major}.{minor}").into()
}
