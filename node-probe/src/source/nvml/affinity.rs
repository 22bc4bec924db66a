//! Where a GPU sits on its board: which CPUs and which memory are near.

use super::error;
use nodeglass_protocol::{Reading, Text};
use nvml_wrapper::Device;
use nvml_wrapper_sys::bindings::NVML_AFFINITY_SCOPE_NODE;
use std::{fs, path::Path};

/// Words of a set of CPUs: 4096 of them.
const CPU_WORDS: usize = 64;
/// Words of a set of NUMA nodes: 128 of them.
const NODE_WORDS: usize = 2;
/// Where the kernel lists PCI devices.
const PCI_DEVICES: &str = "/sys/bus/pci/devices";

/// The NUMA node that it is nearest to: by NVML where the GPU is a node itself, by the kernel
/// elsewhere, and by NVML's memory affinity where the kernel does not show the device.
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

/// `numa_node` of `00000000:07:00.0`, which the kernel calls `0000:07:00.0`; −1 there means none.
fn of_the_kernel(devices: &Path, pci: &str) -> Option<u32> {
    let (domain, rest) = pci.split_once(':')?;
    let domain = u32::from_str_radix(domain, 16).ok()?;
    let folder = devices.join(format!("{domain:04x}:{}", rest.to_ascii_lowercase()));
    fs::read_to_string(folder.join("numa_node")).ok()?.trim().parse().ok()
}

/// CPUs that it is nearest to, as ranges.
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

/// `0-3,8` of 0, 1, 2, 3 and 8, which come in order.
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
    fn the_kernel_knows_the_node_by_its_own_spelling() {
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
