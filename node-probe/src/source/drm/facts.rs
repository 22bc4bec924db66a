//! Facts of a GPU that the PCI core and the driver's common attributes state.

use super::attribute::{self, ReadError};
use super::card::Card;
use super::link::PcieLink;
use super::names;
use nodeglass_protocol::probe::{GpuFacts, GpuSample};
use nodeglass_protocol::{Reading, Vendor};
use std::path::Path;

/// Returns the facts that every driver provides, the others as unsupported. The attributes of the
/// PCI link are not read from a suspended device.
pub fn of(root: &Path, card: &Card, vendor: Vendor, link: &PcieLink, is_awake: bool) -> GpuFacts {
    let device = &card.device;
    let small = |result: Result<u64, ReadError>| match is_awake {
        true => narrow(result),
        false => Reading::NotYet,
    };
    // The kernel states −1 on machines without NUMA.
    let numa_node = attribute::read_number(&device.join("numa_node"));
    let numa_node = narrow(numa_node.or(Err(ReadError::Missing)));
    GpuFacts {
        vendor,
        pci: card.pci.as_ref().map_or(Reading::Unsupported, |pci| Reading::Value(long_address(pci).into())),
        name: Reading::Value(names::of(root, vendor, card).into()),
        pcie_gen_max: small(link.max_generation()),
        pcie_width_max: small(link.max_width()),
        numa_node,
        cpu_affinity: attribute::read_reading(&device.join("local_cpulist")),
        ..if is_awake { GpuFacts::unsupported() } else { pending() }
    }
}

/// Facts of a suspended GPU: what only a running one states is not known yet.
fn pending() -> GpuFacts {
    GpuFacts {
        sm_clock_max_mhz: Reading::NotYet,
        mem_clock_max_mhz: Reading::NotYet,
        temp_slowdown_c: Reading::NotYet,
        temp_shutdown_c: Reading::NotYet,
        temp_mem_max_c: Reading::NotYet,
        power_default_mw: Reading::NotYet,
        power_min_mw: Reading::NotYet,
        power_max_mw: Reading::NotYet,
        compute_mode: Reading::NotYet,
        ..GpuFacts::unsupported()
    }
}

/// A sample without any value.
pub fn unsupported_sample() -> GpuSample {
    let mut sample = GpuSample::default();
    sample.readings_mut().for_each(|reading| *reading = Reading::Unsupported);
    sample
}

/// Converts a number to a fact; one beyond 32 bits fails.
pub fn narrow(result: Result<u64, ReadError>) -> Reading<u32> {
    match attribute::reading(result) {
        Reading::Value(value) => u32::try_from(value)
            .map_or_else(|_| Reading::Failed(format!("the driver reported {value}").into()), Reading::Value),
        Reading::Unsupported => Reading::Unsupported,
        Reading::Failed(why) => Reading::Failed(why),
        Reading::NotYet => Reading::NotYet,
    }
}

/// NVML's form of a PCI address, with a domain of eight digits, which the facts have for all vendors.
pub fn long_address(pci: &str) -> String {
    let domain = pci.find(':').unwrap_or(0);
    format!("{pci:0>width$}", width = pci.len() + 8_usize.saturating_sub(domain)).to_ascii_uppercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_the_same_form_for_all_vendors() {
        assert_eq!(long_address("0000:c3:00.0"), "00000000:C3:00.0");
        assert_eq!(long_address("10000:e1:00.0"), "00010000:E1:00.0");
    }
}
