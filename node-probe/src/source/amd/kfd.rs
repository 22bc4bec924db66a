//! The compute driver (KFD) beside amdgpu: its name for a GPU, and its processes, including other users'.

use crate::source::drm::attribute::{self, Attribute};
use crate::source::drm::card::{self, Partition};
use nodeglass_protocol::Text;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Maximum number of processes.
const MAX_PROCESSES: usize = 4_096;
/// Maximum size of a node's properties.
const MAX_BYTES: usize = 16 << 10;

/// A GPU in the topology of the compute driver. Partitions are nodes of their own at the address of
/// their GPU.
#[derive(Debug, Default)]
pub struct KfdGpu {
    proc: PathBuf,
    /// Its ids, one per partition.
    ids: Vec<u32>,
    /// Number of compute units.
    pub compute_units: u64,
    /// Instruction set: `gfx90a`.
    pub architecture: Option<Text>,
}

/// A process of the compute driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KfdProcess {
    /// Process id on the node.
    pub pid: u32,
    /// Memory on the device in bytes.
    pub vram_bytes: Option<u64>,
    /// Number of compute units in use.
    pub busy_units: Option<u64>,
}

impl KfdGpu {
    /// Finds a GPU by its PCI address, or one of its partitions, which the driver lists in their order.
    pub fn of(root: &Path, pci: Option<&str>, partition: Option<Partition>) -> Self {
        let kfd = root.join("sys/class/kfd/kfd");
        let mut gpu = Self { proc: kfd.join("proc"), ..Self::default() };
        let Some(location) = pci.and_then(location) else { return gpu };
        let nodes = fs::read_dir(kfd.join("topology/nodes")).into_iter().flatten().take(card::MAX_ENTRIES);
        let mut nodes: Vec<_> = nodes.filter_map(|entry| Some(entry.ok()?.path())).collect();
        nodes.sort_by_key(|node| node.file_name().and_then(|name| card::number(name.to_str()?, "")));
        for node in nodes {
            gpu.add_node(&node, location);
        }
        if let Some(Partition { number, count }) = partition {
            let number = usize::try_from(number).unwrap_or(usize::MAX);
            gpu.compute_units /= u64::from(count.max(1));
            gpu.ids = gpu.ids.get(number).copied().into_iter().collect();
        }
        gpu
    }

    /// Number of partitions that the driver lists.
    pub fn partitions(&self) -> u32 {
        u32::try_from(self.ids.len()).unwrap_or(0)
    }

    fn add_node(&mut self, node: &Path, location: (u64, u64)) {
        let mut buffer = vec![0; MAX_BYTES];
        let properties = Attribute::open(&node.join("properties"));
        let Ok(text) = properties.text(&mut buffer) else { return };
        let value = |name: &str| {
            let mut words = text.lines().map(|line| line.split_once(' ').unwrap_or_default());
            words.find_map(|(key, value)| (key == name).then(|| value.trim().parse::<u64>().ok())?)
        };
        // The CPUs are nodes too, without compute units.
        let units = value("simd_count").unwrap_or(0) / value("simd_per_cu").unwrap_or(1).max(1);
        let at = (value("domain").unwrap_or(0), value("location_id").unwrap_or(u64::MAX));
        if units == 0 || at != location {
            return;
        }
        let Some(id) =
            attribute::read_number(&node.join("gpu_id")).ok().and_then(|id| u32::try_from(id).ok())
        else {
            return;
        };
        self.ids.push(id);
        self.compute_units = self.compute_units.saturating_add(units);
        self.architecture = value("gfx_target_version").filter(|version| *version > 0).map(architecture);
    }

    /// Returns whether the driver knows the GPU.
    pub fn is_known(&self) -> bool {
        !self.ids.is_empty() && self.proc.is_dir()
    }

    /// Memory of the device that processes use in bytes, if the driver knows the GPU.
    pub fn vram_bytes(&self) -> Option<u64> {
        let used = || self.processes().iter().filter_map(|process| process.vram_bytes).sum();
        self.is_known().then(used)
    }

    /// Lists the processes that have the GPU open for compute.
    pub fn processes(&self) -> Vec<KfdProcess> {
        if self.ids.is_empty() {
            return Vec::new();
        }
        let entries = fs::read_dir(&self.proc).into_iter().flatten().take(MAX_PROCESSES);
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        names.filter_map(|name| card::number(&name, "")).filter_map(|pid| self.process(pid)).collect()
    }

    /// Reads what a process uses of all partitions; `None` if it uses nothing. Every process of the
    /// driver has entries for all GPUs.
    fn process(&self, pid: u32) -> Option<KfdProcess> {
        let folder = self.proc.join(pid.to_string());
        let sum = |path: &dyn Fn(u32) -> PathBuf| {
            let values = self.ids.iter().filter_map(|id| attribute::read_number(&path(*id)).ok());
            values.reduce(u64::saturating_add)
        };
        let vram_bytes = sum(&|id| folder.join(format!("vram_{id}")));
        let busy_units = sum(&|id| folder.join(format!("stats_{id}/cu_occupancy")));
        let is_used = vram_bytes.is_some_and(|bytes| bytes > 0) || busy_units.is_some_and(|units| units > 0);
        is_used.then_some(KfdProcess { pid, vram_bytes, busy_units })
    }
}

/// Converts a PCI address to the driver's form: domain, and bus, slot and function in one number.
fn location(pci: &str) -> Option<(u64, u64)> {
    let (domain, rest) = pci.split_once(':')?;
    let (bus, rest) = rest.split_once(':')?;
    let (slot, function) = rest.split_once('.')?;
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    Some((hex(domain)?, hex(bus)? << 8 | hex(slot)? << 3 | hex(function)?))
}

/// Converts 90010 to `gfx90a`: major version in decimal, minor and stepping in hexadecimal.
fn architecture(version: u64) -> Text {
    format!("gfx{}{:x}{:x}", version / 10_000, version / 100 % 100, version % 100).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_instruction_sets_have_the_usual_names() {
        assert_eq!(location("0000:c3:00.0"), Some((0, 0xc300)));
        assert_eq!(location("0001:03:02.1"), Some((1, 0x311)));
        assert_eq!(
            [90_010, 90_402, 110_000].map(|version| architecture(version).to_string()),
            ["gfx90a", "gfx942", "gfx1100"]
        );
    }
}
