//! CPU and NUMA affinity of a GPU.

use super::error;
use nodeglass_protocol::{Reading, Text};
use nvml_wrapper::Device;
use nvml_wrapper_sys::bindings::NVML_AFFINITY_SCOPE_NODE;
use std::{fs, path::Path};

/// Words of a CPU set: 4096 CPUs.
const CPU_WORDS: usize = 64;
/// Words of a NUMA node set: 128 nodes.
const NODE_WORDS: usize = 2;
/// Directory of PCI devices in sysfs.
const PCI_DEVICES: &str = "/sys/bus/pci/devices";

/// Returns the nearest NUMA node: from NVML if the GPU is a node itself, otherwise from sysfs, or
/// from NVML's memory affinity if sysfs does not show the device.
pub fn numa_node(device: &Device<'_>, pci: Option<&str>) -> Reading<u32> {
    let reported_value = error::reading(device.numa_node_id());
    if reported_value.value().is_some() {
        return reported_value;
    }
    if let Some(node) = pci.and_then(|pci| of_the_kernel(Path::new(PCI_DEVICES), pci)) {
        return Reading::Value(node);
    }
    let near = error::reading(device.memory_affinity(NODE_WORDS, NVML_AFFINITY_SCOPE_NODE));
    match near.map(|words| bits(&words).next()) {
        Reading::Value(Some(node)) => Reading::Value(node),
        Reading::Value(None) => Reading::Unsupported,
        failed => failed.map(Option::unwrap_or_default),
    }
}

/// Reads `numa_node` of `00000000:07:00.0`, in sysfs `0000:07:00.0`; −1 means none.
fn of_the_kernel(devices: &Path, pci: &str) -> Option<u32> {
    let (domain, rest) = pci.split_once(':')?;
    let domain = u32::from_str_radix(domain, 16).ok()?;
    let folder = devices.join(format!("{domain:04x}:{}", rest.to_ascii_lowercase()));
    fs::read_to_string(folder.join("numa_node")).ok()?.trim().parse().ok()
}

/// Returns the nearest CPUs as ranges.
pub fn cpu_affinity(device: &Device<'_>) -> Reading<Text> {
    match error::reading(device.cpu_affinity(CPU_WORDS)).map(|words| ranges(bits(&words))) {
        Reading::Value(ranges) if ranges.is_empty() => Reading::Unsupported,
        reading => reading.map(Text::from),
    }
}

fn bits(words: &[u64]) -> impl Iterator<Item = u32> + '_ {
    (0_u32..)
        .zip(words)
        .flat_map(|(at, word)| (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| at * 64 + bit))
}

/// Formats ascending numbers as ranges, such as `0-3,8`.
fn ranges(numbers: impl Iterator<Item = u32>) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    let words = ranges
        .into_iter()
        .map(|(first, last)| if first == last { first.to_string() } else { format!("{first}-{last}") });
    words.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_of_cpus_is_written_as_ranges() {
        assert_eq!(ranges(bits(&[0b1_0000_1111, 0, 1])), "0-3,8,128");
        assert_eq!(ranges(bits(&[u64::MAX, 1])), "0-64");
        assert_eq!(ranges(bits(&[0, 0])), "");
    }

    #[test]
    fn sysfs_addresses_are_derived_from_nvml_addresses() {
        let devices = tempfile::tempdir().unwrap();
        for (name, node) in [("0000:4f:00.0", "1\n"), ("10002:07:00.0", "3\n"), ("0000:08:00.0", "-1\n")] {
            fs::create_dir(devices.path().join(name)).unwrap();
            fs::write(devices.path().join(name).join("numa_node"), node).unwrap();
        }
        let node = |pci| of_the_kernel(devices.path(), pci);
        assert_eq!([node("00000000:4F:00.0"), node("00010002:07:00.0")], [Some(1), Some(3)]);
        assert_eq!([node("00000000:08:00.0"), node("00000000:09:00.0"), node("?")], [None; 3]);
    }
}
